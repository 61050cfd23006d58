"""One line on a terminal, while a compilation takes long.

Enters: stages that begin and end. Leaves: after two seconds, what is being done, in one line that
is written over; nothing is left of it at the end. Invariant: only where standard error is a
terminal; looked at when a stage begins, so that no thread is needed.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import TextIO

from windfall.events import Event, EventKind, EventType

PATIENCE = 2.0  # seconds
_COLUMNS = 78
_LAST = (EventKind.ENTER, EventKind.BIND)  # a segment, or a backward, is there then


class Progress(threading.local):
    """How far the compilation of this thread is."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, stream: TextIO | None = None
    ) -> None:
        self._clock, self._stream = clock, stream
        self._since: float | None = None
        self._shown = False

    def began(self, kind: EventType, subject: str) -> None:
        """A stage begins."""
        now = self._clock()
        if self._since is None or (kind is EventKind.CAPTURE and not self._shown):
            self._since = now
        if now - self._since >= PATIENCE:
            spent = f"{now - self._since:.0f} s"
            self._write(
                f"\r\x1b[K{f'[windfall] compiling, {spent}: {kind} of {subject}'[:_COLUMNS]}"
            )

    def ended(self, event: Event) -> None:
        """A stage, or something else, is done: the last one, or one that failed, wipes the line."""
        if event.kind in _LAST or "raised" in event.facts:
            if self._shown:
                self._write("\r\x1b[K")
            self._since, self._shown = None, False

    def _write(self, text: str) -> None:
        stream = self._stream or sys.stderr
        if stream is not None and stream.isatty():
            stream.write(text)
            stream.flush()
            self._shown = True
