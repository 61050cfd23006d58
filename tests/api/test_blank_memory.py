"""Memory that nobody has written has eager's values where algorithms are to be deterministic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

import windfall


@contextmanager
def deterministic(on: bool = True) -> Iterator[None]:
    torch.use_deterministic_algorithms(on)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


DTYPES = (
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.bool),
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
)
MADE: dict[str, Callable[[Tensor, torch.dtype], Tensor]] = {
    "empty": lambda x, dtype: torch.empty(3, 2, dtype=dtype),
    "empty, channels last": lambda x, dtype: torch.empty(
        2, 3, 4, 5, dtype=dtype, memory_format=torch.channels_last
    ),
    "empty of nothing": lambda x, dtype: torch.empty((), dtype=dtype),
    "empty of a size": lambda x, dtype: torch.empty(x.shape[0], 2, dtype=dtype),
    "empty_like": lambda x, dtype: torch.empty_like(x, dtype=dtype),
    "empty_like, turned": lambda x, dtype: torch.empty_like(x.t(), dtype=dtype),
    "new_empty": lambda x, dtype: x.new_empty(2, 2, dtype=dtype),
    "empty_strided": lambda x, dtype: torch.empty_strided((2, 2), (1, 3), dtype=dtype),
    "new_empty_strided": lambda x, dtype: x.new_empty_strided((2,), (2,), dtype=dtype),
    "empty_permuted": lambda x, dtype: torch.empty_permuted((2, 3), (1, 0), dtype=dtype),
    "written in part": lambda x, dtype: torch.empty(4, dtype=dtype).index_fill_(
        0, torch.tensor([1]), 1
    ),
    "written": lambda x, dtype: torch.empty(4, dtype=dtype).fill_(1),
}


def same(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True, check_stride=True)


@pytest.mark.parametrize("made", MADE)
def test_it_is_filled(made: str) -> None:
    def program(x: Tensor) -> tuple[Tensor, ...]:
        return tuple(MADE[made](x, dtype) for dtype in DTYPES)

    compiled = windfall.compile(program)
    x = torch.ones(3, 2)
    for _ in range(2):  # the same graph, but for what memory holds
        compiled(x)
        with deterministic():
            for ours, theirs in zip(compiled(x), program(x), strict=True):
                same(ours, theirs)
    told = windfall.explanation(compiled)
    assert len(told.graphs) == 2 and not told.breaks


def test_it_is_filled_where_sizes_vary() -> None:
    compiled = windfall.compile(lambda x: x.new_empty(x.shape[0] + 1), dynamic=True)
    with deterministic():
        for size in (3, 4, 5):
            same(compiled(torch.ones(size)), torch.full((size + 1,), torch.nan))
    assert len(windfall.explanation(compiled).graphs) == 1


def test_it_costs_nothing_otherwise() -> None:
    """No node of its own where nobody asks; one that disappears where all is written."""

    def program(x: Tensor) -> Tensor:
        y = torch.empty_like(x)
        y.copy_(x + 1)
        return y

    compiled = windfall.compile(program)
    x = torch.ones(3)
    assert torch.equal(compiled(x), x + 1)
    with deterministic():
        assert torch.equal(compiled(x), x + 1)
    told = windfall.explanation(compiled)
    assert len(told.graphs) == len(told.kernels()) == 2
