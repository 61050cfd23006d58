"""What can be said of a code object without running it: edges, handlers, the stack at each place.

Enters: a code object. Leaves: `StackEffects`: for each instruction its successors, its handler,
what kind of thing each stack position holds on arrival, which keyword names are pending, its
location. Invariant: it agrees with every path through the code that CPython's compiler writes; an
instruction that no path reaches has no stack. Known for as long as the code object lives.

    >>> stack_effects((lambda x: print(x)).__code__).stacks[3]
    (1, 0, 0)
"""

from __future__ import annotations

import dis
import functools
import weakref
from collections.abc import Callable
from types import CodeType
from typing import TypeVar

from windfall.dataclass import dataclass
from windfall.frontend.breaks import UNKNOWN_OPCODE, stop
from windfall.frontend.bytecode import VERSION, Handler, Instruction, Listing, decode
from windfall.frontend.encoding import Location, location

# What a stack position holds. From METHOD on: NULL or an object, which only the object that the
# LOAD_METHOD at (kind - METHOD) was applied to can tell. From SAVED on: NULL or the object that the
# variable held which the LOAD_FAST_AND_CLEAR at (kind - SAVED) put aside.
VALUE, NULL, PREVIOUS, LASTI, CONFLICT, METHOD = range(6)
SAVED = 1 << 32

Stack = tuple[int, ...]

_RETURNS = frozenset({"RETURN_VALUE", "RETURN_CONST"})
_ENDS = _RETURNS | {
    "RAISE_VARARGS",
    "RERAISE",
    "JUMP_FORWARD",
    "JUMP_BACKWARD",
    "JUMP_BACKWARD_NO_INTERRUPT",
}

# Instructions after which no handler is ever entered.
_NEVER_RAISE = frozenset(
    {"NOP", "PUSH_EXC_INFO", "POP_EXCEPT", "COPY", "SWAP", "PUSH_NULL", "LOAD_CONST"}
    | {"LOAD_FAST_AND_CLEAR", "END_FOR", "END_SEND"}
    | {"STORE_FAST", "POP_TOP", "JUMP_FORWARD", "JUMP_BACKWARD_NO_INTERRUPT"}
    | {"KW_NAMES", "IS_OP", "BUILD_TUPLE"}
)


@dataclass(frozen=True, slots=True)
class StackEffects:
    """One row for each instruction, in each of these."""

    listing: Listing
    opcodes: tuple[int, ...]
    successors: tuple[tuple[int, ...], ...]  # the next instruction first, then the jump's target
    covers: tuple[Handler | None, ...]  # the row of the exception table
    handlers: tuple[Handler | None, ...]  # the same, of instructions that can raise
    stacks: tuple[Stack | None, ...]
    pending: dict[int, int]  # instruction → the KW_NAMES that was executed before it
    locations: list[Location]


_Made = TypeVar("_Made")


def once_per_code(make: Callable[[CodeType], _Made]) -> Callable[[CodeType], _Made]:
    """Remember what was made of a code object for as long as that object lives (code objects are
    equal by content, and hashing one is slow: so by identity)."""
    known: dict[int, tuple[weakref.ref[CodeType], _Made]] = {}

    @functools.wraps(make)
    def remembered(code: CodeType) -> _Made:
        key = id(code)
        found = known.get(key)
        if found is not None and found[0]() is code:
            return found[1]
        made = make(code)
        known[key] = (weakref.ref(code, lambda _: known.pop(key, None)), made)
        return made

    return remembered


