"""What tensors without dimensions hold, as far as Python needs to know: counters of optimizers.

Enters: a tensor from outside (or one that the program made of a constant) whose number the program
reads, perhaps after it added something to it; or an integer of Python's that varies. Leaves: a
`Content`: which numbers it may be, and a guard on what the tensor held before (`ScalarWithin`), or
relations of the integer's symbol; a `Formula`: a float that Python computes of such a counter.
Invariant: nothing is assumed of data. Whether Python could raise, and how a branch goes, is known
because intervals tell, or because every whole number between the bounds of the guard was tried, by
Python's own arithmetic.

    step += 1; n = step.item()    a whole number from 1 to 2**23
    1 - 0.9 ** n                  from 0.1 to 1: dividing by it cannot raise
    if rho(n) > 5:                guard: 5 <= step <= 16383
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

import torch
import torch.fx

from windfall.dataclass import dataclass
from windfall.frontend import intervals
from windfall.frontend.intervals import Interval
from windfall.ir.guard import Check, ScalarWithin
from windfall.ir.relation import decide
from windfall.ir.source import Source
from windfall.ir.symint import Expression, expression_of, hint_of, reads_of

# Adds a guard: where, what, why.
Rely = Callable[[Source, Check, str], None]

_MOST = 1 << 23  # whole numbers up to here are exact in single precision, one more too
_TRIED = 1 << 14  # so many are tried
_LARGE = 1e30
_FLOATS = (torch.float32, torch.float64)
_WIDEST = 1 << 20  # factors and terms of whole numbers: what is made of them is exact

# A float computed of a counter: the counter itself, a number, an operator or function of such.
Tree = tuple[Any, ...]
COUNT: Tree = ("count",)


def number(value: float) -> Tree:
    """A constant in a formula."""
    return ("number", type(value), value)


@functools.lru_cache(maxsize=4096)
def _compiled(tree: Tree) -> Callable[[float], Any]:
    if tree == COUNT:
        return lambda count: count
    if tree[0] == "number":
        value = tree[2]
        return lambda count: value
    function, parts = tree[0], [_compiled(one) for one in tree[1:]]
    if len(parts) == 1:
        (only,) = parts
        return lambda count: function(only(count))
    left, right = parts
    return lambda count: function(left(count), right(count))


@functools.lru_cache(maxsize=256)
def _values(tree: Tree, low: int, high: int) -> tuple[Any, ...] | None:
    """What a formula is at each whole number of a range; None: Python raises somewhere, or what it
    answers is no real number."""
    compute = _compiled(tree)
    try:
        found = tuple(compute(float(count)) for count in range(low, high + 1))
    except ArithmeticError:
        return None
    except ValueError:  # the root of a negative number
        return None
    good = all(isinstance(one, float | int | bool) and math.isfinite(one) for one in found)
    return found if good else None


@dataclass(eq=False)
class Content:
    """A counter: the number in a tensor from outside, or an integer that varies. `added` is what
    the program has added before the read; `low` and `high` bound what it is at the start, as far as
    that was relied upon, which `rely_on` does."""

    rely_on: Callable[[int, int], None]
    value: float  # at the start of the call being compiled
    added: int

    def __post_init__(self) -> None:
        self.low = 1 if self.value >= 1 and not self.added else 0
        self.high = _MOST
        self.relied = False

    def rely(self) -> None:
        """Rely on the bounds as they are now."""
        self.rely_on(self.low, self.high)
        self.relied = True

    def narrow(self, low: int, high: int) -> None:
        """Rely on closer bounds of the number that is read."""
        low, high = max(self.low, low - self.added), min(self.high, high - self.added)
        if (low, high) != (self.low, self.high) or not self.relied:
            self.low, self.high = low, high
            self.rely()

    @property
    def bounds(self) -> tuple[int, int]:
        """Of the number that is read."""
        return self.low + self.added, self.high + self.added

    @property
    def count(self) -> int:
        """The number that is read, in the call being compiled."""
        return int(self.value) + self.added

    def tried(self) -> tuple[int, int]:
        """Few enough numbers around that of this call to try them all."""
        low, high = self.bounds
        first = self.count - self.count % _TRIED
        return max(low, first), min(high, first + _TRIED - 1)


@dataclass(frozen=True, eq=False)
class Formula:
    """A float that Python computes of one counter."""

    content: Content
    tree: Tree

    def span(self) -> Interval | None:
        """Between which numbers it lies; relies on the bounds of the counter."""
        if not self.content.relied:
            self.content.rely()
        return _span(self.tree, *self.content.bounds)

    def tried_span(self) -> Interval | None:
        """The same, of numbers that were all tried. None: Python raises at some of them."""
        low, high = self.content.tried()
        found = _values(self.tree, low, high)
        if found is None:
            return None
        self.content.narrow(low, high)
        return Interval(float(min(found)), float(max(found)))

    def decided(self) -> bool | None:
        """Of a comparison: how it goes, in all calls in which the counter is where it is now."""
        low, high = self.content.tried()
        found = _values(self.tree, low, high)
        if found is None:
            return None
        place = self.content.count - low
        first = last = place
        while first > 0 and found[first - 1] == found[place]:
            first -= 1
        while last < len(found) - 1 and found[last + 1] == found[place]:
            last += 1
        self.content.narrow(low + first, low + last)
        return bool(found[place])


@functools.lru_cache(maxsize=4096)
def _span(tree: Tree, low: int, high: int) -> Interval | None:
    if tree == COUNT:
        return Interval(float(low), float(high))
    if tree[0] == "number":
        return intervals.of_number(tree[2]) if abs(tree[2]) < _LARGE else None
    if len(tree) != 3 or tree[0] not in _SIGNS:
        return None
    left, right = (_span(one, low, high) for one in tree[1:])
    return intervals.combined(_SIGNS[tree[0]], left, right)


_SIGNS: dict[Any, str] = {
    operator.add: "+",
    operator.sub: "-",
    operator.mul: "*",
    operator.truediv: "/",
    operator.pow: "**",
}


# ------------------------------------------------------------------------ what a tensor holds now

_OPERATORS = (operator.add, operator.sub, operator.mul, operator.truediv, operator.pow)
_ADDS = (operator.iadd, "add_")
_SCALES = (operator.imul, "mul_")
_CREATED: dict[Any, float | None] = {torch.tensor: None, torch.zeros: 0.0, torch.ones: 1.0}


def is_read(node: torch.fx.Node) -> bool:
    """Whether a node is one that `item()` makes: it copies what it reads."""
    copies = [one for one in node.users if one.target == "to" and one.kwargs.get("copy") is True]
    return node.target == "detach" and len(copies) == len(node.users)


_COMPARISONS = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
_READERS = (*_OPERATORS, *_COMPARISONS, operator.neg)


def _only_reads(user: torch.fx.Node, node: torch.fx.Node) -> bool:
    """Whether an operation neither writes a tensor nor answers a view of it: arithmetic,
    comparisons, and methods of other tensors, which write and answer these."""
    if user.target in _READERS:
        return True
    return user.op == "call_method" and user.args[0] is not node


def writes_to(node: torch.fx.Node) -> list[tuple[Any, Any]] | None:
    """What was done in place to a tensor so far, as (operator, operand); None: more than adding
    and multiplying, or others may have written it."""
    found: list[tuple[Any, Any]] = []
    for user in node.users:
        if is_read(user) or _only_reads(user, node):
            continue
        known = user.target in (*_ADDS, *_SCALES) and len(user.args) == 2
        plain = not user.kwargs or (user.kwargs.keys() == {"alpha"} and user.kwargs["alpha"] == 1)
        if not known or not plain or user.args[0] is not node or user.args[1] is node or user.users:
            return None
        operand = user.args[1]
        if isinstance(operand, torch.fx.Node) and _is_unwritten(operand):
            constant = constant_in(operand)
            operand = operand if constant is None else constant
        found.append((operator.add if user.target in _ADDS else operator.mul, operand))
    return found


def _is_unwritten(node: torch.fx.Node) -> bool:
    """Whether a tensor that was made here is nothing but an operand of what stands before it."""
    return all(user.args[0] is not node and not user.users for user in node.users)


def constant_in(node: torch.fx.Node) -> float | None:
    """What a tensor was made with; None: it is not known."""
    if node.op != "call_function" or node.target not in _CREATED:
        return None
    if node.target is torch.tensor:
        value: Any = node.args[0] if len(node.args) == 1 else None
        return float(value) if type(value) in (int, float) else None
    return _CREATED[node.target]


@dataclass
class Contents:
    """What is known of numbers in tensors, in one capture. `numbers`: of tensors of the graph that
    stand for floats, between which these lie. `asked`: tensors from outside whose numbers the
    program asked for; who writes one by another name spoils that (`capture.py` refuses it)."""

    numbers: dict[torch.fx.Node, Callable[[], Interval | None]] = field(default_factory=dict)
    counters: dict[tuple[Source, int], Content] = field(default_factory=dict)
    integers: dict[Expression, Content] = field(default_factory=dict)
    asked: set[Source] = field(default_factory=set)

    def of_integer(self, size: Expression) -> Formula | None:
        """An integer that varies as a float: `a * s0 + b`, of a symbol that counts. None: it is
        another expression, or so large that doubles are not exact."""
        if len(size.terms) != 1 or reads_of(size):
            return None
        ((monomial, factor),) = size.terms
        plain = len(monomial.atoms) == 1 and not monomial.atoms[0].operation
        if not plain or max(abs(factor), abs(size.constant)) > _WIDEST:
            return None
        counted = expression_of(monomial.atoms[0])
        if not 0 <= hint_of(counted) <= _MOST:
            return None

        def rely_on(low: int, high: int) -> None:
            decide(">=", counted, low)
            decide("<=", counted, high)

        content = self.integers.setdefault(counted, Content(rely_on, hint_of(counted), 0))
        tree = COUNT if factor == 1 else (operator.mul, number(factor), COUNT)
        tree = (operator.add, tree, number(size.constant)) if size.constant else tree
        return Formula(content, tree)

    def of(
        self,
        node: torch.fx.Node,
        dtype: torch.dtype,
        outside: tuple[Source, torch.Tensor] | None,
        rely: Rely,
    ) -> Bounded | Content | None:
        """What is known of the one number in a tensor of the graph; None: nothing. `outside`: where
        it comes from, and what it is now."""
        writes = writes_to(node) if dtype in (*_FLOATS, torch.int64) else None
        if writes is None or (outside is None and dtype not in _FLOATS):
            return None
        if outside is None:
            base = constant_in(node)
            if base is not None and dtype is torch.float32:
                base = _rounded(base)
            start = None if base is None else intervals.of_number(base)
            span = _after(self.numbers, dtype, start, writes)
            return None if span is None else Bounded(span)
        source, real = outside
        self.asked.add(source)
        value = real.item()
        if all(_is_whole_sum(one) for one in writes) and _is_count(value):
            added = int(sum(operand for _, operand in writes))

            def rely_on(low: int, high: int) -> None:
                check = ScalarWithin(float(low), float(high), True)
                rely(source, check, "a counter that is read")

            made = Content(rely_on, value, added)
            return self.counters.setdefault((source, added), made)
        if dtype not in _FLOATS:
            return None
        start = _usual(value)
        span = _after(self.numbers, dtype, start, writes)
        return None if span is None or start is None else Bounded(span, rely, source, start)


def _is_whole_sum(write: tuple[Any, Any]) -> bool:
    made, operand = write
    return made is operator.add and type(operand) in (int, float) and 0 <= operand == int(operand)


def _is_count(value: float) -> bool:
    return 0 <= value <= _MOST and value == int(value)


def _usual(value: float) -> Interval | None:
    """The numbers among which a state of an optimizer stays: fractions, or anything positive."""
    if 0 <= value <= 1:
        return Interval(0.0, 1.0)
    return Interval(0.0, _LARGE) if 0 <= value <= _LARGE else None


@dataclass(eq=False)
class Bounded:
    """A number between bounds. What it holds at the start is relied upon by `rely`."""

    span: Interval
    add_guard: Rely | None = None
    source: Source | None = None
    start: Interval | None = None

    @property
    def is_constant(self) -> bool:
        """Whether there is only one number that it can be, in all calls."""
        return self.source is None and self.span.low == self.span.high

    def rely(self) -> Interval:
        """Rely on the bounds."""
        if self.source is not None and self.add_guard is not None and self.start is not None:
            check = ScalarWithin(self.start.low, self.start.high, False)
            self.add_guard(self.source, check, "a number that is read")
        return self.span


def _after(
    numbers: Mapping[torch.fx.Node, Callable[[], Interval | None]],
    dtype: torch.dtype,
    span: Interval | None,
    writes: list[tuple[Any, Any]],
) -> Interval | None:
    """Between which numbers it lies when it was written."""
    for made, operand in writes:
        if isinstance(operand, torch.fx.Node):
            by = numbers.get(operand)
            other = by() if by is not None else None
        else:
            other = intervals.of_number(float(operand))
        span = intervals.combined(_SIGNS[made], span, other)
        if span is None:
            return None
        if dtype is torch.float32:
            span = Interval(_rounded(span.low), _rounded(span.high))
    return span


def _rounded(value: float) -> float:
    """In single precision; rounding keeps the order, so bounds stay bounds."""
    return float(torch.tensor(value, dtype=torch.float32).item())
