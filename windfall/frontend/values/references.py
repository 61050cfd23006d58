"""Weak references from outside: asking one is following it.

Enters: `weakref.ref` objects of the user. Leaves: what they point at: one more way to that object.
Invariant: nothing is kept alive: a reference is read again, as any source is.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from windfall.frontend.breaks import ARGUMENTS, WATCHED_DEATH, stop
from windfall.frontend.values.base import Arguments, Given, Keywords, Value
from windfall.frontend.values.wrap import wraps
from windfall.ir.source import ByMethod, Known, Source

if TYPE_CHECKING:
    from windfall.frontend.services import Machine


class Reference(Given):
    """A `weakref.ref`."""

    __slots__ = ()

    def truth(self, machine: Machine) -> bool | Value:
        """A reference is true, whether it is dead or not."""
        self.guard_type(machine)
        return True

    def call(self, machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
        """What it points at; None when that is gone."""
        if arguments or keywords:
            stop(ARGUMENTS, "a weak reference takes no arguments")
        if machine.effects.entries:  # it is read before these, one of which may end the object
            stop(WATCHED_DEATH, "a weak reference, behind a write")
        self.guard_type(machine)
        assert self.source is not None
        return machine.values.wrap(self.real(), ByMethod(self.source, weakref.ref, "__call__"))


@wraps(weakref.ref)
def _wrap_reference(machine: Machine, value: Any, source: Source | None) -> Value:

    return machine.values.remember(value, Reference(value, source or Known(value, "reference")))
