"""Ops that are called, not generated: convolution, pooling, attention, resampling.

Enters: nothing. Leaves: records in the registry. Invariant: there are shape rules only;
sizes and strides are those of the CPU kernels: channels-last inputs give channels-last results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from windfall.errors import Unsupported
from windfall.ir.dtype import TensorType
from windfall.ir.symint import Size
from windfall.ops.arguments import Arguments
from windfall.ops.folding import fresh, listed, op
from windfall.ops.layout import (
    channels_last_strides,
    differ,
    is_contiguous,
    looks_channels_last,
    preserved_strides,
    smaller,
    suggested_strides,
)
from windfall.ops.registry import Samples
from windfall.ops.samples import Sample, make
from windfall.ops.windows import Windows, spread

Sizes = Sequence[Size]


# -------------------------------------------------------------------------------------- convolution


def _formatted(dtype: torch.dtype, sizes: Sizes, channels_last: bool) -> TensorType:
    own = tuple(sizes)
    if channels_last and len(own) == 3:
        strides = channels_last_strides((*own[:2], 1, own[2]))
        return TensorType(dtype, own, (*strides[:2], strides[3]))
    if channels_last and len(own) in (4, 5):
        return TensorType(dtype, own, channels_last_strides(own))
    return fresh(dtype, own)


def _either_channels_last(x: TensorType, weight: TensorType) -> bool:
    if x.rank == 3:
        # Torch computes it in four dimensions, the input made row-major before that.
        if not is_contiguous(x.sizes, x.strides):
            x = fresh(x.dtype, x.sizes)
        x, weight = _raised(x), _raised(weight)
    return any(looks_channels_last(each.sizes, each.strides) for each in (x, weight))


def _raised(one: TensorType) -> TensorType:
    """With a dimension of size 1 before the last, as `unsqueeze` makes it."""
    size, stride = one.sizes[2], one.strides[2]
    strides = (*one.strides[:2], size * stride, stride)
    return TensorType(one.dtype, (*one.sizes[:2], 1, size), strides)


def _convolution_sizes(given: Arguments) -> list[Size]:
    x, weight, transposed = given.input.sizes, given.weight.sizes, given.transposed
    count = len(x) - 2
    steps, pads, gaps, extra = (
        spread(each, count)
        for each in (given.stride, given.padding, given.dilation, given.output_padding)
    )
    result: list[Size] = [x[0], weight[1] * given.groups if transposed else weight[0]]
    for place in range(count):
        size, reach = x[place + 2], gaps[place] * (weight[place + 2] - 1)
        if transposed:
            grown = (size - 1) * steps[place] - 2 * pads[place] + reach + extra[place] + 1
            result.append(grown)
        else:
            result.append((size + 2 * pads[place] - reach - 1) // steps[place] + 1)
    return result


def _convolution_shape(given: Arguments) -> Any:
    x, weight = given.input, given.weight
    if x.rank != weight.rank or x.rank < 3:
        return NotImplemented  # a missing batch dimension, or an error that eager words
    channels = weight.sizes[0] if given.transposed else weight.sizes[1] * given.groups
    if differ(x.sizes[1], channels):
        if given.transposed:
            return NotImplemented
        raise RuntimeError(
            f"Given groups={given.groups}, weight of size {list(weight.sizes)}, expected input"
            f"{list(x.sizes)} to have {channels} channels, but got {x.sizes[1]} channels instead"
        )
    sizes = _convolution_sizes(given)
    if any(isinstance(size, int) and size <= 0 for size in sizes):
        return NotImplemented  # eager words the error, or answers something empty
    return _formatted(x.dtype, sizes, _either_channels_last(x, weight))


def _convolution_backward_shape(given: Arguments) -> Any:
    x, weight, mask = given.input, given.weight, given.output_mask
    if x.rank != weight.rank or x.rank < 3 or 0 in x.sizes:
        return NotImplemented
    last = _either_channels_last(x, weight)
    channels = weight.sizes[1] * given.groups if given.transposed else weight.sizes[0]
    return (
        _formatted(x.dtype, x.sizes, last) if mask[0] else None,
        _formatted(weight.dtype, weight.sizes, last) if mask[1] else None,
        fresh(weight.dtype, (channels,)) if mask[2] else None,
    )


def _channels_last(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous(memory_format=torch.channels_last)


def _convolutions() -> Iterator[Sample]:
    two = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    x, weight = make((2, 3, 6, 7)), make((4, 3, 3, 3))
    for one in (x, _channels_last(x), x.permute(0, 1, 3, 2)):
        for other in (weight, _channels_last(weight)):
            yield (one, other, None, *two), {}
    yield (x, weight, make((4,)), [2, 2], [0, 1], [1, 2], False, [0, 0], 1), {}
    yield (make((2, 3, 6)), make((4, 3, 3)), None, [2], [1], [1], False, [0], 1), {}
    yield (make((2, 4, 5, 5)), make((4, 1, 3, 3)), None, *two[:-1], 4), {}
    yield (
        (make((2, 4, 5, 5)), make((4, 3, 3, 3)), None, [2, 2], [1, 1], [1, 1], True, [1, 1], 1),
        {},
    )
    yield (
        (make((2, 1, 5, 5)), make((4, 1, 1, 1)), None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1),
        {},
    )
    yield (make((1, 2, 4, 5, 6)), make((3, 2, 2, 2, 2)), None, [1], [0], [1], False, [0], 1), {}


def _convolution_gradients() -> Iterator[Sample]:
    for (x, weight, bias, *rest), _ in _convolutions():
        forward = torch.ops.aten.convolution(x, weight, bias, *rest)
        transposed, groups = rest[3], rest[5]
        channels = weight.shape[1] * groups if transposed else weight.shape[0]
        for grad in (make(forward.shape), torch.empty_like(forward).fill_(0.5)):
            yield (grad, x, weight, [channels], *rest, [True, True, True]), {}
        yield (grad, x, weight, None, *rest, [True, False, False]), {}


op(
    "convolution.default",
    _convolution_shape,
    None,
    _convolutions,
    named=True,
    from_memory=True,
)
op(
    "convolution_backward.default",
    _convolution_backward_shape,
    None,
    _convolution_gradients,
    named=True,
    from_memory=True,
)

# ------------------------------------------------------------------------------------------ pooling


def row_major(rule: Callable[..., Any]) -> Callable[..., Any]:
    """The same for a kernel whose results are row-major whatever its operands are."""

    def shape(*arguments: Any) -> Any:
        found = rule(*arguments)
        return found if found is NotImplemented else fresh(found.dtype, found.sizes)

    return shape


def _volumes(*rest: Any) -> Any:
    x = make((2, 3, 6, 8, 4))
    last = torch.channels_last_3d
    return listed(lambda: ((x, *rest), {}), lambda: ((x.contiguous(memory_format=last), *rest), {}))


def _like_input(grad: TensorType, x: TensorType, *rest: Any) -> TensorType:
    return TensorType(x.dtype, x.sizes, suggested_strides(x, x.sizes))


def _adaptive_shape(x: TensorType, sizes: Sizes) -> TensorType:
    own = (*x.sizes[: x.rank - len(sizes)], *sizes)
    return TensorType(x.dtype, own, suggested_strides(x, own))


def _resized_shape(x: TensorType, sizes: Sizes, *rest: Any) -> TensorType:
    if 0 in x.sizes[1:] or 0 in sizes:
        raise RuntimeError(
            f"Input and output sizes should be greater than 0, but got input {x.sizes[2:]} "
            f"output {tuple(sizes)}"
        )
    own = (*x.sizes[:2], *sizes)
    return TensorType(x.dtype, own, suggested_strides(x, own))


_image: tuple[Callable[[], torch.Tensor], ...] = (
    lambda: make((2, 3, 6, 7)),
    lambda: _channels_last(make((2, 3, 6, 7))),
)
_pictures: tuple[Callable[[], torch.Tensor], ...] = (*_image, lambda: make((3, 6, 7)))


def _images(*rest: Any) -> Any:
    return listed(*(lambda x=x: ((x(), *rest), {}) for x in _pictures))


def _pool_gradients(name: str, *rest: Any, indices: bool = False) -> Samples:
    def made() -> Iterator[Sample]:
        forward = getattr(torch.ops.aten, name)
        for x in _pictures:
            result = forward(x(), *rest)
            first = result[0] if indices else result
            extra = ([1, 1], False, result[1]) if indices else ()
            yield (make(first.shape), x(), *rest, *extra), {}

    return made


# They are called, and their results lie as their shape rules say for channels-last operands.
_POOLING = {"any_layout": True, "pools": True}
_window = ([3, 3], [2, 2], [1, 1])
op(
    "max_pool2d_with_indices_backward.default",
    _like_input,
    None,
    _pool_gradients("max_pool2d_with_indices", *_window, indices=True),
)
op(
    "avg_pool2d_backward.default",
    _like_input,
    None,
    _pool_gradients("avg_pool2d", *_window, False, True, None),
)
op("_adaptive_avg_pool2d.default", _adaptive_shape, None, _images([2, 3]), **_POOLING)
op(
    "_adaptive_avg_pool2d_backward.default",
    _like_input,
    None,
    lambda: (
        ((arguments[0], arguments[1]), {})
        for arguments, _ in _pool_gradients("_adaptive_avg_pool2d", [2, 3])()
    ),
)
op(
    "upsample_nearest2d.default",
    _resized_shape,
    None,
    listed(*(lambda x=x: ((x(), [9, 8]), {}) for x in _image)),
    **_POOLING,
)
op(
    "upsample_bilinear2d.default",
    _resized_shape,
    None,
    listed(*(lambda x=x: ((x(), [9, 8], False), {}) for x in _image)),
    **_POOLING,
)
op(
    "upsample_bicubic2d.default",
    _resized_shape,
    None,
    listed(*(lambda x=x: ((x(), [9, 8], False), {}) for x in _image)),
)


def _resized_backward_shape(grad: TensorType, out: Sizes, sizes: Sizes, *rest: Any) -> TensorType:
    own = tuple(sizes)
    return TensorType(grad.dtype, own, suggested_strides(grad, own))


for _name, _extra in (("nearest2d", []), ("bilinear2d", [False])):
    op(
        f"upsample_{_name}_backward.default",
        _resized_backward_shape,
        None,
        listed(
            *(lambda x=x, extra=_extra: ((x(), [6, 7], [2, 3, 4, 5], *extra), {}) for x in _image)
        ),
    )
op(
    "upsample_bicubic2d_backward.default",
    lambda grad, out, sizes, *rest: fresh(grad.dtype, sizes),
    None,
    listed(*(lambda x=x: ((x(), [6, 7], [2, 3, 4, 5], False), {}) for x in _image)),
)


def _adaptive_max_shape(x: TensorType, sizes: Sizes) -> tuple[TensorType, TensorType]:
    result = _adaptive_shape(x, sizes)
    return result, TensorType(torch.int64, result.sizes, result.strides)


op("adaptive_max_pool2d.default", _adaptive_max_shape, None, _images([2, 3]), **_POOLING)
op("_adaptive_avg_pool3d.default", row_major(_adaptive_shape), None, _volumes([2, 3, 2]))
op("adaptive_max_pool2d_backward.default", _like_input, None)
for _name in ("max_unpool2d.default", "max_unpool3d.default"):
    op(_name, None, refuses=True)
op("max_pool3d_with_indices_backward.default", _like_input, None)
op(
    "avg_pool3d_backward.default",
    row_major(_like_input),
    None,
    lambda: (
        (
            (make((2, 3, 3, 4, 2)), *arguments, [2, 2, 2], [2, 2, 2], [0, 0, 0], False, True, None),
            {},
        )
        for arguments, _ in _volumes()()
    ),
)


def _require_image(x: TensorType, dims: int) -> None:
    """Eager's error where one image has no elements (there may be no images)."""
    if x.rank not in (dims + 1, dims + 2) or 0 in x.sizes[x.rank - dims - 1 :]:
        raise RuntimeError(
            f"Expected {dims + 1}D or {dims + 2}D (batch mode) tensor with possibly 0 batch size "
            f"and other non-zero dimensions for input, but got: {list(x.sizes)}"
        )


