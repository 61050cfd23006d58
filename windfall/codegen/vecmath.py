"""Mathematical functions on vectors: polynomials written inline, or calls of SLEEF, or of libm.

Enters: values of float or double, any number of lanes. Leaves: values of the same form, within
about 2 units in the last place. Invariant: NaN, infinities, zeros and signs as eager has them.

Inline for float: exp, exp2, expm1, log, log2, log10, log1p, tanh, sigmoid, erf. The coefficients
are minimax fits of our own (Lawson's iteration at 50 digits), each over the range named beside it.
All others, and double, call the SLEEF functions that torch carries, eight or four lanes at a time,
or libm once for each lane where there is none.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from windfall import jit, targets, torch_abi
from windfall.llvm import BITS, Code, Value

Function = Callable[..., Value]

LOG2_E, LOG2_E_LOW = 1.4426950216293335, 1.9259629891e-08  # the logarithm of e, in two parts
# The logarithm of 2 in two parts: products of the first with small integers are exact.
LOG_2_HIGH, LOG_2_LOW = 0.693359375, -2.12194440054690583e-4
ROUNDER = 12582912.0  # 1.5 * 2**23: adding it rounds to an integer that stands in the low bits
ROUNDER_BITS = 0x4B400000

# 2**r for |r| <= 1/2
EXP2 = (
    1.0000000005542518,
    0.693147205736981,
    0.24022646890002203,
    0.0555032877742731,
    0.009618489025507394,
    0.0013399931070804973,
    0.00015345793605813066,
)
# The same where an error of 0.6 units in the last place is small beside what it is added to
EXP2_SHORT = (
    1.0000000716533834,
    0.6931469670245609,
    0.24022119728057398,
    0.05550713339155396,
    0.009675541165051173,
    0.0013276450767200684,
)
# (exp(r) - 1 - r) / r**2 for |r| <= log(2) / 2
EXP = (
    0.49999993448879554,
    0.16666520630511533,
    0.04166838778247721,
    0.008368717000749558,
    0.0013814613225496418,
)
# (log(1 + f) - f + f**2 / 2) / f**3 for sqrt(1/2) <= 1 + f <= sqrt(2)
LOG = (
    0.3333331260186239,
    -0.25000009555035785,
    0.20002118628730794,
    -0.16667997976830184,
    0.14219555538802703,
    -0.12405556540275799,
    0.11888107598959502,
    -0.11675813239030186,
    0.0674694623605803,
)
# erf(x) / x in x**2, for |x| <= 0.9
ERF_SMALL = (
    1.1283791537957508,
    -0.37612523267129633,
    0.11282140724469224,
    -0.02677890594627636,
    0.005011958683740496,
    -0.0006090339761499921,
)
# log2(erfc(x)) for 0.9 <= x <= 4
ERF_LARGE = (
    -0.0002560203459754249,
    -1.6269989252316686,
    -0.919082539579058,
    -0.15009456821682274,
    0.0321392435319336,
    -0.004408364127709627,
    0.000284479061609235,
)
# (tanh(x) / x - 1) / x**2 in x**2, for |x| <= 0.65
TANH_SMALL = (
    -0.3333325982464368,
    0.1333082986183771,
    -0.05368799074809781,
    0.020469332709670898,
    -0.005515081912110707,
)


def polynomial(code: Code, x: Value, coefficients: tuple[float, ...]) -> Value:
    """By Horner's rule; the constant comes first."""
    result = code.like(coefficients[-1], x)
    for coefficient in reversed(coefficients[:-1]):
        result = code.fma(result, x, code.like(coefficient, x))
    return result


# Comparisons are such that NaN passes through.
def _at_most(code: Code, x: Value, limit: float) -> Value:
    bound = code.like(limit, x)
    return code.select(code.compare("fcmp ogt", x, bound), bound, x)


def _at_least(code: Code, x: Value, limit: float) -> Value:
    bound = code.like(limit, x)
    return code.select(code.compare("fcmp olt", x, bound), bound, x)


