"""A reinforcement-learning step (REINFORCE on a bandit): sampling, loss and update, compiled."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import windfall


def main(steps: int = 60) -> float:
    """Learn which of four arms pays; answers how sure the policy is of it."""
    torch.manual_seed(0)
    policy = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 4))
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-2)
    best = 2

    @windfall.compile
    def step(states: Tensor) -> Tensor:
        scores = torch.log_softmax(policy(states), -1)
        actions = torch.multinomial(scores.detach().exp(), 1)
        rewards = (actions == best).float()
        loss = -(scores.gather(1, actions) * (rewards - rewards.mean())).mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return rewards.mean()

    for _ in range(steps):
        step(torch.randn(64, 3))
    with torch.no_grad():
        sure = float(torch.softmax(policy(torch.randn(256, 3)), -1)[:, best].mean())
    print(f"the policy takes the best arm with probability {sure:.2f}")
    return sure


if __name__ == "__main__":
    main()
