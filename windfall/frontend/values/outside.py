"""The values of objects from outside: one object is one value, and looking at it is relied upon.

Enters: an object and the source at which it was read. Leaves: its value, `Unseen` until somebody
asks (ADR 0032). Invariant: whatever was seen has a guard that tells its class, and a second way to
an object that was met must lead to it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windfall.frontend.values.base import Value
from windfall.frontend.values.unseen import look, unseen
from windfall.frontend.values.wrap import has_fixed_class, wrap
from windfall.ir.guard import IdentityIs, TypeIs
from windfall.ir.source import Known, Source

if TYPE_CHECKING:
    from windfall.frontend.services import Machine


class Outside:
    """The half of `machine.values` that meets objects."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._memo: dict[int, Value] = {}
        self._alive: list[Any] = []  # so that no address is reused during the capture

    def wrap(self, value: Any, source: Source | None) -> Value:
        """The symbolic value of a real object: of one from outside, not looked at yet."""
        if source is not None and not (source.__class__ is Known and has_fixed_class(value)):
            return unseen(self, value, source)
        known = self._memo.get(id(value))
        if known is None:
            return wrap(self._machine, value, source)
        if known.source is not None and known.source.__class__ is not Known:
            # An argument that is a constant of the program: the next one may be another object.
            check = IdentityIs(value)
            known.guard(self._machine, "identity", check, "it is an object of the program")
        return known

    def see(self, value: Any, source: Source) -> Value:
        """What an object from outside is: from here on its kind is relied upon. The same object is
        the same value, and a second way to it must lead there again."""
        known = self._met(value, source)
        if known is None:
            known = wrap(self._machine, value, source)
            self._cover(known, value, source)
            if self._machine.facts.verify:
                assert known.python_type() is type(value), f"the class of {known.describe()}"
                self._machine.guards.seen.append((source, type(value)))
        return known

    def _met(self, value: Any, source: Source) -> Value | None:
        """The value of an object that was met before; from here on, this way leads to it too."""
        known = self._memo.get(id(value))
        if known is None:
            return None
        guards = self._machine.guards
        if known.source is None:  # an object of the program
            guards.add(source, IdentityIs(value), "it is an object of the program")
        elif known.source != source:
            guards.alias(known, source)
        return known

    def _cover(self, known: Value, value: Any, source: Source) -> None:
        """Rely on what made it a value of its kind: the exact class of what stands there."""
        if known.source is not None and known.source == source:
            known.guard(self._machine, "type", TypeIs(type(value)), "looked at")
        else:  # a kind that is made of parts: it has another source, or none
            self._machine.guards.add(source, TypeIs(type(value)), "looked at")

    def wrap_certain(self, value: Any, source: Source) -> Value:
        """An object from outside whose class the language guarantees, wherever it was read: the
        cells of a closure."""
        known = self._met(value, source)
        return known if known is not None else wrap(self._machine, value, source)

    def remember(self, real: Any, value: Value) -> Value:
        """Note which value stands for an object that has an identity."""
        self._memo[id(real)] = value
        self._alive.append(real)
        return value

    def met(self, real: Any) -> Value | None:
        """The value of an object that was looked at; asking relies on nothing."""
        return self._memo.get(id(real))

    def from_outside(self) -> list[Value]:
        """Every object that was met, in order."""
        return list(self._memo.values())

    def known(self, value: Any, name: str) -> Value:
        """An object that the program reaches by a way that cannot change (a class's dict...)."""
        found: Value = look(self.wrap(value, Known(value, name)))
        return found
