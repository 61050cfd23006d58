"""Calls whose results nobody reads: what eager raises of their data, and what it draws, stays."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch.testing._internal.common_methods_invocations import op_db

import windfall
from tests.conformance.refused_data import calls_of, may_be_dead, refused
from windfall.ops.registry import lookup

SAMPLED = ("linalg.qr", "cumsum", "fft.rfft", "nn.functional.conv2d", "unique", "histc", "median")


@pytest.mark.parametrize("name", SAMPLED)
@pytest.mark.filterwarnings("ignore")
def test_what_may_be_dead_refuses_no_data(name: str) -> None:
    calls = calls_of([info for info in op_db if info.name == name], 3)
    assert [text for text in map(refused, calls) if text] == []


@pytest.mark.conformance
@pytest.mark.filterwarnings("ignore")
def test_whatever_may_be_dead_refuses_no_data() -> None:
    calls = calls_of(op_db)
    assert len({call[0] for call in calls}) > 100
    assert [text for text in map(refused, calls) if text] == []


def test_a_refusal_is_seen() -> None:
    func = torch.ops.aten.cholesky.default
    assert not may_be_dead(func)
    assert "positive" in refused((func, (torch.eye(3),), {}))


def test_an_op_of_which_nobody_says_anything_may_refuse() -> None:
    aten = torch.ops.aten
    for told in (aten.cholesky.default, aten.lu_unpack.default, aten.linalg_inv_ex.default):
        assert lookup(told).refuses, told
    for calm in (aten.linalg_qr.default, aten.mm.default, aten.slice.Tensor):
        assert not lookup(calm).refuses, calm
    assert not lookup(aten.reflection_pad3d_backward.default).refuses
    assert lookup(aten.rrelu_with_noise_functional.default).random


DRAWS: dict[str, Callable[[torch.Tensor], object]] = {
    "rrelu": lambda x: F.rrelu(-x, training=True),
    "multinomial": lambda x: torch.multinomial(x, 2),
    "dropout": lambda x: F.dropout(x),
    "fractional pooling": lambda x: F.fractional_max_pool2d(x.expand(1, 1, 5, 5), 2, output_size=2),
    "svd_lowrank": lambda x: torch.svd_lowrank(x.outer(x), 2),
    "binomial": lambda x: torch.binomial(x, x / 9),
    "a permutation": lambda x: torch.randperm(3),
}


@pytest.mark.parametrize("name", DRAWS)
def test_what_nobody_reads_is_drawn(name: str) -> None:
    draw = DRAWS[name]

    def program(x: torch.Tensor) -> torch.Tensor:
        draw(x)
        return x + torch.rand(5)

    compiled = windfall.compile(program, options={"strict": True})
    answers = []
    for function in (program, compiled, compiled):
        torch.manual_seed(0)
        answers.append(function(torch.arange(1.0, 6.0)))
    assert torch.equal(answers[0], answers[1])
    assert torch.equal(answers[0], answers[2])
    assert windfall.explanation(compiled).graphs
