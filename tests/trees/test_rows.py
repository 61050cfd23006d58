"""Rows and hard tests of graph trees that stand for themselves, each in both ways in which a region
runs: with a place in the pool (`minimum_bytes=0`), and too small for one, with objects that serve
again (ADR 76). Each says how it ran.
"""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import windfall
from tests.trees.test_cpu import agree, tree
from windfall.options import TreeOptions

Tensor = torch.Tensor
POOLED, SMALL = TreeOptions(minimum_bytes=0), TreeOptions()
BOTH = pytest.mark.parametrize("trees", [POOLED, SMALL], ids=["pooled", "small"])


@pytest.fixture(autouse=True)
def fresh_trees() -> Iterator[None]:
    windfall.reset()
    torch.manual_seed(0)
    yield
    windfall.reset()


def compiled(function: Any, trees: TreeOptions) -> Any:
    options = {"trees": trees, "strict": True}
    return windfall.compile(function, mode="reduce-overhead", options=options)


def ran(function: Any, trees: TreeOptions) -> bool:
    """Whether regions were replayed, or their objects serve again."""
    told = windfall.explanation(function).trees
    wanted = "replayed" if trees is POOLED else "serve again"
    return any(wanted in one for one in told)


def keeper() -> tuple[list[Any], Callable[[Any], None]]:
    """A list, and a function that is a break: it does with a tensor what the last item says."""
    todo: list[Any] = []

    @windfall.disable
    def step(tensor: Tensor) -> None:
        if todo and todo[-1] is not None:
            todo[-1](tensor)

    return todo, step


# ------------------------------------------------------------------- row 11 and hard test 11


def test_objects_that_died_serve_again() -> None:
    """Row 11: `id(out)` is stable when it is dropped; what is held is another object."""
    todo, step = keeper()

    def program(x: Tensor) -> Tensor:
        h = torch.sin(x) + 1
        step(h)
        return h.sum()

    f = compiled(program, SMALL)
    seen: list[int] = []
    held: list[Tensor] = []
    with torch.no_grad():
        todo.append(lambda t: seen.append(id(t)))
        for _ in range(8):
            f(torch.randn(4, 4))
        assert len({*seen[2:]}) == 1, seen  # the first ones were compiled
        todo.append(held.append)
        inputs = [torch.randn(4, 4) for _ in range(6)]
        for x in inputs:
            f(x)
        assert len({id(one) for one in held}) == len({one.data_ptr() for one in held}) == 6
        for x, one in zip(inputs, held, strict=True):
            agree(one, torch.sin(x) + 1)
    assert ran(f, SMALL)


@BOTH
def test_an_alias_that_a_child_makes_later(trees: TreeOptions) -> None:
    """Hard test 11: the parent's result was handed out again for some steps; then a child answers
    a view of it, which is held over many more."""
    _, step = keeper()

    def parent(x: Tensor) -> Tensor:
        h = torch.sin(x) + 1
        step(h)
        return child(h)

    def child(h: Tensor) -> Tensor:
        if mode == "view":
            return h[1:]
        if mode == "itself":
            return h
        return h.sum() * 2

    mode = "sum"
    f = compiled(parent, trees)
    held: list[tuple[Tensor, Tensor]] = []
    with torch.no_grad():
        for mode in ("sum", "view", "sum", "itself", "sum", "view", "sum"):
            for _ in range(4):
                x = torch.randn(4, 4)
                found, expected = f(x), parent(x)
                agree(found, expected)
                if mode != "sum":
                    held.append((found, expected))
                for one, other in held:
                    agree(one, other)
        held.clear()
        for _ in range(3):
            agree(f(x), parent(x))
    assert ran(f, trees)


@BOTH
def test_what_autograd_saved_is_alive(trees: TreeOptions) -> None:
    """Row 11's edge: a tensor that only a graph of autograd's holds."""
    todo, step = keeper()

    def program(x: Tensor) -> Tensor:
        h = torch.sin(x) + 1
        step(h)
        return h.sum()

    f = compiled(program, trees)
    weight = torch.ones(4, 4, requires_grad=True)
    graphs: list[tuple[Tensor, Tensor]] = []

    def save(tensor: Tensor) -> None:
        with torch.enable_grad():
            graphs.append(((weight * tensor).sum(), tensor.clone()))

    with torch.no_grad():
        for _ in range(3):
            f(torch.randn(4, 4))
        todo.append(save)
        for _ in range(5):
            f(torch.randn(4, 4))
        todo.append(None)
        for _ in range(5):
            f(torch.randn(4, 4))
    for loss, expected in graphs:
        weight.grad = None
        loss.backward()
        agree(weight.grad, expected)
    assert ran(f, trees)


