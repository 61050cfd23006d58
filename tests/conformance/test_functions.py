"""Every op under transforms of `torch.func`: a sample in `make test`, all in `make conformance`."""

from __future__ import annotations

import pytest

from tests.conformance.functions import Case, cases, check

SAMPLE = (
    "add", "cumsum", "index_select", "linalg.inv", "matmul", "nn.functional.conv2d",
    "nn.functional.cross_entropy", "nn.functional.layer_norm", "softmax", "sort", "where",
)  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", list(cases(SAMPLE)), ids=str)
def test_sample(case: Case) -> None:
    outcome = check(case)
    assert outcome is not None and outcome.is_right, outcome
    assert outcome.is_one_graph, (outcome.details, outcome.in_eager)


@pytest.mark.conformance
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", list(cases()), ids=str)
def test_all(case: Case) -> None:
    outcome = check(case)
    assert outcome is None or outcome.is_right, outcome
