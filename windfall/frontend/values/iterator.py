"""Iterators that the program makes over things whose items are known.

Enters: `iter` of sequences, dicts, ranges; `zip`, `enumerate`, `reversed`. Leaves: items.
Invariant: an iterator that lives on after the segment is rebuilt as a real one, at its present
place; one that comes from outside is advanced natively.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from windfall.frontend.bounds import admit, admit_values, range_length
from windfall.frontend.breaks import FOREIGN_ITERATOR, stop
from windfall.frontend.bytecode import decode
from windfall.frontend.values.base import ByIdentity, Value
from windfall.frontend.values.constant import Constant
from windfall.frontend.values.ranges import Range
from windfall.frontend.values.sequence import SequenceValue, Tuple
from windfall.frontend.values.wrap import wraps
from windfall.ir.guard import Equals, LengthIs
from windfall.ir.source import ByMethod, Item, Source

if TYPE_CHECKING:
    from windfall.frontend.recipe import Recipe
    from windfall.frontend.services import Machine


class _End:
    """What a polyfill answers in place of an item where there is none left."""

    def __repr__(self) -> str:
        return "END"


END = _End()


def is_end(value: Value | None) -> bool:
    """Whether this is END, which asks nothing of any other value: a number may vary."""
    return isinstance(value, Constant) and value.value is END


@wraps(_End)
def _wrap_end(machine: Machine, value: Any, source: Source | None) -> Value:
    return Constant(value, source)


class Iterator(ByIdentity):
    """What iterators have in common."""

    __slots__ = ()

    def iterate(self, machine: Machine) -> Value:
        """Itself."""
        return self

    def unpack(self, machine: Machine) -> list[Value]:
        """What is left, consumed."""
        admit_values(machine, (self,))
        items: list[Value] = []
        while (item := self.advance(machine)) is not None:
            items.append(item)
            admit(machine, len(items), self)
        return items

    @property
    def sees_its_end(self) -> bool:
        """Whether code of it runs when it is dropped where it stands: a `finally`, a `with`."""
        return False

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """`__next__` and `__iter__`."""
        if name in ("__next__", "__iter__"):
            return machine.values.method(self, name)
        return super().get_attribute(machine, name)


class ItemsIterator(Iterator):
    """Over items that are known; over a list it sees what is appended meanwhile."""

    __slots__ = ("done", "index", "owner")

    def __init__(self, owner: SequenceValue | Range | None, index: int = 0) -> None:
        super().__init__()
        self.owner: Any = owner
        self.index = index
        self.done = False

    def python_type(self) -> type:
        """The iterator's class, by that of what it goes over."""
        if isinstance(self.owner, Range):
            return type(iter(self.owner.value))
        return type(iter(self.owner.python_type()()))

    def advance(self, machine: Machine) -> Value | None:
        """The next item."""
        found = self._peek(machine)
        before = self.done

        def restore() -> None:
            self.done = before
            if found is not None:
                self.index -= 1

        machine.effects.undo(restore)
        if found is None:
            self.done = True
        else:
            self.index += 1
        return found

    def known_length(self) -> int | None:
        """How many items are left."""
        total = self.owner.known_length() if self.owner is not None and not self.done else 0
        return None if total is None else max(0, total - self.index)

    def _peek(self, machine: Machine) -> Value | None:
        if self.done:
            return None
        if isinstance(self.owner, Range):
            plain: range = self.owner.as_constant(machine)
            there = self.index < range_length(plain)
            return machine.values.literal(plain[self.index]) if there else None
        items = self.owner.items(machine)
        return items[self.index] if self.index < len(items) else None

    def rebuild(self, recipe: Recipe) -> str:
        """A real iterator at the same place."""
        if self.done:
            return "iter(())"
        owner = recipe.name(self.owner)
        recipe.settle()
        name = recipe.bind(self, self.owner.iterator_text(recipe, owner))
        if self.index:
            recipe.line(f"{name}.__setstate__({self.index})")
        return name


Read = Callable[["Machine", int], Value | None]


class OverIterator(Iterator):
    """Over a string, dict, view or set: `read` tells what stands at a place now, None: nothing.

    A dict or set whose keys would change while such an iterator is under way refuses (`Watched`):
    natively, CPython notices it."""

    __slots__ = ("__weakref__", "done", "index", "items", "kind", "made", "owner", "read")

    def __init__(self, owner: Value, kind: type, read: Read, made: str = "iter({})") -> None:
        super().__init__()
        self.owner = owner
        self.kind = kind
        self.read = read
        self.made = made  # how a real one is made of the owner
        self.items: Tuple | None = None  # of a set: all of them, in the order in which they come
        self.index = 0
        self.done = False

    def python_type(self) -> type:
        """The iterator's class."""
        return self.kind

    def advance(self, machine: Machine) -> Value | None:
        """What stands at the present place."""
        found = None if self.done else self.read(machine, self.index)
        before = (self.index, self.done)

        def restore() -> None:
            self.index, self.done = before

        machine.effects.undo(restore)
        self.index += found is not None
        self.done = found is None
        return found

    def rebuild(self, recipe: Recipe) -> str:
        """A real iterator at the same place."""
        if self.done:
            return "iter(())"
        if self.items is not None:
            parts = f"{recipe.name(self.owner)}, {recipe.name(self.items)}, {self.index}"
            recipe.settle()
            return f"{recipe.known(_in_order, 'in_order')}({parts})"
        made = self.made.format(recipe.name(self.owner))
        recipe.settle()
        if not self.index:
            return made
        return f"{recipe.known(_advanced, 'advanced')}({made}, {self.index})"


