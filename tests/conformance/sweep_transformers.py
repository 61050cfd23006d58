"""Models of transformers, made from tiny configurations: nothing is fetched."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch

from tests.conformance.checking import Made, check_one
from tests.conformance.sweep import Line

TEXT = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "max_position_embeddings": 64,
}
IMAGE = {
    "image_size": 16,
    "patch_size": 8,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 37,
}
GPT2 = {"vocab_size": 99, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
T5 = {"vocab_size": 99, "d_model": 32, "d_kv": 8, "d_ff": 37, "num_layers": 2, "num_heads": 4}
BART = {
    "vocab_size": 99,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_ffn_dim": 37,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 37,
    "max_position_embeddings": 64,
}
GROUPED = {**TEXT, "num_key_value_heads": 2}


def tokens() -> dict[str, torch.Tensor]:
    """A batch of two sentences, one padded."""
    ids = torch.arange(16).reshape(2, 8) * 5 % 97 + 1
    mask = torch.ones(2, 8, dtype=torch.long)
    mask[1, 6:] = 0
    return {"input_ids": ids, "attention_mask": mask}


def plain_tokens() -> dict[str, torch.Tensor]:
    """A batch without a mask."""
    return {"input_ids": tokens()["input_ids"]}


def pairs() -> dict[str, torch.Tensor]:
    """For encoders with decoders."""
    return {**tokens(), "decoder_input_ids": torch.arange(8).reshape(2, 4) + 3}


def image() -> dict[str, torch.Tensor]:
    """Two small pictures."""
    return {"pixel_values": torch.linspace(-1, 1, 2 * 3 * 16 * 16).reshape(2, 3, 16, 16)}


Inputs = Callable[[], dict[str, torch.Tensor]]

# Name: configuration, its settings, model, inputs.
MODELS: Mapping[str, tuple[str, dict[str, Any], str, Inputs]] = {
    "bert": ("BertConfig", TEXT, "BertModel", tokens),
    "bert-plain": ("BertConfig", TEXT, "BertModel", plain_tokens),
    "bert-classifier": ("BertConfig", TEXT, "BertForSequenceClassification", tokens),
    "gpt2": ("GPT2Config", GPT2, "GPT2LMHeadModel", tokens),
    "gpt2-plain": ("GPT2Config", GPT2, "GPT2Model", plain_tokens),
    "llama": ("LlamaConfig", GROUPED, "LlamaForCausalLM", plain_tokens),
    "t5": ("T5Config", T5, "T5ForConditionalGeneration", pairs),
    "vit": ("ViTConfig", IMAGE, "ViTModel", image),
    "distilbert": (
        "DistilBertConfig",
        {"vocab_size": 99, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 37},
        "DistilBertModel",
        tokens,
    ),
    "roberta": ("RobertaConfig", {**TEXT, "pad_token_id": 0}, "RobertaModel", tokens),
    "albert": ("AlbertConfig", {**TEXT, "embedding_size": 16}, "AlbertModel", tokens),
    "electra": ("ElectraConfig", {**TEXT, "embedding_size": 16}, "ElectraModel", tokens),
    "bart": ("BartConfig", BART, "BartModel", pairs),
    "mistral": ("MistralConfig", GROUPED, "MistralModel", plain_tokens),
    "qwen2": ("Qwen2Config", GROUPED, "Qwen2ForCausalLM", plain_tokens),
    "gemma": ("GemmaConfig", {**GROUPED, "head_dim": 8}, "GemmaModel", plain_tokens),
    "phi": ("PhiConfig", TEXT, "PhiModel", plain_tokens),
    "opt": (
        "OPTConfig",
        {**TEXT, "ffn_dim": 37, "word_embed_proj_dim": 32},
        "OPTModel",
        tokens,
    ),
    "deit": ("DeiTConfig", IMAGE, "DeiTModel", image),
    "mixtral": (
        "MixtralConfig",
        {**GROUPED, "num_local_experts": 2, "num_experts_per_tok": 1},
        "MixtralModel",
        plain_tokens,
    ),
    "convnext": (
        "ConvNextConfig",
        {"hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1], "image_size": 32},
        "ConvNextModel",
        lambda: {"pixel_values": torch.linspace(-1, 1, 2 * 3 * 32 * 32).reshape(2, 3, 32, 32)},
    ),
}


def names() -> list[str]:
    """Each model, to be used and to be trained."""
    return [f"{name}:{mode}" for name in MODELS for mode in ("eval", "train")]


def check(name: str, backend: str, line: Line) -> None:
    """One model; with gradients when it is trained as native code."""
    model, _, mode = name.partition(":")
    check_one(maker(model, mode == "train"), backend, line)


def maker(name: str, training: bool) -> Callable[[], Made]:
    """Equal models, again and again. In training dropout is off: only its mask would differ."""
    import transformers

    config, settings, model, inputs = MODELS[name]

    def make() -> Made:
        torch.manual_seed(0)
        made = getattr(transformers, model)(getattr(transformers, config)(**settings))
        made.train(training)
        for parameter in made.parameters():
            parameter.requires_grad_(training)
        return made, (), inputs()

    return make
