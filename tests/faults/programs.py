"""Programs that faults are injected into: together they go through every stage.

Enters: nothing. Leaves: `PROGRAMS`: each makes a function, its arguments, and says how it is used
(called, differentiated, called again). Invariant: whatever a program does besides its answer is a
line in `Box.lines`, so that work done halfway can be compared with eager's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

import windfall


class Box:
    """An argument that is no tensor, can be referred to weakly, and is written by programs."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.count = 0


def _call(compiled: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    return compiled(*arguments)


def _train(compiled: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    result = compiled(*arguments)
    result.sum().backward()
    leaves = [one for one in arguments if isinstance(one, torch.Tensor) and one.is_leaf]
    grads = [one.grad for one in leaves]
    return [result.detach(), *(one for one in grads if one is not None)]


@dataclass(frozen=True)
class Program:
    """`make` gives the function; `arguments` what it is called with, new ones each time."""

    name: str
    make: Callable[[], Callable[..., Any]]
    arguments: Callable[[], tuple[Any, ...]]
    use: Callable[[Callable[..., Any], tuple[Any, ...]], Any] = _call
    options: dict[str, Any] = field(default_factory=dict)
    around: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext


PROGRAMS: dict[str, Program] = {}


def _program(
    arguments: Callable[[], tuple[Any, ...]], **given: Any
) -> Callable[[Callable[[], Callable[..., Any]]], Callable[[], Callable[..., Any]]]:
    def register(make: Callable[[], Callable[..., Any]]) -> Callable[[], Callable[..., Any]]:
        name = make.__name__
        PROGRAMS[name] = Program(name, make, arguments, **given)
        return make

    return register


def _tensors(*sizes: int, grad: bool = False) -> Callable[[], tuple[Any, ...]]:
    def make() -> tuple[Any, ...]:
        values = torch.arange(float(torch.Size(sizes).numel())).reshape(sizes).mul(1.7).sin()
        return values.clone().requires_grad_(grad), (values * 2 + 1).requires_grad_(grad), Box()

    return make


@windfall.disable
def outside(box: Box, text: str) -> None:
    """A break."""
    box.lines.append(text)


@_program(_tensors(3, 3))
def inference() -> Callable[..., Any]:
    def function(x: torch.Tensor, y: torch.Tensor, box: Box) -> Any:
        return ((x @ y).relu() + x.sin() * 2).softmax(-1), x.sum()

    return function


@_program(_tensors(3, 3, grad=True), use=_train)
def training() -> Callable[..., Any]:
    def function(x: torch.Tensor, y: torch.Tensor, box: Box) -> Any:
        return torch.nn.functional.gelu(x @ y).pow(2).mean(0)

    return function


@_program(_tensors(3, 3))
def breaks() -> Callable[..., Any]:
    def function(x: torch.Tensor, y: torch.Tensor, box: Box) -> Any:
        for index in range(3):
            try:
                x = x * y + index
                outside(box, f"round {index}")
                x = x.cos()
            finally:
                box.lines.append(f"ended {index}")
        return x

    return function


@_program(_tensors(4))
def generators() -> Callable[..., Any]:
    def produce(x: torch.Tensor, box: Box) -> Iterator[torch.Tensor]:
        try:
            for index in range(3):
                yield x + index
        finally:
            box.lines.append("produced")

    def function(x: torch.Tensor, y: torch.Tensor, box: Box) -> Any:
        total = y
        for one in produce(x, box):
            total = total + one
            outside(box, "taken")
        return total

    return function


@contextlib.contextmanager
def _noted(box: Box) -> Iterator[None]:
    box.lines.append("entered")
    try:
        yield
    finally:
        box.lines.append("left")


@_program(_tensors(3, 3, grad=True))
def modes() -> Callable[..., Any]:
    def function(x: torch.Tensor, y: torch.Tensor, box: Box) -> Any:
        with _noted(box), torch.no_grad():
            z = x * y
            outside(box, "inside no_grad")
            z = z.exp()
            with torch.autocast("cpu", torch.bfloat16):
                w = x @ y
                outside(box, "inside autocast")
                w = w.float() + 1
        with torch.inference_mode():
            v = w + z
            outside(box, "inside inference_mode")
            v = v * 2
        return v.clone(), z

    return function


@_program(_tensors(3, 3))
def effects() -> Callable[..., Any]:
    def function(x: torch.Tensor, y: torch.Tensor, box: Box) -> Any:
        box.count += 1
        held = {"x": x.tan()}
        x.add_(1)
        box.lines.append("written")
        outside(box, "between")
        box.count += 1
        y.mul_(x)
        return held["x"] + y, box.count

    return function


@_program(_tensors(6))
def reads() -> Callable[..., Any]:
    def function(x: torch.Tensor, y: torch.Tensor, box: Box) -> Any:
        chosen = x[x > 0].exp()
        number = y.sum().item()
        return chosen * 2 + number, chosen.sum()

    return function


@_program(_tensors(8, 8))
def random() -> Callable[..., Any]:
    def function(x: torch.Tensor, y: torch.Tensor, box: Box) -> Any:
        return torch.nn.functional.dropout(x, 0.5) + torch.rand(8, 8) * y

    return function


class _Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first = torch.nn.Linear(3, 4)
        self.norm = torch.nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor, y: torch.Tensor, box: Box) -> torch.Tensor:
        box.lines.append("forward")
        return torch.nn.functional.relu(self.norm(self.first(x + y)))


@_program(_tensors(5, 3, grad=True), use=_train)
def module() -> Callable[..., Any]:
    return _Net()


def _sizes(compiled: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    x, y, box = arguments
    return [compiled(x[:size], y[:size], box) for size in (3, 4, 5)]


@_program(_tensors(6, 3), use=_sizes)
def varying() -> Callable[..., Any]:
    def function(x: torch.Tensor, y: torch.Tensor, box: Box) -> Any:
        return (x * y).sum(0) / x.shape[0]

    return function


@_program(_tensors(3, 3))
def caught() -> Callable[..., Any]:
    def inner(x: torch.Tensor, box: Box) -> torch.Tensor:
        if x.ndim == 2:
            raise ValueError("two dimensions")
        return x

    def function(x: torch.Tensor, y: torch.Tensor, box: Box) -> Any:
        try:
            return inner(x * y, box)
        except ValueError as error:
            box.lines.append(str(error))
            outside(box, "handling")
            return x.exp()
        finally:
            box.lines.append("finally")

    return function


class _Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return gradient * 3 * x * x


def _hooks() -> contextlib.AbstractContextManager[Any]:
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda one: one + 0, lambda one: one * 1)
    return hooks


@_program(_tensors(3, 3, grad=True), use=_train, around=_hooks)
def gradient_function() -> Callable[..., Any]:
    def function(x: torch.Tensor, y: torch.Tensor, box: Box) -> Any:
        return _Cube.apply(x * y) + x

    return function


def _forwarding(module: torch.fx.GraphModule, examples: list[torch.Tensor]) -> Callable[..., Any]:
    return module.forward


@_program(_tensors(3, 3), options={"backend": _forwarding})
def own_backend() -> Callable[..., Any]:
    def function(x: torch.Tensor, y: torch.Tensor, box: Box) -> Any:
        x = x + y
        outside(box, "between")
        return x * y

    return function


@_program(_tensors(3, 3, grad=True), use=_train, options={"options": {"native": False}})
def public() -> Callable[..., Any]:
    def function(x: torch.Tensor, y: torch.Tensor, box: Box) -> Any:
        return (x @ y).tanh() + torch.linalg.det(y) + x

    return function
