"""`keys()`, `values()` and `items()` of a dict: what it holds whenever they are asked.

Enters: a dict. Leaves: iterators over what it holds, answers of keys as of a set. Invariant: a view
has no contents of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from windfall.frontend.breaks import UNKNOWN_OPERATION, stop
from windfall.frontend.values.base import Value
from windfall.frontend.values.watched import watch

if TYPE_CHECKING:
    from windfall.frontend.recipe import Recipe
    from windfall.frontend.services import Machine
    from windfall.frontend.values.mapping import Dict


def present(value: Value | None) -> Value:
    assert value is not None, "a whole dict has no absent items"
    return value


_VIEW_TYPES = {"keys": type({}.keys()), "values": type({}.values()), "items": type({}.items())}


# What `sets.py` does with views of keys.
KEYS_AS_SETS: dict[str, Callable[[Machine, DictView, str, Value], Value | None]] = {}


class DictView(Value):
    """`keys()`, `values()` or `items()`."""

    __slots__ = ("kind", "owner")

    def __init__(self, owner: Dict, kind: str) -> None:
        super().__init__()
        self.owner = owner
        self.kind = kind

    def python_type(self) -> type:
        """The view's class."""
        return _VIEW_TYPES[self.kind]

    def unpack(self, machine: Machine) -> list[Value]:
        """What it shows now."""
        if self.kind == "keys":
            return self.owner.key_values(machine)
        if self.kind == "values":
            return self.owner.item_values(machine)
        pairs = zip(self.owner.key_values(machine), self.owner.item_values(machine), strict=True)
        return [machine.values.tuple(list(pair)) for pair in pairs]

    def known_length(self) -> int | None:
        """As of the dict."""
        return self.owner.known_length()

    def iterate(self, machine: Machine) -> Value:
        """Over what it shows now."""
        return self._iterate(machine, list(self.owner.load(machine)), iter)

    def iterate_back(self, machine: Machine) -> Value:
        """`reversed` of what it shows now."""
        return self._iterate(machine, list(self.owner.load(machine))[::-1], reversed)

    def _iterate(self, machine: Machine, keys: list[Any], how: Any) -> Value:
        owner, kind = self.owner, self.kind
        sample: Any = owner.made_of()

        def read(machine: Machine, place: int) -> Value | None:
            if place >= len(keys):
                return None
            shown = owner.key_value(machine, keys[place])
            if kind == "keys":
                return shown
            value = present(owner.load(machine)[keys[place]])
            return value if kind == "values" else machine.values.tuple([shown, value])

        real = type(how(getattr(sample, kind)()))
        made = machine.values.iterate_over(self, real, read, f"{how.__name__}({{}})")
        return watch(owner, made)  # type: ignore[no-any-return]

    def length(self, machine: Machine) -> Value:
        """How many items."""
        return self.owner.length(machine)

    def truth(self, machine: Machine) -> bool | Value:
        """Whether there are items."""
        return self.owner.truth(machine)

    def binary(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """Keys as a set."""
        rule = KEYS_AS_SETS["operation"]
        return rule(machine, self, operation, other) if self.kind == "keys" else None

    def compare(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """Keys as a set: subset, superset and equality."""
        rule = KEYS_AS_SETS["comparison"]
        return rule(machine, self, operation, other) if self.kind == "keys" else None

    def contains(self, machine: Machine, item: Value) -> Value:
        """Of keys only."""
        if self.kind == "keys":
            return self.owner.contains(machine, item)
        return super().contains(machine, item)

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """Methods of views."""
        if name in ("__iter__", "__len__", "__contains__"):
            return machine.values.method(self, name)
        stop(UNKNOWN_OPERATION, f"dict view .{name}")

    def rebuild(self, recipe: Recipe) -> str:
        """Asked of the dict; of an instance of a subclass past the methods of its class."""
        owner = self.owner
        kind = getattr(owner, "kind", owner.made_of)
        if owner.python_type() is kind:
            return f"{recipe.name(owner)}.{self.kind}()"
        return f"{recipe.known(getattr(kind, self.kind), self.kind)}({recipe.name(owner)})"
