"""The text of a graph, read again, prints the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.fx

import windfall
from tests.ir.records import model_records, records
from tests.programs.case import cases_of
from tests.programs.compare import compare
from tests.programs.subjects import Windfall
from tests.test_acceptance import CASES, tensors
from windfall.ir.custom import CustomGradient
from windfall.ir.graph_parse import parse_graph
from windfall.ir.graph_text import print_graph
from windfall.ir.stages import Capture, Joint, Split


def graphs(record: Any) -> list[torch.fx.Graph]:
    """The graphs that stand in a record."""
    match record:
        case torch.fx.Graph():
            return [record]
        case Capture() | Joint():
            return [record.graph]
        case Split():
            return [one for one in (record.forward, record.backward) if one is not None]
    return []


def assert_read_again(graph: torch.fx.Graph) -> None:
    text = print_graph(graph)
    custom = {
        f"windfall.ir.custom.{node.target.__name__}": node.target
        for node in graph.nodes
        if isinstance(node.target, CustomGradient)
    }
    again = parse_graph(text, custom)
    assert print_graph(again) == text
    for one, other in zip(graph.nodes, again.nodes, strict=True):
        assert one.op == other.op
        assert one.op == "placeholder" or one.target == other.target  # by name there


@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("capsys")
def test_graphs_of_every_stage(name: str) -> None:
    function, shapes, extra = CASES[name]
    found = [
        graph
        for _, record, _ in records(function, *tensors(*shapes, grad=True), *extra)
        for graph in graphs(record)
    ]
    assert len(found) >= 4
    for graph in found:
        assert_read_again(graph)


@pytest.mark.parametrize("name", ["tiny bert", "tiny gpt2", "tiny resnet"])
def test_graphs_of_models(name: str) -> None:
    found = [graph for _, record, _ in model_records(name) for graph in graphs(record)]
    assert len(found) > 6
    for graph in found:
        assert_read_again(graph)


def test_graphs_of_programs() -> None:
    """Those of the checklist of the front end: methods, constants, sizes that vary, reads."""
    count = 0
    for case in cases_of("rows")[::7]:
        subject = Windfall("eager")
        compare(case, subject)
        for one in subject.explanation.graphs:
            assert_read_again(one.graph)
            count += 1
    assert count > 30


def test_sizes_that_vary() -> None:
    @torch.no_grad()
    def rows(x: torch.Tensor) -> torch.Tensor:
        return x.reshape(x.shape[0] * 2, -1) + x.shape[0] // 3

    compiled: Any = windfall.compile(rows, dynamic=True)
    compiled(torch.ones(7, 4))
    (graph,) = [one.graph for one in windfall.explanation(compiled).graphs]
    assert "s0" in print_graph(graph)
    assert_read_again(graph)


@pytest.mark.parametrize(
    "line",
    ["x: f99[2] = .relu(y)", "x: f32[2] = nowhere.at.all(y)", "x ! y", "x: f32[2] = .relu(z!)"],
)
def test_what_cannot_be_read_names_its_line(line: str) -> None:
    with pytest.raises(ValueError, match=line.split()[0]):
        parse_graph(f"graph(y: f32[2])\n  {line}\n  return (x,)")
