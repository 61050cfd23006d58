"""Python's functions of numbers that vary: roots, logarithms, rounding.

Enters: calls of `math`'s functions, `int`, `round`, `min` and `max` with a number that varies among
the arguments. Leaves: a `SymFloat` in the graph, or a `SymInt`. Invariant: only where Python
answers something for every value that the number may have (`intervals.py`), and an integer only
where it is exact; else the value is needed. The graph computes in double precision, as Python does.

    x / math.sqrt(x.shape[-1])     sqrt(s0) in the graph
    math.ceil(n / 4)               (n + 3) // 4
    math.radians(angle)            angle * (pi / 180)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from windfall.dataclass import dataclass
from windfall.frontend import intervals
from windfall.frontend.intervals import Interval
from windfall.frontend.policy import Treatment
from windfall.frontend.values.base import Arguments, Keywords, Value
from windfall.frontend.values.calls import calls
from windfall.frontend.values.constant import COMPARE, Constant, fold
from windfall.frontend.values.number_calls import BUILTINS, operands
from windfall.frontend.values.numpy_scalars import NumpyScalar, dtype_of
from windfall.frontend.values.readings import INTEGRAL
from windfall.frontend.values.sequence import List, SequenceValue, Tuple
from windfall.frontend.values.symbolic import (
    SymFloat,
    SymInt,
    formula_of,
    made,
    needed_span,
    span_of,
)
from windfall.frontend.values.tensor import Tensor
from windfall.frontend.values.torchapi import treated
from windfall.ir.reading import is_among
from windfall.ir.relation import decide
from windfall.ir.symint import Size
from windfall.ops.number_ranges import holds, range_of

if TYPE_CHECKING:
    from windfall.frontend.services import Machine


@dataclass(frozen=True)
class _Function:
    """A function of `math` that grows (`turns`: that goes up and down between -1 and 1): torch's
    function, and where Python's one answers."""

    torch: Any
    low: float = -math.inf
    high: float = math.inf
    open: bool = False  # `low` itself is not in it
    turns: bool = False

    def accepts(self, span: Interval) -> bool:
        """Whether Python answers for all of a span."""
        above = span.low > self.low if self.open else span.low >= self.low
        return above and span.high <= self.high


_FUNCTIONS: dict[Any, _Function] = {
    math.sqrt: _Function(torch.sqrt, 0.0),
    math.log: _Function(torch.log, 0.0, open=True),
    math.log2: _Function(torch.log2, 0.0, open=True),
    math.log10: _Function(torch.log10, 0.0, open=True),
    math.log1p: _Function(torch.log1p, -1.0, open=True),
    math.exp: _Function(torch.exp, high=700.0),
    math.expm1: _Function(torch.expm1, high=700.0),
    math.tanh: _Function(torch.tanh),
    math.atan: _Function(torch.atan),
    math.erf: _Function(torch.erf),
    math.sin: _Function(torch.sin, turns=True),
    math.cos: _Function(torch.cos, turns=True),
}


def _varies(arguments: Arguments, keywords: Keywords) -> bool:
    return not keywords and any(isinstance(one, SymInt | SymFloat) for one in arguments)


def _known(machine: Machine, function: Any, row: _Function, value: Value) -> Interval | None:
    """Where a value lies, if the function answers for all of it; a float from outside is asked."""
    if isinstance(value, SymInt) and row.low >= 0:
        value.assume_positive(machine)
    span = span_of(machine, value)
    if span is None and isinstance(value, SymFloat) and value.source is not None:
        low = Constant(row.low)
        if math.isfinite(row.low) and row.high == math.inf:
            asked = value.compare(machine, ">" if row.open else ">=", low)
            finite = value.compare(machine, "<", Constant(math.inf))
            good = [one for one in (asked, finite) if one is not None and one.truth(machine)]
            return (
                Interval(math.nextafter(row.low, 1) if row.open else row.low, 1e299)
                if (len(good) == 2)
                else None
            )
    if span is None or not row.accepts(span):
        span = needed_span(machine, value)
    return span if span is not None and row.accepts(span) else None


