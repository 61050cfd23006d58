"""`types.MappingProxyType` that the program makes of a dict: `Colour.__members__` is one.

Enters: its call with a plain dict. Leaves: a `MappingProxy`, which asks the dict. Invariant: it has
no contents of its own and cannot be written; what the dict relies upon is relied upon.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING

from windfall.frontend.breaks import UNKNOWN_CALL, stop
from windfall.frontend.name_tables import words
from windfall.frontend.values.base import Arguments, Keywords, Value, no_method
from windfall.frontend.values.calls import calls
from windfall.frontend.values.mapping import Dict
from windfall.frontend.values.unseen import look
from windfall.ir.reading import is_among

if TYPE_CHECKING:
    from windfall.frontend.recipe import Recipe
    from windfall.frontend.services import Machine

_METHODS = words("get keys values items copy __contains__ __getitem__ __len__ __iter__")


class MappingProxy(Value):
    """A view of a dict through which it cannot be written."""

    __slots__ = ("owner",)
    made_of = types.MappingProxyType

    def __init__(self, owner: Dict) -> None:
        super().__init__()
        self.owner = owner

    def get_item(self, machine: Machine, key: Value) -> Value:
        """The dict's."""
        return self.owner.get_item(machine, key)

    def contains(self, machine: Machine, item: Value) -> Value:
        """The dict's."""
        return self.owner.contains(machine, item)

    def truth(self, machine: Machine) -> bool | Value:
        """The dict's."""
        return self.owner.truth(machine)

    def length(self, machine: Machine) -> Value:
        """The dict's."""
        return self.owner.length(machine)

    def known_length(self) -> int | None:
        """The dict's."""
        return self.owner.known_length()

    def iterate(self, machine: Machine) -> Value:
        """Over the dict's keys."""
        return self.owner.iterate(machine)

    def unpack(self, machine: Machine) -> list[Value]:
        """The dict's keys."""
        return self.owner.unpack(machine)

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """Methods that read."""
        if name in _METHODS:
            return machine.values.method(self, name)
        no_method(machine, self, "mappingproxy", types.MappingProxyType, name)

    def call_method(
        self, machine: Machine, name: str, arguments: Arguments, keywords: Keywords
    ) -> Value:
        """The dict's."""
        return self.owner.call_method(machine, name, arguments, keywords)

    def rebuild(self, recipe: Recipe) -> str:
        """Around the dict."""
        made = recipe.known(types.MappingProxyType, "MappingProxyType")
        return f"{made}({recipe.name(self.owner)})"


@calls(types.MappingProxyType)
def _proxy(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    owner = look(arguments[0]) if len(arguments) == 1 and not keywords else None
    if not isinstance(owner, Dict) or not is_among(owner.python_type(), (dict,)):
        stop(UNKNOWN_CALL, "mappingproxy of what is no plain dict")
    return MappingProxy(owner)
