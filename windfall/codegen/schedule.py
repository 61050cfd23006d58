"""`Loops` → `Schedule`: kernels with explicit loops, vectors and threads.

Enters: definitions and calls. Leaves: kernels and calls in order. The steps: the passes over loops
(`passes.py`), definitions are grouped (`fuse.py`), the passes over each group, and each group
becomes a tree of loops (`tile.py`).

Invariant: a schedule computes what its loops define; only reductions are reassociated.
"""

from __future__ import annotations

from windfall.codegen.fuse import Group, fuse
from windfall.codegen.lower import reads_of
from windfall.codegen.passes import GROUP_PASSES, LOOP_PASSES
from windfall.codegen.scratch import Rows, verify_group
from windfall.codegen.tile import buffers_in, tile
from windfall.errors import SourceLine
from windfall.ir.loop import Call, Kernel, Loops, Schedule
from windfall.ir.passes import run_passes


def schedule(loops: Loops, *, verify: bool = False) -> Schedule:
    """Kernels and calls in order. `verify`: records are looked over after each pass."""
    loops = run_passes(LOOP_PASSES, loops, verify=verify)
    buffers = dict(loops.buffers)
    groups = fuse(loops.scalars, loops.items)
    needed = _needed_outside(groups, loops)
    done: list[Kernel | Call] = []
    for group in groups:
        if isinstance(group, Call):
            done.append(group)
        else:
            rows = Rows(group, needed[id(group)], loops.scalars, buffers)
            run_passes(GROUP_PASSES, rows, verify=verify, verifier=verify_group)
            name = f"k{sum(isinstance(each, Kernel) for each in done)}"
            body, work = tile(group, loops.scalars, buffers)
            done.append(Kernel(name, body, work, _origins(group)))
    live = _live(done, loops)
    kept = {name: each for name, each in buffers.items() if name in live}
    return Schedule(kept, loops.inputs, tuple(done), loops.results, loops.scalars, loops.symbols)


def _origins(group: Group) -> tuple[SourceLine, ...]:
    return tuple(dict.fromkeys(line for member in group.members for line in member.origins))


def _needed_outside(groups: list[Group | Call], loops: Loops) -> dict[int, set[str]]:
    """For each group: which of its buffers others need."""
    readers: dict[str, set[int]] = {}
    for place, item in enumerate(groups):
        names = reads_of(item) if isinstance(item, Call) else item.reads
        for name in names:
            readers.setdefault(name, set()).add(place)
    results = {view.buffer for view in loops.results if view is not None} | loops.effect_buffers
    return {
        id(item): {
            name for name in item.written if name in results or readers.get(name, set()) - {place}
        }
        for place, item in enumerate(groups)
        if isinstance(item, Group)
    }


def _live(items: list[Kernel | Call], loops: Loops) -> set[str]:
    live = set(loops.inputs) | {view.buffer for view in loops.results if view is not None}
    live |= loops.effect_buffers
    for item in items:
        if isinstance(item, Call):
            live |= reads_of(item) | set(item.results)
        else:
            live |= buffers_in(item.body)
    return live
