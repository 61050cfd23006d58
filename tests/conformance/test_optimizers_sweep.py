"""All of `optim_db`: equal to eager, nearly all in one graph, and settled after three steps."""

from __future__ import annotations

import pytest
import torch

from tests.conformance.optimizers import Case, cases, check

pytestmark = pytest.mark.conformance

# What eager runs by itself: each branch looks at data, or no graph holds its gradients.
NATIVE = (torch.optim.LBFGS, torch.optim.SparseAdam)


@pytest.mark.parametrize("case", list(cases()), ids=str)
def test_five_steps(case: Case) -> None:
    outcome = check(case)
    assert outcome.is_right, outcome.equal
    assert outcome.is_one_graph or case.cls in NATIVE, (outcome.breaks, outcome.in_eager)
    assert not outcome.late
