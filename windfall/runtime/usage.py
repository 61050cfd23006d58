"""When an entry was last used, so that the front end may drop the one that nobody needs.

Enters: nothing. Leaves: a `Usage` for each entry: a word that machine code writes on every hit, and
the clock it is read from, one for the process. Invariant: of two entries, the one with the larger
number was used later; 0 means never. Counting needs the GIL and nothing else.

    >>> first, second = Usage(), Usage()
    >>> second.note(), first.note()
    >>> first.last() > second.last()
    True
"""

from __future__ import annotations

from windfall import torch_abi

CLOCK = torch_abi.memory(bytes(8))


class Usage:
    """The last use of one entry."""

    __slots__ = ("memory",)

    def __init__(self) -> None:
        self.memory = torch_abi.memory(bytes(8))

    def note(self) -> None:
        """It is used now: what machine code does by itself."""
        now = torch_abi.read_word(int(CLOCK)) + 1
        torch_abi.write_word(int(CLOCK), now)
        torch_abi.write_word(int(self.memory), now)

    def last(self) -> int:
        """When it was used last."""
        return torch_abi.read_word(int(self.memory))
