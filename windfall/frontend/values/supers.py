"""`super()`: lookup along the MRO of an object, from behind a class on.

Enters: the class, the object. Leaves: bound methods and attributes. Invariant: what is found is
relied upon as `objects.py` relies on it.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING

from windfall.frontend.breaks import UNKNOWN_ATTRIBUTE, UNKNOWN_CALL, stop
from windfall.frontend.name_tables import words
from windfall.frontend.values.base import Value
from windfall.frontend.values.class_value import Class, find, mro
from windfall.frontend.values.function import BuiltinMethod, Method
from windfall.frontend.values.objects import BOUND_AS_METHODS, BUILTIN_DESCRIPTORS, Object
from windfall.ir.guard import ABSENT
from windfall.ir.reading import class_dict, class_name, is_a, is_among

if TYPE_CHECKING:
    from windfall.frontend.recipe import Recipe
    from windfall.frontend.services import Machine


def _order(
    machine: Machine, start: type, owner: Value, cls: type, name: str
) -> tuple[tuple[type, ...], bool]:
    """The classes among which `super` looks, and whether the owner is an instance of them: a class
    is one of its metaclass."""
    order = mro(machine, cls)
    if not isinstance(owner, Class) or is_among(start, order):
        return order, not isinstance(owner, Class)
    owner.meta(machine, name)
    return mro(machine, type(cls)), True


def super_lookup(machine: Machine, start: type, owner: Value, cls: type, name: str) -> Value | None:
    """`super(start, owner).name`: what comes after `start` in the MRO of `cls`."""
    order, is_instance = _order(machine, start, owner, cls, name)
    place = next((place for place, one in enumerate(order) if one is start), None)
    if place is None:  # a metaclass's method, or an error
        stop(UNKNOWN_CALL, f"super({class_name(start)}, {owner.describe()})")
    for base in order[place + 1 :]:
        if name not in class_dict(base):
            continue
        raw = class_dict(base)[name]
        holder = machine.values.known(base, class_name(base))
        assert isinstance(holder, Class)
        holder.find(machine, name)
        if isinstance(owner, Object):
            return owner.described(machine, name, raw)
        if isinstance(owner, Class) and is_a(raw, classmethod):
            return Method(holder.value_of(machine, name, raw.__func__), owner)
        if is_a(raw, staticmethod):
            return holder.value_of(machine, name, raw.__func__)
        if type(raw) is types.ClassMethodDescriptorType:
            stop(UNKNOWN_ATTRIBUTE, f"super().{name} of {owner.describe()}")
        found = holder.value_of(machine, name, raw)
        if not is_instance or find(type(raw), "__get__") is ABSENT:
            return found
        if not is_among(type(raw), BOUND_AS_METHODS):
            stop(UNKNOWN_ATTRIBUTE, f"super().{name} of {owner.describe()}")
        kind = BuiltinMethod if is_among(type(raw), BUILTIN_DESCRIPTORS) else Method
        return kind(found, owner)
    return None


# What a `super` object answers of itself.
_OF_SUPER = words("__class__ __thisclass__ __self__ __self_class__")


class Super(Value):
    """`super(cls, object)`."""

    __slots__ = ("owner", "start")
    made_of = super

    def __init__(self, start: Class, owner: Value) -> None:
        super().__init__()
        self.start = start
        self.owner = owner

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """The next one in the MRO."""
        owner = self.owner
        if name in _OF_SUPER:
            stop(UNKNOWN_ATTRIBUTE, f"super().{name}")
        cls = owner.real if isinstance(owner, Class) else owner.python_type()
        owner.guard_type(machine)
        found = super_lookup(machine, self.start.real, owner, cls, name)
        if found is None:
            raise machine.values.no_attribute(
                self, name, f"'super' object has no attribute '{name}'"
            )
        return found

    def rebuild(self, recipe: Recipe) -> str:
        """Made anew."""
        return f"super({recipe.name(self.start)}, {recipe.name(self.owner)})"
