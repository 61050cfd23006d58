"""What stays inside a group: dead statements go, rows are kept in scratch instead of memory.

Enters: a `Group` of `fuse.py` and what others need of it. Leaves: the group, changed in place, with
`scratch` buffers. Invariant: what others need is stored as before; `verify_group` says what holds
after each step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

from windfall.codegen.cost import cost_of
from windfall.codegen.fuse import Group, Nest, loads_of
from windfall.codegen.tile import is_row_wise
from windfall.errors import InternalError
from windfall.ir.dtype import TensorType
from windfall.ir.loop import Buffer, Fold, Scalar, Scalars, Store, walk
from windfall.ir.symint import Size, hint_of, substitute

STASH_COST = 15  # a value at least so dear is kept in a row of scratch for the next nest
SCRATCH_BYTES = 1 << 16  # the largest such row
SCRATCH_ROWS = 4  # how many of the largest rows one kernel may have


class Rows:
    """Drop stores that nobody reads; keep dear values of a row for the nests that follow; rows that
    only this group reads become scratch."""

    def __init__(
        self, group: Group, outside: set[str], scalars: Scalars, buffers: dict[str, Buffer]
    ) -> None:
        self.group = group
        self.outside = outside
        self.scalars = scalars
        self.buffers = buffers

    @cached_property
    def most_bytes(self) -> int:
        """The largest row of scratch: a vector along the outer index needs one for each lane."""
        return SCRATCH_BYTES if is_row_wise(self.group, self.scalars) else SCRATCH_BYTES // 8

    @cached_property
    def left_bytes(self) -> int:
        """How much scratch there is still."""
        return SCRATCH_ROWS * self.most_bytes

    # ----------------------------------------------------------------------------- dead statements

    def drop_unread(self) -> None:
        """Stores that nobody reads and folds that nobody uses."""
        while self._drop_stores() or self._drop_folds():
            self.group.nests = [nest for nest in self.group.nests if nest.statements]

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

    def stash(self) -> None:
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

    def to_scratch(self) -> None:
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


def verify_group(rows: Rows) -> None:
    """What nests read of their own group was written by one before them or by themselves, and what
    others need is still written."""
    stored: dict[str, int] = {}
    for place, nest in enumerate(rows.group.nests):
        for statement in nest.statements:
            if isinstance(statement, Store):
                stored.setdefault(statement.buffer, place)
    for place, nest in enumerate(rows.group.nests):
        for name in loads_of(*(statement.value for statement in nest.statements)):
            if stored.get(name, 0) > place:
                raise InternalError(f"a nest reads {name}, which a later one writes")
    lost = rows.outside - stored.keys()
    if lost:
        raise InternalError(f"others read what a group no longer writes: {sorted(lost)}")
