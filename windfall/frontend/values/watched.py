"""Containers that must not change while they are iterated.

Enters: the iterators that are made over a dict or set. Leaves: a refusal of a change of its keys
while one of them is under way. Invariant: an iterator that nothing holds any more, or that has come
to its end, is not in the way; what CPython does of such a change (it tells by the size, and only
when it is asked for the next item) is left to CPython, natively.
"""

from __future__ import annotations

import weakref
from typing import Any, Protocol

from windfall.frontend.breaks import UNKNOWN_OPERATION, stop

Watchers = tuple[weakref.ref[Any], ...]  # the iterators over one container


class Watched(Protocol):
    """A container; most are never iterated, and hold an empty tuple."""

    watchers: Watchers

    def describe(self) -> str: ...


def watch(owner: Watched, iterator: Any) -> Any:
    """One more iterator, which has `done`."""
    alive = (one for one in owner.watchers if one() is not None)
    owner.watchers = (*alive, weakref.ref(iterator))
    return iterator


def refuse_change(owner: Watched, changes: bool = True) -> None:
    """Before a key comes or goes."""
    for one in owner.watchers if changes else ():
        iterator = one()
        if iterator is not None and not iterator.done:
            stop(UNKNOWN_OPERATION, f"a change of {owner.describe()} while it is iterated")
