"""`collections.OrderedDict`: a dict whose order can be changed, and is compared.

Enters: ordered dictionaries. Leaves: what `mapping.py` leaves of a dict. Invariant: as there.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any

from windfall.frontend.breaks import UNKNOWN_OPERATION, stop
from windfall.frontend.values.base import Arguments, Keywords, Value
from windfall.frontend.values.dict_views import present
from windfall.frontend.values.keys import no_key
from windfall.frontend.values.mapping import Dict, keys_in_order, wrapped_dict
from windfall.frontend.values.watched import refuse_change
from windfall.frontend.values.wrap import wraps
from windfall.ir.guard import Equals
from windfall.ir.source import KeysOf, Source

if TYPE_CHECKING:
    from windfall.frontend.recipe import Recipe
    from windfall.frontend.services import Machine


class Ordered(Dict):
    """An `OrderedDict`."""

    __slots__ = ()
    made_of = collections.OrderedDict

    def load(self, machine: Machine) -> dict[Any, Value | None]:
        """As of a dict, unless methods of `dict` wrote to it past its own."""
        if (
            not self.whole
            and self.real is not None
            and keys_in_order(self.made_of, self.real) is None
        ):
            stop(UNKNOWN_OPERATION, f"{self.describe()}, whose order and items differ")
        return super().load(machine)

    def rely_on_keys(self, machine: Machine) -> None:
        """Its order is its own, not that of the dict inside."""
        assert self.real is not None and self.source is not None
        if self.guarded is None or "keys" not in self.guarded:
            machine.guards.add(KeysOf(self.source), Equals(tuple(self.real)), "all keys")
            self.guarded = {*(self.guarded or ()), "keys"}

    def compare(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """Between two of this kind the order counts."""
        if isinstance(other, Ordered) and operation in ("==", "!="):
            mine, others = list(self.load(machine)), list(other.load(machine))
            if mine != others:
                return machine.values.literal(operation == "!=")
        return super().compare(machine, operation, other)

    def call_method(
        self, machine: Machine, name: str, arguments: Arguments, keywords: Keywords
    ) -> Value:
        """A dict's methods, and those that depend on the order."""
        if name == "popitem":
            return self.take_end(machine, *arguments, **keywords)
        if name == "move_to_end":
            return self.move_to_end(machine, *arguments, **keywords)
        return super().call_method(machine, name, arguments, keywords)

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """A dict's methods, and `move_to_end`."""
        if name == "move_to_end":
            return machine.values.method(self, name)
        return super().get_attribute(machine, name)

    def move_to_end(self, machine: Machine, key: Value, last: Value | None = None) -> Value:
        """`move_to_end`."""
        at_end = last is None or bool(last.as_constant(machine))
        plain, entries = key.key(machine), self.load(machine)
        if plain not in entries:
            if plain is None or isinstance(plain, tuple):  # CPython takes these for the arguments
                stop(UNKNOWN_OPERATION, "KeyError of None or a tuple")
            raise no_key(machine, key, plain)
        refuse_change(self)
        before = dict(entries)

        def restore() -> None:
            entries.clear()
            entries.update(before)

        machine.effects.undo(restore)
        moved = entries.pop(plain)
        others = dict(entries)
        entries.clear()
        entries.update({**others, plain: moved} if at_end else {plain: moved, **others})
        if self.source is not None:
            shown = self.key_value(machine, plain)
            machine.effects.add(
                "{}.move_to_end({}, {})", self, shown, machine.values.literal(at_end)
            )
        return machine.values.literal(None)

    def take_end(self, machine: Machine, last: Value | None = None) -> Value:
        """`popitem`, from either end."""
        entries = self.load(machine)
        if not entries:
            raise machine.values.raised(KeyError("dictionary is empty"))
        keys = list(entries)
        key = keys[-1] if last is None or last.as_constant(machine) else keys[0]
        shown, value = self.key_value(machine, key), present(entries[key])
        self.store(machine, key, None)
        return machine.values.tuple([shown, value])

    def rebuild(self, recipe: Recipe) -> str:
        """Made empty, then filled."""
        name = recipe.bind(self, f"{recipe.known(self.made_of, self.made_of.__name__)}()")
        for key, value in self.present():
            recipe.later(f"{name}[{recipe.key(self, key)}] = {{}}", value)
        return name


@wraps(collections.OrderedDict)
def _wrap_ordered(machine: Machine, value: dict[Any, Any], source: Source | None) -> Value:
    return wrapped_dict(machine, Ordered, value, source)
