"""Tensors put together or rearranged: flip, roll, repeat, cat, stack, pad, triangles.

Enters: nothing. Leaves: records in the registry. Invariant: a tensor is only read inside its
bounds; where that depends on the index, the read stands inside `Builder.masked`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from windfall.ir.dtype import TensorType, contiguous_strides
from windfall.ir.loop import Builder, Index, Lazy
from windfall.ir.symint import Size
from windfall.ops.arguments import type_of
from windfall.ops.folding import can_lower, fitting, fresh, listed, op, size_term
from windfall.ops.layout import (
    channels_last_strides,
    differ,
    looks_channels_last,
    normalise_dim,
    preserved_strides,
    smaller,
    suggested_strides,
)
from windfall.ops.promotion import common_dtype
from windfall.ops.samples import make
from windfall.ops.term import Term


def _like_preserved(x: TensorType, *rest: Any) -> TensorType:
    return TensorType(x.dtype, x.sizes, preserved_strides(x.sizes, x.strides))


def _like_row_major(x: TensorType, *rest: Any) -> TensorType:
    return TensorType(x.dtype, x.sizes, contiguous_strides(x.sizes))


# --------------------------------------------------------------------------------- flip, roll, tile


def _flip_shape(x: TensorType, dims: Sequence[int]) -> TensorType:
    places = [normalise_dim(dim, x.rank) for dim in dims]
    if len(set(places)) < len(places):
        raise RuntimeError(f"a dim appears multiple times in {list(dims)}")
    return _like_preserved(x)


def _flip(builder: Builder, x: Lazy, dims: Sequence[int]) -> Any:
    if not can_lower(x):
        return NotImplemented
    sizes, rank = x.type.sizes, x.type.rank
    turned = {normalise_dim(dim, rank) for dim in dims} if rank else set()

    def at(index: Index) -> Any:
        return x.at(
            tuple(
                sizes[dim] - 1 - place if dim in turned else place
                for dim, place in enumerate(index)
            )
        )

    return builder.tensor(_like_preserved(x.type), at)


def _roll_shape(x: TensorType, shifts: Sequence[Size], dims: Sequence[int] = ()) -> TensorType:
    for dim in dims:
        normalise_dim(dim, x.rank)
    # Eager joins two slices, which keeps channels-last; or copies an empty tensor as it is.
    strides = x.strides if 0 in x.sizes else suggested_strides(x, x.sizes)
    return TensorType(x.dtype, x.sizes, strides)


def _roll(builder: Builder, x: Lazy, shifts: Sequence[Size], dims: Sequence[int] = ()) -> Any:
    rank, sizes = x.type.rank, x.type.sizes
    if not can_lower(x) or len(dims) != len(shifts) or 0 in sizes:
        return NotImplemented
    moves: dict[int, Size] = {}
    for dim, shift in zip(dims, shifts, strict=True):
        place = normalise_dim(dim, rank)
        moves[place] = moves.get(place, 0) + shift

    def at(index: Index) -> Any:
        return x.at(
            tuple(
                # Kept positive, so that the quotient needs no floor.
                (place + (sizes[dim] - moves[dim] % sizes[dim])) % sizes[dim]
                if dim in moves
                else place
                for dim, place in enumerate(index)
            )
        )

    return builder.tensor(_roll_shape(x.type, shifts, dims), at)


def _repeat_shape(x: TensorType, repeats: Sequence[Size]) -> TensorType:
    if len(repeats) < x.rank:
        raise RuntimeError(
            "Number of dimensions of repeat dims can not be smaller than number of dimensions "
            "of tensor"
        )
    padded = (1,) * (len(repeats) - x.rank) + x.sizes
    return fresh(x.dtype, [size * times for size, times in zip(padded, repeats, strict=True)])


def _repeat(builder: Builder, x: Lazy, repeats: Sequence[Size]) -> Any:
    if not can_lower(x):
        return NotImplemented
    missing = len(repeats) - x.type.rank

    def at(index: Index) -> Any:
        own = (
            place if times == 1 else 0 if size == 1 else place % size
            for place, size, times in zip(
                index[missing:], x.type.sizes, repeats[missing:], strict=True
            )
        )
        return x.at(tuple(own))

    return builder.tensor(_repeat_shape(x.type, repeats), at)


op(
    "flip.default",
    _flip_shape,
    _flip,
    listed(
        lambda: ((make((3, 4)), [0, 1]), {}),
        lambda: ((make((4, 3)).t(), [-1]), {}),
        lambda: ((make((3, 8))[:, ::2], [1]), {}),
    ),
)
op(
    "roll.default",
    _roll_shape,
    _roll,
    listed(
        lambda: ((make((3, 4)), [1, -2], [0, 1]), {}),
        lambda: ((make((4, 3)).t(), [5], [1]), {}),
        lambda: ((make((3, 4)), [1]), {}),
    ),
)
op(
    "repeat.default",
    _repeat_shape,
    _repeat,
    listed(
        lambda: ((make((3, 4)), [2, 1]), {}),
        lambda: ((make((4, 3)).t(), [2, 1, 3]), {}),
        lambda: ((make((1, 3)), [4, 0]), {}),
        lambda: ((make(()), [2]), {}),
    ),
)

# ------------------------------------------------------------------------------------------ joining


def _skipped(type: TensorType) -> bool:
    """An empty vector may stand among tensors of any shape, for old times' sake."""
    return type.sizes == (0,)


