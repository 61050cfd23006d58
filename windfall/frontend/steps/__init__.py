"""The one step that runs natively at a break, as Python source.

Enters: the instruction that could not be captured, and the names of the values on the stack.
Leaves: lines that do it on real values, the stack after it, and where the program may go next. One
row for each opcode that can break: `@native("NAME")`. Invariant: a row does exactly what CPython
does for that instruction.

    BINARY_OP +     v0 = x + y
"""

from __future__ import annotations

from collections.abc import Sequence

from windfall.errors import InternalError
from windfall.frontend.bytecode import Instruction
from windfall.frontend.steps import (  # noqa: F401  (fill the table)
    calls,
    displays,
    exceptions,
    match,
    operators,
    variables,
)
from windfall.frontend.steps.control import FINISH, TRUTH_JUMPS
from windfall.frontend.steps.writer import NATIVE, StepWriter


def write_step(
    writer: StepWriter,
    instruction: Instruction,
    following: Sequence[Instruction] = (),
    begun: bool = False,
) -> None:
    """The lines and outcomes of one native instruction; of two where the first asks for a truth
    and the second jumps by it: both ways are told apart at once. `begun`: interpreted code has
    answered the first half of it, which lies on the stack; most are simply done again on that."""
    writer.lowest = len(writer.stack)
    if begun and instruction.name in FINISH:
        FINISH[instruction.name](writer, instruction)
        return
    if instruction.name == "TO_BOOL" and following[0].name in TRUTH_JUMPS:
        instruction = following[0]
    step = NATIVE.get(instruction.name)
    if step is None:
        raise InternalError(f"{instruction.name} has no native form")
    step(writer, instruction)
    if not writer.outcomes and not writer.raises:
        writer.goto(None, instruction.index + 1)
