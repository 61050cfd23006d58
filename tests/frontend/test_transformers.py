"""Models of the transformers library, tiny and made from configurations: one graph each."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import windfall
from tests.frontend.driver import compile_eager

transformers = pytest.importorskip("transformers")

SIZES = {
    "vocab_size": 64,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 64,
}
GPT2 = {
    "vocab_size": 64, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64,
    "bos_token_id": 0, "eos_token_id": 0,
}  # fmt: skip
GROUPED = {**SIZES, "num_key_value_heads": 1}
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert": ("BertModel", "BertConfig", SIZES),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", GPT2),
    "llama": ("LlamaForCausalLM", "LlamaConfig", GROUPED),
    "gemma": ("GemmaForCausalLM", "GemmaConfig", {**GROUPED, "head_dim": 8}),
}


def build(name: str) -> Any:
    model, config, sizes = MODELS[name]
    torch.manual_seed(0)
    return getattr(transformers, model)(getattr(transformers, config)(**sizes)).eval()


def tokens() -> torch.Tensor:
    return torch.arange(16).reshape(2, 8) % 60


def leaves(value: Any) -> list[Any]:
    """Every tensor and constant in an output, with the types on the way."""
    if isinstance(value, torch.Tensor) or value is None:
        return [value]
    if isinstance(value, dict):
        parts = [(key, leaves(one)) for key, one in value.items()]
    elif isinstance(value, list | tuple):
        parts = [(index, leaves(one)) for index, one in enumerate(value)]
    elif hasattr(value, "__dict__"):
        parts = [(key, leaves(one)) for key, one in vars(value).items()]
    else:
        return [value]
    return [type(value), *(one for key, inner in parts for one in (key, *inner))]


def assert_equal(actual: Any, expected: Any) -> None:
    ours, theirs = leaves(actual), leaves(expected)
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        if isinstance(other, torch.Tensor):
            torch.testing.assert_close(one, other)
        else:
            assert one == other or one is other


@pytest.mark.parametrize("name", list(MODELS))
def test_inference_is_one_graph(name: str) -> None:
    model = build(name)
    compiled = compile_eager(model)
    with torch.no_grad():
        expected = model(input_ids=tokens())
        for _ in range(2):
            actual = compiled(input_ids=tokens())
            assert type(actual) is type(expected)
            assert_equal(actual, expected)
    assert compiled.breaks == []
    assert len(compiled.captures) == 1


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_a_training_step_is_one_graph(name: str) -> None:
    model = build(name)
    compiled = windfall.compile(model)
    compiled(input_ids=tokens(), labels=tokens()).loss.backward()
    ours = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    model(input_ids=tokens(), labels=tokens()).loss.backward()
    for one, parameter in zip(ours, model.parameters(), strict=True):
        torch.testing.assert_close(one, parameter.grad, atol=1e-5, rtol=1e-4)
    report = windfall.explain(model)(input_ids=tokens(), labels=tokens())
    assert len(report.graphs) == 1 and not report.breaks
