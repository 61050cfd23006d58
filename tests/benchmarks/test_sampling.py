"""The arithmetic of the benchmarks: what a ratio and its interval are."""

from __future__ import annotations

import math
from itertools import count

import pytest

from benchmarks import sampling


@pytest.mark.parametrize(
    ("values", "ranks"), [(1, (0, 0)), (5, (0, 4)), (6, (0, 5)), (9, (1, 7)), (15, (3, 11))]
)
def test_the_interval_of_a_median(values: int, ranks: tuple[int, int]) -> None:
    assert sampling.median_interval(values) == ranks


@pytest.mark.parametrize("values", range(6, 40))
def test_the_interval_is_the_narrowest_with_enough_confidence(values: int) -> None:
    def coverage(low: int) -> float:
        return 1 - 2 * sum(math.comb(values, k) for k in range(low + 1)) / 2**values

    low, high = sampling.median_interval(values)
    assert low + high == values - 1
    assert coverage(low) >= 0.95 > coverage(low + 1)


def test_ratios_are_taken_within_a_round() -> None:
    # The machine slows down tenfold in the middle: both contenders feel it, the ratio does not.
    slow = [1.0] * 8 + [10.0] * 7
    ratio = sampling.ratio([2 * one for one in slow], slow)
    assert (ratio.median, ratio.low, ratio.high, ratio.minima, ratio.pairs) == (2, 2, 2, 2, 15)


def test_contenders_take_turns_and_the_order_turns() -> None:
    calls: list[str] = []
    ticks = count()
    runs = {name: lambda name=name: calls.append(name) for name in "abc"}
    samples = sampling.interleaved(runs, rounds=3, sample_seconds=1.0, clock=lambda: next(ticks))
    assert {name: len(times) for name, times in samples.items()} == {"a": 3, "b": 3, "c": 3}
    assert "".join(calls[-9:]) == "abcbcacab"


def test_what_another_contender_costs_once_is_not_counted() -> None:
    """A call that has to be prepared again is slow once: samples are as long as without it."""
    seconds: list[float] = []

    def slow_once() -> None:
        seconds.append(0.01 if seconds else 100.0)

    sampling.interleaved({"a": slow_once}, 3, 1.0, clock=lambda: sum(seconds))
    assert len(seconds) > 3 * 90


def test_a_summary_is_relative_to_the_baseline() -> None:
    samples = {"eager": [1.0, 2.0, 3.0], "other": [0.5, 1.0, 1.5]}
    summaries = sampling.summarised(samples, "eager")
    assert summaries["other"].ratio.median == 0.5
    assert summaries["eager"].ratio.median == 1.0
    assert (summaries["other"].minimum, summaries["other"].median) == (0.5, 1.0)
