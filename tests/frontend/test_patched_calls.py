"""What `nn.Module.__call__` calls may be replaced: of one module, of a class, of all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import windfall


class Own(nn.Linear):
    pass


PLACES: dict[str, Callable[[Own], Any]] = {
    "module": lambda one: one,
    "class": lambda one: Own,
    "base": lambda one: nn.Linear,
    "all": lambda one: nn.Module,
}


@pytest.mark.parametrize("name", ["_call_impl", "_wrapped_call_impl", "forward"])
@pytest.mark.parametrize("place", PLACES)
def test_replaced_between_calls(place: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = Own(3, 3)
    compiled = windfall.compile(lambda x: layer(x) + 1)
    x = torch.ones(3)

    def other(*arguments: Any) -> Any:
        return arguments[-1] * 100

    for _ in range(2):
        torch.testing.assert_close(compiled(x), layer(x) + 1)
        with monkeypatch.context() as patched:
            patched.setattr(PLACES[place](layer), name, other, raising=False)
            torch.testing.assert_close(compiled(x), layer(x) + 1)
    told = windfall.explanation(compiled)
    assert told.graphs and not told.fallbacks