def _advanced(iterator: Any, count: int) -> Any:
    """The iterator, which has given so many items."""
    for _ in range(count):
        next(iterator)
    return iterator


def _in_order(owner: Any, items: tuple[Any, ...], count: int) -> Any:
    """An iterator over a set that has given the first so many of `items`. A set that was made anew
    may have another order: what is left is then given as it stands."""
    if all(one is other or one == other for one, other in zip(owner, items, strict=True)):
        return _advanced(iter(owner), count)
    return iter(items[count:])


class GivenIterator(ItemsIterator):
    """One over a list or tuple that the program is called with: how far it is, is relied upon, and
    what is taken from it is taken after the graph. (One that lives at a break is advanced natively
    instead, so that the rounds of a loop share what was compiled.)"""

    __slots__ = ("real",)

    def __init__(self, real: Any, source: Source) -> None:
        super().__init__(None)
        self.source = source
        self.real = real

    def python_type(self) -> type:
        """The iterator's class."""
        return type(self.real)

    def known_length(self) -> int | None:
        """How many items are left."""
        return operator.length_hint(self.real) if self.owner is None else super().known_length()

    def advance(self, machine: Machine) -> Value | None:
        """The next item."""
        assert self.source is not None
        if self.owner is None:
            admit_values(machine, (self,))
            self.guard_type(machine)
            state = self.real.__reduce__()
            parts = ByMethod(self.source, type(self.real), "__reduce__")
            machine.guards.add(parts, LengthIs(len(state)), "how far an iterator is")
            if len(state) == 3:
                machine.guards.add(Item(parts, 2), Equals(state[2]), "how far an iterator is")
                owner = machine.values.wrap(state[1][0], Item(Item(parts, 1), 0))
                assert isinstance(owner, SequenceValue)
                self.owner, self.index = owner, state[2]
            else:
                self.owner, self.done = Tuple([]), True
        if not self.done:
            machine.effects.add("next({}, None)", self)
        return super().advance(machine)


class Enumerate(Iterator):
    """`enumerate`."""

    __slots__ = ("count", "inner")
    made_of = enumerate

    def __init__(self, inner: Value, count: int) -> None:
        super().__init__()
        self.inner = inner
        self.count = count

    def advance(self, machine: Machine) -> Value | None:
        """A pair."""
        item = self.inner.advance(machine)
        if item is None:
            return None
        number = machine.values.literal(self.count)

        def restore() -> None:
            self.count -= 1

        machine.effects.undo(restore)
        self.count += 1
        return machine.values.tuple([number, item])

    def known_length(self) -> int | None:
        """As many as it counts."""
        return self.inner.known_length()

    def rebuild(self, recipe: Recipe) -> str:
        """From the present count."""
        return f"enumerate({recipe.name(self.inner)}, {self.count})"


class Zip(Iterator):
    """`zip`, not strict."""

    __slots__ = ("inner",)
    made_of = zip

    def __init__(self, inner: list[Value]) -> None:
        super().__init__()
        self.inner = inner

    def advance(self, machine: Machine) -> Value | None:
        """A tuple."""
        items = []
        for one in self.inner:
            item = one.advance(machine)
            if item is None:
                return None
            items.append(item)
        return machine.values.tuple(items) if items else None

    def known_length(self) -> int | None:
        """As many as the shortest has."""
        return min((n for one in self.inner if (n := one.known_length()) is not None), default=None)

    def rebuild(self, recipe: Recipe) -> str:
        """Of the inner iterators."""
        return f"zip({', '.join(map(recipe.name, self.inner))})"


def end_is_seen(real: Any) -> bool:
    """Whether this is a generator that has begun and has not ended, with something in it that runs
    when it is dropped."""
    if type(real) is not types.GeneratorType:  # `isinstance` would ask a weak proxy for its object
        return False
    if real.gi_frame is None:
        return False
    handlers = decode(real.gi_code).handlers
    return real.gi_frame.f_lasti > 0 and not all(one.leaves for one in handlers)


class ForeignIterator(Iterator):
    """An iterator from outside: only itself knows where it stands."""

    __slots__ = ("real",)

    def __init__(self, real: Any, source: Source | None) -> None:
        super().__init__(source)
        self.real = real

    def python_type(self) -> type:
        """The iterator's class."""
        return type(self.real)

    def advance(self, machine: Machine) -> Value | None:
        """Natively."""
        stop(FOREIGN_ITERATOR, self.describe())

    @property
    def sees_its_end(self) -> bool:
        """As of any object."""
        return end_is_seen(self.real)


# Those that do not tell what they will give (`live_iterator.py` has the others).
_FOREIGN: tuple[type, ...] = (
    type(iter(range(1 << 1000))),
    map,
    filter,
    types.GeneratorType,
)


@wraps(*_FOREIGN)
def _wrap_iterator(machine: Machine, value: Any, source: Source | None) -> Value:
    assert source is not None
    return machine.values.remember(value, ForeignIterator(value, source))
