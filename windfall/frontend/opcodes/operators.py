"""Operators, comparisons, subscripts."""

from __future__ import annotations

import dis
from typing import TYPE_CHECKING

from windfall.frontend.breaks import UNKNOWN_OPERATION, stop
from windfall.frontend.bytecode import Instruction
from windfall.frontend.opcodes.table import opcode
from windfall.frontend.values.base import PENDING, Value
from windfall.frontend.values.class_value import Class, find, relied
from windfall.frontend.values.constant import Constant
from windfall.frontend.values.declining import special_method
from windfall.frontend.values.enumeration import MixedMember, own_equality
from windfall.frontend.values.function import Function, Method
from windfall.frontend.values.identity import identical
from windfall.frontend.values.mapping import Dict
from windfall.frontend.values.objects import Object, Opaque
from windfall.frontend.values.ranges import Slice
from windfall.frontend.values.sequence import SequenceValue
from windfall.frontend.values.subclassed import Subclassed
from windfall.frontend.values.sym_bool import SymBool
from windfall.frontend.values.symbolic import Question
from windfall.frontend.values.tensor import Tensor
from windfall.frontend.values.unseen import look
from windfall.ir.reading import is_among, mro_of

if TYPE_CHECKING:
    from windfall.frontend.frame import Frame
    from windfall.frontend.services import Machine

# The symbol of each argument of BINARY_OP; `+=` stands for the in-place ones.
SYMBOLS: list[str] = [symbol for _, symbol in getattr(dis, "_nb_ops")]  # noqa: B009
_DUNDERS = {
    "+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow",
    "@": "matmul", "&": "and", "|": "or", "^": "xor", "<<": "lshift", ">>": "rshift",
}  # fmt: skip
_COMPARISONS = {
    "<": ("__lt__", "__gt__"),
    "<=": ("__le__", "__ge__"),
    "==": ("__eq__", "__eq__"),
    "!=": ("__ne__", "__ne__"),
    ">": ("__gt__", "__lt__"),
    ">=": ("__ge__", "__le__"),
}


def push(frame: Frame, value: Value) -> None:
    """The result of an operation, unless it is still to come."""
    if value is not PENDING:
        frame.stack.append(value)


def binary(
    machine: Machine, operation: str, left: Value, right: Value, shown: str | None = None
) -> Value:
    """`left operation right`; `shown` is what an error calls the operator."""
    if isinstance(right, Object) and isinstance(left, Tensor | Constant):
        reflected = f"__r{_DUNDERS[operation]}__"  # what is of C declines a class of the user
        fills = operation == "%" and is_among(left.python_type(), (str, bytes))  # but for text
        asks = not isinstance(right, Subclassed) and not fills
        if asks and right.dunder(machine, reflected) is not None:
            name = f"__{_DUNDERS[operation]}__"
            return by_dunder(machine, name, reflected, operation, left, right, shown)
    found = left.binary(machine, operation, right)
    if found is None and not isinstance(left, Object):
        found = right.reflected(machine, operation, left)
    if found is None:
        name = _DUNDERS[operation]
        found = by_dunder(machine, f"__{name}__", f"__r{name}__", operation, left, right, shown)
    return found


def in_place(machine: Machine, operation: str, left: Value, right: Value) -> Value:
    """`left operation= right`."""
    found = left.in_place(machine, operation, right)
    if found is None and isinstance(left, Object):
        method = left.dunder(machine, f"__i{_DUNDERS[operation]}__")
        if method is not None:
            return _in_place_by_method(machine, operation, method, left, right)
    if found is not None:
        return found
    return binary(machine, operation, left, right, f"{operation}=")


def _in_place_by_method(
    machine: Machine, operation: str, method: Value, left: Value, right: Value
) -> Value:
    """Through `__iadd__` and the like; one that declines is followed by the plain operator."""
    values = machine.values
    name = _DUNDERS[operation]
    candidates = [values.tuple([method, right])]
    for owner, dunder, other in ((left, f"__{name}__", right), (right, f"__r{name}__", left)):
        found = _special_method(machine, owner, dunder)
        if found is not None:
            candidates.append(values.tuple([found, other]))
    shown = values.literal(f"{operation}=")
    return values.polyfill("first_implemented", [values.tuple(candidates), shown, left, right])


