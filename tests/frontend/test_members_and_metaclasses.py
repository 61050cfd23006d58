"""Enumerations whose members say in Python what they are equal to, metaclasses that are asked by
operators, and `mappingproxy`: as torchmetrics and torchsde choose their tasks by name.

Each is right, and in one graph where nothing of C has to answer for a member (`LEFT`).
"""

from __future__ import annotations

import enum
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

import windfall


class Own(str, enum.Enum):  # noqa: UP042 (as libraries write it)
    """Equal without regard to case."""

    A = "a"
    B = "b"

    def __eq__(self, other: object) -> bool:
        text = other.value if isinstance(other, enum.Enum) else str(other)
        return bool(self.value.lower() == text.lower())

    def __hash__(self) -> int:
        return hash(self.value.lower())

    @classmethod
    def find(cls, text: str) -> Own:
        for name in cls.__members__:
            if name.lower() == text.lower():
                return cls[name]
        for name, member in cls.__members__.items():
            if member == text:
                return cls[name]
        raise ValueError(text)


class Shy(str, enum.Enum):  # noqa: UP042
    """Declines."""

    A = "a"
    B = "b"

    def __eq__(self, other: object) -> Any:
        return NotImplemented

    __hash__ = str.__hash__


class Never(int, enum.Enum):
    """Equal to nothing."""

    A = 1
    B = 2

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = int.__hash__


class Plain(enum.Enum):
    X = 1
    Y = 2


class _Holding(type):
    names = ("diagonal", "general")

    def __contains__(cls, item: Any) -> bool:
        return item in cls.names

    @property
    def first(cls) -> str:
        return cls.names[0]


class Noise(metaclass=_Holding):
    pass


Program = Callable[[torch.Tensor], Any]
PROGRAMS: dict[str, Program] = {
    "found by name": lambda x: (x * 2 if Own.find("B") == Own.B else x, Own.find("a") is Own.A),
    "found by value": lambda x: x * 2 if Own.find("b") == "B" else x,
    "with text": lambda x: (x + 1, Own.A == "a", Own.A == "A", Own.A == "A", Own.A == "b"),
    "with members": lambda x: (x + 1, Own.A == Own.A, Own.A == Own.B),
    "unlike": lambda x: (x + 1, Own.A != "A", Own.A != "a"),
    "with others": lambda x: (x + 1, Own.A == 3, Own.A == None, Own.A == 2.5),  # noqa: E711
    "in lists": lambda x: (x + 1, Own.A in ["A"], Own.A in ("b", "a"), Own.B in [Own.A]),
    "never": lambda x: (x + 1, Never.A == 1, Never.A == Never.A, Never.A == 1.0, Never.A != 1),
    "names": lambda x: (x + 1, list(Plain.__members__), len(Plain.__members__)),
    "by name": lambda x: (x + 1, "X" in Plain.__members__, Plain.__members__["Y"]),
    "or none": lambda x: (x + 1, Plain.__members__.get("Z", 4), bool(Plain.__members__)),
    "pairs": lambda x: (x + 1, [(name, one.value) for name, one in Plain.__members__.items()]),
    "a member in its class": lambda x: (x + 1, Plain.X in Plain),
    "in a class": lambda x: (x + 1, "diagonal" in Noise, "else" in Noise, "x" not in Noise),
    "of a metaclass": lambda x: (x + 1, Noise.first),
    "a proxy": lambda x: x * types.MappingProxyType({"a": 2})["a"],
    "of tensors": lambda x: types.MappingProxyType({"a": x})["a"] * 2,
    "a proxy is returned": lambda x: (x + 1, types.MappingProxyType({"a": 2}), Plain.__members__),
}
# What C asks of a member that has its own `__eq__` is asked natively.
LEFT: dict[str, Program] = {
    "declined": lambda x: (x + 1, Shy.A == "a", Shy.A == "a", Shy.A == Shy.B, Shy.A != "a"),
    "of another class": lambda x: (x + 1, Own.B == Plain.X, Plain.X == Own.B),
    "a number goes first": lambda x: (x + 1, Own.A == 3, Never.A == 1, Never.A == 1.0),
    "a missing key": lambda x: (x + 1, types.MappingProxyType({"a": 2})["z"]),
    "written": lambda x: types.MappingProxyType({"a": 2}).__setitem__("a", 3),  # type: ignore[attr-defined]
}


def _outcome(function: Program, x: torch.Tensor) -> Any:
    try:
        return function(x)
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("name", [*PROGRAMS, *LEFT])
def test_answers(name: str) -> None:
    program = {**PROGRAMS, **LEFT}[name]
    x = torch.ones(2)
    compiled = windfall.compile(program)
    wanted = _outcome(program, x)
    for _ in range(2):
        found = _outcome(compiled, x)
        assert str(found) == str(wanted)
        assert type(found) is type(wanted)
        if isinstance(wanted, tuple):
            assert [type(one) for one in found] == [type(one) for one in wanted]
    told = windfall.explanation(compiled)
    assert not told.fallbacks
    assert (len(told.graphs), told.breaks) == (1, []) or name in LEFT


def test_a_changed_class_is_seen() -> None:
    """The method of a member, a metaclass, what a class holds: each is another one later."""

    class Late(str, enum.Enum):  # noqa: UP042
        A = "a"

        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = str.__hash__

    class Meta(type):
        def __contains__(cls, item: Any) -> bool:
            return True

    class Held(metaclass=Meta):
        pass

    table = {"a": 1}

    def f(x: torch.Tensor) -> Any:
        return x + 1, Late.A == "b", "b" in Held, "b" in types.MappingProxyType(table)

    compiled, x = windfall.compile(f), torch.ones(2)
    assert compiled(x)[1:] == f(x)[1:] == (True, True, False)
    Late.__eq__ = lambda self, other: False  # type: ignore[method-assign,assignment]
    assert compiled(x)[1:] == f(x)[1:] == (False, True, False)
    Meta.__contains__ = lambda cls, item: False  # type: ignore[method-assign]
    table["b"] = 2
    assert compiled(x)[1:] == f(x)[1:] == (False, False, True)
    told = windfall.explanation(compiled)
    assert (told.breaks, told.fallbacks) == ([], [])


def test_a_method_of_a_number_lives_on() -> None:
    """Text of a number's method has its number in brackets."""

    def f(x: torch.Tensor) -> Any:
        methods = [(3).__eq__, (-3).__eq__]
        windfall.graph_break()
        return x * 2, [method(3) for method in methods]

    compiled, x = windfall.compile(f), torch.ones(2)
    assert compiled(x)[1] == [True, False]
    assert not windfall.explanation(compiled).fallbacks
