"""A function in pieces does what it does in one: at every instruction, for every statement."""

from __future__ import annotations

import asyncio
import gc
import random
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from tests.frontend import native_programs
from tests.frontend.native_driver import (
    Outcome,
    Run,
    chained,
    cold,
    entries,
    first_slots,
    observe,
    reachable,
    stepped,
)
from tests.frontend.native_programs import METHODS, PROGRAMS, Box, long
from tests.frontend.random_programs import program
from windfall.errors import InternalError, Unsupported
from windfall.frontend.assembler import fragment, single_step, successors
from windfall.frontend.bytecode import VERSION, decode
from windfall.frontend.fragment import RETURNED, UNBOUND, Arrival
from windfall.frontend.fragment_plan import Request, control_flow
from windfall.frontend.fragments import Fragments
from windfall.frontend.stack_effects import METHOD, PREVIOUS, stack_effects
from windfall.frontend.state import FrameShape

FILE = native_programs.__file__
ROWS: list[tuple[Any, Callable[[list[Any]], tuple[Any, ...]]]] = [
    *((function, lambda log, given=given: (log, *given)) for function, given in PROGRAMS),
    *METHODS,
]
NAMES = [f"{number}-{function.__name__}" for number, (function, _) in enumerate(ROWS)]


def at(function: Any, name: str, value: Any = None, nth: int = 0) -> int:
    """The nth instruction of a name (and value)."""
    found = [
        one.index
        for one in decode(function.__code__).instructions
        if one.name == name and (value is None or one.value == value)
    ]
    return found[nth]


# ---------------------------------------------------------------------- the whole of the language


@pytest.mark.parametrize(("function", "arguments"), ROWS, ids=NAMES)
def test_cut_at_every_instruction(function: Any, arguments: Any) -> None:
    want = observe(lambda log: cold(function)(*arguments(log)), FILE)
    arrived = 0
    for index in reachable(function):
        run = chained(function, index, times=1 + index % 3)
        assert observe(lambda log, run=run: run(*arguments(log)), FILE) == want, index
        arrived += run.arrivals
    assert arrived  # something was cut


@pytest.mark.parametrize(("function", "arguments"), ROWS, ids=NAMES)
def test_every_instruction_by_itself(function: Any, arguments: Any) -> None:
    want = observe(lambda log: cold(function)(*arguments(log)), FILE)
    assert observe(lambda log: stepped(function)(*arguments(log)), FILE) == want


TRYING = [row for row in ROWS if "try" in row[0].__name__]


@pytest.mark.parametrize(
    "row", TRYING, ids=[f"{row[0].__name__}-{place}" for place, row in enumerate(TRYING)]
)
def test_cut_while_the_caller_handles_an_exception(row: Any) -> None:
    function, arguments = row
    try:
        raise RuntimeError("ambient")
    except RuntimeError:
        want = observe(lambda log: cold(function)(*arguments(log)), FILE)
        assert "ambient" in want.handled
        for index in reachable(function):
            run = chained(function, index)
            assert observe(lambda log, run=run: run(*arguments(log)), FILE) == want, index


@pytest.mark.parametrize("seed", range(40))
def test_random_programs_with_random_cuts(seed: int) -> None:
    function = program(seed)
    file = function.__code__.co_filename
    want = observe(lambda log: function(log, 3), file)
    places = reachable(function)
    chance = random.Random(seed)
    runs = [stepped(function)]
    for _ in range(4):
        stops = frozenset(chance.sample(places, min(len(places), chance.randint(1, 12))))
        runs.append(
            Run(function, lambda count, _, stops=stops: stops if count < 99 else frozenset())
        )
    for run in runs:
        assert observe(lambda log, run=run: run(log, 3), file) == want


def test_the_driver_would_notice() -> None:
    """The comparison itself: a wrong line, value or effect makes two outcomes differ."""

    def wrong(log: list[Any], n: int) -> int:
        log.append(1)
        return 10 // n

    def outcome(function: Any, n: int) -> Outcome:
        return observe(lambda log: function(log, n), wrong.__code__.co_filename)

    moved = wrong.__code__.replace(co_firstlineno=wrong.__code__.co_firstlineno + 1)
    later = types.FunctionType(moved, globals())
    assert outcome(wrong, 1) == outcome(later, 1)
    assert outcome(wrong, 0) != outcome(later, 0)
    assert outcome(wrong, 1) != outcome(wrong, 2)


