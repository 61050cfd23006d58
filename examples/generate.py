"""`generate` of transformers, with a compiled forward: the tokens are those of eager."""

from __future__ import annotations

from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import windfall


def main(count: int = 8) -> list[int]:
    """Generate with a small Llama of random weights, eagerly and compiled."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 64, "vocab_size": 99}
    config = LlamaConfig(num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, **sizes)
    model: Any = LlamaForCausalLM(config)
    model.eval()
    prompt = torch.randint(1, 99, (1, 5))
    how: dict[str, Any] = {"max_new_tokens": count, "do_sample": False, "pad_token_id": 0}
    eager = model.generate(prompt, **how)[0].tolist()
    model.forward = windfall.compile(model.forward)
    ours: list[int] = model.generate(prompt, **how)[0].tolist()
    print(f"eager    {eager}\nwindfall {ours}")
    assert ours == eager
    return ours


if __name__ == "__main__":
    main()
