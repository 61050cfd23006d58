"""Sums, means and maxima of bags of embeddings: called, not generated.

Enters: nothing. Leaves: records in the registry. Invariant: shape rules only, and those of the CPU
kernels, whose side results (which backward reads) have other sizes than torch's own rule tells.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch

from windfall.ir.dtype import TensorType
from windfall.ir.symint import Size
from windfall.ops.folding import fresh, op
from windfall.ops.layout import differ
from windfall.ops.samples import Sample, make

SUM, MEAN, MAX = 0, 1, 2
# What the quick kernel for sums of rows, which tells no bags, is made for.
_QUICK = (torch.float32, torch.float16, torch.bfloat16)
Four = tuple[TensorType, TensorType, TensorType, TensorType]


def _bags(
    x: TensorType,
    indices: TensorType,
    offsets: TensorType,
    mode: int,
    padding: int,
    bags: Size,
    sized: Size,
) -> Four:
    """`bags`: how many there are; `sized`: for how many the kernel tells a size."""
    dtype = offsets.dtype
    quick = mode == SUM and padding < 0 and x.dtype in _QUICK and not differ(x.strides[1], 1)
    largest = (bags, x.sizes[1]) if mode == MAX else (sized,)
    return (
        fresh(x.dtype, (bags, x.sizes[1])),
        fresh(dtype, (0,) if quick else indices.sizes),
        fresh(dtype, (sized,)),
        fresh(dtype, largest),
    )


def _bag(
    x: TensorType,
    indices: TensorType,
    offsets: TensorType,
    scale_grad_by_freq: bool = False,
    mode: int = SUM,
    sparse: bool = False,
    per_sample_weights: TensorType | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Four:
    bags = offsets.sizes[0] - include_last_offset
    return _bags(x, indices, offsets, mode, padding_idx, bags, bags)


def _bag_forward(
    x: TensorType,
    indices: TensorType,
    offsets: TensorType,
    scale_grad_by_freq: bool = False,
    mode: int = SUM,
    sparse: bool = False,
    per_sample_weights: TensorType | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Four:
    bags = offsets.sizes[0] - include_last_offset
    sized = offsets.sizes[0] if mode == SUM else bags
    return _bags(x, indices, offsets, mode, padding_idx, bags, sized)


def _samples() -> Iterator[Sample]:
    indices = torch.tensor([1, 0, 3, 2, 3])
    kinds: Any = itertools.product((SUM, MEAN, MAX), (-1, 2), (False, True), (False, True))
    for mode, padding, last, transposed in kinds:
        offsets = torch.tensor([0, 3, 5] if last else [0, 3])
        for dtype in (torch.float32, torch.float64):
            x = make((6, 4), dtype).t() if transposed else make((4, 6), dtype)
            for weights in (None, make((5,), dtype)) if mode == SUM else (None,):
                yield (x, indices, offsets, False, mode, False, weights, last, padding), {}


op("_embedding_bag.default", _bag, None, _samples)
op("_embedding_bag_forward_only.default", _bag_forward, None, _samples)
