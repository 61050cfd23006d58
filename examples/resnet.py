"""ResNet-18 in plain torch.nn, after He et al. 2015.

Enters: images, (batch, 3, height, width). Leaves: a score for each class. With `width=64` and a
thousand classes these are the layers of the paper; `Stem` takes its 7×7 stride-2 convolution and
pooling, `small_images=True` the 3×3 one that images of 32×32 need.
"""

from __future__ import annotations

from torch import Tensor, nn


class Residual(nn.Module):
    """Two 3×3 convolutions and the way around them."""

    def __init__(self, given: int, width: int, stride: int) -> None:
        super().__init__()
        self.convolution1 = nn.Conv2d(given, width, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.convolution2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.around: nn.Module = nn.Identity()
        if stride != 1 or given != width:
            self.around = nn.Sequential(
                nn.Conv2d(given, width, 1, stride=stride, bias=False), nn.BatchNorm2d(width)
            )

    def forward(self, x: Tensor) -> Tensor:
        inner = self.relu(self.norm1(self.convolution1(x)))
        inner = self.norm2(self.convolution2(inner))
        inner += self.around(x)
        result: Tensor = self.relu(inner)
        return result


class ResNet18(nn.Module):
    """Four stages of two residual blocks; each stage doubles the width and halves the image."""

    def __init__(self, classes: int = 1000, width: int = 64, small_images: bool = False) -> None:
        super().__init__()
        self.stem = _stem(width, small_images)
        stages: list[nn.Module] = []
        given = width
        for number in range(4):
            wide = width << number
            first = Residual(given, wide, stride=1 if number == 0 else 2)
            stages.append(nn.Sequential(first, Residual(wide, wide, stride=1)))
            given = wide
        self.stages = nn.Sequential(*stages)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classify = nn.Linear(given, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        features = self.stages(self.stem(images))
        scores: Tensor = self.classify(self.pool(features).flatten(1))
        return scores


def _stem(width: int, small_images: bool) -> nn.Module:
    if small_images:
        convolution = nn.Conv2d(3, width, 3, padding=1, bias=False)
        return nn.Sequential(convolution, nn.BatchNorm2d(width), nn.ReLU(inplace=True))
    return nn.Sequential(
        nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, stride=2, padding=1),
    )
