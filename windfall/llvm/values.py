"""Operands of LLVM text, and structures of words.

Enters: names of LLVM types, numbers. Leaves: `Value`s as instructions mention them, `Struct`s that
say where a word stands. Invariant: a value has one element type and a number of lanes, 1 standing
for a plain scalar.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from windfall.errors import InternalError

BITS = {
    "double": 64,
    "float": 32,
    "half": 16,
    "i128": 128,
    "i64": 64,
    "i32": 32,
    "i16": 16,
    "i8": 8,
    "i1": 1,
}
SUFFIX = {"double": "f64", "float": "f32", "half": "f16", "ptr": "p0"}


class Value(NamedTuple):
    """An operand: its text, its element type, its lanes."""

    text: str
    type: str
    lanes: int = 1

    @property
    def full(self) -> str:
        """The type as written in LLVM."""
        return self.type if self.lanes == 1 else f"<{self.lanes} x {self.type}>"

    def __str__(self) -> str:
        return f"{self.type if self.lanes == 1 else self.full} {self.text}"


def vector(type: str, lanes: int) -> str:
    """The type of `lanes` elements."""
    return type if lanes == 1 else f"<{lanes} x {type}>"


def align_of(type: str) -> int:
    """The bytes that a scalar takes in memory, to whose multiples it is aligned."""
    return max(BITS.get(type, 64) // 8, 1)


def mangled(type: str, lanes: int) -> str:
    """The type inside the name of an intrinsic."""
    short = SUFFIX.get(type, type)
    return short if lanes == 1 else f"v{lanes}{short}"


def literal(value: float | int | bool, type: str) -> str:
    """A number as LLVM writes it."""
    if type == "i1":
        return "true" if value else "false"
    if type in ("float", "double"):
        if type == "float":
            value = _rounded(value)
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    return str(int(value))


def _rounded(value: float) -> float:
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    return rounded


def integer(value: int, type: str = "i64") -> Value:
    """An integer."""
    return Value(str(value), type)


ZERO, NULL = integer(0), Value("null", "ptr")
TRUE, FALSE = Value("true", "i1"), Value("false", "i1")


# ----------------------------------------------------------------------------------- structures


class Struct:
    """Words of memory with names: one declaration for Python, which writes them, and for machine
    code, which reads them. `name*` is an address, `name?` a number that may vary (two words: itself
    and 0, or where it stands in a table and 1), `...` at the end means that more words follow.

    >>> PAIR = Struct("count rows*")
    >>> PAIR.words(2, address)
    """

    def __init__(self, names: str, first: int = 0) -> None:
        self.places: dict[str, int] = {}
        self.types: dict[str, str] = {}
        place = first
        parts = names.split()
        self._open = parts[-1:] == ["..."]
        for name in parts[: len(parts) - self._open]:
            key = name.rstrip("*?")
            self.places[key], self.types[key] = place, "ptr" if name.endswith("*") else "i64"
            place += 2 if name.endswith("?") else 1
        self.size = place  # in words, with those before the first name
        self._count = place - first

    def offset(self, name: str) -> int:
        """Where a word stands, in bytes."""
        return 8 * self.places[name]

    def words(self, *words: int) -> tuple[int, ...]:
        """The words as they stand in memory, if they are as many as the names."""
        count = self._count
        if len(words) != count and not (self._open and len(words) > count):
            raise InternalError(f"{len(words)} words for {', '.join(self.places)}")
        return words

    def named(self, **words: int | tuple[int, int]) -> tuple[int, ...]:
        """The words, each given by its name."""
        if words.keys() != self.places.keys():
            raise InternalError(f"not the same words: {words.keys() ^ self.places.keys()}")
        flat: list[int] = []
        for name in self.places:
            word = words[name]
            flat.extend(word if isinstance(word, tuple) else (word,))
        return self.words(*flat)
