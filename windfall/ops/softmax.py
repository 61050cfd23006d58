"""Softmax and log-softmax, with their backward ops.

Enters: nothing. Leaves: records in the registry. Invariant: the largest element of each row is
subtracted first, as in eager; results are row-major.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch

from windfall.ir.dtype import TensorType
from windfall.ir.loop import Builder, Index, Lazy
from windfall.ops.folding import At, can_lower, fold, fresh, op, reading, sharing, stored
from windfall.ops.layout import normalise_dim
from windfall.ops.promotion import compute_dtype
from windfall.ops.samples import Sample, make
from windfall.ops.term import Term


def _shape(x: TensorType, dim: int, half_to_float: bool) -> TensorType:
    normalise_dim(dim, x.rank)
    return fresh(torch.float32 if half_to_float else x.dtype, x.sizes)


def _along(dim: int, rank: int) -> tuple[int, ...]:
    return (normalise_dim(dim, rank),) if rank else ()


def _exponentials(builder: Builder, x: Lazy, dim: int) -> tuple[At, At, At]:
    """Elements less the row's largest, that largest, and the sum of the exponentials."""
    dims, sizes = _along(dim, x.type.rank), x.type.sizes
    dtype = compute_dtype(x.type.dtype)
    read = reading(builder, x, dtype)
    high = sharing(builder, dtype, sizes, dims, fold(builder, "max", sizes, dims, read))

    def shifted(index: Index) -> Term:
        return read(index) - high(index)

    total = fold(builder, "sum", sizes, dims, lambda index: shifted(index).exp())
    return shifted, high, sharing(builder, dtype, sizes, dims, total)


def _softmax(builder: Builder, x: Lazy, dim: int, half_to_float: bool) -> Any:
    if not can_lower(x):
        return NotImplemented
    shifted, _, total = _exponentials(builder, x, dim)
    result = _shape(x.type, dim, half_to_float)
    return stored(builder, result, lambda index: shifted(index).exp() / total(index))


def _log_softmax(builder: Builder, x: Lazy, dim: int, half_to_float: bool) -> Any:
    if not can_lower(x):
        return NotImplemented
    shifted, _, total = _exponentials(builder, x, dim)
    dims, sizes = _along(dim, x.type.rank), x.type.sizes
    dtype = compute_dtype(x.type.dtype)
    logarithm = sharing(builder, dtype, sizes, dims, lambda index: total(index).log())
    result = _shape(x.type, dim, half_to_float)
    return stored(builder, result, lambda index: shifted(index) - logarithm(index))


def _safe_shape(x: TensorType, dim: int, dtype: torch.dtype | None = None) -> TensorType:
    return _shape(x, dim, False) if dtype in (None, x.dtype) else fresh(dtype, x.sizes)


def _safe_softmax(builder: Builder, x: Lazy, dim: int, dtype: torch.dtype | None = None) -> Any:
    """Softmax, but 0 in rows where every element is -inf."""
    if not can_lower(x) or dtype not in (None, x.type.dtype):
        return NotImplemented
    shifted, high, total = _exponentials(builder, x, dim)

    def at(index: Index) -> Term:
        return high(index).eq(-math.inf).where(0, shifted(index).exp() / total(index))

    return stored(builder, _shape(x.type, dim, False), at)


def _backward_shape(
    grad: TensorType, output: TensorType, dim: int, input_dtype: torch.dtype
) -> TensorType:
    normalise_dim(dim, grad.rank)
    return fresh(input_dtype, grad.sizes)


def _backward(body: Callable[[Term, Term, Term], Term], term: Callable[[Term, Term], Term]) -> Any:
    """`body(grad, output, total)`, where the total of a row is the sum of `term(grad, output)`."""

    def lower(
        builder: Builder, grad: Lazy, output: Lazy, dim: int, input_dtype: torch.dtype
    ) -> Any:
        if not can_lower(grad, output):
            return NotImplemented
        dims, sizes = _along(dim, output.type.rank), output.type.sizes
        dtype = compute_dtype(output.type.dtype)
        slope, value = reading(builder, grad, dtype), reading(builder, output, dtype)
        total = sharing(
            builder,
            dtype,
            sizes,
            dims,
            fold(builder, "sum", sizes, dims, lambda index: term(slope(index), value(index))),
        )
        result = _backward_shape(grad.type, output.type, dim, input_dtype)
        return stored(builder, result, lambda index: body(slope(index), value(index), total(index)))

    return lower


def _samples() -> Iterator[Sample]:
    for tensor in (make((3, 4)), make((4, 3)).t(), make((2, 3, 4)), make((3, 8))[:, ::2]):
        for dim in (0, -1):
            yield (tensor, dim, False), {}
    yield (make(()), 0, False), {}
    yield (make((2, 0)), 1, False), {}
    for dtype in (torch.float64, torch.bfloat16, torch.float16):
        yield (make((3, 4), dtype), 1, False), {}


def _backward_samples(log: bool) -> Callable[[], Iterator[Sample]]:
    def made() -> Iterator[Sample]:
        function = torch.log_softmax if log else torch.softmax
        for (tensor, dim, _), _unused in _samples():
            output = function(tensor, dim)
            yield (make(tensor.shape, tensor.dtype, seed=5), output, dim, tensor.dtype), {}

    return made


op("_softmax.default", _shape, _softmax, _samples)
op(
    "_safe_softmax.default",
    _safe_shape,
    _safe_softmax,
    lambda: (
        ((x.masked_fill(x < level, -math.inf), dim), {})
        for (x, dim, _), _unused in _samples()
        for level in (0, 100)
    ),
)
op("_log_softmax.default", _shape, _log_softmax, _samples)
op(
    "_softmax_backward_data.default",
    _backward_shape,
    _backward(lambda grad, y, total: (grad - total) * y, lambda grad, y: grad * y),
    _backward_samples(False),
)
op(
    "_log_softmax_backward_data.default",
    _backward_shape,
    _backward(lambda grad, y, total: grad - y.exp() * total, lambda grad, y: grad),
    _backward_samples(True),
)
