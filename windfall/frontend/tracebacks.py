"""Tracebacks that show inlined frames.

Enters: an exception that a native step raised, and where the frames stand that wait for it.
Leaves: the same exception whose traceback names those frames too, as eager's does. Invariant:
files, functions, lines and columns are the user's; local variables of frames that never ran are
not there.
"""

from __future__ import annotations

import dis
import inspect
import itertools
import types
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Any, ClassVar

from windfall.dataclass import dataclass
from windfall.errors import SourceLine, set_traceback, traceback_of
from windfall.frontend.bytecode import Instruction
from windfall.ir.codec import record
from windfall.ir.stages import Span


@record
@dataclass(frozen=True, slots=True)
class TracebackPlace:
    """An instruction of a function of the user's, as an entry of a traceback has it."""

    identities: ClassVar[tuple[str, ...]] = ("code", "globals")

    code: types.CodeType
    globals: dict[str, Any] = field(compare=False, repr=False)
    offset: int
    line: int

    @property
    def span(self) -> Span:
        """Its piece of the source."""
        positions = itertools.islice(self.code.co_positions(), self.offset // 2, None)
        line, last, column, end = next(positions, (None,) * 4)
        if line is None or last is None or column is None or end is None:
            return (self.line, self.line, -1, -1)
        return (line, last, column, end)

    def __str__(self) -> str:
        return f"{self.code.co_filename}:{self.line} in {self.code.co_qualname}"


def place_of(
    code: types.CodeType, globals: dict[str, Any], instruction: Instruction
) -> TracebackPlace:
    """Where a frame of this code stands."""
    return TracebackPlace(code, globals, instruction.offset, instruction.line)


def through(error: BaseException, callers: Sequence[SourceLine | TracebackPlace]) -> None:
    """Put the frames of `callers`, outermost first, before those that the exception has passed."""
    traceback = traceback_of(error)
    for one in reversed(callers):
        if isinstance(one, TracebackPlace):
            traceback = types.TracebackType(traceback, _standing(one), one.offset, one.line)
        else:
            traceback = types.TracebackType(traceback, _frame(one), -1, one.line)
    set_traceback(error, traceback)


def _here() -> Iterator[None]:
    yield


def _frame(line: SourceLine) -> types.FrameType:
    """A frame of a function of that name and file: a generator's that was never asked, as below."""
    name = line.function.rpartition(".")[2]
    code = _here.__code__.replace(
        co_name=name,
        co_qualname=line.function,
        co_filename=line.file,
        co_firstlineno=line.line - 1,  # the frame stands in the one line of the function's body
    )
    made: Any = types.FunctionType(code, {})()
    frame = made.gi_frame
    assert isinstance(frame, types.FrameType)
    return frame


_OP = dis.opmap
_LONGEST = 255  # units of a jump whose argument is one byte


def _standing(place: TracebackPlace) -> types.FrameType:
    """A frame that stands at that very instruction. Its code is as long as the user's and has the
    user's table of positions; it is that of a generator which was made there and never asked: so it
    keeps no frame of a caller alive, and what that one holds."""
    code = place.code
    length = len(code.co_code) // 2
    at = min(max(place.offset // 2, 1), length - 1)
    # As in every generator RETURN_GENERATOR comes before RESUME, here by the way of jumps: where
    # RESUME ran first, a trace function would be shown a frame whose memory the generator then
    # takes, and whoever kept it would hold what is freed. A generator that dies unasked stands at
    # its RESUME.
    units = [(_OP["NOP"], 0)] * length
    here = 0
    while here < at - 1:
        ahead = min(here + 1 + _LONGEST, at - 1)
        units[here] = (_OP["JUMP_FORWARD"], ahead - here - 1)
        here = ahead
    units[at - 1] = (_OP["RETURN_GENERATOR"], 0)
    units[at] = (_OP["RESUME"], 0)
    made = _here.__code__.replace(
        co_name=code.co_name,
        co_qualname=code.co_qualname,
        co_filename=code.co_filename,
        co_firstlineno=code.co_firstlineno,
        co_linetable=code.co_linetable,
        co_exceptiontable=b"",
        co_flags=inspect.CO_OPTIMIZED | inspect.CO_NEWLOCALS | inspect.CO_GENERATOR,
        co_stacksize=1,
        co_code=bytes(byte for unit in units for byte in unit),
    )
    generator: Any = types.FunctionType(made, place.globals)()
    frame = generator.gi_frame
    assert isinstance(frame, types.FrameType)
    return frame
