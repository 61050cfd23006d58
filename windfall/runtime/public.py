"""A program driven from Python, through public API only: for programs with Python steps, and for
where native code cannot be.

Enters: a `Program`. Leaves: a callable from input tensors to a tuple of results.

Invariant: the same results as the native way, objects and aliasing included. Any number of threads
may call; a call inside a call takes another arena. Only buffers that a Python step names become
tensors; machine code needs no more than their addresses.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import torch

from windfall.errors import InternalError
from windfall.ir.stages import BufferNote, NativeStep, Program, PythonStep, Ref, ResultNote
from windfall.runtime.results import is_whole, sole_shapes, static

ALIGNMENT = 64


class _Run:
    """The buffers of one call: addresses for machine code, tensors where Python needs them."""

    __slots__ = ("addresses", "arena", "tensors")

    def __init__(self, buffers: int, arena: torch.Tensor | None) -> None:
        self.addresses = (ctypes.c_void_p * max(buffers, 1))()
        self.tensors: list[torch.Tensor | None] = [None] * buffers
        self.arena = arena

    def set(self, index: int, tensor: torch.Tensor) -> None:
        """Let a buffer be this tensor."""
        self.tensors[index] = tensor
        self.addresses[index] = tensor.data_ptr()


Action = Callable[[_Run], None]


class PublicProgram:
    """A program as a Python function of its inputs."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._arenas: list[torch.Tensor] = []  # those not in use; list operations are atomic
        self._shapes = sole_shapes(program)
        self._inputs = self._indices("input")
        named = {index for step in program.steps for index in _buffers_named(step)}
        self._arena_tensors = [index for index in self._indices("arena") if index in named]
        self._steps = [self._action(step) for step in program.steps]

    def _indices(self, place: str) -> list[int]:
        return [i for i, note in enumerate(self.program.buffers) if note.place == place]

    def __call__(self, *inputs: torch.Tensor) -> tuple[Any, ...]:
        """Run the program."""
        program = self.program
        if len(inputs) != len(program.inputs):
            raise TypeError(f"a compiled graph of {len(program.inputs)} tensors got {len(inputs)}")
        arena = self._take_arena()
        try:
            run = _Run(len(program.buffers), arena)
            # A program is what is left of ops after autograd: nothing here is recorded again.
            with torch.no_grad():
                self._fill(run, inputs)
                for step in self._steps:
                    step(run)
            return self._results(run)
        finally:
            if arena is not None:
                self._arenas.append(arena)

    def _take_arena(self) -> torch.Tensor | None:
        if not self.program.arena_bytes:
            return None
        try:
            return self._arenas.pop()
        except IndexError:
            return torch.empty(self.program.arena_bytes + ALIGNMENT, dtype=torch.uint8)

    def _fill(self, run: _Run, inputs: tuple[torch.Tensor, ...]) -> None:
        buffers = self.program.buffers
        for index, tensor in zip(self._inputs, inputs, strict=True):
            run.set(index, tensor)
        for index in self._indices("constant"):
            constant = buffers[index].constant
            assert constant is not None
            run.set(index, constant)
        for index in self._indices("result"):
            type = self._shapes.get(index, buffers[index].type)
            fresh = torch.empty_strided(
                static(type.sizes), static(type.strides), dtype=type.dtype, device=type.device
            )
            run.set(index, fresh)
        if run.arena is not None:
            start = run.arena.data_ptr() + _first_aligned(run.arena)
            for index in self._indices("arena"):
                run.addresses[index] = start + buffers[index].offset
            for index in self._arena_tensors:
                run.tensors[index] = _arena_tensor(run.arena, buffers[index])

    def _action(self, step: NativeStep | PythonStep) -> Action:
        if isinstance(step, PythonStep):
            return lambda run: self._call_op(step, run)
        # A plain C function: ctypes releases the GIL while it runs.
        function = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(
            self.program.code.address(step.function)
        )
        return lambda run: self._call_native(function, run)

    def _call_native(self, function: Callable[..., int], run: _Run) -> None:
        code = function(run.addresses, None)
        if code:
            unknown = (InternalError, "a compiled kernel failed with an unknown code")
            kind, text = self.program.errors.get(code, unknown)
            raise kind(text)

    def _call_op(self, step: PythonStep, run: _Run) -> None:
        arguments = [_substitute(one, run.tensors) for one in step.arguments]
        keywords = {name: _substitute(one, run.tensors) for name, one in step.keywords.items()}
        answer = step.target(*arguments, **keywords)
        values = answer if isinstance(answer, tuple | list) else (answer,)
        for index, value in zip(step.results, values, strict=True):
            if self.program.buffers[index].place == "tensor":
                run.set(index, value)
            else:
                target = run.tensors[index]
                assert target is not None
                target.copy_(value)

    def _results(self, run: _Run) -> tuple[Any, ...]:
        made: dict[ResultNote, Any] = {}
        for note in self.program.results:
            if note not in made:
                made[note] = self._result(note, run)
        return tuple(made[note] for note in self.program.results)

    def _result(self, note: ResultNote, run: _Run) -> torch.Tensor | None:
        if note.buffer is None or note.type is None:
            return None
        held = self.program.buffers[note.buffer]
        tensor = run.tensors[note.buffer]
        assert tensor is not None, f"result {note} has no tensor"
        if held.place == "constant":
            tensor = tensor.clone()  # the program's own constant must not leave
        if is_whole(note, held.type) or note.buffer in self._shapes:
            return tensor
        start = int(tensor.storage_offset()) + note.offset
        return tensor.as_strided(static(note.type.sizes), static(note.type.strides), start)


def _first_aligned(arena: torch.Tensor) -> int:
    return -arena.data_ptr() % ALIGNMENT


def _arena_tensor(arena: torch.Tensor, note: BufferNote) -> torch.Tensor:
    start = (_first_aligned(arena) + note.offset) // note.type.dtype.itemsize
    return torch.empty(0, dtype=note.type.dtype).set_(
        arena.untyped_storage(), start, static(note.type.sizes), static(note.type.strides)
    )


def _buffers_named(step: NativeStep | PythonStep) -> Iterator[int]:
    """The buffers that must be tensors for this step."""
    if isinstance(step, PythonStep):
        yield from step.results
        yield from _references((step.arguments, tuple(step.keywords.values())))


def _references(value: Any) -> Iterator[int]:
    if isinstance(value, Ref):
        yield value.index
    elif isinstance(value, tuple | list):
        for one in value:
            yield from _references(one)
    elif isinstance(value, dict):
        yield from _references(tuple(value.values()))


def _substitute(value: Any, tensors: list[torch.Tensor | None]) -> Any:
    """`value` with tensors in place of references."""
    if isinstance(value, Ref):
        return tensors[value.index]
    if isinstance(value, tuple | list):
        return type(value)(_substitute(one, tensors) for one in value)
    if isinstance(value, dict):
        return {key: _substitute(one, tensors) for key, one in value.items()}
    return value
