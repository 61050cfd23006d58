"""Small programs that people write, each a function of a size `n` that changes from call to call.

Enters: nothing. Leaves: `ROWS`: for each a program, how its arguments are made for a size, and how
often it may be compiled for any number of sizes (`limit`; sizes of 1 and branches have entries of
their own). `survey` runs them; `test_varying_survey.py` asserts the limits.

Invariant: a program depends on its arguments and on torch's generator only, so that it can be run
twice; modules are made anew for each run, from the same seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Arguments = tuple[Any, ...]
# A first one, a second, more, one in between, 1, and one that was there before.
SIZES = (5, 6, 8, 13, 1, 6, 17, 32)


@dataclass(frozen=True)
class Row:
    """A program and its arguments at a size."""

    name: str
    make: Callable[[], Callable[..., Any]]
    arguments: Callable[[int], Arguments]
    limit: int = 3
    sizes: tuple[int, ...] = SIZES
    trains: bool = True
    breaks: int = 0
    in_training: tuple[int, int] | None = None  # another limit, and breaks
    module: bool = False


ROWS: dict[str, Row] = {}


def row(arguments: Callable[[int], Arguments], **facts: Any) -> Callable[[Any], Any]:
    """A function that is a program."""

    def note(function: Any) -> Any:
        assert function.__name__ not in ROWS
        ROWS[function.__name__] = Row(function.__name__, lambda: function, arguments, **facts)
        return function

    return note


def made(arguments: Callable[[int], Arguments], **facts: Any) -> Callable[[Any], Any]:
    """A function that makes a program, as a module."""

    def note(function: Any) -> Any:
        assert function.__name__ not in ROWS
        ROWS[function.__name__] = Row(function.__name__, function, arguments, module=True, **facts)
        return function

    return note


def floats(*sizes: Any) -> Callable[[int], Arguments]:
    """One tensor of floats; "n" stands for the size, a function is called on it."""
    return lambda n: (torch.randn(_sizes(sizes, n)),)


def two(first: tuple[Any, ...], second: tuple[Any, ...]) -> Callable[[int], Arguments]:
    """Two tensors of floats."""
    return lambda n: (torch.randn(_sizes(first, n)), torch.randn(_sizes(second, n)))


def tokens(*sizes: Any, high: int = 20) -> Callable[[int], Arguments]:
    """One tensor of integers."""
    return lambda n: (torch.randint(0, high, _sizes(sizes, n)),)


def _sizes(sizes: tuple[Any, ...], n: int) -> tuple[int, ...]:
    return tuple(n if one == "n" else one(n) if callable(one) else one for one in sizes)


def _lengths(n: int) -> Tensor:
    return torch.tensor([n, max(1, n // 2), 1])


# ------------------------------------------------------------------------------ numbers of sizes


@row(floats(2, 3, "n"))
def scaled_by_root(x: Tensor) -> Tensor:
    return x / math.sqrt(x.shape[-1])


@row(floats(2, "n", "n"))
def scaled_by_power(x: Tensor) -> Tensor:
    return (x @ x.transpose(-1, -2)) * x.size(-1) ** -0.5


@row(floats(3, "n"))
def scaled_by_half_power(x: Tensor) -> Tensor:
    return x / (x.shape[-1] ** 0.5)


@row(floats(3, "n"))
def logarithm_of_size(x: Tensor) -> Tensor:
    return x * math.log(x.shape[1]) + math.log2(x.shape[1])


@row(floats(3, "n"))
def exponential_of_size(x: Tensor) -> Tensor:
    return x * math.exp(-x.shape[1] / 10) + math.sin(x.shape[1]) + math.cos(x.shape[1])


@row(floats(3, "n"))
def mean_by_hand(x: Tensor) -> Tensor:
    return x.sum(-1) / x.shape[-1]


@row(floats(3, "n"))
def variance_by_hand(x: Tensor) -> Tensor:
    return ((x - x.mean(-1, keepdim=True)) ** 2).sum(-1) / max(x.shape[-1] - 1, 1)


@row(floats(3, "n"))
def ratio_of_sizes(x: Tensor) -> Tensor:
    return x * (x.shape[0] / x.shape[1]) + 1 / x.shape[1]


@row(floats(3, "n"))
def inverse_root(x: Tensor) -> Tensor:
    scale = 1.0 / math.sqrt(x.shape[-1])
    return (x * scale).softmax(-1)


@row(floats(3, "n"), limit=4)
def warm_up(x: Tensor) -> Tensor:
    return x * min(1.0, x.shape[1] / 10.0)


@row(floats(2, "n"), limit=4)
def ceiling_of_size(x: Tensor) -> Tensor:
    blocks = math.ceil(x.shape[1] / 4)
    return F.pad(x, (0, blocks * 4 - x.shape[1])).view(2, blocks, 4).sum(1)


@row(floats(2, "n"))
def integer_of_ratio(x: Tensor) -> Tensor:
    return x[:, : int(x.shape[1] * 0.5) + 1].sum(-1)


@row(floats(2, "n"), limit=9)
def rounded_part(x: Tensor) -> Tensor:
    keep = max(1, round(0.3 * x.shape[1]))
    return x.topk(keep, dim=-1).values.sum(-1)


@row(floats(2, "n"))
def float_of_size(x: Tensor) -> Tensor:
    return x * float(x.shape[1]) - float(x.numel())


@row(floats(2, "n"))
def entropy_normalised(x: Tensor) -> Tensor:
    p = x.softmax(-1)
    return -(p * p.log()).sum(-1) / (math.log(x.size(-1)) + 1e-6)


@row(floats(2, "n"))
def tensor_of_size(x: Tensor) -> Tensor:
    return x / torch.sqrt(torch.tensor(x.shape[-1], dtype=x.dtype))


@row(floats(2, "n"))
def tensor_of_floats(x: Tensor) -> Tensor:
    return x * torch.tensor([1.0 / x.shape[-1], 2.0]).sum()


# ------------------------------------------------------------------------------------- factories


@row(floats("n", 3))
def line_space(x: Tensor) -> Tensor:
    return x + torch.linspace(0, 1, x.shape[0])[:, None]


@row(floats("n", 3))
def log_space(x: Tensor) -> Tensor:
    return x + torch.logspace(0, 1, x.shape[0])[:, None]


@row(floats("n", 3))
def ranges(x: Tensor) -> Tensor:
    return x + torch.arange(x.shape[0]).unsqueeze(1) + torch.arange(1, x.shape[0] + 1)[:, None]


@row(floats("n", 3))
def range_backwards(x: Tensor) -> Tensor:
    return x * torch.arange(x.shape[0] - 1, -1, -1)[:, None]


@row(floats("n", 3))
def range_by_twos(x: Tensor) -> Tensor:
    return x.sum() * torch.arange(0, 2 * x.shape[0], 2, dtype=torch.float32)


@row(floats("n", 3))
def full_of_size(x: Tensor) -> Tensor:
    n = x.shape[0]
    return x + torch.full((n,), n)[:, None] + torch.full((n, 1), float(n))


@row(floats("n", 3))
def new_tensors(x: Tensor) -> Tensor:
    return x + x.new_zeros(x.shape) + x.new_ones(x.shape[0], 1) + x.new_full((3,), 2.0)


@row(floats("n", 3))
def like_tensors(x: Tensor) -> Tensor:
    return torch.cat([x, torch.zeros_like(x), torch.empty_like(x).fill_(2)])


@row(floats("n", 3))
def identity_matrix(x: Tensor) -> Tensor:
    return torch.eye(x.shape[0]) @ x


@row(floats("n", "n"))
def triangles(x: Tensor) -> Tensor:
    return x.tril() + x.triu(1) * 2 + torch.ones(x.shape[0], x.shape[0]).tril(-1)


@row(floats(2, "n", "n"))
def causal_mask(x: Tensor) -> Tensor:
    n = x.shape[-1]
    mask = torch.triu(torch.full((n, n), float("-inf")), diagonal=1)
    return (x + mask).softmax(-1)


@row(floats(2, "n", "n"))
def causal_fill(x: Tensor) -> Tensor:
    n = x.shape[-1]
    mask = torch.ones(n, n, dtype=torch.bool).tril()
    return x.masked_fill(~mask, float("-inf")).softmax(-1)


@row(lambda n: (torch.randn(3, n), _lengths(n)))
def length_mask(x: Tensor, lengths: Tensor) -> Tensor:
    mask = torch.arange(x.shape[1])[None] < lengths[:, None]
    return (x * mask).sum(1) / lengths


@row(lambda n: (torch.randn(3, n), _lengths(n)))
def masked_mean(x: Tensor, lengths: Tensor) -> Tensor:
    mask = torch.arange(x.size(1)).expand(len(lengths), x.size(1)) < lengths.unsqueeze(1)
    return x.masked_fill(~mask, 0).sum(1) / mask.sum(1)


@row(floats("n", 8))
def sinusoidal_positions(x: Tensor) -> Tensor:
    position = torch.arange(x.shape[0]).unsqueeze(1)
    rates = torch.exp(torch.arange(0, 8, 2) * (-math.log(10000.0) / 8))
    table = torch.zeros(x.shape[0], 8)
    table[:, 0::2] = torch.sin(position * rates)
    table[:, 1::2] = torch.cos(position * rates)
    return x + table


@row(floats(2, "n", 2, 8))
def rotary_positions(x: Tensor) -> Tensor:
    rates = 1.0 / 10000 ** (torch.arange(0, 8, 2).float() / 8)
    angles = torch.outer(torch.arange(x.shape[1]).float(), rates)
    cos, sin = angles.cos()[:, None, :], angles.sin()[:, None, :]
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)


@row(floats(2, 4, "n", "n"))
def alibi(x: Tensor) -> Tensor:
    n = x.shape[-1]
    distance = torch.arange(n)[None, :] - torch.arange(n)[:, None]
    slopes = torch.tensor([2.0 ** -(i + 1) for i in range(4)])
    return (x + slopes[:, None, None] * distance.clamp(max=0)).softmax(-1)


@row(floats("n", 3))
def relative_buckets(x: Tensor) -> Tensor:
    n = x.shape[0]
    distance = (torch.arange(n)[:, None] - torch.arange(n)).abs()
    small = distance < 4
    large = 4 + (torch.log(distance.float() / 4 + 1e-6) * 2).long()
    return torch.where(small, distance, large.clamp(max=7)).float() @ x


@row(floats("n", 3), trains=False)
def random_tensors(x: Tensor) -> Tensor:
    return x + torch.randn(x.shape[0], 1) + torch.rand(x.shape) + torch.randn_like(x)


@row(floats("n", 3), trains=False)
def random_permutation(x: Tensor) -> Tensor:
    return x[torch.randperm(x.shape[0])]


@row(floats("n", 3), trains=False)
def random_integers(x: Tensor) -> Tensor:
    return x[torch.randint(0, x.shape[0], (4,))]


@row(floats(2, "n"), trains=False)
def sampled(x: Tensor) -> Tensor:
    return torch.multinomial(x.softmax(-1), 1)


@row(floats("n", 3))
def bernoulli_mask(x: Tensor) -> Tensor:
    return x * torch.bernoulli(torch.full_like(x, 0.5))


@row(floats("n", 3))
def mesh(x: Tensor) -> Tensor:
    a, b = torch.meshgrid(torch.arange(x.shape[0]), torch.arange(3), indexing="ij")
    return x * a + b


@row(floats("n", 3))
def window(x: Tensor) -> Tensor:
    return x * torch.hann_window(x.shape[0])[:, None]


# ------------------------------------------------------------------------------ shapes and views


@row(floats(2, "n", 8))
def split_heads(x: Tensor) -> Tensor:
    b, n, d = x.shape
    return x.view(b, n, 4, d // 4).permute(0, 2, 1, 3).reshape(b * 4, n, d // 4)


@row(floats(2, "n", 8))
def flattened(x: Tensor) -> Tensor:
    return x.flatten(0, 1).sum(0) + x.flatten(1).mean()


@row(floats(2, lambda n: 4 * n))
def unflattened(x: Tensor) -> Tensor:
    return x.unflatten(1, (-1, 4)).sum(1) + x.view(2, 4, -1).sum(-1)


@row(floats(2, lambda n: 2 * n))
def chunked(x: Tensor) -> Tensor:
    a, b = x.chunk(2, dim=-1)
    return a * b.sigmoid()


@row(floats(2, lambda n: 2 * n))
def split_in_half(x: Tensor) -> Tensor:
    a, b = x.split(x.shape[-1] // 2, dim=-1)
    return torch.cat([-b, a], -1)


@row(floats(2, lambda n: n + 7))
def split_with_sizes(x: Tensor) -> Tensor:
    a, b, c = x.split([3, x.shape[1] - 7, 4], 1)
    return a.sum() * b + c.sum()


@row(floats("n", 3, 4))
def qkv_unbound(x: Tensor) -> Tensor:
    q, k, v = x.unbind(1)
    return q * k + v


@row(floats(2, "n", 4))
def last_step(x: Tensor) -> Tensor:
    return x[:, -1] + x[:, 0] * x[:, x.shape[1] // 2]


@row(floats(2, lambda n: n + 1, 4))
def shifted(x: Tensor) -> Tensor:
    return x[:, 1:] - x[:, :-1]


@row(floats(2, lambda n: n + 1, 4))
def every_other(x: Tensor) -> Tensor:
    return x[:, ::2].sum(1) + x[:, 1::2].sum(1)


@row(floats("n", 3))
def repeated(x: Tensor) -> Tensor:
    return x.repeat(2, 3).sum(0) + x.repeat(x.shape[0], 1).mean()


@row(floats("n", 3))
def repeat_interleaved(x: Tensor) -> Tensor:
    return x.repeat_interleave(2, dim=0)


@row(floats("n", 3))
def repeat_interleaved_by_size(x: Tensor) -> Tensor:
    return torch.repeat_interleave(torch.ones(4, 3), x.shape[0], dim=0) * x.repeat(4, 1)


@row(floats("n", 3))
def expanded(x: Tensor) -> Tensor:
    return x[:, None].expand(-1, x.shape[0], -1) - x[None].expand(x.shape[0], x.shape[0], 3)


@row(floats("n", 3))
def rolled(x: Tensor) -> Tensor:
    return x.roll(1, 0) + x.roll(-x.shape[0] // 2, 0) + x.flip(0)


@row(floats(2, "n", "n"))
def diagonals(x: Tensor) -> Tensor:
    return x.diagonal(dim1=1, dim2=2).sum(-1) + torch.diag_embed(x.sum(-1)).mean()


@row(floats(lambda n: n + 4))
def strided_windows(x: Tensor) -> Tensor:
    return x.unfold(0, 4, 1).mean(-1)


@row(floats(2, "n", 4), limit=4)
def padded_to_a_multiple(x: Tensor) -> Tensor:
    n = x.shape[1]
    padded = F.pad(x, (0, 0, 0, -n % 4))
    return padded.view(2, -1, 4, 4).softmax(-1).view(2, -1, 4)[:, :n]


@row(floats(2, "n", 4), limit=4)
def windowed_attention(x: Tensor) -> Tensor:
    b, n, d = x.shape
    window = 4
    rest = (window - n % window) % window
    y = F.pad(x, (0, 0, 0, rest))
    y = y.view(b, (n + rest) // window, window, d)
    scores = (y @ y.transpose(-1, -2)) / math.sqrt(d)
    return (scores.softmax(-1) @ y).reshape(b, n + rest, d)[:, :n]


@row(floats(2, "n", 4), limit=4)
def padded_to_a_length(x: Tensor) -> Tensor:
    if x.shape[1] < 10:
        x = torch.cat([x, x.new_zeros(2, 10 - x.shape[1], 4)], 1)
    return x[:, :10].sum(-1)


@row(floats(1, 3, lambda n: n + 3, 9))
def reflected(x: Tensor) -> Tensor:
    return F.pad(x, (1, 1, 2, 2), mode="reflect")


@row(floats(1, 3, lambda n: n + 3, 9))
def replicated(x: Tensor) -> Tensor:
    return F.pad(x, (1, 1, 2, 2), mode="replicate")


@row(floats(1, 3, lambda n: n + 3, 9))
def padded_circularly(x: Tensor) -> Tensor:
    return F.pad(x, (1, 1, 2, 2), mode="circular")


@row(floats(2, lambda n: n + 1, 4))
def cat_of_parts(x: Tensor) -> Tensor:
    return torch.cat([x[:, :1], x, x[:, -1:]], dim=1).sum(1)


@row(floats("n", 3))
def stacked(x: Tensor) -> Tensor:
    return torch.stack([x, x * 2], 1).view(-1, 3) + torch.hstack([x, x]).view(-1, 3)


@row(two((2, 2, 40, 4), (2, 2, "n", 4)))
def cache_written(cache: Tensor, k: Tensor) -> Tensor:
    cache = cache.clone()
    cache[:, :, : k.shape[2]] = k
    return cache.sum(2)


@row(lambda n: (torch.randn(2, 2, 40, 4), torch.randn(2, 2, 3, 4), n))
def cache_written_at(cache: Tensor, k: Tensor, position: int) -> Tensor:
    cache = cache.clone()
    cache[:, :, position : position + k.shape[2]] = k
    return cache[:, :, : position + k.shape[2]].sum(2)


@row(lambda n: (torch.zeros(2, 60, 4), torch.randn(2, n, 4), n // 2), limit=5, trains=False)
def cache_in_place(cache: Tensor, k: Tensor, position: int) -> Tensor:
    cache[:, position : position + k.shape[1]] = k
    return cache[:, : position + k.shape[1]].sum(1)


@row(two((2, 3, "n", 4), (2, 3, 1, 4)))
def cache_grown(cache: Tensor, k: Tensor) -> Tensor:
    return torch.cat([cache, k], dim=2)


@row(floats("n", 3))
def moved(x: Tensor) -> Tensor:
    return x.t().contiguous().view(-1) + x.movedim(0, 1).reshape(-1)


@row(floats("n", 4))
def as_complex(x: Tensor) -> Tensor:
    return torch.view_as_real(torch.view_as_complex(x.view(-1, 2, 2)) * 2j).flatten(1)


@row(floats("n", 6))
def pixel_shuffled(x: Tensor) -> Tensor:
    return F.pixel_shuffle(x.view(1, -1, 2, 3).repeat(1, 4, 1, 1), 2)


@row(floats(1, 4, lambda n: 2 * n, 6))
def patches(x: Tensor) -> Tensor:
    b, c, h, w = x.shape
    y = x.reshape(b, c, h // 2, 2, w // 2, 2).permute(0, 2, 4, 1, 3, 5)
    return y.reshape(b, (h // 2) * (w // 2), c * 4)


# ---------------------------------------------------------------------------- reading and writing


@row(lambda n: (torch.randn(20, 4), torch.randint(0, 20, (2, n))))
def embedded(table: Tensor, index: Tensor) -> Tensor:
    return F.embedding(index, table).sum(1)


@made(tokens(2, "n"))
def embedding_with_positions() -> nn.Module:
    class Embedding(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(20, 8)
            self.places = nn.Embedding(64, 8)
            self.norm = nn.LayerNorm(8)

        def forward(self, index: Tensor) -> Tensor:
            places = torch.arange(index.shape[1], device=index.device)
            return self.norm(self.words(index) + self.places(places)[None])

    return Embedding()


@made(tokens(2, "n"))
def embedding_with_a_buffer() -> nn.Module:
    class Embedding(nn.Module):
        places: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(20, 8)
            self.register_buffer("places", torch.randn(1, 64, 8))

        def forward(self, index: Tensor) -> Tensor:
            return self.words(index) + self.places[:, : index.size(1)]

    return Embedding()


@row(lambda n: (torch.randn(20, 4), torch.randint(0, 20, (3, n))))
def embedding_bag(table: Tensor, index: Tensor) -> Tensor:
    return F.embedding_bag(index, table, mode="mean")


@row(lambda n: (torch.randn(20, 4), torch.randint(0, 20, (n,)), torch.tensor([0, 1, n // 2 + 1])))
def embedding_bag_with_offsets(table: Tensor, index: Tensor, offsets: Tensor) -> Tensor:
    return F.embedding_bag(index, table, offsets, mode="sum")


@row(lambda n: (torch.randn(n, 5), torch.randint(0, 5, (n, 2))))
def gathered(x: Tensor, index: Tensor) -> Tensor:
    return x.gather(1, index) + torch.take_along_dim(x, index, 1)


@row(lambda n: (torch.randn(n, 5), torch.randint(0, n, (7,))))
def selected(x: Tensor, index: Tensor) -> Tensor:
    return x.index_select(0, index) + x[index]


@row(lambda n: (torch.randn(n, 5), torch.randint(0, 4, (n,))))
def scattered(x: Tensor, group: Tensor) -> Tensor:
    return torch.zeros(4, 5).index_add(0, group, x)


@row(lambda n: (torch.randn(n, 5), torch.randint(0, 4, (n,))), limit=5, breaks=1)
def scatter_added(x: Tensor, group: Tensor) -> Tensor:
    total = torch.zeros(4, 5).scatter_add(0, group[:, None].expand_as(x), x)
    return total / torch.bincount(group, minlength=4).clamp(min=1)[:, None]


@row(lambda n: (torch.randn(n, 5), torch.randint(0, 4, (n,))), trains=False)
def scatter_reduced(x: Tensor, group: Tensor) -> Tensor:
    return torch.zeros(4, 5).scatter_reduce(0, group[:, None].expand(-1, 5), x, "amax")


@row(tokens("n", high=6))
def one_hot(index: Tensor) -> Tensor:
    return F.one_hot(index, 6).float()


@row(lambda n: (torch.randn(3, n), torch.randint(0, n, (3,))))
def one_hot_of_size(x: Tensor, index: Tensor) -> Tensor:
    return x * F.one_hot(index, x.shape[1])


@row(lambda n: (torch.randn(4, n),), trains=False)
def searched(x: Tensor) -> Tensor:
    edges = torch.linspace(-1, 1, 5)
    return torch.bucketize(x, edges) + torch.searchsorted(x.sort(-1).values, x)


@row(floats(3, "n"))
def top_half(x: Tensor) -> Tensor:
    values, places = x.topk(x.shape[1] // 2 + 1, dim=-1)
    return values + places


@row(floats(3, "n"))
def sorted_values(x: Tensor) -> Tensor:
    return x.sort(-1).values * x.argsort(-1)


@row(floats(3, "n"))
def running_sums(x: Tensor) -> Tensor:
    return x.cumsum(-1) + x.logcumsumexp(-1) + x.cummax(-1).values


@row(floats(3, "n"))
def extremes(x: Tensor) -> Tensor:
    value, place = x.max(-1)
    return value * place + x.amin(-1) + x.argmin(-1) + x.median(-1).values + x.kthvalue(1).values


@row(floats(3, "n"))
def quantiles(x: Tensor) -> Tensor:
    return x.quantile(0.5, dim=-1) + x.std(-1, unbiased=False) + x.norm(dim=-1)


@row(floats(3, "n"))
def index_written(x: Tensor) -> Tensor:
    y = torch.zeros(3, x.shape[1] + 2)
    y[:, 1:-1] = x
    y[0, -1] = 5
    return y


@row(floats(3, "n"))
def filled_in_place(x: Tensor) -> Tensor:
    y = x.clone()
    y[:, : y.shape[1] // 2] *= 2
    return y.relu_()


@row(lambda n: (torch.randn(3, n), torch.rand(3, n) > 0.5))
def chosen(x: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, x, -x).masked_fill(mask, 1.0)


@row(floats(3, "n"))
def binned(x: Tensor) -> Tensor:
    return x.detach().histc(5) * x.mean()


# -------------------------------------------------------------------------------- linear algebra


@row(two((2, "n", 4), (2, "n", 4)))
def products(x: Tensor, y: Tensor) -> Tensor:
    return torch.bmm(x, y.transpose(1, 2)).sum(-1) + torch.matmul(x, y.mT).amax(-1)


@row(two((2, "n", 4), (2, "n", 4)))
def einsums(x: Tensor, y: Tensor) -> Tensor:
    scores = torch.einsum("bid,bjd->bij", x, y)
    return torch.einsum("bij,bjd->bid", scores.softmax(-1), y)


@row(two((2, "n", 4), (4, 5)))
def einsum_with_ellipsis(x: Tensor, w: Tensor) -> Tensor:
    return torch.einsum("...d,de->...e", x, w) + torch.einsum("bnd->bd", x)[:, None, :1]


@row(two(("n", 3), (4, 3)), limit=4)
def distances(x: Tensor, y: Tensor) -> Tensor:
    return torch.cdist(x, y) + torch.cdist(x, y, p=1.0)


@row(floats("n", 3))
def pairwise(x: Tensor) -> Tensor:
    return F.cosine_similarity(x[:, None], x[None], dim=-1) + F.normalize(x) @ x.t()


@row(floats(3, "n"))
def covariance(x: Tensor) -> Tensor:
    return torch.cov(x, correction=0)


@row(floats(3, lambda n: n + 2))
def correlation(x: Tensor) -> Tensor:
    return torch.corrcoef(x)


@row(two(("n", 2), (2, 3)))
def kronecker(x: Tensor, y: Tensor) -> Tensor:
    return torch.kron(x, y)


@row(two(("n",), (3,)))
def outer_products(x: Tensor, y: Tensor) -> Tensor:
    return torch.outer(x, y) + torch.ger(x, y) + torch.cartesian_prod(x, y).sum()


@row(floats("n", 3))
def gram_inverse(x: Tensor) -> Tensor:
    return torch.linalg.inv(x.t() @ x + torch.eye(3)) + torch.linalg.norm(x)


@row(floats("n", 3))
def solved(x: Tensor) -> Tensor:
    n = x.shape[0]
    return torch.linalg.solve(torch.eye(n) * 2 + torch.ones(n, n) * 0.1, x)


@row(floats("n", 3))
def cholesky(x: Tensor) -> Tensor:
    return torch.linalg.cholesky(x @ x.t() + 3 * torch.eye(x.shape[0]))


@row(two((2, "n", 3), (2, 3, "n")))
def tensor_dotted(x: Tensor, y: Tensor) -> Tensor:
    return torch.tensordot(x, y, dims=([0, 1], [0, 2]))


@row(two(("n", 3), ("n", 3)))
def crossed(x: Tensor, y: Tensor) -> Tensor:
    return torch.linalg.cross(x, y) + torch.linalg.vecdot(x, y)[:, None]


@row(floats(2, lambda n: n + 1))
def transformed(x: Tensor) -> Tensor:
    return torch.fft.rfft(x).abs().sum(-1) + torch.fft.fft(x).real.sum(-1)


@row(floats(2, "n"))
def transformed_and_back(x: Tensor) -> Tensor:
    return torch.fft.irfft(torch.fft.rfft(x, n=2 * x.shape[1]), n=2 * x.shape[1])


@row(floats(2, "n", 4))
def fourier_mixing(x: Tensor) -> Tensor:
    return torch.fft.fft2(x, dim=(-2, -1)).real


@row(floats(2, lambda n: n + 16), trains=False)
def spectrogram(x: Tensor) -> Tensor:
    return torch.stft(x, 8, 4, window=torch.ones(8), return_complex=True).abs()


# -------------------------------------------------------------------------------------- attention


def _qkv(n: int, m: int | None = None) -> Arguments:
    m = n if m is None else m
    return torch.randn(2, 2, n, 4), torch.randn(2, 2, m, 4), torch.randn(2, 2, m, 4)


@row(_qkv)
def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v)


@row(_qkv)
def attention_causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


@row(lambda n: _qkv(n, n + 3))
def attention_across(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v)


@row(lambda n: (*_qkv(n), torch.rand(2, 1, 1, n) > 0.2))
def attention_masked(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


@row(_qkv)
def attention_biased(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    n = q.shape[2]
    bias = torch.zeros(n, n).masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -1e9)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)


@row(_qkv)
def attention_by_hand(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    mask = torch.tril(torch.ones(q.size(2), k.size(2))).view(1, 1, q.size(2), k.size(2))
    return scores.masked_fill(mask == 0, float("-inf")).softmax(-1) @ v


@made(floats(2, "n", 8))
def multihead_attention() -> nn.Module:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x: Tensor) -> Any:
            return self.inner(x, x, x)

    return Attention()


@made(floats(2, "n", 8))
def multihead_attention_causal() -> nn.Module:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x: Tensor) -> Any:
            mask = nn.Transformer.generate_square_subsequent_mask(x.size(1))
            return self.inner(x, x, x, attn_mask=mask, is_causal=True, need_weights=False)[0]

    return Attention()


@made(floats(2, "n", 8))
def encoder_layer() -> nn.Module:
    return nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)


@made(floats(2, "n", 8))
def encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


@made(lambda n: (torch.randn(2, n, 8), torch.randn(2, n + 2, 8)))
def decoder_layer() -> nn.Module:
    return nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)


@made(tokens(2, "n"))
def tiny_gpt() -> nn.Module:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.LayerNorm(8), nn.LayerNorm(8)
            self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
            self.mlp = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))

        def forward(self, x: Tensor) -> Tensor:
            b, n, d = x.shape
            parts = self.qkv(self.one(x)).split(d, -1)
            q, k, v = (one.view(b, n, 2, d // 2).transpose(1, 2) for one in parts)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(b, n, d))
            return x + self.mlp(self.two(x))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(20, 8), nn.Embedding(64, 8)
            self.blocks = nn.ModuleList([Block(), Block()])
            self.head = nn.Linear(8, 20)

        def forward(self, index: Tensor) -> Tensor:
            x = self.words(index) + self.places(torch.arange(index.size(1)))
            for block in self.blocks:
                x = block(x)
            logits = self.head(x)
            return F.cross_entropy(logits.view(-1, logits.size(-1)), index.view(-1))

    return Model()


@row(lambda n: (torch.randn(2, n, 4), torch.randn(2, n, 4)), limit=4)
def attention_in_blocks(q: Tensor, k: Tensor) -> Tensor:
    scores = torch.baddbmm(torch.zeros(2, q.size(1), k.size(1)), q, k.mT, alpha=0.5)
    return scores.softmax(-1) @ k


# ------------------------------------------------------------------------------------- recurrence


@made(floats("n", 2, 4), in_training=(6, 1))
def lstm() -> nn.Module:
    return nn.LSTM(4, 5)


@made(floats(2, "n", 4), in_training=(6, 1))
def lstm_batch_first() -> nn.Module:
    return nn.LSTM(4, 5, batch_first=True)


@made(floats("n", 2, 4), in_training=(6, 1))
def lstm_two_layers() -> nn.Module:
    return nn.LSTM(4, 5, num_layers=2, bidirectional=True)


@made(floats("n", 2, 4), in_training=(6, 1))
def lstm_with_dropout() -> nn.Module:
    return nn.LSTM(4, 5, num_layers=2, dropout=0.5)


@made(floats("n", 2, 4), in_training=(6, 1))
def lstm_projected() -> nn.Module:
    return nn.LSTM(4, 5, proj_size=3)


@made(floats(3, "n", 4), in_training=(6, 1))
def lstm_by_batch() -> nn.Module:
    return nn.LSTM(4, 5)


@made(
    lambda n: (torch.randn(n, 2, 4), torch.randn(1, 2, 5), torch.randn(1, 2, 5)),
    in_training=(6, 1),
)
def lstm_with_state() -> nn.Module:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.LSTM(4, 5)

        def forward(self, x: Tensor, h: Tensor, c: Tensor) -> Any:
            y, (h, c) = self.inner(x, (h, c))
            return y.mean(0) + h[0], c

    return Model()


@made(floats("n", 2, 4), in_training=(6, 1))
def gru() -> nn.Module:
    return nn.GRU(4, 5)


@made(floats(2, "n", 4), in_training=(6, 1))
def gru_bidirectional() -> nn.Module:
    return nn.GRU(4, 5, num_layers=2, bidirectional=True, batch_first=True)


@made(floats("n", 2, 4), in_training=(6, 1))
def rnn() -> nn.Module:
    return nn.RNN(4, 5)


@made(floats("n", 2, 4), in_training=(6, 1))
def rnn_relu() -> nn.Module:
    return nn.RNN(4, 5, nonlinearity="relu", bias=False)


@made(lambda n: (torch.randn(3, n, 4), _lengths(n)), breaks=6, limit=15)
def lstm_packed() -> nn.Module:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.LSTM(4, 5, batch_first=True)

        def forward(self, x: Tensor, lengths: Tensor) -> Any:
            packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
            y, (h, _) = self.inner(packed)
            y, _ = nn.utils.rnn.pad_packed_sequence(y, batch_first=True)
            return y.sum(1) + h[0]

    return Model()


@made(tokens(2, "n"), in_training=(6, 1))
def lstm_tagger() -> nn.Module:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(20, 8)
            self.inner = nn.LSTM(8, 6, batch_first=True, bidirectional=True)
            self.head = nn.Linear(12, 3)

        def forward(self, index: Tensor) -> Tensor:
            return self.head(self.inner(self.words(index))[0]).log_softmax(-1)

    return Model()


@made(floats(2, "n", 4), limit=9)
def lstm_cell_loop() -> nn.Module:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.LSTMCell(4, 5)

        def forward(self, x: Tensor) -> Tensor:
            h, c = x.new_zeros(2, 5), x.new_zeros(2, 5)
            for step in range(x.shape[1]):
                h, c = self.cell(x[:, step], (h, c))
            return h

    return Model()


@made(floats("n", 4))
def gru_cell() -> nn.Module:
    return nn.GRUCell(4, 5)


# ------------------------------------------------------------------------ convolution and pooling


@made(floats(2, 3, lambda n: n + 3, 9))
def convolution() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 3, stride=2))


@made(floats("n", 3, 8, 8))
def convolution_by_batch() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())


@made(floats(2, 3, lambda n: n + 3))
def convolution_1d() -> nn.Module:
    return nn.Sequential(nn.Conv1d(3, 4, 3, padding="same"), nn.Conv1d(4, 4, 3, groups=2))


@made(floats(2, 3, lambda n: n + 3))
def convolution_causal() -> nn.Module:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Conv1d(3, 4, 3, dilation=2)

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(F.pad(x, (4, 0)))

    return Model()


@made(floats(2, 3, lambda n: n + 3, 5))
def convolution_transposed() -> nn.Module:
    return nn.ConvTranspose2d(3, 4, 3, stride=2)


@made(floats(2, 3, lambda n: n + 3, 9))
def pooled() -> nn.Module:
    return nn.Sequential(nn.MaxPool2d(2), nn.AvgPool2d(2, ceil_mode=True))


@row(floats(2, 3, lambda n: 2 * n + 2, 9))
def pooled_to_one(x: Tensor) -> Tensor:
    return F.adaptive_avg_pool2d(x, 1) + F.adaptive_max_pool2d(x, 1)


@row(floats(2, 3, lambda n: n + 3, 9))
def pooled_to_a_size(x: Tensor) -> Tensor:
    return F.adaptive_avg_pool2d(x, (2, 3))


@row(floats(2, 3, lambda n: n + 3))
def pooled_to_a_size_1d(x: Tensor) -> Tensor:
    return F.adaptive_max_pool1d(x, 2) + F.adaptive_avg_pool1d(x, 2)


@row(floats(2, 3, lambda n: n + 3))
def pooled_over_all(x: Tensor) -> Tensor:
    return F.max_pool1d(x, kernel_size=x.shape[2]) + F.avg_pool1d(x, x.shape[2])


@row(floats(2, 3, "n", 5))
def interpolated_by_factor(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)


@row(floats(2, 3, "n", 5))
def interpolated_nearest(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=2)


@row(floats(2, 3, "n", 5))
def interpolated_to_a_size(x: Tensor) -> Tensor:
    return F.interpolate(x, size=(8, 8), mode="bilinear")


@row(two((2, 3, 4, 5), (2, 3, "n", 5)))
def interpolated_like(x: Tensor, y: Tensor) -> Tensor:
    return F.interpolate(x, size=y.shape[-2:], mode="nearest") + y


@row(floats(2, 3, "n"))
def interpolated_1d(x: Tensor) -> Tensor:
    return F.interpolate(x, size=2 * x.shape[-1], mode="linear")


@row(floats(2, 3, lambda n: n + 3, 9))
def unfolded(x: Tensor) -> Tensor:
    return F.unfold(x, 3, padding=1)


@row(floats(2, 3, lambda n: n + 3, 9))
def folded(x: Tensor) -> Tensor:
    return F.fold(F.unfold(x, 3, padding=1), x.shape[-2:], 3, padding=1)


@row(two((2, 3, 4, 4), (2, "n", 3, 2)))
def grid_sampled(x: Tensor, grid: Tensor) -> Tensor:
    return F.grid_sample(x, grid, align_corners=False)


@row(lambda n: (torch.randn(2, 2, 3), n), trains=False)
def affine_grid(theta: Tensor, n: int) -> Tensor:
    return F.affine_grid(theta, [2, 3, n, 4], align_corners=False)


@made(floats(2, 3, lambda n: 4 * n, 8))
def unet() -> nn.Module:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down = nn.Conv2d(3, 4, 3, padding=1)
            self.middle = nn.Conv2d(4, 4, 3, padding=1)
            self.up = nn.ConvTranspose2d(4, 4, 2, stride=2)
            self.last = nn.Conv2d(8, 1, 1)

        def forward(self, x: Tensor) -> Tensor:
            a = self.down(x).relu()
            b = self.middle(F.max_pool2d(a, 2)).relu()
            return self.last(torch.cat([self.up(b), a], 1))

    return Model()


# ------------------------------------------------------------------------ normalising and losses


@made(floats("n", 6))
def batch_norm() -> nn.Module:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.BatchNorm1d(6)

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(torch.cat([x, -x]))

    return Model()


@made(floats(2, 6, lambda n: n + 1))
def group_norm() -> nn.Module:
    return nn.GroupNorm(2, 6)


@made(floats(2, 6, lambda n: n + 1))
def instance_norm() -> nn.Module:
    return nn.InstanceNorm1d(6, affine=True)


@row(floats(2, "n"))
def layer_norm_over_size(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[1:]) + F.rms_norm(x, x.shape[1:])


@made(floats("n", 6))
def mlp_with_dropout() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Dropout(0.5), nn.Linear(8, 2))


@row(lambda n: (torch.randn(n, 5), torch.randint(0, 5, (n,))))
def cross_entropy(x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(x, y) + F.cross_entropy(x, y, label_smoothing=0.1)


@row(
    lambda n: (
        torch.randn(2, n, 5),
        torch.cat([torch.ones(2, 1), -torch.ones(2, n)], 1)[:, :n].long(),
    )
)
def token_loss(x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(x.flatten(0, 1), y.flatten(), ignore_index=-1)


@row(lambda n: (torch.randn(2, n + 1, 5), torch.randint(0, 5, (2, n + 1))))
def language_loss(x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(x[:, :-1].reshape(-1, 5), y[:, 1:].reshape(-1))


@row(two(("n", 5), ("n", 5)))
def pair_losses(x: Tensor, y: Tensor) -> Tensor:
    return F.mse_loss(x, y) + F.l1_loss(x, y) + F.smooth_l1_loss(x, y) + F.huber_loss(x, y)


@row(two(("n", 5), ("n", 5)))
def divergence(x: Tensor, y: Tensor) -> Tensor:
    return F.kl_div(x.log_softmax(-1), y.softmax(-1), reduction="batchmean")


@row(two(("n", 5), ("n", 5)))
def contrastive(x: Tensor, y: Tensor) -> Tensor:
    scores = F.normalize(x) @ F.normalize(y).t() / 0.07
    labels = torch.arange(x.shape[0])
    return (F.cross_entropy(scores, labels) + F.cross_entropy(scores.t(), labels)) / 2


@row(lambda n: (torch.randn(n, 5), torch.rand(n, 5)))
def binary_losses(x: Tensor, y: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(x, y) + F.binary_cross_entropy(x.sigmoid(), y)


@row(
    lambda n: (
        torch.randn(n + 4, 2, 5),
        torch.randint(1, 5, (2, 3)),
        torch.full((2,), n + 4),
        torch.tensor([3, 2]),
    ),
    breaks=1,
)
def ctc(x: Tensor, y: Tensor, lengths: Tensor, wanted: Tensor) -> Tensor:
    return F.ctc_loss(x.log_softmax(-1), y, lengths, wanted)


@row(floats("n", 5))
def triplets(x: Tensor) -> Tensor:
    return F.triplet_margin_loss(x, x.flip(0) * 0.5, x.roll(1, 0) + 1)


@row(floats(2, "n"))
def gumbel(x: Tensor) -> Tensor:
    return F.gumbel_softmax(x, tau=0.5, hard=True)


# ------------------------------------------------------------------------------- Python over sizes


@row(floats("n", 3), limit=9)
def unbound_over_size(x: Tensor) -> Tensor:
    return sum(one * i for i, one in enumerate(x.unbind(0)))  # type: ignore[return-value]


@row(floats("n", 3), limit=9)
def iterated(x: Tensor) -> Tensor:
    total = torch.zeros(3)
    for one in x:
        total = total * 0.5 + one
    return total


@row(floats("n", 3), limit=9)
def split_into_parts(x: Tensor) -> Tensor:
    return torch.cat([one * (i + 1) for i, one in enumerate(x.split(2, 0))])


@row(floats("n", 3), limit=9)
def chunks_of_a_limit(x: Tensor) -> Tensor:
    return torch.stack([x[i : i + 4].sum(0) for i in range(0, x.shape[0], 4)])


@row(floats("n", 3), limit=4)
def branch_on_size(x: Tensor) -> Tensor:
    return x.sum(0) if x.shape[0] > 8 else x.mean(0)


@row(floats("n", 3), limit=4)
def truncated(x: Tensor) -> Tensor:
    return x[: min(x.shape[0], 10)] * 2


@row(floats("n", 3), limit=4)
def clipped_length(x: Tensor) -> Tensor:
    return x[-10:] * 2 + x[:10]


@row(floats("n", 3), limit=5)
def even_or_odd(x: Tensor) -> Tensor:
    if x.shape[0] % 2:
        x = x[:-1] if x.shape[0] > 1 else x
    return x.sum(0)


@row(floats("n", 3))
def named_sizes(x: Tensor) -> dict[str, Any]:
    return {"x": x * 2, "shape": x.shape, "numel": x.numel(), "n": x.size(0) * 2}


@row(floats("n", 3))
def asserted(x: Tensor) -> Tensor:
    assert x.dim() == 2 and x.shape[1] == 3, f"got {x.shape}"
    return x * x.shape[0]


@row(lambda n: (torch.randn(4, 3), n))
def scaled_by_integer(x: Tensor, n: int) -> Tensor:
    return x * n + n**2 - 1 / n


@row(lambda n: (torch.randn(4, 3), 0.1 * n))
def learning_rate(x: Tensor, rate: float) -> Tensor:
    return x - rate * x.sign() * (1 - rate)


@row(lambda n: (torch.randn(4, 3), n))
def scheduled(x: Tensor, step: int) -> Tensor:
    return x * (0.5 * (1 + math.cos(math.pi * step / 100))) / math.sqrt(step)


@row(lambda n: (torch.randn(4, 3), n))
def bias_corrected(x: Tensor, step: int) -> Tensor:
    return x / (1 - 0.9**step) / (math.sqrt(1 - 0.999**step) + 1e-8)


@row(lambda n: (torch.randn(40, 3), n))
def positions_from(x: Tensor, start: int) -> Tensor:
    return x + torch.arange(start, start + x.shape[0])[:, None]


@row(lambda n: ([torch.randn(n, 3), torch.randn(n + 1, 3)],))
def list_of_tensors(parts: list[Tensor]) -> Tensor:
    return torch.cat(parts).sum(0) + sum(one.mean() for one in parts)


@row(lambda n: ([torch.randn(3) for _ in range(n)],), limit=9)
def list_of_a_length(parts: list[Tensor]) -> Tensor:
    return torch.stack(parts).sum(0)


@row(lambda n: (torch.randn(n, n + 1), torch.randn(n + 1, 4), n % 3))
def several_at_once(x: Tensor, y: Tensor, k: int) -> Tensor:
    return (x @ y) * k


@row(floats(2, "n", 3))
def product_of_sizes(x: Tensor) -> Tensor:
    return x.reshape(math.prod(x.shape[:2]), 3) / math.prod(x.shape)


@row(floats(2, "n", 3))
def powers_of_size(x: Tensor) -> Tensor:
    n = x.shape[1]
    return x * pow(n, -0.25) + n**-1 + 2 ** (1 / n) + math.pow(n, 0.75)


@made(floats("n", 4))
def cells() -> nn.Module:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.LSTMCell(4, 4), nn.RNNCell(4, 4)
            self.third = nn.RNNCell(4, 4, nonlinearity="relu", bias=False)

        def forward(self, x: Tensor) -> Tensor:
            h, c = self.first(x)
            return self.third(self.second(x, h), c)

    return Model()


@row(floats(2, 3, lambda n: n + 3, 4))
def pooled_over_all_2d(x: Tensor) -> Tensor:
    return F.max_pool2d(x, x.shape[2:]) + F.avg_pool2d(x, kernel_size=x.shape[2:])


@row(floats(3, "n"), in_training=(9, 0))
def running_products(x: Tensor) -> Tensor:
    return x.cumprod(-1)
