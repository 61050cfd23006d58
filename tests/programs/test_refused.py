"""Programs whose data ops refuse, compiled, against the same programs uncompiled.

Graphs that raise are begun again by eager (ADR 0027): the exception, its words, its lines, who
catches it and what the program did before are eager's.
"""

from __future__ import annotations

import pytest

from tests.programs.case import Case, cases_of
from tests.programs.compare import compare
from tests.programs.subjects import Windfall

CASES = cases_of("refused")


SUBJECTS = {
    "native": lambda: Windfall("windfall"),
    "python": lambda: Windfall("windfall", native=False),
    "captured": lambda: Windfall("eager"),
}


@pytest.mark.parametrize("subject", SUBJECTS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_equals_the_uncompiled_program(case: Case, subject: str) -> None:
    outcome = compare(case, SUBJECTS[subject]())
    assert not outcome.wrong, str(outcome)
    if case.about.graphs is not None:
        fewest, most = case.about.graphs
        assert fewest <= len(outcome.graphs) <= most, f"wanted {fewest} to {most}\n{outcome}"
