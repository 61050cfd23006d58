"""Where C code asks for identity before equality: items of containers, and keys.

A NaN is not equal to itself, yet a container that holds it is, and as a key it is found: so a NaN
from outside is relied upon as the very object. Objects without an equality of their own are keys by
identity: which of two it is must be relied upon too. Each program gets one object, then another,
then the first again.
"""

from __future__ import annotations

import collections
import functools
import math
import operator
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import windfall
from windfall.frontend import values

NAN, OTHER = float("nan"), float("nan")
TABLE, MEMBERS, PAIR, ITEMS, FIELDS = {NAN: 1}, {NAN}, (NAN, 1), [NAN], {"k": NAN}


def _removed(a: Any) -> list[Any]:
    held: list[Any] = [NAN, 2]
    held.remove(a)
    return held


OF_NUMBERS: dict[str, Callable[[Any], Any]] = {
    "in a tuple": lambda a: a in (NAN, 1),
    "in a tuple from outside": lambda a: a in PAIR,
    "in a list from outside": lambda a: a in ITEMS,
    "in a set": lambda a: a in {NAN},
    "in a set from outside": lambda a: a in MEMBERS,
    "in a deque": lambda a: a in collections.deque([NAN]),
    "in an iterator": lambda a: a in iter([NAN]),
    "in a generator": lambda a: a in (one for one in ITEMS),
    "among keys": lambda a: a in {NAN: 1}.keys(),  # noqa: SIM118
    "among values": lambda a: a in FIELDS.values(),
    "among pairs": lambda a: ("k", a) in FIELDS.items(),
    "equal lists": lambda a: [a] == [NAN],
    "equal to a list from outside": lambda a: [a] == ITEMS,
    "equal to a tuple from outside": lambda a: (a, 1) == PAIR,
    "unequal tuples": lambda a: (a,) != (NAN,),
    "ordered tuples": lambda a: (a, 1) < (NAN, 2),
    "nested": lambda a: [(a, 2)] == [(NAN, 2)],
    "equal dicts": lambda a: {"k": a} == {"k": NAN},
    "equal to a dict from outside": lambda a: {"k": a} == FIELDS,
    "equal sets": lambda a: {a} == {NAN},
    "subset": lambda a: {a} <= MEMBERS,
    "union": lambda a: len(MEMBERS | {a}),
    "index": lambda a: [1, NAN].index(a),
    "index in a tuple": lambda a: PAIR.index(a),
    "count": lambda a: [NAN, NAN].count(a),
    "removed": _removed,
    "key": lambda a: {NAN: 1}.get(a),
    "key of a dict from outside": lambda a: TABLE[a],
    "key that is a tuple": lambda a: {(NAN, 1): 2}.get((a, 1)),
    "counted": lambda a: collections.Counter([NAN])[a],
    "hash": lambda a: hash(a) == hash(NAN),
    "is": lambda a: a is NAN,
    "equal": lambda a: a == NAN,
    "no identity is asked": lambda a: math.isnan(min([a])),
}
OF_CONTAINERS: dict[str, Callable[[Any], Any]] = {
    "equal": lambda held: held == [NAN],
    "in": lambda held: NAN in held,
    "index": lambda held: held.index(NAN),
    "as a set": lambda held: NAN in set(held),
    "as a key": lambda held: {tuple(held): 1}.get((NAN,)),
}


def outcome(function: Callable[[Any], Any], argument: Any) -> Any:
    try:
        return function(argument)
    except Exception as error:
        return type(error), str(error)


def follows(function: Callable[[Any], Any], *arguments: Any) -> None:
    for order in (arguments, arguments[::-1]):
        compiled = windfall.compile(function, backend="eager", options={"strict": True})
        for argument in (*order, *order):
            assert outcome(compiled, argument) == outcome(function, argument)


@pytest.mark.parametrize("name", OF_NUMBERS)
def test_which_nan_it_is(name: str) -> None:
    follows(OF_NUMBERS[name], NAN, OTHER)


@pytest.mark.parametrize("name", OF_NUMBERS)
def test_a_nan_after_numbers_that_vary(name: str) -> None:
    follows(OF_NUMBERS[name], 1.5, 2.5, NAN, OTHER)


@pytest.mark.parametrize("name", OF_CONTAINERS)
def test_which_nan_a_container_holds(name: str) -> None:
    follows(OF_CONTAINERS[name], [NAN], [OTHER])


