"""`a is b`: whether two values stand for one object.

Enters: two values. Leaves: the answer, and the guard that covers it. Invariant: an equal object is
not the same object. Where a class has one object for each value (None, True, dtypes, members of
enumerations, small integers) values decide; every other immutable object from outside is relied
upon by identity (`SameObjects`), whatever else is known of it.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

import torch

from windfall.frontend.values.base import Value
from windfall.frontend.values.class_value import Class
from windfall.frontend.values.constant import Constant, OutsideKey
from windfall.frontend.values.enumeration import MixedMember
from windfall.frontend.values.sequence import SequenceValue
from windfall.frontend.values.sets import Set
from windfall.frontend.values.unseen import look
from windfall.ir.guard import SameObjects
from windfall.ir.reading import is_among
from windfall.ir.source import Known, Source

if TYPE_CHECKING:
    from windfall.frontend.services import Machine

_SINGLETONS = (
    type(None), bool, type(Ellipsis), type(NotImplemented), torch.dtype, torch.layout,
    torch.memory_format, enum.Enum,
)  # fmt: skip
_SMALL = range(-5, 257)  # integers of which CPython has one object each


def identical(machine: Machine, left: Value, right: Value) -> bool:
    """`left is right`, relied upon."""
    left, right = look(left), look(right)
    if left is right:
        return True
    if isinstance(left, Class) and isinstance(right, Class):
        left.rely(machine)
        right.rely(machine)
        return left.real is right.real
    left.guard_type(machine)
    right.guard_type(machine)
    if left.python_type() is not right.python_type():
        return False
    if is_among(left.python_type(), (bool, int, float, complex, str)) or isinstance(left, Constant):
        told = machine.frames.stack and machine.frames.stack[-1].is_ours
        if told and all(_is_told_by_equality(machine, one) for one in (left, right)):
            return False
        return _same_constant(machine, left, right)
    if left.source is not None and right.source is not None:
        check = SameObjects((right.source,), False)
        left.guard(machine, ("distinct", right.source), check, "compared by identity")
        return False
    return _both_empty(machine, left, right)


def _is_told_by_equality(machine: Machine, value: Value) -> bool:
    """Whether a polyfill, which compares by equality next, need not know the object: of numbers and
    texts equality says as much, and needs neither their identity nor, where they vary, their
    values. A NaN is not equal to itself."""
    if not is_among(value.python_type(), (int, float, str)):
        return False
    if isinstance(value, Constant):
        return bool(value.value == value.value)
    if value.python_type() is not float:
        return True
    number = value.compare(machine, "==", value)
    return isinstance(number, Constant) and number.value is True


def _same_constant(machine: Machine, left: Value, right: Value) -> bool:
    """Of two of one exact class; a number that varies is needed as it is."""
    one, other = _itself(machine, left), _itself(machine, right)
    if isinstance(one, _SINGLETONS) or (type(one) is int and one in _SMALL and other in _SMALL):
        return one is other
    place, beside = _place(left), _place(right)
    if place is None:
        place, beside, one, other = beside, place, other, one
    if place is not None:
        check = SameObjects((beside or Known(other, "constant"),), one is other)
        machine.guards.add(place, check, "compared by identity")
    return one is other


def _itself(machine: Machine, value: Value) -> Any:
    """The object, of which nothing is asked: methods of a member's class do not matter."""
    if isinstance(value, MixedMember):
        return value.itself(machine)
    return value.as_constant(machine)


def _place(value: Value) -> Source | None:
    return value.place() if isinstance(value, OutsideKey) else value.source


def _both_empty(machine: Machine, left: Value, right: Value) -> bool:
    """CPython has one empty tuple and one empty frozenset."""
    kind = left.python_type()
    if not is_among(kind, (tuple, frozenset)) or not isinstance(left, SequenceValue | Set):
        return False
    return machine.values.length_of(left) == 0 == machine.values.length_of(right)
