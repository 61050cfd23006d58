"""A small GPT learns the bytes of a text: the training step is one compiled function."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import windfall

LENGTH, WIDTH = 32, 64


class Block(nn.Module):
    """Attention and a perceptron, each behind a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.mixed, self.projected = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        parts = self.mixed(self.norms[0](x)).view(batch, length, 3, 4, WIDTH // 4)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projected(seen.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + torch.as_tensor(self.narrow(F.gelu(self.wide(self.norms[1](x)))))


class Gpt(nn.Module):
    """Bytes in, scores of the next byte out."""

    def __init__(self, layers: int = 2) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(256, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.places.weight
        for block in self.blocks:
            x = block(x)
        scores: Tensor = self.head(self.norm(x))
        return scores


def main(steps: int = 30) -> list[float]:
    """Train; answers the losses."""
    torch.manual_seed(0)
    text = Path(__file__).parents[1].joinpath("LICENSE").read_bytes()
    data = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    model = Gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    @windfall.compile
    def step(tokens: Tensor, following: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(tokens).flatten(0, 1), following.flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss.detach()

    losses = []
    for _ in range(steps):
        starts = torch.randint(len(data) - LENGTH - 1, (8,))
        rows = torch.stack([data[at : at + LENGTH + 1] for at in starts.tolist()])
        losses.append(float(step(rows[:, :-1], rows[:, 1:])))
    print(f"loss {losses[0]:.3f} → {losses[-1]:.3f}")
    return losses


if __name__ == "__main__":
    main()
