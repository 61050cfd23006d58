"""Bugs that were found by sweeps and fuzzers, each as the smallest program that shows it."""

from __future__ import annotations

from types import SimpleNamespace

import torch

import windfall


def test_hasattr_is_noticed_when_the_attribute_goes() -> None:
    holder = SimpleNamespace(extra=1, bonus=5)
    doubled = windfall.compile(lambda x: x * 2 if hasattr(holder, "extra") else x)
    scaled = windfall.compile(lambda x: x * getattr(holder, "bonus", 1))
    x = torch.ones(2)
    assert doubled(x).tolist() == [2, 2] and scaled(x).tolist() == [5, 5]
    del holder.extra, holder.bonus
    assert doubled(x).tolist() == [1, 1] and scaled(x).tolist() == [1, 1]
    holder.extra = 2
    assert doubled(x).tolist() == [2, 2]


def test_zeros_without_memory_are_not_read() -> None:
    x = torch.randn(4, 5, requires_grad=True)
    y = windfall.compile(torch.sgn)(x)
    torch.testing.assert_close(y, torch.sgn(x))
    y.sum().backward()
    torch.testing.assert_close(x.grad, torch.zeros(4, 5))


def test_a_recurrent_layer_trains() -> None:
    torch.manual_seed(0)
    layer = torch.nn.LSTM(3, 4)
    compiled = windfall.compile(layer)
    x = torch.randn(5, 2, 3)
    compiled(x)[0].sum().backward()
    ours = [parameter.grad for parameter in layer.parameters()]
    layer.zero_grad()
    layer(x)[0].sum().backward()
    for one, parameter in zip(ours, layer.parameters(), strict=True):
        torch.testing.assert_close(one, parameter.grad)


def test_rows_that_are_gathered_under_a_mask() -> None:
    """The index is loaded for some lanes only: it is a vector, and so is the address."""
    table, rows, x = torch.randn(9, 16), torch.tensor([1, 8, 3]), torch.randn(3, 21)

    def joined(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, table[rows] * 2], dim=-1)

    def padded(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(table[rows], (3, 2)) + x

    for program in (joined, padded):
        compiled = windfall.compile(program, options={"strict": True})
        torch.testing.assert_close(compiled(x), program(x))
