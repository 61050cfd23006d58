"""Tracebacks that show inlined frames.

Enters: an exception that a native step raised, and the lines of the frames that wait for it.
Leaves: the same exception whose traceback names those frames too, as eager's does. Invariant:
files, functions and lines are the user's; local variables of frames that never ran are not there.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

from windfall.errors import SourceLine


def _here() -> Iterator[None]:
    yield


def through(error: BaseException, callers: tuple[SourceLine, ...]) -> None:
    """Put the frames of `callers`, outermost first, before those that the exception has passed."""
    traceback = error.__traceback__
    for line in reversed(callers):
        traceback = types.TracebackType(traceback, _frame(line), -1, line.line)
    error.__traceback__ = traceback


def _frame(line: SourceLine) -> types.FrameType:
    """A frame of a function of that name and file. It is that of a generator which was never asked:
    nobody called it, so that it keeps no frame of a caller alive, and what that one holds."""
    name = line.function.rpartition(".")[2]
    code = _here.__code__.replace(
        co_name=name,
        co_qualname=line.function,
        co_filename=line.file,
        co_firstlineno=line.line,  # where a generator stands that was never asked
    )
    made: Any = types.FunctionType(code, {})()
    frame = made.gi_frame
    assert isinstance(frame, types.FrameType)
    return frame
