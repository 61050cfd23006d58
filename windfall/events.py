"""What each stage did: the one source of explain, logs, report and timeline.

Enters: an `Event` for each stage run, graph, break, fall-back. Leaves: an ordered log that belongs
to one compiled object. Invariant: an event holds printable facts and records, never user tensors;
recording never raises into the program.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from windfall import locks


@dataclass(slots=True)
class Event:
    """One thing that happened: `kind` is a stage's verb ("capture", "lower"), or "break",
    "fallback", "recompile"; `record` is what the stage returned, printed only when asked for."""

    kind: str
    subject: str
    started: float
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    record: Any = None
    facts: dict[str, Any] = field(default_factory=dict)


Listener = Callable[[Event], None]


class EventLog:
    """The last events of one compiled object, in order; safe to write from any thread. A record
    keeps machine code alive, so an object that compiles for ever must not keep all of them."""

    KEPT = 4096  # a compilation is some ten events

    def __init__(self, listeners: tuple[Listener, ...] = ()) -> None:
        self._events: deque[Event] = deque(maxlen=self.KEPT)
        self._counted: dict[Any, Event] = {}
        self._lock = locks.lock()
        self._listeners = listeners

    def add(self, kind: str, subject: str, record: Any = None, **facts: Any) -> Event:
        """Note something that took no time worth telling."""
        event = Event(kind, subject, time.perf_counter(), record=record, facts=facts)
        self._append(event)
        return event

    @contextmanager
    def stage(self, kind: str, subject: str) -> Iterator[Event]:
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

    def count(self, kind: str, subject: str, **facts: Any) -> None:
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

    def snapshot(self, kind: str | None = None) -> tuple[Event, ...]:
        """The events so far, all or of one kind."""
        with self._lock:
            return tuple(event for event in self._events if kind in (None, event.kind))


def printer(kinds: dict[str, Callable[[Event], str]]) -> Listener:
    """A listener that writes the events of these kinds to standard error, as WINDFALL_LOGS asks."""

    def listen(event: Event) -> None:
        show = kinds.get(event.kind)
        if show is not None:
            print(show(event), file=sys.stderr)

    return listen
