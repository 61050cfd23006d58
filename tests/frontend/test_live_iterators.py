"""An iterator that a break left under way is no second break (`values/live_iterator.py`).

Each kind of iterable goes through each kind of loop: values, effects on containers, where iterators
stand at the end, and the breaks, which are those of the program alone.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch

import windfall
from windfall.ir import reading

Iterables = dict[str, Callable[[list[torch.Tensor]], Any]]

KINDS: Iterables = {
    "list": lambda xs: list(xs),
    "tuple": lambda xs: tuple(xs),
    "range": lambda xs: range(2, 2 + len(xs)),
    "keys": lambda xs: dict.fromkeys(range(len(xs))),
    "values": lambda xs: dict(enumerate(xs)).values(),
    "items": lambda xs: dict(enumerate(xs)).items(),
    "set": lambda xs: set(range(len(xs))),
    "frozenset of texts": lambda xs: frozenset(map(str, range(len(xs)))),
    "text": lambda xs: "abcdefgh"[: len(xs)],
    "wide text": lambda xs: "éabcdefgh"[: len(xs)],
    "bytes": lambda xs: bytes(range(len(xs))),
    "backwards": lambda xs: reversed(list(xs)),
    "keys backwards": lambda xs: reversed(dict.fromkeys(range(len(xs)))),
    "values backwards": lambda xs: reversed(dict(enumerate(xs)).values()),
    "items backwards": lambda xs: reversed(dict(enumerate(xs)).items()),
    "enumerate": lambda xs: enumerate(list(xs), 3),
    "enumerated range": lambda xs: enumerate(range(len(xs))),
    "zip": lambda xs: zip(list(xs), range(100), strict=False),
    "zip of one": lambda xs: zip(tuple(xs), strict=False),
    "zip, the second ends": lambda xs: zip(list(xs), xs[:2], strict=False),
    "modules": lambda xs: torch.nn.ModuleList([torch.nn.Identity() for _ in xs]),
}


def _sum(item: Any) -> Any:
    """Of whatever an iterator gives."""
    if isinstance(item, tuple):
        return sum(_sum(one) for one in item)
    return item if isinstance(item, torch.Tensor | int) else 1


def each_round(iterable: Any, x: torch.Tensor) -> Any:
    for item in iterable:
        x = x + _sum(item)
        gc.isenabled()
        x = x * 2
    return x


def first_round(iterable: Any, x: torch.Tensor) -> Any:
    begun = False
    for item in iterable:
        x = x + _sum(item)
        if not begun:
            gc.isenabled()
            begun = True
        x = x * 2
    return x


def twice(iterable: Any, x: torch.Tensor) -> Any:
    for item in iterable:
        gc.isenabled()
        x = x + _sum(item)
        gc.isenabled()
    return x


def kept(iterable: Any, x: torch.Tensor) -> Any:
    results = []
    for item in iterable:
        x = x + _sum(item)
        gc.isenabled()
        results.append(x * 2)
    return results


def left_early(iterable: Any, x: torch.Tensor) -> Any:
    iterator = iter(iterable)
    count = 0
    for item in iterator:
        x = x + _sum(item)
        gc.isenabled()
        count = count + 1  # not by `enumerate`: the iterator is the one that is asked
        if count == 2:
            break
    return x, [_sum(one) for one in iterator]


def asked_inside(iterable: Any, x: torch.Tensor) -> Any:
    iterator = iter(iterable)
    for item in iterator:
        gc.isenabled()
        x = x + _sum(item) - _sum(next(iterator, 7))
    return x, list(iterator)


def nested(iterable: Any, x: torch.Tensor) -> Any:
    for item in iterable:
        for place in range(2):
            x = x + _sum(item) * place
            gc.isenabled()
        x = x * 2
    return x


def otherwise(iterable: Any, x: torch.Tensor) -> Any:
    for item in iterable:
        gc.isenabled()
        x = x + _sum(item)
    else:
        x = x - 1
    return x


def unpacked(iterable: Any, x: torch.Tensor) -> Any:
    iterator = iter(iterable)
    x = x + _sum(next(iterator))
    gc.isenabled()
    rest = [*iterator]
    return x + len(rest), [_sum(one) for one in rest]


LOOPS = (
    each_round,
    first_round,
    twice,
    kept,
    left_early,
    asked_inside,
    nested,
    otherwise,
    unpacked,
)


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value


def _numbers(compiled: Any) -> Counter[int]:
    return Counter(one.number for one in windfall.explanation(compiled).breaks)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("loop", LOOPS, ids=lambda one: one.__name__)
def test_a_loop_with_a_break_goes_on(loop: Callable[..., Any], kind: str) -> None:
    make = KINDS[kind]

    def f(xs: list[torch.Tensor], x: torch.Tensor) -> Any:
        return loop(make(xs), x)

    compiled = windfall.compile(f)
    for count in (3, 1, 5):
        xs = [torch.tensor([float(one), 2.0]) for one in range(count)]
        x = torch.tensor([1.0, 0.5])
        assert _plain(compiled(xs, x)) == _plain(f(xs, x)), count
    told = windfall.explanation(compiled)
    assert not told.fallbacks
    assert set(_numbers(compiled)) <= {1}, [str(one) for one in told.breaks]


def test_rounds_share_what_was_compiled() -> None:
    def f(xs: list[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        for one in xs:
            x = x * one
            gc.isenabled()
            x = x + 1
        return x

    compiled = windfall.compile(f)
    xs = [torch.rand(3) for _ in range(20)]
    x = torch.rand(3)
    torch.testing.assert_close(compiled(xs, x), f(xs, x))
    assert len(windfall.explanation(compiled).graphs) == 3  # the first round, the next, the end
    more = [torch.rand(3) for _ in range(30)]
    torch.testing.assert_close(compiled(more, x), f(more, x))
    assert windfall.explanation(compiled).breaks and 13 not in _numbers(compiled)


def test_numbers_of_rounds_that_vary_are_not_compiled_each() -> None:
    """The break comes in the first round; what is left is unrolled for some numbers of rounds."""

    def f(xs: list[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        begun = False
        for one in xs:
            x = x * one
            if not begun:
                gc.isenabled()
                begun = True
        return x

    compiled = windfall.compile(f)
    for count in range(2, 30):
        xs = [torch.rand(3) for _ in range(count)]
        x = torch.rand(3)
        torch.testing.assert_close(compiled(xs, x), f(xs, x))
    told = windfall.explanation(compiled)
    behind = [
        one for one in told.graphs if "resume" in one.name
    ]  # lengths of lists are relied upon
    assert len(behind) < 12 and not told.fallbacks
    assert set(_numbers(compiled)) == {1, 13}


def test_a_long_iterator_is_not_unrolled() -> None:
    """After the one break, rounds go by ones or twos: no graph holds all of the thousand."""

    def f(x: torch.Tensor, count: int) -> torch.Tensor:
        for place in range(count):
            if place == 0:
                gc.isenabled()
            x = x * 0.5 + 1
        return x

    compiled = windfall.compile(f)
    x = torch.rand(3)
    torch.testing.assert_close(compiled(x, 1000), f(x, 1000))
    largest = max(len(one.graph.nodes) for one in windfall.explanation(compiled).graphs)
    assert largest < 20


# ------------------------------------------------------------------- containers that are written


def appended(xs: list[Any], x: torch.Tensor) -> Any:
    for one in xs:
        x = x * one
        gc.isenabled()
        if len(xs) < 6:
            xs.append(one + 1)
    return x


def replaced(xs: list[Any], x: torch.Tensor) -> Any:
    place = 0
    for one in xs:
        x = x * one
        gc.isenabled()
        place = place + 1
        if place < len(xs):
            xs[place] = x + 1
    return x


def removed(xs: list[Any], x: torch.Tensor) -> Any:
    for one in xs:
        x = x * one
        gc.isenabled()
        xs.pop()
    return x


def cleared(xs: list[Any], x: torch.Tensor) -> Any:
    for one in xs:
        x = x * one
        gc.isenabled()
        del xs[:]
        xs.extend([x, x])
        if x.dim() > 3:
            break
        del xs[1:]
    return x


def turned(xs: list[Any], x: torch.Tensor) -> Any:
    for one in xs:
        x = x * one
        gc.isenabled()
        xs.reverse()
    return x


def put_in_dict(xs: list[Any], x: torch.Tensor) -> Any:
    table = dict(enumerate(xs))
    for key, one in table.items():
        x = x * one
        gc.isenabled()
        table[(key + 1) % len(xs)] = x + 1
    return x, list(table.values())


def grown_dict(xs: list[Any], x: torch.Tensor) -> Any:
    table = dict(enumerate(xs))
    try:
        for key in table:
            gc.isenabled()
            table[key + 100] = x
    except RuntimeError as error:
        return x + 1, str(error), len(table)
    return x


def written_attributes(xs: list[Any], x: torch.Tensor) -> Any:
    holder = torch.nn.Module()
    holder.one, holder.two = 1, 2
    for name, value in vars(holder).items():
        gc.isenabled()
        if name == "one":
            holder.two = 5
        if isinstance(value, int) and not isinstance(value, bool):
            x = x * value
    return x


_WRITES = (
    appended,
    replaced,
    removed,
    cleared,
    turned,
    put_in_dict,
    grown_dict,
    written_attributes,
)


@pytest.mark.parametrize("loop", _WRITES, ids=lambda one: one.__name__)
def test_an_iterator_sees_what_is_written(loop: Callable[..., Any]) -> None:
    compiled = windfall.compile(loop)
    for count in (3, 2, 4):
        given = [torch.tensor([float(one), 2.0]) for one in range(1, count + 1)]
        mine, theirs, x = list(given), list(given), torch.tensor([1.0, 0.5])
        assert _plain(compiled(mine, x)) == _plain(loop(theirs, x))
        assert _plain(mine) == _plain(theirs)


LARGE: dict[str, Callable[[int], Any]] = {
    "keys": lambda n: dict.fromkeys(range(n)),
    "values": lambda n: dict(enumerate(range(n))).values(),
    "items": lambda n: dict(enumerate(range(n))).items(),
    "set": lambda n: set(range(n)),
    "keys backwards": lambda n: reversed(dict.fromkeys(range(n))),
    "values backwards": lambda n: reversed(dict(enumerate(range(n))).values()),
    "items backwards": lambda n: reversed(dict(enumerate(range(n))).items()),
}


@pytest.mark.parametrize("kind", LARGE)
def test_one_that_lists_what_is_left_is_not_asked_while_that_is_much(kind: str) -> None:
    """Each question makes the list: of a large dict, in each of the rounds."""
    iterator, items = iter(LARGE[kind](2000)), iter(LARGE[kind](2000))
    for left in range(2000, 0, -1):
        if left > 1000:
            with pytest.raises(TypeError, match="too many"):
                reading.has_ahead(iterator, 0)
        elif left % 100 == 0:
            assert reading.has_ahead(iterator, left - 1) and not reading.has_ahead(iterator, left)
            assert reading.ahead(iterator, 0) == next(items)
            next(iterator)
            continue
        assert next(iterator) == next(items)
    assert not reading.has_ahead(iterator, 0)


def test_places_of_one_that_goes_backwards() -> None:
    """It tells of what is there now, and ends where its list was cut."""
    items = list(range(6))
    iterator = reversed(items)
    for place in range(6):
        assert [reading.ahead(iterator, one) for one in range(6 - place)] == items[5 - place :: -1]
        assert not reading.has_ahead(iterator, 6 - place)
        next(iterator)
    assert not reading.has_ahead(iterator, 0)
    cut = reversed(items)
    del items[3:]
    assert not reading.has_ahead(cut, 0)
    with pytest.raises(IndexError):
        reading.ahead(cut, 0)


def test_a_list_that_is_written_is_told_apart_from_the_one_that_is_iterated() -> None:
    """Compiled where they are two, called where they are one."""

    def f(xs: list[Any], ys: list[Any], x: torch.Tensor) -> Any:
        for one in xs:
            x = x + one
            gc.isenabled()
            if len(ys) < 6:
                ys.append(x * 2)
        return x

    compiled = windfall.compile(f)
    x = torch.tensor([1.0, 0.5])
    for is_one in (False, True, False, True):
        answers = []
        for call in (compiled, f):
            xs = [torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])]
            ys: list[Any] = xs if is_one else []
            answers.append(_plain((call(xs, ys, x), xs, ys)))
        assert answers[0] == answers[1], is_one


def test_two_iterators_that_are_one() -> None:
    """`zip(it, it)` after `zip(it, other)`: how far each is, is told apart."""

    def f(left: Any, right: Any, x: torch.Tensor) -> Any:
        for one, other in zip(left, right, strict=False):
            x = x + one * 10 + other
            gc.isenabled()
        return x, list(left), list(right)

    compiled = windfall.compile(f)
    x = torch.tensor([1.0, 0.5])
    for is_one in (False, True, False, True):
        answers = []
        for call in (compiled, f):
            left = iter([1, 2, 3, 4, 5])
            right = left if is_one else iter([6, 7, 8, 9])
            answers.append(_plain(call(left, right, x)))
        assert answers[0] == answers[1], is_one


def test_an_enumerate_and_what_it_counts() -> None:
    def f(iterator: Any, counted: Any, x: torch.Tensor) -> Any:
        for place, one in counted:
            gc.isenabled()
            x = x + one * place
            x = x + next(iterator, 100)
        return x, list(iterator), list(counted)

    compiled = windfall.compile(f)
    x = torch.tensor([1.0, 0.5])
    for is_one in (False, True, False):
        answers = []
        for call in (compiled, f):
            iterator = iter([1, 2, 3, 4, 5])
            other = iterator if is_one else iter([6, 7, 8])
            answers.append(_plain(call(iterator, enumerate(other), x)))
        assert answers[0] == answers[1], is_one


@pytest.mark.parametrize("kind", ["set", "generator", "map", "strict zip", "text"])
def test_those_that_do_not_tell_are_advanced_natively(kind: str) -> None:
    made: dict[str, Callable[[], Any]] = {
        "set": lambda: {1},
        "generator": lambda: iter(Doubled()),
        "map": lambda: map(abs, [1, 2]),
        "strict zip": lambda: zip([1, 2], [3, 4], strict=True),
        "text": lambda: "ab",
    }

    def f(x: torch.Tensor) -> torch.Tensor:
        for one in made[kind]():
            x = x + _sum(one)
            gc.isenabled()
            x = x * 2
        return x

    x = torch.tensor([1.0, 0.5])
    compiled = windfall.compile(f)
    assert compiled(x).tolist() == f(x).tolist() == compiled(x).tolist()
    assert not windfall.explanation(compiled).fallbacks


class Doubled:
    def __init__(self) -> None:
        self.left = 3

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> int:
        if not self.left:
            raise StopIteration
        self.left -= 1
        return self.left
