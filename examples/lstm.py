"""An LSTM cell in a Python loop: sequences of any length, and what was compiled for them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import windfall


class Reader(nn.Module):
    """Reads a sequence step by step."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.LSTMCell(4, 16), nn.Linear(16, 1)

    def forward(self, sequence: Tensor) -> Tensor:
        state = torch.zeros(sequence.shape[1], 16), torch.zeros(sequence.shape[1], 16)
        for step in sequence:
            state = self.cell(step, state)
        answer: Tensor = self.head(state[0])
        return answer.squeeze(-1)


def main(steps: int = 20) -> list[float]:
    """Learn the mean of what was read; answers the losses."""
    torch.manual_seed(0)
    model = Reader()
    compiled = windfall.compile(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    losses = []
    for number in range(steps):
        sequence = torch.randn(6 + number % 2, 32, 4)
        loss = (compiled(sequence) - sequence.mean((0, 2))).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    told = windfall.explanation(compiled)
    counts = f"{len(told.graphs)} graphs, {len(told.breaks)} breaks"
    print(f"loss {losses[0]:.3f} → {losses[-1]:.3f}; {counts}")
    return losses


if __name__ == "__main__":
    main()
