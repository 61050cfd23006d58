"""Random training loops beside eager: a few here, the others in `make conformance`."""

from __future__ import annotations

import pytest

from tests.training.composer import check
from tests.training.ways import COMPILED


@pytest.mark.filterwarnings("ignore")  # of eager too
@pytest.mark.parametrize("seed", range(12))
def test_a_sample(seed: int) -> None:
    outcome = check(seed, "step" if seed % 2 else "engine")
    assert not outcome.wrong, outcome


@pytest.mark.conformance
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("way", COMPILED)
@pytest.mark.parametrize("seed", range(1000, 1120))
def test_many(seed: int, way: str) -> None:
    outcome = check(seed, way)
    assert not outcome.wrong, outcome
