"""Loops found in bytecode, and run natively from their heads to their exits."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.frontend import native_programs
from tests.frontend.native_driver import Run, cold, first_slots, observe
from tests.frontend.native_programs import METHODS, PROGRAMS
from tests.frontend.random_programs import program
from windfall.errors import InternalError, Unsupported
from windfall.frontend.assembler import fragment
from windfall.frontend.bytecode import decode
from windfall.frontend.bytecode_loops import BytecodeLoop, loop_at, loops, run_loop
from windfall.frontend.fragment import RETURNED, Arrival
from windfall.frontend.fragments import Fragments
from windfall.frontend.stack_effects import stack_effects
from windfall.frontend.state import FrameShape

FILE = native_programs.__file__


def named(function: Any, loop: BytecodeLoop, what: str) -> tuple[set[str], set[str], set[str]]:
    """The names that a loop reads or writes: variables, globals, attributes."""
    names = getattr(loop, what)
    variables = decode(function.__code__).variables
    return {variables[one] for one in names.variables}, set(names.globals), set(names.attributes)


def shape_at(function: Any, where: Arrival) -> FrameShape:
    code = function.__code__
    return FrameShape(
        code,
        function.__globals__,
        function.__builtins__,
        where.index,
        where.index,
        0,
        where.variables,
        where.stack,
        False,
        None,
        decode(code).variables,
    )


def test_a_for_and_a_while_loop() -> None:
    def f(n: int, table: Any) -> int:
        total = 0
        for i in range(n):
            total += table.rows[i]
        while total > LIMIT:
            total -= 1
            table.count = total
        return total

    first, second = sorted(loops(f.__code__), key=lambda loop: loop.head)
    instructions = decode(f.__code__).instructions
    assert instructions[first.head].name == "FOR_ITER"
    assert first.exits == {instructions[first.head].target}
    assert named(f, first, "reads") == ({"total", "table", "i"}, set(), {"rows"})
    assert named(f, first, "writes") == ({"total", "i"}, set(), set())
    assert not first.calls
    assert named(f, second, "reads") == ({"total", "table"}, {"LIMIT"}, set())
    assert named(f, second, "writes") == ({"total"}, set(), {"count"})
    assert first.body.isdisjoint(second.body)
    assert loop_at(f.__code__, first.head) is first and loop_at(f.__code__, 0) is None


LIMIT = 3


def test_outer_loops_stand_before_inner_ones() -> None:
    outer, inner = loops(native_programs.nested_loops.__code__)
    assert inner.body < outer.body
    assert inner.head in outer.body and inner.exits <= outer.body


def test_a_jump_back_that_is_no_loop() -> None:
    """Handlers stand behind the code and jump back into it."""

    def f(n: int) -> int:
        with open(n) as file:
            try:
                value = file.read()
            except OSError:
                value = 1
            n = value
        return n

    names = [one.name for one in decode(f.__code__).instructions if one.target >= 0]
    assert loops(f.__code__) == ()
    assert names  # it does jump


def test_a_handler_that_goes_on_belongs_to_the_loop() -> None:
    def f(items: list[Any]) -> int:
        count = 0
        for item in items:
            try:
                item()
            except ValueError:
                count += 1
                continue
            except KeyError:
                break
        return count

    (loop,) = loops(f.__code__)
    names = {decode(f.__code__).instructions[index].value for index in loop.body}
    assert "ValueError" in names and "count" in names
    stacks = stack_effects(f.__code__).stacks
    assert all(stacks[index] is not None for index in loop.exits)


def test_names_of_functions_made_in_a_loop() -> None:
    def f(n: int) -> Any:
        total, made = 0, []
        for i in range(n):

            def add(by: int) -> Any:
                nonlocal total
                total += by + LIMIT
                return i.real  # noqa: B023

            made.append(add)
        return made, total

    (loop,) = loops(f.__code__)
    reads, writes = named(f, loop, "reads"), named(f, loop, "writes")
    assert reads[0] >= {"total", "i", "made"} and "LIMIT" in reads[1] and "real" in reads[2]
    assert writes[0] >= {"total", "i"} and loop.calls


def test_what_cannot_be_run() -> None:
    def generates(n: int) -> Any:
        for i in range(n):
            yield i + 1

    (loop,) = loops(generates.__code__)
    assert loop.yields
    shape = shape_at(generates, Arrival(loop.head, (0,), (True,)))
    with pytest.raises(Unsupported, match="would yield"):
        run_loop(Fragments(), shape, loop, (3, iter(range(3))))
    with pytest.raises(InternalError, match="does not stand in the loop"):
        run_loop(Fragments(), shape_at(generates, Arrival(0, (0,), ())), loop, (3,))


def test_an_exception_leaves_a_loop_as_it_leaves_the_function() -> None:
    def f(items: list[int]) -> int:
        total = 0
        for item in items:
            total += 1 // item
        return total

    (loop,) = loops(f.__code__)
    shape = shape_at(f, Arrival(loop.head, (0, 1), (True,)))
    fragments = Fragments()
    where, slots = run_loop(fragments, shape, loop, ([], 0, iter([1, 1])))
    assert {where.index} == loop.exits and slots == ([], 2, 1)
    with pytest.raises(ZeroDivisionError) as caught:
        run_loop(fragments, shape, loop, ([], 0, iter([1, 0])))
    assert caught.traceback[-1].lineno + 1 == f.__code__.co_firstlineno + 3
    assert len(fragments) == 1 and sys.exc_info() == (None, None, None)


class Looped(Run):
    """A call whose loops are run by `run_loop`, and all between them by fragments."""

    def __init__(self, function: Any) -> None:
        code = function.__code__
        self.loops = {loop.head: loop for loop in reversed(loops(code)) if not loop.yields}
        super().__init__(function, lambda _, __: frozenset(self.loops))
        self.fragments = Fragments()

    def __call__(self, *arguments: Any) -> Any:
        function, code = self.function, self.function.__code__
        bound, slots = first_slots(function, arguments)
        where = Arrival(0, bound, ())
        while True:
            loop = self.loops.get(where.index)
            if loop is not None and self.arrivals % 2:  # by turns whole, and instruction after head
                where, slots = run_loop(
                    self.fragments, shape_at(function, where), loop, slots, where.handled
                )
            else:
                stops = frozenset(self.loops) or frozenset({0})
                made = fragment(
                    code, where.index, stops, where.variables, where.stack, where.handled
                )
                closure = function.__closure__ if made.needs_closure else None
                where, slots = made.bind(function.__globals__, None, closure)(slots)
                if where is RETURNED:
                    return slots[0]
                where, slots = where.settled(slots)
            self.arrivals += 1


ROWS = [
    *((function, lambda log, given=given: (log, *given)) for function, given in PROGRAMS),
    *METHODS,
]
WITH_LOOPS = [row for row in ROWS if loops(row[0].__code__)]


@pytest.mark.parametrize("row", WITH_LOOPS, ids=lambda row: row[0].__name__)
def test_programs_with_their_loops_run_natively(row: Any) -> None:
    function, arguments = row
    want = observe(lambda log: cold(function)(*arguments(log)), FILE)
    for first in (0, 1):
        run = Looped(function)
        run.arrivals = first
        assert observe(lambda log, run=run: run(*arguments(log)), FILE) == want


@pytest.mark.parametrize("seed", range(100, 140))
def test_random_programs_with_their_loops_run_natively(seed: int) -> None:
    function = program(seed)
    file = function.__code__.co_filename
    want = observe(lambda log: function(log, 3), file)
    for first in (0, 1):
        run = Looped(function)
        run.arrivals = first
        assert observe(lambda log, run=run: run(log, 3), file) == want
