"""Frames of inlined functions that are only shown: on each CPython they stand where it is said."""

from __future__ import annotations

import dis
import sys
import traceback
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from windfall.frontend.bytecode import VERSION
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
    names: set[str] = set()
    kept: list[types.FrameType] = []

    def look(frame: types.FrameType, event: str, argument: Any) -> None:
        names.add(frame.f_code.co_name)
        if frame.f_code.co_filename == code.co_filename:
            kept.append(frame)

    for one in (*instructions[::step], instructions[-1]):
        line, end_line, column, end_column = positions[one.offset // 2]
        if line is None:
            continue
        error = ValueError("x")
        before = sys.gettrace()
        sys.settrace(look)
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
    # A trace function may keep what it is shown: 3.11 shows it the end of a generator that nobody
    # has asked for anything, later ones do not.
    assert "through" in names and bool(kept) == (VERSION < (3, 12))
    assert all(one.f_lineno and one.f_lasti > 0 for one in kept)
