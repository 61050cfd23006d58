"""A program uncompiled and compiled, in step, and what differs.

Enters: a case and a `Subject` (the compiler). Leaves: an `Outcome`: differences, the number of
graphs, how it crashed if it did. After each call are compared: the value or the exception, all that
arguments, globals, closures and classes hold, printed text, warnings, ambient state and random
streams. Invariant: nothing is expected but what the uncompiled program did.
"""

from __future__ import annotations

import contextlib
import io
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from tests.programs.ambient import Ambient
from tests.programs.case import Call, Case, World
from tests.programs.observe import Comparison, Difference

# What makes an answer wrong for anybody. Finer things (a traceback's frames, strides, version
# counters, warnings) differ too, but do not spoil what follows.
WRONG = {
    "value", "type", "length", "keys", "order", "identity", "aliasing", "printed", "ambient",
    "metadata", "exception",
}  # fmt: skip


class Subject(Protocol):
    """A compiler, for one program."""

    exact: bool

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]: ...
    def graphs(self) -> list[int]: ...
    def notes(self) -> list[str]: ...


@dataclass(frozen=True)
class Answer:
    """What one call did that no object holds."""

    result: Any
    raised: BaseException | None
    seen: Any  # what `after` made of the result
    printed: str
    warned: list[tuple[str, str]]


@dataclass
class Outcome:
    """How compiled differed from uncompiled; `graphs` holds the number of operations of each."""

    differences: list[Difference] = field(default_factory=list)
    graphs: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # breaks and fall-backs, for people

    @property
    def wrong(self) -> bool:
        """Whether anything differs."""
        return bool(self.differences)

    def __str__(self) -> str:
        lines = [*map(str, self.differences), f"graphs (operations of each): {self.graphs}"]
        return "\n".join([*lines, *self.notes])


class Runner:
    """One world, and the ambient state of its program."""

    def __init__(self, world: World, compile: Callable[[Any], Any], ambient: Ambient) -> None:
        self.world = world
        self.ambient = ambient
        self.target = compile(world.program.function)

    def run(self, index: int) -> Answer:
        """Make one call."""
        call = self.world.program.calls[index]
        self.ambient.put_back()
        printed = io.StringIO()
        with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(printed):
            warnings.simplefilter("always")
            result, raised, seen = self._answer(call)
        self.ambient = Ambient.now()
        warned = [(one.category.__name__, str(one.message)) for one in caught]
        return Answer(result, raised, seen, printed.getvalue(), warned)

    def _answer(self, call: Call) -> tuple[Any, BaseException | None, Any]:
        if call.before is not None:
            call.before()
        try:
            result = self.target(*call.args, **call.kwargs)
            return result, None, call.after(result) if call.after else None
        except Exception as error:  # the uncompiled program must raise the same
            return None, error, None

    def reachable(self) -> dict[str, Any]:
        """All that a program of this world can have changed."""
        program = self.world.program
        return {
            "calls": [(call.args, call.kwargs) for call in program.calls],
            "state": program.state,
            "function": program.function,
            "globals": {
                name: value
                for name, value in vars(self.world.module).items()
                if not name.startswith("__")
            },
        }


def compare(case: Case, subject: Subject) -> Outcome:
    """Run a case both ways."""
    return compare_worlds(case.world, subject)


def compare_worlds(make: Callable[[], World], subject: Subject) -> Outcome:
    """Run a program both ways; each call of `make` answers it in fresh, equal state."""
    start = Ambient.now()
    outcome = Outcome()
    worlds = [make(), make()]
    try:
        runners = [
            Runner(worlds[0], lambda function: function, start),
            Runner(worlds[1], subject.compile, start),
        ]
        for index in range(len(worlds[0].program.calls)):
            found = _one_call(runners, index, subject.exact)
            outcome.differences += found
            if any(one.aspect in WRONG for one in found):
                break  # the worlds are not equal any more: what follows would tell nothing
    finally:
        start.put_back()
        for world in worlds:
            world.close()
    outcome.graphs = subject.graphs()
    outcome.notes = subject.notes()
    return outcome


def _one_call(runners: list[Runner], index: int, exact: bool) -> list[Difference]:
    expected, actual = (runner.run(index) for runner in runners)
    comparison = Comparison(runners[0].world.file, exact)
    with torch._C.DisableTorchFunction():  # looking runs no code of the program
        _compare_everything(comparison, runners, expected, actual, f"call {index}")
    return comparison.differences


def _compare_everything(
    comparison: Comparison, runners: list[Runner], expected: Answer, actual: Answer, where: str
) -> None:
    compare_answers(comparison, expected, actual, where)
    for name in runners[0].ambient.changes(runners[1].ambient):
        left, right = (getattr(runner.ambient, name) for runner in runners)
        text = "" if name.endswith("random") else f"expected {left}, got {right}"
        comparison.differ("ambient", f"{where}: {name}", text)
    comparison.versions = True
    reached = [runner.reachable() for runner in runners]
    for root in reached[0]:
        comparison.walk(reached[0][root], reached[1][root], f"{where}: {root}")


def compare_answers(comparison: Comparison, expected: Answer, actual: Answer, where: str) -> None:
    """What two calls answered."""
    if expected.raised is None and actual.raised is not None:
        comparison.differ("exception", where, _told(actual.raised))
        return
    if expected.raised is not None and actual.raised is None:
        comparison.differ("exception", where, f"{expected.raised!r} was expected, none came")
        return
    comparison.walk(expected.raised, actual.raised, f"{where}: exception")
    comparison.walk(expected.result, actual.result, f"{where}: result")
    comparison.walk(expected.seen, actual.seen, f"{where}: seen")
    comparison.equal("printed", f"{where}: printed", expected.printed, actual.printed)
    comparison.equal("warning", f"{where}: warnings", expected.warned, actual.warned)


def _told(error: BaseException) -> str:
    last = traceback.extract_tb(error.__traceback__)[-4:]
    frames = " < ".join(
        f"{one.filename.rpartition('/')[2]}:{one.lineno} {one.name}" for one in reversed(last)
    )
    return f"{type(error).__qualname__}: {str(error)[:1500]} (at {frames})"
