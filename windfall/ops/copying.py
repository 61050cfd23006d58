"""Copies and conversions: clone, to, copy, fill, and choices between tensors (where, masked_fill).

Enters: nothing. Leaves: records in the registry. Invariant: a copy keeps the order of dimensions in
memory unless a memory format is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from windfall.ir.dtype import TensorType, contiguous_strides
from windfall.ir.loop import Builder, Index, Lazy
from windfall.ops.folding import At, can_lower, fitting, fresh, op, reading, stored
from windfall.ops.layout import (
    Sizes,
    broadcast_sizes,
    channels_last_strides,
    preserved_strides,
)
from windfall.ops.pointwise_rule import broadcast_places, layout_of
from windfall.ops.promotion import common_dtype
from windfall.ops.samples import Sample, answered, make, operand_lists
from windfall.ops.term import Term

Format = torch.memory_format


def formatted_strides(sizes: Sizes, strides: Sizes, memory_format: Format | None) -> Sizes:
    """Strides of a fresh tensor like one with these, in a memory format (None: as it is)."""
    if memory_format is None or memory_format is torch.preserve_format:
        return preserved_strides(sizes, strides)
    if memory_format is torch.contiguous_format:
        return contiguous_strides(sizes)
    rank = 4 if memory_format is torch.channels_last else 5
    if len(sizes) != rank:
        raise RuntimeError(f"required rank {rank} tensor to use {_FORMAT_NAMES[rank]} format")
    return channels_last_strides(sizes)


_FORMAT_NAMES = {4: "channels_last", 5: "channels_last_3d"}


def _clone_shape(x: TensorType, *, memory_format: Format | None = None) -> TensorType:
    return TensorType(x.dtype, x.sizes, formatted_strides(x.sizes, x.strides, memory_format))


def _clone(builder: Builder, x: Lazy, *, memory_format: Format | None = None) -> Any:
    if not can_lower(x):
        return NotImplemented
    return builder.tensor(_clone_shape(x.type, memory_format=memory_format), x.at)


def _to_copy_shape(
    x: TensorType,
    *,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = None,
    non_blocking: bool = False,
    memory_format: Format | None = None,
) -> Any:
    if _elsewhere(device, layout, pin_memory):
        return NotImplemented
    strides = formatted_strides(x.sizes, x.strides, memory_format)
    return TensorType(dtype or x.dtype, x.sizes, strides)


def _elsewhere(device: Any, layout: Any, pin_memory: Any) -> bool:
    """Whether the result is no plain tensor in main memory."""
    if device is not None and torch.device(device).type != "cpu":
        return True
    return layout not in (None, torch.strided) or bool(pin_memory)


def _to_copy(builder: Builder, x: Lazy | float, **keywords: Any) -> Any:
    if isinstance(x, bool | int | float):  # that was wrapped: `vmap` casts such
        return NotImplemented
    result = _to_copy_shape(x.type, **keywords)
    if result is NotImplemented or not can_lower(x, result):
        return NotImplemented
    return stored(builder, result, reading(builder, x))


def _copy_shape(x: TensorType, source: TensorType, non_blocking: bool = False) -> TensorType:
    if broadcast_sizes(x.sizes, source.sizes) != x.sizes:
        raise RuntimeError(
            f"output with shape {list(x.sizes)} doesn't match the broadcast shape "
            f"{list(broadcast_sizes(x.sizes, source.sizes))}"
        )
    # Holes between elements are kept, elements shown several times are not.
    repeated = any(stride == 0 != size - 1 for size, stride in zip(x.sizes, x.strides, strict=True))
    strides = preserved_strides(x.sizes, x.strides) if repeated else x.strides
    return TensorType(x.dtype, x.sizes, strides)


def _copy(builder: Builder, x: Lazy, source: Lazy, non_blocking: bool = False) -> Any:
    result = _copy_shape(x.type, source.type)
    if not can_lower(x, source):
        return NotImplemented
    read = broadcast_reading(builder, source, result.sizes)
    return stored(builder, result, read)


def broadcast_reading(builder: Builder, value: Lazy, sizes: Sizes) -> At:
    """The elements of `value`, repeated over `sizes`."""
    places = broadcast_places(value.type.sizes, len(sizes))

    def read(index: Index) -> Term:
        own = tuple([0 if place is None else index[place] for place in places])
        return Term(builder, value.at(own))

    return read


def _like_shape(x: TensorType, *rest: Any) -> TensorType:
    return TensorType(x.dtype, x.sizes, preserved_strides(x.sizes, x.strides))


def _filled_shape(x: TensorType, value: TensorType) -> TensorType:
    if value.rank:
        raise RuntimeError(
            "fill_ only supports 0-dimension value tensor but got tensor with "
            f"{value.rank} dimensions."
        )
    return _like_shape(x)


def _fill(builder: Builder, x: Lazy, value: Any = 0) -> Any:
    if not can_lower(x, value) or isinstance(value, complex):
        return NotImplemented
    result = _like_shape(x.type)
    if isinstance(value, Lazy):
        return stored(builder, result, lambda index: Term(builder, value.at(())))
    return builder.tensor(
        result, lambda index: builder.constant(fitting(value, x.type.dtype), x.type.dtype)
    )


# ------------------------------------------------------------------------------------------ choices


def _where_shape(condition: TensorType, yes: TensorType, no: TensorType) -> TensorType:
    sizes, strides = layout_of([condition, yes, no])
    return TensorType(common_dtype((yes, no)), sizes, strides)


def _where(builder: Builder, condition: Lazy, yes: Lazy, no: Lazy) -> Any:
    result = _where_shape(condition.type, yes.type, no.type)
    if not can_lower(condition, yes, no, result):
        return NotImplemented
    test, left, right = (
        broadcast_reading(builder, each, result.sizes) for each in (condition, yes, no)
    )

    def at(index: Index) -> Term:
        chosen = left(index).to(result.dtype)
        return Term.where(test(index).to(torch.bool), chosen, right(index).to(result.dtype))

    return stored(builder, result, at)


def _masked_fill_shape(x: TensorType, mask: TensorType, value: Any) -> TensorType:
    if mask.dtype is not torch.bool:
        raise RuntimeError(
            "masked_fill_ only supports boolean masks, but got mask with dtype "
            + str(mask.dtype).removeprefix("torch.")
        )
    if isinstance(value, TensorType) and value.rank:
        raise RuntimeError(
            "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with "
            f"{value.rank} dimension(s)."
        )
    return fresh(x.dtype, broadcast_sizes(x.sizes, mask.sizes))


def _masked_fill(builder: Builder, x: Lazy, mask: Lazy, value: Any) -> Any:
    result = _masked_fill_shape(x.type, mask.type, value.type if isinstance(value, Lazy) else value)
    if not can_lower(x, value):
        return NotImplemented
    test, kept = (broadcast_reading(builder, each, result.sizes) for each in (mask, x))

    def at(index: Index) -> Term:
        if isinstance(value, Lazy):
            filling = Term(builder, value.at(())).to(result.dtype)
        else:
            filling = Term(builder, builder.constant(fitting(value, result.dtype), result.dtype))
        return test(index).where(filling, kept(index))

    return stored(builder, result, at)


def _one_tensor() -> Iterator[Sample]:
    for (tensor,) in operand_lists(1):
        yield (tensor,), {}
    for dtype in (torch.float64, torch.bfloat16, torch.int64, torch.bool, torch.complex64):
        yield (make((2, 3), dtype),), {}


def _formats() -> Iterator[Sample]:
    yield from _one_tensor()
    image = make((2, 3, 4, 5))
    for memory_format in (torch.channels_last, torch.contiguous_format, torch.preserve_format):
        yield (image,), {"memory_format": memory_format}
        yield (image.permute(0, 2, 3, 1),), {"memory_format": memory_format}


def _conversions() -> Iterator[Sample]:
    yield from _formats()
    dtypes = (
        torch.float64,
        torch.float32,
        torch.bfloat16,
        torch.float16,
        torch.int64,
        torch.int32,
        torch.uint8,
        torch.bool,
    )
    for source in dtypes:
        for target in dtypes:
            low = 0 if target is torch.uint8 else -4
            values = make((4, 3), torch.int64, low=low).to(source)
            yield (values.t(),), {"dtype": target}


def _three() -> Iterator[Sample]:
    for condition, yes, no in operand_lists(3):
        yield (condition > 0, yes, no), {}
    for first, second in ((torch.float32, torch.int64), (torch.int32, torch.bfloat16)):
        yield (make((2, 3)) > 0, make((2, 3), first), make((3,), second)), {}
        yield (make((2, 3)) > 0, make((2, 3), first), make((), second)), {}


def _fills(tensor_value: bool) -> Any:
    def made() -> Iterator[Sample]:
        for x, mask in operand_lists(2):
            yield (x, mask > 0, torch.tensor(2.5) if tensor_value else 2.5), {}
        value = torch.tensor(2) if tensor_value else 2
        yield (make((2, 3), torch.int32), make((3,)) > 0, value), {}
        yield (make((2, 3), torch.bfloat16), make((3,)) > 0, value), {}

    return made


def _pairs() -> Iterator[Sample]:
    for x, source in operand_lists(2):
        yield (x, source), {}
    yield (make((2, 3), torch.int32), make((3,))), {}
    yield (make((2, 3), torch.bfloat16).t(), make((3, 1), torch.int64)), {}


op("clone.default", _clone_shape, _clone, _formats, recompute=True, moves=True, no_op=True)
op("_to_copy.default", _to_copy_shape, _to_copy, _conversions, recompute=True, no_op=True)
op("copy.default", _copy_shape, _copy, answered("copy.default", _pairs), reads=(1,), recompute=True)
op(
    "fill.Scalar",
    _like_shape,
    _fill,
    lambda: (((*arguments, 2), {}) for arguments, _ in _one_tensor()),
    reads=(),
    recompute=True,
)
op(
    "fill.Tensor",
    _filled_shape,
    _fill,
    lambda: (((*arguments, torch.tensor(2.0)), {}) for arguments, _ in _one_tensor()),
    reads=(1,),
    recompute=True,
)
op("zero.default", _like_shape, _fill, _one_tensor, reads=(), recompute=True)
op("where.self", _where_shape, _where, _three, recompute=True)
op("masked_fill.Scalar", _masked_fill_shape, _masked_fill, _fills(False), recompute=True)
op("masked_fill.Tensor", _masked_fill_shape, _masked_fill, _fills(True), recompute=True)