def _cat_shape(tensors: Sequence[TensorType], dim: int = 0) -> TensorType:
    if not tensors:
        raise RuntimeError("expected a non-empty list of Tensors")
    dtype = common_dtype(tensors)
    joined = [each for each in tensors if not _skipped(each)]
    if not joined:
        return fresh(dtype, (0,))
    first = joined[0]
    if not first.rank:
        raise RuntimeError("zero-dimensional tensor (at position 0) cannot be concatenated")
    place = normalise_dim(dim, first.rank)
    length: Size = 0
    for number, each in enumerate(joined):
        _check_joined(first, each, place, number)
        length = length + each.sizes[place]
    sizes = (*first.sizes[:place], length, *first.sizes[place + 1 :])
    formats = {looks_channels_last(each.sizes, each.strides) for each in tensors}
    if formats == {True}:
        return TensorType(dtype, sizes, channels_last_strides(sizes))
    return fresh(dtype, sizes)


def _check_joined(first: TensorType, other: TensorType, place: int, number: int) -> None:
    if first.rank != other.rank:
        raise RuntimeError(
            f"Tensors must have same number of dimensions: got {first.rank} and {other.rank}"
        )
    for dim, (one, two) in enumerate(zip(first.sizes, other.sizes, strict=True)):
        if dim != place and differ(one, two):
            raise RuntimeError(
                f"Sizes of tensors must match except in dimension {place}. Expected {one} but "
                "got size "
                f"{two} for tensor number {number} in the list."
            )


def _cat(builder: Builder, tensors: Sequence[Lazy], dim: int = 0) -> Any:
    result = _cat_shape(type_of(list(tensors)), dim)
    joined = [each for each in tensors if not _skipped(each.type) and each.type.elements != 0]
    if not joined or not can_lower(*joined, result):
        return NotImplemented
    place = normalise_dim(dim, result.rank)
    starts: list[Size] = [0]
    for each in joined:
        starts.append(starts[-1] + each.type.sizes[place])

    def read(tensor: Lazy, start: Size, index: Index) -> Any:
        own = index if start == 0 else (*index[:place], index[place] - start, *index[place + 1 :])
        return builder.cast(tensor.at(own), result.dtype)

    def at(index: Index) -> Any:
        position = Term(builder, builder.index(index[place]))

        def choose(first: int, last: int) -> Any:
            """By halves, so that the number of tests is logarithmic."""
            if last - first == 1:
                return read(joined[first], starts[first], index)
            middle = (first + last) // 2
            before = position < size_term(builder, starts[middle])
            other = builder.constant(0, result.dtype)
            left = builder.masked(before.scalar, lambda: choose(first, middle), other)
            right = builder.masked((~before).scalar, lambda: choose(middle, last), other)
            return builder.apply("where", before.scalar, left, right)

        return choose(0, len(joined))

    return builder.tensor(result, at)


