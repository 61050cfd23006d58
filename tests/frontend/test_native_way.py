"""The native way out: a code object that starts in the middle of another."""

from __future__ import annotations

import types
from typing import Any

import pytest

from windfall.frontend.assembler import fragment
from windfall.frontend.bytecode import decode
from windfall.frontend.flow import live_variables


def resume_function(
    code: Any, space: Any, variables: dict[int, Any], stack: list[tuple[bool, Any]], index: int
) -> Any:
    bound = tuple(sorted(variables))
    made = fragment(code, index, frozenset(), bound, tuple(one for one, _ in stack)).bind(space)
    slots = (*(variables[one] for one in bound), *(value for present, value in stack if present))
    return lambda: made(slots)


def program(a: int, b: int, log: list[Any]) -> Any:
    total = a

    def bump(by: int) -> int:
        nonlocal total
        total += by
        return total

    try:
        for i in range(b):
            log.append(bump(i))
            if i == 3:
                raise KeyError(i)
            with_key = {"k": i, "x": [j * a for j in range(i)]}
            log.append(with_key)
    except KeyError as error:
        log.append(repr(error))
    finally:
        log.append("finally")
    return total, bump(100), log


def _variable(code: types.CodeType, name: str, value: Any) -> Any:
    """As a frame holds it: before 3.12 a comprehension makes cells of what it reads."""
    return types.CellType(value) if name in code.co_cellvars else value


def test_from_the_first_instruction_after_the_cells() -> None:
    listing = decode(program.__code__)
    start = next(one.index for one in listing.instructions if one.name == "RESUME")
    names = listing.variables
    variables = {
        names.index("a"): _variable(program.__code__, "a", 2),
        names.index("b"): 5,
        names.index("log"): [],
        names.index("total"): types.CellType(),
    }
    run = resume_function(program.__code__, globals(), variables, [], start)
    assert run() == program(2, 5, [])


@pytest.mark.parametrize("count", [2, 5])
def test_inside_the_loop_with_a_stack(count: int) -> None:
    listing = decode(program.__code__)
    at = next(one.index for one in listing.instructions if one.name == "FOR_ITER")
    names = listing.variables
    total = types.CellType(7)

    def bump(by: int) -> int:
        total.cell_contents += by
        return int(total.cell_contents)

    variables: dict[int, Any] = {
        names.index("a"): _variable(program.__code__, "a", 2),
        names.index("log"): [],
        names.index("total"): total,
        names.index("bump"): bump,
    }
    run = resume_function(program.__code__, globals(), variables, [(True, iter(range(count)))], at)
    total_after, last, log = run()
    assert total_after + 100 == last
    assert log[-1] == "finally"
    assert ("KeyError(3)" in log) == (count > 3)


def test_exceptions_keep_their_lines() -> None:
    def f(a: int) -> int:
        b = a + 1
        return b // 0

    listing = decode(f.__code__)
    at = next(
        one.index for one in listing.instructions if one.name == "LOAD_FAST" and one.value == "b"
    )
    run = resume_function(f.__code__, globals(), {1: 3}, [], at)
    with pytest.raises(ZeroDivisionError) as caught:
        run()
    assert caught.traceback[-1].lineno + 1 == f.__code__.co_firstlineno + 2


def test_liveness() -> None:
    def f(a: int, b: int) -> int:
        c = a + b
        del a
        for i in range(c):
            b = i
        return b

    listing = decode(f.__code__)
    live = live_variables(listing)
    names = listing.variables
    at = next(one.index for one in listing.instructions if one.name == "FOR_ITER")
    assert {names[index] for index in live[at]} == {"b"}
