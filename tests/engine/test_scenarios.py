"""Each scenario shows the same under torch's engine and under ours; and how ours ran it."""

from __future__ import annotations

import pytest

import windfall
from tests.engine.scenarios import SCENARIOS, difference, observed
from windfall.engine.engine import BY_TORCH, CONFIRMED, DEPARTED, RECORDED, REPLAYED

TIMES = 4

VARYING = {RECORDED: 2, CONFIRMED: 1, REPLAYED: 1}

# How passes of four steps run, where that is not: the first is recorded, three are replayed.
HOW: dict[str, dict[str, int]] = {
    "constant_of_a_node": {RECORDED: 2, REPLAYED: 2},
    "branches": {RECORDED: 2, REPLAYED: 2},
    "saved_twice_in_one_node_at_first": {RECORDED: 3, REPLAYED: 5},
    "number_that_changes": {RECORDED: 4},  # an int and a float in turn: two kinds
    "sizes": VARYING,
    "scale_that_changes": VARYING,
    "batch_and_length_that_vary": VARYING,
    "sizes_that_vary_with_hooks": VARYING,
    "sizes_that_were_equal_at_first": {RECORDED: 3, CONFIRMED: 1},
    "tall_and_wide_matrices": {RECORDED: 4},
    "backward_of_the_same_graph_inside_of_a_hook": {RECORDED: 1, REPLAYED: 3, BY_TORCH: 4},
    "under_a_mode_of_the_users": {BY_TORCH: 4},
    "nested_tensors": {BY_TORCH: 4},
    "sizes_through_mean_and_expand": {RECORDED: 4},
    "autocast": {RECORDED: 2, REPLAYED: 2},
    "hook_that_answers_another_layout": {RECORDED: 1, REPLAYED: 1, DEPARTED: 2},
    "hooks_that_change_between_calls": {RECORDED: 4},
    "hook_that_removes_itself": {RECORDED: 1, REPLAYED: 7},
    "hooks_of_several_gradients": {RECORDED: 2, REPLAYED: 2},
    "backward_inside_of_a_hook": {RECORDED: 1, REPLAYED: 7, BY_TORCH: 8},
    "hook_that_raises": {RECORDED: 1, REPLAYED: 1},  # twice it raises
    "hook_of_the_wrong_size": {RECORDED: 1},  # it raises from then on
    "hooks_before_that_change_gradients": {RECORDED: 2, DEPARTED: 2},
    "function_with_an_unused_result": {RECORDED: 2, REPLAYED: 2, DEPARTED: 4},
    "function_that_changes_what_it_answers": {RECORDED: 1, REPLAYED: 2, DEPARTED: 1},
    "function_that_reads_data": {RECORDED: 1, REPLAYED: 1, DEPARTED: 2},
    "function_of_the_wrong_count": {RECORDED: 1, REPLAYED: 1},
    "checkpoints": {RECORDED: 3, REPLAYED: 9},
    "reentrant_checkpoints_in_each_other": {RECORDED: 3, REPLAYED: 9},
    "overwritten_before_backward": {RECORDED: 1, REPLAYED: 1},
    "overwritten_in_a_hook": {RECORDED: 1, REPLAYED: 1},
    "kept_graph": {RECORDED: 1, REPLAYED: 11},
    "asked_gradients": {RECORDED: 3, REPLAYED: 9},
    "asked_gradients_that_are_not_there": {RECORDED: 3, REPLAYED: 13, BY_TORCH: 4},
    "backward_for_some_leaves": {RECORDED: 1, REPLAYED: 3, BY_TORCH: 4},
    "root_that_is_a_leaf": {RECORDED: 2, REPLAYED: 6},
    "given_gradients": {RECORDED: 3, REPLAYED: 5},
    "leaf_of_other_strides": {RECORDED: 2, REPLAYED: 6},
    "sparse_and_dense_gradients_of_a_tied_weight": {RECORDED: 2, REPLAYED: 6},
    "concatenations_with_parts_that_need_none": {RECORDED: 3, REPLAYED: 7, DEPARTED: 2},
    "frozen_later": {RECORDED: 2, REPLAYED: 2},
    "second_derivatives": {RECORDED: 1, REPLAYED: 3, BY_TORCH: 4},
    "anomaly_mode": {BY_TORCH: 4},
    "gradients_by_vmap": {BY_TORCH: 4},
    "profiled": {BY_TORCH: 4},
}

# Whose graphs are not native code.
OP_BY_OP = {"recurrent"}


@pytest.mark.filterwarnings("ignore::UserWarning")  # of eager too
@pytest.mark.parametrize("name", SCENARIOS)
def test_as_eager(name: str) -> None:
    expected = observed(SCENARIOS[name], TIMES)
    with windfall.compiled_autograd() as passes:
        found = observed(SCENARIOS[name], TIMES)
    assert difference(found, expected) == ""
    told = passes.explanation()
    assert told.passes == HOW.get(name, {RECORDED: 1, REPLAYED: TIMES - 1})
    assert bool(told.fallbacks) == (name in OP_BY_OP), told.fallbacks
