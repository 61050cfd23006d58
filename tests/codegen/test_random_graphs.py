"""Random graphs agree with eager (more of them: `make conformance`)."""

from __future__ import annotations

import pytest

from tests.codegen.harness import agree
from tests.codegen.random_graphs import make


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs(seed: int) -> None:
    trace, outs = make(seed)
    agree(trace, *outs, tolerance=1e-4)


@pytest.mark.conformance
@pytest.mark.parametrize("seed", range(1000, 1400))
def test_many_random_graphs(seed: int) -> None:
    trace, outs = make(seed, steps=20)
    agree(trace, *outs, tolerance=2e-4)
