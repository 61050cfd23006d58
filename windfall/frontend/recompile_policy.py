"""How often values were needed, and entries made in vain: when one more compilation is too many.

Enters: what a compilation needed the value of, what a miss shows, which entries go. Leaves: which
sources are fixed for good, which are needed too often, whether a point is worth compiling again.
Invariant: no point of a program is compiled without end for values that never come back; what is
done instead (a break, a call that runs natively) is counted and told.

    range(n), n needed:   the first time, this call alone is compiled for its value;
                          the second time, every value is;
                          past some values, the step that needs it is a break
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from windfall.frontend.dynamism import generalised, lesson_of
from windfall.frontend.state import Facts
from windfall.ir.stages import Entry

_VALUES = 8  # of one source that are compiled each for itself
_FRACTIONS = 1  # of a source of floats, beyond the first two: they hardly ever come back
_IN_VAIN = 32  # entries in a row that went without having been used twice
_READ = "item "  # how facts name what is read from data


class RecompilePolicy:
    """The counts of one compiled object."""

    def __init__(self) -> None:
        self._needed: Counter[str] = Counter()
        self._values: Counter[Any] = Counter()

    def for_good(self, sources: frozenset[str], passing: bool) -> frozenset[str]:
        """Which of them, whose value was needed now, are fixed in all calls: those that were needed
        before (one value may be a special one; where it is, `passing`), and what is read from data,
        whose step is a break."""
        self._needed.update(() if passing else sources)
        return frozenset(
            one
            for one in sources
            if one.startswith(_READ) or (not passing and self._needed[one] > 1)
        )

    def too_many(
        self, point: Any, entries: Sequence[Entry], slots: Sequence[Any], facts: Facts
    ) -> frozenset[str]:
        """The sources of which this point has been compiled for too many values."""
        lesson = lesson_of(entries[0].segment.capture.guards, slots) if entries else None
        if lesson is None:
            return frozenset()
        fixed = [one for one in lesson.varying if one in facts.static]
        self._values.update((point, one) for one in fixed)
        return frozenset(
            one
            for one in fixed
            if self._values[point, one] > (_FRACTIONS if one in lesson.fractions else _VALUES)
        )


class EntryUsage:
    """Whether the entries of a point are used more than once."""

    __slots__ = ("_first", "in_vain", "told")

    def __init__(self) -> None:
        self._first: dict[int, int] = {}
        self.in_vain = 0
        self.told = ""  # why nothing more is compiled, of the first call for which that was so

    def began(self, entry: Entry | None) -> None:
        """It was used for the first time. (None: it is another thread's.)"""
        if entry is not None:
            self._first[id(entry)] = entry.last_use()

    def went(self, entries: Sequence[Entry]) -> None:
        """They are dropped."""
        for entry in entries:
            once = self._first.pop(id(entry), None) == entry.last_use()
            self.in_vain = self.in_vain + 1 if once else 0

    @property
    def is_thrashing(self) -> bool:
        """Whether compiling is not worth its time here: too many entries went unused."""
        return self.in_vain >= _IN_VAIN

    def passes_by(self, entries: Sequence[Entry], slots: Sequence[Any], facts: Facts) -> bool:
        """Whether it is not, because the latest entries (those stand first) were each for one call,
        and this call too differs from each of them in nothing but sizes and decisions about them,
        of which nothing is left to learn. (Eight kinds of call that each came once, by dtype or by
        mode, are no storm: the ninth kind may come back as they may. Neither are remainders, which
        come back though none of the latest eight did: a count by ten.)"""
        latest = entries[:_VALUES]
        if len(latest) < _VALUES or any(
            self._first.get(id(one)) != one.last_use() for one in latest
        ):
            return False
        lessons = [lesson_of(one.segment.capture.guards, slots) for one in latest]
        if None in lessons or any(one is not None and one.recurs for one in lessons):
            return False
        if lessons[0] is not None and lessons[0].varying & facts.static:
            return False
        return generalised(entries, slots, facts) is None
