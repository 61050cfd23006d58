"""Gradients of torch's own op samples: some of them here, all in `make conformance`."""

from __future__ import annotations

import pytest
import torch

from tests.engine import sweep
from windfall.engine.engine import BY_TORCH
from windfall.reporting.explain import explanation_of


def _checked(names: list[str], limit: int, native: bool) -> None:
    shared = sweep.engine(native)
    wrong = [
        text
        for name in names
        if name not in sweep.SKIPPED
        for dtype in (torch.float32, torch.float64, torch.complex64)
        for text in sweep.check(shared, name, dtype, limit)
    ]
    assert not wrong
    told = explanation_of(shared.log).passes
    assert BY_TORCH not in told


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_some_ops_share_one_cache() -> None:
    _checked(sweep.names()[::40], 2, native=False)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_some_ops_natively() -> None:
    _checked(
        ["add", "mul", "div.no_rounding_mode", "softmax", "index_select", "where", "atan2"],
        2,
        native=True,
    )


@pytest.mark.conformance
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("native", [False, True])
def test_all_ops_share_one_cache(native: bool) -> None:
    _checked(sweep.names(), 6 if native else 1000, native)
