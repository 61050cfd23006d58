"""The native way out of a frame: code that starts in the middle and stops where it is told.

Enters: a code object, the instruction to start at, which variables and stack positions hold a
value there, the instructions to stop at. Leaves: a `Fragment`: a code object of one argument, the
tuple of slots (see `fragment.py`), that goes on as the original would from there, at CPython's
speed.

* Without stops it returns what the frame returns; of a generator's code, a call gives the generator
  (start at its YIELD_VALUE and take one item, and it stands where the half-run one stood).
* With stops it returns (`Arrival`, slots), or (`RETURNED`, (value,)).
* An exception that the frame handles is handled; any other one leaves, with the user's file, name
  and line in its traceback. A handler that is one of the stops is stopped at like any other.

Invariants: the instructions of the user stand in their order and are the user's own, but for a
LOAD_METHOD across whose result a stop lies; no user code runs before the start nor at a stop; when
it is left, `sys.exc_info()` of the caller is what it was. A stop is one that is *arrived at*: the
start itself is always executed.

    rest = fragment(f.__code__, start=12, stops=frozenset(), bound=(0, 1), stack=(True,))
    rest.bind(f.__globals__)((x, y, iterator))
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable
from types import CodeType, FunctionType, MethodType
from typing import Any

from windfall.errors import InternalError
from windfall.frontend.breaks import UNKNOWN_OPCODE, stop
from windfall.frontend.bytecode import AFTER_LOOP, VERSION, Handler
from windfall.frontend.encoding import BytecodeWriter, ExceptionRow
from windfall.frontend.fragment import RETURNED, UNBOUND, Arrival, Fragment
from windfall.frontend.fragment_plan import GENERATOR_FLAGS, ControlFlow, Request, control_flow
from windfall.frontend.stack_effects import LASTI, METHOD, SAVED, VALUE, stack_effects

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
    """See the module. `handled`: the last slot is the exception that is being handled at the start
    (without it, the caller's own is). `raising`: the start is not executed; the exception in the
    slot above the stack is raised there, so that the frame's handlers and the traceback see it.

    `Unsupported`: a generator that would yield before a stop, code that is not a function's.
    """
    if VERSION not in _VERSIONS:
        stop(UNKNOWN_OPCODE, f"no native way out of a frame on Python {VERSION}")
    return _Assembly(
        control_flow(Request(code, start, stops, bound, stack, handled, raising))
    ).build()


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
    """The stops of a single step: what may follow an instruction. (Where nothing does, the step
    itself, which is never arrived at: so that a return is told from a stop.)"""
    shape = stack_effects(code)
    handler = shape.covers[index] if raising else shape.handlers[index]
    after = () if raising else shape.successors[index]
    return frozenset(after if handler is None else (*after, handler.target)) or frozenset({index})


# --------------------------------------------------------------------------------------- writing

# What is written below is for these versions. Another one needs its rows in
# `stack_effects._MOVES`.
_VERSIONS = frozenset({(3, 11), (3, 12), (3, 13)})

_OP = dis.opmap
_NULL_ABOVE = VERSION >= (3, 13)  # the NULL stands above what is called, not below
# An exception that comes out of a Python function is looked up in the exception table by the word
# *before* the call: compilers never begin a row at a call, a fragment may.
_LOOKS_BEFORE = VERSION >= (3, 13)
# Loads a variable, or raises where it is unbound. (From 3.12 on, LOAD_FAST does not look.)
_LOAD_CHECKED = "LOAD_FAST_CHECK" if "LOAD_FAST_CHECK" in _OP else "LOAD_FAST"
_REAL = frozenset(name for name, op in _OP.items() if op < 256)  # the rest is the compiler's own
_JUMPS = frozenset(dis.hasjrel) | frozenset(dis.hasjabs)
_VARIABLES = frozenset(dis.haslocal) | frozenset(dis.hasfree) | {_OP["MAKE_CELL"]}

# Stops stand behind the body, so a jump back to one becomes a jump forward.
_FORWARD = {
    op: _OP[name.replace("_NO_INTERRUPT", "").replace("BACKWARD", "FORWARD")]
    for name, op in _OP.items()
    if "JUMP" in name and "BACKWARD" in name and VERSION in _VERSIONS
}


def _reraising() -> FunctionType:
    """A function of one exception that lets it go on, and is not seen in the traceback."""
    model = (lambda error: error).__code__
    writer = BytecodeWriter(model.co_firstlineno, [(model.co_firstlineno, None)])
    for name, argument in (("RESUME", 0), ("LOAD_FAST", 0), ("RERAISE", 0)):
        writer.emit(_OP[name], argument, 0)
    made = writer.assemble()
    code = model.replace(co_code=made.code, co_linetable=made.lines, co_name="reraise")
    return FunctionType(code, {})


_RERAISE = _reraising()


class _Assembly:
    """One fragment being written: prologue, body, stops, tail."""

    def __init__(self, what: ControlFlow) -> None:
        self.what, self.request, self.shape = what, what.request, what.stack_effects
        self.instructions = self.shape.listing.instructions
        code = self.request.code
        self.constants = list(code.co_consts)
        self.shift = 0 if code.co_varnames else 1  # the argument needs a place of its own
        # Locations are numbered as instructions: an item's location says whose it is.
        self.writer = BytecodeWriter(code.co_firstlineno, self.shape.locations)
        self.place = self.request.start
        self.nodes = self.writer.labels(len(self.instructions))
        self.reached = frozenset(what.reached)
        self.stubs = {one.index: self.writer.label() for one in what.arrivals}
        # The caller's exc_info lies below the stack of the frame; this row restores it.
        self.base = 1 if what.guarded else 0
        self.outermost = ExceptionRow(self.writer.label(), 1, True) if what.guarded else None
        self.rows: dict[int, ExceptionRow | None] = {}
        # Constants: tables from instructions to offsets and back, for what RERAISE reads.
        self.to_index = self.to_offset = -1
        self.ghosts: dict[int, int] = {}
        # Where exhausted loops go.
        self.loop_ends = {
            self.instructions[index].target
            for index in what.reached
            if self.instructions[index].name == "FOR_ITER"
        }

    def build(self) -> Fragment:
        """All parts, then the tables."""
        self._prologue()
        self._body()
        for arrival in self.what.arrivals:
            self._stub(arrival)
        self._tail()
        return self._finish()

    # ------------------------------------------------------------------------------ small moves

    def _emit(self, name: str, argument: int = 0, row: ExceptionRow | None = None) -> None:
        self.writer.emit(_OP[name], argument, self.place, row)

    def _constant(self, value: Any) -> int:
        self.constants.append(value)
        return len(self.constants) - 1

    def _load(self, value: Any, row: ExceptionRow | None = None) -> None:
        self._emit("LOAD_CONST", self._constant(value), row)

    def _sink(self, count: int, row: ExceptionRow | None = None) -> None:
        """The top goes below `count` others, which keep their order."""
        for depth in range(count + 1, 1, -1):
            self._emit("SWAP", depth, row)

    def _rise(self, count: int) -> None:
        """What is below `count` others comes to the top."""
        for depth in range(2, count + 2):
            self._emit("SWAP", depth)

    def _call(self, count: int, row: ExceptionRow | None = None) -> None:
        """[NULL and callable, arguments…] → result."""
        if "PRECALL" in _OP:
            self._emit("PRECALL", count, row)
        self._emit("CALL", count, row)

    def _function(self, value: Any, count: int, row: ExceptionRow | None = None) -> None:
        """Something to call, with its NULL, below the `count` arguments on the stack."""
        for part in (value, None) if _NULL_ABOVE else (None, value):
            if part is None:
                self._emit("PUSH_NULL", 0, row)
            else:
                self._load(part, row)
            self._sink(count, row)

    def _drop_null(self) -> None:
        """[NULL] → []: POP_TOP cannot; the call of something cheap can."""
        self._load(tuple)
        if _NULL_ABOVE:
            self._emit("SWAP", 2)
        self._call(0)
        self._emit("POP_TOP")

    def _translate(self, depth: int, table: int) -> None:
        """Look up the stack's `depth`th number in a table."""
        if depth > 1:
            self._emit("SWAP", depth)
        self._emit("LOAD_CONST", table)
        self._emit("SWAP", 2)
        self._emit("BINARY_SUBSCR")
        if depth > 1:
            self._emit("SWAP", depth)

    # --------------------------------------------------------------------------------- prologue

    def _prologue(self) -> None:
        request, listing = self.request, self.shape.listing
        if self.what.generator:
            self._emit("RETURN_GENERATOR")
            self._emit("POP_TOP")
        # frame.f_locals looks for the MAKE_CELL of a variable to know that it holds a cell.
        cells = listing.cells.difference(listing.free, self.what.made_cells)
        if cells:
            over = self.writer.label()
            self.writer.jump(_OP["JUMP_FORWARD"], over, self.place)
            for variable in sorted(cells):
                self._emit("MAKE_CELL", variable + self.shift)
            self.writer.place(over)
        # A free variable is always a cell, or f_locals fails: an empty one where it has no slot.
        if not self.what.needs_closure and not set(listing.free).issubset(request.bound):
            self._emit("COPY_FREE_VARS", len(listing.free))
        self._emit("RESUME")
        self._unpack()
        self._fill_stack()
        if request.raising:
            self._raise()
            return
        names = self.shape.pending.get(request.start)
        if names is not None:
            self._emit("KW_NAMES", self.instructions[names].argument)
        if self.what.reached[0] != request.start:
            self.writer.jump(_OP["JUMP_FORWARD"], self.nodes + request.start, self.place)

    def _unpack(self) -> None:
        """Slots to variables, and values on the stack in order."""
        request = self.request
        values = sum(request.stack) + request.raising
        count = len(request.bound) + values + request.handled
        if count:
            self._emit("LOAD_FAST", 0)
            self._emit("UNPACK_SEQUENCE", count)
        for variable in request.bound:
            self._emit("STORE_FAST", variable + self.shift)
        if self.shift or 0 not in request.bound:
            self._emit("DELETE_FAST", 0)
        # What is left on the stack is in reverse.
        if self.what.guarded:
            self._emit("BUILD_TUPLE", values)
            self._keep_handled()
            self._emit("SWAP", 2)
            self._emit("UNPACK_SEQUENCE", values)
        elif values == 2:
            self._emit("SWAP", 2)
        elif values > 2:
            self._emit("BUILD_TUPLE", values)
            self._emit("UNPACK_SEQUENCE", values)

    def _keep_handled(self) -> None:
        """Push the caller's exc_info; make the one in the slots, if any, the present one."""
        if self.request.handled:
            self._emit("SWAP", 2)
        else:
            self._load(None)
        self._emit("PUSH_EXC_INFO")
        self._emit("POP_TOP")
        if not self.request.handled:
            self._emit("COPY", 1)
            self._emit("POP_EXCEPT")

    def _fill_stack(self) -> None:
        """Values in order → the stack as the start expects it."""
        present, more = list(self.request.stack), int(self.request.raising)
        for position, kind in enumerate(self.what.kinds):
            if kind == LASTI:
                if self.to_offset < 0:
                    self.to_offset = self._constant(None)
                self._translate(sum(present[position:]) + more, self.to_offset)
            elif kind - METHOD in self.what.plain_methods and present[position]:
                pair = 1 if _NULL_ABOVE else 2  # how many of the two stand there or above
                self._bind_method(sum(present[position:]) + more - pair)
                present[position] = False
        for position, full in enumerate(present):
            if not full:
                self._emit("PUSH_NULL")
                self._sink(sum(present[position:]) + more)

    def _bind_method(self, above: int) -> None:
        """[function, object, above…] → [bound method, above…]."""
        self._rise(above + 1)
        self._rise(above + 1)
        self._function(MethodType, 2)
        self._call(2)
        self._sink(above)

    def _raise(self) -> None:
        row = self._row(self.request.start)
        self._function(_RERAISE, 1, row)
        self._call(1, row)

    # ------------------------------------------------------------------------------------- body

    def _label(self, index: int) -> int:
        """Where an edge to an instruction goes."""
        return self.stubs[index] if index in self.stubs else self.nodes + index

    def _row(self, index: int) -> ExceptionRow | None:
        handler = self.shape.covers[index]
        if handler is None:
            return self.outermost
        key = id(handler)
        if key not in self.rows:
            self.rows[key] = self._new_row(handler)
        return self.rows[key]

    def _new_row(self, handler: Handler) -> ExceptionRow | None:
        if handler.target not in self.stubs and handler.target not in self.what.reached:
            return None  # nothing of what it covers can raise
        return ExceptionRow(self._label(handler.target), handler.depth + self.base, handler.lasti)

    def _body(self) -> None:
        writer, opcodes, nodes, shift = self.writer, self.shape.opcodes, self.nodes, self.shift
        stops = self.request.stops
        for index in self.what.reached:
            if index not in self.stubs:
                self._end_of_loop(index)
            writer.place(nodes + index)
            op, one, row = opcodes[index], self.instructions[index], self._row(index)
            if _LOOKS_BEFORE:
                self._row_before(index, row)
            special = _SPECIAL.get(op)
            if special is not None and special(self, index, row):
                continue
            if op in _JUMPS:
                op = _FORWARD.get(op, op) if one.target in stops else op
                writer.jump(op, self._label(one.target), index, row)
            else:
                writer.emit(op, one.argument + shift * (op in _VARIABLES), index, row)
            if index + 1 in stops:
                self._fall(index)

    def _row_before(self, index: int, row: ExceptionRow | None) -> None:
        """A word in front that belongs to the same row, where the user's instruction that had been
        there is not."""
        covers = self.shape.covers
        begins = index > 0 and covers[index - 1] is not covers[index]
        if row is None or (begins and index - 1 in self.reached):
            return
        if self.writer.items[-1][4] != row:
            self.writer.emit(_OP["NOP"], 0, index, row)

    def _end_of_loop(self, index: int) -> None:
        """What FOR_ITER jumps over, where it goes to `index` when it is exhausted."""
        if AFTER_LOOP and index in self.loop_ends:
            first = index - len(AFTER_LOOP)
            self.writer.place(self.nodes + first)
            for name in AFTER_LOOP:
                self.writer.emit(_OP[name], 0, first, None)

    def _for(self, index: int, row: ExceptionRow | None) -> bool:
        """FOR_ITER is told where the instructions are that it jumps over."""
        if not AFTER_LOOP:
            return False
        first = self.instructions[index].target - len(AFTER_LOOP)
        self.writer.jump(_OP["FOR_ITER"], self.nodes + first, index, row)
        if index + 1 in self.request.stops:
            self._fall(index)
        return True

    def _fall(self, index: int) -> None:
        """From an instruction to a stop behind it, if it goes on there other than by jumping."""
        if len(self.shape.successors[index]) > (self.instructions[index].target >= 0):
            self.writer.jump(_OP["JUMP_FORWARD"], self.stubs[index + 1], index)

    def _method(self, index: int, row: ExceptionRow | None) -> bool:
        """LOAD_METHOD whose result is always [NULL, bound method]."""
        if index not in self.what.plain_methods:
            return False
        self.place = index
        one = self.instructions[index]
        if not _NULL_ABOVE:
            self._emit("PUSH_NULL", 0, row)
            self._sink(3 if one.name == "LOAD_SUPER_ATTR" else 1, row)
        if "LOAD_METHOD" in _REAL:
            self._emit("LOAD_ATTR", one.argument, row)
        else:  # the same instruction, without the bit that asks for two
            self.writer.emit(one.op, one.argument & ~1, index, row)
        if _NULL_ABOVE:
            self._emit("PUSH_NULL", 0, row)
        if index + 1 in self.request.stops:
            self._fall(index)
        return True

    def _precall(self, index: int, row: ExceptionRow | None) -> bool:
        """PRECALL may take a bound method apart; a CALL that is stopped at must not see that."""
        if index + 1 not in self.request.stops:
            return False
        self._fall(index)
        return True

    def _return(self, index: int, row: ExceptionRow | None) -> bool:
        self.place = index
        if self.request.stops:
            self._emit("BUILD_TUPLE", 1)
            self._load(RETURNED)
            self._emit("SWAP", 2)
            self._emit("BUILD_TUPLE", 2)
        if self.what.guarded and self.shape.stacks[index] != (VALUE,):
            raise InternalError(f"{self.request.code.co_qualname} returns with a stack")
        self._leave()
        return True

    def _leave(self) -> None:
        """Return the top; below it is nothing but the caller's exc_info, which is restored."""
        if self.what.guarded:
            self._emit("SWAP", 2)
            self._emit("POP_EXCEPT")
        self._emit("RETURN_VALUE")

    # ------------------------------------------------------------------------------------ stops

    def _stub(self, arrival: Arrival) -> None:
        """Collect the slots and return."""
        self.place = arrival.index
        self._end_of_loop(arrival.index)
        self.writer.place(self.stubs[arrival.index])
        if arrival.keywords:  # they would be taken for those of the next call, in any frame
            self._function(tuple, 0)
            self._emit("KW_NAMES", self._constant(()))
            self._call(0)
            self._emit("POP_TOP")
        if arrival.handled:
            self._load(None)
            self._emit("PUSH_EXC_INFO")
            self._emit("POP_TOP")
        self._saved(arrival)
        values = self._values(arrival)
        if values:
            self._emit("BUILD_TUPLE", values)
        self._variables(arrival, self.base + bool(values))
        if values:
            self._emit("SWAP", 2)
            self._emit("BINARY_OP", 0)  # variables + values
        self._load(arrival)
        self._emit("SWAP", 2)
        self._emit("BUILD_TUPLE", 2)
        self._leave()

    def _saved(self, arrival: Arrival) -> None:
        """What a variable held that is put aside on the stack: an object, or UNBOUND for NULL. Only
        a variable tells the two apart, so it takes the place of what it holds now for a moment."""
        kinds = self.shape.stacks[arrival.index]
        assert kinds is not None
        extra = self.base + arrival.handled
        for above, kind in enumerate(reversed(kinds)):
            if kind < SAVED:
                continue
            variable = self.instructions[kind - SAVED].argument + self.shift
            depth = above + arrival.handled + 1
            row, after = (
                ExceptionRow(self.writer.label(), len(kinds) + extra, False),
                self.writer.label(),
            )
            self._rise(depth - 1)
            self._emit("LOAD_FAST_AND_CLEAR", variable)
            self._emit("SWAP", 2)
            self._emit("STORE_FAST", variable)
            self._emit(_LOAD_CHECKED, variable, row)
            self.writer.jump(_OP["JUMP_FORWARD"], after, self.place)
            self.writer.place(row.target)
            self._emit("POP_TOP")
            self._load(UNBOUND)
            self.writer.place(after)
            self._emit("SWAP", 2)
            self._emit("STORE_FAST", variable)
            self._sink(depth - 1)

    def _values(self, arrival: Arrival) -> int:
        """Leave only values on the stack; answers how many."""
        kinds = self.shape.stacks[arrival.index]
        assert kinds is not None
        values = int(arrival.handled)
        for kind, full in zip(reversed(kinds), reversed(arrival.stack), strict=True):
            if not full:
                self._rise(values)
                self._drop_null()
                continue
            values += 1
            if kind == LASTI:
                if self.to_index < 0:
                    self.to_index = self._constant(None)
                self._translate(values, self.to_index)
        return values

    def _variables(self, arrival: Arrival, depth: int) -> None:
        """A tuple of the variables; one that is unbound raises, and gives way to UNBOUND."""
        for count, variable in enumerate(arrival.variables):
            if variable not in arrival.uncertain:
                self._emit("LOAD_FAST", variable + self.shift)
                continue
            row, after = (
                ExceptionRow(self.writer.label(), depth + count, False),
                self.writer.label(),
            )
            self._emit(_LOAD_CHECKED, variable + self.shift, row)
            self.writer.jump(_OP["JUMP_FORWARD"], after, self.place)
            self.writer.place(row.target)
            self._emit("POP_TOP")
            self._load(UNBOUND)
            self.writer.place(after)
        self._emit("BUILD_TUPLE", len(arrival.variables))

    # -------------------------------------------------------------------------------------- end

    def _tail(self) -> None:
        """The handler that restores the caller's exc_info, and places for lines of the past."""
        self.place = self.request.start
        if self.outermost is not None:
            self.writer.place(self.outermost.target)
            self._emit("COPY", 3)
            self._emit("POP_EXCEPT")
            self._emit("RERAISE", 1)
        if self.to_offset < 0:
            return
        reached = set(self.what.reached)
        for handler in self.shape.listing.handlers:
            for index in range(handler.start, handler.end) if handler.lasti else ():
                if index not in reached:
                    self.ghosts[index] = len(self.writer.items)
                    self.writer.emit(_OP["NOP"], 0, index)

    def _finish(self) -> Fragment:
        assembled = self.writer.assemble()
        self._tables(assembled.offsets)
        request, code, what = self.request, self.request.code, self.what
        names = code.co_varnames or ("slots",)
        flags = code.co_flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
        # The prologue holds all slots at once, a stop all variables above the stack.
        slots = len(request.bound) + len(request.stack)
        variables = len(self.shape.listing.variables) if what.arrivals else 0
        made = code.replace(
            co_argcount=1,
            co_posonlyargcount=0,
            co_kwonlyargcount=0,
            co_nlocals=len(names),
            co_varnames=names,
            co_stacksize=max(slots, code.co_stacksize + variables) + 8,
            co_flags=flags if what.generator else flags & ~GENERATOR_FLAGS,
            co_code=assembled.code,
            co_consts=tuple(self.constants),
            co_linetable=assembled.lines,
            co_exceptiontable=assembled.exceptions,
        )
        return Fragment(
            code, made, request.start, what.arrivals, what.needs_closure, what.generator
        )

    def _tables(self, offsets: list[int]) -> None:
        """Offsets in code units ↔ instructions, where either is asked for."""
        if self.to_index >= 0:
            self.constants[self.to_index] = tuple(
                item[3]
                for position, item in enumerate(self.writer.items)
                for _ in range(offsets[position], offsets[position + 1])
            )
        if self.to_offset >= 0:
            items = self.writer.placed(self.nodes, len(self.instructions))
            places = {index: items[index] for index in self.what.reached} | self.ghosts
            self.constants[self.to_offset] = {
                index: offsets[item] for index, item in places.items()
            }


_SPECIAL: dict[int, Callable[[_Assembly, int, ExceptionRow | None], bool]] = {
    _OP[name]: special
    for name, special in (
        ("LOAD_METHOD", _Assembly._method),
        ("LOAD_ATTR", _Assembly._method),
        ("LOAD_SUPER_ATTR", _Assembly._method),
        ("PRECALL", _Assembly._precall),
        ("RETURN_VALUE", _Assembly._return),
        ("FOR_ITER", _Assembly._for),
    )
    if name in _REAL
}
