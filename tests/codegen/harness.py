"""Graphs made by hand, compiled through every stage of the room, run through a small driver.

`Trace` records ATen ops on real tensors: what it returns is a graph with the types that eager has,
and eager's own results. `run` fills the table of buffers and calls the steps of a program, as the
runtime room does it, in a few lines of ctypes.
"""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.fx

from windfall.codegen import build, emit, lower, plan, schedule
from windfall.ir.dtype import TensorType
from windfall.ir.loop import Loops, Schedule
from windfall.ir.node import NodeInfo, set_info
from windfall.ir.spec import verify_graph, verify_loops, verify_schedule
from windfall.ir.stages import BufferNote, NativeStep, Program, PythonStep, Ref
from windfall.ir.symint import Expression, Size, evaluate

aten = torch.ops.aten


def type_of(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return TensorType.of(value)
    if isinstance(value, (list, tuple)):
        return tuple(type_of(each) for each in value)
    return None


class Trace:
    """A graph under construction, with the value of each node."""

    def __init__(self) -> None:
        self.graph = torch.fx.Graph()
        self.values: dict[torch.fx.Node, Any] = {}
        self.inputs: list[torch.Tensor] = []

    def input(self, tensor: torch.Tensor) -> torch.fx.Node:
        node = self.graph.placeholder(f"x{len(self.inputs)}")
        self.inputs.append(tensor)
        return self._note(node, tensor)

    def __call__(self, op: Any, *arguments: Any, **keywords: Any) -> torch.fx.Node:
        given = torch.fx.map_arg((arguments, keywords), lambda node: self.values[node])
        value = op(*given[0], **given[1])  # type: ignore[index]
        return self._note(self.graph.call_function(op, arguments, keywords), value)

    def item(self, node: torch.fx.Node, place: int) -> torch.fx.Node:
        """One result of an op that has several."""
        made = self.graph.call_function(operator.getitem, (node, place))
        return self._note(made, self.values[node][place])

    def _note(self, node: torch.fx.Node, value: Any) -> torch.fx.Node:
        self.values[node] = value
        return set_info(node, NodeInfo(type_of(value)))

    def returns(self, *nodes: torch.fx.Node | None) -> list[Any]:
        """End the graph; what eager answers."""
        set_info(self.graph.output(tuple(nodes)), NodeInfo(None))
        return [None if node is None else self.values[node] for node in nodes]


def stages(graph: torch.fx.Graph) -> tuple[Loops, Schedule, Program]:
    """Every stage of the room, each verified."""
    verify_graph(graph)
    loops = lower(graph)
    verify_loops(loops)
    kernels = schedule(loops)
    verify_schedule(kernels)
    return loops, kernels, build(emit(kernels, plan(kernels)))


def run(
    program: Program, inputs: Sequence[torch.Tensor], values: Mapping[str, int] | None = None
) -> list[Any]:
    """Run a program once; `values` are those of its symbols."""
    values = values or {}
    sizes = (ctypes.c_int64 * max(len(program.sizes), 1))()
    for place, size in enumerate(program.sizes):
        sizes[place] = evaluate(size, values)
    assert program.sizes[: len(program.symbols)] == program.symbols
    length = _number(program.arena_bytes, program, values)
    arena = torch.full((length + 64,), 0xA5, dtype=torch.uint8)  # poisoned
    start = -arena.data_ptr() % 64
    given = iter(inputs)
    notes = [_known(note, program, values) for note in program.buffers]
    tensors = [_tensor(note, given, arena, start) for note in notes]
    table = (ctypes.c_void_p * max(len(tensors), 1))()
    for index, tensor in enumerate(tensors):
        if tensor is not None:
            table[index] = tensor.data_ptr()
    for step in program.steps:
        if isinstance(step, PythonStep):
            _call_op(step, tensors, table, values)
        else:
            _call_native(program, step, table, sizes)
    results = [_known(note, program, values) for note in program.results]
    return [
        None if note.buffer is None else _seen(tensors[note.buffer], note.type, note.offset)
        for note in results
    ]


def _number(size: Size, program: Program, values: Mapping[str, int]) -> int:
    """A size that must stand in the program's table of sizes, if it varies."""
    assert isinstance(size, int) or size in program.sizes, f"{size} is not in the table"
    return evaluate(size, values)


def _known(note: Any, program: Program, values: Mapping[str, int]) -> Any:
    """A note with numbers in place of sizes that vary."""
    if note.type is None:
        return note
    sizes, strides = (
        tuple(_number(each, program, values) for each in part)
        for part in (note.type.sizes, note.type.strides)
    )
    type = replace(note.type, sizes=sizes, strides=strides)
    return replace(note, type=type, offset=_number(note.offset, program, values))


def _tensor(note: BufferNote, inputs: Any, arena: torch.Tensor, start: int) -> Any:
    if note.place == "input":
        return next(inputs)
    if note.place == "constant":
        return note.constant
    if note.place == "result":
        return torch.empty_strided(note.type.sizes, note.type.strides, dtype=note.type.dtype)
    if note.place == "tensor":
        return None
    place = (start + note.offset) // note.type.dtype.itemsize
    return torch.empty(0, dtype=note.type.dtype).set_(
        arena.untyped_storage(), place, note.type.sizes, note.type.strides
    )


def _call_op(step: PythonStep, tensors: list[Any], table: Any, values: Mapping[str, int]) -> None:
    def fill(value: Any) -> Any:
        if isinstance(value, Ref):
            return tensors[value.index]
        if isinstance(value, Expression):
            return evaluate(value, values)
        if isinstance(value, tuple):
            return [fill(each) for each in value]
        return value

    keywords = {name: fill(value) for name, value in step.keywords.items()}
    answer = step.target(*[fill(each) for each in step.arguments], **keywords)
    answers = answer if isinstance(answer, (list, tuple)) else (answer,)
    for index, value in zip(step.results, answers, strict=True):
        tensors[index] = value
        table[index] = value.data_ptr()


def _call_native(program: Program, step: NativeStep, table: Any, sizes: Any) -> None:
    kind = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
    code = kind(program.code.address(step.function))(table, sizes)
    if code:
        error, text = program.errors[code]
        raise error(text)


def _seen(tensor: torch.Tensor, type: Any, offset: int) -> torch.Tensor:
    return tensor.as_strided(type.sizes, type.strides, tensor.storage_offset() + offset)


def compiled(trace: Trace, *nodes: torch.fx.Node | None) -> tuple[Program, list[Any], list[Any]]:
    """The program of a trace, its results, and eager's."""
    expected = trace.returns(*nodes)
    _, _, program = stages(trace.graph)
    return program, run(program, trace.inputs), expected


def agree(trace: Trace, *nodes: torch.fx.Node | None, tolerance: float = 2e-5) -> Program:
    """Compile a trace, run it, and compare values, dtypes and strides with eager's."""
    program, results, expected = compiled(trace, *nodes)
    for result, wanted in zip(results, expected, strict=True):
        if wanted is None:
            assert result is None
            continue
        assert result.stride() == wanted.stride()
        torch.testing.assert_close(
            result, wanted, rtol=tolerance, atol=tolerance, equal_nan=True, check_stride=True
        )
    return program


def kinds(program: Program) -> list[str]:
    """How each kernel of a program is made."""
    return [note.kind for note in program.kernels]
