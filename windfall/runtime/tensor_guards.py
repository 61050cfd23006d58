"""Native records for what checks say of tensors, sizes and the thread.

Enters: what a check says to a writer (`ir/check_writer.py`). Leaves: records in the table; False
where machine code cannot tell. Invariant: a size or stride is read only of what an earlier record
has seen to be a tensor of that rank.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence

import torch

from windfall import torch_abi
from windfall.ir.check_writer import Cell
from windfall.ir.dtype import TensorType
from windfall.ir.source import ByMethod, Distance, Overlap, SizeOf, Source, StrideOf
from windfall.ir.symint import Expression, Size, known_at_least
from windfall.runtime.machine.tensor_step import (
    DIMENSION_ROW,
    DOUBLE,
    FLOAT,
    INTEGER,
    TENSOR_ROW,
    WANTED,
)
from windfall.runtime.machine.thread_step import CAST_ROW
from windfall.runtime.object_guards import ObjectRecords, float_bits
from windfall.runtime.results import is_static, span_bytes, static
from windfall.runtime.size_code import fits
from windfall.runtime.words import MASK, Word

# Numbers that guards read, as the machine knows them.
_SCALARS = {torch.float32: FLOAT, torch.float64: DOUBLE, torch.int64: INTEGER}


class CheckWriter(ObjectRecords):
    """Records of tensors beside those of objects: all that a check can say."""

    def tensor_is(
        self, cell: Cell, type: TensorType, exact_class: builtins.type, dispatch_keys: int
    ) -> bool:
        """Metadata; sizes and strides that vary are bound or compared."""
        if type.device.type != "cpu":
            return False
        tensors = torch_abi.tensor_layout()
        assert tensors is not None
        step, words = _shape_words(type, tensors)
        wanted = WANTED.words(
            self.words.object(exact_class),
            dispatch_keys,
            torch_abi.scalar_type(type.dtype),
            type.rank,
            int(type.requires_grad),
            *words,
        )
        self.record(step, cell, self.shared(wanted))
        self.ranks[cell] = type.rank
        read = step == "shapeless_tensor"
        self._dimensions(
            cell,
            [
                (dimension, strides, size)
                for strides, sizes in enumerate((type.sizes, type.strides))
                for dimension, size in enumerate(sizes)
                if read or isinstance(size, Expression)
            ],
        )
        return True

    def _dimensions(self, cell: Cell, wanted: Sequence[tuple[int, int, Size]]) -> None:
        """Read sizes (0) or strides (1) of a tensor that a record has seen, and bind or compare."""
        tensors = torch_abi.tensor_layout()
        assert tensors is not None
        rank = self.ranks[cell]
        outside = rank > tensors.inline_dims
        apart = rank if outside else tensors.inline_dims
        rows: list[Word] = []
        for dimension, strides, size in wanted:
            place, least, greatest = (
                (self.fresh_cell(), size, size) if isinstance(size, int) else self.bind(size)
            )
            rows += DIMENSION_ROW.words(8 * (dimension + strides * apart), place, least, greatest)
        if rows:
            self.record("dimensions", cell, int(outside), len(wanted), *rows)

    def scalar_within(
        self, cell: Cell, source: Source, low: float, high: float, whole: bool
    ) -> bool:
        """Of a tensor that a record has seen to have no dimensions."""
        type = self.tensor_type(source)
        if type is None or self.ranks.get(cell) != 0 or type.dtype not in _SCALARS:
            return False
        kind, size = _SCALARS[type.dtype], type.dtype.itemsize
        self.record("scalar", cell, kind, size, float_bits(low), float_bits(high), int(whole))
        return True

    def is_plain_leaf(self, cell: Cell) -> bool:
        """Of a tensor that a record has seen."""
        layout = torch_abi.leaf_layout()
        if layout is None or cell not in self.ranks:
            return False
        places = (layout.function, layout.accumulator, layout.hooks, layout.post_hook)
        self.record("plain_leaf", cell, layout.kind, *places, layout.count, *layout.node_hooks)
        return True

    # --------------------------------------------------------------------------------- numbers

    def is_number(self, source: Source) -> bool:
        """A size or stride of a tensor that was seen already, or a length."""
        if isinstance(source, ByMethod):
            return self.has_count(source)
        if not isinstance(source, SizeOf | StrideOf):
            return False
        cell = self.cell(source.of)
        rank = None if cell is None else self.ranks.get(cell)
        return rank is not None and -rank <= source.dimension < rank

    def number_is(self, source: Source, number: Size) -> bool:
        """An int that is known, or one that varies."""
        if not fits(number):
            return False
        if not self.is_number(source):
            cell = self.cell(source)
            if cell is None or isinstance(number, int):
                return False
            self.record("number", cell, *self.bind(number))
            return True
        if isinstance(source, ByMethod):
            return self.count_is(source, number)
        assert isinstance(source, SizeOf | StrideOf)
        cell = self.cell(source.of)
        assert cell is not None
        place = source.dimension % self.ranks[cell]
        self._dimensions(cell, [(place, int(isinstance(source, StrideOf)), number)])
        return True

    def are_apart(self, source: Overlap) -> bool:
        """No written tensor shares bytes with another; the spans follow from the guarded types."""
        rows: list[Word] = []
        tensors = (*source.written, *source.others)
        for one, reach in zip(tensors, source.reach or (0,) * len(tensors), strict=True):
            cell, type = self.cell(one), self.tensor_type(one)
            if cell is None or type is None or cell not in self.ranks:
                return False
            span = reach or span_bytes(type)
            varies = not isinstance(span, int)
            if varies and not all(known_at_least(size, 1) for size in type.sizes):
                return False
            if not self.arithmetic.knows(span):
                return False
            rows += TENSOR_ROW.words(cell, type.dtype.itemsize, self.arithmetic.place(span))
        self.calculate()
        self.record("overlap", len(source.written), len(rows) // TENSOR_ROW.size, *rows)
        return True

    def distance_is(self, source: Distance, bytes: int) -> bool:
        """Two tensors lie so in memory."""
        words: list[Word] = []
        for one in (source.start, source.end):
            cell, type = self.cell(one), self.tensor_type(one)
            if cell is None or type is None or cell not in self.ranks:
                return False
            words += [cell, type.dtype.itemsize]
        self.record("distance", *words, bytes)
        return True

    # -------------------------------------------------------------------------------- the thread

    def thread_is(self, state: torch_abi.Ambient) -> None:
        """The thread's state, all of it."""
        thread = torch_abi.thread_layout()
        assert thread is not None
        flags = thread.grad_flag * state.grad_enabled | thread.inference_flag * state.inference_mode
        dtype = getattr(torch, state.default_dtype.removeprefix("torch."))
        casts: list[int] = []
        for device, name in state.autocast:
            kind = getattr(torch, name.removeprefix("torch."))
            place = torch_abi.AUTOCAST_DEVICES.index(device)
            casts += CAST_ROW.words(place, torch_abi.scalar_type(kind))
        self.record(
            "ambient",
            flags,
            state.included_keys,
            state.excluded_keys,
            state.dispatch_modes,
            state.function_modes,
            state.function_state,
            int(state.profiled),
            torch_abi.scalar_type(dtype),
            int(state.deterministic),
            torch_abi.global_context(),
            len(state.autocast),
            *casts,
        )


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
