"""Reductions: sums, products, extremes, tests, moments, norms; scans have a shape rule only.

Enters: nothing. Leaves: records in the registry. Invariant: results are row-major, as eager's;
half precision is folded in float32, integers are summed in int64.
"""

from __future__ import annotations

import math
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
    sharing,
    stored,
    whole_index,
)
from windfall.ops.layout import normalise_dim, normalise_dims
from windfall.ops.promotion import TO_REAL, category, compute_dtype
from windfall.ops.registry import Samples
from windfall.ops.samples import Sample, make
from windfall.ops.term import Term

Dims = Sequence[int] | int | None


def _dims(dims: Dims, rank: int) -> tuple[int, ...]:
    return normalise_dims([dims] if isinstance(dims, int) else dims, rank)


def _sum_dtype(dtype: torch.dtype, wanted: torch.dtype | None) -> torch.dtype:
    return wanted or (dtype if category(dtype) >= 2 else torch.int64)


def _reduced(
    builder: Builder, value: Lazy, result: TensorType, dims: Sequence[int], keepdim: bool, at: At
) -> Lazy:
    rank = value.type.rank
    return stored(builder, result, lambda index: at(whole_index(index, rank, dims, keepdim)))


def _samples(*extra: Any, dims: bool = True, dtypes: Sequence[torch.dtype] = ()) -> Samples:
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


_ALL_DTYPES = (
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
)
_FLOAT_DTYPES = _ALL_DTYPES[:3]


def _one_dim(samples: Samples, *, keepdim: bool = True) -> Samples:
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
    chosen = _dims(dims, x.rank)
    return fresh(_sum_dtype(x.dtype, dtype), kept_sizes(x.sizes, chosen, keepdim))


def _folding(kind: str) -> Callable[..., Any]:
    def lower(
        builder: Builder,
        x: Lazy,
        dims: Dims = None,
        keepdim: bool = False,
        *,
        dtype: torch.dtype | None = None,
    ) -> Any:
        result = _sum_shape(x.type, dims, keepdim, dtype=dtype)
        if not can_lower(x, result):
            return NotImplemented
        chosen = _dims(dims, x.type.rank)
        body = _converted(builder, x, result.dtype)
        total = fold(builder, kind, x.type.sizes, chosen, body)
        return _reduced(builder, x, result, chosen, keepdim, total)

    return lower


def _converted(builder: Builder, x: Lazy, dtype: torch.dtype) -> At:
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
            f"complex dtype. Got: {_c_name(chosen)}"
        )
    return fresh(chosen, kept_sizes(x.sizes, _dims(dims, x.rank), keepdim))


def _c_name(dtype: torch.dtype) -> str:
    """How torch's C++ side names a dtype in messages."""
    names = {torch.int64: "Long", torch.int32: "Int", torch.int16: "Short", torch.int8: "Char"}
    return {**names, torch.uint8: "Byte", torch.bool: "Bool"}.get(dtype, str(dtype))


