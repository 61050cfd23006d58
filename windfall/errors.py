"""The three ways in which something goes wrong, and whose turn it is then.

Enters: a fact found by any room. Leaves: an exception whose class says who acts:

* `UserError`: the call is wrong; the message names what is accepted, or the user's line.
* `Unsupported`: windfall cannot compile this step; the caller runs it eagerly and counts it.
* `InternalError`: always our bug; the caller falls back to eager (unless `strict`) and reports it.

Invariant: no room catches `Exception` to hide it; whoever catches one of these also counts it.
"""

from __future__ import annotations

import contextlib
import gc
import inspect
import os
from types import FrameType, TracebackType
from typing import Any

from windfall.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class SourceLine:
    """One line of the user's program, as a traceback would name it."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


class WindfallError(Exception):
    """The base of every exception that windfall raises by itself."""


class UserError(WindfallError):
    """The user's call is wrong; the message says what is accepted."""


class BreakError(UserError):
    """`fullgraph=True`, and the program cannot be one graph: `number` is the reason's row, `stack`
    the user's frames at the place, outermost first."""

    def __init__(self, text: str, number: int, stack: tuple[SourceLine, ...]) -> None:
        super().__init__(text)
        self.number = number
        self.stack = stack

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.args[0], self.number, self.stack)


class BackendError(WindfallError, RuntimeError):
    """The backend that the user named raised; its own exception is the cause."""


class MismatchError(WindfallError, AssertionError):
    """`verify=N`: eager and compiled part; the text says where. `differences` are told one by one,
    `stage` and `operations` where they were found."""

    def __init__(
        self,
        text: str,
        differences: tuple[str, ...] = (),
        stage: str = "",
        operations: tuple[str, ...] = (),
    ) -> None:
        super().__init__(text)
        self.differences = differences
        self.stage = stage
        self.operations = operations

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.args[0], self.differences, self.stage, self.operations)


class RecompileError(UserError, RuntimeError):
    """A call would be compiled although the stance or a limit forbids it."""


class Unsupported(WindfallError):
    """One step that windfall cannot compile: a numbered reason and where it stands.

    `number` is a row of `frontend/breaks.py` (or of another room's table of the same shape);
    `detail` is the particular of this occurrence.
    """

    def __init__(self, number: int, detail: str, where: SourceLine | None = None) -> None:
        super().__init__(number, detail)
        self.number = number
        self.detail = detail
        self.where = where

    def __str__(self) -> str:
        place = f" ({self.where})" if self.where else ""
        return f"W{self.number:04d}: {self.detail}{place}"


class Specialise(Unsupported):
    """A step that needs the value of sizes (`names` of symbols) that were taken as varying: the
    caller compiles again with these fixed."""

    def __init__(self, names: frozenset[str], detail: str, where: SourceLine | None = None) -> None:
        super().__init__(103, f"{detail} needs the value of {', '.join(sorted(names))}", where)
        self.names = names
        self.sources: frozenset[str] = frozenset()  # where these are read, once that is known
        self.passing = False  # because of what the value is now: others may do without
        self.edge = False  # namely because something made of it is 0 or 1


class Narrow(Specialise):
    """A number that varies is used as a size: the caller compiles again, knowing that it is one."""


class Counts(WindfallError):
    """The program writes numbers that it has read, as counters are: the caller compiles again,
    knowing that what stands at these sources varies."""

    def __init__(self, sources: frozenset[str]) -> None:
        super().__init__(f"counted: {', '.join(sorted(sources))}")
        self.sources = sources


class LeaveReal(WindfallError):
    """An iterator that was followed must be CPython's own object after all: the caller compiles
    again, knowing the place at which it is made, and it is made natively there."""

    def __init__(self, place: str) -> None:
        super().__init__(f"an iterator that must be CPython's own: {place}")
        self.place = place


class InternalError(WindfallError):
    """A broken invariant of windfall's own."""


class UnfitInput(WindfallError):
    """A program was given a tensor that it was not compiled for, and has done nothing: whoever
    called lets eager do it, and counts that."""


class InputsWritten(WindfallError, RuntimeError):
    """A compiled graph failed after it had written inputs in place: eager cannot begin again. What
    may refuse data never comes so late, so that memory has run out."""


class GraphFailed(WindfallError):
    """A compiled graph came to no end, because of its data, and nobody has seen anything of it:
    whoever called the entry lets eager run the same from its start. It never reaches the program
    (ADR 0027). `error` is what the graph raised, if that was an exception."""

    def __init__(self, text: str, error: Exception | None = None) -> None:
        super().__init__(text)
        self.error = error

    def raise_internal(self) -> None:
        """Raise what the graph raised, if that is a mistake of ours."""
        if isinstance(self.error, InternalError):
            raise self.error


