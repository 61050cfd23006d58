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
    Expression,
    Size,
    coefficient_of,
    minimum,
    product,
    substitute,
    symbols_of,
)

SQUARE = 8  # rows and columns of the blocks in which transposed operands are read
BLOCK = 64  # additions in a row before a partial sum is set aside: keeps rounding errors small


def tile(
    group: Group, scalars: Scalars, buffers: dict[str, Buffer]
) -> tuple[tuple[Statement, ...], int]:
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
        self._parts_place = _linear(self.parts, {})
        self.lane = self._outer_lane()
        pointwise = all(nest.inner.extent == 1 for nest in self.nests)
        self.row_wise = not pointwise and (
            self.outer.extent == 1 or self._contiguous_inner() >= self._contiguous_outer()
        )

    def work(self) -> int:
        """How much there is to do, in rough units of one element of a cheap operation."""
        total = 0
        for nest in self.nests:
            roots = [
                s.value.arguments[0] if isinstance(s, Fold) else s.value for s in nest.statements
            ]
            inner = [
                n
                for n in walk(*roots, into_reductions=False)
                if nest.inner.extent == 1 or nest.inner.atom in n.free
            ]
            extent = nest.inner.extent
            total += (extent if isinstance(extent, int) else 1024) * max(cost_of(inner), 1)
        rows = self.outer.extent
        return total * (rows if isinstance(rows, int) else 1024)

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
        count = axis("p", product(part.extent for part in others))
        self._substitute_outer({self.outer.atom: _linear(parts, {})})
        if len(others) > 1:
            self._substitute_outer(digits(count, others))
        elif others:
            count = others[0]
        lanes = self._lanes(lane.extent, self._widest_cost())
        square = self._square(count, lane)
        if square is not None:
            count, inner = square
            lanes = SQUARE
        self._widen_scratch(lanes)
        body: list[Statement] = []
        for nest in self.nests:
            body.extend(self._inner_loops(nest))
        if square is not None:
            body = [Loop(inner, tuple(body), unrolled=True)]
        whole = Loop(lane, tuple(body), lanes, parallel=count.extent == 1)
        if count.extent == 1:
            return tuple(self._zero(count.atom, [whole]))
        return (Loop(count, (whole,), parallel=True),)

    def _square(self, count: Axis, lane: Axis) -> tuple[Axis, Axis] | None:
        """Where something is read across the vector and along the loop around it (a transposed
        operand): that loop in blocks, to be read as squares. The outer index is renamed."""
        extents = (count.extent, lane.extent)
        if not all(isinstance(each, int) and each >= SQUARE for each in extents):
            return None
        if any(nest.inner.extent != 1 for nest in self.nests):
            return None
        block = _trailing(count, self._sizes())
        if not isinstance(block, int) or block % SQUARE:
            return None
        for offset in (o for nest in self.nests for o in _offsets(nest.statements)):
            across = coefficient_of(offset, lane.atom)
            if across not in (0, 1, None) and _growth_within(offset, count, block) == 1:
                break
        else:
            return None
        whole, inner = axis("q", count.extent // SQUARE), axis("m", SQUARE)
        self._substitute_outer({count.atom: whole.symbol * SQUARE + inner.symbol})
        return whole, inner

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
        last = parts[-1]
        blocks: tuple[Axis, ...] = (last,)
        place = _linear(parts, {})
        if _sums(statements):
            blocks, within = _blocked(last, step * BLOCK)
            place = _linear(parts, {last.atom: within})
        axes = (*parts[:-1], *blocks)
        body = self._renamed(inner, place, axes, statements)
        result = Loop(axes[-1], tuple(body), lanes)
        for each in reversed(axes[:-1]):
            result = Loop(each, (result,))
        return [result]

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
        self, inner: Axis, place: Size, axes: tuple[Axis, ...], statements: list[Store | Fold]
    ) -> list[Store | Fold]:
        """The statements over new axes instead of the linear inner index."""
        places = {inner.atom: place}
        memo: dict[Scalar, Scalar] = {}
        result: list[Store | Fold] = []
        for statement in statements:
            if isinstance(statement, Store):
                result.append(self._moved(statement, places, memo))
                continue
            old = statement.value
            body = self.scalars.substitute(old.arguments[0], places, memo=memo)
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
            place = substitute(offset, {inner.atom: _linear(parts, {})})
            score += weight * _along(coefficient_of(place, parts[-1].atom))
        return score

    def _contiguous_outer(self) -> int:
        score = 0
        for offset, _, weight in self._accesses(inner_only=True):
            score += weight * _along(self._growth(offset, self.lane))
        return score

    def _growth(self, offset: Size, lane: Axis) -> int | None:
        key = (offset, self._parts_place)
        moved = self.moved.get(key)
        if moved is None:
            moved = substitute(offset, {self.outer.atom: self._parts_place})
            self.moved[key] = moved
        return coefficient_of(moved, lane.atom)

    def _outer_lane(self) -> Axis:
        """The part of the outer index along which most accesses are contiguous."""
        best, best_score = self.parts[-1], -1 << 30
        for part in reversed(self.parts):
            score = sum(
                weight * _along(self._growth(offset, part))
                for offset, _, weight in self._accesses(inner_only=False)
            )
            if isinstance(part.extent, int) and part.extent < 4:
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
        if not isinstance(extent, int):
            return lanes
        while wide > 1 and extent < lanes * wide * 2:
            wide //= 2
        while wide == 1 and lanes > 2 and extent <= lanes // 2:
            lanes //= 2
        return lanes * wide

    def _values(self) -> Iterator[Scalar]:
        for nest in self.nests:
            for statement in nest.statements:
                for node in walk(statement.value):
                    if node.op in ("load", "cast") or node is statement.value:
                        yield node


