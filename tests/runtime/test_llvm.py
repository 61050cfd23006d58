"""The LLVM writer: what it writes is run, and compared with what Python makes of the same."""

from __future__ import annotations

import ctypes
import functools
import itertools
from array import array
from collections.abc import Callable
from typing import Any

import pytest

from windfall import jit
from windfall.errors import InternalError
from windfall.llvm import (
    FALSE,
    NULL,
    TRUE,
    ZERO,
    Assembly,
    Cases,
    Code,
    Fields,
    Struct,
    Value,
    integer,
)

NUMBERS = (-7, -1, 0, 1, 2, 3, 4, 9)


def built(write: Callable[[Code], None], *types: str, result: str = "i64") -> Callable[..., int]:
    """A function of one piece of code, in machine code as fast as it is made."""
    assembly = Assembly()
    with assembly.function("f", result, *types, exported=True) as code:
        write(code)
    native = jit.load(assembly.text(), quick=True)
    function = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * len(types))(native.address("f"))

    def call(*given: int) -> int:
        assert native is not None  # alive as long as this can be called
        return int(function(*given))

    return call


def test_loops_nest_and_carry() -> None:
    def write(code: Code) -> None:
        rows, columns = code.parameters
        with code.repeat(ZERO, rows, start=[ZERO, integer(1)]) as outer:
            total, power = outer.carried
            with code.repeat(outer.index, columns, start=[total]) as inner:
                product = code.binary("mul", inner.index, power)
                inner.carry(code.binary("add", inner.carried[0], product))
            outer.carry(inner.results[0], code.binary("mul", power, -3))
        code.ret(code.binary("add", *outer.results))

    def expected(rows: int, columns: int) -> int:
        total, power = 0, 1
        for row in range(rows):
            for column in range(row, columns):
                total += column * power
            power *= -3
        return total + power

    function = built(write, "i64", "i64")
    for rows, columns in itertools.product((0, 1, 2, 5), (0, 1, 3, 8)):
        assert function(rows, columns) == expected(rows, columns)


@pytest.mark.parametrize("step", [1, 4])
def test_a_loop_does_whole_steps_and_once_does_the_rest(step: int) -> None:
    def write(code: Code) -> None:
        (count,) = code.parameters
        with code.repeat(ZERO, count, step, [ZERO]) as whole:
            whole.carry(code.binary("add", whole.carried[0], 100))
        with code.once(whole.after, count, whole.results, False) as rest:
            left = code.binary("sub", count, rest.index)
            rest.carry(code.binary("add", rest.carried[0], left))
        code.ret(rest.results[0])

    function = built(write, "i64")
    for count in range(12):
        assert function(count) == count // step * 100 + count % step


def test_a_certain_loop_is_entered_without_a_look() -> None:
    def write(code: Code) -> None:
        with code.repeat(ZERO, code.parameters[0], start=[ZERO], certain=True) as loop:
            loop.carry(code.binary("add", loop.carried[0], 1))
        code.ret(loop.results[0])

    function = built(write, "i64")
    assert [function(count) for count in (0, 1, 2, 5)] == [1, 1, 2, 5]


def test_a_loop_is_left_from_inside_and_leaves_the_function() -> None:
    """The place of the first word that is what was asked for, or -1."""

    def write(code: Code) -> None:
        words, count, wanted = code.parameters
        with code.repeat(ZERO, count) as loop:
            seen = code.word(words, loop.index)
            with code.when(code.compare("icmp slt", seen, 0)):
                code.ret(integer(-2))
            with code.when(code.equal(seen, wanted)):
                code.ret(loop.index)
        code.ret(integer(-1))

    function = built(write, "ptr", "i64", "i64")
    words = array("q", [5, 3, 3, 8, -4, 9])
    start = words.buffer_info()[0]
    assert [function(start, 6, one) for one in (5, 3, 8, 9)] == [0, 1, 3, -2]
    assert function(start, 3, 8) == function(start, 0, 5) == -1


def test_either_joins_what_two_pieces_answer() -> None:
    def write(code: Code) -> None:
        a, b = code.parameters

        def larger() -> Value:
            # Pieces have blocks of their own inside: what is joined comes from the last of them.
            even = code.equal(code.binary("and", a, 1), 0)
            return code.either(even, lambda: code.binary("sdiv", a, 2), a)

        bigger = code.compare("icmp sgt", a, b)
        code.ret(code.either(bigger, larger, lambda: code.binary("sub", b, a)))

    function = built(write, "i64", "i64")
    for a, b in itertools.product(NUMBERS, NUMBERS):
        half = int(a / 2) if a % 2 == 0 else a
        assert function(a, b) == (half if a > b else b - a)


def test_one_of_does_one_thing_and_goes_on() -> None:
    def write(code: Code) -> None:
        slot = code.reserve("i64")
        positive = code.compare("icmp sgt", code.parameters[0], 0)
        code.one_of(
            positive,
            lambda: code.store(integer(1), slot),
            lambda: code.ret(integer(-1)),
        )
        code.ret(code.load("i64", slot))

    function = built(write, "i64")
    assert [function(one) for one in NUMBERS] == [-1, -1, -1, 1, 1, 1, 1, 1]


