"""Architectures of transformers, made from tiny configurations: nothing is fetched.

    python -m tests.conformance.architectures                        the table, backend windfall
    python -m tests.conformance.architectures --backend eager --only bert,swin
    python -m tests.conformance.architectures --mode train

Enters: rows of `ARCHITECTURES`. Leaves: a table: whether compiled equals uncompiled, how many
graphs there are, each break with its number and line. The work is done by workers of `sweep.py`, so
that a model that dies takes no other with it.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch

Inputs = Callable[[], dict[str, torch.Tensor]]


# ----------------------------------------------------------------------------------------- inputs


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


def _picture(size: int) -> torch.Tensor:
    """Rough: normalising a smooth one, in training, makes rounding large."""
    return (torch.arange(2 * 3 * size * size) * 0.7).sin().reshape(2, 3, size, size)


def image() -> dict[str, torch.Tensor]:
    """Two small pictures."""
    return {"pixel_values": _picture(16)}


def large_image() -> dict[str, torch.Tensor]:
    """Two pictures of 32 by 32, for networks that halve them often."""
    return {"pixel_values": _picture(32)}


def wide_image() -> dict[str, torch.Tensor]:
    """Two pictures that are more than one point after all halving: else a normalisation over the
    batch, in training, makes rounding large."""
    return {"pixel_values": _picture(64)}


def captioned() -> dict[str, torch.Tensor]:
    """Pictures with sentences."""
    return {**tokens(), **image()}


def sound() -> dict[str, torch.Tensor]:
    """Two short waves."""
    return {"input_values": torch.linspace(-1, 1, 2 * 400).reshape(2, 400)}


def spectrum() -> dict[str, torch.Tensor]:
    """Two spectrograms, and the first words of what was said."""
    return {
        "input_features": torch.linspace(-1, 1, 2 * 8 * 32).reshape(2, 8, 32),
        "decoder_input_ids": torch.arange(8).reshape(2, 4) + 3,
    }


# ----------------------------------------------------------------------------------------- settings

TEXT = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "max_position_embeddings": 64,
}
GROUPED = {**TEXT, "num_key_value_heads": 2}
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
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
MARIAN = {**BART, **SPECIAL, "decoder_start_token_id": 3}
WAVE = {
    **TEXT,
    "conv_dim": (16, 16),
    "conv_stride": (5, 2),
    "conv_kernel": (10, 3),
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 2,
}
WHISPER = {
    **BART, **SPECIAL, "num_mel_bins": 8, "max_source_positions": 16, "max_target_positions": 16,
    "decoder_start_token_id": 3,
}  # fmt: skip
SWIN = {
    "image_size": 32, "patch_size": 4, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2],
    "window_size": 4,
}  # fmt: skip
STAGES = {"hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1]}
SEGFORMER = {
    "hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 1, 2, 2],
    "sr_ratios": [4, 2, 1, 1], "decoder_hidden_size": 16,
}  # fmt: skip
PVT = {
    "image_size": 32, "hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1],
    "num_attention_heads": [1, 1, 2, 2], "sequence_reduction_ratios": [4, 2, 1, 1],
}  # fmt: skip
MOBILEVIT = {
    "image_size": 32, "patch_size": 2, "hidden_sizes": [16, 16, 16],
    "neck_hidden_sizes": [8, 8, 8, 16, 16, 16, 16], "num_attention_heads": 2,
}  # fmt: skip
TWO_TOWERS = {"text_config": dict(TEXT), "vision_config": dict(IMAGE), "projection_dim": 16}
FUNNEL = {
    "vocab_size": 99, "block_sizes": [1, 1], "num_decoder_layers": 1, "d_model": 32, "n_head": 4,
    "d_head": 8, "d_inner": 37,
}  # fmt: skip
XLNET = {"vocab_size": 99, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 37}
NEO = {
    "vocab_size": 99, "hidden_size": 32, "num_layers": 2, "num_heads": 4, "window_size": 4,
    "attention_types": [[["global", "local"], 1]], "max_position_embeddings": 64,
}  # fmt: skip
DEBERTA = {
    **TEXT, "relative_attention": True, "pos_att_type": ["p2c", "c2p"],
    "max_relative_positions": 16, "position_biased_input": False,
}  # fmt: skip
ROTARY = {**GPT2, "rotary_dim": 4}
LONG = {**TEXT, **SPECIAL, "attention_window": 4}
BLOOM = {"vocab_size": 99, "hidden_size": 32, "n_layer": 2, "n_head": 4}
# The model takes another algorithm, with other rounding, where it finds that it is compiled.
MAMBA = {
    "vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4,
    "use_associative_scan": False,
}  # fmt: skip

MAMBA2 = {
    "vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8, "num_heads": 8,
    "head_dim": 8, "n_groups": 1, "chunk_size": 8,
}  # fmt: skip
STARTED = {**BART, **SPECIAL, "decoder_start_token_id": 3}
HEADS = {**GROUPED, "head_dim": 8}
EXPERTS = {**GROUPED, "num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 16}
PROPHET = {
    "vocab_size": 99, "hidden_size": 32, "num_encoder_layers": 2, "num_decoder_layers": 2,
    "num_encoder_attention_heads": 4, "num_decoder_attention_heads": 4, "encoder_ffn_dim": 37,
    "decoder_ffn_dim": 37, "max_position_embeddings": 64,
}  # fmt: skip
LED = {
    "vocab_size": 99, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_ffn_dim": 37, "decoder_ffn_dim": 37, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "attention_window": 4, "max_encoder_position_embeddings": 64,
    "max_decoder_position_embeddings": 64,
}  # fmt: skip
LEVIT = {
    "image_size": 64, "hidden_sizes": [16, 24, 32], "num_attention_heads": [2, 2, 2],
    "depths": [1, 1, 1], "key_dim": [8, 8, 8],
}  # fmt: skip
MOBILEBERT = {
    **TEXT, "embedding_size": 16, "true_hidden_size": 16, "intra_bottleneck_size": 16,
    "intermediate_size": 40,
}  # fmt: skip
XGLM = {
    "vocab_size": 99, "d_model": 32, "ffn_dim": 37, "num_layers": 2, "attention_heads": 4,
    "max_position_embeddings": 64, **SPECIAL,
}  # fmt: skip
MPT = {"vocab_size": 99, "d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 64}
RWKV = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "context_length": 32}
FNET = {key: value for key, value in TEXT.items() if key != "num_attention_heads"}
AUTOENCODER = {
    **IMAGE, "decoder_hidden_size": 16, "decoder_num_hidden_layers": 1,
    "decoder_num_attention_heads": 2, "decoder_intermediate_size": 16,
}  # fmt: skip
DPT = {**IMAGE, "is_hybrid": False, "backbone_out_indices": [0, 1], "neck_hidden_sizes": [8, 8]}
PYRAMID = {"hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1]}
FOCAL = {
    "image_size": 32, "embed_dim": 16, "depths": [1, 1], "focal_levels": [1, 1],
    "focal_windows": [3, 3],
}  # fmt: skip
PVT2 = {**PYRAMID, "image_size": 32, "num_attention_heads": [1, 1, 2, 2]}
MULTILINGUAL = {**TEXT, **SPECIAL, "languages": ["en_XX"], "default_language": "en_XX"}
BILINGUAL = {
    "text_config": {**TEXT, **SPECIAL, "project_dim": 32}, "vision_config": dict(IMAGE),
    "projection_dim": 16,
}  # fmt: skip


def _detr() -> dict[str, Any]:
    import transformers

    backbone = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 8, 8, 8], depths=[1, 1, 1, 1], layer_type="basic",
        out_features=["stage4"],
    )  # fmt: skip
    return {
        "use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None,
        "backbone_config": backbone, "d_model": 32, "encoder_layers": 1, "decoder_layers": 1,
        "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 37,
        "decoder_ffn_dim": 37, "num_queries": 5,
    }  # fmt: skip


@dataclass(frozen=True)
class Architecture:
    """One row: the model's class, its configuration, what it is called with."""

    name: str
    config: str
    model: str
    settings: dict[str, Any] | Callable[[], dict[str, Any]]
    inputs: Inputs
    # The numbers of the breaks that the forward pass is known to have; none: it is one graph.
    breaks: tuple[str, ...] = ()

    def build(self, training: bool) -> torch.nn.Module:
        """A model with fixed weights. In training, too, dropout is drawn from a seeded stream."""
        import transformers

        settings = self.settings if isinstance(self.settings, dict) else self.settings()
        torch.manual_seed(0)
        config = getattr(transformers, self.config)(**settings)
        made: torch.nn.Module = getattr(transformers, self.model)(config)
        made.train(training)
        for parameter in made.parameters():
            parameter.requires_grad_(training)
        return made


