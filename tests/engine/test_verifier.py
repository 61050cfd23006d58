"""The verifier of a recorded graph takes exactly the graphs of the same key."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from windfall import torch_abi
from windfall.engine.backward_graph import BackwardGraph
from windfall.engine.native import native_checks
from windfall.engine.verify import Verifier, verifier

x = torch.arange(6.0).reshape(2, 3).requires_grad_()
y = torch.ones(3).requires_grad_()
z = torch.ones(2, 1).requires_grad_()
w = torch.nn.Parameter(torch.ones(3))
c, d = torch.randn(2, 3), torch.randn(2, 3)


def _hooked(kind: str) -> torch.Tensor:
    h = x.sin()
    node: Any = h.grad_fn
    register: dict[str, Callable[[], Any]] = {
        "tensor": lambda: h.register_hook(lambda g: None),
        "retain": h.retain_grad,
        "before": lambda: node.register_prehook(lambda g: None),
        "behind": lambda: node.register_hook(lambda i, o: None),
    }
    register[kind]()
    return h.sum()


def _unpacked() -> torch.Tensor:
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        return x.sin().sum()


def _leaf(kind: str) -> torch.Tensor:
    leaf = torch.ones(2, 3, requires_grad=True)
    if kind == "hook":
        leaf.register_hook(lambda g: None)
    elif kind == "post":
        leaf.register_post_accumulate_grad_hook(lambda p: None)
    return leaf.sin().sum()


def _saved(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return torch.addcmul(torch.zeros(2, 3), x * one, other).sum()


def _overwritten() -> torch.Tensor:
    h = x.exp()
    s = h.sum()
    h.mul_(2)
    return s


MAKERS: dict[str, Callable[[], torch.Tensor]] = {
    "sin": lambda: x.sin().sum(),
    "cos": lambda: x.cos().sum(),
    "sin of columns": lambda: x.sin().sum(0).sum(),
    "sin of rows": lambda: x.sin().sum(1).sum(),
    "sin of rows, kept": lambda: x.sin().sum(1, keepdim=True).sum(),
    "product": lambda: (x * y).sum(),
    "product with a column": lambda: (x * z).sum(),
    "product with a parameter": lambda: (x * w).sum(),
    "product turned": lambda: (y * x).sum(),
    "square": lambda: (x * x).sum(),
    "product with constant": lambda: (x * c).sum(),
    "product with constant of other strides": lambda: (x * c.t().contiguous().t()).sum(),
    "product with double": lambda: (x * c.double()).sum(),
    "by 2": lambda: (x * 2).sum(),
    "by 2.0": lambda: (x * 2.0).sum(),
    "by 3.0": lambda: (x * 3.0).sum(),
    "by 0.0": lambda: (x * 0.0).sum(),
    "by -0.0": lambda: (x * -0.0).sum(),
    "by tensor 2": lambda: (x * torch.tensor(2.0)).sum(),
    "cubed": lambda: (x**3).sum(),
    "cubed, float": lambda: (x**3.0).sum(),
    "two products": lambda: ((x * c) * d).sum(),
    "two products of one": lambda: ((x * c) * c).sum(),
    "both saved": lambda: _saved(c, d),
    "both saved, one": lambda: _saved(c, c),
    "two paths": lambda: (x.sin() + x.cos()).sum(),
    "two paths, one": lambda: (lambda h: (h + h).sum())(x.sin()),
    "two paths, equal": lambda: (x.sin() + x.sin()).sum(),
    "cat": lambda: torch.cat([x, x.sin()]).sum(),
    "cat with a constant": lambda: torch.cat([x.sin(), c]).sum(),
    "indexed": lambda: x[[0, 1]].sum(),
    "indexed by column": lambda: x[:, [0, 1, 2]].sum(),
    "softmax": lambda: F.softmax(x, 0).sum(),
    "softmax of rows": lambda: F.softmax(x, 1).sum(),
    "hook": lambda: _hooked("tensor"),
    "retained": lambda: _hooked("retain"),
    "hook before": lambda: _hooked("before"),
    "hook behind": lambda: _hooked("behind"),
    "unpacked": _unpacked,
    "leaf": lambda: _leaf(""),
    "leaf with hook": lambda: _leaf("hook"),
    "leaf with hook behind": lambda: _leaf("post"),
    "overwritten": _overwritten,
    "exp": lambda: x.exp().sum(),
    "layer norm": lambda: F.layer_norm(x, (3,), w).sum(),
    "layer norm, other epsilon": lambda: F.layer_norm(x, (3,), w, eps=1e-3).sum(),
}


def _verifier(loss: torch.Tensor) -> tuple[BackwardGraph, Verifier]:
    graph = BackwardGraph([torch_abi.edge_of(loss)])
    made = verifier(graph, ())
    assert made is not None
    return graph, made


@pytest.mark.parametrize("name", MAKERS)
def test_what_matches_has_the_key(name: str) -> None:
    graph, made = _verifier(MAKERS[name]())
    assert made.match([torch_abi.edge_of(MAKERS[name]())], ()) is not None, made.text
    for other, make in MAKERS.items():
        loss = make()
        found = BackwardGraph([torch_abi.edge_of(loss)])
        equal = (found.keys, found.roots) == (graph.keys, graph.roots)
        matched = made.match([torch_abi.edge_of(loss)], ())
        assert (matched is not None) == equal, f"{other}\n{made.text}"
        if matched is not None:
            assert list(matched.nodes) == found.nodes


def test_what_was_freed_does_not_match() -> None:
    _, made = _verifier(x.exp().sum())
    loss = x.exp().sum()
    assert made.match([torch_abi.edge_of(loss)], ()) is not None
    loss.backward()
    assert made.match([torch_abi.edge_of(loss)], ()) is None


def test_places_that_are_asked_for() -> None:
    h = x.sin()
    loss = (h * y).sum()
    graph = BackwardGraph([torch_abi.edge_of(loss)])
    made = verifier(graph, [graph.edge(torch_abi.edge_of(h)), None])
    assert made is not None
    roots = [torch_abi.edge_of(loss)]
    other = torch.ones(3, requires_grad=True)
    edges = [torch_abi.edge_of(one) for one in (h, x, y, other)]
    assert made.match(roots, [edges[0], edges[3]]) is not None
    assert made.match(roots, [edges[0], edges[2]]) is None
    assert made.match(roots, [edges[1], edges[3]]) is None
    assert made.match(roots, [edges[3], edges[3]]) is None


@pytest.mark.parametrize("count", [1, 2, 100, 700])
def test_addresses_that_come_twice_are_found(count: int) -> None:
    checks = native_checks()
    assert checks is not None
    drawn = random.Random(count)
    words = 1 << (4 * count).bit_length()

    def told(addresses: list[int]) -> int:
        row, table = (ctypes.c_uint64 * count)(*addresses), (ctypes.c_uint64 * words)()
        return checks.distinct(ctypes.addressof(row), count, ctypes.addressof(table), words - 1)

    certain = 0
    for _ in range(20):
        apart = [0x7F0000000000 + 16 * one for one in drawn.sample(range(1 << 20), count)]
        assert told(apart) <= 0
        certain += not told(apart)
        if count > 1:
            first, second = drawn.sample(range(count), 2)
            apart[first] = apart[second]
            found = told(apart)
            assert found == max(first, second) + 1 or found < 0
    assert certain > 15, "a table is seldom too full"


def test_a_full_table_says_that_it_cannot_tell() -> None:
    checks = native_checks()
    assert checks is not None
    row, table = (ctypes.c_uint64 * 2)(8, 16), (ctypes.c_uint64 * 1)()
    assert checks.distinct(ctypes.addressof(row), 2, ctypes.addressof(table), 0) < 0
