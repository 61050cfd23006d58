"""Compiled objects inside of compiled code: what they were made of is read in their place.

Enters: a `StandIn` (`frontend/compiled_object.py`: `Compiled`). Leaves: an object whose call is a
call of the original. Invariant: passed on, it is still the compiled object itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windfall.directives import StandIn
from windfall.frontend.values.base import Arguments, Keywords, Value
from windfall.frontend.values.class_value import Class
from windfall.frontend.values.objects import Object
from windfall.frontend.values.wrap import wraps_if
from windfall.ir.guard import IdentityIs
from windfall.ir.reading import class_name, is_a
from windfall.ir.source import Known, Source

if TYPE_CHECKING:
    from windfall.frontend.services import Machine


class CompiledCallable(Object):
    """A compiled function: what it was made of is read."""

    __slots__ = ()

    def call(self, machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
        """As a call of the original."""
        real: Any = self.real
        if not isinstance(self.source, Known):
            self.guard(machine, "identity", IdentityIs(real), "what it was made of is read")
        name = getattr(real.target, "__qualname__", None) or type(real.target).__qualname__
        return machine.values.known(real.target, name).call(machine, arguments, keywords)


@wraps_if(35, lambda value: is_a(value, StandIn))
def _wrap_compiled(machine: Machine, value: Any, source: Source | None) -> Value:
    cls = machine.values.known(type(value), class_name(type(value)))
    assert isinstance(cls, Class)
    source = source or Known(value, type(value).__name__)
    return machine.values.remember(value, CompiledCallable(cls, source, value))
