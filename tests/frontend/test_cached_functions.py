"""Functions behind `functools.lru_cache`: what the cache holds is the answer, whatever it holds.

That may be an object it has handed out before, which somebody has written since; what the function
gave when a global, a default, the code were others; what it gave for an argument that is equal to
this one (`True` for 1). So each call is CPython's: where a pure function answers constants with a
constant, that answer is expected (no break), and eager does the call should there be another one;
all else is a break."""

from __future__ import annotations

import functools
import types
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


# Of these the answers are not foretold: no constants, or no answer.
BREAKS = {
    *("a list that is written", "a list that others write", "a dict", "a set in a tuple"),
    *("an iterator", "refused", "too many"),
}


def _change(how: str, cached: Any, function: Any) -> None:
    global ADDED
    for one in filter(None, how.split("; ")):
        if one == "clear":
            cached.cache_clear()
        elif one.startswith("global"):
            ADDED = int(one.split()[1])
        else:
            exec(one, {"c": cached, "f": function})


def _outcomes(case: str, typed: bool, made: Callable[..., Any]) -> tuple[list[Any], list[Any]]:
    """What each call has given, and what the cache has counted behind it."""
    function, use, changes = CASES[case]
    own = type(function)(function.__code__, globals(), "own", function.__defaults__)
    cached = functools.lru_cache(typed=typed)(own)
    program = made(lambda x: (x + 1, use(cached)))
    found: list[Any] = []
    counted: list[Any] = []
    for how in ("", *changes):
        _change(how, cached, own)
        try:
            found.append(repr(program(torch.ones(2))))
        except Exception as error:
            found.append((type(error), str(error)))
        counted.append(cached.cache_info())
    return found, counted


@pytest.mark.parametrize("typed", [False, True], ids=["untyped", "typed"])
@pytest.mark.parametrize("case", CASES)
def test_the_cache_answers(case: str, typed: bool) -> None:
    compiled = []

    def made(function: Callable[..., Any]) -> Any:
        compiled.append(windfall.compile(function, backend="eager"))
        return compiled[0]

    found, counted = _outcomes(case, typed, made)
    expected, counted_in_eager = _outcomes(case, typed, lambda function: function)
    assert found == expected
    told = windfall.explanation(compiled[0])
    assert told.graphs
    if case in BREAKS:
        assert any("cached function" in one.detail for one in told.breaks)
    else:
        assert not told.breaks
    # Where another answer was expected, the cache is asked twice.
    each_two = zip(counted, counted_in_eager, strict=True)
    asked_twice = [mine.hits - eagers.hits for mine, eagers in each_two]
    assert min(asked_twice) >= 0 and any(asked_twice) == bool(told.fallbacks)
    without_hits = [[one._replace(hits=0) for one in each] for each in (counted, counted_in_eager)]
    assert without_hits[0] == without_hits[1]


def test_nothing_is_done_twice_where_another_answer_was_expected() -> None:
    """Behind a break, after effects of the same segment and of the one before."""
    plus = types.FunctionType((lambda k: k + ADDED).__code__, {"ADDED": 1})
    cached = functools.lru_cache(plus)

    def program(x: Any, log: list[Any]) -> Any:
        log.append(cached(3))
        x.add_(1)
        windfall.graph_break()
        log.append("behind")
        x.mul_(2)
        size = cached(4)
        return x.expand(size, 2).sum(0), size

    compiled = windfall.compile(program)
    for added in (1, 1, 2, 3, 3):
        plus.__globals__["ADDED"] = added
        if added != 3:  # else the cache holds what it has held
            cached.cache_clear()
        outcomes = []
        for function in (program, compiled):
            x, log = torch.ones(2), []
            outcomes.append((str(function(x, log)), str(x), log))
        assert outcomes[0] == outcomes[1]
    told = windfall.explanation(compiled)
    assert {one.number for one in told.breaks} == {40}  # the program's own
    assert all("its cache answers something else" in one for one in told.fallbacks)
    assert told.fallbacks


@functools.lru_cache
def factorial(n: int) -> int:
    return n * factorial(n - 1) if n > 1 else 1


def test_one_that_calls_itself() -> None:
    """Only what the program calls is asked: the cache asks the rest, where it has to."""
    compiled = windfall.compile(lambda x: x * factorial(5) + factorial(3))
    counts = []
    for function in (lambda x: x * factorial(5) + factorial(3), compiled):
        factorial.cache_clear()
        outcomes = [function(torch.ones(2)).tolist() for _ in range(2)]
        counts.append((outcomes, factorial.cache_info()))
    assert counts[0] == counts[1]
    told = windfall.explanation(compiled)
    assert not told.breaks and not told.fallbacks


def test_a_table_of_sizes_in_training() -> None:
    @functools.cache
    def heads(width: int, *, each: int = 4) -> tuple[int, int]:
        return width // each, each

    def program(x: torch.Tensor) -> torch.Tensor:
        return x.reshape(-1, *heads(8)).sin().sum(-1) * heads(8, each=2)[0]

    compiled = windfall.compile(program, fullgraph=True)
    for rows in (2, 3, 4):
        x = torch.randn(rows, 8, requires_grad=True)
        expected, result = program(x), compiled(x)
        torch.testing.assert_close(result, expected)
        gradients = [torch.autograd.grad(one.sum(), x)[0] for one in (result, expected)]
        torch.testing.assert_close(*gradients)
    assert not windfall.explanation(compiled).fallbacks
