"""What a segment is written from: how values are rebuilt, and how the program goes on at a break.

Enters: nothing. Leaves: records, which stand in entries on disk; so this module loads nothing of
what captures. Invariant: whoever reads entries finds all their kinds of record here or in what is
imported here (`tests/cache/test_entries.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from windfall.dataclass import dataclass
from windfall.errors import SourceLine
from windfall.frontend import cached_answers  # noqa: F401  (a kind of record)
from windfall.frontend.state import Position
from windfall.frontend.tracebacks import TracebackPlace
from windfall.ir.codec import record
from windfall.ir.stages import Direct


@record
@dataclass(frozen=True, slots=True)
class Rebuild:
    """How values are rebuilt: `reads` before the graph, `lines` after it (effects among them, in
    program order), `result` the returned expression (None: a break follows)."""

    identities: ClassVar[tuple[str, ...]] = ("namespace[]",)

    slots: tuple[str, ...]
    reads: tuple[str, ...]
    arguments: tuple[str, ...]  # of the graph
    results: int
    lines: tuple[str, ...]
    result: str | None
    namespace: Mapping[str, Any]
    direct: Direct | None
    generators: tuple[str, ...] = ()  # that the graph draws from

    def __str__(self) -> str:
        end = (f"return {self.result}",) if self.result is not None else ()
        return "\n".join((*self.reads, *self.lines, *end))


@record
@dataclass(frozen=True, slots=True)
class Outcome:
    """One way on: where `condition` holds (None: always), at `position` with these slots."""

    condition: str | None
    position: Position
    slots: tuple[str, ...]
    leaves: bool = False  # the rest of the frame is run natively
    loop: int | None = None  # or only the loop with this head
    keep: int | None = None  # or the frames above so many


@record
@dataclass(frozen=True, slots=True)
class Resume:
    """The native step and where it leads; `handler` where what it raises is caught."""

    lines: tuple[str, ...]
    outcomes: tuple[Outcome, ...]
    handler: Outcome | None
    handled: str | None  # the exception being handled while the step runs
    where: SourceLine | None = None  # the line of the step
    place: TracebackPlace | None = None  # the step itself
    callers: tuple[TracebackPlace, ...] = ()  # of frames that an exception passes on its way

    def __str__(self) -> str:
        ways = [f"  {one.condition or 'then'}: {one.position}" for one in self.outcomes]
        if self.handler is not None:
            ways.append(f"  on an exception: {self.handler.position}")
        return "\n".join((*self.lines, *ways))
