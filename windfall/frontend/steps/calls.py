"""Native forms of calls and attributes.

Enters: the instruction and the names on the stack. Leaves: lines that do it. Invariant: a row does
exactly what CPython does for that instruction.
"""

from __future__ import annotations

import keyword
from typing import Any

from windfall.frontend.bytecode import VERSION, Instruction
from windfall.frontend.steps.writer import NULL_NAME, StepWriter, native


@native("CALL")
def _call(writer: StepWriter, instruction: Instruction) -> None:
    _call_named(writer, instruction.argument, writer.kw_names)


@native("CALL_KW")
def _call_kw(writer: StepWriter, instruction: Instruction) -> None:
    writer.pop()
    _call_named(writer, instruction.argument, instruction.value)


def _call_named(writer: StepWriter, count: int, names: tuple[str, ...]) -> None:
    given = writer.take(count)
    function, arguments = _callee(writer)
    function = named(writer, function)
    arguments += given
    split = len(arguments) - len(names)
    shown = arguments[:split]
    shown += [f"{key}={value}" for key, value in zip(names, arguments[split:], strict=True)]
    writer.result(f"{function}({', '.join(shown)})")


def _callee(writer: StepWriter) -> tuple[str, list[str]]:
    """What is called: a NULL and it (from 3.13 on, it and a NULL), or it and its first argument."""
    upper, lower = writer.pop(), writer.pop()
    if lower == NULL_NAME:
        return upper, []
    return (lower, []) if upper == NULL_NAME else (lower, [upper])


def push_callable(writer: StepWriter, text: str) -> None:
    """What is called next, with its NULL."""
    if VERSION < (3, 13):
        writer.push(NULL_NAME)
    writer.result(text)
    if VERSION >= (3, 13):
        writer.push(NULL_NAME)


@native("CALL_FUNCTION_EX")
def _call_function_ex(writer: StepWriter, instruction: Instruction) -> None:
    keywords = f", **{writer.pop()}" if instruction.argument & 1 else ""
    arguments = writer.pop()
    function = named(writer, _callee(writer)[0])
    writer.result(f"{function}(*{arguments}{keywords})")


@native("LOAD_ATTR")
def _load_attr(writer: StepWriter, instruction: Instruction) -> None:
    writer.result(f"{operand(writer.pop())}.{instruction.value}")


@native("LOAD_METHOD")
def _load_method(writer: StepWriter, instruction: Instruction) -> None:
    push_callable(writer, f"{operand(writer.pop())}.{instruction.value}")


@native("LOAD_SUPER_ATTR")
def _load_super_attr(writer: StepWriter, instruction: Instruction) -> None:
    function, *given = writer.take(3)
    if not instruction.argument & 2:  # the builtin finds them by itself, in the user's frame
        find = writer.known(_super, "super_without_arguments")
        made = f"{find}({function}, {', '.join(given)})"
    else:
        made = f"{function}({', '.join(given)})"
    push = push_callable if instruction.argument & 1 else StepWriter.result
    push(writer, f"{made}.{instruction.value}")


def _super(function: Any, cls: Any, owner: Any) -> Any:
    """`super()`, whatever `super` is."""
    return super(cls, owner) if function is super else function()


@native("STORE_ATTR")
def _store_attr(writer: StepWriter, instruction: Instruction) -> None:
    owner, value = writer.pop(), writer.pop()
    writer.line(f"{operand(owner)}.{instruction.value} = {value}")


@native("DELETE_ATTR")
def _delete_attr(writer: StepWriter, instruction: Instruction) -> None:
    writer.line(f"del {operand(writer.pop())}.{instruction.value}")


def operand(text: str) -> str:
    return text if text.isidentifier() else f"({text})"


def named(writer: StepWriter, text: str) -> str:
    """The operand under a name: where a literal is called, subscripted or compared by identity,
    Python's compiler warns, and the warning would reach the user."""
    if text.isidentifier() and not keyword.iskeyword(text):  # None is one
        return text
    name = writer.fresh("r")
    writer.line(f"{name} = {text}")
    return name
