"""The trees of a process: one for each thread and device, made when it is first needed.

Enters: regions that are registered, calls. Leaves: the manager of this thread. Invariant: a manager
is touched by its own thread only; what others want of it (to let go of a region, to close) waits
for its next call, or for the end of its thread. With the last region all trees close.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from windfall.options import TreeOptions
from windfall.runtime.trees.device import GraphDevice, GraphRegion
from windfall.runtime.trees.manager import TreeManager

_MOST_GONE = 10_000  # past it, trees begin anew instead of looking for what went


class Managers:
    """The managers of one device."""

    def __init__(self, make_device: Callable[[], GraphDevice]) -> None:
        self._make_device = make_device
        self._here = threading.local()
        self._all: weakref.WeakSet[TreeManager] = weakref.WeakSet()
        self._alive: set[int] = set()  # numbers of regions
        self._gone: list[int] = []  # those that went, in order
        self._epochs = itertools.count(1)
        self._epoch = 0

    def register(self, owner: Any, region: GraphRegion) -> None:
        """A region lives as long as its owner."""
        self._alive.add(region.number)
        weakref.finalize(owner, self._drop, region).atexit = False

    def _drop(self, region: GraphRegion) -> None:
        region.payload = None  # the code goes at once, recordings when their thread comes by
        self._alive.discard(region.number)
        self._gone.append(region.number)
        if not self._alive or len(self._gone) > _MOST_GONE:
            self._gone.clear()
            self.reset()

    def here(self, options: TreeOptions) -> TreeManager:
        """This thread's."""
        local = self._here
        manager: TreeManager | None = getattr(local, "manager", None)
        if manager is not None and local.epoch == self._epoch:
            if local.seen < len(self._gone) and not manager.is_busy:
                self._catch_up(manager)
            return manager
        if manager is not None and manager.is_busy:
            return manager  # it closes behind the call that runs
        if manager is not None:
            manager.shutdown()
        manager = TreeManager(self._make_device(), options)
        local.manager, local.epoch, local.seen = manager, self._epoch, len(self._gone)
        self._all.add(manager)
        return manager

    def _catch_up(self, manager: TreeManager) -> None:
        gone = self._gone[self._here.seen :]
        self._here.seen += len(gone)
        for number in gone:
            manager.forget(number)

    def reset(self) -> None:
        """Close all trees: this thread's now, others when their threads come by. What is alive of
        their results stays readable."""
        self._epoch = next(self._epochs)
        manager: TreeManager | None = getattr(self._here, "manager", None)
        if manager is not None and not manager.is_busy:
            manager.shutdown()
            with suppress(AttributeError):
                del self._here.manager

    def __iter__(self) -> Iterator[TreeManager]:
        """All that there are, for reports."""
        return iter([one for one in list(self._all) if not one.closed])