@once_per_code
def stack_effects(code: CodeType) -> StackEffects:
    """Those of a code object, made once."""
    listing = decode(code)
    instructions = listing.instructions
    covers: list[Handler | None] = [None] * len(instructions)
    for row in listing.handlers:
        covers[row.start : row.end] = [row] * (row.end - row.start)
    handlers = [
        None if one.name in _NEVER_RAISE else row
        for one, row in zip(instructions, covers, strict=True)
    ]
    successors = tuple(_successors(one) for one in instructions)
    positions = list(code.co_positions())
    return StackEffects(
        listing,
        tuple(one.op for one in instructions),
        successors,
        tuple(covers),
        tuple(handlers),
        _stacks(instructions, successors, handlers),
        _pending(instructions),
        [location(*positions[one.offset // 2]) for one in instructions],
    )


def _successors(instruction: Instruction) -> tuple[int, ...]:
    name, target, after = instruction.name, instruction.target, instruction.index + 1
    if name in _ENDS:
        return (target,) if target >= 0 else ()
    return (after, target) if target >= 0 else (after,)


def _pending(instructions: tuple[Instruction, ...]) -> dict[int, int]:
    """KW_NAMES holds until the CALL behind it; CPython puts nothing but a PRECALL between."""
    found = {}
    for one in instructions:
        if one.name == "KW_NAMES":
            after = one.index + 1
            while instructions[after].name != "CALL":
                found[after] = one.index
                after += 1
            found[after] = one.index
    return found


# ------------------------------------------------------------------------------------- the stack


def _pair(kind: int) -> Stack:
    """What is called, and beside it what may be NULL: below it; from 3.13 on, above."""
    return (VALUE, kind) if VERSION >= (3, 13) else (kind, VALUE)


def _global(stack: Stack, one: Instruction) -> Stack:
    return stack + (_pair(NULL) if one.argument & 1 else (VALUE,))


def _super(stack: Stack, one: Instruction) -> Stack:
    return stack[:-3] + (_pair(METHOD + one.index) if one.argument & 1 else (VALUE,))


def _swap(stack: Stack, one: Instruction) -> Stack:
    items = list(stack)
    items[-1], items[-one.argument] = items[-one.argument], items[-1]
    return tuple(items)


# Instructions that move or make what is not a plain value; all others take and give plain values.
_MOVES: dict[str, Callable[[Stack, Instruction], Stack]] = {
    "PUSH_NULL": lambda stack, _: (*stack, NULL),
    "LOAD_GLOBAL": _global,
    "LOAD_METHOD": lambda stack, one: stack[:-1] + _pair(METHOD + one.index),
    "LOAD_SUPER_ATTR": _super,
    "LOAD_FAST_AND_CLEAR": lambda stack, one: (*stack, SAVED + one.index),
    "SWAP": _swap,
    "COPY": lambda stack, one: (*stack, stack[-one.argument]),
    "PUSH_EXC_INFO": lambda stack, _: (*stack[:-1], PREVIOUS, VALUE),
    "PRECALL": lambda stack, _: stack,
    "CALL": lambda stack, one: (*stack[: -one.argument - 2], VALUE),
    "CALL_KW": lambda stack, one: (*stack[: -one.argument - 3], VALUE),
    "CALL_FUNCTION_EX": lambda stack, one: (*stack[: -3 - (one.argument & 1)], VALUE),
    "RETURN_GENERATOR": lambda stack, _: (*stack, VALUE),  # what is sent first
    "PREP_RERAISE_STAR": lambda stack, _: (*stack[:-2], VALUE),
}


_FOR_ITER = dis.opmap["FOR_ITER"]


def _stacks(
    instructions: tuple[Instruction, ...],
    successors: tuple[tuple[int, ...], ...],
    handlers: list[Handler | None],
) -> tuple[Stack | None, ...]:
    stacks: list[Stack | None] = [None] * len(instructions)
    stacks[0] = ()
    waiting = [0]
    while waiting:
        index = waiting.pop()
        stack = stacks[index]
        assert stack is not None
        one = instructions[index]
        handler = handlers[index]
        if handler is not None:
            cut = stack[: handler.depth]
            cut = (*cut, LASTI, VALUE) if handler.lasti else (*cut, VALUE)
            _arrive(stacks, waiting, handler.target, cut)
        for after in successors[index]:
            _arrive(stacks, waiting, after, _moved(stack, one, after == one.target))
    return tuple(stacks)


def _arrive(stacks: list[Stack | None], waiting: list[int], index: int, stack: Stack) -> None:
    known = stacks[index]
    if known is None:
        stacks[index] = stack
        waiting.append(index)
    elif known != stack:
        # Not from CPython's compiler: the frame can be left only where that does not matter.
        if len(known) != len(stack):
            stop(UNKNOWN_OPCODE, f"two stack depths at instruction {index}")
        merged = tuple(a if a == b else CONFLICT for a, b in zip(known, stack, strict=True))
        if merged != known:
            stacks[index] = merged
            waiting.append(index)


def _moved(stack: Stack, one: Instruction, jump: bool) -> Stack:
    move = _MOVES.get(one.name)
    if move is not None:
        return move(stack, one)
    op = one.op
    if op == _FOR_ITER:  # exhausted: the iterator is gone
        return stack[:-1] if jump else (*stack, VALUE)
    effect = dis.stack_effect(op, one.argument if op >= dis.HAVE_ARGUMENT else None, jump=jump)
    if effect < 0:
        return stack[:effect]
    return stack + (VALUE,) * effect