def _magnitude(code: Code, x: Value) -> Value:
    return code.intrinsic("fabs", x)


def _with_sign(code: Code, magnitude: Value, sign: Value) -> Value:
    return code.intrinsic("copysign", magnitude, sign)


# ------------------------------------------------------------------------------------------ exp


def _reduced(code: Code, x: Value) -> tuple[Value, Value]:
    """`n` (as an integer) and `r` with `x = n * log(2) + r` and `r` small."""
    shifted = code.fma(x, code.like(LOG2_E, x), code.like(ROUNDER, x))
    n = code.binary("fsub", shifted, code.like(ROUNDER, x))
    r = code.fma(n, code.like(-LOG_2_HIGH, x), x)
    r = code.fma(n, code.like(-LOG_2_LOW, x), r)
    bits = code.convert("bitcast", shifted, "i32")
    return code.binary("sub", bits, code.like(ROUNDER_BITS, bits)), r


def _power_of_two(code: Code, n: Value) -> Value:
    """2**n for -127 < n < 128."""
    bits = code.binary("shl", n, code.like(23, n))
    return code.convert("bitcast", code.binary("add", bits, code.like(0x3F800000, n)), "float")


def _exp_of_rest(code: Code, r: Value) -> Value:
    square = code.mul(r, r)
    return code.fma(polynomial(code, r, EXP), square, r)  # exp(r) - 1


def _scaled(code: Code, value: Value, shifted: Value) -> Value:
    """`value * 2**n`, where `n` stands in the low bits of `shifted`, for any `n` from -150 to 128.
    In two steps, so that results between 2**-149 and 2**-126 and those past 2**127 come out."""
    bits = code.convert("bitcast", shifted, "i32")
    n = code.binary("sub", bits, code.like(ROUNDER_BITS, bits))
    half = code.binary("ashr", n, code.like(1, n))
    rest = code.binary("sub", n, half)
    value = _with_exponent(code, value, half)
    return code.binary("fmul", value, _power_of_two(code, rest))


def _with_exponent(code: Code, value: Value, n: Value) -> Value:
    """`value * 2**n`, by adding to the exponent, which must not overflow."""
    raised = code.binary("shl", n, code.like(23, n))
    bits = code.binary("add", code.convert("bitcast", value, "i32"), raised)
    return code.convert("bitcast", bits, "float")


def _exp_float(code: Code, x: Value) -> Value:
    x = _at_least(code, _at_most(code, x, 89.0), -104.0)
    shifted = code.fma(x, code.like(LOG2_E, x), code.like(ROUNDER, x))
    n = code.binary("fsub", shifted, code.like(ROUNDER, x))
    r = code.fma(x, code.like(LOG2_E, x), code.unary("fneg", n))
    r = code.fma(x, code.like(LOG2_E_LOW, x), r)
    return _scaled(code, polynomial(code, r, EXP2), shifted)


def _exp2_moderate(code: Code, x: Value) -> Value:
    """2**x for |x| below 120, not quite to the last place."""
    shifted = code.binary("fadd", x, code.like(ROUNDER, x))
    n = code.binary("fsub", shifted, code.like(ROUNDER, x))
    value = polynomial(code, code.binary("fsub", x, n), EXP2_SHORT)
    # The bits of the rounder itself are shifted out.
    return _with_exponent(code, value, code.convert("bitcast", shifted, "i32"))


def _exp2_float(code: Code, x: Value) -> Value:
    x = _at_least(code, _at_most(code, x, 129.0), -151.0)
    shifted = code.binary("fadd", x, code.like(ROUNDER, x))
    n = code.binary("fsub", shifted, code.like(ROUNDER, x))
    return _scaled(code, polynomial(code, code.binary("fsub", x, n), EXP2), shifted)


