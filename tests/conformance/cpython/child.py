"""One file of CPython's tests, in this process: each test in each way, one after the other.

    python -m tests.conformance.cpython.child test_dict REPORT --ways plain,compiled,between

Enters: the name of the file, and what the report says already. Leaves: two lines of JSON for each
test and way in the report, when it begins and when it ended, and one at the end of all. Invariant:
the line of the beginning is on disk before the test runs; so a test that kills the process is
named by a line without its end, and another child goes on behind it.
"""

from __future__ import annotations

import argparse
import doctest
import functools
import importlib
import inspect
import json
import os
import signal
import sys
import tempfile
import time
import traceback
import unittest
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any, TextIO

import torch
from test import support  # type: ignore[import-not-found]

import windfall
from tests.conformance.cpython import selection

PLAIN, COMPILED, BETWEEN = WAYS = ("plain", "compiled", "between")
_RINGS = 4  # an alarm may be swallowed by the test; past these the process ends


class Late(BaseException):
    """The test took too long. It is no `Exception`: tests catch these."""


class Outcome(unittest.TestResult):
    """How a test ended: kinds and exception classes, subtests counted one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[str] = []
        self.details: list[str] = []

    def _note(self, kind: str, error: Any) -> None:
        self.ends.append(f"{kind} {error[0].__name__}")
        lines = traceback.format_exception(*error, chain=False)
        self.details.append("".join(lines)[-1500:])

    def addError(self, test: Any, err: Any) -> None:
        self._note("error", err)

    def addFailure(self, test: Any, err: Any) -> None:
        self._note("failure", err)

    def addExpectedFailure(self, test: Any, err: Any) -> None:
        self.ends.append("expected failure")

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        if err is not None:
            failed = issubclass(err[0], test.failureException)
            self._note("failure" if failed else "error", err)

    def addSkip(self, test: Any, reason: str) -> None:
        self.ends.append("skipped")

    def addUnexpectedSuccess(self, test: Any) -> None:
        self.ends.append("unexpected success")

    @property
    def summary(self) -> str:
        return ", ".join(sorted(self.ends)) or "passed"


def between_tensors(test: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The test with a tensor that is made before it and used after it."""
    if inspect.iscoroutinefunction(test):

        async def surrounded_wait(self: Any) -> torch.Tensor:
            before = torch.ones(2) + 1
            await test(self)
            return before * 2

        return surrounded_wait

    def surrounded(self: Any) -> torch.Tensor:
        before = torch.ones(2) + 1
        test(self)
        return before * 2

    return surrounded


def _checked(way: str, answer: Any) -> None:
    if way == BETWEEN and answer.tolist() != [4.0, 4.0]:
        raise AssertionError(f"the tensor around the test is {answer}")


def compile_method(case: unittest.TestCase, way: str) -> Any:
    """Let this instance run its test compiled; the compiled object."""
    name = case._testMethodName
    test = getattr(type(case), name)
    target = between_tensors(test) if way == BETWEEN else test
    compiled = windfall.compile(target, backend="eager")
    if inspect.iscoroutinefunction(test):

        async def wait() -> None:
            _checked(way, await compiled(case))

        run: Callable[[], Any] = wait
    else:

        def call() -> None:
            _checked(way, compiled(case))

        run = call
    # What the decorators of unittest leave on a function: skipped, expected to fail.
    vars(run).update({key: value for key, value in vars(test).items() if "unittest" in key})
    vars(case)[name] = run
    return compiled


def tests_of(file: str) -> Iterator[tuple[str, unittest.TestCase]]:
    """The test methods of a file with their names, in order; doctests are none."""
    times: Counter[str] = Counter()
    pending: list[Any] = [unittest.defaultTestLoader.loadTestsFromModule(_module(file))]
    while pending:
        one = pending.pop()
        if isinstance(one, unittest.TestSuite):
            pending.extend(reversed(list(one)))
        elif _is_method(one):
            name = one.id().removeprefix("test.")
            times[name] += 1  # classes made by one function have one name
            yield (name if times[name] == 1 else f"{name}#{times[name]}"), one


def _is_method(case: unittest.TestCase) -> bool:
    if isinstance(case, doctest.DocTestCase):
        return False
    return isinstance(getattr(type(case), case._testMethodName, None), FunctionType)


@functools.cache
def _module(file: str) -> Any:
    return importlib.import_module(f"test.{file}")


def run_one(case: unittest.TestCase, way: str, seconds: float) -> dict[str, Any]:
    """Run a fresh instance of a test in one way; how it ended."""
    fresh = type(case)(case._testMethodName)
    compiled = None if way == PLAIN else compile_method(fresh, way)
    outcome = Outcome()
    rings = 0

    def ring(number: int, frame: FrameType | None) -> None:
        nonlocal rings
        rings += 1
        if rings >= _RINGS:
            os._exit(75)
        raise Late

    before = signal.signal(signal.SIGALRM, ring)
    started = time.perf_counter()
    signal.setitimer(signal.ITIMER_REAL, seconds, 5.0)
    try:
        unittest.TestSuite([fresh]).run(outcome)
    except Late:
        outcome.ends.append("error Late")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    line = {"outcome": outcome.summary, "seconds": round(time.perf_counter() - started, 3)}
    if outcome.details:
        line["details"] = outcome.details[:2]
    if compiled is not None:
        line["fallbacks"] = [
            f"{event.subject} {event.facts}"[:1200] for event in compiled.log.snapshot("fallback")
        ][:3]
    return line


def begun(report: Path) -> set[tuple[str, str]]:
    """What earlier children began: whatever became of it, it is not run again."""
    lines = map(json.loads, report.read_text().splitlines())
    return {(line["test"], line["way"]) for line in lines if "test" in line}


def run_file(file: str, report: Path, ways: list[str], only: str, seconds: float) -> None:
    """All tests of a file that are not in the report yet."""
    done = begun(report)
    with report.open("a") as sink:
        for test, case in tests_of(file):
            for way in ways:
                if only in test and (test, way) not in done:
                    _say(sink, {"test": test, "way": way, "begins": True})
                    # What is left out is not run at all: it may take the process with it.
                    left_out = selection.reason_to_leave_out(test) is not None
                    end = {"outcome": "left out"} if left_out else run_one(case, way, seconds)
                    _say(sink, {"test": test, "way": way, **end})
        _say(sink, {"ended": file})


def _say(sink: TextIO, line: dict[str, Any]) -> None:
    sink.write(json.dumps(line) + "\n")
    sink.flush()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("report", type=Path)
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--only", default="")
    parser.add_argument("--timeout", type=float, default=60.0)
    given = parser.parse_args()
    support.use_resources = []  # no network, no large files, nothing that takes minutes
    report = given.report.resolve()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        run_file(given.file, report, given.ways.split(","), given.only, given.timeout)
        os.chdir("/")
    # Threads that a late test left behind must not keep the process.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
