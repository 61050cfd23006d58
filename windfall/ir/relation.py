"""Facts about sizes that vary, and who asks for them while a program is compiled.

Enters: a comparison of two sizes. Leaves: its truth; where ranges do not tell, the truth in the
call being compiled, noted as a `Relation` that later calls must satisfy too. Invariant: outside of
`Assumptions` nothing may be assumed: what ranges do not tell is a `Specialise`. Nor is anything
ever assumed of what is read from data: ranges tell, or the program did (`Assumptions.tell`).

    >>> from windfall.ir.symint import size_symbol
    >>> s = size_symbol("s0", 8)
    >>> with Assumptions() as assumed:
    ...     decide(">=", s, 2), decide(">", s, 4)
    (True, True)
    >>> [str(one) for one in assumed.relations]
    ['s0 > 4']
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import gcd, lcm
from types import TracebackType

from windfall import torch_abi
from windfall.dataclass import dataclass
from windfall.errors import Specialise
from windfall.ir.symint import (
    Atom,
    Expression,
    Hint,
    Size,
    bounds,
    evaluate,
    hint_of,
    known_at_least,
    known_at_most,
    reads_of,
    symbols_of,
)

COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


@dataclass(frozen=True, slots=True)
class Relation:
    """`left operation right`, which is true."""

    operation: str
    left: Size
    right: Size

    def holds(self, values: Mapping[str, int]) -> bool:
        """Whether it is true with these values of symbols."""
        compare = COMPARISONS[self.operation]
        return compare(evaluate(self.left, values), evaluate(self.right, values))

    def __str__(self) -> str:
        return f"{self.left} {self.operation} {self.right}"


def recurs(relation: Relation, symbol: Atom) -> bool:
    """Whether a relation of one symbol holds for values without end, such as every fourth, or for
    all from the least on, and not for a few alone. (Found by trying: it may be refused.)"""
    period = lcm(*_divisors(relation.left), *_divisors(relation.right))
    if symbol.payload.__class__ is not Hint:
        return False
    value: int = symbol.payload.value
    least = value if symbol.low is None else symbol.low
    above = (value + period * step for step in (1, 2, 3, 17, 1000))
    below = range(value, max(least, value - 64 * period) - 1, -period)

    def holds(value: int) -> bool:
        return relation.holds({symbol.key: value})

    return all(map(holds, above)) or (len(below) > 2 and all(map(holds, below)))


def _divisors(size: Size) -> Iterator[int]:
    """What an expression is divided by on its way."""
    for monomial, _ in size.terms if isinstance(size, Expression) else ():
        for atom in monomial.atoms:
            for one in atom.arguments:
                yield from _divisors(one)
            if atom.operation in ("//", "%") and isinstance(atom.arguments[1], int):
                yield abs(atom.arguments[1]) or 1


def known(operation: str, left: Size, right: Size) -> bool | None:
    """The truth of a comparison as far as ranges tell; None: they do not."""
    difference = left - right
    if isinstance(difference, int):
        return COMPARISONS[operation](difference, 0)
    answer = _BY_RANGE[operation](*bounds(difference))
    return _BY_RANGE[operation](*_signs(difference)) if answer is None else answer


def _signs(value: Expression) -> tuple[int | None, int | None]:
    """Bounds between -1 and 1 of a sum whose terms hang together, as in `s0*s1 - s1`."""
    low = 1 if known_at_least(value, 1) else 0 if known_at_least(value, 0) else None
    high = -1 if known_at_most(value, -1) else 0 if known_at_most(value, 0) else None
    return low, high


def _less(low: int | None, high: int | None) -> bool | None:
    if high is not None and high < 0:
        return True
    return False if low is not None and low >= 0 else None


def _less_or_equal(low: int | None, high: int | None) -> bool | None:
    if high is not None and high <= 0:
        return True
    return False if low is not None and low > 0 else None


def _equal(low: int | None, high: int | None) -> bool | None:
    apart = (low is not None and low > 0) or (high is not None and high < 0)
    return False if apart else (True if low == high == 0 else None)


def _not(answer: bool | None) -> bool | None:
    return None if answer is None else not answer


_BY_RANGE: dict[str, Callable[[int | None, int | None], bool | None]] = {
    "<": _less,
    "<=": _less_or_equal,
    ">": lambda low, high: _not(_less_or_equal(low, high)),
    ">=": lambda low, high: _not(_less(low, high)),
    "==": _equal,
    "!=": lambda low, high: _not(_equal(low, high)),
}


Terms = tuple[tuple[object, int], ...]
_IMPLIED: dict[str, tuple[int | None, int | None]] = {
    "==": (0, 0),
    ">=": (0, None),
    ">": (1, None),
    "<=": (None, 0),
    "<": (None, -1),
}


def _form(difference: Size) -> tuple[Terms, int, int]:
    """What varies in a difference, in lowest terms and with a positive first coefficient; its
    factor; the constant part."""
    if isinstance(difference, int):
        return (), 1, difference
    factor = gcd(*(by for _, by in difference.terms))
    if difference.terms[0][1] < 0:
        factor = -factor
    form = tuple((monomial, by // factor) for monomial, by in difference.terms)
    return form, factor, difference.constant


def _negative(value: int | None) -> int | None:
    return None if value is None else -value


class Assumptions:
    """While entered (in this thread), what ranges do not tell is decided as in the call being
    compiled, and noted. `given` relations hold already, and so do those of assumptions that were
    entered before; `closed`: nothing more may be assumed."""

    def __init__(self, given: Iterable[Relation] = (), *, closed: bool = False) -> None:
        self.relations: list[Relation] = list(given)
        self.closed = closed
        self.heard: list[Relation] = []  # what the program itself makes sure of
        self._noted: set[Relation] = set(self.relations)
        self._ranges: dict[Terms, tuple[int | None, int | None]] = {}
        self._outer: Assumptions | None = None
        for one in self.relations:
            self._narrow(one)

    def __enter__(self) -> Assumptions:
        self._outer = getattr(_THREAD, "assumptions", None)
        _THREAD.assumptions = self
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _THREAD.assumptions = self._outer

    def note(self, relation: Relation) -> None:
        """Rely on it."""
        if relation not in self._noted:
            self._noted.add(relation)
            self.relations.append(relation)
            self._narrow(relation)

    def tell(self, relation: Relation) -> None:
        """It holds from here on, because the program itself makes sure of it: nobody else needs
        to."""
        if relation not in self._noted:
            self._noted.add(relation)
            self.heard.append(relation)
            self._narrow(relation)

    def expect(self, relation: Relation) -> None:
        """It holds from here on, because an operation that comes next raises where it does not."""
        depends_on_assumptions()
        self.tell(relation)

    def all_relations(self) -> list[Relation]:
        """What is noted or told, in those that were entered before too."""
        outer = self._outer.all_relations() if self._outer is not None else []
        return [*outer, *self.relations, *self.heard]

    def told(self, operation: str, left: Size, right: Size) -> bool | None:
        """The truth of a comparison as far as it follows from one that was noted before."""
        if Relation(operation, left, right) in self._noted:
            return True
        if Relation(OPPOSITE[operation], left, right) in self._noted:
            return False
        form, factor, constant = _form(left - right)
        low, high = self._ranges.get(form, (None, None))
        if factor < 0:
            low, high = high, low
        answer = _BY_RANGE[operation](
            None if low is None else factor * low + constant,
            None if high is None else factor * high + constant,
        )
        if answer is None and self._outer is not None:
            return self._outer.told(operation, left, right)
        return answer

    def _narrow(self, relation: Relation) -> None:
        """Keep the range of what is compared, the constant part apart."""
        if relation.operation == "!=":
            return
        form, factor, constant = _form(relation.left - relation.right)
        low, high = _IMPLIED[relation.operation]
        # low <= factor * form + constant <= high
        low = None if low is None else low - constant
        high = None if high is None else high - constant
        if factor < 0:
            low, high, factor = _negative(high), _negative(low), -factor
        known_low, known_high = self._ranges.get(form, (None, None))
        least = [
            x for x in (known_low, None if low is None else -(-low // factor)) if x is not None
        ]
        most = [x for x in (known_high, None if high is None else high // factor) if x is not None]
        self._ranges[form] = max(least, default=None), min(most, default=None)


class _CurrentAssumptions(threading.local):
    assumptions: Assumptions | None = None
    questions: int = 0


_THREAD = _CurrentAssumptions()


def assumptions() -> Assumptions | None:
    """Those that this thread works under."""
    return _THREAD.assumptions


def current_relations() -> list[Relation]:
    """All that this thread may rely upon just now."""
    assumed = assumptions()
    return [] if assumed is None else assumed.all_relations()


def _set_assumptions(value: Assumptions | None) -> None:
    _THREAD.assumptions = value


torch_abi.FENCED["assumptions"] = torch_abi.Switch(assumptions, _set_assumptions)


def told(operation: str, left: Size, right: Size) -> bool | None:
    """The truth of a comparison as ranges and this thread's assumptions tell; None: they do not."""
    answer = known(operation, left, right)
    if answer is not None:
        return answer
    _THREAD.questions += 1
    assumed = _THREAD.assumptions
    return assumed.told(operation, left, right) if assumed is not None else None


def questions() -> int:
    """How many comparisons this thread asked for that ranges do not tell: a function that made no
    further one while it ran answers the same under any assumptions."""
    return _THREAD.questions


def depends_on_assumptions() -> None:
    """What is answered now rests on this thread's assumptions, and is nobody else's."""
    _THREAD.questions += 1


def decide(operation: str, left: Size, right: Size) -> bool:
    """Whether `left operation right`, now and in every call that uses what is being compiled."""
    answer = told(operation, left, right)
    if answer is not None:
        return answer
    assumed = _THREAD.assumptions
    reads = reads_of(left, right)
    if reads:
        raise Specialise(reads, f"{left} {operation} {right}")
    if assumed is None or assumed.closed:
        names = frozenset(atom.key for atom in symbols_of(left) | symbols_of(right))
        raise Specialise(names, f"{left} {operation} {right}")
    answer = COMPARISONS[operation](hint_of(left), hint_of(right))
    assumed.note(Relation(operation if answer else OPPOSITE[operation], left, right))
    return answer
