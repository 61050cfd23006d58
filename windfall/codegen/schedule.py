"""`Loops` → `Schedule`: kernels with explicit loops, vectors and threads.

Enters: definitions and calls. Leaves: kernels and calls in order. The steps: the passes over loops
(`passes.py`), definitions are grouped (`fuse.py`), the passes over each group, and each group
becomes a tree of loops (`tile.py`).

Invariant: a schedule computes what its loops define; only reductions are reassociated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from windfall.codegen.fuse import Group, fuse
from windfall.codegen.lower import reads_of
from windfall.codegen.passes import GROUP_PASSES, LOOP_PASSES
from windfall.codegen.scratch import Rows, verify_group
from windfall.codegen.tile import buffers_in, tile
from windfall.errors import SourceLine
from windfall.ir.loop import (
    BufferView,
    Call,
    Fold,
    Invocation,
    Kernel,
    Loop,
    Loops,
    Scalars,
    Schedule,
    Statement,
    Store,
    storage_of,
    walk,
)
from windfall.ir.passes import run_passes


def schedule(loops: Loops, *, verify: bool = False) -> Schedule:
    """Kernels and calls in order. `verify`: records are looked over after each pass."""
    loops = run_passes(LOOP_PASSES, loops, verify=verify)
    buffers = dict(loops.buffers)
    storage = {name: storage_of(name, buffers) for name, each in buffers.items() if each.over}
    groups = fuse(loops.scalars, loops.items, storage)
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
    results = loops.results
    if storage:
        done = [in_memory(item, storage, loops.scalars) for item in done]
        results = tuple(_view_in(view, storage) for view in results)
    live = _live(done, loops)
    kept = {name: each for name, each in buffers.items() if name in live and not each.over}
    return Schedule(kept, loops.inputs, tuple(done), results, loops.scalars, loops.symbols)


def in_memory(item: Kernel | Call, storage: Mapping[str, str], scalars: Scalars) -> Kernel | Call:
    """An item with the memory that it writes in place of the names that tell what is there when."""
    if isinstance(item, Call):
        arguments = _views_in(item.arguments, storage)
        results = tuple(storage.get(name, name) for name in item.results)
        attributes = item.attributes
        if isinstance(attributes, Invocation):
            attributes = replace(attributes, keywords=_views_in(attributes.keywords, storage))
        return replace(item, arguments=arguments, results=results, attributes=attributes)
    if buffers_in(item.body).isdisjoint(storage):
        return item

    def renamed(statement: Statement) -> Statement:
        if isinstance(statement, Loop):
            return replace(statement, body=_folded_once(map(renamed, statement.body)))
        instead = {
            node: scalars.load(storage[node.attribute[0]], node.attribute[1], node.dtype)
            for node in walk(statement.value)
            if node.op == "load" and node.attribute[0] in storage
        }
        value = scalars.substitute(statement.value, {}, instead) if instead else statement.value
        if isinstance(statement, Store):
            name = storage.get(statement.buffer, statement.buffer)
            return Store(name, statement.offset, value)
        return Fold(value)

    return replace(item, body=tuple(map(renamed, item.body)))


def _folded_once(body: Iterable[Statement]) -> tuple[Statement, ...]:
    """Folds of what turned out to be one memory are one."""
    made: list[Statement] = []
    for one in body:
        if not isinstance(one, Fold) or one not in made:
            made.append(one)
    return tuple(made)


def _views_in(value: Any, storage: Mapping[str, str]) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(_views_in(each, storage) for each in value)
    return _view_in(value, storage) if isinstance(value, BufferView) else value


def _view_in(view: BufferView | None, storage: Mapping[str, str]) -> BufferView | None:
    return None if view is None else replace(view, buffer=storage.get(view.buffer, view.buffer))


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
    results |= {name for name, buffer in loops.buffers.items() if buffer.over}
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
