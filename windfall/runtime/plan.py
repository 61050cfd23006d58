"""A program as a table for `execute` of `support.py`: pointers, allocations, results.

Enters: a native `Program`, which of its results are wanted, in which structure. Leaves: a plan in
a table of words. Invariant: the table keeps the program's code and constants alive, no input.
"""

from __future__ import annotations

import ctypes
import itertools
import weakref
from collections.abc import Sequence

import torch

from windfall import torch_abi
from windfall.errors import InternalError
from windfall.ir.dtype import TensorType
from windfall.ir.stages import BufferNote, Program, ResultNote
from windfall.runtime import support
from windfall.runtime.machine import layout
from windfall.runtime.results import extent, is_whole, sole_shapes, static
from windfall.runtime.words import Place, Word, Words

# A program that touches this many bytes runs long enough for other threads to be let in.
RELEASE_BYTES = 1 << 20
STRUCTURES = {"leaf": layout.LEAF, "tuple": layout.TUPLE, "list": layout.LIST}


def can_be_native(program: Program) -> bool:
    """Whether one builtin can do the whole program."""
    if not program.native or support.support() is None:
        return False
    places = {
        program.buffers[one.buffer].place for one in program.results if one.buffer is not None
    }
    on_cpu = all(note.type.device.type == "cpu" for note in program.buffers)
    return on_cpu and places <= {"input", "result"}


def add_plan(words: Words, program: Program, order: Sequence[int], structure: str) -> Place:
    """Append the plan of a native program: `order` says which results are returned, in which
    structure."""
    words.keep.append(program.code)
    template = words.add(*(_static_pointer(words, note) for note in program.buffers), 0)
    fresh = [index for index, note in enumerate(program.buffers) if note.place == "result"]
    objects = _Objects(words, program, fresh)
    wanted = [objects.result(note) for note in program.results]
    input_rows = words.rows(_input_rows(program))
    fresh_rows = words.rows([_fresh_row(words, program, index, objects) for index in fresh])
    arena_rows = words.rows(
        (index, note.offset) for index, note in enumerate(program.buffers) if note.place == "arena"
    )
    object_rows = words.rows(objects.rows)
    order_rows = words.rows((wanted[index],) for index in order)
    error_rows = words.rows(
        (code, words.object(kind), words.text(text))
        for code, (kind, text) in program.errors.items()
    )
    step = program.code.address(program.steps[0].function) if program.steps else 0  # type: ignore[union-attr]
    arena = program.arena_bytes if arena_rows[0] else 0
    if arena:
        _count_arena_user(words)
    fields: dict[int, Word] = {
        layout.BUFFERS: len(program.buffers),
        layout.TEMPLATE: template,
        layout.INPUTS: input_rows[0],
        layout.INPUT_ROWS: input_rows[1],
        layout.FRESH: fresh_rows[0],
        layout.FRESH_ROWS: fresh_rows[1],
        layout.ARENA_BYTES: arena,
        layout.ARENA_COUNT: arena_rows[0],
        layout.ARENA_ROWS: arena_rows[1],
        layout.STEP: step,
        layout.RELEASE: int(sum(extent(one.type) for one in program.buffers) >= RELEASE_BYTES),
        layout.OBJECTS: object_rows[0],
        layout.OBJECT_ROWS: object_rows[1],
        layout.STRUCTURE: STRUCTURES[structure],
        layout.ORDER_COUNT: order_rows[0],
        layout.ORDER: order_rows[1],
        layout.ERRORS: error_rows[0],
        layout.ERROR_ROWS: error_rows[1],
        layout.OTHER_ERROR: words.object(InternalError),
        layout.OTHER_TEXT: words.text("a compiled kernel failed with an unknown code"),
        layout.AS_STRIDED: words.object(torch.Tensor.as_strided),
    }
    return words.add(*(fields[index] for index in range(len(fields))))


def _static_pointer(words: Words, note: BufferNote) -> int:
    if note.constant is None:
        return 0
    words.keep.append(note.constant)
    return note.constant.data_ptr()


def _input_rows(program: Program) -> list[tuple[Word, ...]]:
    buffers = [index for index, note in enumerate(program.buffers) if note.place == "input"]
    return [
        (position, buffer, type.dtype.itemsize, int(extent(type) > 0))
        for position, (buffer, type) in enumerate(zip(buffers, program.inputs, strict=True))
    ]


def _fresh_row(words: Words, program: Program, index: int, objects: _Objects) -> tuple[Word, ...]:
    type = objects.shape_of.get(index, program.buffers[index].type)
    sizes, strides = static(type.sizes), static(type.strides)
    return (
        index,
        len(sizes),
        words.add(*sizes, 0),
        words.add(*strides, 0),
        torch_abi.scalar_type(type.dtype),
    )


class _Objects:
    """The Python objects that a run makes: results, and the bases of results that are views."""

    def __init__(self, words: Words, program: Program, fresh: list[int]) -> None:
        self.rows: list[tuple[Word, ...]] = []
        self._words = words
        self._program = program
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

    def _row(self, kind: int, index: int, type: TensorType | None = None, offset: int = 0) -> int:
        sizes = strides = 0
        if type is not None:
            sizes = self._words.object(static(type.sizes))
            strides = self._words.object(static(type.strides))
        self.rows.append((kind, index, sizes, strides, offset))
        return len(self.rows) - 1

    def _make(self, note: ResultNote) -> int:
        if note.buffer is None or note.type is None:
            return self._row(layout.NOTHING, 0)
        whole = is_whole(note, self._program.buffers[note.buffer].type)
        position = self._inputs.get(note.buffer)
        if position is not None:
            if whole:
                return self._row(layout.INPUT, position)
            return self._row(layout.INPUT_VIEW, position, note.type, note.offset)
        if whole or note.buffer in self.shape_of:
            return self._fresh_object(note.buffer)
        return self._row(
            layout.OBJECT_VIEW, self._fresh_object(note.buffer), note.type, note.offset
        )

    def _fresh_object(self, buffer: int) -> int:
        found = self._bases.get(buffer)
        if found is None:
            found = self._bases[buffer] = self._row(layout.RESULT, self._fresh[buffer])
        return found


class _ArenaUser:
    """As long as one lives, blocks for intermediate values are kept for reuse."""

    __slots__ = ("__weakref__",)


_arena_users: set[int] = set()
_numbers = itertools.count()


def _count_arena_user(words: Words) -> None:
    user, number = _ArenaUser(), next(_numbers)
    _arena_users.add(number)
    words.keep.append(user)
    weakref.finalize(user, _drop_arena_user, number).atexit = False


def _drop_arena_user(number: int) -> None:
    _arena_users.discard(number)
    code = support.support()
    if code is not None and not _arena_users:
        ctypes.PYFUNCTYPE(ctypes.c_int64)(code.address("arena.trim"))()
