"""Views: ops whose result is another way of seeing the first argument's memory.

Enters: nothing. Leaves: records in the registry, marked `view=True`, with exact strides and offset.
Invariant: lowering is an index map, never a copy: the element of the result at an index is an
element of the argument at another.

A row is `View(type, offset, source)`: the result's type, how many elements after the argument's
start it starts, and the index map. Both rules of the op come from it.

One file: one table of rows, and what they share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from windfall.dataclass import dataclass
from windfall.ir.dtype import TensorType
from windfall.ir.loop import Builder, Index, Lazy
from windfall.ir.symint import Size, hint_of, known_at_least, maximum, minimum
from windfall.ops.folding import listed, op
from windfall.ops.layout import (
    differ,
    is_non_overlapping_and_dense,
    normalise_dim,
    smaller,
)
from windfall.ops.promotion import TO_REAL
from windfall.ops.registry import Samples
from windfall.ops.reshape import inferred_sizes, reshape_index, reshaped_strides
from windfall.ops.samples import Sample, answered, make
from windfall.ops.symbolic import value_of

Source = Callable[[Index], Index]


@dataclass(frozen=True, slots=True)
class View:
    """One way of seeing a tensor."""

    type: TensorType
    source: Source | None  # None: no index map, so the op is called
    offset: Size = 0


Rule = Callable[..., Any]  # like the op, on a TensorType; answers a View or a tuple of them


def _each(views: Any, function: Callable[[View], Any]) -> Any:
    if isinstance(views, View):
        return function(views)
    return tuple(function(view) for view in views)


def view_op(
    name: str, rule: Rule, samples: Samples | None = None, view: bool = True, **fields: Any
) -> None:
    """Declare `aten.<name>` from its rule."""

    def shape(x: TensorType, *arguments: Any, **keywords: Any) -> Any:
        return _each(rule(x, *arguments, **keywords), lambda view: view.type)

    def offset(x: TensorType, *arguments: Any, **keywords: Any) -> Any:
        return _each(rule(x, *arguments, **keywords), lambda view: view.offset)

    def lower(builder: Builder, x: Lazy, *arguments: Any, **keywords: Any) -> Any:
        def seen(view: View) -> Any:
            source = view.source
            if source is None:
                return NotImplemented
            return builder.tensor(view.type, lambda index: x.at(source(index)))

        return _each(rule(x.type, *arguments, **keywords), seen)

    fields.setdefault("no_op", True)
    op(name, shape, lower, samples, view=view, offset=offset, recompute=True, moves=True, **fields)


def like(x: TensorType, sizes: Sequence[Size], strides: Sequence[Size]) -> TensorType:
    """A tensor over the same memory."""
    return TensorType(x.dtype, tuple(sizes), tuple(strides), x.device)


# ------------------------------------------------------------------------------------------ reshape


def _view(x: TensorType, sizes: Sequence[Size]) -> View:
    wanted = inferred_sizes(sizes, x.elements)
    strides = reshaped_strides(x.sizes, x.strides, wanted)
    if strides is None:
        raise RuntimeError(
            "view size is not compatible with input tensor's size and stride (at least one "
            "dimension "
            "spans across two contiguous subspaces). Use .reshape(...) instead."
        )
    return View(like(x, wanted, strides), reshape_index(x.sizes, wanted))


def _reshape_alias(x: TensorType, sizes: Sequence[Size], strides: Sequence[Size]) -> View:
    return View(like(x, sizes, strides), reshape_index(x.sizes, tuple(sizes)))


# ------------------------------------------------------------------------------ order of dimensions


def _permute(x: TensorType, dims: Sequence[int]) -> View:
    if len(dims) != x.rank:
        raise RuntimeError(
            "permute(sparse_coo): number of dimensions in the tensor input does not match the "
            "length "
            f"of the desired ordering of dimensions i.e. input.dim() = {x.rank} is not equal to "
            f"len(dims) = {len(dims)}"
        )
    order = [normalise_dim(dim, x.rank) for dim in dims]
    if len(set(order)) != len(order):
        raise RuntimeError("permute(): duplicate dims are not allowed.")
    type = like(x, [x.sizes[dim] for dim in order], [x.strides[dim] for dim in order])
    places = [order.index(dim) for dim in range(x.rank)]
    return View(type, lambda index: tuple([index[place] for place in places]))


def _transpose(x: TensorType, first: int, second: int) -> View:
    order = list(range(x.rank))
    if x.rank:
        one, two = normalise_dim(first, x.rank), normalise_dim(second, x.rank)
        order[one], order[two] = order[two], order[one]
    return _permute(x, order)


def _t(x: TensorType) -> View:
    if x.rank > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {x.rank}D")
    return _permute(x, range(x.rank)[::-1])


# ------------------------------------------------------------------------------------- sizes of one


def _expand(x: TensorType, sizes: Sequence[Size], *, implicit: bool = False) -> View:
    missing = len(sizes) - x.rank
    if missing < 0:
        raise RuntimeError(
            f"expand({short(x)}, size={list(sizes)}): the number of sizes provided "
            f"({len(sizes)}) must "
            f"be greater or equal to the number of dimensions in the tensor ({x.rank})"
        )
    new_sizes: list[Size] = list(sizes)
    new_strides: list[Size] = [0] * len(sizes)
    for place in range(len(sizes) - 1, -1, -1):
        size, stride = _before_expansion(x, place, missing, new_sizes, new_strides)
        target = size if sizes[place] == -1 and place >= missing else sizes[place]
        if size != 1 and differ(target, size):
            raise RuntimeError(
                f"The expanded size of the tensor ({target}) must match the existing size "
                f"({size}) at "
                f"non-singleton dimension {place}.  Target sizes: {list(sizes)}.  Tensor sizes: "
                f"{list(x.sizes)}"
            )
        new_sizes[place] = target if size == 1 else size
        new_strides[place] = stride if size != 1 or target == 1 else 0
    places = [None if size == 1 else missing + place for place, size in enumerate(x.sizes)]
    return View(
        like(x, new_sizes, new_strides),
        lambda index: tuple([0 if place is None else index[place] for place in places]),
    )


def _before_expansion(
    x: TensorType, place: int, missing: int, sizes: Sequence[Size], strides: Sequence[Size]
) -> tuple[Size, Size]:
    """Size and stride at a place of the expanded tensor, before it is repeated."""
    if place >= missing:
        return x.sizes[place - missing], x.strides[place - missing]
    return 1, sizes[place + 1] * strides[place + 1] if x.rank else 0


def short(x: TensorType) -> str:
    """How eager names a tensor in some messages."""
    kind = {torch.float32: "torch.FloatTensor", torch.float64: "torch.DoubleTensor"}
    return f"{kind.get(x.dtype, str(x.dtype))}{{{list(x.sizes)}}}"


def _unsqueeze(x: TensorType, dim: int) -> View:
    place = normalise_dim(dim, x.rank + 1)
    stride = x.sizes[place] * x.strides[place] if place < x.rank else 1
    type = like(
        x,
        (*x.sizes[:place], 1, *x.sizes[place:]),
        (*x.strides[:place], stride, *x.strides[place:]),
    )
    return View(type, lambda index: index[:place] + index[place + 1 :])


def _without(x: TensorType, dropped: Sequence[int]) -> View:
    kept = [dim for dim in range(x.rank) if dim not in dropped]
    type = like(x, [x.sizes[dim] for dim in kept], [x.strides[dim] for dim in kept])

    def source(index: Index) -> Index:
        rest = iter(index)
        return tuple([0 if dim in dropped else next(rest) for dim in range(x.rank)])

    return View(type, source)


def _squeeze(x: TensorType, dims: Sequence[int] | int | None = None) -> View:
    if dims is None:
        chosen = list(range(x.rank))
    else:
        given = [dims] if isinstance(dims, int) else dims
        chosen = [normalise_dim(dim, x.rank) for dim in given] if x.rank else []
    return _without(x, [dim for dim in chosen if x.sizes[dim] == 1])


# -------------------------------------------------------------------------------------------- parts


def clamp_bound(value: Size | None, size: Size, default: Size) -> Size:
    """One end of a Python slice over a dimension of `size`."""
    if value is None:
        return default
    if isinstance(value, int) and isinstance(size, int):
        return max(0, min(size, value + size if value < 0 else value))
    if isinstance(value, int) and value >= 2**62:
        return size
    if smaller(value, 0):
        value = value + size
        if smaller(value, 0):
            return 0
    return size if smaller(size, value) else value


def _slice(
    x: TensorType,
    dim: int = 0,
    start: Size | None = None,
    end: Size | None = None,
    step: int = 1,
) -> View:
    if x.rank == 0:
        raise RuntimeError("slice() cannot be applied to a 0-dim tensor.")
    place = normalise_dim(dim, x.rank)
    if step <= 0:
        raise RuntimeError("slice step must be positive")
    size = x.sizes[place]
    first = clamp_bound(start, size, 0)
    last = clamp_bound(end, size, size)
    if smaller(last, first):
        last = first
    length = (last - first + step - 1) // step
    sizes, strides = list(x.sizes), list(x.strides)
    sizes[place], strides[place] = length, x.strides[place] * step

    def source(index: Index) -> Index:
        inside = index[place] if step == 1 else index[place] * step
        return (*index[:place], inside if first == 0 else first + inside, *index[place + 1 :])

    return View(like(x, sizes, strides), source, first * x.strides[place])


def _narrow(x: TensorType, dim: int, start: Size, length: Size) -> View:
    return _slice(x, dim, start, start + length)


def _select(x: TensorType, dim: int, position: Size) -> View:
    if x.rank == 0:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    place = normalise_dim(dim, x.rank)
    size = x.sizes[place]
    if smaller(position, -size) or not smaller(position, size):
        raise IndexError(
            f"select(): index {position} out of range for tensor of size {list(x.sizes)} at "
            f"dimension {place}"
        )
    chosen = position + size if smaller(position, 0) else position
    view = _without(x, [place])
    return View(
        view.type,
        lambda index: (*index[:place], chosen, *index[place:]),
        chosen * x.strides[place],
    )


def _unbind(x: TensorType, dim: int = 0) -> tuple[View, ...]:
    place = normalise_dim(dim, x.rank)
    return tuple(_select(x, place, position) for position in range(_known(x.sizes[place])))


def _known(size: Size) -> int:
    """A size that decides how many results there are, and so must be known."""
    return value_of(size, "the number of results, the value")


def _split(x: TensorType, length: Size, dim: int = 0) -> tuple[View, ...]:
    place = normalise_dim(dim, x.rank)
    size = x.sizes[place]
    if length == 0:
        return (_narrow(x, place, 0, 0),)
    # How many pieces there are must be known, how long they are need not be.
    count = max(-(-hint_of(size) // hint_of(length)), 1)
    if count > 1 and not smaller((count - 1) * length, size):
        raise AssertionError("fewer pieces than counted")
    last = size if count == 1 and smaller(size, length) else size - (count - 1) * length
    if smaller(length, last):
        raise AssertionError("more pieces than counted")
    lengths = (*[length] * (count - 1), last)
    return tuple(_narrow(x, place, index * length, each) for index, each in enumerate(lengths))


def _split_with_sizes(x: TensorType, lengths: Sequence[Size], dim: int = 0) -> tuple[View, ...]:
    place = normalise_dim(dim, x.rank)
    total = sum(lengths[1:], lengths[0]) if lengths else 0
    if differ(total, x.sizes[place]):
        raise RuntimeError(
            f"split_with_sizes expects split_sizes to sum exactly to {x.sizes[place]} (input "
            "tensor's "
            f"size at dimension {place}), but got split_sizes={list(lengths)}"
        )
    views: list[View] = []
    start: Size = 0
    for length in lengths:
        views.append(_narrow(x, place, start, length))
        start = start + length
    return tuple(views)


def _diagonal(x: TensorType, offset: int = 0, dim1: int = 0, dim2: int = 1) -> View:
    first, second = normalise_dim(dim1, x.rank), normalise_dim(dim2, x.rank)
    if first == second:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    down, right = max(-offset, 0), max(offset, 0)
    rows, columns = x.sizes[first] - down, x.sizes[second] - right
    length = maximum(minimum(rows, columns), 0)
    kept = [dim for dim in range(x.rank) if dim not in (first, second)]
    type = like(
        x,
        (*(x.sizes[dim] for dim in kept), length),
        (*(x.strides[dim] for dim in kept), x.strides[first] + x.strides[second]),
    )

    def source(index: Index) -> Index:
        whole = dict(zip(kept, index, strict=False))
        whole[first], whole[second] = index[-1] + down, index[-1] + right
        return tuple([whole[dim] for dim in range(x.rank)])

    start = down * x.strides[first] + right * x.strides[second] if length else 0
    return View(type, source, start)


def _unfold(x: TensorType, dim: int, size: int, step: int) -> View:
    if x.rank == 0:
        if size > 1:
            raise RuntimeError(f"maximum size for tensor at dimension 0 is 1 but size is {size}")
        return View(like(x, (size,), (1,)), lambda index: ())
    place = normalise_dim(dim, x.rank)
    length = x.sizes[place]
    if smaller(length, size):
        raise RuntimeError(
            f"maximum size for tensor at dimension {place} is {length} but size is {size}"
        )
    sizes, strides = [*x.sizes, size], [*x.strides, x.strides[place]]
    sizes[place], strides[place] = (length - size) // step + 1, x.strides[place] * step
    return View(
        like(x, sizes, strides),
        lambda index: (
            *index[:place],
            index[place] * step + index[-1],
            *index[place + 1 : -1],
        ),
    )


def _same(x: TensorType) -> View:
    return View(like(x, x.sizes, x.strides), lambda index: index)


def _as_strided(
    x: TensorType, sizes: Sequence[Size], strides: Sequence[Size], offset: Size | None = None
) -> View:
    start: Size = 0 if offset is None else offset
    return View(like(x, sizes, strides), _by_position(x, sizes, strides, start), start)


def _within(x: TensorType, sizes: Sequence[Size], strides: Sequence[Size], start: Size) -> bool:
    """Whether it is known that only elements of x itself are seen, not others of its storage."""
    last = start
    for size, stride in zip(sizes, strides, strict=True):
        last = last + (size - 1) * stride
    return 0 in sizes or known_at_least(x.elements - last, 1)


def _by_position(
    x: TensorType, sizes: Sequence[Size], strides: Sequence[Size], start: Size
) -> Source | None:
    """Indices into a dense tensor that starts where its storage starts, by place in memory."""
    if not is_non_overlapping_and_dense(x.sizes, x.strides) or not _within(
        x, sizes, strides, start
    ):
        return None

    def source(index: Index) -> Index:
        position = start
        for place, stride in zip(index, strides, strict=True):
            position = position + place * stride
        return tuple(
            [
                0 if size == 1 else position // stride % size
                for size, stride in zip(x.sizes, x.strides, strict=True)
            ]
        )

    return source


def _layouts() -> list[torch.Tensor]:
    return [
        make((2, 3, 4)),
        make((2, 3, 4)).transpose(0, 2),
        make((2, 6, 4))[:, ::2],
        make((2, 1, 4)).expand(2, 3, 4),
        make((2, 3, 4), torch.int32).permute(1, 0, 2),
    ]


def _over(*rest: Any, **keywords: Any) -> Samples:
    """The op with these further arguments on 3-d tensors in several layouts."""
    return lambda: iter([((tensor, *rest), dict(keywords)) for tensor in _layouts()])


def _joined(*parts: Samples) -> Samples:
    def made() -> Iterator[Sample]:
        for part in parts:
            yield from part()

    return made


_VIEWS = listed(
    lambda: ((make((2, 3, 4)), [6, 4]), {}),
    lambda: ((make((2, 3, 4)), [-1]), {}),
    lambda: ((make((2, 3, 4)), [2, 1, 12]), {}),
    lambda: ((make((6, 4)).t(), [4, 2, 3]), {}),
    lambda: ((make((6, 4)).t(), [2, 2, 6, 1]), {}),
    lambda: ((make((2, 3, 8))[..., ::2], [6, 2, 2]), {}),
    lambda: ((make((4, 1)).expand(4, 3), [2, 2, 3]), {}),
    lambda: ((make((2, 0, 3)), [0, 5]), {}),
    lambda: ((make(()), [1, 1]), {}),
    lambda: ((make((1, 1)), []), {}),
    lambda: ((make((1, 4, 1)), [4]), {}),
    lambda: ((make((4, 6)), [3, 8]), {}),
)

view_op("view.default", _view, _VIEWS, any_layout=False, inverse="reshape")
# Its argument is an unnamed temporary, so torch does not count the result as a view.
view_op("_unsafe_view.default", _view, _VIEWS, view=False, any_layout=False)
view_op(
    "_reshape_alias.default",
    _reshape_alias,
    listed(lambda: ((make((4, 6)), [2, 12], [12, 1]), {})),
    any_layout=False,
    inverse="reshape",
)
view_op("permute.default", _permute, _over([2, 0, 1]), inverse="permute")
view_op("transpose.int", _transpose, _over(0, -1), inverse="itself")
view_op(
    "t.default",
    _t,
    listed(*(lambda sizes=sizes: ((make(sizes),), {}) for sizes in ((2, 3), (4,), ()))),
    inverse="itself",
)
view_op(
    "expand.default",
    _expand,
    listed(
        lambda: ((make((3, 1)), [3, 4]), {}),
        lambda: ((make((3, 1)), [2, -1, 4]), {}),
        lambda: ((make((3, 1)), [1, 3, 1]), {}),
        lambda: ((make((3, 4)).t(), [1, 1, 4, 3]), {}),
        lambda: ((make(()), [2, 3]), {}),
        lambda: ((make(()), []), {}),
        lambda: ((make((1, 3)), [0, 3]), {}),
    ),
    inverse="expand",
)
view_op("unsqueeze.default", _unsqueeze, _joined(_over(0), _over(-1), _over(1)), inverse="reshape")
view_op(
    "squeeze.default",
    _squeeze,
    listed(lambda: ((make((1, 3, 1)),), {}), lambda: ((make(()),), {})),
    inverse="reshape",
)
view_op(
    "squeeze.dim",
    _squeeze,
    _joined(_over(0), listed(lambda: ((make((1, 3, 1)), -1), {}))),
    inverse="reshape",
)
view_op(
    "squeeze.dims",
    _squeeze,
    listed(lambda: ((make((1, 3, 1, 1)), [0, 1, -1]), {})),
    inverse="reshape",
)
view_op(
    "slice.Tensor",
    _slice,
    _joined(_over(1, 1, 3), _over(-1, -3, -1), _over(2, 0, 9223372036854775807, 2), _over(0, 5, 1)),
    reads=(),
    scatter="aten.slice_scatter.default",
)
view_op(
    "select.int",
    _select,
    _joined(_over(1, -1), _over(0, 0)),
    reads=(),
    scatter="aten.select_scatter.default",
)
view_op("unbind.int", _unbind, _joined(_over(), _over(-1)), reads=(), piece="aten.select.int")
view_op("split.Tensor", _split, _joined(_over(2, 1), _over(1)), reads=(), piece="aten.slice.Tensor")
view_op(
    "split_with_sizes.default",
    _split_with_sizes,
    answered("split_with_sizes.default", _over([1, 2], 1)),
    reads=(),
    piece="aten.slice.Tensor",
)
view_op(
    "diagonal.default",
    _diagonal,
    _joined(_over(), _over(1, 2, 0), _over(-1, 0, 1), _over(9)),
    reads=(),
    scatter="aten.diagonal_scatter.default",
)
view_op(
    "unfold.default",
    _unfold,
    answered("unfold.default", _joined(_over(1, 2, 1), _over(2, 3, 2))),
    reads=(),
)
for _name in ("alias", "detach", "lift_fresh"):
    view_op(f"{_name}.default", _same, _over(), alias=True)
op("lift.default", None, alias=True)
op("lift_fresh_copy.default", None, moves=True, no_op=True)
view_op(
    "as_strided.default",
    _as_strided,
    listed(
        lambda: ((make((4, 6)), [3, 2], [1, 6], 2), {}),
        lambda: ((make((6, 4)).t(), [2, 2, 2], [3, 0, 1]), {}),
    ),
    reads=(),
    any_layout=False,
    no_op=False,
    absolute_offset=True,
    inverse="strides",
)


# ------------------------------------------------------------------------ other ways of seeing bits


def _view_dtype(x: TensorType, dtype: torch.dtype) -> Any:
    old, new = x.dtype.itemsize, dtype.itemsize
    if old == new:
        return TensorType(dtype, x.sizes, x.strides, x.device)
    if not x.rank or differ(x.strides[-1], 1):
        return NotImplemented  # eager refuses, in its own words
    sizes, strides = list(x.sizes), list(x.strides)
    if old > new:
        ratio = old // new
        sizes[-1] = sizes[-1] * ratio
        strides = [*(stride * ratio for stride in strides[:-1]), 1]
    else:
        ratio = new // old
        if any(isinstance(one, int) and one % ratio for one in (sizes[-1], *strides[:-1])):
            return NotImplemented
        sizes[-1] = sizes[-1] // ratio
        strides = [*(stride // ratio for stride in strides[:-1]), 1]
    return TensorType(dtype, tuple(sizes), tuple(strides), x.device)


def _view_as_real(x: TensorType) -> Any:
    if x.dtype not in TO_REAL:
        return NotImplemented
    strides = (*(stride * 2 for stride in x.strides), 1)
    return TensorType(TO_REAL[x.dtype], (*x.sizes, 2), strides, x.device)


def _view_as_complex(x: TensorType) -> Any:
    complexes = {real: dtype for dtype, real in TO_REAL.items()}
    if x.dtype not in complexes:
        return NotImplemented
    strides = tuple(stride // 2 for stride in x.strides[:-1])
    return TensorType(complexes[x.dtype], x.sizes[:-1], strides, x.device)


op(
    "view.dtype",
    _view_dtype,
    None,
    listed(
        lambda: ((make((2, 4)), torch.int32), {}),
        lambda: ((make((2, 4)), torch.int16), {}),
        lambda: ((make((2, 4)), torch.float64), {}),
    ),
    view=True,
    inverse="dtype",
)
op(
    "view_as_real.default",
    _view_as_real,
    None,
    listed(lambda: ((make((2, 3), torch.complex64).t(),), {})),
    view=True,
    inverse="aten.view_as_complex.default",
)
op(
    "view_as_complex.default",
    _view_as_complex,
    None,
    listed(lambda: ((make((3, 2)),), {})),
    view=True,
    inverse="aten.view_as_real.default",
)
op("_conj.default", None, view=True, marks=True, inverse="aten._conj_physical.default")
op("_neg_view.default", None, view=True, marks=True, inverse="aten.neg.default")