def _width(dtype: torch.dtype) -> int:
    """Bytes of one element while it is computed with; 64-bit integers mostly are indices beside
    narrower data, and are split over two vectors there."""
    if dtype in (torch.bfloat16, torch.float16):
        return 4
    if dtype is torch.bool:
        return 1
    return min(dtype.itemsize, 8) if dtype is not torch.int64 else 4


def _along(coefficient: int | None) -> int:
    """How good an access is whose offset grows so along the vector."""
    return {1: 2, 0: 1}.get(coefficient, -2) if coefficient is not None else -3


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


def _sums(statements: Sequence[Store | Fold]) -> bool:
    return any(
        isinstance(s, Fold)
        and s.value.attribute[0] in ("sum", "prod")
        and s.value.dtype.is_floating_point
        for s in statements
    )


# ----------------------------------------------------------------------------------- indices


def _trailing(count: Axis, sizes: Sequence[Size]) -> Size:
    """How far the last digit of an index reaches, in which expressions use it."""
    return split_axis(count, "d", sizes)[-1].extent


def _growth_within(offset: Size, count: Axis, block: int) -> int | None:
    """How an offset grows while the last digit of `count` does."""
    high = axis("h", _extent_of(count) // block)
    low = axis("l", block)
    moved = substitute(offset, {count.atom: high.symbol * block + low.symbol})
    return coefficient_of(moved, low.atom)


def _extent_of(each: Axis) -> int:
    assert isinstance(each.extent, int)
    return each.extent


def _linear(parts: Sequence[Axis], instead: dict[Atom, Size]) -> Size:
    """The linear index of which `parts` are the digits."""
    total: Size = 0
    for part in parts:
        total = total * part.extent + instead.get(part.atom, part.symbol)
    return total


def _blocked(whole: Axis, size: int) -> tuple[tuple[Axis, ...], Size]:
    """`whole` as blocks of `size`, and blocks of blocks, so that no sum is long; and `whole` as an
    expression of these."""
    extent = whole.extent
    if not isinstance(extent, int) or extent <= 2 * size:
        return (whole,), whole.symbol
    unit = size // BLOCK
    even = (each for each in range(size, size // 2, -1) if extent % each == 0 and each % unit == 0)
    size = next(even, size)
    count = -(-extent // size)
    blocks, block = _blocked(axis(f"b{whole.symbol}", count), BLOCK)
    within = axis(f"{whole.symbol}w", size)
    start = size * block
    return (*blocks, Axis(within.symbol, minimum(size, extent - start))), start + within.symbol


def split_axis(linear: Axis, letter: str, sizes: Sequence[Size]) -> tuple[Axis, ...]:
    """`linear` as the fewest digits in which the expressions need no division."""
    points: set[int] = set()
    for size in sizes:
        if linear.atom in symbols_of(size):
            _collect(size, linear.atom, points)
    extent = linear.extent
    steps = [1]
    for point in sorted(points):
        follows = point > steps[-1] and point % steps[-1] == 0
        if follows and isinstance(extent, int) and extent % point == 0 and point < extent:
            steps.append(point)
    if len(steps) == 1:
        return (linear,)
    ends: list[Size] = [*steps[1:], extent]
    extents = [end // step for step, end in zip(steps, ends, strict=True)]
    return tuple(axis(f"{letter}{place}", extent) for place, extent in enumerate(reversed(extents)))


def _collect(size: Size, atom: Atom, points: set[int]) -> None:
    """Where the digits of `atom` end, as divisions and remainders in `size` tell."""
    if not isinstance(size, Expression):
        return
    for monomial, _ in size.terms:
        for part in monomial.atoms:
            if not part.operation or atom not in part.symbols:
                continue
            if part.operation in ("//", "%"):
                value, divisor = part.arguments
                if isinstance(divisor, int):
                    step, inner = _quotient(value, atom)
                    if inner:
                        points.update({step, step * divisor})
            for argument in part.arguments:
                _collect(argument, atom, points)


def _quotient(value: Size, atom: Atom) -> tuple[int, bool]:
    """`(d, True)` where `value` is `atom // d`."""
    part = value.atom if isinstance(value, Expression) else None
    if part is atom:
        return 1, True
    if part is not None and part.operation == "//":
        inner, divisor = part.arguments
        if isinstance(inner, Expression) and inner.atom is atom and isinstance(divisor, int):
            return divisor, True
    return 1, False
