"""Iterators over dicts, their views and sets: containers that refuse to change size meanwhile.

Enters: `iter` of a dict, a view, a set. Leaves: items, or CPython's RuntimeError. Invariant: as
CPython's, such an iterator remembers the size that it began with and goes through the entries in
the order in which they stand; a key that was deleted and came back is another entry.

    for key in d: d[key + 1] = 0        RuntimeError: dictionary changed size during iteration
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any, NoReturn

from windfall.frontend.breaks import UNKNOWN_OPERATION, stop
from windfall.frontend.values.base import NULL, Value
from windfall.frontend.values.iterator import Iterator
from windfall.frontend.values.mapping import Dict
from windfall.frontend.values.sets import Set

if TYPE_CHECKING:
    from windfall.frontend.machine import Machine
    from windfall.frontend.recipe import Recipe


class _Moving(Iterator):
    """An iterator whose place can be taken back."""

    __slots__ = ()

    def _move(self, machine: Machine, **fields: Any) -> None:
        before = {name: getattr(self, name) for name in fields}

        def restore() -> None:
            for name, value in before.items():
                setattr(self, name, value)

        machine.undo(restore)
        for name, value in fields.items():
            setattr(self, name, value)


class DictIterator(_Moving):
    """Over keys, values or items. `order` is what stood there when the dict last changed, `index`
    the place in it, `left` how many items are still to come by the size at the start."""

    __slots__ = ("base", "done", "given", "index", "kind", "left", "order", "owner", "seen", "size")

    def __init__(self, owner: Dict, kind: str, machine: Machine) -> None:
        super().__init__()
        self.owner = owner
        self.base: Any = getattr(owner, "kind", owner.made_of)  # the builtin class
        self.kind = kind
        self.order = list(owner.load(machine))
        self.index = 0
        self.left = self.size = len(self.order)
        self.seen = owner.changes
        self.given: set[Any] = set()  # entries given so far: the key, and when it came
        self.done = False

    def python_type(self) -> type:
        """The iterator's class, by that of the dict and what it gives."""
        return type(iter(getattr(self.base(), self.kind)()))

    def advance(self, machine: Machine) -> Value | None:
        """The next item, where the dict has the size that it had."""
        if self.done:
            return None
        owner = self.owner
        entries = owner.load(machine)
        ordered = issubclass(self.base, collections.OrderedDict)
        if not ordered and len(entries) != self.size:
            self._fail(machine, "dictionary changed size during iteration")
        if owner.changes != self.seen and not ordered:
            self._look_again(machine, entries)
        if self.index >= len(self.order):
            self._move(machine, done=True)
            return None
        if owner.changes != self.seen:
            self._fail(machine, "OrderedDict mutated during iteration")
        if not self.left:
            self._fail(machine, "dictionary keys changed during iteration")
        key = self.order[self.index]
        entry = (key, owner.born.get(key))
        machine.undo(lambda: self.given.discard(entry))
        self.given.add(entry)
        self._move(machine, index=self.index + 1, left=self.left - 1)
        return self._item(machine, key)

    def _fail(self, machine: Machine, text: str) -> NoReturn:
        self._move(machine, size=-1)  # and from now on, whatever the size is
        raise machine.raised(RuntimeError(text))

    def _look_again(self, machine: Machine, entries: Any) -> None:
        """The dict has changed: what was not given yet, in its present order."""
        born = self.owner.born
        order = [key for key in entries if (key, born.get(key)) not in self.given]
        self._move(machine, order=order, index=0, seen=self.owner.changes)

    def _item(self, machine: Machine, key: Any) -> Value:
        shown = self.owner.key_value(machine, key)
        if self.kind == "keys":
            return shown
        value = self.owner.entries[key]
        assert value is not None, "a whole dict has no absent items"
        return value if self.kind == "values" else machine.tuple([shown, value])

    def rebuild(self, recipe: Recipe) -> str:
        """A real iterator at the same place."""
        if self.done:
            kind = recipe.known(self.base, self.base.__name__)
            return f"{recipe.known(_ended, 'ended')}({kind}().{self.kind}())"
        if self.owner.source is None and type(self.owner) is not Dict:
            return self._remaining(recipe)
        view = recipe.known(getattr(self.base, self.kind), f"view_{self.kind}")
        if self.size < 0 or self.owner.changes != self.seen:
            return f"{recipe.known(_refusing, 'refusing')}({view})"
        at = recipe.known(_iterator_at, "iterator_at")
        return f"{at}({view}({recipe.name(self.owner)}), {self.size - self.left})"

    def _remaining(self, recipe: Recipe) -> str:
        """Over what is left: the dict is filled only after it was made."""
        parts = []
        for key in self.order[self.index :]:
            value = recipe.name(self.owner.entries[key] or NULL) if self.kind != "keys" else ""
            shown = recipe.key(self.owner, key) if self.kind != "values" else ""
            parts.append(f"({shown}, {value}), " if shown and value else f"{shown or value}, ")
        return f"iter(({''.join(parts)}))"


class SetIterator(_Moving):
    """Over a set."""

    __slots__ = ("done", "index", "owner", "size", "snapshot")

    def __init__(self, owner: Set, machine: Machine) -> None:
        super().__init__()
        self.owner = owner
        self.snapshot = owner.unpack(machine)
        self.index = 0
        self.size = len(self.snapshot)
        self.done = False

    def python_type(self) -> type:
        """The iterator's class."""
        return type(iter(set()))

    def advance(self, machine: Machine) -> Value | None:
        """The next item, where the set has the size that it had."""
        if self.done:
            return None
        held = self.owner.load(machine)
        if len(held) != self.size:
            self._move(machine, size=-1)
            raise machine.raised(RuntimeError("Set changed size during iteration"))
        if self.index >= self.size:
            self._move(machine, done=True)
            return None
        found = self.snapshot[self.index]
        if found.key(machine) not in held:
            stop(UNKNOWN_OPERATION, f"the order of {self.owner.describe()}, which has changed")
        self._move(machine, index=self.index + 1)
        return found

    def rebuild(self, recipe: Recipe) -> str:
        """Over what is left, in the order that was seen: a set that is made again may have
        another."""
        left = [] if self.done else self.snapshot[self.index :]
        return f"iter(({''.join(f'{recipe.name(one)}, ' for one in left)}))"


def _ended(view: Any) -> Any:
    """An iterator with nothing left."""
    made = iter(view)
    next(made, None)
    return made


def _refusing(view: Any) -> Any:
    """An iterator over a dict that has changed."""
    changed = view.__objclass__({0: 0})
    made = iter(view(changed))
    changed[1] = 1
    return made


def _iterator_at(view: Any, place: int) -> Any:
    """An iterator that has given so many items."""
    made = iter(view)
    for _ in range(place):
        next(made)
    return made
