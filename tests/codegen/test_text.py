"""The loop IR as text: text that is read again prints the same and runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.fx

from tests.codegen.harness import Trace, aten, run, stages
from windfall.codegen import build, emit, plan
from windfall.ir.parse import parse_schedule
from windfall.ir.spec import verify_schedule
from windfall.ir.text import schedule_text

R = torch.randn


def softmax(t: Trace) -> list[torch.fx.Node]:
    return [t(aten._softmax.default, t.input(R(20, 100)), -1, False)]


def column_sums(t: Trace) -> list[torch.fx.Node]:
    return [t(aten.sum.dim_IntList, t.input(R(300, 40)), [0])]


def embedding(t: Trace) -> list[torch.fx.Node]:
    table, index = t.input(R(10, 33)), t.input(torch.randint(0, 10, (4, 7)))
    return [t(aten.embedding.default, table, index)]


def joined(t: Trace) -> list[torch.fx.Node]:
    return [t(aten.cat.default, [t.input(R(3, 4)), t.input(R(3, 9))], 1)]


def product(t: Trace) -> list[torch.fx.Node]:
    y = t(aten.addmm.default, t.input(R(5)), t.input(R(4, 3)), t(aten.t.default, t.input(R(5, 3))))
    return [t(aten.relu.default, y)]


def total(t: Trace) -> list[torch.fx.Node]:
    return [t(aten.mean.default, t.input(R(1000, 1003)))]


def called(t: Trace) -> list[torch.fx.Node]:
    pair = t(aten.sort.default, t(aten.neg.default, t.input(R(6, 7))), -1, True)
    return [t.item(pair, 0), t.item(pair, 1)]


GRAPHS: dict[str, Callable[[Trace], list[torch.fx.Node]]] = {
    each.__name__: each
    for each in (softmax, column_sums, embedding, joined, product, total, called)
}


@pytest.mark.parametrize("name", GRAPHS)
def test_what_is_read_again_prints_the_same_and_runs(name: str) -> None:
    t = Trace()
    expected = t.returns(*GRAPHS[name](t))
    _, kernels, _ = stages(t.graph)
    text = schedule_text(kernels)
    again = parse_schedule(text)
    assert schedule_text(again) == text
    verify_schedule(again)
    if name != "called":  # which results of an op are tensors is not part of the text
        results = run(build(emit(again, plan(again))), t.inputs)
        torch.testing.assert_close(results, expected)


@pytest.mark.parametrize(
    "text",
    ["kernel k\n  for i<", "kernel k\n  x[0] = frobnicate(1.0:f32)", "call gemm", "what: is this"],
)
def test_wrong_text_is_refused(text: str) -> None:
    with pytest.raises((ValueError, KeyError, AttributeError)):
        parse_schedule(text)