def test_long_functions_need_extended_arguments() -> None:
    want = observe(lambda log: long(log, 3), FILE)
    assert any(one.name == "JUMP_BACKWARD" and one.argument > 255 for one in _listing(long))
    for index in reachable(long)[::97]:
        run = chained(long, index, times=2)
        assert observe(lambda log, run=run: run(log, 3), FILE) == want, index


def _listing(function: Any) -> tuple[Any, ...]:
    return decode(function.__code__).instructions


# --------------------------------------------------------------------------- what the code is like


@pytest.mark.parametrize("function", [native_programs.nested_try, native_programs.with_in_loop])
def test_instructions_positions_and_handlers_are_the_users(function: Any) -> None:
    made = fragment(function.__code__, 0, frozenset(), (0, 1), ()).code
    assert (made.co_filename, made.co_qualname) == (FILE, function.__qualname__)
    assert made.co_firstlineno == function.__code__.co_firstlineno
    before, after = _placed(function.__code__), _placed(made)
    shift = len(after) - len(before)
    assert after[shift:] == before
    rows = decode(function.__code__).handlers
    assert {(row.target + shift, row.depth, row.lasti) for row in rows} == {
        (row.target, row.depth, row.lasti) for row in decode(made).handlers
    }


def _placed(code: types.CodeType) -> list[Any]:
    """Name, value and position of each instruction, of jumps the name (their way is another)."""
    positions = list(code.co_positions())
    return [
        (one.name, None if one.target >= 0 else one.value, positions[one.offset // 2])
        for one in decode(code).instructions
    ]


def test_a_loop_runs_on_the_very_same_instructions() -> None:
    def loop(n: int) -> int:
        total = 0
        for i in range(n):
            if i % 3:
                total += i
        return total

    head = at(loop, "FOR_ITER")
    end = decode(loop.__code__).instructions[head].target
    made = fragment(loop.__code__, head, frozenset({end}), (0, 1), (True,))
    names = [one.name for one in _listing(loop)[head:end]]
    written = [one.name for one in decode(made.code).instructions]
    assert written[written.index("FOR_ITER") :][: len(names)] == names
    arrival, slots = made.bind(globals())((10, 0, iter(range(10))))
    assert (arrival.index, arrival.variables, slots) == (end, (0, 1, 2), (10, loop(10), 9))
    assert arrival.uncertain == {2}  # i is bound only if there was an item


def test_a_variable_may_turn_out_to_be_unbound() -> None:
    def loop(n: int) -> None:
        for _ in range(n):
            pass

    head = at(loop, "FOR_ITER")
    end = decode(loop.__code__).instructions[head].target
    native = fragment(loop.__code__, head, frozenset({end}), (0,), (True,)).bind(globals())
    arrival, slots = native((0, iter(())))
    assert slots == (0, UNBOUND)
    arrival, slots = arrival.settled(slots)
    assert (arrival.variables, slots) == ((0,), (0,))


def test_nothing_keeps_a_value_that_the_program_deletes() -> None:
    """Nor does a plain function that is called so, unless somebody else evaluates frames in this
    process (torch's compiler, after some tests): the caller's stack keeps the arguments then."""

    def deletes(value: Any, dead: Any) -> bool:
        del value
        return dead() is None

    def plain(slots: Any) -> bool:
        value, dead = slots
        del slots, value
        return dead() is None

    def freed(function: Any) -> bool:
        value = Box(1, [])
        slots = [(value, weakref.ref(value))]
        del value
        return bool(function(slots.pop()))

    native = fragment(deletes.__code__, 1, frozenset(), (0, 1), ()).bind(globals())
    assert freed(native) == freed(plain)


# ----------------------------------------------------------------------------- exceptions in state


def test_a_stop_inside_of_a_handler_gives_the_exception_and_restores_the_callers() -> None:
    def handles(key: Any) -> Any:
        try:
            {}[key]
        except KeyError as error:
            return str(error), repr(sys.exc_info()[1])

    index = at(handles, "STORE_FAST", "error")
    assert PREVIOUS in (stack_effects(handles.__code__).stacks[index] or ())
    made = fragment(handles.__code__, 0, frozenset({index}), (0,), ())
    arrival, slots = made.bind(globals())((5,))
    assert sys.exc_info() == (None, None, None)
    assert arrival.handled and isinstance(slots[-1], KeyError)
    rest = fragment(handles.__code__, index, frozenset(), arrival.variables, arrival.stack, True)
    assert rest.bind(globals())(slots) == ("5", "KeyError(5)")
    assert sys.exc_info() == (None, None, None)


def test_an_exception_is_raised_into_a_waiting_frame() -> None:
    def caller(log: list[Any], n: int) -> Any:
        try:
            log.append(callee(n))
        except ValueError as error:
            return repr(error), repr(error.__context__)
        finally:
            log.append("finally")

    def callee(n: int) -> Any:
        raise NotImplementedError

    call = at(caller, "CALL")
    log: list[Any] = []
    made = fragment(caller.__code__, call, frozenset(), (0, 1), (False, True), raising=True)
    assert made.bind(globals())((log, 1, log.append, ValueError(3))) == ("ValueError(3)", "None")
    assert log == ["finally"]
    error = OSError("not handled")
    native = made.bind(globals())
    with pytest.raises(OSError, match="not handled") as caught:
        native((log, 1, log.append, error))
    line = caller.__code__.co_firstlineno + 2
    assert [(name, number) for name, number, _ in entries(caught.tb, __file__)][1:] == [
        (caller.__qualname__, line)
    ]
    step = single_step(caller.__code__, call, (0, 1), (False, True), raising=True)
    arrival, slots = step.bind(globals())((log, 1, log.append, ValueError(4)))
    assert {arrival.index} == successors(caller.__code__, call, raising=True)
    assert slots[:2] == (log, 1) and repr(slots[2]) == "ValueError(4)"


def test_a_stopped_call_leaves_no_keywords_behind() -> None:
    def calls(n: int) -> Any:
        return dict(key=n)

    on_the_stack = VERSION >= (3, 13)
    index = at(calls, "CALL_KW" if on_the_stack else "CALL")
    made = fragment(calls.__code__, 0, frozenset({index}), (0,), ())
    native = made.bind(globals())
    arrival, slots = native((3,))
    first = Box(1, [])  # a Python function called next, with what is left of KW_NAMES
    assert arrival.keywords == (() if on_the_stack else ("key",)) and first.add(2) == 3
    assert (slots[-1] == ("key",)) == on_the_stack
    rest = fragment(calls.__code__, index, frozenset(), arrival.variables, arrival.stack)
    assert rest.bind(globals())(slots) == {"key": 3}


def _bound(method: Any) -> tuple[Any, Any]:
    """Something to call that has no object beside it: NULL is below it; from 3.13 on, above."""
    return (method, None) if VERSION >= (3, 13) else (None, method)


def test_a_method_call_is_left_and_entered_in_both_forms() -> None:
    def calls(box: Box, n: int) -> Any:
        total = 0
        for i in range(n):
            total += box.add(i if i else 7)
        return total

    want = calls(Box(1, []), 3)
    index = at(calls, "LOAD_FAST", "i", nth=1)
    stack = stack_effects(calls.__code__).stacks[index]
    assert stack is not None and any(kind >= METHOD for kind in stack)
    stops = frozenset({index})
    for pair in (Box.add, box := Box(1, [])), _bound(Box(1, []).add):
        form = (True, True, *(one is not None for one in pair))
        made = fragment(calls.__code__, index, stops, (0, 1, 2, 3), form)
        values = tuple(one for one in pair if one is not None)
        slots: Any = (box, 3, 0, 1, rest := iter(range(2, 3)), 7, *values)
        arrival, slots = made.bind(globals())(slots)
        plain = tuple(one is not None for one in _bound(calls))
        assert arrival.index == index and arrival.stack == (True, True, *plain)
        assert slots[2:4] == (7 + 2, 2) and slots[4] is rest and slots[-1].__self__.value == 1
        rest_of_it = fragment(calls.__code__, index, frozenset(), arrival.variables, arrival.stack)
        assert rest_of_it.bind(globals())(slots) == 7 + 2 + 3
    assert want == 8 + 2 + 3


# ------------------------------------------------------------------------------ frames as objects


def test_cells_without_a_slot_are_harmless() -> None:
    outside = 1

    def reads(n: int) -> Any:
        if n:
            return sorted(locals())
        return outside

    index = at(reads, "LOAD_GLOBAL", "sorted")
    stops = frozenset({at(reads, "RETURN_VALUE")})
    with pytest.raises(InternalError, match="no slot for the cell outside"):
        fragment(reads.__code__, 2, frozenset(), (0,), ())
    native = fragment(reads.__code__, index, stops, (0,), ()).bind(globals())
    _, slots = native((3,))
    assert slots == (3, ["n"])


def test_builtins_are_the_functions_own() -> None:
    space: dict[str, Any] = {"__builtins__": {"len": lambda _: "mine"}}
    exec("def f(x):\n    return len(x)", space)
    f = space["f"]
    made = fragment(f.__code__, 1, frozenset(), (0,), ())
    assert made.bind(space, f.__builtins__)(("x",)) == "mine"
    bare: dict[str, Any] = dict(space)
    del bare["__builtins__"]
    assert made.bind(bare, f.__builtins__)(("x",)) == "mine"
    with pytest.raises(Unsupported, match="builtins"):
        made.bind({"__builtins__": {}}, f.__builtins__)


def test_the_closure_is_needed_only_before_it_is_copied() -> None:
    outside = 5

    def reads(n: int) -> int:
        return n + outside

    early = fragment(reads.__code__, 0, frozenset(), (0,), ())
    with pytest.raises(InternalError, match="needs it"):
        early.bind(globals())
    assert early.bind(globals(), None, reads.__closure__)((1,)) == 6
    late = fragment(reads.__code__, 1, frozenset(), (0, 1), ())
    assert reads.__closure__ is not None
    assert late.bind(globals())((1, *reads.__closure__)) == 6


def test_what_cannot_be_done_is_refused() -> None:
    def generates() -> Any:
        yield 1

    with pytest.raises(Unsupported, match="would yield"):
        fragment(generates.__code__, 2, frozenset({at(generates, "RETURN_VALUE")}), (), ())
    with pytest.raises(Unsupported, match="before the generator"):
        fragment(generates.__code__, 0, frozenset(), (), ())
    with pytest.raises(Unsupported, match="not the code of a function"):
        fragment(compile("x = 1", "file", "exec"), 0, frozenset(), (), ())
    with pytest.raises(InternalError, match="the stack is"):
        fragment(test_builtins_are_the_functions_own.__code__, 5, frozenset(), (), (True,) * 40)


def test_a_return_is_told_from_a_stop() -> None:
    def returns(n: int) -> int:
        return n

    step = single_step(returns.__code__, 2, (0,), (True,))
    assert step.bind(globals())((1, 7)) == (RETURNED, (7,))
    again = single_step(returns.__code__, 1, (0,), ())
    arrival, slots = again.bind(globals())((1,))
    assert arrival == Arrival(2, (0,), (True,)) and slots == (1, 1)


# ------------------------------------------------------------------------------------- generators


def generator(log: list[Any], n: int) -> Any:
    """Yields in a loop, in handlers, and delegates."""
    held = n

    def read() -> int:
        return held

    try:
        for i in range(n):
            try:
                got = yield i, read()
                log.append(("got", got))
                held += 1
            except KeyError as error:
                log.append(repr(error))
                yield "caught"
                log.append(repr(sys.exc_info()[1]))
        log.append((yield from iter([7, 8])))
    finally:
        log.append(("finally", repr(sys.exc_info()[1])))
    return "result"


def _drive(made: Any, skip: int, actions: str) -> list[Any]:
    """What a generator answers; `skip` actions have been done already."""
    answers = []
    for number, action in enumerate(actions):
        if number < skip:
            continue
        try:
            if action == "n":
                answers.append(next(made))
            elif action == "s":
                answers.append(made.send(number))
            elif action == "t":
                answers.append(made.throw(KeyError(number)))
            elif action == "c":
                answers.append(made.close())
        except BaseException as error:
            answers.append((type(error), error.args, entries(error.__traceback__, __file__)[1:]))
    return answers


def _half_run(log: list[Any], n: int, actions: str, skip: int) -> Any:
    """Run the generator's frame in pieces through `skip` actions, then make a real one of it."""
    code = generator.__code__
    yields = frozenset(
        one.index for one in decode(code).instructions if one.name in ("YIELD_VALUE", "SEND")
    )
    after_make = 1 + at(generator, "RETURN_GENERATOR")
    bound, slots = first_slots(generator, (log, n))
    # The cell of `held` is made by hand: the start lies behind the instruction that does it.
    held = decode(code).variables.index("held")
    where = Arrival(after_make, (*bound, held), (True,))
    state: Any = (*slots, types.CellType(), None)
    for number in range(skip):
        thrown = number > 0 and actions[number] == "t"
        if number:  # what was yielded is replaced by what is sent, or thrown
            given = KeyError(number) if thrown else None if actions[number] == "n" else number
            end = len(state) - 1 - where.handled
            state = (*state[:end], given, *state[end + 1 :])
        made = fragment(
            code,
            where.index if thrown or not number else where.index + 1,
            yields,
            where.variables,
            where.stack[:-1] if thrown else where.stack,
            where.handled,
            thrown,
        )
        where, state = made.bind(globals())(state)
        where, state = where.settled(state)
        assert decode(code).instructions[where.index].name == "YIELD_VALUE"
    rest = fragment(code, where.index, frozenset(), where.variables, where.stack, where.handled)
    assert rest.is_generator
    half: Any = rest.bind(globals())(state)
    if skip:
        next(half)  # yields what was yielded already, and stands where the other one stood
    return half


@pytest.mark.parametrize("actions", ["nnnn", "nssssss", "nst", "nstnn", "nsc", "ntsts", "nnnnnsn"])
@pytest.mark.parametrize("skip", [0, 1, 2, 3])
def test_a_half_run_generator_becomes_a_real_one(actions: str, skip: int) -> None:
    if "c" in actions[:skip]:
        skip = actions.index("c")
    log: list[Any] = []
    whole = generator(log, 3)
    want = _drive(whole, 0, actions)
    other: list[Any] = []
    half = _half_run(other, 3, actions, skip)
    assert isinstance(half, types.GeneratorType)
    assert (half.__name__, half.__qualname__) == (whole.__name__, whole.__qualname__)
    assert _drive(half, skip, actions) == want[skip:]
    assert other == log


def test_a_coroutine_goes_on() -> None:
    async def waits(n: int) -> Any:
        await asyncio.sleep(0)
        total = 0
        for i in range(n):
            await asyncio.sleep(0)
            total += i
        return total

    head = at(waits, "FOR_ITER")
    made = fragment(waits.__code__, head, frozenset(), (0, 1), (True,))
    assert asyncio.run(made.bind(globals())((3, 100, iter([1, 2])))) == 103


def test_an_asynchronous_generator_goes_on() -> None:
    async def counts(n: int) -> Any:
        for i in range(n):
            await asyncio.sleep(0)
            yield i

    async def collect() -> list[int]:
        made = fragment(counts.__code__, at(counts, "FOR_ITER"), frozenset(), (0,), (True,))
        return [item async for item in made.bind(globals())((3, iter([5, 6])))]

    assert asyncio.run(collect()) == [5, 6]


# ------------------------------------------------------------------------------------------ cache


def _shape(function: Any, index: int, variables: tuple[int, ...]) -> FrameShape:
    stack = stack_effects(function.__code__).stacks[index]
    assert stack is not None
    return FrameShape(
        function.__code__,
        function.__globals__,
        function.__builtins__,
        index,
        index,
        0,
        variables,
        tuple(kind == 0 for kind in stack),
        False,
        None,
        decode(function.__code__).variables,
    )


def test_fragments_are_built_once_and_die_with_their_owner() -> None:
    space: dict[str, Any] = {}
    exec("def f(x, y):\n    return x + y", space)
    f = space["f"]
    fragments = Fragments(limit=2)
    first = fragments.native(_shape(f, 1, (0, 1)))
    assert first((2, 3)) == 5
    assert fragments.native(_shape(f, 1, (0, 1))) is first
    step = fragments.step(_shape(f, 1, (0, 1)))
    assert step is not first and step((2, 3)) == (Arrival(2, (0, 1), (True,)), (2, 3, 2))
    fragments.step(_shape(f, 2, (0, 1)))
    assert len(fragments) == 2
    assert fragments.native(_shape(f, 1, (0, 1))) is not first  # the oldest was dropped
    code = weakref.ref(f.__code__)
    del f, first, step
    space.clear()
    fragments.clear()
    gc.collect()
    assert code() is None


def test_an_extent_says_what_will_be_written() -> None:
    def branches(n: int) -> int:
        if n:
            return 1
        return 2

    test = next(one for one in _listing(branches) if "POP_JUMP" in one.name)
    request = Request(branches.__code__, test.index + 1, frozenset(), (0,), (), False, False)
    assert control_flow(request).reached == (test.index + 1, test.index + 2)
    assert not control_flow(request).arrivals