def _padded_shape(x: TensorType, padding: Sizes) -> TensorType:
    _require_image(x, len(padding) // 2)
    sizes = list(x.sizes)
    for number in range(len(padding) // 2):
        dim = x.rank - 1 - number
        sizes[dim] = sizes[dim] + padding[2 * number] + padding[2 * number + 1]
    own = tuple(sizes)
    return TensorType(x.dtype, own, suggested_strides(x, own))


def _mirrored_shape(x: TensorType, padding: Sizes) -> Any:
    for number, amount in enumerate(padding):
        if x.rank <= number // 2 or not smaller(amount, x.sizes[x.rank - 1 - number // 2]):
            return NotImplemented  # eager words the error
    return _padded_shape(x, padding)


for _name, _rule in (("reflection_pad", _mirrored_shape), ("replication_pad", _padded_shape)):
    op(f"{_name}1d.default", _rule, None, listed(lambda: ((make((2, 3, 5)), [1, 2]), {})))
    op(f"{_name}2d.default", _rule, None, _images([1, 2, 0, 1]))


def _columns_shape(
    x: TensorType, kernel: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes
) -> TensorType:
    _require_image(x, 2)
    *outer, channels, height, width = x.sizes
    windows = Windows.of(2, kernel, stride, padding, dilation)
    rows, columns = windows.fitting(0, height), windows.fitting(1, width)
    if smaller(rows, 1) or smaller(columns, 1):
        steps = [", ".join(map(str, each)) for each in (kernel, dilation, padding)]
        raise RuntimeError(
            f"Given input with spatial size ({height}, {width}), kernel_size=({steps[0]}), "
            f"dilation=({steps[1]}), padding=({steps[2]}), calculated shape of the array of "
            f"sliding blocks as ({rows}, {columns}), but its components must be at least one."
        )
    return fresh(x.dtype, (*outer, channels * kernel[0] * kernel[1], rows * columns))


op("im2col.default", _columns_shape, None, _images([2, 3], [1, 2], [1, 0], [1, 1]))


def _shuffle_shape(x: TensorType, factor: int) -> Any:
    if x.rank < 3 or smaller(factor, 1) or differ(x.sizes[-3] % (factor * factor), 0):
        return NotImplemented  # eager words the error
    *outer, channels, height, width = x.sizes
    sizes = (*outer, channels // (factor * factor), height * factor, width * factor)
    return TensorType(x.dtype, sizes, suggested_strides(x, sizes))


op(
    "pixel_shuffle.default",
    _shuffle_shape,
    None,
    listed(
        lambda: ((make((2, 8, 3, 4)), 2), {}),
        lambda: ((_channels_last(make((2, 8, 3, 4))), 2), {}),
    ),
)


def _unshuffle_shape(x: TensorType, factor: int) -> Any:
    if x.rank < 3 or x.elements != 0:
        return NotImplemented  # as torch's own rule says
    return TensorType(x.dtype, x.sizes, preserved_strides(x.sizes, x.strides))  # a clone


op(
    "pixel_unshuffle.default",
    _unshuffle_shape,
    None,
    listed(
        lambda: ((make((0, 1, 6, 6)), 3), {}),
        lambda: ((make((1, 1, 0, 6)), 3), {}),
        lambda: ((_channels_last(make((2, 2, 6, 4))), 2), {}),
    ),
)


def _sampled_shape(x: TensorType, grid: TensorType, *rest: Any) -> Any:
    if x.rank != 4 or grid.rank != 4 or differ((x.sizes[0], 2), (grid.sizes[0], grid.sizes[-1])):
        return NotImplemented  # eager words the error
    return fresh(x.dtype, (*x.sizes[:2], *grid.sizes[1:-1]))


op(
    "grid_sampler_2d.default",
    _sampled_shape,
    None,
    listed(*(lambda x=x: ((x(), make((2, 4, 3, 2)), 0, 0, False), {}) for x in _image)),
)

# ---------------------------------------------------------------------------------------- attention


def _attention_shape(
    query: TensorType,
    key: TensorType,
    value: TensorType,
    dropout: float = 0.0,
    causal: bool = False,
    *,
    attn_mask: TensorType | None = None,
    scale: float | None = None,
) -> Any:
    batch, heads, length, width = query.sizes
    sizes = (batch, heads, length, value.sizes[3])
    if value.sizes[3] != width:
        return NotImplemented
    dtype = query.dtype if query.dtype is torch.float64 else torch.float32
    # The sums are kept by position, then by head.
    sums = TensorType(dtype, (batch, heads, length), (length * heads, 1, heads))
    return TensorType(query.dtype, sizes, preserved_strides(sizes, query.strides)), sums


def _by_position(x: TensorType) -> TensorType:
    """(batch, heads, length, width), stored by position before head."""
    _, heads, length, width = x.sizes
    strides = (length * heads * width, width, heads * width, 1)
    return TensorType(x.dtype, x.sizes, strides)


def _attention_backward_shape(
    grad: TensorType, query: TensorType, key: TensorType, value: TensorType, *rest: Any, **more: Any
) -> tuple[TensorType, ...]:
    return _by_position(query), _by_position(key), _by_position(value)


def _heads(transposed: bool, dtype: torch.dtype, length: int = 6, seed: int = 0) -> torch.Tensor:
    if transposed:
        return make((2, length, 4, 8), dtype, seed=seed).transpose(1, 2)
    return make((2, 4, length, 8), dtype, seed=seed)


def _attentions() -> Iterator[Sample]:
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        for transposed in (False, True):
            query = _heads(transposed, dtype)
            key, value = (_heads(transposed, dtype, 5, seed) for seed in (1, 2))
            yield (query, key, value), {}
    fused = make((2, 6, 4, 24)).transpose(1, 2)
    query, key, value = (fused[..., start : start + 8] for start in (0, 8, 16))
    yield (query, key, value, 0.0, True), {}
    yield (query, key, value), {"attn_mask": make((6, 6)), "scale": 0.3}


def _attention_gradients() -> Iterator[Sample]:
    for arguments, keywords in _attentions():
        out, sums = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            *arguments, **keywords
        )
        query, key, value, *rest = arguments
        causal = bool(rest[1]) if rest else False
        for grad in (make(out.shape, out.dtype), torch.ones_like(out)):
            yield (grad, query, key, value, out, sums, 0.0, causal), keywords


op("_scaled_dot_product_flash_attention_for_cpu.default", _attention_shape, None, _attentions)
op(
    "_scaled_dot_product_flash_attention_for_cpu_backward.default",
    _attention_backward_shape,
    None,
    _attention_gradients,
    from_memory=True,
)


# ------------------------------------------------------------- gradients that torch has no rule for


def _shaped_as_input(grad: TensorType, x: TensorType, *rest: Any, **named: Any) -> TensorType:
    return fresh(x.dtype, x.sizes)


def _fractional_gradients() -> Iterator[Sample]:
    x = make((1, 2, 5, 6, 4))
    out, indices = torch.ops.aten.fractional_max_pool3d(
        x, [2, 2, 2], [2, 3, 2], torch.full((1, 2, 3), 0.4)
    )
    yield (torch.ones_like(out), x, [2, 2, 2], [2, 3, 2], indices), {}


def _margin_gradients() -> Iterator[Sample]:
    target = torch.tensor([1, 0, 2])
    for x in (make((3, 4)), make((4, 3)).t()):
        for reduction, grad in ((0, make((3,))), (1, make(())), (2, make(()))):
            yield (grad, x, target, 1, 1.0, None, reduction), {}


def _label_gradients() -> Iterator[Sample]:
    target = torch.tensor([[1, -1, 0, 0], [3, 0, -1, 0], [2, 1, 0, -1]])
    for x in (make((3, 4)), make((4, 3)).t()):
        for reduction in (0, 1, 2):
            out, hits = torch.ops.aten.multilabel_margin_loss_forward(x, target, reduction)
            yield (torch.ones_like(out), x, target, reduction, hits), {}


op("fractional_max_pool3d_backward.default", _shaped_as_input, None, _fractional_gradients)
op("multi_margin_loss_backward.default", _shaped_as_input, None, _margin_gradients)
op("multilabel_margin_loss_backward.default", _shaped_as_input, None, _label_gradients)


# ------------------------------------------------------------------------- ops that are refused


def _refused(*arguments: Any, **keywords: Any) -> None:
    """How large its workspace is, which backward needs, is known only when it has run."""
    raise Unsupported(101, "a recurrent layer of oneDNN: the size of its workspace is not known")


op("mkldnn_rnn_layer.default", _refused)
op("mkldnn_rnn_layer_backward.default", _refused)
