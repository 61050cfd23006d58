"""The verifiers find what is broken, and say what."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.fx

import windfall
from tests.codegen.harness import Trace, aten
from tests.ir.records import records
from windfall.codegen import lower, schedule
from windfall.errors import InternalError
from windfall.ir.loop import Definition, Fold, Kernel, Loop, Schedule, Store, axis
from windfall.ir.node import NodeInfo, set_info
from windfall.ir.spec import VERIFIERS, verify, verify_graph, verify_loops, verify_schedule


def _graph() -> torch.fx.Graph:
    t = Trace()
    x = t.input(torch.randn(8, 16))
    t.returns(t(aten.sum.dim_IntList, t(aten.exp.default, x), [1]))
    return t.graph


def test_right_records_pass() -> None:
    graph = _graph()
    verify_graph(graph)
    loops = lower(graph)
    verify_loops(loops)
    verify_schedule(schedule(loops))


def test_graphs() -> None:
    graph = _graph()
    next(iter(graph.nodes)).meta.clear()
    with pytest.raises(InternalError, match="every node has a NodeInfo"):
        verify_graph(graph)
    t = Trace()
    x = t.input(torch.randn(3))
    t.returns(t(aten.add_.Tensor, x, 1))
    with pytest.raises(InternalError, match="nothing is written in place"):
        verify_graph(t.graph)
    t = Trace()
    x = t.input(torch.randn(3))
    node = set_info(t.graph.call_function(torch.exp, (x,)), NodeInfo(None))
    set_info(t.graph.output((node,)), NodeInfo(None))
    with pytest.raises(InternalError, match="calls are ATen overloads"):
        verify_graph(t.graph)
    t = Trace()
    pair = t(aten.max.dim, t.input(torch.randn(3, 3)), 0)
    t.returns(t.item(pair, 0))
    verify_graph(t.graph)
    assert any(node.target is operator.getitem for node in t.graph.nodes)


def test_loops() -> None:
    loops = lower(_graph())
    (item,) = loops.items
    assert isinstance(item, Definition)
    with pytest.raises(InternalError, match="inside its buffer"):
        verify_loops(replace(loops, items=(replace(item, offset=item.offset + 1),)))
    with pytest.raises(InternalError, match="every axis has a loop"):
        verify_loops(replace(loops, items=(replace(item, axes=()),)))
    with pytest.raises(InternalError, match="a result exists"):
        verify_loops(replace(loops, items=()))


Change = Callable[[Loop], Loop]
BREAKS: dict[str, Change] = {
    "every axis has a loop": lambda loop: replace(loop, axis=axis("q", 8)),
    "an axis has one loop": lambda loop: replace(loop, body=(replace(loop, parallel=False),)),
    "only the outermost loop is parallel": lambda loop: replace(
        loop, axis=axis("q", 2), body=(replace(loop, parallel=True),)
    ),
    "a fold ends before it is used": lambda loop: replace(
        loop, body=tuple(s for s in loop.body if isinstance(s, Store))
    ),
}


@pytest.mark.parametrize("rule", BREAKS)
def test_schedules(rule: str) -> None:
    right = schedule(lower(_graph()))
    (kernel,) = right.items
    assert isinstance(kernel, Kernel)
    (loop,) = kernel.body
    assert isinstance(loop, Loop)
    broken: Schedule = replace(right, items=(replace(kernel, body=(BREAKS[rule](loop),)),))
    with pytest.raises(InternalError, match=rule):
        verify_schedule(broken)


def test_a_fold_stands_inside_its_loops() -> None:
    right = schedule(lower(_graph()))
    (kernel,) = right.items
    assert isinstance(kernel, Kernel)
    folds: list[Fold] = []

    def collect(loop: Loop) -> None:
        for statement in loop.body:
            if isinstance(statement, Loop):
                collect(statement)
            elif isinstance(statement, Fold):
                folds.append(statement)

    assert isinstance(kernel.body[0], Loop)
    collect(kernel.body[0])
    outside = replace(kernel.body[0], body=(folds[0],))
    with pytest.raises(InternalError, match="inside the loops of its axes"):
        verify_schedule(replace(right, items=(replace(kernel, body=(outside,)),)))


def test_every_record_of_a_stage_has_a_verifier() -> None:
    """Of what `tests/ir/records.py` gathers, all but what a stage of ours leaves to others."""
    made = records(lambda x: (x.exp() * 2).sum(), torch.randn(3, 4, requires_grad=True))
    kinds = {type(one) for _, one, _ in made}
    assert {one.__name__ for one in kinds if one not in VERIFIERS} == {"Segment"}


def _records() -> dict[str, Any]:
    def score(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x @ y, -1).sum(0)

    made = records(score, torch.randn(3, 4, requires_grad=True), torch.randn(4, 4))
    return {type(one).__name__: one for _, one, _ in made}


WRONG: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "placeholders are the inputs": ("Capture", lambda one: replace(one, inputs=one.inputs[1:])),
    "the state of the thread": ("Capture", lambda one: replace(one, guards=one.guards[1:])),
    "a capture that goes on": ("Capture", lambda one: replace(one, resume="somewhere")),
    "takes primals and tangents": ("Joint", lambda one: replace(one, tangents_for=())),
    "gives writes, results and grad": ("Joint", lambda one: replace(one, gradients_for=())),
    "forward gives writes": ("Split", lambda one: replace(one, saved=(*one.saved, one.saved[0]))),
    "backward takes what is saved": ("Split", lambda one: replace(one, tangents_for=())),
    "backward gives the gradients": ("Split", lambda one: replace(one, gradients_for=())),
    "begins in the arena": ("MemoryPlan", lambda one: replace(one, offsets={"t": -64})),
    "input buffers are the inputs": ("LlvmModule", lambda one: replace(one, inputs=one.inputs[1:])),
    "function is in the text": ("LlvmModule", lambda one: replace(one, text="")),
    "a result is not in the arena": (
        "Program",
        lambda one: replace(
            one,
            buffers=tuple(
                replace(buffer, place="arena") if buffer.place == "result" else buffer
                for buffer in one.buffers
            ),
        ),
    ),
}


@pytest.mark.parametrize("rule", WRONG)
def test_each_rule_of_a_stage_is_demanded(rule: str) -> None:
    kind, broken = WRONG[rule]
    right = _records()[kind]
    verify(right)
    with pytest.raises(InternalError, match=rule):
        verify(broken(right))


def test_stages_are_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr("windfall.staging.verify", seen.append)
    windfall.compile(lambda x: x * 2 + 1, options={"verify": True})(torch.ones(3))
    assert {type(one).__name__ for one in seen} >= {"Capture", "Joint", "Split", "Loops", "Program"}
    seen.clear()
    windfall.compile(lambda x: x * 3 + 1, options={"verify": False})(torch.ones(3))
    assert seen == []
