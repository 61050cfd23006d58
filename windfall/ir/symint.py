"""Integer expressions: sizes that are not known yet, and the indices of loops.

Enters: integers and named symbols. Leaves: interned immutable `Expression`s, kept in one normal
form, so that equal expressions are the same object. Invariant: arithmetic means Python's integers
(floor division, modulo with the sign of the divisor); what is constant is an `int`, never an
`Expression`.

    >>> s = symbol("s0")
    >>> str(s * 4 + s), (s * 4 + s).evaluate({"s0": 3})
    ('5*s0', 15)
    >>> i, j = symbol("i", 0, 9), symbol("j", 0, 3)
    >>> str((4 * i + j) // 4), str((4 * i + j) % 4)
    ('i', 'j')

The normal form is a sum of products: `terms` maps each product of atoms to its coefficient, beside
a constant. An atom is a symbol, or a quotient, remainder, minimum or maximum that could not be
simplified away under the ranges of its symbols.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import gcd, lcm
from operator import attrgetter
from typing import Any, Union
from weakref import WeakValueDictionary

from windfall import locks
from windfall.errors import Specialise

Bound = Union[int, None]  # noqa: UP007  None: no bound known
Evaluator = Callable[["Atom"], int]


class Atom:
    """A factor: a symbol, or an operation on expressions that does not simplify."""

    __slots__ = (
        "__weakref__",
        "arguments",
        "high",
        "key",
        "low",
        "operation",
        "payload",
        "symbols",
    )

    key: str  # the text, which orders terms
    operation: str  # "" for a symbol, else "//", "%", "min" or "max"
    arguments: tuple[Size, ...]
    low: Bound
    high: Bound
    payload: Any  # what a symbol stands for, where that is more than a name
    symbols: frozenset[Atom]

    def __str__(self) -> str:
        return self.key

    def __repr__(self) -> str:
        return f"Atom({self.key})"


class Monomial:
    """A product of atoms, in order of their text."""

    __slots__ = ("__weakref__", "atoms", "key")

    atoms: tuple[Atom, ...]
    key: str

    def __repr__(self) -> str:
        return f"Monomial({self.key})"


_ATOMS: WeakValueDictionary[Any, Atom] = WeakValueDictionary()
_MONOMIALS: WeakValueDictionary[tuple[Atom, ...], Monomial] = WeakValueDictionary()
_EXPRESSIONS: WeakValueDictionary[Any, Expression] = WeakValueDictionary()
_BY_KEY = attrgetter("key")
_REMEMBERED = 4096  # answers about sizes that vary: their proofs are dear
# Reading a table needs no lock; but two threads must not both add what they did not find.
_ADDING = locks.lock()


def _monomial(atoms: tuple[Atom, ...]) -> Monomial:
    found = _MONOMIALS.get(atoms)
    if found is None:
        found = Monomial()
        found.atoms = atoms
        found.key = "*".join(atom.key for atom in atoms)
        with _ADDING:
            found = _MONOMIALS.setdefault(atoms, found)
    return found


def _atom(
    operation: str,
    key: str,
    arguments: tuple[Size, ...],
    bounds: tuple[Bound, Bound],
    payload: Any = None,
) -> Atom:
    identity = (operation, key, arguments, bounds, payload)
    found = _ATOMS.get(identity)
    if found is None:
        found = Atom()
        found.operation, found.key, found.arguments, found.payload = (
            operation,
            key,
            arguments,
            payload,
        )
        found.low, found.high = bounds
        if operation:
            parts = (a.symbols for a in arguments if isinstance(a, Expression))
            found.symbols = frozenset[Atom]().union(*parts)
        else:
            found.symbols = frozenset((found,))
        with _ADDING:
            found = _ATOMS.setdefault(identity, found)
    return found


class Expression:
    """A sum of products of atoms, not constant. Made by arithmetic on `symbol`s only."""

    __slots__ = ("__weakref__", "_bounds", "_least", "_symbols", "_text", "constant", "terms")

    terms: tuple[tuple[Monomial, int], ...]
    constant: int
    _bounds: tuple[Bound, Bound] | None
    _least: tuple[Bound] | None  # what `_least_value` found
    _symbols: frozenset[Atom] | None
    _text: str | None

    # ------------------------------------------------------------------------- facts

    @property
    def bounds(self) -> tuple[Bound, Bound]:
        """The least and the greatest value, inclusive, as far as ranges of symbols tell."""
        if self._bounds is None:
            self._bounds = _bounds_of(self)
        return self._bounds

    @property
    def symbols(self) -> frozenset[Atom]:
        """The symbols that occur anywhere in it."""
        if self._symbols is None:
            parts = (atom.symbols for monomial, _ in self.terms for atom in monomial.atoms)
            self._symbols = frozenset[Atom]().union(*parts)
        return self._symbols

    @property
    def names(self) -> frozenset[str]:
        """The names of those symbols."""
        return frozenset(atom.key for atom in self.symbols)

    @property
    def atom(self) -> Atom | None:
        """The single atom that this expression is, if it is one."""
        if self.constant == 0 and len(self.terms) == 1:
            monomial, coefficient = self.terms[0]
            if coefficient == 1 and len(monomial.atoms) == 1:
                return monomial.atoms[0]
        return None

    @property
    def parts(self) -> tuple[Size, ...]:
        """The terms, each as an expression of its own; the constant is not among them."""
        return tuple(_expression((term,), 0) for term in self.terms)

    def coefficient(self, atom: Atom) -> int | None:
        """How the expression grows with the symbol `atom`, where that is one constant; 0 where it
        does not occur; None where it occurs in any other way."""
        found = 0
        for monomial, coefficient in self.terms:
            atoms = monomial.atoms
            if len(atoms) == 1 and atoms[0] is atom:
                found = coefficient
            elif any(atom in other.symbols for other in atoms):
                return None
        return found

    def evaluate(self, values: Mapping[str, int]) -> int:
        """The integer that this expression is under `values` (by name of symbol)."""

        def value(atom: Atom) -> int:
            if not atom.operation:
                return values[atom.key]
            return _OPERATIONS[atom.operation](*[evaluate(a, values) for a in atom.arguments])

        total = self.constant
        for monomial, coefficient in self.terms:
            for atom in monomial.atoms:
                coefficient *= value(atom)
            total += coefficient
        return total

    def substitute(self, values: Mapping[Atom, Size]) -> Size:
        """The expression with symbols replaced, simplified again."""
        if self.symbols.isdisjoint(values):
            return self
        # Loop indices are affine almost always: then terms are gathered without making the sums
        # between them.
        constant = self.constant
        terms: dict[Monomial, int] = {}
        for monomial, coefficient in self.terms:
            value: Size = _substitute_atom(monomial.atoms[0], values)
            for atom in monomial.atoms[1:]:
                value = value * _substitute_atom(atom, values)
            if isinstance(value, int):
                constant += coefficient * value
            else:
                constant += coefficient * value.constant
                for other, by in value.terms:
                    terms[other] = terms.get(other, 0) + coefficient * by
        return _normal(terms, constant)

    # -------------------------------------------------------------------- arithmetic

    def __add__(self, other: Size) -> Size:
        if isinstance(other, int):
            return self if other == 0 else _expression(self.terms, self.constant + other)
        if not isinstance(other, Expression):
            return NotImplemented
        terms = dict(self.terms)
        for monomial, coefficient in other.terms:
            terms[monomial] = terms.get(monomial, 0) + coefficient
        return _normal(terms, self.constant + other.constant)

    __radd__ = __add__

    def __neg__(self) -> Size:
        return _expression(tuple((m, -c) for m, c in self.terms), -self.constant)

    def __sub__(self, other: Size) -> Size:
        return self + (-other)

    def __rsub__(self, other: Size) -> Size:
        return (-self) + other

    def __mul__(self, other: Size) -> Size:
        if isinstance(other, int):
            if other == 1:
                return self
            if other == 0:
                return 0
            return _expression(tuple((m, c * other) for m, c in self.terms), self.constant * other)
        if not isinstance(other, Expression):
            return NotImplemented
        terms: dict[Monomial, int] = {}
        ones = ((_ONE, other.constant),) if other.constant else ()
        mine = self.terms + (((_ONE, self.constant),) if self.constant else ())
        for left, by in mine:
            for right, coefficient in other.terms + ones:
                monomial = _monomial(tuple(sorted(left.atoms + right.atoms, key=_BY_KEY)))
                terms[monomial] = terms.get(monomial, 0) + by * coefficient
        return _normal(terms, terms.pop(_ONE, 0))

    __rmul__ = __mul__

    def __floordiv__(self, other: Size) -> Size:
        return floor_divide(self, other)

    def __rfloordiv__(self, other: Size) -> Size:
        return floor_divide(other, self)

    def __mod__(self, other: Size) -> Size:
        return modulo(self, other)

    def __rmod__(self, other: Size) -> Size:
        return modulo(other, self)

    def __str__(self) -> str:
        if self._text is None:
            self._text = _text_of(self)
        return self._text

    def __repr__(self) -> str:
        return f"Expression({self})"


Size = Union[int, Expression]  # noqa: UP007  (a runtime alias that Expression refers to)

_ONE = _monomial(())
_OPERATIONS: dict[str, Callable[..., int]] = {
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "min": min,
    "max": max,
}


def _expression(terms: tuple[tuple[Monomial, int], ...], constant: int) -> Size:
    """Intern; `terms` are sorted and have no zero coefficient."""
    if not terms:
        return constant
    identity = (terms, constant)
    found = _EXPRESSIONS.get(identity)
    if found is None:
        found = Expression()
        found.terms, found.constant = terms, constant
        found._bounds = found._least = found._symbols = found._text = None
        with _ADDING:
            found = _EXPRESSIONS.setdefault(identity, found)
    return found


def _normal(terms: dict[Monomial, int], constant: int) -> Size:
    kept = [(m, c) for m, c in terms.items() if c]
    if len(kept) > 1:
        kept.sort(key=lambda pair: pair[0].key)
    result = _expression(tuple(kept), constant)
    if isinstance(result, int) or not any(
        atom.operation == "%" for m, _ in kept for atom in m.atoms
    ):
        return result
    shorter = _recombine(result)
    return _fill_up(result) if shorter is result else shorter


def _recombine(value: Expression) -> Size:
    """`c*(e % d) + c*d*(e // d)` is `c*e`, where `c` may be any product."""
    coefficients = dict(value.terms)
    for monomial, c in value.terms:
        for place, atom in enumerate(monomial.atoms):
            if atom.operation != "%":
                continue
            numerator, divisor = atom.arguments
            quotient = floor_divide(numerator, divisor)
            if not isinstance(quotient, Expression) or quotient.atom is None:
                continue
            others = monomial.atoms[:place] + monomial.atoms[place + 1 :]
            factor: Size = c if not others else _expression(((_monomial(others), c),), 0)
            whole = quotient * divisor * factor
            if isinstance(whole, Expression) and _holds_terms(coefficients, whole):
                rest = value - whole - _expression(((monomial, c),), 0)
                return rest + factor * numerator
    return value


def _fill_up(value: Expression) -> Size:
    """`c*e + c*(-e % d)` is `c*d*((e + d - 1)//d)`: what is filled up to a multiple."""
    coefficients = dict(value.terms)
    for monomial, c in value.terms:
        for place, atom in enumerate(monomial.atoms):
            if atom.operation != "%" or not known_at_least(atom.arguments[1], 1):
                continue
            numerator, divisor = atom.arguments
            others = monomial.atoms[:place] + monomial.atoms[place + 1 :]
            factor: Size = c if not others else _expression(((_monomial(others), c),), 0)
            filled = -factor * numerator
            if isinstance(filled, Expression) and _holds_terms(coefficients, filled):
                rest = value - filled - _expression(((monomial, c),), 0)
                return rest - factor * divisor * floor_divide(numerator, divisor)
    return value


def _holds_terms(coefficients: Mapping[Monomial, int], part: Expression) -> bool:
    return not part.constant and all(coefficients.get(m) == c for m, c in part.terms)


# ------------------------------------------------------------------------------------ symbols


def symbol(name: str, low: Bound = 0, high: Bound = None, payload: Any = None) -> Expression:
    """A named integer between `low` and `high`, inclusive. Symbols of one name, range and payload
    are the same symbol."""
    atom = _atom("", name, (), (low, high), payload)
    return _of_atom(atom)


varying = False  # whether any size that varies was ever made: spares static programs the look


@dataclass(frozen=True, slots=True)
class Hint:
    """The payload of a size that varies: what it is in the call being compiled."""

    value: int


@dataclass(frozen=True, slots=True)
class Read:
    """The payload of an integer that is read from data while the program runs (`item()`, how many
    elements a mask selects): it has no value when the program is compiled."""


@dataclass(frozen=True, slots=True)
class Extent:
    """The payload of an index that is below a size that varies."""

    extent: Expression


def size_symbol(name: str, value: int, low: Bound = 2, high: Bound = None) -> Expression:
    """A size or an integer argument that varies; it is `value` in the call being compiled.

    >>> hint_of(size_symbol("s0", 4) * 3 + 1)
    13
    """
    global varying
    varying = True
    return symbol(name, low, high, Hint(value))


def read_symbol(name: str, low: Bound, high: Bound) -> Expression:
    """An integer that is read from data: nobody can tell its value, so that nothing depends on it.

    >>> hint_of(read_symbol("u0", 0, None) + 1)
    Traceback (most recent call last):
    windfall.errors.Specialise: W0103: a guess at u0 + 1 needs the value of u0
    """
    global varying
    varying = True
    return symbol(name, low, high, Read())


def reads_of(*sizes: Size) -> frozenset[str]:
    """The names of what is read from data in sizes."""
    return frozenset(
        atom.key for size in sizes for atom in symbols_of(size) if atom.payload.__class__ is Read
    )


def hint_of(size: Size) -> int:
    """What a size is in the call being compiled."""
    if isinstance(size, int):
        return size
    reads = reads_of(size)
    if reads:
        raise Specialise(reads, f"a guess at {size}")
    return size.evaluate({atom.key: atom.payload.value for atom in size.symbols})


def _of_atom(atom: Atom) -> Expression:
    result = _expression(((_monomial((atom,)), 1),), 0)
    assert isinstance(result, Expression)
    return result


def expression_of(atom: Atom) -> Expression:
    """The expression that is just this atom."""
    return _of_atom(atom)


def symbol_atom(value: Size) -> Atom:
    """The atom of an expression that is known to be one symbol."""
    atom = value.atom if isinstance(value, Expression) else None
    assert atom is not None and not atom.operation, f"{value} is not a symbol"
    return atom


def _substitute_atom(atom: Atom, values: Mapping[Atom, Size]) -> Size:
    if not atom.operation:
        found = values.get(atom)
        return _of_atom(atom) if found is None else found
    arguments = [substitute(argument, values) for argument in atom.arguments]
    return REBUILD[atom.operation](*arguments)


# --------------------------------------------------------------------------------- operations


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
        _expression(tuple(whole), value.constant // divisor),
        _expression(rest, value.constant % divisor),
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
        rest = _expression(tuple((m, c // common) for m, c in rest.terms), rest.constant // common)
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
        inner = _expression(tuple((m, c // common) for m, c in rest.terms), rest.constant // common)
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
                result = result - _expression(((monomial, c),), 0) + c * numerator
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
    for _ in range(_ROUNDS):
        found = _multiple(rest, lead, by)
        if found is None:
            break
        whole = whole + found
        rest = rest - found * divisor
    return whole, rest


_ROUNDS = 12  # terms of one quotient


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
        return _expression(((_monomial(tuple(atoms)), coefficient // by),), 0)
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
    key = f"({value})" if _is_sum(value) else str(value)
    by = f"({divisor})" if not isinstance(divisor, int) else str(divisor)
    return _of_atom(_atom(operation, f"({key}{operation}{by})", (value, divisor), bound))


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
    return _of_atom(_atom(operation, text, tuple(kept), bound))


def _least(values: Iterable[Bound]) -> Bound:
    known = list(values)
    return None if None in known else min(v for v in known if v is not None)


def _least_known(values: Iterable[Bound]) -> Bound:
    return min((v for v in values if v is not None), default=None)


def _greatest(values: Iterable[Bound]) -> Bound:
    known = list(values)
    return None if None in known else max(v for v in known if v is not None)


def _greatest_known(values: Iterable[Bound]) -> Bound:
    return max((v for v in values if v is not None), default=None)


_EXTREME_BOUNDS: dict[str, Callable[[Any, Any], tuple[Bound, Bound]]] = {
    "min": lambda lows, highs: (_least(lows), _least_known(highs)),
    "max": lambda lows, highs: (_greatest_known(lows), _greatest(highs)),
}
# How an operation is done again on other arguments.
REBUILD: dict[str, Callable[..., Size]] = {
    "//": floor_divide,
    "%": modulo,
    "min": minimum,
    "max": maximum,
}


# ------------------------------------------------------------------------------------- ranges


def _bounds_of(value: Expression) -> tuple[Bound, Bound]:
    low: Bound = value.constant
    high: Bound = value.constant
    for monomial, coefficient in value.terms:
        least, greatest = _product_bounds(monomial.atoms)
        if coefficient < 0:
            least, greatest = greatest, least
        low = None if low is None or least is None else low + coefficient * least
        high = None if high is None or greatest is None else high + coefficient * greatest
    return low, high


def _product_bounds(atoms: tuple[Atom, ...]) -> tuple[Bound, Bound]:
    low, high = atoms[0].low, atoms[0].high
    for atom in atoms[1:]:
        if low is not None and low >= 0 and atom.low is not None and atom.low >= 0:
            low = low * atom.low
            high = None if high is None or atom.high is None else high * atom.high
        elif None in (low, high, atom.low, atom.high):
            return None, None
        else:
            assert low is not None and high is not None
            assert atom.low is not None and atom.high is not None
            corners = [a * b for a in (low, high) for b in (atom.low, atom.high)]
            low, high = min(corners), max(corners)
    return low, high


def bounds(value: Size) -> tuple[Bound, Bound]:
    """The least and the greatest value of a size, inclusive."""
    return (value, value) if isinstance(value, int) else value.bounds


def known_at_least(value: Size, limit: int) -> bool:
    """Whether `value >= limit` follows from the ranges."""
    low, _ = bounds(value)
    if low is not None and low >= limit:
        return True
    if isinstance(value, int) or all(atom.payload is None for atom in value.symbols):
        return False
    if value._least is None:
        value._least = (_greatest_known((_least_value(value), _least_of_whole(value))),)
    (least,) = value._least
    return least is not None and least >= limit


def known_at_most(value: Size, limit: int) -> bool:
    """Whether `value <= limit` follows from the ranges."""
    return known_at_least(-value, -limit)


def _least_value(value: Expression) -> Bound:
    """The least value as relations between symbols tell too: an index is below its extent."""
    current: Size = value
    for _ in range(_ROUNDS):
        chosen = _inner_atom(current)
        if chosen is None:
            break
        growth = growth_of(current, chosen)
        if growth is None:
            return None
        rest = current - growth * _of_atom(chosen)
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
        if atom.operation or isinstance(atom.payload, Extent) or _limit_of(atom) is not None
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
        by = floor_divide(growth, divisor)
        if by * divisor == growth:
            return by * (value - divisor + 1)
    return None if atom.low is None else growth * atom.low


def _scaled_greatest(atom: Atom, growth: Size) -> Size | None:
    """A bound below `growth * atom`, for a growth of at most 0."""
    if atom.operation == "//" and known_at_least(atom.arguments[1], 1):
        value, divisor = atom.arguments
        by = floor_divide(growth, divisor)
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
            return floor_divide(highest, divisor)
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
            terms[_monomial(others)] = coefficient
        elif times:
            constant = coefficient
    return _normal(terms, constant)


# --------------------------------------------------------------------------- on any `Size`


def evaluate(value: Size, values: Mapping[str, int]) -> int:
    """`Expression.evaluate` for any size."""
    return value if isinstance(value, int) else value.evaluate(values)


def substitute(value: Size, values: Mapping[Atom, Size]) -> Size:
    """`Expression.substitute` for any size."""
    return value if isinstance(value, int) else value.substitute(values)


def symbols_of(value: Size) -> frozenset[Atom]:
    """`Expression.symbols` for any size."""
    return frozenset() if isinstance(value, int) else value.symbols


def coefficient_of(value: Size, atom: Atom) -> int | None:
    """`Expression.coefficient` for any size."""
    return 0 if isinstance(value, int) else value.coefficient(atom)


def product(sizes: Iterable[Size]) -> Size:
    """The product of sizes; 1 for none."""
    result: Size = 1
    for size in sizes:
        result = result * size
    return result


# ---------------------------------------------------------------------------------------- text


def _is_sum(value: Size) -> bool:
    return isinstance(value, Expression) and (len(value.terms) > 1 or value.constant != 0)


def _text_of(value: Expression) -> str:
    text = ""
    for monomial, coefficient in value.terms:
        sign = (
            ("-" if coefficient < 0 else "") if not text else (" - " if coefficient < 0 else " + ")
        )
        factor = "" if abs(coefficient) == 1 else f"{abs(coefficient)}*"
        text += sign + factor + monomial.key
    if value.constant:
        text += f" {'-' if value.constant < 0 else '+'} {abs(value.constant)}"
    return text
