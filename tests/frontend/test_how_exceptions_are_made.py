"""Exceptions are made, and asked, as their class says, also where it says so late.

What a class says: a `__new__` of any kind, an `__init__` that is no function or that keeps C's from
being called, fields of C (`SystemExit.code`), `args`, `value` and links of the class's own. Each is
said in the class statement, and between two calls of what was compiled."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import windfall

SAYS: dict[str, dict[str, Callable[[], Any]]] = {
    "nothing": {},
    "new is a function": {"__new__": lambda: lambda cls, *args: ValueError(7)},
    "new is static": {"__new__": lambda: staticmethod(lambda cls, *args: ValueError(8))},
    "new of the class": {"__new__": lambda: classmethod(lambda cls, *args: ValueError(9))},
    "new is partial": {"__new__": lambda: functools.partial(lambda cls, *args: ValueError(10))},
    "new is a class": {"__new__": lambda: ValueError},
    "new is none": {"__new__": lambda: None},
    "new makes no exception": {"__new__": lambda: lambda cls, *args: 3},
    "new of another": {"__new__": lambda: OSError.__new__},
    "init leaves C out": {"__init__": lambda: lambda self, *args: None},
    "init answers": {"__init__": lambda: lambda self, *args: 5},
    "init is none": {"__init__": lambda: None},
    "init is static": {"__init__": lambda: staticmethod(lambda *args: None)},
    "init is partial": {"__init__": lambda: functools.partial(print, end="")},
    "init is C's": {"__init__": lambda: BaseException.__init__},
    "args": {"args": lambda: property(lambda self: "of the class")},
    "value": {"value": lambda: 7},
    "code": {"code": lambda: property(lambda self: "of the class")},
    "cause": {"__cause__": lambda: property(lambda self: "of the class")},
}
BASES = (Exception, StopIteration, SystemExit, KeyError, ImportError, OSError)
FIELDS = ("args", "value", "code", "errno", "name", "__cause__", "__context__")


def fields(error: BaseException) -> list[Any]:
    return [type(error).__name__, *(repr(getattr(error, one, "none")) for one in FIELDS)]


def caught_inside(x: torch.Tensor, kind: Any) -> Any:
    try:
        raise kind(2)
    except BaseException as error:
        return x + 1, error.args, getattr(error, "value", 0), getattr(error, "code", 0)


def caught_as_another(x: torch.Tensor, kind: Any) -> Any:
    try:
        raise kind(2)
    except ValueError as error:
        return x + error.args[0]
    except kind:
        return x - 1


def given_out(x: torch.Tensor, kind: Any) -> Any:
    made = kind("text")
    return x + 1, made


def leaving(x: torch.Tensor, kind: Any) -> Any:
    y = x + 1
    raise kind(y.shape[0])


PROGRAMS = (caught_inside, caught_as_another, given_out, leaving)


def outcome(function: Callable[..., Any], *given: Any) -> Any:
    try:
        found = function(*given)
    except BaseException as error:
        return "raised", fields(error), str(error)
    return [
        fields(one) if isinstance(one, BaseException) else str(one)
        for one in (found if isinstance(found, tuple) else (found,))
    ]


def outcomes(base: Any, says: str, late: bool, made: Callable[..., Any]) -> list[Any]:
    said = {name: make() for name, make in SAYS[says].items()}
    kind = type("Kind", (base,), {} if late else said)
    functions = [made(one) for one in PROGRAMS]
    found = [outcome(one, torch.ones(3), kind) for one in functions]
    for name, value in said.items():
        setattr(kind, name, value)
    found += [outcome(one, torch.ones(3), kind) for one in functions]
    if late:
        for name in said:
            delattr(kind, name)
        found += [outcome(one, torch.ones(3), kind) for one in functions]
    return found


@pytest.mark.parametrize("late", [False, True], ids=["early", "late"])
@pytest.mark.parametrize("says", SAYS)
def test_as_the_class_says(says: str, late: bool) -> None:
    for base in BASES:
        eager = outcomes(base, says, late, lambda function: function)
        ours = outcomes(base, says, late, functools.partial(windfall.compile, backend="eager"))
        assert ours == eager, base


@pytest.mark.parametrize("base", [Exception, KeyError, StopIteration])
def test_plain_ones_are_followed(base: Any) -> None:
    compiled = windfall.compile(caught_inside, backend="eager")
    assert outcome(compiled, torch.ones(3), base) == outcome(caught_inside, torch.ones(3), base)
    assert len(windfall.explanation(compiled).graphs) == 1
    assert not windfall.explanation(compiled).breaks
