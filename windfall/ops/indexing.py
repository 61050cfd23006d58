"""Reading and writing by computed positions: gather, index, embedding, scatter.

Enters: nothing. Leaves: records in the registry. Invariant: an index that comes from data goes
through `Builder.as_index`, which checks bounds.

Ops that write by computed positions (scatter, index_put) cannot be told as one definition for each
element: they have a shape rule only and are called. The backward of embedding is a native entry.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from windfall.ir.dtype import TensorType, contiguous_strides
from windfall.ir.loop import Builder, Index, Lazy
from windfall.ir.symint import Size
from windfall.ops import failing
from windfall.ops.arguments import type_of
from windfall.ops.folding import can_lower, fresh, listed, op
from windfall.ops.layout import (
    Sizes,
    broadcast_sizes,
    broadcast_strides,
    normalise_dim,
    preserved_strides,
    smaller,
    sorted_strides,
)
from windfall.ops.registry import Samples
from windfall.ops.reshape import reshaped_strides
from windfall.ops.samples import Sample, make
from windfall.ops.term import Term

INDEX_DTYPES = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def place_of(builder: Builder, positions: Lazy, index: Index, size: Size, *, wrap: bool) -> Size:
    """An element of a tensor of positions, as an index into a dimension of `size`."""
    value = Term(builder, positions.at(index)).to(torch.int64)
    return builder.as_index(value.scalar, size, wrap=wrap)


def can_read(x: Lazy, *dims: int) -> bool:
    """Whether positions in these dimensions can be right at all. An operand without elements is not
    read, so that no loop would look at the positions; eager's kernel says what is wrong."""
    return can_lower(x) and all(x.type.sizes[dim] != 0 for dim in dims)


# ---------------------------------------------------------------------------------------- embedding


def _embedding_shape(
    weight: TensorType,
    indices: TensorType,
    padding: Any = -1,
    scale_by_frequency: bool = False,
    sparse: bool = False,
) -> TensorType:
    if weight.rank != 2:
        raise RuntimeError("'weight' must be 2-D")
    if indices.dtype not in (torch.int64, torch.int32):
        raise RuntimeError(
            "Expected tensor for argument #1 'indices' to have one of the following scalar "
            "types: Long, "
            "Int; but got "
            + str(indices.dtype)
            + " instead (while checking arguments for embedding)"
        )
    return fresh(weight.dtype, (*indices.sizes, weight.sizes[1]))


def _embedding(builder: Builder, weight: Lazy, indices: Lazy, *rest: Any) -> Any:
    if not can_read(weight, 0):
        return NotImplemented
    result = _embedding_shape(weight.type, indices.type)
    rows = weight.type.sizes[0]

    def at(index: Index) -> Any:
        row = place_of(builder, indices, index[:-1], rows, wrap=False)
        return weight.at((row, index[-1]))

    return builder.tensor(result, at)


def _embedding_backward_shape(
    grad: TensorType, indices: TensorType, rows: Size, padding: Size, scale_by_frequency: bool
) -> TensorType:
    return fresh(grad.dtype, (rows, grad.sizes[-1]))


def _embedding_backward(
    builder: Builder, grad: Lazy, indices: Lazy, rows: Size, padding: Size, by_frequency: bool
) -> Any:
    """Rows added into zeros. (ATen's own kernel answers a tensor of its own, to be copied.)"""
    known = grad.type.dtype in (torch.float32, torch.float64)
    known &= indices.type.dtype in (torch.int64, torch.int32)
    if not known or by_frequency or grad.type.elements == 0 or rows == 0:
        return NotImplemented
    result = _embedding_backward_shape(grad.type, indices.type, rows, padding, by_frequency)
    operands = [Lazy(fresh(each.type.dtype, each.type.sizes), each.at) for each in (grad, indices)]
    attributes = {"height": rows, "padding": padding}
    return builder.native_call("add_rows", operands, (result,), attributes=attributes)[0]


