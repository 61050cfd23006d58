"""Quotients, remainders, minima and maxima of sizes, simplified as far as ranges tell.

Enters: sizes. Leaves: a size; an atom only where nothing simpler is equal to it. Invariant: the
meaning is Python's (`//` rounds down, `%` has the sign of the divisor). Importing this module
teaches `expression.py` these operations.

    >>> i, j = symbol("i", 0, 9), symbol("j", 0, 3)
    >>> str(floor_divide(4 * i + j, 4)), str(minimum(i, 20))
    ('i', 'i')
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from math import gcd
from typing import Any

from windfall.ir.symint.deductions import (
    ROUNDS,
    greatest_known,
    greatest_of,
    known_at_least,
    least_known,
    least_of,
)
from windfall.ir.symint.expression import (
    REBUILD,
    SHORTEN,
    Atom,
    Bound,
    Expression,
    Monomial,
    Size,
    bounds,
    expression_of,
    is_sum,
    make_atom,
    make_monomial,
    make_sum,
)

_REMEMBERED = 4096  # answers about sizes that vary: their proofs are dear


def floor_divide(value: Size, divisor: Size) -> Size:
    """Python's `//`, simplified."""
    if isinstance(divisor, int):
        if isinstance(value, int):
            return value // divisor
        if divisor == 1:
            return value
        if divisor == -1:
            return -value
        if divisor > 0:
            return _divide_by_positive(value, divisor)
    elif value is divisor:
        return 1
    elif known_at_least(divisor, 1):
        return _divide_by_expression(value, divisor)
    return _division("//", value, divisor)


def modulo(value: Size, divisor: Size) -> Size:
    """Python's `%`, simplified."""
    if isinstance(divisor, int):
        if isinstance(value, int):
            return value % divisor
        if divisor in (1, -1):
            return 0
        if divisor > 0:
            return _modulo_positive(value, divisor)
    elif value is divisor:
        return 0
    elif known_at_least(divisor, 1):
        return _modulo_expression(value, divisor)
    return _division("%", value, divisor)


