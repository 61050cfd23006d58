"""What was compiled of one thing, by the keys for which it is right: bounded, counted, thread-safe.

Enters: keys and what was made for them. Leaves: what was made for a key, if it is still there.
Invariant: never more than `limit` of them; the one that was added first goes first; reading takes
no lock. (What no key tells, but guards that are tried in order, is kept by `frontend/entries.py`
and `subgraphs/runner.py`: ADR 100.)

    >>> squares = Variants[int, int](2)
    >>> for one in (1, 2, 3):
    ...     squares.add(one, one * one)
    >>> squares.get(1), squares.get(3), len(squares), squares.added
    (None, 9, 2, 3)
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from windfall import locks

Key = TypeVar("Key", bound=Hashable)
Made = TypeVar("Made")


class Variants(Generic[Key, Made]):
    """A table of variants. `get` is the dictionary's own: some are asked for on every call."""

    __slots__ = ("_kept", "_lock", "added", "get", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.added = 0  # in all, those that are gone too
        self._kept: dict[Key, Made] = {}
        self._lock = locks.lock()
        self.get = self._kept.get

    def add(self, key: Key, made: Made) -> None:
        """Keep what was made for a key; the oldest go for it."""
        with self._lock:
            self._kept.pop(key, None)
            while len(self._kept) >= self.limit:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = made
            self.added += 1

    def items(self) -> tuple[tuple[Key, Made], ...]:
        """What there is now, the oldest first."""
        return tuple(self._kept.items())

    def __contains__(self, key: object) -> bool:
        return key in self._kept

    def __len__(self) -> int:
        return len(self._kept)
