"""Native forms of jumps and loops.

Enters: the instruction and the names on the stack. Leaves: lines that do it. Invariant: a row does
exactly what CPython does for that instruction.
"""

from __future__ import annotations

from windfall.frontend.bytecode import Instruction
from windfall.frontend.steps.writer import Step, StepWriter, native


@native("TO_BOOL")
def _to_bool(writer: StepWriter, instruction: Instruction) -> None:
    writer.push(_truth(writer, writer.pop()))


TRUTH_JUMPS = frozenset({"POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE"})


@native(
    "POP_JUMP_FORWARD_IF_TRUE", "POP_JUMP_BACKWARD_IF_TRUE", "POP_JUMP_FORWARD_IF_FALSE",
    "POP_JUMP_BACKWARD_IF_FALSE", "POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE",
)  # fmt: skip
def _pop_jump_if(writer: StepWriter, instruction: Instruction) -> None:
    name = _truth(writer, writer.pop())
    wanted = name if instruction.name.endswith("TRUE") else f"not {name}"
    writer.goto(wanted, instruction.target)
    writer.goto(None, instruction.index + 1)


def _truth(writer: StepWriter, value: str) -> str:
    """The truth is asked for here, where what it raises is caught."""
    name = writer.fresh("r")
    writer.line(f"{name} = True if {value} else False")
    return name


@native("JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP")
def _jump_if_or_pop(writer: StepWriter, instruction: Instruction) -> None:
    name = _truth(writer, writer.stack[-1])
    wanted = name if "TRUE" in instruction.name else f"not {name}"
    writer.goto(wanted, instruction.target)
    writer.pop()
    writer.goto(None, instruction.index + 1)


@native("FOR_ITER")
def _for_iter(writer: StepWriter, instruction: Instruction) -> None:
    """END tells exhaustion from an item; no iterator of the user can give it."""
    from windfall.frontend.values.iterator import END

    iterator = writer.stack[-1]
    end = writer.known(END, "END")
    name = writer.result(f"next({iterator}, {end})")
    writer.pop()
    writer.pop()
    writer.goto(f"{name} is {end}", instruction.target)
    writer.push(iterator)
    writer.push(name)
    writer.goto(None, instruction.index + 1)


def _finish_for_iter(writer: StepWriter, instruction: Instruction) -> None:
    """The item is on the stack, or END."""
    from windfall.frontend.values.iterator import END

    item, iterator = writer.pop(), writer.pop()
    writer.line("pass")
    writer.goto(f"{item} is {writer.known(END, 'END')}", instruction.target)
    writer.push(iterator)
    writer.push(item)
    writer.goto(None, instruction.index + 1)


def _finish_contains(writer: StepWriter, instruction: Instruction) -> None:
    """Only `not in` waits for an answer."""
    writer.result(f"not {writer.pop()}")
    writer.goto(None, instruction.index + 1)


def _finish_jump_or_pop(writer: StepWriter, instruction: Instruction) -> None:
    """The truth of what is below it."""
    name = _truth(writer, writer.pop())
    writer.goto(name if "TRUE" in instruction.name else f"not {name}", instruction.target)
    writer.pop()
    writer.goto(None, instruction.index + 1)


FINISH: dict[str, Step] = {
    "FOR_ITER": _finish_for_iter,
    "CONTAINS_OP": _finish_contains,
    "JUMP_IF_TRUE_OR_POP": _finish_jump_or_pop,
    "JUMP_IF_FALSE_OR_POP": _finish_jump_or_pop,
}
