"""Native forms of operators and items.

Enters: the instruction and the names on the stack. Leaves: lines that do it. Invariant: a row does
exactly what CPython does for that instruction.
"""

from __future__ import annotations

from windfall.frontend.bytecode import Instruction
from windfall.frontend.opcodes.operators import SYMBOLS
from windfall.frontend.steps.calls import named, operand
from windfall.frontend.steps.writer import StepWriter, native


@native("BINARY_OP")
def _binary_op(writer: StepWriter, instruction: Instruction) -> None:
    right, left = writer.pop(), writer.pop()
    symbol = SYMBOLS[instruction.argument]
    if symbol.endswith("="):
        name = writer.result(left)
        writer.line(f"{name} {symbol} {right}")
    else:
        writer.result(f"{operand(left)} {symbol} {operand(right)}")


@native("UNARY_POSITIVE", "UNARY_NEGATIVE", "UNARY_INVERT", "UNARY_NOT")
def _unary(writer: StepWriter, instruction: Instruction) -> None:
    symbols = {"POSITIVE": "+", "NEGATIVE": "-", "INVERT": "~", "NOT": "not "}
    symbol = symbols[instruction.name.removeprefix("UNARY_")]
    writer.result(f"{symbol}{operand(writer.pop())}")


@native("COMPARE_OP")
def _compare_op(writer: StepWriter, instruction: Instruction) -> None:
    right, left = writer.pop(), writer.pop()
    writer.result(f"{operand(left)} {instruction.value} {operand(right)}")


@native("IS_OP")
def _is_op(writer: StepWriter, instruction: Instruction) -> None:
    right, left = (named(writer, one) for one in (writer.pop(), writer.pop()))
    writer.result(f"{left} is {'not ' if instruction.argument else ''}{right}")


@native("CONTAINS_OP")
def _contains_op(writer: StepWriter, instruction: Instruction) -> None:
    container, item = writer.pop(), writer.pop()
    writer.result(f"{item} {'not ' if instruction.argument else ''}in {container}")


@native("BINARY_SUBSCR")
def _binary_subscr(writer: StepWriter, instruction: Instruction) -> None:
    key, owner = writer.pop(), writer.pop()
    writer.result(f"{named(writer, owner)}[{key}]")


@native("BINARY_SLICE")
def _binary_slice(writer: StepWriter, instruction: Instruction) -> None:
    owner, start, end = writer.take(3)
    writer.result(f"{named(writer, owner)}[{start}:{end}]")


@native("STORE_SLICE")
def _store_slice(writer: StepWriter, instruction: Instruction) -> None:
    value, owner, start, end = writer.take(4)
    writer.line(f"{operand(owner)}[{start}:{end}] = {value}")


@native("STORE_SUBSCR")
def _store_subscr(writer: StepWriter, instruction: Instruction) -> None:
    key, owner, value = writer.pop(), writer.pop(), writer.pop()
    writer.line(f"{operand(owner)}[{key}] = {value}")


@native("DELETE_SUBSCR")
def _delete_subscr(writer: StepWriter, instruction: Instruction) -> None:
    key, owner = writer.pop(), writer.pop()
    writer.line(f"del {operand(owner)}[{key}]")


@native("POP_TOP")
def _pop_top(writer: StepWriter, instruction: Instruction) -> None:
    """What has no slot any more is dropped when the segment returns."""
    writer.pop()
    writer.line("pass")


@native("GET_LEN")
def _get_len(writer: StepWriter, instruction: Instruction) -> None:
    writer.result(f"len({writer.stack[-1]})")
