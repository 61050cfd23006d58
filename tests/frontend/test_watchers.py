"""Functions that look at frames: they, and all that they call, have frames of their own.

Each program stands between operations on tensors; what it sees of frames is eager's, and the reason
why it was called natively is the one of its own. What only passes exceptions on is captured.
"""

from __future__ import annotations

import inspect
import sys
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch

import windfall
from tests.frontend.ways import way


def _raises(value: int) -> float:
    local = value
    return local / 0


def _chain(value: int) -> float:
    middle = value + 1
    return _raises(middle)


def callers() -> Any:
    def deeper() -> list[str]:
        frames = traceback.walk_stack(sys._getframe())
        return [frame.f_code.co_name for frame, _ in frames][:3]

    return deeper()


def stack() -> Any:
    def inner() -> list[str]:
        return traceback.format_stack()[-2:]

    return inner()


def extracted() -> Any:
    return [one.name for one in traceback.extract_stack()][-1]


def captured_locals() -> Any:
    def inner(k: int, v: int) -> Any:
        a, b = 1, 2  # noqa: F841
        return traceback.StackSummary.extract(
            traceback.walk_stack(None), capture_locals=True, limit=1
        )

    return [one.locals for one in inner(3, 4)]


def locals_of_a_traceback() -> Any:
    try:
        _chain(1)
    except ZeroDivisionError as error:
        found, trace = [], error.__traceback__
        while trace is not None:
            found.append((trace.tb_frame.f_code.co_name, trace.tb_frame.f_lineno))
            if trace.tb_frame.f_code.co_name.startswith("_"):
                found.append(dict(trace.tb_frame.f_locals))
            trace = trace.tb_next
        return found


def own_frame() -> Any:
    a, b = 1, 2  # noqa: F841
    frame = inspect.currentframe()
    assert frame is not None
    del b
    return frame.f_lineno, sorted(frame.f_locals), frame.f_code.co_name


def name_of_the_caller() -> Any:
    def asks() -> str:
        return sys._getframe(1).f_code.co_name

    return asks()


def origin_of_a_coroutine() -> Any:
    async def waiting() -> None:
        pass

    before = sys.get_coroutine_origin_tracking_depth()
    sys.set_coroutine_origin_tracking_depth(2)
    made = waiting()
    origin = next((line, name) for _, line, name in made.cr_origin or ())
    made.close()
    sys.set_coroutine_origin_tracking_depth(before)
    return origin


LOOKING = [
    callers, stack, extracted, captured_locals, locals_of_a_traceback, own_frame,
    name_of_the_caller, origin_of_a_coroutine,
]  # fmt: skip


def _between(look: Callable[[], Any], x: torch.Tensor) -> Any:
    y = x + 1
    seen = look()
    return seen, y * 2


@pytest.mark.parametrize("look", LOOKING)
def test_what_is_seen_of_frames(look: Callable[[], Any]) -> None:
    compiled = windfall.compile(_between, backend="eager", options={"strict": True})
    x = torch.ones(2)
    seen, y = compiled(look, x)
    expected = _between(look, x)
    assert str(seen) == str(expected[0])
    assert torch.equal(y, expected[1])
    assert way(compiled) == "W0043"


@pytest.mark.parametrize("look", LOOKING)
def test_a_compiled_function_that_looks_itself(look: Callable[[], Any]) -> None:
    compiled = windfall.compile(look, backend="eager")
    expected, seen = look(), compiled()
    if look is not callers:  # whose caller is ours
        assert str(seen) == str(expected)
    assert "W0043" in str(windfall.explanation(compiled).fallbacks)


def test_vars_without_an_argument_are_the_frame_s() -> None:
    def inner(a: int, x: torch.Tensor) -> Any:
        b = a + 1
        c = b * 2
        return sorted(vars()), c

    def program(x: torch.Tensor) -> Any:
        y = x + 1
        return inner(3, y), y

    compiled = windfall.compile(program, backend="eager", options={"strict": True})
    x = torch.ones(2)
    assert str(compiled(x)) == str(program(x))


def test_what_only_handles_exceptions_is_captured() -> None:
    def program(x: torch.Tensor) -> Any:
        try:
            _chain(1)
        except ZeroDivisionError as error:
            return str(error), error.__traceback__ is None, x + 1

    compiled = windfall.compile(program, backend="eager", options={"strict": True})
    x = torch.ones(2)
    assert str(compiled(x)) == str(program(x))
    assert way(compiled) == "compiled"
