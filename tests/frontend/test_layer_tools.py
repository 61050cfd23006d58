"""`torch.nn.utils` is read as users' code is: parametrizations, pruning, padding, vectors of
parameters stand in one graph."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune, rnn

import windfall


class Symmetric(nn.Module):
    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight.triu() + weight.triu(1).T

    def right_inverse(self, weight: torch.Tensor) -> torch.Tensor:
        return weight.triu()


def symmetric() -> nn.Module:
    layer = nn.Linear(6, 6)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    return layer


class Cached(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = parametrizations.weight_norm(nn.Linear(6, 6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with parametrize.cached():
            return self.layer(self.layer(x))


class Penalised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) + nn.utils.parameters_to_vector(self.layer.parameters()).pow(2).sum()


class Padded(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return rnn.pad_sequence([x[0], x[1, :2]], batch_first=True, padding_value=-1.0) * 2


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "spectral_norm": lambda: parametrizations.spectral_norm(nn.Linear(6, 4)),
    "spectral_norm of a convolution": lambda: nn.Sequential(
        nn.Unflatten(1, (6, 1, 1)), parametrizations.spectral_norm(nn.ConvTranspose2d(6, 4, 1))
    ),
    "weight_norm": lambda: parametrizations.weight_norm(nn.Linear(6, 4)),
    "orthogonal": lambda: parametrizations.orthogonal(nn.Linear(6, 6)),
    "cayley": lambda: parametrizations.orthogonal(nn.Linear(6, 4), orthogonal_map="cayley"),
    "householder": lambda: parametrizations.orthogonal(
        nn.Linear(6, 4), orthogonal_map="householder"
    ),
    "weight_norm by a hook": lambda: nn.utils.weight_norm(nn.Linear(6, 4)),
    "spectral_norm by a hook": lambda: nn.utils.spectral_norm(nn.Linear(6, 4)),
    "pruned": lambda: prune.l1_unstructured(nn.Linear(6, 4), "weight", 0.5),
    "a parametrization of the user's": symmetric,
    "cached": Cached,
    "parameters_to_vector": Penalised,
    "pad_sequence": Padded,
}


def steps(module: nn.Module, call: Callable[..., torch.Tensor], shape: list[int]) -> list[object]:
    """Results, gradients and buffers of four calls."""
    seen: list[object] = []
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn([*shape[:-1], shape[-1]], generator=generator, requires_grad=True)
        module.zero_grad()
        result = call(x)
        result.sum().backward()
        seen += [result.detach(), x.grad, *(one.grad for one in module.parameters())]
        seen += [one.clone() for one in module.buffers()]
    return seen


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated:FutureWarning")
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", LAYERS)
def test_layers_with_tools_are_one_graph(name: str, training: bool) -> None:
    def made() -> nn.Module:
        torch.manual_seed(0)
        return LAYERS[name]().train(training)

    plain, module = made(), made()
    compiled = windfall.compile(module)
    shape = [2, 3, 6] if name == "pad_sequence" else [3, 6]
    expected = steps(plain, plain, shape)
    torch.testing.assert_close(steps(module, compiled, shape), expected, rtol=1e-4, atol=1e-5)
    told = windfall.explanation(compiled).to_dict()
    assert (told["graph_count"], told["break_count"], told["fallbacks"]) == (1, 0, [])


def test_variances_are_checked_in_the_graph() -> None:
    def f(x: torch.Tensor, var: torch.Tensor) -> torch.Tensor:
        return nn.functional.gaussian_nll_loss(x, torch.zeros(4), var) * 2

    compiled = windfall.compile(f)
    for seed in range(3):
        torch.manual_seed(seed)
        x, var = torch.randn(4), torch.rand(4) + 0.1
        torch.testing.assert_close(compiled(x, var), f(x, var))
    with pytest.raises(ValueError, match="var has negative"):
        compiled(torch.randn(4), torch.tensor([1.0, 1.0, -1.0, 1.0]))
    told = windfall.explanation(compiled).to_dict()
    assert (told["graph_count"], told["break_count"]) == (1, 0)


WRITERS = [
    name
    for name in sorted(vars(torch._C._nn))
    if name.endswith("_") and not name.startswith("_") and name not in ("rrelu_with_noise_",)
]


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("name", WRITERS)
def test_layers_of_c_that_write_are_seen_to_write(name: str, gradient: bool) -> None:
    """`torch._C._nn.silu_(x)`: what it writes, in whole or in part, and what is read behind it."""
    op = getattr(torch._C._nn, name)
    uses: list[Callable[[torch.Tensor], torch.Tensor]] = [
        lambda x: op(x) + 1,
        lambda x: (op(x), x * 2)[1],
        lambda x: (op(x[1:]), x + 1)[1],
    ]
    for use in uses:
        compiled = windfall.compile(use)
        found = []
        for call in (use, compiled):
            leaf = torch.linspace(-2, 2, 12).reshape(4, 3).requires_grad_(gradient)
            x = leaf * 1
            result = call(x)
            if gradient:
                result.sum().backward()
            found.append((result.detach(), x.detach(), leaf.grad, x._version))
        torch.testing.assert_close(found[1], found[0])
        told = windfall.explanation(compiled).to_dict()
        assert (told["graph_count"], told["break_count"], told["fallbacks"]) == (1, 0, [])
