"""Hand-written programs and segments for the tests of this room: what codegen and the front end
would make, small enough to be read."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
import torch.fx

from windfall import jit, torch_abi
from windfall.ir.dtype import TensorType
from windfall.ir.guard import AMBIENT, SYMBOLS, AmbientIs, Guard, Holds, TensorIs
from windfall.ir.relation import Relation
from windfall.ir.source import SizeOf, Slot, Source
from windfall.ir.stages import (
    BufferNote,
    Capture,
    Direct,
    GraphInput,
    NativeStep,
    Program,
    ResultNote,
    Segment,
)
from windfall.ir.symint import Expression, Size

ADD_ONE = """
define i32 @add_one(ptr %buffers, ptr %sizes) {
  %source = load ptr, ptr %buffers
  %second = getelementptr ptr, ptr %buffers, i64 1
  %target = load ptr, ptr %second
  br label %loop
loop:
  %index = phi i64 [ 0, %0 ], [ %next, %body ]
  %more = icmp ult i64 %index, COUNT
  br i1 %more, label %body, label %done
body:
  %from = getelementptr float, ptr %source, i64 %index
  %to = getelementptr float, ptr %target, i64 %index
  %value = load float, ptr %from
  %sum = fadd float %value, 1.0
  store float %sum, ptr %to
  %next = add i64 %index, 1
  br label %loop
done:
  ret i32 0
}
"""


# Compiled once for all tests; loading it again is cheap, and each program has code of its own.
compile_object = functools.cache(jit.compile_object)


def load(text: str) -> jit.NativeCode:
    """Machine code that is not shared."""
    return jit.link(compile_object(text))


def add_one(*sizes: int) -> Program:
    """x + 1 of contiguous floats."""
    type = TensorType.contiguous(torch.float32, sizes)
    code = load(ADD_ONE.replace("COUNT", str(type.elements)))
    return Program(
        code=code,
        steps=(NativeStep("add_one"),),
        buffers=(BufferNote("x", type, "input"), BufferNote("y", type, "result")),
        arena_bytes=0,
        inputs=(type,),
        results=(ResultNote(1, type),),
    )


def tensor_guard(source: Source, tensor: torch.Tensor, seen: TensorType | None = None) -> Guard:
    """What the front end guards of a tensor that it saw, and took to be `seen`."""
    held = TensorType.of(tensor) if seen is None else seen
    check = TensorIs(held, type(tensor), torch_abi.dispatch_keys(tensor))
    return Guard(source, check, "an input of the graph")


def relation_guard(operation: str, left: Size, right: Size) -> Guard:
    """What a graph relied on."""
    return Guard(SYMBOLS, Holds(Relation(operation, left, right)), "the graph asked")


def ambient_guard() -> Guard:
    """The thread's state now."""
    return Guard(AMBIENT, AmbientIs(**torch_abi.ambient()._asdict()), "ops depend on it")


def segment(
    guards: Sequence[Guard],
    inputs: Sequence[tuple[Source, torch.Tensor | TensorType | Expression]],
    *,
    slots: Sequence[str] = ("x",),
    direct: Direct | None = None,
    source: str = "def f(x):\n    return graph(x)[0]\n",
    namespace: dict[str, Any] | None = None,
) -> Segment:
    """A segment named `f` whose graph is called `graph`."""
    capture = Capture(
        name="f",
        graph=torch.fx.Graph(),
        inputs=tuple(
            GraphInput(
                f"input_{i}",
                where,
                TensorType.of(value) if isinstance(value, torch.Tensor) else value,
            )
            for i, (where, value) in enumerate(inputs)
        ),
        guards=tuple(guards),
        effects=(),
        outputs="",
        resume=None,
    )
    return Segment("f", source, tuple(slots), "graph", namespace or {}, capture, direct)


def add_one_segment(example: torch.Tensor, *, is_direct: bool = True) -> Segment:
    """f(x) = x + 1, guarded for tensors like `example` in the present state of the thread."""
    slot = Slot(0, "x")
    direct = Direct((0,), "leaf") if is_direct else None
    guards = [ambient_guard(), tensor_guard(slot, example)]
    return segment(guards, [(slot, example)], direct=direct)


