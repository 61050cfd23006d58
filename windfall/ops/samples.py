"""Arguments to test ops with: what `Op.samples` answers.

Enters: how an op is called. Leaves: functions that make argument tuples of real tensors. Invariant:
deterministic (own generator; the caller's random state is untouched), small, and varied where ops
go wrong: non-contiguous, broadcast, channels-last, empty, 0-dim, several dtypes, NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch

Sample = tuple[tuple[Any, ...], dict[str, Any]]


class Hole:
    """A place in a template where the sample's operand goes."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


T = Hole("T")  # a tensor
N = Hole("N")  # a tensor or a Python number


def make(
    sizes: Sequence[int], dtype: torch.dtype = torch.float32, *, seed: int = 0, low: int = -4
) -> torch.Tensor:
    """A contiguous tensor of modest values, both signs (unless `low` says otherwise)."""
    generator = torch.Generator().manual_seed(seed + 1)
    if dtype is torch.bool:
        return torch.randint(0, 2, tuple(sizes), generator=generator).to(dtype)
    if not (dtype.is_floating_point or dtype.is_complex):
        bottom = max(low, 0) if dtype is torch.uint8 else low
        return torch.randint(bottom, 6, tuple(sizes), generator=generator).to(dtype)
    values = torch.randn(tuple(sizes), generator=generator, dtype=torch.float64) * 2
    if dtype.is_complex:
        imaginary = torch.randn(tuple(sizes), generator=generator, dtype=torch.float64)
        return torch.complex(values, imaginary).to(dtype)
    return values.to(dtype)


def _layouts(dtype: torch.dtype, seed: int) -> Iterator[tuple[str, torch.Tensor]]:
    yield "contiguous", make((3, 4), dtype, seed=seed)
    yield "transposed", make((4, 3), dtype, seed=seed).t()
    yield "strided", make((3, 8), dtype, seed=seed)[:, ::2]
    yield "expanded", make((3, 1), dtype, seed=seed).expand(3, 4)


def operand_lists(count: int) -> Iterator[list[torch.Tensor]]:
    """Lists of `count` float32 tensors that broadcast, in many layouts."""
    for name, _ in _layouts(torch.float32, 0):
        yield [dict(_layouts(torch.float32, seed))[name] for seed in range(count)]
    plain, transposed = make((3, 4)), make((4, 3)).t()
    yield [transposed if seed == 0 else plain for seed in range(count)]
    yield [plain if seed == 0 else transposed for seed in range(count)]
    yield [make((4,) if seed == 0 else (3, 1), seed=seed) for seed in range(count)]
    yield [make(() if seed == 0 else (2, 3), seed=seed) for seed in range(count)]
    yield [make((2, 3) if seed == 0 else (), seed=seed) for seed in range(count)]
    yield [make((), seed=seed) for seed in range(count)]
    yield [make((2, 0, 3), seed=seed) for seed in range(count)]
    image = make((2, 3, 4, 5)).contiguous(memory_format=torch.channels_last)
    yield [image if seed == 0 else make((1, 3, 1, 1), seed=seed) for seed in range(count)]
    yield [image for _ in range(count)]
    yield [make((2, 3, 4, 5)).permute(0, 2, 3, 1)[:, :, ::2] for _ in range(count)]
    yield [make((2, 1, 4)).permute(2, 0, 1) for _ in range(count)]
    special = torch.tensor([0.0, -0.0, 1.0, -1.0, float("inf"), float("-inf"), float("nan"), 1e-40])
    yield [special[:, None] if seed % 2 == 0 else special for seed in range(count)]


DTYPES = (
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
    torch.complex64,
)


def dtype_lists(count: int) -> Iterator[list[torch.Tensor]]:
    """Lists of `count` tensors of each dtype, then of mixed dtypes."""
    for dtype in DTYPES:
        yield [make((2, 3), dtype, seed=seed) for seed in range(count)]
    if count < 2:
        return
    pairs = (
        (torch.float32, torch.int64),
        (torch.int32, torch.float16),
        (torch.bfloat16, torch.float32),
        (torch.float16, torch.bfloat16),
        (torch.int8, torch.uint8),
        (torch.bool, torch.int32),
    )
    for first, second in pairs:
        yield [make((2, 3), first if i == 0 else second, seed=i) for i in range(count)]
        yield [
            make((2, 3) if i == 0 else (), first if i == 0 else second, seed=i)
            for i in range(count)
        ]


def answered(name: str, samples: Callable[[], Iterator[Sample]]) -> Callable[[], Iterator[Sample]]:
    """Those samples that eager answers: kernels differ in the dtypes that they take. (Not for ops
    that write their arguments.)"""
    return partial(_answered, name, samples)


def _answered(name: str, samples: Callable[[], Iterator[Sample]]) -> Iterator[Sample]:
    packet, overload = name.split(".")
    target = getattr(getattr(torch.ops.aten, packet), overload)
    for arguments, keywords in samples():
        try:
            target(*arguments, **keywords)
        except (RuntimeError, NotImplementedError, TypeError):  # what it raises varies
            continue
        yield arguments, keywords


def pointwise_samples(
    name: str, template: tuple[Any, ...], keywords: Mapping[str, Any]
) -> Callable[[], Iterator[Sample]]:
    """Samples of an op that is called as `template` and `keywords` show."""
    return answered(name, partial(_like, template, keywords))


def _like(template: tuple[Any, ...], keywords: Mapping[str, Any]) -> Iterator[Sample]:
    tensors = [place for place, part in enumerate(template) if part is T]
    numbers = [place for place, part in enumerate(template) if part is N]

    def filled(operands: Sequence[torch.Tensor], number: Any) -> Sample:
        arguments = list(template)
        for place, operand in zip(tensors, operands, strict=True):
            arguments[place] = operand
        for place in numbers:
            arguments[place] = number
        return tuple(arguments), dict(keywords)

    for operands in (*operand_lists(len(tensors)), *dtype_lists(len(tensors))):
        yield filled(operands, 2)
    for number in (0.3, -1, True) if numbers else ():
        for dtype in (torch.float32, torch.bfloat16, torch.int32, torch.bool):
            yield filled([make((2, 3), dtype, seed=seed) for seed in range(len(tensors))], number)
        yield filled([make((), seed=seed) for seed in range(len(tensors))], number)
