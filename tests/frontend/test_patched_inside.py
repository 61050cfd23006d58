"""What torch's own Python functions call, replaced before or after a capture, and put back."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import windfall

RELU, NORM, LINEAR = nn.ReLU(), nn.LayerNorm(4), nn.Linear(4, 4)
ATTENTION = nn.MultiheadAttention(4, 2)
# How it is reached; what is replaced: an attribute of a namespace.
WAYS: dict[str, tuple[Callable[[Any], Any], Any, str]] = {
    "function": (lambda x: torch.softmax(x, 0), torch, "softmax"),
    "method": (lambda x: x.softmax(0), torch.Tensor, "softmax"),
    "F": (lambda x: F.relu(x), F, "relu"),
    "packet": (lambda x: torch.ops.aten.relu(x), torch.ops.aten, "relu"),
    "overload": (lambda x: torch.ops.aten.relu.default(x), torch.ops.aten.relu, "default"),
    "forward": (lambda x: LINEAR(x), nn.Linear, "forward"),
    "F of a module": (lambda x: RELU(x), F, "relu"),
    "function in F": (lambda x: F.relu(x), torch, "relu"),
    "method in F": (lambda x: F.softmax(x, 0), torch.Tensor, "softmax"),
    "private in F": (lambda x: F.mse_loss(x, x + 1), torch._C._nn, "mse_loss"),
    "function in F of a module": (lambda x: NORM(x), torch, "layer_norm"),
    "helper": (lambda x: F.mse_loss(x, x + 1), F._Reduction, "get_enum"),
    "two deep": (lambda x: F.normalize(x), torch.linalg, "vector_norm"),
    "F in F": (lambda x: ATTENTION(x, x, x)[0], F, "linear"),
    "in a method": (lambda x: x.norm(), torch, "norm"),
    "behind a method": (lambda x: torch.split(x, 2)[0], torch.Tensor, "split"),
    "chosen": (lambda x: F.max_pool1d(x, 2), torch, "max_pool1d"),
}


def _replaced(*given: Any, **named: Any) -> Any:
    return torch.full((2,), 7.0)


REPLACEMENTS: dict[str, Callable[[], Any]] = {
    "function": lambda: _replaced,
    "partial": lambda: functools.partial(_replaced, 1),
    "torch's": lambda: torch.sigmoid,
}


def _outcome(program: Callable[..., Any], x: torch.Tensor) -> Any:
    try:
        return program(x)
    except Exception as error:
        return type(error)


def _agree(program: Callable[..., Any], compiled: Callable[..., Any], x: torch.Tensor) -> None:
    wanted, found = _outcome(program, x), _outcome(compiled, x)
    if isinstance(wanted, torch.Tensor):
        torch.testing.assert_close(found, wanted)
    else:
        assert found == wanted


@pytest.mark.parametrize("kind", REPLACEMENTS)
@pytest.mark.parametrize("way", WAYS)
def test_replaced_after(way: str, kind: str) -> None:
    program, owner, name = WAYS[way]
    compiled, x = windfall.compile(program), torch.randn(3, 4)
    for _ in range(2):
        _agree(program, compiled, x)
    entries = len(windfall.explanation(compiled).graphs)
    with mock.patch.object(owner, name, REPLACEMENTS[kind]()):
        for _ in range(2):
            _agree(program, compiled, x)
    _agree(program, compiled, x)
    again = windfall.compile(program)
    with mock.patch.object(owner, name, REPLACEMENTS[kind]()):
        _agree(program, again, x)
    _agree(program, again, x)
    before = windfall.explanation(compiled)
    compiled(x)
    assert len(windfall.explanation(compiled).graphs) == len(before.graphs) >= entries


@pytest.mark.parametrize("way", [way for way in WAYS if way != "packet"])
def test_replaced_before(way: str) -> None:
    """The node of a graph, by which graphs are found again, is torch's own function."""
    program, owner, name = WAYS[way]
    compiled, x = windfall.compile(program), torch.randn(3, 4)
    with mock.patch.object(owner, name, _replaced):
        for _ in range(2):
            _agree(program, compiled, x)
    for _ in range(2):
        _agree(program, compiled, x)


def test_what_is_not_replaced_is_a_node() -> None:
    compiled = windfall.compile(WAYS["method in F"][0])
    compiled(torch.randn(3, 4))
    report = windfall.explanation(compiled)
    assert not report.breaks
    assert any(node.target is F.softmax for node in report.graphs[0].graph.nodes)
