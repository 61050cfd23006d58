"""Containers and methods of C that a generator fills: interpreted item by item, no break."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import windfall


def _pairs(x: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    return ((name, x * place) for place, name in enumerate("abc"))


def _updated(x):
    made = {"z": x}
    made.update(_pairs(x))
    made.update(zip("pq", (x, x + 1), strict=True), r=x)
    return made


def _ordered(x):
    made = collections.OrderedDict(_pairs(x))
    made.move_to_end("a")
    return made


def _default(x):
    made = collections.defaultdict(list, _pairs(x))
    made["new"].append(x)
    return made


def _odd_length(x):
    made: dict[Any, Any] = {}
    try:
        made.update(one for one in ((1, 2), (1, 2, 3)))
    except ValueError as error:
        return x + 1, made, str(error), error.__context__


def _no_pair(x):
    try:
        dict(one for one in ((1, 2), 3))
    except TypeError as error:
        return x + 1, str(error), error.__context__


def _raises_inside(x):
    def pairs():
        yield 1, x
        raise TypeError("of the generator")

    made: dict[Any, Any] = {}
    try:
        made.update(pairs())
    except TypeError as error:
        return x + 1, made, str(error)


def _slice(x):
    made = [x, 2, 3]
    made[1:] = (x * place for place in range(4))
    return made


def _stepped_slice(x):
    made = [x, 2, 3, 4]
    try:
        made[::2] = (x * place for place in range(3))
    except ValueError as error:
        return made, str(error)


def _sets(x):
    made = {7}
    made.update((one for one in (1, 2)), [3])
    small = made.issubset(one for one in range(9))
    apart = made.symmetric_difference(one for one in (1, 9))
    return (
        x + 1,
        made,
        small,
        sorted(apart),
        made.union(one for one in (5,)),
        made.difference(range(3)),
    )


PROGRAMS: dict[str, Callable[..., Any]] = {
    "dict, strict zip": lambda x: dict(zip("ab", (x, x + 1), strict=True)),
    "dict, generator and names": lambda x: dict(_pairs(x), d=x),
    "dict, map": lambda x: dict(map(lambda name: (name, x + 1), "ab")),
    "update": _updated,
    "OrderedDict": _ordered,
    "defaultdict": _default,
    "other than pairs": _odd_length,
    "no pair at all": _no_pair,
    "an error of its own": _raises_inside,
    "slice": _slice,
    "slice with steps": _stepped_slice,
    "sets": _sets,
    "in": lambda x: x if 2 in (one for one in range(3)) else -x,
    "not in": lambda x: x if 9 not in (one for one in range(3)) else -x,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_in_one_graph(name: str) -> None:
    x = torch.arange(4.0)
    compiled = windfall.compile(PROGRAMS[name])
    expected = PROGRAMS[name](x)
    for _ in range(2):
        found = compiled(x)
        assert type(found) is type(expected) and str(found) == str(expected)
    told = windfall.explanation(compiled)
    assert not told.breaks and not told.eager


def test_items_are_asked_for_one_by_one() -> None:
    """What stands behind the item that is looked for is not asked for."""

    def first(x):
        seen = []

        def items():
            for one in range(5):
                seen.append(one)
                yield one

        return x + 1, 2 in items(), seen

    compiled = windfall.compile(first)
    assert compiled(torch.ones(1))[1:] == first(torch.ones(1))[1:] == (True, [0, 1, 2])
    assert not windfall.explanation(compiled).breaks