def _expm1_float(code: Code, x: Value) -> Value:
    x = _at_most(code, x, 89.0)
    clamped = _at_least(code, x, -30.0)
    n, r = _reduced(code, clamped)
    # 2**n * (exp(r) - 1) + (2**n - 1); halves of the scale, since 2**128 is not a float.
    less = code.binary("sub", n, code.like(1, n))
    scale = _power_of_two(code, less)
    rest = code.binary("fsub", scale, code.like(0.5, r))
    value = code.binary("fmul", code.fma(scale, _exp_of_rest(code, r), rest), code.like(2.0, r))
    # Tiny numbers, and the sign of zero, are their own result.
    tiny = code.compare("fcmp olt", _magnitude(code, x), code.like(5e-8, x))
    return code.select(tiny, x, value)


# ------------------------------------------------------------------------------------------ log


def _mantissa(code: Code, x: Value) -> tuple[Value, Value]:
    """`n` and `f` with `x = 2**n * (1 + f)`, `1 + f` around 1; subnormal numbers too."""
    small = code.compare("fcmp olt", x, code.like(1.1754943508222875e-38, x))
    scaled = code.select(small, code.binary("fmul", x, code.like(8388608.0, x)), x)
    bits = code.convert("bitcast", scaled, "i32")
    # Subtracting the bits of sqrt(1/2) rounds the exponent so that the rest is around 1.
    shifted = code.binary("sub", bits, code.like(0x3F3504F3, bits))
    n = code.binary("ashr", shifted, code.like(23, bits))
    mantissa = code.binary("sub", bits, code.binary("shl", n, code.like(23, bits)))
    f = code.binary("fsub", code.convert("bitcast", mantissa, "float"), code.like(1.0, x))
    count = code.convert("sitofp", n, "float")
    less = code.binary("fsub", count, code.like(23.0, x))
    return code.select(small, less, count), f


def _log_of_rest(code: Code, f: Value) -> tuple[Value, Value]:
    """log(1 + f) as a larger and a smaller part."""
    square = code.binary("fmul", f, f)
    cube = code.binary("fmul", square, f)
    tail = code.binary("fmul", cube, polynomial(code, f, LOG))
    return f, code.fma(square, code.like(-0.5, f), tail)


def _log_edges(code: Code, x: Value, value: Value) -> Value:
    """The logarithm of what is not a positive finite number."""
    infinity = code.like(float("inf"), x)
    value = code.select(code.compare("fcmp ult", x, infinity), value, x)  # inf; NaN is below
    value = code.select(
        code.compare("fcmp ult", x, code.like(0.0, x)), code.like(float("nan"), x), value
    )
    return code.select(
        code.compare("fcmp oeq", x, code.like(0.0, x)), code.like(float("-inf"), x), value
    )


def _log_float(code: Code, x: Value) -> Value:
    n, f = _mantissa(code, x)
    large, small = _log_of_rest(code, f)
    small = code.fma(n, code.like(LOG_2_LOW, x), small)
    value = code.binary("fadd", small, large)
    value = code.fma(n, code.like(LOG_2_HIGH, x), value)
    return _log_edges(code, x, value)


def _log_base(scale: tuple[float, float], unit: tuple[float, float]) -> Function:
    """Another base: `scale` is the logarithm of e in it, `unit` that of 2, each in two parts."""

    def function(code: Code, x: Value) -> Value:
        n, f = _mantissa(code, x)
        large, small = _log_of_rest(code, f)
        rest = code.binary("fadd", large, small)
        # What the sum lost is small, but the scale would make it visible.
        lost = code.binary("fadd", code.binary("fsub", large, rest), small)
        value = code.binary("fmul", rest, code.like(scale[1], x))
        value = code.fma(lost, code.like(scale[0], x), value)
        value = code.fma(n, code.like(unit[1], x), value) if unit[1] else value
        value = code.fma(rest, code.like(scale[0], x), value)
        value = code.fma(n, code.like(unit[0], x), value)
        return _log_edges(code, x, value)

    return function


