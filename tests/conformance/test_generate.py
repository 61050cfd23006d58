"""`generate` of a tiny Llama with a static cache: equal tokens, the decode step compiled once."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch

from tests.programs.subjects import Windfall

os.environ.setdefault("HF_HUB_OFFLINE", "1")

pytestmark = pytest.mark.filterwarnings("ignore")

SIZES = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 40,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
PROMPT = torch.tensor([[1, 5, 7, 9]])


def llama() -> Any:
    import transformers

    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES)).eval()


def generated(model: Any, prompt: torch.Tensor, **settings: Any) -> list[list[int]]:
    torch.manual_seed(3)
    found: torch.Tensor = model.generate(
        prompt,
        max_new_tokens=12,
        cache_implementation="static",
        disable_compile=True,  # transformers would reach for torch.compile
        eos_token_id=None,
        **settings,
    )
    return found.tolist()


@pytest.mark.parametrize("backend", ["eager", "windfall"])
@pytest.mark.parametrize("sampled", [False, True])
def test_a_static_cache_is_decoded_by_one_graph(backend: str, sampled: bool) -> None:
    expected = generated(llama(), PROMPT, do_sample=sampled)
    model, subject = llama(), Windfall(backend)
    model.forward = subject.compile(model.forward)
    assert generated(model, PROMPT, do_sample=sampled) == expected
    told = subject.explanation
    assert not told.breaks and not told.fallbacks
    assert len(told.graphs) == 2, "one for the prompt, one for every token after it"
    # A second sentence of this length: nothing is compiled anew.
    again = PROMPT + 11
    assert generated(model, again, do_sample=sampled) == generated(
        llama(), again, do_sample=sampled
    )
    assert len(subject.explanation.graphs) == 2


def test_lengths_that_vary_are_compiled_once_more() -> None:
    """Sizes of prompt and cache become symbols: two graphs for the first, two for all others."""
    model, subject = llama(), Windfall("eager")
    model.forward = subject.compile(model.forward)
    for length in (4, 6, 7, 9):
        prompt = torch.arange(length).reshape(1, length) + 3
        expected = generated(llama(), prompt, do_sample=False)
        assert generated(model, prompt, do_sample=False) == expected
    assert len(subject.explanation.graphs) <= 4