op(
    "embedding.default",
    _embedding_shape,
    _embedding,
    listed(
        lambda: ((make((5, 4)), torch.tensor([[1, 4], [0, 1]])), {}),
        lambda: ((make((4, 5)).t(), torch.tensor([1, 4], dtype=torch.int32), 1), {}),
        lambda: ((make((5, 4)), torch.tensor(3)), {}),
        lambda: ((make((5, 4), torch.bfloat16), torch.zeros((0, 2), dtype=torch.int64)), {}),
    ),
    reads=(1,),
    checks=failing.rows,
)
op(
    "embedding_dense_backward.default",
    _embedding_backward_shape,
    _embedding_backward,
    listed(
        lambda: ((make((2, 3, 4)), torch.tensor([[1, 4, 0], [0, 1, 2]]), 5, 1, False), {}),
        lambda: ((make((7, 19)), torch.tensor([2, 2, 0, 3, 2, 0, 1]), 4, -1, False), {}),
        lambda: ((make((3, 9), torch.float64), torch.tensor([1, 0, 1]).int(), 2, -1, False), {}),
        lambda: ((make((9, 3)).t(), torch.tensor([1, 0, 1]), 2, -1, False), {}),
        lambda: ((make((5,)), torch.tensor(1), 3, -1, False), {}),
        lambda: ((make((2, 3, 4)), torch.tensor([[1, 4, 0], [0, 1, 2]]), 5, 1, True), {}),
    ),
    from_memory=True,
)

# ------------------------------------------------------------------------------------- gather, take


def _gather_shape(
    x: TensorType, dim: int, positions: TensorType, *, sparse_grad: bool = False
) -> TensorType:
    place = normalise_dim(dim, x.rank)
    if x.rank and positions.rank and x.rank != positions.rank and positions.elements != 0:
        raise RuntimeError("Index tensor must have the same number of dimensions as input tensor")
    if x.rank == positions.rank and positions.elements != 0:
        for other, (size, wanted) in enumerate(zip(x.sizes, positions.sizes, strict=True)):
            if other != place and smaller(size, wanted):
                raise RuntimeError(
                    f"Size does not match at dimension {other} expected index "
                    f"{list(positions.sizes)} to be no larger than self {list(x.sizes)} apart "
                    f"from dimension {place}"
                )
    return fresh(x.dtype, positions.sizes)


def _gather(
    builder: Builder, x: Lazy, dim: int, positions: Lazy, *, sparse_grad: bool = False
) -> Any:
    if not x.type.rank or x.type.rank != positions.type.rank:
        return NotImplemented
    place = normalise_dim(dim, x.type.rank)
    if not can_read(x, place):
        return NotImplemented
    result = _gather_shape(x.type, dim, positions.type)

    def at(index: Index) -> Any:
        chosen = place_of(builder, positions, index, x.type.sizes[place], wrap=False)
        return x.at((*index[:place], chosen, *index[place + 1 :]))

    return builder.tensor(result, at)


def _index_select_shape(x: TensorType, dim: int, positions: TensorType) -> TensorType:
    place = normalise_dim(dim, x.rank)
    if positions.rank > 1:
        raise IndexError("index_select(): Index is supposed to be a vector")
    if not x.rank:
        return fresh(x.dtype, ())
    count = positions.sizes[0] if positions.rank else 1
    return fresh(x.dtype, (*x.sizes[:place], count, *x.sizes[place + 1 :]))


def _index_select(builder: Builder, x: Lazy, dim: int, positions: Lazy) -> Any:
    if not x.type.rank:
        return NotImplemented
    place = normalise_dim(dim, x.type.rank)
    if not can_read(x, place):
        return NotImplemented

    def at(index: Index) -> Any:
        own = (index[place],) if positions.type.rank else ()
        chosen = place_of(builder, positions, own, x.type.sizes[place], wrap=False)
        return x.at((*index[:place], chosen, *index[place + 1 :]))

    return builder.tensor(_index_select_shape(x.type, dim, positions.type), at)


def _take_shape(x: TensorType, positions: TensorType) -> TensorType:
    return fresh(x.dtype, positions.sizes)


def _take(builder: Builder, x: Lazy, positions: Lazy) -> Any:
    if not can_lower(x) or x.type.elements == 0:
        return NotImplemented

    def at(index: Index) -> Any:
        flat = place_of(builder, positions, index, x.type.elements, wrap=True)
        return x.at(_unflattened(flat, x.type.sizes))

    return builder.tensor(_take_shape(x.type, positions.type), at)


def _unflattened(flat: Size, sizes: Sizes) -> Index:
    places: list[Size] = []
    for size in reversed(sizes[1:]):
        places.append(flat % size)
        flat = flat // size
    return tuple([flat, *reversed(places)]) if sizes else ()


