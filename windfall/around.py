"""A compiled object with something around its calls: an engine, a comparison, a clock.

Enters: a compiled object. Leaves: an object that stands in its place: it binds, copies, pickles and
answers for attributes as the compiled one does. Invariant: what a subclass adds is in `__call__`
alone.
"""

from __future__ import annotations

import copy
import functools
import types
from typing import Any

from windfall.directives import StandIn
from windfall.events import EventKind, EventLog


class Around(StandIn):
    """What stands in the place of `compiled`."""

    def __init__(self, compiled: Any) -> None:
        functools.update_wrapper(self, compiled, updated=())
        self.compiled, self.target = compiled, compiled.target

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call it."""
        return self.compiled(*args, **kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __getattr__(self, name: str) -> Any:
        if name == "compiled":  # of a copy that is being made
            raise AttributeError(name)
        return getattr(self.compiled, name)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.compiled.__reduce_ex__(protocol)

    def __copy__(self) -> Any:
        return copy.copy(self.compiled)

    def __deepcopy__(self, memo: Any) -> Any:
        return copy.deepcopy(self.compiled, memo)


class Timed(Around):
    """Each call is an event, for `timeline`."""

    def __init__(self, compiled: Any, log: EventLog, title: str) -> None:
        super().__init__(compiled)
        self._log, self._title = log, title

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call it, and note how long that took."""
        with self._log.stage(EventKind.RUN, self._title):
            return self.compiled(*args, **kwargs)
