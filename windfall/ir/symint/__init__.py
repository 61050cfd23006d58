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

Four modules, each needing those before it: `expression.py` (what they are made of, sums and
products), `payloads.py` (what symbols stand for), `deductions.py` (what is always true of a size),
`quotients.py` (quotients, remainders, minima, maxima). Other modules
import this package alone (`payloads.varying` apart, which changes).
"""

from windfall.ir.symint.deductions import growth_of, known_at_least, known_at_most
from windfall.ir.symint.expression import (
    REBUILD,
    Atom,
    Expression,
    Size,
    bounds,
    coefficient_of,
    evaluate,
    expression_of,
    product,
    substitute,
    symbol,
    symbol_atom,
    symbols_of,
)
from windfall.ir.symint.payloads import (
    Hint,
    IndexBound,
    Read,
    hint_of,
    read_symbol,
    reads_of,
    size_symbol,
)
from windfall.ir.symint.quotients import floor_divide, maximum, minimum, modulo

__all__ = [
    "REBUILD",
    "Atom",
    "Expression",
    "Hint",
    "IndexBound",
    "Read",
    "Size",
    "bounds",
    "coefficient_of",
    "evaluate",
    "expression_of",
    "floor_divide",
    "growth_of",
    "hint_of",
    "known_at_least",
    "known_at_most",
    "maximum",
    "minimum",
    "modulo",
    "product",
    "read_symbol",
    "reads_of",
    "size_symbol",
    "substitute",
    "symbol",
    "symbol_atom",
    "symbols_of",
]
