"""The programs that suites measure: plain torch, as a user would write them.

Enters: sizes. Leaves: functions and modules, and makers of `Subject`s. Invariant: nothing here
knows who will run it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.case import Subject

Maker = Callable[[], Subject]
MakeTensor = Callable[[], Tensor]


def on(program: Callable[..., Any], *inputs: Callable[[], Any]) -> Maker:
    """A maker: `program` on inputs that are made afresh."""
    return lambda: Subject(program, tuple(make() for make in inputs))


def module(make: Callable[[], nn.Module], *inputs: Callable[[], Any]) -> Maker:
    """A maker: a new module on new inputs."""
    return lambda: Subject(make(), tuple(one() for one in inputs))


def normal(*shape: int, dtype: torch.dtype = torch.float32, grad: bool = False) -> MakeTensor:
    """A maker of normally distributed values."""
    return lambda: torch.randn(shape).to(dtype).requires_grad_(grad)


def integers(high: int, *shape: int) -> MakeTensor:
    """A maker of integers below `high`."""
    return lambda: torch.randint(high, shape)


# ------------------------------------------------------------------------------ calls


def add_one(x: Tensor) -> Tensor:
    return x + 1


def chain_of_ten(x: Tensor) -> Tensor:
    x = x + 1
    x = x * 2
    x = x.sin()
    x = x - 0.5
    x = x.abs()
    x = x * x
    x = x.sqrt()
    x = x + 3
    x = x.tanh()
    return x * 0.25


def perceptron(layers: int, width: int) -> nn.Module:
    """`layers` linear layers of `width`, with relu between."""
    stack: list[nn.Module] = []
    for _ in range(layers):
        stack += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*stack[:-1])


class ManyParameters(nn.Module):
    """A module whose work is tiny and whose parameters are many: what guards cost."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.scales = nn.ParameterList(nn.Parameter(torch.randn(4)) for _ in range(count))

    def forward(self, x: Tensor) -> Tensor:
        for scale in self.scales:
            x = x + scale
        return x


# ---------------------------------------------------------------------- first results


def gelu_sum(x: Tensor, y: Tensor) -> Tensor:
    return F.gelu(x * y + 1).sum(-1)


def affine_softmax(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.softmax(x @ w + b, -1)


def three_layers() -> nn.Module:
    return nn.Sequential(
        nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)
    )


# ---------------------------------------------------------------------------- kernels


def gelu_chain(x: Tensor, y: Tensor) -> Tensor:
    return F.gelu(x * y + 1) * y


def softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], weight, bias)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
    x = x + residual
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight


def rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat((-right, left), -1) * sin


def cross_entropy(x: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(x, target)


def adamw(
    parameters: list[Tensor], gradients: list[Tensor], means: list[Tensor], squares: list[Tensor]
) -> None:
    """One step of AdamW as a user would write it, tensor by tensor."""
    for p, g, m, v in zip(parameters, gradients, means, squares, strict=True):
        p.mul_(1 - 1e-3 * 0.01)
        m.lerp_(g, 1 - 0.9)
        v.mul_(0.999).addcmul_(g, g, value=1 - 0.999)
        p.addcdiv_(m, v.sqrt().add_(1e-8), value=-1e-3)


def sum_rows(x: Tensor) -> Tensor:
    return x.sum(0)


def sum_columns(x: Tensor) -> Tensor:
    return x.sum(1)


def sum_of_squares(x: Tensor) -> Tensor:
    return (x * x).sum()


def var_mean(x: Tensor) -> tuple[Tensor, ...]:
    return tuple(torch.var_mean(x, (0, 2)))


def argmax(x: Tensor) -> Tensor:
    return x.argmax(1)


def cumsum(x: Tensor) -> Tensor:
    return x.cumsum(1)


def transpose_add(x: Tensor, y: Tensor) -> Tensor:
    return x.t() + y


def strided_multiply(x: Tensor, y: Tensor) -> Tensor:
    return x[:, ::2] * y[:, 1::2]


def embedding_add(tokens: Tensor, table: Tensor, position: Tensor) -> Tensor:
    return F.embedding(tokens, table) + position


def dropout(x: Tensor) -> Tensor:
    return F.dropout(x, 0.1, training=True)
