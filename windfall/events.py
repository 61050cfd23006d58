"""What each stage did: the one source of explain, logs, report and timeline.

Enters: an `Event` for each stage run, graph, break, fall-back. Leaves: an ordered log that belongs
to one compiled object. Kinds of events, the stages among them and the names of `WINDFALL_LOGS` are
declared here, once. Invariant: an event holds printable facts and records, never user tensors;
recording never raises into the program; what a stage made is kept only where it was asked for.
"""

from __future__ import annotations

import enum
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from windfall import locks


def _nothing(record: Any) -> None:
    return None


def _itself(record: Any) -> Any:
    return record


class EventKind(enum.StrEnum):
    """What can happen. `is_stage`: it is timed, and has a record; `summary` is what stays of the
    record where nobody asked for it whole."""

    is_stage: bool
    summary: Callable[[Any], Any]

    def __new__(
        cls, name: str, is_stage: bool = False, summary: Callable[[Any], Any] = _nothing
    ) -> EventKind:
        made = str.__new__(cls, name)
        made._value_ = name
        made.is_stage = is_stage
        made.summary = summary
        return made

    # The stages, in their order.
    CAPTURE = "capture", True, _itself  # which the entry has too
    REWRITE = "rewrite", True, _itself  # likewise
    DIFFERENTIATE = "differentiate", True
    SPLIT = "split", True
    ARRANGE = "arrange", True
    DIVIDE = "divide", True
    LOWER = "lower", True
    SCHEDULE = "schedule", True
    PLAN = "plan", True
    EMIT = "emit", True
    BUILD = "build", True, attrgetter("kernels")  # without the machine code
    ASSEMBLE = "assemble", True
    BIND = "bind", True
    ENTER = "enter", True, attrgetter("native")
    BACKEND = "backend", True  # a backend of the user
    SUBGRAPHS = "subgraphs", True  # a graph that reads data, partitioned
    # What else is worth telling.
    REUSE = "reuse"  # an equal graph was compiled before
    FALLBACK = "fallback"  # something runs eagerly: `what` says what, `reason` why
    RECOMPILE = "recompile"  # a call fitted no entry
    SPECIALISE = "specialise"  # a size had to be fixed
    EVICT = "evict"  # an entry went


STAGES = tuple(kind for kind in EventKind if kind.is_stage)


class Eager(enum.StrEnum):
    """What can run eagerly."""

    CALL = "a call, or the rest of it"
    LOOP = "a loop that does nothing with tensors"
    GRAPH = "a graph, op by op"
    BACKWARD = "backward, by replay"


# The names of WINDFALL_LOGS, and whose texts they show (`timings`: how long every stage took).
LOGS: dict[str, EventKind | None] = {
    "graph": EventKind.CAPTURE,
    "guards": EventKind.CAPTURE,
    "breaks": EventKind.CAPTURE,
    "source": EventKind.REWRITE,
    "joint": EventKind.DIFFERENTIATE,
    "split": EventKind.SPLIT,
    "loops": EventKind.SCHEDULE,
    "kernels": EventKind.BUILD,
    "llvm": EventKind.EMIT,
    "timings": None,
    "fallbacks": EventKind.FALLBACK,
    "recompiles": EventKind.RECOMPILE,
    "evictions": EventKind.EVICT,
}


@dataclass(slots=True)
class Event:
    """One thing that happened; `record` is what the stage returned, printed only when asked for."""

    kind: EventKind
    subject: str
    started: float
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    record: Any = None
    facts: dict[str, Any] = field(default_factory=dict)


Listener = Callable[[Event], None]


class EventLog:
    """The last events of one compiled object, in order; safe to write from any thread. `records`:
    they keep all that stages made (graphs, loops, LLVM text, machine code), else its summary."""

    KEPT = 4096  # a compilation is some ten events

    def __init__(self, listeners: tuple[Listener, ...] = (), *, records: bool = True) -> None:
        self._records = records
        self._events: deque[Event] = deque(maxlen=self.KEPT)
        self._counted: dict[Any, Event] = {}
        self._lock = locks.lock()
        self._listeners = listeners

    def add(self, kind: EventKind, subject: str, record: Any = None, **facts: Any) -> Event:
        """Note something that took no time worth telling."""
        event = Event(kind, subject, time.perf_counter(), record=record, facts=facts)
        self._append(event)
        return event

    @contextmanager
    def stage(self, kind: EventKind, subject: str) -> Iterator[Event]:
        """Time a stage; the caller sets `event.record`. A stage that raises is noted too."""
        event = Event(kind, subject, time.perf_counter())
        cpu = time.thread_time()
        try:
            yield event
        except BaseException as error:
            event.facts["raised"] = f"{type(error).__name__}: {error}"
            raise
        finally:
            event.seconds = time.perf_counter() - event.started
            event.cpu_seconds = time.thread_time() - cpu
            self._append(event)

    def count(self, kind: EventKind, subject: str, **facts: Any) -> None:
        """Note something that may happen on every call: one event, whose `times` grows."""
        key = (kind, subject, *facts.items())
        with self._lock:
            known = self._counted.get(key)
            if known is not None:
                known.facts["times"] += 1
                return
            event = Event(kind, subject, time.perf_counter(), facts={**facts, "times": 1})
            self._counted[key] = event
        self._append(event)

    def _append(self, event: Event) -> None:
        with self._lock:
            self._events.append(event)
        for listener in self._listeners:
            listener(event)
        if not self._records and event.record is not None:
            event.record = event.kind.summary(event.record)

    def snapshot(self, kind: EventKind | str | None = None) -> tuple[Event, ...]:
        """The events so far, all or of one kind."""
        with self._lock:
            return tuple(event for event in self._events if kind in (None, event.kind))
