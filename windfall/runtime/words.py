"""Tables that machine code reads: words of memory that refer to each other.

Enters: numbers, addresses and places of the same table, in any order. Leaves: one piece of C
memory in which every place has become an address.

Invariant: what an address refers to must be kept alive by whoever owns the memory: `keep` collects
it. Nothing else in this room writes raw memory.

    >>> words = Words()
    >>> sizes = words.add(8, 4)
    >>> header = words.add(2, sizes)       # a count and a pointer to the sizes
    >>> memory = words.build()
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Iterable
from typing import Any, NewType

from windfall import torch_abi

MASK = (1 << 64) - 1


# A word of a table under construction: its index, beyond what a word can hold. (A number, and no
# record, because there are thousands and Python's collector looks at records.)
Place = NewType("Place", int)
Word = int  # what stands in a table: a number, an address, or a `Place`
_FIRST = 1 << 80


def after(place: Place, words: int) -> Place:
    """The place so many words further on."""
    return Place(place + words)


class Words:
    """A table under construction."""

    def __init__(self) -> None:
        self._words: list[Word] = []
        self.keep: list[Any] = []

    def add(self, *words: Word) -> Place:
        """Append words; the answer is the place of the first."""
        place = Place(_FIRST + len(self._words))
        self._words.extend(words)
        return place

    def set(self, place: Place, value: Word) -> None:
        """Fill in a word that was added before its value was known."""
        self._words[place - _FIRST] = value

    def rows(self, rows: Iterable[tuple[Word, ...]]) -> tuple[int, Place]:
        """Append rows; the answer is how many there are and where the first is."""
        found = list(rows)
        place = Place(_FIRST + len(self._words))
        for row in found:
            self._words.extend(row)
        return len(found), place

    def object(self, value: Any) -> int:
        """The address of a Python object that lives as long as the table."""
        self.keep.append(value)
        return id(value)

    def text(self, text: str) -> int:
        """The address of C text that lives as long as the table."""
        held = torch_abi.memory(text.encode() + b"\0")
        self.keep.append(held)
        return int(held)

    def build(self) -> torch_abi.CMemory:
        """The memory, every place resolved."""
        memory = torch_abi.memory(bytes(8 * len(self._words)))
        base = int(memory)
        resolved = array(
            "Q",
            (base + 8 * (word - _FIRST) if word >= _FIRST else word & MASK for word in self._words),
        )
        ctypes.memmove(base, resolved.tobytes(), 8 * len(resolved))
        return memory

    @staticmethod
    def address(memory: torch_abi.CMemory, place: Place) -> int:
        """Where a place of the built table is."""
        return int(memory) + 8 * (place - _FIRST)
