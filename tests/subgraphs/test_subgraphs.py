"""Graphs that read data on their way, in subgraphs: how they are partitioned, compiled and run."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
import torch.fx

import windfall
from windfall.errors import Specialise, Unsupported
from windfall.events import EventLog
from windfall.ir.dtype import TensorType
from windfall.ir.node import NodeInfo, set_info
from windfall.ir.symint import Expression, read_symbol
from windfall.subgraphs import (
    NativeSubgraph,
    PartitionedGraph,
    Shared,
    Subgraph,
    partition,
    reads_data,
)

FLOATS = TensorType.contiguous(torch.float32, (6, 4))
COUNT = read_symbol("u0", 0, 6)


def noted(node: torch.fx.Node, type: Any, reads: bool = False) -> torch.fx.Node:
    return set_info(node, NodeInfo(type, reads=reads))


def sliced() -> torch.fx.Graph:
    """`y = x * 2; z = y + 1; n = m.sum().item(); return (z[:n + 1] * n).relu(), n`."""
    graph = torch.fx.Graph()
    x = noted(graph.placeholder("x"), FLOATS)
    m = noted(graph.placeholder("m"), TensorType.contiguous(torch.bool, (6,)))
    y = noted(graph.call_function(torch.mul, (x, 2)), FLOATS)
    z = noted(graph.call_function(torch.add, (y, 1)), FLOATS)
    total = noted(graph.call_method("sum", (m,)), TensorType.contiguous(torch.int64, ()))
    n = noted(graph.call_method("item", (total,)), COUNT, reads=True)
    more = noted(graph.call_function(_plus, (n, 1)), COUNT + 1)
    part_type = TensorType.contiguous(torch.float32, (COUNT, 4))
    part = noted(graph.call_method("narrow", (z, 0, 0, more)), part_type)
    scaled = noted(graph.call_function(torch.mul, (part, n)), part_type)
    result = noted(graph.call_function(torch.relu, (scaled,)), part_type)
    noted(graph.output((result, n)), (part_type, COUNT))
    return graph


def _plus(left: int, right: int) -> int:
    return left + right


def expected(x: torch.Tensor, m: torch.Tensor) -> tuple[Any, ...]:
    n = m.sum().item()
    return ((x * 2 + 1).narrow(0, 0, n + 1) * n).relu(), n


class Recorded:
    """A compiler that notes what it is given and runs it op by op."""

    def __init__(self, refuse: Exception | None = None, needs: str = "") -> None:
        self.given: list[tuple[str, list[TensorType | Expression]]] = []
        self.log = EventLog()
        self.refuse = refuse
        self.needs = needs  # a symbol whose value is needed

    def __call__(self, graph: Any, inputs: Any, name: str, given: Any) -> NativeSubgraph:
        graph.lint()
        self.given.append((name, list(inputs)))
        if self.refuse is not None:
            raise self.refuse
        if self.needs in map(str, inputs):
            raise Specialise(frozenset((self.needs,)), "a test")
        module = torch.fx.GraphModule(torch.nn.Module(), graph)
        return NativeSubgraph(module.forward, ())

    def subgraphs(self, graph: torch.fx.Graph, limit: int = 8) -> Any:
        return PartitionedGraph(graph, "f", Shared(self, (), self.log, limit, strict=False)).call()


def mask(count: int) -> torch.Tensor:
    return torch.arange(6) < count


def test_division() -> None:
    graph = sliced()
    assert reads_data(graph)
    first, read, second = partition(graph)
    assert isinstance(first, Subgraph) and isinstance(second, Subgraph)
    assert isinstance(read, torch.fx.Node) and read.target == "item"
    assert [node.name for node in first.results] == ["add", "sum_1"]
    assert [node.name for node in second.numbers] == ["item"]
    assert [node.name for node in second.tensors] == ["add"]
    # Arithmetic of numbers is done where it is needed.
    assert all(node.target is not _plus for node in (*first.nodes, *second.nodes))


def test_a_number_is_a_size_of_the_subgraphs_behind_it() -> None:
    compiler = Recorded()
    call = compiler.subgraphs(sliced())
    x = torch.randn(6, 4)
    for count in (3, 2, 5, 4, 0, 1, 3, 0, 1):
        torch.testing.assert_close(call(x, mask(count)), expected(x, mask(count)))
    second = [inputs for name, inputs in compiler.given if name == "f subgraph 2"]
    # One for 2 and more, one for 0, one for 1.
    assert [len(one) for one in second] == [2, 1, 1]
    assert isinstance(second[0][0], Expression)
    assert len(compiler.given) == 4
    assert not compiler.log.snapshot("fallback")


def test_what_a_subgraph_needs_is_fixed() -> None:
    compiler = Recorded(needs="u0")
    call = compiler.subgraphs(sliced(), limit=2)
    x = torch.randn(6, 4)
    for count in (3, 2, 5, 3, 4, 1):
        torch.testing.assert_close(call(x, mask(count)), expected(x, mask(count)))
    assert all(name != "f subgraph 2" or len(inputs) < 3 for name, inputs in compiler.given)


def test_a_subgraph_is_not_compiled_without_end() -> None:
    compiler = Recorded(needs="u0")
    call = compiler.subgraphs(sliced(), limit=1)
    x = torch.randn(6, 4)
    for count in (2, 3, 4, 5) * 4:
        torch.testing.assert_close(call(x, mask(count)), expected(x, mask(count)))
    second = [inputs for name, inputs in compiler.given if name == "f subgraph 2"]
    assert len(second) <= 2 * 4
    assert any("too many" in one.facts["reason"] for one in compiler.log.snapshot("fallback"))


def test_a_subgraph_that_cannot_be_compiled_runs_op_by_op() -> None:
    compiler = Recorded(refuse=Unsupported(101, "nothing at all"))
    call = compiler.subgraphs(sliced())
    x = torch.randn(6, 4)
    for count in (3, 0, 5):
        torch.testing.assert_close(call(x, mask(count)), expected(x, mask(count)))
    assert len(compiler.given) == 2
    assert len(compiler.log.snapshot("fallback")) == 2


def test_what_the_program_raises_is_no_reason_to_give_up() -> None:
    compiler = Recorded()
    call = compiler.subgraphs(sliced())
    x = torch.randn(6, 4)
    try:
        call(x, mask(6))  # narrow to 7 rows
    except RuntimeError as error:
        assert "exceeds dimension size" in str(error)
    else:
        raise AssertionError("eager raises here")
    torch.testing.assert_close(call(x, mask(3)), expected(x, mask(3)))
    assert not compiler.log.snapshot("fallback")


def test_results_that_nobody_needs_go() -> None:
    def f(x, m):
        y = x * 2 + 1
        n = m.sum().item()
        z = y[:n] + 1
        k = z.sum().long().item()
        return torch.ones(3) * k

    compiled = windfall.compile(f, fullgraph=True)
    x = torch.randn(6, 4)
    torch.testing.assert_close(compiled(x, mask(3)), f(x, mask(3)))
    seen = weakref.ref(x)
    del x
    assert seen() is None


def _pieces(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Views of one tensor that are read, beside a fresh tensor that is written."""
    low, high = x.unbind(-1)
    kept = torch.zeros_like(low)
    mask = high > low
    kept[mask] = (high[mask] - low[mask]) * 2
    return kept + low * 3, kept * high


