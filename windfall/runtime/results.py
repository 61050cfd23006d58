"""What a program's results are made of: which buffers, seen how.

Enters: a `Program`. Leaves: answers to both ways of running it (`execution_table.py`,
`public.py`), so that they cannot differ. Invariant: results never lie in the arena; a fresh buffer
that only one result sees, and sees whole, and that no op called from Python is given, is allocated
in that result's shape.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeGuard

from windfall.errors import GraphFailed, InputsWritten, InternalError
from windfall.ir.dtype import TensorType
from windfall.ir.stages import NativeStep, Program, PythonStep, Ref, ResultNote
from windfall.ir.symint import Size, hint_of, known_at_least, symbol_atom
from windfall.runtime.machine.offsets import NO_MEMORY


def check_program(program: Program) -> None:
    """Raise `InternalError` where a program breaks its own contract."""
    inputs = [one for one in program.buffers if one.place == "input"]
    if len(inputs) != len(program.inputs):
        raise InternalError(f"{len(inputs)} input buffers for {len(program.inputs)} inputs")
    for note in program.buffers:
        if note.place == "constant" and note.constant is None:
            raise InternalError(f"constant buffer {note.name} has no tensor")
        if note.place == "arena" and not _lies_in_arena(
            note.offset + span_bytes(note.type), program
        ):
            raise InternalError(f"buffer {note.name} ends behind its arena")
    for result in program.results:
        if result.buffer is not None and program.buffers[result.buffer].place == "arena":
            raise InternalError(f"result {result} lies in the arena")
    for symbol in program.symbols:
        symbol_atom(symbol)


def errors_of(program: Program) -> dict[int, tuple[type[Exception], str]]:
    """What a native step raises, by the number that it answers; and what is raised where there is
    no memory for it: eager says how much it tried to get, or gets by with less."""
    found: dict[int, tuple[type[Exception], str]] = dict(program.errors)
    found[NO_MEMORY] = (RuntimeError, "no memory for a compiled graph")
    if not program.retry_in_eager:
        return found
    return {
        code: (kind, text) if kind is InputsWritten else (GraphFailed, f"{kind.__name__}: {text}")
        for code, (kind, text) in found.items()
    }


def _lies_in_arena(end: Size, program: Program) -> bool:
    """Whether it does; where ranges do not tell, whether it does in the call being compiled."""
    room = program.arena_bytes - end
    return known_at_least(room, 0) or (not isinstance(room, int) and hint_of(room) >= 0)


def span_bytes(type: TensorType) -> Size:
    """How many bytes a tensor of this type spans, from its first element to its last."""
    if any(isinstance(size, int) and size == 0 for size in type.sizes):
        return 0
    last: Size = 0
    for size, stride in zip(type.sizes, type.strides, strict=True):
        last = last + (size - 1) * stride
    return (last + 1) * type.dtype.itemsize


def result_buffers(program: Program) -> list[int]:
    """The buffers that a run gets memory for, to return them."""
    return [index for index, note in enumerate(program.buffers) if note.place == "result"]


def result_types(program: Program) -> list[TensorType]:
    """The types of the tensors that this memory is."""
    shapes = sole_shapes(program)
    return [shapes.get(index, program.buffers[index].type) for index in result_buffers(program)]


def is_static(sizes: Sequence[Size]) -> TypeGuard[Sequence[int]]:
    """Whether none of them varies."""
    return all(type(one) is int for one in sizes)


def static(sizes: Sequence[Size]) -> tuple[int, ...]:
    """Sizes that are plain integers."""
    if not is_static(sizes):
        raise InternalError(f"sizes {tuple(map(str, sizes))} are not static")
    return tuple(sizes)


def has_elements(type: TensorType) -> Size:
    """1 where it has some, 0 where it has none; else how many."""
    if all(known_at_least(size, 1) for size in type.sizes):
        return 1
    return type.elements


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
    result's shape, and no view is needed. Machine code knows how its buffers lie; an op that is
    called from Python reads that of the tensor, which is then the buffer as it was computed."""
    as_tensors = {index for step in program.steps for index in buffers_named(step)}
    seen: dict[int, set[ResultNote]] = {}
    for note in program.results:
        if note.buffer is not None and program.buffers[note.buffer].place == "result":
            seen.setdefault(note.buffer, set()).add(note)
    shapes: dict[int, TensorType] = {}
    for buffer, notes in seen.items():
        (note, *more) = notes
        held = program.buffers[buffer].type
        if more or note.type is None or note.offset != 0 or note.type.dtype != held.dtype:
            continue
        if buffer in as_tensors:
            continue
        # Where a size may be zero, a span alone does not tell whether there are elements.
        positive = all(known_at_least(size, 1) for size in (*held.sizes, *note.type.sizes))
        fixed = is_static(held.sizes) and is_static(note.type.sizes)
        alike = positive or fixed or note.type.elements == held.elements
        if alike and span_bytes(note.type) == span_bytes(held):
            shapes[buffer] = note.type
    return shapes


def buffers_named(step: NativeStep | PythonStep) -> Iterator[int]:
    """The buffers that must be tensors for this step."""
    if isinstance(step, PythonStep):
        yield from step.results
        yield from references((step.arguments, tuple(step.keywords.values())))


def references(value: Any) -> Iterator[int]:
    """The buffers that operands name."""
    return (one.index for one in leaves(value) if isinstance(one, Ref))


def leaves(value: Any) -> Iterator[Any]:
    """What lies in nested sequences and dictionaries."""
    if isinstance(value, tuple | list):
        for one in value:
            yield from leaves(one)
    elif isinstance(value, dict):
        yield from leaves(tuple(value.values()))
    else:
        yield value
