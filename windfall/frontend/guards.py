"""What a capture relies on.

Enters: facts, from whoever gives an answer that depends on them. Leaves: the guards of the capture,
in the order in which they were relied upon. Invariant: of equal checks there is one record.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from windfall.frontend.breaks import UNKNOWN_ATTRIBUTE, UNKNOWN_OPERATION, stop
from windfall.frontend.values.base import Value
from windfall.frontend.values.unseen import real_of
from windfall.ir.guard import Check, Guard, HasKey, IdentityIs, LengthIs, SameObjects, TypeIs
from windfall.ir.reading import class_name, resolve
from windfall.ir.source import Known, Source

if TYPE_CHECKING:
    from windfall.frontend.services import Machine

# What tells checks apart of which a model has thousands of equal ones; asks no user's `__hash__`.
_IDENTITY: dict[type[Check], Callable[[Any], Any]] = {
    TypeIs: lambda check: id(check.exact_class),
    LengthIs: lambda check: check.length,
    HasKey: lambda check: (check.key, check.present) if type(check.key) is str else id(check),
}


_FEW_KEYS = 16  # that are told apart one by one


class Guards:
    """The guards of one capture."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._where = machine.frames.where
        self.taken: list[Guard] = []
        self.seen: list[tuple[Source, type]] = []  # where one looked, and what was there (verify)
        self._checks: dict[Any, Check] = {}  # one record for equal checks
        self.found: list[tuple[Source, Any]] = []  # items of dicts that were read
        self.answers: dict[type, dict[str, Any]] = {}  # what torch's classes were asked for
        self._keys: dict[int, dict[int, Value]] = {}  # keys by identity, of each class
        self.functions: set[types.FunctionType] = set()  # of torch, whose names are relied upon
        self.names: dict[Source, dict[str, Any]] = {}  # which, in dictionaries of modules
        self.own = ""  # what it took from this process that no guard tells of (`Capture.own`)

    def take_from_process(self, what: str) -> None:
        """An answer that another process would give otherwise: the capture is this one's own."""
        self.own = self.own or what

    def add(self, source: Source, check: Check, reason: str) -> None:
        """Rely on a fact."""
        identity = _IDENTITY.get(check.__class__)
        if identity is not None:
            check = self._checks.setdefault((check.__class__, identity(check)), check)
        self.taken.append(Guard(source, check, reason, self._where()))

    def alias(self, value: Value, source: Source) -> None:
        """A second way to an object that was met before: rely on its being the same."""
        assert value.source is not None
        same = SameObjects((source,), True)
        value.guard(self._machine, ("alias", source), same, "two names for one object")

    def told_apart(self, value: Value) -> Value:
        """A value that is its own key: objects hashed by identity are different keys only as long
        as they are different objects. (Where there are many, each is relied upon itself.)"""
        known = self._keys.setdefault(id(value.python_type()), {})
        if value.source is None or id(value) in known:
            return value
        others = list(known.values()) if len(known) <= _FEW_KEYS else []
        known[id(value)] = value
        if len(known) > _FEW_KEYS:  # from here on each by itself: pairs of many are too many
            for one in (*others, value):
                if (real := real_of(one)) is None:
                    stop(UNKNOWN_OPERATION, f"{one.describe()} as one of many keys")
                one.guard(self._machine, "identity", IdentityIs(real), "a key")
            return value
        for one in others:
            first, second = (value, one) if type(one.source) is Known else (one, value)
            if type(first.source) is not Known and second.source is not None:
                apart = SameObjects((second.source,), False)
                key = ("distinct", second.source)
                first.guard(self._machine, key, apart, "keys by identity")
        return value

    def rely_on_answer(self, cls: type, name: str) -> Any:
        """What a class of torch's answers for a name, relied upon: one guard for all names."""
        if self._machine.effects.written(cls, name) is not None:
            stop(UNKNOWN_ATTRIBUTE, f"class {class_name(cls)}.{name}, which was written")
        answers = self.answers.setdefault(cls, {})
        if name not in answers:
            answers[name] = resolve(cls, name)
        return answers[name]
