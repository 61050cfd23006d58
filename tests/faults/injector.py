"""A fault at a chosen line: a trace function that raises.

Enters: which exception, and at which line event of windfall's own sources (counted from one).
Leaves: the exception, raised there, once; the trace function is then gone. Invariant: the same
program and the same number is the same line, so that what fails can be repeated.

The exit of a `with` statement is no place for a fault: CPython looks for signals between the end of
the body and `__exit__` nowhere, so that no interrupt comes there, and no statement can protect
itself against one (bpo-29988). Nor is a line that does nothing, as `try:` is: CPython leaves that
of an inner one out of the range that the outer one protects. The next line is taken instead.

    >>> fault = Fault(KeyboardInterrupt, 120)
    >>> with fault: ...
    >>> fault.where
    'windfall/frontend/capture_run.py:131 capture'
"""

from __future__ import annotations

import dis
import functools
import os
import sys
from types import CodeType, FrameType, TracebackType
from typing import Any

import windfall

_HOME = os.path.dirname(os.path.abspath(windfall.__file__)) + os.sep


class Fault:
    """While entered, the line event number `at` raises `kind`; without `at`, lines are counted."""

    def __init__(self, kind: type[BaseException], at: int | None = None) -> None:
        self.kind = kind
        self.at = at
        self.lines = 0
        self.where = ""

    def __enter__(self) -> Fault:
        self._before = sys.gettrace()
        sys.settrace(self._on_call)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        sys.settrace(self._before)

    @property
    def happened(self) -> bool:
        """Whether the program came to the line."""
        return bool(self.where)

    def _on_call(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._on_line if _is_ours(frame.f_code) else None

    def _on_line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self.lines += 1
            due = self.at is not None and self.lines >= self.at and not self.happened
            if due and frame.f_lasti not in _untouchable(frame.f_code):
                name = frame.f_code.co_filename[len(_HOME) :]
                self.where = f"windfall/{name}:{frame.f_lineno} {frame.f_code.co_qualname}"
                sys.settrace(None)
                raise self.kind(f"injected at {self.where}")
        return self._on_line


@functools.cache
def _is_ours(code: CodeType) -> bool:
    return os.path.abspath(code.co_filename).startswith(_HOME)


@functools.cache
def _untouchable(code: CodeType) -> frozenset[int]:
    """Where the exits of `with` statements begin, and where nothing is done."""
    instructions = [one for one in dis.get_instructions(code) if one.opname != "CACHE"]
    found = set()
    for index, one in enumerate(instructions):
        index += one.opname == "SWAP"  # `return` inside of `with`: the value waits on the stack
        following = [other.opname for other in instructions[index : index + 4]]
        nones = all(other.argval is None for other in instructions[index : index + 3])
        normal = following[:3] == ["LOAD_CONST"] * 3 and nones and following[3] in _CALLS
        if one.opname == "NOP" or normal or following[:2] == ["PUSH_EXC_INFO", "WITH_EXCEPT_START"]:
            found.add(one.offset)
    return frozenset(found)


_CALLS = ("PRECALL", "CALL")