def _in_graph(function: Any, row: _Function) -> None:
    def rule(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
        if len(arguments) != 1 or not _varies(arguments, keywords):
            return fold(machine, function, arguments, keywords)
        span = _known(machine, function, row, arguments[0])
        formula = formula_of(machine, function, arguments)
        tried = None if span is not None or formula is None else formula.tried_span()
        if span is None and tried is None:
            return fold(machine, function, arguments, keywords)
        mine = SymFloat.of(machine, arguments[0])
        before, idle = machine.graph.mark(), machine.graph.idle
        result = machine.values.torch_call("call_function", row.torch, [mine.held], {})
        machine.graph.scalars += machine.graph.mark() - before
        machine.graph.idle = idle
        if span is not None:
            ends = (-1.0, 1.0) if row.turns else (function(span.low), function(span.high))
            tried = Interval(*ends)
        return SymFloat(result, mine.names, span=tried, formula=formula)

    calls(function)(rule)


for _function, _row in _FUNCTIONS.items():
    _in_graph(_function, _row)


_UNITS = {math.radians: math.pi / 180.0, math.degrees: 180.0 / math.pi}


def _converted(function: Any, factor: float) -> None:
    """A product with a constant, as C computes it."""

    def rule(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
        if len(arguments) == 1 and _varies(arguments, keywords):
            scale = machine.values.literal(factor)
            found = SymFloat.of(machine, arguments[0]).binary(machine, "*", scale)
            if found is not None:
                return found
        return fold(machine, function, arguments, keywords)

    calls(function)(rule)


for _function, _factor in _UNITS.items():
    _converted(_function, _factor)


@calls(math.pow)
def _power(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    if len(arguments) == 2 and _varies(arguments, keywords):
        base, exponent = arguments
        for one in arguments:
            if isinstance(one, SymInt):
                one.assume_positive(machine)
        pair = [needed_span(machine, one) for one in arguments]
        if intervals.cannot_raise("**", *pair):
            found = SymFloat.of(machine, base).binary(machine, "**", SymFloat.of(machine, exponent))
            if found is not None:
                return found
    return fold(machine, math.pow, arguments, keywords)


@calls(math.prod)
def _product(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    """Of a sequence of sizes."""
    (first, *rest) = arguments or (None,)
    short = isinstance(first, SequenceValue) and not first.is_long(machine)
    items = first.items(machine) if short and isinstance(first, SequenceValue) else []
    total: Value | None = keywords.get("start", machine.values.literal(1))
    if rest or set(keywords) - {"start"} or not _varies([*items, *keywords.values()], {}):
        return fold(machine, math.prod, arguments, keywords)
    for one in items:
        total = operands(machine, "*", total, one) if total is not None else None
    return fold(machine, math.prod, arguments, keywords) if total is None else total


# --------------------------------------------------------------------------------- to integers


def _cut(cut: Callable[[Interval | None], Size | None]) -> Callable[..., Value | None]:
    def rule(machine: Machine, arguments: Arguments) -> Value | None:
        if len(arguments) != 1:
            return None
        (value,) = arguments
        if isinstance(value, SymInt):
            return value
        size = cut(span_of(machine, value))
        return None if size is None else made(machine, size)

    return rule


BUILTINS[int] = _cut(intervals.truncated)
BUILTINS[round] = _cut(intervals.rounded)


def _as_integer(function: Any, cut: Callable[[Interval | None], Size | None]) -> None:
    convert = _cut(cut)

    def rule(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
        found = convert(machine, arguments) if _varies(arguments, keywords) else None
        return fold(machine, function, arguments, keywords) if found is None else found

    calls(function)(rule)


_as_integer(math.floor, intervals.floor)
_as_integer(math.ceil, intervals.ceiling)
_as_integer(math.trunc, intervals.truncated)


# ------------------------------------------------------------------------------------- extremes


_MIRRORED = {"<": ">", ">": "<"}


def _chosen(machine: Machine, sign: str, first: SymFloat, second: SymFloat) -> Value:
    """In the graph: the second where it is beyond the first, which a NaN never is."""
    call = machine.values.torch_call
    beyond = call("call_function", COMPARE[sign], [second.held, first.held], {})
    held = call("call_function", torch.where, [beyond, second.held, first.held], {})
    bound = needed_span(machine, first)
    if bound is None:
        return SymFloat(held, first.names | second.names)
    low, high = (-math.inf, bound.high) if sign == "<" else (bound.low, math.inf)
    other = needed_span(machine, second)
    if other is not None:
        choose = min if sign == "<" else max
        low, high = choose(bound.low, other.low), choose(bound.high, other.high)
    return SymFloat(held, first.names | second.names, span=Interval(low, high))


def _extreme(function: Any, sign: str) -> None:
    """Of two numbers, one of them a float: the second one where it is beyond the first."""
    integers = BUILTINS[function]

    def rule(machine: Machine, arguments: Arguments) -> Value | None:
        found = integers(machine, arguments)
        if found is not None or len(arguments) != 2:
            return found
        first, second = arguments
        sizes = intervals.compared(span_of(machine, second), span_of(machine, first))
        if sizes is not None:
            return second if decide(sign, *sizes) else first
        told = None
        if isinstance(second, SymFloat):
            told = second.told(machine, sign, first)
        elif isinstance(first, SymFloat):
            told = first.told(machine, _MIRRORED[sign], second)
        if told is not None:
            return second if told else first
        varies = any(isinstance(one, SymFloat) for one in arguments)
        if not varies or not all(one.python_type() is float for one in arguments):
            return None  # what is answered may be an integer
        return _chosen(machine, sign, SymFloat.of(machine, first), SymFloat.of(machine, second))

    BUILTINS[function] = rule


_extreme(min, "<")
_extreme(max, ">")


def _absolute(machine: Machine, arguments: Arguments) -> Value | None:
    found = _ABSOLUTE(machine, arguments)
    (value,) = arguments
    if found is None and isinstance(value, SymFloat) and value.span is not None:
        if value.span.low >= 0:
            return value
        return value.unary(machine, "-") if value.span.high < 0 else None
    return found


_ABSOLUTE = BUILTINS[abs]
BUILTINS[abs] = _absolute


def _raised(machine: Machine, arguments: Arguments) -> Value | None:
    return operands(machine, "**", *arguments) if len(arguments) == 2 else None


BUILTINS[pow] = _raised


# --------------------------------------------------------------------------- numbers in tensors


@calls(torch.full)
def _full(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    """A float that varies is filled in: it is a tensor of the graph."""
    named = dict(keywords)
    value = arguments[1] if len(arguments) == 2 else named.pop("fill_value", None)
    if not isinstance(value, SymFloat) or "out" in named or not arguments:
        return treated(machine, Treatment.GRAPH, torch.full, arguments, keywords)
    kind = named.get("dtype", machine.values.literal(None)).as_constant(machine)
    kind = torch.get_default_dtype() if kind is None else kind
    if not kind.is_floating_point and not kind.is_complex:
        return treated(machine, Treatment.GRAPH, torch.full, arguments, keywords)
    value.guard_type(machine)
    value.rely_on_range(machine, kind)
    fresh = machine.values.torch_call("call_function", torch.empty, [arguments[0]], named)
    return machine.values.torch_call("call_method", "fill_", [fresh, value.held], {})


@calls(torch.full_like)
def _full_like(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    """Likewise, in the dtype of a tensor."""
    named = dict(keywords)
    value = arguments[1] if len(arguments) == 2 else named.pop("fill_value", None)
    like = arguments[0] if arguments else None
    if (
        not isinstance(value, SymFloat)
        or not isinstance(like, Tensor)
        or "dtype" in named
        or like.fake(machine).dtype not in (torch.float32, torch.float64)
    ):
        return treated(machine, Treatment.GRAPH, torch.full_like, arguments, keywords)
    value.guard_type(machine)
    value.rely_on_range(machine, like.fake(machine).dtype)
    fresh = machine.values.torch_call("call_function", torch.empty_like, [like], named)
    return machine.values.torch_call("call_method", "fill_", [fresh, value.held], {})


def _as_data(function: Any) -> None:
    def rule(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
        return _tensor(machine, function, arguments, keywords)

    calls(function)(rule)


def _tensor(machine: Machine, function: Any, arguments: Arguments, keywords: Keywords) -> Value:
    """Of a float that varies, or of a list with such in it; of a scalar of NumPy, whose dtype is
    the tensor's."""
    values = machine.values
    (data, *rest) = arguments or (None,)
    if isinstance(data, NumpyScalar) and not rest and "dtype" not in keywords:
        kind = values.literal(dtype_of(data))
        plain = values.literal(data.as_constant(machine).item())
        return treated(machine, Treatment.GRAPH, function, [plain], {**keywords, "dtype": kind})
    table = None if data is None else _table(machine, data)
    numbers, sizes = ([], []) if table is None else table
    varies = any(isinstance(one, SymFloat) for one in numbers)
    if not varies or rest or not keywords.keys() <= {"dtype"}:
        return treated(machine, Treatment.GRAPH, function, arguments, keywords)
    kind = keywords.get("dtype", values.literal(None))
    if kind.as_constant(machine) is None:
        kind = values.literal(torch.get_default_dtype())
    if not all(_fits(machine, one, kind.as_constant(machine)) for one in numbers):
        return treated(machine, Treatment.GRAPH, function, arguments, keywords)
    held = [SymFloat.of(machine, one).held for one in numbers]
    made = values.torch_call("call_function", torch.stack, [values.tuple(held)], {})
    if not sizes:
        made = values.torch_call("call_method", "squeeze", [made, values.literal(0)], {})
    elif len(sizes) > 1:
        shape = [values.literal(one) for one in sizes]
        made = values.torch_call("call_method", "view", [made, *shape], {})
    return values.torch_call("call_method", "to", [made, kind], {})


def _fits(machine: Machine, number: Value, kind: torch.dtype) -> bool:
    """Whether a number becomes one of a dtype without eager refusing it: that is relied upon of
    those that vary."""
    if kind not in INTEGRAL:
        return True
    low, high = range_of(kind)
    if isinstance(number, SymInt):
        return False
    if isinstance(number, SymFloat):
        most = 1 << 53  # whose ends are floats
        number.rely_on_bounds(machine, max(low, -most), min(high, most), f"{kind}")
        return True
    return isinstance(number, Constant) and holds(kind, number.as_constant(machine))


_MOST = 64  # numbers of a table that are taken one by one


def _table(machine: Machine, data: Value) -> tuple[list[Value], list[int]] | None:
    """The numbers of a number, or of lists in lists of which all are as long, and those lengths;
    None: it is something else."""
    if not isinstance(data, List | Tuple):
        number = is_among(data.python_type(), (int, float))
        return ([data], []) if number else None
    if data.is_long(machine):
        return None
    tables = [_table(machine, one) for one in data.items(machine)]
    known = [one for one in tables if one is not None]
    if not known or len(known) < len(tables) or any(one[1] != known[0][1] for one in known):
        return None
    numbers = [number for table in known for number in table[0]]
    return None if len(numbers) > _MOST else (numbers, [len(tables), *known[0][1]])


_as_data(torch.tensor)
_as_data(torch.as_tensor)  # a number has no memory to share
