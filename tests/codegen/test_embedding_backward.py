"""The backward of embeddings: rows added into zeros, bit by bit as eager adds them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import windfall


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("integer", [torch.int64, torch.int32])
@pytest.mark.parametrize(
    ("shape", "rows", "columns", "padding"),
    [
        ((4,), 5, 3, None),
        ((2, 7), 9, 19, 3),
        ((3, 4, 5), 40, 64, 0),
        ((), 4, 8, None),
        ((2, 64), 8192, 96, 0),  # work enough for several threads
    ],
)
def test_as_eager(
    threads: int,
    dtype: torch.dtype,
    integer: torch.dtype,
    shape: tuple[int, ...],
    rows: int,
    columns: int,
    padding: int | None,
) -> None:
    torch.manual_seed(0)
    embedding = torch.nn.Embedding(rows, columns, padding_idx=padding, dtype=dtype)
    indices = torch.randint(0, rows, shape).to(integer)
    if indices.numel() > 3:
        indices.view(-1)[:3] = indices.view(-1)[0].item()  # one row, several times
    weights = torch.randn(*shape, columns, dtype=dtype)

    def loss(indices: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        return (embedding(indices) * 2 * weights).sum()

    (expected,) = torch.autograd.grad(loss(indices, weights), [embedding.weight])
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        compiled: Any = windfall.compile(loss, options={"strict": True})
        (actual,) = torch.autograd.grad(compiled(indices, weights), [embedding.weight])
    finally:
        torch.set_num_threads(before)
    assert torch.equal(actual, expected)


def test_by_frequency_and_sizes_that_vary() -> None:
    embedding = torch.nn.Embedding(11, 6, scale_grad_by_freq=True)
    plain = torch.nn.Embedding(11, 6)
    compiled: Any = windfall.compile(lambda i: embedding(i).sin().sum() + plain(i).sin().sum())
    for length in (3, 5, 9, 17):
        indices = torch.randint(0, 11, (length,))
        loss = embedding(indices).sin().sum() + plain(indices).sin().sum()
        leaves = [embedding.weight, plain.weight]
        expected = torch.autograd.grad(loss, leaves)
        actual = torch.autograd.grad(compiled(indices), leaves)
        torch.testing.assert_close(actual, expected)
