"""Corners of arithmetic: a part of the tables, and all of them as a sweep."""

from __future__ import annotations

import pytest

from tests.conformance.corners import TABLES, check

SOME = (
    ("unary", "float32", "torch.s"),
    ("unary", "int8", "a /"),
    ("unary", "uint8", "** a"),
    ("binary", "uint8", "a *"),
)


@pytest.mark.parametrize(("table", "dtype", "only"), SOME)
def test_some_corners(table: str, dtype: str, only: str) -> None:
    done = check(table, [dtype], only)
    assert not done.differences, "\n".join(map(str, done.differences))
    answered = done.ran.total() - done.ran["refused"]
    assert done.ran["native"] >= 0.9 * answered > 0, done.ran


@pytest.mark.conformance
@pytest.mark.parametrize("table", ["unary", "binary"])
def test_all_corners(table: str) -> None:
    assert table in TABLES
    done = check(table)
    assert not done.differences, "\n".join(map(str, done.differences))
