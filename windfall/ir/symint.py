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
from math import gcd
from operator import attrgetter
from threading import Lock
from typing import Any, Union
from weakref import WeakValueDictionary

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
# Reading a table needs no lock; but two threads must not both add what they did not find.
_ADDING = Lock()


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

    __slots__ = ("__weakref__", "_bounds", "_symbols", "_text", "constant", "terms")

    terms: tuple[tuple[Monomial, int], ...]
    constant: int
    _bounds: tuple[Bound, Bound] | None
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
        found._bounds = found._symbols = found._text = None
        with _ADDING:
            found = _EXPRESSIONS.setdefault(identity, found)
    return found


def _normal(terms: dict[Monomial, int], constant: int) -> Size:
    kept = [(m, c) for m, c in terms.items() if c]
    if len(kept) > 1:
        kept.sort(key=lambda pair: pair[0].key)
    result = _expression(tuple(kept), constant)
    if isinstance(result, int) or not any(
        len(m.atoms) == 1 and m.atoms[0].operation == "%" for m, _ in kept
    ):
        return result
    return _recombine(result)


def _recombine(value: Expression) -> Size:
    """`c*(e % d) + c*d*(e // d)` is `c*e`."""
    coefficients = dict(value.terms)
    for monomial, c in value.terms:
        atom = monomial.atoms[0]
        if (
            len(monomial.atoms) != 1
            or atom.operation != "%"
            or not isinstance(atom.arguments[1], int)
        ):
            continue
        numerator, divisor = atom.arguments
        quotient = floor_divide(numerator, divisor)
        if not isinstance(quotient, Expression) or quotient.atom is None:
            continue
        whole = _monomial((quotient.atom,))
        if coefficients.get(whole) == c * divisor:
            del coefficients[monomial], coefficients[whole]
            return _normal(coefficients, value.constant) + c * numerator
    return value


# ------------------------------------------------------------------------------------ symbols


def symbol(name: str, low: Bound = 0, high: Bound = None, payload: Any = None) -> Expression:
    """A named integer between `low` and `high`, inclusive. Symbols of one name, range and payload
    are the same symbol."""
    atom = _atom("", name, (), (low, high), payload)
    return _of_atom(atom)


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
    else:
        exact = _exact_quotient(value, divisor)
        if exact is not None:
            return exact
        if _fits(value, divisor):
            return 0
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
    elif value is divisor or _exact_quotient(value, divisor) is not None:
        return 0
    elif _fits(value, divisor):
        return value
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
    common = gcd(divisor, *(c for _, c in rest.terms))
    if common > 1:
        rest = _expression(tuple((m, c // common) for m, c in rest.terms), rest.constant // common)
        return whole + floor_divide(rest, divisor // common)
    atom = rest.atom
    if atom is not None and atom.operation == "//":
        numerator, inner = atom.arguments
        if isinstance(inner, int) and inner > 0:
            return whole + floor_divide(numerator, inner * divisor)
    return whole + _division("//", rest, divisor)


def _modulo_positive(value: Expression, divisor: int) -> Size:
    _, rest = _split(value, divisor)
    if isinstance(rest, int):
        return rest
    low, high = rest.bounds
    if low is not None and high is not None and low // divisor == high // divisor:
        return rest - divisor * (low // divisor)
    common = gcd(divisor, rest.constant, *(c for _, c in rest.terms))
    if common > 1:
        inner = _expression(tuple((m, c // common) for m, c in rest.terms), rest.constant // common)
        return common * modulo(inner, divisor // common)
    atom = rest.atom
    if atom is not None and atom.operation == "%":
        numerator, inner_divisor = atom.arguments
        if isinstance(inner_divisor, int) and inner_divisor % divisor == 0:
            return modulo(numerator, divisor)
    return _division("%", rest, divisor)


def _exact_quotient(value: Size, divisor: Expression) -> Size | None:
    """`value / divisor` where each term of `value` holds the one product that `divisor` is."""
    if isinstance(value, int):
        return 0 if value == 0 else None
    if divisor.constant or len(divisor.terms) != 1 or value.constant:
        return None
    (factor, by), *_ = divisor.terms
    total: Size = 0
    for monomial, coefficient in value.terms:
        atoms = list(monomial.atoms)
        if coefficient % by or any(factor.atoms.count(a) > atoms.count(a) for a in factor.atoms):
            return None
        for atom in factor.atoms:
            atoms.remove(atom)
        term: Size = coefficient // by
        for atom in atoms:
            term = term * _of_atom(atom)
        total = total + term
    return total


def _fits(value: Size, divisor: Expression) -> bool:
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
    return low is not None and low >= limit


def known_at_most(value: Size, limit: int) -> bool:
    """Whether `value <= limit` follows from the ranges."""
    _, high = bounds(value)
    return high is not None and high <= limit


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