def _row(
    name: str,
    stem: str,
    settings: Any,
    inputs: Inputs,
    model: str = "Model",
    breaks: tuple[str, ...] = (),
) -> Architecture:
    return Architecture(name, f"{stem}Config", f"{stem}{model}", settings, inputs, breaks)


CAUSAL = "ForCausalLM"
ARCHITECTURES: tuple[Architecture, ...] = (
    # Encoders of text
    _row("bert", "Bert", TEXT, tokens),
    _row("bert-plain", "Bert", TEXT, plain_tokens),
    _row("bert-classifier", "Bert", TEXT, tokens, "ForSequenceClassification"),
    _row(
        "distilbert",
        "DistilBert",
        {"vocab_size": 99, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 37},
        tokens,
    ),
    _row("roberta", "Roberta", {**TEXT, **SPECIAL}, tokens),
    _row("xlm-roberta", "XLMRoberta", {**TEXT, **SPECIAL}, tokens),
    _row("camembert", "Camembert", {**TEXT, **SPECIAL}, tokens),
    _row("albert", "Albert", {**TEXT, "embedding_size": 16}, tokens),
    _row("electra", "Electra", {**TEXT, "embedding_size": 16}, tokens),
    _row("mpnet", "MPNet", TEXT, tokens),
    # Sizes that the program puts into tensors, to slice and reshape with them.
    _row("deberta", "Deberta", DEBERTA, tokens),
    _row("deberta-v2", "DebertaV2", DEBERTA, tokens),
    _row("xlnet", "XLNet", XLNET, tokens),
    _row("funnel", "Funnel", FUNNEL, tokens),
    _row("convbert", "ConvBert", {**TEXT, "embedding_size": 16}, tokens),
    _row(
        "squeezebert",
        "SqueezeBert",
        {**TEXT, "embedding_size": 32, "intermediate_size": 40},
        tokens,
    ),
    _row("layoutlm", "LayoutLM", {**TEXT, "max_2d_position_embeddings": 64}, tokens),
    _row("longformer", "Longformer", LONG, tokens, breaks=("W0003",)),
    _row("bigbird", "BigBird", {**TEXT, "attention_type": "original_full"}, tokens),
    _row(
        "modernbert",
        "ModernBert",
        {**TEXT, **SPECIAL, "cls_token_id": 1, "sep_token_id": 2},
        tokens,
    ),
    _row("roformer", "RoFormer", TEXT, tokens),
    _row("megatron-bert", "MegatronBert", TEXT, tokens),
    _row("ernie", "Ernie", TEXT, tokens),
    _row("mobilebert", "MobileBert", MOBILEBERT, tokens),
    _row("fnet", "FNet", FNET, tokens),
    _row("xmod", "Xmod", MULTILINGUAL, tokens),
    _row("data2vec-text", "Data2VecText", {**TEXT, **SPECIAL}, tokens),
    _row(
        "rembert",
        "RemBert",
        {**TEXT, "input_embedding_size": 16, "output_embedding_size": 32},
        tokens,
    ),
    _row("ibert", "IBert", {**TEXT, **SPECIAL}, tokens),
    _row("yoso", "Yoso", {**TEXT, "use_expectation": True}, tokens),
    # Decoders of text
    _row("gpt2", "GPT2", GPT2, tokens, "LMHeadModel"),
    _row("gpt2-plain", "GPT2", GPT2, plain_tokens),
    _row("gpt-neo", "GPTNeo", NEO, tokens),
    _row("gpt-neox", "GPTNeoX", TEXT, tokens, CAUSAL),
    _row("gptj", "GPTJ", ROTARY, tokens),
    _row("codegen", "CodeGen", {**ROTARY, "n_ctx": 64}, tokens),
    _row("llama", "Llama", GROUPED, plain_tokens, CAUSAL),
    _row("llama-padded", "Llama", GROUPED, tokens, CAUSAL),
    _row("mistral", "Mistral", GROUPED, plain_tokens),
    _row(
        "mixtral",
        "Mixtral",
        {**GROUPED, "num_local_experts": 2, "num_experts_per_tok": 1, "intermediate_size": 40},
        plain_tokens,
    ),
    _row("qwen2", "Qwen2", GROUPED, plain_tokens, CAUSAL),
    _row("qwen3", "Qwen3", {**GROUPED, "head_dim": 8}, plain_tokens, CAUSAL),
    _row("gemma", "Gemma", {**GROUPED, "head_dim": 8}, plain_tokens),
    _row("gemma2", "Gemma2", {**GROUPED, "head_dim": 8}, plain_tokens),
    _row("phi", "Phi", TEXT, plain_tokens),
    _row("phi3", "Phi3", {**GROUPED, **SPECIAL}, plain_tokens),
    _row("opt", "OPT", {**TEXT, "ffn_dim": 37, "word_embed_proj_dim": 32}, tokens),
    _row(
        "bloom", "Bloom", {"vocab_size": 99, "hidden_size": 32, "n_layer": 2, "n_head": 4}, tokens
    ),
    _row("falcon", "Falcon", TEXT, tokens),
    _row("cohere", "Cohere", GROUPED, plain_tokens),
    _row("stablelm", "StableLm", GROUPED, plain_tokens),
    _row("granite", "Granite", GROUPED, plain_tokens),
    _row("olmo", "Olmo", GROUPED, plain_tokens),
    _row("olmo2", "Olmo2", GROUPED, plain_tokens),
    _row("mamba", "Mamba", MAMBA, plain_tokens),
    _row("mamba2", "Mamba2", MAMBA2, plain_tokens),
    _row("rwkv", "Rwkv", RWKV, plain_tokens),
    _row("qwen3-moe", "Qwen3Moe", {**EXPERTS, "head_dim": 8}, plain_tokens),
    _row(
        "qwen2-moe",
        "Qwen2Moe",
        {**EXPERTS, "shared_expert_intermediate_size": 16},
        plain_tokens,
    ),
    _row("gemma3", "Gemma3Text", HEADS, plain_tokens),
    _row("starcoder2", "Starcoder2", GROUPED, plain_tokens),
    _row("persimmon", "Persimmon", TEXT, plain_tokens),
    _row("nemotron", "Nemotron", GROUPED, plain_tokens),
    _row("smollm3", "SmolLM3", {**GROUPED, **SPECIAL}, plain_tokens),
    _row("glm", "Glm", {**HEADS, **SPECIAL}, plain_tokens),
    _row("glm4", "Glm4", {**HEADS, **SPECIAL}, plain_tokens),
    _row("helium", "Helium", HEADS, plain_tokens),
    _row("ministral", "Ministral", HEADS, plain_tokens),
    _row("cohere2", "Cohere2", GROUPED, plain_tokens),
    _row("biogpt", "BioGpt", {**TEXT, **SPECIAL}, tokens),
    _row("xglm", "XGLM", XGLM, tokens),
    _row("gpt-bigcode", "GPTBigCode", GPT2, tokens),
    _row("mpt", "Mpt", MPT, tokens),
    # Both
    _row("t5", "T5", T5, pairs, "ForConditionalGeneration"),
    _row("bart", "Bart", BART, pairs),
    _row("pegasus", "Pegasus", BART, pairs),
    _row("marian", "Marian", MARIAN, pairs),
    _row("m2m100", "M2M100", BART, pairs),
    _row("blenderbot", "Blenderbot", STARTED, pairs),
    _row("blenderbot-small", "BlenderbotSmall", STARTED, pairs),
    _row("mbart", "MBart", BART, pairs),
    _row("plbart", "PLBart", BART, pairs),
    _row("mt5", "MT5", T5, pairs),
    _row("umt5", "UMT5", T5, pairs),
    _row("prophetnet", "ProphetNet", PROPHET, pairs),
    _row("led", "LED", LED, pairs, breaks=("W0003",)),
    # Pictures
    _row("vit", "ViT", IMAGE, image),
    _row("deit", "DeiT", IMAGE, image),
    _row("beit", "Beit", IMAGE, image),
    _row("dinov2", "Dinov2", IMAGE, image),
    _row("swin", "Swin", SWIN, large_image),
    _row("convnext", "ConvNext", {**STAGES, "image_size": 32}, large_image),
    _row("resnet", "ResNet", {**STAGES, "embedding_size": 8}, wide_image),
    _row("segformer", "Segformer", SEGFORMER, large_image),
    _row("pvt", "Pvt", PVT, large_image),
    _row("mobilevit", "MobileViT", MOBILEVIT, large_image),
    Architecture("detr", "DetrConfig", "DetrModel", _detr, large_image),
    _row("vit-mae", "ViTMAE", AUTOENCODER, image),
    _row("vit-msn", "ViTMSN", IMAGE, image),
    _row("yolos", "Yolos", {**IMAGE, "image_size": [16, 16], "num_detection_tokens": 3}, image),
    _row("dpt", "DPT", DPT, image),
    _row("levit", "Levit", LEVIT, wide_image),
    _row("poolformer", "PoolFormer", PYRAMID, wide_image),
    _row("regnet", "RegNet", {**PYRAMID, "embedding_size": 8, "groups_width": 4}, wide_image),
    _row("convnextv2", "ConvNextV2", {**STAGES, "image_size": 32}, large_image),
    _row("swinv2", "Swinv2", SWIN, large_image),
    _row("mobilenet-v2", "MobileNetV2", {"image_size": 32, "depth_multiplier": 0.25}, wide_image),
    _row("bit", "Bit", {**PYRAMID, "embedding_size": 8, "num_groups": 2}, wide_image),
    _row("focalnet", "FocalNet", FOCAL, large_image),
    _row("dinov2-registers", "Dinov2WithRegisters", IMAGE, image),
    _row("ijepa", "IJepa", IMAGE, image),
    _row("pvt-v2", "PvtV2", PVT2, large_image),
    _row("glpn", "GLPN", SEGFORMER, large_image),
    # Pictures and text, sound
    _row("clip", "CLIP", TWO_TOWERS, captioned),
    _row("siglip", "Siglip", TWO_TOWERS, captioned),
    _row("blip", "Blip", TWO_TOWERS, captioned),
    _row("altclip", "AltCLIP", BILINGUAL, captioned),
    _row("wav2vec2", "Wav2Vec2", WAVE, sound),
    _row("hubert", "Hubert", WAVE, sound),
    _row("wavlm", "WavLM", WAVE, sound),
    _row("unispeech", "UniSpeech", WAVE, sound),
    _row(
        "data2vec-audio",
        "Data2VecAudio",
        {**WAVE, "num_conv_pos_embeddings": 1, "conv_pos_kernel_size": 3},
        sound,
    ),
    _row("sew", "SEW", {**WAVE, "squeeze_factor": 2}, sound),
    _row("whisper", "Whisper", WHISPER, spectrum),
)
BY_NAME: dict[str, Architecture] = {row.name: row for row in ARCHITECTURES}