def by_dunder(
    machine: Machine,
    name: str,
    reflected: str,
    operation: str,
    left: Value,
    right: Value,
    shown: str | None = None,
) -> Value:
    """Through the special methods of objects, tried in Python's order by interpreted code."""
    values = machine.values
    if isinstance(left, Opaque) or isinstance(right, Opaque):  # methods of C that may well answer
        stop(UNKNOWN_OPERATION, f"{left.describe()} {operation} {right.describe()}")
    for value, dunder in ((left, name), (right, reflected)):
        if isinstance(value, Class | MixedMember):
            # `!=` of who has none of its own asks `__eq__`.
            value.refuse_own(machine, *((dunder, "__eq__") if operation == "!=" else (dunder,)))
    candidates = []
    if (method := _special_method(machine, left, name)) is not None:
        candidates.append(values.tuple([method, right]))
    if (method := _special_method(machine, right, reflected)) is not None:
        later = values.tuple([method, left])
        if _right_goes_first(operation, reflected, left.python_type(), right.python_type()):
            candidates.insert(0, later)
        elif right.python_type() is not left.python_type() or operation in _COMPARISONS:
            candidates.append(later)
    asked = (isinstance(left, Object), isinstance(right, Object))
    if not candidates or not any(asked):
        stop(UNKNOWN_OPERATION, f"{left.describe()} {operation} {right.describe()}")
    arguments = [values.tuple(candidates), values.literal(shown or operation), left, right]
    return values.polyfill("first_implemented", arguments)


def _special_method(machine: Machine, value: Value, name: str) -> Value | None:
    """The method that an operator asks, bound, of an object of the user's or of a tensor."""
    return value.dunder(machine, name) if isinstance(value, Object) else special_method(value, name)


def _right_goes_first(operation: str, reflected: str, left: type, right: type) -> bool:
    """Whether the right class derives from the left one (for real: `register` does not count) and,
    where it is no comparison, has a reflected method of its own."""
    if right is left or not is_among(left, mro_of(right)):
        return False
    return operation in _COMPARISONS or find(right, reflected) is not find(left, reflected)


