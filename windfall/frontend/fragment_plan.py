"""What a fragment consists of, decided before a byte of it is written.

Enters: a code object, a start, stops, what is bound and on the stack at the start. Leaves: an
`ControlFlow`: the instructions that can be executed, the stops that can be arrived at, what holds a
value there. Invariant: nothing here depends on how code is written; what cannot be done is refused
here.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable
from types import CodeType

from windfall.dataclass import dataclass
from windfall.errors import InternalError
from windfall.frontend.breaks import GENERATOR, UNKNOWN_OPCODE, stop
from windfall.frontend.fragment import Arrival
from windfall.frontend.stack_effects import (
    CONFLICT,
    LASTI,
    METHOD,
    NULL,
    PREVIOUS,
    SAVED,
    VALUE,
    Stack,
    StackEffects,
    stack_effects,
)

_OP = dis.opmap
_CELL_OPS = frozenset(dis.hasfree) - {_OP.get("LOAD_CLOSURE", -1)}
GENERATOR_FLAGS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_FUNCTION_FLAGS = inspect.CO_OPTIMIZED | inspect.CO_NEWLOCALS

# Whether a stack position of this kind has a slot; the kinds that are missing may or may not.
_PRESENT = {VALUE: True, NULL: False, PREVIOUS: True, LASTI: True}

# Instructions that bind (True) or unbind (False) a variable.
_BINDS: dict[int, bool] = {
    _OP["STORE_FAST"]: True,
    _OP["LOAD_FAST"]: True,  # or it raised
    _OP["MAKE_CELL"]: True,
    _OP["COPY_FREE_VARS"]: True,
    _OP["DELETE_FAST"]: False,
}
if "LOAD_FAST_CHECK" in _OP:
    _BINDS |= {_OP["LOAD_FAST_CHECK"]: True, _OP["LOAD_FAST_AND_CLEAR"]: False}


@dataclass(frozen=True, slots=True)
class Request:
    """The arguments of `fragment`."""

    code: CodeType
    start: int
    stops: frozenset[int]
    bound: tuple[int, ...]
    stack: tuple[bool, ...]
    handled: bool
    raising: bool


@dataclass(frozen=True, slots=True)
class ControlFlow:
    """See the module."""

    request: Request
    stack_effects: StackEffects
    kinds: Stack  # of the start's stack
    reached: tuple[int, ...]  # in order
    arrivals: tuple[Arrival, ...]
    made_cells: frozenset[int]  # variables that become cells inside
    needs_closure: bool
    generator: bool
    # The frame is left, or entered, while an exception is being handled.
    guarded: bool
    # LOAD_METHODs whose result must have one form, because the frame is left while it is live.
    plain_methods: frozenset[int]


def control_flow(request: Request) -> ControlFlow:
    """`Unsupported`: cannot be done; `InternalError`: the caller is wrong about the stack."""
    code = request.code
    if code.co_flags & _FUNCTION_FLAGS != _FUNCTION_FLAGS:
        stop(UNKNOWN_OPCODE, f"{code.co_name} is not the code of a function")
    shape = stack_effects(code)
    kinds = _start_kinds(request, shape)
    reached, arrived = _reach(request, shape)
    stacks = [_stack_at(code, shape, index) for index in arrived]
    if any(CONFLICT in stack for stack in stacks):
        stop(UNKNOWN_OPCODE, f"a stack of {code.co_qualname} that depends on the path")
    used = {shape.opcodes[index] for index in reached}
    generator = bool(code.co_flags & GENERATOR_FLAGS) and not request.stops
    _refuse_generators(request, generator, used)
    needs_closure = _OP["COPY_FREE_VARS"] in used
    return ControlFlow(
        request,
        shape,
        kinds,
        reached,
        _arrivals(request, shape, arrived) if arrived else (),
        _made_cells(request, shape, reached, needs_closure),
        needs_closure,
        generator,
        request.handled or any(PREVIOUS in stack for stack in stacks),
        frozenset(kind - METHOD for stack in stacks for kind in stack if METHOD <= kind < SAVED),
    )


def _stack_at(code: CodeType, shape: StackEffects, index: int) -> Stack:
    stack = shape.stacks[index]
    if stack is None:
        raise InternalError(f"instruction {index} of {code.co_qualname} is never reached")
    return stack


def _start_kinds(request: Request, shape: StackEffects) -> Stack:
    """The kinds of the start's stack, compared with what the caller says of it."""
    kinds = _stack_at(request.code, shape, request.start)
    given = request.stack
    if request.raising:  # the operands of the raising instruction are gone: what is kept counts
        handler = shape.covers[request.start]
        kept = 0 if handler is None else handler.depth
        kinds = kinds[:kept] + tuple(VALUE if full else NULL for full in given[kept:])
    if len(kinds) != len(given) or any(
        _PRESENT.get(kind, full) != full for kind, full in zip(kinds, given, strict=True)
    ):
        name = request.code.co_qualname
        raise InternalError(f"{name} @ {request.start}: the stack is {kinds}, not {given}")
    return kinds


