"""Inputs that share memory with one that the graph writes: seen at the call, left to eager.

Enters: the types of a graph's inputs and which of them it writes. Leaves: a check of the real
tensors, by address. Invariant: never wrongly denied; ranges that interleave without meeting
(columns of one matrix) count as overlapping.

A pure graph reads all inputs before it writes any; where one lies upon another, eager's order of
reads and writes matters, and eager is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from windfall.ir.dtype import TensorType
from windfall.ir.stages import Signature

Overlap = Callable[[Sequence[torch.Tensor]], bool]


def overlap_check(signature: Signature) -> Overlap:
    """A function that says whether a written input overlaps another one."""
    lengths = [_length(one.type) for one in signature.inputs]
    written = [one.mutated for one in signature.inputs]

    def overlaps(inputs: Sequence[torch.Tensor]) -> bool:
        ranges = sorted(zip([one.data_ptr() for one in inputs], lengths, written, strict=True))
        end = written_end = 0  # of the ranges so far
        for start, length, is_written in ranges:
            if length and start < (end if is_written else written_end):
                return True
            end = max(end, start + length)
            if is_written:
                written_end = max(written_end, start + length)
        return False

    return overlaps


def _length(type: TensorType) -> int:
    """How many bytes lie from a tensor's first element to the end of its last."""
    if 0 in type.sizes:
        return 0
    steps: Any = zip(type.sizes, type.strides, strict=True)
    return int(1 + sum((size - 1) * stride for size, stride in steps)) * type.dtype.itemsize
