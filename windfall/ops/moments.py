"""Reductions of powers: variances and deviations, vector norms, `logsumexp`.

Enters: nothing. Leaves: records in the registry. Invariant: a variance is folded in two passes, the
mean first; half precision is folded in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from windfall.ir.dtype import TensorType
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
    sharing,
)
from windfall.ops.promotion import TO_REAL, category, compute_dtype
from windfall.ops.reduction import (
    FLOAT_DTYPES,
    Dims,
    c_name,
    converted,
    dims_of,
    reduced,
    reduction_samples,
)
from windfall.ops.samples import Sample, make
from windfall.ops.term import Term


def moments(
    builder: Builder, x: At, sizes: Any, dims: Sequence[int], dtype: torch.dtype
) -> tuple[At, At]:
    """The mean and the sum of squared differences from it, in two passes."""
    size = number(builder, count(sizes, dims), dtype)
    total = fold(builder, "sum", sizes, dims, x)
    mean = sharing(builder, dtype, sizes, dims, lambda index: total(index) / size)

    def square(index: Index) -> Term:
        difference = x(index) - mean(index)
        return difference * difference

    return mean, fold(builder, "sum", sizes, dims, square)


def _var_shape(
    x: TensorType, dims: Dims = None, *, correction: Any = None, keepdim: bool = False
) -> TensorType:
    if category(x.dtype) < 2:
        raise RuntimeError("std and var only support floating point and complex dtypes")
    dtype = TO_REAL.get(x.dtype, x.dtype)
    return fresh(dtype, kept_sizes(x.sizes, dims_of(dims, x.rank), keepdim))


def _variance(root: bool, with_mean: bool) -> Callable[..., Any]:
    def lower(
        builder: Builder,
        x: Lazy,
        dims: Dims = None,
        *,
        correction: Any = None,
        keepdim: bool = False,
    ) -> Any:
        if not can_lower(x):
            return NotImplemented
        result = _var_shape(x.type, dims, keepdim=keepdim)
        chosen, sizes = dims_of(dims, x.type.rank), x.type.sizes
        dtype = compute_dtype(x.type.dtype)
        mean, squares = moments(builder, reading(builder, x, dtype), sizes, chosen, dtype)
        lost = 1 if correction is None else correction
        elements = number(builder, count(sizes, chosen), dtype)
        divisor = (elements - lost).maximum(0)
        # Of nothing there is no variance, though a negative correction makes up elements.
        made_up = isinstance(lost, int | float) and lost < 0 and count(sizes, chosen) == 0

        def spread(index: Index) -> Term:
            variance = squares(index) / divisor
            variance = variance * math.nan if made_up else variance
            return variance.sqrt() if root else variance

        variance = reduced(builder, x, result, chosen, keepdim, spread)
        if not with_mean:
            return variance

        def running(index: Index) -> Term:
            """As a mean that is kept up to date: where there is an infinity it is NaN."""
            return squares(index).ne(squares(index)).where(math.nan, mean(index))

        return variance, reduced(builder, x, result, chosen, keepdim, running)

    return lower


def _var_mean_shape(x: TensorType, dims: Dims = None, **keywords: Any) -> tuple[Any, Any]:
    variance = _var_shape(x, dims, **keywords)
    return variance, TensorType(x.dtype, variance.sizes, variance.strides)


def _var_samples() -> Iterator[Sample]:
    for (tensor, *rest), _ in reduction_samples(dtypes=FLOAT_DTYPES)():
        keepdim = len(rest) > 1
        yield (tensor, rest[0]), {"correction": 0 if keepdim else 1, "keepdim": keepdim}
    yield (make((3, 4)), None), {"correction": 1.5}
    yield (make((3, 1)), [1]), {}


op("var.correction", _var_shape, _variance(False, False), _var_samples)
op("std.correction", _var_shape, _variance(True, False), _var_samples)
op("var_mean.correction", _var_mean_shape, _variance(False, True), _var_samples)
op("std_mean.correction", _var_mean_shape, _variance(True, True), _var_samples)


def _norm_dtype(dtype: torch.dtype, wanted: torch.dtype | None) -> torch.dtype:
    chosen = wanted or dtype
    return TO_REAL.get(chosen, chosen)


def _vector_norm_shape(
    x: TensorType,
    order: Any = 2,
    dims: Dims = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> TensorType:
    if category(x.dtype) < 2:
        raise RuntimeError(
            "linalg.vector_norm: Expected a floating point or complex tensor as input. Got "
            f"{c_name(x.dtype)}"
        )
    return fresh(_norm_dtype(x.dtype, dtype), kept_sizes(x.sizes, dims_of(dims, x.rank), keepdim))


def _vector_norm(
    builder: Builder,
    x: Lazy,
    order: Any = 2,
    dims: Dims = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Any:
    result = _vector_norm_shape(x.type, order, dims, keepdim, dtype=dtype)
    chosen, sizes = dims_of(dims, x.type.rank), x.type.sizes
    if not can_lower(x, result) or (math.isinf(order) and any(sizes[dim] == 0 for dim in chosen)):
        return NotImplemented
    read = converted(builder, x, result.dtype)
    body, kind, end = _norm_parts(float(order))
    total = fold(builder, kind, sizes, chosen, lambda index: body(read(index)))
    return reduced(builder, x, result, chosen, keepdim, lambda index: end(total(index)))


def _norm_parts(order: float) -> tuple[Callable[[Term], Term], str, Callable[[Term], Term]]:
    """What is folded, how, and what is done with the total."""
    if order == 2:
        return lambda x: x * x, "sum", lambda total: total.sqrt()
    if order == 1:
        return abs, "sum", lambda total: total
    if order == 0:
        return lambda x: x.ne(0).to(x.dtype), "sum", lambda total: total
    if math.isinf(order):
        return abs, "max" if order > 0 else "min", lambda total: total
    return (
        lambda x: abs(x).pow(x.like(order)),
        "sum",
        lambda total: total.pow(total.like(1 / order)),
    )


def _norm(builder: Builder, x: Lazy, order: Any = 2, *rest: Any, **keywords: Any) -> Any:
    return _vector_norm(builder, x, 2 if order is None else order, *rest, **keywords)


op(
    "linalg_vector_norm.default",
    _vector_norm_shape,
    _vector_norm,
    reduction_samples(2, dtypes=FLOAT_DTYPES),
)
op("norm.ScalarOpt_dim", _vector_norm_shape, _norm, reduction_samples(3, dtypes=FLOAT_DTYPES))
op("norm.Scalar", _vector_norm_shape, _norm, reduction_samples(1, dims=False, dtypes=FLOAT_DTYPES))
op(
    "norm.ScalarOpt_dim_dtype",
    _vector_norm_shape,
    _norm,
    listed(lambda: ((make((3, 4)), 2, [1], True), {"dtype": torch.float64})),
)


def _logsumexp_shape(x: TensorType, dims: Dims, keepdim: bool = False) -> TensorType:
    dtype = x.dtype if category(x.dtype) >= 2 else torch.get_default_dtype()
    return fresh(dtype, kept_sizes(x.sizes, dims_of(dims, x.rank), keepdim))


def _logsumexp(builder: Builder, x: Lazy, dims: Dims, keepdim: bool = False) -> Any:
    result = _logsumexp_shape(x.type, dims, keepdim)
    chosen, sizes = dims_of(dims, x.type.rank), x.type.sizes
    if not can_lower(x, result) or any(sizes[dim] == 0 for dim in chosen):
        return NotImplemented
    if not isinstance(dims, int) and not dims:
        return NotImplemented  # eager refuses an empty list of dimensions
    dtype = compute_dtype(result.dtype)
    read = reading(builder, x, dtype)
    largest = fold(builder, "max", sizes, chosen, read)

    def finite(index: Index) -> Term:
        high = largest(index)
        return abs(high).eq(math.inf).where(0, high)

    high = sharing(builder, dtype, sizes, chosen, finite)
    total = fold(builder, "sum", sizes, chosen, lambda index: (read(index) - high(index)).exp())
    return reduced(
        builder, x, result, chosen, keepdim, lambda index: total(index).log() + high(index)
    )


op("logsumexp.default", _logsumexp_shape, _logsumexp, reduction_samples(dtypes=FLOAT_DTYPES))
