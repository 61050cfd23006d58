"""What rules with reductions share: reading operands, folding dimensions, declaring with samples.

Enters: a builder, `Lazy` operands, dimensions. Leaves: functions from an index to a term.
Invariant: an index always has the rank of the tensor that is read; at reduced dimensions its
entries are ignored, so that the same index serves what is folded and what is not.

    total = fold(builder, "sum", sizes, (1,), lambda index: read(x, index))   # x summed over dim 1
    total((i, 0)), total((i, j))                                             # the same term
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch

from windfall.ir.dtype import TensorType, contiguous_strides
from windfall.ir.loop import Builder, Index, Lazy
from windfall.ir.symint import Expression, Size, product
from windfall.ops.arguments import lowering_by_name, shape_by_name
from windfall.ops.layout import Sizes
from windfall.ops.promotion import LOWERABLE
from windfall.ops.registry import EVERY, Op, Samples, declare
from windfall.ops.samples import Sample
from windfall.ops.term import Term

At = Callable[[Index], Term]


def fresh(dtype: torch.dtype, sizes: Sequence[Size]) -> TensorType:
    """A row-major result."""
    own = tuple(sizes)
    return TensorType(dtype, own, contiguous_strides(own))


def reading(builder: Builder, value: Lazy, dtype: torch.dtype | None = None) -> At:
    """The elements of `value`, converted to `dtype`."""
    if dtype is None:
        return lambda index: Term(builder, value.at(index))
    return lambda index: Term(builder, value.at(index)).to(dtype)


def fold(builder: Builder, kind: str, sizes: Sizes, dims: Sequence[int], body: At) -> At:
    """`body` reduced over `dims` of a space of `sizes`."""
    if not dims:
        return body
    extents = [sizes[dim] for dim in dims]

    def at(index: Index) -> Term:
        def inner(axes: Index) -> Any:
            whole = list(index)
            for dim, axis in zip(dims, axes, strict=True):
                whole[dim] = axis
            return body(tuple(whole)).scalar

        return Term(builder, builder.reduce(kind, extents, inner))

    return at


def fitting(value: Any, dtype: torch.dtype) -> Any:
    """A number as a dtype holds it: -1 is 255 in uint8 (what eager refuses was refused before, see
    `refused_dtypes.py`); one that varies is made to fit when it is read."""
    if isinstance(value, Expression) or dtype.is_floating_point:
        return value
    if dtype is torch.bool:
        return bool(value)
    about = torch.iinfo(dtype)
    return (int(value) - about.min) % (1 << about.bits) + about.min


def number(builder: Builder, value: Size, dtype: torch.dtype) -> Term:
    """A size, known or not, as a term."""
    if isinstance(value, int):
        return Term(builder, builder.constant(value, dtype))
    return Term(builder, builder.index(value, dtype))


def size_term(builder: Builder, value: Size) -> Term:
    """A size as an int64, to compare indices with."""
    return number(builder, value, torch.int64)


def count(sizes: Sizes, dims: Sequence[int]) -> Size:
    """How many elements are folded into one."""
    return product(sizes[dim] for dim in dims)


def kept_sizes(sizes: Sizes, dims: Sequence[int], keepdim: bool) -> Sizes:
    """The sizes after reducing `dims`."""
    if keepdim:
        return tuple(1 if dim in dims else size for dim, size in enumerate(sizes))
    return tuple(size for dim, size in enumerate(sizes) if dim not in dims)


def whole_index(index: Index, rank: int, dims: Sequence[int], keepdim: bool) -> Index:
    """An index of the reduced tensor as one of the whole (0 at the reduced dimensions)."""
    if keepdim:
        return tuple(0 if dim in dims else place for dim, place in enumerate(index))
    rest = iter(index)
    return tuple(0 if dim in dims else next(rest) for dim in range(rank))


def stored(builder: Builder, type: TensorType, at: At) -> Lazy:
    """A tensor by its element, rounded to the type's dtype."""
    return builder.tensor(type, lambda index: at(index).to(type.dtype).scalar)


def sharing(builder: Builder, dtype: torch.dtype, sizes: Sizes, dims: Sequence[int], at: At) -> At:
    """The same function, kept as a tensor of its own (one element for each row), so that whoever
    schedules may compute it once."""
    kept = kept_sizes(sizes, dims, True)
    lazy = stored(builder, fresh(dtype, kept), at)

    def read(index: Index) -> Term:
        own = tuple(0 if dim in dims else place for dim, place in enumerate(index))
        return Term(builder, lazy.at(own))

    return read


def can_lower(*values: Any) -> bool:
    """Whether generated code can hold every tensor among `values` (`Lazy` or `TensorType`)."""
    types = (value.type if isinstance(value, Lazy) else value for value in values)
    return all(each.dtype in LOWERABLE for each in types if isinstance(each, TensorType))


def listed(*samples: Callable[[], Sample]) -> Samples:
    """Samples, each made when it is asked for."""
    return partial(_in_turn, samples)


def _in_turn(samples: tuple[Callable[[], Sample], ...]) -> Iterator[Sample]:
    for sample in samples:
        yield sample()


def op(
    name: str,
    shape: Callable[..., Any] | None,
    lower: Callable[..., Any] | None = None,
    samples: Samples | None = None,
    *,
    named: bool = False,
    **fields: Any,
) -> Op:
    """Declare `aten.<name>`. Unless `fields` say otherwise: what has a lowering reads all of its
    operands, however they lie in memory; what has no checks refuses no data. `named`: the rules
    take `Arguments`."""
    fields.setdefault("reads", EVERY if lower else ())
    fields.setdefault("any_layout", lower is not None)
    fields.setdefault("refuses", fields.get("checks") is not None)
    full = f"aten.{name}"
    if named and shape is not None:
        shape = shape_by_name(full, shape)
        lower = lowering_by_name(full, lower) if lower is not None else None
    return declare(Op(full, shape, lower, samples, **fields))
