"""Generated programs: compiled and uncompiled agree in results, effects and exceptions."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.fuzz.grammar import programs
from tests.fuzz.running import numbered, outcome_of
from tests.programs.compare import Subject
from tests.programs.subjects import Uncompiled, Windfall

QUICK = settings(
    max_examples=100,
    derandomize=True,  # the same programs in every run: a failure of `make test` is repeatable
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
DEEP = settings(QUICK, max_examples=3000, derandomize=False, phases=[Phase.generate, Phase.shrink])


def check(source: str, subject: Subject) -> None:
    outcome = outcome_of(source, subject)
    assert not outcome.wrong, f"\n{numbered(source)}\n\n{outcome}"


@pytest.mark.conformance
@QUICK
@given(programs())
def test_uncompiled_programs_repeat_themselves(source: str) -> None:
    check(source, Uncompiled())


@QUICK
@given(programs())
def test_programs_equal_their_uncompiled_selves(source: str) -> None:
    check(source, Windfall("eager"))


@pytest.mark.conformance
@DEEP
@given(programs(24))
def test_many_larger_programs(source: str) -> None:
    check(source, Windfall("eager"))


@pytest.mark.conformance
@DEEP
@given(programs(24))
def test_many_larger_programs_as_native_code(source: str) -> None:
    check(source, Windfall("windfall"))
