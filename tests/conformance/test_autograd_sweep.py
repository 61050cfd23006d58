"""Every op of torch's own list, forward and backward, through the autograd room."""

from __future__ import annotations

import pytest

from tests.autograd.sweep import sweep


@pytest.mark.conformance
def test_no_op_is_wrong() -> None:
    outcomes = list(sweep())
    wrong = [one for one in outcomes if one.kind == "wrong"]
    assert not wrong, "\n".join(f"{one.name}: {one.detail}" for one in wrong)
    equal = sum(one.kind == "equal" for one in outcomes)
    unsupported = sum(one.kind == "unsupported" for one in outcomes)
    assert equal >= 0.95 * (equal + unsupported)
