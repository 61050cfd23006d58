"""`windfall.timeline("trace.json")`: events as a trace that Perfetto and chrome://tracing show.

Enters: the events of compiled objects. Leaves: a JSON object of the Chrome trace format: a span for
each stage and for each measured call (`options={"runs": True}`), on the thread that did it; a mark
for each break, fall-back, recompilation and the like. Invariant: times are those of the events, in
microseconds since the first of them; spans of one thread nest or stand apart, as they ran.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from windfall.events import Event, EventKind
from windfall.ir.stages import Capture

# How many characters of a reason stand beside a mark.
_SHORT = 400


def trace_of(objects: Sequence[tuple[str, Iterable[Event]]]) -> dict[str, Any]:
    """The trace of compiled objects, by their titles."""
    found = [(title, event) for title, events in objects for event in events]
    start = min((event.started for _, event in found), default=0.0)
    threads: dict[int, int] = {}
    for _, event in sorted(found, key=lambda one: one[1].started):
        threads.setdefault(event.thread, len(threads))
    rows = [
        _named("process_name", 0, "windfall"),
        *(_named("thread_name", number, f"thread {number}") for number in threads.values()),
    ]
    for title, event in found:
        rows += _rows(title, event, start, threads[event.thread])
    return {"traceEvents": rows, "displayTimeUnit": "ms", "otherData": {"by": "windfall"}}


def _named(what: str, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": os.getpid(), "tid": thread, "name": what, "args": {"name": name}}


def _rows(title: str, event: Event, start: float, thread: int) -> Iterable[dict[str, Any]]:
    at: dict[str, Any] = {"pid": os.getpid(), "tid": thread, "cat": title}
    at["ts"] = (event.started - start) * 1e6
    facts = {name: str(value)[:_SHORT] for name, value in event.facts.items()}
    args: dict[str, Any] = {"object": title, "of": event.subject, **facts}
    if event.kind.is_stage or event.kind is EventKind.RUN:
        args["cpu_ms"] = round(event.cpu_seconds * 1e3, 3)
        yield {**at, "ph": "X", "name": event.kind, "dur": event.seconds * 1e6, "args": args}
    else:
        yield {**at, "ph": "i", "s": "t", "name": event.kind, "args": args}
    if isinstance(event.record, Capture) and event.record.stopped is not None:
        stopped = event.record.stopped
        told = {"object": title, "where": str(stopped.where), "detail": stopped.detail}
        at["ts"] += event.seconds * 1e6
        yield {**at, "ph": "i", "s": "t", "name": f"break W{stopped.number:04d}", "args": told}
