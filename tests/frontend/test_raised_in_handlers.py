"""Exceptions that leave a handler behind a break: it is run once, and their contexts are eager's.

A handler whose exception leaves the program ends in a step that raises again. What it raised was
taken for something that had come in between, and was thrown into the handler a second time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import windfall

# What goes wrong in the `try`, natively: the handler is a segment of its own.
ARISES = {
    "call": "list(reversed(3))",
    "item": "{}[k]",
    "unpacking": "a, b = k",
    "raised": "opaque(k)",
}
# What is raised while it is handled.
LEAVES = {
    "raise": "raise ValueError('second')",
    "from": "raise ValueError('second') from e",
    "from none": "raise ValueError('second') from None",
    "again": "raise",
    "attribute": "(42).missing",
    "zero": "1 // 0",
    "key": "{'a': 1}['b']",
    "called": "helper(e)",
    "assert": "assert not e, 'second'",
}
AROUND = {
    "plain": """
    try:
        {arises}
    except Exception as e:
        seen.append(type(e).__name__)
        if len(seen) > 1: return 'twice'
        {leaves}
""",
    "finally": """
    try:
        try:
            {arises}
        except Exception as e:
            seen.append(type(e).__name__)
            if len(seen) > 1: return 'twice'
            {leaves}
    finally:
        seen.append('finally')
""",
    "with": """
    with Manager(seen):
        try:
            {arises}
        except Exception as e:
            seen.append(type(e).__name__)
            if seen.count(seen[-1]) > 1: return 'twice'
            {leaves}
""",
    "handled again": """
    try:
        try:
            {arises}
        except Exception as e:
            seen.append(type(e).__name__)
            if len(seen) > 1: return 'twice'
            {leaves}
    except (ValueError, TypeError) as e:
        seen.append(('outer', type(e).__name__))
        raise
""",
    "loop": """
    for turn in range(2):
        try:
            {arises}
        except Exception as e:
            seen.append((turn, type(e).__name__))
            if len(seen) > 2: return 'twice'
            if turn:
                {leaves}
""",
    "tensors": """
    x = x * 2
    try:
        {arises}
    except Exception as e:
        x = x + 1
        seen.append(type(e).__name__)
        if len(seen) > 1: return 'twice'
        {leaves}
""",
}


class Manager:
    def __init__(self, seen: list[Any]) -> None:
        self.seen = seen

    def __enter__(self) -> None:
        self.seen.append("enter")

    def __exit__(self, kind: Any, *rest: object) -> None:
        self.seen.append(("exit", None if kind is None else kind.__name__))


@torch.compiler.disable
def _opaque(k: object) -> None:
    raise RuntimeError("first")


def _helper(e: object) -> None:
    raise LookupError("second")


def _chain(error: BaseException | None) -> list[Any]:
    found: list[Any] = []
    while error is not None:
        found.append((type(error).__name__, str(error), repr(error.__cause__)))
        error = error.__context__
    return found


def _program(around: str, arises: str, leaves: str) -> Callable[..., Any]:
    body = AROUND[around].format(arises=ARISES[arises], leaves=LEAVES[leaves])
    names: dict[str, Any] = {"Manager": Manager, "opaque": _opaque, "helper": _helper}
    exec(f"def program(x, k, seen):\n    x = x + 1{body}    return x, seen\n", names)
    return names["program"]  # type: ignore[no-any-return]


def _outcome(function: Callable[..., Any]) -> Any:
    seen: list[Any] = []
    try:
        return "answer", function(torch.ones(2), 5, seen), seen
    except Exception as error:
        return _chain(error), seen


@pytest.mark.parametrize("leaves", LEAVES)
@pytest.mark.parametrize("arises", ARISES)
@pytest.mark.parametrize("around", AROUND)
def test_a_handler_behind_a_break_is_run_once(around: str, arises: str, leaves: str) -> None:
    program = _program(around, arises, leaves)
    compiled = windfall.compile(program)
    expected = _outcome(program)
    for _ in range(2):
        assert _outcome(compiled) == expected
    assert windfall.explanation(compiled).graphs, "nothing was compiled"
