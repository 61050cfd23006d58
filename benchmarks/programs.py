"""The programs that suites measure: plain torch, as a user would write them.

Enters: sizes. Leaves: functions and modules, and makers of `Subject`s. Invariant: nothing here
knows who will run it.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
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


# ----------------------------------------------------------------- gradients of gradients


def smooth_perceptron(layers: int, width: int, inputs: int) -> nn.Module:
    """Linear layers and tanh, one result."""
    pairs = pairwise([inputs, *[width] * (layers - 1)])
    hidden = [part for pair in pairs for part in (nn.Linear(*pair), nn.Tanh())]
    return nn.Sequential(*hidden, nn.Linear(width, 1))


def gradient_penalty(judge: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The loss of WGAN-GP's critic."""
    score = judge(x)
    (slope,) = torch.autograd.grad(score.sum(), x, create_graph=True)
    loss: Tensor = score.mean() + 10 * ((slope.norm(2, dim=1) - 1) ** 2).mean()
    return loss


def heat_equation(field: Callable[[Tensor], Tensor], points: Tensor) -> Tensor:
    """A physics-informed loss: u_t = u_xx, at points (x, t)."""
    u = field(points)
    (slope,) = torch.autograd.grad(u.sum(), points, create_graph=True)
    (second,) = torch.autograd.grad(slope[:, 0].sum(), points, create_graph=True)
    return ((slope[:, 1] - second[:, 0]) ** 2).mean()


def regression(x: Tensor, y: Tensor, *weights: Tensor) -> Tensor:
    """The loss of a perceptron whose weights are given."""
    for weight in weights[:-1]:
        x = torch.tanh(x @ weight)
    distance: Tensor = x @ weights[-1] - y
    return distance.square().mean()


def adapted(loss: Callable[..., Tensor], x: Tensor, y: Tensor, *weights: Tensor) -> Tensor:
    """MAML: the loss after three steps of gradient descent."""
    for _ in range(3):
        slopes = torch.autograd.grad(loss(x, y, *weights), weights, create_graph=True)
        weights = tuple(one - 0.01 * slope for one, slope in zip(weights, slopes, strict=True))
    return loss(x, y, *weights)


# ----------------------------------------------------------------------------- writes


def cache_row(cache: Tensor, row: Tensor) -> None:
    """One position of a cache of keys."""
    cache[:, :, 5:6] = row


def cache_attention(cache: Tensor, row: Tensor, query: Tensor) -> Tensor:
    """A step of decoding: the new key, and scores against all of them."""
    cache[:, :, 5:6] = row
    return torch.softmax(query @ cache.transpose(-1, -2), -1)


def cache_index_copy(cache: Tensor, positions: Tensor, rows: Tensor) -> None:
    cache.index_copy_(2, positions, rows)


def cache_index_put(cache: Tensor, positions: Tensor, rows: Tensor) -> None:
    cache[:, :, positions] = rows


def replay_row(observations: Tensor, rewards: Tensor, observation: Tensor, reward: Tensor) -> None:
    """What an agent saw, at a place of its memory."""
    observations[77] = observation
    rewards[77] = reward


def moving_average(average: Tensor, value: Tensor) -> None:
    average.mul_(0.9).add_(value, alpha=0.1)


def moving_averages(averages: list[Tensor], values: list[Tensor]) -> None:
    for average, value in zip(averages, values, strict=True):
        average.mul_(0.999).add_(value, alpha=0.001)


def moving_averages_at_once(averages: list[Tensor], values: list[Tensor]) -> None:
    torch._foreach_lerp_(averages, values, 0.001)


def accumulate(gradients: list[Tensor], more: list[Tensor]) -> None:
    for gradient, other in zip(gradients, more, strict=True):
        gradient += other


class Accumulates(nn.Module):
    """A loss whose gradients are added, in backward, to those that a parameter has already."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size))

    def forward(self, x: Tensor) -> Tensor:
        return (x * self.weight).sin().sum()


class Remembers(nn.Module):
    """A loss that leaves a row of what it saw in a large buffer."""

    def __init__(self, rows: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width))
        self.seen: Tensor
        self.register_buffer("seen", torch.zeros(rows, width))

    def forward(self, x: Tensor) -> Tensor:
        hidden = x * self.weight
        self.seen[3] = hidden.detach()[0]
        return hidden.sum()


class Averages(nn.Module):
    """A loss that keeps a moving average of all that it saw."""

    def __init__(self, rows: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width))
        self.average: Tensor
        self.register_buffer("average", torch.zeros(rows, width))

    def forward(self, x: Tensor) -> Tensor:
        hidden = x * self.weight
        self.average.mul_(0.9).add_(hidden.detach(), alpha=0.1)
        return hidden.sum()


def shared_memory(parameter: Tensor, same: Tensor) -> Tensor:
    """A parameter and another view of its memory, written through the one and read by the other."""
    parameter.mul_(0.9)
    return same + 1


# ------------------------------------------------------------------------- transforms of torch.func


def _loss(model: nn.Module) -> Callable[..., Tensor]:
    def loss(state: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        found: Tensor = torch.func.functional_call(model, state, (x,))
        return (found - y).square().mean()

    return loss


def _state(model: nn.Module) -> dict[str, Tensor]:
    return {name: one.detach() for name, one in model.named_parameters()}


def samples() -> Subject:
    """Gradients of each sample."""
    model = smooth_perceptron(3, 64, 32)
    each = torch.func.vmap(torch.func.grad(_loss(model)), in_dims=(None, 0, 0))
    return Subject(each, (_state(model), torch.randn(64, 32), torch.randn(64, 1)))


def ensemble() -> Subject:
    """Ten networks at once."""
    models = [smooth_perceptron(3, 64, 32) for _ in range(10)]
    parameters, _ = torch.func.stack_module_state(models)
    state = {name: one.detach() for name, one in parameters.items()}

    def one(state: dict[str, Tensor], x: Tensor) -> Any:
        return torch.func.functional_call(models[0], state, (x,))

    return Subject(torch.func.vmap(one, in_dims=(0, None)), (state, torch.randn(64, 32)))


def hessian_vector() -> Subject:
    """Forward over reverse."""
    model = smooth_perceptron(3, 64, 32)
    loss = _loss(model)

    def product(state: dict[str, Tensor], x: Tensor, y: Tensor) -> Any:
        gradient = torch.func.grad(lambda given: loss(given, x, y))
        return torch.func.jvp(gradient, (state,), (state,))[1]

    return Subject(product, (_state(model), torch.randn(64, 32), torch.randn(64, 1)))


def jacobians() -> Subject:
    """Of a layer, for each sample."""

    def layer(x: Tensor, w: Tensor) -> Tensor:
        return torch.tanh(x @ w)

    return Subject(
        torch.func.vmap(torch.func.jacrev(layer), in_dims=(0, None)),
        (torch.randn(64, 32), torch.randn(32, 16)),
    )
