"""`Loops` → `Schedule`: kernels with explicit loops, vectors and threads.

Enters: definitions and calls. Leaves: kernels and calls in order. The steps: long reductions with
few results are split in two (`split`), definitions are grouped (`fuse.py`), what is used only
inside a group leaves memory (`_tidy`), and each group becomes a tree of loops (`tile.py`).

Invariant: a schedule computes what its loops define; only reductions are reassociated.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import torch

from windfall.codegen.cost import cost_of
from windfall.codegen.fuse import Group, Nest, fuse, loads_of
from windfall.codegen.lower import reads_of
from windfall.codegen.tile import buffers_in, tile
from windfall.errors import SourceLine
from windfall.ir.dtype import TensorType
from windfall.ir.loop import (
    Axis,
    Buffer,
    Call,
    Definition,
    Fold,
    Kernel,
    Loops,
    Scalar,
    Scalars,
    Schedule,
    Store,
    axis,
    walk,
)
from windfall.ir.symint import Size, minimum, product, substitute

SPLIT_FROM = 1 << 17  # a reduction of so many elements per result is split over threads
SPLIT_ROWS = 16  # unless it has so many results
SPLIT_PARTS = 64
STASH_COST = 15  # a value at least so dear is kept in a row of scratch for the next nest
STASH_BYTES = 1 << 16  # the largest such row


def schedule(loops: Loops) -> Schedule:
    """Kernels and calls in order."""
    buffers = dict(loops.buffers)
    items: list[Definition | Call] = []
    for item in loops.items:
        items.extend(
            _split(item, loops.scalars, buffers) if isinstance(item, Definition) else [item]
        )
    groups = fuse(loops.scalars, items)
    needed = _needed_outside(groups, loops)
    done: list[Kernel | Call] = []
    for group in groups:
        if isinstance(group, Call):
            done.append(group)
        else:
            _tidy(group, needed[id(group)], loops.scalars, buffers)
            name = f"k{sum(isinstance(each, Kernel) for each in done)}"
            body, work = tile(group, loops.scalars, buffers)
            done.append(Kernel(name, body, work, _origins(group)))
    live = _live(done, loops)
    kept = {name: each for name, each in buffers.items() if name in live}
    return Schedule(kept, loops.inputs, tuple(done), loops.results, loops.scalars)


def _origins(group: Group) -> tuple[SourceLine, ...]:
    return tuple(dict.fromkeys(line for member in group.members for line in member.origins))


# ----------------------------------------------------------------------- reductions over threads


def _split(item: Definition, scalars: Scalars, buffers: dict[str, Buffer]) -> list[Definition]:
    """A long reduction with few results, as partial results and their reduction."""
    value = item.value
    if value.op != "reduce" or value.attribute[0].startswith("arg"):
        return [item]
    kind, axes = value.attribute
    rows = product(each.extent for each in item.axes)
    length = product(each.extent for each in axes)
    if not isinstance(rows, int) or not isinstance(length, int):
        return [item]
    if rows > SPLIT_ROWS or length < SPLIT_FROM or not isinstance(axes[0].extent, int):
        return [item]
    extent = axes[0].extent
    parts = next((parts for parts in range(SPLIT_PARTS, 15, -1) if extent % parts == 0), 0)
    if not parts:
        return _split_uneven(item, scalars, buffers) if len(axes) == 1 else [item]
    outer, inner = axis(f"i{len(item.axes)}", parts), axis("r0", extent // parts)
    place = {axes[0].atom: outer.symbol * inner.extent + inner.symbol}
    body = scalars.substitute(value.arguments[0], place)
    return _in_two(item, kind, outer, (inner, *axes[1:]), body, scalars, buffers)


def _split_uneven(
    item: Definition, scalars: Scalars, buffers: dict[str, Buffer]
) -> list[Definition]:
    """As above where no number of parts divides the length: the last part masks what is over."""
    kind, (only,) = item.value.attribute
    size = -(-only.extent // SPLIT_PARTS)
    outer, inner = axis(f"i{len(item.axes)}", SPLIT_PARTS), axis("r0", size)
    position = outer.symbol * size + inner.symbol
    body = scalars.substitute(
        item.value.arguments[0], {only.atom: minimum(position, only.extent - 1)}
    )
    inside = scalars.apply(
        "lt",
        scalars.index(position, torch.int64),
        scalars.constant(only.extent, torch.int64),
    )
    neutral = _NEUTRAL.get(kind)
    if neutral is None:  # an element may count twice for these
        masked = body
    else:
        masked = scalars.apply("where", inside, body, scalars.constant(neutral, body.dtype))
    return _in_two(item, kind, outer, (inner,), masked, scalars, buffers)


_NEUTRAL: dict[str, int] = {"sum": 0, "prod": 1}


def _in_two(
    item: Definition,
    kind: str,
    outer: Axis,
    inner: tuple[Axis, ...],
    body: Scalar,
    scalars: Scalars,
    buffers: dict[str, Buffer],
) -> list[Definition]:
    axes = (*item.axes, outer)
    type = TensorType.contiguous(body.dtype, tuple(each.extent for each in axes))
    name = f"p{len(buffers)}"
    buffers[name] = Buffer(name, type, "temporary")
    offset: Size = 0
    for each, stride in zip(axes, type.strides, strict=True):
        offset = offset + stride * each.symbol
    partial = scalars.reduce(kind, inner, body)
    first = Definition(name, axes, offset, partial, item.origins)
    again = axis("r0", outer.extent)
    load = scalars.load(name, substitute(offset, {outer.atom: again.symbol}), body.dtype)
    second = replace(item, value=scalars.reduce(kind, (again,), load))
    return [first, second]


# ----------------------------------------------------------------------------- what stays inside


def _needed_outside(groups: list[Group | Call], loops: Loops) -> dict[int, set[str]]:
    """For each group: which of its buffers others need."""
    readers: dict[str, set[int]] = {}
    for place, item in enumerate(groups):
        names = reads_of(item) if isinstance(item, Call) else item.reads
        for name in names:
            readers.setdefault(name, set()).add(place)
    results = {view.buffer for view in loops.results if view is not None}
    return {
        id(item): {
            name for name in item.written if name in results or readers.get(name, set()) - {place}
        }
        for place, item in enumerate(groups)
        if isinstance(item, Group)
    }


def _tidy(group: Group, outside: set[str], scalars: Scalars, buffers: dict[str, Buffer]) -> None:
    """Drop stores that nobody reads; keep dear values of a row for the nests that follow; rows
    that only this group reads become scratch."""
    _drop_stores(group, outside)
    _stash(group, scalars, buffers)
    _to_scratch(group, outside, scalars, buffers)


def _drop_stores(group: Group, outside: set[str]) -> None:
    changed = True
    while changed:
        values = [s.value for nest in group.nests for s in nest.statements]
        read = loads_of(*values) | outside
        changed = False
        for nest in group.nests:
            kept = [s for s in nest.statements if isinstance(s, Fold) or s.buffer in read]
            changed = changed or len(kept) < len(nest.statements)
            nest.statements = kept
        folds = {n for v in values for n in walk(v) if n.op == "reduce"}
        used = {
            node
            for nest in group.nests
            for s in nest.statements
            for node in walk(s.value if isinstance(s, Store) else s.value.arguments[0])
            if node in folds
        }
        for nest in group.nests:
            kept = [s for s in nest.statements if isinstance(s, Store) or s.value in used]
            changed = changed or len(kept) < len(nest.statements)
            nest.statements = kept
        group.nests = [nest for nest in group.nests if nest.statements]


def _stash(group: Group, scalars: Scalars, buffers: dict[str, Buffer]) -> None:
    """A dear value that two nests compute at each `v` is kept in a row of scratch."""
    for place, nest in enumerate(group.nests):
        extent = nest.inner.extent
        later = [other for other in group.nests[place + 1 :] if other.inner.extent == extent]
        if extent == 1 or not later or not isinstance(extent, int):
            continue
        here = _inner_nodes(nest)
        there = Counter(node for other in later for node in _inner_nodes(other))
        common = [
            node
            for node in here
            if node in there and node.op != "load" and cost_of(_inside(node)) >= STASH_COST
        ]
        inner = {n for node in common for n in walk(node) if n is not node}
        for node in common:
            if node not in inner and extent * node.dtype.itemsize <= STASH_BYTES:
                _keep_row(node, place, group, scalars, buffers)


def _inside(node: Scalar) -> list[Scalar]:
    """The nodes computed at each `v` for this value."""
    return [each for each in walk(node) if any(atom.key == "v" for atom in each.free)]


def _inner_nodes(nest: Nest) -> list[Scalar]:
    roots = [s.value.arguments[0] if isinstance(s, Fold) else s.value for s in nest.statements]
    return [n for n in walk(*roots) if n.op != "reduce" and nest.inner.atom in n.free]


def _keep_row(
    node: Scalar, place: int, group: Group, scalars: Scalars, buffers: dict[str, Buffer]
) -> None:
    nest = group.nests[place]
    name = f"row{len(buffers)}"
    buffers[name] = Buffer(name, TensorType.contiguous(node.dtype, (nest.inner.extent,)), "scratch")
    offset = nest.inner.symbol
    nest.statements.append(Store(name, offset, node))
    # What is folded by now stays as it is; later folds are rewritten, and so is who uses them.
    earlier = [s for each in group.nests[: place + 1] for s in each.statements]
    instead = {s.value: s.value for s in earlier if isinstance(s, Fold)}
    instead[node] = scalars.load(name, offset, node.dtype)
    for other in group.nests[place + 1 :]:
        other.statements = [
            replace(s, value=scalars.substitute(s.value, {}, instead)) for s in other.statements
        ]


def _to_scratch(
    group: Group, outside: set[str], scalars: Scalars, buffers: dict[str, Buffer]
) -> None:
    """A row that is written and read only inside one outer iteration needs no more than a row."""
    for nest in group.nests:
        extent = nest.inner.extent
        for place, statement in enumerate(nest.statements):
            if not isinstance(statement, Store) or statement.buffer in outside:
                continue
            name = statement.buffer
            if buffers[name].place != "temporary" or extent == 1 or not isinstance(extent, int):
                continue
            start = substitute(statement.offset, {nest.inner.atom: 0})
            size = extent * buffers[name].type.dtype.itemsize
            if statement.offset - start != nest.inner.symbol or size > STASH_BYTES:
                continue
            type = TensorType.contiguous(buffers[name].type.dtype, (extent,))
            buffers[name] = Buffer(name, type, "scratch")
            nest.statements[place] = replace(statement, offset=nest.inner.symbol)
            _reread(group, name, start, scalars)


def _reread(group: Group, name: str, start: Size, scalars: Scalars) -> None:
    for nest in group.nests:
        for place, statement in enumerate(nest.statements):
            instead = {
                node: scalars.load(name, node.attribute[1] - start, node.dtype)
                for node in walk(statement.value)
                if node.op == "load" and node.attribute[0] == name
            }
            if instead:
                value = scalars.substitute(statement.value, {}, instead)
                nest.statements[place] = replace(statement, value=value)


def _live(items: list[Kernel | Call], loops: Loops) -> set[str]:
    live = set(loops.inputs) | {view.buffer for view in loops.results if view is not None}
    for item in items:
        if isinstance(item, Call):
            live |= reads_of(item) | set(item.results)
        else:
            live |= buffers_in(item.body)
    return live
