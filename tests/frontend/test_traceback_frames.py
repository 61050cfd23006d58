"""Frames of inlined functions that are only shown: on each CPython they stand where it is said."""

from __future__ import annotations

import dis
import sys
import traceback
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from windfall.frontend.tracebacks import TracebackPlace, through


def plain(x: int) -> list[int]:
    y = x + 1
    try:
        z = abs(y)
    finally:
        y = 2
    return [i for i in range(z)]


def generator(x: int) -> Iterator[float]:
    yield x
    yield from [x, x / 1]


async def coroutine(x: Any) -> int:
    await x
    return 1


def long() -> Callable[..., Any]:
    """Further than one jump goes: its argument is one byte."""
    lines = "".join(f"    x = x + {i} * len(str(x))\n" for i in range(150))
    space: dict[str, Any] = {}
    exec(compile(f"def long(x):\n{lines}    return x\n", "long.py", "exec"), space)
    return space["long"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("function", [plain, generator, coroutine, long()])
def test_a_frame_stands_at_its_instruction(function: Any) -> None:
    code: types.CodeType = function.__code__
    instructions = list(dis.get_instructions(code))[1:]
    step = max(1, len(instructions) // 40)
    positions = list(code.co_positions())
    shown: list[str] = []
    for one in (*instructions[::step], instructions[-1]):
        line, end_line, column, end_column = positions[one.offset // 2]
        if line is None:
            continue
        error = ValueError("x")
        before, _ = sys.gettrace(), sys.settrace(lambda frame, *rest: shown.append(frame.f_code.co_name))
        try:
            through(error, [TracebackPlace(code, function.__globals__, one.offset, line)])
        finally:
            sys.settrace(before)
        made = error.__traceback__
        assert made is not None and made.tb_frame.f_lasti == one.offset
        assert made.tb_frame.f_back is None and made.tb_frame.f_code.co_name == code.co_name
        (entry,) = traceback.TracebackException.from_exception(error).stack
        found = (entry.lineno, entry.end_lineno, entry.colno, entry.end_colno)
        assert found == (line, end_line, column, end_column), one
    # A trace function is shown our own functions, never a frame that was made.
    assert "through" in shown and code.co_name not in shown