def _log1p_float(code: Code, x: Value) -> Value:
    one = code.like(1.0, x)
    sum_ = code.binary("fadd", x, one)
    lost = code.binary("fsub", x, code.binary("fsub", sum_, one))
    value = _log_float(code, sum_)
    value = code.binary("fadd", value, code.div(lost, sum_))
    # Tiny numbers are their own result; infinity would have lost inf - inf.
    tiny = code.compare("fcmp olt", _magnitude(code, x), code.like(1e-7, x))
    value = code.select(tiny, x, value)
    infinite = code.compare("fcmp oeq", x, code.like(float("inf"), x))
    value = code.select(infinite, x, value)
    minus_one = code.compare("fcmp oeq", x, code.like(-1.0, x))
    return code.select(minus_one, code.like(float("-inf"), x), value)


# -------------------------------------------------------------------------------- tanh, sigmoid


def _tanh_float(code: Code, x: Value) -> Value:
    magnitude = _magnitude(code, x)
    square = code.binary("fmul", x, x)
    cube = code.binary("fmul", square, magnitude)
    small = code.fma(polynomial(code, square, TANH_SMALL), cube, magnitude)
    bounded = _at_most(code, magnitude, 10.0)
    power = _exp2_moderate(code, code.binary("fmul", bounded, code.like(2 * LOG2_E, x)))
    quotient = code.div(code.like(2.0, x), code.binary("fadd", power, code.like(1.0, x)))
    large = code.binary("fsub", code.like(1.0, x), quotient)
    near = code.compare("fcmp olt", magnitude, code.like(0.625, x))
    return _with_sign(code, code.select(near, small, large), x)


def _sigmoid(code: Code, x: Value) -> Value:
    one = code.like(1.0, x)
    power = call(code, "exp", code.unary("fneg", x))
    return code.div(one, code.binary("fadd", power, one))


def _erf_float(code: Code, x: Value) -> Value:
    magnitude = _magnitude(code, x)
    small = code.binary("fmul", x, polynomial(code, code.binary("fmul", x, x), ERF_SMALL))
    inside = _at_most(code, magnitude, 4.0)
    power = _exp2_moderate(code, polynomial(code, inside, ERF_LARGE))
    large = _with_sign(code, code.binary("fsub", code.like(1.0, x), power), x)
    near = code.compare("fcmp olt", magnitude, code.like(0.9, x))
    return code.select(near, small, large)


# ------------------------------------------------------------------- what SLEEF gives up too early

LOG_2 = 0.6931471805599453


def _asinh(code: Code, x: Value) -> Value:
    """For numbers whose square is not finite, or is 0."""
    magnitude = _magnitude(code, x)
    huge = code.binary("fadd", call(code, "log", magnitude), code.like(LOG_2, x))
    value = _library(code, "asinh", x)
    large = code.compare("fcmp ogt", magnitude, code.like(1e15, x))
    value = code.select(large, _with_sign(code, huge, x), value)
    small = code.compare("fcmp olt", magnitude, code.like(1e-10, x))
    return code.select(small, x, value)


def _acosh(code: Code, x: Value) -> Value:
    huge = code.binary("fadd", call(code, "log", x), code.like(LOG_2, x))
    large = code.compare("fcmp ogt", x, code.like(1e15, x))
    return code.select(large, huge, _library(code, "acosh", x))


# Above it e**x overflows in SLEEF's, though half of it does not (eager is exact from 2.15 on).
HALF_EXP_FROM = 88.0


def _half_exp(name: str, odd: bool) -> Function:
    """sinh and cosh: where they are large, half of e**|x|, as (e**(|x|/2) / 2) * e**(|x|/2)."""

    def function(code: Code, x: Value) -> Value:
        value = _library(code, name, x)
        if x.type != "float":
            return value
        magnitude = _magnitude(code, x)
        root = call(code, "exp", code.binary("fmul", magnitude, code.like(0.5, x)))
        huge = code.binary("fmul", code.binary("fmul", root, code.like(0.5, x)), root)
        large = code.compare("fcmp ogt", magnitude, code.like(HALF_EXP_FROM, x))
        return code.select(large, _with_sign(code, huge, x) if odd else huge, value)

    return function


