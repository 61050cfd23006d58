"""A program whose right answer nobody wrote down: it is run uncompiled and compiled, from equal
fresh state, and the two are compared.

Enters: files under `cases/` and `rows/`, each a Python module whose decorated functions build
`Program`s. Leaves: `Case` records; `case.world()` executes the file anew, so that two worlds share
no object (no global, no class, no default) but have equal ones. Invariant: whatever a program can
reach belongs to its world.

    @hard(16, "user exception after append and add_", torch="0")
    def late_exception() -> Program:
        def f(x, seen): ...
        return Program(f, [Call(ramp(3), []), Call(ramp(3), [])])
"""

from __future__ import annotations

import functools
import inspect
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import torch

from tests.seeds import set_seed

HERE = Path(__file__).resolve().parent


def ramp(*shape: int, start: int = -2, grad: bool = False) -> torch.Tensor:
    """Small whole numbers as float32: sums and products of them are exact in any order."""
    count = torch.Size(shape).numel()
    values = (torch.arange(count, dtype=torch.float32) * 3) % 7 + start
    return values.reshape(shape).requires_grad_(grad)


class Call:
    """One call: its arguments, what is changed `before` it, and how its result is looked at
    `after` it (uncompiled: a generator is drained, a returned closure called)."""

    def __init__(
        self,
        *args: Any,
        before: Callable[[], object] | None = None,
        after: Callable[[Any], Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self.args = args
        self.kwargs = kwargs
        self.before = before
        self.after = after


@dataclass
class Program:
    """What is compiled, the calls in their order, and further roots of state to compare."""

    function: Callable[..., Any]
    calls: list[Call]
    state: Any = None


@dataclass(frozen=True)
class About:
    """What is said of a program beside its code."""

    title: str
    group: str
    number: int | None = None
    torch: str = ""  # what the spec measured of torch.compile 2.13
    graphs: tuple[int, int] | None = (1, 1)  # fewest and most over all calls; None: not counted
    waits: str = ""  # why the number of graphs may be anything until a later issue


@dataclass(frozen=True)
class Case:
    """A program by its file and the name of its builder."""

    file: Path
    name: str
    about: About = field(compare=False)

    def __str__(self) -> str:
        number = f"{self.about.number:02d}-" if self.about.number is not None else ""
        return f"{number}{self.about.group}-{self.name}"

    def world(self) -> World:
        """The program in fresh state."""
        return World(execute(_code(self.file), self.file.stem), self.name)


@dataclass
class World:
    """One fresh execution of a case's file."""

    module: ModuleType
    name: str
    program: Program = field(init=False)

    def __post_init__(self) -> None:
        set_seed(0)
        self.program = getattr(self.module, self.name)()

    @property
    def file(self) -> str:
        """Frames of this file are the user's."""
        return str(self.module.__file__)

    def close(self) -> None:
        """The module is found by its name no more."""
        sys.modules.pop(self.module.__name__, None)


_numbers = itertools.count()


def execute(code: CodeType, stem: str) -> ModuleType:
    """A new module of this code, found in sys.modules under a name of its own."""
    module = ModuleType(f"program_{stem}_{next(_numbers)}")
    module.__file__ = code.co_filename
    sys.modules[module.__name__] = module
    exec(code, vars(module))
    return module


@functools.cache
def _code(file: Path) -> CodeType:
    return compile(file.read_text(encoding="utf-8"), str(file), "exec")


# ------------------------------------------------------------------------------- declarations

Builder = Callable[[], Program]


def hard(
    number: int,
    title: str,
    *,
    torch: str = "",
    graphs: tuple[int, int] | None = (1, 1),
    waits: str = "",
) -> Callable[[Builder], Builder]:
    """Declare one of the hard cases of the front end's specification."""
    return _declared(About(title, "hard", number, torch, graphs, waits))


def row(
    group: str, *, graphs: tuple[int, int] | None = (1, 1), waits: str = ""
) -> Callable[[Builder], Builder]:
    """Declare a builder as a program for a row of the checklist."""

    def declare(builder: Builder) -> Builder:
        title = builder.__name__.replace("_", " ")
        return _declared(About(title, group, None, "", graphs, waits))(builder)

    return declare


# What a plain function's parameters are given, by their names.
ARGUMENTS: Mapping[str, Callable[[], Any]] = {
    "x": lambda: ramp(2, 3),
    "y": lambda: ramp(2, 3, start=-1),
    "z": lambda: ramp(3, start=1),
    "w": lambda: ramp(3, grad=True),
    "n": lambda: 3,
    "k": lambda: 2,
    "s": lambda: "some text",
    "xs": lambda: [ramp(3), ramp(3, start=0), ramp(3, start=1)],
    "d": lambda: {"a": ramp(3), "b": ramp(3, start=0), "c": ramp(3, start=1)},
}


def plain(
    group: str,
    *,
    graphs: tuple[int, int] | None = (1, 1),
    calls: int = 2,
    waits: str = "",
) -> Callable[[Callable[..., Any]], Builder]:
    """Declare a function itself as the program: called with `ARGUMENTS` of its parameters' names,
    made afresh for each call."""

    def declare(function: Callable[..., Any]) -> Builder:
        names = [
            name
            for name, one in inspect.signature(function).parameters.items()
            if one.default is one.empty and one.kind is not one.VAR_KEYWORD
        ]

        def build() -> Program:
            made = [Call(*(ARGUMENTS[name]() for name in names)) for _ in range(calls)]
            return Program(function, made)

        build.__name__ = function.__name__
        return row(group, graphs=graphs, waits=waits)(build)

    return declare


def _declared(about: About) -> Callable[[Builder], Builder]:
    def declare(builder: Builder) -> Builder:
        builder.about = about  # type: ignore[attr-defined]
        return builder

    return declare


def cases_of(folder: str) -> list[Case]:
    """The cases of every file of `cases` or `rows`, in the order of files and numbers."""
    found = [case for file in sorted((HERE / folder).glob("*.py")) for case in cases_in(file)]
    return sorted(found, key=lambda case: case.about.number or 0)


def cases_in(file: Path) -> Iterator[Case]:
    """The cases of one file."""
    module = execute(_code(file), file.stem)
    for name, value in vars(module).items():
        about = getattr(value, "about", None)
        if isinstance(about, About):
            yield Case(file, name, about)
    sys.modules.pop(module.__name__)
