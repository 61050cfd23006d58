"""What a table says of a goal, and how stages are judged."""

from __future__ import annotations

import pytest

from benchmarks import sampling, stages
from benchmarks.results import Measured, Row, size, table


def row(windfall: list[float] | None, peer: list[float] | None, /, **goals: float) -> Row:
    """A row with eager at 1 second, and what the two others took."""
    samples = {"eager": [1.0] * 5, "windfall": windfall, "peer": peer}
    good = {name: times for name, times in samples.items() if times}
    summaries = sampling.summarised(good, "eager")
    measured = {
        name: Measured(summaries[name], samples=times) if times else Measured(problem="it failed")
        for name, times in samples.items()
    }
    return Row("a case", "eager", measured, goals)


def test_every_goal_is_judged_against_its_own_peer() -> None:
    found = row([0.9] * 5, [0.5] * 5, eager=1.0, peer=1.1)
    assert (found.verdict("eager"), found.verdict("peer"), found.met) == (True, False, False)
    text = table([found])
    assert "windfall / peer" in text
    assert "eager 1 met, peer 1.1 missed" in text


def test_a_peer_that_did_not_run_judges_nothing() -> None:
    found = row([0.9] * 5, None, eager=1.0, peer=1.1)
    assert (found.verdict("peer"), found.met) == (None, True)
    assert "it failed" in table([found])


def test_a_windfall_that_failed_has_missed_its_goal() -> None:
    assert row(None, [1.0] * 5, eager=1.0).met is False


def test_a_row_without_goals_is_not_judged() -> None:
    assert row([5.0] * 5, [1.0] * 5).met is None


@pytest.mark.parametrize(
    ("count", "text"), [(1.5e9, "1.5 GB"), (2.5e8, "250 MB"), (4096, "4.1 kB")]
)
def test_sizes_for_people(count: float, text: str) -> None:
    assert size(count) == text


def test_the_power_of_growth() -> None:
    assert stages.growth_power((100, 1.0), (200, 2.0)) == pytest.approx(1)
    assert stages.growth_power((100, 1.0), (200, 4.0)) == pytest.approx(2)
    assert stages.growth_power((100, 1.0), (200, 1.0)) == 0
    assert stages.growth_power((100, 0.0), (200, 1.0)) == 0
