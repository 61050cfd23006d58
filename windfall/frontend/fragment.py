"""A piece of a function that runs by itself: its code, how it is called, where it can end.

Enters: what `assembler.py` made. Leaves: a callable of one argument, the tuple of slots. Invariant:
slots, in and out, are the bound variables in order (a cell variable's slot is its cell), the values
on the stack from the bottom (NULLs have none), then the exception being handled, if any.

    arrival, slots = made.bind(f.__globals__)((x, y, iterator))
    if arrival is RETURNED:
        return slots[0]
    arrival, slots = arrival.settled(slots)     # at arrival.index, with arrival.variables bound
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import CellType, CodeType, FunctionType
from typing import Any

from windfall.dataclass import dataclass
from windfall.errors import InternalError
from windfall.frontend.breaks import UNKNOWN_OPCODE, stop

Slots = tuple[Any, ...]
Native = Callable[[Slots], Any]


class Unbound:
    """What stands in the slot of a variable that turned out to be unbound at a stop."""

    def __repr__(self) -> str:
        return "UNBOUND"


UNBOUND = Unbound()


@dataclass(frozen=True, slots=True)
class Arrival:
    """Where a fragment stopped and what its slots are. `uncertain` are variables of which only the
    run can tell whether they are bound, what one held that is put aside on the stack may be missing
    too, and where `handled` its slot may be None: see `settled`.
    `keywords` are names that a KW_NAMES left for the call that follows."""

    index: int
    variables: tuple[int, ...]
    stack: tuple[bool, ...]
    handled: bool = False
    keywords: tuple[str, ...] = ()
    uncertain: frozenset[int] = frozenset()

    def settled(self, slots: Slots) -> tuple[Arrival, Slots]:
        """As it turned out: no slot is UNBOUND, none stands for an exception that is not there."""
        count = len(self.variables)
        handled = self.handled and slots[-1] is not None
        unbound = any(slot is UNBOUND for slot in slots)
        if handled == self.handled and not unbound:
            return self, slots
        bound = [index for index in range(count) if slots[index] is not UNBOUND]
        rest = slots[count:] if handled == self.handled else slots[count:-1]
        variables = tuple(self.variables[index] for index in bound)
        values = iter(rest)
        stack = tuple(here and next(values) is not UNBOUND for here in self.stack)
        arrival = Arrival(self.index, variables, stack, handled, self.keywords)
        kept = (slot for slot in rest if slot is not UNBOUND)
        return arrival, (*(slots[index] for index in bound), *kept)


RETURNED = Arrival(-1, (), (True,))


@dataclass(frozen=True, slots=True, eq=False)
class Fragment:
    """Code that starts in the middle of `origin` (kept, so that its address names it)."""

    origin: CodeType
    code: CodeType
    start: int
    arrivals: tuple[Arrival, ...]
    needs_closure: bool  # the start lies before the instruction that copies the closure
    is_generator: bool  # a call makes a generator or coroutine, not begun

    def bind(
        self,
        globals: dict[str, Any],
        builtins: Mapping[str, Any] | None = None,
        closure: tuple[CellType, ...] | None = None,
    ) -> Native:
        """The callable. Pass the slots as a temporary: whoever keeps the tuple keeps its values."""
        if closure is None:
            if self.needs_closure:
                raise InternalError("a fragment that copies the closure needs it")
            closure = tuple(CellType() for _ in self.code.co_freevars)
        function = _function(self.code, globals, builtins, closure)
        found: Any = getattr(function, "__builtins__")  # noqa: B009 (typeshed does not know it)
        if builtins is not None and found is not builtins:
            stop(UNKNOWN_OPCODE, "the builtins of this function were replaced after it was made")
        return function


def _function(
    code: CodeType,
    globals: dict[str, Any],
    builtins: Mapping[str, Any] | None,
    closure: tuple[CellType, ...],
) -> FunctionType:
    """Globals without `__builtins__` take those of the frame that makes the function."""
    if builtins is None or "__builtins__" in globals:
        return FunctionType(code, globals, code.co_name, None, closure)
    names = {"__builtins__": builtins, "make": FunctionType, "code": code, "names": globals}
    names |= {"name": code.co_name, "closure": closure}
    made = eval("make(code, names, name, None, closure)", names)
    assert isinstance(made, FunctionType)
    return made