@BOTH
def test_what_another_branch_takes_for_free_comes_as_an_input(trees: TreeOptions) -> None:
    """Hard test 14: two branches were recorded with the same places of the pool; a result of one
    is held, and the other one takes it, and what died beside it, as its input."""
    todo, step = keeper()

    def left(x: Tensor) -> Tensor:
        h, g = torch.sin(x) + 1, torch.cos(x) * 2
        step(h)
        return (h * g).sum(0)

    def right(x: Tensor) -> Tensor:
        h, g = torch.tanh(x) - 1, torch.exp(-x.abs())
        step(g)
        return (h - g * 3).sum(0)

    branches = [(compiled(one, trees), one) for one in (left, right)]
    held: list[Tensor] = []
    with torch.no_grad():
        for _ in range(4):
            for fast, plain in branches:
                x = torch.randn(4, 4)
                agree(fast(x), plain(x))
        for number in range(12):
            (fast, plain), (other, other_plain) = branches[number % 2], branches[1 - number % 2]
            x = torch.randn(4, 4)
            todo.append(held.append)
            agree(fast(x), plain(x))
            todo.append(None)
            taken = held.pop()
            kept = taken.clone()
            del held[:]
            for _ in range(3):  # it stands where the other one's plan puts what it makes
                agree(other(taken), other_plain(kept))
                agree(taken, kept)
            agree(other(taken[1:]), other_plain(kept[1:]))
            agree(fast(taken.T), plain(kept.T))
    assert all(ran(fast, trees) for fast, _ in branches)


def test_a_weak_reference_ends_when_the_region_runs_again() -> None:
    """What is different from eager: it is said in the documents."""
    todo, step = keeper()

    def program(x: Tensor) -> Tensor:
        h = torch.sin(x) + 1
        step(h)
        return h.sum()

    f = compiled(program, SMALL)
    references: list[Any] = []
    with torch.no_grad():
        todo.append(lambda t: references.append(weakref.ref(t)))
        for _ in range(12):
            f(torch.randn(4, 4))
    assert sum(one() is not None for one in references) <= 4
    del f
    windfall.reset()
    gc.collect()
    assert all(one() is None for one in references)


# ------------------------------------------------------------------------------- hard test 25


@BOTH
def test_a_hook_inside_of_backward_calls_the_function_again(trees: TreeOptions) -> None:
    """The very function whose backward runs, forward and backward, from a hook on a tensor that
    crosses a break."""

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
            self.again: Any = None
            self.seen: list[Tensor] = []

        @windfall.disable
        def watch(self, h: Tensor) -> None:
            if self.again is not None:
                call, self.again = self.again, None
                h.register_hook(lambda g: self.hook(call, g))

        def hook(self, call: Any, gradient: Tensor) -> None:
            with torch.enable_grad():
                x = gradient.detach().clone().requires_grad_()
                loss = call(x).sum()
                (found,) = torch.autograd.grad(loss, x)
            self.seen += [loss.detach(), found]

        def forward(self, x: Tensor) -> Tensor:
            h = torch.tanh(self.one(x))
            self.watch(h)
            return self.two(h * h).square()

    def train(net: Net, call: Any) -> list[Any]:
        generator = torch.Generator().manual_seed(3)
        found: list[Any] = []
        for _ in range(5):
            net.zero_grad(set_to_none=True)
            net.again, net.seen = call, []
            call(torch.randn(4, 8, generator=generator)).sum().backward()
            found += [*net.seen, *(one.grad for one in net.parameters())]
            assert len(net.seen) == 2
        return found

    net = Net()
    twin = copy.deepcopy(net)
    f = compiled(twin, trees)
    agree(train(twin, f), train(net, net))
    assert ran(f, trees)
    if trees is POOLED:
        tree().check()


# ------------------------------------------------------------------------------------ rows 24-26


@BOTH
def test_workspaces_of_libraries_stand_outside(trees: TreeOptions) -> None:
    """Row 24: matrix products, convolutions and sorts have scratch memory of their own; none of it
    is in the pool, which has live results and nothing else."""
    _, step = keeper()
    kernel = torch.randn(3, 3, 3, 3)

    def program(x: Tensor) -> Tensor:
        h = torch.nn.functional.conv2d(x, kernel, padding=1)
        step(h)
        h = h @ h.mT
        step(h)
        return torch.sort(h, -1).values.sum() + torch.linalg.inv(h + 9 * torch.eye(8)).sum()

    f = compiled(program, trees)
    with torch.no_grad():
        for _ in range(5):
            x = torch.randn(2, 3, 8, 8)
            torch.testing.assert_close(f(x), program(x), rtol=1e-3, atol=1e-3)
    assert ran(f, trees)
    if trees is POOLED:
        manager = tree()
        assert manager.live == []
        planned = [
            last
            for node in manager.root.below()
            for _, last in node.recording.ground  # what the plans cover
        ]
        assert manager.bytes == max(planned)


