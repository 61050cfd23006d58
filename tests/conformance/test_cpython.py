"""CPython's own tests end compiled as they end uncompiled, but for those in the ledger."""

from __future__ import annotations

import pytest

from tests.conformance.cpython import selection
from tests.conformance.cpython.sweep import BETWEEN, COMPILED, PLAIN, Row, run


@pytest.mark.conformance
@pytest.mark.parametrize("file", selection.FILES)
def test_every_file(file: str) -> None:
    table = run(file, [PLAIN, COMPILED, BETWEEN])
    if table.note:
        pytest.skip(table.note)
    ledger = selection.known()
    different = {row.test for row in table.different}
    new = [row for row in table.different if row.test not in ledger]
    assert not new, "\n".join(f"{row.test} {row.way}: {row.plain} -> {row.outcome}" for row in new)
    mended = {row.test for row in table.asked if row.test in ledger} - different
    assert not mended, "these are equal now: take them out of known.txt"


def test_the_ledger_gives_reasons_for_tests_of_files_that_are_run() -> None:
    for test, reason in selection.known().items():
        assert reason, test
        assert test.split(".")[0] in selection.FILES, test
    assert len(selection.FILES) >= 60


def test_only_equal_ends_are_equal() -> None:
    def row(plain: str, outcome: str) -> Row:
        return Row("f", "f.T.test", COMPILED, plain, outcome)

    assert row("passed", "passed").equal
    assert not row("passed", "skipped").equal
    assert not row("failure AssertionError", "failure TypeError").equal
    assert not row("passed", "killed: exit -11").equal
    assert not row("error Late", "error Late").comparable, "nothing to compare with"
