"""Random numbers that are drawn into a tensor in place: in the order in which eager draws them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import windfall


def dropped(x: torch.Tensor) -> torch.Tensor:
    return F.dropout(x.transpose(0, 1), 0.5)


def drawn(x: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(x.transpose(0, 2)).bernoulli_(0.3)


def drawn_by_tensor(x: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(x.permute(2, 0, 1)).bernoulli_(x.sigmoid().permute(2, 0, 1))


def drawn_into_a_part(x: torch.Tensor) -> torch.Tensor:
    y = torch.zeros_like(x)
    y[:, ::2].transpose(0, 2).bernoulli_(0.5)
    y[:, :2].uniform_()
    y[:, 1:].transpose(0, 1).exponential_()
    return y


def normal(x: torch.Tensor) -> torch.Tensor:
    y = torch.zeros_like(x.transpose(0, 2)).normal_()
    y[:, 1:].normal_()  # whose stream depends on the parts being apart
    return y


PROGRAMS: list[Callable[..., Any]] = [dropped, drawn, drawn_by_tensor, drawn_into_a_part, normal]


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_stream_is_eagers(program: Callable[..., Any]) -> None:
    compiled = windfall.compile(program)
    for n in (5, 6, 9, 3):
        x = torch.randn(4, n, 8)
        torch.manual_seed(n)
        expected = program(x)
        after = torch.rand(3)
        torch.manual_seed(n)
        torch.testing.assert_close(compiled(x), expected, rtol=0, atol=0, check_stride=True)
        torch.testing.assert_close(torch.rand(3), after, rtol=0, atol=0)


def test_a_layer_with_dropout_trains_as_eager_does() -> None:
    torch.manual_seed(0)
    block = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True)
    compiled = windfall.compile(block)
    x = torch.randn(2, 5, 8)
    torch.manual_seed(3)
    expected = block(x)
    torch.manual_seed(3)
    found = compiled(x)
    torch.testing.assert_close(found, expected)
    parameters = list(block.parameters())
    ours = torch.autograd.grad(found.square().sum(), parameters)
    theirs = torch.autograd.grad(expected.square().sum(), parameters)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
