"""The tables of the front end are complete and consistent."""

from __future__ import annotations

import dis
import opcode

import pytest

from tests.frontend.opcode_names import (
    AWAITED,
    BY_PREFIX,
    CHANGED,
    INTRINSICS,
    OPCODES,
    REASONS,
    Version,
    needs_no_handler,
)
from windfall.errors import Unsupported
from windfall.frontend import breaks, opcodes, polyfills  # noqa: F401  (fills the table)
from windfall.frontend.bytecode import FORMER, SUPPORTED, VERSION, decode
from windfall.frontend.opcodes.table import HANDLERS, ROWS
from windfall.frontend.policy import Treatment, treatment
from windfall.frontend.steps.writer import NATIVE

# Instructions that only move things about or that are folded away: they cannot break.
CANNOT_BREAK = frozenset(
    """
    CACHE NOP RESUME PRECALL COPY_FREE_VARS POP_TOP PUSH_NULL COPY SWAP LOAD_CONST STORE_FAST
    MAKE_CELL LOAD_CLOSURE STORE_DEREF STORE_GLOBAL KW_NAMES JUMP_FORWARD JUMP_BACKWARD
    JUMP_BACKWARD_NO_INTERRUPT RETURN_VALUE BUILD_TUPLE BUILD_LIST BUILD_SLICE MAKE_FUNCTION
    PUSH_EXC_INFO POP_EXCEPT LOAD_ASSERTION_ERROR EXTENDED_ARG
    POP_JUMP_FORWARD_IF_NONE POP_JUMP_BACKWARD_IF_NONE POP_JUMP_FORWARD_IF_NOT_NONE
    POP_JUMP_BACKWARD_IF_NOT_NONE POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE LOAD_FAST_AND_CLEAR END_FOR
    SET_FUNCTION_ATTRIBUTE
    """.split()  # noqa: SIM905
)
# Their handlers leave the whole frame.
LEAVES = frozenset(
    """
    CHECK_EG_MATCH PREP_RERAISE_STAR INTRINSIC_TYPEVAR INTRINSIC_PARAMSPEC INTRINSIC_TYPEVARTUPLE
    INTRINSIC_SUBSCRIPT_GENERIC INTRINSIC_TYPEALIAS INTRINSIC_TYPEVAR_WITH_BOUND
    INTRINSIC_TYPEVAR_WITH_CONSTRAINTS INTRINSIC_SET_FUNCTION_TYPE_PARAMS
    INTRINSIC_SET_TYPEPARAM_DEFAULT
    """.split()  # noqa: SIM905
)
# They stand in generators, coroutines, class bodies and modules only, whose frames are never left
# one instruction at a time.
ELSEWHERE = frozenset(
    """
    RETURN_GENERATOR YIELD_VALUE SEND GET_YIELD_FROM_ITER GET_AWAITABLE GET_AITER GET_ANEXT
    END_ASYNC_FOR ASYNC_GEN_WRAP BEFORE_ASYNC_WITH LOAD_NAME STORE_NAME DELETE_NAME LOAD_CLASSDEREF
    SETUP_ANNOTATIONS PRINT_EXPR IMPORT_STAR INTRINSIC_PRINT INTRINSIC_STOPITERATION_ERROR END_SEND
    CLEANUP_THROW LOAD_LOCALS LOAD_FROM_DICT_OR_DEREF LOAD_FROM_DICT_OR_GLOBALS
    """.split()  # noqa: SIM905
)


def _handled(version: Version) -> set[str]:
    """The names with a handler in a version, be it this one or another."""
    rows = (row for row in ROWS if row[1] <= version and (row[2] is None or row[2] > version))
    names = [name for name, _, _ in rows]
    assert len(names) == len(set(names)), f"a name has two handlers in {version}"
    return set(names)


def _wanted(version: Version) -> set[str]:
    """What needs a handler in a version."""
    names = {name for name in OPCODES[version] if not needs_no_handler(name)}
    return names | {FORMER.get(name, name) for name in INTRINSICS[version]}


@pytest.mark.parametrize("version", sorted(SUPPORTED))
def test_every_opcode_has_a_handler(version: Version) -> None:
    assert not _wanted(version) - _handled(version)


@pytest.mark.parametrize("version", sorted(SUPPORTED))
def test_every_opcode_that_can_break_has_a_native_form(version: Version) -> None:
    assert not _wanted(version) - set(NATIVE) - CANNOT_BREAK - ELSEWHERE - LEAVES


@pytest.mark.parametrize("version", sorted(set(OPCODES) - SUPPORTED))
def test_what_a_coming_version_needs_is_said(version: Version) -> None:
    """Each of its instructions has a handler or is waited for, by name: what gets its handler
    leaves the list, and with an empty list the version can be supported."""
    assert _wanted(version) - _handled(version) == set(AWAITED[version])
    before = max(SUPPORTED)
    assert set(CHANGED[version]) <= OPCODES[version] & OPCODES[before] & _handled(before)


def test_the_list_of_opcodes_is_that_of_the_interpreter() -> None:
    assert OPCODES[VERSION] == set(dis.opmap)
    told = {name for table in ("_intrinsic_1_descs", "_intrinsic_2_descs")
            for name in getattr(opcode, table, ()) if not name.endswith("INVALID")}  # fmt: skip
    assert INTRINSICS[VERSION] == told
    assert set(HANDLERS) == _handled(VERSION)


def test_a_reason_against_a_handler_is_needed() -> None:
    """Neither a reason for what has a handler nor one for a name that no version knows."""
    known = set().union(*OPCODES.values())
    assert set(REASONS) <= known
    assert all(any(name.startswith(prefix) for name in known) for prefix in BY_PREFIX)
    assert not {name for name, _, _ in ROWS if needs_no_handler(name)}


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
