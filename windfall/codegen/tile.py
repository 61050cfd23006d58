"""A group → a tree of loops: which axis is a vector, which is parallel, what is blocked.

Enters: a `Group` (see `fuse.py`), whose iterations are counted by one outer and one inner index.
Leaves: statements for a `Kernel`. The vector runs along the axis on which most accesses are
contiguous: an inner one (rows), or an outer one (reductions over strided dims, transposed
results); then the reduction loops stand inside the vector loop.

Invariant: only the order of iterations changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from windfall import jit
from windfall.codegen.cost import cost_of
from windfall.codegen.fuse import Group, Nest, digits
from windfall.codegen.indices import (
    BLOCK,
    blocked,
    growth_within,
    linear,
    split_axis,
    trailing,
)
from windfall.codegen.scalar_code import identity
from windfall.ir.dtype import TensorType
from windfall.ir.loop import (
    Axis,
    Buffer,
    Fold,
    Loop,
    Scalar,
    Scalars,
    Statement,
    Store,
    axis,
    walk,
)
from windfall.ir.symint import (
    Atom,
    Size,
    coefficient_of,
    expression_of,
    growth_of,
    hint_of,
    maximum,
    minimum,
    product,
    substitute,
    symbols_of,
)

ENOUGH_ROWS = 16  # iterations of the outermost loop that are enough for all threads
MANY_SQUARES = 4  # so many in both directions, where they do not fit evenly
SQUARE = 8  # rows and columns of the blocks in which transposed operands are read


def tile(
    group: Group, scalars: Scalars, buffers: dict[str, Buffer]
) -> tuple[tuple[Statement, ...], Size]:
    """The loops of a group, and its work."""
    tiling = _Tiling(group, scalars, buffers)
    return tiling.run(), tiling.work()


def is_row_wise(group: Group, scalars: Scalars) -> bool:
    """Whether the vectors of a group will run along its inner index."""
    return _Tiling(group, scalars, {}).row_wise


def buffers_in(body: Sequence[Statement]) -> set[str]:
    """The buffers that statements read or write."""
    found: set[str] = set()
    for statement in body:
        if isinstance(statement, Loop):
            found |= buffers_in(statement.body)
        else:
            found |= {n.attribute[0] for n in walk(statement.value) if n.op == "load"}
            if isinstance(statement, Store):
                found.add(statement.buffer)
    return found


class _Tiling:
    def __init__(self, group: Group, scalars: Scalars, buffers: dict[str, Buffer]) -> None:
        self.scalars = scalars
        self.buffers = buffers
        self.moved = group.moved
        self.outer = group.outer
        self.nests = [Nest(nest.inner, list(nest.statements)) for nest in group.nests]
        self.folded: dict[Scalar, Scalar] = {}  # reductions whose axes were renamed
        self.parts = split_axis(self.outer, "o", self._sizes())
        self._parts_place = linear(self.parts)
        self.lane = self._outer_lane()
        pointwise = all(nest.inner.extent == 1 for nest in self.nests)
        self.row_wise = not pointwise and (
            self.outer.extent == 1 or self._contiguous_inner() >= self._contiguous_outer()
        )

    def work(self) -> Size:
        """How much there is to do, in rough units of one element of a cheap operation."""
        total: Size = 0
        for nest in self.nests:
            roots = [
                s.value.arguments[0] if isinstance(s, Fold) else s.value for s in nest.statements
            ]
            inner = [
                n
                for n in walk(*roots, into_reductions=False)
                if nest.inner.extent == 1 or nest.inner.atom in n.free
            ]
            total = total + nest.inner.extent * max(cost_of(inner), 1)
        return total * self.outer.extent

    # ------------------------------------------------------------------------------------ tree

    def run(self) -> tuple[Statement, ...]:
        return self._rows() if self.row_wise else self._columns()

    def _rows(self) -> tuple[Statement, ...]:
        """Vectors along the inner index."""
        body: list[Statement] = []
        for nest in self.nests:
            body.extend(self._inner_vector(nest))
        if self.outer.extent == 1:
            return tuple(self._fixed(body))
        return (Loop(self.outer, tuple(body), parallel=True),)

    def _columns(self) -> tuple[Statement, ...]:
        """Vectors along one part of the outer index; everything else is inside or outside it."""
        parts, lane = self.parts, self.lane
        others = tuple(part for part in parts if part is not lane)
        self._substitute_outer({self.outer.atom: linear(parts)})
        others, between = _loops_between(others)
        count = axis("p", product(part.extent for part in others))
        if len(others) > 1:
            self._substitute_outer(digits(count, others))
        elif others:
            count = others[0]
        square = None if between else self._square(count, lane)
        rows = between[-1] if between else count if len(others) == 1 else None
        body: list[Statement]
        if square is not None:
            count, inner = square
            body = [Loop(lane, (Loop(inner, self._body(), unrolled=True),), SQUARE)]
        elif rows is not None and self._has_squares(rows, lane):
            body, blocks = self._uneven_squares(rows, lane)
            between = (*between[:-1], blocks) if between else ()
            count = count if between else blocks
        else:
            lanes = self._lanes(lane.extent, self._widest_cost())
            self._widen_scratch(lanes)
            body = [Loop(lane, self._body(), lanes, parallel=count.extent == 1)]
        for each in reversed(between):
            body = [Loop(each, tuple(body))]
        if count.extent == 1:
            return tuple(self._zero(count.atom, body))
        return (Loop(count, tuple(body), parallel=True),)

    def _body(self) -> tuple[Statement, ...]:
        return tuple(statement for nest in self.nests for statement in self._inner_loops(nest))

    def _square(self, count: Axis, lane: Axis) -> tuple[Axis, Axis] | None:
        """Where something is read across the vector and along the loop around it (a transposed
        operand): that loop in blocks, to be read as squares. The outer index is renamed."""
        extents = (count.extent, lane.extent)
        if not all(isinstance(each, int) and each >= SQUARE for each in extents):
            return None
        if any(nest.inner.extent != 1 for nest in self.nests):
            return None
        block = trailing(count, self._sizes())
        if not isinstance(block, int) or block % SQUARE:
            return None
        for offset in (o for nest in self.nests for o in _offsets(nest.statements)):
            across = coefficient_of(offset, lane.atom)
            if across not in (0, 1, None) and growth_within(offset, count, block) == 1:
                break
        else:
            return None
        whole, inner = axis("q", count.extent // SQUARE), axis("m", SQUARE)
        self._substitute_outer({count.atom: whole.symbol * SQUARE + inner.symbol})
        return whole, inner

    def _has_squares(self, rows: Axis, lane: Axis) -> bool:
        """Whether something is read across the vector and along the loop around it, where squares
        are not known to fit evenly but are many."""
        extents = [each.extent for each in (rows, lane) if isinstance(each.extent, int)]
        if any(extent < MANY_SQUARES * SQUARE for extent in extents) or self._writes_inputs():
            return False
        if any(nest.inner.extent != 1 for nest in self.nests):
            return False
        return any(
            growth_of(offset, lane.atom) not in (0, 1, None) and growth_of(offset, rows.atom) == 1
            for nest in self.nests
            for offset in _offsets(nest.statements)
        )

    def _writes_inputs(self) -> bool:
        """Whether something is written over what it is computed from: never computed twice."""
        stores = (s.buffer for nest in self.nests for s in nest.statements if isinstance(s, Store))
        found = (self.buffers.get(name) for name in stores)
        return any(one is not None and one.place == "input" for one in found)

    def _uneven_squares(self, rows: Axis, lane: Axis) -> tuple[list[Statement], Axis]:
        """The body of a loop over blocks of rows, and the axis of that loop. The last block ends
        with the last row, so some rows are computed twice; where there are too few rows for one
        block, they are done one by one."""
        extent = rows.extent
        blocks, inner = axis("q", (extent + SQUARE - 1) // SQUARE), axis("m", SQUARE)
        fits = minimum(extent, SQUARE) // SQUARE
        before = [nest.statements for nest in self.nests]
        start = minimum(blocks.symbol * SQUARE, extent - SQUARE)
        self._substitute_outer({rows.atom: start + inner.symbol})
        squares = Loop(lane, (Loop(inner, self._body(), unrolled=True),), SQUARE)
        if fits == 1:
            return [squares], blocks
        for nest, statements in zip(self.nests, before, strict=True):
            nest.statements = statements
        few = axis("n", extent * (1 - fits))
        self._substitute_outer({rows.atom: few.symbol})
        single = Loop(lane, self._body(), SQUARE)
        return [Loop(axis("g", fits), (squares,)), Loop(few, (single,))], blocks

    def _widen_scratch(self, lanes: int) -> None:
        """Each lane has a row of scratch of its own: the lanes of an element stand side by side."""
        for nest in self.nests:
            for statement in nest.statements:
                buffer = (
                    self.buffers.get(statement.buffer) if isinstance(statement, Store) else None
                )
                if buffer is not None and buffer.place == "scratch" and buffer.type.rank == 1:
                    sizes = (buffer.type.sizes[0], lanes)
                    type = TensorType.contiguous(buffer.type.dtype, sizes)
                    self.buffers[buffer.name] = replace(buffer, type=type)

    def _substitute_outer(self, places: dict[Atom, Size]) -> None:
        memo: dict[Scalar, Scalar] = {}
        for nest in self.nests:
            nest.statements = [self._moved(s, places, memo) for s in nest.statements]

    def _moved(
        self, statement: Store | Fold, places: dict[Atom, Size], memo: dict[Scalar, Scalar]
    ) -> Store | Fold:
        value = self.scalars.substitute(statement.value, places, memo=memo)
        if isinstance(statement, Fold):
            return Fold(value)
        return Store(statement.buffer, substitute(statement.offset, places), value)

    def _fixed(self, body: list[Statement]) -> list[Statement]:
        return self._zero(self.outer.atom, body)

    def _zero(self, atom: Atom, body: Sequence[Statement]) -> list[Statement]:
        """The same without a loop that has one iteration."""
        memo: dict[Scalar, Scalar] = {}

        def fix(statement: Statement) -> Statement:
            if isinstance(statement, Loop):
                return replace(statement, body=tuple(map(fix, statement.body)))
            return self._moved(statement, {atom: 0}, memo)

        return [fix(statement) for statement in body]

    # ---------------------------------------------------------------------------------- nests

    def _inner_vector(self, nest: Nest) -> list[Statement]:
        statements = self._refolded(nest)
        if nest.inner.extent == 1:
            return self._single(nest.inner, statements)
        parts = split_axis(nest.inner, "v", self._sizes_of(statements))
        lane = parts[-1]
        lanes = self._lanes(lane.extent, _cost(statements, nest.inner.atom), _folds(statements))
        return self._nested(nest.inner, parts, lanes, lanes, statements)

    def _nested(
        self,
        inner: Axis,
        parts: tuple[Axis, ...],
        lanes: int,
        step: int,
        statements: list[Store | Fold],
    ) -> list[Statement]:
        """Loops over the parts of an inner index; long sums are done in blocks of `step` times a
        fixed number of additions."""
        parts, statements = self._unmasked(inner, parts, statements)
        last = parts[-1]
        blocks: tuple[Axis, ...] = (last,)
        places = [{inner.atom: linear(parts)}]
        if _sums(statements):
            blocks, within = blocked(last, step * BLOCK)
            # In a step of its own: the range of the sum that stands for `last` is wider than its.
            places += [{last.atom: within}] if blocks != (last,) else []
        axes = (*parts[:-1], *blocks)
        body = self._renamed(places, axes, statements)
        result = Loop(axes[-1], tuple(body), lanes)
        for each in reversed(axes[:-1]):
            result = Loop(each, (result,))
        return [result]

    def _unmasked(
        self, inner: Axis, parts: tuple[Axis, ...], statements: list[Store | Fold]
    ) -> tuple[tuple[Axis, ...], list[Store | Fold]]:
        """Where all that is folded counts only below some point of one loop: that loop ends there,
        and needs no mask."""
        condition = _common_mask(statements)
        if condition is None:
            return parts, statements
        position, limit = (side.attribute for side in condition.arguments)
        position = substitute(position, {inner.atom: linear(parts)})
        atoms = {part.atom for part in parts}
        (own,) = found if len(found := atoms & symbols_of(position)) == 1 else (None,)
        if own is None or growth_of(position, own) != 1 or inner.atom in symbols_of(limit):
            return parts, statements
        rest = limit - (position - expression_of(own))
        short = tuple(
            Axis(part.symbol, maximum(minimum(part.extent, rest), 0)) if part.atom is own else part
            for part in parts
        )
        return short, [self._bare(statement) for statement in statements]

    def _bare(self, statement: Store | Fold) -> Store | Fold:
        """A fold without the mask of its body."""
        old = statement.value
        (masked,) = old.arguments
        new = self.scalars.make("reduce", old.dtype, (masked.arguments[1],), old.attribute)
        self.folded[old] = new
        return Fold(new)

    def _inner_loops(self, nest: Nest) -> list[Statement]:
        statements = self._refolded(nest)
        if nest.inner.extent == 1:
            return self._single(nest.inner, statements)
        parts = split_axis(nest.inner, "v", self._sizes_of(statements))
        return self._nested(nest.inner, parts, 1, 1, statements)

    def _single(self, inner: Axis, statements: list[Store | Fold]) -> list[Statement]:
        memo: dict[Scalar, Scalar] = {}
        return [self._moved(statement, {inner.atom: 0}, memo) for statement in statements]

    def _refolded(self, nest: Nest) -> list[Store | Fold]:
        """The statements of a nest, reading the renamed reductions of nests before it."""
        if not self.folded:
            return nest.statements
        result: list[Store | Fold] = []
        for statement in nest.statements:
            value = self.scalars.substitute(statement.value, {}, self.folded)
            if isinstance(statement, Fold):
                self.folded[statement.value] = value
            result.append(replace(statement, value=value))
        return result

    def _renamed(
        self,
        places: list[dict[Atom, Size]],
        axes: tuple[Axis, ...],
        statements: list[Store | Fold],
    ) -> list[Store | Fold]:
        """The statements over new axes instead of the linear inner index, in some steps."""
        memos: list[dict[Scalar, Scalar]] = [{} for _ in places]
        result: list[Store | Fold] = []
        for statement in statements:
            if isinstance(statement, Store):
                for each, memo in zip(places, memos, strict=True):
                    statement = self._moved(statement, each, memo)
                result.append(statement)
                continue
            old = statement.value
            body = old.arguments[0]
            for each, memo in zip(places, memos, strict=True):
                body = self.scalars.substitute(body, each, memo=memo)
            new = self.scalars.make("reduce", old.dtype, (body,), (old.attribute[0], axes))
            for earlier, later in self.folded.items():
                if later is old:
                    self.folded[earlier] = new
            self.folded[old] = new
            result.append(Fold(new))
        return result

    # -------------------------------------------------------------------------------- choices

    def _accesses(self, inner_only: bool) -> Iterator[tuple[Size, Axis, int]]:
        """Offsets of loads and stores, with their nest's inner axis and their weight."""
        for nest in self.nests:
            if inner_only and nest.inner.extent == 1:
                continue
            for offset in _offsets(nest.statements):
                yield offset, nest.inner, 1
            for statement in nest.statements:
                if isinstance(statement, Store):
                    yield statement.offset, nest.inner, 2

    def _sizes(self) -> list[Size]:
        return [size for nest in self.nests for size in self._sizes_of(nest.statements)]

    def _sizes_of(self, statements: Sequence[Store | Fold]) -> list[Size]:
        sizes = list(_offsets(statements))
        for statement in statements:
            if isinstance(statement, Store):
                sizes.append(statement.offset)
            roots = statement.value
            sizes.extend(n.attribute for n in walk(roots) if n.op == "index")
        return sizes

    def _contiguous_inner(self) -> int:
        score = 0
        for offset, inner, weight in self._accesses(inner_only=True):
            parts = split_axis(inner, "v", [offset])
            place = substitute(offset, {inner.atom: linear(parts)})
            score += weight * _along(growth_of(place, parts[-1].atom))
        return score

    def _contiguous_outer(self) -> int:
        score = 0
        for offset, _, weight in self._accesses(inner_only=True):
            score += weight * _along(self._growth(offset, self.lane))
        return score

    def _growth(self, offset: Size, lane: Axis) -> Size | None:
        key = (offset, self._parts_place)
        moved = self.moved.get(key)
        if moved is None:
            moved = substitute(offset, {self.outer.atom: self._parts_place})
            self.moved[key] = moved
        return growth_of(moved, lane.atom)

    def _outer_lane(self) -> Axis:
        """The part of the outer index along which most accesses are contiguous."""
        best, best_score = self.parts[-1], -1 << 30
        for part in reversed(self.parts):
            score = sum(
                weight * _along(self._growth(offset, part))
                for offset, _, weight in self._accesses(inner_only=False)
            )
            if hint_of(part.extent) < 4:
                score -= 4
            if score > best_score:
                best, best_score = part, score
        return best

    def _widest_cost(self) -> int:
        return max((_cost(nest.statements, None) for nest in self.nests), default=1)

    def _lanes(self, extent: Size, cost: int, folds: int = 0) -> int:
        width = max((_width(n.dtype) for n in self._values()), default=4)
        lanes = max(jit.vector_bits() // (8 * width), 2)
        wide = 1 if cost > 60 else 2 if cost > 12 else 4
        if folds == 0 and wide == 4:
            wide = 2
        likely = hint_of(extent)
        least = 1 if isinstance(extent, int) else 2
        while wide > least and likely < lanes * wide * 2:
            wide //= 2
        # A size that varies may be large in the next call: its vectors stay wide.
        while isinstance(extent, int) and wide == 1 and lanes > 2 and extent <= lanes // 2:
            lanes //= 2
        return lanes * wide

    def _values(self) -> Iterator[Scalar]:
        for nest in self.nests:
            for statement in nest.statements:
                for node in walk(statement.value):
                    if node.op in ("load", "cast") or node is statement.value:
                        yield node


def _loops_between(others: tuple[Axis, ...]) -> tuple[tuple[Axis, ...], tuple[Axis, ...]]:
    """The outer axes that are counted by one index, shared among threads, and those that have loops
    of their own: digits of an index are dear where a size is not known."""
    between: tuple[Axis, ...] = ()
    while len(others) > 1 and not all(isinstance(each.extent, int) for each in others[1:]):
        if hint_of(product(each.extent for each in others[:-1])) < ENOUGH_ROWS:
            break
        others, between = others[:-1], (others[-1], *between)
    return others, between


def _width(dtype: torch.dtype) -> int:
    """Bytes of one element while it is computed with; 64-bit integers mostly are indices beside
    narrower data, and are split over two vectors there."""
    if dtype in (torch.bfloat16, torch.float16):
        return 4
    if dtype is torch.bool:
        return 1
    return min(dtype.itemsize, 8) if dtype is not torch.int64 else 4


def _along(growth: Size | None) -> int:
    """How good an access is whose offset grows so along the vector."""
    if growth is None:
        return -3
    return {1: 2, 0: 1}.get(growth, -2) if isinstance(growth, int) else -2


def _offsets(statements: Sequence[Store | Fold]) -> Iterator[Size]:
    roots = [s.value.arguments[0] if isinstance(s, Fold) else s.value for s in statements]
    for node in walk(*roots, into_reductions=False):
        if node.op == "load":
            yield node.attribute[1]


def _cost(statements: Sequence[Store | Fold], inner: Atom | None) -> int:
    roots = [s.value.arguments[0] if isinstance(s, Fold) else s.value for s in statements]
    return cost_of(
        n for n in walk(*roots, into_reductions=False) if inner is None or inner in n.free
    )


def _folds(statements: Sequence[Store | Fold]) -> int:
    return sum(isinstance(statement, Fold) for statement in statements)


def _common_mask(statements: Sequence[Store | Fold]) -> Scalar | None:
    """The condition `index < index` under which all of some folds count."""
    found: set[Scalar] = set()
    for statement in statements:
        body = statement.value.arguments[0] if isinstance(statement, Fold) else None
        if body is None or body.op != "masked":
            return None
        condition, _, otherwise = body.arguments
        neutral = identity(statement.value.attribute[0], body.dtype)
        if otherwise.op != "constant" or otherwise.attribute != neutral:
            return None
        found.add(condition)
    if len(found) != 1:
        return None
    (condition,) = found
    sides = condition.arguments
    plain = all(side.op in ("index", "constant") and not side.indices for side in sides)
    return condition if condition.op == "lt" and plain else None


def _sums(statements: Sequence[Store | Fold]) -> bool:
    return any(
        isinstance(s, Fold)
        and s.value.attribute[0] in ("sum", "prod")
        and s.value.dtype.is_floating_point
        for s in statements
    )
