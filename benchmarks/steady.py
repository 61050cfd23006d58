"""Steady state in one process: every contender ready and warm, then timed in turn.

Enters: cases. Leaves: rows whose ratios are to eager's time. Invariant: one thread, CPU time (a
neighbour on the machine does not count), and a contender is timed only after its results were
found equal to eager's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from benchmarks import sampling
from benchmarks.case import Case, Run, agree, outcome, runner
from benchmarks.contenders import CONTENDERS, PEERS, remembering
from benchmarks.results import Measured, Row

WARM_CALLS = 3  # the second may compile again (dynamic sizes), the third uses what is there


@dataclass(frozen=True, slots=True)
class Settings:
    """How long to measure."""

    rounds: int = 25
    sample_seconds: float = 0.01


def measure(cases: Sequence[Case], contenders: Sequence[str], settings: Settings) -> Iterator[Row]:
    """A row for each case, as soon as it is there."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for case in cases:
            with torch.set_grad_enabled(case.differentiates):
                yield _row(case, contenders, settings)
    finally:
        torch.set_num_threads(threads)


def _row(case: Case, contenders: Sequence[str], settings: Settings) -> Row:
    runs: dict[str, Run] = {}
    notes: dict[str, str] = {}
    found: dict[str, Measured] = {}
    for name in contenders:
        try:
            notes[name] = CONTENDERS[name].note(case)
            runs[name] = _ready(case, name)
        except Exception as error:  # a contender that cannot is part of the result
            found[name] = Measured(problem=_short(error))
    samples = sampling.interleaved(runs, settings.rounds, settings.sample_seconds)
    summaries = sampling.summarised(samples, contenders[0])
    for name in runs:
        found[name] = Measured(summaries[name], note=notes[name], samples=samples[name])
    return Row(case.label, contenders[0], {name: found[name] for name in contenders}, case.goals)


def _ready(case: Case, name: str) -> Run:
    subject = case.subject()
    backend = remembering if case.call_only else None
    own = subject.own.get(name)
    if name in PEERS:
        if own is None:
            raise LookupError("no program of its own for this case")
        run = runner(subject, own(), case.mode)
        run()  # which compiles; it has tensors of its own
    else:
        run = runner(subject, CONTENDERS[name].ready(subject.program, backend), case.mode)
        agree(outcome(subject, run, case.mode), case, name)
    for _ in range(WARM_CALLS):
        run()
    return run


def _short(error: Exception) -> str:
    first = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {first[0]}"[:60]
