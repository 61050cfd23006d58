"""A key of a dict or an item of a set is an object: another equal one is not it."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pytest
import torch

import windfall

# Makers of two equal objects that are not one.
ITEMS: dict[str, Callable[[], Any]] = {
    "text": lambda: "".join(["hello", " world"]),
    "integer": lambda: int("100000"),
    "float": lambda: float("2.5"),
    "complex": lambda: complex("1+2j"),
    "bytes": lambda: bytes([104, 105, 33]),
    "tuple": lambda: tuple([1, 2]),
    "device": lambda: torch.device("cpu"),
}
HOLDERS: dict[str, Callable[[Any], Any]] = {
    "dict": lambda key: {key: 1},
    "OrderedDict": lambda key: collections.OrderedDict({key: 1}),
    "defaultdict": lambda key: collections.defaultdict(int, {key: 1}),
    "Counter": lambda key: collections.Counter({key: 1}),
    "set": lambda key: {key},
    "frozenset": lambda key: frozenset({key}),
    "keys": lambda key: {key: 1}.keys(),
    "list": lambda key: [key],
    "tuple": lambda key: (key,),
}
BREAKS = ("Counter", "keys")  # from outside: natively
QUESTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "is": lambda held, one: [key is one for key in held],
    "is not": lambda held, one: [one is not key for key in held],
    "list": lambda held, one: list(held)[0] is one,  # noqa: RUF015
    "unpacked": lambda held, one: [*held][0] is one,  # noqa: RUF015
    "next": lambda held, one: next(iter(held)) is one,
    "removed": lambda held, one: [key for key in held if key is not one],
}


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize("item", ITEMS)
def test_an_equal_key_is_not_the_same_key(item: str, holder: str, question: str) -> None:
    ask, hold = QUESTIONS[question], HOLDERS[holder]
    first, second = ITEMS[item](), ITEMS[item]()
    assert first == second and first is not second
    compiled = windfall.compile(ask)
    for key, one in ((first, first), (second, first), (second, second), (first, second)):
        assert compiled(hold(key), one) == ask(hold(key), one)
    assert bool(windfall.explanation(compiled).breaks) == (holder in BREAKS)


def test_a_key_that_the_program_replaced() -> None:
    def ask(held: dict[str, int], one: str, other: str) -> list[bool]:
        del held[one]
        held[other] = 2
        return [key is other for key in held]

    compiled = windfall.compile(ask)
    for one, other in ((ITEMS["text"](), ITEMS["text"]()) for _ in range(3)):
        assert compiled({one: 1}, one, other) == ask({one: 1}, one, other) == [True]


def _stored(key: Any) -> Any:
    made: dict[Any, int] = {}
    made[key] = 1
    return made


def _added(key: Any) -> Any:
    made: set[Any] = set()
    made.add(key)
    return made


def _updated(key: Any) -> Any:
    made = {"another": 2}
    made.update({key: 1})
    del made["another"]
    return made


def _written_again(key: Any) -> Any:
    made = {key: 1}
    made[key] = 2
    return made


# How a program makes a holder of a key.
MAKERS: dict[str, Callable[[Any], Any]] = {
    **{name: HOLDERS[name] for name in ("dict", "OrderedDict", "defaultdict", "set", "frozenset")},
    "pairs": lambda key: dict([(key, 1)]),
    "fromkeys": lambda key: dict.fromkeys([key], 1),
    "comprehension": lambda key: {one: 1 for one in [key]},
    "set comprehension": lambda key: {one for one in (key,)},
    "copied": lambda key: dict({key: 1}),
    "joined": lambda key: {key: 1} | {"another": 2},
    "set joined": lambda key: {key} | {"another"},
    "stored": _stored,
    "set default": lambda key: (made := {}, made.setdefault(key, 1))[0],
    "added": _added,
    "updated": _updated,
    "written again": _written_again,
    "looked through": lambda key: list({key: 1}),
    "items": lambda key: next(iter({key: 1}.items())),
}


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("item", ITEMS)
def test_a_key_that_is_passed_on_is_the_one_of_the_call(item: str, maker: str) -> None:
    """An entry serves equal keys; what it makes holds the one that it was given."""
    make = MAKERS[maker]
    compiled = windfall.compile(make)
    for key in [ITEMS[item]() for _ in range(3)]:
        found = compiled(key)
        assert found == make(key)
        assert any(one is key for one in found), f"{maker} of another {item}"
    assert not windfall.explanation(compiled).breaks


@pytest.mark.parametrize("item", ITEMS)
def test_a_new_key_of_what_came_from_outside(item: str) -> None:
    def write(held: dict[Any, int], key: Any) -> None:
        held[key] = 1

    compiled = windfall.compile(write)
    for _ in range(3):
        held, key = {"another": 2}, ITEMS[item]()
        compiled(held, key)
        assert list(held)[1] is key
