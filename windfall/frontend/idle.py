"""Which loop to leave to CPython when the interpreter has gone round and round without a tensor.

Enters: a frame that stands at a jump backward. Leaves: the outermost loop around it that, by what
its variables hold now, has nothing to do with tensors; else the innermost one. Invariant: the
answer is the same when asked again of the same frame.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windfall.frontend.bytecode_loops import BytecodeLoop, loops
from windfall.frontend.values.base import Value
from windfall.frontend.values.function import Cell
from windfall.frontend.values.tensor import Tensor
from windfall.ir.reading import is_among

if TYPE_CHECKING:
    from windfall.frontend.frame import Frame
    from windfall.frontend.services import Machine


def idle_loop(machine: Machine, frame: Frame, index: int) -> BytecodeLoop | None:
    """The loop to run natively; None: there is none that can be."""
    if machine.frames.holds_together or frame.generator is not None or frame.names is not None:
        return None
    around = [one for one in loops(frame.code) if index in one.body and not one.yields]
    if frame.instructions[index].name == "FOR_ITER":
        return _plain_loop(frame, around)
    for loop in around:  # the outermost first
        if not any(_touches_tensors(frame, variable) for variable in loop.reads.variables):
            return loop
    return around[-1] if around else None


def _plain_loop(frame: Frame, around: list[BytecodeLoop]) -> BytecodeLoop | None:
    """Before its first round: one over plain items that calls nothing."""
    iterator = frame.stack[-1]
    if not around or around[-1].calls or not _gives_plain_items(getattr(iterator, "real", None)):
        return None
    loop = around[-1]
    return loop if all(_is_number(frame, one) for one in loop.reads.variables) else None


def _is_number(frame: Frame, variable: int) -> bool:
    value: Value | None = frame.variables[variable]
    if isinstance(value, Cell):
        value = value.contents
    return (
        value is None or is_among(value.python_type(), _PLAIN) or value.python_type() is type(None)
    )


_STATE_IS_KNOWN: tuple[type, ...] = (type(iter([])), type(iter(())), type(iter(range(0))))
_PLAIN = (int, float, str, bool, bytes, type(None))


def _gives_plain_items(real: Any) -> bool:
    if not is_among(type(real), _STATE_IS_KNOWN):
        return False
    state = real.__reduce__()
    return len(state) == 3 and all(type(one) in _PLAIN for one in state[1][0][state[2] :][:8])


def _touches_tensors(frame: Frame, variable: int) -> bool:
    value: Value | None = frame.variables[variable]
    if isinstance(value, Cell):
        value = value.contents
    if isinstance(value, Tensor):
        return True
    # Containers and objects that were looked into and hold one.
    held = getattr(value, "_items", None)
    return isinstance(held, list) and any(isinstance(one, Tensor) for one in held)
