"""A result that is another view of what an op outside of machine code also reads: the op reads it
as it was computed, whatever the shape in which the caller gets it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import windfall

# How the value is seen by the result: of a square one each has other sizes, strides or both.
VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "turned": lambda value: value.t(),
    "in one row": lambda value: value.flatten(),
    "with a size more": lambda value: value.unsqueeze(0),
    "in other sizes": lambda value: value.view(2, 8),
}
# What else reads it, and how that is called.
READERS: dict[str, tuple[Callable[[torch.Tensor, torch.Tensor], torch.Tensor], str]] = {
    "scatter": (lambda value, index: value.scatter(1, index, 0.0), "python call"),
    "index_add": (lambda value, index: value.index_add(0, index[:, 0], value), "python call"),
    "median": (lambda value, index: value.median(1)[0], "native call"),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("view", VIEWS)
def test_an_op_reads_what_was_computed(view: str, reader: str, dynamic: bool) -> None:
    seen, (read, kind) = VIEWS[view], READERS[reader]

    def program(x: torch.Tensor, index: torch.Tensor) -> tuple[Any, ...]:
        value = x + 1
        return seen(value), read(value, index)

    compiled = windfall.compile(program, dynamic=dynamic)
    x, index = torch.randn(4, 4), torch.tensor([[1], [0], [2], [0]])
    expected, given = program(x, index), compiled(x, index)
    for one, other in zip(expected, given, strict=True):
        assert torch.equal(one, other)
        assert one.stride() == other.stride()
    explanation = windfall.explanation(compiled)
    assert not explanation.fallbacks
    assert not explanation.breaks
    assert any(one.kind == kind for one in explanation.kernels())
