"""The rows of SCALAR_OPS as LLVM instructions, on scalars or vectors, for each kind of number.

Enters: an op, the dtype of its operands, values. Leaves: a value. Invariant: as eager for NaN,
infinities, signed zero, integer wrap; a division of integers by zero raises the kernel's error flag
instead of trapping.

A row is `name: {kind: function(code, *values)}`, kind being float, signed, unsigned or bool.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from windfall.codegen import vecmath
from windfall.errors import InternalError
from windfall.llvm import BITS, Code, Value

# dtype -> (type while computed with, type in memory). Half floats are computed with as float.
TYPES: dict[torch.dtype, tuple[str, str]] = {
    torch.float64: ("double", "double"),
    torch.float32: ("float", "float"),
    torch.bfloat16: ("float", "i16"),
    torch.float16: ("float", "half"),
    torch.int64: ("i64", "i64"),
    torch.int32: ("i32", "i32"),
    torch.int16: ("i16", "i16"),
    torch.int8: ("i8", "i8"),
    torch.uint8: ("i8", "i8"),
    torch.bool: ("i1", "i8"),
}
# Numbers that are only moved: as many bits, whatever they mean.
TYPES.update(
    {
        torch.complex64: ("i64", "i64"),
        torch.complex128: ("i128", "i128"),
        torch.uint16: ("i16", "i16"),
        torch.uint32: ("i32", "i32"),
        torch.uint64: ("i64", "i64"),
    }
)

Row = Callable[..., Value]
DIVISION_BY_ZERO = 1  # the error code of an integer division by zero


def kind_of(dtype: torch.dtype) -> str:
    """Which column of the table a dtype uses."""
    if dtype.is_floating_point:
        return "float"
    return _KINDS.get(dtype, "moved")


_KINDS = {
    torch.bool: "bool",
    torch.uint8: "unsigned",
    **dict.fromkeys((torch.int8, torch.int16, torch.int32, torch.int64), "signed"),
}


def apply(code: Code, op: str, dtype: torch.dtype, values: tuple[Value, ...]) -> Value:
    """`op` of values that hold numbers of `dtype`."""
    row = TABLE.get(op, {}).get(kind_of(dtype))
    if row is None:
        raise InternalError(f"{op} of {dtype} has no instructions")
    result = row(code, *values)
    if dtype in (torch.bfloat16, torch.float16) and result.type == "float":
        return round_half(code, result, dtype)
    return result


# -------------------------------------------------------------------------------------- helpers


def _plain(name: str) -> Row:
    return lambda code, a, b: code.binary(name, a, b)


def _compare(name: str) -> Row:
    return lambda code, a, b: code.compare(name, a, b)


def _intrinsic(name: str) -> Row:
    return lambda code, *values: code.intrinsic(name, *values)


def _is_nan(code: Code, a: Value) -> Value:
    return code.compare("fcmp uno", a, a)


def _abs(code: Code, a: Value) -> Value:
    return code.intrinsic("fabs", a)


def _int_abs(code: Code, a: Value) -> Value:
    return code.select(code.compare("icmp slt", a, code.like(0, a)), _neg(code, a), a)


def _neg(code: Code, a: Value) -> Value:
    return code.binary("sub", code.like(0, a), a)


def _not(code: Code, a: Value) -> Value:
    return code.binary("xor", a, code.like(-1 if a.type != "i1" else 1, a))


def _as_bool(code: Code, a: Value) -> Value:
    if a.type == "i1":
        return a
    zero = code.like(0, a)
    return code.compare("fcmp une" if a.type in ("float", "double") else "icmp ne", a, zero)


def _extreme(compare: str, *, of_numbers: bool = False) -> Row:
    """NaN in either operand is the result; `of_numbers`: only where both operands are."""

    def row(code: Code, a: Value, b: Value) -> Value:
        a, b = code.same_lanes(a, b)
        better = code.compare(f"fcmp {compare}", b, a)
        take = code.binary("or", better, _is_nan(code, a if of_numbers else b))
        return code.select(take, b, a)

    return row


def _integer_extreme(compare: str) -> Row:
    def row(code: Code, a: Value, b: Value) -> Value:
        a, b = code.same_lanes(a, b)
        return code.select(code.compare(f"icmp {compare}", a, b), a, b)

    return row


def _sign(code: Code, a: Value) -> Value:
    one, zero, minus = (code.like(number, a) for number in (1, 0, -1))
    if a.type in ("float", "double"):
        # NaN answers 0, as both comparisons are false.
        positive = code.compare("fcmp ogt", a, zero)
        negative = code.compare("fcmp olt", a, zero)
    else:
        positive = code.compare("icmp sgt", a, zero)
        negative = code.compare("icmp slt", a, zero)
    return code.select(positive, one, code.select(negative, minus, zero))


def _unsigned_sign(code: Code, a: Value) -> Value:
    return code.select(
        code.compare("icmp ne", a, code.like(0, a)), code.like(1, a), code.like(0, a)
    )


def _float_truncdiv(code: Code, a: Value, b: Value) -> Value:
    return code.intrinsic("trunc", code.div(a, b))


def _float_remainder(code: Code, a: Value, b: Value) -> Value:
    """The sign of the divisor, as Python's."""
    a, b = code.same_lanes(a, b)
    rest = vecmath.fmod(code, a, b)
    zero = code.like(0.0, rest)
    nonzero = code.compare("fcmp une", rest, zero)
    other = code.binary(
        "xor", code.compare("fcmp olt", rest, zero), code.compare("fcmp olt", b, zero)
    )
    return code.select(code.binary("and", nonzero, other), code.binary("fadd", rest, b), rest)


