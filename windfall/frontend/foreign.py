"""Rules of the front end that somebody else than windfall has added.

Enters: nothing. Leaves: where they stand and whose they are. Invariant: asking changes nothing.
What such a rule does no key can tell, so what was captured by it is kept by no process for another.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from windfall.frontend.opcodes.table import HANDLERS
from windfall.frontend.values.calls import BY_CODE, CALLS, OF_MODULES, written_rule
from windfall.frontend.values.wrap import BY_PREDICATE, BY_TYPE
from windfall.ir.passes import is_own


def foreign_rules() -> Iterator[str]:
    """The rules whose code stands in another package."""
    tables: dict[str, list[Any]] = {
        "opcode": [*HANDLERS.values()],
        "kind of value": [*BY_TYPE.values(), *(row[-1] for row in BY_PREDICATE)],
        "call": [*map(written_rule, (*CALLS.values(), *BY_CODE.values(), *_of_modules()))],
    }
    for what, rules in tables.items():
        if not all(map(is_own, rules)):
            yield from (f"{what} of {one.__module__}" for one in rules if not is_own(one))


def _of_modules() -> Iterator[Any]:
    for rules in OF_MODULES.values():
        yield from rules.values()