def varying_add_one(symbol: Expression, *more: int) -> Program:
    """x + 1 of contiguous floats, of `symbol` rows."""
    type = f32(symbol, *more)
    count = type.elements
    assert isinstance(count, Expression)
    text = ADD_ONE.replace("COUNT", "%count").replace(
        "  br label %loop\nloop:",
        "  %at = getelementptr i64, ptr %sizes, i64 1\n  %count = load i64, ptr %at\n"
        "  br label %loop\nloop:",
        1,
    )
    return Program(
        code=load(text),
        steps=(NativeStep("add_one"),),
        buffers=(BufferNote("x", type, "input"), BufferNote("y", type, "result")),
        arena_bytes=0,
        inputs=(type,),
        results=(ResultNote(1, type),),
        symbols=(symbol,),
        sizes=(symbol, count),
    )


def varying_add_one_segment(
    symbol: Expression, example: torch.Tensor, *, is_direct: bool = True
) -> Segment:
    """f(x) = x + 1 of any number of rows."""
    slot = Slot(0, "x")
    direct = Direct((0,), "leaf") if is_direct else None
    seen = f32(symbol, *example.shape[1:])
    guards = [ambient_guard(), tensor_guard(slot, example, seen)]
    return segment(
        guards,
        [(SizeOf(slot, 0), symbol), (slot, seen)],
        direct=direct,
        source="def f(x):\n    return graph(x.size(0), x)[0]\n",
    )


def program(
    text: str,
    buffers: Sequence[BufferNote],
    results: Sequence[ResultNote],
    *,
    step: str | None = "step",
    **fields: Any,
) -> Program:
    """A program with one native step, `step`."""
    return Program(
        code=load(text),
        steps=fields.pop("steps", (NativeStep(step),) if step else ()),
        buffers=tuple(buffers),
        arena_bytes=fields.pop("arena_bytes", 0),
        inputs=tuple(note.type for note in buffers if note.place == "input"),
        results=tuple(results),
        **fields,
    )


def f32(*sizes: Size) -> TensorType:
    """A contiguous type of floats."""
    return TensorType.contiguous(torch.float32, sizes)


def elementwise(
    count: int | None, moves: Sequence[tuple[int, int, str]], name: str = "step", place: int = 0
) -> str:
    """LLVM text: for each (source, target, op), element by element, `target = source op`. Without a
    count, it is the number at `place` in the table of sizes."""
    body = ""
    if count is None:
        body = f"""
  %count.at = getelementptr i64, ptr %sizes, i64 {place}
  %count = load i64, ptr %count.at"""
    limit = "%count" if count is None else count
    for number, (source, target, op) in enumerate(moves):
        body += f"""
  br label %pre{number}
pre{number}:
  %s{number}.at = getelementptr ptr, ptr %buffers, i64 {source}
  %s{number} = load ptr, ptr %s{number}.at
  %t{number}.at = getelementptr ptr, ptr %buffers, i64 {target}
  %t{number} = load ptr, ptr %t{number}.at
  br label %loop{number}
loop{number}:
  %i{number} = phi i64 [ 0, %pre{number} ], [ %n{number}, %body{number} ]
  %m{number} = icmp ult i64 %i{number}, {limit}
  br i1 %m{number}, label %body{number}, label %done{number}
body{number}:
  %f{number} = getelementptr float, ptr %s{number}, i64 %i{number}
  %g{number} = getelementptr float, ptr %t{number}, i64 %i{number}
  %v{number} = load float, ptr %f{number}
  %w{number} = {op} float %v{number}, 2.0
  store float %w{number}, ptr %g{number}
  %n{number} = add i64 %i{number}, 1
  br label %loop{number}
done{number}:"""
    return f"define i32 @{name}(ptr %buffers, ptr %sizes) {{\n{body}\n  ret i32 0\n}}\n"