def _float_floordiv(code: Code, a: Value, b: Value) -> Value:
    """The quotient that goes with the remainder: floor of the exact one, not of the rounded."""
    a, b = code.same_lanes(a, b)
    rest = vecmath.fmod(code, a, b)
    quotient = code.div(code.binary("fsub", a, rest), b)
    zero, one = code.like(0.0, a), code.like(1.0, a)
    nonzero = code.compare("fcmp une", rest, zero)
    other = code.binary(
        "xor", code.compare("fcmp olt", b, zero), code.compare("fcmp olt", rest, zero)
    )
    quotient = code.select(
        code.binary("and", nonzero, other), code.binary("fsub", quotient, one), quotient
    )
    floor = code.intrinsic("floor", quotient)
    up = code.compare("fcmp ogt", code.binary("fsub", quotient, floor), code.like(0.5, a))
    floor = code.select(up, code.binary("fadd", floor, one), floor)
    plain = code.div(a, b)
    signed_zero = code.intrinsic("copysign", zero, plain)
    whole = code.select(code.compare("fcmp une", quotient, zero), floor, signed_zero)
    return code.select(code.compare("fcmp oeq", b, zero), plain, whole)


# ---------------------------------------------------------------------------- integer division


def _safe_divisor(code: Code, b: Value) -> Value:
    """The divisor, 1 where it is 0: then the kernel's error flag is raised."""
    zero = code.compare("icmp eq", b, code.like(0, b))
    raise_error(code, zero, DIVISION_BY_ZERO)
    return code.select(zero, code.like(1, b), b)


def raise_error(code: Code, bad: Value, number: int) -> None:
    """Set the error flag if any lane is bad. (The flag is a plain word: threads that set it at the
    same time write the same kind of number.)"""
    if code.active is not None:
        bad = code.binary("and", bad, code.active)
    if bad.lanes > 1:
        bad = code.call(f"llvm.vector.reduce.or.v{bad.lanes}i1", "i1", bad)
    flag = Value("%error", "ptr")
    code.store(code.select(bad, Value(str(number), "i32"), code.load("i32", flag)), flag)


def _divide_signed(code: Code, a: Value, b: Value) -> tuple[Value, Value]:
    """Quotient and remainder toward zero; the least number by -1 wraps instead of trapping."""
    a, b = code.same_lanes(a, b)
    b = _safe_divisor(code, b)
    minus = code.compare("icmp eq", b, code.like(-1, b))
    safe = code.select(minus, code.like(1, b), b)
    quotient = code.binary("sdiv", a, safe)
    rest = code.binary("srem", a, safe)
    return code.select(minus, _neg(code, a), quotient), rest


def _truncdiv(code: Code, a: Value, b: Value) -> Value:
    return _divide_signed(code, a, b)[0]


def _fmod(code: Code, a: Value, b: Value) -> Value:
    return _divide_signed(code, a, b)[1]


