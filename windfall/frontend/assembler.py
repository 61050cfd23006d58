"""The native way out of a frame: code that starts in the middle and stops where it is told.

Enters: a code object, the instruction to start at, which variables and stack positions hold a value
there, the instructions to stop at. Leaves: a `Fragment`: a code object of one argument, the tuple of
slots, that goes on as the original would from there, at CPython's speed.

* Slots, in and out: the bound variables in order (a cell variable's slot is its cell), the values on
  the stack from the bottom (NULLs have none), then the exception being handled, if any.
* Without stops it returns what the frame returns (of a generator's code: the generator).
* With stops it returns (`Arrival`, slots), or (`RETURNED`, (value,)).
* An exception that the frame handles is handled; any other one leaves, with the user's file, name
  and line in its traceback. An instruction of `stops` that is a handler is stopped at as any other.

Invariants: the instructions of the user stand in their order and are the user's own, but for a
LOAD_METHOD across whose result a stop lies; no user code runs before the start nor at a stop; at a
return `sys.exc_info()` of the caller is what it was. A stop is one that is *arrived at*: the start
itself is always executed.

    rest = fragment(f.__code__, start=12, stops=frozenset(), bound=(0, 1), stack=(True,))
    rest.bind(f.__globals__)((x, y, iterator))
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

from windfall.errors import InternalError
from windfall.frontend.breaks import GENERATOR, UNKNOWN_OPCODE, stop
from windfall.frontend.bytecode import VERSION, Handler
from windfall.frontend.encoding import Row, Writer
from windfall.frontend.outline import (
    CONFLICT,
    LASTI,
    METHOD,
    NULL,
    PREVIOUS,
    VALUE,
    Outline,
    Stack,
    outline,
)
from windfall.frontend.state import FrameShape

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
    run can tell whether they are bound, and `handled` may turn out to be None: see `settled`."""

    index: int
    variables: tuple[int, ...]
    stack: tuple[bool, ...]
    handled: bool = False
    keywords: tuple[str, ...] = ()
    uncertain: frozenset[int] = frozenset()

    def settled(self, slots: Slots) -> tuple[Arrival, Slots]:
        """As it turned out: no slot is UNBOUND, none stands for an exception that is not there."""
        nothing = self.handled and slots[-1] is None
        if nothing:
            slots = slots[:-1]
        if not nothing and not any(slot is UNBOUND for slot in slots[: len(self.variables)]):
            return self, slots
        count = len(self.variables)
        bound = [
            (variable, slot)
            for variable, slot in zip(self.variables, slots[:count], strict=True)
            if slot is not UNBOUND
        ]
        arrival = Arrival(
            self.index,
            tuple(variable for variable, _ in bound),
            self.stack,
            self.handled and not nothing,
            self.keywords,
        )
        return arrival, (*(slot for _, slot in bound), *slots[count:])


RETURNED = Arrival(-1, (), (True,))


@dataclass(frozen=True, slots=True, eq=False)
class Fragment:
    """Code that starts in the middle. `origin` is kept, so that its address names it."""

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
        function = _with_builtins(self.code, globals, builtins, closure)
        if builtins is not None and function.__builtins__ is not builtins:
            stop(UNKNOWN_OPCODE, "the builtins of this function were replaced after it was made")
        return function


def _with_builtins(
    code: CodeType,
    globals: dict[str, Any],
    builtins: Mapping[str, Any] | None,
    closure: tuple[CellType, ...],
) -> FunctionType:
    """Globals without `__builtins__` take those of the frame that makes the function."""
    if builtins is None or "__builtins__" in globals:
        return FunctionType(code, globals, code.co_name, None, closure)
    names = {"__builtins__": builtins, "make": FunctionType}
    names.update(code=code, names=globals, name=code.co_name, closure=closure)
    made = eval("make(code, names, name, None, closure)", names)
    assert isinstance(made, FunctionType)
    return made


# ------------------------------------------------------------------------------------------ doors


def fragment(
    code: CodeType,
    start: int,
    stops: frozenset[int],
    bound: tuple[int, ...],
    stack: tuple[bool, ...],
    handled: bool = False,
    raising: bool = False,
) -> Fragment:
    """See the module. `handled`: the last slot is the exception being handled at the start; it must
    be given inside of a handler. `raising`: the start is not executed; the exception in the slot
    above the stack is raised there, so that this frame's handlers and the traceback see it.

    `Unsupported`: a generator that would have to yield before a stop, code that is not a function's.
    """
    return _Builder(code, start, stops, bound, stack, handled, raising).build()


