"""What each stage did: the one source of explain, logs, report and timeline.

Enters: an `Event` for each stage run, graph, break, fall-back. Leaves: an ordered log that belongs
to one compiled object. A kind of event is declared once, here or outside, with the names of
`WINDFALL_LOGS` that show it. Invariant: an event holds printable facts and records, never user
tensors; recording never raises into the program; what a stage made is kept only where it was asked
for.
"""

from __future__ import annotations

import enum
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import field
from operator import attrgetter
from typing import Any

from windfall import locks
from windfall.dataclass import dataclass


def _nothing(record: Any) -> None:
    return None


def _itself(record: Any) -> Any:
    return record


class EventType(str):
    """What can happen, by its name. `is_stage`: it is timed, and has a record; `summary` is what
    stays of the record where nobody asked for it whole; `logs` are names of WINDFALL_LOGS that
    show it. Making one declares it, from wherever it is made."""

    __slots__ = ("is_stage", "summary")

    is_stage: bool
    summary: Callable[[Any], Any]

    def __new__(
        cls,
        name: str,
        is_stage: bool = False,
        summary: Callable[[Any], Any] = _nothing,
        logs: tuple[str, ...] = (),
    ) -> EventType:
        made = str.__new__(cls, name)
        made.is_stage = is_stage
        made.summary = summary
        taken = [log for log in logs if log in LOGS]
        if taken or name in TYPES:
            raise ValueError(f"declared twice: {[name, *taken]}")
        TYPES[name] = made
        LOGS.update(dict.fromkeys(logs, made))
        return made


TYPES: dict[str, EventType] = {}
# The names of WINDFALL_LOGS, and whose texts they show (`timings`: how long every stage took).
LOGS: dict[str, EventType | None] = {"timings": None}


class EventKind:
    """What windfall itself notes."""

    # The stages, in their order. The entry has what the first two make too.
    CAPTURE = EventType("capture", True, _itself, ("graph", "guards", "breaks"))
    REWRITE = EventType("rewrite", True, _itself, ("source",))
    FLATTEN = EventType("flatten", True)  # tensor subclasses taken apart
    DIFFERENTIATE = EventType("differentiate", True, logs=("joint",))
    SPLIT = EventType("split", True, logs=("split",))
    ARRANGE = EventType("arrange", True)
    DIVIDE = EventType("divide", True)
    LOWER = EventType("lower", True)
    SCHEDULE = EventType("schedule", True, logs=("loops",))
    PLAN = EventType("plan", True, attrgetter("arena_bytes"))
    EMIT = EventType("emit", True, logs=("llvm",))
    BUILD = EventType("build", True, attrgetter("kernels"), ("kernels",))  # without machine code
    ASSEMBLE = EventType("assemble", True, attrgetter("native_calls"))
    BIND = EventType("bind", True)
    ENTER = EventType("enter", True, attrgetter("native"))
    BACKEND = EventType("backend", True)  # a backend of the user
    SUBGRAPHS = EventType("subgraphs", True)  # a graph that reads data, partitioned
    # What else is worth telling.
    REUSE = EventType("reuse")  # an equal graph was compiled before
    # Something runs eagerly: `what` says what, `reason` why.
    FALLBACK = EventType("fallback", logs=("fallbacks",))
    RECOMPILE = EventType("recompile", logs=("recompiles",))  # a call fitted no entry
    SPECIALISE = EventType("specialise")  # a size had to be fixed
    EVICT = EventType("evict", logs=("evictions",))  # an entry went
    # Executables on disk: `how` one was found, stored, not stored (then with its `reason`).
    CACHE = EventType("cache", logs=("cache",))
    # A backward pass of our engine: `how` it went, and the program of one that was recorded.
    PASS = EventType("pass", summary=_itself, logs=("passes",))
    # What a tree did: `what`, and where it ran unrecorded, `reason` and `remedy`; the `counters` of
    # a region that was registered go on counting.
    TREES = EventType("trees", logs=("trees",))
    # `verify=N`. `how`: agreed, parted, not compared; `reason` where there is one.
    VERIFY = EventType("verify", logs=("verify",))
    RUN = EventType("run")  # a call of the compiled object, where calls are timed


STAGES = tuple(kind for kind in TYPES.values() if kind.is_stage)


class Eager(enum.StrEnum):
    """What can run eagerly."""

    CALL = "a call, or the rest of it"
    LOOP = "a loop that does nothing with tensors"
    GRAPH = "a graph, op by op"
    BACKWARD = "backward, op by op"


@dataclass(slots=True)
class Event:
    """One thing that happened; `record` is what the stage returned, printed only when asked for."""

    kind: EventType
    subject: str
    started: float
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    record: Any = None
    facts: dict[str, Any] = field(default_factory=dict)
    thread: int = field(default_factory=threading.get_ident)


Listener = Callable[[Event], None]
# Told when a stage begins: what kind of one, and of what.
BeginListener = Callable[[EventType, str], None]


class Subscription:
    """Whoever wants to hear of all events of the process: `ended` of each one, `began` of each
    stage when it begins. A context manager: at its end, or after `close`, nothing is heard."""

    def __init__(self, ended: Listener, began: BeginListener | None = None) -> None:
        self._ended, self._began = ended, began

    def close(self) -> None:
        """Hear nothing any more."""
        _subscriptions.pop(id(self), None)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *raised: Any) -> None:
        self.close()

    def _hears(self, function: Callable[..., Any] | None, *what: Any) -> None:
        """One that raises is told of it once, and hears no more: the program must not notice."""
        try:
            if function is not None:
                function(*what)
        except Exception as error:
            self.close()
            text = f"a subscriber of windfall's events raised {type(error).__name__}: {error}"
            warnings.warn(text, RuntimeWarning, stacklevel=2)


_subscriptions: dict[int, Subscription] = {}


def subscribe(ended: Listener, began: BeginListener | None = None) -> Subscription:
    """Call `ended(event)` for each event of every compiled object from now on, and `began(kind,
    subject)` when a stage begins, on the thread that does it. An event has `kind`, `subject`,
    `seconds`, `cpu_seconds`, `started`, `thread`, `facts` and (while it is told) `record`."""
    made = Subscription(ended, began)
    _subscriptions[id(made)] = made
    return made


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

    @property
    def keeps_records(self) -> bool:
        """Whether somebody wants to see all that stages make."""
        return self._records

    def add(self, kind: EventType, subject: str, record: Any = None, **facts: Any) -> Event:
        """Note something that took no time worth telling."""
        event = Event(kind, subject, time.perf_counter(), record=record, facts=facts)
        self._append(event)
        return event

    @contextmanager
    def stage(self, kind: EventType, subject: str) -> Iterator[Event]:
        """Time a stage; the caller sets `event.record`. A stage that raises is noted too."""
        for one in tuple(_subscriptions.values()):
            one._hears(one._began, kind, subject)
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

    def count(self, kind: EventType, subject: str, **facts: Any) -> None:
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
        for one in tuple(_subscriptions.values()):
            one._hears(one._ended, event)
        if not self._records and event.record is not None:
            event.record = event.kind.summary(event.record)

    def snapshot(self, kind: EventType | str | None = None) -> tuple[Event, ...]:
        """The events so far, all or of one kind."""
        with self._lock:
            return tuple(event for event in self._events if kind in (None, event.kind))
