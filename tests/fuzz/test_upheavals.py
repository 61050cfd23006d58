"""Worlds that change between calls: compiled and uncompiled agree all the same."""

from __future__ import annotations

import pytest

from tests.fuzz.running import SCENERY, numbered, outcome_of_upheaval
from tests.fuzz.upheaval import upheaval
from tests.programs.compare import Subject
from tests.programs.subjects import Uncompiled, Windfall

SAMPLE = range(100)
MANY = range(1000, 6000)


def check(seed: int, subject: Subject, texts: bool) -> None:
    source = upheaval(seed, texts=texts)
    outcome = outcome_of_upheaval(source, subject)
    assert not outcome.wrong, f"\n{numbered(source, SCENERY)}\n\n{outcome}"


@pytest.mark.conformance
@pytest.mark.parametrize("seed", range(200))
def test_uncompiled_programs_repeat_themselves(seed: int) -> None:
    check(seed, Uncompiled(), texts=True)


@pytest.mark.parametrize("seed", SAMPLE)
def test_changes_are_noticed(seed: int) -> None:
    check(seed, Windfall("eager"), texts=True)


@pytest.mark.conformance
@pytest.mark.parametrize("backend", ["eager", "windfall"])
def test_many_changes_are_noticed(backend: str) -> None:
    for seed in MANY:
        check(seed, Windfall(backend), texts=True)