def single_step(
    code: CodeType,
    index: int,
    bound: tuple[int, ...],
    stack: tuple[bool, ...],
    handled: bool = False,
    raising: bool = False,
) -> Fragment:
    """One instruction: a fragment that stops at whatever comes next, a handler included."""
    stops = successors(code, index, raising)
    return fragment(code, index, stops, bound, stack, handled, raising)


def successors(code: CodeType, index: int, raising: bool = False) -> frozenset[int]:
    """The instructions that may follow one; a raising one is followed by its handler only."""
    shape = outline(code)
    handler = shape.handlers[index]
    after = () if raising else shape.successors[index]
    return frozenset(after) | (frozenset() if handler is None else {handler.target})


def resume_function(
    code: CodeType,
    globals: dict[str, Any],
    variables: Mapping[int, Any],
    stack: Sequence[tuple[bool, Any]],
    index: int,
) -> Callable[[], Any]:
    """The rest of one frame, to be called once: a fragment that is built, bound and filled. The
    exception being handled is that of the caller."""
    bound = tuple(sorted(variables))
    made = fragment(code, index, frozenset(), bound, tuple(present for present, _ in stack))
    native = made.bind(globals)
    slots = [tuple(variables[one] for one in bound) + tuple(value for full, value in stack if full)]
    return lambda: native(slots.pop())


class Fragments:
    """The fragments of one compiled object, which owns this: dropped with it, or by `clear`.

    At most `limit`; the oldest go first. Any number of threads: two may build the same fragment at
    once, and either is used.
    """

    def __init__(self, limit: int = 1024) -> None:
        self.limit = limit
        self._known: dict[Any, tuple[Fragment, FrameShape, Native]] = {}

    def native(
        self,
        shape: FrameShape,
        stops: frozenset[int] = frozenset(),
        handled: bool = False,
        raising: bool = False,
    ) -> Native:
        """The callable that goes on with a frame at its `ip` until `stops`."""
        key = (
            id(shape.code),
            id(shape.globals),
            shape.ip,
            stops,
            shape.variables,
            shape.stack,
            handled,
            raising,
        )
        known = self._known.get(key)
        if known is not None:
            return known[2]
        made = fragment(
            shape.code, shape.ip, stops, shape.variables, shape.stack, handled, raising
        )
        native = made.bind(shape.globals, shape.builtins)
        while len(self._known) >= self.limit:
            self._known.pop(next(iter(self._known)), None)
        self._known[key] = (made, shape, native)  # the shape keeps alive what the key names
        return native

    def step(self, shape: FrameShape, handled: bool = False, raising: bool = False) -> Native:
        """The callable that executes the one instruction at a frame's `ip`."""
        return self.native(shape, successors(shape.code, shape.ip, raising), handled, raising)

    def clear(self) -> None:
        """Forget all."""
        self._known.clear()

    def __len__(self) -> int:
        return len(self._known)


# --------------------------------------------------------------------------------------- building

_OP = dis.opmap
_FORWARD = {
    op: _OP.get(name.replace("BACKWARD_NO_INTERRUPT", "FORWARD").replace("BACKWARD", "FORWARD"), -1)
    for name, op in _OP.items()
    if "BACKWARD" in name
}
_JUMPS = frozenset(dis.hasjrel) | frozenset(dis.hasjabs)
_VARIABLES = frozenset(dis.haslocal) | frozenset(dis.hasfree) | {_OP["MAKE_CELL"]}
_CELLS = frozenset(dis.hasfree) - {_OP.get("LOAD_CLOSURE", -1)}
_YIELDS = frozenset({_OP["YIELD_VALUE"]})
_FLAGS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_VERSIONS = frozenset({(3, 11)})


def _reraise_code() -> CodeType:
    """A function of one exception that lets it go on, and is not seen in the traceback."""
    model = (lambda error: error).__code__
    writer = Writer(model.co_firstlineno, [(model.co_firstlineno, None)])
    for name, argument in (("RESUME", 0), ("LOAD_FAST", 0), ("RERAISE", 0)):
        writer.emit(_OP[name], argument, 0)
    made = writer.assemble()
    return model.replace(co_code=made.code, co_linetable=made.lines, co_name="reraise")


