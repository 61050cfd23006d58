"""Checks by themselves: what each implies, and which guards need not be said."""

from __future__ import annotations

import enum
import re
import types
from typing import Any

import pytest
import torch

from tests.runtime.programs import tensor_guard
from windfall.ir.guard import (
    BindsSymbol,
    Check,
    Compares,
    ComparesWith,
    Equals,
    Guard,
    HasKey,
    IdentityIs,
    KeysAre,
    LengthIs,
    TypeIs,
    simplified,
)
from windfall.ir.source import Item, Slot
from windfall.ir.symint import size_symbol

X = Slot(0, "x")


class Plain:
    """Objects whose class can be replaced."""


class Other:
    """What it can be replaced by."""


class Colour(enum.Enum):
    RED = 1


def guard(check: Check) -> Guard:
    return Guard(X, check, "a test")


def _named(one: Any) -> str:
    """The same in every process: an address is not."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(one))


@pytest.mark.parametrize(
    ("check", "kind"),
    [
        (Equals(3), int),
        (Equals(True), bool),
        (Equals((1, 2)), tuple),
        (Equals(None), type(None)),
        (IdentityIs(len), types.BuiltinFunctionType),
        (IdentityIs(Plain), type),
        (BindsSymbol(size_symbol("s0", 4)), int),
        (Compares("<", 2.0, True), float),
        (ComparesWith("<", Slot(1, "y"), True), float),
        (KeysAre(("a",)), dict),
        (tensor_guard(X, torch.zeros(2)).check, torch.Tensor),
        (tensor_guard(X, torch.nn.Parameter(torch.zeros(2))).check, torch.nn.Parameter),
        (TypeIs(Plain), Plain),
    ],
    ids=_named,
)
def test_a_class_that_is_implied_is_not_said(check: Check, kind: type) -> None:
    said = [guard(TypeIs(kind)), guard(check)]
    assert simplified(said) == said[1:]
    assert simplified(reversed(said)) == said[1:]
    wrong = [guard(TypeIs(Other)), guard(check)]
    assert simplified(wrong) == wrong, "they contradict each other, and so never hold"


@pytest.mark.parametrize(
    "check",
    [IdentityIs(Plain()), IdentityIs(types), Equals(Colour.RED), HasKey("a", True)],
    ids=_named,
)
def test_a_class_that_may_be_another_is_said(check: Check) -> None:
    value: Any = check.key if isinstance(check, HasKey) else check.value  # type: ignore[attr-defined]
    said = [guard(TypeIs(type(value))), guard(check)]
    assert simplified(said) == said


def test_an_object_may_be_given_another_class() -> None:
    value = Plain()
    guards = simplified([guard(TypeIs(Plain)), guard(IdentityIs(value))])
    assert [one.check.holds(value) for one in guards] == [True, True]
    value.__class__ = Other  # type: ignore[assignment]
    assert [one.check.holds(value) for one in guards] == [False, True]


def test_a_length_takes_the_class_with_it() -> None:
    (found,) = simplified([guard(TypeIs(list)), guard(LengthIs(3))])
    assert found.check == LengthIs(3, list) and str(found) == "L['x'] is list of length 3"
    (found,) = simplified([guard(LengthIs(3))])
    assert found.check == LengthIs(3) and str(found) == "L['x'] has length 3"


def test_what_is_said_of_another_source_is_kept() -> None:
    said = [guard(TypeIs(int)), Guard(Item(X, 0), Equals(3), "")]
    assert simplified(said) == said
    twice = [Guard(Item(X, 0), TypeIs(int), ""), Guard(Item(Slot(0, "x"), 0), TypeIs(int), "")]
    assert simplified(twice) == twice[:1]


def test_a_check_without_a_predicate_or_a_text_cannot_be_made() -> None:
    with pytest.raises(TypeError, match="Nameless needs `holds`"):

        class Nameless(Check):
            def __str__(self) -> str:
                return "says nothing"

    with pytest.raises(TypeError, match="`__str__`"):

        class Silent(Check):
            def holds(self, value: Any, *others: Any) -> bool:
                return True