@opcode("BINARY_OP")
def binary_op(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    right, left = frame.stack.pop(), frame.stack.pop()
    symbol = SYMBOLS[instruction.argument]
    if symbol.endswith("="):
        push(frame, in_place(machine, symbol[:-1], left, right))
    else:
        push(frame, binary(machine, symbol, left, right))


@opcode("UNARY_POSITIVE", "UNARY_NEGATIVE", "UNARY_INVERT")
def unary(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    symbol = {"UNARY_POSITIVE": "+", "UNARY_NEGATIVE": "-", "UNARY_INVERT": "~"}
    push(frame, frame.stack.pop().unary(machine, symbol[instruction.name]))


@opcode("UNARY_NOT")
def unary_not(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    value = frame.stack.pop()
    if isinstance(value, Tensor):
        value = machine.values.flag(value) or value
    if isinstance(value, Question | SymBool):
        frame.stack.append(value.unary(machine, "not"))
        return
    found = value.truth(machine)
    if isinstance(found, Value):
        push(frame, found)
        frame.retry()
    else:
        frame.stack.append(machine.values.literal(not found))


# ------------------------------------------------------------------------------------ comparisons


def compare(machine: Machine, operation: str, left: Value, right: Value) -> Value:
    """`left operation right`."""
    if _asks_object(machine, left, right, operation):
        name, reflected = _COMPARISONS[operation]
        return by_dunder(machine, name, reflected, operation, left, right)
    answered = own_equality(machine, look(left), look(right)) if operation == "==" else None
    if answered is not None:
        return answered
    mirrored = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(operation, operation)
    for one, asked in zip((left, right), _COMPARISONS[operation], strict=True):
        if isinstance(one, MixedMember):
            one.refuse_own(machine, asked)
    found = left.compare(machine, operation, right)
    if found is None:
        found = right.compare(machine, mirrored, left)
    if found is not None:
        return found
    if operation in ("==", "!=") and _unequal_kinds(left, right):
        left.guard_type(machine)
        right.guard_type(machine)
        return machine.values.literal(operation == "!=")
    if operation in ("==", "!=") and (
        _declines(machine, left, right) and _declines(machine, right, left)
    ):
        return machine.values.literal(identical(machine, left, right) == (operation == "=="))
    name, reflected = _COMPARISONS[operation]
    return by_dunder(machine, name, reflected, operation, left, right)


def _asks_object(machine: Machine, left: Value, right: Value, operation: str) -> bool:
    """Whether one side is a tensor, which declines, and the other an object that does not."""
    for place, (one, other) in enumerate(((left, right), (right, left))):
        if isinstance(one, Object) and isinstance(other, Tensor):
            method = one.dunder(machine, _COMPARISONS[operation][place])
            return isinstance(method, Method) and isinstance(method.function, Function)
    return False


def _declines(machine: Machine, value: Value, other: Value) -> bool:
    """Whether its class has no say in equality with another: such an object is equal only to
    itself. Constants of C decline what is of the user's classes."""
    value.guard_type(machine)
    if isinstance(value, Constant) and not value.has_own_class and isinstance(other, Object):
        return True
    kind = value.python_type()
    return all(relied(machine, kind, one) is find(object, one) for one in ("__eq__", "__ne__"))


def _unequal_kinds(left: Value, right: Value) -> bool:
    """Constants, sequences and dicts are never equal to one another."""
    kinds = [
        next((kind for kind in (Constant, SequenceValue, Dict) if isinstance(one, kind)), None)
        for one in (left, right)
    ]
    return None not in kinds and kinds[0] is not kinds[1]


@opcode("COMPARE_OP")
def compare_op(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    right, left = frame.stack.pop(), frame.stack.pop()
    push(frame, compare(machine, instruction.value, left, right))


@opcode("IS_OP")
def is_op(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    right, left = frame.stack.pop(), frame.stack.pop()
    same = identical(machine, left, right)
    frame.stack.append(machine.values.literal(same != bool(instruction.argument)))


@opcode("CONTAINS_OP")
def contains_op(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    """`not in` asks again when the answer is there: it may come from interpreted code."""
    if frame.phase == 0:
        container, item = frame.stack.pop(), frame.stack.pop()
        found = container.contains(machine, item)
        push(frame, found)
        if instruction.argument:
            frame.retry()
    else:
        answer = frame.stack.pop().as_constant(machine)
        frame.stack.append(machine.values.literal(not answer))


# ------------------------------------------------------------------------------------- subscripts


@opcode("BINARY_SUBSCR")
def binary_subscr(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    key, owner = frame.stack.pop(), frame.stack.pop()
    push(frame, owner.get_item(machine, key))


@opcode("BINARY_SLICE", since=(3, 12))
def binary_slice(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    owner, start, stop_ = frame.stack[-3:]
    del frame.stack[-3:]
    push(frame, owner.get_item(machine, _slice(machine, start, stop_)))


@opcode("STORE_SLICE", since=(3, 12))
def store_slice(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    value, owner, start, stop_ = frame.stack[-4:]
    del frame.stack[-4:]
    owner.set_item(machine, _slice(machine, start, stop_), value)


def _slice(machine: Machine, start: Value, stop_: Value) -> Slice:
    return Slice((start, stop_, machine.values.literal(None)))


@opcode("STORE_SUBSCR")
def store_subscr(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    key, owner, value = frame.stack.pop(), frame.stack.pop(), frame.stack.pop()
    owner.set_item(machine, key, value)


@opcode("DELETE_SUBSCR")
def delete_subscr(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    key, owner = frame.stack.pop(), frame.stack.pop()
    owner.delete_item(machine, key)


@opcode("GET_LEN")
def get_len(machine: Machine, frame: Frame, instruction: Instruction) -> None:
    push(frame, frame.stack[-1].length(machine))
