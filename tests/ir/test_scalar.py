"""Scalar expressions: equal ones are one object, whatever way they were made."""

from __future__ import annotations

import pytest
import torch

from windfall.errors import InternalError
from windfall.ir.loop import Axis, Scalar, Scalars, axis, walk

F32 = torch.float32


def test_equal_scalars_are_one_object() -> None:
    table = Scalars()
    x = table.load("x", axis("i0", 8).symbol, F32)
    assert table.apply("add", x, x) is table.apply("add", x, x)
    assert table.constant(0.0, F32) is not table.constant(-0.0, F32)
    assert table.constant(1, torch.int64) is not table.constant(True, torch.bool)


def _maximum(table: Scalars, over: Axis, row: Axis) -> Scalar:
    return table.reduce("max", (over,), table.load("x", 16 * row.symbol + over.symbol, F32))


def test_equal_reductions_are_one_object_at_any_depth() -> None:
    table = Scalars()
    row = axis("i0", 4)
    alone = _maximum(table, axis("t0", 16), row)
    outer = axis("t0", 16)
    inside = _maximum(table, axis("t1", 16), row)
    total = table.reduce(
        "sum", (outer,), table.apply("add", inside, table.load("y", outer.symbol, F32))
    )
    assert inside is alone
    assert [str(node.attribute[1][0]) for node in walk(total) if node.op == "reduce"] == [
        "r0<16",
        "r1<16",
    ]
    assert total.free == {row.atom}


def test_comparisons_that_ranges_decide_are_folded() -> None:
    table = Scalars()
    i = axis("i0", 8)
    index = table.index(i.symbol, torch.int64)
    limit = table.constant(8, torch.int64)
    assert table.apply("lt", index, limit) is table.constant(True, torch.bool)
    assert table.apply("ge", index, limit) is table.constant(False, torch.bool)
    open_ = table.apply("lt", index, table.constant(5, torch.int64))
    assert open_.op == "lt"
    # ... and folded once a substitution narrows the range.
    assert table.substitute(open_, {i.atom: axis("a", 5).symbol}).attribute is True
    assert table.substitute(open_, {i.atom: axis("a", 3).symbol + 5}).attribute is False


def test_substitution_reaches_indices_that_come_from_data() -> None:
    table = Scalars()
    i = axis("i0", 8)
    number = table.load("index", i.symbol, torch.int64)
    checked = table.make("checked", torch.int64, (number,), (10, True))
    value = table.load("x", table.indirect(checked, 9) * 4, F32)
    assert value.free == {i.atom}
    moved = table.substitute(value, {i.atom: 3})
    assert not moved.free
    assert next(node.attribute for node in walk(moved) if node.op == "load") == ("index", 3)


def test_arguments_are_checked() -> None:
    table = Scalars()
    x = table.constant(1.0, F32)
    with pytest.raises(InternalError, match="takes 2 arguments"):
        table.apply("add", x)
    with pytest.raises(InternalError, match="one dtype"):
        table.apply("add", x, table.constant(1, torch.int64))
