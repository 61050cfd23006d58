"""The contents of instances whose class derives from a builtin container (`subclassed.py`).

Enters: an instance, from outside or new. Leaves: values of the builtin kind for what it holds.
Invariant: contents are read and written by methods of the builtin class, past those of the user.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windfall.frontend.breaks import UNKNOWN_OPERATION, stop
from windfall.frontend.values.base import Value
from windfall.frontend.values.mapping import Dict, keys_in_order
from windfall.frontend.values.ordered import Ordered
from windfall.frontend.values.sequence import List
from windfall.frontend.values.watched import refuse_change
from windfall.ir.guard import Equals
from windfall.ir.reading import is_among
from windfall.ir.source import ByMethod, KeysOf, Source

if TYPE_CHECKING:
    from windfall.frontend.recipe import Recipe
    from windfall.frontend.services import Machine
    from windfall.frontend.values.subclassed import Subclassed


class HeldDict(Dict):
    """The contents of an instance from outside, read past the methods of its class."""

    __slots__ = ("cls", "kind")

    def __init__(self, real: Any, source: Source, kind: type) -> None:
        super().__init__(None, source, real)
        self.cls = type(real)
        self.kind = kind

    def python_type(self) -> type:
        """The class of the instance: guards are on that."""
        return self.cls

    def lookup(self, machine: Machine, key: Any) -> Value | None:
        """The item at a key: looks at all of it, instances of such classes are small."""
        return self.load(machine).get(key)

    def load(self, machine: Machine) -> dict[Any, Value | None]:
        """All items, in order."""
        if not self.whole:
            assert self.source is not None
            source: Source = self.source
            builtin: Any = self.kind
            self.guard_type(machine)
            keys = keys_in_order(builtin, self.real)
            if keys is None or not all(is_among(type(key), (str, int)) for key in keys):
                stop(UNKNOWN_OPERATION, f"keys of {self.describe()}")
            where = KeysOf(ByMethod(source, self.kind, "keys"))
            machine.guards.add(where, Equals(keys), "all keys")
            self.entries = {
                key: machine.values.wrap(
                    builtin.__getitem__(self.real, key),
                    ByMethod(source, self.kind, "__getitem__", (key,)),
                )
                for key in keys
            }
            self.whole = True
        return self.entries

    def truth(self, machine: Machine) -> bool | Value:
        """Whether there are items, past any `__len__`."""
        return bool(self.load(machine))

    def copied(self, machine: Machine) -> Dict:
        """A plain dict, as `dict.copy` gives."""
        return Dict(dict(self.load(machine)))

    def store(
        self, machine: Machine, key: Any, value: Value | None, written_at: Value | None = None
    ) -> None:
        """Write past the methods of the class."""
        self.load(machine)
        entries, before = self.entries, dict(self.entries)

        def restore() -> None:
            entries.clear()
            entries.update(before)

        refuse_change(self, (key in entries) != (value is not None))
        machine.effects.undo(restore)
        name = f"{self.kind.__name__}_"
        shown = written_at or self.key_value(machine, key)
        known = machine.values.known(self.kind, name)
        if value is None:
            entries.pop(key, None)
            machine.effects.add("{1}.__delitem__({0}, {2})", self, known, shown)
        else:
            entries[key] = value
            machine.effects.add("{1}.__setitem__({0}, {2}, {3})", self, known, shown, value)


class _Own(Dict):
    """The contents of an instance that the program makes: where they live on, those of it."""

    __slots__ = ()
    holder: Subclassed

    def python_type(self) -> type:
        """The class of the instance."""
        return self.holder.cls.real

    def rebuild(self, recipe: Recipe) -> str:
        """The instance itself; views of it go past its methods."""
        return recipe.name(self.holder)


class OwnDict(_Own):
    """Of a dict."""

    __slots__ = ("holder", "kind")

    def __init__(self, holder: Subclassed) -> None:
        super().__init__({})
        self.holder, self.kind = holder, holder.kind

    def like(self, entries: dict[Any, Value | None]) -> Dict:
        """What the builtin's methods make is of no other class."""
        return Dict(entries)


class OwnOrdered(_Own, Ordered):
    """Of an `OrderedDict`."""

    __slots__ = ("holder", "kind")

    def __init__(self, holder: Subclassed) -> None:
        super().__init__({})
        self.holder, self.kind = holder, holder.kind

    def like(self, entries: dict[Any, Value | None]) -> Dict:
        """What the builtin's methods make is of no other class."""
        return Ordered(entries)


class HeldList(List):
    """The contents of a list from outside, or of one that the program makes: written past the
    methods of its class."""

    __slots__ = ("owner",)

    def __init__(self, owner: Subclassed, items: list[Value]) -> None:
        super().__init__(items)
        self.owner = owner

    def same_kind(self, items: list[Value]) -> Value:
        """A plain list: what the builtin's methods make is of no other class."""
        return List(items)

    def write(self, machine: Machine, template: str, *operands: Value) -> None:
        """As a call of the builtin's own method, if the list existed before."""
        if self.owner.source is None:
            return
        method = _ITEM_METHODS.get(template) or template.partition(".")[2].partition("(")[0]
        places = "".join(f", {{{2 + index}}}" for index in range(len(operands)))
        known = machine.values.known(list, "list_")
        machine.effects.add(f"{{1}}.{method}({{0}}{places})", self.owner, known, *operands)

    def iterator_text(self, recipe: Recipe, name: str) -> str:
        """Past any `__iter__` of its class."""
        return f"{recipe.known(list.__iter__, 'iter_list')}({name})"

    def rebuild(self, recipe: Recipe) -> str:
        """The instance itself."""
        return recipe.name(self.owner)


_ITEM_METHODS = {"{}[{}] = {}": "__setitem__", "del {}[{}]": "__delitem__"}


def held_items(machine: Machine, real: Any, source: Source, kind: Any) -> list[Value]:
    """The items of a list or tuple from outside."""
    count = kind.__len__(real)
    machine.guards.add(ByMethod(source, kind, "__len__"), Equals(count), "length")
    return [
        machine.values.wrap(
            kind.__getitem__(real, index),
            ByMethod(source, kind, "__getitem__", (index,)),
        )
        for index in range(count)
    ]
