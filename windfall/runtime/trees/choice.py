"""A program that runs in a tree: the one choice between running, recording and replaying.

Enters: a `Program`, its place in the user's call, options. Leaves: a callable as of `runtime.bind`.
Invariant: it answers what the plain call does, raises what it raises, and is the plain call itself
where a tree can gain nothing.
"""

from __future__ import annotations

from typing import Any

from windfall import torch_abi
from windfall.events import EventKind, EventLog
from windfall.ir.stages import Program
from windfall.options import TreeOptions
from windfall.runtime.bind import Bound, bind
from windfall.runtime.execution_table import can_be_native
from windfall.runtime.trees.cpu import CpuDevice, ProgramPayload, poolable
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
        payload: ProgramPayload = region.payload
        # Of sizes that vary, some may be too small to be recorded: no tree is asked then.
        self._sizes = payload.symbols if options.sizes is None else 0
        self._least = max(options.minimum_bytes, 1)
        managers.register(self, region)

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        """Run, record or replay."""
        options, payload = self._options, self.region.payload
        if self._sizes and payload.layout(args[: self._sizes]).bytes < self._least:
            self.region.skipped(Skip.SMALL)
            plain: tuple[Any, ...] = payload.plain(*args)
            return plain
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
        again = _recyclable(program, place, native)
        more = f"; objects of {len(again)} of its results serve again" if again else ""
        region.noted("unrecorded", Skip.SMALL, f"{sizes} bytes{more}")
        return bind(program, native=native, verify=verify, keep=keep, recycled=again)
    log.add(EventKind.TREES, name, what="registered", where=where, counters=region.counters)
    if payload.partitions:
        text = f"{payload.partitions} ops run from Python: the values between them are not pooled"
        log.add(EventKind.TREES, name, what="partitioned", where=where, reason=text)
    return TreeFunction(region, options, CPU_TREES)


def _recyclable(program: Program, place: RegionPlace, native: bool) -> frozenset[int]:
    """The results of a region that is not worth a place in the pool whose very objects are used
    again, once nobody has them (ADR 76)."""
    if not native or not can_be_native(program) or torch_abi.tensor_footprint() is None:
        return frozenset()
    return frozenset(poolable(program, place.crosses))


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
