"""Callables with a rule of their own: one row each.

Enters: `@calls(len)` rows of any file in this folder. Leaves: `CALLS`, asked before anything else
is tried with a callable. A rule gets the machine, the positional and the keyword arguments, and
answers a `Value` (or PENDING). Invariant: a rule is asked only for arguments that CPython would
bind (`arity`) and for which it is written (`demands`); one that cannot do its work refuses (`stop`)
before it has changed anything.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any

from windfall import torch_abi
from windfall.frontend.breaks import ARGUMENTS, stop
from windfall.frontend.values.arity import fits
from windfall.frontend.values.base import Arguments, Keywords, Value
from windfall.frontend.values.demands import misfit

if TYPE_CHECKING:
    from windfall.frontend.services import Machine

Rule = Callable[["Machine", Arguments, Keywords], Value]

CALLS: dict[Any, Rule] = {}


def calls(*callables: Any) -> Callable[[Rule], Rule]:
    """A row: how a call of any of these is captured."""

    def register(rule: Rule) -> Rule:
        for one in callables:
            assert one not in CALLS, f"{one} has two rules"
            CALLS[one] = partial(_if_it_fits, one, rule)
        return rule

    return register


def _if_it_fits(
    function: Any, rule: Rule, machine: Machine, arguments: Arguments, keywords: Keywords
) -> Value:
    """The rule, asked only where the arguments fit; misfits are raised natively."""
    if not fits(function, len(arguments), keywords):
        stop(ARGUMENTS, getattr(function, "__qualname__", "a builtin"))
    wrong = misfit(function, arguments, keywords)
    if wrong is not None:
        stop(ARGUMENTS, f"{function.__qualname__} of {wrong.describe()}")
    return rule(machine, arguments, keywords)


def written_rule(rule: Rule) -> Any:
    """The function that somebody wrote, behind what we put around it."""
    found: Any = rule
    while isinstance(found, partial):
        found = found.args[1] if found.func is _if_it_fits else found.func
    return found


# By the module of the function: rows for what is not loaded with torch.
OF_MODULES: dict[str, dict[str, Rule]] = {}


def calls_of_module(module: str, name: str) -> Callable[[Rule], Rule]:
    """A row: how a call of a function is captured whose module may not be loaded yet."""

    def register(rule: Rule) -> Rule:
        OF_MODULES.setdefault(module, {})[name] = rule
        return rule

    return register


def rule_of(function: Any) -> Rule | None:
    """The rule of a function, if it has one."""
    found = CALLS.get(function)
    if found is None and torch_abi.untagged(function) is not None:
        found = CALLS[function] = _untagged(torch_abi.untagged(function))
    if found is None and function.__module__ in OF_MODULES:
        home = sys.modules.get(function.__module__)
        for name, rule in OF_MODULES.pop(function.__module__).items():
            calls(operator.attrgetter(name)(home))(rule)
        found = CALLS.get(function)
    return found


def _untagged(init: Any) -> Rule:
    """`Module.__init__` once torch's own compiler has run in the process: as it was before. What it
    notes besides is for that compiler alone."""
    return lambda machine, arguments, keywords: machine.values.known(init, "Module.__init__").call(
        machine, arguments, keywords
    )


def has_rule(target: Any) -> bool:
    """Whether calls of a Python function are captured by a rule."""
    if not isinstance(target, FunctionType):
        return False
    return rule_of(target) is not None or id(target.__code__) in BY_CODE


CodeRule = Callable[["Machine", Any, Arguments, Keywords], Value]

# By the address of the code: closures of the standard library, which are many functions.
BY_CODE: dict[int, CodeRule] = {}


def calls_of(function: Any) -> Callable[[CodeRule], CodeRule]:
    """A row: how a call of any function with the code of this one is captured. The rule gets the
    function's value too."""

    def register(rule: CodeRule) -> CodeRule:
        BY_CODE[id(function.__code__)] = rule
        return rule

    return register
