"""Operators of tensors beside objects of the user's: a tensor declines, or the object overrides it.

Enters: a tensor and an object that stand beside one another at an operator. Leaves: a candidate
for `first_implemented`, asked in the place where CPython asks the tensor. Invariant: a tensor
declines an object (and CPython goes on to the object's own method) only where torch's C code finds
no `__torch_function__` on it; where it might, the tensor's real method is called, natively.

    x * q       x.__mul__(q) is NotImplemented, then q.__rmul__(x)      q has no __torch_function__
    x * q       q.__torch_function__(...), never q.__rmul__             q has one
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING

from windfall.frontend.breaks import UNKNOWN_OPERATION, stop
from windfall.frontend.values.base import Arguments, Keywords, Value
from windfall.frontend.values.objects import Object
from windfall.frontend.values.tensor import ForeignTensor, Tensor

if TYPE_CHECKING:
    from windfall.frontend.recipe import Recipe
    from windfall.frontend.services import Machine


class _SpecialMethod(Value):
    """An operator's method of a tensor, bound, for an object of the user's."""

    __slots__ = ("name", "owner")

    def __init__(self, owner: Tensor | ForeignTensor, name: str) -> None:
        super().__init__()
        self.owner = owner
        self.name = name

    def python_type(self) -> type:
        """As it is rebuilt."""
        return types.MethodType

    def describe(self) -> str:
        """The method's name."""
        return f"{self.owner.describe()}.{self.name}"

    def call(self, machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
        """Declines an object that overrides nothing."""
        other = arguments[0]
        if not isinstance(self.owner, Tensor) or not isinstance(other, Object):
            stop(UNKNOWN_OPERATION, f"{self.describe()} of {other.describe()}")
        self.owner.rely_on(machine, self.name)
        other.refuse_override(machine)
        return machine.values.literal(NotImplemented)

    def rebuild(self, recipe: Recipe) -> str:
        """The method, read again: the class's, as operators find it."""
        method = recipe.known(types.MethodType, "Method")
        return f"{method}(type({recipe.name(self.owner)}).{self.name}, {recipe.name(self.owner)})"


def special_method(value: Value, name: str) -> Value | None:
    """The method of a tensor that an operator asks; None: it is no tensor, or has none."""
    if not isinstance(value, Tensor | ForeignTensor) or not hasattr(value.python_type(), name):
        return None
    return _SpecialMethod(value, name)
