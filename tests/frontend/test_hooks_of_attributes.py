"""What we write and read of an object on the program's behalf runs none of its hooks again.

A class with its own `__setattr__`, `__getattribute__` or `__delattr__` is told of what the program
does, once, by the program: not of how an object is made again behind a capture, nor of what CPython
does to an exception inside (traceback, cause, context).
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pytest
import torch

import windfall

BASES = (object, list, dict, set, collections.OrderedDict, collections.deque, Exception, KeyError)
TOLD: list[tuple[str, str]] = []


def _told_of_writes(self: Any, name: str, value: Any) -> None:
    TOLD.append(("set", name))
    object.__setattr__(self, name, value)


def _told_of_reads(self: Any, name: str) -> Any:
    TOLD.append(("get", name))
    return object.__getattribute__(self, name)


HOOKS: dict[str, dict[str, Any]] = {
    "writes": {"__setattr__": _told_of_writes},
    "reads": {"__getattribute__": _told_of_reads},
    "both": {"__setattr__": _told_of_writes, "__getattribute__": _told_of_reads},
}


def _class(base: type, hooks: dict[str, Any], slots: bool) -> type:
    def __init__(self: Any) -> None:
        base.__init__(self)
        self.a = 3

    return type(
        "Told",
        (base,),
        {**hooks, "__init__": __init__} | ({"__slots__": ("a", "b")} if slots else {}),
    )


def _compare(function: Callable[..., Any]) -> None:
    """The program and its hooks say what they say in eager, at the first call and the next."""
    seen = []
    for one in (function, windfall.compile(function)):
        for _ in range(2):
            TOLD.clear()
            answer = one(torch.ones(2))
            told = list(TOLD)
            seen.append((told, object.__getattribute__(answer, "a"), type(answer)))
    assert [str(one) for one in seen[2:]] == [str(one) for one in seen[:2]]


@pytest.mark.parametrize("slots", [False, True], ids=["dict", "slots"])
@pytest.mark.parametrize("hooks", HOOKS)
@pytest.mark.parametrize("base", BASES, ids=lambda base: base.__name__)
def test_an_object_that_is_made_inside(base: type, hooks: str, slots: bool) -> None:
    cls = _class(base, HOOKS[hooks], slots)

    def made(x: torch.Tensor) -> Any:
        one = cls()
        one.b = x + 1
        one.a = 4
        return one

    _compare(made)


def _read(x: torch.Tensor, one: Any) -> Any:
    return one.a + x


def _asked(x: torch.Tensor, one: Any) -> Any:
    return x + (1 if hasattr(one, "b") else 2) + getattr(one, "c", 3)


def _written(x: torch.Tensor, one: Any) -> Any:
    one.b = x + one.a
    return one.b


def _deleted(x: torch.Tensor, one: Any) -> Any:
    one.b = x
    del one.b
    return x + 1


def _in_a_table(x: torch.Tensor, one: Any) -> Any:
    return x + {"key": one}["key"].a


def _behind_a_break(x: torch.Tensor, one: Any) -> Any:
    one.b = x.sum().item()
    return x + one.a


@pytest.mark.parametrize("slots", [False, True], ids=["dict", "slots"])
@pytest.mark.parametrize("hooks", HOOKS)
@pytest.mark.parametrize("base", (object, dict, KeyError), ids=lambda base: base.__name__)
@pytest.mark.parametrize(
    "way",
    [_read, _asked, _written, _deleted, _in_a_table, _behind_a_break],
    ids=lambda w: w.__name__,
)
def test_an_object_from_outside(
    way: Callable[..., Any], base: type, hooks: str, slots: bool
) -> None:
    cls = _class(base, HOOKS[hooks], slots)
    seen = []
    for function in (way, windfall.compile(way)):
        for _ in range(2):
            given = cls()
            TOLD.clear()
            answer = function(torch.ones(2), given)
            seen.append((list(TOLD), answer.tolist()))
    assert seen[2:] == seen[:2]


def _caught(x: torch.Tensor, cls: type) -> Any:
    try:
        raise cls()
    except cls as error:
        return error


def _with_cause(x: torch.Tensor, cls: type) -> Any:
    try:
        try:
            raise ValueError(x + 1)
        except ValueError as error:
            raise cls() from error
    except cls as error:
        return error


def _with_context(x: torch.Tensor, cls: type) -> Any:
    try:
        try:
            raise cls()
        finally:
            x = x + 1
    except cls as error:
        try:
            raise ValueError(x)
        except ValueError:
            return error


def _raised_again(x: torch.Tensor, cls: type) -> Any:
    try:
        try:
            raise cls()
        except cls:
            x.sum().item()
            raise
    except cls as error:
        return error


def _raise(cls: type) -> None:
    raise cls()


def _handled_natively(x: torch.Tensor, cls: type) -> Any:
    try:
        _raise(cls)
    except cls as error:
        sorted(map(str, vars(torch.finfo).keys()))
        id(x)
        return error


class _Passing:
    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        return False


def _through_a_manager(x: torch.Tensor, cls: type) -> Any:
    try:
        with _Passing():
            x.sum().item()
            _raise(cls)
    except cls as error:
        return error


def _generator(cls: type) -> Any:
    try:
        yield 1
    finally:
        raise cls()


def _from_a_generator(x: torch.Tensor, cls: type) -> Any:
    try:
        for _ in _generator(cls):
            x = x + 1
    except cls as error:
        return error


def _leaving(x: torch.Tensor, cls: type) -> Any:
    x = x + 1
    _raise(cls)


WAYS = [
    _caught, _with_cause, _with_context, _raised_again, _handled_natively, _through_a_manager,
    _from_a_generator,
]  # fmt: skip


@pytest.mark.parametrize("slots", [False, True], ids=["dict", "slots"])
@pytest.mark.parametrize("hooks", HOOKS)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_an_exception(way: Callable[..., Any], hooks: str, slots: bool) -> None:
    cls = _class(Exception, HOOKS[hooks], slots)
    _compare(lambda x: way(x, cls))


@pytest.mark.parametrize("hooks", HOOKS)
def test_an_exception_that_leaves(hooks: str) -> None:
    cls = _class(Exception, HOOKS[hooks], False)
    seen = []
    for one in (_leaving, windfall.compile(_leaving)):
        for _ in range(2):
            TOLD.clear()
            try:
                one(torch.ones(2), cls)
            except BaseException as error:
                seen.append((list(TOLD), type(error)))
    assert seen[2:] == seen[:2]
