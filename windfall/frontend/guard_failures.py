"""Why a call fits no entry, in words: where the value is, what was expected, what is there now, and
which line of the program made it a condition.

Enters: the guard that does not hold and the slots of the call. Leaves: text. Invariant: reading and
printing run no user code.

    x.shape: expected is Tensor float32[4, 3], got float32[5, 3] (a tensor; f.py:12 in f)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from windfall.ir.guard import Guard, failures


def why_missed(guards: Iterable[Guard], slots: tuple[Any, ...]) -> str:
    """The first of these guards that does not hold, told for people."""
    symbols: dict[str, int] = {}
    broken = next(failures(guards, slots, symbols), None)
    return "no guard fails now" if broken is None else told(broken, slots, symbols)


def told(guard: Guard, slots: tuple[Any, ...], symbols: Mapping[str, int]) -> str:
    """Source, expected, actual, and what relied on it where."""
    notes = "; ".join(str(one) for one in (guard.reason, guard.where) if one)
    found = guard.explain(slots, symbols) + (f" ({notes})" if notes else "")
    return f"{guard.source}: expected {guard.check.expected()}, got {found}"
