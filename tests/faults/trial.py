"""One fault and what it leaves behind.

Enters: a program, an exception and a line. Leaves: a `Verdict`: what is wrong afterwards, in words.
After the fault: the thread and the process are as they were; no lock is held; nobody refers to the
arguments (the collector is off); what was done is what eager does first; the next call, in another
thread and in this one, answers as eager; and it is compiled, unless the error was one of ours,
which runs eagerly and is counted.
"""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

import windfall
from tests.faults import surroundings
from tests.faults.injector import Fault
from tests.faults.programs import Program
from windfall import api

_clean: dict[str, set[str]] = {}  # by program: the points that a clean run has entries for
_PATIENCE = 60.0  # seconds, for a thread that may find a lock held


@dataclass
class Verdict:
    """What one fault did: `where` it struck, "" if the program ended before."""

    program: str
    kind: str
    at: int
    where: str = ""
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.program} {self.kind} --at {self.at} ({self.where}): {'; '.join(self.wrong)}"


@dataclass
class Seen:
    """What a use of a program answered and did."""

    answer: Any
    lines: list[str]
    count: int
    random: bytes


def use(program: Program, function: Callable[..., Any]) -> Seen:
    """Use it with new arguments."""
    arguments = program.arguments()
    torch.manual_seed(5)
    with program.around():
        answer = _plain(program.use(function, arguments))
    box = arguments[-1]
    return Seen(answer, box.lines, box.count, _random())


def _random() -> bytes:
    return bytes(torch.get_rng_state().numpy().tobytes())


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    return value


def same(one: Any, other: Any) -> bool:
    """Whether two answers are equal, up to rounding."""
    if isinstance(one, list):
        pairs = zip(one, other, strict=False)
        return len(one) == len(other) and all(same(*pair) for pair in pairs)
    if isinstance(one, torch.Tensor):
        return torch.allclose(one, other, rtol=1e-4, atol=1e-5)
    return bool(one == other)


def lines_of(program: Program) -> int:
    """How many lines of windfall's a first use goes through."""
    use(program, windfall.compile(program.make(), **program.options))  # fills what is kept for good
    counting = Fault(KeyboardInterrupt)
    compiled = windfall.compile(program.make(), **program.options)
    with counting:
        use(program, compiled)
    return counting.lines


def trial(program: Program, kind: type[BaseException], at: int, *, warm: bool = False) -> Verdict:
    """Inject one fault into a first use (`warm`: into a second one), then look around."""
    verdict = Verdict(program.name, kind.__name__, at)
    expected = use(program, program.make())
    compiled = windfall.compile(program.make(), **program.options)
    if warm:
        use(program, compiled)
    torch.manual_seed(5)
    collecting = gc.isenabled()
    gc.disable()
    try:
        _struck(program, compiled, Fault(kind, at), expected, verdict)
    finally:
        if collecting:
            gc.enable()
    if verdict.where:
        _look(program, compiled, kind, verdict)
    return verdict


def _struck(
    program: Program,
    compiled: Callable[..., Any],
    fault: Fault,
    expected: Seen,
    verdict: Verdict,
) -> None:
    arguments = program.arguments()
    kept = [weakref.ref(one) for one in arguments]
    random = _random()
    unraised: list[Any] = []
    hook, sys.unraisablehook = sys.unraisablehook, lambda one: unraised.append(str(one.exc_value))
    answer: Any = None
    left: str | None = None
    with program.around():
        before = surroundings.now()
        try:
            with fault:
                answer = program.use(compiled, arguments)
        except BaseException as error:
            left = f"{type(error).__name__}: {error}"
            if not isinstance(error, fault.kind):
                verdict.wrong.append(f"raised {left}")
        verdict.wrong += surroundings.differences(before, surroundings.now())
    sys.unraisablehook = hook
    verdict.where = fault.where
    box = arguments[-1]
    _compare(box, expected, left is None, _plain(answer), verdict)
    if left is None and fault.happened and issubclass(fault.kind, KeyboardInterrupt):
        verdict.wrong.append("the interrupt was swallowed")
    if unraised:
        verdict.wrong.append(f"unraisable: {unraised[0]}")
    if _random() not in (random, expected.random):
        verdict.wrong.append("the random stream is neither before nor behind")
    del arguments, answer, box
    names = [type(one()).__name__ for one in kept if one() is not None]
    if names:
        verdict.wrong.append(f"still referred to: {', '.join(names)}")
        gc.collect()
    locked = surroundings.held_locks()
    if locked:
        verdict.wrong.append(f"{locked} locks are held")


def _compare(box: Any, expected: Seen, ended: bool, answer: Any, verdict: Verdict) -> None:
    """What was done: all of it, or what eager does first."""
    if ended and not same(answer, expected.answer):
        verdict.wrong.append("the answer of the call itself differs")
    if ended and box.lines != expected.lines:
        verdict.wrong.append(f"did {box.lines}, eager {expected.lines}")
    rest = iter(expected.lines)
    if not all(line in rest for line in box.lines):
        verdict.wrong.append(f"did {box.lines}, which is not the way of {expected.lines}")


def _look(program: Program, compiled: Any, kind: type[BaseException], verdict: Verdict) -> None:
    """The next calls."""
    expected = use(program, program.make())
    seen: list[Seen | BaseException] = []

    def elsewhere() -> None:
        try:
            seen.append(use(program, compiled))
        except BaseException as error:
            seen.append(error)

    thread = threading.Thread(target=elsewhere, daemon=True)
    thread.start()
    thread.join(_PATIENCE)
    if not seen:
        verdict.wrong.append("another thread waits for ever")
        return
    try:
        seen.append(use(program, compiled))
    except BaseException as error:
        seen.append(error)
    for one in seen:
        if not isinstance(one, Seen):
            verdict.wrong.append(f"the next call raised {type(one).__name__}: {one}")
        elif not same(one.answer, expected.answer) or one.lines != expected.lines:
            verdict.wrong.append("the next call differs")
    if not issubclass(kind, Exception) and not _is_compiled(program, compiled):
        verdict.wrong.append("the next call was not compiled")


def _is_compiled(program: Program, compiled: Any) -> bool:
    """Whether the points that a clean run has entries for have them here too."""
    if program.name not in _clean:
        clean = windfall.compile(program.make(), **program.options)
        use(program, clean)
        use(program, clean)
        _clean[program.name] = _compiled_points(clean)
    return _clean[program.name] <= _compiled_points(compiled)


def _compiled_points(compiled: Any) -> set[str]:
    made = api._made_of(compiled)
    assert made is not None
    # Without what lives there: variables that somebody watches (the harness does) live longer.
    return {point.partition(" [")[0] for point, entries in made.entries().items() if entries}
