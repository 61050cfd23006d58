"""Memory for intermediate values: blocks that are kept for reuse by any program.

Taken and given back under the GIL, so that nested and concurrent calls each have their own. The
size of a block stands before it.
"""

from __future__ import annotations

from windfall.llvm import NULL, ZERO, Value, integer
from windfall.runtime.machine.basics import MachineCode, function

PLACES = 8
BEFORE = 64  # bytes before a block, of which it keeps the alignment


def _table(code: MachineCode) -> Value:
    return code.assembly.variable("arenas", f"[{PLACES} x ptr]")


def _place(code: MachineCode, index: Value) -> Value:
    return code.element(_table(code), index, "ptr")


@function("ptr", exported=True)
def places(code: MachineCode) -> None:
    """Where the addresses of idle blocks stand."""
    code.ret(_table(code))


@function("void", "ptr")
def free(code: MachineCode, block: Value) -> None:
    """Give a block back to the system."""
    code.call("free", "void", code.offset(block, -BEFORE))


@function("ptr", "i64")
def take(code: MachineCode, bytes: Value) -> None:
    """A block of at least so many bytes; null: there is no memory."""
    with code.repeat(ZERO, integer(PLACES), start=[integer(PLACES)], certain=True) as loop:
        (small,) = loop.carried
        place = _place(code, loop.index)
        block = code.load("ptr", place)

        def measure() -> Value:
            fits = code.compare("icmp uge", code.field(block, -BEFORE), bytes)
            with code.when(fits):
                code.store(NULL, place)
                code.ret(block)
            return loop.index

        loop.carry(code.either(code.different(block, NULL), measure, small))
    (small,) = loop.results
    # A larger block serves where the smaller did: only one of them is kept.
    with code.when(code.compare("icmp ult", small, PLACES)):
        place = _place(code, small)
        old = code.load("ptr", place)
        code.store(NULL, place)
        free(code, old)
    slot = code.reserve("ptr")
    whole = code.binary("add", bytes, BEFORE)
    failed = code.call("posix_memalign", "i32", slot, BEFORE, whole)
    code.require(code.equal(failed, 0), NULL)
    start = code.load("ptr", slot)
    code.store(bytes, start)
    code.ret(code.offset(start, BEFORE))


@function("void", "ptr")
def give(code: MachineCode, block: Value) -> None:
    """A block is not needed any more: it is kept if there is a place."""
    with code.repeat(ZERO, integer(PLACES), certain=True) as loop:
        place = _place(code, loop.index)
        with code.when(code.is_null(code.load("ptr", place))):
            code.store(block, place)
            code.ret()
    free(code, block)


@function("i64", exported=True)
def trim(code: MachineCode) -> None:
    """Free all that is kept; the answer is how many blocks that was."""
    with code.repeat(ZERO, integer(PLACES), start=[ZERO], certain=True) as loop:
        place = _place(code, loop.index)
        held = code.load("ptr", place)

        def drop() -> Value:
            code.store(NULL, place)
            free(code, held)
            return code.binary("add", loop.carried[0], 1)

        loop.carry(code.either(code.different(held, NULL), drop, loop.carried[0]))
    code.ret(loop.results[0])
