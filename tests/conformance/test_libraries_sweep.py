"""Programs over third-party libraries: right at every batch size, in inference and training."""

from __future__ import annotations

import pytest

from tests.conformance.libraries import check
from tests.conformance.library_programs import PROGRAMS, LibraryProgram

pytestmark = pytest.mark.conformance

_CASES = [(one, way) for one in PROGRAMS for way in one.ways]


@pytest.mark.parametrize(("program", "way"), _CASES, ids=lambda one: str(one).replace(" ", "-"))
@pytest.mark.filterwarnings("ignore")
def test_a_program(program: LibraryProgram, way: str) -> None:
    row = check(program, way, pairs=1)
    if not row.is_there:
        pytest.skip(row.answer)
    assert row.is_right, row.answer
