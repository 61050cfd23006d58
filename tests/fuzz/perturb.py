"""Every reachable source of a program, changed in turn: a guard notices, or nothing depends on it.

Enters: a case of `perturbed.py`. Leaves: for each place and each change of it, how the compiled
program then differs from the uncompiled one, after the change and after it is undone.
"""

from __future__ import annotations

import contextlib
import io
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from tests.fuzz.changes import AMBIENT, Change, changes_of
from tests.fuzz.places import Path, Step, places, read
from tests.programs.ambient import Ambient
from tests.programs.case import Case, World
from tests.programs.compare import Answer, Subject, compare_answers
from tests.programs.observe import Comparison, Difference


@dataclass(frozen=True)
class Finding:
    """A change that a compiled program did not notice."""

    case: str
    place: str
    change: str
    when: str
    differences: tuple[Difference, ...]

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Which change it was."""
        return self.case, self.place, self.change, self.when

    def __str__(self) -> str:
        told = "\n    ".join(map(str, self.differences[:3]))
        return f"{self.case}{self.place}, {self.change}, {self.when}:\n    {told}"


class Pair:
    """The two worlds of a case, the second compiled."""

    def __init__(self, case: Case, subject: Subject) -> None:
        self.case = case
        self.subject = subject
        self.worlds = [case.world(), case.world()]
        for world in self.worlds:
            world.program.calls[0].args = list(world.program.calls[0].args)
        first, second = (world.program.function for world in self.worlds)
        self.targets = [first, subject.compile(second)]

    def roots(self) -> list[dict[str, Any]]:
        """What a program can reach, in each world."""
        return [
            {"function": world.program.function, "args": world.program.calls[0].args}
            for world in self.worlds
        ]

    def differences(self, ambient: Callable[[], Any] = contextlib.nullcontext) -> list[Difference]:
        """Call both, compare."""
        answers = [
            _ask(target, world, ambient)
            for target, world in zip(self.targets, self.worlds, strict=True)
        ]
        comparison = Comparison(self.worlds[0].file, exact=True)
        with torch._C.DisableTorchFunction():
            compare_answers(comparison, answers[0], answers[1], "call")
        # Frames of a traceback are not what guards are about.
        return [one for one in comparison.differences if one.aspect not in ("line", "traceback")]

    def close(self) -> None:
        """Forget the worlds."""
        for world in self.worlds:
            world.close()


def _ask(target: Callable[..., Any], world: World, ambient: Callable[[], Any]) -> Answer:
    call = world.program.calls[0]
    torch.manual_seed(3)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), ambient():
        try:
            return Answer(target(*call.args, **call.kwargs), None, None, "", [])
        except Exception as error:  # the uncompiled one must raise the same
            return Answer(None, error, None, "", [])


def findings(case: Case, make_subject: Callable[[], Subject]) -> Iterator[Finding]:
    """Try every change of every place of a case."""
    start = Ambient.now()
    try:
        yield from _findings_of_ambient(case, make_subject)
        everywhere = all_places(case)
        for place in everywhere:
            yield from _findings_at(case, make_subject, place, everywhere)
    finally:
        start.put_back()


def all_places(case: Case) -> list[Path]:
    """Every place below the function and the arguments of a case."""
    world = case.world()
    root = {"function": world.program.function, "args": list(world.program.calls[0].args)}
    seen: set[int] = set()
    found = [
        path
        for name in root
        for path in places(root, seen, (Step(f" {name}", lambda o, n=name: o[n]),))
    ]
    world.close()
    return found


def _text(path: Path) -> str:
    return "".join(step.name for step in path)


def _findings_at(
    case: Case, make_subject: Callable[[], Subject], path: Path, everywhere: list[Path]
) -> Iterator[Finding]:
    pair = Pair(case, make_subject())
    roots = pair.roots()
    if first := pair.differences():
        yield Finding(str(case), _text(path), "nothing", "at the first call", tuple(first))
        pair.close()
        return
    for change in [*changes_of(read(roots[0], path)), *aliases(roots[0], path, everywhere)]:
        undone = [change.apply(root, path) for root in roots]
        if None in undone:
            continue
        if found := pair.differences():
            yield Finding(str(case), _text(path), change.name, "after it", tuple(found))
        for undo in reversed(undone):  # both worlds may share what was changed twice then
            undo()
        if found := pair.differences():
            yield Finding(str(case), _text(path), change.name, "when it is undone", tuple(found))
    pair.close()


ALIASED = (torch.Tensor, list, dict)


def aliases(root: Any, path: Path, everywhere: list[Path]) -> Iterator[Change]:
    """Let a place hold the very object of another place of the same kind."""
    value = read(root, path)
    if not isinstance(value, ALIASED):
        return
    others = (other for other in everywhere if other != path and len(other) > 1)
    alike = (other for other in others if type(read(root, other)) is type(value))
    for other in itertools.islice(alike, 3):
        yield Change(
            f"the same object as{_text(other)}", from_root=lambda root, o=other: read(root, o)
        )


def _findings_of_ambient(case: Case, make_subject: Callable[[], Subject]) -> Iterator[Finding]:
    for name, ambient in AMBIENT.items():
        pair = Pair(case, make_subject())
        pair.differences()
        if found := pair.differences(ambient):
            yield Finding(str(case), " thread", name, "after it", tuple(found))
        if found := pair.differences():
            yield Finding(str(case), " thread", name, "when it is undone", tuple(found))
        pair.close()