def _mean(
    builder: Builder,
    x: Lazy,
    dims: Dims = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Any:
    result = _mean_shape(x.type, dims, keepdim, dtype=dtype)
    if not can_lower(x, result):
        return NotImplemented
    chosen = _dims(dims, x.type.rank)
    sizes = x.type.sizes
    total = fold(builder, "sum", sizes, chosen, _converted(builder, x, result.dtype))
    size = number(builder, count(sizes, chosen), compute_dtype(result.dtype))
    return _reduced(builder, x, result, chosen, keepdim, lambda index: total(index) / size)


op("sum.default", _sum_shape, _folding("sum"), _samples(dims=False, dtypes=_ALL_DTYPES))
op("sum.dim_IntList", _sum_shape, _folding("sum"), _samples(dtypes=_ALL_DTYPES))
op("prod.default", _sum_shape, _folding("prod"), _samples(dims=False, dtypes=_ALL_DTYPES))
op("prod.dim_int", _sum_shape, _folding("prod"), _one_dim(_samples(dtypes=_ALL_DTYPES)))
op("mean.default", _mean_shape, _mean, _samples(dims=False, dtypes=_FLOAT_DTYPES))
op("mean.dim", _mean_shape, _mean, _samples(dtypes=_FLOAT_DTYPES))


def _nansum(
    builder: Builder,
    x: Lazy,
    dims: Dims = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Any:
    if not x.type.dtype.is_floating_point:
        return _folding("sum")(builder, x, dims, keepdim, dtype=dtype)
    result = _sum_shape(x.type, dims, keepdim, dtype=dtype)
    if not can_lower(x, result) or not result.dtype.is_floating_point:
        return NotImplemented
    chosen = _dims(dims, x.type.rank)
    read = _converted(builder, x, result.dtype)

    def known(index: Index) -> Term:
        value = read(index)
        return value.isnan().where(0, value)

    total = fold(builder, "sum", x.type.sizes, chosen, known)
    return _reduced(builder, x, result, chosen, keepdim, total)


def _count_shape(x: TensorType, dims: Dims = None) -> TensorType:
    return fresh(torch.int64, kept_sizes(x.sizes, _dims(dims, x.rank), False))


def _count_nonzero(builder: Builder, x: Lazy, dims: Dims = None) -> Any:
    if not can_lower(x):
        return NotImplemented
    chosen = _dims(dims, x.type.rank)
    read = reading(builder, x, torch.bool)
    total = fold(builder, "sum", x.type.sizes, chosen, lambda index: read(index).to(torch.int64))
    return _reduced(builder, x, _count_shape(x.type, dims), chosen, False, total)


def _trace_shape(x: TensorType) -> TensorType:
    if x.rank != 2:
        raise RuntimeError(f"trace: expected a matrix, but got tensor with dim {x.rank}")
    return fresh(_sum_dtype(x.dtype, None), ())


def _trace(builder: Builder, x: Lazy) -> Any:
    result, (rows, columns) = _trace_shape(x.type), x.type.sizes
    if not can_lower(x) or not isinstance(rows, int) or not isinstance(columns, int):
        return NotImplemented
    read = _converted(builder, x, result.dtype)
    total = fold(
        builder, "sum", (min(rows, columns),), (0,), lambda index: read((index[0], index[0]))
    )
    return stored(builder, result, lambda index: total((0,)))


op("nansum.default", _sum_shape, _nansum, _samples(dtypes=_ALL_DTYPES))
op(
    "count_nonzero.dim_IntList",
    _count_shape,
    _count_nonzero,
    lambda: (sample for sample in _samples(dtypes=_ALL_DTYPES)() if len(sample[0]) == 2),
)
op(
    "count_nonzero.default",
    _count_shape,
    _count_nonzero,
    _one_dim(_samples(dtypes=_ALL_DTYPES), keepdim=False),
)
op(
    "trace.default",
    _trace_shape,
    _trace,
    listed(lambda: ((make((3, 4)),), {}), lambda: ((make((5, 3), torch.int32),), {})),
)

# ----------------------------------------------------------------------------------------- extremes


def _needs_elements(name: str, x: TensorType, dims: Sequence[int], given: Dims) -> None:
    if x.rank and any(x.sizes[dim] == 0 for dim in dims):
        if given is None or given == []:
            raise RuntimeError(
                f"{name}(): Expected reduction dim to be specified for input.numel() == 0. "
                "Specify the reduction dim with the 'dim' argument."
            )
        dim = next(dim for dim in dims if x.sizes[dim] == 0)
        raise IndexError(f"{name}(): Expected reduction dim {dim} to have non-zero size.")


def _extreme_shape(name: str) -> Callable[..., TensorType]:
    def shape(x: TensorType, dims: Dims = None, keepdim: bool = False) -> TensorType:
        chosen = _dims(dims, x.rank)
        _needs_elements(name, x, chosen, dims)
        return fresh(x.dtype, kept_sizes(x.sizes, chosen, keepdim))

    return shape


def _extreme(kind: str, builder: Builder, x: Lazy, dims: Sequence[int]) -> At:
    """The largest or smallest element; of bools, whether any or all are true."""
    dtype = x.type.dtype
    if dtype is torch.bool:
        kind = {"max": "any", "min": "all"}[kind]
    read = reading(builder, x, compute_dtype(dtype))
    return fold(builder, kind, x.type.sizes, dims, read)


def _extreme_lower(kind: str, shape: Callable[..., TensorType]) -> Callable[..., Any]:
    def lower(builder: Builder, x: Lazy, dims: Dims = None, keepdim: bool = False) -> Any:
        if not can_lower(x):
            return NotImplemented
        result = shape(x.type, dims, keepdim)
        chosen = _dims(dims, x.type.rank)
        return _reduced(builder, x, result, chosen, keepdim, _extreme(kind, builder, x, chosen))

    return lower


def _position(kind: str, builder: Builder, x: Lazy, dims: Sequence[int]) -> At:
    if not dims:
        return lambda index: Term(builder, builder.constant(0, torch.int64))
    dtype = torch.uint8 if x.type.dtype is torch.bool else compute_dtype(x.type.dtype)
    return fold(builder, kind, x.type.sizes, dims, reading(builder, x, dtype))


def _position_shape(name: str) -> Callable[..., TensorType]:
    def shape(x: TensorType, dim: int | None = None, keepdim: bool = False) -> TensorType:
        chosen = _dims(dim, x.rank)
        _needs_elements(name, x, chosen, dim)
        return fresh(torch.int64, kept_sizes(x.sizes, chosen, keepdim))

    return shape


def _position_lower(name: str) -> Callable[..., Any]:
    shape = _position_shape(name)

    def lower(builder: Builder, x: Lazy, dim: int | None = None, keepdim: bool = False) -> Any:
        if not can_lower(x):
            return NotImplemented
        chosen = _dims(dim, x.type.rank)
        result = shape(x.type, dim, keepdim)
        return _reduced(builder, x, result, chosen, keepdim, _position(name, builder, x, chosen))

    return lower


def _extreme_dim(kind: str) -> None:
    values = _extreme_shape(kind)

    def shape(x: TensorType, dim: int, keepdim: bool = False) -> tuple[TensorType, TensorType]:
        value = values(x, dim, keepdim)
        return value, fresh(torch.int64, value.sizes)

    def lower(builder: Builder, x: Lazy, dim: int, keepdim: bool = False) -> Any:
        if not can_lower(x):
            return NotImplemented
        value, position = shape(x.type, dim, keepdim)
        chosen = _dims(dim, x.type.rank)
        return (
            _reduced(builder, x, value, chosen, keepdim, _extreme(kind, builder, x, chosen)),
            _reduced(
                builder, x, position, chosen, keepdim, _position(f"arg{kind}", builder, x, chosen)
            ),
        )

    op(f"{kind}.dim", shape, lower, _one_dim(_samples(dtypes=_ALL_DTYPES)))


def _aminmax_shape(
    x: TensorType, *, dim: int | None = None, keepdim: bool = False
) -> tuple[TensorType, TensorType]:
    chosen = _dims(dim, x.rank)
    result = fresh(x.dtype, kept_sizes(x.sizes, chosen, keepdim))
    return result, result


def _aminmax(builder: Builder, x: Lazy, *, dim: int | None = None, keepdim: bool = False) -> Any:
    if not can_lower(x):
        return NotImplemented
    result, _ = _aminmax_shape(x.type, dim=dim, keepdim=keepdim)
    chosen = _dims(dim, x.type.rank)
    return tuple(
        _reduced(builder, x, result, chosen, keepdim, _extreme(kind, builder, x, chosen))
        for kind in ("min", "max")
    )


for _kind in ("max", "min"):
    _rule = _extreme_shape(f"a{_kind}")
    op(f"a{_kind}.default", _rule, _extreme_lower(_kind, _rule), _samples(dtypes=_ALL_DTYPES))
    _rule = _extreme_shape(_kind)
    op(
        f"{_kind}.default",
        _rule,
        _extreme_lower(_kind, _rule),
        _samples(dims=False, dtypes=_ALL_DTYPES),
    )
    op(
        f"arg{_kind}.default",
        _position_shape(f"arg{_kind}"),
        _position_lower(f"arg{_kind}"),
        _one_dim(_samples(dtypes=_ALL_DTYPES[:-1])),
    )
    _extreme_dim(_kind)
op("aminmax.default", _aminmax_shape, _aminmax, _samples(dims=False, dtypes=_ALL_DTYPES))

# -------------------------------------------------------------------------------------------- tests


def _test_shape(x: TensorType, dims: Dims = None, keepdim: bool = False) -> TensorType:
    dtype = torch.uint8 if x.dtype is torch.uint8 else torch.bool
    return fresh(dtype, kept_sizes(x.sizes, _test_dims(dims, x.rank), keepdim))


def _test_dims(dims: Dims, rank: int) -> tuple[int, ...]:
    # `any.dims` with an empty list reduces nothing, unlike the other reductions.
    return () if dims == [] and rank else _dims(dims, rank)


def _test(kind: str) -> Callable[..., Any]:
    def lower(builder: Builder, x: Lazy, dims: Dims = None, keepdim: bool = False) -> Any:
        if not can_lower(x):
            return NotImplemented
        result = _test_shape(x.type, dims, keepdim)
        chosen = _test_dims(dims, x.type.rank)
        answer = fold(builder, kind, x.type.sizes, chosen, reading(builder, x, torch.bool))
        return _reduced(builder, x, result, chosen, keepdim, answer)

    return lower


for _kind in ("any", "all"):
    op(f"{_kind}.default", _test_shape, _test(_kind), _samples(dims=False, dtypes=_ALL_DTYPES))
    op(f"{_kind}.dim", _test_shape, _test(_kind), _one_dim(_samples(dtypes=_ALL_DTYPES)))
    op(f"{_kind}.dims", _test_shape, _test(_kind), _samples(dtypes=_ALL_DTYPES))

# ----------------------------------------------------------------------------------- moments, norms


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
    return fresh(dtype, kept_sizes(x.sizes, _dims(dims, x.rank), keepdim))


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
        chosen, sizes = _dims(dims, x.type.rank), x.type.sizes
        dtype = compute_dtype(x.type.dtype)
        mean, squares = moments(builder, reading(builder, x, dtype), sizes, chosen, dtype)
        lost = 1 if correction is None else correction
        divisor = (number(builder, count(sizes, chosen), dtype) - lost).maximum(0)

        def spread(index: Index) -> Term:
            variance = squares(index) / divisor
            return variance.sqrt() if root else variance

        variance = _reduced(builder, x, result, chosen, keepdim, spread)
        if not with_mean:
            return variance
        return variance, _reduced(builder, x, result, chosen, keepdim, mean)

    return lower


def _var_mean_shape(x: TensorType, dims: Dims = None, **keywords: Any) -> tuple[Any, Any]:
    variance = _var_shape(x, dims, **keywords)
    return variance, TensorType(x.dtype, variance.sizes, variance.strides)


def _var_samples() -> Iterator[Sample]:
    for (tensor, *rest), _ in _samples(dtypes=_FLOAT_DTYPES)():
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
            f"{_c_name(x.dtype)}"
        )
    return fresh(_norm_dtype(x.dtype, dtype), kept_sizes(x.sizes, _dims(dims, x.rank), keepdim))


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
    chosen, sizes = _dims(dims, x.type.rank), x.type.sizes
    if not can_lower(x, result) or (math.isinf(order) and any(sizes[dim] == 0 for dim in chosen)):
        return NotImplemented
    read = _converted(builder, x, result.dtype)
    body, kind, end = _norm_parts(float(order))
    total = fold(builder, kind, sizes, chosen, lambda index: body(read(index)))
    return _reduced(builder, x, result, chosen, keepdim, lambda index: end(total(index)))


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
    _samples(2, dtypes=_FLOAT_DTYPES),
)
op("norm.ScalarOpt_dim", _vector_norm_shape, _norm, _samples(3, dtypes=_FLOAT_DTYPES))
op("norm.Scalar", _vector_norm_shape, _norm, _samples(1, dims=False, dtypes=_FLOAT_DTYPES))
op(
    "norm.ScalarOpt_dim_dtype",
    _vector_norm_shape,
    _norm,
    listed(lambda: ((make((3, 4)), 2, [1], True), {"dtype": torch.float64})),
)