def test_a_switch_answers_by_number_and_a_case_may_leave() -> None:
    def write(code: Code) -> None:
        (what,) = code.parameters

        def leave() -> Value:
            code.ret(integer(77))
            return ZERO

        square = functools.partial(code.binary, "mul", what, what)
        cases: Cases = {(1,): lambda: integer(10), (2,): leave, (4, 9): square}
        found = code.switch(what, cases, lambda: integer(-5))
        code.ret(code.binary("add", found, 1))

    function = built(write, "i64")
    expected = {1: 11, 2: 77, 4: 17, 9: 82}
    assert [function(one) for one in NUMBERS] == [expected.get(one, -4) for one in NUMBERS]


def test_requirements_share_a_way_out_for_each_answer() -> None:
    def write(code: Code) -> None:
        a, b = code.parameters
        code.require(code.compare("icmp sge", a, 0), integer(-1))
        code.require(code.compare("icmp sge", b, 0), integer(-1))
        code.require(code.different(b, 0), integer(-2))
        code.ret(code.binary("udiv", a, b))

    function = built(write, "i64", "i64")
    for a, b in itertools.product(NUMBERS, NUMBERS):
        expected = -1 if a < 0 or b < 0 else -2 if b == 0 else a // b
        assert function(a, b) == expected
    assembly = Assembly()
    with assembly.function("f", "i64", "i64", "i64") as code:
        write(code)
    assert assembly.text().count("ret i64 -1") == 1


def test_functions_call_each_other_by_name_and_by_address() -> None:
    assembly = Assembly()
    with assembly.function("twice", "i64", "i64") as code:
        code.ret(code.binary("add", *code.parameters * 2))
    with assembly.function("apply", "i64", "ptr", "i64") as code:
        function, value = code.parameters
        code.ret(code.call(function, "i64", code.call("llabs", "i64", value)))
    with assembly.function("f", "i64", "i64", exported=True) as code:
        code.ret(code.call("apply", "i64", Value("@twice", "ptr"), *code.parameters))
    assert [*assembly.externals] == ["llabs"]
    native = jit.load(assembly.text())
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(native.address("f"))
    assert [function(one) for one in NUMBERS] == [2 * abs(one) for one in NUMBERS]


def test_constants_are_kept_once() -> None:
    assembly = Assembly()
    text, again = assembly.string("ä\\"), assembly.string("ä\\")
    assert text == again != assembly.string("a")
    with assembly.function("f", "ptr", exported=True) as code:
        code.ret(text)
    native = jit.load(assembly.text())
    found: Any = ctypes.CFUNCTYPE(ctypes.c_char_p)(native.address("f"))()
    assert found.decode() == "ä\\"


PAIR = Struct("count rows* bytes? flag ...", first=1)


def test_a_structure_lies_in_memory_as_python_writes_it() -> None:
    def write(code: Code) -> None:
        pair = Fields(code, PAIR, code.parameters[0])
        pair["flag"] = code.binary("add", pair["flag"], 1)
        rows, following = code.word(pair["rows"], 1), code.word(pair.end, 0)
        sums = (pair["count"], rows, pair["bytes"], pair["flag"], following)
        total = ZERO
        for one in sums:
            total = code.binary("add", code.binary("mul", total, 10), one)
        code.ret(total)

    rows = array("q", [0, 2])
    words = array("q", [0, *PAIR.words(1, rows.buffer_info()[0], 3, 0, 4, 6)])
    assert built(write, "ptr")(words.buffer_info()[0]) == 12356
    assert words[PAIR.places["flag"]] == 5


def test_words_of_a_structure_are_counted_and_named() -> None:
    assert PAIR.named(flag=4, count=1, rows=2, bytes=(3, 0)) == (1, 2, 3, 0, 4)
    closed = Struct("count rows*")
    assert closed.size == 2 and closed.types == {"count": "i64", "rows": "ptr"}
    for words in ((1,), (1, 2, 3)):
        with pytest.raises(InternalError, match="count, rows"):
            closed.words(*words)
    with pytest.raises(InternalError, match="row"):
        closed.named(count=1, row=2)


def test_tails_take_the_place_of_a_call() -> None:
    """A chain that is a million calls long needs no stack."""
    assembly = Assembly()
    with assembly.function("f", "i64", "i64", exported=True) as code:
        (count,) = code.parameters
        code.require(code.different(count, 0), integer(42))
        code.tail_call(Value("@f", "ptr"), "i64", code.binary("sub", count, 1))
    native = jit.load(assembly.text(), quick=True)
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(native.address("f"))
    assert function(1_000_000) == 42


def test_conditions_and_null() -> None:
    def write(code: Code) -> None:
        some = code.different(code.parameters[0], NULL)
        answer = code.select(code.both(some, TRUE, code.equal(FALSE, FALSE)), integer(1), ZERO)
        code.ret(answer)

    function = built(write, "ptr")
    assert (function(0), function(8)) == (0, 1)
