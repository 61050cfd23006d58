"""Sizes that vary as instructions for machine code, or as a Python function.

Enters: integer expressions (`ir/symint`) over symbols. Leaves: instructions over words of
memory, each of which stands for one expression (`machine/arithmetic.py` carries them out), or one
Python function that answers all of them.

Invariant: Python's arithmetic. What does not fit 64 bits, and a division by zero, has no value: the
machine code says so, the function raises.

    >>> s = symbol("s0", 2)
    >>> evaluator((s,), (s, s * 4 + 1))(3)
    (3, 13)
"""

from __future__ import annotations

import keyword
from collections.abc import Callable, Iterable, Sequence

from windfall.ir.relation import Relation
from windfall.ir.symint import (
    Atom,
    Expression,
    Size,
    bounds,
    evaluate,
    expression_of,
    symbol_atom,
    symbols_of,
)
from windfall.runtime.machine import arithmetic as machine
from windfall.runtime.words import Word

LEAST, GREATEST = -(1 << 63), (1 << 63) - 1

_OPERATIONS = {
    "//": machine.FLOOR_DIVIDE,
    "%": machine.MODULO,
    "min": machine.MINIMUM,
    "max": machine.MAXIMUM,
}
COMPARISON_CODES = {
    "==": machine.EQUAL,
    "!=": machine.DIFFERENT,
    "<": machine.LESS,
    "<=": machine.LESS_OR_EQUAL,
    ">": machine.GREATER,
    ">=": machine.GREATER_OR_EQUAL,
}


def fits(size: Size) -> bool:
    """Whether every constant in it fits a word."""
    if isinstance(size, int):
        return LEAST <= size <= GREATEST
    atoms = {atom for monomial, _ in size.terms for atom in monomial.atoms}
    numbers = (size.constant, *(coefficient for _, coefficient in size.terms))
    return all(map(fits, numbers)) and all(fits(part) for one in atoms for part in one.arguments)


def word_range(size: Size) -> tuple[int, int]:
    """The least and the greatest value of a symbol, as far as words go."""
    low, high = bounds(size)
    return (
        LEAST if low is None else max(low, LEAST),
        GREATEST if high is None else min(high, GREATEST),
    )


class Arithmetic:
    """Instructions under construction. `allocate` appends a word with a value and answers where it
    is; machine code is told the same way where a number stands."""

    def __init__(self, allocate: Callable[[int], Word]) -> None:
        self.instructions: list[tuple[Word, ...]] = []
        self._allocate = allocate
        self._places: dict[Size, Word] = {}  # expressions are interned
        self._products: dict[tuple[Atom, ...], Word] = {}

    def bind(self, symbol: Expression, place: Word) -> None:
        """From here on the symbol's value stands there."""
        self._places[symbol] = place

    def place_of(self, symbol: Expression) -> Word | None:
        """Where the value of an expression stands, if that is known already."""
        return self._places.get(symbol)

    def knows(self, size: Size) -> bool:
        """Whether all symbols of an expression have a place, and all its constants one word."""
        known = all(expression_of(atom) in self._places for atom in symbols_of(size))
        return known and fits(size)

    def place(self, size: Size, target: Word | None = None) -> Word:
        """Where the value of `size` stands once the instructions so far are carried out: at
        `target`, if that is given."""
        found = self._places.get(size)
        if found is None:
            made = len(self.instructions)
            found = self._value(size)
            if target is not None and len(self.instructions) > made:
                found = self._redirect(found, target)
            self._places[size] = found
        if target is not None and found != target:
            return self._emit(machine.COPY, found, found, target)
        return found

    def relate(self, relation: Relation, left: Word | None = None) -> None:
        """Fail where the relation is not true; `left`: where its left side stands."""
        left = self.place(relation.left) if left is None else left
        right = self.place(relation.right)
        self._emit(COMPARISON_CODES[relation.operation], left, right, left)

    def take(self) -> list[tuple[Word, ...]]:
        """The instructions since the last time."""
        taken, self.instructions = self.instructions, []
        return taken

    def _emit(self, what: int, left: Word, right: Word, target: Word | None = None) -> Word:
        place = self._allocate(0) if target is None else target
        self.instructions.append(machine.INSTRUCTION.words(what, place, left, right))
        return place

    def _redirect(self, place: Word, target: Word) -> Word:
        """Let the last instruction write to `target` instead of the place that it was given."""
        what, written, left, right = self.instructions[-1]
        if written != place:
            return place
        self.instructions[-1] = (what, target, left, right)
        for atoms, held in self._products.items():
            if held == place:
                self._products[atoms] = target
        return target

    def _value(self, size: Size) -> Word:
        if isinstance(size, int):
            return self._allocate(size)
        terms = [self._term(monomial.atoms, by) for monomial, by in size.terms]
        if size.constant:
            terms.append(self.place(size.constant))
        total, *others = terms
        for other in others:
            total = self._emit(machine.ADD, total, other)
        return total

    def _term(self, atoms: tuple[Atom, ...], coefficient: int) -> Word:
        product = self._product(atoms)
        if coefficient == 1:
            return product
        return self._emit(machine.MULTIPLY, product, self.place(coefficient))

    def _product(self, atoms: tuple[Atom, ...]) -> Word:
        found = self._products.get(atoms)
        if found is None:
            *first, last = atoms
            found = self._factor(last)
            if first:
                found = self._emit(machine.MULTIPLY, self._product(tuple(first)), found)
            self._products[atoms] = found
        return found

    def _factor(self, atom: Atom) -> Word:
        if not atom.operation:
            return self._places[expression_of(atom)]
        found, *others = (self.place(one) for one in atom.arguments)
        for other in others:
            found = self._emit(_OPERATIONS[atom.operation], found, other)
        return found


# ------------------------------------------------------------------------------------ in Python


def evaluator(
    symbols: Sequence[Expression], sizes: Iterable[Size]
) -> Callable[..., tuple[int, ...]]:
    """All of `sizes` as one function of the values of `symbols`, by position."""
    wanted = tuple(sizes)
    names = [symbol_atom(one).key for one in symbols]
    if not all(map(_is_plain_name, names)):
        return lambda *values: tuple(
            evaluate(size, dict(zip(names, values, strict=True))) for size in wanted
        )
    # The text of an expression is Python.
    body = "".join(f"{size}, " for size in wanted)
    made: Callable[..., tuple[int, ...]] = eval(f"lambda {', '.join(names)}: ({body})")
    return made


def _is_plain_name(name: str) -> bool:
    return name.isidentifier() and not keyword.iskeyword(name) and name not in ("min", "max")


def check_words(numbers: Iterable[int]) -> None:
    """Raise where a number does not fit a word."""
    if not all(LEAST <= one <= GREATEST for one in numbers):
        raise OverflowError("a size of a compiled graph does not fit 64 bits")
