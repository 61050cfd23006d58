"""A gradient penalty: derivatives of derivatives through a compiled critic."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import windfall


def main(steps: int = 30) -> list[float]:
    """Train a critic whose slope is to be 1; answers the penalties."""
    torch.manual_seed(0)
    critic = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1))
    compiled = windfall.compile(critic)
    optimizer = torch.optim.Adam(critic.parameters(), lr=1e-2)
    penalties = []
    for _ in range(steps):
        real, fake = torch.randn(64, 2) + 2, torch.randn(64, 2)
        mix = torch.rand(64, 1)
        between = (mix * real + (1 - mix) * fake).requires_grad_()
        scores: Tensor = compiled(between)
        (slope,) = torch.autograd.grad(scores.sum(), between, create_graph=True)
        penalty = (slope.norm(dim=1) - 1).square().mean()
        loss = compiled(fake).mean() - compiled(real).mean() + 10 * penalty
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        penalties.append(float(penalty.detach()))
    print(f"penalty {penalties[0]:.3f} → {penalties[-1]:.3f}")
    return penalties


if __name__ == "__main__":
    main()
