"""What torch's C++ asks of sizes that vary: the nodes behind `torch.SymInt` and its like.

Enters: calls of the methods that torch's symbolic numbers have, while composite operators and
autograd's formulas run. Leaves: other nodes; answers. Invariant: a question goes through
`ir.relation.decide`; one that needs the value itself is a `Specialise`, so no value is ever baked
in silently. `symbolic.py` makes such numbers and reads them again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from windfall import torch_abi
from windfall.dataclass import dataclass
from windfall.errors import SourceLine, Specialise
from windfall.ir.relation import COMPARISONS, Relation, assumptions, decide, known, told
from windfall.ir.symint import (
    Expression,
    Size,
    floor_divide,
    hint_of,
    maximum,
    minimum,
    modulo,
    reads_of,
)

# What torch's C++ asks while it chooses an overload, where it drops what is raised: answered in C,
# so that no interrupt comes there.
_YES: Callable[[], bool] = True.__bool__
_NO: Callable[[], bool] = False.__bool__


class _Node:
    """What torch asks of every node."""

    __slots__ = ()

    is_int = _NO
    is_bool = _NO
    is_float = _NO
    is_nested_int = _NO
    is_symbolic = _YES

    def has_hint(self) -> bool:
        return True

    def is_constant(self) -> bool:
        return False

    def maybe_as_int(self) -> int | None:
        return None

    def clone(self) -> Any:
        return self

    def str(self) -> Any:
        return str(self)

    def _graph_repr(self) -> Any:
        return str(self)

    def wrap_int(self, value: int) -> SizeNode:
        return SizeNode(value)

    def wrap_bool(self, value: bool) -> TruthNode:
        return TruthNode("", value)

    def wrap_float(self, value: float) -> FloatNode:
        return FloatNode(value)


@dataclass(frozen=True, slots=True)
class Number:
    """A floating-point number made of sizes: `operation` of numbers, or "size" of a size. `value`
    is what it is in the call being compiled."""

    operation: str
    arguments: tuple[Any, ...]
    value: float

    @property
    def names(self) -> frozenset[str]:
        """The names of the symbols in it."""
        parts = [one for one in self.arguments if isinstance(one, Number | Expression)]
        return frozenset[str]().union(*(one.names for one in parts))


_NUMBER_OPERATIONS: dict[str, Callable[[float, float], float]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
}


def _number(operation: str, left: Number | float, right: Number | float) -> Number | float:
    compute = _NUMBER_OPERATIONS[operation]
    if not isinstance(left, Number) and not isinstance(right, Number):
        return compute(left, right)
    value = compute(*(one.value if isinstance(one, Number) else one for one in (left, right)))
    return Number(operation, (left, right), value)


def _ratio(left: Size, right: Size) -> Number | float:
    return _number("div", _as_number(left), _as_number(right))


def _as_number(size: Size) -> Number | float:
    if isinstance(size, int):
        return float(size)
    return Number("size", (size,), float(hint_of(size)))


def _as_size(number: Number | float) -> Size | None:
    """The size that a number is, where it is one."""
    if not isinstance(number, Number):
        return int(number) if number.is_integer() else None
    if number.operation == "size":
        size: Size = number.arguments[0]
        return size
    left, right = map(_as_size, number.arguments)
    if left is None or right is None or number.operation == "div":
        return None
    return _ARITHMETIC[number.operation](left, right)


class FloatNode(_Node):
    """A floating-point number beside sizes."""

    __slots__ = ("number",)

    def __init__(self, number: Number | float) -> None:
        self.number = number

    def __str__(self) -> str:
        return str(self.number)

    is_float = _YES

    def is_constant(self) -> bool:
        return isinstance(self.number, float)

    def guard_float(self, file: str, line: int) -> float:
        if isinstance(self.number, Number):
            raise Specialise(self.number.names, "a floating-point number")
        return self.number

    def add(self, other: FloatNode) -> FloatNode:
        return FloatNode(_number("add", self.number, other.number))

    def sub(self, other: FloatNode) -> FloatNode:
        return FloatNode(_number("sub", self.number, other.number))

    def mul(self, other: FloatNode) -> FloatNode:
        return FloatNode(_number("mul", self.number, other.number))

    def truediv(self, other: FloatNode) -> FloatNode:
        return FloatNode(_number("div", self.number, other.number))

    float_truediv = truediv

    def neg(self) -> FloatNode:
        return FloatNode(_number("mul", self.number, -1.0))

    def sym_float(self) -> FloatNode:
        return self

    def _needed(self, *others: Any) -> Any:
        """Whatever else is done with it needs the value."""
        for one in (self, *others):
            one.guard_float("", 0)
        raise Specialise(frozenset(), "a function of floating-point numbers")

    pow = float_pow = mod = floordiv = _needed
    sym_max = sym_min = floor = ceil = trunc = sym_int = sym_sqrt = is_integer = _needed


class SizeNode(_Node):
    """A size, as torch's C++ calls it."""

    __slots__ = ("size",)

    def __init__(self, size: Size) -> None:
        self.size = size

    def __str__(self) -> str:
        return str(self.size)

    is_int = _YES

    def is_constant(self) -> bool:
        return isinstance(self.size, int)

    def maybe_as_int(self) -> int | None:
        return self.size if isinstance(self.size, int) else None

    def guard_int(self, file: str, line: int) -> int:
        return value_of(self.size, "an integer")

    def int_(self) -> int:
        return value_of(self.size, "int()")

    def sym_int(self) -> SizeNode:
        return self

    def sym_float(self) -> FloatNode:
        return FloatNode(_as_number(self.size))

    def int_truediv(self, other: SizeNode) -> FloatNode:
        return FloatNode(_ratio(self.size, other.size))

    truediv = int_truediv

    def pow_by_natural(self, other: SizeNode) -> SizeNode:
        result: Size = 1
        for _ in range(value_of(other.size, "an exponent")):
            result = result * self.size
        return SizeNode(result)

    pow = pow_by_natural

    def sym_sum(self, parts: Iterable[SizeNode]) -> SizeNode:
        total: Size = 0
        for part in parts:
            total = total + part.size
        return SizeNode(total)

    def neg(self) -> SizeNode:
        return SizeNode(-self.size)

    def pos(self) -> SizeNode:
        return self

    floor = ceil = trunc = round = pos

    def abs(self) -> SizeNode:
        return SizeNode(maximum(self.size, -self.size))

    def is_integer(self) -> TruthNode:
        return TruthNode("", True)


