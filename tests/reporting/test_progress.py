"""Subscriptions, and the line of a long compilation."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch

import windfall
from windfall.events import Event, EventKind
from windfall.reporting.progress import Progress

X = torch.linspace(-2, 2, 12).reshape(3, 4)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(stream: Any) -> str:
    """What a compilation of one stage a second writes."""
    now = iter(range(100))
    progress = Progress(lambda: float(next(now)), stream)
    for kind in (EventKind.CAPTURE, EventKind.DIFFERENTIATE, EventKind.LOWER, EventKind.BUILD):
        progress.began(kind, "model forward")
    progress.ended(Event(EventKind.ENTER, "model", 0.0))
    progress.began(EventKind.CAPTURE, "another")  # not long yet
    return str(stream.getvalue())


def test_a_long_compilation_shows_one_line_and_wipes_it() -> None:
    text = shown(Terminal())
    assert "2 s: lower of model forward" in text and "3 s: build of model forward" in text
    assert "differentiate" not in text and "another" not in text
    assert "\n" not in text and text.endswith("\r\x1b[K")


def test_nothing_where_there_is_no_terminal() -> None:
    assert shown(io.StringIO()) == ""


def test_a_stage_that_fails_wipes_it() -> None:
    now = iter([0.0, 5.0, 6.0])
    stream = Terminal()
    progress = Progress(lambda: next(now), stream)
    progress.began(EventKind.CAPTURE, "f")
    progress.began(EventKind.LOWER, "f")
    progress.ended(Event(EventKind.LOWER, "f", 0.0, facts={"raised": "it"}))
    assert stream.getvalue().endswith("\r\x1b[K")


def test_subscriptions_hear_of_all_objects() -> None:
    ended: list[str] = []
    began: list[str] = []
    with windfall.subscribe(lambda e: ended.append(e.kind), lambda kind, of: began.append(kind)):
        windfall.compile(lambda x: x.sin())(X)
        windfall.compile(lambda x: x.cos())(X)
    windfall.compile(lambda x: x.tan())(X)
    assert began.count("capture") == ended.count("capture") == 2
    assert began[0] == "capture" and "build" in ended


def test_a_subscriber_that_raises_hears_no_more() -> None:
    heard: list[str] = []

    def listener(event: Event) -> None:
        heard.append(event.kind)
        raise ValueError("mine")

    compiled = windfall.compile(lambda x: x.sin())
    with windfall.subscribe(listener), pytest.warns(RuntimeWarning, match="ValueError: mine"):
        assert torch.allclose(compiled(X), X.sin())
    assert len(heard) == 1
