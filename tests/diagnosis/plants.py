"""Miscompilations that are planted from outside: each is a row, with what bisect must answer."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import torch

from windfall import autograd, frontend
from windfall.autograd import inverse
from windfall.codegen import passes as codegen_passes
from windfall.codegen import scalar_code, vecmath
from windfall.ir.guard import Equals
from windfall.ir.loop import Loops
from windfall.ir.passes import Row, Table
from windfall.ir.stages import Joint
from windfall.ops import registry

aten = torch.ops.aten
Plant = Callable[[ExitStack], None]


@dataclass(frozen=True)
class Planted:
    """What is planted, the operation of the program that meets it, and what is to be found."""

    name: str
    plant: Plant
    operation: Callable[..., Any]  # of a matrix
    stage: str
    part: str = ""
    told: str = "differs"

    @contextmanager
    def entered(self) -> Iterator[None]:
        with ExitStack() as stack:
            self.plant(stack)
            yield


def rule(name: str, lower: Callable[..., Any]) -> Plant:
    """Another lowering rule of an ATen op."""

    def plant(stack: ExitStack) -> None:
        record = registry._OPS[name]
        stack.enter_context(mock.patch.dict(registry._OPS, {name: replace(record, lower=lower)}))
        registry._BY_TARGET.clear()
        stack.callback(registry._BY_TARGET.clear)

    return plant


def as_other(name: str, other: str) -> Plant:
    """The rule of another op."""
    return lambda stack: rule(name, registry._OPS[other].lower)(stack)


def on_rows(name: str, change: Callable[[tuple[Any, ...]], tuple[Any, ...]]) -> Plant:
    """The rule of the op itself, given other arguments."""

    def plant(stack: ExitStack) -> None:
        lower = registry._OPS[name].lower
        assert lower is not None
        rule(name, lambda builder, *args, **kw: lower(builder, *change(args), **kw))(stack)

    return plant


def row(table: Table[Any], made: Row[Any]) -> Plant:
    def plant(stack: ExitStack) -> None:
        table.add(made)
        stack.callback(table.remove, made.name)

    return plant


def patched(table: dict[Any, Any], **rows: Any) -> Plant:
    return lambda stack: stack.enter_context(mock.patch.dict(table, rows)) and None


def exchanged(table: dict[Any, Any], name: str, other: str) -> Plant:
    return lambda stack: patched(table, **{name: table[other]})(stack)


def targets(graph: torch.fx.Graph, old: Any, new: Any) -> None:
    for node in graph.nodes:
        if node.target is old:
            node.target = new


def in_joint(joint: Joint) -> Joint:
    targets(joint.graph, aten.cos.default, aten.sin.default)
    return joint


def swapped_operands(joint: Joint) -> Joint:
    for node in joint.graph.nodes:
        if node.target is aten.sub.Tensor:
            node.args = (*reversed(node.args[:2]), *node.args[2:])
    return joint


def in_graph(graph: torch.fx.Graph) -> torch.fx.Graph:
    targets(graph, aten.exp.default, aten.tanh.default)
    return graph


def in_loops(loops: Loops) -> Loops:
    items = tuple(
        replace(one, value=replace(one.value, attribute=("min", *one.value.attribute[1:])))
        if getattr(getattr(one, "value", None), "op", "") == "reduce"
        and one.value.attribute[0] == "max"
        else one
        for one in loops.items
    )
    return replace(loops, items=items)


def dropped_guards(stack: ExitStack) -> None:
    real = frontend.capture

    def capture(*args: Any) -> Any:
        made = real(*args)
        kept = tuple(one for one in made.guards if not isinstance(one.check, Equals))
        return replace(made, guards=kept)

    stack.enter_context(mock.patch.object(frontend, "capture", capture))


def captured_otherwise(stack: ExitStack) -> None:
    real = frontend.capture

    def capture(*args: Any) -> Any:
        made = real(*args)
        for node in made.graph.nodes:
            if node.op == "call_method" and node.target == "atan":
                node.target = "tanh"
        return made

    stack.enter_context(mock.patch.object(frontend, "capture", capture))


def aborts(*args: Any, **kwargs: Any) -> Any:
    os.kill(os.getpid(), signal.SIGABRT)


def raises(*args: Any, **kwargs: Any) -> Any:
    raise ZeroDivisionError("planted")


def lowering(name: str, other: str, operation: Callable[..., Any]) -> Planted:
    made = as_other(name, other)
    return Planted(f"{name} is lowered as {other}", made, operation, "lowering", name)


def written(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y.permute(1, 0)[0].add_(3)
    return y


PLANTS: list[Planted] = [
    # Lowering rules of pointwise ops.
    lowering("aten.sin.default", "aten.cos.default", lambda x: x.sin()),
    lowering("aten.cos.default", "aten.sin.default", lambda x: x.cos()),
    lowering("aten.exp.default", "aten.expm1.default", lambda x: x.exp()),
    lowering("aten.tanh.default", "aten.sigmoid.default", lambda x: x.tanh()),
    lowering("aten.sigmoid.default", "aten.tanh.default", lambda x: x.sigmoid()),
    lowering("aten.abs.default", "aten.neg.default", lambda x: x.abs()),
    lowering("aten.neg.default", "aten.abs.default", lambda x: -x),
    lowering("aten.floor.default", "aten.ceil.default", lambda x: x.floor()),
    lowering("aten.ceil.default", "aten.floor.default", lambda x: x.ceil()),
    lowering("aten.sqrt.default", "aten.rsqrt.default", lambda x: (x * x + 1).sqrt()),
    lowering("aten.reciprocal.default", "aten.neg.default", lambda x: (x * x + 1).reciprocal()),
    lowering("aten.erf.default", "aten.tanh.default", lambda x: x.erf()),
    lowering("aten.log1p.default", "aten.tanh.default", lambda x: (x * x).log1p()),
    lowering("aten.relu.default", "aten.abs.default", lambda x: x.relu()),
    lowering("aten.mul.Tensor", "aten.add.Tensor", lambda x: x * x.t()),
    lowering("aten.maximum.default", "aten.minimum.default", lambda x: torch.maximum(x, x.t())),
    lowering("aten.minimum.default", "aten.maximum.default", lambda x: torch.minimum(x, x.t())),
    lowering("aten.lt.Scalar", "aten.gt.Scalar", lambda x: (x < 0.5).float() * x),
    # Of reductions and of what gradients are made of.
    lowering("aten.amax.default", "aten.amin.default", lambda x: x.amax(1)),
    lowering("aten.amin.default", "aten.amax.default", lambda x: x.amin(0)),
    lowering("aten.tanh_backward.default", "aten.sigmoid_backward.default", lambda x: x.tanh()),
    lowering("aten.sigmoid_backward.default", "aten.tanh_backward.default", lambda x: x.sigmoid()),
    Planted(
        "where takes the other side",
        on_rows("aten.where.self", lambda args: (args[0], args[2], args[1])),
        lambda x: torch.where(x > 0, x, x.exp()),
        "lowering",
        "aten.where.self",
    ),
    Planted(
        "sub takes its operands the other way round",
        on_rows("aten.sub.Tensor", lambda args: (args[1], args[0], *args[2:])),
        lambda x: x - x.t(),
        "lowering",
        "aten.sub.Tensor",
    ),
    # Code of one scalar operation, right in the loop IR.
    Planted(
        "code of maximum",
        exchanged(scalar_code.TABLE, "maximum", "minimum"),
        lambda x: torch.maximum(x, x.t()),
        "codegen",
    ),
    Planted(
        "code of sub", exchanged(scalar_code.TABLE, "sub", "add"), lambda x: x - x.t(), "codegen"
    ),
    Planted("code of erf", exchanged(vecmath.INLINE, "erf", "tanh"), lambda x: x.erf(), "codegen"),
    Planted(
        "code of log1p",
        exchanged(vecmath.INLINE, "log1p", "expm1"),
        lambda x: (x * x).log1p(),
        "codegen",
    ),
    Planted(
        "partial sums are multiplied",
        patched(scalar_code.COMBINE, max="minimum"),
        lambda x: x.repeat(1, 20).amax(1),
        "codegen",
    ),
    # Passes.
    Planted(
        "a pass of the joint graph",
        row(autograd.PASSES, Row("planted_joint", in_joint)),
        lambda x: x.cos(),
        "autograd",
        "planted_joint",
    ),
    Planted(
        "a pass that swaps operands",
        row(autograd.PASSES, Row("planted_swap", swapped_operands)),
        lambda x: x - x.t(),
        "autograd",
        "planted_swap",
    ),
    Planted(
        "a pass of the arranged graph",
        row(codegen_passes.GRAPH_PASSES, Row("planted_graph", in_graph)),
        lambda x: x.exp(),
        "passes",
        "planted_graph",
    ),
    Planted(
        "a pass over loops",
        row(codegen_passes.LOOP_PASSES, Row("planted_loops", in_loops)),
        lambda x: x.amax(0),
        "passes",
        "planted_loops",
    ),
    # Writes through views.
    Planted(
        "a write through a view is lost",
        patched(inverse.RULES, permute=lambda emitter, place, base, new: base),
        written,
        "autograd",
    ),
    # The front end.
    Planted("another method is captured", captured_otherwise, lambda x: x.atan(), "capture"),
    # No answer at all.
    Planted(
        "a rule kills the process",
        rule("aten.asinh.default", aborts),
        lambda x: x.asinh(),
        "",
        told="died of SIGABRT",
    ),
    Planted(
        "a rule raises",
        rule("aten.atan.default", raises),
        lambda x: x.atan(),
        "",
        told="raises",
    ),
]
