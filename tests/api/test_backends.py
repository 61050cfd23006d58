"""Backends: any callable, our names, names that packages offer, and windfall as one of torch's."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from typing import Any

import pytest
import torch

import windfall
from windfall import plugins

X = torch.linspace(-1, 1, 6)


def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x * y + 1).tanh()


class Recording:
    """A backend that notes what it was given and runs the graph as it is."""

    __name__ = "recording"

    def __init__(self) -> None:
        self.modules: list[torch.fx.GraphModule] = []
        self.examples: list[list[torch.Tensor]] = []
        self.given: list[dict[str, Any]] = []

    def __call__(
        self, module: torch.fx.GraphModule, example_inputs: list[torch.Tensor], **given: Any
    ) -> Any:
        self.modules.append(module)
        self.examples.append(example_inputs)
        self.given.append(given)
        return module.forward


def test_a_callable_gets_the_graph_and_example_inputs() -> None:
    backend = Recording()
    compiled = windfall.compile(program, backend=backend, fullgraph=True)
    for _ in range(3):
        torch.testing.assert_close(compiled(X, X), program(X, X))
    (module,), (examples,) = backend.modules, backend.examples
    assert isinstance(module, torch.fx.GraphModule)
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    assert len(placeholders) == len(examples)
    assert all(one.shape == X.shape for one in examples)
    torch.testing.assert_close(module(*examples)[0], program(X, X))
    assert backend.given == [{}]


def test_mode_and_options_are_handed_on_as_torch_does() -> None:
    backend = Recording()
    options = {"level": 3, "verify": True}
    compiled = windfall.compile(program, backend=backend, mode="max-autotune", options=options)
    compiled(X, X)
    assert backend.given == [{"mode": "max-autotune", "options": {"level": 3}}]


def test_training_through_a_backend_that_runs_the_graph() -> None:
    backend = Recording()
    x = X.clone().requires_grad_()
    windfall.compile(program, backend=backend)(x, X).sum().backward()
    expected = X.clone().requires_grad_()
    program(expected, X).sum().backward()
    torch.testing.assert_close(x.grad, expected.grad)


@pytest.mark.parametrize("name", ["eager", "windfall"])
def test_our_own_names(name: str) -> None:
    compiled = windfall.compile(program, backend=name, fullgraph=True)
    torch.testing.assert_close(compiled(X, X), program(X, X))
    assert name in windfall.list_backends()


def test_an_exception_of_a_backend_is_attributed_to_it() -> None:
    def failing(module: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        raise LookupError("no such kernel")

    compiled = windfall.compile(program, backend=failing)
    with pytest.raises(
        windfall.BackendError, match="failing raised LookupError: no such kernel"
    ) as e:
        compiled(X, X)
    assert isinstance(e.value.__cause__, LookupError)


def test_what_a_backend_answers_must_be_callable() -> None:
    compiled = windfall.compile(program, backend=lambda module, inputs: 3)
    with pytest.raises(windfall.UserError, match="must return a callable"):
        compiled(X, X)


def test_a_name_that_a_package_offers(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Recording()
    value = f"{__name__}:offered_backend"
    offered = metadata.EntryPoint("theirs", value, plugins.GROUP)
    broken = metadata.EntryPoint("broken", "no.such.module:backend", plugins.GROUP)
    monkeypatch.setattr(plugins, "offered", lambda: {"theirs": offered, "broken": broken})
    monkeypatch.setattr(metadata.EntryPoint, "load", lambda one: _load(one, backend))
    assert {"theirs", "broken", "eager", "windfall"} <= set(windfall.list_backends())
    compiled = windfall.compile(program, backend="theirs", options={"theirs": 1})
    torch.testing.assert_close(compiled(X, X), program(X, X))
    assert len(backend.modules) == 1 and backend.given == [{"options": {"theirs": 1}}]
    with pytest.raises(windfall.UserError, match=r"cannot be imported: no\.such"):
        windfall.compile(program, backend="broken")


def _load(point: metadata.EntryPoint, backend: Any) -> Any:
    if point.name == "broken":
        raise ImportError(point.module)
    return backend


def test_entry_points_are_not_read_for_our_own_names() -> None:
    code = """
import windfall, torch
from windfall import plugins
windfall.compile(lambda x: x + 1)(torch.ones(2))
assert plugins.offered.cache_info().misses == 0
assert windfall.list_backends() == sorted({"eager", *plugins.offered()})
assert plugins.offered()["windfall"].value == "windfall.dynamo_plugin:windfall"
"""
    subprocess.run([sys.executable, "-c", code], check=True)


TORCH_COMPILE = """
import torch, windfall
from windfall import api

assert "windfall" in torch.compiler.list_backends()
made = []
original = api.compile
api.compile = lambda *args, **kwargs: made.append(original(*args, **kwargs)) or made[-1]

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))
compiled = torch.compile(model, backend="windfall", options={"verify": True})
for rows in (3, 3, 5, 6):
    x = torch.randn(rows, 4)
    torch.testing.assert_close(compiled(x), model(x))
    compiled(x).square().sum().backward()
    ours = [one.grad.clone() for one in model.parameters()]
    model.zero_grad()
    model(x).square().sum().backward()
    for grad, one in zip(ours, model.parameters()):
        torch.testing.assert_close(grad, one.grad)
    model.zero_grad()
with torch.no_grad():
    torch.testing.assert_close(compiled(x), model(x))


@torch.compile(backend="windfall")
def breaking(x):
    y = x.sin()
    if y.sum() > 0:
        return y + 1
    return y.cos() - 1


for sign in (1, -1):
    x = sign * torch.rand(7)
    torch.testing.assert_close(breaking(x), x.sin() + 1 if sign > 0 else x.sin().cos() - 1)
explained = [windfall.explanation(one) for one in made]
assert len(made) >= 4, len(made)
assert all(one.kernels() and not one.breaks and not one.fallbacks for one in explained), explained
"""


def test_torch_compile_with_our_backend() -> None:
    """In a process of its own: it loads torch's compiler, which ours must never do."""
    subprocess.run([sys.executable, "-W", "ignore", "-c", TORCH_COMPILE], check=True)
