"""Random graphs of nodes and hooks: a few here, the others in `make conformance`."""

from __future__ import annotations

import pytest

from tests.engine import fuzz
from tests.engine.sweep import engine
from windfall.engine.engine import REPLAYED
from windfall.reporting.explain import explanation_of


def _checked(seeds: range, native: bool) -> None:
    shared = engine(native)
    wrong = {seed: text for seed in seeds if (text := fuzz.check(shared, seed))}
    assert not wrong
    assert explanation_of(shared.log).passes[REPLAYED] > len(seeds)


@pytest.mark.filterwarnings("ignore")
def test_a_few() -> None:
    _checked(range(60), native=False)


@pytest.mark.conformance
@pytest.mark.filterwarnings("ignore")
def test_many() -> None:
    _checked(range(3000), native=False)


@pytest.mark.conformance
@pytest.mark.filterwarnings("ignore")
def test_many_natively() -> None:
    _checked(range(200), native=True)
