"""Factorisations and histograms: called, not generated.

Enters: nothing. Leaves: records in the registry. Invariant: shape rules only, where torch has none
of its own or one that differs from its CPU kernels: LAPACK writes matrices column by column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from windfall.ir.dtype import TensorType, contiguous_strides
from windfall.ir.symint import Size, minimum
from windfall.ops.folding import fresh, op
from windfall.ops.layout import differ
from windfall.ops.samples import Sample, make

_COMPLEX = {torch.float32: torch.complex64, torch.float64: torch.complex128}
_REAL = {made: plain for plain, made in _COMPLEX.items()}


def _by_columns(dtype: torch.dtype, sizes: Sequence[Size]) -> TensorType:
    """A batch of matrices, each column by column."""
    *batch, rows, columns = sizes
    *outer, down, across = contiguous_strides((*batch, columns, rows))
    return TensorType(dtype, tuple(sizes), (*outer, across, down))


def _matrix(x: TensorType) -> tuple[tuple[Size, ...], Size, Size]:
    if x.rank < 2:
        raise RuntimeError("the input must have at least two dimensions")
    *batch, rows, columns = x.sizes
    return tuple(batch), rows, columns


def _eig(x: TensorType) -> tuple[TensorType, TensorType]:
    batch, rows, columns = _matrix(x)
    if differ(rows, columns):
        raise RuntimeError("the input must be batches of square matrices")
    dtype = _COMPLEX.get(x.dtype, x.dtype)
    return fresh(dtype, (*batch, rows)), _by_columns(dtype, x.sizes)


def _svd(
    x: TensorType,
    full_matrices: bool = False,
    compute_uv: bool = True,
    *,
    driver: str | None = None,
) -> tuple[TensorType, TensorType, TensorType]:
    batch, rows, columns = _matrix(x)
    least = minimum(rows, columns)
    values = fresh(_REAL.get(x.dtype, x.dtype), (*batch, least))
    if not compute_uv:
        nothing = fresh(x.dtype, (0,))
        return nothing, values, nothing
    width, height = (rows, columns) if full_matrices else (least, least)
    left = _by_columns(x.dtype, (*batch, rows, width))
    return left, values, _by_columns(x.dtype, (*batch, height, columns))


def _geqrf(x: TensorType) -> tuple[TensorType, TensorType]:
    batch, rows, columns = _matrix(x)
    return _by_columns(x.dtype, x.sizes), fresh(x.dtype, (*batch, minimum(rows, columns)))


def _nonzero_static(x: TensorType, *, size: Size, fill_value: int = -1) -> TensorType:
    return fresh(torch.int64, (size, x.rank))


def _histogram(x: TensorType, bins: int = 100, **_: Any) -> tuple[TensorType, TensorType]:
    return fresh(x.dtype, (bins,)), fresh(x.dtype, (bins + 1,))


def _edges(x: TensorType, bins: Sequence[int], **_: Any) -> list[TensorType]:
    return [fresh(x.dtype, (count + 1,)) for count in bins]


def _counts(x: TensorType, bins: Sequence[int], **_: Any) -> TensorType:
    return fresh(x.dtype, tuple(bins))


def _histogram_between(x: TensorType, bins: TensorType, **_: Any) -> tuple[TensorType, TensorType]:
    return fresh(x.dtype, (bins.sizes[0] - 1,)), fresh(x.dtype, bins.sizes)


def _counts_between(x: TensorType, bins: Sequence[TensorType], **_: Any) -> TensorType:
    return fresh(x.dtype, tuple(each.sizes[0] - 1 for each in bins))


def _matrices() -> Iterator[Sample]:
    for sizes in ((3, 3), (4, 3), (3, 4), (2, 3, 2)):
        yield (make(sizes),), {}


def _squares() -> Iterator[Sample]:
    for sizes in ((3, 3), (2, 4, 4)):
        yield (make(sizes),), {}


def _decompositions() -> Iterator[Sample]:
    for (x,), _ in _matrices():
        for full in (False, True):
            yield (x, full), {}


def _sparse_masks() -> Iterator[Sample]:
    yield (make((3, 4)).relu(),), {"size": 5}
    yield (make((6,)).relu(),), {"size": 2, "fill_value": 7}


def _points() -> Iterator[Sample]:
    yield (make((20,)), 5), {}
    yield (make((4, 5)), 3), {"range": [-1.0, 1.0]}


def _rows_of_points() -> Iterator[Sample]:
    yield (make((20, 2)), [3, 4]), {}


def _points_between() -> Iterator[Sample]:
    yield (make((20,)), torch.linspace(-1, 1, 5)), {}


def _rows_between() -> Iterator[Sample]:
    yield (make((20, 2)), [torch.linspace(-1, 1, 5), torch.linspace(-2, 2, 4)]), {}


# Eigenvectors are known up to a phase: where a gradient would depend on it, eager refuses, and it
# looks at the data without an op that could be recorded. (That of singular vectors is one.)
op(
    "linalg_eig.default",
    _eig,
    None,
    _squares,
    refuses=True,
    own_error=True,
    keeps=True,
    phases=True,
)
op("_linalg_svd.default", _svd, None, _decompositions, refuses=True, own_error=True, keeps=True)
op("_linalg_eigh.default", None, refuses=True, own_error=True, keeps=True, phases=True)
op("cholesky_inverse.default", None, refuses=True, own_error=True)
for _name in ("_linalg_det", "_linalg_slogdet", "_linalg_solve_ex"):
    op(f"{_name}.default", None, refuses=False, keeps=True)
op("linalg_lstsq.default", None, refuses=True)
op("geqrf.default", _geqrf, None, _matrices)
op("nonzero_static.default", _nonzero_static, None, _sparse_masks)
op("histogram.bin_ct", _histogram, None, _points, refuses=True)
op("_histogramdd_bin_edges.default", _edges, None, _rows_of_points, refuses=True)
op("_histogramdd_from_bin_cts.default", _counts, None, _rows_of_points, refuses=True)
op("histogram.bins_tensor", _histogram_between, None, _points_between, refuses=True)
op("_histogramdd_from_bin_tensors.default", _counts_between, None, _rows_between, refuses=True)
