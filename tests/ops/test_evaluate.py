"""The oracle itself: what it computes by hand-made rules, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from windfall.errors import InternalError
from windfall.ir.dtype import TensorType
from windfall.ir.evaluate import Oracle, evaluate
from windfall.ops.registry import lookup


def _row_sums(builder: Any, x: Any) -> Any:
    type = TensorType.contiguous(torch.float32, x.type.sizes[:1])
    return builder.tensor(
        type,
        lambda index: builder.reduce("sum", x.type.sizes[1:], lambda axes: x.at((*index, *axes))),
    )


def test_a_reduction_puts_its_axes_aside() -> None:
    x = torch.arange(24.0).reshape(2, 3, 4)
    assert torch.equal(evaluate(_row_sums, x), x.sum((1, 2)))


def test_reductions_nest() -> None:
    x = torch.randn(3, 5)
    record = lookup("aten.var.correction")
    assert record.lower is not None
    torch.testing.assert_close(evaluate(record.lower, x, [1], correction=1), x.var(1))


def test_a_result_has_its_type_s_strides() -> None:
    record = lookup("aten.relu.default")
    assert record.lower is not None
    assert evaluate(record.lower, torch.randn(3, 4).t()).stride() == (1, 4)


def test_arguments_of_two_dtypes_are_refused() -> None:
    oracle = Oracle()
    with pytest.raises(InternalError, match="one dtype"):
        oracle.apply("add", oracle.constant(1, torch.int64), oracle.constant(1.0, torch.float32))


def test_reading_out_of_bounds_is_refused_unless_masked() -> None:
    def shifted(builder: Any, x: Any, guarded: bool) -> Any:
        def at(index: Any) -> Any:
            before = index[0] - 1
            if not guarded:
                return x.at((before,))
            inside = builder.apply("ge", builder.index(before), builder.constant(0, torch.int64))
            zero = builder.constant(0, torch.float32)
            return builder.masked(inside, lambda: x.at((before,)), zero)

        return builder.tensor(x.type, at)

    x = torch.tensor([1.0, 2.0, 3.0])
    assert evaluate(shifted, x, True).tolist() == [0.0, 1.0, 2.0]
    with pytest.raises(IndexError, match="out of bounds"):
        evaluate(shifted, x, False)


def test_a_rule_that_gives_the_wrong_dtype_is_refused() -> None:
    def wrong(builder: Any, x: Any) -> Any:
        return builder.tensor(x.type, lambda index: builder.constant(1, torch.int64))

    with pytest.raises(InternalError, match="i64 elements"):
        evaluate(wrong, torch.zeros(2))


def test_indices_from_data_are_checked() -> None:
    record = lookup("aten.embedding.default")
    assert record.lower is not None
    with pytest.raises(IndexError):
        evaluate(record.lower, torch.zeros(3, 2), torch.tensor([3]))
