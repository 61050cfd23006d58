"""The harness itself: it finds no difference where there is none, and each kind where there is."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.programs.case import Call, Case, Program, cases_of, ramp
from tests.programs.compare import compare, compare_worlds
from tests.programs.subjects import Uncompiled

ALL = cases_of("cases") + cases_of("rows")


@pytest.mark.conformance
@pytest.mark.parametrize("case", ALL, ids=str)
def test_uncompiled_equals_itself(case: Case) -> None:
    outcome = compare(case, Uncompiled())
    assert not outcome.wrong, str(outcome)


def test_the_forty_are_there() -> None:
    numbers = [case.about.number for case in cases_of("cases")]
    assert set(range(1, 41)) <= set(numbers)
    assert len(numbers) == len(set(numbers))


class Changed(Uncompiled):
    """A compiler that is wrong in one way."""

    def __init__(self, wrong: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        self.wrong = wrong

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return self.wrong(function)


class Holder:
    pass


HELD = Holder()


def program() -> Program:
    def f(x: torch.Tensor, seen: list[Any], fail: bool) -> Any:
        seen.append(1)
        if fail:
            raise ValueError("fails", 1)
        return x + 1, seen, {"a": 1, "b": 2}

    return Program(f, [Call(ramp(3), [], False), Call(ramp(3), [], True)], state={"held": []})


class OneWorld:
    """A world that is not read from a file."""

    file = __file__

    def __init__(self) -> None:
        self.program = program()
        self.module = HELD

    def close(self) -> None:
        pass


def changed_result(change: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda f: lambda *args: change(f(*args))


def _after(effect: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(f: Callable[..., Any]) -> Callable[..., Any]:
        def g(*args: Any) -> Any:
            effect(*args)
            return f(*args)

        return g

    return wrong


def _other_error(f: Callable[..., Any]) -> Callable[..., Any]:
    def g(*args: Any) -> Any:
        try:
            return f(*args)
        except ValueError as error:
            raise ValueError("fails", 2) from error

    return g


WRONG = {
    "value": changed_result(lambda r: (r[0] + 1, *r[1:])),
    "metadata": changed_result(lambda r: (r[0].double(), *r[1:])),
    "strides": changed_result(lambda r: (torch.stack([r[0], r[0]], 1)[:, 0], *r[1:])),
    "view": changed_result(lambda r: (r[0].view(3), *r[1:])),
    "type": changed_result(list),
    "length": changed_result(lambda r: r[:2]),
    "identity": changed_result(lambda r: (r[0], list(r[1]), r[2])),
    "order": changed_result(lambda r: (*r[:2], {"b": 2, "a": 1})),
    "keys": changed_result(lambda r: (*r[:2], {"a": 1})),
    "version": _after(lambda x, *rest: x.add_(0)),
    "printed": _after(lambda *args: print("more")),
    "warning": _after(lambda *args: warnings.warn("more", stacklevel=1)),
    "ambient": _after(lambda *args: random.random()),
    "exception": lambda f: lambda *args: (_ for _ in ()).throw(KeyError("new")),
    "traceback": _other_error,
}


@pytest.mark.parametrize("aspect", WRONG)
def test_each_kind_of_difference_is_found(aspect: str) -> None:
    outcome = compare_worlds(OneWorld, Changed(WRONG[aspect]))
    found = {one.aspect for one in outcome.differences}
    assert aspect in found or (aspect == "traceback" and "line" in found), str(outcome)


def test_equal_programs_have_no_difference() -> None:
    assert not compare_worlds(OneWorld, Uncompiled()).wrong
