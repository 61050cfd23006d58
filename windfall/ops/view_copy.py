"""Copies of views: `view_copy`, `permute_copy` and their kin, made from the records of the views.

Enters: the views' records. Leaves: one record for each copy. Invariant: the same elements as the
view has, in memory of their own, row-major.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from windfall.ir.dtype import TensorType
from windfall.ir.loop import Builder, Lazy
from windfall.ops.folding import can_lower, fresh, listed, op
from windfall.ops.layout import normalise_dim, smaller
from windfall.ops.registry import Op, declare, lookup
from windfall.ops.samples import make

# The op, then its overloads.
COPIES = {
    "view": "default",
    "permute": "default",
    "transpose": "int",
    "t": "default",
    "expand": "default",
    "unsqueeze": "default",
    "squeeze": "default dim dims",
    "slice": "Tensor",
    "select": "int",
    "unbind": "int",
    "split": "Tensor",
    "split_with_sizes": "default",
    "diagonal": "default",
    "unfold": "default",
    "alias": "default",
    "detach": "default",
}


def _each(values: Any, function: Callable[[Any], Any]) -> Any:
    return tuple(map(function, values)) if isinstance(values, tuple) else function(values)


def _copy_of(view: Op) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The shape rule and the lowering of the copy."""
    seen_shape, seen_lower = view.shape, view.lower
    assert seen_shape is not None and seen_lower is not None

    def shape(*arguments: Any, **keywords: Any) -> Any:
        seen = seen_shape(*arguments, **keywords)
        return _each(seen, lambda type: fresh(type.dtype, type.sizes))

    def lower(builder: Builder, x: Lazy, *arguments: Any, **keywords: Any) -> Any:
        if not can_lower(x):
            return NotImplemented

        def copied(part: Lazy) -> Lazy:
            return builder.tensor(fresh(part.type.dtype, part.type.sizes), part.at)

        return _each(seen_lower(builder, x, *arguments, **keywords), copied)

    return shape, lower


for _name, _overloads in COPIES.items():
    for _overload in _overloads.split():
        _view = lookup(f"aten.{_name}.{_overload}")
        op(
            f"{_name}_copy.{_overload}",
            *_copy_of(_view),
            _view.samples,
            reads=_view.reads,
            any_layout=_view.any_layout,
            recompute=True,
        )


def _unsafe(name: str, view: str) -> None:
    """A view whose pieces torch does not count as views."""
    record = lookup(f"aten.{view}")
    declare(replace(record, name=f"aten.{name}", view=False, piece=None))


_unsafe("unsafe_split.Tensor", "split.Tensor")
_unsafe("unsafe_split_with_sizes.default", "split_with_sizes.default")


def _narrow_start(x: TensorType, dim: int, start: Any, length: Any) -> Any:
    """Where the part starts, counted from the front; NotImplemented for what eager refuses."""
    size = x.sizes[normalise_dim(dim, x.rank)]
    first = start + size if smaller(start, 0) else start
    if smaller(first, 0) or smaller(length, 0) or smaller(size, first + length):
        return NotImplemented
    return first


def _narrow_shape(x: TensorType, dim: int, start: Any, length: Any) -> Any:
    first = _narrow_start(x, dim, start, length)
    if first is NotImplemented:
        return NotImplemented
    part = _slice_shape(x, dim, first, first + length)
    return fresh(part.dtype, part.sizes)


def _narrow(builder: Builder, x: Lazy, dim: int, start: Any, length: Any) -> Any:
    first = _narrow_start(x.type, dim, start, length)
    if first is NotImplemented or not can_lower(x):
        return NotImplemented
    return _slice_lower(builder, x, dim, first, first + length)


_slice_shape, _slice_lower = _copy_of(lookup("aten.slice.Tensor"))
op(
    "narrow_copy.default",
    _narrow_shape,
    _narrow,
    listed(
        lambda: ((make((4, 6)).t(), 1, 1, 2), {}),
        lambda: ((make((4, 6)), 1, -1, 1), {}),
    ),
    reads=(),
    recompute=True,
)
