"""Expressions themselves: what they are made of, how they are interned, added and multiplied.

Enters: symbols and integers. Leaves: `Expression`s in normal form. Invariant: equal expressions are
one object. Quotients, remainders, minima and maxima are made by `quotients.py`, which needs this
module: it enters them into `REBUILD`, and into `SHORTEN` how sums with remainders get shorter.

    >>> s = symbol("s0")
    >>> s + 1 is 1 + s
    True
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any, Union
from weakref import WeakValueDictionary

from windfall import locks

Bound = Union[int, None]  # noqa: UP007  None: no bound known


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
_ADDING = locks.lock()


def make_monomial(atoms: tuple[Atom, ...]) -> Monomial:
    """The product of atoms, which are in order."""
    found = _MONOMIALS.get(atoms)
    if found is None:
        found = Monomial()
        found.atoms = atoms
        found.key = "*".join(atom.key for atom in atoms)
        with _ADDING:
            found = _MONOMIALS.setdefault(atoms, found)
    return found


def make_atom(
    operation: str,
    key: str,
    arguments: tuple[Size, ...],
    bounds: tuple[Bound, Bound],
    payload: Any = None,
) -> Atom:
    """The one atom that is so."""
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

    __slots__ = ("__weakref__", "_bounds", "_symbols", "_text", "constant", "least", "terms")

    terms: tuple[tuple[Monomial, int], ...]
    constant: int
    _bounds: tuple[Bound, Bound] | None
    least: tuple[Bound] | None  # what `deductions.py` found, once it was asked
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
        return tuple(make_sum((term,), 0) for term in self.terms)

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
        return normal_sum(terms, constant)

    # -------------------------------------------------------------------- arithmetic

    def __add__(self, other: Size) -> Size:
        if isinstance(other, int):
            return self if other == 0 else make_sum(self.terms, self.constant + other)
        if not isinstance(other, Expression):
            return NotImplemented
        terms = dict(self.terms)
        for monomial, coefficient in other.terms:
            terms[monomial] = terms.get(monomial, 0) + coefficient
        return normal_sum(terms, self.constant + other.constant)

    __radd__ = __add__

    def __neg__(self) -> Size:
        return make_sum(tuple((m, -c) for m, c in self.terms), -self.constant)

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
            return make_sum(tuple((m, c * other) for m, c in self.terms), self.constant * other)
        if not isinstance(other, Expression):
            return NotImplemented
        terms: dict[Monomial, int] = {}
        ones = ((_ONE, other.constant),) if other.constant else ()
        mine = self.terms + (((_ONE, self.constant),) if self.constant else ())
        for left, by in mine:
            for right, coefficient in other.terms + ones:
                monomial = make_monomial(tuple(sorted(left.atoms + right.atoms, key=_BY_KEY)))
                terms[monomial] = terms.get(monomial, 0) + by * coefficient
        return normal_sum(terms, terms.pop(_ONE, 0))

    __rmul__ = __mul__

    def __floordiv__(self, other: Size) -> Size:
        return REBUILD["//"](self, other)

    def __rfloordiv__(self, other: Size) -> Size:
        return REBUILD["//"](other, self)

    def __mod__(self, other: Size) -> Size:
        return REBUILD["%"](self, other)

    def __rmod__(self, other: Size) -> Size:
        return REBUILD["%"](other, self)

    def __str__(self) -> str:
        if self._text is None:
            self._text = _text_of(self)
        return self._text

    def __repr__(self) -> str:
        return f"Expression({self})"


Size = Union[int, Expression]  # noqa: UP007  (a runtime alias that Expression refers to)
_ONE = make_monomial(())
_OPERATIONS: dict[str, Callable[..., int]] = {
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "min": min,
    "max": max,
}

# How an operation is made of its arguments, simplified; how a sum with remainders gets shorter (or
# stays the same object). `quotients.py` fills both.
REBUILD: dict[str, Callable[..., Size]] = {}
SHORTEN: list[Callable[[Expression], Size]] = []


def make_sum(terms: tuple[tuple[Monomial, int], ...], constant: int) -> Size:
    """Intern; `terms` are sorted and have no zero coefficient."""
    if not terms:
        return constant
    identity = (terms, constant)
    found = _EXPRESSIONS.get(identity)
    if found is None:
        found = Expression()
        found.terms, found.constant = terms, constant
        found._bounds = found.least = found._symbols = found._text = None
        with _ADDING:
            found = _EXPRESSIONS.setdefault(identity, found)
    return found


def normal_sum(terms: dict[Monomial, int], constant: int) -> Size:
    """The sum of products times coefficients, in any order and some of them 0, and a constant."""
    kept = [(m, c) for m, c in terms.items() if c]
    if len(kept) > 1:
        kept.sort(key=lambda pair: pair[0].key)
    result = make_sum(tuple(kept), constant)
    if isinstance(result, int) or not any(
        atom.operation == "%" for m, _ in kept for atom in m.atoms
    ):
        return result
    return next((one for shorten in SHORTEN if (one := shorten(result)) is not result), result)


def symbol(name: str, low: Bound = 0, high: Bound = None, payload: Any = None) -> Expression:
    """A named integer between `low` and `high`, inclusive. Symbols of one name, range and payload
    are the same symbol."""
    atom = make_atom("", name, (), (low, high), payload)
    return expression_of(atom)


def expression_of(atom: Atom) -> Expression:
    """The expression that is just this atom."""
    result = make_sum(((make_monomial((atom,)), 1),), 0)
    assert isinstance(result, Expression)
    return result


def symbol_atom(value: Size) -> Atom:
    """The atom of an expression that is known to be one symbol."""
    atom = value.atom if isinstance(value, Expression) else None
    assert atom is not None and not atom.operation, f"{value} is not a symbol"
    return atom


def _substitute_atom(atom: Atom, values: Mapping[Atom, Size]) -> Size:
    if not atom.operation:
        found = values.get(atom)
        return expression_of(atom) if found is None else found
    arguments = [substitute(argument, values) for argument in atom.arguments]
    return REBUILD[atom.operation](*arguments)


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


def is_sum(value: Size) -> bool:
    """Whether its text needs parentheses as part of a product."""
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
