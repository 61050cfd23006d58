"""Attributes, calls, functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windfall.frontend.bytecode import Instruction
from windfall.frontend.opcodes.operators import push
from windfall.frontend.opcodes.table import opcode
from windfall.frontend.values.base import NULL, Keywords, Value
from windfall.frontend.values.constant import Constant
from windfall.frontend.values.function import Cell, Function
from windfall.frontend.values.objects import Class, Object, Super
from windfall.frontend.values.sequence import Tuple
from windfall.frontend.values.tensor import Tensor

if TYPE_CHECKING:
    from windfall.frontend.frame import Frame
    from windfall.frontend.machine import Machine


@opcode("LOAD_ATTR")
def load_attr(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    owner, name = frame.stack.pop(), instruction.value
    if name == "__class__" and not isinstance(owner, Object | Tensor | Class | Super):
        kind = owner.python_type()
        if not kind.__flags__ & _HEAP:  # no class of the user, which may have such a property
            owner.guard_type(machine)
            frame.stack.append(machine.known(kind, kind.__qualname__))
            return
    push(frame, owner.get_attribute(machine, name))


_HEAP = 1 << 9  # Py_TPFLAGS_HEAPTYPE


@opcode("LOAD_METHOD")
def load_method(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    """Always the bound form: NULL, then the method."""
    owner = frame.stack.pop()
    frame.stack.append(NULL)
    push(frame, owner.get_attribute(machine, instruction.value))


@opcode("STORE_ATTR")
def store_attr(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    owner, value = frame.stack.pop(), frame.stack.pop()
    owner.set_attribute(machine, instruction.value, value)


@opcode("DELETE_ATTR")
def delete_attr(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    frame.stack.pop().delete_attribute(machine, instruction.value)


@opcode("KW_NAMES")
def kw_names(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    frame.kw_names = instruction.value


@opcode("CALL", until=(3, 13))
def call(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    stack, count = frame.stack, instruction.argument
    arguments = stack[len(stack) - count :]
    del stack[len(stack) - count :]
    function, under = stack.pop(), stack.pop()
    if under is not NULL:
        arguments.insert(0, function)
        function = under
    keywords: Keywords = {}
    names = frame.kw_names
    if names:
        split = len(arguments) - len(names)
        keywords = dict(zip(names, arguments[split:], strict=True))
        del arguments[split:]
        frame.kw_names = ()
    push(frame, function.call(machine, arguments, keywords))


@opcode("CALL_FUNCTION_EX")
def call_function_ex(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    stack = frame.stack
    named = stack.pop() if instruction.argument & 1 else None
    starred, function = stack.pop(), stack.pop()
    assert stack.pop() is NULL
    if isinstance(starred, Object) or machine.is_generator(starred):  # interpreted code gives them
        given = [function, starred, named or machine.created_dict({})]
        push(frame, machine.polyfill("call_starred", given))
        return
    keywords: Keywords = machine.string_keyed(named) if named is not None else {}
    push(frame, function.call(machine, starred.unpack(machine), keywords))


_DEFAULTS, _KEYWORD_DEFAULTS, _ANNOTATIONS, _CLOSURE = 1, 2, 4, 8


@opcode("MAKE_FUNCTION", until=(3, 13))
def make_function(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    flags, stack = instruction.argument, frame.stack
    code = stack.pop()
    assert isinstance(code, Constant)
    closure: list[Cell] = []
    if flags & _CLOSURE:
        closure = [cell for cell in stack.pop().unpack(machine) if isinstance(cell, Cell)]
    annotations: Value | None = stack.pop() if flags & _ANNOTATIONS else None
    keyword_defaults = machine.string_keyed(stack.pop()) if flags & _KEYWORD_DEFAULTS else {}
    defaults = stack.pop().unpack(machine) if flags & _DEFAULTS else []
    made = Function.created(code.value, frame.globals, defaults, keyword_defaults, closure)
    if isinstance(annotations, Tuple):
        items = annotations.items(machine)
        pairs = zip(items[::2], items[1::2], strict=True)
        annotations = machine.created_dict({key.key(machine): value for key, value in pairs})
    made.annotations = annotations
    stack.append(made)
