"""`windfall bench MODULE:FUNCTION ARGUMENTS…`: does compiling pay for this function, here.

Enters: what `explain` takes. Leaves: the time of a call in eager and compiled, their ratio, what
the first call cost. Invariant: both are called in turn, in samples of many calls, so that what else
the machine does meets both alike; the ratio is the median over pairs of samples. A function whose
compiled answer is not eager's is not timed, and is an error; one that ran in eager after all is
said to have done so.

With `--backward` a call is a training step: results are summed up and back-propagated.
"""

from __future__ import annotations

import argparse
import gc
import math
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from windfall import api
from windfall.commands import explain
from windfall.commands.verb import Answer, Verb
from windfall.errors import UserError

SAMPLE_SECONDS = 0.02
LEAST_ROUNDS = 5  # with fewer there is no interval to speak of
WARM_CALLS = 3

Call = Callable[[], Any]


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=15, help="pairs of samples (15)")
    parser.add_argument("--backward", action="store_true", help="time forward and backward")
    parser.add_argument(
        "--cpu", action="store_true", help="CPU time of all threads, for a machine that is busy"
    )
    parser.add_argument("--mode", default=None, help="as of windfall.compile")
    explain.arguments(parser)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _tensors(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _tensors(one)


def _step(function: Any, args: list[Any], backward: bool) -> Call:
    if not backward:
        return lambda: function(*args)

    def step() -> Any:
        result = function(*args)
        sums = [one.sum() for one in _tensors(result) if one.requires_grad]
        torch.autograd.backward(sums)
        return result

    return step


def _check(function: Any, args: list[Any], backward: bool) -> None:
    """The words fit: it can be called, and differentiated if that is wanted."""
    try:
        result = function(*args)
    except Exception as error:
        raise UserError(f"the call raised {type(error).__name__}: {error}") from error
    if backward and not any(one.requires_grad for one in _tensors(result)):
        raise UserError("--backward: no result needs a gradient; give an argument requires_grad")


def _seconds(call: Call, times: int, clock: Callable[[], float]) -> float:
    start = clock()
    for _ in range(times):
        call()
    return (clock() - start) / times


def _repetitions(call: Call, clock: Callable[[], float]) -> int:
    times = 1
    while True:
        spent = _seconds(call, times, clock) * times
        if spent >= SAMPLE_SECONDS / 2 or times > 1 << 20:
            return max(1, math.ceil(times * SAMPLE_SECONDS / max(spent, 1e-9)))
        times *= 4


def _timed(
    calls: tuple[Call, Call], rounds: int, clock: Callable[[], float]
) -> tuple[list[float], list[float]]:
    counts = [_repetitions(call, clock) for call in calls]
    samples: tuple[list[float], list[float]] = ([], [])
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for turn in range(rounds):
            for which in (0, 1) if turn % 2 == 0 else (1, 0):
                samples[which].append(_seconds(calls[which], counts[which], clock))
    finally:
        if was_enabled:
            gc.enable()
    return samples


def _interval(ratios: list[float]) -> tuple[float, float]:
    """Of the median, 95 %: by ranks, whatever the distribution is."""
    count = len(ratios)
    low, tail = 0, 0.0
    while low < (count - 1) // 2 and (tail := tail + math.comb(count, low) / 2**count) <= 0.025:
        low += 1
    low = max(low - 1, 0)
    return ratios[low], ratios[count - 1 - low]


def _copied(value: Any) -> Any:
    """For a call that may write to what it is given."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    if isinstance(value, dict):
        return {name: _copied(one) for name, one in value.items()}
    return type(value)(map(_copied, value)) if type(value) in (list, tuple) else value


def _agreement(function: Any, compiled: Any, args: list[Any]) -> str:
    """Why the two may not be compared; "": they agree. Random numbers are the same for both."""
    answers = []
    for call in (function, compiled):
        torch.manual_seed(0)
        answers.append([one.detach().clone() for one in _tensors(call(*_copied(args)))])
    try:
        torch.testing.assert_close(answers[1], answers[0], rtol=1e-3, atol=1e-3, equal_nan=True)
    except AssertionError as error:
        return str(error).strip().splitlines()[0]
    return ""


def _run(given: argparse.Namespace) -> Answer:
    if given.rounds < LEAST_ROUNDS:
        raise UserError(f"--rounds must be at least {LEAST_ROUNDS}, not {given.rounds}")
    function, args = explain.called_with(given)
    _check(function, args, given.backward)
    clock = time.process_time if given.cpu else time.perf_counter
    compiled = api.compile(function, mode=given.mode)
    eager_step, compiled_step = (_step(one, args, given.backward) for one in (function, compiled))
    first = _seconds(compiled_step, 1, clock)
    wrong = _agreement(function, compiled, args)
    if wrong:
        said = f"compiled and eager disagree: {wrong}; see: windfall bisect {given.place} …"
        return Answer(said, {"error": said}, 1)
    for call in (eager_step, compiled_step):
        _seconds(call, WARM_CALLS, clock)
    samples = _timed((eager_step, compiled_step), given.rounds, clock)
    return _told(given, samples, first, api.explanation(compiled))


def _told(
    given: argparse.Namespace, samples: tuple[list[float], list[float]], first: float, told: Any
) -> Answer:
    eager, compiled = map(statistics.median, samples)
    ratios = sorted(mine / theirs for theirs, mine in zip(*samples, strict=True))
    ratio, (low, high) = statistics.median(ratios), _interval(ratios)
    how = "eager" if told.eager or not told.graphs else "compiled"
    saved = eager - compiled
    pays = math.ceil(first / saved) if saved > 0 and high < 1 else None
    data = {
        "function": given.place, "rounds": given.rounds, "backward": given.backward,
        "clock": "cpu" if given.cpu else "wall", "threads": torch.get_num_threads(),
        "eager_seconds": eager, "windfall_seconds": compiled, "ratio": ratio,
        "interval": [low, high], "first_call_seconds": first, "pays_after_calls": pays,
        "ran": how, "breaks": len(told.breaks), "fallbacks": len(told.fallbacks),
    }  # fmt: skip
    lines = [
        f"{given.place}, {data['clock']} time, {given.rounds} interleaved pairs, "
        f"{data['threads']} threads",
        f"eager     {_time(eager)}",
        f"windfall  {_time(compiled)}, {ratio:.3g} of eager's [{low:.3g}, {high:.3g}]",
        f"first call {_time(first)}" + (f", regained after {pays:,} calls" if pays else ""),
    ]
    if how == "eager" or told.breaks or told.fallbacks:
        lines.append(
            f"not all of it was compiled: {len(told.breaks)} breaks, {len(told.fallbacks)} "
            f"fall-backs; see: windfall explain {given.place} …"
        )
    return Answer("\n".join(lines), data)


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


VERB = Verb("bench", "time a function: eager against windfall, in turn", _arguments, _run)
