"""Whole training steps of real models, dropout on, against eager."""

from __future__ import annotations

import pytest
import torch

from tests.models.names import EVERY, TINY
from tests.models.sequence import (
    Pair,
    batch_of,
    check_gradients,
    check_inference,
    check_training,
    recipe_of,
    training_batches,
)


@pytest.mark.parametrize("name", EVERY)
def test_gradients_of_every_parameter_equal_eager(name: str) -> None:
    recipe = recipe_of(name)
    pair = Pair.of(recipe.objective)
    for _ in range(2):
        check_gradients(pair, *recipe.batch(batch_of(name)))


@pytest.mark.parametrize("name", EVERY)
def test_losses_over_twenty_steps_equal_eager(name: str) -> None:
    recipe = recipe_of(name)
    check_training(Pair.of(recipe.objective), training_batches(recipe, batch_of(name)))


@pytest.mark.parametrize("name", TINY)
def test_another_seed_gives_other_masks(name: str) -> None:
    """Dropout is drawn at each call, not once when compiling."""
    recipe = recipe_of(name)
    pair = Pair.of(recipe.objective)
    batch = recipe.batch(4)
    torch.manual_seed(1)
    with torch.no_grad():
        losses = [float(pair.compiled(*batch)) for _ in range(3)]
    expected = 1 if name == "tiny resnet" else 3  # which has no dropout
    assert len(set(losses)) == expected, losses


@pytest.mark.parametrize("name", TINY)
def test_training_then_evaluating_then_training(name: str) -> None:
    recipe = recipe_of(name)
    pair = Pair.of(recipe.objective)
    batches = training_batches(recipe, 4, steps=6)
    for _ in range(2):
        check_training(pair, batches)
        pair.exact.load_state_dict({k: v.double() if v.is_floating_point() else v
                                    for k, v in pair.eager.state_dict().items()})  # fmt: skip
        # AdamW turns rounding into steps where the gradient is nought: start even again.
        pair.ours.load_state_dict(pair.eager.state_dict())
        for model in (pair.eager, pair.ours, pair.exact):
            model.eval()
        check_inference(pair, batches[0])
        for model in (pair.eager, pair.ours, pair.exact):
            model.train()


@pytest.mark.parametrize("name", TINY)
def test_a_frozen_half(name: str) -> None:
    """Parameters without gradients stay without, also where windfall was compiled before."""
    recipe = recipe_of(name)
    pair = Pair.of(recipe.objective)
    check_gradients(pair, *(batch := recipe.batch(4)))
    for model in (pair.eager, pair.ours, pair.exact):
        parameters = list(model.parameters())
        for parameter in parameters[: len(parameters) // 2]:
            parameter.requires_grad_(False)
            parameter.grad = None
    check_gradients(pair, *batch)
