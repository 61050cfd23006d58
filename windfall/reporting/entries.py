"""What a compiled object keeps: one `CacheEntry` for each segment and each set of guards.

Enters: a compiled object. Leaves: plain records: guards as text with their reasons, the check and
the segment as Python source, and the segment's code object (for `dis`). Invariant: looking changes
nothing and keeps no entry alive.
"""

from __future__ import annotations

from types import CodeType
from typing import Any

from windfall.dataclass import dataclass
from windfall.ir.stages import Entry


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """One compiled segment. `native`: guards and kernels are one builtin, the source is for you."""

    point: str
    guards: tuple[str, ...]
    reasons: tuple[str, ...]
    check: str
    source: str
    native: bool

    @property
    def code(self) -> CodeType:
        """The generated source, compiled: what `dis` shows as the modified bytecode."""
        module = compile(self.source, f"<windfall {self.point}>", "exec")
        return next(one for one in module.co_consts if isinstance(one, CodeType))


def cache_entries(entries: dict[str, tuple[Entry, ...]]) -> list[CacheEntry]:
    """The entries of a compiled object, in the order in which their points were reached."""
    return [_described(point, entry) for point, several in entries.items() for entry in several]


def _described(point: str, entry: Entry) -> CacheEntry:
    guards: tuple[Any, ...] = entry.segment.capture.guards
    return CacheEntry(
        point,
        tuple(map(str, guards)),
        tuple(guard.reason for guard in guards),
        entry.check_text,
        entry.segment.source,
        entry.native,
    )
