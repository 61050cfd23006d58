"""Backends: any callable, our names, names that packages offer, and windfall as one of torch's."""

from __future__ import annotations

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
