"""Calls of functions about which the user said how they are captured.

Enters: a `Directive` (`windfall/directives.py`) and the arguments. Leaves: the value of the call.
Invariant: the caller relies on the function's identity before it asks here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from windfall import torch_abi
from windfall.directives import Directive, set_breaks_are_errors
from windfall.errors import UserError
from windfall.frontend.breaks import ASKED_BREAK, ASKED_LEAVE, NATIVE_FUNCTION, stop
from windfall.frontend.values.base import Arguments, Keywords, Value
from windfall.frontend.values.calls import calls
from windfall.ir.guard import IdentityIs

if TYPE_CHECKING:
    from windfall.frontend.services import Machine


def _name(function: Any) -> str:
    return getattr(function, "__qualname__", None) or repr(function)


def _native(
    machine: Machine, said: Directive, function: Any, arguments: Arguments, keywords: Keywords
) -> Value:
    stop(NATIVE_FUNCTION, f"{_name(function)} is disabled" + _because(said))


def _because(said: Directive) -> str:
    return f": {said.detail}" if said.detail else ""


def _inline(
    machine: Machine, said: Directive, function: Any, arguments: Arguments, keywords: Keywords
) -> Value:
    assert said.function is not None
    return machine.values.known(said.function, _name(said.function)).call(
        machine, arguments, keywords
    )


def _graph(
    machine: Machine, said: Directive, function: Any, arguments: Arguments, keywords: Keywords
) -> Value:
    return machine.values.torch_call("call_function", function, arguments, keywords)


def _constant(
    machine: Machine, said: Directive, function: Any, arguments: Arguments, keywords: Keywords
) -> Value:
    real = [_real(machine, one) for one in arguments]
    named = {name: _real(machine, one) for name, one in keywords.items()}
    try:
        result = function(*real, **named)
    except Exception as error:
        stop(NATIVE_FUNCTION, f"{_name(function)} raises {type(error).__name__}")
    machine.guards.take_from_process(f"{_name(function)} was called while capturing")
    return machine.values.known(result, _name(function))


def _real(machine: Machine, value: Value) -> Any:
    """The object itself, where it is one from outside; else it must be a constant."""
    real = getattr(value, "real", None)
    if real is not None and value.source is not None:
        value.guard(machine, "identity", IdentityIs(real))
        return real
    return value.as_constant(machine)


def _break(
    machine: Machine, said: Directive, function: Any, arguments: Arguments, keywords: Keywords
) -> Value:
    stop(ASKED_BREAK, said.detail)


def _leave(
    machine: Machine, said: Directive, function: Any, arguments: Arguments, keywords: Keywords
) -> Value:
    stop(ASKED_LEAVE, said.detail)


def _forbid(
    machine: Machine, said: Directive, function: Any, arguments: Arguments, keywords: Keywords
) -> Value:
    raise UserError(f"{machine.frames.where()}: {_name(function)} is called{_because(said)}")


def _true(
    machine: Machine, said: Directive, function: Any, arguments: Arguments, keywords: Keywords
) -> Value:
    return machine.values.literal(True)


def _nothing(
    machine: Machine, said: Directive, function: Any, arguments: Arguments, keywords: Keywords
) -> Value:
    return machine.values.literal(None)


_WAYS: dict[str, Callable[..., Value]] = {
    "native": _native,
    "inline": _inline,
    "graph": _graph,
    "constant": _constant,
    "break": _break,
    "leave": _leave,
    "forbid": _forbid,
    "true": _true,
    "nothing": _nothing,
}


def follow(
    machine: Machine, said: Directive, function: Any, arguments: Arguments, keywords: Keywords
) -> Value:
    """Capture a call as the user said."""
    return _WAYS[said.kind](machine, said, function, arguments, keywords)


@calls(set_breaks_are_errors)
def _set_breaks_are_errors(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    value = bool(arguments[0].as_constant(machine))
    before = set_breaks_are_errors(value)
    machine.effects.undo(lambda: torch_abi.set_mode("breaks_are_errors", before))
    machine.effects.switched.add("breaks_are_errors")
    return machine.values.literal(before)
