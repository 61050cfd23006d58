"""Inputs that share memory, one of them written: views of one base inside the graph, natively."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import windfall
from windfall.ir.dtype import TensorType
from windfall.ir.placement import meet

View = Callable[[Tensor], Tensor]
# Two views of one memory of 6 × 6.
SHARED: dict[str, tuple[View, View]] = {
    "itself and its data": (lambda b: b, lambda b: b.data),
    "itself, detached": (lambda b: b, lambda b: b.detach()),
    "base and part": (lambda b: b, lambda b: b[2:5]),
    "part and base": (lambda b: b[1:, 2:], lambda b: b),
    "one element": (lambda b: b.view(-1)[:19], lambda b: b.view(-1)[18:]),
    "windows": (lambda b: b.view(-1)[:35], lambda b: b.view(-1)[1:]),
    "transposed": (lambda b: b, lambda b: b.t()),
    "parts of two dimensions": (lambda b: b[:4, :4], lambda b: b[2:, 2:]),
    "row and column": (lambda b: b[2], lambda b: b[:, 3]),
    "diagonal": (lambda b: b.diagonal(), lambda b: b),
    "steps": (lambda b: b.view(-1)[::2], lambda b: b.view(-1)[::3]),
}
APART: dict[str, tuple[View, View]] = {
    "columns": (lambda b: b[:, 0], lambda b: b[:, 1]),
    "even and odd": (lambda b: b.view(-1)[::2], lambda b: b.view(-1)[1::2]),
    "quarters": (lambda b: b[:3, :3], lambda b: b[:3, 3:]),
    "halves": (lambda b: b[:3], lambda b: b[3:]),
}


def _first(x: Tensor, y: Tensor) -> Any:
    x.mul_(2)
    return y + 1


def _second(x: Tensor, y: Tensor) -> Any:
    y.add_(1)
    return x * 2, y


def _both(x: Tensor, y: Tensor) -> Any:
    x.mul_(2)
    y.add_(1)
    x.sub_(0.5)
    return x, y


def _in_turn(x: Tensor, y: Tensor) -> Any:
    before = y.sum()
    x[0] = 7
    between = y.sum()
    y[-1] = 3
    return before, between, x.sum(), y.clone()


def _views(x: Tensor, y: Tensor) -> Any:
    x.mul_(2)
    return y[1:], x[:1], y.sum()


def _data(x: Tensor, y: Tensor) -> Any:
    x.data.mul_(2)
    y.mul_(3)
    return x + 0


PROGRAMS = {one.__name__: one for one in (_first, _second, _both, _in_turn, _views, _data)}


def outcome(function: Callable[..., Any], views: tuple[View, View]) -> list[Any]:
    torch.manual_seed(5)
    base = torch.randn(6, 6)
    x, y = (one(base) for one in views)
    seen: list[Any] = []
    for _ in range(2):
        found = function(x, y)
        parts = found if isinstance(found, tuple) else (found,)
        memory = [
            one.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() for one in parts
        ]
        same = [one is x for one in parts] + [one is y for one in parts]
        seen.append((memory, same, x._version, y._version, base._version))
        seen += [*(one.clone() for one in parts), base.clone()]
    return seen


def check(name: str, views: tuple[View, View]) -> None:
    compiled = windfall.compile(PROGRAMS[name])
    for mine, theirs in zip(outcome(compiled, views), outcome(PROGRAMS[name], views), strict=True):
        if isinstance(mine, Tensor):
            torch.testing.assert_close(mine, theirs)
        else:
            assert mine == theirs
    explanation = windfall.explanation(compiled)
    assert explanation.fallbacks == []
    assert len(explanation.graphs) == 1  # the second call found the entry of the first


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("views", SHARED)
def test_shared_as_eager(views: str, program: str) -> None:
    with torch.no_grad():
        check(program, SHARED[views])


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("views", APART)
def test_apart_as_eager(views: str, program: str) -> None:
    with torch.no_grad():
        check(program, APART[views])


def test_another_distance_is_another_graph() -> None:
    compiled = windfall.compile(_both)
    for first, second in itertools.product((0, 1, 2), (2, 4, 9)):
        mine, theirs = (torch.arange(20.0) for _ in range(2))
        for function, base in ((compiled, mine), (_both, theirs)):
            function(base[first : first + 8], base[second : second + 8])
        assert torch.equal(mine, theirs)
    assert windfall.explanation(compiled).fallbacks == []


def test_what_needs_a_gradient_is_eagers_and_counted() -> None:
    def run(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        x.mul_(2)
        return (y * w).sum()

    compiled = windfall.compile(run)
    found = []
    for function in (run, compiled):
        base, w = torch.arange(4.0), torch.ones(3, requires_grad=True)
        function(base[:3], base[1:], w).backward()
        found.append((base.tolist(), w.grad.tolist()))
    assert found[0] == found[1]
    assert windfall.explanation(compiled).eager


def test_mixed_types_are_eagers_and_counted() -> None:
    def run(x: Tensor, y: Tensor) -> Tensor:
        x.mul_(2)
        return y + 1

    compiled = windfall.compile(run)
    found = []
    for function in (run, compiled):
        base = torch.arange(4.0)
        found.append((function(base, base.view(torch.int32)), base))
    torch.testing.assert_close(*found)
    assert windfall.explanation(compiled).eager


def test_many_slices_of_one_buffer() -> None:
    def scale(slices: list[Tensor]) -> None:
        for one in slices:
            one.mul_(2)

    base = torch.ones(400, 3)
    compiled = windfall.compile(scale)
    compiled(list(base.unbind(0)))
    assert base.eq(2).all()
    explanation = windfall.explanation(compiled)
    assert explanation.fallbacks == []
    assert not any("distance" in str(one) for one in explanation.graphs[0].guards)


def test_meeting_is_exact() -> None:
    """Against a look at every element."""
    generator = torch.Generator().manual_seed(0)

    def number(high: int) -> int:
        return int(torch.randint(high, (), generator=generator))

    for _ in range(400):
        layouts = [
            ([number(4) + 1 for _ in range(2)], [number(6) + 1 for _ in range(2)]) for _ in range(2)
        ]
        distance = number(30)
        places = [{i * a + j * b for i in range(n) for j in range(m)} for (n, m), (a, b) in layouts]
        wanted = not places[0].isdisjoint({one + distance for one in places[1]})
        types = [TensorType(torch.float32, tuple(n), tuple(s)) for n, s in layouts]
        assert meet(*types, distance * 4) == wanted


def test_a_view_that_is_written_gives_its_base_a_history() -> None:
    """Where autograd sees the write, all that lies there has one afterwards: eager does it."""

    def run(x, rows, z):
        rows.mul_(z)
        return (x * 2).sum(), x.flatten()[::2]

    compiled = windfall.compile(run)
    found = []
    for call in (compiled, run):
        torch.manual_seed(0)
        x = torch.randn(4, 4, dtype=torch.float64)
        z = torch.randn(4, dtype=torch.float64, requires_grad=True)
        loss, part = call(x, x[1:3], z)
        found.append((x.requires_grad, x.is_leaf, part.requires_grad, part.is_leaf))
        loss.backward()
        found.append(z.grad)
    assert found[0] == found[2] == (True, False, True, False)
    torch.testing.assert_close(found[1], found[3])
    assert windfall.explanation(compiled).eager == {"a graph, op by op": 1}
