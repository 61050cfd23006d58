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
from windfall.ops.arguments import Arguments
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
)
from windfall.ops.layout import suggested_strides
from windfall.ops.moments import moments
from windfall.ops.promotion import compute_dtype
from windfall.ops.samples import Sample, make
from windfall.ops.term import Term

FUNCTIONAL = "aten._native_batch_norm_legit_functional.default"

# -------------------------------------------------------------------------------------------- batch


def _like(x: TensorType) -> TensorType:
    return TensorType(x.dtype, x.sizes, suggested_strides(x, x.sizes))


def _statistics(given: Arguments) -> TensorType:
    """Half precision beside float32 parameters keeps its statistics in float32."""
    parameters = (given.weight, given.bias, given.running_mean)
    dtype = next((each.dtype for each in parameters if each is not None), given.input.dtype)
    return fresh(dtype, (given.input.sizes[1],) if given.training else (0,))


def _shape(given: Arguments) -> tuple[TensorType, ...]:
    statistics = _statistics(given)
    return _like(given.input), statistics, statistics


def _functional_shape(given: Arguments) -> tuple[TensorType, ...]:
    running = (given.running_mean, given.running_var)
    return (*_shape(given), *(fresh(each.dtype, each.sizes) for each in running))


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


def _line(builder: Builder, given: Arguments) -> tuple[At, At]:
    """With statistics that are given, the normalised is a line in x, for each channel one. Eager
    computes factor and summand first, too."""
    x, eps = given.input.type, float(given.eps)
    dtype = compute_dtype(x.dtype)
    channels = fresh(dtype, (x.sizes[1],))
    middle = reading(builder, given.running_mean, dtype)
    spread = reading(builder, given.running_var, dtype)
    gain = None if given.weight is None else reading(builder, given.weight, dtype)
    shift = None if given.bias is None else reading(builder, given.bias, dtype)

    def factor(index: Index) -> Term:
        value = (spread(index) + eps).rsqrt()
        return value if gain is None else value * gain(index)

    factors = _by_channel(builder, x, stored(builder, channels, factor))

    def summand(index: Index) -> Term:
        value = middle(index) * Term(builder, factors.at(index))
        return -value if shift is None else shift(index) - value

    summands = _by_channel(builder, x, stored(builder, channels, summand))
    return (
        lambda index: Term(builder, factors.at((index[1],))),
        lambda index: Term(builder, summands.at((index[1],))),
    )


def _by_channel(builder: Builder, x: TensorType, value: Lazy) -> Lazy:
    """Numbers by channel, which are read for each element of `x`: where channels are neighbours in
    memory, a vector of elements needs a vector of them, better stored than computed again."""
    return builder.materialise(value) if x.strides[1] == 1 != x.sizes[1] else value


def _forward(builder: Builder, given: Arguments) -> Any:
    """The three results, then the new running statistics (or None)."""
    x, momentum, eps = given.input, given.momentum, given.eps
    type, rank = x.type, x.type.rank
    dtype = compute_dtype(type.dtype)
    read, whole = reading(builder, x, dtype), _whole(rank)
    gain, shift = (_channel(builder, each, dtype) for each in (given.weight, given.bias))
    statistics = _statistics(given.types())
    if not given.training:
        factor, summand = _line(builder, given)
        out = stored(
            builder, _like(type), lambda index: read(index) * factor(index) + summand(index)
        )
        nothing = _empty(builder, statistics)
        return out, nothing, nothing, given.running_mean, given.running_var
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

    new_mean = moved(given.running_mean, mean)
    new_var = moved(given.running_var, lambda index: squares(index) / (size - 1))
    return out, means, scales, new_mean, new_var


def _lower(builder: Builder, given: Arguments) -> Any:
    running = (given.running_mean, given.running_var)
    writes = given.training and running != (None, None)
    if writes or not can_lower(given.input, given.weight, given.bias):
        return NotImplemented
    return _forward(builder, given)[:3]


def _lower_functional(builder: Builder, given: Arguments) -> Any:
    if not can_lower(given.input, given.weight, given.bias, given.running_mean, given.running_var):
        return NotImplemented
    return _forward(builder, given)


def _without_running(given: Arguments) -> Arguments:
    return given.but(running_mean=None, running_var=None, training=True)


def _backward_shape(given: Arguments) -> tuple[TensorType | None, ...]:
    return _gradients(given, given.input.sizes[1])


