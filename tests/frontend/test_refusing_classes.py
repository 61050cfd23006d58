"""Classes that refuse to be asked for instances: the question is asked natively, as eager does."""

from __future__ import annotations

from typing import Any, Protocol, TypedDict

import pytest
import torch

import windfall


class Settings(TypedDict, total=False):
    factor: int


class Sized(Protocol):
    def size(self) -> int: ...


@pytest.mark.parametrize("cls", [Settings, Sized])
@pytest.mark.parametrize("question", [isinstance, lambda value, cls: issubclass(type(value), cls)])
def test_a_refusal_is_eagers(cls: type, question: Any) -> None:
    def function(x):
        x = x + 1
        try:
            return x if question({}, cls) else -x
        except TypeError as error:
            return x * 2, str(error)

    x = torch.ones(2)
    compiled = windfall.compile(function)
    for _ in range(2):
        assert str(compiled(x)) == str(function(x))
    told = windfall.explanation(compiled)
    assert not told.fallbacks and {one.number for one in told.breaks} <= {6}
    assert told.graphs