# ------------------------------------------------------------------------------ erfinv, digamma

# Giles' approximation of erfinv(x) / x in w = -log(1 - x**2): in w - 2.5 for w < 5, else in
# sqrt(w) - 3. Newton's steps make it exact.
ERFINV_CENTRE = (
    1.50140941,
    0.246640727,
    -0.00417768164,
    -0.00125372503,
    0.00021858087,
    -4.39150654e-06,
    -3.5233877e-06,
    3.43273939e-07,
    2.81022636e-08,
)
ERFINV_TAIL = (
    2.83297682,
    1.00167406,
    0.00943887047,
    -0.0076224613,
    0.00573950773,
    -0.00367342844,
    0.00134934322,
    0.000100950558,
    -0.000200214257,
)


def _erfinv(code: Code, x: Value) -> Value:
    one = code.like(1.0, x)
    inside = code.binary("fmul", code.binary("fsub", one, x), code.binary("fadd", one, x))
    w = code.unary("fneg", call(code, "log", inside))
    centre = polynomial(code, code.binary("fsub", w, code.like(2.5, x)), ERFINV_CENTRE)
    root = code.intrinsic("sqrt", w)
    tail = polynomial(code, code.binary("fsub", root, code.like(3.0, x)), ERFINV_TAIL)
    near = code.compare("fcmp olt", w, code.like(5.0, x))
    guess = code.binary("fmul", code.select(near, centre, tail), x)
    for _ in range(2):
        # (erf(y) - x) / erf'(y)
        off = code.binary("fsub", call(code, "erf", guess), x)
        power = call(code, "exp", code.binary("fmul", guess, guess))
        step = code.binary("fmul", code.binary("fmul", off, power), code.like(0.886226925452758, x))
        guess = code.binary("fsub", guess, step)
    limit = _with_sign(code, code.like(float("inf"), x), x)
    edge = code.compare("fcmp oeq", _magnitude(code, x), one)
    zero = code.compare("fcmp oeq", x, code.like(0.0, x))
    return code.select(zero, x, code.select(edge, limit, guess))


# digamma(x) - log(x) + 1 / (2 * x), as a polynomial in 1 / x**2 without constant: Bernoulli numbers
DIGAMMA = (
    -0.08333333333333333,
    0.008333333333333333,
    -0.003968253968253968,
    0.004166666666666667,
    -0.007575757575757576,
    0.021092796092796094,
    -0.08333333333333333,
)
PI = 3.141592653589793


def _digamma(code: Code, x: Value) -> Value:
    one, zero = code.like(1.0, x), code.like(0.0, x)
    negative = code.compare("fcmp olt", x, zero)
    y = code.select(negative, code.binary("fsub", one, x), x)
    total = zero
    for _ in range(10):  # digamma(y) = digamma(y + 1) - 1 / y
        small = code.compare("fcmp olt", y, code.like(10.0, x))
        less = code.binary("fsub", total, code.div(one, y))
        total = code.select(small, less, total)
        y = code.select(small, code.binary("fadd", y, one), y)
    inverse = code.div(one, y)
    square = code.binary("fmul", inverse, inverse)
    series = code.binary("fmul", polynomial(code, square, DIGAMMA), square)
    value = code.binary(
        "fsub", call(code, "log", y), code.binary("fmul", inverse, code.like(0.5, x))
    )
    value = code.binary("fadd", code.binary("fadd", value, series), total)
    # Reflection: digamma(x) = digamma(1 - x) - pi / tan(pi * x); of x only the fraction counts.
    whole = code.intrinsic("trunc", x)
    angle = code.binary("fmul", code.binary("fsub", x, whole), code.like(PI, x))
    reflected = code.binary("fsub", value, code.div(code.like(PI, x), call(code, "tan", angle)))
    pole = code.compare("fcmp oeq", x, whole)
    reflected = code.select(pole, code.like(float("nan"), x), reflected)
    value = code.select(negative, reflected, value)
    infinity = _with_sign(code, code.like(float("inf"), x), code.unary("fneg", x))
    return code.select(code.compare("fcmp oeq", x, zero), infinity, value)


