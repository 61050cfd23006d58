"""Functions behind `functools.lru_cache`: what the cache holds is the answer, whatever it holds.

That may be an object it has handed out before, which somebody has written since; what the function
gave when a global, a default, the code were others; what it gave for an argument that is equal to
this one (`True` for 1). So each call is CPython's, and counted as a break."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import windfall

ADDED = 1


def counts_up(cached: Any) -> Any:
    cached(1).append(0)
    return len(cached(1))


def takes(cached: Any) -> Any:
    return next(cached(1), "empty")


# What is cached, what the program does with it, and what changes before each further call.
CASES: dict[str, tuple[Callable[..., Any], Callable[[Any], Any], tuple[str, ...]]] = {
    "a list that is written": (lambda k: [k], counts_up, ("", "clear", "")),
    "a list that others write": (
        lambda k: list(range(k)), lambda c: sum(c(3)), ("c(3).append(10)", "c(3)[0] = 7", "clear"),
    ),
    "a dict": (lambda k: {k: 1}, lambda c: c(3).setdefault("n", len(c(3))), ("", "c(3).clear()")),
    "a set in a tuple": (lambda k: ({k},), lambda c: (c(1)[0].add(2), c(1)), ("", "clear")),
    "an iterator": (lambda k: enumerate([k, 2]), takes, ("", "", "clear")),
    "one object": (lambda k: (k, 1), lambda c: (c(1) is c(1), c(1) == (1, 1)), ("", "clear")),
    "one float": (lambda k: k * 1.5, lambda c: c(3) is c(3), ("",)),
    "a global": (lambda k: k + ADDED, lambda c: c(1), ("global 10", "clear", "global 1")),
    "a default": (lambda k, m=2: k + m, lambda c: c(1), ("f.__defaults__ = (50,)", "clear")),
    "the code": (
        lambda k: k + 1, lambda c: c(1), ("f.__code__ = (lambda k: k * 9).__code__", "clear"),
    ),
    "equal arguments": (lambda k: str(k), lambda c: [c(1), c(True), c(1.0)], ("", "clear", "")),
    "asked before": (lambda k: str(k), lambda c: c(1), ("clear", "clear; c(True)", "clear")),
    "what is wrapped": (
        lambda k: k + 1, lambda c: c(1), ("c.__wrapped__ = lambda k: 100", "clear"),
    ),
    "refused": (lambda k: 1 // k, lambda c: c(0), ("",)),
    "too many": (lambda k: k, lambda c: c(0, 1), ("",)),
    "counted": (lambda k: k + 1, lambda c: c(1) + c(2) + c(1), ("", "clear", "")),
}  # fmt: skip


def _change(how: str, cached: Any, function: Any) -> None:
    global ADDED
    for one in filter(None, how.split("; ")):
        if one == "clear":
            cached.cache_clear()
        elif one.startswith("global"):
            ADDED = int(one.split()[1])
        else:
            exec(one, {"c": cached, "f": function})


def _outcomes(case: str, typed: bool, made: Callable[..., Any]) -> list[Any]:
    function, use, changes = CASES[case]
    own = type(function)(function.__code__, globals(), "own", function.__defaults__)
    cached = functools.lru_cache(typed=typed)(own)
    program = made(lambda x: (x + 1, use(cached)))
    found: list[Any] = []
    for how in ("", *changes):
        _change(how, cached, own)
        try:
            found.append(repr(program(torch.ones(2))))
        except Exception as error:
            found.append((type(error), str(error)))
        found.append(cached.cache_info())
    return found


@pytest.mark.parametrize("typed", [False, True], ids=["untyped", "typed"])
@pytest.mark.parametrize("case", CASES)
def test_the_cache_answers(case: str, typed: bool) -> None:
    compiled = []

    def made(function: Callable[..., Any]) -> Any:
        compiled.append(windfall.compile(function, backend="eager"))
        return compiled[0]

    assert _outcomes(case, typed, made) == _outcomes(case, typed, lambda function: function)
    told = windfall.explanation(compiled[0])
    assert told.graphs and any("cached function" in one.detail for one in told.breaks)
