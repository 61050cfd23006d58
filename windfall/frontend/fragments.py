"""Fragments of code that were made, kept by where they start and stop.

Enters: the shape of a frame. Leaves: a function that goes on natively from there. Invariant: never
more than `limit` fragments are kept.
"""

from __future__ import annotations

from typing import Any

from windfall.frontend.assembler import fragment, successors
from windfall.frontend.fragment import Native
from windfall.frontend.state import FrameShape


class Fragments:
    """The fragments of one compiled object, which owns this: dropped with it, or by `clear`.

    At most `limit`; the oldest go first. Any number of threads: two may build the same fragment at
    once, and either is used.
    """

    def __init__(self, limit: int = 1024) -> None:
        self.limit = limit
        self._known: dict[Any, tuple[FrameShape, Native]] = {}

    def native(
        self,
        shape: FrameShape,
        stops: frozenset[int] = frozenset(),
        handled: bool = False,
        raising: bool = False,
    ) -> Native:
        """The callable that goes on with a frame at its `ip` until `stops`."""
        place = (id(shape.code), id(shape.globals), shape.ip, shape.variables, shape.stack)
        key = (place, stops, handled, raising)
        known = self._known.get(key)
        if known is not None:
            return known[1]
        made = fragment(shape.code, shape.ip, stops, shape.variables, shape.stack, handled, raising)
        native = made.bind(shape.globals, shape.builtins)
        while len(self._known) >= self.limit:
            self._known.pop(next(iter(self._known)), None)
        self._known[key] = (shape, native)  # the shape keeps alive what the key names
        return native

    def step(self, shape: FrameShape, handled: bool = False, raising: bool = False) -> Native:
        """The callable that executes the one instruction at a frame's `ip`."""
        return self.native(shape, successors(shape.code, shape.ip, raising), handled, raising)

    def clear(self) -> None:
        """Forget all."""
        self._known.clear()

    def __len__(self) -> int:
        return len(self._known)
