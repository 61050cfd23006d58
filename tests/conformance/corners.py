# ruff: noqa: E501 (tables of expressions)
"""Corners of arithmetic: every expression x every dtype x the numbers at which they go wrong.

python -m tests.conformance.corners [TABLE …] [--dtype NAME …] [--only TEXT]     prints each difference

Enters: a table of expressions of `a` and `b`. Leaves: for each dtype, what windfall and eager answer,
to the bit where eager is exact (signs of zeros, NaN, infinities, wrapped integers, dtypes), and how it
ran. Expressions that eager answers are compiled some at a time, so that they are fused; where such a
program differs each is compiled alone. What eager refuses has to be refused.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import math
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

import windfall

FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
WIDE_UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)
COMPLEX = (torch.complex64, torch.complex128)
DTYPES = (*FLOATS, *INTEGERS, torch.bool, *WIDE_UNSIGNED, *FLOAT8, *COMPLEX)
TOGETHER = 8


def numbers(dtype: torch.dtype) -> list[Any]:
    """The numbers of a dtype that are worth a look."""
    if dtype is torch.bool:
        return [False, True, True, False]
    if dtype.is_complex:
        parts = (0.0, -0.0, 1.0, -2.5, math.inf, math.nan)
        return [complex(one, other) for one in parts for other in parts]
    if dtype.is_floating_point:
        about = torch.finfo(dtype)
        found = [
            math.nan,
            math.inf,
            -math.inf,
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            -0.5,
            1.5,
            2.5,
            -2.5,
            3.0,
        ]
        found += [-3.0, 7.0, -7.0, 100.0, 88.5, -104.0, 0.1, -0.3, 1.0 + about.eps, 1e-3, 12.75]
        found += [about.max, about.min, about.tiny, -about.tiny, about.smallest_normal / 4]
        return found
    least, most = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    found = [0, 1, 2, 3, 7, 8, 15, 31, 32, 63, 64, 65, 100, most, most - 1, most // 2, least]
    if least:
        found += [-1, -2, -3, -7, -8, -64, least + 1, least // 2]
    return found


def tensor_of(found: Sequence[Any], dtype: torch.dtype) -> torch.Tensor:
    """These numbers, whatever the dtype."""
    if dtype in FLOAT8:
        return torch.tensor(found, dtype=torch.float32).to(dtype)
    return torch.tensor(found, dtype=dtype)


Operands = dict[str, torch.Tensor]


def _pairs(dtype: torch.dtype, other: torch.dtype | None = None) -> Iterator[tuple[str, Operands]]:
    """All pairs, side by side; and each with all, by broadcasting and turned."""
    first, second = numbers(dtype), numbers(other or dtype)
    both = list(itertools.product(first, second))
    a = tensor_of([one for one, _ in both], dtype)
    b = tensor_of([one for _, one in both], other or dtype)
    yield "pairs", {"a": a, "b": b}
    column, row = tensor_of(first, dtype)[:, None], tensor_of(second, other or dtype)[None]
    yield "broadcast", {"a": column, "b": row}
    yield "0-d", {"a": tensor_of(first, dtype), "b": tensor_of(second, other or dtype)[3]}
    yield "strided", {"a": a.view(len(first), -1).t(), "b": b.view(len(first), -1).t()}


def _alone(dtype: torch.dtype, _: torch.dtype | None = None) -> Iterator[tuple[str, Operands]]:
    """The numbers in a row, every other one of them, and none."""
    found = tensor_of(numbers(dtype) * 3, dtype)
    yield "row", {"a": found}
    yield "strided", {"a": found[::2]}
    yield "0-d", {"a": found[1]}
    yield "none", {"a": found[:0]}


def _tables(dtype: torch.dtype, _: torch.dtype | None = None) -> Iterator[tuple[str, Operands]]:
    """For what goes along an axis."""
    found = numbers(dtype)
    finite = [one for one in found if one == one and abs(one) < 1e30] if found else found
    whole = tensor_of((found * 3)[: 3 * 7], dtype).view(3, 7)
    yield "table", {"a": whole}
    yield "finite", {"a": tensor_of((finite * 6)[: 5 * 9], dtype).view(5, 9)}
    yield "turned", {"a": tensor_of((finite * 6)[: 5 * 9], dtype).view(5, 9).t()}
    yield "one column", {"a": whole[:, :1]}
    yield "no rows", {"a": whole[:0]}
    yield "no columns", {"a": whole[:, :0]}
    yield "long", {"a": tensor_of((finite * 40)[:301], dtype)[None].expand(2, 301)}
    if dtype.is_floating_point or dtype.is_complex:
        bad = torch.full((3, 4), -math.inf if dtype.is_floating_point else math.inf)
        yield "infinite", {"a": bad.to(dtype)}
        yield "zeros", {"a": -torch.zeros(2, 5).to(dtype)}


UNARY = [
    *(f"torch.{name}(a)" for name in (
        "abs", "neg", "sign", "sgn", "signbit", "isnan", "isinf", "isfinite", "isposinf", "isneginf",
        "ceil", "floor", "round", "trunc", "frac", "bitwise_not", "logical_not", "square", "positive",
        "reciprocal", "sqrt", "rsqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin",
        "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh",
        "sigmoid", "erf", "erfc", "erfinv", "lgamma", "digamma", "deg2rad", "rad2deg", "nan_to_num",
        "relu", "logit", "angle", "real", "imag", "conj_physical", "view_as_real", "i0", "sinc",
        "polygamma_1", "softmax_0",
    ) if not name.endswith(("_1", "_0"))),
    *(f"F.{name}(a)" for name in (
        "relu", "relu6", "gelu", "silu", "mish", "elu", "selu", "celu", "hardtanh", "hardswish",
        "hardsigmoid", "hardshrink", "softshrink", "softplus", "softsign", "tanhshrink", "logsigmoid",
        "leaky_relu", "threshold_", "rrelu_",
    ) if not name.endswith("_")),
    "F.threshold(a, 0.1, 20)", "F.gelu(a, approximate='tanh')", "torch.special.ndtr(a)",
    "torch.special.log_ndtr(a)", "torch.special.entr(a)", "torch.special.erfcx(a)", "torch.special.i0e(a)",
    "torch.round(a, decimals=1)", "torch.round(a, decimals=-1)", "torch.frexp(a)", "torch.polygamma(1, a)",
    *(f"a.to(torch.{name})" for name in (
        "float64", "float32", "bfloat16", "float16", "int64", "int32", "int16", "int8", "uint8", "bool",
        "uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2", "complex64",
    )),
    *(f"a {sign} {number}" for sign in ("+", "-", "*", "/", "//", "%", "**") for number in
      ("2", "-3", "0", "2.5", "-0.0", "True", "float('nan')", "float('inf')", "300", "2**40", "-1", "0.5")),
    *(f"{number} {sign} a" for sign in ("-", "/", "//", "%", "**") for number in ("2", "-3", "0", "2.5", "1")),
    *(f"a {sign} {number}" for sign in ("<<", ">>", "&", "|", "^") for number in ("1", "3", "63", "0", "-1", "True")),
    *(f"a {sign} {number}" for sign in ("<", "<=", "==", "!=", ">", ">=") for number in
      ("0", "-1", "2.5", "300", "float('nan')", "True", "2**31", "-0.0", "float('inf')", "127.5")),
    *(f"torch.fmod(a, {number})" for number in ("3", "-2", "2.5", "0", "float('inf')")),
    *(f"torch.remainder(a, {number})" for number in ("3", "-2", "2.5", "-2.5", "float('inf')")),
    *(f"torch.div(a, {number}, rounding_mode={mode!r})" for number in ("3", "-2", "2.5", "0")
      for mode in ("trunc", "floor", None)),
    *(f"torch.clamp(a, {bounds})" for bounds in (
        "min=0", "max=1", "min=-1, max=1", "min=2, max=1", "min=float('nan')", "max=float('nan')",
        "min=0.5", "max=2.5", "min=-300, max=300", "min=-0.0, max=0.0", "min=float('-inf')",
    )),
    "torch.pow(2, a)", "torch.pow(-1, a)", "torch.pow(0.0, a)", "torch.pow(2.5, a)",
    "torch.where(a > 0, a, 1)", "torch.where(a > 0, 2.5, a)", "torch.where(a > 0, a, -a)",
    "torch.where(a == 0, 1, 0)", "torch.where(a == 0, 1.5, 0)", "a.masked_fill(a > 1, 3)",
    "torch.add(a, 1, alpha=2)", "torch.add(a, a, alpha=3)", "torch.sub(a, 1.5, alpha=2)", "torch.rsub(a, 1)",
    "torch.nan_to_num(a, nan=1.0, posinf=2.0, neginf=-2.0)", "torch.heaviside(a, a)", "torch.copysign(a, -1)",
    "torch.copysign(a, -0.0)", "torch.ldexp(a, a)", "torch.addcmul(a, a, a, value=2)", "torch.addcdiv(a, a, a)",
    "torch.addcdiv(a, a, a, value=0.5)", "torch.lerp(a, a, 0.3)", "torch.logical_and(a, a)", "~a", "-a", "+a",
    "abs(a)", "a.bool()", "a.byte()", "a.char()", "a.short()", "a.int()", "a.long()", "a.half()", "a.float()",
    "a.view(torch.int8)", "a.view(torch.uint8)", "torch.zeros_like(a) / a", "a * float('inf')",
    "torch.full_like(a, 3)", "torch.ones_like(a) * -1", "torch.xlogy(a, 0)", "torch.xlogy(0, a)",
    "torch.bucketize(a, torch.arange(5.))", "torch.isin(a, torch.tensor([0, 1, 2]))", "torch.gcd(a, a)",
    "torch.lcm(a, a)", "torch.hypot(a, a)", "torch.atan2(a, a)", "torch.nextafter(a, a + 1)",
    "a.clamp_min(1)", "a.clamp_max(-1)", "a.clone().mul_(2)", "a.clone().add_(3)", "a.clone().pow_(2)",
    "a.clone().div_(2)", "a.clone().fill_(2)", "a.clone().floor_divide_(2)", "a.clone().remainder_(3)",
    "a.clone().clamp_(0, 5)", "a.clone().neg_()", "a.clone().sub_(1)", "a.clone().copy_(a > 0)",
    "a.clone().mul_(2.5)", "a.clone().add_(True)", "a.clone().bitwise_or_(1)", "a.clone().__ilshift__(1)",
]  # fmt: skip

BINARY = [
    *(f"a {sign} b" for sign in (
        "+", "-", "*", "/", "//", "%", "**", "<<", ">>", "&", "|", "^", "<", "<=", "==", "!=", ">", ">=",
    )),
    *(f"torch.{name}(a, b)" for name in (
        "maximum", "minimum", "fmax", "fmin", "fmod", "remainder", "atan2", "copysign", "hypot", "nextafter",
        "logaddexp", "logaddexp2", "heaviside", "gcd", "lcm", "xlogy", "ldexp", "true_divide", "floor_divide",
        "logical_and", "logical_or", "logical_xor", "float_power", "rsub", "dist", "isclose", "eq", "polar",
        "complex",
    )),
    *(f"torch.div(a, b, rounding_mode={mode!r})" for mode in ("trunc", "floor")),
    "torch.where(a > b, a, b)", "torch.where(a == b, a, 0)", "torch.clamp(a, b, b)", "torch.clamp(a, min=b)",
    "torch.clamp(a, max=b)", "torch.clamp(a, b, -b)", "torch.add(a, b, alpha=2)", "torch.sub(a, b, alpha=-3)",
    "torch.add(a, b, alpha=2.5)", "torch.lerp(a, b, 0.3)", "torch.lerp(a, b, 0.8)", "torch.lerp(a, b, b)",
    "torch.addcmul(a, b, b, value=-1)", "torch.addcdiv(a, b, a)", "torch.special.xlog1py(a, b)",
    "torch.where(a > 0, b, a)", "torch.masked_fill(a, b > 0, 1)", "a.clone().add_(b)", "a.clone().mul_(b)",
    "a.clone().copy_(b)", "a.clone().pow_(b)", "a.clone().div_(b)", "a.clone().floor_divide_(b)",
    "F.smooth_l1_loss(a, b)", "F.huber_loss(a, b, reduction='none')", "F.mse_loss(a, b)", "F.l1_loss(a, b)",
    "torch.equal(a, b)", "torch.allclose(a, b)", "torch.cat([a.flatten(), b.flatten()])",
    "torch.result_type(a, b)", "torch.can_cast(a.dtype, b.dtype)", "a.new_zeros(2) + b.flatten()[:2]",
]  # fmt: skip

ALONG = [
    *(f"torch.{name}(a{dims})" for name in (
        "sum", "prod", "mean", "amax", "amin", "max", "min", "argmax", "argmin", "any", "all", "nansum",
        "nanmean", "median", "nanmedian", "mode", "count_nonzero", "logsumexp", "std", "var", "aminmax",
        "std_mean", "var_mean",
    ) for dims in ("", ", 0", ", -1", ", dim=1, keepdim=True", ", dim=(0, 1)", ", dim=()")),
    *(f"torch.{name}(a, {dim})" for name in (
        "cumsum", "cumprod", "cummax", "cummin", "logcumsumexp", "softmax", "log_softmax", "sort", "argsort",
        "diff", "flip", "roll", "unbind",
    ) for dim in ("0", "-1")),
    *(f"a.{name}({more})" for name in ("sum", "prod", "cumsum", "cumprod", "mean") for more in (
        "0, dtype=torch.float64", "0, dtype=torch.int32", "0, dtype=torch.float16", "-1, dtype=torch.int8",
        "0, dtype=torch.bool",
    )),
    *(f"torch.{name}(a, {dims}, correction={correction})" for name in ("var", "std", "var_mean")
      for dims in ("0", "1", "(0, 1)") for correction in ("0", "1", "2", "7", "1.5")),
    *(f"torch.sort(a, {dim}, descending={down}, stable=True)" for dim in ("0", "1") for down in ("True", "False")),
    *(f"torch.topk(a, 2, {dim}, largest={large}).values" for dim in ("0", "1") for large in ("True", "False")),
    *(f"torch.linalg.vector_norm(a, {order})" for order in ("2", "1", "0", "float('inf')", "float('-inf')", "3", "0.5")),
    *(f"torch.norm(a, p={order}, dim={dim})" for order in ("2", "1", "0", "float('inf')") for dim in ("0", "1")),
    "torch.kthvalue(a, 2, 0)", "torch.msort(a)", "torch.unique(a)", "a.nonzero()", "torch.trace(a)",
    "F.normalize(a)", "F.layer_norm(a, a.shape[1:])", "F.rms_norm(a, a.shape[1:])", "F.softmin(a, 1)",
    "F.cross_entropy(a, torch.zeros(a.shape[0], dtype=torch.long))", "torch.softmax(a, 1, dtype=torch.float64)",
    "F.log_softmax(a, 0, dtype=torch.float32)", "torch.masked_select(a, a > 0)", "a.tril()", "a.triu(1)",
    "torch.cov(a)", "torch.quantile(a, 0.3)", "a @ a.t()", "a.t() @ a", "torch.mv(a, a[0])", "torch.outer(a[0], a[0])",
    "torch.addmm(a, a, torch.zeros_like(a.t() @ a), beta=0)", "torch.addmm(a * float('nan'), a, torch.zeros(a.shape[1], a.shape[1], dtype=a.dtype), beta=0)",
    "torch.cumulative_trapezoid(a)", "torch.trapezoid(a)", "torch.gradient(a, dim=1)", "torch.histc(a)",
    "a.sum() + 1", "a.mean() * 2", "(a > 0).sum()", "(a != a).any()", "a.max() - a.min()", "a.sum(0) / a.shape[0]",
    "a.to(torch.int8).sum()", "a.to(torch.uint8).sum(0)", "a.to(torch.bool).sum(0)", "a.to(torch.int32).prod()",
    "a.to(torch.uint8).cumsum(0)", "a.to(torch.bool).cumsum(1)", "a.to(torch.bool).prod(1)", "a.to(torch.bool).float().mean()",
    "a.argmax(keepdim=True)", "a.flatten().argmin()", "torch.where(a == a.max(), 1, 0).argmax(1)", "a.sum(dim=[])",
    "torch.amax(a, (0, 1))", "torch.bincount(a.flatten())", "torch.renorm(a, 2, 0, 1.0)", "torch.dist(a, a + 1)",
    "F.pad(a, (1, 1), value=float('nan'))", "F.max_pool1d(a[None], 2)", "F.avg_pool1d(a[None], 2)", "F.glu(a[:, :a.shape[1] // 2 * 2])",
    "torch.scatter_add(torch.zeros_like(a), 0, torch.zeros(a.shape, dtype=torch.long), a)",
    "torch.zeros_like(a).scatter_reduce(0, torch.zeros(a.shape, dtype=torch.long), a, 'amax')",
    "torch.zeros_like(a).scatter_reduce(0, torch.zeros(a.shape, dtype=torch.long), a, 'mean', include_self=False)",
    "torch.zeros_like(a).index_add(0, torch.zeros(a.shape[0], dtype=torch.long), a, alpha=2)",
    "torch.ones_like(a).index_reduce(0, torch.zeros(a.shape[0], dtype=torch.long), a, 'prod')",
    "torch.zeros_like(a).index_put((torch.zeros(a.shape[0], dtype=torch.long),), a, accumulate=True)",
    "torch.searchsorted(a.sort(1).values, a)", "a.repeat_interleave(2, 0)", "torch.einsum('ij,ij->i', a, a)",
    "torch.cdist(a, a)", "torch.nn.functional.cosine_similarity(a, a)", "torch.logaddexp(a.sum(), a)",
]  # fmt: skip

# Where eager is exact, or says what it does; in all others the last bits are its library's.
CLOSE = (
    "exp", "log", "sin", "cos", "tan", "sqrt", "sigmoid", "erf", "gamma", "elu", "silu", "mish", "soft", "gelu",
    "ndtr", "entr", "i0", "pow", "**", "hypot", "std", "var", "norm", "mean", "sum", "prod", "@", "einsum",
    "cdist", "cosine", "cov", "quantile", "lerp", "addc", "logit", "angle", "polar", "trapezoid", "loss",
    "addmm", "mv", "dist", "sinc", "deg", "rad", "xlogy", "scatter", "index_", "avg", "glu", "gradient", "entropy",
)  # fmt: skip
MIXED = tuple(
    itertools.permutations(
        (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32,
         torch.int8, torch.uint8, torch.bool, torch.complex64), 2,
    )
)  # fmt: skip

TABLES: dict[
    str, tuple[list[str], Callable[..., Iterator[tuple[str, Operands]]], Sequence[Any]]
] = {
    "unary": (UNARY, _alone, [(one, None) for one in DTYPES]),
    "binary": (BINARY, _pairs, [(one, None) for one in DTYPES]),
    "along": (ALONG, _tables, [(one, None) for one in DTYPES]),
    "mixed": (BINARY, _pairs, MIXED),
}


@dataclass(frozen=True)
class Difference:
    """An expression that is not as in eager."""

    expression: str
    operands: str
    told: str

    def __str__(self) -> str:
        return f"{self.expression:60} {self.operands:34} {self.told}"


def function_of(expressions: Sequence[str], names: Sequence[str]) -> Callable[..., Any]:
    """A function that answers all of them."""
    body = ", ".join(expressions)
    source = f"import torch\nimport torch.nn.functional as F\ndef run({', '.join(names)}):\n    return ({body},)\n"
    space: dict[str, Any] = {}
    exec(compile(source, "<corners>", "exec"), space)
    found: Callable[..., Any] = space["run"]
    return found


def _kept(one: torch.Tensor) -> torch.Tensor:
    """The same numbers at the same strides, in memory of its own."""
    if any(step == 0 or step > one.numel() for step in one.stride()) or one.numel() < 2:
        return one.clone()
    size = 1 + sum((n - 1) * step for n, step in zip(one.shape, one.stride(), strict=True))
    memory = torch.zeros(size, dtype=one.dtype)
    return memory.as_strided(one.shape, one.stride()).copy_(one)


def outcome(function: Callable[..., Any], operands: Operands) -> Any:
    """The answers, or the class of what it raises."""
    torch.manual_seed(0)
    try:
        return function(*(_kept(one) for one in operands.values()))
    except Exception as error:
        return error


def differs(found: Any, wanted: Any, close: bool) -> str:
    """What differs, or nothing."""
    if isinstance(wanted, Exception):
        return (
            "" if isinstance(found, type(wanted)) else f"answers where eager raises {wanted!r:.120}"
        )
    if isinstance(found, Exception):
        return f"raises {found!r:.200}"
    if isinstance(wanted, tuple | list):
        if len(found) != len(wanted):
            return f"{len(found)} answers instead of {len(wanted)}"
        return next(
            (
                text
                for one, other in zip(found, wanted, strict=True)
                if (text := differs(one, other, close))
            ),
            "",
        )
    if not isinstance(wanted, torch.Tensor):
        return (
            ""
            if type(found) is type(wanted) and found == wanted
            else f"{found} instead of {wanted}"
        )
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        return f"{found.dtype} {tuple(found.shape)} instead of {wanted.dtype} {tuple(wanted.shape)}"
    if found.stride() != wanted.stride() and wanted.numel() > 1:
        return f"strides {found.stride()} instead of {wanted.stride()}"
    return _values_differ(found, wanted, close)


def _values_differ(found: torch.Tensor, wanted: torch.Tensor, close: bool) -> str:
    if wanted.dtype.is_complex:
        found, wanted = (torch.view_as_real(one.resolve_conj()) for one in (found, wanted))
    if wanted.dtype in FLOAT8:
        found, wanted = found.float(), wanted.float()
    if not wanted.dtype.is_floating_point:
        wrong = (
            found != wanted if wanted.dtype not in WIDE_UNSIGNED else found.long() != wanted.long()
        )
    else:
        wrong = found.isnan() != wanted.isnan()
        if close:
            about = torch.finfo(wanted.dtype)
            near = (
                found.double() - wanted.double()
            ).abs() <= about.eps * 32 * wanted.double().abs() + about.tiny * 8
            wrong = wrong | ~(near | (found == wanted) | wanted.isnan())
        else:
            wrong = wrong | ~((found == wanted) | wanted.isnan())
            wrong = wrong | (torch.signbit(found) != torch.signbit(wanted)) & ~wanted.isnan()
    if not wrong.any():
        return ""
    where = wrong.flatten().nonzero()[0].item()
    one, other = found.flatten()[where].item(), wanted.flatten()[where].item()
    return f"{int(wrong.sum())} of {wrong.numel()}, at {where}: {one} instead of {other}"


class Checking:
    """Goes through a table; what was found, and how programs ran."""

    def __init__(self) -> None:
        self.differences: list[Difference] = []
        self.ran: collections.Counter[str] = collections.Counter()
        self.asked = 0

    def table(self, expressions: Sequence[str], operands: Operands, name: str) -> None:
        """Those that eager answers together, those that it refuses one by one."""
        answered = []
        for one in expressions:
            if "b" not in operands and "b" in _names(one):
                continue
            wanted = outcome(function_of([one], list(operands)), operands)
            if isinstance(wanted, Exception):
                self._refused(one, operands, name, wanted)
            else:
                answered.append(one)
        for place in range(0, len(answered), TOGETHER):
            self._together(answered[place : place + TOGETHER], operands, name)

    def _refused(self, one: str, operands: Operands, name: str, wanted: Exception) -> None:
        if isinstance(wanted, AttributeError | NameError | NotImplementedError):
            return
        self.asked += 1
        self._tell(one, name, operands, self._run([one], operands), wanted)

    def _together(self, expressions: list[str], operands: Operands, name: str) -> None:
        self.asked += len(expressions)
        wanted = outcome(function_of(expressions, list(operands)), operands)
        found = self._run(expressions, operands)
        if isinstance(found, Exception) or isinstance(wanted, Exception):
            for one in expressions:
                alone = outcome(function_of([one], list(operands)), operands)
                self._tell(one, name, operands, self._run([one], operands), alone)
            return
        for one, ours, eagers in zip(expressions, found, wanted, strict=True):
            self._tell(one, name, operands, (ours,), (eagers,))

    def _tell(self, one: str, name: str, operands: Operands, found: Any, wanted: Any) -> None:
        close = any(word in one for word in CLOSE)
        told = differs(found, wanted, close)
        if told and not _eager_answers_both(one, operands, found, close):
            self.differences.append(Difference(one, name, told))
            print(self.differences[-1], flush=True)

    def _run(self, expressions: Sequence[str], operands: Operands) -> Any:
        torch.compiler.reset() if False else windfall.reset()
        compiled = windfall.compile(function_of(expressions, list(operands)))
        found = outcome(compiled, operands)
        if isinstance(found, Exception):
            self.ran["refused"] += 1
            return found
        told = windfall.explanation(compiled)
        kinds = {one.partition(":")[0][:40] for one in told.fallbacks}
        kinds |= {f"break W{one.number:04d}" for one in told.breaks}
        self.ran[", ".join(sorted(kinds)) or "native"] += 1
        return found


def _eager_answers_both(one: str, operands: Operands, found: Any, close: bool) -> bool:
    """Eager's vectors and its scalars do not always agree: what either says is right."""
    if isinstance(found, Exception):
        return False
    spread = {
        name: torch.stack([each, each], -1)[..., 0] if each.dtype not in FLOAT8 else each
        for name, each in operands.items()
    }
    dense = {name: each.contiguous() for name, each in operands.items()}
    return any(
        not differs(_dense(found), _dense(outcome(function_of([one], list(given)), given)), close)
        for given in (spread, dense)
    )


