"""The comparison itself can fail, and forgives what it says it forgives."""

from __future__ import annotations

import pytest
import torch

from tests.models.agreement import assert_results_agree, assert_values_agree

EXACT = torch.linspace(0.5, 1.5, 8, dtype=torch.float64)
EAGER = EXACT.float()


def agree(actual: torch.Tensor, eager: torch.Tensor = EAGER, others: object = tuple) -> None:
    assert_values_agree({"x": actual}, {"x": eager}, {"x": EXACT}, others)  # type: ignore[arg-type]


def test_rounding_is_forgiven() -> None:
    agree(EAGER * (1 + 3e-5))


@pytest.mark.parametrize("factor", [1.001, float("nan"), float("inf")])
def test_a_wrong_value_is_not(factor: float) -> None:
    wrong = EAGER.clone()
    wrong[3] *= factor
    with pytest.raises(AssertionError, match="x: off by"):
        agree(wrong)


def test_where_eager_is_off_we_may_be_off_as_much() -> None:
    agree(EAGER - 0.015, eager=EAGER + 0.01)
    with pytest.raises(AssertionError, match="x: off by"):
        agree(EAGER - 0.05, eager=EAGER + 0.01)


def test_eagers_error_is_the_largest_of_several_runs() -> None:
    agree(EAGER + 0.03, others=lambda: [{"x": EAGER + 0.001}, {"x": EAGER - 0.02}])
    with pytest.raises(AssertionError, match="x: off by"):
        agree(EAGER + 0.03, others=lambda: [{"x": EAGER + 0.001}])


@pytest.mark.parametrize(
    "actual",
    [{"a": EAGER.double()}, {"a": EAGER.view(2, 4)}, {"b": EAGER}, [EAGER], {"a": EAGER, "b": 1}],
    ids=["dtype", "shape", "key", "type", "a number"],
)
def test_the_structure_is_compared(actual: object) -> None:
    with pytest.raises(AssertionError):
        assert_results_agree(actual, {"a": EAGER}, {"a": EXACT})
