"""What follows from the ranges of symbols, and from indices being below their extents.

Enters: sizes. Leaves: whether one is at least (at most) a number, always; how one grows with a
symbol. Invariant: yes is a proof, no is only that none was found.

    >>> s = size_symbol("s0", 4, low=2)
    >>> known_at_least(s * s - s, 2), known_at_least(s, 3)
    (True, False)
"""

from __future__ import annotations

from collections.abc import Iterable
from math import lcm

from windfall.ir.symint.expression import (
    Atom,
    Bound,
    Expression,
    Monomial,
    Size,
    bounds,
    expression_of,
    make_monomial,
    normal_sum,
    substitute,
    symbol,
    symbols_of,
)
from windfall.ir.symint.payloads import IndexBound

ROUNDS = 12  # terms of one quotient, atoms of one proof


def least_of(values: Iterable[Bound]) -> Bound:
    """The least of several bounds; None where one is not known."""
    known = list(values)
    return None if None in known else min(v for v in known if v is not None)


def least_known(values: Iterable[Bound]) -> Bound:
    """The least of those bounds that are known."""
    return min((v for v in values if v is not None), default=None)


def greatest_of(values: Iterable[Bound]) -> Bound:
    """The greatest of several bounds; None where one is not known."""
    known = list(values)
    return None if None in known else max(v for v in known if v is not None)


def greatest_known(values: Iterable[Bound]) -> Bound:
    """The greatest of those bounds that are known."""
    return max((v for v in values if v is not None), default=None)


def known_at_least(value: Size, limit: int) -> bool:
    """Whether `value >= limit` follows from the ranges."""
    low, _ = bounds(value)
    if low is not None and low >= limit:
        return True
    if isinstance(value, int) or all(atom.payload is None for atom in value.symbols):
        return False
    if value.least is None:
        value.least = (greatest_known((_least_value(value), _least_of_whole(value))),)
    (least,) = value.least
    return least is not None and least >= limit


def known_at_most(value: Size, limit: int) -> bool:
    """Whether `value <= limit` follows from the ranges."""
    return known_at_least(-value, -limit)


def _least_value(value: Expression) -> Bound:
    """The least value as relations between symbols tell too: an index is below its extent."""
    current: Size = value
    for _ in range(ROUNDS):
        chosen = _inner_atom(current)
        if chosen is None:
            break
        growth = growth_of(current, chosen)
        if growth is None:
            return None
        rest = current - growth * expression_of(chosen)
        if known_at_least(growth, 0):
            least = _scaled_least(chosen, growth)
        elif known_at_most(growth, 0):
            least = _scaled_greatest(chosen, growth)
        else:
            return None
        if least is None:
            return None
        current = rest + least
    # Sizes are counted from their least value on: then mixed terms tell more.
    places = {
        atom: atom.low
        + symbol(f"{atom.key}+", 0, None if atom.high is None else atom.high - atom.low)
        for atom in symbols_of(current)
        if atom.low is not None
    }
    return bounds(substitute(current, places))[0]


def _least_of_whole(value: Expression) -> Bound:
    """The least value as its multiple tells in which quotients are whole: `s0 - s0//2` is half of
    `2*s0 - 2*(s0//2)`, which is at least `s0`."""
    divisors = [
        atom.arguments[1]
        for monomial, _ in value.terms
        for atom in monomial.atoms
        if atom.operation == "//"
    ]
    times = lcm(*(one for one in divisors if isinstance(one, int) and one > 0))
    if times == 1:
        return None
    whole = value * times
    least = _least_value(whole) if isinstance(whole, Expression) else whole
    return None if least is None else -(-least // times)


def _inner_atom(value: Size) -> Atom | None:
    """An atom that is not a plain size: the one that holds most symbols, as others stand in it."""
    if isinstance(value, int):
        return None
    atoms = {
        atom
        for monomial, _ in value.terms
        for atom in monomial.atoms
        if atom.operation or isinstance(atom.payload, IndexBound) or _limit_of(atom) is not None
    }
    return max(atoms, key=lambda atom: (len(atom.key), atom.key), default=None)


def _limit_of(atom: Atom) -> Size | None:
    """The size that a symbol is below."""
    limit: Size | None = getattr(atom.payload, "extent", None)
    return limit


def _scaled_least(atom: Atom, growth: Size) -> Size | None:
    """A bound below `growth * atom`, for a growth of at least 0."""
    if atom.operation == "//" and known_at_least(atom.arguments[1], 1):
        value, divisor = atom.arguments
        by = growth // divisor
        if by * divisor == growth:
            return by * (value - divisor + 1)
    return None if atom.low is None else growth * atom.low


def _scaled_greatest(atom: Atom, growth: Size) -> Size | None:
    """A bound below `growth * atom`, for a growth of at most 0."""
    if atom.operation == "//" and known_at_least(atom.arguments[1], 1):
        value, divisor = atom.arguments
        by = growth // divisor
        if by * divisor == growth:
            return by * value
    highest = _greatest_value(atom)
    return None if highest is None else growth * highest


def _greatest_value(atom: Atom) -> Size | None:
    """A size that an atom does not exceed."""
    limit = _limit_of(atom)
    if limit is not None:
        return limit - 1
    if atom.operation == "%" and known_at_least(atom.arguments[1], 1):
        return atom.arguments[1] - 1
    if atom.operation == "//" and known_at_least(atom.arguments[1], 1):
        value, divisor = atom.arguments
        inner = value.atom if isinstance(value, Expression) else None
        highest = None if inner is None else _greatest_value(inner)
        if highest is not None:
            return highest // divisor
    if atom.operation == "min":
        return next((each for each in atom.arguments if isinstance(each, Expression)), atom.high)
    return atom.high


def growth_of(value: Size, atom: Atom) -> Size | None:
    """How `value` grows with `atom`, where that is one size; 0 where it does not occur; None where
    it occurs in any other way.

    >>> s, i = size_symbol("s0", 4), symbol("i")
    >>> str(growth_of(3 * s * i + i + s, symbol_atom(i)))
    '3*s0 + 1'
    """
    if isinstance(value, int):
        return 0
    fixed = None if atom.operation else value.coefficient(atom)
    if fixed is not None:
        return fixed
    terms: dict[Monomial, int] = {}
    constant = 0
    for monomial, coefficient in value.terms:
        times = monomial.atoms.count(atom)
        others = tuple(each for each in monomial.atoms if each is not atom)
        if times > 1 or any(atom in each.symbols for each in others if each.operation):
            return None
        if times and others:
            terms[make_monomial(others)] = coefficient
        elif times:
            constant = coefficient
    return normal_sum(terms, constant)
