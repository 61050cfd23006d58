"""Weak references from outside: asking one is following it.

Enters: `weakref.ref` objects of the user. Leaves: what they point at: one more way to that object.
Invariant: nothing is kept alive: a reference is read again, as any source is.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from windfall.frontend.breaks import ARGUMENTS, WATCHED_DEATH, stop
from windfall.frontend.values.base import Arguments, Given, Keywords, Value
from windfall.frontend.values.unseen import real_of
from windfall.frontend.values.wrap import wraps
from windfall.ir.source import (
    Attribute,
    BoundTo,
    ByMethod,
    CellContents,
    DictOf,
    Item,
    ItemOfObject,
    Known,
    Source,
)

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
        found = self.real()
        # It is read before all writes, one of which may end the object, unless something holds it.
        if machine.effects.entries and not _lives(machine, found):
            stop(WATCHED_DEATH, "a weak reference, behind a write")
        self.guard_type(machine)
        assert self.source is not None
        return machine.values.wrap(found, ByMethod(self.source, weakref.ref, "__call__"))


# Ways from an object to one that it holds. (A call of a weak reference is none.)
_HOLDING = (DictOf, Item, ItemOfObject, Attribute, CellContents, BoundTo)


def _lives(machine: Machine, found: Any) -> bool:
    """Whether an object that is the same one in each call is held past the writes so far: by a
    variable of a frame, or by a way to it that the program has come and none of whose objects was
    written. (What is at the end of two ways is guarded to be one object.)"""
    if found is None:
        return False
    if _is_held(machine, found):
        return True
    known = machine.values.met(found)
    source = known.source if known is not None else None
    holders: list[Any] = []
    while isinstance(source, _HOLDING):
        source = source.base
        holders.append(source.read(machine.state.values))
    if not holders or not (isinstance(source, Known) or _is_held(machine, holders[-1])):
        return False
    written = [real_of(one) for entry in machine.effects.entries for one in entry.operands]
    return not any(one is holder for one in written for holder in holders)


def _is_held(machine: Machine, found: Any) -> bool:
    """Whether a variable of a frame holds it."""
    held = (one for frame in machine.frames.stack for one in (*frame.variables, *frame.stack))
    return any(real_of(one) is found for one in held if one is not None)


@wraps(weakref.ref)
def _wrap_reference(machine: Machine, value: Any, source: Source | None) -> Value:
    return machine.values.remember(value, Reference(value, source or Known(value, "reference")))
