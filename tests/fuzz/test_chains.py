"""Chains of operations: compiled and uncompiled agree in all that a user sees."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import windfall
from tests.fuzz import chains
from tests.fuzz.chains import Chain, Plan, Problem, chain, compared, problems, shrunk

SAMPLE = range(12)
MANY = range(1000, 2000)
BATCH = 50


def check(seeds: range, size: int) -> None:
    graphs = fallbacks = 0
    for seed in seeds:
        made = chain(seed, size)
        found, explained = problems(made)
        news = [one for one in found if not one.open]
        assert not news, f"\nseed {seed} {made.recipe}\n{made.source}\n{news[0]}"
        assert explained.graphs or explained.breaks, f"nothing says how it ran\n{made.source}"
        graphs += len(explained.graphs)
        fallbacks += len(explained.fallbacks)
    assert graphs > 3 * len(seeds)
    assert fallbacks < graphs / 3  # eager ran few of the calls


def test_chains_are_as_in_eager() -> None:
    check(SAMPLE, 7)


@pytest.mark.conformance
@pytest.mark.parametrize("start", MANY[::BATCH])
def test_many_chains_are_as_in_eager(start: int) -> None:
    check(range(start, start + BATCH), 7)


@pytest.mark.conformance
def test_long_chains_are_as_in_eager() -> None:
    check(range(5000, 5100), 14)


def test_a_seed_is_one_program() -> None:
    assert chain(3) == chain(3)
    assert chain(3).source != chain(4).source


@pytest.mark.parametrize(
    ("changed", "aspect"),
    [
        (lambda tensor: tensor + 1, "value"),
        (lambda tensor: tensor.double(), "metadata"),
        (lambda tensor: tensor[None], "metadata"),
        (lambda tensor: tensor.t().contiguous().t(), "strides"),
        (lambda tensor: tensor.uniform_(), "random"),
        (lambda tensor: tensor.no_such_thing, "error"),
    ],
)
def test_a_difference_is_seen(changed: Any, aspect: str) -> None:
    recipe = chains.Recipe((chains.Argument((3, 4), torch.float32, False),), (3, 4), False, False)
    made = Chain(0, recipe, ("v0 = x0+1.5",), ("v0",))
    program = made.function()
    assert compared(made, 0, Plan(0), program) == []
    found = compared(made, 0, Plan(0), lambda x: tuple(changed(one) for one in program(x)))
    assert aspect in [one.aspect for one in found]
    assert not any(one.open for one in found)


def test_a_chain_is_shrunk_to_what_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    made = chain(1)
    wanted = made.lines[3]

    def found(candidate: Chain) -> tuple[list[Problem], windfall.Explanation | None]:
        return [Problem("value", 0, "")] if wanted in candidate.lines else [], None

    monkeypatch.setattr(chains, "problems", found)
    smaller = shrunk(made, Problem("value", 0, ""))
    assert smaller.lines == (wanted,)
    assert len(smaller.returned) == 1
