"""Random programs of regions, holds, drops, backwards, marks, threads, exceptions (`fuzz.py`)."""

from __future__ import annotations

import pytest

from tests.trees.fuzz import run


def test_random_programs() -> None:
    counted = run(60)
    assert counted["programs"] == 60 and counted["replayed"] > 50 and counted["evicted"] > 10


@pytest.mark.conformance
def test_many_random_programs() -> None:
    assert run(5000, seed=1000)["programs"] == 5000
