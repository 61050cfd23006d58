"""Which variables of a frame are still needed, at each instruction.

Enters: a `Listing`. Leaves: for each instruction, the variables that may be read from there on,
handlers of exceptions included. Used at breaks: what is dead is not carried over.
"""

from __future__ import annotations

import itertools
from types import CodeType

from windfall.frontend.bytecode import Instruction, Listing, decode
from windfall.frontend.name_tables import words

_READS = words("""
    LOAD_FAST LOAD_CLOSURE LOAD_DEREF STORE_DEREF DELETE_DEREF LOAD_CLASSDEREF MAKE_CELL
    LOAD_FAST_CHECK LOAD_FAST_AND_CLEAR DELETE_FAST LOAD_FROM_DICT_OR_DEREF
""")
_WRITES = frozenset({"STORE_FAST"})
_ENDS = frozenset({"RETURN_VALUE", "RAISE_VARARGS", "RERAISE", "RETURN_CONST"})
_JUMPS_ALWAYS = frozenset({"JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"})

# Functions that see all variables of the frame they are called in.
_LOOKS_AT_FRAME = words("locals eval exec vars dir breakpoint _getframe currentframe set_trace")
_BY_NAME = words("LOAD_GLOBAL LOAD_NAME LOAD_ATTR LOAD_METHOD LOAD_FROM_DICT_OR_GLOBALS")


def successors(instruction: Instruction) -> tuple[int, ...]:
    """Where control may go, exceptions aside."""
    if instruction.name in _ENDS:
        return ()
    if instruction.name in _JUMPS_ALWAYS:
        return (instruction.target,)
    if instruction.target >= 0:
        return (instruction.index + 1, instruction.target)
    return (instruction.index + 1,)


_FAR = 400  # instructions, at most, of which a message is made


def only_raises(listing: Listing, start: int) -> bool:
    """Whether whatever goes on at an instruction comes to a `raise`, as is plain to see: no way
    leads out of the function, or back, before it."""
    waiting, seen = [start], set[int]()
    while waiting:
        index = waiting.pop()
        if index in seen:
            continue
        seen.add(index)
        one = listing.instructions[index]
        if one.name == "RAISE_VARARGS":
            continue
        after = successors(one)
        is_long = len(seen) > _FAR or index - start > _FAR
        if not after or is_long or any(each <= index for each in after) or "YIELD" in one.name:
            return False
        waiting.extend(after)
    return True


_CACHE: dict[int, tuple[Listing, tuple[frozenset[int], ...]]] = {}


def returns_none(code: CodeType) -> bool:
    """Whether every `return` of a function is one of None, as is plain to see."""
    instructions = decode(code).instructions
    if any(one.name == "RETURN_CONST" and one.value is not None for one in instructions):
        return False
    return all(
        before.name == "LOAD_CONST" and before.value is None
        for before, one in itertools.pairwise(instructions)
        if one.name == "RETURN_VALUE"
    )


def live_variables(listing: Listing) -> tuple[frozenset[int], ...]:
    """The variables live before each instruction. `super()` without arguments reads the first
    parameter and `__class__`, so these stay."""
    known = _CACHE.get(id(listing))
    if known is not None and known[0] is listing:
        return known[1]
    instructions = listing.instructions
    kept: frozenset[int] = frozenset()
    if any(one.value in _LOOKS_AT_FRAME for one in instructions if one.name in _BY_NAME):
        kept = frozenset(range(len(listing.variables)))
    elif "__class__" in listing.variables:
        kept = frozenset({0, listing.variables.index("__class__")})
    live: list[frozenset[int]] = [kept] * len(instructions)
    changed = True
    while changed:
        changed = False
        for index in range(len(instructions) - 1, -1, -1):
            now = kept | _before(listing, instructions[index], live)
            if now != live[index]:
                live[index], changed = now, True
    result = tuple(live)
    if len(_CACHE) > 256:
        _CACHE.clear()
    _CACHE[id(listing)] = (listing, result)
    return result


def _before(
    listing: Listing, instruction: Instruction, live: list[frozenset[int]]
) -> frozenset[int]:
    after: frozenset[int] = frozenset()
    for index in successors(instruction):
        if index < len(live):
            after |= live[index]
    if instruction.name in _WRITES:
        after -= {instruction.argument}
    elif instruction.name in _READS:
        after |= {instruction.argument}
    handler = listing.handler_at(instruction.index)
    return after | live[handler.target] if handler is not None else after