def _fresh_view(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """A view of the very tensor that is written."""
    y = x * 2
    row = y[:, 0]
    mask = x[:, 0] > 0
    part = y[mask] + 1
    y.mul_(3)
    return row + part.sum(), y - row[:, None]


def _argument(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """An argument is written, of which the program has a view."""
    row = x[:, 0]
    part = x[x > 0].sum()
    x.add_(part)
    return row * part, x * row[:, None]


@pytest.mark.parametrize("program", [_pieces, _fresh_view, _argument])
@pytest.mark.parametrize("fresh", [True, False], ids=["alone", "a view"])
def test_what_shares_memory_and_is_written(program: Any, fresh: bool) -> None:
    """Only where what is written shares memory with another tensor it matters."""
    compiled = windfall.compile(program)
    for rows in (3, 5, 4, 5, 7):
        base = torch.randn(rows, 4)
        x = base[:, :2].clone() if fresh else base[:, 1:3]
        mine = base.clone()
        y = x.clone() if fresh else mine[:, 1:3]
        for one, other in zip(compiled(x), program(y), strict=True):
            torch.testing.assert_close(one, other)
        torch.testing.assert_close(x, y)
    told = windfall.explanation(compiled)
    assert len(told.graphs) <= 2
    if program is _pieces:
        assert (told.breaks, told.fallbacks) == ([], [])
