"""Real models, as programs: transformers' BERT and GPT-2, and our ResNet-18.

Enters: sizes. Leaves: a `Recipe`: how the model is built for inference, how it is built together
with its loss for training, and what either is fed with. Invariant: weights and data depend on
torch's seed alone; nothing is fetched from anywhere; no line here knows who will run it.

    recipe = RECIPES["bert-4"]()
    model = recipe.model()
    model(*recipe.inputs(8))
    step = training_step(objective := recipe.objective(), objective, adamw(objective))
    loss = step(*recipe.batch(2))
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from examples.resnet import ResNet18


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to make one model and its data; each call makes them anew."""

    model: Callable[[], nn.Module]  # for inference: called with `inputs(batch)`
    objective: Callable[[], nn.Module]  # for training: called with `batch(size)`, answers the loss
    inputs: Callable[[int], tuple[Tensor, ...]]
    batch: Callable[[int], tuple[Tensor, Tensor]]


@dataclass(frozen=True, slots=True)
class Width:
    """The sizes that a transformer has beside its depth."""

    hidden: int = 768
    heads: int = 12
    vocabulary: int = 30_522
    positions: int = 512
    length: int = 128  # of the sequences it is fed with


TINY = Width(hidden=32, heads=4, vocabulary=97, positions=32, length=12)


class LabelledObjective(nn.Module):
    """A transformers model that is given its labels and makes the cross entropy by itself."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        loss: Tensor = self.model(tokens, labels=labels).loss
        return loss


class ImageObjective(nn.Module):
    """Cross entropy of a classifier's scores."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(self.model(images), labels)


def bert(layers: int, width: Width | None = None, attention: str = "sdpa") -> Recipe:
    """BERT: the encoder with its pooler for inference, a classifier of sequences for training."""
    library = transformers()
    size = width or Width()
    config = library.BertConfig(
        num_hidden_layers=layers,
        hidden_size=size.hidden,
        num_attention_heads=size.heads,
        intermediate_size=4 * size.hidden,
        vocab_size=size.vocabulary,
        max_position_embeddings=size.positions,
        attn_implementation=attention,
    )

    def batch(count: int) -> tuple[Tensor, Tensor]:
        return _tokens(size, count), torch.randint(config.num_labels, (count,))

    return Recipe(
        model=lambda: library.BertModel(config).eval(),
        objective=lambda: _objective(library.BertForSequenceClassification(config)),
        inputs=lambda count: (_tokens(size, count),),
        batch=batch,
    )


def gpt2(
    layers: int, width: Width | None = None, attention: str = "sdpa", checkpoints: bool = False
) -> Recipe:
    """GPT-2 with its language head, whose weight is that of the embedding; with `checkpoints` each
    layer is computed again in backward."""
    library = transformers()
    size = width or Width(vocabulary=50_257, positions=1024)
    config = library.GPT2Config(
        n_layer=layers,
        n_embd=size.hidden,
        n_head=size.heads,
        vocab_size=size.vocabulary,
        n_positions=size.positions,
        bos_token_id=size.vocabulary - 1,
        eos_token_id=size.vocabulary - 1,
        use_cache=False,  # one pass over a whole sequence
        attn_implementation=attention,
    )

    def model() -> Any:
        made = library.GPT2LMHeadModel(config)
        made.loss_type = "ForCausalLM"  # else it logs, inside forward, that it guessed its loss
        if checkpoints:
            made.activation_checkpointing_enable({"use_reentrant": False})
        return made

    def batch(count: int) -> tuple[Tensor, Tensor]:
        tokens = _tokens(size, count)
        return tokens, tokens  # the model itself shifts the labels

    return Recipe(
        model=lambda: model().eval(),
        objective=lambda: _objective(model()),
        inputs=lambda count: (_tokens(size, count),),
        batch=batch,
    )


def resnet18(tiny: bool = False) -> Recipe:
    """ResNet-18 on images of 224×224; tiny: an eighth of the width, on images of 32×32."""
    side, classes = (32, 10) if tiny else (224, 1000)

    def model() -> ResNet18:
        return ResNet18(classes, width=8, small_images=True) if tiny else ResNet18(classes)

    def images(count: int) -> Tensor:
        return torch.randn(count, 3, side, side)

    return Recipe(
        model=lambda: model().eval(),
        objective=lambda: _objective(model(), ImageObjective),
        inputs=lambda count: (images(count),),
        batch=lambda count: (images(count), torch.randint(classes, (count,))),
    )


def transformers() -> Any:
    """The library, with no thought of the network; its import takes seconds."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    return importlib.import_module("transformers")


def _objective(model: nn.Module, kind: type[nn.Module] = LabelledObjective) -> nn.Module:
    return kind(model).train()


def _tokens(size: Width, count: int) -> Tensor:
    return torch.randint(size.vocabulary - 1, (count, size.length))


# Made when asked for, because transformers takes seconds to import.
RECIPES: dict[str, Callable[[], Recipe]] = {
    "bert-4": lambda: bert(4),
    "bert-12": lambda: bert(12),
    "gpt2-6": lambda: gpt2(6),
    "gpt2-6 checkpointed": lambda: gpt2(6, checkpoints=True),
    "resnet-18": resnet18,
    "tiny bert": lambda: bert(2, TINY),
    "tiny gpt2": lambda: gpt2(2, TINY),
    "tiny resnet": lambda: resnet18(tiny=True),
}


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    """Torch's fused AdamW: the fastest that eager has."""
    return torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)


def training_step(
    forward: Callable[..., Any], objective: nn.Module, optimizer: torch.optim.Optimizer
) -> Callable[[Tensor, Tensor], Tensor]:
    """A whole step on one batch; answers the loss. `forward` is the objective, compiled or not."""

    def step(inputs: Tensor, labels: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = forward(inputs, labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss.detach()

    return step
