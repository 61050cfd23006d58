"""Hand-written programs and segments for the tests of this room: what codegen and the front end
would make, small enough to be read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx

from windfall import jit, torch_abi
from windfall.ir.dtype import TensorType
from windfall.ir.guard import AMBIENT, AmbientIs, Guard, TensorIs
from windfall.ir.source import Slot, Source
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


def add_one(*sizes: int) -> Program:
    """x + 1 of contiguous floats."""
    type = TensorType.contiguous(torch.float32, sizes)
    code = jit.load(ADD_ONE.replace("COUNT", str(type.elements)))
    return Program(
        code=code,
        steps=(NativeStep("add_one"),),
        buffers=(BufferNote("x", type, "input"), BufferNote("y", type, "result")),
        arena_bytes=0,
        inputs=(type,),
        results=(ResultNote(1, type),),
    )


def tensor_guard(source: Source, tensor: torch.Tensor) -> Guard:
    """What the front end guards of a tensor that it saw."""
    check = TensorIs(TensorType.of(tensor), type(tensor), torch_abi.dispatch_keys(tensor))
    return Guard(source, check, "an input of the graph")


def ambient_guard() -> Guard:
    """The thread's state now."""
    return Guard(AMBIENT, AmbientIs(**torch_abi.ambient()._asdict()), "ops depend on it")


def segment(
    guards: Sequence[Guard],
    inputs: Sequence[tuple[Source, torch.Tensor]],
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
            GraphInput(f"input_{i}", where, TensorType.of(value))
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


def called(function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """The results of two calls: the first one fills caches, the second finds them."""
    return [function(*arguments), function(*arguments)]
