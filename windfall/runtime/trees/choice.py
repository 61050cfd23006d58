"""A program that runs in a tree: the one choice between running, recording and replaying.

Enters: a `Program`, its place in the user's call, options. Leaves: a callable as of `runtime.bind`.
Invariant: it answers what the plain call does, raises what it raises, and is the plain call itself
where a tree can gain nothing.
"""

from __future__ import annotations

from typing import Any

from windfall.events import EventKind, EventLog
from windfall.ir.stages import Program
from windfall.options import TreeOptions
from windfall.runtime.bind import Bound
from windfall.runtime.trees.cpu import CpuDevice, ProgramPayload
from windfall.runtime.trees.device import GraphRegion, Skip
from windfall.runtime.trees.managers import Managers
from windfall.runtime.trees.place import RegionPlace

CPU_TREES = Managers(CpuDevice)


class TreeFunction:
    """A program in the tree of whichever thread calls it."""

    def __init__(self, region: GraphRegion, options: TreeOptions, managers: Managers) -> None:
        self.region = region
        self._options = options
        self._here = managers.here
        managers.register(self, region)

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        """Run, record or replay."""
        options = self._options
        answer: tuple[Any, ...] = self._here(options).call(self.region, args, options)
        return answer


def bind_in_tree(
    program: Program,
    name: str,
    place: RegionPlace,
    options: TreeOptions,
    log: EventLog,
    *,
    native: bool = True,
    verify: bool = False,
    keep: bool = False,
) -> Bound:
    """As `runtime.bind`, in a tree where that can pay."""
    payload = ProgramPayload(
        program, crosses=place.crosses, options=options, native=native, verify=verify, keep=keep
    )
    where = _line_of(program)
    region = GraphRegion(name, payload, starts=place.starts, where=where, note=_noting(log))
    sizes = payload.fixed_bytes
    if sizes is not None and sizes < max(options.minimum_bytes, 1):
        region.noted("unrecorded", Skip.SMALL, f"{sizes} bytes")
        return payload.plain
    log.add(EventKind.TREES, name, what="registered", where=where, counters=region.counters)
    if payload.partitions:
        text = f"{payload.partitions} ops run from Python: the values between them are not pooled"
        log.add(EventKind.TREES, name, what="partitioned", where=where, reason=text)
    return TreeFunction(region, options, CPU_TREES)


def _line_of(program: Program) -> str:
    lines = (str(line) for note in program.kernels for line in note.origins)
    return next(lines, "")


def _noting(log: EventLog) -> Any:
    def note(region: GraphRegion, what: str, skip: Skip | None, detail: str) -> None:
        facts: dict[str, Any] = {"what": what, "where": region.where}
        if skip is not None:
            facts |= {"reason": skip.reason, "remedy": skip.remedy}
        if detail:
            facts["detail"] = detail
        log.count(EventKind.TREES, region.name, **facts)

    return note
