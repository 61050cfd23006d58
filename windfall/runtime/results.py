"""What a program's results are made of: which buffers, seen how.

Enters: a `Program`. Leaves: answers to both ways of running it (`plan.py`, `public.py`), so that
they cannot differ. Invariant: results never lie in the arena; a fresh buffer that only one result
sees, and sees whole, is allocated in that result's shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from windfall.errors import InternalError
from windfall.ir.dtype import TensorType
from windfall.ir.stages import Program, ResultNote


def check_program(program: Program) -> None:
    """Raise `InternalError` where a program breaks its own contract."""
    inputs = [one for one in program.buffers if one.place == "input"]
    if len(inputs) != len(program.inputs):
        raise InternalError(f"{len(inputs)} input buffers for {len(program.inputs)} inputs")
    for note in program.buffers:
        if note.place == "constant" and note.constant is None:
            raise InternalError(f"constant buffer {note.name} has no tensor")
        if note.place == "arena" and note.offset + extent(note.type) > program.arena_bytes:
            raise InternalError(f"buffer {note.name} ends behind its arena")
    for result in program.results:
        if result.buffer is not None and program.buffers[result.buffer].place == "arena":
            raise InternalError(f"result {result} lies in the arena")


def extent(type: TensorType) -> int:
    """How many bytes a tensor of this type spans, from its first element to its last."""
    sizes, strides = static(type.sizes), static(type.strides)
    if 0 in sizes:
        return 0
    last = sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    return (last + 1) * type.dtype.itemsize


def static(sizes: Sequence[Any]) -> tuple[int, ...]:
    """Sizes that are plain integers."""
    if not all(type(one) is int for one in sizes):
        raise InternalError(f"sizes {tuple(map(str, sizes))} are not static")
    return tuple(sizes)


def is_whole(note: ResultNote, type: TensorType) -> bool:
    """Whether a result is its buffer, and no other view of it."""
    assert note.type is not None
    same = (note.type.dtype, note.type.sizes, note.type.strides) == (
        type.dtype,
        type.sizes,
        type.strides,
    )
    return same and note.offset == 0


def sole_shapes(program: Program) -> dict[int, TensorType]:
    """Fresh buffers that are seen by one result only, and all of it: they are allocated in that
    result's shape, and no view is needed."""
    seen: dict[int, set[ResultNote]] = {}
    for note in program.results:
        if note.buffer is not None and program.buffers[note.buffer].place == "result":
            seen.setdefault(note.buffer, set()).add(note)
    shapes: dict[int, TensorType] = {}
    for buffer, notes in seen.items():
        (note, *more) = notes
        held = program.buffers[buffer].type
        if more or note.type is None or note.offset or note.type.dtype != held.dtype:
            continue
        if extent(note.type) == extent(held):
            shapes[buffer] = note.type
    return shapes