def _logsumexp_shape(x: TensorType, dims: Dims, keepdim: bool = False) -> TensorType:
    dtype = x.dtype if category(x.dtype) >= 2 else torch.get_default_dtype()
    return fresh(dtype, kept_sizes(x.sizes, _dims(dims, x.rank), keepdim))


def _logsumexp(builder: Builder, x: Lazy, dims: Dims, keepdim: bool = False) -> Any:
    result = _logsumexp_shape(x.type, dims, keepdim)
    chosen, sizes = _dims(dims, x.type.rank), x.type.sizes
    if not can_lower(x, result) or any(sizes[dim] == 0 for dim in chosen):
        return NotImplemented
    dtype = compute_dtype(result.dtype)
    read = reading(builder, x, dtype)
    largest = fold(builder, "max", sizes, chosen, read)

    def finite(index: Index) -> Term:
        high = largest(index)
        return abs(high).eq(math.inf).where(0, high)

    high = sharing(builder, dtype, sizes, chosen, finite)
    total = fold(builder, "sum", sizes, chosen, lambda index: (read(index) - high(index)).exp())
    return _reduced(
        builder, x, result, chosen, keepdim, lambda index: total(index).log() + high(index)
    )


op("logsumexp.default", _logsumexp_shape, _logsumexp, _samples(dtypes=_FLOAT_DTYPES))

# -------------------------------------------------------------------------------------------- scans


def _scan_shape(x: TensorType, dim: int, *, dtype: torch.dtype | None = None) -> TensorType:
    normalise_dim(dim, x.rank)
    return fresh(_sum_dtype(x.dtype, dtype), x.sizes)


def _scan_with_positions(x: TensorType, dim: int) -> tuple[TensorType, TensorType]:
    normalise_dim(dim, x.rank)
    return fresh(x.dtype, x.sizes), TensorType(torch.int64, x.sizes, contiguous_strides(x.sizes))


_scan_samples = _one_dim(_samples(dtypes=_FLOAT_DTYPES), keepdim=False)
for _name in ("cumsum", "cumprod"):
    op(f"{_name}.default", _scan_shape, None, _scan_samples)
for _name in ("cummax", "cummin"):
    op(f"{_name}.default", _scan_with_positions, None, _scan_samples)
op("logcumsumexp.default", lambda x, dim: _scan_shape(x, dim, dtype=x.dtype), None, _scan_samples)
