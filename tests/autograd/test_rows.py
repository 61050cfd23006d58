"""Rows of the specification without a test elsewhere; `docs/autograd-checklist.md` has them all."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

import windfall
from tests.autograd.both import Compile, both, leaf, raised, seen, versions
from windfall.events import EventKind


def test_arguments_in_containers() -> None:
    """Flattening: dicts, tuples, None, numbers, keywords; the result has a structure too."""

    def scenario(compile: Compile) -> Any:
        def run(tree: Any, pair: Any, *, n: int, name: str = "a") -> Any:
            x, (y, nothing) = tree[name], pair
            return {"sum": (x * n + y).sum(), "parts": [x, None, (y * 2, n)], "none": nothing}

        compiled, told = compile(run), []
        for n in (3, 3, 5):
            x, y = leaf(3), leaf(3)
            found = compiled({"a": x}, (y, None), n=n)
            told.append([list(found), found["none"], found["parts"][1], found["parts"][2][1]])
            told.append(seen(found["sum"], found["parts"][0], found["parts"][2][0], x))
            found["sum"].backward()
            told.append(seen(x, y))
        return told

    both(scenario)


def test_one_tensor_twice_and_both_are_transposed() -> None:
    def scenario(compile: Compile) -> Any:
        def run(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            x.transpose_(0, 1)
            y.transpose_(0, 1)
            x.transpose_(0, 1)
            return x + y

        compiled, told = compile(run), []
        for _ in range(2):
            x = torch.randn(2, 3)
            found = compiled(x, x)
            told.append([seen(found, x), versions(x)])
        return told

    both(scenario)


def test_versions_of_arguments() -> None:
    """Hidden writes are not counted, others as often as in eager."""

    def scenario(compile: Compile) -> Any:
        def run(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
            x.mul_(2).add_(1)
            y.data.mul_(2)
            y.detach().add_(1)
            with torch.no_grad():
                z[1:].mul_(x[1:])
            return x + y + z

        compiled, told = compile(run), []
        for _ in range(2):
            given = torch.randn(3), torch.randn(3), leaf(3, dtype=torch.float32)
            told.append([seen(compiled(*given), *given), versions(*given)])
        return told

    both(scenario)


def _stages(compiled: Any) -> list[str]:
    events = windfall.explanation(compiled).events
    return [one.subject for one in events if one.kind is EventKind.BUILD]


def test_forward_alone_compiles_no_backward() -> None:
    compiled = windfall.compile(lambda x: (x.exp() * 2).sum())
    x = leaf(3)
    loss = compiled(x)
    assert not [one for one in _stages(compiled) if one.endswith(" backward")]
    loss.backward()
    assert len([one for one in _stages(compiled) if one.endswith(" backward")]) == 1
    compiled(x).backward()
    assert len([one for one in _stages(compiled) if one.endswith(" backward")]) == 1
    torch.testing.assert_close(x.grad, 4 * x.detach().exp())


def test_two_sizes_that_vary_are_kept_for_backward() -> None:
    def scenario(compile: Compile) -> Any:
        w = leaf(4, 4)
        compiled = compile(lambda x: (x.mean((0, 1)) @ w).exp().sum() / x.shape[0] + x.shape[1])
        told, pending = [], []
        for sizes in ((2, 3), (5, 6), (7, 3), (5, 9)):
            x = leaf(*sizes, 4)
            pending.append((compiled(x), x))
        for loss, x in pending:
            loss.backward()
            told.append(seen(loss, x, w))
        return told

    both(scenario, dynamic=True)


def test_a_function_that_needs_every_convention() -> None:
    """Wrapper order: the same tensor twice, writes seen and hidden, aliases of inputs and of
    results, an intermediate base, random numbers, grad mode, None, numbers, sizes that vary."""

    def scenario(compile: Compile) -> Any:
        buffer = torch.zeros(4, dtype=torch.float64)

        def run(x: torch.Tensor, again: torch.Tensor, state: torch.Tensor, n: int) -> Any:
            buffer.add_(x.detach().sum(0))
            state.mul_(2).t_()
            hidden = F.dropout(x * again, 0.5)
            with torch.no_grad():
                peek = hidden.max()
            base = hidden.sin()
            first, rest = base[0], base[1:]
            return {
                "loss": (base * n).sum() + peek, "hidden": hidden, "parts": (first, rest),
                "same": x, "view": x.view(-1), "state": state, "none": None, "n": n + 1,
                "again": hidden,
            }  # fmt: skip

        compiled, told = compile(run), []
        for size in (3, 3, 5, 6):
            x, state = leaf(size, 4), torch.randn(2, 3)
            found = compiled(x, x, state, n=2)
            tensors = [*found["parts"], *(v for v in found.values() if isinstance(v, torch.Tensor))]
            told.append([list(found), found["n"], found["none"]])
            told.append([seen(*tensors, x, state, buffer), versions(x, state, buffer)])
            found["hidden"].retain_grad()
            (found["loss"] + found["parts"][0].sum() + found["view"].sum()).backward()
            told.append([seen(x, found["hidden"]), raised(found["loss"].backward)])
            told.append(torch.rand(1))
        return told

    both(scenario)
