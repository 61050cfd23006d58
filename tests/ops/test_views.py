"""Views: their offsets against eager's, and that an index map never leaves its argument."""

from __future__ import annotations

import pytest
import torch

from tests.ops.agreement import describe, eager, flat, types_of
from windfall.ops.registry import Op, all_ops

VIEWS = [pytest.param(op, id=op.name) for op in all_ops() if op.view and op.samples]


@pytest.mark.parametrize("op", VIEWS)
@pytest.mark.filterwarnings("ignore")
def test_a_view_starts_where_eager_s_does(op: Op) -> None:
    assert op.samples is not None
    for arguments, keywords in op.samples():
        answer = eager(op, arguments, keywords)
        if isinstance(answer, Exception):
            continue
        base = arguments[0].storage_offset()
        real = [each.storage_offset() - base for each in flat(answer)]
        found = [0] * len(real)
        if op.offset is not None:
            found = flat(op.offset(*types_of(tuple(arguments)), **keywords))
        for one, other, part in zip(found, real, flat(answer), strict=True):
            if part.numel():
                assert one == other, describe(arguments, keywords)
        assert all(
            each.untyped_storage().data_ptr() == arguments[0].untyped_storage().data_ptr()
            for each in flat(answer)
            if isinstance(each, torch.Tensor)
        )