def _floordiv(code: Code, a: Value, b: Value) -> Value:
    quotient, rest = _divide_signed(code, a, b)
    return code.select(
        _opposite(code, rest, b), code.binary("sub", quotient, code.like(1, quotient)), quotient
    )


def _remainder(code: Code, a: Value, b: Value) -> Value:
    _, rest = _divide_signed(code, a, b)
    return code.select(_opposite(code, rest, b), code.binary("add", rest, b), rest)


def _opposite(code: Code, rest: Value, b: Value) -> Value:
    zero = code.like(0, rest)
    other = code.compare("icmp slt", code.binary("xor", rest, b), zero)
    return code.binary("and", code.compare("icmp ne", rest, zero), other)


def _unsigned_divide(name: str) -> Row:
    def row(code: Code, a: Value, b: Value) -> Value:
        a, b = code.same_lanes(a, b)
        return code.binary(name, a, _safe_divisor(code, b))

    return row


def _signed_pow(code: Code, a: Value, b: Value) -> Value:
    """By squaring, wrapping; a negative exponent answers 0, 1 or -1."""
    a, b = code.same_lanes(a, b)
    one, zero = code.like(1, a), code.like(0, a)
    negative = code.compare("icmp slt", b, zero)
    odd = code.compare("icmp ne", code.binary("and", b, one), zero)
    is_one = code.compare("icmp eq", a, one)
    is_minus = code.compare("icmp eq", a, code.like(-1, a))
    sign = code.select(odd, code.like(-1, a), one)
    small = code.select(is_one, one, code.select(is_minus, sign, zero))
    return code.select(negative, small, _squaring(code, a, b, BITS[a.type] - 1))


def _unsigned_pow(code: Code, a: Value, b: Value) -> Value:
    """By squaring, wrapping; no exponent is negative."""
    a, b = code.same_lanes(a, b)
    return _squaring(code, a, b, BITS[a.type])


def _squaring(code: Code, base: Value, exponent: Value, bits: int) -> Value:
    one, zero = code.like(1, base), code.like(0, base)
    result, rest = one, exponent
    for _ in range(bits):
        bit = code.compare("icmp ne", code.binary("and", rest, one), zero)
        result = code.select(bit, code.binary("mul", result, base), result)
        base = code.binary("mul", base, base)
        rest = code.binary("lshr", rest, one)
    return result


def _shift(name: str) -> Row:
    """Shifts by less than 0 or by the width or more leave nothing but the sign."""

    def row(code: Code, a: Value, b: Value) -> Value:
        a, b = code.same_lanes(a, b)
        width = BITS[a.type]
        inside = code.compare("icmp ult", b, code.like(width, b))
        if name == "ashr":
            return code.binary("ashr", a, code.select(inside, b, code.like(width - 1, b)))
        shifted = code.binary(name, a, code.select(inside, b, code.like(0, b)))
        return code.select(inside, shifted, code.like(0, a))

    return row


# ----------------------------------------------------------------------------------- conversion


def round_half(code: Code, value: Value, dtype: torch.dtype) -> Value:
    """A float rounded to what a half float holds, still as a float."""
    if dtype is torch.float16:
        return code.convert("fpext", code.convert("fptrunc", value, "half"), "float")
    bits = code.convert("bitcast", value, "i32")
    last = code.binary("and", code.binary("lshr", bits, code.like(16, bits)), code.like(1, bits))
    biased = code.binary("add", code.binary("add", bits, code.like(0x7FFF, bits)), last)
    kept = code.binary("and", biased, code.like(-65536, bits))
    quiet = code.select(_is_nan(code, value), code.like(0x7FC00000, bits), kept)
    return code.convert("bitcast", quiet, "float")


def from_memory(code: Code, value: Value, dtype: torch.dtype) -> Value:
    """What was loaded, as it is computed with."""
    if dtype is torch.bfloat16:
        wide = code.convert("zext", value, "i32")
        return code.convert("bitcast", code.binary("shl", wide, code.like(16, wide)), "float")
    if dtype is torch.float16:
        return code.convert("fpext", value, "float")
    if dtype is torch.bool:
        return code.compare("icmp ne", value, code.like(0, value))
    return value