def _arithmetic(operation: Callable[[Size, Size], Size]) -> Callable[[Any, Any], SizeNode]:
    def method(self: SizeNode, other: SizeNode) -> SizeNode:
        return SizeNode(operation(self.size, other.size))

    return method


_ARITHMETIC: dict[str, Callable[[Size, Size], Size]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "mod": modulo,
    "floordiv": floor_divide,
    "int_floordiv": floor_divide,
    "sym_max": maximum,
    "sym_min": minimum,
}
for _name, _operation in _ARITHMETIC.items():
    setattr(SizeNode, _name, _arithmetic(_operation))


class TruthNode(_Node):
    """A question about sizes: `left operation right`, "and" and "or" of questions, "not" of one;
    operation "" is a known truth, in `left`. It is asked when torch needs the answer."""

    __slots__ = ("left", "operation", "right")

    def __init__(self, operation: str, left: Any, right: Any = None) -> None:
        self.operation = operation
        self.left = left
        self.right = right

    def __str__(self) -> str:
        if self.operation in ("", "not"):
            return f"{self.operation} {self.left}".strip()
        return f"({self.left} {self.operation} {self.right})"

    is_bool = _YES

    def is_constant(self) -> bool:
        return not self.operation

    def ask(self, question: Callable[[str, Size, Size], bool]) -> bool:
        """The answer, where `question` answers comparisons."""
        match self.operation:
            case "":
                return bool(self.left)
            case "not":
                return not self.left.ask(question)
            case "and":
                return bool(self.left.ask(question) and self.right.ask(question))
            case "or":
                return bool(self.left.ask(question) or self.right.ask(question))
        return question(self.operation, self.left, self.right)

    def guard_bool(self, file: str, line: int) -> bool:
        return self.ask(_mostly)

    def bool_(self) -> bool:
        return self.ask(_mostly)

    def guard_or_false(self, file: str, line: int) -> bool:
        return self._guarded(False)

    guard_size_oblivious = guard_or_false

    def guard_or_true(self, file: str, line: int) -> bool:
        return self._guarded(True)

    def _guarded(self, otherwise: bool) -> bool:
        """Torch has a way that is right for all values, which the answer `otherwise` takes."""
        try:
            return self.ask(_mostly)
        except Specialise:
            if tries_reads() and self._reads():
                _TRIES.granted = True
                return otherwise
            raise

    def _reads(self) -> bool:
        sides = (self.left, self.right)
        return bool(reads_of(*(one for one in sides if isinstance(one, Expression)))) or any(
            one._reads() for one in sides if isinstance(one, TruthNode)
        )

    def expect_true(self, file: str, line: int) -> bool:
        """Torch raises where it is not so."""
        if self.operation == "and":
            return bool(self.left.expect_true(file, line) and self.right.expect_true(file, line))
        if self.operation in COMPARISONS and reads_of(self.left, self.right):
            answer, assumed = told(self.operation, self.left, self.right), assumptions()
            if answer is None and assumed is not None:
                assumed.expect(Relation(self.operation, self.left, self.right))
                return True
        return self.ask(decide)

    def statically_known_true(self, file: str, line: int) -> bool:
        try:
            return self.ask(_surely)
        except _NotSure:
            _TRIES.granted = True
            return False

    def sym_not(self) -> TruthNode:
        return TruthNode("not", self)

    def sym_and(self, other: TruthNode) -> TruthNode:
        return TruthNode("and", self, other)

    def sym_or(self, other: TruthNode) -> TruthNode:
        return TruthNode("or", self, other)

    and_, or_ = sym_and, sym_or

    def eq(self, other: TruthNode) -> TruthNode:
        return TruthNode("", self.ask(decide) == other.ask(decide))

    def ne(self, other: TruthNode) -> TruthNode:
        return TruthNode("", self.ask(decide) != other.ask(decide))

    def sym_ite(self, then: _Node, otherwise: _Node) -> _Node:
        return then if self.ask(decide) else otherwise