op(
    "gather.default",
    _gather_shape,
    _gather,
    listed(
        lambda: ((make((3, 4)), 1, torch.tensor([[0, 3], [1, 1], [2, 0]])), {}),
        lambda: ((make((4, 3)).t(), 0, torch.tensor([[0, 2, 1, 1]])), {}),
        lambda: ((make(()), 0, torch.tensor(0)), {}),
        lambda: ((make((3, 4)), 1, torch.zeros((0, 4), dtype=torch.int64)), {}),
    ),
    reads=(2,),
    checks=failing.along,
)
op(
    "index_select.default",
    _index_select_shape,
    _index_select,
    listed(
        lambda: ((make((3, 4)), 1, torch.tensor([0, 3, 3])), {}),
        lambda: ((make((4, 3)).t(), -2, torch.tensor([2, 0], dtype=torch.int32)), {}),
        lambda: ((make((3, 4, 2)), 0, torch.tensor(1)), {}),
    ),
    reads=(2,),
    checks=failing.along,
)
op(
    "take.default",
    _take_shape,
    _take,
    listed(
        lambda: ((make((3, 4)), torch.tensor([[0, 11], [-1, 5]])), {}),
        lambda: ((make((4, 3)).t(), torch.tensor([[0, 11], [-1, 5]]).t()), {}),
    ),
    reads=(1,),
    checks=failing.anywhere,
)

# ---------------------------------------------------------------------------------- x[tensors, ...]

Positions = Sequence[Any]


class _Advanced:
    """`x[positions]` with tensors of positions: which dimensions they index, and where their
    common shape goes in the result (in front, unless the indexed dimensions are neighbours)."""

    def __init__(self, x: TensorType, positions: Positions) -> None:
        self.x = x
        self.dims = [dim for dim, each in enumerate(positions) if each is not None]
        self.types = [positions[dim] for dim in self.dims]
        self.shape: Sizes = ()
        for type in self.types:
            try:
                self.shape = broadcast_sizes(self.shape, type.sizes)
            except RuntimeError:
                shapes = ", ".join(str(list(each.sizes)) for each in self.types)
                raise IndexError(
                    "shape mismatch: indexing tensors could not be broadcast together with shapes "
                    + shapes
                ) from None
        neighbours = self.dims == list(range(self.dims[0], self.dims[0] + len(self.dims)))
        self.start = self.dims[0] if neighbours else 0
        self.rest = [dim for dim in range(x.rank) if dim not in self.dims]

    def supported(self) -> bool:
        """Masks would make the result's size depend on data."""
        return all(type.dtype in INDEX_DTYPES[:2] for type in self.types)

    def result(self) -> TensorType:
        """Eager's sizes, and strides that follow those of x, then those of the positions."""
        before, after = self.rest[: self.start], self.rest[self.start :]
        sizes = (
            *(self.x.sizes[dim] for dim in before),
            *self.shape,
            *(self.x.sizes[dim] for dim in after),
        )
        middle = (0,) * len(self.shape)
        own = (
            *(self.x.strides[dim] for dim in before),
            *middle,
            *(self.x.strides[dim] for dim in after),
        )
        operands = [own]
        # Eager reshapes the positions, broadcast among themselves, to the result's rank: that makes
        # strides of single rows regular, and gives dimensions of size 1 strides as well.
        seen_as = ((1,) * len(before)) + self.shape + ((1,) * len(after))
        for type in self.types:
            expanded = broadcast_strides(self.shape, type.sizes, type.strides)
            strides = reshaped_strides(self.shape, expanded, seen_as)
            strides = strides or contiguous_strides(seen_as)
            operands.append(broadcast_strides(sizes, seen_as, strides))
        return TensorType(self.x.dtype, sizes, sorted_strides(sizes, operands))


def _index_shape(x: TensorType, positions: Positions) -> Any:
    if len(positions) > x.rank:
        raise IndexError(
            f"too many indices for tensor of dimension {x.rank} (got {len(positions)})"
        )
    advanced = _Advanced(x, positions)
    return advanced.result() if advanced.supported() else NotImplemented


def _index(builder: Builder, x: Lazy, positions: Positions) -> Any:
    advanced = _Advanced(x.type, type_of(list(positions)))
    if not advanced.supported() or not can_read(x, *advanced.dims):
        return NotImplemented
    start, width = advanced.start, len(advanced.shape)

    def at(index: Index) -> Any:
        common = index[start : start + width]
        whole = dict(zip(advanced.rest, index[:start] + index[start + width :], strict=True))
        for dim in advanced.dims:
            type = positions[dim].type
            missing = width - type.rank
            own = tuple(
                0 if size == 1 else common[missing + place] for place, size in enumerate(type.sizes)
            )
            whole[dim] = place_of(builder, positions[dim], own, x.type.sizes[dim], wrap=True)
        return x.at(tuple(whole[dim] for dim in range(x.type.rank)))

    return builder.tensor(advanced.result(), at)


