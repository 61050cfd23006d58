"""The entries of one point of a program, in the order in which they are tried.

Enters: entries as they are compiled. Leaves: those that stay. Invariant: the tuple that a call goes
through is replaced, never changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from windfall import locks
from windfall.frontend.recompile_policy import EntryUsage
from windfall.frontend.state import Point
from windfall.ir.stages import Entry


class Entries:
    """The entries of one point, the latest first; past a limit the one that was used longest ago
    goes."""

    __slots__ = (
        "calls",
        "entries",
        "handled",
        "is_idle",
        "lock",
        "native",
        "point",
        "seen",
        "uses",
    )

    def __init__(self, point: Point) -> None:
        self.point = point
        self.entries: tuple[Entry, ...] = ()
        self.calls: tuple[Callable[..., Any], ...] = ()
        self.is_idle = True  # nothing is done with tensors here, or in the rounds of a loop
        self.lock = locks.lock()
        self.handled = 0  # how often a graph failed and the program went on nevertheless
        self.native = False  # compiling was given up
        self.seen = False  # a call ran eagerly because the stance wants the first one so
        self.uses = EntryUsage()

    def add(self, entry: Entry, limit: int) -> int:
        """Let `entry` be tried first; the answer is how many went for it."""
        kept = sorted(self.entries, key=lambda one: one.last_use(), reverse=True)[: limit - 1]
        gone = [one for one in self.entries if one not in kept]
        self.uses.went(gone)
        self.set((entry, *kept))
        return len(gone)

    def set(self, entries: tuple[Entry, ...]) -> None:
        """Replace all."""
        self.entries = entries
        self.calls = tuple(entry.call for entry in entries)
        busy = any(map(_has_operations, entries))
        rounds = [entry for entry in entries if _leads_back(entry, self.point)]
        # The way out of a loop stands beside its rounds: it may well have operations.
        self.is_idle = not busy or (bool(rounds) and not any(map(_has_operations, rounds)))


def _has_operations(entry: Entry) -> bool:
    return any(node.op.startswith("call") for node in entry.segment.capture.graph.nodes)


def _leads_back(entry: Entry, point: Point) -> bool:
    """Whether it is a round of a loop: one of its ways leads to where it stands."""
    resume: Any = entry.segment.capture.resume
    return resume is not None and any(one.position.key == point.key for one in resume.outcomes)
