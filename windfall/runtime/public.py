"""A program driven from Python, through public API only: for programs with Python steps, and for
where native code cannot be.

Enters: a `Program`. Leaves: a callable from the values of its symbols and its input tensors to a
tuple of results.

Invariant: the same results as the native way, objects and aliasing included. Any number of threads
may call; a call inside a call takes another arena. Only buffers that a Python step names become
tensors; machine code needs no more than their addresses.
"""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from windfall.errors import GraphFailed, InternalError
from windfall.ir.generators import given
from windfall.ir.stages import BufferNote, NativeStep, Program, PythonStep, Ref, ResultNote
from windfall.ir.symint import Expression, Size
from windfall.ops.registry import may_keep
from windfall.runtime.memory import MEMORY
from windfall.runtime.results import (
    buffers_named,
    errors_of,
    is_static,
    is_whole,
    leaves,
    references,
    result_buffers,
    result_types,
    sole_shapes,
)
from windfall.runtime.size_code import check_words, evaluator

Places = Sequence[torch.Tensor | None]  # memory for each of `results.result_buffers`


class _SizeTable:
    """Every expression of a program in one table: first `Program.sizes`, then all others."""

    def __init__(self, program: Program) -> None:
        self.symbols = len(program.symbols)
        self.kernels = len(program.sizes)
        everything = dict.fromkeys((*program.sizes, *_expressions(program)))
        # A size that kernels are given twice stands twice.
        self._listed = (*program.sizes, *(one for one in everything if one not in program.sizes))
        self.places = {size: index for index, size in reversed([*enumerate(self._listed)])}
        self._evaluate = evaluator(program.symbols, self._listed)

    def table(self, values: tuple[Any, ...]) -> tuple[int, ...]:
        """The table for these values of the symbols."""
        found = self._evaluate(*map(operator.index, values))
        check_words(found)
        return found


def _expressions(program: Program) -> Iterator[Expression]:
    for note in program.buffers:
        yield from _within((note.type.sizes, note.type.strides, note.offset))
    for result in program.results:
        if result.type is not None:
            yield from _within((result.type.sizes, result.type.strides, result.offset))
    yield from _within(program.arena_bytes)
    for step in program.steps:
        if isinstance(step, PythonStep):
            yield from _within((step.arguments, dict(step.keywords)))


class _Run:
    """The buffers of one call: addresses for machine code, tensors where Python needs them; and
    what the sizes of this call are."""

    __slots__ = ("_places", "_table", "addresses", "arena", "sizes", "tensors")

    def __init__(self, buffers: int, sizes: _SizeTable, table: tuple[int, ...]) -> None:
        self.addresses = (ctypes.c_void_p * max(buffers, 1))()
        self.tensors: list[torch.Tensor | None] = [None] * buffers
        self.arena: torch.Tensor | None = None
        self.sizes = (ctypes.c_int64 * sizes.kernels)(*table[: sizes.kernels]) if table else None
        self._places = sizes.places
        self._table = table

    def set(self, index: int, tensor: torch.Tensor) -> None:
        """Let a buffer be this tensor."""
        self.tensors[index] = tensor
        self.addresses[index] = tensor.data_ptr()

    def size(self, size: Size) -> int:
        """What a size is in this call."""
        return size if isinstance(size, int) else self._table[self._places[size]]

    def shape(self, sizes: Sequence[Size]) -> tuple[int, ...]:
        """What several sizes are."""
        return tuple(sizes) if is_static(sizes) else tuple(map(self.size, sizes))

    def substitute(self, value: Any) -> Any:
        """`value` with tensors in place of references, and numbers in place of expressions."""
        if isinstance(value, Ref):
            return self.tensors[value.index]
        if isinstance(value, Expression):
            return self.size(value)
        if isinstance(value, tuple | list):
            return type(value)(self.substitute(one) for one in value)
        if isinstance(value, dict):
            return {key: self.substitute(one) for key, one in value.items()}
        return given(value)


Action = Callable[[_Run], None]


