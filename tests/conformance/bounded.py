"""Time and memory of programs that make much out of little, against eager: `PROGRAMS`.

    python -m tests.conformance.bounded [--form plain|between] [--only NAME ...] [--limit SECONDS]

Each program runs eagerly and compiled, each in a process of its own, once. Printed are the times
(of the processor: what else runs on the machine is no program's), the memory at its highest above
where the process began, and the break that was counted. A program
is over the bound where it takes more than ten times eager's time plus a second, or more than
eager's memory plus 100 MB, or answers otherwise, or does not come back. The answer of the command
is how many are.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch

import windfall
from tests.conformance.bounded_programs import PROGRAMS, Program
from windfall.events import EventLog

TIMES, SECONDS, BYTES = 10, 1.0, 100 << 20
MOST_MEMORY = 4 << 30  # of a child: one that explodes ends there


@dataclass(frozen=True, slots=True)
class Run:
    """What one process found."""

    answer: str
    seconds: float
    bytes: int
    breaks: str = ""


def function_of(program: Program, form: str) -> Callable[[Any], Any]:
    """The program itself, or between two operations on tensors."""
    function = program.function
    if form == "plain":
        return function

    def between(n: Any) -> Any:
        x = torch.ones(3) + 1
        found = function(n)
        return found, (x * 2).sum().item()

    return between


def _measure(sender: Connection, program: Program, form: str, compiled: bool) -> None:
    """In the child."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    function = function_of(program, form)
    call = windfall.compile(function) if compiled else function
    given = program.make(program.large)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.process_time()
    try:
        answer = repr(call(given))[:200]
    except Exception as error:
        answer = f"{type(error).__name__}: {error}"[:200]
    seconds = time.process_time() - started
    held = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    reasons = ""
    if compiled:
        reasons = "; ".join(dict.fromkeys(_reasons(getattr(call, "log"))))  # noqa: B009
    sender.send(Run(answer, seconds, held, reasons))


def _reasons(log: EventLog) -> Iterator[str]:
    """Why it did not go on in one graph."""
    for event in log.snapshot():
        stopped = getattr(event.record, "stopped", None) if event.kind == "capture" else None
        if stopped is not None:
            yield f"W{stopped.number:04d} {stopped.detail[:40]}"
        elif event.kind == "fallback":
            yield f"fallback {event.facts['reason'][:60]}"


def measured(program: Program, form: str, compiled: bool, limit: float) -> Run | None:
    """One run in a process of its own; None: it did not come back."""
    fork = multiprocessing.get_context("fork")
    receiver, sender = fork.Pipe(duplex=False)
    child = fork.Process(target=_measure, args=(sender, program, form, compiled))
    child.start()
    sender.close()
    found: Run | None = None
    try:
        if receiver.poll(limit):
            found = receiver.recv()
    except EOFError:
        found = None
    child.kill()
    child.join()
    return found


def verdict(eager: Run, ours: Run | None) -> str:
    """What is over the bound; empty: nothing."""
    if ours is None:
        return "DOES NOT COME BACK"
    found = []
    if ours.answer != eager.answer:
        found.append(f"ANSWERS {ours.answer[:60]} not {eager.answer[:60]}")
    if ours.seconds > TIMES * eager.seconds + SECONDS:
        found.append("SLOW")
    if ours.bytes > eager.bytes + BYTES:
        found.append("MEMORY")
    return " ".join(found)


def main() -> int:
    """Print a row for each program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--form", choices=("plain", "between"), default="between")
    parser.add_argument("--only", nargs="*", default=())
    parser.add_argument("--limit", type=float, default=30.0)
    asked = parser.parse_args()
    warm = windfall.compile(lambda x: x + 1)
    warm(torch.ones(3))  # what is loaded at the first call is no program's
    over = 0
    for name, program in PROGRAMS.items():
        if asked.only and name not in asked.only:
            continue
        eager = measured(program, asked.form, False, asked.limit)
        if eager is None:
            print(f"{name:26} eager does not come back", flush=True)
            continue
        ours = measured(program, asked.form, True, asked.limit)
        found = verdict(eager, ours)
        over += bool(found)
        shown = ours or Run("", asked.limit, 0)
        print(
            f"{name:26} {eager.seconds:7.3f} s {shown.seconds:8.3f} s {eager.bytes / 2**20:6.0f} MB"
            f" {shown.bytes / 2**20:6.0f} MB  {found}  [{shown.breaks[:110]}]",
            flush=True,
        )
    print(f"{over} over the bound")
    return over


if __name__ == "__main__":
    sys.exit(main())
