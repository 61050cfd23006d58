"""`collections.defaultdict`: a dict that makes what it is asked for.

Enters: `defaultdict(...)` calls and those from outside. Leaves: what dicts leave; a missing key
calls the factory in interpreted code. Invariant: sources and guards never ask by subscript, which
would make an item.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any

from windfall.frontend.breaks import ARGUMENTS, UNKNOWN_OPERATION, stop
from windfall.frontend.values.base import Arguments, Keywords, Value
from windfall.frontend.values.calls import calls
from windfall.frontend.values.keys import is_plain_key, is_tensor_key
from windfall.frontend.values.mapping import Dict, filled
from windfall.frontend.values.unseen import real_of
from windfall.frontend.values.wrap import wraps
from windfall.ir.guard import Equals
from windfall.ir.source import Attribute, ByMethod, KeysOf, Source

if TYPE_CHECKING:
    from windfall.frontend.recipe import Recipe
    from windfall.frontend.services import Machine


class DefaultDict(Dict):
    """A dict with a factory."""

    __slots__ = ("factory",)
    made_of = collections.defaultdict

    def __init__(
        self,
        entries: dict[Any, Value | None] | None = None,
        source: Source | None = None,
        real: Any = None,
        factory: Value | None = None,
    ) -> None:
        super().__init__(entries, source, real)
        self.factory = factory

    def lookup(self, machine: Machine, key: Any) -> Value | None:
        """The item at a key, none made."""
        if not self.whole and isinstance(key, Value) and is_tensor_key(real_of(key)):
            return self.entries[key] if key in self.entries else self.of_tensor(machine, key)
        return self.load(machine).get(key)

    def keys_source(self) -> Source:
        """Past the methods of a subclass."""
        assert self.source is not None
        return KeysOf(ByMethod(self.source, dict, "keys"))

    def load(self, machine: Machine) -> dict[Any, Value | None]:
        """All items, in order."""
        if not self.whole:
            assert self.real is not None and self.source is not None
            source = self.source
            self.guard_type(machine)
            keys = tuple(self.real)
            if self.writes or not all(is_plain_key(key) for key in keys):
                stop(UNKNOWN_OPERATION, f"keys of {self.describe()}")
            machine.guards.add(self.keys_source(), Equals(keys), "all keys")
            self.keep_tuples(machine, keys)
            self.entries = {
                key: machine.values.wrap(self.real[key], ByMethod(source, dict, "get", (key,)))
                for key in keys
            }
            self.whole = True
        return self.entries

    def get_item(self, machine: Machine, key: Value) -> Value:
        """What is missing is made."""
        found = self.lookup(machine, key.key(machine))
        if found is not None:
            return found
        if self.factory is None or self.factory.python_type() is type(None):
            if self.factory is not None:
                self.factory.as_constant(machine)
            return super().get_item(machine, key)
        return machine.values.polyfill("made_item", [self, key, self.factory])

    def store(
        self, machine: Machine, key: Any, value: Value | None, written_at: Value | None = None
    ) -> None:
        """Writes need all items: how one is read again is not by subscript. (Not those at tensors,
        which are looked up one by one.)"""
        if not (isinstance(key, Value) and key in self.entries):
            self.load(machine)
        super().store(machine, key, value, written_at)

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """A dict's methods, and the factory."""
        if name == "default_factory":
            self.guard_type(machine)
            return self.factory or machine.values.literal(None)
        return super().get_attribute(machine, name)

    def copied(self, machine: Machine) -> Dict:
        """With the same factory."""
        made = DefaultDict(dict(self.load(machine)), factory=self.factory)
        made.keys = dict(self.keys)
        return made

    def rebuild(self, recipe: Recipe) -> str:
        """Made empty, then filled."""
        make = recipe.known(collections.defaultdict, "defaultdict")
        factory = recipe.name(self.factory) if self.factory is not None else ""
        name = recipe.bind(self, f"{make}({factory})")
        for key, value in self.present():
            recipe.later(f"{name}[{recipe.key(self, key)}] = {{}}", value)
        return name


@calls(collections.defaultdict)
def _default_dict(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    if len(arguments) > 2:
        stop(ARGUMENTS, "defaultdict")
    made = DefaultDict({}, factory=arguments[0] if arguments else None)
    return filled(machine, made, arguments[1:], keywords)


@wraps(collections.defaultdict)
def _wrap_default_dict(machine: Machine, value: Any, source: Source | None) -> Value:
    if source is None:
        factory = machine.values.literal_or_known(value.default_factory, "factory")
        entries = {key: machine.values.wrap(one, None) for key, one in value.items()}
        return DefaultDict({**entries}, factory=factory)
    factory = machine.values.wrap(value.default_factory, Attribute(source, "default_factory"))
    return machine.values.remember(value, DefaultDict(None, source, value, factory))
