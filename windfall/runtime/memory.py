"""The memory of runs has one owner, which can be asked where everything is.

Enters: programs that use it. Leaves: arenas, in which intermediate values of a run stand, and the
memory of large gradients, which is used again (`machine/arena.py`, `machine/gradient_pool.py`).
Invariant: a block belongs to one run at a time, or is idle; nothing is kept when the last user is
gone.

Machine code takes and gives arenas by itself, under the GIL; the public path does it here. A run
can also be given an arena of the caller's, and memory for its results (`bind.bind_placed`).
"""

from __future__ import annotations

import ctypes
import itertools
import weakref

import torch

from windfall.dataclass import dataclass
from windfall.runtime import support
from windfall.runtime.machine import arena, gradient_pool

ALIGNMENT = 64
MOST_BYTES = 1 << 62  # of an arena: nobody has it, and more is no size at all to torch


@dataclass(frozen=True, slots=True)
class MemoryBlock:
    """Where some memory stands."""

    address: int
    bytes: int


class User:
    """As long as one lives, memory is kept for reuse."""

    __slots__ = ("__weakref__",)


class MemoryOwner:
    """All memory that outlives a run and belongs to no tensor of the user's."""

    def __init__(self) -> None:
        self._users: set[int] = set()
        self._numbers = itertools.count()
        self._public: list[torch.Tensor] = []  # idle arenas; list operations are atomic

    def add_user(self) -> User:
        """Somebody who needs memory again and again: to be held as long as that is so."""
        user, number = User(), next(self._numbers)
        self._users.add(number)
        weakref.finalize(user, self._drop_user, number).atexit = False
        return user

    def _drop_user(self, number: int) -> None:
        self._users.discard(number)
        if not self._users:
            self.trim()

    def take(self, needed: int) -> torch.Tensor:
        """An arena of at least so many bytes, aligned."""
        try:
            found = self._public.pop()
        except IndexError:
            found = None
        # One that has become too small makes way for a larger one.
        if found is None or found.numel() < needed:
            whole = torch.empty(min(needed, MOST_BYTES) + ALIGNMENT, dtype=torch.uint8)
            start = -whole.data_ptr() % ALIGNMENT
            found = whole[start : start + needed]
        return found

    def give(self, one: torch.Tensor) -> None:
        """An arena is not needed any more: it is kept for others."""
        if self._users and len(self._public) < arena.PLACES:
            self._public.append(one)

    def trim(self) -> None:
        """Give back all that is idle."""
        self._public.clear()
        for name in ("arena.trim", "gradient_pool.trim"):
            _native(name)

    def arenas(self) -> tuple[MemoryBlock, ...]:
        """Those that are idle."""
        public = [MemoryBlock(one.data_ptr(), one.numel()) for one in self._public]
        native = [
            MemoryBlock(address, _word(address - arena.BEFORE))
            for address in _words(_native("arena.places"), arena.PLACES)
            if address
        ]
        return (*native, *public)

    def gradients(self) -> tuple[MemoryBlock, ...]:
        """Memory of results that is used again, once nobody else has it."""
        words = _words(
            _native("gradient_pool.places"), gradient_pool.PLACES * gradient_pool.PLACE.size
        )
        rows = (
            words[at : at + gradient_pool.PLACE.size]
            for at in range(0, len(words), gradient_pool.PLACE.size)
        )
        handle, data, size = (
            gradient_pool.PLACE.places[name] for name in ("handle", "data", "bytes")
        )
        return tuple(MemoryBlock(row[data], row[size]) for row in rows if row[handle])


def _native(name: str) -> int:
    """What a function of the machine without parameters answers; 0 where there is no machine."""
    code = support.support()
    answer: int = ctypes.PYFUNCTYPE(ctypes.c_int64)(code.address(name))() if code else 0
    return answer


def _word(address: int) -> int:
    return ctypes.c_int64.from_address(address).value


def _words(address: int, count: int) -> list[int]:
    return list((ctypes.c_int64 * count).from_address(address)) if address else []


MEMORY = MemoryOwner()