def to_memory(code: Code, value: Value, dtype: torch.dtype) -> Value:
    """What is stored; half floats are rounded by now."""
    if dtype is torch.bfloat16:
        bits = code.convert("bitcast", value, "i32")
        return code.convert("trunc", code.binary("lshr", bits, code.like(16, bits)), "i16")
    if dtype is torch.float16:
        return code.convert("fptrunc", value, "half")
    if dtype is torch.bool:
        return code.convert("zext", value, "i8")
    return value


def cast(code: Code, value: Value, old: torch.dtype, new: torch.dtype) -> Value:
    """`value` converted as `tensor.to` does it."""
    source, target = TYPES[old][0], TYPES[new][0]
    if new is torch.bool:
        return _as_bool(code, value)
    if old.is_floating_point:
        if new.is_floating_point:
            return _float_to_float(code, value, source, new)
        return _float_to_int(code, value, new)
    if new.is_floating_point:
        unsigned = old in (torch.bool, torch.uint8)
        made = code.convert("uitofp" if unsigned else "sitofp", value, target)
        return round_half(code, made, new) if new.itemsize == 2 else made
    if BITS[source] < BITS[target]:
        unsigned = old in (torch.bool, torch.uint8)
        return code.convert("zext" if unsigned else "sext", value, target)
    return value if BITS[source] == BITS[target] else code.convert("trunc", value, target)


def _float_to_float(code: Code, value: Value, source: str, new: torch.dtype) -> Value:
    target = TYPES[new][0]
    if source != target:
        value = code.convert("fptrunc" if source == "double" else "fpext", value, target)
    return round_half(code, value, new) if new.itemsize == 2 else value


def _float_to_int(code: Code, value: Value, new: torch.dtype) -> Value:
    # Out of range is not defined by C++; this is what its code does on x86: 64 bits for unsigned
    # bytes, 32 for the narrower signed ones, then the low bits.
    wide = "i64" if new in (torch.int64, torch.uint8) else "i32"
    whole = code.convert("fptosi", value, wide)
    target = TYPES[new][0]
    return whole if wide == target else code.convert("trunc", whole, target)


# ---------------------------------------------------------------------------------------- table


def _all(row: Row) -> dict[str, Row]:
    return dict.fromkeys(("float", "signed", "unsigned", "bool"), row)


def _anything(row: Row) -> dict[str, Row]:
    return {**_all(row), "moved": row}


def _integers(signed: Row, unsigned: Row | None = None) -> dict[str, Row]:
    return {"signed": signed, "unsigned": unsigned or signed}


def _where(code: Code, condition: Value, yes: Value, no: Value) -> Value:
    return code.select(condition, yes, no)


def _fma(code: Code, a: Value, b: Value, c: Value) -> Value:
    return code.fma(a, b, c)


def _logical(name: str) -> dict[str, Row]:
    return _all(lambda code, a, b: code.binary(name, _as_bool(code, a), _as_bool(code, b)))


def _infinite(code: Code, a: Value) -> Value:
    return code.compare("fcmp oeq", _abs(code, a), code.like(float("inf"), a))


def _finite(code: Code, a: Value) -> Value:
    return code.compare("fcmp one", _abs(code, a), code.like(float("inf"), a))


def _signbit(code: Code, a: Value) -> Value:
    bits = code.convert("bitcast", a, "i64" if a.type == "double" else "i32")
    return code.compare("icmp slt", bits, code.like(0, bits))


_or, _and, _xor = _plain("or"), _plain("and"), _plain("xor")

