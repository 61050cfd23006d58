"""Gradients of views: zeros with a part filled in. `slice_backward`, `select_backward` and kin.

Enters: nothing. Leaves: records in the registry. Invariant: the result is row-major, has the sizes
that the view's argument had, and the gradient's dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from windfall.ir.dtype import TensorType
from windfall.ir.loop import Builder, Index, Lazy
from windfall.ir.symint import Size
from windfall.ops.folding import can_lower, fresh, listed, op, size_term
from windfall.ops.layout import normalise_dim
from windfall.ops.registry import lookup
from windfall.ops.samples import Sample, make
from windfall.ops.term import Term
from windfall.ops.view_scatter import scatter_diagonal, scatter_select, scatter_slice


def _shape(grad: TensorType, sizes: Sequence[Size], *rest: Any) -> TensorType:
    return fresh(grad.dtype, sizes)


def _into_zeros(scatter: Callable[..., Any]) -> Callable[..., Any]:
    """The gradient written into zeros by the scatter that belongs to the view."""

    def lower(builder: Builder, grad: Lazy, sizes: Sequence[Size], *rest: Any) -> Any:
        if not can_lower(grad):
            return NotImplemented
        type = fresh(grad.type.dtype, sizes)
        zeros = builder.tensor(type, lambda index: builder.constant(0, type.dtype))
        return scatter(builder, zeros, grad, *rest)

    return lower


def _samples(view: str, *rest: Any) -> Callable[[], Iterator[Sample]]:
    def made() -> Iterator[Sample]:
        record = lookup(f"aten.{view}")
        assert record.shape is not None
        part = record.shape(TensorType.contiguous(torch.float32, (4, 5)), *rest)
        for dtype in (torch.float32, torch.bfloat16):
            yield (make(part.sizes, dtype), [4, 5], *rest), {}
        turned = make(part.sizes[::-1]).permute(*range(len(part.sizes))[::-1])
        yield (turned, [4, 5], *rest), {}

    return made


def _each(*samples: Callable[[], Iterator[Sample]]) -> Callable[[], Iterator[Sample]]:
    return lambda: (sample for each in samples for sample in each())


op(
    "slice_backward.default",
    _shape,
    _into_zeros(scatter_slice),
    _each(
        _samples("slice.Tensor", 1, 1, 4, 1),
        _samples("slice.Tensor", 0, 0, 9223372036854775807, 2),
        _samples("slice.Tensor", 1, -3, -1, 1),
    ),
    recompute=True,
)
op(
    "select_backward.default",
    _shape,
    _into_zeros(scatter_select),
    _each(_samples("select.int", 1, -2), _samples("select.int", 0, 0)),
    recompute=True,
)
op(
    "diagonal_backward.default",
    _shape,
    _into_zeros(scatter_diagonal),
    _each(_samples("diagonal.default", 0, 0, 1), _samples("diagonal.default", -1, 1, 0)),
    recompute=True,
)


def _embed_sizes(
    x: TensorType, offset: int = 0, dim1: int = -2, dim2: int = -1
) -> tuple[list[Size], int, int]:
    rank = x.rank + 1
    first, second = normalise_dim(dim1, rank), normalise_dim(dim2, rank)
    if first == second:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    sizes = list(x.sizes[:-1])
    for dim in sorted((first, second)):
        sizes.insert(dim, x.sizes[-1] + abs(offset))
    return sizes, first, second


def _embed_shape(x: TensorType, offset: int = 0, dim1: int = -2, dim2: int = -1) -> TensorType:
    return fresh(x.dtype, _embed_sizes(x, offset, dim1, dim2)[0])


def _embed(builder: Builder, x: Lazy, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    sizes, first, second = _embed_sizes(x.type, offset, dim1, dim2)
    return _into_zeros(scatter_diagonal)(builder, x, sizes, offset, first, second)


op(
    "diag_embed.default",
    _embed_shape,
    _embed,
    listed(
        lambda: ((make((2, 3)),), {}),
        lambda: ((make((3, 2)).t(), 1, 0, 2), {}),
        lambda: ((make((3,)), -2), {}),
    ),
    recompute=True,
)


def _unfold(
    builder: Builder, grad: Lazy, sizes: Sequence[Size], dim: int, size: int, step: int
) -> Any:
    """Each element is the sum over the windows that show it."""
    if not can_lower(grad) or not sizes:
        return NotImplemented
    result = fresh(grad.type.dtype, sizes)
    place = normalise_dim(dim, len(sizes))
    windows, dtype = grad.type.sizes[place], grad.type.dtype

    def at(index: Index) -> Any:
        def inside(axes: Index) -> Any:
            start = index[place] - axes[0]
            begins = Term(builder, builder.index(start))
            shown = (begins >= 0) & (begins < size_term(builder, windows * step))
            if step != 1:
                shown = shown & Term(builder, builder.index(start % step)).eq(0)
            own = (*index[:place], start // step, *index[place + 1 :], axes[0])
            zero = builder.constant(0, dtype)
            return builder.masked(shown.scalar, lambda: grad.at(own), zero)

        return builder.reduce("sum", (size,), inside)

    return builder.tensor(result, at)


op(
    "unfold_backward.default",
    _shape,
    _unfold,
    listed(
        lambda: ((make((4, 4, 2)), [4, 5], 1, 2, 1), {}),
        lambda: ((make((4, 2, 3)), [4, 6], 1, 3, 2), {}),
        lambda: ((make((2, 5, 2)), [5, 5], 0, 2, 3), {}),
    ),
)
