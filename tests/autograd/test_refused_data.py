"""Gradients that eager refuses for their data, or of which second ones depend on data."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import windfall
from tests.autograd.both import Compile, both, raised

VECTORS = {
    "eigh": lambda x: torch.linalg.eigh(x + x.mH),
    "eig": lambda x: torch.linalg.eig(x),
    "svd": lambda x: torch.linalg.svd(x, full_matrices=False),
    "vectors alone": lambda x: (torch.linalg.eigh(x + x.mH)[1],),
    "qr": lambda x: torch.linalg.qr(x),
}


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("invariant", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("name", VECTORS)
def test_phases_of_eigenvectors(
    name: str, dtype: torch.dtype, invariant: bool, inside: bool
) -> None:
    """A gradient that depends on what the vectors do not determine is refused where eager does; one
    that does not is eager's. `inside`: the pass is part of the compiled function."""

    def loss(x: torch.Tensor) -> torch.Tensor:
        results = VECTORS[name](x)
        if invariant:
            return sum((one.abs() ** 2).sum(0)[0] for one in results[-1:]) + results[0].abs().sum()
        return sum((one * torch.arange(1, 4)).real.sum() for one in results)

    def scenario(compile: Compile) -> Any:
        x = torch.randn(3, 3, dtype=dtype, requires_grad=True)
        if inside:
            run: Any = compile(lambda x: torch.autograd.grad(loss(x * 1), x))
        else:
            function = compile(loss)
            run = lambda x: torch.autograd.grad(function(x * 1), x)  # noqa: E731
        found: list[Any] = []
        return raised(lambda: found.extend(run(x))) or found

    torch.manual_seed(0)
    wanted = scenario(lambda function: function)
    torch.manual_seed(0)
    found = scenario(windfall.compile)
    if isinstance(wanted, tuple):
        assert found == wanted
    else:
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("name", ["trace", "slogdet"])
def test_second_derivatives(name: str) -> None:
    """Those of a trace depend on data (of indices): by eager's ops, from the first ones on.
    Those of a determinant's logarithm read the matrix, which first ones do not: it is kept."""

    def scenario(compile: Compile) -> Any:
        functions = {"trace": torch.trace, "slogdet": lambda x: tuple(torch.linalg.slogdet(x))}
        x = torch.randn(3, 3, dtype=torch.float64, requires_grad=True)
        results = compile(functions[name])(x * 1)
        result = results[1] if name == "slogdet" else results
        tangent = torch.ones_like(result, requires_grad=True)
        (first,) = torch.autograd.grad(result, x, tangent, create_graph=True)
        further = torch.randn_like(first)
        return first, torch.autograd.grad(first, [x, tangent], further, allow_unused=True)

    both(scenario, {"backward, op by op": 1} if name == "trace" else None)
