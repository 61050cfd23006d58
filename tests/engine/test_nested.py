"""Passes inside of each other: from each place where a pass calls the user, in each way of asking.

A node that is called while torch's own engine runs computes what *that* pass asks for and no more,
so a pass inside of one of those is torch's engine's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import windfall
from tests.engine.scenarios import difference
from windfall.engine.engine import BY_TORCH, DEPTH, REPLAYED

Inner = Callable[[], None]
STEPS = 4


class _Calls(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, inner: Inner) -> torch.Tensor:
        ctx.inner = inner
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        with torch.enable_grad():
            ctx.inner()
        return gradients[0], None


def _tensor_hook(x: torch.Tensor, inner: Inner) -> torch.Tensor:
    y = x * 2
    y.register_hook(lambda _: inner())
    return y


def _before(x: torch.Tensor, inner: Inner) -> torch.Tensor:
    y = x * 2
    y.grad_fn.register_prehook(lambda _: inner())  # type: ignore[union-attr]
    return y


def _behind(x: torch.Tensor, inner: Inner) -> torch.Tensor:
    y = x * 2
    y.grad_fn.register_hook(lambda *_: inner())  # type: ignore[union-attr]
    return y


def _callback(x: torch.Tensor, inner: Inner) -> torch.Tensor:
    y = x * 2
    queue = torch.autograd.Variable._execution_engine.queue_callback
    y.register_hook(lambda _: queue(inner))
    return y


# Where the inner pass is started, and whether that is inside of a call of torch's own engine.
PLACES: dict[str, tuple[Callable[[torch.Tensor, Inner], torch.Tensor], bool]] = {
    "hook of a tensor": (_tensor_hook, True),  # which only torch's engine calls
    "hook before a node": (_before, False),
    "hook behind a node": (_behind, False),
    "function": (lambda x, inner: _Calls.apply(x, inner), False),  # type: ignore[no-untyped-call]
    "callback": (_callback, False),
}


def _anomaly(loss: torch.Tensor, x: torch.Tensor) -> None:
    with torch.autograd.set_detect_anomaly(True):
        loss.backward()


# How the outer pass is asked for, and whether our engine runs it.
OUTER: dict[str, tuple[Callable[[torch.Tensor, torch.Tensor], Any], bool]] = {
    "backward": (lambda loss, x: loss.backward(), True),
    "inputs": (lambda loss, x: loss.backward(inputs=[x]), True),
    "grad": (lambda loss, x: torch.autograd.grad(loss, x), True),
    "higher": (lambda loss, x: torch.autograd.grad(loss, x, create_graph=True), False),
    "anomaly": (_anomaly, False),
}


def _seen(place: str, outer: str, inner: str) -> list[Any]:
    """Gradients after each step."""
    torch.manual_seed(0)
    x = torch.randn(3, requires_grad=True)
    w = torch.randn(3, requires_grad=True)
    found: list[Any] = []

    def nested() -> None:
        with torch.enable_grad():
            loss = (w * w.sin()).sum()
        if inner == "backward":
            loss.backward()  # type: ignore[no-untyped-call]
        else:
            found.append(torch.autograd.grad(loss, w)[0])

    for _ in range(STEPS):
        loss = (PLACES[place][0](x, nested) * x).sum()
        found.append(OUTER[outer][0](loss, x))
        found += [None if one.grad is None else one.grad.clone() for one in (x, w)]
    return [one[0].detach() if isinstance(one, tuple) else one for one in found]


@pytest.mark.filterwarnings("ignore::UserWarning")  # of anomaly mode
@pytest.mark.parametrize("inner", ["backward", "grad"])
@pytest.mark.parametrize("outer", OUTER)
@pytest.mark.parametrize("place", PLACES)
def test_as_eager(place: str, outer: str, inner: str) -> None:
    expected = _seen(place, outer, inner)
    with windfall.compiled_autograd() as passes:
        found = _seen(place, outer, inner)
    assert difference(found, expected) == ""
    told = passes.explanation().passes
    ours = OUTER[outer][1] + (OUTER[outer][1] and not PLACES[place][1])
    assert told.get(BY_TORCH, 0) == STEPS * (2 - ours)
    assert bool(told.get(REPLAYED)) == bool(ours)


def test_deep() -> None:
    """Past some depth torch's engine, which has threads for that."""

    def of(depth: int) -> torch.Tensor:
        x = torch.ones(2, requires_grad=True)
        y: torch.Tensor = _Calls.apply(x, lambda: of(depth - 1)) if depth else x * 1  # type: ignore[no-untyped-call]
        y.sum().backward()
        assert x.grad is not None
        return x.grad

    with windfall.compiled_autograd() as passes:
        assert torch.equal(of(DEPTH + 2), torch.ones(2))
    assert passes.explanation().passes[BY_TORCH] == 3
