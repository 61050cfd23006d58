"""`Loops` → `Loops`: long reductions with few results are done in two steps, over threads.

Enters: definitions and calls. Leaves: the same, in which such a reduction is partial results and
their reduction. Invariant: only the order of the folding changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from windfall.codegen.scalar_code import identity
from windfall.ir.dtype import TensorType
from windfall.ir.loop import Axis, Buffer, Call, Definition, Loops, Scalar, Scalars, axis
from windfall.ir.symint import Size, hint_of, product, substitute

SPLIT_FROM = 1 << 17  # a reduction of so many elements per result is split over threads
SPLIT_ROWS = 16  # unless it has so many results
SPLIT_PARTS = 64


def split_reductions(loops: Loops) -> Loops:
    """The loops with every long reduction in two steps."""
    buffers = dict(loops.buffers)
    items = [each for item in loops.items for each in _split(item, loops.scalars, buffers)]
    return replace(loops, buffers=buffers, items=tuple(items))


def _split(
    item: Definition | Call, scalars: Scalars, buffers: dict[str, Buffer]
) -> Sequence[Definition | Call]:
    """A long reduction with few results, as partial results and their reduction."""
    if isinstance(item, Call):
        return [item]
    value = item.value
    if value.op != "reduce" or value.attribute[0].startswith("arg"):
        return [item]
    kind, axes = value.attribute
    rows = hint_of(product(each.extent for each in item.axes))
    length = hint_of(product(each.extent for each in axes))
    if rows > SPLIT_ROWS or length < SPLIT_FROM:
        return [item]
    extent = axes[0].extent
    if not isinstance(extent, int):
        return _split_uneven(item, scalars, buffers)
    parts = next((parts for parts in range(SPLIT_PARTS, 15, -1) if extent % parts == 0), 0)
    if not parts:
        single = len(axes) == 1 or not all(isinstance(each.extent, int) for each in axes)
        return _split_uneven(item, scalars, buffers) if single else [item]
    outer, inner = axis(f"i{len(item.axes)}", parts), axis("r0", extent // parts)
    place = {axes[0].atom: outer.symbol * inner.extent + inner.symbol}
    body = scalars.substitute(value.arguments[0], place)
    return _in_two(item, kind, outer, (inner, *axes[1:]), body, scalars, buffers)


def _split_uneven(
    item: Definition, scalars: Scalars, buffers: dict[str, Buffer]
) -> list[Definition]:
    """As above where no number of parts is known to divide the length: the last part masks what is
    over."""
    kind, axes = item.value.attribute
    chosen = max(axes, key=lambda each: min(hint_of(each.extent), SPLIT_PARTS))
    size = (chosen.extent + SPLIT_PARTS - 1) // SPLIT_PARTS
    outer, inner = axis(f"i{len(item.axes)}", SPLIT_PARTS), axis("t0", size)
    position = outer.symbol * size + inner.symbol
    body = scalars.substitute(item.value.arguments[0], {chosen.atom: position})
    inside = scalars.apply(
        "lt",
        scalars.index(position, torch.int64),
        scalars.index(chosen.extent, torch.int64),
    )
    neutral = scalars.constant(identity(kind, body.dtype), body.dtype)
    left = tuple(inner if each is chosen else each for each in axes)
    masked = scalars.masked(inside, body, neutral)
    return _in_two(item, kind, outer, left, masked, scalars, buffers)


def _in_two(
    item: Definition,
    kind: str,
    outer: Axis,
    inner: tuple[Axis, ...],
    body: Scalar,
    scalars: Scalars,
    buffers: dict[str, Buffer],
) -> list[Definition]:
    axes = (*item.axes, outer)
    type = TensorType.contiguous(body.dtype, tuple(each.extent for each in axes))
    name = f"p{len(buffers)}"
    buffers[name] = Buffer(name, type, "temporary")
    offset: Size = 0
    for each, stride in zip(axes, type.strides, strict=True):
        offset = offset + stride * each.symbol
    partial = scalars.reduce(kind, inner, body)
    first = Definition(name, axes, offset, partial, item.origins)
    again = axis("r0", outer.extent)
    load = scalars.load(name, substitute(offset, {outer.atom: again.symbol}), body.dtype)
    second = replace(item, value=scalars.reduce(kind, (again,), load))
    return [first, second]
