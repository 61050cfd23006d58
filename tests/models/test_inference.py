"""Real models without gradients, against eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from examples.models import TINY, Recipe, bert, gpt2
from tests.models.names import EVERY
from tests.models.names import TINY as TINY_NAMES
from tests.models.sequence import Pair, check_inference, recipe_of


@pytest.mark.parametrize("batch", [1, 8])
@pytest.mark.parametrize("name", EVERY)
def test_outputs_equal_eager(name: str, batch: int) -> None:
    recipe = recipe_of(name)
    pair = Pair.of(recipe.model)
    for _ in range(2):
        check_inference(pair, recipe.inputs(batch))


@pytest.mark.parametrize("name", TINY_NAMES)
def test_two_batch_sizes_in_turn(name: str) -> None:
    recipe = recipe_of(name)
    pair = Pair.of(recipe.model)
    for batch in (1, 8, 1):
        check_inference(pair, recipe.inputs(batch))


@pytest.mark.parametrize("name", TINY_NAMES)
def test_in_inference_mode(name: str) -> None:
    recipe = recipe_of(name)
    pair = Pair.of(recipe.model)
    with torch.inference_mode():
        check_inference(pair, recipe.inputs(2))
    check_inference(pair, recipe.inputs(2))


@pytest.mark.parametrize("name", TINY_NAMES)
def test_weights_changed_between_calls_are_seen(name: str) -> None:
    recipe = recipe_of(name)
    pair = Pair.of(recipe.model)
    check_inference(pair, inputs := recipe.inputs(2))
    for model in (pair.eager, pair.ours, pair.exact):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1.25)
    check_inference(pair, inputs)


@pytest.mark.parametrize("name", TINY_NAMES)
def test_swapped_weights_are_seen(name: str) -> None:
    recipe = recipe_of(name)
    pair = Pair.of(recipe.model)
    check_inference(pair, inputs := recipe.inputs(2))
    other = recipe.model().state_dict()
    for model in (pair.eager, pair.ours, pair.exact):
        model.load_state_dict({key: value.clone() for key, value in other.items()}, assign=True)
    pair.exact.double()
    check_inference(pair, inputs)


MASKED: dict[str, Recipe] = {"bert": bert(2, TINY), "gpt2": gpt2(2, TINY)}


@pytest.mark.parametrize("name", MASKED)
def test_padded_sequences(name: str) -> None:
    recipe = MASKED[name]
    pair = Pair.of(recipe.model)
    mask = torch.ones(3, TINY.length, dtype=torch.long)
    mask[1, 7:] = 0
    mask[2, 4:] = 0
    check_inference(pair, recipe.inputs(3), attention_mask=mask)


@pytest.mark.parametrize("make", [bert, gpt2], ids=["bert", "gpt2"])
def test_attention_written_out(make: Any) -> None:
    recipe = make(2, TINY, attention="eager")
    check_inference(Pair.of(recipe.model), recipe.inputs(2))
