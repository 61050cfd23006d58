"""Iterators that a break left under way, where these tell what they will give.

Enters: an iterator over a list, tuple, range, text, dict or set, forwards or backwards, an
`enumerate` or a `zip` of such, that came from outside. Leaves: its items, which are read from it
without advancing it (`Ahead`); it is advanced after the graph, as an effect. Invariant: how far it
is, is not relied upon, only whether there is a next item: the rounds of a loop share what was
compiled for one of them. A container that the program has written is left to CPython, whose
iterator sees it. Where the number of items turned out to vary (`dynamism.py`), a segment goes round
once.

    for layer in layers:          the segment behind `print` goes round the loop, to the next
        x = layer(x)              `print`: one break for each round, not two
        print(x.sum())
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windfall.frontend.breaks import FOREIGN_ITERATOR, stop
from windfall.frontend.state import Start
from windfall.frontend.values.base import Value
from windfall.frontend.values.iterator import ForeignIterator, GivenIterator, Iterator
from windfall.frontend.values.sequence import List
from windfall.frontend.values.tensor import Tensor
from windfall.frontend.values.unseen import look, same
from windfall.frontend.values.wrap import wraps
from windfall.ir.guard import Equals, LengthIs
from windfall.ir.reading import (
    DICT_ITERATORS,
    LIST_ITERATORS,
    SET_ITERATORS,
    TELLING_ITERATORS,
    ahead,
    has_ahead,
    has_ended,
    is_among,
    iterated,
)
from windfall.ir.source import Ahead, ByMethod, HasAhead, Item, Iterated, Source

if TYPE_CHECKING:
    from windfall.frontend.services import Machine

_FEW = 64  # items left that one graph may hold; of more, it holds one round, as all of them do
_OF_KEYS = (*DICT_ITERATORS, *SET_ITERATORS)
_GIVING_PAIRS: tuple[type, ...] = (type(iter({}.items())), type(reversed({}.items())))
_ADVANCE = "next({}, None)"


class LiveIterator(ForeignIterator):
    """One that tells what it will give."""

    __slots__ = ("_owner", "is_few", "taken")

    def __init__(self, real: Any, source: Source) -> None:
        super().__init__(real, source)
        self.taken = 0  # by the program, in this segment
        self.is_few = not has_ahead(real, _FEW)
        self._owner: Value | None = None

    def advance(self, machine: Machine) -> Value | None:
        """The next item."""
        self.refuse(machine)
        machine.effects.add(_ADVANCE, self)
        return self.take(machine)

    def refuse(self, machine: Machine, ends: bool = False) -> None:
        """Leave to CPython what cannot be told, before anything is changed. `ends`: it goes beside
        one of few items, and no further than that."""
        assert self.source is not None
        varies = str(HasAhead(self.source, 0)) in machine.facts.dynamic
        if self.taken and (varies or not (self.is_few or ends)):
            stop(FOREIGN_ITERATOR, f"{self.describe()}, which has many items, or other numbers")
        kind = type(self.real)
        if is_among(kind, LIST_ITERATORS):
            owner = self._list(machine)
            written = owner is not None and any(
                one.operands and same(one.operands[0], owner) for one in machine.effects.entries
            )
        else:
            written = is_among(kind, _OF_KEYS) and not all(
                isinstance(one.operands[0], List | Tensor | Iterator)
                for one in machine.effects.entries
            )
        if written:
            stop(FOREIGN_ITERATOR, f"{self.describe()} over what was written")

    def _list(self, machine: Machine) -> Value | None:
        """The list that it goes over: looked at, it is told apart from those that are written."""
        if self._owner is None and not has_ended(self.real):
            assert self.source is not None
            owner = iterated(self.real)
            if type(owner) is not list:
                stop(FOREIGN_ITERATOR, f"{self.describe()} over a class of its own")
            self._owner = look(machine.values.wrap(owner, Iterated(self.source)))
            self._owner.guard_type(machine)
        return self._owner

    def take(self, machine: Machine) -> Value | None:
        """The next item, for whoever notes how the iterator is advanced."""
        assert self.source is not None
        self.guard_type(machine)
        place = self.taken
        is_there = has_ahead(self.real, place)
        check = Equals(is_there)
        machine.guards.add(HasAhead(self.source, place), check, "whether an iterator has more")
        if not is_there:
            return None

        def restore() -> None:
            self.taken = place

        machine.effects.undo(restore)
        self.taken += 1
        item, source = ahead(self.real, place), Ahead(self.source, place)
        if not is_among(type(self.real), _GIVING_PAIRS):
            return machine.values.wrap(item, source)
        parts = [machine.values.wrap(one, Item(source, index)) for index, one in enumerate(item)]
        return machine.values.tuple(parts)

    def known_length(self) -> int | None:
        """How many are left, where these are few."""
        if not self.is_few:
            return None
        return next(count for count in range(_FEW + 1) if not has_ahead(self.real, count))


class LiveEnumerate(ForeignIterator):
    """An `enumerate` of one."""

    __slots__ = ("taken",)

    def __init__(self, real: Any, source: Source) -> None:
        super().__init__(real, source)
        self.taken = 0

    def advance(self, machine: Machine) -> Value | None:
        """A pair. (That the inner one is advanced too is noted, though nothing is left to do.)"""
        assert self.source is not None
        inner, count = _parts(machine, self, enumerate, 2)
        inner = _telling(machine, inner)
        inner.refuse(machine)
        more = machine.values.literal(self.taken)
        number = look(count).binary(machine, "+", more) if self.taken else count
        if number is None:
            stop(FOREIGN_ITERATOR, self.describe())
        self.guard_type(machine)
        machine.effects.add(_ADVANCE, self)
        machine.effects.add("{}", inner)
        item = inner.take(machine)
        if item is None:
            return None
        before = self.taken

        def restore() -> None:
            self.taken = before

        machine.effects.undo(restore)
        self.taken += 1
        return machine.values.tuple([number, item])


class LiveZip(ForeignIterator):
    """A `zip` of some, not strict: it is where they are, and has nothing of its own."""

    __slots__ = ()

    def advance(self, machine: Machine) -> Value | None:
        """A tuple."""
        count = len(self.real.__reduce__()[1])
        inner = [_telling(machine, one) for one in _parts(machine, self, zip, count)]
        ends = any(one.is_few for one in inner)
        for one in inner:
            one.refuse(machine, ends)
        self.guard_type(machine)
        items: list[Value] = []
        for one in inner:
            machine.effects.add(_ADVANCE, one)
            item = one.take(machine)
            if item is None:
                return None
            items.append(item)
        return machine.values.tuple(items)


def _parts(machine: Machine, of: ForeignIterator, kind: type, count: int) -> list[Value]:
    """What an `enumerate` or `zip` is made of."""
    assert of.source is not None
    state = of.real.__reduce__()
    if len(state) != 2 or len(state[1]) != count or not count:  # strict, or of nothing
        stop(FOREIGN_ITERATOR, of.describe())
    parts = ByMethod(of.source, kind, "__reduce__")
    machine.guards.add(parts, LengthIs(2), "what an iterator is made of")
    machine.guards.add(Item(parts, 1), LengthIs(count), "what an iterator is made of")
    return [
        machine.values.wrap(one, Item(Item(parts, 1), place)) for place, one in enumerate(state[1])
    ]


def _telling(machine: Machine, value: Value) -> LiveIterator:
    found = look(value)
    if not isinstance(found, LiveIterator):
        stop(FOREIGN_ITERATOR, value.describe())
    return found


@wraps(*TELLING_ITERATORS)
def _wrap_telling(machine: Machine, value: Any, source: Source | None) -> Value:
    assert source is not None
    if isinstance(machine.state.point, Start) and is_among(type(value), _GIVEN):
        return machine.values.remember(value, GivenIterator(value, source))
    return machine.values.remember(value, _live(value, source))


def _live(value: Any, source: Source) -> ForeignIterator:
    try:
        return LiveIterator(value, source)
    except (
        RuntimeError,
        TypeError,
    ):  # over a dict that has changed (CPython says so), or a large one
        return ForeignIterator(value, source)


@wraps(enumerate)
def _wrap_enumerate(machine: Machine, value: Any, source: Source | None) -> Value:
    assert source is not None
    return machine.values.remember(value, LiveEnumerate(value, source))


@wraps(zip)
def _wrap_zip(machine: Machine, value: Any, source: Source | None) -> Value:
    assert source is not None
    return machine.values.remember(value, LiveZip(value, source))


_GIVEN: tuple[type, ...] = (type(iter([])), type(iter(())))
