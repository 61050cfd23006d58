"""A convolutional classifier of small pictures; trained compiled, used compiled."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import windfall


def pictures(count: int) -> tuple[Tensor, Tensor]:
    """Bars that lie, stand or cross, with noise."""
    labels = torch.randint(3, (count,))
    images = 0.3 * torch.randn(count, 1, 12, 12)
    for image, label in zip(images, labels.tolist(), strict=True):
        at = int(torch.randint(2, 10, ()))
        if label != 1:
            image[0, at] += 1
        if label != 0:
            image[0, :, at] += 1
    return images, labels


def main(steps: int = 40) -> float:
    """Train; answers how many of new pictures are told right."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.AdaptiveMaxPool2d(1), nn.Flatten(),
        nn.Linear(16, 3),
    )  # fmt: skip
    compiled = windfall.compile(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        images, labels = pictures(32)
        optimizer.zero_grad()
        F.cross_entropy(compiled(images), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    model.eval()  # the compiled module is in evaluation mode too
    images, labels = pictures(256)
    with torch.no_grad():
        right = float((compiled(images).argmax(1) == labels).float().mean())
    print(f"{right:.0%} of new pictures are told right")
    return right


if __name__ == "__main__":
    main()
