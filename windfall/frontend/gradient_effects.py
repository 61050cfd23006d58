"""Effects on `.grad`, settled: of several writes the last one, of none that change nothing any.

Enters: the effects of a capture, in program order. Leaves: those that are replayed. A gradient that
the program made, read and let go of again is then no result of the graph: it never exists as a
tensor. Invariant: no effect reads `.grad`; what one is about is named when the call begins.

    p.grad = g; p.grad = None        (p.grad was None)        =>   nothing
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from windfall.ir.guard import Equals
from windfall.ir.source import Attribute

if TYPE_CHECKING:
    from windfall.frontend.effects import Effect
    from windfall.frontend.services import Machine

WRITE = "{}.grad = {}"


def settled(machine: Machine, effects: Iterable[Effect]) -> list[Effect]:
    """The effects that are replayed."""
    left = list(effects)
    last = {id(one.operands[0]): one for one in left if one.template == WRITE}
    if not last:
        return left
    known = {
        guard.source
        for guard in machine.guards.taken
        if isinstance(guard.check, Equals) and guard.check.value is None
    }
    kept: list[Effect] = []
    for one in left:
        if one.template == WRITE:
            owner, value = one.operands
            if last[id(owner)] is not one:
                continue
            assert owner.source is not None
            nothing = value.source is None and value.python_type() is type(None)
            if nothing and Attribute(owner.source, "grad") in known:
                continue
        kept.append(one)
    return kept
