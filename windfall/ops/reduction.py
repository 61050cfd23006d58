"""Reductions: sums, products, means; scans have a shape rule only. `extremes.py` and `moments.py`
have the others, by what stands here at the beginning.

Enters: nothing. Leaves: records in the registry. Invariant: results are row-major, as eager's;
half precision is folded in float32, integers are summed in int64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from windfall.ir.dtype import TensorType, contiguous_strides
from windfall.ir.loop import Builder, Index, Lazy
from windfall.ops.folding import (
    At,
    can_lower,
    count,
    fold,
    fresh,
    kept_sizes,
    listed,
    number,
    op,
    reading,
    stored,
    whole_index,
)
from windfall.ops.layout import normalise_dim, normalise_dims
from windfall.ops.promotion import category, compute_dtype
from windfall.ops.registry import Samples
from windfall.ops.samples import Sample, make
from windfall.ops.term import Term

Dims = Sequence[int] | int | None
# (builder, x, dims, dtype of the result) -> what is folded of x over dims.
Total = Callable[[Builder, Lazy, Sequence[int], torch.dtype], At]


def dims_of(dims: Dims, rank: int) -> tuple[int, ...]:
    """The dimensions that are reduced, as numbers from 0 on; all where none is given."""
    return normalise_dims([dims] if isinstance(dims, int) else dims, rank)


def _sum_dtype(dtype: torch.dtype, wanted: torch.dtype | None) -> torch.dtype:
    return wanted or (dtype if category(dtype) >= 2 else torch.int64)


def reduced(
    builder: Builder, value: Lazy, result: TensorType, dims: Sequence[int], keepdim: bool, at: At
) -> Lazy:
    """A result of which each element is `at` anywhere along the dimensions that are folded."""
    rank = value.type.rank
    return stored(builder, result, lambda index: at(whole_index(index, rank, dims, keepdim)))


def reduction_samples(
    *extra: Any, dims: bool = True, dtypes: Sequence[torch.dtype] = ()
) -> Samples:
    """Reductions over one, several and all dimensions (as `dims` allows), in many layouts."""

    def made() -> Iterator[Sample]:
        tensors = [
            make((3, 4, 5)),
            make((3, 4, 5)).transpose(0, 2),
            make((3, 8))[:, ::2],
            make((2, 3, 4, 5)).contiguous(memory_format=torch.channels_last),
            make((3, 1)).expand(3, 4),
        ]
        tensors += [make((3, 4), dtype) for dtype in dtypes]
        for tensor in tensors:
            if not dims:
                yield (tensor, *extra), {}
                continue
            for chosen in ([0], [-1], [0, 1], [1]):
                yield (tensor, *extra, chosen), {}
                yield (tensor, *extra, chosen, True), {}
        yield (make(()), *extra, *([[]] if dims else [])), {}

    return made


ALL_DTYPES = (
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
)
FLOAT_DTYPES = ALL_DTYPES[:3]


def one_dim(samples: Samples, *, keepdim: bool = True) -> Samples:
    """The same samples, for overloads that take one dimension as an int."""

    def made() -> Iterator[Sample]:
        for (tensor, *rest), keywords in samples():
            if len(rest) and len(rest[0]) == 1 and (keepdim or len(rest) == 1):
                yield (tensor, rest[0][0], *rest[1:]), keywords

    return made


# -------------------------------------------------------------------------------- sums and products


def _sum_shape(
    x: TensorType, dims: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> TensorType:
    chosen = dims_of(dims, x.rank)
    return fresh(_sum_dtype(x.dtype, dtype), kept_sizes(x.sizes, chosen, keepdim))


def _totals(shape: Callable[..., TensorType], total: Total) -> Callable[..., Any]:
    """The lowering of an op whose result has the type of `shape` and the elements of `total`."""

    def lower(
        builder: Builder,
        x: Lazy,
        dims: Dims = None,
        keepdim: bool = False,
        *,
        dtype: torch.dtype | None = None,
    ) -> Any:
        result = shape(x.type, dims, keepdim, dtype=dtype)
        if not can_lower(x, result):
            return NotImplemented
        chosen = dims_of(dims, x.type.rank)
        return reduced(builder, x, result, chosen, keepdim, total(builder, x, chosen, result.dtype))

    return lower


def converted(builder: Builder, x: Lazy, dtype: torch.dtype) -> At:
    """Elements as eager folds them: converted to the result's dtype, then widened."""
    read = reading(builder, x, dtype)
    wide = compute_dtype(dtype)
    return lambda index: read(index).to(wide)