_RERAISE = FunctionType(_reraise_code(), {})


class _Builder:
    """One fragment in the making."""

    def __init__(
        self,
        code: CodeType,
        start: int,
        stops: frozenset[int],
        bound: tuple[int, ...],
        stack: tuple[bool, ...],
        handled: bool,
        raising: bool,
    ) -> None:
        self.code, self.start, self.stops = code, start, stops
        self.bound, self.stack, self.handled, self.raising = bound, stack, handled, raising
        self.shape: Outline = outline(code)
        self.constants = list(code.co_consts)
        self.shift = 0 if code.co_varnames else 1  # the argument needs a place of its own
        self.locations = [*self.shape.locations]
        self.writer = Writer(code.co_firstlineno, self.locations)
        self.place = start  # the location of what is emitted now
        self.start_stack = self._checked()
        self.reached, self.arrived = self._reach()
        self.generator = bool(code.co_flags & _FLAGS) and not stops
        self._refuse()
        # LOAD_METHODs whose result must have one form, because the frame is left while it is live.
        self.plain_methods = {
            kind - METHOD
            for index in self.arrived
            for kind in self._stack_at(index)
            if kind >= METHOD
        }
        self.guarded = handled or any(
            PREVIOUS in self._stack_at(index) for index in self.arrived
        )
        self.base = 1 if self.guarded else 0
        self.to_index = self.to_offset = -1  # constants: tables between instructions and offsets
        self.ghosts: dict[int, int] = {}

    # ------------------------------------------------------------------------------- questions

    def _stack_at(self, index: int) -> Stack:
        stack = self.shape.stacks[index]
        if stack is None:
            raise InternalError(f"instruction {index} of {self.code.co_qualname} is never reached")
        return stack

    def _checked(self) -> Stack:
        """The kinds of the start's stack, compared with what the caller says of it."""
        if VERSION not in _VERSIONS:
            stop(UNKNOWN_OPCODE, f"no native way out of a frame on Python {VERSION}")
        wanted = inspect.CO_OPTIMIZED | inspect.CO_NEWLOCALS
        if self.code.co_flags & wanted != wanted:
            stop(UNKNOWN_OPCODE, f"{self.code.co_name} is not the code of a function")
        kinds = self._stack_at(self.start)
        if self.raising:  # the operands of the raising instruction are gone: what is kept counts
            handler = self.shape.handlers[self.start]
            kept = 0 if handler is None else handler.depth
            kinds = kinds[:kept] + tuple(VALUE if full else NULL for full in self.stack[kept:])
        full = {VALUE: {True}, NULL: {False}, PREVIOUS: {True}, LASTI: {True}}
        fits = len(kinds) == len(self.stack) and all(
            given in full.get(kind, {True, False})
            for kind, given in zip(kinds, self.stack, strict=True)
        )
        if not fits:
            raise InternalError(
                f"{self.code.co_qualname} @ {self.start}: the stack is {kinds}, not {self.stack}"
            )
        return kinds

    def _reach(self) -> tuple[list[int], list[int]]:
        """The instructions of the fragment and the stops it arrives at, both in order."""
        successors, handlers, stops = self.shape.successors, self.shape.handlers, self.stops
        reached: set[int] = set()
        arrived: set[int] = set()
        handler = handlers[self.start]
        if not self.raising:
            reached.add(self.start)
            waiting = list(successors[self.start])
        else:
            waiting = []
        if handler is not None:
            waiting.append(handler.target)
        while waiting:
            index = waiting.pop()
            if index in stops:
                arrived.add(index)
            elif index not in reached:
                reached.add(index)
                waiting.extend(successors[index])
                handler = handlers[index]
                if handler is not None:
                    waiting.append(handler.target)
        return sorted(reached), sorted(arrived)

    def _refuse(self) -> None:
        """What cannot be done."""
        opcodes = self.shape.opcodes
        used = {opcodes[index] for index in self.reached}
        if self.code.co_flags & _FLAGS:
            if not self.generator and used & _YIELDS:
                stop(GENERATOR, f"{self.code.co_qualname} would yield before it stops")
            if _OP["RETURN_GENERATOR"] in used:
                stop(GENERATOR, "the start lies before the generator is made")
        if any(CONFLICT in self._stack_at(index) for index in self.arrived):
            stop(UNKNOWN_OPCODE, f"a stack of {self.code.co_qualname} that depends on the path")
        instructions = self.shape.listing.instructions
        made = {
            instructions[index].argument
            for index in self.reached
            if opcodes[index] == _OP["MAKE_CELL"]
        }
        self.needs_closure = _OP["COPY_FREE_VARS"] in used
        if self.needs_closure:
            made.update(self.shape.listing.free)
        for index in self.reached:
            if opcodes[index] in _CELLS:
                variable = instructions[index].argument
                if variable not in made and variable not in self.bound:
                    name = self.shape.listing.variables[variable]
                    raise InternalError(f"{self.code.co_qualname}: no slot for the cell {name}")
        self.made = made

    # ------------------------------------------------------------------------------ small moves

    def _emit(self, name: str, argument: int = 0, row: Row | None = None) -> None:
        self.writer.emit(_OP[name], argument, self.place, row)

    def _constant(self, value: Any) -> int:
        self.constants.append(value)
        return len(self.constants) - 1

    def _load(self, value: Any) -> None:
        self._emit("LOAD_CONST", self._constant(value))

    def _sink(self, count: int) -> None:
        """The top goes below `count` others, which keep their order."""
        for depth in range(count + 1, 1, -1):
            self._emit("SWAP", depth)

    def _rise(self, count: int) -> None:
        """What is below `count` others comes to the top."""
        for depth in range(2, count + 2):
            self._emit("SWAP", depth)

    def _call(self, count: int, row: Row | None = None) -> None:
        """[NULL, callable, arguments…] → result."""
        self._emit("PRECALL", count, row)
        self._emit("CALL", count, row)

    def _translate(self, depth: int, table: int) -> None:
        """Look up the stack's `depth`th number in a table."""
        if depth > 1:
            self._emit("SWAP", depth)
        self._emit("LOAD_CONST", table)
        self._emit("SWAP", 2)
        self._emit("BINARY_SUBSCR")
        if depth > 1:
            self._emit("SWAP", depth)

    # --------------------------------------------------------------------------------- building

    def build(self) -> Fragment:
        """Prologue, body, stops, what handles exceptions; then the tables."""
        writer = self.writer
        self.nodes = writer.labels(len(self.shape.opcodes))
        self.stubs = {index: writer.label() for index in self.arrived}
        self.rows: dict[int, Row | None] = {}
        self.outermost: Row | None = None  # restores the caller's exc_info
        if self.guarded:
            self.outermost = Row(writer.label(), 1, True)
        self._prologue()
        self._body()
        arrivals = self._stubs()
        self._tail()
        return self._finish(arrivals)

    def _prologue(self) -> None:
        listing = self.shape.listing
        if self.generator:
            self._emit("RETURN_GENERATOR")
            self._emit("POP_TOP")
        # frame.f_locals looks for the MAKE_CELL of a variable to know that it holds a cell.
        cells = sorted(listing.cells - set(listing.free) - self.made)
        if cells:
            over = self.writer.label()
            self.writer.jump(_OP["JUMP_FORWARD"], over, self.place)
            for variable in cells:
                self._emit("MAKE_CELL", variable + self.shift)
            self.writer.place(over)
        # A free variable is always a cell, or f_locals fails: an empty one where it has no slot.
        if not self.needs_closure and not set(listing.free) <= set(self.bound):
            self._emit("COPY_FREE_VARS", len(listing.free))
        self._emit("RESUME")
        self._unpack()
        self._shape_stack()
        if self.raising:
            self._raise()
            return
        names = self.shape.pending.get(self.start)
        if names is not None:
            self._emit("KW_NAMES", listing.instructions[names].argument)
        if self.reached[0] != self.start:
            self.writer.jump(_OP["JUMP_FORWARD"], self.nodes + self.start, self.place)

    def _unpack(self) -> None:
        """Slots to variables and stack, bottom first; the caller's exc_info below all."""
        values = sum(self.stack) + self.raising
        count = len(self.bound) + values + self.handled
        if count:
            self._emit("LOAD_FAST", 0)
            self._emit("UNPACK_SEQUENCE", count)
        for variable in self.bound:
            self._emit("STORE_FAST", variable + self.shift)
        if self.shift or 0 not in self.bound:
            self._emit("DELETE_FAST", 0)
        if self.guarded:
            self._emit("BUILD_TUPLE", values)
            if self.handled:
                self._emit("SWAP", 2)
                self._emit("PUSH_EXC_INFO")
                self._emit("POP_TOP")
            else:
                self._load(None)
                self._emit("PUSH_EXC_INFO")
                self._emit("POP_TOP")
                self._emit("COPY", 1)
                self._emit("POP_EXCEPT")
            self._emit("SWAP", 2)
            self._emit("UNPACK_SEQUENCE", values)
        elif values == 2:
            self._emit("SWAP", 2)
        elif values > 2:
            self._emit("BUILD_TUPLE", values)
            self._emit("UNPACK_SEQUENCE", values)

    def _shape_stack(self) -> None:
        """Values in order → the stack as the start expects it."""
        present = list(self.stack)
        for position, kind in enumerate(self.start_stack):
            if kind == LASTI:
                if self.to_offset < 0:
                    self.to_offset = self._constant(None)
                self._translate(sum(present[position:]) + self.raising, self.to_offset)
        for position, kind in enumerate(self.start_stack):
            if present[position] and kind >= METHOD and kind - METHOD in self.plain_methods:
                above = sum(present[position:]) - 2
                self._rise(above + 1)
                self._rise(above + 1)  # [others…, function, object]
                self._emit("PUSH_NULL")
                self._sink(2)
                self._load(MethodType)
                self._sink(2)
                self._call(2)
                self._sink(above)
                present[position] = False
        for position, full in enumerate(present):
            if not full:
                self._emit("PUSH_NULL")
                self._sink(sum(present[position:]) + self.raising)

    def _raise(self) -> None:
        row = self._row(self.start)
        self._emit("PUSH_NULL", 0, row)
        self._emit("SWAP", 2, row)
        self._emit("LOAD_CONST", self._constant(_RERAISE), row)
        self._emit("SWAP", 2, row)
        self._call(1, row)

    # ------------------------------------------------------------------------------------- body

    def _label(self, index: int) -> int:
        """Where an edge to an instruction goes."""
        return self.stubs[index] if index in self.stops else self.nodes + index

    def _row(self, index: int) -> Row | None:
        handler = self.shape.covers[index]
        if handler is None:
            return self.outermost
        key = id(handler)
        if key not in self.rows:
            self.rows[key] = self._new_row(handler)
        return self.rows[key]

    def _new_row(self, handler: Handler) -> Row | None:
        if handler.target not in self.stubs and handler.target not in self.reached:
            return None  # nothing of what it covers can raise
        return Row(self._label(handler.target), handler.depth + self.base, handler.lasti)

    def _body(self) -> None:
        writer, opcodes, nodes = self.writer, self.shape.opcodes, self.nodes
        instructions, stops, shift = self.shape.listing.instructions, self.stops, self.shift
        for index in self.reached:
            writer.place(nodes + index)
            op, one, row = opcodes[index], instructions[index], self._row(index)
            special = _SPECIAL.get(op)
            if special is not None and special(self, index, row):
                pass
            elif op in _JUMPS:
                if one.target in stops:
                    op = _FORWARD.get(op, op)
                writer.jump(op, self._label(one.target), index, row)
            elif shift and op in _VARIABLES:
                writer.emit(op, one.argument + shift, index, row)
            else:
                writer.emit(op, one.argument, index, row)
            after = self.shape.successors[index]
            if index + 1 in stops and len(after) > (one.target >= 0):  # it falls through
                writer.jump(_OP["JUMP_FORWARD"], self.stubs[index + 1], index)

    def _method(self, index: int, row: Row | None) -> bool:
        """LOAD_METHOD whose result is always [NULL, bound method]."""
        if index not in self.plain_methods:
            return False
        self.place = index
        self._emit("PUSH_NULL", 0, row)
        self._emit("SWAP", 2, row)
        self._emit("LOAD_ATTR", self.shape.listing.instructions[index].argument, row)
        return True

    def _precall(self, index: int, row: Row | None) -> bool:
        """PRECALL may take a bound method apart; a CALL that is stopped at must not see that."""
        if index + 1 not in self.stops:
            return False
        self.writer.emit(_OP["NOP"], 0, index, row)
        return True

    def _return(self, index: int, row: Row | None) -> bool:
        self.place = index
        if self.stops:
            self._emit("BUILD_TUPLE", 1)
            self._load(RETURNED)
            self._emit("SWAP", 2)
            self._emit("BUILD_TUPLE", 2)
        self._leave(len(self._stack_at(index)))
        return True

    def _leave(self, depth: int) -> None:
        """Return the top of a stack of this depth; the caller's exc_info is restored."""
        if self.guarded:
            if depth != 1:
                raise InternalError(f"{self.code.co_qualname} returns with a stack")
            self._emit("SWAP", 2)
            self._emit("POP_EXCEPT")
        self._emit("RETURN_VALUE")

    # ------------------------------------------------------------------------------------ stops

    def _stubs(self) -> tuple[Arrival, ...]:
        if not self.arrived:
            return ()
        certain, possible = self._boundness()
        arrivals = []
        for index in self.arrived:
            arrivals.append(self._arrival(index, certain[index], possible[index]))
            self._stub(arrivals[-1])
        return tuple(arrivals)

    def _arrival(self, index: int, certain: int, possible: int) -> Arrival:
        stack = self._stack_at(index)
        names = self.shape.pending.get(index)
        count = len(self.shape.listing.variables)
        return Arrival(
            index,
            tuple(one for one in range(count) if possible >> one & 1),
            tuple(kind != NULL and kind < METHOD for kind in stack),
            self.handled or PREVIOUS in stack,
            () if names is None else self.shape.listing.instructions[names].value,
            frozenset(one for one in range(count) if (possible & ~certain) >> one & 1),
        )

    def _stub(self, arrival: Arrival) -> None:
        """Collect the slots and return."""
        self.place = arrival.index
        self.writer.place(self.stubs[arrival.index])
        if arrival.keywords:  # they would be taken for those of the next call, in any frame
            self._emit("PUSH_NULL")
            self._load(tuple)
            self._emit("KW_NAMES", self._constant(()))
            self._call(0)
            self._emit("POP_TOP")
        if arrival.handled:
            self._load(None)
            self._emit("PUSH_EXC_INFO")
            self._emit("POP_TOP")
        values = int(arrival.handled)
        for kind, full in zip(
            reversed(self._stack_at(arrival.index)), reversed(arrival.stack), strict=True
        ):
            if not full:
                self._rise(values)
                self._load(tuple)
                self._call(0)
                self._emit("POP_TOP")
                continue
            values += 1
            if kind == LASTI:
                if self.to_index < 0:
                    self.to_index = self._constant(None)
                self._translate(values, self.to_index)
        if values:
            self._emit("BUILD_TUPLE", values)
        self._variables(arrival, self.base + bool(values))
        if values:
            self._emit("SWAP", 2)
            self._emit("BINARY_OP", 0)
        self._load(arrival)
        self._emit("SWAP", 2)
        self._emit("BUILD_TUPLE", 2)
        self._leave(1)

    def _variables(self, arrival: Arrival, depth: int) -> None:
        """A tuple of the variables; one that is unbound raises, and gives way to UNBOUND."""
        for count, variable in enumerate(arrival.variables):
            row = None
            if variable in arrival.uncertain:
                row = Row(self.writer.label(), depth + count, False)
            self._emit("LOAD_FAST", variable + self.shift, row)
            if row is not None:
                after = self.writer.label()
                self.writer.jump(_OP["JUMP_FORWARD"], after, self.place)
                self.writer.place(row.target)
                self._emit("POP_TOP")
                self._load(UNBOUND)
                self.writer.place(after)
        self._emit("BUILD_TUPLE", len(arrival.variables))

    def _boundness(self) -> tuple[dict[int, int], dict[int, int]]:
        """For each instruction, as bits: variables that are certainly, and possibly, bound."""
        begin = sum(1 << variable for variable in self.bound)
        certain: dict[int, int] = {}
        possible: dict[int, int] = {}
        waiting: list[int] = []

        def arrive(index: int, sure: int, maybe: int) -> None:
            if index in certain:
                merged, either = certain[index] & sure, possible[index] | maybe
                if merged == certain[index] and either == possible[index]:
                    return
                sure, maybe = merged, either
            certain[index], possible[index] = sure, maybe
            if index not in self.stops:
                waiting.append(index)

        if self.raising:
            handler = self.shape.handlers[self.start]
            if handler is not None:
                arrive(handler.target, begin, begin)
        elif self.start in self.stops:  # executed once; arrived at, it is a stop
            self._flow(self.start, begin, begin, arrive)
        else:
            arrive(self.start, begin, begin)
        while waiting:
            index = waiting.pop()
            self._flow(index, certain[index], possible[index], arrive)
        return certain, possible

    def _flow(
        self, index: int, sure: int, maybe: int, arrive: Callable[[int, int, int], None]
    ) -> None:
        handler = self.shape.handlers[index]
        if handler is not None:
            arrive(handler.target, sure, maybe)
        binds = _BINDS.get(self.shape.opcodes[index])
        if binds is not None:
            bits = self._bits(index)
            if binds:
                sure, maybe = sure | bits, maybe | bits
            else:
                sure, maybe = sure & ~bits, maybe & ~bits
        for after in self.shape.successors[index]:
            arrive(after, sure, maybe)

    def _bits(self, index: int) -> int:
        if self.shape.opcodes[index] == _OP["COPY_FREE_VARS"]:
            return sum(1 << variable for variable in self.shape.listing.free)
        return 1 << self.shape.listing.instructions[index].argument

    # -------------------------------------------------------------------------------------- end

    def _tail(self) -> None:
        """The handler that restores the caller's exc_info, and places for lines of the past."""
        self.place = self.start
        if self.outermost is not None:
            self.writer.place(self.outermost.target)
            self._emit("COPY", 3)
            self._emit("POP_EXCEPT")
            self._emit("RERAISE", 1)
        if self.to_offset >= 0:
            reached = set(self.reached)
            for row in self.shape.listing.handlers:
                if row.lasti:
                    for index in range(row.start, row.end):
                        if index not in reached:
                            self.ghosts[index] = len(self.writer.items)
                            self.writer.emit(_OP["NOP"], 0, index)

    def _finish(self, arrivals: tuple[Arrival, ...]) -> Fragment:
        assembled = self.writer.assemble()
        self._tables(assembled.offsets)
        code, listing = self.code, self.shape.listing
        slots = len(self.bound) + len(self.stack) + 2
        depth = code.co_stacksize + len(listing.variables) * bool(arrivals)
        flags = code.co_flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
        if not self.generator:
            flags &= ~_FLAGS
        names = code.co_varnames or ("slots",)
        made = code.replace(
            co_argcount=1,
            co_posonlyargcount=0,
            co_kwonlyargcount=0,
            co_nlocals=len(names),
            co_varnames=names,
            co_stacksize=max(slots, depth) + 6,
            co_flags=flags,
            co_code=assembled.code,
            co_consts=tuple(self.constants),
            co_linetable=assembled.lines,
            co_exceptiontable=assembled.exceptions,
        )
        return Fragment(code, made, self.start, arrivals, self.needs_closure, self.generator)

    def _tables(self, offsets: list[int]) -> None:
        """Offsets in code units ↔ instructions, where either is asked for."""
        positions: dict[int, int] = {}
        if self.to_index >= 0 or self.to_offset >= 0:
            labels = self.writer.placed(self.nodes, len(self.shape.opcodes))
            positions = {index: labels[index] for index in self.reached} | self.ghosts
        if self.to_index >= 0:
            table = [self.start] * (offsets[-1] + 1)
            for item, one in enumerate(self.writer.items):
                for offset in range(offsets[item], offsets[item + 1]):
                    table[offset] = one[3]
            self.constants[self.to_index] = tuple(table)
        if self.to_offset >= 0:
            self.constants[self.to_offset] = {
                index: offsets[item] for index, item in positions.items()
            }


_BINDS: dict[int, bool] = {
    _OP[name]: binds
    for name, binds in (
        ("STORE_FAST", True),
        ("LOAD_FAST", True),  # or it raised
        ("MAKE_CELL", True),
        ("COPY_FREE_VARS", True),
        ("DELETE_FAST", False),
    )
}

_SPECIAL: dict[int, Callable[[_Builder, int, Row | None], bool]] = {
    _OP[name]: special
    for name, special in (
        ("LOAD_METHOD", _Builder._method),
        ("PRECALL", _Builder._precall),
        ("RETURN_VALUE", _Builder._return),
    )
    if name in _OP
}


