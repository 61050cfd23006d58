"""Numbers that vary from call to call: known by name while the program is captured, not by value.

Enters: integers and floats from outside that are known to vary, sizes that depend on such. Leaves:
`SymInt`, an expression over symbols, and `SymFloat`, a tensor without dimensions in the graph.
Invariant: arithmetic is Python's; a comparison of integers is decided as in the call being compiled
and becomes a guard; whatever needs the value itself is a `Specialise`: the capture begins again
with that number fixed.

    n = x.shape[0]      SymInt s0
    x.view(n // 2, -1)  s0//2 in the graph
    if n > 4:           guard: s0 > 4

One file: integers and floats become one another in every operation.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from windfall.errors import Narrow, Specialise
from windfall.frontend import intervals
from windfall.frontend.contents import Content, Formula, number
from windfall.frontend.size_symbols import python_text
from windfall.frontend.values.base import Arguments, Keywords, Value
from windfall.frontend.values.constant import BINARY, COMPARE, Constant, fold
from windfall.frontend.values.tensor import Tensor
from windfall.frontend.values.wrap import wraps
from windfall.ir.dtype import TensorType
from windfall.ir.guard import BindsSymbol, Compares, ComparesWith, TypeIs
from windfall.ir.reading import is_among
from windfall.ir.relation import OPPOSITE, Relation, decide, told
from windfall.ir.source import ScalarOf, Source
from windfall.ir.symint import (
    Atom,
    Expression,
    Size,
    bounds,
    floor_divide,
    hint_of,
    modulo,
    reads_of,
    symbols_of,
)
from windfall.ops.fake import fake
from windfall.ops.number_ranges import range_of, rely_on_bound
from windfall.ops.symbolic import as_torch, from_torch

if TYPE_CHECKING:
    from windfall.frontend.recipe import Recipe
    from windfall.frontend.services import Machine


def _power(machine: Machine, left: Size, right: Size) -> Size | None:
    if not isinstance(right, int) or not 0 <= right <= 4:
        return None
    result: Size = 1
    for _ in range(right):
        result = result * left
    return result


def _divided(operation: Callable[[Size, Size], Size]) -> Any:
    def rule(machine: Machine, left: Size, right: Size) -> Size | None:
        return operation(left, right) if decide("!=", right, 0) else None

    return rule


def _shifted_left(machine: Machine, left: Size, right: Size) -> Size | None:
    return left * (1 << right) if isinstance(right, int) and 0 <= right < 31 else None


def _shifted_right(machine: Machine, left: Size, right: Size) -> Size | None:
    fits = isinstance(right, int) and 0 <= right < 31
    return floor_divide(left, 1 << right) if fits and isinstance(right, int) else None


# None: there is no expression for it, the values are needed.
_ARITHMETIC: dict[str, Callable[[Machine, Size, Size], Size | None]] = {
    "+": lambda machine, left, right: left + right,
    "-": lambda machine, left, right: left - right,
    "*": lambda machine, left, right: left * right,
    "//": _divided(floor_divide),
    "%": _divided(modulo),
    "**": _power,
    "<<": _shifted_left,
    ">>": _shifted_right,
}


def _names(size: Size) -> frozenset[str]:
    return frozenset(atom.key for atom in symbols_of(size))


_LONGEST = 1000  # characters of an expression
_FEW = 16  # values of an expression, each of which may have code of its own


class Varying(Value):
    """The base of kinds whose value is another in the next call: `names` are those of the symbols
    and floats that it depends on."""

    __slots__ = ()
    names: frozenset[str]
    needed_by = "a step of Python's own"

    def describe(self) -> str:
        """Which it is."""
        return f"{self.made_of.__name__} {', '.join(sorted(self.names))}"

    def is_constant(self) -> bool:
        """It can be made one."""
        return True

    def as_constant(self, machine: Machine) -> Any:
        """The value is needed: it does not vary, then."""
        raise Specialise(self.names, self.needed_by, machine.frames.where())


class SymInt(Varying):
    """An integer that is an expression over symbols."""

    __slots__ = ("size",)
    made_of = int

    def __init__(self, size: Expression, source: Source | None = None) -> None:
        super().__init__(source)
        self.size = size

    @property
    def names(self) -> frozenset[str]:  # type: ignore[override]
        """The symbols of the expression."""
        return _names(self.size)

    def describe(self) -> str:
        """The expression."""
        return f"int {self.size}"

    def guard_type(self, machine: Machine) -> None:
        """It is bound."""
        self.bound(machine)

    def bound(self, machine: Machine) -> Expression:
        """The expression; relies on the range of one from outside."""
        if self.source is not None:
            self.guard(machine, "binds", BindsSymbol(self.size), "a number that varies")
        return self.size

    def as_constant(self, machine: Machine) -> Any:
        """The value is needed: where there are few that it can be (`n % 10`), code for this one
        holds for all `n` that lead to it."""
        size = self.bound(machine)
        low, high = bounds(size)
        few = low is not None and high is not None and high - low < _FEW
        if not few or reads_of(size):
            return super().as_constant(machine)
        value = hint_of(size)
        decide("==", size, value)
        return value

    def graph_argument(self, machine: Machine) -> tuple[Any, Any]:
        """The node, torch's own symbolic integer."""
        return self.argument(machine, frozenset())

    def argument(self, machine: Machine, free: frozenset[Atom]) -> tuple[Any, Any]:
        """Likewise; `free` are symbols that may be 0 or 1, because no size depends on them."""
        size = self.bound(machine)
        if not reads_of(size) and hint_of(size) > 1:
            wide = frozenset(one.key for one in size.symbols - free if not known_at_least_two(one))
            if wide:
                raise Narrow(wide, f"{size} as a size", machine.frames.where())
        return machine.graph.size_node(size), as_torch(size)

    def operand(self, machine: Machine, beside: Tensor, operation: str = "") -> Value:
        """As a tensor without dimensions, of the dtype that Python's integers take there: which has
        to hold it. Of integers eager refuses negative powers."""
        kind = beside.fake(machine).dtype
        kind = torch.int64 if kind is torch.bool else kind
        low, high = range_of(kind)
        if operation in _POWERS and not (kind.is_floating_point or kind.is_complex):
            low = 0
        self._rely_on_bounds(machine, low, high, f"{operation or 'an operation'} of {kind}")
        return _scalar_tensor(machine, self, kind)

    def _rely_on_bounds(self, machine: Machine, low: int, high: int, purpose: str) -> None:
        """Rely on it that it lies there. What is read from data the graph looks at: where it does
        not hold, eager does all of it."""
        size = self.bound(machine)
        for operation, limit in ((">=", low), ("<=", high)):
            if reads_of(size) and told(operation, size, limit) is None:
                if abs(limit) >= (1 << 63) - 1:
                    continue  # all integers that are read
                number = _scalar_tensor(machine, self, torch.int64)
                sides = [number, machine.values.literal(limit)]
                condition = machine.values.torch_call(
                    "call_function", COMPARE[operation], sides, {}
                )
                if machine.values.made_sure(condition):
                    machine.symbols.assumed.tell(Relation(operation, size, limit))
            rely_on_bound(size, operation, limit, purpose)

    # ------------------------------------------------------------------------------ arithmetic

    def binary(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """An expression, where there is one."""
        return self._with(machine, operation, other, False)

    def reflected(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """An expression whose second operand is this."""
        return self._with(machine, operation, other, True)

    def _with(self, machine: Machine, operation: str, other: Value, swapped: bool) -> Value | None:
        size = as_size(machine, other)
        if size is None:
            if other.python_type() is not float:
                return None
            if operation == "**" and swapped and not decide(">=", self.bound(machine), 0):
                return fold(machine, BINARY[operation], [other, self], {})
            if operation in ("/", "**"):
                self.assume_positive(machine)
            mine = SymFloat.of(machine, self)
            return (
                mine.reflected(machine, operation, other)
                if swapped
                else mine.binary(machine, operation, other)
            )
        pair = (size, self.bound(machine)) if swapped else (self.bound(machine), size)
        if operation == "/":
            return _quotient(machine, *pair)
        rule = _ARITHMETIC.get(operation)
        result = rule(machine, *pair) if rule is not None else None
        if result is None and operation == "**" and isinstance(pair[1], int) and pair[1] < 0:
            return SymFloat.of(machine, self).binary(machine, operation, other)
        if result is None:
            order = [other, self] if swapped else [self, other]
            return fold(machine, BINARY[operation], order, {})
        if isinstance(result, Expression) and len(str(result)) > _LONGEST:
            # As of a number that a long loop works on: each step would double it.
            raise Specialise(
                _names(result), "a number that goes through many steps", machine.frames.where()
            )
        return made(machine, result)

    def assume_positive(self, machine: Machine) -> None:
        """Rely on it, where it is so now: then roots, logarithms and quotients answer something."""
        size = self.bound(machine)
        if not reads_of(size) and hint_of(size) > 0:
            decide(">=", size, 1)

    def formula(self, machine: Machine) -> Formula | None:
        """As a float that is computed of a counter, if it is one."""
        return machine.graph.contents.of_integer(self.bound(machine))

    def unary(self, machine: Machine, operation: str) -> Value:
        """Signs; the rest needs the value."""
        if operation == "-":
            return made(machine, 0 - self.bound(machine))
        if operation == "+":
            return made(machine, self.bound(machine))
        if operation == "not":
            return machine.values.literal(not self.truth(machine))
        return made(machine, -1 - self.bound(machine))

    def compare(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """Decided as in the call being compiled."""
        size = as_size(machine, other)
        if size is None and operation in ("==", "!=") and _is_no_number(other):
            self.guard_type(machine)
            other.guard_type(machine)
            return machine.values.literal(operation == "!=")
        if size is None:
            return (
                None
                if other.python_type() is not float
                else fold_compare(machine, operation, self, other)
            )
        return question(machine, operation, self.bound(machine), size)

    def truth(self, machine: Machine) -> bool | Value:
        """Whether it is not 0."""
        return decide("!=", self.bound(machine), 0)

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """Methods and fields of integers."""
        if name in ("real", "numerator"):
            return self
        if not _has(int, name):
            raise machine.values.no_attribute(self, name, f"'int' object has no attribute '{name}'")
        return machine.values.method(self, name)

    def call_method(
        self, machine: Machine, name: str, arguments: Arguments, keywords: Keywords
    ) -> Value:
        """The value is needed."""
        return fold(machine, getattr(int, name), [self, *arguments], keywords)

    def rebuild(self, recipe: Recipe) -> str:
        """Computed again from where its symbols are read."""
        return python_text(self.size, recipe.symbol_names(self.size))


class _Amount(SymInt):
    """An integer that goes into the graph as a number, not as a size: any will do."""

    __slots__ = ()

    def graph_argument(self, machine: Machine) -> tuple[Any, Any]:
        """The node, torch's own symbolic integer."""
        return machine.graph.size_node(self.size), as_torch(self.size)


class Question(Value):
    """A comparison with a number that is read from data: its truth is seldom known, but the program
    may make sure of it (`torch._check`)."""

    __slots__ = ("relation",)
    made_of = bool

    def __init__(self, relation: Relation) -> None:
        super().__init__()
        self.relation = relation

    def describe(self) -> str:
        """The comparison."""
        return str(self.relation)

    def is_constant(self) -> bool:
        """It can be made one."""
        return True

    def as_constant(self, machine: Machine) -> Any:
        """Whether it holds."""
        return self.truth(machine)

    def truth(self, machine: Machine) -> bool:
        """Whether it holds: where that is known by now."""
        one = self.relation
        return decide(one.operation, one.left, one.right)

    def is_told(self) -> bool:
        """Whether its truth is known by now."""
        one = self.relation
        return told(one.operation, one.left, one.right) is not None

    def unary(self, machine: Machine, operation: str) -> Value:
        """The opposite; other operations need the truth."""
        if operation == "not":
            one = self.relation
            return question(machine, OPPOSITE[one.operation], one.left, one.right)
        return machine.values.literal(self.truth(machine)).unary(machine, operation)

    def binary(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """As of a bool."""
        return machine.values.literal(self.truth(machine)).binary(machine, operation, other)

    def reflected(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """As of a bool."""
        return other.binary(machine, operation, machine.values.literal(self.truth(machine)))

    def compare(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """As of a bool."""
        return machine.values.literal(self.truth(machine)).compare(machine, operation, other)

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """As of a bool."""
        return machine.values.literal(self.truth(machine)).get_attribute(machine, name)

    def rebuild(self, recipe: Recipe) -> str:
        """Compared again."""
        one = self.relation
        sides = []
        for each in (one.left, one.right):
            names = recipe.symbol_names(each) if isinstance(each, Expression) else {}
            sides.append(python_text(each, names))
        return f"({sides[0]} {one.operation} {sides[1]})"


def _is_no_number(value: Value) -> bool:
    """Whether no number is equal to it, whatever the number."""
    return isinstance(value, Constant) and is_among(value.python_type(), (type(None), str, bytes))


def _has(kind: type, name: str) -> bool:
    """Whether instances have an attribute: unlike `hasattr` of the class, not those of `type`."""
    return any(name in vars(base) for base in kind.__mro__)


def question(machine: Machine, operation: str, left: Size, right: Size) -> Value:
    """A comparison: decided as in the call being compiled, unless it is about data."""
    if reads_of(left, right) and told(operation, left, right) is None:
        return Question(Relation(operation, left, right))
    return machine.values.literal(decide(operation, left, right))


def known_at_least_two(atom: Atom) -> bool:
    """Whether a symbol is one of a size."""
    return atom.low is not None and atom.low >= 2


def fold_compare(machine: Machine, operation: str, left: Value, right: Value) -> Value:
    """A comparison that needs the values."""
    return fold(machine, COMPARE[operation], [left, right], {})


def made(machine: Machine, size: Size) -> Value:
    """The value of a size."""
    return machine.values.literal(size) if isinstance(size, int) else SymInt(size)


def as_size(machine: Machine, value: Value) -> Size | None:
    """The integer that a value is; None: it is none."""
    if isinstance(value, SymInt):
        return value.bound(machine)
    if isinstance(value, Constant) and type(value.value) in (int, bool):
        return int(value.as_constant(machine))
    return None


def place_arguments(machine: Machine, parts: Sequence[Value]) -> list[tuple[Any, Any]]:
    """The arguments in the graph of the parts of a slice. A place is no size: what both ends have
    in common, so that the length is without it, may be 0 and 1 too."""
    ends = [one.bound(machine) for one in parts[:2] if isinstance(one, SymInt)]
    free = frozenset[Atom]()
    if len(ends) == 2:
        free = symbols_of(ends[0]) - symbols_of(ends[1] - ends[0])
    return [
        one.argument(machine, free) if isinstance(one, SymInt) else one.graph_argument(machine)
        for one in parts
    ]


def _quotient(machine: Machine, left: Size, right: Size) -> Value:
    if not decide("!=", right, 0):
        raise machine.values.raised(ZeroDivisionError("division by zero"))
    parts = [SymFloat.of(machine, made(machine, one)) for one in (left, right)]
    return SymFloat(
        machine.values.torch_call("call_function", BINARY["/"], [one.held for one in parts], {}),
        _names(left) | _names(right),
        span=intervals.combined("/", intervals.of_size(left), intervals.of_size(right)),
    )


def _scalar_tensor(machine: Machine, value: Value, kind: torch.dtype) -> Tensor:
    if isinstance(value, SymInt):
        value = _Amount(value.bound(machine))
        # Half precision would round it, which some of eager's kernels do and others do not.
        kind = torch.int64 if kind in (torch.bfloat16, torch.float16) else kind
    keywords = {"dtype": machine.values.literal(kind)}
    result = machine.values.torch_call("call_function", torch.scalar_tensor, [value], keywords)
    assert isinstance(result, Tensor)
    return result


# ---------------------------------------------------------------------------------------- floats


_HUGE = 1e30
_POWERS = ("**", "pow")
# Where eager refuses floats that the dtype of the tensor does not hold.
_REFUSING = frozenset(("masked_fill", "clamp", "fill", "alpha", "value"))


class SymFloat(Varying):
    """A float that varies: `held` is a float64 tensor of the graph without dimensions."""

    __slots__ = ("_known", "formula", "held", "names", "read_as", "span", "value")
    made_of = float

    def __init__(
        self,
        held: Value,
        names: frozenset[str],
        source: Source | None = None,
        value: float | None = None,
        span: intervals.Interval | None = None,
        formula: Formula | None = None,
        known: Callable[[], intervals.Interval | None] | None = None,
        read_as: torch.dtype | None = None,
    ) -> None:
        super().__init__(source)
        self.held = held
        self.names = names
        self.span = span  # where it lies, if that is known
        self.formula = formula  # how it is computed of a counter, of which more can be known
        self._known = known  # where it lies, if that is relied upon
        self.value = value  # in the call being compiled, of one from outside
        self.read_as = read_as  # the dtype of the tensor that it is read from

    @classmethod
    def of(cls, machine: Machine, value: Value) -> SymFloat:
        """A number as a float of the graph."""
        if isinstance(value, SymFloat):
            return value.used(machine)
        names = _names(value.size) if isinstance(value, SymInt) else frozenset[str]()
        formula = value.formula(machine) if isinstance(value, SymInt) else None
        span = span_of(machine, value)
        if isinstance(value, Constant):
            value = machine.values.literal(float(value.as_constant(machine)))
        held = _scalar_tensor(machine, value, torch.float64)
        return cls(held, names, span=span, formula=formula)

    def used(self, machine: Machine) -> SymFloat:
        """Itself; relies on the class of one from outside."""
        self.guard_type(machine)
        return self

    def needed_span(self, machine: Machine) -> intervals.Interval | None:
        """Where it lies, relying on more than what is known already."""
        if self.span is None and self.source is not None and self.value is not None:
            self.span = self._relied_span(machine, self.value)
        if self.span is None and self.formula is not None:
            self.span = self.formula.span()
        if self.span is None and self._known is not None:
            self.span = self._known()
        return self.span

    def _relied_span(self, machine: Machine, value: float) -> intervals.Interval | None:
        """Of one from outside: its sign stays, it is no huge number, and a fraction stays below
        one (no power of it with a count is too large, or one: Adam's averages)."""
        if not 0 < abs(value) <= _HUGE:
            return None
        least, most = math.nextafter(0, 1), math.nextafter(1, 0) if abs(value) < 1 else _HUGE
        ends = (least, most) if value > 0 else (-most, -least)
        for operation, end in zip((">=", "<="), ends, strict=True):
            self._decided(machine, operation, end)
        return intervals.Interval(*ends)

    def operand(self, machine: Machine, beside: Tensor, operation: str = "") -> Value:
        """The tensor, in a dtype in which it promotes as Python's floats do."""
        self.guard_type(machine)
        other = beside.fake(machine)
        if other.dtype in (torch.float16, torch.bfloat16) or operation in _REFUSING:
            self.rely_on_range(machine, other.dtype)
        if other.dtype.is_floating_point or other.dtype.is_complex:
            if other.dim():
                return self.held
            kind = other.dtype
        else:
            kind = torch.get_default_dtype()
        return self.as_tensor(machine, kind)

    def rely_on_range(self, machine: Machine, kind: torch.dtype) -> None:
        """Rely on it that a dtype holds it: what does not fit, eager refuses, or makes infinite
        before it computes."""
        if not kind.is_floating_point and not kind.is_complex:
            kind = torch.get_default_dtype()
        most = torch.finfo(kind).max
        own = self.read_as
        if kind in (torch.float64, torch.complex128) or (own and torch.finfo(own).max <= most):
            return
        self.rely_on_bounds(machine, -most, most, f"{kind}", nan=True)

    def rely_on_bounds(
        self, machine: Machine, low: float, high: float, purpose: str, *, nan: bool = False
    ) -> None:
        """Rely on it that it lies there; `nan`: or is none at all."""
        if self.source is not None and self.value is not None:
            if not low <= self.value <= high:
                reason = Specialise(self.names, purpose, machine.frames.where())
                reason.passing = True  # others fit
                raise reason
            for operation, end in ((">=", low), ("<=", high)):
                self._decided(machine, operation, end)
            return
        if self.span is not None and low <= self.span.low and self.span.high <= high:
            return
        call, literal = machine.values.torch_call, machine.values.literal
        for within, beyond, end in ((">=", "<", low), ("<=", ">", high)):
            sides = [self.held, literal(end)]
            condition = call("call_function", COMPARE[beyond if nan else within], sides, {})
            if nan:
                condition = call("call_method", "logical_not", [condition], {})
            if not machine.values.made_sure(condition):
                self.as_constant(machine)
                return

    def as_tensor(self, machine: Machine, kind: torch.dtype) -> Value:
        """The tensor, in this dtype."""
        made = machine.values.torch_call(
            "call_method", "to", [self.held, machine.values.literal(kind)], {}
        )
        if isinstance(made, Tensor):
            machine.graph.contents.numbers[made.node(machine)] = lambda: self.needed_span(machine)
        return made

    def binary(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """In the graph, where Python cannot raise."""
        return self._with(machine, operation, other, False)

    def reflected(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """In the graph too, with this as the second operand."""
        return self._with(machine, operation, other, True)

    def _with(self, machine: Machine, operation: str, other: Value, swapped: bool) -> Value | None:
        if not is_among(other.python_type(), (float, int, bool)):
            return None
        order: list[Value] = [other, self] if swapped else [self, other]
        formula = formula_of(machine, BINARY[operation], order)
        ordered = [span_of(machine, one) for one in order]
        span: intervals.Interval | None = None
        if not intervals.cannot_raise(operation, *ordered):
            ordered = [needed_span(machine, one) for one in order]
        if intervals.cannot_raise(operation, *ordered):
            span = intervals.combined(operation, *ordered)
        else:
            span = None if formula is None else formula.tried_span()
            if span is None:
                return fold(machine, BINARY[operation], order, {})
        before, idle = machine.graph.mark(), machine.graph.idle
        mine, its = self.used(machine), SymFloat.of(machine, other)
        pair = [its.held, mine.held] if swapped else [mine.held, its.held]
        result = machine.values.torch_call("call_function", BINARY[operation], pair, {})
        # A loop that works on numbers only does nothing with tensors, though it grows the graph.
        machine.graph.scalars += machine.graph.mark() - before
        machine.graph.idle = idle
        known = functools.partial(_combined, machine, operation, order)
        return SymFloat(result, mine.names | its.names, span=span, formula=formula, known=known)

    def unary(self, machine: Machine, operation: str) -> Value:
        """The sign; the rest needs the value."""
        if operation != "-":
            return fold(machine, lambda value: value, [self], {})
        self.guard_type(machine)
        span = intervals.combined("-", intervals.of_number(0.0), self.span)
        held = machine.values.torch_call("call_method", "neg", [self.held], {})
        formula = formula_of(machine, operator.neg, [self])
        return SymFloat(held, self.names, span=span, formula=formula)

    def compare(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """Of one from outside with a constant, or with another one from outside: decided as in the
        call being compiled."""
        if not is_among(other.python_type(), (float, int, bool)):
            return None
        if isinstance(other, Constant):
            decided = self._decided(machine, operation, other.as_constant(machine))
        else:
            decided = self._decided(machine, operation, None) if other is self else None
        if decided is None and isinstance(other, SymFloat):
            decided = self._decided_beside(machine, operation, other)
        sizes = intervals.compared(self.span, span_of(machine, other))
        if decided is None and sizes is not None:
            return machine.values.literal(decide(operation, *sizes))
        if decided is None:
            decided = self.told(machine, operation, other)
        if decided is None:
            return fold_compare(machine, operation, self, other)
        return machine.values.literal(decided)

    def told(self, machine: Machine, operation: str, other: Value) -> bool | None:
        """What bounds tell, or a formula at all counts that were tried."""
        mine, its = self.needed_span(machine), needed_span(machine, other)
        found = None if mine is None or its is None else intervals.ordered(operation, mine, its)
        formula = formula_of(machine, COMPARE[operation], [self, other]) if found is None else None
        return found if formula is None else formula.decided()

    def _decided(self, machine: Machine, operation: str, other: float | None) -> bool | None:
        if self.source is None or self.value is None:
            return None
        check = Compares(operation, other, True)
        if not check.holds(self.value):
            check = Compares(operation, other, False)
        self.guard(machine, check, check, "a branch")
        return check.outcome

    def _decided_beside(self, machine: Machine, operation: str, other: SymFloat) -> bool | None:
        if self.value is None or other.value is None or self.source is None or other.source is None:
            return None
        check = ComparesWith(operation, other.source, True)
        if not check.holds(self.value, other.value):
            check = ComparesWith(operation, other.source, False)
        self.guard(machine, check, check, "a branch")
        return check.outcome

    def truth(self, machine: Machine) -> bool | Value:
        """Whether it is not 0."""
        decided = self._decided(machine, "!=", 0.0)
        if decided is None and self.span is not None and self.span.ratio is not None:
            return decide("!=", self.span.ratio[0], 0)
        if decided is None:
            decided = self.told(machine, "!=", machine.values.literal(0.0))
        return bool(self.as_constant(machine)) if decided is None else decided

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """Methods of floats."""
        if not _has(float, name):
            raise machine.values.no_attribute(
                self, name, f"'float' object has no attribute '{name}'"
            )
        return machine.values.method(self, name)

    def call_method(
        self, machine: Machine, name: str, arguments: Arguments, keywords: Keywords
    ) -> Value:
        """The value is needed."""
        return fold(machine, getattr(float, name), [self, *arguments], keywords)

    def guard_type(self, machine: Machine) -> None:
        """It is a float."""
        if self.source is not None:
            self.guard(machine, "type", TypeIs(float), "a number that varies")

    def rebuild(self, recipe: Recipe) -> str:
        """Read from the graph's result."""
        return f"{recipe.name(self.held)}.item()"


def span_of(machine: Machine, value: Value) -> intervals.Interval | None:
    """What is known of a number as a float."""
    if isinstance(value, SymInt):
        size = value.bound(machine)
        span = intervals.of_size(size)
        least = next((one for one in (1, 0) if span.low < one and told(">=", size, one)), None)
        return span if least is None else replace(span, low=float(least))
    if isinstance(value, SymFloat):
        return value.span
    if isinstance(value, Constant) and type(value.value) in (int, float, bool):
        number = value.as_constant(machine)
        return intervals.of_number(float(number)) if abs(number) < 1 << 1000 else None
    return None


def needed_span(machine: Machine, value: Value) -> intervals.Interval | None:
    """The same, relying on more: on what counters hold, on how a float from outside lies."""
    if isinstance(value, SymFloat):
        return value.needed_span(machine)
    return span_of(machine, value)


def _combined(machine: Machine, operation: str, order: list[Value]) -> intervals.Interval | None:
    spans = [needed_span(machine, one) for one in order]
    return intervals.combined(operation, *spans)


def formula_of(machine: Machine, function: Any, operands: Sequence[Value]) -> Formula | None:
    """A function of floats as a formula, where at least one is one and all are of one counter."""
    trees: list[Any] = []
    contents: list[Content] = []
    for one in operands:
        if isinstance(one, SymFloat) and one.formula is not None:
            trees.append(one.formula.tree)
            contents.append(one.formula.content)
        elif isinstance(one, Constant) and type(one.value) in (int, float, bool):
            trees.append(number(one.as_constant(machine)))
        elif isinstance(one, SymInt) and (counted := one.formula(machine)) is not None:
            trees.append(counted.tree)
            contents.append(counted.content)
        else:
            return None
    if not contents or any(one is not contents[0] for one in contents):
        return None
    return Formula(contents[0], (function, *trees))


def varying(machine: Machine, value: Any, source: Source) -> Value:
    """The value of an int or float from outside that varies."""
    if isinstance(value, int):
        return SymInt(machine.symbols.integer(source, value), source)
    name = machine.symbols.number(source)
    type = TensorType.contiguous(torch.float64, ())
    node = machine.graph.placeholder(ScalarOf(source), type)
    return SymFloat(Tensor(node=node, fake=fake(type)), frozenset((name,)), source, value)


@wraps(torch.SymInt)
def _wrap_symbolic(machine: Machine, value: Any, source: Source | None) -> Value:
    return made(machine, from_torch(value))


def varying_names(values: Sequence[Value]) -> frozenset[str]:
    """The names of symbols and floats that these values are, or hold."""
    return frozenset[str]().union(*(one.names for one in values if isinstance(one, Varying)))
