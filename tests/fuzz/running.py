"""A generated program as two worlds, uncompiled and compiled.

Enters: the text of a `program`. Leaves: what differs. The text stands in `linecache` under a name
of its own, behind the prelude, so that tracebacks show it.
"""

from __future__ import annotations

import hashlib
import linecache
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from tests.programs.case import Call, Program, execute, ramp
from tests.programs.compare import Outcome, Subject, compare_worlds

PRELUDE = (Path(__file__).parent / "prelude.py").read_text(encoding="utf-8")


@dataclass
class GeneratedWorld:
    """One execution of the prelude and a generated program."""

    module: ModuleType
    program: Program

    @property
    def file(self) -> str:
        """Frames of this file are the user's."""
        return str(self.module.__file__)

    def close(self) -> None:
        """Nothing to give back: the module goes with the world."""
        import sys

        sys.modules.pop(self.module.__name__, None)


def compiled_text(source: str) -> CodeType:
    """The prelude and a program as one module's code."""
    text = f"{PRELUDE}\n\n{source}"
    name = f"<fuzz {hashlib.sha256(source.encode()).hexdigest()[:8]}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    return compile(text, name, "exec")


def arguments(module: Any, start: int, n: int, alias: bool) -> Call:
    """Fresh arguments; with `alias`, some of them are one object."""
    x, y = ramp(3, start=start), ramp(3, start=start + 1)
    xs = [ramp(3, start=start), ramp(3, start=start - 1)]
    ys = xs if alias else [ramp(3), ramp(3, start=2)]
    box = module.Box(y if alias else ramp(3, start=-1), n)
    table = {"a": x if alias else ramp(3), "b": ramp(3, start=0)}
    return Call(x, x if alias else y, ramp(3, grad=True), n, xs, ys, table, box)


# Starts of the data, n, aliased: the same path twice, other data, other numbers, other aliasing.
CALLS = ((-2, 1, False), (-2, 1, False), (1, 2, False), (-2, 1, True), (-2, 1, False))


def world(code: CodeType, calls: tuple[tuple[int, int, bool], ...] = CALLS) -> GeneratedWorld:
    """A fresh world of a program."""
    module = execute(code, "fuzz")
    made = [arguments(module, *call) for call in calls]
    return GeneratedWorld(module, Program(module.program, made))


def outcome_of(source: str, subject: Subject) -> Outcome:
    """Run a generated program both ways."""
    code = compiled_text(source)
    with limit(30):
        return compare_worlds(lambda: world(code), subject)


@contextmanager
def limit(seconds: int) -> Iterator[None]:
    """Raise in this thread when a program has not ended in time."""

    def late(*_: Any) -> None:
        raise TimeoutError(f"not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def numbered(source: str) -> str:
    """The program with the line numbers that tracebacks name."""
    first = PRELUDE.count("\n") + 3
    lines = source.splitlines()
    return "\n".join(f"{number:4} {line}" for number, line in enumerate(lines, first))
