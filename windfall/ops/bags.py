"""Sums, means and maxima of bags of embeddings: called, not generated.

Enters: nothing. Leaves: records in the registry. Invariant: shape rules only, and those of the CPU
kernels, whose side results (which backward reads) have other sizes than torch's own rule tells.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from windfall.ir.dtype import TensorType
from windfall.ops.folding import fresh, op
from windfall.ops.layout import differ
from windfall.ops.samples import Sample, make

SUM, MEAN, MAX = 0, 1, 2
# What the quick kernel for sums of rows, which tells no bags, is made for.
_QUICK = (torch.float32, torch.float16, torch.bfloat16)
Four = tuple[TensorType, TensorType, TensorType, TensorType]


def _bag(sums_all: bool) -> Callable[..., Four]:
    """`sums_all`: of sums the kernel tells a size for each offset, also for the last that only ends
    a bag."""

    def shape(
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
        dtype, (starts,) = offsets.dtype, offsets.sizes
        bags = starts - include_last_offset
        sized = starts if sums_all and mode == SUM else bags
        no_padding = mode == SUM and padding_idx < 0
        quick = no_padding and x.dtype in _QUICK and not differ(x.strides[1], 1)
        largest = (bags, x.sizes[1]) if mode == MAX else (sized,)
        return (
            fresh(x.dtype, (bags, x.sizes[1])),
            fresh(dtype, (0,) if quick else indices.sizes),
            fresh(dtype, (sized,)),
            fresh(dtype, largest),
        )

    return shape


def _samples() -> Iterator[Sample]:
    indices = torch.tensor([1, 0, 3, 2, 3])
    kinds: Any = itertools.product((SUM, MEAN, MAX), (-1, 2), (False, True), (False, True))
    for mode, padding, last, transposed in kinds:
        offsets = torch.tensor([0, 3, 5] if last else [0, 3])
        for dtype in (torch.float32, torch.float64):
            x = make((6, 4), dtype).t() if transposed else make((4, 6), dtype)
            for weights in (None, make((5,), dtype)) if mode == SUM else (None,):
                yield (x, indices, offsets, False, mode, False, weights, last, padding), {}


op("_embedding_bag.default", _bag(False), None, _samples, refuses=True)
op("_embedding_bag_forward_only.default", _bag(True), None, _samples, refuses=True)
