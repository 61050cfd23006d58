"""Inference mode across breaks: the program holds torch's own guard, whatever is nested."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import windfall
from tests.faults.injector import Fault


@windfall.disable
def outside(seen: list[tuple[bool, bool]]) -> None:
    """A break that notes the modes it runs in."""
    seen.append((torch.is_inference_mode_enabled(), torch.is_grad_enabled()))


def _two(x: Any, seen: Any, outer: bool, inner: bool) -> Any:
    with torch.inference_mode(outer):
        y = x + 1
        outside(seen)
        with torch.inference_mode(inner):
            y = y * 2
            outside(seen)
        outside(seen)
        y = y.clone() + 3
    outside(seen)
    return y + 1


def _entered_at_once(x: Any, seen: Any, outer: bool, inner: bool) -> Any:
    with torch.inference_mode(outer), torch.inference_mode(inner), torch.inference_mode(outer):
        y = x + 1
        outside(seen)
    outside(seen)
    return y.clone() + 1


def _kept_and_entered_again(x: Any, seen: Any, outer: bool, inner: bool) -> Any:
    kept = torch.inference_mode(outer)
    with kept:
        y = x + 1
    with torch.inference_mode(inner):
        y = y.clone() * 2
        outside(seen)
        with kept:
            y = y.clone() * 2
            outside(seen)
        del kept
        outside(seen)
    outside(seen)
    return y.clone() + 1


def _raised(x: Any, seen: Any, outer: bool, inner: bool) -> Any:
    try:
        with torch.inference_mode(outer):
            y = x * 2
            outside(seen)
            with torch.inference_mode(inner):
                outside(seen)
                raise ValueError
    except ValueError:
        outside(seen)
    return y.clone() + 1


def _without_gradients(x: Any, seen: Any, outer: bool, inner: bool) -> Any:
    with torch.no_grad():
        with torch.inference_mode(outer):
            y = x * 2
            with torch.enable_grad(), torch.inference_mode(inner):
                y = y.clone() + 1
                outside(seen)
            outside(seen)
        outside(seen)
        y = y.clone() * 2
    outside(seen)
    return y.clone() + 1


def _switched_inside(x: Any, seen: Any, outer: bool, inner: bool) -> Any:
    with torch.inference_mode(outer):
        torch.set_grad_enabled(inner)
        y = x * 2
        with torch.inference_mode(inner):
            torch.set_grad_enabled(outer)
            y = y.clone() * 2
        seen.append((torch.is_inference_mode_enabled(), torch.is_grad_enabled()))
    seen.append((torch.is_inference_mode_enabled(), torch.is_grad_enabled()))
    return y.clone() + 1


def _modes() -> tuple[bool, bool]:
    return torch.is_inference_mode_enabled(), torch.is_grad_enabled()


AROUND: dict[str, Callable[[], Any]] = {
    "nothing": contextlib.nullcontext,
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
}


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("modes", list(itertools.product([False, True], repeat=2)))
@pytest.mark.parametrize(
    "function",
    [
        _two,
        _entered_at_once,
        _kept_and_entered_again,
        _raised,
        _without_gradients,
        _switched_inside,
    ],
    ids=lambda one: one.__name__,
)
def test_nested(function: Callable[..., Any], modes: tuple[bool, bool], around: str) -> None:
    compiled = windfall.compile(function)
    with AROUND[around]():
        before = _modes()
        expected_seen: list[tuple[bool, bool]] = []
        expected = function(torch.ones(2), expected_seen, *modes)
        for _ in range(2):
            seen: list[tuple[bool, bool]] = []
            got = compiled(torch.ones(2), seen, *modes)
            assert seen == expected_seen
            assert torch.equal(got, expected)
            assert got.is_inference() == expected.is_inference()
            assert _modes() == before
    assert _modes() == (False, True)


def test_leaving_after_a_break_is_one_break() -> None:
    def function(x: torch.Tensor, seen: list[Any]) -> torch.Tensor:
        with torch.inference_mode():
            y = x + 1
            outside(seen)
            y = y * 2
        return y.clone()

    compiled = windfall.compile(function)
    compiled(torch.ones(2), [])
    stops = [
        one.segment.capture.stopped.number
        for entries in compiled.entries().values()
        for one in entries
        if one.segment.capture.stopped is not None
    ]
    assert sorted(stops) == [1, 14]


@pytest.mark.parametrize("mode", [False, True])
def test_entering_the_mode_that_is_on_is_compiled(mode: bool) -> None:
    """As a module's own `inference_mode` is under the caller's."""

    @torch.inference_mode(mode)
    def function(x: torch.Tensor) -> torch.Tensor:
        return (x + 1).sin() * 2

    with torch.inference_mode(mode):
        compiled = windfall.compile(function, fullgraph=True)
        x = torch.ones(3)
        assert torch.allclose(compiled(x), function(x))
    assert not [event for event in compiled.log.snapshot() if event.kind == "fallback"]


def test_an_interrupt_at_any_line_leaves_the_mode() -> None:
    def function(x: torch.Tensor, seen: list[Any]) -> torch.Tensor:
        with torch.inference_mode():
            y = x + 1
            outside(seen)
            with torch.inference_mode(False):
                outside(seen)
        with torch.inference_mode(), torch.inference_mode(False):
            outside(seen)
        return y.clone()

    compiled = windfall.compile(function)
    compiled(torch.ones(2), [])
    for at in itertools.count(1):
        fault = Fault(KeyboardInterrupt, at)
        try:
            with fault:
                compiled(torch.ones(2), [])
        except KeyboardInterrupt:
            pass
        assert _modes() == (False, True), fault.where
        if not fault.happened:
            break
    assert at > 20
