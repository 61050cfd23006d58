"""Backward graphs of our own compiled regions are part of the pass's program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import windfall
from tests.engine.scenarios import difference, grads, leaf, raised, seen
from windfall.engine.engine import BY_TORCH, RECORDED, REPLAYED

Step = Callable[[int], Any]
Compile = Callable[[Any], Any]
CASES: dict[str, Callable[[Compile], Step]] = {}


def case(make: Callable[[Compile], Step]) -> Callable[[Compile], Step]:
    CASES[make.__name__] = make
    return make


def first(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x @ w) * 2


def second(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.sin(x @ w).sum()


@case
def two_regions(compile: Compile) -> Step:
    one, two = compile(first), compile(second)
    w, v, x = leaf(4, 4), leaf(4, 4), torch.randn(3, 4)

    def step(time: int) -> Any:
        two(one(x, w) + 1, v).backward()
        return grads(w, v)

    return step


@case
def sparse_gradient(compile: Compile) -> Step:
    """No graph holds it: our node is called live."""
    table = torch.nn.EmbeddingBag(7, 3, sparse=True)
    run = compile(lambda rows: table(rows).sin().sum())

    def step(time: int) -> Any:
        table.weight.grad = None
        run(torch.tensor([[1, 2], [2, 5]])).backward()
        return table.weight.grad.to_dense()  # type: ignore[union-attr]

    return step


@case
def complex_gradient(compile: Compile) -> Step:
    run = compile(lambda x, w: (x * w).abs().sum())
    x, w = torch.randn(3, dtype=torch.complex64), torch.randn(3, dtype=torch.complex64)
    w.requires_grad_()

    def step(time: int) -> Any:
        run(x, w).backward()
        return grads(w)

    return step


@case
def a_break_inside(compile: Compile) -> Step:
    log: list[int] = []

    def both(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        h = first(x, w)
        windfall.graph_break()
        log.append(len(h))
        return second(h, v)

    run = compile(both)
    w, v, x = leaf(4, 4), leaf(4, 4), torch.randn(3, 4)

    def step(time: int) -> Any:
        run(x, w, v).backward()
        return grads(w, v)

    return step


@case
def several_results(compile: Compile) -> Step:
    run = compile(lambda x, w: ((x @ w).sin(), (x * 2).cos(), x @ w + 1))
    w, x = leaf(4, 4), leaf(3, 4)

    def step(time: int) -> Any:
        one, two, three = run(x * 1, w)
        ((one * two) if time % 2 else (one * three)).sum().backward()
        return grads(w, x)

    return step


@case
def hooks_between(compile: Compile) -> Step:
    one, two = compile(first), compile(second)
    w, v, x = leaf(4, 4), leaf(4, 4), torch.randn(3, 4)
    log: list[Any] = []

    def step(time: int) -> Any:
        log.clear()
        h = one(x, w)
        h.register_hook(lambda g: log.append(g.clone()) or g * (time + 1))
        two(h, v).backward()
        return list(log), grads(w, v)

    return step


@case
def freed_and_overwritten(compile: Compile) -> Step:
    run = compile(second)
    v = leaf(4, 4)

    def step(time: int) -> Any:
        h = torch.randn(3, 4)
        loss = run(h, v)
        if time == 2:
            h.mul_(2)
        said = raised(lambda: loss.backward(retain_graph=time % 2 == 0))[:30]
        return said, raised(loss.backward)[:30], v.grad is None, len(grads(v))

    return step


@case
def tangents_of_other_strides(compile: Compile) -> Step:
    run = compile(first)
    w, x = leaf(4, 4), leaf(3, 4)

    def step(time: int) -> Any:
        h = run(x, w)
        (h.t() * torch.arange(3.0)).sum().backward()
        h = run(x, w)
        h.expand(2, 3, 4).sum(0).sum().backward()
        return grads(w, x)

    return step


@case
def one_tensor_twice(compile: Compile) -> Step:
    run = compile(lambda x, y: (x * y.sin()).sum())
    x, y = leaf(4), leaf(4)

    def step(time: int) -> Any:
        run(x, x if time < 2 else y).backward()
        return grads(x, y)

    return step


@case
def saved_tensor_hooks(compile: Compile) -> Step:
    run = compile(second)
    v, x, log = leaf(4, 4), torch.randn(3, 4), []

    def step(time: int) -> Any:
        log.clear()
        with torch.autograd.graph.saved_tensors_hooks(
            lambda t: t.clone(), lambda t: log.append("unpack") or t
        ):
            loss = run(x, v)
        loss.backward()
        return bool(log), grads(v)

    return step


def observed(make: Callable[[Compile], Step], compile: Compile) -> list[Any]:
    torch.manual_seed(0)
    step = make(compile)
    return [seen(step(time)) for time in range(4)]


# How passes run and how many live calls their programs have, where that is not: one is recorded,
# three are replayed; none.
HOW: dict[str, dict[str, int]] = {
    "several_results": {RECORDED: 2, REPLAYED: 2},
    "freed_and_overwritten": {RECORDED: 1, REPLAYED: 3},
    "tangents_of_other_strides": {RECORDED: 2, REPLAYED: 6},
    "one_tensor_twice": {RECORDED: 2, REPLAYED: 2},
}
LIVE = {
    "hooks_between": 1,
    "saved_tensor_hooks": 1,
    "sparse_gradient": 1,
    "complex_gradient": 1,
}


@pytest.mark.parametrize("name", CASES)
def test_as_eager(name: str) -> None:
    expected = observed(CASES[name], lambda target: target)
    with windfall.compiled_autograd() as passes:
        found = observed(CASES[name], windfall.compile)
    assert difference(found, expected) == ""
    told = passes.explanation()
    assert told.passes == HOW.get(name, {RECORDED: 1, REPLAYED: 3}), told.pass_reasons
    assert {len(one.calls) for one in told.pass_programs} == {LIVE.get(name, 0)}
    assert not told.fallbacks


def test_sizes_that_vary() -> None:
    """A region of varying sizes is traced at the sizes of the pass."""
    run = windfall.compile(second, dynamic=True)
    v = leaf(4, 4)
    with windfall.compiled_autograd() as passes:
        for rows in (3, 5, 3, 5, 7):
            x = torch.randn(rows, 4)
            run(x, v).backward()
            (found,) = grads(v)
            second(x, v).backward()
            assert torch.allclose(found, v.grad, atol=1e-5)
            v.grad = None
    told = passes.explanation()
    assert BY_TORCH not in told.passes and all(not one.calls for one in told.pass_programs)


def test_gradients_of_gradients() -> None:
    run = windfall.compile(lambda x: (x**3).sum())
    x = leaf(3)
    with windfall.compiled_autograd() as passes:
        for _ in range(3):
            (g,) = torch.autograd.grad(run(x), x, create_graph=True)
            assert torch.allclose(g, 3 * x**2)
            (h,) = torch.autograd.grad(g.sum(), x)
            assert torch.allclose(h, 6 * x)
    assert passes.explanation().passes[BY_TORCH] == 3
