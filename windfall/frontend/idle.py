"""Which loop to leave to CPython when the interpreter has gone round and round without a tensor.

Enters: a frame that stands at a jump backward. Leaves: the outermost loop around it that, by what
its variables hold now, has nothing to do with tensors; else the innermost one. Invariant: the
answer is the same when asked again of the same frame.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windfall.frontend.loops import Loop, loops
from windfall.frontend.values.base import Value
from windfall.frontend.values.function import Cell
from windfall.frontend.values.tensor import Tensor

if TYPE_CHECKING:
    from windfall.frontend.frame import Frame
    from windfall.frontend.machine import Machine


def idle_loop(machine: Machine, frame: Frame, index: int) -> Loop | None:
    """The loop to run natively; None: there is none that can be."""
    if machine.holds_together or frame.generator is not None or frame.names is not None:
        return None
    around = [one for one in loops(frame.code) if index in one.body and not one.yields]
    for loop in around:  # the outermost first
        if not any(_touches_tensors(frame, variable) for variable in loop.reads.variables):
            return loop
    return around[-1] if around else None


def _touches_tensors(frame: Frame, variable: int) -> bool:
    value: Value | None = frame.variables[variable]
    if isinstance(value, Cell):
        value = value.contents
    if isinstance(value, Tensor):
        return True
    # Containers and objects that were looked into and hold one.
    held = getattr(value, "_items", None)
    return isinstance(held, list) and any(isinstance(one, Tensor) for one in held)
