"""Layer normalisation, forward and backward.

Enters: nothing. Leaves: records in the registry. Invariant: statistics are computed in float32 (or
float64), in two passes: mean, then the squares of differences from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from windfall.ir.dtype import TensorType
from windfall.ir.loop import Builder, Index, Lazy
from windfall.ir.symint import Size
from windfall.ops.arguments import Arguments
from windfall.ops.folding import (
    At,
    can_lower,
    count,
    fold,
    fresh,
    number,
    op,
    reading,
    sharing,
    stored,
)
from windfall.ops.layout import differ
from windfall.ops.moments import moments
from windfall.ops.promotion import REDUCED, compute_dtype
from windfall.ops.samples import Sample, make
from windfall.ops.term import Term

# -------------------------------------------------------------------------------------------- layer


def _statistics_dtype(x: TensorType, weight: TensorType | None) -> torch.dtype:
    """Half precision beside float32 weights keeps its statistics in float32."""
    mixed = weight is not None and x.dtype in REDUCED and weight.dtype is torch.float32
    return torch.float32 if mixed else x.dtype


def _layer_norm_shape(given: Arguments) -> tuple[TensorType, ...]:
    x, inner = given.input, tuple(given.normalized_shape)
    _check_layer_norm(x, inner, given.weight, given.bias)
    statistics = fresh(
        _statistics_dtype(x, given.bias if given.weight is None else given.weight),
        x.sizes[: x.rank - len(inner)] + (1,) * len(inner),
    )
    return fresh(x.dtype, x.sizes), statistics, statistics


def _check_layer_norm(
    x: TensorType,
    normalised: tuple[Size, ...],
    weight: TensorType | None,
    bias: TensorType | None,
) -> None:
    for name, each in (("weight", weight), ("bias", bias)):
        if each is not None and differ(each.sizes, normalised):
            raise RuntimeError(
                f"Expected {name} to be of same shape as normalized_shape, but got {name} of shape "
                f"{list(each.sizes)} and normalized_shape = {list(normalised)}"
            )
    outer = x.rank - len(normalised)
    if outer < 0 or differ(x.sizes[outer:], normalised):
        inner = ", ".join(["*", *map(str, normalised)])
        raise RuntimeError(
            f"Given normalized_shape={list(normalised)}, expected input with shape [{inner}], "
            "but got "
            f"input of size{list(x.sizes)}"
        )


def _parameter(builder: Builder, value: Lazy | None, dtype: torch.dtype) -> At | None:
    return None if value is None else reading(builder, value, dtype)


def _layer_norm(builder: Builder, given: Arguments) -> Any:
    x, weight, bias = given.input, given.weight, given.bias
    if not can_lower(x, weight, bias):
        return NotImplemented
    result, statistics, _ = _layer_norm_shape(given.types())
    sizes, outer = x.type.sizes, x.type.rank - len(given.normalized_shape)
    dims = tuple(range(outer, x.type.rank))
    dtype = compute_dtype(x.type.dtype)
    read = reading(builder, x, dtype)
    mean, squares = moments(builder, read, sizes, dims, dtype)
    size = number(builder, count(sizes, dims), dtype)
    scale = sharing(
        builder, dtype, sizes, dims, lambda index: (squares(index) / size + given.eps).rsqrt()
    )
    gain, shift = _parameter(builder, weight, dtype), _parameter(builder, bias, dtype)

    def at(index: Index) -> Term:
        value = (read(index) - mean(index)) * scale(index)
        own = index[outer:]
        value = value if gain is None else value * gain(own)
        return value if shift is None else value + shift(own)

    return (
        stored(builder, result, at),
        stored(builder, statistics, mean),
        stored(builder, statistics, scale),
    )


def _layer_norm_backward_shape(given: Arguments) -> tuple[TensorType | None, ...]:
    x, weight, bias, mask = given.input, given.weight, given.bias, given.output_mask
    inner = tuple(given.normalized_shape)
    dtype = x.dtype if weight is None else weight.dtype
    return (
        fresh(x.dtype, x.sizes) if mask[0] else None,
        fresh(dtype, inner) if mask[1] and weight is not None else None,
        fresh(dtype, inner) if mask[2] and bias is not None else None,
    )


def _layer_norm_backward(builder: Builder, given: Arguments) -> Any:
    grad, x, mean, scale = given.grad_out, given.input, given.mean, given.rstd
    if not can_lower(grad, x, mean, scale, given.weight):
        return NotImplemented
    for_x, for_weight, for_bias = _layer_norm_backward_shape(given.types())
    sizes, outer = x.type.sizes, x.type.rank - len(given.normalized_shape)
    inner_dims, outer_dims = tuple(range(outer, x.type.rank)), tuple(range(outer))
    dtype = compute_dtype(x.type.dtype)
    slope, value = reading(builder, grad, dtype), reading(builder, x, dtype)
    gain = _parameter(builder, given.weight, dtype)
    middle, rate = _by_row(builder, mean, outer, dtype), _by_row(builder, scale, outer, dtype)

    def normal(index: Index) -> Term:
        return (value(index) - middle(index)) * rate(index)

    def weighted(index: Index) -> Term:
        return slope(index) if gain is None else slope(index) * gain(index[outer:])

    results: list[Lazy | None] = [None, None, None]
    if for_x is not None:
        size = number(builder, count(sizes, inner_dims), dtype)
        plain = _row_total(builder, sizes, inner_dims, dtype, weighted)
        along = _row_total(
            builder, sizes, inner_dims, dtype, lambda index: weighted(index) * normal(index)
        )

        def at(index: Index) -> Term:
            pulled = (plain(index) + normal(index) * along(index)) / size
            return (weighted(index) - pulled) * rate(index)

        results[0] = stored(builder, for_x, at)
    if for_weight is not None:
        products = fold(
            builder, "sum", sizes, outer_dims, lambda index: slope(index) * normal(index)
        )
        results[1] = stored(builder, for_weight, lambda index: products((0,) * outer + index))
    if for_bias is not None:
        slopes = fold(builder, "sum", sizes, outer_dims, slope)
        results[2] = stored(builder, for_bias, lambda index: slopes((0,) * outer + index))
    return tuple(results)


def _by_row(builder: Builder, value: Lazy, outer: int, dtype: torch.dtype) -> At:
    """One number for each row, read with an index of the whole."""
    inner = value.type.rank - outer
    return lambda index: Term(builder, value.at(index[:outer] + (0,) * inner)).to(dtype)


def _row_total(
    builder: Builder, sizes: Any, dims: Sequence[int], dtype: torch.dtype, body: At
) -> At:
    return sharing(builder, dtype, sizes, dims, fold(builder, "sum", sizes, dims, body))


def _layer_norm_samples() -> Iterator[Sample]:
    weight, bias = make((4,), seed=1), make((4,), seed=2)
    for x in (make((3, 4)), make((4, 3)).t(), make((2, 3, 8))[..., ::2], make((4,)), make((0, 4))):
        yield (x, [4], weight, bias, 1e-5), {}
        yield (x, [4], None, None, 1e-5), {}
    yield (make((2, 3, 4)), [3, 4], make((3, 4)), None, 1e-3), {}
    yield (make((3, 4), torch.bfloat16), [4], weight.bfloat16(), bias.bfloat16(), 1e-5), {}
    yield (make((3, 4), torch.bfloat16), [4], weight, bias, 1e-5), {}
    yield (make((3, 4), torch.float64), [4], weight.double(), bias.double(), 1e-5), {}


def _layer_norm_backward_samples() -> Iterator[Sample]:
    for (x, normalised, weight, bias, eps), _ in _layer_norm_samples():
        _, mean, scale = torch.native_layer_norm(x, normalised, weight, bias, eps)
        grad = make(x.shape, x.dtype, seed=7)
        given = [True, weight is not None, bias is not None]
        yield (grad, x, normalised, mean, scale, weight, bias, given), {}
    yield (grad, x, normalised, mean, scale, weight, bias, [False, True, True]), {}


op(
    "native_layer_norm.default",
    _layer_norm_shape,
    _layer_norm,
    _layer_norm_samples,
    named=True,
    reads=(0,),
)
op(
    "native_layer_norm_backward.default",
    _layer_norm_backward_shape,
    _layer_norm_backward,
    _layer_norm_backward_samples,
    named=True,
    reads=(0,),
)
