"""The pointwise ops: a table of name, dtype rule, call template and scalar body.

Enters: nothing. Leaves: rows in the registry (see `pointwise_rule.py` for what a row means). Rows
whose body is None have a shape rule only and are called. Ops that differ from the pattern stand in
`pointwise_special.py`, those that autograd emits in `pointwise_backward.py`.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from windfall.ir.loop import SCALAR_OPS, Lazy
from windfall.ops import failing
from windfall.ops.pointwise_rule import (
    ARITHMETIC,
    COMPARE,
    DIFFERENCE,
    DIVISION,
    FLOAT,
    FLOATING,
    INTEGRAL,
    LOGICAL,
    NUMBERS,
    SAME,
    SHIFTS,
    SHRINKING,
    SUM,
    WIDE_NUMBERS,
    Body,
    holds_numbers,
    one_dtype,
    row,
    rows,
)
from windfall.ops.promotion import REDUCED
from windfall.ops.samples import N, T
from windfall.ops.term import Term


def _integral(x: Term) -> bool:
    return not x.dtype.is_floating_point


def _boolean(x: Term) -> bool:
    return x.dtype is torch.bool


def _never(x: Term) -> Term:
    return x.ne(x)  # of an integer: false


# Rows of SCALAR_OPS that code generation has no instructions for: the ops are called.
_CALLED = frozenset({"digamma", "erfinv", "nextafter"})


def _scalar_op(name: str) -> Body | None:
    """The row of SCALAR_OPS with the same name as the op, if there is one."""
    if name not in SCALAR_OPS or name in _CALLED:
        return None
    return lambda *terms: terms[0].apply(name, *terms[1:])


def _bitwise(name: str) -> Body:
    """Of booleans the logical op: their bits are one byte that is 0 or 1."""
    return lambda x, y: x.apply(f"{'logical' if _boolean(x) else 'bitwise'}_{name}", y)


def _rounding(name: str) -> Body:
    """Integers pass through unchanged."""
    return lambda x: x if _integral(x) else x.apply(name)


def clamp(x: Term, low: Any = None, high: Any = None) -> Term:
    """Between two bounds, NaN staying NaN."""
    x = x if low is None else x.maximum(low)
    return x if high is None else x.minimum(high)


# --------------------------------------------------------------------------------------- one tensor

rows(
    "acos acosh asin asinh atan atanh cos cosh digamma erf erfc erfinv exp exp2 expm1 lgamma "
    "log log10 "
    "log1p log2 reciprocal rsqrt sigmoid sin sinh sqrt tan tanh i0 special_airy_ai "
    "special_bessel_j0 "
    "special_bessel_j1 special_bessel_y0 special_bessel_y1 special_erfcx special_i0e special_i1 "
    "special_i1e special_log_ndtr special_modified_bessel_i0 special_modified_bessel_i1 "
    "special_modified_bessel_k0 special_modified_bessel_k1 special_ndtri "
    "special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1 "
    "special_spherical_bessel_j0",
    FLOAT,
    (T,),
    _scalar_op,
)
rows("ceil floor trunc round", NUMBERS, (T,), _rounding)
rows("logical_not", LOGICAL, (T,), _scalar_op)
row("frac.default", FLOATING, (T,), lambda x: x - x.trunc())
row("neg.default", NUMBERS, (T,), lambda x: -x)
row("sign.default", SAME, (T,), lambda x: x if _boolean(x) else x.sign())
row("sgn.default", SAME, (T,), lambda x: x if _boolean(x) else x.sign())
row("bitwise_not.default", INTEGRAL, (T,), lambda x: ~x if _boolean(x) else x.bitwise_not())
row("isnan.default", COMPARE, (T,), lambda x: _never(x) if _integral(x) else x.isnan())
row("isinf.default", COMPARE, (T,), lambda x: _never(x) if _integral(x) else x.isinf())
row("isposinf.default", COMPARE, (T,), lambda x: _never(x) if _integral(x) else x.eq(math.inf))
row("isneginf.default", COMPARE, (T,), lambda x: _never(x) if _integral(x) else x.eq(-math.inf))
row(
    "signbit.default",
    COMPARE,
    (T,),
    lambda x: _never(x) if _boolean(x) else (x < 0) if _integral(x) else x.signbit(),
)
row("deg2rad.default", FLOAT, (T,), lambda x: x * (math.pi / 180))
row("rad2deg.default", FLOAT, (T,), lambda x: x * (180 / math.pi))
row("sinc.default", FLOAT, (T,), lambda x: x.eq(0).where(1, (x * math.pi).sin() / (x * math.pi)))
row(
    "special_entr.default",
    FLOAT,
    (T,),
    lambda x: x.isnan().where(x, (x > 0).where(-x * x.log(), x.eq(0).where(0, x.like(-math.inf)))),
)


def _logit(x: Term, eps: float | None = None) -> Term:
    x = x if eps is None else clamp(x, eps, 1 - eps)
    return (x / (1 - x)).log()


def _round_decimals(x: Term, *, decimals: int) -> Term:
    if _integral(x):
        return x
    scale = 10.0 ** abs(decimals)
    return (x * scale).round() / scale if decimals >= 0 else (x / scale).round() * scale


row("logit.default", FLOAT, (T, 0.1), _logit)
row("round.decimals", FLOATING, (T,), _round_decimals, decimals=2)

# -------------------------------------------------------------------------------------- activations


def gelu(x: Term, *, approximate: str = "none") -> Term:
    """x times the normal distribution function of x, or its approximation by tanh."""
    if approximate == "tanh":
        inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
        return x * 0.5 * (inner.tanh() + 1)
    return x * 0.5 * ((x * math.sqrt(0.5)).erf() + 1)


def _elu(x: Term, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Term:
    return (x < 0).where((x * input_scale).expm1() * (alpha * scale), x * scale)


def _softplus(x: Term, beta: float = 1, threshold: float = 20) -> Term:
    return (x * beta > threshold).where(x, (x * beta).exp().log1p() / beta)


def _hardshrink(x: Term, bound: float = 0.5) -> Term:
    return ((x >= -bound) & (x <= bound)).where(0, x)


def _softshrink(x: Term, bound: float = 0.5) -> Term:
    return (x > bound).where(x - bound, (x < -bound).where(x + bound, x * 0))


row("relu.default", NUMBERS, (T,), lambda x: x.maximum(0))
row("gelu.default", FLOATING, (T,), gelu)
row("silu.default", FLOATING, (T,), lambda x: x / (1 + (-x).exp()))
row("mish.default", FLOATING, (T,), lambda x: x * x.exp().log1p().tanh())
row("hardswish.default", FLOATING, (T,), lambda x: x * clamp(x + 3, 0, 6) / 6)
row("hardsigmoid.default", FLOATING, (T,), lambda x: clamp(x + 3, 0, 6) / 6)
row(
    "hardtanh.default",
    NUMBERS,
    (T, -0.5, 0.7),
    lambda x, low=-1, high=1: clamp(x, low, high),
    only=lambda common, arguments: holds_numbers(common, (-1, 1, *arguments)[-2:]),
)
row("leaky_relu.default", FLOATING, (T, 0.1), lambda x, slope=0.01: (x > 0).where(x, x * slope))
row("elu.default", FLOATING, (T, 0.7, 1.5, 2.0), _elu)
row("celu.default", FLOATING, (T, 0.7), lambda x, alpha=1.0: _elu(x, alpha, 1, 1 / alpha))
row("_prelu_kernel.default", FLOATING, (T, T), lambda x, w: (x > 0).where(x, x * w), only=one_dtype)
row("softplus.default", FLOATING, (T, 2.0, 1.5), _softplus)
row(
    "threshold.default",
    NUMBERS,
    (T, 0.5, 3.0),
    lambda x, bound, value: (x <= bound).where(value, x),
)
row("hardshrink.default", SHRINKING, (T, 0.6), _hardshrink)
row("softshrink.default", FLOATING, (T, 0.6), _softshrink)

# --------------------------------------------------------------------------------------- arithmetic


def _add(x: Term, y: Term, alpha: Any = 1) -> Term:
    if _boolean(x):
        return x | (y if alpha else y & False)
    return x + (y if alpha == 1 else y * alpha)


def _sub(x: Term, y: Term, alpha: Any = 1) -> Term:
    return x - (y if alpha == 1 else y * alpha)


def _rsub(x: Term, y: Term, alpha: Any = 1) -> Term:
    return _sub(y, x, alpha)


def _no_bool(common: torch.dtype, arguments: tuple[Any, ...]) -> bool:
    """Eager refuses to subtract where either side is a bool."""
    dtypes = [each.type.dtype for each in arguments if isinstance(each, Lazy)]
    return torch.bool not in dtypes and not any(isinstance(each, bool) for each in arguments[:2])


def known_divisor(common: torch.dtype, arguments: tuple[Any, ...]) -> bool:
    """Integers may be divided by a number that is not 0; eager raises on 0, so where the divisor is
    only known at run time the op is called."""
    divisor = arguments[1]
    return common.is_floating_point or not (isinstance(divisor, Lazy) or divisor == 0)


def _mul(x: Term, y: Term) -> Term:
    return x & y if _boolean(x) else x * y


def _form(name: str, mark: Any) -> dict[str, Any]:
    """Of an overload that takes a number: the one that takes a tensor there."""
    return {} if mark is T else {"tensor_form": f"aten.{name}.Tensor"}


for _name, _body in (("add", _add), ("sub", _sub)):
    _rule, _only = (DIFFERENCE, _no_bool) if _name == "sub" else (SUM, None)
    row(f"{_name}.Tensor", _rule, (T, T), _body, only=_only, alpha=2)
    row(f"{_name}.Scalar", _rule, (T, N, 2), _body, only=_only, fields=_form(_name, N))
row("rsub.Tensor", DIFFERENCE, (T, T), _rsub, 1, only=_no_bool, alpha=2)
row("rsub.Scalar", DIFFERENCE, (T, N, 2), _rsub, only=_no_bool)
for _other, _mark in (("Tensor", T), ("Scalar", N)):
    _checked = {"checks": failing.divisor if _mark is T else None}
    _units = {"unit": (1, 0) if _mark is T else (1,), **_form("mul", _mark)}
    row(f"mul.{_other}", ARITHMETIC, (T, _mark), _mul, fields=_units)
    _units = {"unit": (1,), **_form("div", _mark)}
    row(f"div.{_other}", DIVISION, (T, _mark), lambda x, y: x / y, fields=_units)
    for _name in ("fmod", "remainder"):
        _rest = _scalar_op(_name)
        row(f"{_name}.{_other}", NUMBERS, (T, _mark), _rest, only=known_divisor, fields=_checked)
    row(f"copysign.{_other}", FLOAT, (T, _mark), lambda x, y: x.copysign(y))
    for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
        row(f"{_name}.{_other}", COMPARE, (T, _mark), _scalar_op(_name))
    for _name in ("and", "or", "xor"):
        row(f"bitwise_{_name}.{_other}", INTEGRAL, (T, _mark), _bitwise(_name))
for _name in ("left", "right"):
    _shift = _scalar_op(f"shift_{_name}")
    row(f"bitwise_{_name}_shift.Tensor", SHIFTS, (T, T), _shift)
    row(f"bitwise_{_name}_shift.Tensor_Scalar", SHIFTS, (T, N), _shift)
    row(f"bitwise_{_name}_shift.Scalar_Tensor", SHIFTS, (N, T), _shift)
    row(f"__{_name[0]}shift__.Tensor", SHIFTS, (T, T), _shift)
    row(f"__{_name[0]}shift__.Scalar", SHIFTS, (T, N), _shift)
for _name in ("and", "or", "xor"):
    row(f"bitwise_{_name}.Scalar_Tensor", INTEGRAL, (N, T), _bitwise(_name))
    row(f"logical_{_name}.default", LOGICAL, (T, T), _scalar_op(f"logical_{_name}"))
row(
    "remainder.Scalar_Tensor",
    NUMBERS,
    (N, T),
    _scalar_op("remainder"),
    only=known_divisor,
    fields={"checks": failing.divisor},
)


def _floors(common: torch.dtype, arguments: tuple[Any, ...]) -> bool:
    """Eager rounds a dividend without dimensions to half precision first, where it is a number."""
    first = arguments[0]
    own = isinstance(first, Lazy) and first.type.dtype is common
    return known_divisor(common, arguments) and (own or common not in REDUCED)


for _other, _mark in (("default", T), ("Scalar", N)):
    row(
        f"floor_divide.{_other}",
        WIDE_NUMBERS,
        (T, _mark),
        _scalar_op("floordiv"),
        only=_floors,
        fields={"checks": failing.divisor if _mark is T else None},
    )
row("maximum.default", SAME, (T, T), _scalar_op("maximum"))
row("minimum.default", SAME, (T, T), _scalar_op("minimum"))
row("fmax.default", SAME, (T, T), lambda x, y: x.maximum(y) if _integral(x) else x.fmax(y))
row("fmin.default", SAME, (T, T), lambda x, y: x.minimum(y) if _integral(x) else x.fmin(y))
row("atan2.default", FLOAT, (T, T), _scalar_op("atan2"))
row("hypot.default", FLOATING, (T, T), _scalar_op("hypot"))
row("nextafter.default", SAME, (T, T), None)
row("gcd.default", SAME, (T, T), None)
row("lcm.default", SAME, (T, T), None)
row("igamma.default", SAME, (T, T), None)
row("igammac.default", SAME, (T, T), None)
row(
    "heaviside.default",
    SAME,
    (T, T),
    lambda x, y: x.eq(0).where(y, (x if _boolean(x) else x > 0).to(x.dtype)),
    only=one_dtype,
)


def _logaddexp(x: Term, y: Term) -> Term:
    high = x.maximum(y)
    sums = high + (-abs(x - y)).exp().log1p()
    return (x.isinf() & x.eq(y)).where(x, sums)


def _logaddexp2(x: Term, y: Term) -> Term:
    high = x.maximum(y)
    sums = high + (-abs(x - y)).exp2().log1p() * (1 / math.log(2))
    return (x.isinf() & x.eq(y)).where(x, sums)


row("logaddexp.default", FLOATING, (T, T), _logaddexp)
row("logaddexp2.default", FLOATING, (T, T), _logaddexp2)


def _xlogy(x: Term, y: Term) -> Term:
    return y.isnan().where(y, x.eq(0).where(0, x * y.log()))


def _xlog1py(x: Term, y: Term) -> Term:
    return y.isnan().where(y, x.eq(0).where(0, x * y.log1p()))


row("xlogy.Tensor", FLOAT, (T, T), _xlogy)
row("xlogy.Scalar_Other", FLOAT, (T, N), _xlogy)
row("xlogy.Scalar_Self", FLOAT, (N, T), _xlogy)
row("special_xlog1py.default", FLOAT, (T, T), _xlog1py)
row("special_xlog1py.other_scalar", FLOAT, (T, N), _xlog1py)
row("special_xlog1py.self_scalar", FLOAT, (N, T), _xlog1py)
row("special_zeta.default", FLOAT, (T, T), None)
row("special_zeta.other_scalar", FLOAT, (T, N), None)
row("special_zeta.self_scalar", FLOAT, (N, T), None)
_POLYNOMIALS = (
    "chebyshev_polynomial_t",
    "chebyshev_polynomial_u",
    "chebyshev_polynomial_v",
    "chebyshev_polynomial_w",
    "hermite_polynomial_h",
    "hermite_polynomial_he",
    "laguerre_polynomial_l",
    "legendre_polynomial_p",
    "shifted_chebyshev_polynomial_t",
    "shifted_chebyshev_polynomial_u",
    "shifted_chebyshev_polynomial_v",
    "shifted_chebyshev_polynomial_w",
)
for _name in _POLYNOMIALS:
    row(f"special_{_name}.default", FLOAT, (T, T), None)
    row(f"special_{_name}.n_scalar", FLOAT, (T, N), None)
    row(f"special_{_name}.x_scalar", FLOAT, (N, T), None)

# --------------------------------------------------------------------------------- several operands


def _addcmul(x: Term, y: Term, z: Term, *, value: Any = 1) -> Term:
    return x + (y * z if value == 1 else y * value * z)


def _addcdiv(x: Term, y: Term, z: Term, *, value: Any = 1) -> Term:
    return x + (y / z if value == 1 else y * value / z)


def _lerp(start: Term, end: Term, weight: Term) -> Term:
    # The form by which eager is exact at both ends.
    difference = end - start
    return (abs(weight) < 0.5).where(start + weight * difference, end - difference * (1 - weight))


row("addcmul.default", NUMBERS, (T, T, T), _addcmul, value=2)
row("addcdiv.default", FLOATING, (T, T, T), _addcdiv, only=one_dtype, value=2)
row("lerp.Tensor", FLOATING, (T, T, T), _lerp, only=one_dtype)
row(
    "lerp.Scalar",
    FLOATING,
    (T, T, 0.7),
    lambda x, y, weight: _lerp(x, y, x.like(weight)),
    only=one_dtype,
)
row("clamp.Tensor", NUMBERS, (T, T, T), clamp)
row("clamp.default", NUMBERS, (T, N, N), clamp, only=holds_numbers)
row("clamp_min.default", NUMBERS, (T, N), clamp, only=holds_numbers)
row("clamp_min.Tensor", NUMBERS, (T, T), clamp)
row(
    "clamp_max.default",
    NUMBERS,
    (T, N),
    lambda x, high: clamp(x, None, high),
    only=holds_numbers,
)
row("clamp_max.Tensor", NUMBERS, (T, T), lambda x, high: clamp(x, None, high))
