"""`fullgraph=True`: the error shows the user's stack, a number, what to change; nothing has run."""

from __future__ import annotations

import io
import random
import re
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any

import pytest
import torch

import windfall
from windfall.frontend.breaks import REASONS

X = torch.linspace(-1, 1, 6)
EVENTS: list[str] = []


def helper(x: torch.Tensor) -> torch.Tensor:
    EVENTS.append("helper")
    print("seen", x.shape)  # the line
    return x + 1


def nested(x: torch.Tensor) -> torch.Tensor:
    EVENTS.append("nested")
    x.add_(1)
    return helper(x) * 2


def test_nothing_runs_before_the_error_and_nothing_runs_twice_without_it() -> None:
    EVENTS.clear()
    x = X.clone()
    with redirect_stdout(io.StringIO()) as printed, pytest.raises(windfall.BreakError):
        windfall.compile(nested, fullgraph=True)(x)
    assert not EVENTS and not printed.getvalue() and torch.equal(x, X)
    with redirect_stdout(io.StringIO()) as printed:
        result = windfall.compile(nested)(x)
    assert EVENTS == ["nested", "helper"] and printed.getvalue().count("seen") == 1
    torch.testing.assert_close(result, (X + 2) * 2)


def test_the_message_is_the_users_stack_the_reason_its_number_and_a_hint() -> None:
    with pytest.raises(windfall.BreakError) as raised:
        windfall.compile(nested, fullgraph=True)(X.clone())
    text, error = str(raised.value), raised.value
    assert re.search(r'File ".*test_fullgraph.py", line \d+, in nested\n +return helper', text)
    assert re.search(r'in helper\n +print\("seen", x.shape\)  # the line', text)
    assert "W0001" in text and REASONS[1].title in text and REASONS[1].hint in text
    assert error.number == 1 and [one.function for one in error.stack] == ["nested", "helper"]
    assert "windfall/" not in text


def reads_data(x: torch.Tensor) -> torch.Tensor:
    return x * int(x.sum().item())


def branches(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if x.sum() > 0 else x - 1


def random_number(x: torch.Tensor) -> torch.Tensor:
    return x * len(open(__file__).readline())


def asks_for_a_break(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    windfall.graph_break()
    return y * 2


def sees_its_frame(x: torch.Tensor) -> torch.Tensor:
    return x * len(locals())


def imports(x: torch.Tensor) -> torch.Tensor:
    import nturl2path

    return x * len(nturl2path.__name__)


@windfall.disable(reason="it is slow")
def disabled(x: torch.Tensor) -> torch.Tensor:
    return x.sin()


def calls_disabled(x: torch.Tensor) -> torch.Tensor:
    return disabled(x) + 1


CASES: dict[str, tuple[Callable[..., Any], set[int], str]] = {
    "a print": (helper, {1}, "print"),
    "an item": (reads_data, {3}, "item"),
    "a branch on data": (branches, {2}, "x.sum"),
    "a file": (random_number, {1}, "open"),
    "an asked break": (asks_for_a_break, {40}, "graph_break"),
    "locals": (sees_its_frame, {21}, "locals"),
    "an import": (imports, {19}, "nturl2path"),
    "a disabled function": (calls_disabled, {14}, "it is slow"),
}


@pytest.mark.parametrize("name", CASES)
def test_each_reason_names_its_line(name: str) -> None:
    function, numbers, word = CASES[name]
    with pytest.raises(windfall.BreakError) as raised:
        windfall.compile(function, fullgraph=True, dynamic=False)(X)
    assert raised.value.number in numbers
    assert word in str(raised.value) and raised.value.stack[0].function == function.__name__
    assert REASONS[raised.value.number].hint in str(raised.value)


def test_the_error_comes_again_at_every_call() -> None:
    compiled = windfall.compile(branches, fullgraph=True)
    for _ in range(2):
        with pytest.raises(windfall.BreakError):
            compiled(X)


def test_an_exception_of_the_program_is_its_own() -> None:
    def raising(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] == 6:
            raise ValueError("six")
        return x

    compiled = windfall.compile(raising, fullgraph=True, dynamic=False)
    with pytest.raises(ValueError, match="six"):
        compiled(X)
    assert torch.equal(compiled(X[:3]), X[:3])


def test_a_call_that_cannot_be_entered_at_all_is_an_error_too() -> None:
    class Strange:
        __call__ = property(lambda self: random.random)

    with pytest.raises(windfall.BreakError):
        windfall.compile(Strange(), fullgraph=True)()


def test_a_program_of_one_graph_is_not_refused() -> None:
    compiled = windfall.compile(lambda x: (x.sin() + 1).sum(), fullgraph=True)
    torch.testing.assert_close(compiled(X), (X.sin() + 1).sum())
