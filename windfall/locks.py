"""Locks that a forked process finds open.

Enters: whoever needs a lock. Leaves: an ordinary one. Invariant: a child of `os.fork` has one
thread only, so no lock may stay closed that another thread of its parent held: the child would wait
for ever. What such a thread was doing is lost to the child, which does it again; nothing that these
locks protect is left half done in a way that matters (tables are replaced, not changed in place).

    >>> lock = locks.lock()
    >>> with lock: ...
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

_known: weakref.WeakSet[Any] = weakref.WeakSet()


def lock() -> threading.Lock:
    """A new lock."""
    made = threading.Lock()
    _known.add(made)
    return made


def adopt(other: Any) -> None:
    """Open this one too: a lock of a library that windfall calls."""
    _known.add(other)


def recursive_lock() -> Any:
    """A new lock that its owner may take again."""
    made = threading.RLock()
    _known.add(made)
    return made


def _open_all() -> None:
    for one in list(_known):
        one._at_fork_reinit()  # as the standard library does with its own


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_open_all)