def _stack_shape(tensors: Sequence[TensorType], dim: int = 0) -> TensorType:
    if not tensors:
        raise RuntimeError("stack expects a non-empty TensorList")
    first = tensors[0]
    for number, each in enumerate(tensors):
        if differ(each.sizes, first.sizes):
            raise RuntimeError(
                f"stack expects each tensor to be equal size, but got {list(first.sizes)} at "
                "entry 0 "
                f"and {list(each.sizes)} at entry {number}"
            )
    place = normalise_dim(dim, first.rank + 1)
    return fresh(common_dtype(tensors), (*first.sizes[:place], len(tensors), *first.sizes[place:]))


def _stack(builder: Builder, tensors: Sequence[Lazy], dim: int = 0) -> Any:
    result = _stack_shape(type_of(list(tensors)), dim)
    if not can_lower(*tensors, result):
        return NotImplemented
    place = normalise_dim(dim, result.rank)

    def at(index: Index) -> Any:
        position = Term(builder, builder.index(index[place]))
        own = index[:place] + index[place + 1 :]
        value = Term(builder, builder.cast(tensors[-1].at(own), result.dtype))
        for number in range(len(tensors) - 2, -1, -1):
            other = Term(builder, builder.cast(tensors[number].at(own), result.dtype))
            value = position.eq(number).where(other, value)
        return value.scalar

    return builder.tensor(result, at)


def _images(*sizes: tuple[int, ...]) -> list[torch.Tensor]:
    return [make(each).contiguous(memory_format=torch.channels_last) for each in sizes]


op(
    "cat.default",
    _cat_shape,
    _cat,
    listed(
        lambda: (([make((2, 3)), make((1, 3)), make((3, 3))],), {}),
        lambda: (([make((3, 2)).t(), make((2, 4))], 1), {}),
        lambda: (([make((3, 2)).t(), make((4, 2)).t()], 1), {}),
        lambda: (([make((2, 3)), make((0,)), make((2, 3), torch.int64)], -1), {}),
        lambda: (([make((2, 3), torch.bfloat16), make((2, 3))],), {}),
        lambda: ((_images((2, 3, 4, 5), (2, 1, 4, 5)), 1), {}),
        lambda: (([*_images((2, 3, 4, 5)), make((2, 3, 4, 5))], 1), {}),
        lambda: (([make((2, 3))],), {}),
        lambda: (([make((0,))],), {}),
    ),
)
op(
    "stack.default",
    _stack_shape,
    _stack,
    listed(
        lambda: (([make((2, 3)), make((2, 3), seed=1), make((2, 3), seed=2)],), {}),
        lambda: (([make((3, 2)).t(), make((3, 2), seed=1).t()], -1), {}),
        lambda: (([make((2, 3)), make((2, 3), torch.int64)], 1), {}),
        lambda: (([make(()), make(())],), {}),
    ),
)

# ----------------------------------------------------------------------------------- pad, triangles