@pytest.mark.parametrize("kind", [set, frozenset, dict.fromkeys], ids=["set", "frozenset", "dict"])
def test_which_nan_is_a_key(kind: Callable[[Any], Any]) -> None:
    for asked in (lambda held: NAN in held, lambda held: [one is NAN for one in held]):
        follows(asked, kind([NAN]), kind([OTHER]))


def test_complex_numbers_without_a_value() -> None:
    one, other = complex(math.nan, 1), complex(math.nan, 1)
    follows(lambda a: ([a] == [one], a in (one,), {one: 1}.get(a)), one, other)


def test_numbers_that_are_no_numbers_vary_too() -> None:
    """A fresh NaN in each call compiles no more often than a fresh number."""
    compiled = windfall.compile(lambda x, a: x * a, backend="eager", options={"strict": True})
    for _ in range(5):
        assert compiled(torch.ones(2), float("nan")).isnan().all()
    assert len(windfall.cache_entries(compiled)) <= 2


class Plain:
    pass


# Kinds that are keys by identity, two objects of each.
KEYS: dict[str, tuple[Any, Any]] = {
    "object": (Plain(), Plain()),
    "tensor": (torch.ones(1), torch.ones(1)),
    "module": (torch.nn.Identity(), torch.nn.Identity()),
    "python module": (math, operator),
    "partial": (functools.partial(len), functools.partial(len)),
    "getter": (operator.itemgetter(1), operator.itemgetter(1)),
    "builtin": (len, abs),
    "class": (Plain, int),
    "function": (follows, outcome),
}


@pytest.mark.parametrize("name", KEYS)
def test_which_object_is_a_key(name: str) -> None:
    first, second = KEYS[name]
    for asked in (
        lambda a: {first: 1}.get(a),
        lambda a: a in {first, second},
        lambda a: len({a, first}),
        lambda a: len({(a, 1), (first, 1)}),
        lambda a: {first: 1, second: 2}[a],
    ):
        follows(asked, first, second)


@pytest.mark.parametrize("name", KEYS)
def test_whether_two_arguments_are_one_key(name: str) -> None:
    first, second = KEYS[name]
    follows(lambda both: len({both[0], both[1]}), (first, second), (first, first))


def test_every_kind_tells_its_keys_apart() -> None:
    """A class or a member of an enumeration is relied upon by identity; whatever else is its own
    key goes through one door."""
    folder = Path(values.__file__).parent
    for path in folder.glob("*.py"):
        for found in re.finditer(
            r"def key\(self.*?(?=\n    def |\n\n\n|\Z)", path.read_text(), re.S
        ):
            relied = "self.rely(machine)" in found[0] or "Equals(self.real)" in found[0]
            assert "return self\n" not in found[0] or relied, path.name


def test_many_keys() -> None:
    """Each is relied upon itself: no break, and none is taken for another."""
    objects = [Plain() for _ in range(40)]
    follows(lambda held: len(set(held)), objects, [*objects[:-1], objects[0]])
    compiled = windfall.compile(lambda held: len(set(held)), backend="eager")
    assert compiled(objects) == 40
    assert not windfall.explanation(compiled).breaks


def test_an_equality_that_comes_late() -> None:
    class Late:
        pass

    one = Late()
    programs = [
        windfall.compile(lambda a: (a in (1, 2), a == 1, 1 == a), backend="eager"),  # noqa: SIM300
        windfall.compile(lambda a: (a != "x", a == None, a in ["x"]), backend="eager"),  # noqa: E711
    ]
    assert [program(one) for program in programs] == [(False,) * 3, (True, False, False)]
    assert not [one for program in programs for one in windfall.explanation(program).breaks]
    Late.__eq__ = lambda self, other: True  # type: ignore[method-assign,assignment]
    assert [program(one) for program in programs] == [(True,) * 3, (False, True, True)]


@pytest.mark.parametrize("count", [2, 15, 16, 17, 18, 40])
def test_objects_that_are_keys_are_told_apart_however_many(count: int) -> None:
    """Few of them in pairs, many each by itself: the next call may give one twice."""

    def known(x: torch.Tensor, keys: list[Any]) -> torch.Tensor:
        return x + len({key: 1 for key in keys})

    keys = [_Plain() for _ in range(count)]
    compiled: Any = windfall.compile(known, fullgraph=True)
    assert compiled(torch.zeros(1), keys).item() == count
    assert compiled(torch.zeros(1), [keys[0], *keys[:-1]]).item() == count - 1
    assert windfall.explanation(compiled).eager == {}


class _Plain:
    """Hashed by identity."""
