"""Whole training loops, compiled in four ways, are as in eager after each of seven steps: results,
parameters, buffers, gradients, states of optimizers and of what is around them, random numbers.

`BREAKS` says how the whole step ran; `SETTLED` after how many steps nothing is compiled any more.
"""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch

import windfall
from tests.training.differences import difference
from tests.training.loops import LOOPS, Loop
from tests.training.odd_loops import ODD
from tests.training.ways import COMPILED, pair
from windfall.engine.engine import BY_TORCH, REPLAYED

STEPS = 7
ALL = LOOPS | ODD


IN_MAKE_TEST = ("step", "engine")  # the others in `make conformance`

# Breaks of the whole step, by number; of all others there is none.
BREAKS: dict[str, set[int]] = {
    "one_cycle": {29},  # the schedule's weak reference
    "scaled_autocast": {3},  # whether to step is read from data
    "gradient_penalty": {60},
    "truncated": {60, 101},  # torch's own recurrent layer
    "second_order": {1},  # LBFGS reads data
    "sparse_and_dense": {1, 13, 60},  # gradients that are sparse
    "swapped_averages": {13, 15},  # `.data = …` of a tensor from outside
    "gradients_by_hand": {5, 13},  # `detach_()` of one
    "steps_in_hooks": {60},
    "hooks_in_the_step": {1, 60},
    "every_third": {2, 29, 60},  # the loss decides; then its history is from outside
    "another_try": {10},
    "unfrozen_by_and_by": {5, 6, 13},  # `requires_grad_` of parameters, sets of them
    "states_in_the_step": {3, 6, 13, 15},  # what `state_dict()` notes on its answer
    "penalty_by_backward": {60},
    "sparse_and_momentum": {11, 60},
    "features_from_outside": {60},
    "two_scaled": {3},
    "line_search": {1},
    "averaged_by_states": {6, 13, 15},
}
# Without a break, and yet not compiled whole: parameters that lie over each other, a call that
# raises and is run again by eager.
OVERLAPPING = {"weights_in_one_buffer", "two_parameters_of_one_memory"}
RAISES = {"refused_by_clipping"}
SETTLED = {
    "frozen_parts": 4,
    "variational": 4,
    "teacher_and_student": 4,
    "resumed": 6,
    "every_third": STEPS,
    "another_try": STEPS,
    "unfrozen_by_and_by": STEPS,
    "replaced_layers": STEPS,
    "states_in_the_step": 5,
    "dropped_layers": STEPS,
    "two_scaled": 4,
}
# Curvature of a few steps makes much of a last bit.
COARSE = {"second_order": 2e-3}


def _taken(loop: Loop, number: int) -> tuple[Any, torch.Tensor]:
    """A step: its results, and where the generator stands then."""
    torch.manual_seed(number)
    loop.before(number)
    found = loop.step(*loop.batch(number))
    loop.after(number)
    return found, torch.get_rng_state()


def beside_eager(name: str, way: str) -> tuple[list[Any], Any]:
    """All steps of a loop, twice: the compiled functions, and what is told of passes."""
    eager, other, functions = pair(ALL[name], way, 1)
    close = COARSE.get(name, 1e-5)
    passes: Any = windfall.compiled_autograd() if COMPILED[way].takes_over else None
    for number in range(STEPS):
        wanted = _taken(eager, number)
        with contextlib.nullcontext() if passes is None else passes:
            found = _taken(other, number)
        assert difference(wanted, found, f"step {number}", close) == ""
        assert difference(eager.seen(), other.seen(), f"after step {number}", close) == ""
        if number + 1 == SETTLED.get(name, 3):
            settled = _captures(functions)
    assert _captures(functions) == settled, "nothing is compiled any more"
    return functions, passes


def _captures(functions: list[Any]) -> int:
    return sum(len(windfall.explanation(one).captures) for one in functions)


@pytest.mark.filterwarnings("ignore")  # of eager too
@pytest.mark.parametrize("name", ALL)
def test_the_whole_step(name: str) -> None:
    (step,), _ = beside_eager(name, "step")
    told = windfall.explanation(step)
    assert {one.number for one in told.breaks} == BREAKS.get(name, set())
    assert ("a graph, op by op" in told.eager) is (
        name in OVERLAPPING or name == "penalty_by_backward"
    )
    if not {name} & (BREAKS.keys() | OVERLAPPING | RAISES):
        assert not told.eager and not told.fallbacks


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", LOOPS)
def test_model_and_engine(name: str) -> None:
    _, passes = beside_eager(name, "engine")
    told = passes.explanation().passes
    assert told[REPLAYED] > 1  # a few where a size, a weight and a share vary
    assert told.get(BY_TORCH, 0) == (STEPS if name == "gradient_penalty" else 0)  # create_graph


@pytest.mark.conformance
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("way", sorted(COMPILED.keys() - IN_MAKE_TEST))
@pytest.mark.parametrize("name", ALL)
def test_parts(name: str, way: str) -> None:
    beside_eager(name, way)


@pytest.mark.conformance
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ODD)
def test_odd_ones_by_the_engine(name: str) -> None:
    beside_eager(name, "engine")