def _pad_shape(x: TensorType, pad: Sequence[Size], value: Any = 0) -> TensorType:
    if len(pad) % 2 or len(pad) > 2 * x.rank:
        raise RuntimeError(
            "Length of pad must be even and at most twice the number of dimensions of the input"
        )
    sizes = list(x.sizes)
    for number, amount in enumerate(pad):  # eager cuts off what is negative before it looks further
        if smaller(amount, 0) and smaller(sizes[x.rank - 1 - number // 2] + amount, 0):
            raise RuntimeError("narrow(): length must be non-negative.")
    for number in range(len(pad) // 2):
        dim = x.rank - 1 - number
        sizes[dim] = sizes[dim] + pad[2 * number] + pad[2 * number + 1]
        grown = sizes[dim]
        if isinstance(grown, int) and grown < 0:
            raise RuntimeError(
                f"The input size {x.sizes[dim]}, plus negative padding {pad[2 * number]} and "
                f"{pad[2 * number + 1]} resulted in a negative output size, which is invalid. "
                "Check "
                f"dimension {dim} of your input."
            )
    own = tuple(sizes)
    if not any(smaller(0, amount) for amount in pad):
        return TensorType(x.dtype, own, preserved_strides(own, x.strides))
    return TensorType(x.dtype, own, suggested_strides(x, own))


def _pad(builder: Builder, x: Lazy, pad: Sequence[Size], value: Any = 0) -> Any:
    if not can_lower(x) or isinstance(value, complex):
        return NotImplemented
    result, rank = _pad_shape(x.type, pad, value), x.type.rank
    before = {rank - 1 - number: pad[2 * number] for number in range(len(pad) // 2)}
    after = {rank - 1 - number: pad[2 * number + 1] for number in range(len(pad) // 2)}
    filling = builder.constant(fitting(value, x.type.dtype), x.type.dtype)

    def at(index: Index) -> Any:
        own = tuple(place - before.get(dim, 0) for dim, place in enumerate(index))
        inside: Term | None = None
        for dim, place in enumerate(own):
            position = Term(builder, builder.index(place))
            tests = []
            if _positive(before.get(dim, 0)):
                tests.append(position >= 0)
            if _positive(after.get(dim, 0)):
                tests.append(position < size_term(builder, x.type.sizes[dim]))
            for test in tests:
                inside = test if inside is None else inside & test
        if inside is None:
            return x.at(own)
        return builder.masked(inside.scalar, lambda: x.at(own), filling)

    return builder.tensor(result, at)


def _positive(amount: Size) -> bool:
    return not isinstance(amount, int) or amount > 0


def _triangle(keep: Callable[[Term], Term]) -> Callable[..., Any]:
    def lower(builder: Builder, x: Lazy, diagonal: int = 0) -> Any:
        if not can_lower(x):
            return NotImplemented

        def at(index: Index) -> Any:
            above = Term(builder, builder.index(index[-1])) - Term(
                builder, builder.index(index[-2])
            )
            value = Term(builder, x.at(index))
            return keep(above - diagonal).where(value, value.like(0)).scalar

        return builder.tensor(_triangle_shape(x.type, diagonal), at)

    return lower


def _triangle_shape(x: TensorType, diagonal: int = 0) -> TensorType:
    if x.rank < 2:
        raise RuntimeError("tril: input tensor must have at least 2 dimensions")
    return _like_row_major(x)


_triangles = listed(
    lambda: ((make((3, 4)),), {}),
    lambda: ((make((4, 3)).t(), 1), {}),
    lambda: ((make((2, 3, 3)), -1), {}),
    lambda: ((make((3, 3), torch.bool),), {}),
)
op(
    "constant_pad_nd.default",
    _pad_shape,
    _pad,
    listed(
        lambda: ((make((3, 4)), [1, 2]), {}),
        lambda: ((make((4, 3)).t(), [1, -1, 0, 2], 2.5), {}),
        lambda: ((*_images((2, 3, 4, 5)), [1, 1, 1, 1]), {}),
        lambda: ((make((3, 4), torch.int64), [-1, -1]), {}),
        lambda: ((make((0, 4)), [0, 0, 1, 1]), {}),
    ),
    reads=(),
)
op("tril.default", _triangle_shape, _triangle(lambda above: above <= 0), _triangles)
op("triu.default", _triangle_shape, _triangle(lambda above: above >= 0), _triangles)
