"""Programs made by chance, with hooks, retained gradients, aliased arguments, several backwards and
gradients of gradients: all that a user can see is as in eager."""

from __future__ import annotations

import random
import warnings

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.autograd.made_programs import make
from tests.autograd.survey import compare


@pytest.mark.parametrize("block", range(4))
def test_some_programs(block: int) -> None:
    ran = []
    for seed in range(block * 12, block * 12 + 12):
        made = make(random.Random(seed))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ran.append(compare(made))
    assert ran.count("native") >= 6, ran


# Seeds of programs that differed once, each of a class of its own: behind a break, a strided input;
# hooks between a view and its base; older views; writes that autograd does not see; hooks of inputs
# that are written, in gradients of gradients; bases whose sizes an op of torch changed in place.
@pytest.mark.parametrize(
    "seed", [1293, 1324, 2331, 3015, 3572, 3719, 4757, 6059, 6820, 6865, 6906, 8781]
)
def test_programs_that_differed(seed: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert "InternalError" not in compare(make(random.Random(seed)))


@pytest.mark.parametrize("block", range(2))
def test_some_programs_that_change_sizes(block: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(block * 12, block * 12 + 12):
            assert "InternalError" not in compare(make(random.Random(seed), changes=True))


@pytest.mark.conformance
@settings(max_examples=2000, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_many_programs(r: random.Random) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compare(make(r))


def test_the_programs_have_everything() -> None:
    """What is asked of the generator."""
    made = [make(random.Random(seed)) for seed in range(300)]
    done = {action[0] for one in made for action in one.actions}
    assert done == {
        "retain", "hook", "doubling hook", "call", "write", "backward", "gradients", "of results",
        "again",
    }  # fmt: skip
    several = [sum(a[0] in ("backward", "gradients") for a in one.actions) for one in made]
    assert sum(count > 1 for count in several) > 50
    assert sum("first" in one.arguments[1] for one in made) > 50  # aliased arguments
    assert sum("_(" in one.source for one in made) > 150  # writes
    assert sum("no_grad" in one.source for one in made) > 50
