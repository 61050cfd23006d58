"""Fourier transforms: called, not generated.

Enters: nothing. Leaves: records in the registry. Invariant: shape rules only. The CPU kernel lays
its result out with the dimensions that are not transformed first, by the strides of its input, then
the transformed ones, by those strides too; the last of a transform of real numbers stays last.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from windfall.errors import Unsupported
from windfall.ir.dtype import TensorType, contiguous_strides
from windfall.ir.symint import Size, floor_divide
from windfall.ops.folding import op
from windfall.ops.layout import smaller
from windfall.ops.registry import Samples
from windfall.ops.samples import Sample, make

_COMPLEX = {torch.float32: torch.complex64, torch.float64: torch.complex128}
_REAL = {made: plain for plain, made in _COMPLEX.items()}


def _by_stride(x: TensorType, dims: Sequence[int]) -> list[int]:
    """Dimensions, the widest stride first."""

    def order(one: int, other: int) -> int:
        left, right = x.strides[one], x.strides[other]
        return int(smaller(left, right)) - int(smaller(right, left))

    return sorted(dims, key=functools.cmp_to_key(order))


def _untransformed(rank: int, dims: Sequence[int]) -> list[int]:
    """The dimensions that are not transformed, in the kernel's order among equal strides: from the
    left, the place of each transformed one is taken by the last that is not."""
    order, first, last = list(range(rank)), 0, rank
    while first < last:
        if order[first] not in dims:
            first += 1
            continue
        last -= 1
        if order[last] not in dims:
            order[first], order[last] = order[last], order[first]
    return order[:first]


def _laid_out(
    x: TensorType, dtype: torch.dtype, sizes: Sequence[Size], dims: Sequence[int]
) -> TensorType:
    """The result of transforming `dims`, in their order in memory."""
    order = [*_by_stride(x, _untransformed(x.rank, dims)), *dims]
    strides: list[Size] = [0] * x.rank
    for dim, stride in zip(
        order, contiguous_strides(tuple(sizes[each] for each in order)), strict=True
    ):
        strides[dim] = stride
    return TensorType(dtype, tuple(sizes), tuple(strides))


def _canonical(x: TensorType, dims: Sequence[int]) -> list[int]:
    return [each % x.rank for each in dims]


def _complex(x: TensorType, dim: Sequence[int], normalization: int, forward: bool) -> TensorType:
    dims = _canonical(x, dim)
    if not dims:
        raise Unsupported(101, "a Fourier transform along no dimension")
    return _laid_out(x, x.dtype, x.sizes, _by_stride(x, dims))


def _from_real(x: TensorType, dim: Sequence[int], normalization: int, onesided: bool) -> TensorType:
    *others, last = _canonical(x, dim)
    sizes = list(x.sizes)
    if onesided:
        sizes[last] = floor_divide(sizes[last], 2) + 1
    return _laid_out(x, _COMPLEX[x.dtype], sizes, [*_by_stride(x, others), last])


def _to_real(
    x: TensorType, dim: Sequence[int], normalization: int, last_dim_size: Size
) -> TensorType:
    *others, last = _canonical(x, dim)
    if others:  # done first, as a transform of its own
        x = _complex(x, others, normalization, False)
    sizes = list(x.sizes)
    sizes[last] = last_dim_size
    return _laid_out(x, _REAL[x.dtype], sizes, [last])


# Sizes of inputs, and in which order their dimensions lie in memory.
_ORDERS = {(4, 6): ((0, 1), (1, 0)), (3, 4, 6): ((0, 1, 2), (2, 0, 1), (1, 2, 0))}


def _inputs(dtype: torch.dtype) -> Iterator[torch.Tensor]:
    for sizes, orders in _ORDERS.items():
        for order in orders:
            plain = make(sizes, torch.float32) + 0.25
            x = torch.complex(plain, plain.flip(0)) if dtype.is_complex else plain
            yield (
                x.permute(order).contiguous().permute([order.index(each) for each in range(x.ndim)])
            )
    number = torch.tensor(0.5)
    yield (torch.complex(number, number) if dtype.is_complex else number).expand(4, 3, 6)


def _transforms(dtype: torch.dtype, last: Callable[[int], Sequence[Any]]) -> Samples:
    """Along every choice of dimensions; `last` gives the last argument, of the last size."""

    def samples() -> Iterator[Sample]:
        for x in _inputs(dtype):
            for count in range(1, x.ndim + 1):
                for dims in itertools.permutations(range(x.ndim), count):
                    for each in last(x.shape[dims[-1]]):
                        yield (x, list(dims), 0, each), {}

    return samples


op("_fft_c2c.default", _complex, None, _transforms(torch.complex64, lambda size: (True,)))
op("_fft_r2c.default", _from_real, None, _transforms(torch.float32, lambda size: (True, False)))
op("_fft_c2r.default", _to_real, None, _transforms(torch.complex64, lambda size: (2 * size - 2,)))
