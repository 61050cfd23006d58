"""A physics-informed network: u'' = -u, with both derivatives inside of one compiled function."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import windfall


def main(steps: int = 60) -> list[float]:
    """Solve u'' = -u, u(0) = 0, u'(0) = 1; answers the losses."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

    def derivative(of: Tensor, by: Tensor) -> Tensor:
        (found,) = torch.autograd.grad(of.sum(), by, create_graph=True)
        return found

    @windfall.compile
    def loss_at(x: Tensor) -> Tensor:
        u = model(x)
        first = derivative(u, x)
        residual = derivative(first, x) + u
        start = u[0].square() + (first[0] - 1).square()
        loss: Tensor = residual.square().mean() + start.sum()
        return loss

    losses = []
    for _ in range(steps):
        x = torch.linspace(0, 2, 32).reshape(-1, 1).requires_grad_()
        optimizer.zero_grad()
        loss = loss_at(x)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    print(f"loss {losses[0]:.3f} → {losses[-1]:.4f}")
    return losses


if __name__ == "__main__":
    main()
