"""Random graphs agree with eager (more of them: `make conformance`)."""

from __future__ import annotations

import pytest

from tests.codegen import varying
from tests.codegen.harness import agree
from tests.codegen.random_graphs import make, make_varying


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs(seed: int) -> None:
    trace, outs = make(seed)
    agree(trace, *outs, tolerance=1e-4)


@pytest.mark.parametrize("seed", range(25))
def test_random_graphs_of_sizes_that_vary(seed: int) -> None:
    trace, outs = make_varying(seed)
    varying.agree(trace, *outs, sizes=(2, 3, 8, 17), tolerance=1e-4)


@pytest.mark.conformance
@pytest.mark.parametrize("seed", range(1000, 1200))
def test_many_random_graphs_of_sizes_that_vary(seed: int) -> None:
    trace, outs = make_varying(seed, steps=18)
    varying.agree(trace, *outs, sizes=(2, 5, 8, 33), tolerance=2e-4)


@pytest.mark.conformance
@pytest.mark.parametrize("seed", range(1000, 1400))
def test_many_random_graphs(seed: int) -> None:
    trace, outs = make(seed, steps=20)
    agree(trace, *outs, tolerance=2e-4)