# ----------------------------------------------------------------------------------------- report


PAGE = """# Architectures of transformers

Made by `python -m tests.conformance.architectures --page`; do not edit. Each model is made from a
tiny configuration, called twice uncompiled and twice compiled (backend `windfall`); results, inputs
and buffers are compared. Seconds are those of a whole check. Breaks follow the table with numbers
and lines; [breaks](breaks.md) explains the numbers.
"""
_FOLDERS = re.compile(r"/\S*/(?=[^/ ]+/[^/ ]+:\d)")  # of a file, but for the innermost


def table(lines: list[Any]) -> Iterator[str]:
    """Markdown of what a sweep found, and below it every break with its number and line."""
    yield "| architecture | equal | graphs | breaks | seconds |"
    yield "|---|---|---:|---|---:|"
    for line in lines:
        numbers = [told.split(" ", 1)[0] for told in line.breaks]
        told = ", ".join(f"{one}×{numbers.count(one)}" for one in sorted(set(numbers)))
        told = told or ("fall-back" if line.fallbacks else "–")
        yield f"| {line.name} | {line.status} | {line.graphs} | {told} | {line.seconds:.1f} |"
    right = sum(line.right for line in lines)
    whole = sum(line.captured for line in lines)
    yield f"\n{right} of {len(lines)} right, {whole} in one piece\n"
    for line in lines:
        if not line.right:
            yield f"- {line.name}: {line.status}: {line.detail}"
        for reason in dict.fromkeys([*line.breaks, *line.fallbacks]):
            yield f"- {line.name}: {_FOLDERS.sub('', reason)}"


def main() -> None:
    """The command line."""
    from tests.conformance.sweep import lines, path_of, run

    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--backend", default="windfall")
    options.add_argument("--mode", default="eval", choices=("eval", "train"))
    options.add_argument("--only", default="", help="names, parted by commas")
    options.add_argument("--chunk", default="0/1", help="every n-th: k/n")
    options.add_argument(
        "--page", action="store_true", help="with the head of docs/architectures.md"
    )
    options.add_argument("--resume", action="store_true", help="keep what an earlier run found")
    chosen = options.parse_args()
    number, of = (int(part) for part in chosen.chunk.split("/"))
    wanted = chosen.only.split(",") if chosen.only else list(BY_NAME)[number::of]
    names = [f"{name}:{chosen.mode}" for name in wanted]
    path = path_of("transformers", chosen.backend)
    if not chosen.resume:
        path.unlink(missing_ok=True)
    run("transformers", chosen.backend, names, lambda text: None)
    found = lines(path)
    if chosen.page:
        print(PAGE)
    print("\n".join(table([found[name] for name in names])))


if __name__ == "__main__":
    main()
