"""Rules of the front end that somebody else than windfall has added.

Enters: nothing. Leaves: where they stand and whose they are. Invariant: asking changes nothing, and
loads nothing: to a table that nobody has loaded, nobody has added.
What such a rule does no key can tell, so what was captured by it is kept by no process for another.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from windfall.ir.passes import is_own


def foreign_rules() -> Iterator[str]:
    """The rules whose code stands in another package."""
    for what, (module, rules) in _TABLES.items():
        loaded = sys.modules.get(f"windfall.frontend.{module}")
        found = [] if loaded is None else [*rules(loaded)]
        if not all(map(is_own, found)):
            yield from (f"{what} of {one.__module__}" for one in found if not is_own(one))


def _kinds(wrap: Any) -> Iterable[Any]:
    return (*wrap.BY_TYPE.values(), *(row[-1] for row in wrap.BY_PREDICATE))


def _calls(calls: Any) -> Iterable[Any]:
    of_modules = (rule for rules in calls.OF_MODULES.values() for rule in rules.values())
    return map(calls.written_rule, (*calls.CALLS.values(), *calls.BY_CODE.values(), *of_modules))


# What is added, the module of its table, and the rules of that.
_TABLES: dict[str, tuple[str, Callable[[Any], Iterable[Any]]]] = {
    "opcode": ("opcodes.table", lambda table: table.HANDLERS.values()),
    "kind of value": ("values.wrap", _kinds),
    "call": ("values.calls", _calls),
}
