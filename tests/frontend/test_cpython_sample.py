"""A few small files of CPython's own tests, compiled; all of them are
`python -m tests.conformance.cpython`."""

from __future__ import annotations

import pytest

from tests.conformance.cpython.sweep import BETWEEN, COMPILED, PLAIN, run


@pytest.mark.parametrize("file", ["test_generator_stop", "test_dictcomps", "test_pow"])
def test_ends_as_uncompiled(file: str) -> None:
    table = run(file, [PLAIN, COMPILED, BETWEEN], timeout=30)
    assert table.asked, "nothing was run"
    assert not table.different, [(row.test, row.way, row.outcome) for row in table.different]
