"""Events → the compilations of one compiled object: what each made, in the order of the program.

Enters: an `Explanation`. Leaves: a `History`: for each captured segment its graph, guards, break,
generated source, programs (forward, backward, each with kernels and, where they were kept, memory
plan, loops and LLVM text), and what the cache did. Invariant: every stage event belongs to exactly
one compilation, or to `others`; nothing is computed that events do not say.

An event belongs to the last compilation before it whose name its subject has: the subject of what
is made of a graph is the graph's name, and `forward` or `backward` behind it.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

from windfall.dataclass import dataclass
from windfall.events import Event, EventKind
from windfall.ir.loop import MemoryPlan, Schedule
from windfall.ir.stages import (
    Capture,
    Entry,
    Executable,
    KernelNote,
    LlvmModule,
    Program,
    Segment,
)
from windfall.reporting.explain import Explanation


@dataclass(slots=True)
class Built:
    """One program: what is known of it depends on whether records were kept."""

    name: str
    kernels: tuple[KernelNote, ...] = ()
    arena_bytes: Any = None
    plan: MemoryPlan | None = None
    schedules: list[Schedule] = field(default_factory=list)
    module: LlvmModule | None = None
    found: bool = False  # on disk: not built here


@dataclass(slots=True)
class Compilation:
    """One segment under one set of guards."""

    number: int
    point: str
    capture: Capture | None = None  # None: capturing was given up, `raised` says why
    raised: str = ""
    reason: str = ""  # why it was compiled again
    segment: Segment | None = None
    native: bool | None = None  # guards and program are one native call
    native_calls: int | None = None
    reused: bool = False  # an equal graph was compiled before
    programs: list[Built] = field(default_factory=list)
    stages: list[Event] = field(default_factory=list)

    @property
    def name(self) -> str:
        """What its graph is called."""
        return self.capture.name if self.capture is not None else self.point

    @property
    def seconds(self) -> float:
        """How long all of its stages took."""
        return sum(one.seconds for one in self.stages)

    def program(self, name: str) -> Built:
        """The program of this name that is being made, or a new one."""
        if not self.programs or self.programs[-1].name != name or self.programs[-1].kernels:
            self.programs.append(Built(name))
        return self.programs[-1]


@dataclass(frozen=True, slots=True)
class History:
    """What happened to one compiled object."""

    title: str
    told: Explanation
    compilations: tuple[Compilation, ...]
    others: tuple[Event, ...]  # stages of what was captured elsewhere: backward passes

    @property
    def seconds(self) -> float:
        """How long all stages took."""
        return sum(self.told.seconds().values())


def history_of(title: str, told: Explanation) -> History:
    """The compilations that these events tell of."""
    made: list[Compilation] = []
    others: list[Event] = []
    reasons: dict[str, str] = {}
    for event in told.events:
        if event.kind is EventKind.RECOMPILE:
            reasons[event.subject] = str(event.facts.get("reason", ""))
        elif event.kind is EventKind.CAPTURE:
            made.append(_begun(len(made), event, reasons.pop(event.subject, "")))
        elif event.kind.is_stage or event.kind in (EventKind.REUSE, EventKind.CACHE):
            owner = next((one for one in reversed(made) if _belongs(event.subject, one)), None)
            if owner is None:
                others.append(event)
            else:
                _noted(owner, event)
    return History(title, told, tuple(made), tuple(others))


def _begun(number: int, event: Event, reason: str) -> Compilation:
    capture = event.record if isinstance(event.record, Capture) else None
    raised = str(event.facts.get("raised", ""))
    return Compilation(number, event.subject, capture, raised, reason, stages=[event])


def _belongs(subject: str, one: Compilation) -> bool:
    name = one.name
    return subject == name or subject.startswith((f"{name} ", f"graph {name}", f"program {name}"))


def _noted(owner: Compilation, event: Event) -> None:
    if event.kind.is_stage:
        owner.stages.append(event)
    note = _NOTES.get(event.kind)
    if note is not None:
        note(owner, event)


def _segment(owner: Compilation, event: Event) -> None:
    owner.segment = event.record if isinstance(event.record, Segment) else None


def _entered(owner: Compilation, event: Event) -> None:
    one = event.record
    owner.native = one.native if isinstance(one, Entry) else one


def _assembled(owner: Compilation, event: Event) -> None:
    one = event.record
    owner.native_calls = one.native_calls if isinstance(one, Executable) else one


def _planned(owner: Compilation, event: Event) -> None:
    built = owner.program(event.subject)
    if isinstance(event.record, MemoryPlan):
        built.plan, built.arena_bytes = event.record, event.record.arena_bytes
    else:
        built.arena_bytes = event.record


def _scheduled(owner: Compilation, event: Event) -> None:
    if isinstance(event.record, Schedule):
        owner.program(event.subject).schedules.append(event.record)


def _emitted(owner: Compilation, event: Event) -> None:
    if isinstance(event.record, LlvmModule):
        owner.program(event.subject).module = event.record


def _built(owner: Compilation, event: Event) -> None:
    kernels = event.record.kernels if isinstance(event.record, Program) else event.record
    built = owner.program(event.subject)
    built.kernels, built.found = tuple(kernels or ()), event.seconds == 0


def _reused(owner: Compilation, event: Event) -> None:
    owner.reused = True


_NOTES = {
    EventKind.REWRITE: _segment,
    EventKind.ENTER: _entered,
    EventKind.ASSEMBLE: _assembled,
    EventKind.PLAN: _planned,
    EventKind.SCHEDULE: _scheduled,
    EventKind.EMIT: _emitted,
    EventKind.BUILD: _built,
    EventKind.REUSE: _reused,
}
