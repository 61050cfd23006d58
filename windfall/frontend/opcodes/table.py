"""The opcode table: name → handler, for the running CPython version.

Enters: `@opcode("NAME", ...)` rows of the files beside this one. Leaves: `HANDLERS`. Invariant: a
name has at most one handler in each version; `opcodes/__init__.py` imports every file.

A handler changes the frame (its stack, its `ip` for jumps) and nothing else by itself; what it asks
of values may push frames, add nodes, guards, effects. It may raise `Unsupported` (nothing happened,
the instruction is executed natively) or `Raised` (the program raised).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from windfall.frontend.bytecode import VERSION, Instruction

if TYPE_CHECKING:
    from windfall.frontend.frame import Frame
    from windfall.frontend.services import Machine

Handler = Callable[["Machine", "Frame", Instruction], None]

HANDLERS: dict[str, Handler] = {}
# Of these, those that only move values about, and raise before they do: nothing is to be undone.
MOVES: dict[str, Handler] = {}

Version = tuple[int, int]
ROWS: list[tuple[str, Version, Version | None]] = []  # all of them, of any version


def opcode(
    *names: str, since: Version = (3, 11), until: Version | None = None, moves: bool = False
) -> Callable[[Handler], Handler]:
    """A row: the handler of these opcodes from version `since` up to, not including, `until`.
    `moves`: it only moves values about (`MOVES`)."""

    def register(handler: Handler) -> Handler:
        for name in names:
            ROWS.append((name, since, until))
            if since <= VERSION and (until is None or until > VERSION):
                assert name not in HANDLERS, f"{name} has two handlers"
                HANDLERS[name] = handler
                if moves:
                    MOVES[name] = handler
        return handler

    return register
