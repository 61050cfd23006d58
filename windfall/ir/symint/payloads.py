"""What a symbol stands for: a size that varies, an integer read from data, an index.

Enters: a name and a range. Leaves: symbols with a payload, and what sizes made of them are in the
call being compiled. Invariant: nothing guesses at a value that is read from data.

    >>> s = size_symbol("s0", 4)
    >>> hint_of(s * 3 + 1), reads_of(s + read_symbol("u0", 0, None))
    (13, frozenset({'u0'}))
"""

from __future__ import annotations

from windfall.dataclass import dataclass
from windfall.errors import Specialise
from windfall.ir.symint.expression import Bound, Expression, Size, symbol, symbols_of

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
class IndexBound:
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
