"""Which loop to leave to CPython when segment after segment runs without an operation on tensors.

Enters: the position at which a segment ended, and its slots, after many segments in a row whose
graphs are empty: every round of a loop has a break. Leaves: what the loop came to, run by CPython;
None where the innermost frame stands in none. (`idle.py` answers which loop of a capture.)
Invariant: values are looked at by class only.
"""

from __future__ import annotations

from typing import Any

import torch

from windfall.events import Eager, EventKind, EventLog
from windfall.frontend.breaks import IDLE_LOOP
from windfall.frontend.bytecode_loops import BytecodeLoop, loops
from windfall.frontend.native_way import NativeWay
from windfall.frontend.state import Position
from windfall.ir.reading import is_a, is_among


def left_idle(
    leave: NativeWay, log: EventLog, position: Position, slots: tuple[Any, ...], idle: int
) -> tuple[tuple[Any] | None, int]:
    """Every round of a loop has a break, and none does anything with tensors: CPython itself runs
    it to its end. None: there is no loop to leave. And how many segments count as idle."""
    loop = idle_loop_of(position, slots)
    if loop is None and not stands_in_loop(position):
        return None, 0
    log.count(EventKind.FALLBACK, str(position), reason=_IDLE, what=Eager.LOOP)
    if loop is not None:
        # What is around it may be such a loop too, and is found sooner.
        return (leave.loop(position, slots, loop.head),), idle // 2
    return (leave(position, slots),), idle  # a callee's rest: its caller may be in a loop


_IDLE = f"W{IDLE_LOOP.number:04d}: a loop whose rounds all break does nothing with tensors"


def idle_loop_of(position: Position, slots: tuple[Any, ...]) -> BytecodeLoop | None:
    """The loop to run natively: the outermost one around the innermost frame's instruction that
    holds no tensor; else the innermost."""
    shape = position.frames[-1]
    if shape.generator:
        return None
    around = [one for one in loops(shape.code) if shape.ip in one.body and not one.yields]
    start = sum(len(one.variables) + sum(one.stack) for one in position.frames[:-1])
    held = dict(zip(shape.variables, slots[start:], strict=False))
    for loop in around:  # the outermost first
        if not any(_holds_tensor(held.get(index)) for index in loop.reads.variables):
            return loop
    return around[-1] if around else None


def stands_in_loop(position: Position) -> bool:
    """Whether a caller of the innermost frame waits in a loop."""
    callers = position.frames[:-1]
    return any(one.last in loop.body for one in callers for loop in loops(one.code))


def _holds_tensor(value: Any) -> bool:
    if is_a(value, torch.Tensor | torch.nn.Module):
        return True
    few = value[:_FEW] if is_among(type(value), (list, tuple)) else ()
    return any(is_a(one, torch.Tensor) for one in few)


_FEW = 8
