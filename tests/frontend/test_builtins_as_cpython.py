"""Builtins as CPython's: a sample of the sweep, and what it cannot ask.

The sweep (`tests/conformance/builtins.py`) reads its callables from the tables of rules, so a new
rule is asked without a row here; what a rule must have is demanded below.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import sys
import typing
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import windfall
from tests.conformance.builtins import (
    KINDS,
    Case,
    at_most,
    cases,
    difference,
    functions,
    methods,
)
from windfall.frontend.values.arity import parameters


def _strided(stride: int) -> list[Case]:
    """With a prime, so that it falls on other arguments of each callable."""
    return [case for index, case in enumerate(cases()) if index % stride == 500]


def _short() -> Iterator[Case]:
    """Every function with one argument of those that tell most."""
    for name in functions():
        for argument in ("len -1", "2.5", "iter 5", "index 'x'", "tensor([1., 2.])"):
            yield Case(name, (argument,))


@pytest.mark.parametrize(
    "chosen",
    [
        pytest.param(lambda: _strided(3001), id="strided"),
        pytest.param(lambda: _strided(1009), id="finer", marks=pytest.mark.conformance),
        pytest.param(lambda: list(_short()), id="short"),
    ],
)
def test_a_sample_of_the_sweep(chosen: Callable[[], list[Case]]) -> None:
    found = []
    for case in chosen():
        with at_most(20):
            differs = difference(case)
        if differs is not None:
            found.append(differs)
    assert not found, "\n".join(found)


def test_every_rule_knows_the_parameters_of_its_callable() -> None:
    assert [name for name, one in functions().items() if parameters(one) is None] == []
    assert len(functions()) > 130
    assert len(methods()) > 600


def test_every_kind_with_methods_is_asked() -> None:
    asked = {type(make()).__name__ for make in KINDS.values()}
    assert {"list", "dict", "set", "frozenset", "deque", "tuple", "OrderedDict"} <= asked


def _agrees(function: Callable[..., Any], *arguments: Callable[[], Any]) -> Any:
    """The outcome, which is the same compiled and not, with what became of the arguments."""

    def outcome(called: Callable[..., Any]) -> Any:
        given = [make() for make in arguments]
        try:
            return repr(called(*given)), repr(given)
        except Exception as error:
            return type(error), str(error), repr(given)

    expected = outcome(function)
    assert (
        outcome(windfall.compile(function, backend="eager", options={"strict": True})) == expected
    )
    return expected


# ----------------------------------------------------------------- containers that change meanwhile

CHANGES: dict[str, Callable[[Any], Any]] = {
    "insert": lambda d: [d.__setitem__(k + 10, 1) for k in d],
    "insert over items": lambda d: [d.__setitem__(k + 10, 1) for k, _ in d.items()],
    "pop": lambda d: [d.pop(k) for k in d],
    "pop in a generator": lambda d: list(d.pop(k) for k in d.keys()),  # noqa: SIM118
    "pop by map": lambda d: list(map(d.pop, d)),
    "clear over values": lambda d: [d.clear() for _ in d.values()],
    "one for another": lambda d: [(d.pop(k), d.setdefault(k + 10, 1), k) for k in d],
    "new values": lambda d: [(v, d.__setitem__(3, 9)) for _, v in d.items()],
    "popitem": lambda d: [d.popitem() for _ in d],
    "the first one": lambda d: d.pop(next(iter(d))),
    "enumerated": lambda d: [d.__setitem__(9, i) for i, _ in enumerate(d)],
    "zipped": lambda d: [d.__setitem__(9, i) for i, _ in zip(d, d, strict=False)],
    "reversed": lambda d: [d.__setitem__(9, k) for k in reversed(d)],
    "updated": lambda d: [d.update({9: k}) for k in d],
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_dict_that_changes_while_it_is_iterated(name: str) -> None:
    _agrees(CHANGES[name], lambda: {1: 2, 3: 4})


def _grows_a_set(items: set[int]) -> Any:
    for item in items:
        items.add(item + 10)
    return items


def _grows_its_own_set() -> Any:
    items = {1, 3}
    try:
        for item in items:
            items.add(item + 10)
    except RuntimeError as error:
        return str(error), items
    return items


def test_a_set_that_changes_while_it_is_iterated() -> None:
    assert _agrees(_grows_a_set, lambda: {1, 3})[0] is RuntimeError
    assert "changed size" in _agrees(_grows_its_own_set)[0]


def _shrinks(items: list[int]) -> Any:
    return [items.pop(0) for _ in reversed(items)]


def test_a_list_is_read_backwards_as_it_is_by_then() -> None:
    _agrees(_shrinks, lambda: [1, 2, 3, 4, 5])


# --------------------------------------------------------------------------------------- generators

_LOG: list[Any] = []


def _inner(swallows: bool) -> Iterator[Any]:
    try:
        yield 1
        yield 2
    except ValueError as error:
        _LOG.append(str(error))
        if not swallows:
            raise
        yield "swallowed"
    finally:
        _LOG.append("inner")


def _outer(swallows: bool = False) -> Iterator[Any]:
    try:
        yield from _inner(swallows)
    finally:
        _LOG.append("outer")


def _closed() -> Any:
    _LOG.clear()
    made: Any = _outer()
    next(made)
    made.close()
    return list(_LOG)


def _thrown_into() -> Any:
    _LOG.clear()
    made: Any = _outer()
    next(made)
    try:
        made.throw(ValueError("x"))
    except ValueError as error:
        return list(_LOG), str(error)


def _swallowed() -> Any:
    _LOG.clear()
    made: Any = _outer(True)
    next(made)
    return made.throw(ValueError("x")), list(made), list(_LOG)


@pytest.mark.parametrize("program", [_closed, _thrown_into, _swallowed])
def test_what_is_thrown_into_a_delegating_generator(program: Callable[[], Any]) -> None:
    assert "inner" in _agrees(program)[0]


# ------------------------------------------------------------------------------ the caller's module


def _named_tuple() -> Any:
    return collections.namedtuple("Pair", "x y").__module__


def _typed_tuple() -> Any:
    return typing.NamedTuple("Pair", [("x", int)]).__module__  # type: ignore[misc]


def _variable() -> Any:
    return typing.TypeVar("Variable").__module__  # type: ignore[misc]


def _enumeration() -> Any:
    return enum.Enum("Colour", "red green").__module__  # type: ignore[misc]


def _class_made_by_type() -> Any:
    return type("Made", (), {}).__module__


def _class_statement() -> Any:
    class Made:
        pass

    return Made.__module__, Made.__qualname__


def _dataclass() -> Any:
    return dataclasses.make_dataclass("Made", ["x"]).__module__


def _name_of_caller() -> str:
    return sys._getframe(1).f_code.co_name


def _asks_its_name() -> Any:
    return _name_of_caller()


@pytest.mark.parametrize(
    "program",
    [
        _named_tuple,
        _typed_tuple,
        _variable,
        _enumeration,
        _class_made_by_type,
        _class_statement,
        _dataclass,
        _asks_its_name,
    ],
)
def test_what_is_read_from_the_callers_frame(program: Callable[[], Any]) -> None:
    assert "windfall" not in _agrees(program)[0]
