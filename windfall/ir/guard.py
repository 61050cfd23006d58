"""What must still be true for a compiled entry to be used again.

Enters: facts on which the front end relied. Leaves: `Guard(source, check, reason)` records, and the
one evaluation of them in Python (`failures`). The runtime makes a native check of them, with what
has no native form left to the checks' own `holds`; reports print them. Kinds of check are classes
of `checks/`; the names of all of them are here too.

Invariant: checking runs no user code and keeps no input alive; a source that cannot be read any
more is a guard that does not hold.

    >>> Equals((1,)).holds((True,)), LengthIs(2).holds([0, 0])
    (False, True)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from windfall.dataclass import dataclass
from windfall.errors import SourceLine
from windfall.ir.checks.base import Check, Class
from windfall.ir.checks.objects import (
    ClassAttributesAre,
    Compares,
    ComparesWith,
    ContentsAre,
    Equals,
    HasKey,
    IdentityIs,
    ItemsAre,
    KeysAre,
    LengthIs,
    MroLookupIs,
    RegistrationsAre,
    SameObjects,
    TypeIs,
    WeakIdentity,
)
from windfall.ir.checks.tensors import (
    AmbientIs,
    BindsSymbol,
    Holds,
    PlainLeaf,
    ScalarWithin,
    TensorIs,
    in_range,
    symbol_of,
)
from windfall.ir.reading import ABSENT, UNREADABLE
from windfall.ir.relation import Relation
from windfall.ir.source import AMBIENT, SYMBOLS, Source, SourceNumbers

__all__ = [
    "ABSENT",
    "AMBIENT",
    "SYMBOLS",
    "AmbientIs",
    "BindsSymbol",
    "Check",
    "ClassAttributesAre",
    "Compares",
    "ComparesWith",
    "ContentsAre",
    "Equals",
    "Guard",
    "HasKey",
    "Holds",
    "IdentityIs",
    "ItemsAre",
    "KeysAre",
    "LengthIs",
    "MroLookupIs",
    "PlainLeaf",
    "RegistrationsAre",
    "SameObjects",
    "ScalarWithin",
    "TensorIs",
    "TypeIs",
    "WeakIdentity",
    "failures",
    "first_failure",
    "in_range",
    "simplified",
    "symbol_of",
]


@dataclass(frozen=True, slots=True)
class Guard:
    """`check` must hold of the value at `source`; `reason` says what relied on it."""

    source: Source
    check: Check
    reason: str
    where: SourceLine | None = None

    def weakly(self) -> Guard:
        """The same without keeping alive what it names."""
        check = self.check.weakly()
        return self if check is self.check else replace(self, check=check)

    def explain(self, slots: Sequence[Any], values: Mapping[str, int]) -> str:
        """What is at its source now; `values` are those of symbols."""
        try:
            return self.check.explain(values if self.source is SYMBOLS else self.source.read(slots))
        except UNREADABLE as error:  # a path that is no longer there
            return f"nothing ({type(error).__name__})"

    def __str__(self) -> str:
        return f"{self.source} {self.check}"


def first_failure(guards: Iterable[Guard], slots: Sequence[Any]) -> Guard | None:
    """The first guard that does not hold of these slots now."""
    return next(failures(guards, slots), None)


def failures(
    guards: Iterable[Guard], slots: Sequence[Any], values: dict[str, int] | None = None
) -> Iterator[Guard]:
    """The guards that do not hold of these slots now. `values` become those of the symbols: what is
    said of sizes in relation to others is looked at when all symbols have one."""
    values = {} if values is None else values
    later: list[tuple[Guard, Check]] = []
    for guard in guards:
        if guard.source is SYMBOLS:
            later.append((guard, guard.check))
            continue
        relations = _judged(guard, slots, values)
        if relations is None:
            yield guard
        else:
            later += ((guard, one) for one in relations)
    blamed: set[int] = set()
    for guard, check in later:
        if id(guard) not in blamed and not check.holds(values):
            blamed.add(id(guard))
            yield guard


def _judged(guard: Guard, slots: Sequence[Any], values: dict[str, int]) -> list[Check] | None:
    """What must hold of the symbols so that the guard does; symbols get their values on the way.
    None: it does not hold, whatever they are."""
    check, relations = guard.check, list[Check]()
    try:
        value = guard.source.read(slots)
        if not check.holds(value, *(one.read(slots) for one in check.reads())):
            return None
        for place, wanted in check.numbers(guard.source):
            found = value if place is guard.source else place.step(value)
            symbol = symbol_of(wanted)
            if symbol is None or symbol.key in values:
                relations.append(Holds(Relation("==", found, wanted)))
            elif not in_range(found, wanted):
                return None
            else:
                values[symbol.key] = found
    except UNREADABLE:  # a path that is no longer there
        return None
    return relations


def simplified(guards: Iterable[Guard]) -> list[Guard]:
    """The same facts in fewer guards: a class that another check on the same source looks at, or
    can look at on its way, needs no guard of its own; nor is one said twice."""
    given = list(guards)
    numbers = SourceNumbers()
    places = [numbers[guard.source] for guard in given]
    classes: dict[int, Class] = {}
    for place, guard in zip(places, given, strict=True):
        if type(guard.check) is TypeIs:
            classes.setdefault(place, guard.check.exact_class)
    narrowed: dict[int, Check] = {}
    kept = [
        _narrowed(guard, classes.get(place), narrowed)
        for place, guard in zip(places, given, strict=True)
    ]
    said = {
        _fact(place, guard.check.implied_class())
        for place, guard in zip(places, kept, strict=True)
        if type(guard.check) is not TypeIs
    }
    found: list[Guard] = []
    for place, guard in zip(places, kept, strict=True):
        if type(guard.check) is TypeIs:
            fact = _fact(place, guard.check.exact_class)
            if fact in said:
                continue
            said.add(fact)
        found.append(guard)
    return found


def _fact(number: int, of: object) -> int:
    """A number beside an object, as one number: of such pairs there are thousands, and tuples would
    be work for the garbage collector."""
    return number << 64 | id(of)


def _narrowed(guard: Guard, exact_class: Class | None, known: dict[int, Check]) -> Guard:
    """One whose check knows the class; of equal checks there is one record still."""
    if exact_class is None:
        return guard
    fact = _fact(id(guard.check), exact_class)
    check = known.get(fact)
    if check is None:
        check = known[fact] = guard.check.of_class(exact_class)
    if check is guard.check:
        return guard
    return Guard(guard.source, check, guard.reason, guard.where)  # `replace` takes thrice as long
