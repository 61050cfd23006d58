"""What C code asks of an iterable of the user's, in which order and how often.

Who makes a list or a tuple asks for the iterator, then how many items there may be (`__len__`, else
`__length_hint__`, whose TypeError is swallowed and whose other errors are not), then for the items;
who has an iterator does not ask it for one again. ClassAttributesAre, errors and calls are eager's.
"""

from __future__ import annotations

import collections
import functools
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import windfall
from tests.frontend.ways import one_version, table
from tests.golden import Golden

CALLS: list[str] = []


class Sized:
    def __iter__(self) -> Any:
        CALLS.append("iter")
        return iter((1, 2))

    def __len__(self) -> Any:
        CALLS.append("len")
        return 2


class Negative(Sized):
    def __len__(self) -> Any:
        return -1


class Fails(Sized):
    def __len__(self) -> Any:
        raise ValueError("no length")


class Refuses(Sized):
    def __len__(self) -> Any:
        raise TypeError("swallowed")

    def __length_hint__(self) -> Any:
        CALLS.append("hint")
        return NotImplemented


class WrongHint(Refuses):
    def __length_hint__(self) -> Any:
        return "many"


class NegativeHint(Refuses):
    def __length_hint__(self) -> Any:
        return -1


class NoLength(Sized):
    __len__ = None


class ByIndex:
    def __getitem__(self, index: int) -> int:
        CALLS.append(f"item {index}")
        return (7, 8)[index]

    def __len__(self) -> int:
        CALLS.append("len")
        return 9


class Iterator:
    """An iterator of its own, with a hint."""

    def __init__(self) -> None:
        self.count = 0

    def __iter__(self) -> Any:
        CALLS.append("iter")
        return self

    def __next__(self) -> int:
        self.count += 1
        if self.count > 2:
            raise StopIteration
        CALLS.append(f"next {self.count}")
        return self.count

    def __length_hint__(self) -> int:
        CALLS.append("hint")
        return 2


class Listed(list[Any]):
    def __len__(self) -> int:
        CALLS.append("len")
        return 5


KINDS: dict[str, Callable[[], Any]] = {
    "sized": Sized, "negative": Negative, "fails": Fails, "refuses": Refuses,
    "wrong hint": WrongHint, "negative hint": NegativeHint, "no length": NoLength,
    "by index": ByIndex, "iterator": Iterator, "list of a class": lambda: Listed([1, 2]),
}  # fmt: skip


def _taken(*items: Any) -> Any:
    return items


def _two(a: Any) -> Any:
    one, two = a
    return one, two


def _first(a: Any) -> Any:
    one, *others = a
    return one, others


def _last(a: Any) -> Any:
    *others, one = a
    return one, others


def _extended(a: Any) -> Any:
    held = [0]
    held.extend(a)
    held += a
    return held


FORMS: dict[str, Callable[[Any], Any]] = {
    "list": lambda a: list(a),
    "tuple": lambda a: tuple(a),
    "sorted": lambda a: sorted(a),
    "set": lambda a: set(a),
    "deque": lambda a: collections.deque(a),
    "display": lambda a: [0, *a],
    "tuple display": lambda a: (0, *a),
    "set display": lambda a: {0, *a},
    "star": lambda a: _taken(*a),
    "star after others": lambda a: _taken(0, *a),
    "extended": _extended,
    "two names": _two,
    "first and others": _first,
    "last and others": _last,
    "joined": lambda a: ",".join(map(str, a)),
    "in": lambda a: 2 in a,
    "loop": lambda a: [one for one in a],
    "map": lambda a: list(map(str, a)),
    "filter": lambda a: list(filter(None, a)),
    "enumerate": lambda a: list(enumerate(a)),
    "zip": lambda a: list(zip(a, "ab")),  # noqa: B905
    "sum": lambda a: sum(a),
    "maximum": lambda a: max(a),
    "reduce": lambda a: functools.reduce(lambda one, two: one + two, a),
    "chain": lambda a: list(itertools.chain(a)),
    "accumulate": lambda a: list(itertools.accumulate(a)),
    "pairwise": lambda a: list(itertools.pairwise(a)),
    "starmap": lambda a: list(itertools.starmap(_taken, [a])),
    "takewhile": lambda a: list(itertools.takewhile(bool, a)),
    "keys": lambda a: dict.fromkeys(a),
}


def outcome(form: Callable[[Any], Any], kind: Callable[[], Any]) -> Any:
    CALLS.clear()
    try:
        answer = form(kind())
    except Exception as error:
        return type(error), str(error), list(CALLS)
    return type(answer), repr(answer), list(CALLS)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMS)
def test_what_is_asked(form: str, kind: str) -> None:
    program = FORMS[form]
    compiled = windfall.compile(program, backend="eager", options={"strict": True})
    expected = outcome(program, KINDS[kind])
    assert outcome(compiled, KINDS[kind]) == expected
    assert outcome(compiled, KINDS[kind]) == expected, "the second call"


@one_version
def test_how_they_ran(golden: Golden) -> None:
    ran = {}
    for form, program in FORMS.items():
        for kind in ("sized", "iterator"):
            ran[f"{form}, {kind}"] = windfall.compile(program, backend="eager")
            outcome(ran[f"{form}, {kind}"], KINDS[kind])
    golden("iterables_ways", table(ran.items()))


def test_modules_in_a_list_are_followed() -> None:
    layers = torch.nn.ModuleList([torch.nn.Linear(2, 2), torch.nn.ReLU()])

    def program(x: torch.Tensor) -> torch.Tensor:
        first, *others = layers
        x = first(x)
        for one in [*others, *list(layers), *tuple(layers)]:
            x = one(x)
        return x

    compiled = windfall.compile(program, backend="eager", options={"strict": True})
    x = torch.ones(2)
    assert torch.equal(compiled(x), program(x))
    assert not windfall.explanation(compiled).breaks
