"""`collections.deque`: a sequence with two ends, and perhaps a greatest length.

Enters: `deque(...)` calls and deques from outside. Leaves: guards on length and items where they
are relied upon, entries of the effect log for writes to one from outside. Invariant: as of lists,
`items` shows the present contents; a deque at its greatest length drops items at the other end.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from windfall.frontend.bounds import admit, admit_growth, admit_writes
from windfall.frontend.breaks import ARGUMENTS, NOT_A_GRAPH_ARGUMENT, UNKNOWN_OPERATION, stop
from windfall.frontend.values.base import Arguments, Keywords, Value, no_method
from windfall.frontend.values.calls import calls
from windfall.frontend.values.constant import Constant, fold
from windfall.frontend.values.iterator import ItemsIterator
from windfall.frontend.values.sequence import SequenceValue
from windfall.frontend.values.wrap import wraps
from windfall.ir.guard import Equals
from windfall.ir.source import Attribute, ByMethod, Source

if TYPE_CHECKING:
    from windfall.frontend.recipe import Recipe
    from windfall.frontend.services import Machine


class Deque(SequenceValue):
    """A deque; `limit` None: of any length."""

    __slots__ = ("_limit", "version")
    made_of = collections.deque

    def __init__(
        self,
        items: list[Value] | None,
        source: Source | None = None,
        real: Any = None,
        limit: int | None = None,
    ) -> None:
        super().__init__(items, source, real)
        self._limit = limit
        self.version = 0  # moves with each change, as iterators notice

    def limit(self, machine: Machine) -> int | None:
        """Its greatest length, relied upon."""
        if self.source is not None and self.real is not None:
            self.guard_type(machine)
            self._limit = getattr(self.real, "maxlen")  # noqa: B009 (typed as a sequence)
            if self.guarded is None or "limit" not in self.guarded:
                self.guarded = {*(self.guarded or ()), "limit"}
                machine.guards.add(Attribute(self.source, "maxlen"), Equals(self._limit), "maxlen")
        return self._limit

    def items(self, machine: Machine) -> list[Value]:
        """The present contents, relied upon in number."""
        if self._items is None:
            assert self.real is not None and self.source is not None
            admit(machine, len(self.real), self)
            self.guard_type(machine)
            kind, source, count = collections.deque, self.source, len(self.real)
            machine.guards.add(ByMethod(source, kind, "__len__"), Equals(count), "length")
            self._items = [
                machine.values.wrap(value, ByMethod(source, kind, "__getitem__", (index,)))
                for index, value in enumerate(self.real)
            ]
        return self._items

    def is_long(self, machine: Machine) -> bool:
        """Nothing is known of one that is not looked into."""
        return False

    def is_constant(self) -> bool:
        """It is not folded: what is constant is copied as a list."""
        return False

    def graph_argument(self, machine: Machine) -> tuple[Any, Any]:
        """No torch function takes one."""
        stop(NOT_A_GRAPH_ARGUMENT, self.describe())

    def key(self, machine: Machine) -> Any:
        """Not hashable."""
        raise machine.values.raised(TypeError("unhashable type: 'collections.deque'"))

    def iterate(self, machine: Machine) -> Value:
        """An iterator that raises when the deque changes."""
        return DequeIterator(self)

    def same_kind(self, items: list[Value]) -> Value:
        """A deque with the same limit."""
        return Deque(items if self._limit is None else items[-self._limit :], limit=self._limit)

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """Methods and `maxlen`."""
        if name == "maxlen":
            return machine.values.literal(self.limit(machine))
        if name in _METHODS or name in ("__iter__", "__len__", "__contains__", "__getitem__"):
            return machine.values.method(self, name)
        no_method(machine, self, "collections.deque", collections.deque, name)

    def call_method(
        self, machine: Machine, name: str, arguments: Arguments, keywords: Keywords
    ) -> Value:
        """A row of the table."""
        method, least, most = _METHODS[name]
        if keywords or not least <= len(arguments) <= most:
            stop(ARGUMENTS, f"deque.{name}")
        return method(self, machine, *arguments)

    def get_item(self, machine: Machine, key: Value) -> Value:
        """By index."""
        if not isinstance(key, Constant):
            stop(UNKNOWN_OPERATION, f"deque[{key.describe()}]")
        items, index = self.items(machine), key.as_constant(machine)
        if not isinstance(index, int):
            stop(UNKNOWN_OPERATION, f"deque[{key.describe()}]")
        if not -len(items) <= index < len(items):
            raise machine.values.raised(IndexError("deque index out of range"))
        return items[index]

    def binary(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """Concatenation with another one."""
        if operation == "+" and isinstance(other, Deque):
            self.limit(machine)
            return self.same_kind(self.items(machine) + other.items(machine))
        return None

    # ----------------------------------------------------------------------------------- writes

    def changed(self, machine: Machine) -> list[Value]:
        """The contents, about to be changed; can be taken back."""
        items = self.items(machine)
        admit_growth(machine, len(items) + 1, self)
        before, version = list(items), self.version

        def restore() -> None:
            items[:] = before
            self.version = version

        machine.effects.undo(restore)
        self.version += 1
        return items

    def write(self, machine: Machine, template: str, *operands: Value) -> Value:
        """Log a write, if the deque existed before."""
        if self.source is not None:
            self.guard_type(machine)
            machine.effects.add(template, self, *operands)
        return machine.values.literal(None)

    def append(self, machine: Machine, item: Value) -> Value:
        """At the right end."""
        limit, items = self.limit(machine), self.changed(machine)
        items.append(item)
        if limit is not None and len(items) > limit:
            del items[0]
        return self.write(machine, "{}.append({})", item)

    def append_left(self, machine: Machine, item: Value) -> Value:
        """At the left end."""
        limit, items = self.limit(machine), self.changed(machine)
        items.insert(0, item)
        if limit is not None and len(items) > limit:
            del items[-1]
        return self.write(machine, "{}.appendleft({})", item)

    def extend(self, machine: Machine, other: Value) -> Value:
        """By items that are known, or by those that interpreted code gives."""
        if machine.values.runs_frames(other):
            return machine.values.polyfill("append_all", [self, other])
        admit_writes(machine, self, other)
        for item in other.unpack(machine):
            self.append(machine, item)
        return machine.values.literal(None)

    def extend_left(self, machine: Machine, other: Value) -> Value:
        """The same, at the left end."""
        admit_writes(machine, self, other)
        for item in other.unpack(machine):
            self.append_left(machine, item)
        return machine.values.literal(None)

    def insert(self, machine: Machine, index: Value, item: Value) -> Value:
        """Before an index."""
        limit, items = self.limit(machine), self.changed(machine)
        if limit is not None and len(items) >= limit:
            raise machine.values.raised(IndexError("deque already at its maximum size"))
        items.insert(index.as_constant(machine), item)
        return self.write(machine, "{}.insert({}, {})", index, item)

    def take(self, machine: Machine) -> Value:
        """`pop`."""
        items = self.items(machine)
        if not items:
            raise machine.values.raised(IndexError("pop from an empty deque"))
        found = self.changed(machine).pop()
        self.write(machine, "{}.pop()")
        return found

    def take_left(self, machine: Machine) -> Value:
        """`popleft`."""
        items = self.items(machine)
        if not items:
            raise machine.values.raised(IndexError("pop from an empty deque"))
        found = self.changed(machine).pop(0)
        self.write(machine, "{}.popleft()")
        return found

    def rotate(self, machine: Machine, steps: Value | None = None) -> Value:
        """To the right."""
        count = steps.as_constant(machine) if steps is not None else 1
        items = self.changed(machine)
        if items:
            cut = -count % len(items)
            items[:] = items[cut:] + items[:cut]
        return self.write(machine, "{}.rotate({})", machine.values.literal(count))

    def clear(self, machine: Machine) -> Value:
        """All items."""
        self.changed(machine).clear()
        return self.write(machine, "{}.clear()")

    def reverse(self, machine: Machine) -> Value:
        """In place."""
        self.changed(machine).reverse()
        return self.write(machine, "{}.reverse()")

    def copy(self, machine: Machine) -> Value:
        """A new deque with the same limit."""
        return Deque(list(self.items(machine)), limit=self.limit(machine))

    def count(self, machine: Machine, item: Value) -> Value:
        """`count`, of constants."""
        return fold(machine, list.count, [machine.values.tuple(self.items(machine)), item], {})

    def set_item(self, machine: Machine, key: Value, value: Value) -> None:
        """At an index."""
        self.get_item(machine, key)
        self.changed(machine)[key.as_constant(machine)] = value
        self.write(machine, "{}[{}] = {}", key, value)

    def delete_item(self, machine: Machine, key: Value) -> None:
        """At an index."""
        self.get_item(machine, key)
        del self.changed(machine)[key.as_constant(machine)]
        self.write(machine, "del {}[{}]", key)

    def in_place(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """`+=` extends this very deque."""
        if operation == "+":
            if machine.values.runs_frames(other):
                return machine.values.polyfill("with_all", [self, other])
            self.extend(machine, other)
            return self
        return None

    def rebuild(self, recipe: Recipe) -> str:
        """Made anew; one that holds itself is filled after it was made."""
        assert self._items is not None
        items = self._items
        make = recipe.known(collections.deque, "deque")
        limit = "" if self._limit is None else f", {self._limit}"

        def display() -> str:
            return f"{make}([{', '.join(map(recipe.name, items))}]{limit})"

        return recipe.container(self, f"{make}((){limit})", display, "{}.extend({})")


_METHODS: dict[str, tuple[Callable[..., Value], int, int]] = {
    "append": (Deque.append, 1, 1),
    "appendleft": (Deque.append_left, 1, 1),
    "extend": (Deque.extend, 1, 1),
    "extendleft": (Deque.extend_left, 1, 1),
    "insert": (Deque.insert, 2, 2),
    "pop": (Deque.take, 0, 0),
    "popleft": (Deque.take_left, 0, 0),
    "rotate": (Deque.rotate, 0, 1),
    "clear": (Deque.clear, 0, 0),
    "reverse": (Deque.reverse, 0, 0),
    "copy": (Deque.copy, 0, 0),
    "__copy__": (Deque.copy, 0, 0),
}


class DequeIterator(ItemsIterator):
    """Over a deque."""

    __slots__ = ("version",)
    made_of: type = type(iter(collections.deque()))

    def __init__(self, owner: Deque) -> None:
        super().__init__(owner)
        self.version = owner.version

    def advance(self, machine: Machine) -> Value | None:
        """The next item."""
        assert isinstance(self.owner, Deque)
        if self.owner.version != self.version:
            raise machine.values.raised(RuntimeError("deque mutated during iteration"))
        return super().advance(machine)

    def rebuild(self, recipe: Recipe) -> str:
        """A real iterator at the same place."""
        if self.done:
            return "iter(())"
        if self.owner.version != self.version:
            return f"{recipe.known(_refusing, 'refusing')}()"
        at = recipe.known(_iterator_at, "iterator_at")
        return f"{at}({recipe.name(self.owner)}, {self.index})"


def _refusing() -> Any:
    """An iterator over a deque that has changed."""
    changed = collections.deque([0])
    made = iter(changed)
    changed.append(1)
    return made


def _iterator_at(items: Any, place: int) -> Any:
    """An iterator that has given so many items."""
    made = iter(items)
    for _ in range(place):
        next(made)
    return made


@calls(collections.deque)
def _deque(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    named = dict(zip(("iterable", "maxlen"), arguments, strict=False)) | keywords
    if len(arguments) > 2 or set(named) - {"iterable", "maxlen"}:
        stop(ARGUMENTS, "deque")
    given = named.get("maxlen")
    limit = given.as_constant(machine) if given is not None else None
    if limit is not None and (not isinstance(limit, int) or limit < 0):
        stop(ARGUMENTS, "deque")
    source = named.get("iterable")
    made = Deque([], limit=limit)
    if source is None:
        return made
    if machine.values.runs_frames(source):
        return machine.values.polyfill("with_all", [made, source])
    made.extend(machine, source)
    return made


@wraps(collections.deque)
def _wrap_deque(machine: Machine, value: Any, source: Source | None) -> Value:
    if source is None:
        admit(machine, len(value), "deque")
        items = [machine.values.wrap(one, None) for one in value]
        return Deque(items, limit=value.maxlen)
    return machine.values.remember(value, Deque(None, source, value, value.maxlen))