def _mean_shape(
    x: TensorType, dims: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> TensorType:
    chosen = dtype or x.dtype
    if category(chosen) < 2:
        kind = "Input" if dtype is None else "Optional"
        raise RuntimeError(
            f"mean(): could not infer output dtype. {kind} dtype must be either a floating "
            "point or "
            f"complex dtype. Got: {c_name(chosen)}"
        )
    return fresh(chosen, kept_sizes(x.sizes, dims_of(dims, x.rank), keepdim))


def c_name(dtype: torch.dtype) -> str:
    """How torch's C++ side names a dtype in messages."""
    names = {torch.int64: "Long", torch.int32: "Int", torch.int16: "Short", torch.int8: "Char"}
    return {**names, torch.uint8: "Byte", torch.bool: "Bool"}.get(dtype, str(dtype))


def _sum(builder: Builder, x: Lazy, dims: Sequence[int], dtype: torch.dtype) -> At:
    return fold(builder, "sum", x.type.sizes, dims, converted(builder, x, dtype))


def _product(builder: Builder, x: Lazy, dims: Sequence[int], dtype: torch.dtype) -> At:
    return fold(builder, "prod", x.type.sizes, dims, converted(builder, x, dtype))


def _mean(builder: Builder, x: Lazy, dims: Sequence[int], dtype: torch.dtype) -> At:
    """Elements are converted to what is computed with: half floats are never rounded to first."""
    total = fold(builder, "sum", x.type.sizes, dims, reading(builder, x, compute_dtype(dtype)))
    size = number(builder, count(x.type.sizes, dims), compute_dtype(dtype))
    return lambda index: total(index) / size


_SUM, _PRODUCT, _MEAN = (
    _totals(_sum_shape, _sum),
    _totals(_sum_shape, _product),
    _totals(_mean_shape, _mean),
)
op("sum.default", _sum_shape, _SUM, reduction_samples(dims=False, dtypes=ALL_DTYPES))
op("sum.dim_IntList", _sum_shape, _SUM, reduction_samples(dtypes=ALL_DTYPES))
op("prod.default", _sum_shape, _PRODUCT, reduction_samples(dims=False, dtypes=ALL_DTYPES))
op("prod.dim_int", _sum_shape, _PRODUCT, one_dim(reduction_samples(dtypes=ALL_DTYPES)))
op("mean.default", _mean_shape, _MEAN, reduction_samples(dims=False, dtypes=FLOAT_DTYPES))
op("mean.dim", _mean_shape, _MEAN, reduction_samples(dtypes=FLOAT_DTYPES))


def _known_sum(builder: Builder, x: Lazy, dims: Sequence[int], dtype: torch.dtype) -> At:
    read = converted(builder, x, dtype)

    def known(index: Index) -> Term:
        value = read(index)
        return value.isnan().where(0, value)

    return fold(builder, "sum", x.type.sizes, dims, known)


_KNOWN_SUM = _totals(_sum_shape, _known_sum)


def _nansum(builder: Builder, x: Lazy, *given: Any, dtype: torch.dtype | None = None) -> Any:
    if not x.type.dtype.is_floating_point:
        return _SUM(builder, x, *given, dtype=dtype)
    if dtype is not None and not dtype.is_floating_point:
        return NotImplemented
    return _KNOWN_SUM(builder, x, *given, dtype=dtype)


def _count_shape(x: TensorType, dims: Dims = None) -> TensorType:
    return fresh(torch.int64, kept_sizes(x.sizes, dims_of(dims, x.rank), False))


def _count_nonzero(builder: Builder, x: Lazy, dims: Dims = None) -> Any:
    if not can_lower(x):
        return NotImplemented
    chosen = dims_of(dims, x.type.rank)
    read = reading(builder, x, torch.bool)
    total = fold(builder, "sum", x.type.sizes, chosen, lambda index: read(index).to(torch.int64))
    return reduced(builder, x, _count_shape(x.type, dims), chosen, False, total)


def _trace_shape(x: TensorType) -> TensorType:
    if x.rank != 2:
        raise RuntimeError(f"trace: expected a matrix, but got tensor with dim {x.rank}")
    return fresh(_sum_dtype(x.dtype, None), ())


def _trace(builder: Builder, x: Lazy) -> Any:
    result, (rows, columns) = _trace_shape(x.type), x.type.sizes
    if not can_lower(x) or not isinstance(rows, int) or not isinstance(columns, int):
        return NotImplemented
    read = converted(builder, x, result.dtype)
    total = fold(
        builder, "sum", (min(rows, columns),), (0,), lambda index: read((index[0], index[0]))
    )
    return stored(builder, result, lambda index: total((0,)))


op("nansum.default", _sum_shape, _nansum, reduction_samples(dtypes=ALL_DTYPES))
op(
    "count_nonzero.dim_IntList",
    _count_shape,
    _count_nonzero,
    lambda: (sample for sample in reduction_samples(dtypes=ALL_DTYPES)() if len(sample[0]) == 2),
)
op(
    "count_nonzero.default",
    _count_shape,
    _count_nonzero,
    one_dim(reduction_samples(dtypes=ALL_DTYPES), keepdim=False),
)
op(
    "trace.default",
    _trace_shape,
    _trace,
    listed(lambda: ((make((3, 4)),), {}), lambda: ((make((5, 3), torch.int32),), {})),
    reads=(),
)

# -------------------------------------------------------------------------------------------- scans


def _scan_shape(x: TensorType, dim: int, *, dtype: torch.dtype | None = None) -> TensorType:
    normalise_dim(dim, x.rank)
    return fresh(_sum_dtype(x.dtype, dtype), x.sizes)


def _scan_with_positions(x: TensorType, dim: int) -> tuple[TensorType, TensorType]:
    normalise_dim(dim, x.rank)
    return fresh(x.dtype, x.sizes), TensorType(torch.int64, x.sizes, contiguous_strides(x.sizes))


_scan_samples = one_dim(reduction_samples(dtypes=FLOAT_DTYPES), keepdim=False)
for _name in ("cumsum", "cumprod"):
    op(f"{_name}.default", _scan_shape, None, _scan_samples)
for _name in ("cummax", "cummin"):
    op(f"{_name}.default", _scan_with_positions, None, _scan_samples)
op("logcumsumexp.default", lambda x, dim: _scan_shape(x, dim, dtype=x.dtype), None, _scan_samples)
