"""Records of real compilations, for tests that go through all of them.

Enters: programs. Leaves: every record that a stage of their compilation returned. Invariant:
forward and backward, inference and training are among them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

import windfall
from examples.models import RECIPES

Labelled = tuple[str, Any, dict[str, Any]]  # subject, record, the live objects that it names

# What these return is a call, or stays inside of its room (`divide`).
CALLS = ("bind", "enter", "backend", "subgraphs", "divide")


def records(function: Callable[..., Any], *args: Any) -> Iterator[Labelled]:
    """Of a function that answers one tensor, and of its backward pass if it has one."""
    torch.manual_seed(0)
    compiled: Any = windfall.compile(function, options={"records": True})
    result = compiled(*args)
    if isinstance(result, torch.Tensor) and result.requires_grad:
        result.sum().backward()
    yield from of_compiled(compiled, {"target": function})


def of_compiled(compiled: Any, live: dict[str, Any]) -> Iterator[Labelled]:
    """Of what has run with `records`."""
    for event in windfall.explanation(compiled).events:
        if event.record is not None and event.kind not in CALLS:
            yield f"{event.kind} of {event.subject}", event.record, live


@functools.cache
def model_records(name: str) -> tuple[Labelled, ...]:
    """Of a model: inference, then training."""
    recipe = RECIPES[name]()
    with torch.no_grad():
        inference = tuple(records(recipe.model(), *recipe.inputs(2)))
    return inference + tuple(records(recipe.objective(), *recipe.batch(2)))
