"""Rows of the survey of sizes that vary: right, and compiled no more often than they may be.

The whole table is `python -m tests.conformance.varying_survey`; here are the rows for which there
is something of our own (a rule, a stand-in, a number in the graph), for inference, and some in
training.
"""

from __future__ import annotations

import pytest

from tests.conformance.varying_programs import ROWS
from tests.conformance.varying_survey import kinds, run

NUMBERS = [
    "scaled_by_root", "scaled_by_power", "logarithm_of_size", "exponential_of_size", "warm_up",
    "ceiling_of_size", "integer_of_ratio", "tensor_of_floats", "full_of_size", "scheduled",
    "bias_corrected", "product_of_sizes", "powers_of_size", "learning_rate",
]  # fmt: skip
FACTORIES = ["line_space", "log_space", "window", "sinusoidal_positions", "length_mask"]
SHAPES = [
    "unflattened", "chunked", "padded_to_a_multiple", "windowed_attention", "patches",
    "even_or_odd", "cache_written_at", "top_half", "unet", "interpolated_like",
]  # fmt: skip
PARTS = [
    "gathered", "one_hot_of_size", "covariance", "correlation", "kronecker", "pooled_over_all",
    "pooled_over_all_2d", "gru_cell", "cells", "spectrogram",
]  # fmt: skip
LAYERS = [
    "lstm", "lstm_batch_first", "lstm_two_layers", "lstm_by_batch", "lstm_projected", "gru",
    "gru_bidirectional", "rnn_relu", "multihead_attention", "encoder_layer", "tiny_gpt",
]  # fmt: skip
TRAINED = [
    "scaled_by_root", "bias_corrected", "chunked", "windowed_attention", "one_hot_of_size",
    "covariance", "pooled_over_all", "cells", "lstm", "gru", "encoder_layer",
]  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*NUMBERS, *FACTORIES, *SHAPES, *PARTS, *LAYERS])
def test_inference(name: str) -> None:
    outcome = run(ROWS[name], training=False)
    assert outcome.good, str(outcome)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TRAINED)
def test_training(name: str) -> None:
    outcome = run(ROWS[name], training=True)
    assert outcome.good, str(outcome)


@pytest.mark.conformance
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ROWS)
def test_every_row(name: str) -> None:
    for training in kinds(ROWS[name]):
        outcome = run(ROWS[name], training)
        assert outcome.good, str(outcome)


@pytest.mark.conformance
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(set(ROWS) - {"selected", "one_hot_of_size"}))
def test_batches_of_0_1_2_7_and_64(name: str) -> None:
    """Right, or eager's own error. (The arguments of two rows cannot be made for 0.)"""
    outcome = run(ROWS[name], False, (7, 0, 1, 2, 64, 0, 5))
    assert not outcome.wrong and not outcome.fallbacks, str(outcome)


def test_the_survey_is_wide_and_notices() -> None:
    assert len(ROWS) >= 180
    row = ROWS["iterated"]
    assert run(row, False).compiled > 3, "a loop over a size is compiled for each"
