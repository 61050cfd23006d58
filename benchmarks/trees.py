"""The rows of `python -m benchmarks trees`: graph trees against eager and our own default mode.

Rows with small tensors say what `mode="reduce-overhead"` costs where it cannot pay; rows with large
ones (16 MB between regions, or saved for backward) what it gains.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.case import Case, Subject
from benchmarks.programs import Maker, module, normal, on, perceptron


def _eight_breaks(x: Tensor, w: Tensor) -> Tensor:
    import windfall

    for _ in range(8):
        x = torch.relu(x @ w) + 0.1
        x = x * 2 - x.mean(-1, keepdim=True)
        windfall.graph_break()
    return x.sum()


def _eight_breaks_pointwise(x: Tensor) -> Tensor:
    import windfall

    for _ in range(8):
        x = torch.relu(x * 1.01) - 0.1
        windfall.graph_break()
    return x.sum()


class _Encoder(nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layers(x)
        return found


class _CellLoop(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(32, 32)

    def forward(self, x: Tensor) -> Tensor:
        h = c = x.new_zeros(x.shape[1], 32)
        for one in x:
            h, c = self.cell(one, (h, c))
        found: Tensor = h
        return found


class _Decoder(nn.Module):
    """One token of attention over a cache that it writes, and a feed-forward layer."""

    def __init__(self, width: int = 64, length: int = 128) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.keys: Tensor
        self.values: Tensor
        self.register_buffer("keys", torch.zeros(1, length, width))
        self.register_buffer("values", torch.zeros(1, length, width))

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        self.keys.index_copy_(1, position, k)
        self.values.index_copy_(1, position, v)
        x = x + self.out(nn.functional.scaled_dot_product_attention(q, self.keys, self.values))
        found: Tensor = x + self.down(nn.functional.gelu(self.up(x)))
        return found


class _Policy(nn.Module):
    """A step of a policy: the action is read, which ends a region."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = perceptron(2, 32), nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Any:
        logits = self.head(torch.tanh(self.body(x)))
        action = int(logits.argmax())
        return action, torch.log_softmax(logits, -1)[0, action]


def _decoding() -> Subject:
    return Subject(_Decoder(), (torch.randn(1, 1, 64), torch.tensor([5])))


def _wide(layers: int, width: int) -> nn.Module:
    return nn.Sequential(
        *(part for _ in range(layers) for part in (nn.Linear(width, width), nn.Tanh()))
    )


def tree_cases() -> list[Case]:
    """Small first, then large."""
    small: list[tuple[str, Maker]] = [
        ("MLP, 8 layers of 32", module(lambda: perceptron(8, 32), normal(1, 32))),
        ("encoder, 2 layers of 64", module(_Encoder, normal(2, 16, 64))),
        ("LSTM cell, 8 steps", module(_CellLoop, normal(8, 1, 32))),
    ]
    return [
        *(Case(name, make) for name, make in small),
        *(Case(name, make, "training") for name, make in small),
        Case("decoding with a static cache", _decoding),
        Case("eight breaks, 8 x 32", on(_eight_breaks, normal(8, 32), normal(32, 32))),
        Case("policy step", module(_Policy, normal(1, 32))),
        Case("eight breaks, 16 MB", on(_eight_breaks_pointwise, normal(4096, 1024))),
        Case("eight breaks, 64 MB", on(_eight_breaks_pointwise, normal(16384, 1024)), quick=False),
        Case(
            "MLP, 6 layers of 512, 8192 rows",
            module(lambda: _wide(6, 512), normal(8192, 512)),
            "training",
        ),
        Case(
            "encoder, 2 layers of 64, 64 x 256", module(_Encoder, normal(64, 256, 64)), "training"
        ),
    ]
