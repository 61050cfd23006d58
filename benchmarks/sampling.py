"""Times of several contenders, fairly: in turn, many short samples, and what they say.

Enters: calls with no argument. Leaves: a `Summary` for each, with its ratio to the first.
Invariant: contenders alternate within each round and the order turns, so that a drift of the
machine (heat, a neighbour) meets all of them alike; ratios are taken within a round.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import repeat

from benchmarks.case import Run

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times the baseline's: the median over rounds, its 95 % interval, and the ratio of
    the two minima."""

    median: float
    low: float
    high: float
    minima: float
    pairs: int


@dataclass(frozen=True, slots=True)
class Summary:
    """Seconds of one call."""

    minimum: float
    median: float
    ratio: Ratio


def interleaved(
    runs: Mapping[str, Run],
    rounds: int,
    sample_seconds: float,
    clock: Clock = time.process_time,
) -> dict[str, list[float]]:
    """Seconds per call of each run, one sample a round. Each run is warm by itself; all are run
    again before they are counted, for one contender may change what another relies on
    (torch.compile wraps parts of torch's optimizers when it is first used)."""
    for run in runs.values():
        run()
    counts = {name: _repetitions(run, sample_seconds, clock) for name, run in runs.items()}
    names = list(runs)
    samples: dict[str, list[float]] = {name: [] for name in names}
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for turn in range(rounds):
            start = turn % len(names)
            for name in names[start:] + names[:start]:
                samples[name].append(_sample(runs[name], counts[name], clock))
    finally:
        if was_enabled:
            gc.enable()
    return samples


def summarised(samples: Mapping[str, list[float]], baseline: str) -> dict[str, Summary]:
    """What the samples say, each relative to `baseline`."""
    return {
        name: Summary(min(times), statistics.median(times), ratio(times, samples[baseline]))
        for name, times in samples.items()
    }


def ratio(times: list[float], baseline: list[float]) -> Ratio:
    """`times` over `baseline`, round by round."""
    ratios = sorted(mine / theirs for mine, theirs in zip(times, baseline, strict=True))
    low, high = median_interval(len(ratios))
    return Ratio(
        statistics.median(ratios),
        ratios[low],
        ratios[high],
        min(times) / min(baseline),
        len(ratios),
    )


def median_interval(count: int, confidence: float = 0.95) -> tuple[int, int]:
    """Which two of `count` sorted values enclose the true median with at least `confidence`.

    Each value lies below the true median with probability one half, whatever the distribution: the
    ranks come from the binomial distribution alone. Too few values: the outermost."""
    low, outside = 0, 2 / 2**count
    while low + 1 < count / 2:
        outside += 2 * math.comb(count, low + 1) / 2**count
        if outside > 1 - confidence:
            break
        low += 1
    return low, count - 1 - low


def _sample(run: Run, repetitions: int, clock: Clock) -> float:
    started = clock()
    for _ in repeat(None, repetitions):
        run()
    return (clock() - started) / repetitions


def _repetitions(run: Run, seconds: float, clock: Clock) -> int:
    """How many calls fill a sample of `seconds`."""
    repetitions = 1
    while True:
        taken = _sample(run, repetitions, clock) * repetitions
        if taken >= seconds / 4 or repetitions >= 1 << 20:
            return max(1, round(repetitions * seconds / max(taken, 1e-9)))
        repetitions *= 4