def _dense(answers: Any) -> Any:
    if isinstance(answers, Exception):
        return answers
    return tuple(one.contiguous() if isinstance(one, torch.Tensor) else one for one in answers)


def _names(expression: str) -> set[str]:
    return set(compile(expression, "<expression>", "eval").co_names)


def check(table: str, dtypes: Sequence[str] = (), only: str = "") -> Checking:
    """One table, or a part of it."""
    expressions, operands_of, kinds = TABLES[table]
    chosen = [one for one in expressions if only in one]
    checking = Checking()
    for pair in kinds:
        words = [str(one)[6:] for one in pair if one is not None]
        if dtypes and not set(dtypes) & set(words):
            continue
        for shape, operands in operands_of(*pair):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                checking.table(chosen, operands, f"{' '.join(words)}, {shape}")
    return checking


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("tables", nargs="*", default=list(TABLES))
    options.add_argument("--dtype", nargs="*", default=[])
    options.add_argument("--only", default="")
    chosen = options.parse_args()
    wrong = 0
    for table in chosen.tables or TABLES:
        done = check(table, chosen.dtype, chosen.only)
        wrong += len(done.differences)
        print(
            f"{table}: {done.asked} asked, {len(done.differences)} differ; programs:",
            dict(done.ran.most_common()),
        )
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
