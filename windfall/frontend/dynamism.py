"""What a miss teaches: which sizes and numbers vary.

Enters: the entries of a point, the slots of a call that fits none of them, and the facts so far.
Leaves: larger facts, or None. An entry that fits but for the values of sizes and numbers is one
that should not have relied on these: they vary. Invariant: facts only grow, so a program is
compiled anew for each thing that varies, not for each of its values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any

from windfall.dataclass import dataclass
from windfall.frontend.state import Facts
from windfall.ir.dtype import TensorType
from windfall.ir.guard import (
    BindsSymbol,
    Check,
    Compares,
    ComparesWith,
    Equals,
    Guard,
    TensorIs,
    failures,
)
from windfall.ir.reading import UNREADABLE
from windfall.ir.reading import facts as facts_of
from windfall.ir.relation import Relation, recurs
from windfall.ir.source import SYMBOLS, Ahead, HasAhead, SizeOf, Source, StrideOf
from windfall.ir.stages import Entry
from windfall.ir.symint import Expression, Size, symbols_of

Slots = Sequence[Any]


@dataclass(slots=True)
class Dynamism:
    """What one entry relied on in vain."""

    varying: set[str] = field(default_factory=set)
    fractions: set[str] = field(default_factory=set)  # of these, the floats
    apart: set[str] = field(default_factory=set)
    rounds: set[str] = field(default_factory=set)  # iterators that have another number of items
    recurs: bool = False  # it will be true again of other sizes: every tenth


def generalised(entries: Sequence[Entry], slots: Slots, facts: Facts) -> Facts | None:
    """The facts after a miss; None: it teaches nothing new."""
    for entry in entries:
        lesson = lesson_of(entry.segment.capture.guards, slots)
        if lesson is None:
            continue
        dynamic = facts.dynamic | lesson.varying
        if len(entries) >= _ROUNDS:
            dynamic |= lesson.rounds
        apart = facts.apart | lesson.apart
        if dynamic - facts.static != facts.dynamic - facts.static or apart != facts.apart:
            return replace(facts, dynamic=dynamic, apart=apart)
    return None


_ROUNDS = 4  # numbers of rounds of a loop that are compiled each for itself


def lesson_of(guards: Sequence[Guard], slots: Slots) -> Dynamism | None:
    """None: the call differs in more than sizes and numbers."""
    lesson = Dynamism()
    values: dict[str, int] = {}
    for guard in failures(guards, slots, values):
        if guard.source is SYMBOLS:  # another decision about sizes: an entry of its own
            lesson.recurs = lesson.recurs or _comes_back(guard.check)
            continue
        rule = _RULES.get(type(guard.check))
        if rule is None:
            return None
        try:
            found = guard.source.read(slots)
        except UNREADABLE:  # a path that is no longer there
            if lesson.rounds and _is_ahead(guard.source):
                continue  # an item that does not come: there are fewer
            return None
        if not rule(lesson, guard.source, guard.check, found):
            return None
    return lesson


def _comes_back(check: Any) -> bool:
    """Whether it is an equation (of remainders) that holds for sizes without end."""
    relation: Relation = check.relation
    symbols = symbols_of(relation.left) | symbols_of(relation.right)
    return relation.operation == "==" and len(symbols) == 1 and recurs(relation, *symbols)


def _is_ahead(source: Source | None) -> bool:
    """Whether it is what an iterator would give, or a part of that."""
    while source is not None and not isinstance(source, Ahead):
        source = source.base
    return source is not None


def _number(lesson: Dynamism, source: Source, check: Any, found: Any) -> bool:
    if isinstance(source, HasAhead) and source.count:  # more rounds of a loop, or fewer
        lesson.rounds.add(str(HasAhead(source.of, 0)))
        return True
    if type(check.value) not in (int, float, range) or type(found) is not type(check.value):
        return False
    lesson.varying.add(str(source))
    if type(found) is float:
        lesson.fractions.add(str(source))
    return True


def _tensor(lesson: Dynamism, source: Source, check: Any, found: Any) -> bool:
    wanted: TensorType = check.type
    if type(found) is not check.exact_class:
        return False
    real = facts_of(found)
    alike = real.dtype is wanted.dtype and real.requires_grad == wanted.requires_grad
    if not alike or not len(real.sizes) == len(real.strides) == wanted.rank:
        return False
    changed = False
    for dimension, (size, now) in enumerate(zip(wanted.sizes, real.sizes, strict=True)):
        if _is(size, now):
            continue
        changed = True
        place = str(SizeOf(source, dimension))
        if isinstance(size, Expression):
            lesson.apart.add(place)
        elif size > 1 and now > 1:
            lesson.varying.add(place)
    for dimension, (stride, now) in enumerate(zip(wanted.strides, real.strides, strict=True)):
        if not changed and isinstance(stride, int) and stride != now:
            lesson.varying.add(str(StrideOf(source, dimension)))
    return True


def _is(size: Size, now: int) -> bool:
    return isinstance(size, int) and size == now


_RULES: dict[type[Check], Any] = {
    Equals: _number,
    TensorIs: _tensor,
    Compares: lambda lesson, source, check, found: type(found) is float,
    ComparesWith: lambda lesson, source, check, found: type(found) is float,
    BindsSymbol: lambda lesson, source, check, found: type(found) is int,
}
