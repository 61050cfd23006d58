"""Batch and group normalisation, forward and backward.

Enters: nothing. Leaves: records in the registry. Invariant: `native_batch_norm` in training writes
its running statistics although its schema is silent about it (`mutates`); its lowering exists only
where nothing is written, the functional sibling answers the new statistics as results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from windfall.ir.dtype import TensorType
from windfall.ir.loop import Builder, Index, Lazy
from windfall.ir.symint import Size
from windfall.ops.folding import (
    At,
    can_lower,
    count,
    fold,
    fresh,
    number,
    op,
    reading,
    sharing,
    stored,
    type_of,
)
from windfall.ops.layout import suggested_strides
from windfall.ops.moments import moments
from windfall.ops.promotion import compute_dtype
from windfall.ops.registry import Updates
from windfall.ops.samples import Sample, make
from windfall.ops.term import Term

Optional = TensorType | None
FUNCTIONAL = "aten._native_batch_norm_legit_functional.default"

# -------------------------------------------------------------------------------------------- batch


def _like(x: TensorType) -> TensorType:
    return TensorType(x.dtype, x.sizes, suggested_strides(x, x.sizes))


def _statistics(x: TensorType, parameters: Sequence[Optional], training: bool) -> TensorType:
    """Half precision beside float32 parameters keeps its statistics in float32."""
    dtype = next((each.dtype for each in parameters if each is not None), x.dtype)
    return fresh(dtype, (x.sizes[1],) if training else (0,))


def _shape(
    x: TensorType,
    weight: Optional,
    bias: Optional,
    running_mean: Optional,
    running_var: Optional,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[TensorType, ...]:
    statistics = _statistics(x, (weight, bias, running_mean), training)
    return _like(x), statistics, statistics


def _functional_shape(
    x: TensorType,
    weight: Optional,
    bias: Optional,
    running_mean: TensorType,
    running_var: TensorType,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[TensorType, ...]:
    three = _shape(x, weight, bias, running_mean, running_var, training, momentum, eps)
    return (
        *three,
        fresh(running_mean.dtype, running_mean.sizes),
        fresh(running_var.dtype, running_var.sizes),
    )


def _channel(builder: Builder, value: Lazy | None, dtype: torch.dtype) -> At | None:
    """One number for each channel, read with an index of the whole."""
    if value is None:
        return None
    return lambda index: Term(builder, value.at((index[1],))).to(dtype)


def _others(rank: int) -> tuple[int, ...]:
    """All dimensions but that of the channels."""
    return tuple(dim for dim in range(rank) if dim != 1)


def _whole(rank: int) -> Callable[[Index], Index]:
    """An index by channel as one of the whole."""
    return lambda index: (0, index[0], *(0,) * (rank - 2))


def _normalised(x: At, mean: At, scale: At, weight: At | None, bias: At | None) -> At:
    def at(index: Index) -> Term:
        value = (x(index) - mean(index)) * scale(index)
        value = value if weight is None else value * weight(index)
        return value if bias is None else value + bias(index)

    return at


def _empty(builder: Builder, type: TensorType) -> Lazy:
    return builder.tensor(type, lambda index: builder.constant(0, type.dtype))


def _line(
    builder: Builder,
    x: TensorType,
    weight: Lazy | None,
    bias: Lazy | None,
    mean: Lazy,
    variance: Lazy,
    eps: float,
) -> tuple[At, At]:
    """With statistics that are given, the normalised is a line in x, for each channel one. Eager
    computes factor and summand first, too."""
    dtype = compute_dtype(x.dtype)
    channels = fresh(dtype, (x.sizes[1],))
    middle, spread = reading(builder, mean, dtype), reading(builder, variance, dtype)

    def factor(index: Index) -> Term:
        value = (spread(index) + eps).rsqrt()
        return value if weight is None else value * reading(builder, weight, dtype)(index)

    factors = _by_channel(builder, x, stored(builder, channels, factor))

    def summand(index: Index) -> Term:
        value = middle(index) * Term(builder, factors.at(index))
        return -value if bias is None else reading(builder, bias, dtype)(index) - value

    summands = _by_channel(builder, x, stored(builder, channels, summand))
    return (
        lambda index: Term(builder, factors.at((index[1],))),
        lambda index: Term(builder, summands.at((index[1],))),
    )


def _by_channel(builder: Builder, x: TensorType, value: Lazy) -> Lazy:
    """Numbers by channel, which are read for each element of `x`: where channels are neighbours in
    memory, a vector of elements needs a vector of them, better stored than computed again."""
    return builder.materialise(value) if x.strides[1] == 1 != x.sizes[1] else value


def _forward(
    builder: Builder,
    x: Lazy,
    weight: Lazy | None,
    bias: Lazy | None,
    running_mean: Lazy | None,
    running_var: Lazy | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """The three results, then the new running statistics (or None)."""
    type, rank = x.type, x.type.rank
    dtype = compute_dtype(type.dtype)
    read, whole = reading(builder, x, dtype), _whole(rank)
    gain, shift = _channel(builder, weight, dtype), _channel(builder, bias, dtype)
    statistics = _statistics(type, type_of((weight, bias, running_mean)), training)
    if not training:
        assert running_mean is not None and running_var is not None
        factor, summand = _line(builder, type, weight, bias, running_mean, running_var, eps)
        out = stored(
            builder, _like(type), lambda index: read(index) * factor(index) + summand(index)
        )
        nothing = _empty(builder, statistics)
        return out, nothing, nothing, running_mean, running_var
    dims = _others(rank)
    mean, squares = moments(builder, read, type.sizes, dims, dtype)
    size = number(builder, count(type.sizes, dims), dtype)
    scale = sharing(
        builder, dtype, type.sizes, dims, lambda index: (squares(index) / size + eps).rsqrt()
    )
    out = stored(builder, _like(type), _normalised(read, mean, scale, gain, shift))
    means = stored(builder, statistics, lambda index: mean(whole(index)))
    scales = stored(builder, statistics, lambda index: scale(whole(index)))

    def moved(running: Lazy | None, batch: At) -> Lazy | None:
        if running is None:
            return None
        old = reading(builder, running, dtype)
        return stored(
            builder,
            fresh(running.type.dtype, running.type.sizes),
            lambda index: old(index) * (1 - momentum) + batch(whole(index)) * momentum,
        )

    new_mean = moved(running_mean, mean)
    new_var = moved(running_var, lambda index: squares(index) / (size - 1))
    return out, means, scales, new_mean, new_var


def _lower(
    builder: Builder,
    x: Lazy,
    weight: Lazy | None,
    bias: Lazy | None,
    running_mean: Lazy | None,
    running_var: Lazy | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    writes = training and (running_mean is not None or running_var is not None)
    if writes or not can_lower(x, weight, bias):
        return NotImplemented
    return _forward(builder, x, weight, bias, running_mean, running_var, training, momentum, eps)[
        :3
    ]


def _lower_functional(builder: Builder, x: Lazy, *rest: Any) -> Any:
    if not can_lower(x, *rest):
        return NotImplemented
    return _forward(builder, x, *rest)


def _no_stats_shape(
    x: TensorType, weight: Optional, bias: Optional, training: bool, momentum: float, eps: float
) -> tuple[TensorType, ...]:
    return _shape(x, weight, bias, None, None, True, momentum, eps)


def _lower_no_stats(
    builder: Builder, x: Lazy, weight: Any, bias: Any, training: bool, momentum: float, eps: float
) -> Any:
    return _lower(builder, x, weight, bias, None, None, True, momentum, eps)


def _backward_shape(
    grad: TensorType,
    x: TensorType,
    weight: Optional,
    running_mean: Optional,
    running_var: Optional,
    mean: Optional,
    scale: Optional,
    training: bool,
    eps: float,
    mask: Sequence[bool],
) -> tuple[TensorType | None, ...]:
    return _gradients(x, weight, x.sizes[1], mask)


def _gradients(
    x: TensorType, weight: Optional, channels: Size, mask: Sequence[bool]
) -> tuple[TensorType | None, ...]:
    """Of the input, the weight and the bias, as far as they are wanted."""
    parameter = fresh(x.dtype if weight is None else weight.dtype, (channels,))
    types = (_like(x), parameter, parameter)
    return tuple(type if wanted else None for type, wanted in zip(types, mask, strict=True))


def _backward(
    builder: Builder,
    grad: Lazy,
    x: Lazy,
    weight: Lazy | None,
    running_mean: Lazy | None,
    running_var: Lazy | None,
    mean: Lazy | None,
    scale: Lazy | None,
    training: bool,
    eps: float,
    mask: Sequence[bool],
) -> Any:
    if not can_lower(grad, x, weight, running_mean, mean):
        return NotImplemented
    type, rank = x.type, x.type.rank
    dims, sizes, dtype = _others(rank), type.sizes, compute_dtype(type.dtype)
    slope, value = reading(builder, grad, dtype), reading(builder, x, dtype)
    gain = _channel(builder, weight, dtype)
    if training:
        middle, rate = _channel(builder, mean, dtype), _channel(builder, scale, dtype)
    else:
        middle, variance = (_channel(builder, each, dtype) for each in (running_mean, running_var))
        assert variance is not None
        rate = sharing(builder, dtype, sizes, dims, lambda index: (variance(index) + eps).rsqrt())
    assert middle is not None and rate is not None

    def normal(index: Index) -> Term:
        return (value(index) - middle(index)) * rate(index)

    plain = sharing(builder, dtype, sizes, dims, fold(builder, "sum", sizes, dims, slope))
    along = sharing(
        builder,
        dtype,
        sizes,
        dims,
        fold(builder, "sum", sizes, dims, lambda index: slope(index) * normal(index)),
    )
    size = number(builder, count(sizes, dims), dtype)

    def at(index: Index) -> Term:
        factor = rate(index) if gain is None else rate(index) * gain(index)
        if not training:
            return slope(index) * factor
        pulled = (plain(index) + normal(index) * along(index)) / size
        return (slope(index) - pulled) * factor

    types = _backward_shape(
        grad.type, type, type_of(weight), None, None, None, None, training, eps, mask
    )
    whole = _whole(rank)
    bodies = (at, lambda index: along(whole(index)), lambda index: plain(whole(index)))
    return tuple(
        None if each is None else stored(builder, each, body)
        for each, body in zip(types, bodies, strict=True)
    )


def _inputs() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    for x in (
        make((2, 3, 4, 5)),
        make((2, 3, 4, 5)).contiguous(memory_format=torch.channels_last),
        make((4, 3)),
        make((3, 4)).t(),
        make((4, 3, 5)),
        make((2, 3, 4, 5), torch.bfloat16),
        make((2, 3, 4, 5), torch.float64),
    ):
        yield x, make((3,), torch.float64 if x.dtype is torch.float64 else torch.float32, seed=3)


def _samples(trainings: Sequence[bool] = (True, False)) -> Callable[[], Iterator[Sample]]:
    def made() -> Iterator[Sample]:
        for x, weight in _inputs():
            for training in trainings:
                running = weight + 0.5, weight.abs() + 1
                yield (x, weight, weight + 1, *running, training, 0.1, 1e-5), {}
                yield (x, None, None, *running, training, 0.1, 1e-5), {}

    return made


def _backward_samples() -> Iterator[Sample]:
    for (x, weight, _, mean, var, training, _, eps), _ in _samples()():
        if weight is None and x.dtype is torch.bfloat16:
            continue
        batch_mean, scale = mean * 0.3, var.rsqrt()
        grad = make(x.shape, x.dtype, seed=6)
        yield (grad, x, weight, mean, var, batch_mean, scale, training, eps, [True] * 3), {}
    yield (grad, x, weight, mean, var, batch_mean, scale, True, eps, [True, False, False]), {}


op(
    "native_batch_norm.default",
    _shape,
    _lower,
    _samples(),
    reads=(0,),
    mutates=(3, 4),
    functional=FUNCTIONAL,
)
op(
    "_native_batch_norm_legit.default",
    _shape,
    _lower,
    _samples(),
    reads=(0,),
    functional=FUNCTIONAL,
)
op(
    "_native_batch_norm_legit_functional.default",
    _functional_shape,
    _lower_functional,
    _samples(),
    reads=(),
    updates=Updates(("running_mean", "running_var"), when="training"),
)
op(
    "_native_batch_norm_legit.no_stats",
    _no_stats_shape,
    _lower_no_stats,
    lambda: (((*arguments[:3], True, *arguments[6:]), {}) for arguments, _ in _samples((True,))()),
    reads=(0,),
)
op(
    "native_batch_norm_backward.default",
    _backward_shape,
    _backward,
    _backward_samples,
    reads=(0,),
)

# -------------------------------------------------------------------------------------------- group


def _group_shape(
    x: TensorType,
    weight: Optional,
    bias: Optional,
    batch: Size,
    channels: Size,
    inner: Size,
    groups: int,
    eps: float,
) -> tuple[TensorType, ...]:
    dtype = x.dtype
    if weight is not None and weight.dtype is not x.dtype:
        dtype = weight.dtype
    statistics = fresh(dtype, (batch, groups))
    return _like(x), statistics, statistics


def _grouped(x: Lazy, groups: int) -> tuple[tuple[Size, ...], Callable[[Index], Index]]:
    """The sizes (batch, group, channel in group, ...) and how to get back to an index of x."""
    batch, channels, *rest = x.type.sizes
    each = channels // groups
    return (batch, groups, each, *rest), lambda index: (
        index[0],
        index[1] * each + index[2],
        *index[3:],
    )


def _group_norm(
    builder: Builder,
    x: Lazy,
    weight: Lazy | None,
    bias: Lazy | None,
    batch: Size,
    channels: Size,
    inner: Size,
    groups: int,
    eps: float,
) -> Any:
    if not can_lower(x, weight, bias):
        return NotImplemented
    result, statistics, _ = _group_shape(
        x.type, type_of(weight), type_of(bias), batch, channels, inner, groups, eps
    )
    sizes, back = _grouped(x, groups)
    dims = tuple(range(2, len(sizes)))
    dtype = compute_dtype(x.type.dtype)
    plain = reading(builder, x, dtype)
    mean, squares = moments(builder, lambda index: plain(back(index)), sizes, dims, dtype)
    size = number(builder, count(sizes, dims), dtype)
    scale = sharing(
        builder, dtype, sizes, dims, lambda index: (squares(index) / size + eps).rsqrt()
    )
    gain, shift = _channel(builder, weight, dtype), _channel(builder, bias, dtype)
    each, zeros = sizes[2], (0,) * (len(sizes) - 2)

    def row(at: At) -> At:
        return lambda index: at((index[0], index[1] // each, *zeros))

    out = _normalised(plain, row(mean), row(scale), gain, shift)
    return (
        stored(builder, result, out),
        stored(builder, statistics, lambda index: mean((*index, *zeros))),
        stored(builder, statistics, lambda index: scale((*index, *zeros))),
    )


def _group_backward_shape(
    grad: TensorType,
    x: TensorType,
    mean: TensorType,
    scale: TensorType,
    weight: Optional,
    batch: Size,
    channels: Size,
    inner: Size,
    groups: int,
    mask: Sequence[bool],
) -> tuple[TensorType | None, ...]:
    return _gradients(x, weight, channels, mask)


def _group_backward(
    builder: Builder,
    grad: Lazy,
    x: Lazy,
    mean: Lazy,
    scale: Lazy,
    weight: Lazy | None,
    batch: Size,
    channels: Size,
    inner: Size,
    groups: int,
    mask: Sequence[bool],
) -> Any:
    if not can_lower(grad, x, mean, weight):
        return NotImplemented
    sizes, back = _grouped(x, groups)
    dims = tuple(range(2, len(sizes)))
    dtype = compute_dtype(x.type.dtype)
    slope, value = reading(builder, grad, dtype), reading(builder, x, dtype)
    middle, rate = reading(builder, mean, dtype), reading(builder, scale, dtype)
    gain = _channel(builder, weight, dtype)
    each = sizes[2]

    def group_of(index: Index) -> Index:
        return (index[0], index[1] // each)

    def normal(index: Index) -> Term:
        group = group_of(index)
        return (value(index) - middle(group)) * rate(group)

    def weighted(index: Index) -> Term:
        return slope(index) if gain is None else slope(index) * gain(index)

    def total(body: At) -> At:
        folded = fold(builder, "sum", sizes, dims, lambda index: body(back(index)))
        shared = sharing(builder, dtype, sizes, dims, folded)
        zeros = (0,) * len(dims)
        return lambda index: shared((*group_of(index), *zeros))

    plain, along = total(weighted), total(lambda index: weighted(index) * normal(index))
    size = number(builder, count(sizes, dims), dtype)

    def at(index: Index) -> Term:
        pulled = (plain(index) + normal(index) * along(index)) / size
        return (weighted(index) - pulled) * rate(group_of(index))

    rank, outer = x.type.rank, _others(x.type.rank)
    whole = _whole(rank)
    for_weight = fold(
        builder, "sum", x.type.sizes, outer, lambda index: slope(index) * normal(index)
    )
    for_bias = fold(builder, "sum", x.type.sizes, outer, slope)
    types = _group_backward_shape(
        grad.type,
        x.type,
        mean.type,
        scale.type,
        type_of(weight),
        batch,
        channels,
        inner,
        groups,
        mask,
    )
    bodies = (at, lambda index: for_weight(whole(index)), lambda index: for_bias(whole(index)))
    return tuple(
        None if type is None else stored(builder, type, body)
        for type, body in zip(types, bodies, strict=True)
    )


def _group_samples() -> Iterator[Sample]:
    weight = make((6,), seed=3)
    for x in (
        make((2, 6, 4, 5)),
        make((2, 6, 4, 5)).contiguous(memory_format=torch.channels_last),
        make((2, 6, 5)),
        make((2, 6)),
    ):
        inner = x.numel() // 12
        yield (x, weight, weight + 1, 2, 6, inner, 3, 1e-5), {}
        yield (x, None, None, 2, 6, inner, 2, 1e-5), {}
    yield (make((2, 6, 5), torch.bfloat16), weight, weight, 2, 6, 5, 3, 1e-5), {}
    yield (make((2, 6, 5), torch.float64), weight.double(), weight.double(), 2, 6, 5, 3, 1e-5), {}


def _group_backward_samples() -> Iterator[Sample]:
    for (x, weight, bias, batch, channels, inner, groups, eps), _ in _group_samples():
        forward = torch.native_group_norm(x, weight, bias, batch, channels, inner, groups, eps)
        grad = make(x.shape, x.dtype, seed=8)
        if x.is_contiguous(memory_format=torch.channels_last) if x.dim() == 4 else False:
            grad = grad.contiguous(memory_format=torch.channels_last)
        given = [True, weight is not None, weight is not None]
        rest = (batch, channels, inner, groups, given)
        yield (grad, x, forward[1], forward[2], weight, *rest), {}


op("native_group_norm.default", _group_shape, _group_norm, _group_samples, reads=(0,))
op(
    "native_group_norm_backward.default",
    _group_backward_shape,
    _group_backward,
    _group_backward_samples,
    reads=(0,),
)
