"""The small steps of `steps.py` for JAX, where it is installed: a peer with programs of its own.

Enters: a name, the parameters and inputs of a case. Leaves: a function without arguments that does
one jitted step (value and gradient, SGD) upon arrays of its own. Invariant: nothing of JAX is
loaded before one is asked for.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import torch


def _add(numpy: Any, weights: Any) -> Any:
    return (weights[0] + 1).sum()


def _chain(numpy: Any, weights: Any) -> Any:
    """As `programs.chain_of_ten`."""
    x = numpy.abs(numpy.sin((weights[0] + 1) * 2) - 0.5)
    return (numpy.tanh(numpy.sqrt(x * x) + 3) * 0.25).sum()


def _perceptron(numpy: Any, weights: Any, x: Any) -> Any:
    for index in range(0, len(weights), 2):
        x = x @ weights[index].T + weights[index + 1]
        x = numpy.maximum(x, 0) if index + 2 < len(weights) else x
    return x.sum()


def _many(numpy: Any, weights: Any, x: Any) -> Any:
    for one in weights:
        x = x + one
    return x.sum()


LOSSES: dict[str, Callable[..., Any]] = {
    "add": _add,
    "chain": _chain,
    "perceptron": _perceptron,
    "many": _many,
}


def jax_gelu_sum(x: torch.Tensor, y: torch.Tensor) -> Callable[..., Any]:
    """As `programs.gelu_sum`; it takes arrays of its own and answers a tensor."""
    jax = importlib.import_module("jax")
    numpy = importlib.import_module("jax.numpy")
    array = importlib.import_module("numpy").asarray
    given = [numpy.asarray(one.numpy()) for one in (x, y)]
    jitted = jax.jit(lambda x, y: jax.nn.gelu(x * y + 1, approximate=False).sum(-1))
    return lambda *_: torch.from_numpy(array(jitted(*given)).copy())


def jax_step(
    name: str, parameters: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]
) -> Callable[..., Any]:
    """A step that keeps its parameters."""
    jax = importlib.import_module("jax")
    numpy = importlib.import_module("jax.numpy")
    loss = LOSSES[name]
    weights = [numpy.asarray(one.detach().numpy()) for one in parameters]
    given = [numpy.asarray(one.numpy()) for one in inputs]

    def update(weights: Any, *given: Any) -> Any:
        value, found = jax.value_and_grad(lambda now: loss(numpy, now, *given))(weights)
        return value, [one - 1e-3 * its for one, its in zip(weights, found, strict=True)]

    jitted = jax.jit(update, donate_argnums=(0,))

    def step(*_: Any) -> Any:
        nonlocal weights
        value, weights = jitted(weights, *given)
        return value.block_until_ready()

    return step
