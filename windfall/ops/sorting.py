"""Order and search: sort, topk, median and their kin. Shape rules only: the ops are called.

Enters: nothing. Leaves: records in the registry.
"""

from __future__ import annotations

from typing import Any

import torch

from windfall.ir.dtype import TensorType
from windfall.ir.symint import Size
from windfall.ops.folding import fresh, kept_sizes, listed, op
from windfall.ops.layout import normalise_dim, preserved_strides
from windfall.ops.samples import make


def _sort_shape(
    x: TensorType, dim: int = -1, descending: bool = False
) -> tuple[TensorType, TensorType]:
    normalise_dim(dim, x.rank)  # raises where there is none
    strides = preserved_strides(x.sizes, x.strides)
    return TensorType(x.dtype, x.sizes, strides), TensorType(torch.int64, x.sizes, strides)


def _needs(x: TensorType, place: int, count: Size) -> None:
    """So many elements along a dim; where sizes vary, the op itself says it."""
    there = x.sizes[place] if x.rank else 1
    if isinstance(there, int) and isinstance(count, int) and not 0 <= count <= there:
        raise RuntimeError(f"{count} of {there} elements")


def _topk_shape(
    x: TensorType, count: Size, dim: int = -1, largest: bool = True, ordered: bool = True
) -> tuple[TensorType, TensorType]:
    place = normalise_dim(dim, x.rank)
    _needs(x, place, count)
    sizes = (*x.sizes[:place], count, *x.sizes[place + 1 :]) if x.rank else ()
    return fresh(x.dtype, sizes), fresh(torch.int64, sizes)


_sortable = listed(
    lambda: ((make((3, 4)), -1), {}),
    lambda: ((make((4, 3)).t(), 0), {}),
    lambda: ((make((3, 8))[:, ::2], 1), {}),
)
op("sort.default", _sort_shape, None, _sortable)
op(
    "sort.stable",
    lambda x, *, stable=None, dim=-1, descending=False: _sort_shape(x, dim),
    None,
    listed(lambda: ((make((4, 3)).t(),), {"stable": True, "dim": 0})),
)
op(
    "topk.default",
    _topk_shape,
    None,
    listed(lambda: ((make((3, 4)), 2), {}), lambda: ((make((4, 3)).t(), 2, 0), {})),
)


def _chosen_shape(
    x: TensorType, dim: int = -1, keepdim: bool = False
) -> tuple[TensorType, TensorType]:
    place = normalise_dim(dim, x.rank)
    _needs(x, place, 1)
    sizes = kept_sizes(x.sizes, (place,), keepdim)
    return fresh(x.dtype, sizes), fresh(torch.int64, sizes)


def _kth_shape(
    x: TensorType, k: Size, dim: int = -1, keepdim: bool = False
) -> tuple[TensorType, TensorType]:
    _needs(x, normalise_dim(dim, x.rank), k)
    return _chosen_shape(x, dim, keepdim)


def _search_shape(
    boundaries: TensorType, x: Any, *, out_int32: bool = False, **keywords: Any
) -> Any:
    if not isinstance(x, TensorType):
        return NotImplemented
    return fresh(torch.int32 if out_int32 else torch.int64, x.sizes)


def _bucket_shape(x: Any, boundaries: TensorType, **keywords: Any) -> Any:
    if boundaries.rank != 1:
        raise RuntimeError(f"boundaries tensor must be 1 dimension, but got dim({boundaries.rank})")
    return _search_shape(boundaries, x, **keywords)


for _name in ("median.dim", "nanmedian.dim", "mode.default"):
    op(_name, _chosen_shape, None, _sortable)
op("kthvalue.default", _kth_shape, None, listed(lambda: ((make((4, 3)).t(), 2, 1, True), {})))
for _name in ("median.default", "nanmedian.default"):
    op(_name, lambda x: fresh(x.dtype, ()), None, listed(lambda: ((make((3, 4)),), {})))
op(
    "searchsorted.Tensor",
    _search_shape,
    None,
    listed(lambda: ((torch.arange(5.0), make((4, 3)).t()), {"out_int32": True})),
    refuses=True,
)
for _name in ("searchsorted.Scalar", "bincount.default", "histc.default", "segment_reduce.default"):
    op(_name, None, refuses=True)
op(
    "bucketize.Tensor",
    _bucket_shape,
    None,
    listed(lambda: ((make((4, 3)).t(), torch.arange(5.0)), {})),
)
