"""Runs a function in pieces through fragments, and tells what it did."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FunctionType, TracebackType
from typing import Any

from windfall.frontend.assembler import fragment, successors
from windfall.frontend.fragment import RETURNED, Arrival, Fragment
from windfall.frontend.stack_effects import stack_effects

Arguments = tuple[Any, ...]


@dataclass(frozen=True)
class Outcome:
    """What can be seen of a call from outside."""

    result: str
    log: str
    error: tuple[Any, ...] | None
    handled: str = field(default="")


def observe(call: Callable[[list[Any]], Any], file: str) -> Outcome:
    """Call with a new log."""
    log: list[Any] = []
    try:
        result = repr(call(log))
        error = None
    except Exception as raised:
        result, error = "", described(raised, file)
    return Outcome(result, repr(log), error, repr(sys.exc_info()))


def cold(function: Any) -> Any:
    """The same function, never called: CPython is inexact about the columns of warm ones."""
    code = function.__code__.replace()
    made = FunctionType(
        code, function.__globals__, None, function.__defaults__, function.__closure__
    )
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def described(error: BaseException | None, file: str) -> tuple[Any, ...] | None:
    """Type, arguments, the traceback's entries in the user's file, and what it is chained to."""
    if error is None:
        return None
    parts = getattr(error, "exceptions", ())
    return (
        type(error).__name__,
        str(error),
        entries(error.__traceback__, file),
        described(error.__cause__, file),
        described(error.__context__, file),
        error.__suppress_context__,
        [described(part, file) for part in parts],
    )


def entries(traceback: TracebackType | None, file: str) -> list[Any]:
    """(function, line, columns) of each frame of the user."""
    found = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if code.co_filename == file:
            position = list(code.co_positions())[traceback.tb_lasti // 2]
            found.append((code.co_qualname, traceback.tb_lineno, position))
        traceback = traceback.tb_next
    return found


def first_slots(function: Any, arguments: Arguments) -> tuple[tuple[int, ...], Arguments]:
    """The variables that a call binds, and their values."""
    bound = inspect.signature(function).bind(*arguments)
    bound.apply_defaults()
    names = function.__code__.co_varnames
    places = sorted((names.index(name), value) for name, value in bound.arguments.items())
    return tuple(place for place, _ in places), tuple(value for _, value in places)


def bind(made: Fragment, function: Any) -> Callable[[Arguments], Any]:
    closure = function.__closure__ if made.needs_closure else None
    return made.bind(function.__globals__, function.__builtins__, closure)


class Run:
    """A call in pieces. `cut` answers for each piece, by its number, the stops of the next one."""

    def __init__(self, function: Any, cut: Callable[[int, int], frozenset[int]]) -> None:
        self.function, self.cut = function, cut
        self.arrivals = 0
        self.known: dict[Any, tuple[Fragment, Callable[[Arguments], Any]]] = {}

    def __call__(self, *arguments: Any) -> Any:
        function, code = self.function, self.function.__code__
        bound, slots = first_slots(function, arguments)
        del arguments
        at = Arrival(0, bound, ())
        while True:
            stops = self.cut(self.arrivals, at.index)
            key = (at, stops)
            if key not in self.known:
                made = fragment(code, at.index, stops, at.variables, at.stack, at.handled)
                self.known[key] = (made, bind(made, function))
            (made, native), slots = self.known[key], [slots]
            if not stops:
                return native(slots.pop())
            at, slots = native(slots.pop())
            if at is RETURNED:
                return slots[0]
            assert at.index in stops and at in made.arrivals
            at, slots = at.settled(slots)
            self.arrivals += 1


def chained(function: Any, index: int, times: int = 1) -> Run:
    """Stop at an instruction the first `times` times it is reached, then run on."""
    return Run(function, lambda count, _: frozenset({index}) if count < times else frozenset())


def stepped(function: Any) -> Run:
    """Every instruction by itself."""
    return Run(function, lambda _, index: successors(function.__code__, index))


def reachable(function: Any) -> list[int]:
    """Every instruction at which a run can be cut."""
    return [
        i for i, stack in enumerate(stack_effects(function.__code__).stacks) if stack is not None
    ]
