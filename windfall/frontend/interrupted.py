"""Where a program stood when an exception came between two of its segments, or early in one.

Enters: what a segment answered, and the exception. Leaves: the position and slots at which the
program goes on to meet it; None where it has met it already. Invariant: modes that a segment has
entered and did not hand over are left, innermost first.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from windfall import torch_abi
from windfall.errors import SEGMENT, has_passed_others, traceback_of
from windfall.frontend.entries import Entries
from windfall.frontend.state import HELD, Continue, Position
from windfall.ir.guard import AmbientIs
from windfall.ir.stages import MISS


def interrupted_at(
    result: Any,
    found: Entries | None,
    position: Position | None,
    slots: tuple[Any, ...] | None,
    call: Callable[..., Any] | None,
    error: BaseException,
) -> tuple[Position, tuple[Any, ...]] | None:
    """Where the program stood that was interrupted between two segments, or in one that had not
    come to its step; None: the program has met the exception itself."""
    if type(result) is Continue:  # the next segment was not begun
        slots, result.slots = result.slots, TAKEN
        return result.position, slots
    if position is None or slots is None or result is not MISS:  # it has come to its end
        return None
    if call is not None and not is_before_its_step(found, call, error):
        return None
    return position, slots


def left_at(
    result: Any, stands: list[Any], error: BaseException
) -> tuple[Position, tuple[Any, ...]] | None:
    """The same of a chain of segments: `result` is what it began with, `stands` what it told: where
    it was left (None: nowhere), the entry that raised there, if one did, and among which."""
    last, call, found = stands[:3]
    last = result if last is None else last
    if type(last) is not Continue or last.slots is TAKEN:  # it has come to its end
        return None
    slots, last.slots = last.slots, TAKEN  # whoever else looks at it finds that it was dealt with
    if call is not None and not is_before_its_step(found, call, error):
        return None
    return last.position, slots


def is_before_its_step(
    found: Entries | None, call: Callable[..., Any], error: BaseException
) -> bool:
    """Whether what an entry raised arose before the native step at its end; then the thread's modes
    are again as at the segment's start, which its guards know. It did not, or nobody can tell,
    where a step has no handler: what the step raises has met all others already."""
    entries = found.entries if found is not None else ()
    entry = next((one for one in entries if one.call is call), None)
    if entry is None:
        return True
    resume: Any = entry.segment.capture.resume
    if resume is not None and resume.handler is None and _is_raised_by(resume, error):
        return False
    _leave_held(error)
    for guard in entry.segment.capture.guards:
        if isinstance(guard.check, AmbientIs):
            torch_abi.set_ambient(
                guard.check.grad_enabled, guard.check.inference_mode, guard.check.autocast
            )
    return True


def _leave_held(error: BaseException) -> None:
    """Guards of inference mode that a segment has entered and did not give to the program: their
    frame would drop them in any order."""
    frame = _segment_of(error)
    if frame is not None:
        for guard in reversed(frame.f_locals.get(HELD, ())):
            guard.__exit__(None, None, None)


def _is_raised_by(resume: Any, error: BaseException) -> bool:
    """Whether the program has met it: it has passed the segment's frame; or the step does nothing
    but raise again (it leads nowhere), which puts the traceback back that the exception had: what
    comes from elsewhere has no frame but ours in front of the segment's."""
    if _segment_of(error) is not None:
        return True
    return not resume.outcomes and has_passed_others(error)


def _segment_of(error: BaseException) -> types.FrameType | None:
    """The frame of the outermost segment that an exception has passed."""
    traceback = traceback_of(error)
    while traceback is not None:
        if SEGMENT in traceback.tb_frame.f_globals:
            return traceback.tb_frame
        traceback = traceback.tb_next
    return None


TAKEN: tuple[Any, ...] = (object(),)  # stands where the slots of a `Continue` were