TABLE: dict[str, dict[str, Row]] = {
    "add": {"float": Code.add, **_integers(_plain("add")), "bool": _or},
    "sub": {"float": Code.sub, **_integers(_plain("sub")), "bool": _xor},
    "mul": {"float": Code.mul, **_integers(_plain("mul")), "bool": _and},
    "div": {"float": Code.div, **_integers(_truncdiv, _unsigned_divide("udiv"))},
    "truncdiv": {"float": _float_truncdiv, **_integers(_truncdiv, _unsigned_divide("udiv"))},
    "floordiv": {"float": _float_floordiv, **_integers(_floordiv, _unsigned_divide("udiv"))},
    "remainder": {"float": _float_remainder, **_integers(_remainder, _unsigned_divide("urem"))},
    "fmod": {"float": vecmath.fmod, **_integers(_fmod, _unsigned_divide("urem"))},
    "pow": {"float": vecmath.pow, **_integers(_signed_pow, _unsigned_pow), "bool": _or},
    "maximum": {
        "float": _extreme("ogt"),
        **_integers(_integer_extreme("sgt"), _integer_extreme("ugt")),
        "bool": _or,
    },
    "minimum": {
        "float": _extreme("olt"),
        **_integers(_integer_extreme("slt"), _integer_extreme("ult")),
        "bool": _and,
    },
    "fmax": {
        "float": _extreme("ogt", of_numbers=True),
        **_integers(_integer_extreme("sgt"), _integer_extreme("ugt")),
        "bool": _or,
    },
    "fmin": {
        "float": _extreme("olt", of_numbers=True),
        **_integers(_integer_extreme("slt"), _integer_extreme("ult")),
        "bool": _and,
    },
    "bitwise_and": {**_integers(_and), "bool": _and},
    "bitwise_or": {**_integers(_or), "bool": _or},
    "bitwise_xor": {**_integers(_xor), "bool": _xor},
    "bitwise_not": {**_integers(_not), "bool": _not},
    "shift_left": _integers(_shift("shl")),
    "shift_right": _integers(_shift("ashr"), _shift("lshr")),
    "neg": {"float": lambda code, a: code.unary("fneg", a), **_integers(_neg)},
    "abs": {"float": _abs, **_integers(_int_abs, lambda code, a: a), "bool": lambda code, a: a},
    "sign": {"float": _sign, **_integers(_sign, _unsigned_sign), "bool": lambda code, a: a},
    "logical_and": _logical("and"),
    "logical_or": _logical("or"),
    "logical_xor": _logical("xor"),
    "logical_not": _all(lambda code, a: _not(code, _as_bool(code, a))),
    "where": _anything(_where),
    "fma": {
        "float": _fma,
        **_integers(lambda code, a, b, c: code.binary("add", code.binary("mul", a, b), c)),
    },
    "isnan": {"float": _is_nan},
    "isinf": {"float": _infinite},
    "isfinite": {"float": _finite},
    "signbit": {
        "float": _signbit,
        "signed": lambda code, a: code.compare("icmp slt", a, code.like(0, a)),
    },
    "copysign": {"float": _intrinsic("copysign")},
    "floor": {"float": _intrinsic("floor")},
    "ceil": {"float": _intrinsic("ceil")},
    "trunc": {"float": _intrinsic("trunc")},
    "round": {"float": _intrinsic("roundeven")},
    "frac": {"float": lambda code, a: code.binary("fsub", a, code.intrinsic("trunc", a))},
    "sqrt": {"float": _intrinsic("sqrt")},
    "rsqrt": {"float": lambda code, a: code.div(code.like(1.0, a), code.intrinsic("sqrt", a))},
    "reciprocal": {"float": lambda code, a: code.div(code.like(1.0, a), a)},
    **{name: {"float": row} for name, row in vecmath.FUNCTIONS.items()},
}

_COMPARISONS: dict[str, tuple[str, str, str]] = {
    "eq": ("oeq", "eq", "eq"),
    "ne": ("une", "ne", "ne"),
    "lt": ("olt", "slt", "ult"),
    "le": ("ole", "sle", "ule"),
    "gt": ("ogt", "sgt", "ugt"),
    "ge": ("oge", "sge", "uge"),
}
for _name, (_float, _signed, _unsigned) in _COMPARISONS.items():
    TABLE[_name] = {
        "float": _compare(f"fcmp {_float}"),
        "signed": _compare(f"icmp {_signed}"),
        "unsigned": _compare(f"icmp {_unsigned}"),
        "bool": _compare(f"icmp {_unsigned}"),
    }


def identity(kind: str, dtype: torch.dtype) -> Any:
    """What a fold starts from; the extremes of `dtype` for `max` and `min`."""
    if kind in ("sum", "any"):
        return 0
    if kind in ("prod", "all"):
        return 1
    low = kind in ("max", "argmax")
    if dtype.is_floating_point:
        return float("-inf") if low else float("inf")
    if dtype is torch.bool:
        return not low
    limits = torch.iinfo(dtype)
    return limits.min if low else limits.max


# How two partial results of a fold become one.
COMBINE: dict[str, str] = {
    "sum": "add",
    "prod": "mul",
    "max": "maximum",
    "min": "minimum",
    "any": "logical_or",
    "all": "logical_and",
}
