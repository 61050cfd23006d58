"""Comparisons of classes whose metaclass has a say, with everything, in both orders."""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

import windfall

METHODS: dict[str, dict[str, Callable[..., Any]]] = {
    "eq true": {"__eq__": lambda cls, other: True, "__hash__": lambda cls: 1},
    "eq false": {"__eq__": lambda cls, other: False, "__hash__": lambda cls: 1},
    "eq declines": {"__eq__": lambda cls, other: NotImplemented, "__hash__": lambda cls: 1},
    "eq of itself": {"__eq__": lambda cls, other: other is cls, "__hash__": lambda cls: 1},
    "eq text": {"__eq__": lambda cls, other: "text", "__hash__": lambda cls: 1},
    "ne": {"__ne__": lambda cls, other: "ne"},
    "lt": {"__lt__": lambda cls, other: "lt"},
    "ge": {"__ge__": lambda cls, other: "ge"},
    "none": {},
}
CLASSES = {
    name: type("Meta", (type,), dict(methods))("Of", (), {}) for name, methods in METHODS.items()
}


class Plain:
    pass


class Own:
    def __eq__(self, other: object) -> Any:
        return "own eq"

    def __gt__(self, other: object) -> Any:
        return "own gt"

    __hash__ = None  # type: ignore[assignment]


class Items(list[int]):
    pass


class Colour(enum.Enum):
    RED = 1


class Size(int, enum.Enum):
    SMALL = 1


OTHERS: dict[str, Any] = {
    "plain": Plain(),
    "own": Own(),
    "number": 1,
    "text": "a",
    "none": None,
    "list": [1],
    "items": Items([1]),
    "class": Plain,
    "builtin": int,
    "function": len,
    "enum": Colour.RED,
    "mixed": Size.SMALL,
    "module": torch.nn.ReLU(),
    "tuple": (1,),
}
OPERATIONS = {name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}
TEXTS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def _outcome(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except TypeError as error:
        return str(error)


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("methods", METHODS)
def test_as_eager(methods: str, other: str) -> None:
    one, two = CLASSES[methods], OTHERS[other]
    _agree(one, (one, two), (two, one))


@pytest.mark.parametrize("methods", METHODS)
def test_with_itself_as_eager(methods: str) -> None:
    one = CLASSES[methods]
    _agree(one, (one, one))


def _agree(one: type, *pairs: tuple[Any, Any]) -> None:
    """Each comparison of each pair, of which `one` is a part."""
    for name, text in TEXTS.items():
        program = eval(f"lambda x, a, b: (x + 1, a {text} b)")
        for pair in pairs:
            compiled = windfall.compile(program)
            expected = _outcome(OPERATIONS[name], *pair)
            for _ in range(2):
                found = _outcome(compiled, torch.ones(2), *pair)
                found = found[1] if isinstance(found, tuple) else found
                assert found == expected and type(found) is type(expected), (text, pair)
            # And of another class at the same place.
            later = (CLASSES["none"], pair[1]) if pair[0] is one else (pair[0], CLASSES["none"])
            expected = _outcome(OPERATIONS[name], *later)
            found = _outcome(compiled, torch.ones(2), *later)
            found = found[1] if isinstance(found, tuple) else found
            assert found == expected and type(found) is type(expected), (text, later)
            assert windfall.explanation(compiled).graphs