def _mostly(operation: str, left: Size, right: Size) -> bool:
    """`decide`; of what is read from data, that it is neither 0 nor 1: where whole functions are
    tried at these too, it is only a way to get an answer."""
    looked_at = operation in ("==", "!=") and (left in (0, 1) or right in (0, 1))
    if looked_at and reads_of(left, right) and tries_reads():
        answer = told(operation, left, right)
        if answer is None:
            _TRIES.granted = True
            return operation == "!="
        return answer
    return decide(operation, left, right)


class _Tries(threading.local):
    reads = False
    granted = False  # whether something was taken for granted meanwhile


_TRIES = _Tries()


def tries_reads() -> bool:
    """Whether what this thread does with sizes that are read from data is tried at known ones
    afterwards (`trial.confirmed`)."""
    return _TRIES.reads


def _set_tries(value: bool) -> None:
    _TRIES.reads = value


torch_abi.FENCED["tries_reads"] = torch_abi.Switch(tries_reads, _set_tries)


@contextmanager
def trying_reads() -> Iterator[Callable[[], bool]]:
    """While entered, it is. What it gives tells whether there is anything to try: whether torch's
    own code was told what nobody knows. (The rules of single operators are always tried.)"""
    before = _TRIES.reads
    try:
        _TRIES.reads, _TRIES.granted = True, False
        yield lambda: _TRIES.granted
    finally:
        _TRIES.reads = before


class _NotSure(Exception):
    """A question that ranges do not answer."""


def _surely(operation: str, left: Size, right: Size) -> bool:
    answer = known(operation, left, right)
    if answer is None:
        raise _NotSure
    return answer


def _comparison(operation: str) -> Callable[[Any, Any], TruthNode]:
    def method(self: SizeNode, other: SizeNode) -> TruthNode:
        answer = known(operation, self.size, other.size)
        if answer is not None:
            return TruthNode("", answer)
        return TruthNode(operation, self.size, other.size)

    return method


def _comparison_of_numbers(operation: str) -> Callable[[Any, Any], TruthNode]:
    compare = _comparison(operation)

    def method(self: FloatNode, other: FloatNode) -> TruthNode:
        left, right = _as_size(self.number), _as_size(other.number)
        if left is None or right is None:
            values = self.guard_float("", 0), other.guard_float("", 0)
            return TruthNode("", COMPARISONS[operation](*values))
        return compare(SizeNode(left), SizeNode(right))

    return method


_SIGNS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
for _name, _sign in _SIGNS.items():
    setattr(SizeNode, _name, _comparison(_sign))
    setattr(FloatNode, _name, _comparison_of_numbers(_sign))


def value_of(size: Size, purpose: str) -> int:
    """A size that must be known; `Specialise` if it varies."""
    if isinstance(size, int):
        return size
    where = asking.where() if asking.where is not None else None
    raise Specialise(size.names, f"{purpose} of {size}", where)


class _Asking(threading.local):
    """Whoever runs torch's C++ may say which line of the program it works for."""

    where: Callable[[], SourceLine | None] | None = None


asking = _Asking()


def _set_asking(value: Callable[[], SourceLine | None] | None) -> None:
    asking.where = value


torch_abi.FENCED["asking"] = torch_abi.Switch(lambda: asking.where, _set_asking)
