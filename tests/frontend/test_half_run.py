"""Iterators of C that live at a break: real ones, of their class, which stand where they stood.

Each kind × how many items were taken before the break. Behind it the class, the items that are
left, what pickling says and a deep copy are eager's; that the iterator was followed up to there,
and not made by CPython itself, is asserted too. Those which share what they hold with others
(`tee`, `groupby`) are CPython's own from the start, as is one that asks itself.
"""

from __future__ import annotations

import copy
import itertools
import operator
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch

import windfall
from tests.frontend.ways import way


class Indexed:
    """It has items, and no iterator."""

    def __getitem__(self, index: int) -> int:
        if index > 3:
            raise IndexError
        return index * index


def _double(value: Any) -> Any:
    return value * 2


def _is_small(value: int) -> bool:
    return value < 2


FOLLOWED: dict[str, Callable[[], Any]] = {
    "map": lambda: map(_double, [1, 2, 3]),
    "map of two": lambda: map(operator.add, [1, 2, 3], (4, 5)),
    "filter": lambda: filter(_is_small, [0, 3, 1, 4, 1]),
    "enumerate": lambda: enumerate(map(_double, "abc"), 5),
    "zip": lambda: zip(map(_double, [1, 2, 3]), "abcd", strict=False),
    "zip strict": lambda: zip(map(_double, [1, 2, 3]), "abc", strict=True),
    "by index": lambda: iter(Indexed()),
    "chain": lambda: itertools.chain("ab", [], (1, 2), "c"),
    "chain.from_iterable": lambda: itertools.chain.from_iterable(["ab", [], (1, 2)]),
    "islice": lambda: itertools.islice([0, 1, 2, 3, 4, 5, 6], 1, 6, 2),
    "islice to the end": lambda: itertools.islice("abcdef", 1, None),
    "accumulate": lambda: itertools.accumulate([1, 2, 3]),
    "accumulate from": lambda: itertools.accumulate([1, 2, 3], operator.mul, initial=5),
    "accumulate of None": lambda: itertools.accumulate([None, None, None], operator.is_),
    "pairwise": lambda: itertools.pairwise("abcd"),
    "cycle": lambda: itertools.cycle("abc"),
    "starmap": lambda: itertools.starmap(operator.pow, [(2, 3), (3, 2), (5, 1)]),
    "takewhile": lambda: itertools.takewhile(_is_small, [0, 1, 0, 5, 1]),
    "dropwhile": lambda: itertools.dropwhile(_is_small, [0, 5, 1, 0]),
    "filterfalse": lambda: itertools.filterfalse(_is_small, [0, 5, 1, 7]),
    "compress": lambda: itertools.compress("abcd", [1, 0, 1, 1]),
    "zip_longest": lambda: itertools.zip_longest("abc", [1], (), fillvalue="-"),
    "product": lambda: itertools.product("ab", [1, 2]),
    "permutations": lambda: itertools.permutations("abcd", 2),
    "combinations": lambda: itertools.combinations("abcd", 2),
    "combinations_with_replacement": lambda: itertools.combinations_with_replacement("abc", 2),
}
SHARING: dict[str, Callable[[], Any]] = {
    "tee": lambda: itertools.tee("abc")[0],
    "groupby": lambda: itertools.groupby("aabbc"),
    "group": lambda: next(itertools.groupby("aaabb"))[1],
}
_END = "the end"


def _pickled(iterator: Any) -> Any:
    try:
        return list(itertools.islice(pickle.loads(pickle.dumps(iterator)), 6))
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        return type(error).__name__


@windfall.disable
def _told(iterator: Any) -> tuple[Any, ...]:
    kind = type(iterator)
    pickled = _pickled(iterator)
    try:
        copied: Any = list(itertools.islice(copy.deepcopy(iterator), 6))
    except TypeError as error:
        copied = str(error)
    left = [str(one) for one in itertools.islice(iterator, 8)]
    return kind, left, str(pickled), str(copied)


def _program(make: Callable[[], Any], taken: int, x: torch.Tensor) -> Any:
    iterator = make()
    first = []
    for _ in range(taken):
        first.append(next(iterator, _END))
    told = _told(iterator)
    return first, told, x + 1


