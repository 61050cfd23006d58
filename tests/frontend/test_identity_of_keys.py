"""A key of a dict or an item of a set is an object: another equal one is not it."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pytest

import windfall

# Makers of two equal objects that are not one.
ITEMS: dict[str, Callable[[], Any]] = {
    "text": lambda: "".join(["hello", " world"]),
    "integer": lambda: int("100000"),
    "float": lambda: float("2.5"),
    "complex": lambda: complex("1+2j"),
    "bytes": lambda: bytes([104, 105, 33]),
    "tuple": lambda: tuple([1, 2]),
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
