"""First results, each in a process of its own: with empty caches, or (`warm`) with those that an
earlier process has filled.

Enters: cases. Leaves: rows in CPU seconds, whose ratios are to torch.compile's. The parent starts
`python -m benchmarks.fresh CASE CONTENDER`; the child imports torch, makes the tensors, and only
then starts its watch: from compiling to the first result (training: to the first gradients, and
the first step of the optimizer where there is one). Invariant: CPU time counts the process and all
its children, living or dead.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from benchmarks import process
from benchmarks.case import Case, agree, answers, runner
from benchmarks.contenders import CONTENDERS, PEERS, remembering
from benchmarks.results import Row
from benchmarks.suites import first_results


def measure(cases: Sequence[Case], contenders: Sequence[str], repeats: int) -> Iterator[Row]:
    """A row for each case; contenders take turns."""
    baseline = "torch.compile" if "torch.compile" in contenders else contenders[0]
    for case in cases:
        yield process.in_turn(case, contenders, repeats, partial(_first, case.label), baseline)


def measure_warm(cases: Sequence[Case], contenders: Sequence[str], repeats: int) -> Iterator[Row]:
    """The same, each in a process that finds what the one before it has compiled. What lies on disk
    then, and how much memory the process took at most, is the note of a contender."""
    baseline = "torch.compile" if "torch.compile" in contenders else contenders[0]
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            yield _warm(case, contenders, repeats, baseline, Path(folder))


def _warm(case: Case, contenders: Sequence[str], repeats: int, baseline: str, folder: Path) -> Row:
    peaks: dict[str, float] = {}

    def first(contender: str) -> float:
        place = folder / contender.replace(" ", "-")
        if not place.exists():  # filled by two: what the second one learns is there for the third
            place.mkdir(mode=0o700)
            for _ in range(2):
                process.answer("benchmarks.fresh", case.label, contender, caches=place)
        told = process.answer("benchmarks.fresh", case.label, contender, caches=place)
        peaks[contender] = float(told["peak_bytes"])
        return float(told["cpu_seconds"])

    row = process.in_turn(case, contenders, repeats, first, baseline)
    # Of small programs the issue asks for seconds, and to be below JAX.
    part = {"torch.compile": 1 / 8 if case.mode == "training" else 1 / 10}
    row = replace(row, goals={"jax": 1.0} if "jax" in case.subject().own else part)
    for name in peaks:
        files = [one for one in (folder / name.replace(" ", "-")).rglob("*") if one.is_file()]
        size = sum(one.stat().st_size for one in files)
        note = f"{len(files)} files, {size / 1e6:.1f} MB; peak {peaks[name] / 1e6:.0f} MB"
        row.contenders[name] = replace(row.contenders[name], note=note)
    return row


def _first(label: str, contender: str) -> float:
    return float(process.answer("benchmarks.fresh", label, contender)["cpu_seconds"])


def cpu_seconds() -> float:
    """CPU time of this process and of every process under it, dead or alive."""
    spent = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        spent += usage.ru_utime + usage.ru_stime
    return spent + sum(map(_cpu_seconds_of, _children(os.getpid())))


def _children(number: int) -> list[int]:
    """Living children of a process, where /proc tells (Linux)."""
    tasks = Path(f"/proc/{number}/task")
    try:
        texts = [(task / "children").read_text() for task in tasks.iterdir()]
    except OSError:
        return []
    return [int(child) for text in texts for child in text.split()]


def _cpu_seconds_of(number: int) -> float:
    """CPU time of another process and of all that is under it."""
    try:
        text = Path(f"/proc/{number}/stat").read_text()
    except OSError:
        return 0.0  # it ended since: its parent has counted it
    fields = text.rpartition(")")[2].split()
    ticks = sum(map(int, fields[11:15]))  # user, system, and those of its dead children
    own = ticks / os.sysconf("SC_CLK_TCK")
    return own + sum(map(_cpu_seconds_of, _children(number)))


def _child(label: str, contender: str) -> None:
    (case,) = (one for one in first_results() if one.label == label)
    torch.set_num_threads(1)  # a second one would spend CPU time on waiting
    subject = case.subject()
    with torch.set_grad_enabled(case.differentiates):
        torch.manual_seed(0)
        started_wall, started = time.perf_counter(), cpu_seconds()
        backend = remembering if case.call_only else None
        if contender in PEERS and contender not in subject.own:
            sys.exit("no program of its own for this case")
        make = subject.own.get(contender)
        ready = CONTENDERS[contender].ready
        program = make() if make is not None else ready(subject.program, backend)
        result = runner(subject, program, case.mode)()
        spent = cpu_seconds() - started
        wall = time.perf_counter() - started_wall
        agree(answers(subject, result, case.mode), case, contender)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"cpu_seconds": spent, "wall_seconds": wall, "peak_bytes": peak}))


if __name__ == "__main__":
    _child(*sys.argv[1:])
