"""Messages to loggers: effects, written after the graph in their place among the others.

Enters: calls of methods of `logging.Logger` (and of cached ones, as `warning_once`) with constant
arguments. Leaves: entries of the effect log. Invariant: a message is logged as often as eager logs
it, with the same arguments, in the same order among all effects; nothing depends on its result,
which is None.
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Any

from windfall.frontend.breaks import UNKNOWN_CALL, stop
from windfall.frontend.cached_answers import CachedAnswer, is_immutable
from windfall.frontend.policy import Treatment, cached_treatment, is_query
from windfall.frontend.polyfills import core
from windfall.frontend.purity import is_pure
from windfall.frontend.values.base import Arguments, ByIdentity, Given, Keywords, Value
from windfall.frontend.values.calls import calls
from windfall.frontend.values.constant import fold
from windfall.frontend.values.objects import Object
from windfall.frontend.values.wrap import wraps
from windfall.ir.guard import IdentityIs
from windfall.ir.source import Known, Source

if TYPE_CHECKING:
    from windfall.frontend.services import Machine

_CACHED: type = type(functools.lru_cache(int))


def _logged(machine: Machine, method: Any, arguments: Arguments, keywords: Keywords) -> Value:
    """Note a message; refused where it would show objects that may change until then."""
    owner = arguments[0] if arguments else None
    if not isinstance(owner, Object) or not issubclass(owner.python_type(), logging.Logger):
        stop(UNKNOWN_CALL, getattr(method, "__qualname__", repr(method)))
    shown = [*arguments[1:], *keywords.values()]
    for one in shown:
        if not one.is_constant():
            stop(UNKNOWN_CALL, f"a log message with {one.describe()}")
        one.as_constant(machine)
    owner.guard_type(machine)
    places = ["{}"] * len(arguments) + [f"{name}={{}}" for name in keywords]
    known = machine.values.known(method, method.__name__)
    machine.effects.add(f"{{}}({', '.join(places)})", known, owner, *shown)
    return machine.values.literal(None)


def _method(method: Any) -> None:
    def rule(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
        return _logged(machine, method, arguments, keywords)

    calls(method)(rule)


for _name in ("debug", "info", "warning", "error", "critical", "log"):
    _method(getattr(logging.Logger, _name))


class Cached(ByIdentity, Given):
    """A function behind `functools.lru_cache`. What it answers is known to the cache alone (an
    object that it has handed out before, computed from what globals were then, or for `True` where
    it is asked for 1), so it is called natively; a logger's method is called for its effect. Where
    a pure function answers constants with a constant, that is expected, and the segment begins with
    the call."""

    __slots__ = ()

    def describe(self) -> str:
        """What it caches."""
        wrapped = getattr(self.real, "__wrapped__", None)  # not yet there while it is being made
        return f"cached function {getattr(wrapped, '__qualname__', self.source)}"

    def _answered(self, machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
        """What the cache holds, or will hold from now on."""
        plain = [one.as_constant(machine) for one in arguments]
        named = {name: one.as_constant(machine) for name, one in keywords.items()}
        self.rely(machine)
        try:
            found = self.real(*plain, **named)
        except Exception:
            stop(UNKNOWN_CALL, self.describe())
        machine.guards.take_from_process(f"{self.describe()} was called while capturing")
        return machine.values.literal_or_known(found, self.real.__name__)

    def _foretold(self, machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
        """What the function behind it computes is what the cache should answer."""
        values = machine.values
        wrapped = values.known(self.real.__wrapped__, "wrapped")
        if any(frame.code is core.cached_call.__code__ for frame in machine.frames.stack):
            return wrapped.call(machine, arguments, keywords)  # the call around it asks its cache
        pairs = [values.tuple([values.literal(name), one]) for name, one in keywords.items()]
        parts = [self, wrapped, values.tuple(list(arguments)), values.tuple(pairs)]
        return values.polyfill("cached_call", parts)

    def call(self, machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
        """A message, a question about what is installed, or natively."""
        if is_query(self.real):
            if not isinstance(self.source, Known):
                self.guard(machine, "identity", IdentityIs(self.real))
            machine.guards.take_from_process("a library was asked what is installed")
            return fold(machine, self.real, arguments, keywords)
        given = [*arguments, *keywords.values()]
        how = cached_treatment(self.real)
        if how is Treatment.INLINE:
            self.rely(machine)
            wrapped = machine.values.known(self.real.__wrapped__, "wrapped")
            return wrapped.call(machine, arguments, keywords)
        if how is Treatment.FOLD and all(one.is_constant() for one in given):
            return self._answered(machine, arguments, keywords)
        if all(one.is_constant() for one in given) and is_pure(self.real):
            return self._foretold(machine, arguments, keywords)
        if not arguments or not isinstance(arguments[0], Object):
            stop(UNKNOWN_CALL, self.describe())
        if not isinstance(self.source, Known):
            self.guard(machine, "identity", IdentityIs(self.real))
        return _logged(machine, self.real, arguments, keywords)


@calls(core.cached_answer)
def _cached_answer(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    cached, given, named, found = arguments
    assert isinstance(cached, Cached)
    expected = found.as_constant(machine) if found.is_constant() else None
    if expected is None or not is_immutable(expected):
        stop(UNKNOWN_CALL, cached.describe())
    cached.rely(machine)
    call = cached.real, given.as_constant(machine), named.as_constant(machine)
    known = machine.effects.cached
    same = (value for one, value in known if one.is_call(*call))
    answer = next(same, None) or machine.values.literal(expected[0])
    known.append((CachedAnswer(*call, expected[0]), answer))

    def take_back() -> None:
        known.pop()

    machine.effects.undo(take_back)
    return answer


@wraps(_CACHED)
def _wrap_cached(machine: Machine, value: Any, source: Source | None) -> Value:
    return machine.values.remember(value, Cached(value, source or Known(value, value.__name__)))
