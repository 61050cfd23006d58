"""What a user changes of an optimizer between two steps: of each change one optimizer here, all of
them in `make conformance`. `tests/conformance/optimizer_changes.py` has the changes."""

from __future__ import annotations

import pytest

from tests.conformance.optimizer_changes import CHANGES, CORRUPTS, OPEN, Case, Outcome, cases, check

# Of the sample, and of what eager computes without raising, by optimizer or change: breaks. All
# others are one graph each time.
BREAKS = {
    "ASGD": (3,),  # an extreme of its count
    "steps_of_one_element": (3,),  # a count with a dimension
    "rate_numpy": (1, 3, 6, 13),
    "scaled": (53,),  # a fused step, then its counts are taken back
}
# Counted: the inputs overlap; a step that is differentiated writes what its own gradient needs.
IN_EAGER = ("gradient_is_the_parameter", "defaults_switched", "differentiable_switched")
BY_EAGER = "SparseAdam"

ALL = [
    (case, name)
    for case in cases()
    for name in CHANGES
    if (case.way, name) not in CORRUPTS and (case.name, name) not in OPEN
]


def _sample() -> list[tuple[Case, str]]:
    """Each change once, and the optimizers in turn."""
    found = []
    for number, name in enumerate(CHANGES):
        able = [case for case, change in ALL if change == name]
        found.append((able[number * 7 % len(able)], name))
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("case", "name"), _sample(), ids=str)
def test_a_change(case: Case, name: str) -> None:
    outcome = _as_eager(case, name)
    if not outcome.raised and not outcome.fallbacks:
        assert outcome.breaks in ((), BREAKS.get(case.name), BREAKS.get(name))
        assert outcome.breaks or not outcome.in_eager


@pytest.mark.conformance
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("case", "name"), ALL, ids=str)
def test_every_change(case: Case, name: str) -> None:
    _as_eager(case, name)


def _as_eager(case: Case, name: str) -> Outcome:
    outcome = check(case, name)
    assert not outcome.wrong
    assert not outcome.fallbacks or name in IN_EAGER or case.name == BY_EAGER
    return outcome


@pytest.mark.parametrize("change", ["popped", "popped_last", "moved_to_double", "option_text"])
def test_what_a_fused_step_refuses_is_refused_where_the_program_stands(change: str) -> None:
    """State that the step would have made is not there behind the exception."""
    case = Case("SGD", "fused", {"momentum": 0.9})
    outcome = check(case, change)
    assert not outcome.wrong
    assert outcome.raised and 5 in outcome.breaks
