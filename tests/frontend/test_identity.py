"""`a is b` of immutable objects: equal is not identical, whatever was seen in the first call."""

from __future__ import annotations

import collections
import copy
import enum
import itertools
import operator
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import windfall


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


# Each makes an object that equals the ones it made before; some are the very same one.
MAKES: dict[str, Callable[[], Any]] = {
    "small integer": lambda: int("5"),
    "integer": lambda: int("1000000"),
    "large integer": lambda: int("1" + "0" * 30),
    "float": lambda: float("1.5"),
    "nan": lambda: float("nan"),
    "complex": lambda: complex("2j"),
    "text": lambda: "".join(["two ", "words"]),
    "interned text": lambda: "name",
    "empty text": lambda: "".join([]),
    "bytes": lambda: bytes([1, 2, 3]),
    "none": lambda: None,
    "bool": lambda: bool(1),
    "ellipsis": lambda: ...,
    "dtype": lambda: torch.float32,
    "device": lambda: torch.device("cpu"),
    "member": lambda: Colour(1),
    "range": lambda: range(int("5")),
    "tuple": lambda: tuple([1, 2]),
    "empty tuple": lambda: tuple([]),
    "size": lambda: torch.Size([2, 3]),
    "frozenset": lambda: frozenset([1, 2]),
    "empty frozenset": lambda: frozenset([]),
    "list": lambda: [1],
    "dict": dict,
    "tensor": lambda: torch.ones(2),
}


def _compiled(function: Callable[..., Any]) -> Any:
    return windfall.compile(function, backend="eager", options={"strict": True})


def _two(one: Any, other: Any) -> tuple[bool, bool]:
    return one is other, one is not other


@pytest.mark.parametrize("name", MAKES)
@pytest.mark.parametrize("first", ["same", "equal"])
def test_two_arguments(name: str, first: str) -> None:
    make = MAKES[name]
    one = make()
    calls = [(one, one), (one, make()), (make(), one), (one, one), (make(), make())]
    compiled = _compiled(_two)
    for call in calls if first == "same" else calls[1:]:
        assert compiled(*call) == _two(*call)


@pytest.mark.parametrize("name", MAKES)
def test_an_argument_and_an_object_that_is_known(name: str) -> None:
    make = MAKES[name]
    known = make()

    def program(one: Any) -> bool:
        return one is known

    for calls in ([known, make(), known], [make(), known, make()]):
        compiled = _compiled(program)
        for one in calls:
            assert compiled(one) == program(one)


def test_a_literal() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # CPython warns of what is tried here
        program = eval("lambda one: (one is 1000000, one is 'abc', one is (), one is None)")
    calls = [int("1000000"), "abc", "".join(["a", "bc"]), (), (1,), None, 5]
    for first in range(len(calls)):
        compiled = _compiled(program)
        for one in calls[first:]:
            assert compiled(one) == program(one)


def test_integers_that_vary() -> None:
    compiled = _compiled(_two)
    for number in (1000, 2000, 3000, 4000, 100, 200):
        other = int(str(number))
        for call in ((number, number), (number, other), (other, number)):
            assert compiled(*call) == _two(*call)


def test_objects_that_are_equal_by_identity_alone() -> None:
    one, other = object(), object()
    compiled = _compiled(lambda a, b: (a == b, a != b, a is b))
    for call in ((one, one), (one, other), (other, other), (copy.copy([1]), one)):
        assert compiled(*call) == (call[0] == call[1], call[0] != call[1], call[0] is call[1])


def test_an_argument_that_is_a_constant_of_the_program() -> None:
    def program(one: Any) -> Any:
        return len(one), (1, 2), ()

    for first in (program.__code__.co_consts[1], (), (3, 4)):
        compiled = _compiled(program)
        for one in (first, (3, 4), (), (5,), first):
            assert compiled(one) == program(one)


def test_an_argument_that_is_a_class_of_the_program() -> None:
    def program(one: Any, number: Any) -> Any:
        return isinstance(one, type), type(number), callable(one)

    compiled = _compiled(program)
    for one in (int, str, bool, int):
        assert compiled(one, 5) == program(one, 5)


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict, collections.defaultdict])
def test_tuples_that_are_keys(kind: Any) -> None:
    def seen(table: Any, given: Any) -> Any:
        return list(table), [one is other for one, other in zip(table, given, strict=False)]

    def taken(table: Any, given: Any) -> Any:
        del table[1, 2]
        table[given[0]] = 4
        return [table.popitem()[0], table.popitem()[0], *table], dict(table.items())

    def made(table: Any, given: Any) -> Any:
        inside = kind()
        for one in given:
            inside[one] = inside[tuple(list(one))] = 1
        return list(inside), inside.copy(), [one is given[0] for one in inside]

    for program in (seen, taken, made):
        compiled = _compiled(program)
        for _ in range(2):
            given = [tuple([1, 2]), tuple([3, tuple([4])]), torch.Size([5])]
            answers = []
            for function in (program, compiled):
                table = kind()
                table.update((one, number) for number, one in enumerate(given))
                answers.append((*function(table, given), table))
            for one, other in zip(*answers, strict=True):
                assert one == other and list(map(id, one)) == list(map(id, other))
        assert not windfall.explanation(compiled).breaks


SETS: dict[str, Callable[[Any, Any], Any]] = {
    "or": operator.or_,
    "and": operator.and_,
    "minus": operator.sub,
    "exclusive or": operator.xor,
}


@pytest.mark.parametrize("operation", SETS)
def test_of_equal_items_the_one_that_cpython_takes(operation: str) -> None:
    """`(1, 2)`, `(True, 2.0)` and a size are equal, and not the same."""
    combine = SETS[operation]
    programs: list[Callable[[Any, Any], Any]] = [
        lambda one, other: list(combine(set(one), set(other))),
        lambda one, other: list(combine(one.keys(), other.keys())),
        lambda one, other: list(combine(one.keys(), list(other))),
        lambda one, other: list(combine(set(one), other.keys())),
    ]
    items = tuple([1, 2]), tuple([True, 2.0]), torch.Size([1, 2]), tuple([5])
    chosen = [one for count in (1, 2) for one in itertools.combinations(items, count)]
    for program, one in itertools.product(programs, chosen):
        compiled = _compiled(program)
        for other in chosen[2:8]:
            given = dict.fromkeys(one), dict.fromkeys(other)
            assert list(map(id, compiled(*given))) == list(map(id, program(*given)))
