"""The comparison itself can fail, and forgives what it says it forgives."""

from __future__ import annotations

import pytest
import torch

from tests.models.agreement import assert_results_agree, disagreements, relative_error

EXACT = torch.linspace(0.5, 1.5, 8, dtype=torch.float64)
EAGER = EXACT.float()


def wrong(actual: torch.Tensor, eager: torch.Tensor = EAGER) -> list[str]:
    return disagreements({"x": actual}, {"x": eager}, {"x": EXACT})


def test_rounding_is_forgiven() -> None:
    assert wrong(EAGER * (1 + 3e-5)) == []


@pytest.mark.parametrize("factor", [1.001, float("nan"), float("inf")])
def test_a_wrong_value_is_not(factor: float) -> None:
    values = EAGER.clone()
    values[3] *= factor
    (told,) = wrong(values)
    assert told.startswith("x: off by")


def test_where_eager_is_off_we_may_be_off_as_much() -> None:
    assert wrong(EAGER - 0.015, eager=EAGER + 0.01) == []
    assert wrong(EAGER - 0.05, eager=EAGER + 0.01) != []


def test_the_error_of_the_worst_tensor() -> None:
    exact = {"a": torch.ones(100), "b": torch.ones(4), "nought": torch.zeros(3)}
    values = {"a": exact["a"] + 0.01, "b": exact["b"] * 1.5, "nought": exact["nought"] + 1e-9}
    assert relative_error(values, exact) == pytest.approx(0.5, rel=1e-4)


@pytest.mark.parametrize(
    "actual",
    [{"a": EAGER.double()}, {"a": EAGER.view(2, 4)}, {"b": EAGER}, [EAGER], {"a": EAGER, "b": 1}],
    ids=["dtype", "shape", "key", "type", "a number"],
)
def test_the_structure_is_compared(actual: object) -> None:
    with pytest.raises(AssertionError):
        assert_results_agree(actual, {"a": EAGER}, {"a": EXACT})
