"""Containers that must not change while they are iterated.

Enters: the iterators that are made over a dict or set. Leaves: a refusal of a change of its keys
while one of them is under way. Invariant: an iterator that nothing holds any more, or that has come
to its end, is not in the way; what CPython does of such a change (it tells by the size, and only
when it is asked for the next item) is left to CPython, natively.
"""

from __future__ import annotations

import weakref
from typing import Any

from windfall.frontend.breaks import UNKNOWN_OPERATION, stop


class Watchers:
    """The iterators over one container."""

    __slots__ = ("_iterators",)

    def __init__(self) -> None:
        self._iterators: list[weakref.ref[Any]] = []

    def add(self, iterator: Any) -> Any:
        """One more; it has `done`."""
        self._iterators = [one for one in self._iterators if one() is not None]
        self._iterators.append(weakref.ref(iterator))
        return iterator

    def refuse_change(self, shown: str, changes: bool = True) -> None:
        """Before a key comes or goes."""
        for one in self._iterators if changes else ():
            iterator = one()
            if iterator is not None and not iterator.done:
                stop(UNKNOWN_OPERATION, f"a change of {shown} while it is iterated")
