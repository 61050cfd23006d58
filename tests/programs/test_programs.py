"""The hard cases and the rows of the checklist, compiled, against the same programs uncompiled."""

from __future__ import annotations

import functools

import pytest

from tests.programs.case import Case, cases_of
from tests.programs.compare import Outcome, compare
from tests.programs.subjects import Windfall

HARD, ROWS = cases_of("cases"), cases_of("rows")


@functools.cache
def captured(case: Case) -> Outcome:
    """What becomes of a case when its graphs run as they are."""
    return compare(case, Windfall("eager"))


@pytest.mark.parametrize("case", HARD + ROWS, ids=str)
def test_equals_the_uncompiled_program(case: Case) -> None:
    outcome = captured(case)
    assert not outcome.wrong, str(outcome)


@pytest.mark.parametrize("case", [one for one in HARD + ROWS if one.about.graphs], ids=str)
def test_has_as_many_graphs_as_are_enough(case: Case) -> None:
    if case.about.waits:
        pytest.skip(f"not counted until windfall reads {case.about.waits}")
    outcome = captured(case)
    fewest, most = case.about.graphs
    assert fewest <= len(outcome.graphs) <= most, f"wanted {fewest} to {most}\n{outcome}"


@pytest.mark.parametrize("case", HARD + ROWS, ids=str)
def test_equals_it_as_native_code(case: Case) -> None:
    outcome = compare(case, Windfall("windfall"))
    assert not outcome.wrong, str(outcome)
