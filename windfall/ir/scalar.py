"""Scalar expressions: one value at one point of the iteration space, interned.

Enters: what a `Builder` is asked for, or the parser reads. Leaves: immutable `Scalar`s. Invariant:
within one table, equal expressions are one object; a `reduce` binds its axes, which are named by
its height, so that equal reductions are one object wherever they stand.

    >>> table = Scalars()
    >>> x = table.load("x", axis("i0", 8).symbol, torch.float32)
    >>> table.apply("add", x, x) is table.apply("add", x, x)
    True
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from windfall.dataclass import dataclass
from windfall.errors import InternalError
from windfall.ir.symint import (
    Atom,
    Expression,
    Hint,
    IndexBound,
    Size,
    bounds,
    known_at_least,
    known_at_most,
    substitute,
    symbol,
    symbol_atom,
    symbols_of,
)


@dataclass(frozen=True, slots=True)
class Axis:
    """A loop index: a symbol of range [0, extent), and that extent."""

    symbol: Expression
    extent: Size

    @property
    def atom(self) -> Atom:
        """The symbol as a key for substitution."""
        return symbol_atom(self.symbol)

    def __str__(self) -> str:
        return f"{self.symbol}<{self.extent}"


@functools.lru_cache(maxsize=4096)
def axis(name: str, extent: Size) -> Axis:
    """An axis called `name`; equal names and extents are the same axis."""
    _, high = bounds(extent)
    limit = IndexBound(extent) if isinstance(extent, Expression) else None
    return Axis(symbol(name, 0, None if high is None else max(high - 1, 0), limit), extent)


def extent_of(atom: Atom) -> Size:
    """How far the axis of this symbol reaches."""
    if isinstance(atom.payload, IndexBound):
        return atom.payload.extent
    assert atom.high is not None, f"{atom} is not an axis"
    return atom.high + 1


def is_size(atom: Atom) -> bool:
    """Whether a symbol is a size that varies, not an axis."""
    return isinstance(atom.payload, Hint)


def indirect_in(size: Size) -> list[Atom]:
    """The symbols of an expression that stand for scalars."""
    return [atom for atom in symbols_of(size) if isinstance(atom.payload, Scalar)]


@dataclass(frozen=True, slots=True, eq=False)
class Scalar:
    """One value at one point of the iteration space. Made by a `Builder` only, which interns.

    `op` is a row of SCALAR_OPS, or one of
      constant  attribute: the Python number
      load      attribute: (buffer name, offset Expression in elements)
      index     attribute: an integer Expression over axes, seen as a number
      reduce    attribute: (kind, (Axis, ...)); argument: the body
      cast      argument converted to `dtype` with torch's rules
      masked    arguments: condition, body, otherwise: `where`, but loads of the body are done only
                where the condition holds
      checked   argument: an integer; attribute: (size, wrap): a valid index, or a run-time error
    """

    op: str
    dtype: torch.dtype
    arguments: tuple[Scalar, ...] = ()
    attribute: Any = None
    free: frozenset[Atom] = frozenset()  # the axes that it depends on
    reduces: bool = False  # whether a `reduce` node is in it
    indices: tuple[Scalar, ...] = ()  # the scalars inside its index expression

    @property
    def extent(self) -> Size | None:
        """What an index that was checked is below."""
        size: Size | None = self.attribute[0] if self.op == "checked" else None
        return size


# Types of few digits: of these a number in Python is rarely what a tensor holds.
_HALVES = (torch.bfloat16, torch.float16)

# What a row of SCALAR_OPS answers: "same" as its arguments, "bool", or "second": as its second
# argument. Semantics are torch's for the dtype: integers wrap, `maximum`/`minimum` propagate NaN,
# `floordiv`/`remainder` are Python's, `truncdiv`/`fmod` are C's.
_UNARY = """
    neg abs exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan
    sinh cosh tanh asinh acosh atanh erf erfc erfinv lgamma digamma floor ceil round trunc frac
    sign sigmoid bitwise_not"""
_BINARY = """
    add sub mul div truncdiv floordiv remainder fmod pow maximum minimum fmax fmin atan2 hypot
    copysign nextafter bitwise_and bitwise_or bitwise_xor shift_left shift_right"""

# name -> (number of arguments, rule for the result's dtype)
SCALAR_OPS: dict[str, tuple[int, str]] = {
    **dict.fromkeys(_UNARY.split(), (1, "same")),
    **dict.fromkeys(("isnan", "isinf", "isfinite", "logical_not", "signbit"), (1, "bool")),
    **dict.fromkeys(_BINARY.split(), (2, "same")),
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge"), (2, "bool")),
    **dict.fromkeys(("logical_and", "logical_or", "logical_xor"), (2, "bool")),
    "where": (3, "second"),
    "fma": (3, "same"),
}

# Reductions. `any`/`all` take and give bool; the arg kinds give the i64 position in the reduced
# axes (row-major), first of equals, NaN counting as the extreme.
REDUCTIONS = ("sum", "prod", "max", "min", "any", "all", "argmax", "argmin")

_FOLDED: dict[str, Callable[[Any, Any], bool]] = {
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
}


class Scalars:
    """The table that makes equal scalar expressions one object. One for each graph, so that
    dropping a program drops its expressions."""

    def __init__(self) -> None:
        self._made: dict[Any, Scalar] = {}
        self._indirect: dict[Scalar, int] = {}

    def __len__(self) -> int:
        return len(self._made)

    def make(
        self,
        op: str,
        dtype: torch.dtype,
        arguments: tuple[Scalar, ...] = (),
        attribute: Any = None,
    ) -> Scalar:
        """The one scalar of this form."""
        # 0.0 and -0.0, 1 and True are equal in Python and different numbers here.
        identity = (op, dtype, arguments, repr(attribute) if op == "constant" else attribute)
        found = self._made.get(identity)
        if found is None:
            free, reduces, indices = _facts(op, arguments, attribute)
            found = Scalar(op, dtype, arguments, attribute, free, reduces, indices)
            found = self._made.setdefault(identity, found)
        return found

    def constant(self, value: float | int | bool, dtype: torch.dtype) -> Scalar:
        """A number, as `dtype` holds it."""
        if dtype is torch.bool:
            value = bool(value)
        elif dtype in _HALVES:  # which code computes in float32: what it reads is rounded here
            value = torch.tensor(float(value), dtype=dtype).item()
        elif dtype.is_floating_point:
            value = float(value)
        elif isinstance(value, float):
            value = int(value)
        return self.make("constant", dtype, (), value)

    def load(self, buffer: str, offset: Size, dtype: torch.dtype) -> Scalar:
        """One element of a buffer."""
        return self.make("load", dtype, (), (buffer, offset))

    def index(self, expression: Size, dtype: torch.dtype) -> Scalar:
        """An integer expression as a number."""
        if isinstance(expression, int):
            return self.constant(expression, dtype)
        return self.make("index", dtype, (), expression)

    def apply(self, op: str, *arguments: Scalar) -> Scalar:
        """A row of SCALAR_OPS."""
        count, rule = SCALAR_OPS[op]
        if len(arguments) != count:
            raise InternalError(f"{op} takes {count} arguments, not {len(arguments)}")
        operands = arguments[1:] if op == "where" else arguments
        if any(operand.dtype is not operands[0].dtype for operand in operands):
            raise InternalError(f"{op} needs one dtype, not {[o.dtype for o in operands]}")
        if op == "where" and arguments[0].op == "constant":
            return arguments[1] if arguments[0].attribute else arguments[2]
        if op in _FOLDED:
            known = _compare_indices(op, *arguments)
            if known is not None:
                return self.constant(known, torch.bool)
        if op in ("logical_and", "logical_or"):
            known_side = self._logical(op, *arguments)
            if known_side is not None:
                return known_side
        dtype = torch.bool if rule == "bool" else operands[0].dtype
        return self.make(op, dtype, arguments)

    def _logical(self, op: str, left: Scalar, right: Scalar) -> Scalar | None:
        if left.dtype is not torch.bool:
            return None
        if left.op == "constant":
            return right if left.attribute == (op == "logical_and") else left
        if right.op == "constant":
            return left if right.attribute == (op == "logical_and") else right
        return None

    def masked(self, condition: Scalar, body: Scalar, otherwise: Scalar) -> Scalar:
        """`where` whose body loads nothing where the condition is false."""
        if condition.op == "constant":
            return body if condition.attribute else otherwise
        return self.make("masked", body.dtype, (condition, body, otherwise))

    def cast(self, value: Scalar, dtype: torch.dtype) -> Scalar:
        """`value` as `dtype`."""
        if value.dtype is dtype:
            return value
        if value.op == "index" and not dtype.is_floating_point and dtype is not torch.bool:
            return self.index(value.attribute, dtype)
        return self.make("cast", dtype, (value,))

    def reduce(self, kind: str, axes: tuple[Axis, ...], body: Scalar) -> Scalar:
        """`body` folded over `axes`, renamed so that equal reductions are one object: the axes of
        a reduction are called by its height, 0 for one that holds no other."""
        height = _height(body)
        names = [f"r{height}" + (f"_{place}" if place else "") for place in range(len(axes))]
        fresh = tuple(axis(name, old.extent) for name, old in zip(names, axes, strict=True))
        renamed = {old.atom: new.symbol for old, new in zip(axes, fresh, strict=True)}
        body = self.substitute(body, renamed)
        dtype = torch.int64 if kind.startswith("arg") else body.dtype
        return self.make("reduce", dtype, (body,), (kind, fresh))

    def substitute(
        self,
        value: Scalar,
        axes: Mapping[Atom, Size],
        scalars: Mapping[Scalar, Scalar] | None = None,
        memo: dict[Scalar, Scalar] | None = None,
    ) -> Scalar:
        """`value` with axes replaced by expressions, and nodes by other nodes. `memo` may be shared
        among calls with the same replacements."""
        memo = {} if memo is None else memo
        memo.update(scalars or {})
        names = axes.keys()

        def resize(size: Size) -> Size:
            wanted = {
                atom: self.indirect(memo[atom.payload], atom.high) for atom in indirect_in(size)
            }
            return substitute(size, {**axes, **wanted} if wanted else axes)

        # Operands first, without recursion: expressions may be deep.
        stack: list[Scalar] = [value]
        while stack:
            node = stack[-1]
            if node in memo:
                stack.pop()
                continue
            if not scalars and node.free.isdisjoint(names):
                memo[node] = node
                continue
            missing = [each for each in children(node) if each not in memo]
            if missing:
                stack.extend(missing)
            else:
                arguments = tuple(memo[each] for each in node.arguments)
                memo[node] = self._rebuild(node, arguments, resize)
        return memo[value]

    def _rebuild(
        self, node: Scalar, arguments: tuple[Scalar, ...], resize: Callable[[Size], Size]
    ) -> Scalar:
        if node.op == "load":
            buffer, offset = node.attribute
            return self.load(buffer, resize(offset), node.dtype)
        if node.op == "index":
            return self.index(resize(node.attribute), node.dtype)
        if node.op in SCALAR_OPS:
            return self.apply(node.op, *arguments)
        if node.op == "masked":
            return self.masked(*arguments)
        if node.op == "cast":
            return self.cast(arguments[0], node.dtype)
        return self.make(node.op, node.dtype, arguments, node.attribute)

    def indirect(self, value: Scalar, highest: int | None) -> Expression:
        """A `checked` number as a symbol in index expressions."""
        number = self._indirect.setdefault(value, len(self._indirect))
        return symbol(f"@{number}", 0, highest, payload=value)


def _facts(
    op: str, arguments: tuple[Scalar, ...], attribute: Any
) -> tuple[frozenset[Atom], bool, tuple[Scalar, ...]]:
    if op in ("load", "index"):
        symbols = symbols_of(attribute[1] if op == "load" else attribute)
        if all(atom.payload is None for atom in symbols):
            return symbols, False, ()
        symbols = frozenset(atom for atom in symbols if not is_size(atom))
        indices = [atom for atom in symbols if isinstance(atom.payload, Scalar)]
        inner = tuple(atom.payload for atom in sorted(indices, key=lambda atom: atom.key))
        free = symbols.difference(indices).union(*(each.free for each in inner))
        return free, any(each.reduces for each in inner), inner
    free = frozenset[Atom]().union(*(argument.free for argument in arguments))
    reduces = op == "reduce" or any(argument.reduces for argument in arguments)
    if op == "reduce":
        free -= {each.atom for each in attribute[1]}
    return free, reduces, ()


def children(value: Scalar) -> tuple[Scalar, ...]:
    """The scalars that `value` is made of, those inside index expressions too."""
    return value.arguments or value.indices


def walk(*roots: Scalar, into_reductions: bool = True) -> Iterator[Scalar]:
    """Every node of some expressions once, operands first; the bodies of reductions too, unless
    their values are taken as known."""
    seen: set[Scalar] = set()
    stack: list[Scalar | None] = list(reversed(roots))
    waiting: list[Scalar] = []  # nodes whose operands are still on the stack, above a None
    while stack:
        node = stack.pop()
        if node is None:
            yield waiting.pop()
        elif node not in seen:
            seen.add(node)
            parts = node.arguments or node.indices
            if parts and (into_reductions or node.op != "reduce"):
                waiting.append(node)
                stack.append(None)
                stack.extend(parts[::-1])
            else:
                yield node


def _height(body: Scalar) -> int:
    if not body.reduces:
        return 0
    names = (node.attribute[1][0].symbol for node in walk(body) if node.op == "reduce")
    return 1 + max(int(str(name)[1:]) for name in names)


def _compare_indices(op: str, left: Scalar, right: Scalar) -> bool | None:
    """A comparison of index expressions and constants, where the ranges of axes decide it."""
    sides = []
    for side in (left, right):
        if side.op == "index" or (side.op == "constant" and isinstance(side.attribute, int)):
            sides.append(side.attribute)
    if len(sides) != 2 or left.dtype is torch.bool:
        return None
    difference = sides[0] - sides[1]
    low, high = bounds(difference)
    if isinstance(difference, Expression) and (low is None or high is None):
        return _compare_varying(op, difference)
    answers = set()
    for corner in (low, high):
        answers.add(None if corner is None else _FOLDED[op](corner, 0))
    if op in ("eq", "ne"):
        if low is not None and high is not None and (low > 0 or high < 0 or low == high):
            return _FOLDED[op](low, 0)
        return None
    return answers.pop() if len(answers) == 1 else None


_POSITIVE = {"gt": True, "ge": True, "ne": True, "lt": False, "le": False, "eq": False}
_NEGATIVE = {op: (op == "ne" or not answer) and op != "eq" for op, answer in _POSITIVE.items()}


def _compare_varying(op: str, difference: Expression) -> bool | None:
    """`difference op 0`, as relations between sizes tell."""
    if known_at_least(difference, 1):
        return _POSITIVE[op]
    if known_at_most(difference, -1):
        return _NEGATIVE[op]
    if op in ("ge", "lt") and known_at_least(difference, 0):
        return op == "ge"
    if op in ("le", "gt") and known_at_most(difference, 0):
        return op == "le"
    return None