class PublicProgram:
    """A program as a Python function of its symbols and inputs."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._user = MEMORY.add_user() if program.arena_bytes != 0 else None
        self._errors = errors_of(program)
        self._sizes = _SizeTable(program)
        self._shapes = sole_shapes(program)
        self._inputs = self._indices("input")
        fresh = zip(result_buffers(program), result_types(program), strict=True)
        self._fresh = list(fresh)
        self._constants = [
            (index, note.constant)
            for index, note in enumerate(program.buffers)
            if note.place == "constant" and note.constant is not None
        ]
        self._arena = [(index, program.buffers[index].offset) for index in self._indices("arena")]
        named = {index for step in program.steps for index in buffers_named(step)}
        self._arena_tensors = [index for index in self._indices("arena") if index in named]
        self._steps = [self._action(step) for step in program.steps]
        self._notes = [(one, self._is_a_buffer(one)) for one in dict.fromkeys(program.results)]
        places = {note: place for place, (note, _) in enumerate(self._notes)}
        self._distinct = [places[one] for one in program.results]

    def _indices(self, place: str) -> list[int]:
        return [i for i, note in enumerate(self.program.buffers) if note.place == place]

    def __call__(self, *values: Any) -> tuple[Any, ...]:
        """Run the program."""
        return self.run(None, (None,) * len(self._fresh), *values)

    def run(self, arena: torch.Tensor | None, places: Places, *values: Any) -> tuple[Any, ...]:
        """Run it in an arena (None: one of the owner's), with memory for its results, where that is
        given."""
        program, sizes = self.program, self._sizes
        if len(values) != sizes.symbols + len(program.inputs):
            wanted = f"{sizes.symbols} sizes and {len(program.inputs)} tensors"
            raise TypeError(f"a compiled graph of {wanted} got {len(values)} inputs")
        table = sizes.table(values[: sizes.symbols])
        run = _Run(len(program.buffers), sizes, table)
        try:
            # A program is what is left of ops after autograd: nothing here is recorded again.
            with torch.no_grad():
                self._allocate(run, values[sizes.symbols :], arena, places)
                for step in self._steps:
                    step(run)
            return self._results(run)
        finally:
            if run.arena is not None and run.arena is not arena:
                MEMORY.give(run.arena)

    def _allocate(
        self,
        run: _Run,
        inputs: tuple[torch.Tensor, ...],
        arena: torch.Tensor | None,
        places: Places,
    ) -> None:
        try:
            needed = run.size(self.program.arena_bytes)
            run.arena = arena if arena is not None or not needed else MEMORY.take(needed)
            self._fill(run, inputs, places)
        except RuntimeError as error:  # no memory: eager names what it tried to get
            if not self.program.retry_in_eager:
                raise
            raise GraphFailed(f"{type(error).__name__}: {error}", error) from None

    def _fill(self, run: _Run, inputs: tuple[torch.Tensor, ...], places: Places) -> None:
        buffers = self.program.buffers
        for index, tensor in zip(self._inputs, inputs, strict=True):
            run.set(index, tensor)
        for index, constant in self._constants:
            run.set(index, constant)
        for (index, type), place in zip(self._fresh, places, strict=True):
            shape = run.shape(type.sizes), run.shape(type.strides)
            if place is None:
                place = torch.empty_strided(*shape, dtype=type.dtype, device=type.device)
            run.set(index, place)
        if run.arena is not None:
            start = run.arena.data_ptr()
            for index, offset in self._arena:
                run.addresses[index] = start + run.size(offset)
            for index in self._arena_tensors:
                run.tensors[index] = _arena_tensor(run, run.arena, buffers[index])

    def _action(self, step: NativeStep | PythonStep) -> Action:
        if isinstance(step, PythonStep):
            lent = self._lent(step)
            return lambda run: self._call_op(step, run, lent)
        # A plain C function: ctypes releases the GIL while it runs.
        function = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(
            self.program.code.address(step.function)
        )
        return lambda run: self._call_native(function, run)

    def _call_native(self, function: Callable[..., int], run: _Run) -> None:
        code = function(run.addresses, run.sizes)
        if code:
            unknown = (InternalError, "a compiled kernel failed with an unknown code")
            kind, text = self._errors.get(code, unknown)
            raise kind(text)

    def _lent(self, step: PythonStep) -> tuple[int, ...]:
        """Operands in the arena that the op, one of somebody else's, may keep: it gets copies."""
        if not may_keep(step.target):
            return ()
        named = dict.fromkeys(references((step.arguments, tuple(step.keywords.values()))))
        return tuple(one for one in named if self.program.buffers[one].place == "arena")

    def _call_op(self, step: PythonStep, run: _Run, lent: tuple[int, ...]) -> None:
        for index in lent:
            tensor = run.tensors[index]
            assert tensor is not None
            run.tensors[index] = tensor.clone()  # kernels go on with the arena's
        arguments = [run.substitute(one) for one in step.arguments]
        keywords = {name: run.substitute(one) for name, one in step.keywords.items()}
        try:
            answer = step.target(*arguments, **keywords)
        except Exception as error:
            if not self.program.retry_in_eager:
                raise
            raise GraphFailed(f"{type(error).__name__}: {error}", error) from None
        values = answer if isinstance(answer, tuple | list) else (answer,)
        if not step.results:  # an op that only checks answers None
            return
        for index, value in zip(step.results, values, strict=True):
            note = self.program.buffers[index]
            if note.place == "tensor":
                run.set(index, self._as_promised(value, note, run))
            else:
                target = run.tensors[index]
                assert target is not None
                target.copy_(value)

    def _as_promised(self, value: torch.Tensor, note: BufferNote, run: _Run) -> torch.Tensor:
        """What an op answered, laid out as kernels were told that it lies."""
        sizes, strides = run.shape(note.type.sizes), run.shape(note.type.strides)
        if tuple(value.shape) != sizes:
            raise InternalError(f"an op answered sizes {tuple(value.shape)}, not {sizes}")
        pairs = zip(sizes, value.stride(), strides, strict=True)
        fits = 0 in sizes or all(size == 1 or have == told for size, have, told in pairs)
        if fits and value.dtype is note.type.dtype:
            return value
        return torch.empty_strided(sizes, strides, dtype=note.type.dtype).copy_(value)

    def _results(self, run: _Run) -> tuple[Any, ...]:
        tensors = run.tensors
        made = [
            self._result(note, run) if buffer is None else tensors[buffer]
            for note, buffer in self._notes
        ]
        return tuple([made[place] for place in self._distinct])

    def _is_a_buffer(self, note: ResultNote) -> int | None:
        """The buffer that a result is, as it stands; None: something is to be done."""
        if note.buffer is None or note.type is None:
            return None
        held = self.program.buffers[note.buffer]
        whole = is_whole(note, held.type) or note.buffer in self._shapes
        return note.buffer if whole and held.place != "constant" else None

    def _result(self, note: ResultNote, run: _Run) -> torch.Tensor | None:
        if note.buffer is None or note.type is None:
            return None
        held = self.program.buffers[note.buffer]
        tensor = run.tensors[note.buffer]
        assert tensor is not None, f"result {note} has no tensor"
        if held.place == "constant":
            tensor = tensor.clone()  # the program's own constant must not leave
        if is_whole(note, held.type):
            return tensor
        start = int(tensor.storage_offset()) + run.size(note.offset)
        return tensor.as_strided(run.shape(note.type.sizes), run.shape(note.type.strides), start)


def _arena_tensor(run: _Run, arena: torch.Tensor, note: BufferNote) -> torch.Tensor:
    start = (int(arena.storage_offset()) + run.size(note.offset)) // note.type.dtype.itemsize
    return torch.empty(0, dtype=note.type.dtype).set_(
        arena.untyped_storage(), start, run.shape(note.type.sizes), run.shape(note.type.strides)
    )


def _within(value: Any) -> Iterator[Expression]:
    return (one for one in leaves(value) if isinstance(one, Expression))