_FIELDS: dict[str, Any] = {
    name: vars(BaseException)[name]
    for name in ("__traceback__", "__cause__", "__context__", "__suppress_context__")
}


def exception_field(error: BaseException, name: str) -> Any:
    """Traceback, cause or context of the program's exception, as CPython reads it: not as an
    attribute, which would run a `__getattribute__` or a property of its class."""
    return _FIELDS[name].__get__(error)


def set_exception_field(error: BaseException, name: str, value: Any) -> None:
    """The same, written: past a `__setattr__` of its class."""
    _FIELDS[name].__set__(error, value)


def traceback_of(error: BaseException) -> TracebackType | None:
    """The traceback of the program's exception, for generated source."""
    found: TracebackType | None = exception_field(error, "__traceback__")
    return found


def set_traceback(error: BaseException, traceback: TracebackType | None) -> None:
    """Likewise written: CPython adds to it wherever an exception passes one of our frames."""
    set_exception_field(error, "__traceback__", traceback)


_HERE = os.path.dirname(__file__) + os.sep


def hide_our_frames(error: BaseException) -> None:
    """Take windfall's own frames out of an exception's traceback, and out of those of its causes:
    who looks at it sees the program's lines. An `InternalError` keeps them.

    A frame that catches an exception, calls this and says `raise`, no more, is not seen: Python
    adds a frame where an exception is raised or passes, not where it is raised again.

    The program's frames in between were called by ours, and name them as their callers: those let
    go of what they hold. It may be the exception itself, and all of that would wait for the
    garbage collector. So does the frame of a segment that holds an exception: where the program
    only says `raise`, its source gives it a name.

    What comes in between (an interrupt) is raised, once the frames have let go: nobody would come
    back to them, and the exception is its context.
    """
    try:
        _hide(error)
    except BaseException as interrupt:
        _hide(interrupt)
        _hide(error)
        raise


def _hide(error: BaseException) -> None:
    seen: set[int] = set()
    walked: set[FrameType] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen and not issubclass(type(one), InternalError):
        seen.add(id(one))
        traceback = _of_others(traceback_of(one))
        set_traceback(one, traceback)
        _empty_callers(traceback, walked)
        cause = exception_field(one, "__cause__")
        one = cause if cause is not None else exception_field(one, "__context__")


def has_passed_others(error: BaseException) -> bool:
    """Whether a frame that is not ours is in its traceback."""
    traceback = traceback_of(error)
    while traceback is not None and _is_ours(traceback):
        traceback = traceback.tb_next
    return traceback is not None


def _is_ours(traceback: TracebackType) -> bool:
    return traceback.tb_frame.f_code.co_filename.startswith(_HERE)


def _empty_callers(traceback: TracebackType | None, walked: set[FrameType]) -> None:
    """Clear those of our frames that have ended and that frames of a traceback lead back to. The
    callers of one that was walked to were walked to: a deep recursion has as many as callees."""
    while traceback is not None:
        _empty_segment(traceback.tb_frame)
        frame = traceback.tb_frame.f_back
        while frame is not None and frame not in walked:
            walked.add(frame)
            code = frame.f_code
            if code.co_filename.startswith(_HERE) and not code.co_flags & inspect.CO_GENERATOR:
                try:
                    frame.clear()
                except RuntimeError:  # it runs, and so do its callers
                    break
            frame = frame.f_back
        traceback = traceback.tb_next


SEGMENT = "windfall segment"  # in the globals of generated source


def _empty_segment(frame: FrameType) -> None:
    # `f_locals` would make a copy that stays.
    kinds = (BaseException, TracebackType)
    if SEGMENT in frame.f_globals and any(
        issubclass(type(one), kinds)  # past `__class__`, which a dead weak proxy refuses to tell
        for one in gc.get_referents(frame)
    ):
        with contextlib.suppress(RuntimeError):  # it runs: it called what is compiled by itself
            frame.clear()


def _of_others(traceback: TracebackType | None) -> TracebackType | None:
    first: TracebackType | None = None
    last: TracebackType | None = None
    while traceback is not None:
        if not _is_ours(traceback):
            first = first or traceback
            if last is not None and last.tb_next is not traceback:
                last.tb_next = traceback
            last = traceback
        traceback = traceback.tb_next
    if last is not None:
        last.tb_next = None
    return first
