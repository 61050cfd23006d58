"""Unions of classes: made in a capture, and relied upon where they come from outside."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

import windfall

MADE: dict[str, Callable[[Any], Any]] = {
    "two": lambda a: isinstance(a, int | float),
    "three": lambda a: isinstance(a, int | float | str),
    "none": lambda a: isinstance(a, int | None),
    "nothing": lambda a: isinstance(a, None | int),
    "joined": lambda a: isinstance(a, (int | None) | (str | bytes)),
    "subclass": lambda a: issubclass(type(a), int | str),
    "tensor": lambda a: isinstance(a, torch.Tensor | float),
    "itself": lambda a: (int | int) is int and isinstance(a, int | int),
    "compared": lambda a: (int | str) == (str | int),
    "parts": lambda a: (int | str).__args__,
    "returned": lambda a: int | None,
}


@pytest.mark.parametrize("name", MADE)
def test_made_here(name: str) -> None:
    compiled = windfall.compile(MADE[name])
    for a in (1, 1.5, "x", None, torch.ones(2), 2, [], b""):
        assert compiled(a) == MADE[name](a)


@pytest.mark.parametrize("name", ["two", "three", "none", "joined", "subclass", "tensor"])
def test_it_is_no_break(name: str) -> None:
    compiled = windfall.compile(MADE[name], fullgraph=True)
    assert compiled(1) == MADE[name](1)


def test_another_union_at_the_same_place() -> None:
    compiled = windfall.compile(lambda a, union: isinstance(a, union))
    assert compiled(1, int | float) is True
    assert compiled(1, str | float) is False
    assert compiled(1, bytes | None) is False
    assert compiled(1, int | bytes) is True


class Meta(type):
    def __or__(cls, other: Any) -> Any:
        return ("left", other)

    def __ror__(cls, other: Any) -> Any:
        return ("right", other)


class Own(metaclass=Meta):
    pass


class Later(type):
    pass


class Changing(metaclass=Later):
    pass


def test_a_metaclass_has_a_say() -> None:
    compiled = windfall.compile(lambda: (Own | int, int | Own))
    assert compiled() == (("left", int), ("right", int))


def test_a_metaclass_has_a_say_later(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = windfall.compile(lambda: Changing | int)
    assert isinstance(compiled(), types.UnionType)
    monkeypatch.setattr(Later, "__or__", lambda cls, other: "mine", raising=False)
    assert compiled() == "mine"


class Two(tuple[Any, ...]):
    """That iterates over other items than it has."""

    def __iter__(self) -> Any:
        return iter(["neither", "is an exception"])

    def __len__(self) -> int:
        return 0


@pytest.mark.parametrize("classes", [Two(), Two([KeyError, ValueError]), Two([KeyError]), Two([1])])
def test_except_asks_the_items_of_a_tuple_themselves(classes: Any) -> None:
    def function() -> Any:
        try:
            raise ValueError("raised")
        except classes:
            return "caught"

    outcomes = []
    for one in (function, windfall.compile(function)):
        try:
            outcomes.append(one())
        except (ValueError, TypeError) as error:
            outcomes.append((type(error), str(error)))
    assert outcomes[0] == outcomes[1]


ITSELF: dict[str, Callable[[Any], Any]] = {
    "default": lambda a: max([], default=a),
    "only": lambda a: max([a]),
    "first": lambda a: min(a, a),
    "sorted": lambda a: sorted([a])[0],
    "sorted in place": lambda a: sorted((a, a))[1],
}
FRESH: dict[str, Callable[[], Any]] = {
    "float": lambda: float("1.5"),
    "int": lambda: int("9" * 30),
    "str": lambda: "".join(["a", "b"]),
    "bytes": lambda: bytes([1, 2, 3]),
}


@pytest.mark.parametrize("kind", FRESH)
@pytest.mark.parametrize("name", ITSELF)
def test_the_answer_is_the_object_itself(name: str, kind: str) -> None:
    """Not another one of its value."""
    compiled = windfall.compile(ITSELF[name], fullgraph=True)
    for _ in range(2):
        one = FRESH[kind]()
        assert compiled(one) is one


def test_a_device_too() -> None:
    compiled = windfall.compile(ITSELF["default"])
    for _ in range(2):
        device = torch.device("cpu")
        assert compiled(device) is device
