"""How a stage is run: timed, noted, its errors told apart.

Enters: a stage and its arguments. Leaves: what it made, and an event of it; under `verify` it is
looked over first (`ir/spec.py`). Invariant: what a stage
raises is an error of windfall's own kinds; anything else is our bug (`InternalError`), but for what
a backend of the user raises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from windfall.dataclass import dataclass
from windfall.errors import InternalError, WindfallError
from windfall.events import Eager, EventKind, EventLog, EventType
from windfall.ir.spec import verify
from windfall.options import Options


@dataclass(frozen=True, slots=True)
class Staging:
    """Whoever runs stages, under these options and into this log."""

    options: Options
    log: EventLog

    def stage(
        self, kind: EventType, subject: str, stage: Callable[..., Any], *args: Any, **keywords: Any
    ) -> Any:
        """What the stage makes."""
        with self.log.stage(kind, subject) as event:
            try:
                made = event.record = stage(*args, **keywords)
                if self.options.verify:
                    verify(made)
            except WindfallError:
                raise
            except Exception as error:
                if kind is EventKind.BACKEND:  # not ours
                    raise
                text = f"{kind} of {subject}: {type(error).__name__}: {error}"
                raise InternalError(text) from error
        return made

    def count_eager(self, name: str, what: Eager, reason: str) -> None:
        """Note that something runs eagerly."""
        self.log.count(EventKind.FALLBACK, name, reason=reason, what=what)

    def note(self, kind: EventType, name: str, **facts: Any) -> None:
        """Note that something happened."""
        self.log.add(kind, name, **facts)