def _reach(request: Request, shape: StackEffects) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The instructions of the fragment and the stops it arrives at, both in order."""
    successors, handlers, stops = shape.successors, shape.handlers, request.stops
    reached: set[int] = set()
    arrived: set[int] = set()
    waiting: list[int] = []
    if not request.raising:  # the start is executed, be it a stop or not
        reached.add(request.start)
        waiting.extend(successors[request.start])
    handler = _start_handler(request, shape)
    if handler >= 0:
        waiting.append(handler)
    while waiting:
        index = waiting.pop()
        if index in stops:
            arrived.add(index)
        elif index not in reached:
            reached.add(index)
            waiting.extend(successors[index])
            covering = handlers[index]
            if covering is not None:
                waiting.append(covering.target)
    return tuple(sorted(reached)), tuple(sorted(arrived))


def _start_handler(request: Request, shape: StackEffects) -> int:
    rows = shape.covers if request.raising else shape.handlers
    handler = rows[request.start]
    return -1 if handler is None else handler.target


def _refuse_generators(request: Request, generator: bool, used: set[int]) -> None:
    name = request.code.co_qualname
    if not generator and _OP["YIELD_VALUE"] in used:
        stop(GENERATOR, f"{name} would yield before it stops")
    if _OP["RETURN_GENERATOR"] in used:
        stop(GENERATOR, f"the start lies before the generator of {name} is made")


def _made_cells(
    request: Request, shape: StackEffects, reached: tuple[int, ...], needs_closure: bool
) -> frozenset[int]:
    """The variables that become cells; any other cell that is used must have a slot, for CPython
    reads what stands there without looking."""
    instructions, opcodes = shape.listing.instructions, shape.opcodes
    make = _OP["MAKE_CELL"]
    made = {instructions[index].argument for index in reached if opcodes[index] == make}
    known = made.union(request.bound)
    stack = _stack_at(request.code, shape, request.start)
    known.update(instructions[kind - SAVED].argument for kind in stack if kind >= SAVED)
    if needs_closure:
        known.update(shape.listing.free)
    for index in reached:
        if opcodes[index] in _CELL_OPS and instructions[index].argument not in known:
            name = request.code.co_qualname
            raise InternalError(f"{name}: no slot for the cell {instructions[index].value}")
    return frozenset(made)


# ------------------------------------------------------------------------------------- the stops


def _arrivals(
    request: Request, shape: StackEffects, arrived: tuple[int, ...]
) -> tuple[Arrival, ...]:
    bound = _boundness(request, shape)
    return tuple(_arrival(request, shape, index, *bound[index]) for index in arrived)


def _arrival(
    request: Request, shape: StackEffects, index: int, certain: int, possible: int
) -> Arrival:
    stack = _stack_at(request.code, shape, index)
    names = shape.pending.get(index)
    variables = range(len(shape.listing.variables))
    return Arrival(
        index,
        tuple(one for one in variables if possible >> one & 1),
        tuple(kind != NULL and not METHOD <= kind < SAVED for kind in stack),
        request.handled or PREVIOUS in stack,
        () if names is None else shape.listing.instructions[names].value,
        frozenset(one for one in variables if (possible & ~certain) >> one & 1),
    )


def _boundness(request: Request, shape: StackEffects) -> dict[int, tuple[int, int]]:
    """For each instruction, as bits: variables that are certainly, and possibly, bound there."""
    known: dict[int, tuple[int, int]] = {}
    waiting: list[int] = []

    def arrive(index: int, certain: int, possible: int) -> None:
        before = known.get(index)
        if before is not None:
            certain, possible = certain & before[0], possible | before[1]
            if (certain, possible) == before:
                return
        known[index] = (certain, possible)
        if index not in request.stops:
            waiting.append(index)

    begin = sum(1 << variable for variable in request.bound)
    if request.raising:
        arrive(_start_handler(request, shape), begin, begin)
    else:
        _flow(shape, request.start, begin, begin, arrive)
    while waiting:
        index = waiting.pop()
        _flow(shape, index, *known[index], arrive)
    return known


def _flow(
    shape: StackEffects,
    index: int,
    certain: int,
    possible: int,
    arrive: Callable[[int, int, int], None],
) -> None:
    """What an instruction binds, handed to those that may follow it."""
    handler = shape.handlers[index]
    if handler is not None:
        arrive(handler.target, certain, possible)
    binds = _BINDS.get(shape.opcodes[index])
    if binds is not None:
        bits = _bits(shape, index)
        if binds and _gives_back(shape, index):
            certain, possible = certain & ~bits, possible | bits
        elif binds:
            certain, possible = certain | bits, possible | bits
        else:
            certain, possible = certain & ~bits, possible & ~bits
    for after in shape.successors[index]:
        arrive(after, certain, possible)


def _gives_back(shape: StackEffects, index: int) -> bool:
    """Whether a variable is stored that may have held nothing."""
    stack = shape.stacks[index]
    stores = shape.opcodes[index] == _OP["STORE_FAST"]
    return stores and stack is not None and stack[-1] >= SAVED


def _bits(shape: StackEffects, index: int) -> int:
    if shape.opcodes[index] == _OP["COPY_FREE_VARS"]:
        return sum(1 << variable for variable in shape.listing.free)
    return 1 << shape.listing.instructions[index].argument