INLINE: dict[str, Function] = {
    "exp": _exp_float,
    "exp2": _exp2_float,
    "expm1": _expm1_float,
    "log": _log_float,
    "log2": _log_base((LOG2_E, LOG2_E_LOW), (1.0, 0.0)),
    "log10": _log_base((0.4342944920063019, -1.0103050e-08), (0.3010300099849701, -1.4320989e-08)),
    "log1p": _log1p_float,
    "tanh": _tanh_float,
    "erf": _erf_float,
}


# ---------------------------------------------------------------------------------------- calls

# Name of ours -> (SLEEF's name, its accuracy suffix, libm's name).
LIBRARY: dict[str, tuple[str, str, str]] = {
    **{
        name: (name, "_u10", name)
        for name in (
            *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan"),
            *("asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
            *("erf", "pow", "atan2"),
        )
    },
    "erfc": ("erfc", "_u15", "erfc"),
    "lgamma": ("lgamma", "_u10", "lgamma"),
    "hypot": ("hypot", "_u05", "hypot"),
    "fmod": ("", "", "fmod"),  # SLEEF's is wrong for tiny divisors
    "nextafter": ("nextafter", "_", "nextafter"),
}


@functools.cache
def _sleef(name: str, type: str, bits: int, suffix: str) -> tuple[str, int] | None:
    """The SLEEF function for vectors of so many bits, and its lanes."""
    found = LIBRARY.get(name)
    if found is None or not suffix or not found[0]:
        return None
    lanes = bits // BITS[type]
    symbol = f"Sleef_{found[0]}{'f' if type == 'float' else 'd'}{lanes}{found[1]}{suffix}"
    return (symbol, lanes) if torch_abi.has_symbol(symbol) else None


def call(code: Code, name: str, *values: Value) -> Value:
    """A function by its name: inline, from SLEEF, or from libm."""
    values = code.same_lanes(*values)
    inline = INLINE.get(name)
    if inline is not None and values[0].type == "float":
        return inline(code, *values)
    return _library(code, name, *values)


def _library(code: Code, name: str, *values: Value) -> Value:
    """A function from SLEEF, or from libm once for each lane."""
    type, lanes = values[0].type, values[0].lanes
    bits = jit.vector_bits()
    found = _sleef(name, type, bits, targets.sleef_suffix(jit.target().machine, bits))
    if found is None or lanes == 1:
        symbol = LIBRARY[name][2] + ("f" if type == "float" else "")
        parts = [
            code.call(symbol, type, *(code.part(value, lane, 1) for value in values))
            for lane in range(lanes)
        ]
        return code.join(parts)
    symbol, width = found
    if lanes < width:
        values = tuple(_widened(code, value, width) for value in values)
    parts = [
        code.call(symbol, type, *(code.part(v, start, width) for v in values), lanes=width)
        for start in range(0, values[0].lanes, width)
    ]
    return code.part(code.join(parts), 0, lanes)


def _widened(code: Code, value: Value, lanes: int) -> Value:
    """More lanes, which repeat the first."""
    mask = ", ".join(f"i32 {lane if lane < value.lanes else 0}" for lane in range(lanes))
    return code.write(
        f"shufflevector {value}, {value.full} poison, <{lanes} x i32> <{mask}>", value.type, lanes
    )


def _named(name: str) -> Function:
    return lambda code, *values: call(code, name, *values)


fmod = _named("fmod")
pow = _named("pow")

FUNCTIONS: dict[str, Function] = {
    **{name: _named(name) for name in LIBRARY if name not in ("fmod", "pow")},
    "sigmoid": _sigmoid,
    "sinh": _half_exp("sinh", odd=True),
    "cosh": _half_exp("cosh", odd=False),
    "asinh": _asinh,
    "acosh": _acosh,
    "erfinv": _erfinv,
    "digamma": _digamma,
}
