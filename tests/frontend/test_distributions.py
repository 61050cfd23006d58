"""A sample of the sweep over `torch.distributions`, and what it found in the front end."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributions as d

import windfall
from tests.conformance.distributions import Case, cases, check, missing

_SAMPLED = (
    "Normal rsample",
    "Normal number log_prob",
    "Normal log_prob unchecked",
    "Bernoulli logits entropy",
    "Categorical sample",
    "Dirichlet rsample",
    "Exponential sample of a shape",
    "Independent log_prob",
    "LogNormal rsample",
    "MixtureSameFamily log_prob",
    "MultivariateNormal log_prob",
    "TransformedDistribution affine cdf",
    "Weibull icdf",
    "Beta | Normal kl",
    "MultivariateNormal | MultivariateNormal kl",
)


def test_every_distribution_has_a_row() -> None:
    assert missing() == []


@pytest.mark.parametrize("case", [one for one in cases() if str(one) in _SAMPLED], ids=str)
def test_equal_and_in_one_graph(case: Case) -> None:
    outcome = check(case)
    assert outcome.equal in ("bits", "close")
    assert outcome.is_one_graph, (outcome.breaks, outcome.in_eager)


def test_the_sample_is_there() -> None:
    assert {str(one) for one in cases()} >= {*_SAMPLED}


def _refused(function: Any, x: torch.Tensor) -> str:
    with pytest.raises(ValueError) as found:
        function(x)
    return str(found.value)


def test_bad_parameters_are_refused_in_eagers_words() -> None:
    def density(x: torch.Tensor) -> torch.Tensor:
        return d.Normal(0.0, x).log_prob(x)

    compiled = windfall.compile(density)
    fine = torch.ones(3)
    torch.testing.assert_close(compiled(fine), density(fine))
    assert _refused(compiled, -fine) == _refused(density, -fine)
    told = windfall.explanation(compiled)
    assert len(told.graphs) == 1 and not told.breaks


def test_a_formula_that_is_registered_later_is_noticed() -> None:
    class Mine(d.Normal):
        pass

    def divergence(x: torch.Tensor) -> torch.Tensor:
        return d.kl_divergence(Mine(x, 1.0), Mine(x + 1, 1.0))

    compiled = windfall.compile(divergence)
    torch.testing.assert_close(compiled(torch.ones(3)), torch.full((3,), 0.5))

    @d.register_kl(Mine, Mine)
    def other(p: Any, q: Any) -> Any:
        return p.loc * 0 + 7

    try:
        assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 7.0))
    finally:
        d.kl._KL_REGISTRY.pop((Mine, Mine))
        d.kl._KL_MEMOIZE.clear()


@pytest.mark.parametrize("given", ["x.shape", "2, 3", "torch.Size((4,))", "", "x.shape[0]"])
def test_new_takes_sizes(given: str) -> None:
    space: dict[str, Any] = {"torch": torch}
    exec(f"def make(x):\n    return x.new({given}).zero_() + 1", space)
    compiled = windfall.compile(space["make"])
    for x in (torch.ones(2, 3), torch.ones(5, 3), torch.ones(7, 2)):
        assert torch.equal(compiled(x), space["make"](x))
    told = windfall.explanation(compiled)
    assert not told.breaks and not told.fallbacks


def test_sizes_made_of_sizes() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        shape = torch.Size([*reversed(x.shape)])
        return torch.ones(shape) * shape.numel()

    compiled = windfall.compile(f)
    for rows in (2, 5, 7):
        assert torch.equal(compiled(torch.ones(rows, 3)), f(torch.ones(rows, 3)))
    told = windfall.explanation(compiled)
    assert len(told.graphs) == 2 and not told.breaks


def test_a_table_by_pairs_of_classes() -> None:
    table = {(int, str): 2.0, (int, "x", None): 3.0}

    def f(x: torch.Tensor, kind: type) -> torch.Tensor:
        return x * table[int, kind] if (int, kind) in table else x + len(table)

    compiled = windfall.compile(f)
    x = torch.ones(3)
    for kind in (str, float, str):
        assert torch.equal(compiled(x, kind), f(x, kind))
    table[int, str] = 5.0
    assert torch.equal(compiled(x, str), x * 5)
    table[int, float] = 6.0
    assert torch.equal(compiled(x, float), x * 6)
    del table[int, str]
    assert torch.equal(compiled(x, str), x + 2)
    assert not windfall.explanation(compiled).breaks


def test_a_property_that_means_more_is_read_alike() -> None:
    class Marked(property):
        note = 1

    class Box:
        def __init__(self, held: torch.Tensor) -> None:
            self.held = held

        @Marked
        def doubled(self) -> torch.Tensor:
            return self.held * 2

    def f(x: torch.Tensor) -> torch.Tensor:
        return Box(x).doubled + 1

    compiled = windfall.compile(f)
    assert torch.equal(compiled(torch.ones(3)), f(torch.ones(3)))
    told = windfall.explanation(compiled)
    assert len(told.graphs) == 1 and not told.breaks
    Box.doubled = Marked(lambda self: self.held * 5)
    assert torch.equal(compiled(torch.ones(3)), f(torch.ones(3)))
