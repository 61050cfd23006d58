"""Native records for what guards say of tensors, sizes and the thread.

Enters: checks and the cells of their values. Leaves: records in the encoder's table; False where a
check is left to Python. Invariant: a size or stride is read only of what an earlier record has seen
to be a tensor of that rank.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from windfall import torch_abi
from windfall.ir.dtype import TensorType
from windfall.ir.guard import AmbientIs, Binds, Check, Equals, Holds, TensorIs, TypeIs
from windfall.ir.source import Overlap, SizeOf, Source, StrideOf
from windfall.ir.symint import Expression, Size, known_at_least
from windfall.runtime.arithmetic import fits
from windfall.runtime.encoder import Encoder
from windfall.runtime.results import extent, is_static, static
from windfall.runtime.words import MASK, Place, Word


def native_tensor(encoder: Encoder, cell: Place, check: TensorIs) -> bool:
    """Metadata; sizes and strides that vary are bound or compared."""
    if check.type.device.type != "cpu":
        return False
    tensors = torch_abi.tensor_layout()
    assert tensors is not None
    step, words = _shape_words(check.type, tensors)
    wanted = (
        encoder.words.object(check.exact_class),
        check.dispatch_keys,
        torch_abi.scalar_type(check.type.dtype),
        check.type.rank,
        int(check.type.requires_grad),
        *words,
    )
    encoder.record(step, cell, encoder.shared(wanted))
    encoder.ranks[cell] = check.type.rank
    read = step == "shapeless_tensor"
    _native_dimensions(
        encoder,
        cell,
        [
            (dimension, strides, size)
            for strides, sizes in enumerate((check.type.sizes, check.type.strides))
            for dimension, size in enumerate(sizes)
            if read or isinstance(size, Expression)
        ],
    )
    return True


def _shape_words(type: TensorType, tensors: torch_abi.TensorLayout) -> tuple[str, list[int]]:
    """Which step looks at tensors of this type, and the words that its record has for its shape.
    What varies is masked out."""
    spare = tensors.inline_dims - type.rank
    if spare < 0:
        fixed = is_static(type.sizes) and is_static(type.strides)
        if not fixed:
            return "shapeless_tensor", []
        return "large_tensor", [*static(type.sizes), *static(type.strides)]
    wanted: list[int] = []
    masks: list[int] = []
    for sizes in (type.sizes, type.strides):
        wanted += [size if isinstance(size, int) else 0 for size in sizes] + [0] * spare
        masks += [MASK if isinstance(size, int) else 0 for size in sizes] + [0] * spare
    return "tensor", [*wanted, *masks]


def _native_dimensions(
    encoder: Encoder, cell: Place, wanted: Sequence[tuple[int, int, Size]]
) -> None:
    """Read sizes (0) or strides (1) of a tensor that a record has seen, and bind or compare."""
    tensors = torch_abi.tensor_layout()
    assert tensors is not None
    rank = encoder.ranks[cell]
    outside = rank > tensors.inline_dims
    apart = rank if outside else tensors.inline_dims
    rows: list[Word] = []
    for dimension, strides, size in wanted:
        place, least, greatest = (
            (encoder.fresh_cell(), size, size) if isinstance(size, int) else encoder.bind(size)
        )
        rows += [8 * (dimension + strides * apart), place, least, greatest]
    if rows:
        encoder.record("dimensions", cell, int(outside), len(wanted), *rows)


def native_number(encoder: Encoder, cell: Place, check: Binds) -> bool:
    """An integer that varies."""
    encoder.record("number", cell, *encoder.bind(check.symbol))
    return True


def native_relation(encoder: Encoder, source: Source, check: Holds) -> bool:
    """A relation between sizes, once they are bound."""
    encoder.relate(check.relation)
    return True


def native_ambient(encoder: Encoder, source: Source, check: AmbientIs) -> bool:
    """The thread's state, all of it."""
    thread = torch_abi.thread_layout()
    assert thread is not None
    flags = thread.grad_flag * check.grad_enabled | thread.inference_flag * check.inference_mode
    dtype = getattr(torch, check.default_dtype.removeprefix("torch."))
    casts: list[int] = []
    for device, name in check.autocast:
        kind = getattr(torch, name.removeprefix("torch."))
        casts += [torch_abi.AUTOCAST_DEVICES.index(device), torch_abi.scalar_type(kind)]
    encoder.record(
        "ambient",
        flags,
        check.included_keys,
        check.excluded_keys,
        check.dispatch_modes,
        check.function_modes,
        check.function_state,
        int(check.profiled),
        torch_abi.scalar_type(dtype),
        int(check.deterministic),
        torch_abi.global_context(),
        len(check.autocast),
        *casts,
    )
    return True


def native_overlap(encoder: Encoder, source: Overlap, check: Check) -> bool:
    """No written tensor shares bytes with another; the spans follow from the guarded types."""
    if not isinstance(check, Equals) or check.value is not False:
        return False
    rows: list[Word] = []
    for one in (*source.written, *source.others):
        cell, type = encoder.cell(one), encoder.tensor_type(one)
        if cell is None or type is None or cell not in encoder.ranks:
            return False
        span = extent(type)
        varies = not isinstance(span, int)
        if varies and not all(known_at_least(size, 1) for size in type.sizes):
            return False
        if not encoder.arithmetic.knows(span):
            return False
        rows += [cell, type.dtype.itemsize, encoder.arithmetic.place(span)]
    encoder.calculate()
    encoder.record("overlap", len(source.written), len(rows) // 3, *rows)
    return True


def native_dimension(encoder: Encoder, source: SizeOf | StrideOf, check: Check) -> bool:
    """A size or stride of a tensor that was seen already, as a number of its own."""
    cell = encoder.cell(source.of)
    rank = None if cell is None else encoder.ranks.get(cell)
    if cell is None or rank is None or not -rank <= source.dimension < rank:
        return False
    place, strides = source.dimension % rank, int(isinstance(source, StrideOf))
    if isinstance(check, TypeIs):
        return check.exact_class is int
    if isinstance(check, Binds):
        _native_dimensions(encoder, cell, [(place, strides, check.symbol)])
        return True
    if isinstance(check, Equals) and type(check.value) is int and fits(check.value):
        _native_dimensions(encoder, cell, [(place, strides, check.value)])
        return True
    return False
