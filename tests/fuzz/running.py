"""A generated program as two worlds, uncompiled and compiled.

Enters: the text of a `program` (`outcome_of`), or of one whose world changes between calls
(`outcome_of_upheaval`). Leaves: what differs. The text stands in `linecache` under a name of its
own, behind its prelude, so that tracebacks show it.
"""

from __future__ import annotations

import hashlib
import linecache
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from tests.programs.ambient import Ambient
from tests.programs.case import Call, Program, execute, ramp
from tests.programs.compare import Outcome, Subject, compare_worlds

PRELUDE = (Path(__file__).parent / "prelude.py").read_text(encoding="utf-8")
SCENERY = (Path(__file__).parent / "scenery.py").read_text(encoding="utf-8")


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
        sys.modules.pop(self.module.__name__, None)


def compiled_text(source: str, prelude: str = PRELUDE) -> CodeType:
    """The prelude and a program as one module's code."""
    text = f"{prelude}\n\n{source}"
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


# ------------------------------------------------------------------------------ changing worlds


@dataclass
class ChangingWorld(GeneratedWorld):
    """One execution of the scenery and a program whose world changes before each call."""

    def close(self) -> None:
        """Take back what the program left in torch and in the interpreter."""
        self.module.unhook_all()
        for name in (self.module.__name__, "side"):
            sys.modules.pop(name, None)


def changing_world(code: CodeType) -> ChangingWorld:
    """A fresh world; both of a pair have one name, so that texts that name it are equal. What a
    call is given is made after the change before it."""
    module = ModuleType("program_world")
    module.__file__ = code.co_filename
    sys.modules[module.__name__] = module
    exec(code, vars(module))

    def made(index: int) -> Call:
        change, give = (getattr(module, f"{stem}_{index}") for stem in ("before", "arguments"))

        def before() -> None:
            sys.modules.update({module.__name__: module, "side": vars(module).get("side")})
            for step in (change, lambda: setattr(call, "args", give())):
                with suppress(Exception):  # an earlier change may have taken away what it needs
                    step()

        call = Call(before=before)
        return call

    count = sum(name.startswith("before_") for name in vars(module))
    return ChangingWorld(module, Program(module.program, [made(index) for index in range(count)]))


def outcome_of_upheaval(source: str, subject: Subject) -> Outcome:
    """Run a program with changes of its world both ways."""
    code = compiled_text(source, SCENERY)
    with limit(30):
        _warn_beforehand(changing_world(code))
        return compare_worlds(lambda: changing_world(code), subject)


def _warn_beforehand(made: ChangingWorld) -> None:
    """What torch warns of once in a process is not a difference between the worlds."""
    start = Ambient.now()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for call in made.program.calls:
            assert call.before is not None, "calls of changing worlds begin with their change"
            call.before()
            with suppress(Exception):
                made.program.function(*call.args, **call.kwargs)
    start.put_back()
    made.close()


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


def numbered(source: str, prelude: str = PRELUDE) -> str:
    """The program with the line numbers that tracebacks name."""
    first = prelude.count("\n") + 3
    lines = source.splitlines()
    return "\n".join(f"{number:4} {line}" for number, line in enumerate(lines, first))
