"""Attributes, calls, functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windfall.errors import InternalError
from windfall.frontend.breaks import UNKNOWN_CALL, stop
from windfall.frontend.bytecode import Instruction
from windfall.frontend.opcodes.displays import demand_iterable
from windfall.frontend.opcodes.operators import push
from windfall.frontend.opcodes.table import opcode
from windfall.frontend.values.base import NULL, PENDING, Keywords, Value
from windfall.frontend.values.class_value import Class
from windfall.frontend.values.constant import Constant
from windfall.frontend.values.function import Cell, Function
from windfall.frontend.values.objects import Object
from windfall.frontend.values.sequence import Tuple
from windfall.frontend.values.supers import Super
from windfall.frontend.values.tensor import Tensor
from windfall.ir.reading import class_name, flags_of

if TYPE_CHECKING:
    from windfall.frontend.frame import Frame
    from windfall.frontend.services import Machine


@opcode("LOAD_ATTR")
def load_attr(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    owner, name = frame.stack.pop(), instruction.value
    if name == "__class__" and not isinstance(owner, Object | Tensor | Class | Super):
        kind = owner.python_type()
        if not flags_of(kind) & _HEAP:  # no class of the user, which may have such a property
            owner.guard_type(machine)
            frame.stack.append(machine.values.known(kind, class_name(kind)))
            return
    push(frame, owner.get_attribute(machine, name))


_HEAP = 1 << 9  # Py_TPFLAGS_HEAPTYPE


# From 3.12 on it is LOAD_ATTR with a bit set (see `bytecode.py`).
@opcode("LOAD_METHOD", until=(3, 13))
def load_method(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    """Always the bound form: NULL, then the method."""
    owner = frame.stack.pop()
    frame.stack.append(NULL)
    push(frame, owner.get_attribute(machine, instruction.value))


@opcode("LOAD_METHOD", since=(3, 13))
def load_method_then_null(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    """Always the bound form: the method, then NULL, which waits for it."""
    if frame.phase == 0:
        found = frame.stack.pop().get_attribute(machine, instruction.value)
        push(frame, found)
        if found is PENDING:
            frame.retry()
            return
    frame.stack.append(NULL)


_METHOD = 1  # a bit of LOAD_SUPER_ATTR: as LOAD_METHOD does


@opcode("LOAD_SUPER_ATTR", since=(3, 12), until=(3, 13))
def load_super_attr(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    """`super().name` or `super(cls, object).name`."""
    found = _super(machine, frame)
    if instruction.argument & _METHOD:
        frame.stack.append(NULL)
    push(frame, found.get_attribute(machine, instruction.value))


@opcode("LOAD_SUPER_ATTR", since=(3, 13))
def load_super_attr_then_null(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    """The same; NULL comes behind what was found."""
    if frame.phase == 0:
        found = _super(machine, frame).get_attribute(machine, instruction.value)
        push(frame, found)
        if found is PENDING:
            if instruction.argument & _METHOD:
                frame.retry()
            return
    if instruction.argument & _METHOD:
        frame.stack.append(NULL)


def _super(machine: Machine, frame: Frame) -> Value:
    """What `super` gives for a class and an object; whether the program wrote them or not."""
    function, *given = frame.stack[-3:]
    if not isinstance(function, Class) or function.real is not super:
        stop(UNKNOWN_CALL, f"{function.describe()} by the name of `super`")
    del frame.stack[-3:]
    found = function.call(machine, given, {})
    assert found is not PENDING, "super() runs no code"
    return found


@opcode("STORE_ATTR")
def store_attr(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    owner, value = frame.stack.pop(), frame.stack.pop()
    owner.set_attribute(machine, instruction.value, value)


@opcode("DELETE_ATTR")
def delete_attr(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    frame.stack.pop().delete_attribute(machine, instruction.value)


@opcode("KW_NAMES", until=(3, 13), moves=True)
def kw_names(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    frame.kw_names = instruction.value


@opcode("CALL")
def call(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    names, frame.kw_names = frame.kw_names, ()
    _call(machine, frame, instruction.argument, names)


@opcode("CALL_KW", since=(3, 13))
def call_kw(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    frame.stack.pop()
    _call(machine, frame, instruction.argument, instruction.value)


def _call(machine: Machine, frame: Frame, count: int, names: tuple[str, ...]) -> None:
    """The last of the arguments have these names."""
    stack = frame.stack
    given = stack[len(stack) - count :]
    del stack[len(stack) - count :]
    function, arguments = _callee(stack)
    arguments += given
    keywords: Keywords = {}
    if names:
        split = len(arguments) - len(names)
        keywords = dict(zip(names, arguments[split:], strict=True))
        del arguments[split:]
    push(frame, function.call(machine, arguments, keywords))


def _callee(stack: list[Value]) -> tuple[Value, list[Value]]:
    """What is called: a NULL and it (from 3.13 on, it and a NULL), or it and its first argument."""
    upper, lower = stack.pop(), stack.pop()
    if lower is NULL:
        return upper, []
    return (lower, []) if upper is NULL else (lower, [upper])


@opcode("CALL_FUNCTION_EX")
def call_function_ex(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    values = machine.values
    stack = frame.stack
    named = stack.pop() if instruction.argument & 1 else None
    starred = stack.pop()
    function, _ = _callee(stack)
    demand_iterable(machine, starred)
    if isinstance(starred, Object) or values.is_generator(starred):  # interpreted code gives them
        given = [function, starred, named or values.created_dict({})]
        push(frame, values.polyfill("call_starred", given))
        return
    keywords: Keywords = values.string_keyed(named) if named is not None else {}
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
    keyword_defaults = machine.values.string_keyed(stack.pop()) if flags & _KEYWORD_DEFAULTS else {}
    defaults = stack.pop().unpack(machine) if flags & _DEFAULTS else []
    made = Function.created(code.value, frame.globals, defaults, keyword_defaults, closure)
    made.annotations = _annotations(machine, annotations)
    stack.append(made)


def _annotations(machine: Machine, value: Value | None) -> Value | None:
    if not isinstance(value, Tuple):
        return value
    items = value.items(machine)
    pairs = zip(items[::2], items[1::2], strict=True)
    return machine.values.created_dict({key.key(machine): value for key, value in pairs})


@opcode("MAKE_FUNCTION", since=(3, 13))
def make_function_of_code(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    """With what the instructions behind it give to it: between them it is no function yet."""
    code = frame.stack.pop()
    assert isinstance(code, Constant)
    given: dict[int, Value] = {}
    while frame.instructions[frame.ip].name == "SET_FUNCTION_ATTRIBUTE":
        given[frame.instructions[frame.ip].argument] = frame.stack.pop()
        frame.ip += 1
    cells = given[_CLOSURE].unpack(machine) if _CLOSURE in given else []
    named, defaults = given.get(_KEYWORD_DEFAULTS), given.get(_DEFAULTS)
    made = Function.created(
        code.value,
        frame.globals,
        [] if defaults is None else defaults.unpack(machine),
        {} if named is None else machine.values.string_keyed(named),
        [cell for cell in cells if isinstance(cell, Cell)],
    )
    made.annotations = _annotations(machine, given.get(_ANNOTATIONS))
    frame.stack.append(made)


@opcode("SET_FUNCTION_ATTRIBUTE", since=(3, 13))
def set_function_attribute(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    """MAKE_FUNCTION did it."""
    raise InternalError("SET_FUNCTION_ATTRIBUTE is never reached")