def _gradients(given: Arguments, channels: Size) -> tuple[TensorType | None, ...]:
    """Of the input, the weight and the bias, as far as they are wanted."""
    x, weight = given.input, given.weight
    parameter = fresh(x.dtype if weight is None else weight.dtype, (channels,))
    types = (_like(x), parameter, parameter)
    wanted = zip(types, given.output_mask, strict=True)
    return tuple(type if asked else None for type, asked in wanted)


def _backward(builder: Builder, given: Arguments) -> Any:
    grad, x, weight, training = given.grad_out, given.input, given.weight, given.train
    if not can_lower(grad, x, weight, given.running_mean, given.save_mean):
        return NotImplemented
    type, rank = x.type, x.type.rank
    dims, sizes, dtype = _others(rank), type.sizes, compute_dtype(type.dtype)
    slope, value = reading(builder, grad, dtype), reading(builder, x, dtype)
    gain = _channel(builder, weight, dtype)
    kept = (given.save_mean, given.save_invstd)
    if not training:
        kept = (given.running_mean, given.running_var)
    middle, rate = (_channel(builder, each, dtype) for each in kept)
    if not training:
        variance = rate
        assert variance is not None
        rate = sharing(
            builder, dtype, sizes, dims, lambda index: (variance(index) + given.eps).rsqrt()
        )
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

    types = _backward_shape(given.types())
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
    named=True,
    reads=(0,),
    mutates=(3, 4),
    functional=FUNCTIONAL,
)
op(
    "_native_batch_norm_legit.default",
    _shape,
    _lower,
    _samples(),
    named=True,
    reads=(0,),
    functional=FUNCTIONAL,
)
op(
    "_native_batch_norm_legit_functional.default",
    _functional_shape,
    _lower_functional,
    _samples(),
    named=True,
    reads=(),
)
op(
    "_native_batch_norm_legit.no_stats",
    lambda given: _shape(_without_running(given)),
    lambda builder, given: _lower(builder, _without_running(given)),
    lambda: (((*arguments[:3], True, *arguments[6:]), {}) for arguments, _ in _samples((True,))()),
    named=True,
    reads=(0,),
)
op(
    "native_batch_norm_backward.default",
    _backward_shape,
    _backward,
    _backward_samples,
    named=True,
    reads=(0,),
)

# -------------------------------------------------------------------------------------------- group


def _group_shape(given: Arguments) -> tuple[TensorType, ...]:
    x, weight = given.input, given.weight
    statistics = fresh(x.dtype if weight is None else weight.dtype, (given.N, given.group))
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


def _group_norm(builder: Builder, given: Arguments) -> Any:
    x, weight, bias = given.input, given.weight, given.bias
    if not can_lower(x, weight, bias):
        return NotImplemented
    result, statistics, _ = _group_shape(given.types())
    sizes, back = _grouped(x, given.group)
    dims = tuple(range(2, len(sizes)))
    dtype = compute_dtype(x.type.dtype)
    plain = reading(builder, x, dtype)
    mean, squares = moments(builder, lambda index: plain(back(index)), sizes, dims, dtype)
    size = number(builder, count(sizes, dims), dtype)
    scale = sharing(
        builder, dtype, sizes, dims, lambda index: (squares(index) / size + given.eps).rsqrt()
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


def _group_backward_shape(given: Arguments) -> tuple[TensorType | None, ...]:
    return _gradients(given, given.C)


def _group_backward(builder: Builder, given: Arguments) -> Any:
    grad, x, mean, weight = given.grad_out, given.input, given.mean, given.weight
    if not can_lower(grad, x, mean, weight):
        return NotImplemented
    sizes, back = _grouped(x, given.group)
    dims = tuple(range(2, len(sizes)))
    dtype = compute_dtype(x.type.dtype)
    slope, value = reading(builder, grad, dtype), reading(builder, x, dtype)
    middle, rate = reading(builder, mean, dtype), reading(builder, given.rstd, dtype)
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
    types = _group_backward_shape(given.types())
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


op("native_group_norm.default", _group_shape, _group_norm, _group_samples, named=True, reads=(0,))
op(
    "native_group_norm_backward.default",
    _group_backward_shape,
    _group_backward,
    _group_backward_samples,
    named=True,
    reads=(0,),
)