def _index_samples() -> Iterator[Sample]:
    first, second = torch.tensor([0, 2, -1]), torch.tensor([[1], [0]])
    for x in (make((3, 4, 5)), make((5, 4, 3)).permute(2, 1, 0), make((3, 4, 10))[..., ::2]):
        yield (x, [first]), {}
        yield (x, [None, first]), {}
        yield (x, [first, second]), {}
        yield (x, [None, first, second]), {}
        yield (x, [first, None, second]), {}
        yield (x, [first, first, first]), {}
    yield (make((4,)), [second.t()]), {}
    yield (make((4, 3)), [torch.zeros((0,), dtype=torch.int64)]), {}
    yield (make((4, 3), torch.int32), [torch.tensor(1), None]), {}


op(
    "index.Tensor",
    _index_shape,
    _index,
    _index_samples,
    reads=(1,),
    checks=failing.by_dimension,
)
op("_unsafe_index.Tensor", _index_shape, _index, _index_samples, reads=(1,))


def _like_preserved(x: TensorType, *rest: Any, **keywords: Any) -> TensorType:
    return TensorType(x.dtype, x.sizes, preserved_strides(x.sizes, x.strides))


def _like_row_major(x: TensorType, *rest: Any, **keywords: Any) -> TensorType:
    return TensorType(x.dtype, x.sizes, contiguous_strides(x.sizes))


def _masked_scatter_shape(x: TensorType, mask: TensorType, source: TensorType) -> TensorType:
    return fresh(x.dtype, broadcast_sizes(x.sizes, mask.sizes))


_put = listed(
    lambda: ((make((3, 4)), [torch.tensor([0, 2])], make((2, 4))), {}),
    lambda: ((make((4, 3)).t(), [None, torch.tensor([0, 2])], make(()), True), {}),
    lambda: ((make((3, 8))[:, ::2], [torch.tensor([0, 2])], make((4,))), {}),
)


def _written(name: str, shape: Any, samples: Samples | None = None, checks: Any = None) -> None:
    """An op that writes (or repeats) by computed positions: called, and refuses some. With `checks`
    it may be called to write in place, after these."""
    op(name, shape, None, samples, refuses=True, checks=checks)


_written("index_put.default", _like_preserved, _put, failing.put)
op("_unsafe_index_put.default", _like_preserved, None, _put)
_written(
    "index_fill.int_Scalar",
    _like_preserved,
    listed(lambda: ((make((4, 3)).t(), 1, torch.tensor([0, 2]), 1.5), {})),
    failing.along,
)


def _scatters(*source: Any, keywords: Any = None) -> Any:
    return listed(
        *(
            lambda x=x: (
                (x(), 1, torch.tensor([[0, 3], [1, 1]]), *(each() for each in source)),
                dict(keywords or {}),
            )
            for x in (lambda: make((3, 4)), lambda: make((4, 3)).t(), lambda: make((3, 8))[:, ::2])
        )
    )


_written("scatter.src", _like_row_major, _scatters(lambda: make((2, 2))), failing.along)
_written("scatter.value", _like_row_major, _scatters(lambda: 1.5), failing.along)
_written(
    "scatter.reduce",
    _like_row_major,
    _scatters(lambda: make((2, 2)), keywords={"reduce": "add"}),
    failing.along,
)
_written(
    "scatter.value_reduce",
    _like_row_major,
    _scatters(lambda: 1.5, keywords={"reduce": "add"}),
    failing.along,
)
_written("scatter_add.default", _like_row_major, _scatters(lambda: make((2, 2))), failing.along)
_written(
    "scatter_reduce.two",
    _like_row_major,
    _scatters(lambda: make((2, 2)), lambda: "amax"),
    failing.along,
)
_vectors = listed(
    lambda: ((make((3, 4)), 1, torch.tensor([0, 3]), make((3, 2))), {}),
    lambda: ((make((4, 3)).t(), 1, torch.tensor([0, 3]), make((3, 2))), {}),
)
_written("index_add.default", _like_row_major, _vectors, failing.along)
_written("index_copy.default", _like_row_major, _vectors, failing.along)
_written("index_reduce.default", _like_row_major)
_written(
    "masked_scatter.default",
    _masked_scatter_shape,
    listed(lambda: ((make((4, 3)).t(), make((3, 4)) > 0, make((12,))), {})),
)
_written(
    "put.default",
    _like_preserved,
    listed(lambda: ((make((4, 3)).t(), torch.tensor([1, 5]), make((2,))), {})),
)
_written(
    "index_fill.int_Tensor",
    _like_preserved,
    listed(lambda: ((make((4, 3)).t(), 1, torch.tensor([0, 2]), torch.tensor(1.5)), {})),
    failing.along,
)
_written("_index_put_impl.default", None)
_written("repeat_interleave.Tensor", None)