@pytest.mark.parametrize("taken", range(5))
@pytest.mark.parametrize("name", [*FOLLOWED, *SHARING])
def test_an_iterator_that_lives_at_a_break(name: str, taken: int) -> None:
    make = FOLLOWED.get(name) or SHARING[name]
    compiled = windfall.compile(_program, backend="eager", options={"strict": True})
    x = torch.ones(1)
    before, told, after = compiled(make, taken, x)
    expected = _program(make, taken, x)
    if "at 0x" not in str(expected):  # groups say where they are in memory
        assert (before, told) == expected[:2]
    assert told[0] is expected[1][0]
    assert torch.equal(after, expected[2])
    breaks = windfall.explanation(compiled).breaks
    if name in FOLLOWED:
        assert len(breaks) == 1, "the iterator was followed up to the break"


class Counting:
    """An iterator of the user's, which is asked no more often than it is by CPython."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __iter__(self) -> Counting:
        self.asked.append("iter")
        return self

    def __next__(self) -> int:
        self.asked.append("next")
        if len(self.asked) > 7:
            raise StopIteration
        return len(self.asked)


OVER: dict[str, Callable[[Any], Any]] = {
    "map": lambda items: map(_double, items),
    "filter": lambda items: filter(None, items),
    "enumerate": enumerate,
    "zip": lambda items: zip(items, "abcdefgh", strict=False),
    "chain": lambda items: itertools.chain("a", items),
    "chain.from_iterable": lambda items: itertools.chain.from_iterable(map(range, items)),
    "islice": lambda items: itertools.islice(items, 1, 5, 2),
    "accumulate": itertools.accumulate,
    "pairwise": itertools.pairwise,
    "cycle": itertools.cycle,
    "takewhile": lambda items: itertools.takewhile(bool, items),
    "dropwhile": lambda items: itertools.dropwhile(_is_small, items),
    "filterfalse": lambda items: itertools.filterfalse(_is_small, items),
    "compress": lambda items: itertools.compress(items, [1, 0, 1, 1, 1]),
    "zip_longest": lambda items: itertools.zip_longest(items, "ab"),
    "tee": lambda items: itertools.tee(items)[1],
}


@pytest.mark.parametrize("taken", [0, 1, 3, 9])
@pytest.mark.parametrize("name", OVER)
def test_an_iterator_over_one_of_the_user_s(name: str, taken: int) -> None:
    def program(items: Counting, x: torch.Tensor) -> Any:
        iterator = OVER[name](items)
        first = []
        for _ in range(taken):
            first.append(next(iterator, _END))
        windfall.graph_break()
        asked = len(items.asked)
        kind = type(iterator)
        left = []
        for one in itertools.islice(iterator, 12):
            left.append(one)
        return first, kind, asked, left, items.asked, x + 1

    compiled = windfall.compile(program, backend="eager", options={"strict": True})
    x = torch.ones(1)
    assert str(compiled(Counting(), x)) == str(program(Counting(), x))


class Asking:
    """An iterator that asks the one which asks it, once."""

    def __init__(self) -> None:
        self.count = 0
        self.outer: Any = None

    def __iter__(self) -> Asking:
        return self

    def __next__(self) -> Any:
        self.count += 1
        return next(self.outer) if self.count == 2 else [self.count]


@pytest.mark.parametrize(
    "make",
    [
        itertools.pairwise,
        itertools.cycle,
        itertools.chain.from_iterable,
        lambda inner: map(_double, inner),
        lambda inner: filter(None, inner),
        enumerate,
        lambda inner: zip(inner, inner, strict=False),
        lambda inner: itertools.islice(inner, 5),
        lambda inner: itertools.tee(inner)[0],
    ],
)
def test_an_iterator_that_is_asked_while_it_runs(make: Callable[[Any], Any]) -> None:
    def program(inner: Any, x: torch.Tensor) -> Any:
        inner.outer = made = make(inner)
        items = [next(made) for _ in range(3)]
        return items, x + 1

    def outcome(call: Callable[..., Any]) -> str:
        try:
            return str(call(Asking(), torch.ones(1)))
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    compiled = windfall.compile(program, backend="eager", options={"strict": True})
    assert outcome(compiled) == outcome(program)
    assert way(compiled) != "compiled"


def test_a_copied_iterator_of_tee_is_shared() -> None:
    def program(x: torch.Tensor) -> Any:
        one, other = itertools.tee("abc")
        next(one)
        windfall.graph_break()
        third, fourth = itertools.tee(one)
        return third is one, list(fourth), list(other), list(one), x + 1

    compiled = windfall.compile(program, backend="eager", options={"strict": True})
    x = torch.ones(1)
    assert str(compiled(x)) == str(program(x))
