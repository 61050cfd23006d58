"""`Loops` → `Schedule`: kernels with explicit loops, vectors and threads.

Enters: definitions and calls. Leaves: kernels and calls in order. The steps: long reductions with
few results are split in two (`split`), definitions are grouped (`fuse.py`), what is used only
inside a group leaves memory (`_Tidy`), and each group becomes a tree of loops (`tile.py`).

Invariant: a schedule computes what its loops define; only reductions are reassociated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from windfall.codegen.cost import cost_of
from windfall.codegen.fuse import Group, Nest, fuse, loads_of
from windfall.codegen.lower import reads_of
from windfall.codegen.operators import identity
from windfall.codegen.tile import buffers_in, is_row_wise, tile
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
from windfall.ir.symint import Size, hint_of, product, substitute

SPLIT_FROM = 1 << 17  # a reduction of so many elements per result is split over threads
SPLIT_ROWS = 16  # unless it has so many results
SPLIT_PARTS = 64
STASH_COST = 15  # a value at least so dear is kept in a row of scratch for the next nest
SCRATCH_BYTES = 1 << 16  # the largest such row
SCRATCH_ROWS = 4  # how many of the largest rows one kernel may have


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
            _Tidy(group, needed[id(group)], loops.scalars, buffers).run()
            name = f"k{sum(isinstance(each, Kernel) for each in done)}"
            body, work = tile(group, loops.scalars, buffers)
            done.append(Kernel(name, body, work, _origins(group)))
    live = _live(done, loops)
    kept = {name: each for name, each in buffers.items() if name in live}
    return Schedule(kept, loops.inputs, tuple(done), loops.results, loops.scalars, loops.symbols)


def _origins(group: Group) -> tuple[SourceLine, ...]:
    return tuple(dict.fromkeys(line for member in group.members for line in member.origins))


# ----------------------------------------------------------------------- reductions over threads


def _split(item: Definition, scalars: Scalars, buffers: dict[str, Buffer]) -> list[Definition]:
    """A long reduction with few results, as partial results and their reduction."""
    value = item.value
    if value.op != "reduce" or value.attribute[0].startswith("arg"):
        return [item]
    kind, axes = value.attribute
    rows = hint_of(product(each.extent for each in item.axes))
    length = hint_of(product(each.extent for each in axes))
    if rows > SPLIT_ROWS or length < SPLIT_FROM:
        return [item]
    extent = axes[0].extent
    if not isinstance(extent, int):
        return _split_uneven(item, scalars, buffers)
    parts = next((parts for parts in range(SPLIT_PARTS, 15, -1) if extent % parts == 0), 0)
    if not parts:
        single = len(axes) == 1 or not all(isinstance(each.extent, int) for each in axes)
        return _split_uneven(item, scalars, buffers) if single else [item]
    outer, inner = axis(f"i{len(item.axes)}", parts), axis("r0", extent // parts)
    place = {axes[0].atom: outer.symbol * inner.extent + inner.symbol}
    body = scalars.substitute(value.arguments[0], place)
    return _in_two(item, kind, outer, (inner, *axes[1:]), body, scalars, buffers)


def _split_uneven(
    item: Definition, scalars: Scalars, buffers: dict[str, Buffer]
) -> list[Definition]:
    """As above where no number of parts is known to divide the length: the last part masks what is
    over."""
    kind, axes = item.value.attribute
    chosen = max(axes, key=lambda each: min(hint_of(each.extent), SPLIT_PARTS))
    size = (chosen.extent + SPLIT_PARTS - 1) // SPLIT_PARTS
    outer, inner = axis(f"i{len(item.axes)}", SPLIT_PARTS), axis("t0", size)
    position = outer.symbol * size + inner.symbol
    body = scalars.substitute(item.value.arguments[0], {chosen.atom: position})
    inside = scalars.apply(
        "lt",
        scalars.index(position, torch.int64),
        scalars.index(chosen.extent, torch.int64),
    )
    neutral = scalars.constant(identity(kind, body.dtype), body.dtype)
    left = tuple(inner if each is chosen else each for each in axes)
    masked = scalars.masked(inside, body, neutral)
    return _in_two(item, kind, outer, left, masked, scalars, buffers)


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
    results = {view.buffer for view in loops.results if view is not None} | loops.kept
    return {
        id(item): {
            name for name in item.written if name in results or readers.get(name, set()) - {place}
        }
        for place, item in enumerate(groups)
        if isinstance(item, Group)
    }


class _Tidy:
    """Drop stores that nobody reads; keep dear values of a row for the nests that follow; rows that
    only this group reads become scratch."""

    def __init__(
        self, group: Group, outside: set[str], scalars: Scalars, buffers: dict[str, Buffer]
    ) -> None:
        self.group = group
        self.outside = outside
        self.scalars = scalars
        self.buffers = buffers

    def run(self) -> None:
        """Do all of it."""
        while self._drop_stores() or self._drop_folds():
            self.group.nests = [nest for nest in self.group.nests if nest.statements]
        # A vector along the outer index needs a row of scratch for each of its lanes.
        rows = is_row_wise(self.group, self.scalars)
        self.most_bytes = SCRATCH_BYTES if rows else SCRATCH_BYTES // 8
        self.left_bytes = SCRATCH_ROWS * self.most_bytes
        self._stash()
        self._to_scratch()

    def _drop_stores(self) -> bool:
        values = [s.value for nest in self.group.nests for s in nest.statements]
        read = loads_of(*values) | self.outside
        return self._keep(lambda s: isinstance(s, Fold) or s.buffer in read)

    def _drop_folds(self) -> bool:
        used = {
            node
            for nest in self.group.nests
            for s in nest.statements
            for node in walk(s.value if isinstance(s, Store) else s.value.arguments[0])
            if node.op == "reduce"
        }
        return self._keep(lambda s: isinstance(s, Store) or s.value in used)

    def _keep(self, wanted: Callable[[Store | Fold], bool]) -> bool:
        changed = False
        for nest in self.group.nests:
            kept = [statement for statement in nest.statements if wanted(statement)]
            changed = changed or len(kept) < len(nest.statements)
            nest.statements = kept
        return changed

    # --------------------------------------------------------------------------- dear values

    def _stash(self) -> None:
        """A dear value that two nests compute at each `v` is kept in a row of scratch."""
        nests = self.group.nests
        for place, nest in enumerate(nests):
            extent = nest.inner.extent
            later = [other for other in nests[place + 1 :] if other.inner.extent == extent]
            if extent == 1 or not later:
                continue
            there = {node for other in later for node in _inner_nodes(other)}
            common = [
                node
                for node in _inner_nodes(nest)
                if node in there
                and node.op != "load"
                and cost_of(n for n in walk(node) if nest.inner.atom in n.free) >= STASH_COST
            ]
            inner = {n for node in common for n in walk(node) if n is not node}
            for node in common:
                if node not in inner and self._takes(hint_of(extent) * node.dtype.itemsize):
                    self._keep_row(node, place)

    def _takes(self, size: int) -> bool:
        """Whether so much scratch is left; if so, it is taken."""
        if size > min(self.most_bytes, self.left_bytes):
            return False
        self.left_bytes -= size
        return True

    def _keep_row(self, node: Scalar, place: int) -> None:
        nest = self.group.nests[place]
        name = f"row{len(self.buffers)}"
        type = TensorType.contiguous(node.dtype, (nest.inner.extent,))
        self.buffers[name] = Buffer(name, type, "scratch")
        nest.statements.append(Store(name, nest.inner.symbol, node))
        # What is folded by now stays as it is; later folds are rewritten, and so is who uses them.
        earlier = [s for each in self.group.nests[: place + 1] for s in each.statements]
        instead = {s.value: s.value for s in earlier if isinstance(s, Fold)}
        instead[node] = self.scalars.load(name, nest.inner.symbol, node.dtype)
        for other in self.group.nests[place + 1 :]:
            other.statements = [
                replace(s, value=self.scalars.substitute(s.value, {}, instead))
                for s in other.statements
            ]

    # -------------------------------------------------------------------------- rows of its own

    def _to_scratch(self) -> None:
        """A row that only its own outer iteration reads needs no place for the others."""
        for nest in self.group.nests:
            for place, statement in enumerate(nest.statements):
                if isinstance(statement, Store) and self._can_shrink(statement, nest):
                    name, start = statement.buffer, self._start(statement, nest)
                    type = TensorType.contiguous(statement.value.dtype, (nest.inner.extent,))
                    self.buffers[name] = Buffer(name, type, "scratch")
                    nest.statements[place] = replace(statement, offset=nest.inner.symbol)
                    self._reread(name, start)

    def _start(self, statement: Store, nest: Nest) -> Size:
        return substitute(statement.offset, {nest.inner.atom: 0})

    def _can_shrink(self, statement: Store, nest: Nest) -> bool:
        buffer, extent = self.buffers[statement.buffer], nest.inner.extent
        if statement.buffer in self.outside or buffer.place != "temporary":
            return False
        if extent == 1:
            return False
        contiguous = statement.offset - self._start(statement, nest) == nest.inner.symbol
        return contiguous and self._takes(hint_of(extent) * buffer.type.dtype.itemsize)

    def _reread(self, name: str, start: Size) -> None:
        for nest in self.group.nests:
            for place, statement in enumerate(nest.statements):
                instead = {
                    node: self.scalars.load(name, node.attribute[1] - start, node.dtype)
                    for node in walk(statement.value)
                    if node.op == "load" and node.attribute[0] == name
                }
                if instead:
                    value = self.scalars.substitute(statement.value, {}, instead)
                    nest.statements[place] = replace(statement, value=value)


def _inner_nodes(nest: Nest) -> list[Scalar]:
    """What a nest computes for each `v`."""
    roots = [s.value.arguments[0] if isinstance(s, Fold) else s.value for s in nest.statements]
    return [
        node
        for node in walk(*roots, into_reductions=False)
        if node.op != "reduce" and nest.inner.atom in node.free
    ]


def _live(items: list[Kernel | Call], loops: Loops) -> set[str]:
    live = set(loops.inputs) | {view.buffer for view in loops.results if view is not None}
    live |= loops.kept
    for item in items:
        if isinstance(item, Call):
            live |= reads_of(item) | set(item.results)
        else:
            live |= buffers_in(item.body)
    return live
