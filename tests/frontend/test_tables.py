"""The tables of the front end are complete and consistent."""

from __future__ import annotations

import dis

import pytest

from windfall.errors import Unsupported
from windfall.frontend import breaks, opcodes, polyfills  # noqa: F401  (fills the table)
from windfall.frontend.bytecode import decode
from windfall.frontend.opcodes.table import HANDLERS
from windfall.frontend.policy import Treatment, treatment
from windfall.frontend.steps import NATIVE

# Instructions that only move things about or that are folded away: they cannot break.
CANNOT_BREAK = frozenset(
    """
    CACHE NOP RESUME PRECALL COPY_FREE_VARS POP_TOP PUSH_NULL COPY SWAP LOAD_CONST STORE_FAST
    MAKE_CELL LOAD_CLOSURE STORE_DEREF STORE_GLOBAL KW_NAMES JUMP_FORWARD JUMP_BACKWARD
    JUMP_BACKWARD_NO_INTERRUPT RETURN_VALUE BUILD_TUPLE BUILD_LIST BUILD_SLICE MAKE_FUNCTION
    PUSH_EXC_INFO POP_EXCEPT LOAD_ASSERTION_ERROR EXTENDED_ARG
    POP_JUMP_FORWARD_IF_NONE POP_JUMP_BACKWARD_IF_NONE POP_JUMP_FORWARD_IF_NOT_NONE
    POP_JUMP_BACKWARD_IF_NOT_NONE
    """.split()  # noqa: SIM905
)
# Their handlers leave the whole frame.
LEAVES = frozenset({"CHECK_EG_MATCH", "PREP_RERAISE_STAR"})
# They stand in generators, coroutines, class bodies and modules only, whose frames are never left
# one instruction at a time.
ELSEWHERE = frozenset(
    """
    RETURN_GENERATOR YIELD_VALUE SEND GET_YIELD_FROM_ITER GET_AWAITABLE GET_AITER GET_ANEXT
    END_ASYNC_FOR ASYNC_GEN_WRAP BEFORE_ASYNC_WITH LOAD_NAME STORE_NAME DELETE_NAME LOAD_CLASSDEREF
    SETUP_ANNOTATIONS PRINT_EXPR IMPORT_STAR
    """.split()  # noqa: SIM905
)


def test_every_opcode_has_a_handler() -> None:
    missing = set(dis.opmap) - set(HANDLERS) - {"EXTENDED_ARG"}
    assert not missing


def test_every_opcode_that_can_break_has_a_native_form() -> None:
    assert not set(dis.opmap) - set(NATIVE) - CANNOT_BREAK - ELSEWHERE - LEAVES


def test_break_numbers_and_page() -> None:
    page = breaks.page()
    for number, row in breaks.REASONS.items():
        assert row.number == number
        assert f"W{number:04d}: {row.title}" in page
        assert row.explanation and row.hint
    with pytest.raises(Unsupported, match=r"W0002: if x"):
        breaks.stop(breaks.TENSOR_BRANCH, "if x")


def test_polyfills_are_interpretable() -> None:
    for name, function in polyfills.TABLE.items():
        assert treatment(function) is Treatment.INLINE, name
        used = {one.name for one in decode(function.__code__).instructions}
        assert used <= set(HANDLERS), name


def test_exception_table_and_jumps() -> None:
    def f(x: list[int]) -> int:
        try:
            for i in x:
                if i:
                    return i
        finally:
            x.clear()
        return 0

    listing = decode(f.__code__)
    names = [one.name for one in listing.instructions]
    assert "CACHE" not in names and "EXTENDED_ARG" not in names
    for one in listing.instructions:
        assert (one.target >= 0) == ("JUMP" in one.name or one.name == "FOR_ITER")
    inside = next(one for one in listing.instructions if one.name == "FOR_ITER")
    handler = listing.handler_at(inside.index)
    assert handler is not None
    assert listing.instructions[handler.target].name == "PUSH_EXC_INFO"
