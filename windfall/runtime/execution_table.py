"""A program as a table for `execute` of `support.py`: pointers, allocations, results.

Enters: a native `Program`, which of its results are wanted, in which structure. Leaves: a plan in
a table of words. Invariant: the table keeps the program's code and constants alive, no input.

What varies from call to call has a place in the *table of sizes*, which each call has for itself:
first `Program.sizes`, as kernels see it, then what only the plan needs.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

import torch

from windfall import torch_abi
from windfall.errors import InternalError, UnfitInput
from windfall.ir.dtype import TensorType
from windfall.ir.stages import BufferNote, Program, ResultNote
from windfall.ir.symint import Expression, Size
from windfall.runtime import support
from windfall.runtime.machine import gradient_pool, offsets
from windfall.runtime.memory import MEMORY, MOST_BYTES
from windfall.runtime.results import (
    errors_of,
    has_elements,
    is_static,
    is_whole,
    result_buffers,
    sole_shapes,
    span_bytes,
    static,
)
from windfall.runtime.size_code import Arithmetic, fits
from windfall.runtime.words import Place, Word, Words

STRUCTURES = {"leaf": offsets.LEAF, "tuple": offsets.TUPLE, "list": offsets.LIST}


def can_be_native(program: Program) -> bool:
    """Whether one builtin can do the whole program."""
    if not program.native or support.support() is None:
        return False
    places = {
        program.buffers[one.buffer].place for one in program.results if one.buffer is not None
    }
    on_cpu = all(note.type.device.type == "cpu" for note in program.buffers)
    return on_cpu and places <= {"input", "result"} and all(map(fits, program.sizes))


class _Table:
    """The table of sizes of a plan under construction."""

    def __init__(self, program: Program) -> None:
        self.template: list[int] = [0] * len(program.sizes)
        self.arithmetic = Arithmetic(self._allocate)
        kernels = {size: 8 * index for index, size in reversed([*enumerate(program.sizes)])}
        self.symbols = [self._symbol(symbol, kernels) for symbol in program.symbols]
        for index, size in enumerate(program.sizes):
            if isinstance(size, int):
                self.template[index] = size
            else:
                self.arithmetic.place(size, 8 * index)

    def _allocate(self, value: int) -> int:
        self.template.append(value)
        return 8 * (len(self.template) - 1)

    def _symbol(self, symbol: Expression, kernels: dict[Size, int]) -> int:
        place = kernels.get(symbol)
        if place is None:
            place = self._allocate(0)
        self.arithmetic.bind(symbol, place)
        return place

    def quantity(self, size: Size) -> tuple[Word, Word]:
        """The two words of a number that may vary."""
        return (size, 0) if isinstance(size, int) else (self.arithmetic.place(size), 1)

    def row(self, sizes: Sequence[Size]) -> int:
        """Where these stand, one after the other."""
        places = [self._allocate(size if isinstance(size, int) else 0) for size in (*sizes, 0)]
        for size, place in zip(sizes, places, strict=False):
            if isinstance(size, Expression):
                self.arithmetic.place(size, place)
        return places[0]

    def fields(self, words: Words) -> dict[str, Word]:
        """The words of the plan that say how the table is filled."""
        rows = words.rows(self.arithmetic.instructions)
        return {
            "table_words": len(self.template),
            "table": words.add(*self.template, 0),
            "symbols": len(self.symbols),
            "symbol_places": words.add(*self.symbols, 0),
            "instructions": rows[0],
            "instruction_rows": rows[1],
        }


def can_be_floats(program: Program, positions: Iterable[int]) -> bool:
    """Whether these inputs may be Python floats, whose numbers are read where they stand."""
    wanted = {*positions}
    buffers = [index for index, note in enumerate(program.buffers) if note.place == "input"]
    seen = {buffers.index(one.buffer) for one in program.results if one.buffer in buffers}
    plain = all(
        program.inputs[one].dtype is torch.float64 and not program.inputs[one].rank
        for one in wanted
    )
    return plain and wanted.isdisjoint(seen)


def add_plan(
    words: Words,
    program: Program,
    order: Sequence[int],
    structure: str,
    floats: Container[int] = (),
    keep: bool = False,
    verify: bool = False,
    recycled: Container[int] = (),
) -> Place:
    """Append the plan of a native program: `order` says which results are returned, in which
    structure; `floats`, which inputs are Python floats; `keep`, that memory of large results is to
    be kept for the next call once nobody holds them; `verify`, that inputs are checked; `recycled`,
    of which results (by their position among the result buffers) the objects are used again."""
    words.keep.append(program.code)
    template = words.add(*(_static_pointer(words, note) for note in program.buffers), 0)
    table = _Table(program)
    fresh = result_buffers(program)
    objects = _Objects(words, program, fresh, table)
    wanted = [objects.result(note) for note in program.results]
    input_rows = words.rows(_input_rows(words, program, table, floats, verify))
    rings = [
        _ring(words, program, index) if at in recycled else 0 for at, index in enumerate(fresh)
    ]
    fresh_rows = words.rows(
        [
            _fresh_row(words, program, index, objects, table, keep, ring)
            for index, ring in zip(fresh, rings, strict=True)
        ]
    )
    arena_rows = words.rows(
        offsets.ARENA_ROW.words(index, *table.quantity(note.offset))
        for index, note in enumerate(program.buffers)
        if note.place == "arena"
    )
    object_rows = words.rows(objects.rows)
    order_rows = words.rows((wanted[index],) for index in order)
    error_rows = words.rows(
        offsets.ERROR_ROW.words(code, words.object(kind), words.text(text))
        for code, (kind, text) in errors_of(program).items()
    )
    step = program.code.address(program.steps[0].function) if program.steps else 0  # type: ignore[union-attr]
    arena = program.arena_bytes if arena_rows[0] else 0
    if isinstance(arena, int):
        arena = min(arena, MOST_BYTES)  # which nobody has: more would be another number in a word
    if arena != 0 or keep:
        words.keep.append(MEMORY.add_user())
    arena_words, touched = table.quantity(arena), table.quantity(_touched(program))
    plan = offsets.PLAN.named(
        buffers=len(program.buffers),
        template=template,
        inputs=input_rows[0],
        input_rows=input_rows[1],
        fresh=fresh_rows[0],
        fresh_rows=fresh_rows[1],
        arena_bytes=arena_words,
        arena_count=arena_rows[0],
        arena_rows=arena_rows[1],
        step=step,
        touched=touched,
        objects=object_rows[0],
        object_rows=object_rows[1],
        structure=STRUCTURES[structure],
        order_count=order_rows[0],
        order=order_rows[1],
        errors=error_rows[0],
        error_rows=error_rows[1],
        other_error=words.object(InternalError),
        other_text=words.text("a compiled kernel failed with an unknown code"),
        unfit=words.object(UnfitInput),
        rings=int(any(rings)),
        as_strided=words.object(torch.Tensor.as_strided),
        **table.fields(words),
    )
    return words.add(*plan)


def _touched(program: Program) -> Size:
    total: Size = 0
    for note in program.buffers:
        total = total + span_bytes(note.type)
    return total


def _static_pointer(words: Words, note: BufferNote) -> int:
    if note.constant is None:
        return 0
    words.keep.append(note.constant)
    return note.constant.data_ptr()


def _type_words(words: Words, table: _Table, type: TensorType) -> tuple[Word, ...]:
    """Dtype, rank, sizes, strides, and whether these vary."""
    shape = (type.sizes, type.strides)
    fixed = all(map(is_static, shape))
    places = [words.add(*static(one), 0) if fixed else table.row(one) for one in shape]
    return (torch_abi.scalar_type(type.dtype), type.rank, *places, int(not fixed))


def _input_rows(
    words: Words, program: Program, table: _Table, floats: Container[int], verify: bool
) -> list[tuple[Word, ...]]:
    buffers = [index for index, note in enumerate(program.buffers) if note.place == "input"]
    return [
        offsets.INPUT_ROW.words(
            position,
            buffer,
            0 if position in floats else type.dtype.itemsize,
            *table.quantity(has_elements(type)),
            int(verify),
            *(_type_words(words, table, type) if verify else (0,) * 5),
        )
        for position, (buffer, type) in enumerate(zip(buffers, program.inputs, strict=True))
    ]


def _fresh_row(
    words: Words,
    program: Program,
    index: int,
    objects: _Objects,
    table: _Table,
    keep: bool,
    ring: int,
) -> tuple[Word, ...]:
    type = objects.shape_of.get(index, program.buffers[index].type)
    bytes = span_bytes(type)
    return offsets.FRESH_ROW.words(
        index,
        *_type_words(words, table, type),
        type.dtype.itemsize,
        *table.quantity(bytes),
        int(keep and isinstance(bytes, int) and bytes >= gradient_pool.SMALLEST),
        ring,
    )


def _ring(words: Words, program: Program, index: int) -> int:
    """Where objects of a result are kept; 0: nowhere, where sizes vary."""
    type = program.buffers[index].type
    ring = torch_abi.tensor_ring() if is_static(type.sizes) and is_static(type.strides) else None
    words.keep.append(ring)
    return 0 if ring is None else int(ring)


class _Objects:
    """The Python objects that a run makes: results, and the bases of results that are views."""

    def __init__(self, words: Words, program: Program, fresh: list[int], table: _Table) -> None:
        self.rows: list[tuple[Word, ...]] = []
        self._words = words
        self._program = program
        self._table = table
        self._fresh = {buffer: handle for handle, buffer in enumerate(fresh)}
        inputs = [index for index, note in enumerate(program.buffers) if note.place == "input"]
        self._inputs = {buffer: position for position, buffer in enumerate(inputs)}
        self._made: dict[ResultNote, int] = {}
        self._bases: dict[int, int] = {}
        self.shape_of = sole_shapes(program)

    def result(self, note: ResultNote) -> int:
        """The number of the object that is this result."""
        found = self._made.get(note)
        if found is None:
            found = self._made[note] = self._make(note)
        return found

    def _row(self, kind: int, index: int, type: TensorType | None = None, offset: Size = 0) -> int:
        sizes = strides = rank = 0
        fixed = True
        if type is not None:
            fixed, rank = is_static(type.sizes) and is_static(type.strides), type.rank
            sizes, strides = self._shape(type.sizes, fixed), self._shape(type.strides, fixed)
        start = self._table.quantity(offset)
        row = offsets.OBJECT_ROW.words(kind, index, sizes, strides, *start, int(not fixed), rank)
        self.rows.append(row)
        return len(self.rows) - 1

    def _shape(self, sizes: Sequence[Size], fixed: bool) -> int:
        return self._words.object(static(sizes)) if fixed else self._table.row(sizes)

    def _make(self, note: ResultNote) -> int:
        if note.buffer is None or note.type is None:
            return self._row(offsets.NOTHING, 0)
        whole = is_whole(note, self._program.buffers[note.buffer].type)
        position = self._inputs.get(note.buffer)
        if position is not None:
            if whole:
                return self._row(offsets.INPUT, position)
            return self._row(offsets.INPUT_VIEW, position, note.type, note.offset)
        if whole or note.buffer in self.shape_of:
            return self._fresh_object(note.buffer)
        return self._row(
            offsets.OBJECT_VIEW, self._fresh_object(note.buffer), note.type, note.offset
        )

    def _fresh_object(self, buffer: int) -> int:
        found = self._bases.get(buffer)
        if found is None:
            found = self._bases[buffer] = self._row(offsets.RESULT, self._fresh[buffer])
        return found
