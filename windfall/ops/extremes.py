"""Reductions that compare: the largest and smallest element, where it stands; `any` and `all`.

Enters: nothing. Leaves: records in the registry. Invariant: NaN is larger and smaller than all
others, and the first of equal elements counts, as in eager.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from windfall.ir.dtype import TensorType
from windfall.ir.loop import Builder, Lazy
from windfall.ops.folding import (
    At,
    can_lower,
    fold,
    fresh,
    kept_sizes,
    op,
    reading,
)
from windfall.ops.promotion import compute_dtype
from windfall.ops.reduction import (
    ALL_DTYPES,
    Dims,
    dims_of,
    one_dim,
    reduced,
    reduction_samples,
)
from windfall.ops.term import Term


def _needs_elements(name: str, x: TensorType, dims: Sequence[int], given: Dims) -> None:
    if x.rank and any(x.sizes[dim] == 0 for dim in dims):
        if given is None or given == []:
            raise RuntimeError(
                f"{name}(): Expected reduction dim to be specified for input.numel() == 0. "
                "Specify the reduction dim with the 'dim' argument."
            )
        dim = next(dim for dim in dims if x.sizes[dim] == 0)
        raise IndexError(f"{name}(): Expected reduction dim {dim} to have non-zero size.")


def _extreme_shape(name: str) -> Callable[..., TensorType]:
    def shape(x: TensorType, dims: Dims = None, keepdim: bool = False) -> TensorType:
        chosen = dims_of(dims, x.rank)
        _needs_elements(name, x, chosen, dims)
        return fresh(x.dtype, kept_sizes(x.sizes, chosen, keepdim))

    return shape


def _extreme(kind: str, builder: Builder, x: Lazy, dims: Sequence[int]) -> At:
    """The largest or smallest element; of bools, whether any or all are true."""
    dtype = x.type.dtype
    if dtype is torch.bool:
        kind = {"max": "any", "min": "all"}[kind]
    read = reading(builder, x, compute_dtype(dtype))
    return fold(builder, kind, x.type.sizes, dims, read)


def _extreme_lower(kind: str, shape: Callable[..., TensorType]) -> Callable[..., Any]:
    def lower(builder: Builder, x: Lazy, dims: Dims = None, keepdim: bool = False) -> Any:
        if not can_lower(x):
            return NotImplemented
        result = shape(x.type, dims, keepdim)
        chosen = dims_of(dims, x.type.rank)
        return reduced(builder, x, result, chosen, keepdim, _extreme(kind, builder, x, chosen))

    return lower


def _position(kind: str, builder: Builder, x: Lazy, dims: Sequence[int]) -> At:
    if not dims:
        return lambda index: Term(builder, builder.constant(0, torch.int64))
    dtype = torch.uint8 if x.type.dtype is torch.bool else compute_dtype(x.type.dtype)
    return fold(builder, kind, x.type.sizes, dims, reading(builder, x, dtype))


def _position_shape(name: str) -> Callable[..., TensorType]:
    def shape(x: TensorType, dim: int | None = None, keepdim: bool = False) -> TensorType:
        chosen = dims_of(dim, x.rank)
        _needs_elements(name, x, chosen, dim)
        return fresh(torch.int64, kept_sizes(x.sizes, chosen, keepdim))

    return shape


def _position_lower(name: str) -> Callable[..., Any]:
    shape = _position_shape(name)

    def lower(builder: Builder, x: Lazy, dim: int | None = None, keepdim: bool = False) -> Any:
        if not can_lower(x):
            return NotImplemented
        chosen = dims_of(dim, x.type.rank)
        result = shape(x.type, dim, keepdim)
        return reduced(builder, x, result, chosen, keepdim, _position(name, builder, x, chosen))

    return lower


def _extreme_dim(kind: str) -> None:
    values = _extreme_shape(kind)

    def shape(x: TensorType, dim: int, keepdim: bool = False) -> tuple[TensorType, TensorType]:
        value = values(x, dim, keepdim)
        return value, fresh(torch.int64, value.sizes)

    def lower(builder: Builder, x: Lazy, dim: int, keepdim: bool = False) -> Any:
        if not can_lower(x):
            return NotImplemented
        value, position = shape(x.type, dim, keepdim)
        chosen = dims_of(dim, x.type.rank)
        return (
            reduced(builder, x, value, chosen, keepdim, _extreme(kind, builder, x, chosen)),
            reduced(
                builder, x, position, chosen, keepdim, _position(f"arg{kind}", builder, x, chosen)
            ),
        )

    op(f"{kind}.dim", shape, lower, one_dim(reduction_samples(dtypes=ALL_DTYPES)))


def _aminmax_shape(
    x: TensorType, *, dim: int | None = None, keepdim: bool = False
) -> tuple[TensorType, TensorType]:
    chosen = dims_of(dim, x.rank)
    _needs_elements("aminmax", x, chosen, dim)
    result = fresh(x.dtype, kept_sizes(x.sizes, chosen, keepdim))
    return result, result


def _aminmax(builder: Builder, x: Lazy, *, dim: int | None = None, keepdim: bool = False) -> Any:
    if not can_lower(x):
        return NotImplemented
    result, _ = _aminmax_shape(x.type, dim=dim, keepdim=keepdim)
    chosen = dims_of(dim, x.type.rank)
    return tuple(
        reduced(builder, x, result, chosen, keepdim, _extreme(kind, builder, x, chosen))
        for kind in ("min", "max")
    )


for _kind in ("max", "min"):
    _rule = _extreme_shape(f"a{_kind}")
    op(
        f"a{_kind}.default",
        _rule,
        _extreme_lower(_kind, _rule),
        reduction_samples(dtypes=ALL_DTYPES),
    )
    _rule = _extreme_shape(_kind)
    op(
        f"{_kind}.default",
        _rule,
        _extreme_lower(_kind, _rule),
        reduction_samples(dims=False, dtypes=ALL_DTYPES),
    )
    op(
        f"arg{_kind}.default",
        _position_shape(f"arg{_kind}"),
        _position_lower(f"arg{_kind}"),
        one_dim(reduction_samples(dtypes=ALL_DTYPES[:-1])),
    )
    _extreme_dim(_kind)
op("aminmax.default", _aminmax_shape, _aminmax, reduction_samples(dims=False, dtypes=ALL_DTYPES))


def _test_shape(x: TensorType, dims: Dims = None, keepdim: bool = False) -> TensorType:
    dtype = torch.uint8 if x.dtype is torch.uint8 else torch.bool
    return fresh(dtype, kept_sizes(x.sizes, _test_dims(dims, x.rank), keepdim))


def _test_dims(dims: Dims, rank: int) -> tuple[int, ...]:
    # `any.dims` with an empty list reduces nothing, unlike the other reductions.
    return () if dims == [] and rank else dims_of(dims, rank)


def _test(kind: str) -> Callable[..., Any]:
    def lower(builder: Builder, x: Lazy, dims: Dims = None, keepdim: bool = False) -> Any:
        if not can_lower(x):
            return NotImplemented
        result = _test_shape(x.type, dims, keepdim)
        chosen = _test_dims(dims, x.type.rank)
        answer = fold(builder, kind, x.type.sizes, chosen, reading(builder, x, torch.bool))
        return reduced(builder, x, result, chosen, keepdim, answer)

    return lower


for _kind in ("any", "all"):
    op(
        f"{_kind}.default",
        _test_shape,
        _test(_kind),
        reduction_samples(dims=False, dtypes=ALL_DTYPES),
    )
    op(f"{_kind}.dim", _test_shape, _test(_kind), one_dim(reduction_samples(dtypes=ALL_DTYPES)))
    op(f"{_kind}.dims", _test_shape, _test(_kind), reduction_samples(dtypes=ALL_DTYPES))
