"""Every record against eager, on its own samples: result types first, then values by the oracle."""

from __future__ import annotations

import warnings

import pytest
import torch

import windfall.ops
from tests.ops.agreement import check_lowering, check_shape, describe, eager, overload
from windfall.ops.registry import Op, all_ops

OPS = [pytest.param(op, id=op.name) for op in all_ops()]
# Ops whose result is not defined by their arguments, so that there is nothing to compare.
UNDEFINED = ("aten.empty", "aten.new_empty")


def test_the_dictionary_is_filled() -> None:
    assert len(all_ops()) > 300
    assert windfall.ops.FAMILIES


@pytest.mark.parametrize("op", OPS)
def test_an_op_exists_in_torch(op: Op) -> None:
    assert str(overload(op)) == op.name


@pytest.mark.parametrize("op", [each for each in OPS if each.values[0].samples])
@pytest.mark.filterwarnings("ignore")
def test_an_op_agrees_with_eager(op: Op) -> None:
    assert op.samples is not None and op.shape is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for arguments, keywords in op.samples():
            answer = eager(op, arguments, keywords)
            wrong = check_shape(op, arguments, keywords, answer)
            assert wrong is None, f"{describe(arguments, keywords)}: {wrong}"
            if isinstance(answer, Exception):
                raise answer  # every sample is a call that eager answers
            if op.lower is not None:
                wrong = check_lowering(op, arguments, keywords, answer)
                assert wrong is None, f"{describe(arguments, keywords)}: {wrong}"
    assert next(op.samples(), None) is not None


def test_a_lowering_has_samples() -> None:
    """An op that is generated must be compared with eager."""
    bare = [
        op.name
        for op in all_ops()
        if op.lower is not None and op.samples is None and not op.name.startswith(UNDEFINED)
    ]
    assert bare == []


def test_samples_leave_the_random_state_alone() -> None:
    before = torch.random.get_rng_state()
    for op in all_ops():
        if op.samples is not None and op.lower is not None:
            next(iter(op.samples()))
    assert torch.equal(before, torch.random.get_rng_state())
