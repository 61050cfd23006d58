"""Pointwise ops that differ from the pattern of `pointwise.py`: powers, rounding divisions, ops on
halves of a tensor, ops with two results or with parameters that change the dtype.

Enters: nothing. Leaves: records in the registry.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from windfall.ir.dtype import TensorType
from windfall.ir.loop import Builder, Index, Lazy
from windfall.ops import failing
from windfall.ops.folding import (
    can_lower,
    fresh,
    listed,
    op,
    reading,
    size_term,
    stored,
)
from windfall.ops.layout import differ, normalise_dim
from windfall.ops.pointwise import known_divisor
from windfall.ops.pointwise_rule import (
    DIVISION,
    FLOAT,
    NUMBERS,
    SAME,
    WIDE_NUMBERS,
    Body,
    DtypeRule,
    holds_numbers,
    layout_of,
    lowering,
    narrow,
    reader,
    shape_rule,
)
from windfall.ops.promotion import FLOATS, REDUCED, TO_REAL, category, common_dtype, compute_dtype
from windfall.ops.samples import N, Sample, T, make, pointwise_samples
from windfall.ops.term import Term

# ------------------------------------------------------------------------------------------- powers

# Exponents for which eager multiplies or takes roots instead.
_POWERS: dict[float, Callable[[Term], Term]] = {
    0.5: lambda x: x.sqrt(),
    2: lambda x: x * x,
    3: lambda x: x * x * x,
    -0.5: lambda x: x.rsqrt(),
    -1: lambda x: x.reciprocal(),
    -2: lambda x: (x * x).reciprocal(),
}


def _power(x: Term, exponent: Term) -> Term:
    return x.pow(exponent)


def _power_of_number(x: Term, exponent: Any, rooted: bool) -> Term:
    if exponent == 0:
        return x.like(1)
    if exponent == 1:
        return x
    known = _POWERS.get(exponent) if rooted or float(exponent).is_integer() else None
    if known is not None and (x.dtype.is_floating_point or exponent in (2, 3)):
        return known(x)
    return x.pow(x.like(exponent))


_two = shape_rule((0, 1), SAME)
_power_lower = lowering((0, 1), NUMBERS, _two, _power)


def _power_shape(x: Any, exponent: Any) -> TensorType:
    if isinstance(exponent, int) and exponent < 0 and category(x.dtype) < 2:
        raise RuntimeError("Integers to negative integer powers are not allowed.")
    sizes, strides = layout_of([x])
    return TensorType(common_dtype((x, exponent)), sizes, strides)


def _power_scalar(builder: Builder, x: Lazy, exponent: Any) -> Any:
    result = _power_shape(x.type, exponent)
    if not can_lower(x, result) or result.dtype is torch.bool or isinstance(exponent, complex):
        return NotImplemented
    if not holds_numbers(result.dtype, (exponent,)):
        return NotImplemented
    read = reading(builder, x, result.dtype)
    dtype = compute_dtype(result.dtype)
    if result.dtype in REDUCED:
        exponent = narrow(exponent, result.dtype)
    # Of these eager takes no roots: they differ from powers at -0.0 and the negative infinity.
    rooted = result.dtype is not torch.float16
    return stored(
        builder, result, lambda index: _power_of_number(read(index).to(dtype), exponent, rooted)
    )


op(
    "pow.Tensor_Tensor",
    _two,
    _power_lower,
    pointwise_samples("pow.Tensor_Tensor", (T, T), {}),
    recompute=True,
)


def _power_from_scalar_shape(x: Any, exponent: TensorType) -> TensorType:
    return fresh(common_dtype((x, exponent)), exponent.sizes)


op(
    "pow.Scalar",
    _power_from_scalar_shape,
    lowering((0, 1), NUMBERS, _power_from_scalar_shape, _power),
    pointwise_samples("pow.Scalar", (N, T), {}),
    recompute=True,
)


def _power_samples() -> Iterator[Sample]:
    yield from pointwise_samples("pow.Tensor_Scalar", (T, N), {})()
    for exponent in (0, 1, 3, -1, -2, 0.5, -0.5, 1.7):
        for dtype in (torch.float32, torch.bfloat16):
            yield (make((2, 3), dtype), exponent), {}
    for exponent in (0, 1, 3):
        yield (make((2, 3), torch.int64), exponent), {}


# Of a zeroth power, nothing is read.
op("pow.Tensor_Scalar", _power_shape, _power_scalar, _power_samples, reads=(), recompute=True)

# ------------------------------------------------------------------------------- rounding divisions

_ROUNDED: dict[str | None, tuple[DtypeRule, Body]] = {
    None: (DIVISION, lambda x, y: x / y),
    # In half precision eager rounds the quotient before or after cutting it, as vectors fall.
    "trunc": (
        replace(WIDE_NUMBERS, accepts=WIDE_NUMBERS.accepts - set(REDUCED)),
        lambda x, y: (x / y).trunc() if x.dtype.is_floating_point else x.truncdiv(y),
    ),
    "floor": (WIDE_NUMBERS, lambda x, y: x.floordiv(y)),
}
_DIVIDE = {
    mode: (
        shape_rule((0, 1), rule),
        lowering((0, 1), rule, shape_rule((0, 1), rule), body, known_divisor if mode else None),
    )
    for mode, (rule, body) in _ROUNDED.items()
}


def _div_mode_shape(x: Any, y: Any, *, rounding_mode: str | None) -> TensorType:
    return _DIVIDE[rounding_mode][0](x, y)


def _div_mode(builder: Builder, x: Any, y: Any, *, rounding_mode: str | None) -> Any:
    return _DIVIDE[rounding_mode][1](builder, x, y)


def _div_samples(name: str, mark: Any) -> Callable[[], Iterator[Sample]]:
    def made() -> Iterator[Sample]:
        for mode in (None, "trunc", "floor"):
            for arguments, keywords in pointwise_samples(
                name, (T, mark), {"rounding_mode": mode}
            )():
                if not _divides_by_zero(arguments[1]):
                    yield arguments, keywords

    return made


def _divides_by_zero(divisor: Any) -> bool:
    if not isinstance(divisor, torch.Tensor):
        return False
    return not divisor.dtype.is_floating_point and not bool(divisor.all())


op(
    "div.Tensor_mode",
    _div_mode_shape,
    _div_mode,
    _div_samples("div.Tensor_mode", T),
    checks=failing.divisor,
    recompute=True,
)
op(
    "div.Scalar_mode",
    _div_mode_shape,
    _div_mode,
    _div_samples("div.Scalar_mode", N),
    recompute=True,
)

# ---------------------------------------------------------------------------------- own dtype rules


def _abs_shape(x: TensorType) -> TensorType:
    sizes, strides = layout_of([x])
    return TensorType(TO_REAL.get(x.dtype, x.dtype), sizes, strides)


def _abs_body(x: Term) -> Term:
    return x if x.dtype is torch.uint8 else abs(x)


op(
    "abs.default",
    _abs_shape,
    lowering((0,), NUMBERS, _abs_shape, _abs_body),
    pointwise_samples("abs.default", (T,), {}),
    recompute=True,
)


def _angle_shape(x: TensorType) -> TensorType:
    if x.dtype in TO_REAL:
        return fresh(TO_REAL[x.dtype], x.sizes)
    sizes, strides = layout_of([x])
    return TensorType(FLOAT.result(x.dtype), sizes, strides)


def _angle_body(x: Term) -> Term:
    return x.isnan().where(x, (x < 0).where(math.pi, x.like(0)))


op(
    "angle.default",
    _angle_shape,
    lowering((0,), FLOAT, _angle_shape, _angle_body),
    pointwise_samples("angle.default", (T,), {}),
    recompute=True,
)


def _nan_to_num_shape(x: TensorType, *rest: Any) -> TensorType:
    sizes, strides = layout_of([x])
    return TensorType(x.dtype, sizes, strides)


def _nan_to_num(
    builder: Builder, x: Lazy, nan: Any = None, positive: Any = None, negative: Any = None
) -> Any:
    if not can_lower(x):
        return NotImplemented
    dtype = x.type.dtype
    read = reading(builder, x)

    def at(index: Index) -> Term:
        value = read(index)
        if not dtype.is_floating_point:
            return value
        limits = torch.finfo(dtype)  # of the tensor's own dtype, also in half precision
        wide = value.to(compute_dtype(dtype))
        high = limits.max if positive is None else positive
        low = limits.min if negative is None else negative
        bounded = wide.eq(math.inf).where(high, wide.eq(-math.inf).where(low, wide))
        return wide.isnan().where(nan or 0.0, bounded)

    return stored(builder, _nan_to_num_shape(x.type), at)


op(
    "nan_to_num.default",
    _nan_to_num_shape,
    _nan_to_num,
    lambda: (
        ((*arguments, *rest), {})
        for arguments, _ in pointwise_samples("nan_to_num.default", (T,), {})()
        for rest in ((), (1.5, 2.5, -3.5))
    ),
    recompute=True,
)


def _log_sigmoid_shape(x: TensorType) -> tuple[TensorType, TensorType]:
    return fresh(x.dtype, x.sizes), fresh(x.dtype, x.sizes)


def _log_sigmoid(builder: Builder, x: Lazy) -> Any:
    if x.type.dtype not in FLOATS:
        return NotImplemented
    first, second = _log_sigmoid_shape(x.type)
    read = reading(builder, x, compute_dtype(x.type.dtype))

    def power(index: Index) -> Term:
        return (-abs(read(index))).exp()

    def logarithm(index: Index) -> Term:
        return read(index).minimum(0) - power(index).log1p()

    return stored(builder, first, logarithm), stored(builder, second, power)


op(
    "log_sigmoid_forward.default",
    _log_sigmoid_shape,
    _log_sigmoid,
    pointwise_samples("log_sigmoid_forward.default", (T,), {}),
    recompute=True,
)


def _complex_shape(x: TensorType, y: TensorType) -> TensorType:
    sizes, strides = layout_of([x, y])
    wide = {torch.float16: torch.complex32, torch.float64: torch.complex128}
    return TensorType(wide.get(x.dtype, torch.complex64), sizes, strides)


def _frexp_shape(x: TensorType) -> tuple[TensorType, TensorType]:
    sizes, strides = layout_of([x])
    return TensorType(x.dtype, sizes, strides), TensorType(torch.int32, sizes, strides)


def _polygamma_shape(order: int, x: TensorType) -> TensorType:
    sizes, strides = layout_of([x])
    return TensorType(FLOAT.result(x.dtype), sizes, strides)


_two_floats = listed(
    lambda: ((make((2, 3)), make((3,))), {}),
    lambda: ((make((3, 2)).t(), make((3, 2)).t()), {}),
)
op("complex.default", _complex_shape, None, _two_floats)
op("polar.default", _complex_shape, None, _two_floats)
op("frexp.Tensor", _frexp_shape, None, listed(lambda: ((make((3, 2)).t(),), {})))
op(
    "polygamma.default",
    _polygamma_shape,
    None,
    listed(lambda: ((1, make((3, 2)).t()), {}), lambda: ((1, make((3, 2), torch.int64)), {})),
)

# ------------------------------------------------------------------------------------ halves, masks


def _glu_shape(x: TensorType, dim: int = -1) -> Any:
    if x.rank == 0:
        raise RuntimeError("glu does not support 0-dimensional tensors")
    place = normalise_dim(dim, x.rank)
    half = x.sizes[place] // 2
    if differ(half * 2, x.sizes[place]):
        raise RuntimeError(
            f"Halving dimension must be even, but dimension {place} is size {x.sizes[place]}"
        )
    sizes = (*x.sizes[:place], half, *x.sizes[place + 1 :])
    # Eager iterates over the two halves as operands.
    sizes, strides = layout_of([TensorType(x.dtype, sizes, x.strides)] * 2)
    return TensorType(x.dtype, sizes, strides)


def _glu(builder: Builder, x: Lazy, dim: int = -1) -> Any:
    if not can_lower(x):
        return NotImplemented
    result = _glu_shape(x.type, dim)
    place = normalise_dim(dim, x.type.rank)
    half = result.sizes[place]
    read = reading(builder, x, compute_dtype(x.type.dtype))

    def at(index: Index) -> Term:
        gate = read((*index[:place], index[place] + half, *index[place + 1 :]))
        return read(index) * gate.sigmoid()

    return stored(builder, result, at)


op(
    "glu.default",
    _glu_shape,
    _glu,
    listed(
        lambda: ((make((3, 4)), 1), {}),
        lambda: ((make((4, 3)), 0), {}),
        lambda: ((make((4, 6)).t(), -1), {}),
        lambda: ((make((3, 4), torch.bfloat16),), {}),
    ),
    recompute=True,
)


def _dropout_backward_shape(grad: TensorType, mask: TensorType, scale: float) -> TensorType:
    sizes, strides = layout_of([grad, mask])
    return TensorType(common_dtype((grad, scale)), sizes, strides)


def _dropout_backward(builder: Builder, grad: Lazy, mask: Lazy, scale: float) -> Any:
    if not can_lower(grad, mask) or grad.type.sizes != mask.type.sizes:
        return NotImplemented
    result = _dropout_backward_shape(grad.type, mask.type, scale)
    dtype = compute_dtype(result.dtype)
    slope, kept = reading(builder, grad, dtype), reading(builder, mask, dtype)
    return stored(builder, result, lambda index: slope(index) * (kept(index) * scale))


op(
    "native_dropout_backward.default",
    _dropout_backward_shape,
    _dropout_backward,
    listed(
        lambda: ((make((3, 4)), make((3, 4)) > 0, 1.25), {}),
        lambda: ((make((4, 3)).t(), make((3, 4)) > 0, 1.25), {}),
        lambda: ((make((3, 4), torch.bfloat16), make((3, 4)) > 0, 1.25), {}),
    ),
    recompute=True,
)


def _glu_backward_shape(grad: TensorType, x: TensorType, dim: int) -> TensorType:
    return fresh(x.dtype, x.sizes)


def _glu_backward(builder: Builder, grad: Lazy, x: Lazy, dim: int) -> Any:
    if x.type.dtype not in FLOATS or grad.type.dtype is not x.type.dtype:
        return NotImplemented
    place = normalise_dim(dim, x.type.rank)
    half = grad.type.sizes[place]
    dtype = compute_dtype(x.type.dtype)
    slope, read = reading(builder, grad, dtype), reading(builder, x, dtype)

    def at(index: Index) -> Term:
        def moved(by: Any) -> Index:
            return (*index[:place], index[place] + by, *index[place + 1 :])

        def of_value() -> Any:
            return (slope(index) * read(moved(half)).sigmoid()).scalar

        def of_gate() -> Any:
            gate = read(index).sigmoid()
            return (slope(moved(-half)) * read(moved(-half)) * (1 - gate) * gate).scalar

        first = Term(builder, builder.index(index[place])) < size_term(builder, half)
        zero = builder.constant(0, dtype)
        before = Term(builder, builder.masked(first.scalar, of_value, zero))
        after = Term(builder, builder.masked((~first).scalar, of_gate, zero))
        return first.where(before, after)

    return stored(builder, _glu_backward_shape(grad.type, x.type, dim), at)


op(
    "glu_backward.default",
    _glu_backward_shape,
    _glu_backward,
    listed(
        lambda: ((make((3, 2)), make((3, 4)), 1), {}),
        lambda: ((make((2, 3)), make((3, 4)).t(), 0), {}),
        lambda: ((make((3, 2), torch.bfloat16), make((3, 4), torch.bfloat16), -1), {}),
    ),
    recompute=True,
)


def _prelu_backward_shape(
    grad: TensorType, x: TensorType, weight: TensorType
) -> tuple[TensorType, TensorType]:
    sizes, strides = layout_of([x, weight, grad])
    result = TensorType(x.dtype, sizes, strides)
    return result, result


def _prelu_backward(builder: Builder, grad: Lazy, x: Lazy, weight: Lazy) -> Any:
    result, _ = _prelu_backward_shape(grad.type, x.type, weight.type)
    operands = (grad, x, weight)
    if x.type.dtype not in FLOATS or any(each.type.dtype is not x.type.dtype for each in operands):
        return NotImplemented
    slope, value, factor = (
        reader(builder, each, result.sizes, x.type.dtype, SAME) for each in operands
    )

    def for_x(index: Index) -> Term:
        return (value(index) > 0).where(slope(index), slope(index) * factor(index))

    def for_weight(index: Index) -> Term:
        return (value(index) > 0).where(0, slope(index) * value(index))

    return stored(builder, result, for_x), stored(builder, result, for_weight)


op(
    "_prelu_kernel_backward.default",
    _prelu_backward_shape,
    _prelu_backward,
    listed(
        lambda: ((make((2, 3, 4)), make((2, 3, 4), seed=1), make((1, 3, 1), seed=2)), {}),
        lambda: ((make((3, 2)), make((2, 3), seed=1).t(), make((1, 2), seed=2)), {}),
    ),
    reads=(0, 1),
    recompute=True,
)