@BOTH
def test_a_collective_parts_two_recordings(trees: TreeOptions, tmp_path: Path) -> None:
    """Row 25: with one process, where it runs is what matters."""
    distributed = torch.distributed
    meet = f"file://{tmp_path}/meet"
    distributed.init_process_group("gloo", init_method=meet, rank=0, world_size=1)
    try:

        def program(x: Tensor) -> Tensor:
            h = torch.sin(x) + 1
            distributed.all_reduce(h)
            h = torch.cos(h) * 2
            distributed.all_reduce(h)
            return h.sum(-1)

        f = compiled(program, trees)
        with torch.no_grad():
            for _ in range(5):
                x = torch.randn(4, 8)
                agree(f(x), program(x))
        assert ran(f, trees)
        assert windfall.explanation(f).trees
    finally:
        distributed.destroy_process_group()


@BOTH
def test_a_profiler_sees_each_operation(trees: TreeOptions) -> None:
    """Row 26: while somebody listens to each op a call runs as eager does, so that nothing is one
    opaque launch; behind it the same recordings are replayed."""

    def program(x: Tensor) -> Tensor:
        h = torch.sin(x) + 1
        windfall.graph_break()
        return torch.cos(h).sum()

    f = compiled(program, trees)
    x = torch.randn(4, 4)
    with torch.no_grad():
        for _ in range(3):
            agree(f(x), program(x))
        before = tree().nodes if trees is POOLED else 0
        with torch.profiler.profile() as profile:
            agree(f(x), program(x))
        names = {one.name for one in profile.events()}
        assert {"aten::sin", "aten::cos", "aten::sum"} <= names
        for _ in range(3):
            agree(f(x), program(x))
        assert (tree().nodes if trees is POOLED else 0) == before
    assert ran(f, trees)


# ---------------------------------------------------------------------------- a loop of training


@BOTH
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_a_loop_of_forward_backward_and_step(kind: Any, trees: TreeOptions) -> None:
    """Each compiled for itself: all of a round is one path, which the next round replays."""

    def loop(net: torch.nn.Module, call: Any, wrap: Callable[[Any], Any]) -> list[Tensor]:
        optimizer = kind(net.parameters(), lr=0.05)
        step = wrap(optimizer.step)
        generator = torch.Generator().manual_seed(1)
        for _ in range(6):
            optimizer.zero_grad(set_to_none=True)
            call(torch.randn(8, 16, generator=generator)).square().mean().backward()
            step()
        return [one.detach().clone() for one in net.parameters()]

    net = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
    twin = copy.deepcopy(net)
    f = compiled(twin, trees)
    steps: list[Any] = []

    def wrap(function: Any) -> Any:
        steps.append(compiled(function, trees))
        return steps[0]

    ours = loop(twin, f, wrap)
    agree(ours, loop(net, net, lambda function: function))
    assert ran(f, trees)
    assert windfall.explanation(steps[0]).graphs, "the step is compiled"
    if trees is POOLED:
        manager = tree()
        counts = sorted(one.replays for one in manager.root.below())
        assert counts and counts[-1] >= 4  # a round is replayed, not recorded again


def test_sizes_that_vary_and_are_small_ask_no_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is below `minimum_bytes` at its sizes runs as without trees; above, it is recorded."""
    from windfall.runtime.trees import TreeManager

    asked: list[str] = []
    call = TreeManager.call

    def spied(self: TreeManager, region: Any, *rest: Any) -> Any:
        asked.append(region.name)
        return call(self, region, *rest)

    monkeypatch.setattr(TreeManager, "call", spied)

    def program(x: Tensor) -> Tensor:
        h = torch.sin(x) + 1
        windfall.graph_break()
        return h.sum()

    options = {"trees": TreeOptions(minimum_bytes=4096), "strict": True}
    f = windfall.compile(program, mode="reduce-overhead", options=options, dynamic=True)
    with torch.no_grad():
        for size in (3, 5, 7, 9, 11):
            agree(f(torch.ones(size)), program(torch.ones(size)))
        assert asked == []
        for size in (2000, 2001, 2000, 2001):
            torch.testing.assert_close(f(torch.ones(size)), program(torch.ones(size)))
        assert asked
    told = " ".join(windfall.explanation(f).trees)
    assert "too small" in told and "replayed" in told