def _split(value: Expression, divisor: int) -> tuple[Size, Size]:
    """`value == divisor * whole + rest`, with what divides evenly in `whole`."""
    whole = [(m, c // divisor) for m, c in value.terms if c % divisor == 0]
    rest = tuple((m, c) for m, c in value.terms if c % divisor)
    return (
        make_sum(tuple(whole), value.constant // divisor),
        make_sum(rest, value.constant % divisor),
    )


def _divide_by_positive(value: Expression, divisor: int) -> Size:
    whole, rest = _split(value, divisor)
    if isinstance(rest, int):
        return whole  # rest is in [0, divisor) already
    low, high = rest.bounds
    if low is not None and high is not None and low // divisor == high // divisor:
        return whole + low // divisor
    if high is None and _fits(rest, divisor):
        return whole
    common = gcd(divisor, *(c for _, c in rest.terms))
    if common > 1:
        rest = make_sum(tuple((m, c // common) for m, c in rest.terms), rest.constant // common)
        return whole + floor_divide(rest, divisor // common)
    atom = rest.atom
    if atom is not None and atom.operation == "//":
        numerator, inner = atom.arguments
        if known_at_least(inner, 1):
            return whole + floor_divide(numerator, inner * divisor)
    if all(c < 0 for _, c in rest.terms):  # rounded up, as `-(-n // 4)`
        return whole - floor_divide(divisor - 1 - rest, divisor)
    return whole + _division("//", rest, divisor)


def _modulo_positive(value: Expression, divisor: int) -> Size:
    _, rest = _split(value, divisor)
    if isinstance(rest, int):
        return rest
    plain = _without_modulo(rest, divisor)
    if plain is not rest:
        return modulo(plain, divisor)
    low, high = rest.bounds
    if low is not None and high is not None and low // divisor == high // divisor:
        return rest - divisor * (low // divisor)
    if high is None and _fits(rest, divisor):
        return rest
    common = gcd(divisor, rest.constant, *(c for _, c in rest.terms))
    if common > 1:
        inner = make_sum(tuple((m, c // common) for m, c in rest.terms), rest.constant // common)
        return common * modulo(inner, divisor // common)
    atom = rest.atom
    if atom is not None and atom.operation == "%":
        numerator, inner_divisor = atom.arguments
        if modulo(inner_divisor, divisor) == 0 and known_at_least(inner_divisor, 1):
            return modulo(numerator, divisor)
    return _division("%", rest, divisor)


def _without_modulo(value: Expression, divisor: int) -> Size:
    """`value` with `e` in place of terms `c*(e % d)`, where the divisor divides `c*d`."""
    result: Size = value
    for monomial, c in value.terms:
        atom = monomial.atoms[0]
        if len(monomial.atoms) == 1 and atom.operation == "%" and len(value.terms) > (c == 1):
            numerator, inner = atom.arguments
            if isinstance(inner, int) and inner > 0 and c * inner % divisor == 0:
                result = result - make_sum(((monomial, c),), 0) + c * numerator
    return result


@lru_cache(_REMEMBERED)
def _divide_by_expression(value: Size, divisor: Expression) -> Size:
    """`value // divisor`, where the divisor is at least 1."""
    whole, rest = _split_by(value, divisor)
    if _fits(rest, divisor):
        return whole
    if _fits(rest + divisor, divisor):
        return whole - 1
    if len(divisor.terms) > 1 or divisor.constant:  # taken apart it would only be longer
        whole, rest = 0, value
    atom = rest.atom if isinstance(rest, Expression) else None
    if atom is not None and atom.operation == "//" and known_at_least(atom.arguments[1], 1):
        return whole + floor_divide(atom.arguments[0], atom.arguments[1] * divisor)
    return whole + _division("//", rest, divisor)


@lru_cache(_REMEMBERED)
def _modulo_expression(value: Size, divisor: Expression) -> Size:
    """`value % divisor`, where the divisor is at least 1."""
    _, rest = _split_by(value, divisor)
    for shift in (0, 1):
        if _fits(rest + shift * divisor, divisor):
            return rest + shift * divisor
    if len(divisor.terms) > 1 or divisor.constant:
        rest = value
    atom = rest.atom if isinstance(rest, Expression) else None
    if atom is not None and atom.operation == "%" and known_at_least(atom.arguments[1], 1):
        numerator, inner = atom.arguments
        if not isinstance(inner, int) and _split_by(inner, divisor)[1] == 0:
            return modulo(numerator, divisor)
    return _division("%", rest, divisor)


def _split_by(value: Size, divisor: Expression) -> tuple[Size, Size]:
    """`value == divisor * whole + rest`: division of polynomials by the divisor's longest term."""
    lead, by = max(divisor.terms, key=lambda term: (len(term[0].atoms), term[0].key))
    whole: Size = 0
    rest = value
    for _ in range(ROUNDS):
        found = _multiple(rest, lead, by)
        if found is None:
            break
        whole = whole + found
        rest = rest - found * divisor
    return whole, rest


def _multiple(value: Size, lead: Monomial, by: int) -> Size | None:
    """What one term of `value` is `by * lead` times of."""
    if isinstance(value, int):
        return None
    for monomial, coefficient in value.terms:
        atoms = list(monomial.atoms)
        if coefficient % by or any(lead.atoms.count(a) > atoms.count(a) for a in lead.atoms):
            continue
        for atom in lead.atoms:
            atoms.remove(atom)
        if not atoms:
            return coefficient // by
        return make_sum(((make_monomial(tuple(atoms)), coefficient // by),), 0)
    return None


@lru_cache(_REMEMBERED)
def _fits(value: Size, divisor: Size) -> bool:
    """Whether `0 <= value < divisor` always."""
    return known_at_least(value, 0) and known_at_least(divisor - value, 1)


def _division(operation: str, value: Size, divisor: Size) -> Size:
    low, high = bounds(value)
    bound: tuple[Bound, Bound] = (None, None)
    if isinstance(divisor, int) and divisor > 0:
        if operation == "%":
            bound = (
                0,
                divisor - 1 if low is None or low < 0 or high is None else min(high, divisor - 1),
            )
        else:
            bound = (
                None if low is None else low // divisor,
                None if high is None else high // divisor,
            )
    elif known_at_least(divisor, 1) and low is not None and low >= 0:
        bound = (0, high)
    key = f"({value})" if is_sum(value) else str(value)
    by = f"({divisor})" if not isinstance(divisor, int) else str(divisor)
    return expression_of(make_atom(operation, f"({key}{operation}{by})", (value, divisor), bound))


def minimum(*values: Size) -> Size:
    """The least of several, simplified under their ranges."""
    return _extreme("min", values, lambda a, b: known_at_least(b - a, 0))


def maximum(*values: Size) -> Size:
    """The greatest of several, simplified under their ranges."""
    return _extreme("max", values, lambda a, b: known_at_least(a - b, 0))


def _extreme(operation: str, values: tuple[Size, ...], wins: Callable[[Size, Size], bool]) -> Size:
    flat: list[Size] = []
    for value in values:
        atom = value.atom if isinstance(value, Expression) else None
        flat.extend(
            atom.arguments if atom is not None and atom.operation == operation else (value,)
        )
    kept: list[Size] = []
    for value in flat:
        if any(wins(other, value) for other in kept):
            continue
        kept = [other for other in kept if not wins(value, other)]
        kept.append(value)
    if len(kept) == 1:
        return kept[0]
    kept.sort(key=str)
    lows, highs = zip(*(bounds(value) for value in kept), strict=True)
    bound = _EXTREME_BOUNDS[operation](lows, highs)
    text = f"{operation}({', '.join(map(str, kept))})"
    return expression_of(make_atom(operation, text, tuple(kept), bound))


_EXTREME_BOUNDS: dict[str, Callable[[Any, Any], tuple[Bound, Bound]]] = {
    "min": lambda lows, highs: (least_of(lows), least_known(highs)),
    "max": lambda lows, highs: (greatest_known(lows), greatest_of(highs)),
}


def _remainders(value: Expression) -> Iterator[tuple[Atom, Size, Size]]:
    """Each remainder in a sum: the atom, what it is multiplied by, and the product of both."""
    for monomial, c in value.terms:
        for place, atom in enumerate(monomial.atoms):
            if atom.operation == "%":
                others = monomial.atoms[:place] + monomial.atoms[place + 1 :]
                factor: Size = c if not others else make_sum(((make_monomial(others), c),), 0)
                yield atom, factor, make_sum(((monomial, c),), 0)


def _recombine(value: Expression) -> Size:
    """`c*(e % d) + c*d*(e // d)` is `c*e`, where `c` may be any product."""
    for atom, factor, term in _remainders(value):
        numerator, divisor = atom.arguments
        quotient = floor_divide(numerator, divisor)
        if not isinstance(quotient, Expression) or quotient.atom is None:
            continue
        whole = quotient * divisor * factor
        if _holds_terms(value, whole):
            return value - whole - term + factor * numerator
    return value


def _fill_up(value: Expression) -> Size:
    """`c*e + c*(-e % d)` is `c*d*((e + d - 1)//d)`: what is filled up to a multiple."""
    for atom, factor, term in _remainders(value):
        numerator, divisor = atom.arguments
        if not known_at_least(divisor, 1):
            continue
        filled = -factor * numerator
        if _holds_terms(value, filled):
            return value - filled - term - factor * divisor * floor_divide(numerator, divisor)
    return value


def _holds_terms(value: Expression, part: Size) -> bool:
    """Whether each term of `part`, which has no constant, is one of `value`."""
    if isinstance(part, int) or part.constant:
        return False
    coefficients = dict(value.terms)
    return all(coefficients.get(m) == c for m, c in part.terms)


REBUILD.update({"//": floor_divide, "%": modulo, "min": minimum, "max": maximum})
SHORTEN.extend((_recombine, _fill_up))
