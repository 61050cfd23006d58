"""The hard cases and the rows of the checklist, compiled, against the same programs uncompiled."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from tests.programs.case import Case, cases_of
from tests.programs.compare import Outcome, compare
from tests.programs.subjects import Windfall

HARD, ROWS = cases_of("cases"), cases_of("rows")
OPEN = frozenset(
    line
    for line in (Path(__file__).parent / "open.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
)


def rows(test: str, cases: list[Case]) -> list[ParameterSet]:
    """The cases of a test; those that are open are expected to fail."""
    mark = pytest.mark.xfail(strict=True, reason="open: tests/programs/open.txt")
    return [
        pytest.param(one, id=str(one), marks=[mark] if f"{test}[{one}]" in OPEN else [])
        for one in cases
    ]


EVERY = list(HARD + ROWS)
COUNTED = [one for one in EVERY if one.about.graphs]


@functools.cache
def captured(case: Case) -> Outcome:
    """What becomes of a case when its graphs run as they are."""
    return compare(case, Windfall("eager"))


@pytest.mark.parametrize("case", rows("test_equals_the_uncompiled_program", EVERY))
def test_equals_the_uncompiled_program(case: Case) -> None:
    outcome = captured(case)
    assert not outcome.wrong, str(outcome)


@pytest.mark.parametrize("case", rows("test_has_as_many_graphs_as_are_enough", COUNTED))
def test_has_as_many_graphs_as_are_enough(case: Case) -> None:
    if case.about.waits:
        pytest.skip(f"not counted until windfall reads {case.about.waits}")
    outcome = captured(case)
    fewest, most = case.about.graphs
    assert fewest <= len(outcome.graphs) <= most, f"wanted {fewest} to {most}\n{outcome}"


@pytest.mark.parametrize("case", rows("test_equals_it_as_native_code", EVERY))
def test_equals_it_as_native_code(case: Case) -> None:
    outcome = compare(case, Windfall("windfall"))
    assert not outcome.wrong, str(outcome)
