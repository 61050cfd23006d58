"""A tensor with a part of it replaced: what a write through a view becomes in SSA form.

Enters: nothing. Leaves: records in the registry for the `*_scatter` ops. Invariant: an element of
the result comes from the source where the view would show it, else from the first argument; the
source is only read inside its bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from windfall.ir.dtype import TensorType
from windfall.ir.loop import Builder, Index, Lazy
from windfall.ir.symint import Size
from windfall.ops.folding import can_lower, listed, op, size_term
from windfall.ops.layout import differ, normalise_dim, preserved_strides
from windfall.ops.registry import lookup
from windfall.ops.samples import Sample, make
from windfall.ops.term import Term
from windfall.ops.view import clamp_bound

# From an index: the conditions under which the source counts there, and the source's index.
Inside = Callable[[Index], tuple[list[Term], Index]]


def kept_strides(x: TensorType) -> TensorType:
    """Eager copies with the same strides, holes between elements included, unless elements are
    shown several times."""
    repeated = any(stride == 0 != size - 1 for size, stride in zip(x.sizes, x.strides, strict=True))
    strides = preserved_strides(x.sizes, x.strides) if repeated else x.strides
    return TensorType(x.dtype, x.sizes, strides)


def _check_source(
    name: str, x: TensorType, source: TensorType, *rest: Any, **keywords: Any
) -> None:
    record = lookup(f"aten.{name}")
    assert record.shape is not None
    part = record.shape(x, *rest, **keywords)
    if differ(part.sizes, source.sizes):
        raise RuntimeError(
            "expected src to have a size equal to the slice of self. src size = "
            f"{list(source.sizes)}, "
            f"slice size = {list(part.sizes)}"
        )


def _scattered(builder: Builder, x: Lazy, source: Lazy, inside: Inside) -> Any:
    if not can_lower(x, source):
        return NotImplemented
    result = kept_strides(x.type)

    def at(index: Index) -> Any:
        old = x.at(index)
        conditions, own = inside(index)
        if not conditions:
            return builder.cast(source.at(own), result.dtype)
        whole = conditions[0]
        for condition in conditions[1:]:
            whole = whole & condition
        return builder.masked(whole.scalar, lambda: builder.cast(source.at(own), result.dtype), old)

    return builder.tensor(result, at)


def _slice_shape(
    x: TensorType,
    source: TensorType,
    dim: int = 0,
    start: Size | None = None,
    end: Size | None = None,
    step: int = 1,
) -> TensorType:
    _check_source("slice.Tensor", x, source, dim, start, end, step)
    return kept_strides(x)


def scatter_slice(
    builder: Builder,
    x: Lazy,
    source: Lazy,
    dim: int = 0,
    start: Size | None = None,
    end: Size | None = None,
    step: int = 1,
) -> Any:
    """`x` with a slice replaced by `source`."""
    place = normalise_dim(dim, x.type.rank)
    size, length = x.type.sizes[place], source.type.sizes[place]
    first = clamp_bound(start, size, 0)
    last = clamp_bound(end, size, size)

    def inside(index: Index) -> tuple[list[Term], Index]:
        position = index[place]
        term = Term(builder, builder.index(position))
        conditions = []
        if first != 0:
            conditions.append(term >= size_term(builder, first))
        if last != size or length == 0:
            conditions.append(term < size_term(builder, last))
        own = position if first == 0 else position - first
        if step != 1:
            conditions.append(Term(builder, builder.index(own % step)).eq(0))
            own = own // step
        return conditions, (*index[:place], own, *index[place + 1 :])

    return _scattered(builder, x, source, inside)


def _select_shape(x: TensorType, source: TensorType, dim: int, position: Size) -> TensorType:
    _check_source("select.int", x, source, dim, position)
    return kept_strides(x)


def scatter_select(builder: Builder, x: Lazy, source: Lazy, dim: int, position: Size) -> Any:
    """`x` with one position of a dimension replaced by `source`."""
    place = normalise_dim(dim, x.type.rank)
    size = x.type.sizes[place]
    chosen = position + size if isinstance(position, int) and position < 0 else position

    def inside(index: Index) -> tuple[list[Term], Index]:
        here = Term(builder, builder.index(index[place])).eq(size_term(builder, chosen))
        return [here], index[:place] + index[place + 1 :]

    return _scattered(builder, x, source, inside)


def _diagonal_shape(
    x: TensorType, source: TensorType, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> TensorType:
    _check_source("diagonal.default", x, source, offset, dim1, dim2)
    return kept_strides(x)


def scatter_diagonal(
    builder: Builder, x: Lazy, source: Lazy, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Any:
    """`x` with a diagonal replaced by `source`."""
    first, second = normalise_dim(dim1, x.type.rank), normalise_dim(dim2, x.type.rank)
    down, length = max(-offset, 0), source.type.sizes[-1]

    def inside(index: Index) -> tuple[list[Term], Index]:
        row, column = (Term(builder, builder.index(index[dim])) for dim in (first, second))
        along = index[first] - down
        rest = tuple(place for dim, place in enumerate(index) if dim not in (first, second))
        conditions = [(column - row).eq(offset)]
        if down:
            conditions.append(Term(builder, builder.index(along)) >= 0)
        conditions.append(Term(builder, builder.index(along)) < size_term(builder, length))
        return conditions, (*rest, along)

    return _scattered(builder, x, source, inside)


def _strided_shape(
    x: TensorType,
    source: TensorType,
    sizes: Sequence[Size],
    strides: Sequence[Size],
    offset: Size | None = None,
) -> TensorType:
    return kept_strides(x)


def _samples(*rest: Any, view: str) -> Any:
    def made() -> Iterator[Sample]:
        record = lookup(f"aten.{view}")
        assert record.shape is not None
        sizes = record.shape(TensorType.contiguous(torch.float32, (4, 5)), *rest).sizes
        for x in (make((4, 5)), make((5, 4)).t(), make((4, 10))[:, ::2]):
            yield (x, make(sizes, seed=3), *rest), {}
        yield (make((4, 5), torch.bfloat16), make(sizes), *rest), {}

    return made


_slices = [
    _samples(*rest, view="slice.Tensor")
    for rest in ((1, 1, 4), (0, 0, 9223372036854775807, 2), (1, -2), (0, 1, 4, 2), (0, 0, 4))
]


def _all_slices() -> Iterator[Sample]:
    for samples in _slices:
        yield from samples()


op("slice_scatter.default", _slice_shape, scatter_slice, _all_slices, reads=(1,), recompute=True)
op(
    "select_scatter.default",
    _select_shape,
    scatter_select,
    _samples(1, -2, view="select.int"),
    reads=(1,),
    recompute=True,
)
op(
    "diagonal_scatter.default",
    _diagonal_shape,
    scatter_diagonal,
    lambda: (
        sample
        for rest in ((), (1,), (-2, 0, 1), (1, 1, 0))
        for sample in _samples(*rest, view="diagonal.default")()
    ),
    reads=(1,),
    recompute=True,
)
op(
    "as_strided_scatter.default",
    _strided_shape,
    None,
    listed(lambda: ((make((4, 6)), make((3, 2)), [3, 2], [1, 6], 2), {})),
)
