"""Fresh tensors: full, zeros, ones, empty and their kin; ranges; the identity matrix.

Enters: nothing. Leaves: records in the registry. Invariant: an `empty` tensor is lowered to zeros,
which whoever overwrites it makes disappear (where algorithms are deterministic a node of its own
fills it, as eager does: `fake.py`); ranges are computed in float64 or int64, as eager's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from windfall.ir.dtype import TensorType
from windfall.ir.loop import Builder, Index
from windfall.ir.relation import decide
from windfall.ir.symint import Expression, Size, maximum
from windfall.ops.copying import Format, formatted_strides
from windfall.ops.folding import fitting, fresh, listed, op
from windfall.ops.layout import channels_last_strides, smaller
from windfall.ops.promotion import LOWERABLE, number_dtype
from windfall.ops.registry import Samples
from windfall.ops.samples import make
from windfall.ops.term import Term


def _plain(device: Any = None, layout: Any = None, pin_memory: Any = None, **rest: Any) -> bool:
    """Whether a tensor with these options is a plain one in main memory."""
    here = device is None or torch.device(device).type == "cpu"
    return here and layout in (None, torch.strided) and not pin_memory


def _filled(builder: Builder, type: Any, value: Any) -> Any:
    if type is NotImplemented or type.dtype not in LOWERABLE or isinstance(value, complex):
        return NotImplemented
    return builder.tensor(
        type, lambda index: builder.constant(fitting(value, type.dtype), type.dtype)
    )


def _checked(sizes: Sequence[Size]) -> tuple[Size, ...]:
    for size in sizes:
        if isinstance(size, int) and size < 0:
            raise RuntimeError(
                f"Trying to create tensor with negative dimension {size}: {list(sizes)}"
            )
    return tuple(sizes)


def _sized_shape(
    sizes: Sequence[Size],
    *,
    dtype: torch.dtype | None = None,
    memory_format: Format | None = None,
    **options: Any,
) -> Any:
    if not _plain(**options):
        return NotImplemented
    own = _checked(sizes)
    chosen = dtype or torch.get_default_dtype()
    if memory_format in (torch.channels_last, torch.channels_last_3d):
        return TensorType(chosen, own, channels_last_strides(own))
    return fresh(chosen, own)


def _sized(value: Any) -> Callable[..., Any]:
    return lambda builder, sizes, **options: _filled(builder, _sized_shape(sizes, **options), value)


def _full_shape(
    sizes: Sequence[Size], value: Any, *, dtype: torch.dtype | None = None, **options: Any
) -> Any:
    return _sized_shape(sizes, dtype=dtype or number_dtype(value), **options)


def _full(builder: Builder, sizes: Sequence[Size], value: Any, **options: Any) -> Any:
    return _filled(builder, _full_shape(sizes, value, **options), value)


def _like_shape(
    x: TensorType,
    *values: Any,
    dtype: torch.dtype | None = None,
    memory_format: Format | None = None,
    **options: Any,
) -> Any:
    if not _plain(**options):
        return NotImplemented
    return TensorType(
        dtype or x.dtype, x.sizes, formatted_strides(x.sizes, x.strides, memory_format)
    )


def _like(value: Any) -> Callable[..., Any]:
    return lambda builder, x, **options: _filled(builder, _like_shape(x.type, **options), value)


def _full_like(builder: Builder, x: Any, value: Any, **options: Any) -> Any:
    return _filled(builder, _like_shape(x.type, **options), value)


def _new_shape(
    x: TensorType,
    sizes: Sequence[Size],
    *value: Any,
    dtype: torch.dtype | None = None,
    **options: Any,
) -> Any:
    return _sized_shape(sizes, dtype=dtype or x.dtype, **options)


def _new(value: Any) -> Callable[..., Any]:
    return lambda builder, x, sizes, **options: _filled(
        builder, _new_shape(x.type, sizes, **options), value
    )


def _new_full(builder: Builder, x: Any, sizes: Sequence[Size], value: Any, **options: Any) -> Any:
    return _filled(builder, _new_shape(x.type, sizes, **options), value)


def blank_value(dtype: torch.dtype) -> bool | int | float:
    """What deterministic eager fills memory with that nobody has written. (It does not where
    `fill_uninitialized_memory` is off: then any value will do.)"""
    if dtype is torch.bool:
        return True
    if dtype.is_floating_point or dtype.is_complex:
        return math.nan
    return torch.iinfo(dtype).max


def _strided_shape(
    sizes: Sequence[Size],
    strides: Sequence[Size],
    *,
    dtype: torch.dtype | None = None,
    **options: Any,
) -> Any:
    if not _plain(**options):
        return NotImplemented
    return TensorType(dtype or torch.get_default_dtype(), _checked(sizes), tuple(strides))


def _new_strided_shape(
    x: TensorType,
    sizes: Sequence[Size],
    strides: Sequence[Size],
    *,
    dtype: torch.dtype | None = None,
    **options: Any,
) -> Any:
    return _strided_shape(sizes, strides, dtype=dtype or x.dtype, **options)


def _scalar_shape(value: Any, *, dtype: torch.dtype | None = None, **options: Any) -> Any:
    return _sized_shape((), dtype=dtype, **options)


def _scalar(builder: Builder, value: Any, **options: Any) -> Any:
    return _filled(builder, _scalar_shape(value, **options), value)


def _sizes(*rest: Any, **keywords: Any) -> Samples:
    def made() -> Iterator[Any]:
        for sizes in ([2, 3], [], [0, 2]):
            yield (sizes, *rest), dict(keywords)
        yield ([2, 3], *rest), {**keywords, "dtype": torch.int64}

    return made


def _likes(*rest: Any) -> Samples:
    return listed(
        lambda: ((make((2, 3)), *rest), {}),
        lambda: ((make((2, 3)).t(), *rest), {}),
        lambda: ((make((2, 6))[:, ::2], *rest), {"dtype": torch.float64}),
        lambda: ((make((3, 2)).t(), *rest), {"memory_format": torch.contiguous_format}),
        lambda: ((make((2, 3), torch.int32), *rest), {}),
    )


def _news(*rest: Any) -> Samples:
    return listed(
        lambda: ((make((2,), torch.int32), [3, 4], *rest), {}),
        lambda: ((make((2,)), [3, 4], *rest), {"dtype": torch.float64}),
    )


for _name, _value in (("zeros", 0), ("ones", 1)):
    op(f"{_name}.default", _sized_shape, _sized(_value), _sizes(), recompute=True, uniform=_value)
    _facts: dict[str, Any] = {"reads": (), "recompute": True, "uniform": _value}
    op(f"{_name}_like.default", _like_shape, _like(_value), _likes(), **_facts)
    op(f"new_{_name}.default", _new_shape, _new(_value), _news(), **_facts)
# A tensor of zeros without memory: nothing that is called may be given one.
op("_efficientzerotensor.default", _sized_shape, _sized(0), _sizes(), recompute=True)
op("empty.memory_format", _sized_shape, _sized(0), recompute=True, blank=True)
op("empty_like.default", _like_shape, _like(0), reads=(), recompute=True, blank=True)
op("new_empty.default", _new_shape, _new(0), reads=(), recompute=True, blank=True)
op("empty_strided.default", _strided_shape, None)
op("new_empty_strided.default", _new_strided_shape, None)
_facts = {"reads": (), "recompute": True, "uniform": "fill_value"}
op("full.default", _full_shape, _full, _sizes(2.5), **_facts)
op("full_like.default", _like_shape, _full_like, _likes(2), **_facts)
op("new_full.default", _new_shape, _new_full, _news(3), **_facts)
op(
    "scalar_tensor.default",
    _scalar_shape,
    _scalar,
    listed(lambda: ((2.5,), {}), lambda: ((2,), {"dtype": torch.int64})),
    recompute=True,
)

# --------------------------------------------------------------------------------- ranges, identity


def _range(*bounds: Any) -> tuple[Any, Any, Any]:
    """Start, end and step of the three forms of arange."""
    if len(bounds) == 1:
        return 0, bounds[0], 1
    return bounds[0], bounds[1], bounds[2] if len(bounds) == 3 else 1


def _range_shape(*bounds: Any, dtype: torch.dtype | None = None, **options: Any) -> Any:
    start, end, step = _range(*bounds)
    if not _plain(**options):
        return NotImplemented
    floating = any(isinstance(each, float) for each in (start, end, step))
    chosen = dtype or (torch.get_default_dtype() if floating else torch.int64)
    if not all(isinstance(each, (int, float)) for each in (start, end, step)):
        return fresh(chosen, (_steps(start, end, step),))
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if (end - start) * step < 0:
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    if floating:
        return fresh(chosen, (math.ceil((end - start) / step),))
    return fresh(chosen, (-(-(end - start) // step),))


def _steps(start: Size, end: Size, step: Size) -> Size:
    """How many steps lead from start to end, where sizes vary."""
    if smaller(step, 0):
        start, end, step = -start, -end, -step
    if smaller(end, start):
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    return (end - start + step - 1) // step


def _arange(
    builder: Builder, *bounds: Any, dtype: torch.dtype | None = None, **options: Any
) -> Any:
    result = _range_shape(*bounds, dtype=dtype, **options)
    if result is NotImplemented or result.dtype not in LOWERABLE:
        return NotImplemented
    start, _, step = _range(*bounds)
    exact = torch.float64 if result.dtype.is_floating_point else torch.int64

    def at(index: Index) -> Any:
        position = Term(builder, builder.index(index[0])).to(exact)
        value = position if step == 1 else position * step
        return (value if start == 0 else value + start).to(result.dtype).scalar

    return builder.tensor(result, at)


def _linspace_shape(
    start: Any, end: Any, steps: Size, *, dtype: torch.dtype | None = None, **options: Any
) -> Any:
    if decide("<", steps, 0):
        raise RuntimeError("number of steps must be non-negative")
    return _sized_shape((steps,), dtype=dtype, **options)


def _linspace(
    builder: Builder,
    start: Any,
    end: Any,
    steps: Size,
    *,
    dtype: torch.dtype | None = None,
    **options: Any,
) -> Any:
    result = _linspace_shape(start, end, steps, dtype=dtype, **options)
    if result is NotImplemented or result.dtype not in (torch.float32, torch.float64):
        return NotImplemented
    last = maximum(steps - 1, 1)

    def at(index: Index) -> Any:
        position = Term(builder, builder.index(index[0]))
        place = position.to(torch.float64)
        step = place.like(end - start) / place.like(last)
        if isinstance(last, int) and not isinstance(end - start, Expression):
            step = place.like((end - start) / last)
        up = place * step + start
        down = (place - last) * step + end
        # From both ends, so that both are exact.
        value = (position < maximum(steps // 2, 1)).where(up, down)
        return value.to(result.dtype).scalar

    return builder.tensor(result, at)


def _eye_shape(rows: Size, columns: Size | None = None, **options: Any) -> Any:
    return _sized_shape((rows, rows if columns is None else columns), **options)


def _eye(builder: Builder, rows: Size, columns: Size | None = None, **options: Any) -> Any:
    result = _eye_shape(rows, columns, **options)
    if result is NotImplemented or result.dtype not in LOWERABLE:
        return NotImplemented

    def at(index: Index) -> Any:
        row, column = (Term(builder, builder.index(place)) for place in index)
        return row.eq(column).to(result.dtype).scalar

    return builder.tensor(result, at)


op(
    "arange.default",
    _range_shape,
    _arange,
    listed(lambda: ((5,), {}), lambda: ((2.5,), {}), lambda: ((4,), {"dtype": torch.bfloat16})),
    recompute=True,
)
op(
    "arange.start",
    _range_shape,
    _arange,
    listed(lambda: ((2, 7), {}), lambda: ((-1.5, 2), {}), lambda: ((3, 3), {})),
    recompute=True,
)
op(
    "arange.start_step",
    _range_shape,
    _arange,
    listed(
        lambda: ((2, 9, 3), {}),
        lambda: ((9, 1, -2), {}),
        lambda: ((0, 1, 0.1), {}),
        lambda: ((1, 9, 2), {"dtype": torch.float64}),
    ),
    recompute=True,
)
op(
    "linspace.default",
    _linspace_shape,
    _linspace,
    listed(lambda: ((0, 1, 5), {}), lambda: ((3.0, -2.0, 8), {}), lambda: ((1, 2, 1), {})),
    recompute=True,
)
op(
    "eye.default",
    _eye_shape,
    _eye,
    listed(lambda: ((3,), {}), lambda: ((2,), {"dtype": torch.int64})),
)
op("eye.m", _eye_shape, _eye, listed(lambda: ((3, 4), {})))
