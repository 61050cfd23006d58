"""What the records of this room promise: origins, order of passes, cuts, variants, independence."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.fx
import torch.nn.functional as F

import windfall
from tests.autograd.harness import Compiled
from windfall.autograd import differentiate, interpreter, split
from windfall.autograd.components import components
from windfall.autograd.mincut import FlowGraph
from windfall.autograd.passes import PASSES, is_random, is_view
from windfall.autograd.variant import variant
from windfall.errors import InternalError, SourceLine
from windfall.ir.dtype import TensorType
from windfall.ir.node import KEY, NodeInfo, Region, info, set_info


def grad(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, requires_grad=True)


# ---------------------------------------------------------------------------------------- nodes


def two_lines() -> torch.fx.Graph:
    """gelu on one line, a product on another."""
    graph = torch.fx.Graph()
    x, w = graph.placeholder("x"), graph.placeholder("w")
    first = graph.call_function(F.gelu, (x,))
    set_info(first, NodeInfo(None, SourceLine("model.py", 3, "forward"), Region("a", "Gelu")))
    second = graph.call_function(torch.matmul, (first, w))
    set_info(second, NodeInfo(None, SourceLine("model.py", 4, "forward"), Region("b", "Linear")))
    graph.output((second,))
    return graph


def test_views_that_change_nothing_are_no_nodes():
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    whole = graph.call_method("transpose", (graph.call_function(torch.narrow, (x, 0, 0, 3)), 1, 1))
    set_info(whole, NodeInfo(None))
    graph.output((graph.call_function(torch.mul, (whole, 2)),))
    for node in graph.nodes:
        set_info(node, NodeInfo(None))
    joint = differentiate(graph, [TensorType.of(torch.ones(3, 4))])
    calls = [str(node.target) for node in joint.graph.nodes if node.op == "call_function"]
    assert calls == ["aten.mul.Tensor"]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.slice_scatter(torch.ones(3, 4), x, 0, 0, 3),
        lambda x: torch.transpose_copy(x, 1, 1),
    ],
)
def test_a_gradient_that_is_only_passed_on_lies_as_in_eager(function):
    x = grad(3, 4)
    eager, ours = (
        torch.autograd.grad(one(x).sum(), x)[0] for one in (function, windfall.compile(function))
    )
    assert torch.equal(ours, eager) and ours.stride() == eager.stride()


def test_every_node_is_typed_and_knows_its_line():
    types = [TensorType.of(grad(2, 3)), TensorType.of(grad(3, 4))]
    joint = differentiate(two_lines(), types)
    lines = {}
    for node in joint.graph.nodes:
        assert KEY in node.meta
        if node.op == "call_function":
            found = info(node)
            assert found.origin is not None and found.region is not None
            lines[str(node.target)] = (found.origin.line, str(found.region))
    assert lines["aten.gelu.default"] == (3, "a:Gelu")
    assert lines["aten.gelu_backward.default"] == (3, "a:Gelu")
    assert lines["aten.mm.default"] == (4, "b:Linear")


def test_graphs_hold_overloads_only_and_write_nothing():
    def run(x):
        h = x * 2
        h[0].add_(1)
        h.relu_()
        return h.split(1)

    compiled = Compiled(run, [grad(3, 4)])
    for node in compiled.joint.graph.nodes:
        if node.op == "call_function" and hasattr(node.target, "_schema"):
            assert not node.target._schema.is_mutable, node
    assert not any("split" in name for name in compiled.ops()), "pieces are single views"


def test_types_of_nodes_are_those_of_real_tensors():
    def run(x, w):
        y = F.layer_norm(F.conv2d(x, w), (6, 6))
        return F.softmax(y.flatten(2).transpose(1, 2), -1)

    inputs = [grad(2, 3, 8, 8), grad(4, 3, 3, 3)]
    compiled = Compiled(run, inputs)

    class Checked(torch.fx.Interpreter):
        def run_node(self, n):
            value = super().run_node(n)
            if isinstance(value, torch.Tensor) and n.op == "call_function":
                assert TensorType.of(value).without_grad() == info(n).type, n
            return value

    module = torch.fx.GraphModule(torch.nn.Module(), compiled.joint.graph)
    tangent = torch.randn(2, 36, 4)
    Checked(module).run(*[one.detach() for one in inputs], tangent)


# --------------------------------------------------------------------------------------- passes


def test_a_pass_stands_after_those_it_names():
    with pytest.raises(InternalError, match="remove_dead must run after"):
        PASSES.remove("share_equal")
    rows = [row.name for row in PASSES]
    assert rows.index("share_equal") < rows.index("remove_dead")


def test_equal_expressions_are_computed_once_but_random_ones_are_not():
    compiled = Compiled(lambda x: (x.exp() + 1) * (x.exp() + 1), [torch.randn(3)])
    assert compiled.ops().count("aten.exp.default") == 1
    compiled = Compiled(lambda x: x * torch.rand(3) + torch.rand(3), [torch.randn(3)])
    assert compiled.ops().count("aten.rand.default") == 2


def test_numbers_of_other_types_are_not_equal():
    compiled = Compiled(lambda x: (x + 1, x + 1.0), [torch.arange(3)])
    assert compiled.ops().count("aten.add.Tensor") == 2


def test_no_ops_and_turned_views_disappear():
    def run(x):
        return x.float().expand(3, 4).t().t().view(12).view(3, 4).detach().clone() * 1.0 + 2

    compiled = Compiled(run, [torch.randn(3, 4)])
    assert compiled.ops() == ["aten.add.Tensor"]


# ------------------------------------------------------------------------------------------ cut


def brute_force(edges: list[tuple[int, int, int]], count: int) -> int:
    best = 1 << 60
    for bits in itertools.product((0, 1), repeat=count - 2):
        side = (0, 1, *bits)  # vertex 0 is the source, 1 the sink
        best = min(best, sum(c for a, b, c in edges if side[a] == 0 and side[b] == 1))
    return best


@pytest.mark.parametrize("seed", range(30))
def test_cut_is_minimal(seed: int):
    r = random.Random(seed)
    count = r.randrange(3, 9)
    edges = [
        (a, b, r.randrange(1, 10))
        for a in range(count)
        for b in range(count)
        if a != b and r.random() < 0.4
    ]
    flow = FlowGraph()
    for _ in range(count):
        flow.vertex()
    for a, b, capacity in edges:
        flow.edge(a, b, capacity)
    behind = flow.sink_side(0, 1)
    assert 1 in behind and 0 not in behind
    found = sum(c for a, b, c in edges if a not in behind and b in behind)
    assert found == brute_force(edges, count)


def test_what_cannot_be_saved_is_an_internal_error():
    flow = FlowGraph()
    source, sink = flow.vertex(), flow.vertex()
    flow.edge(source, sink, 1 << 60)
    with pytest.raises(InternalError):
        flow.sink_side(source, sink)


# -------------------------------------------------------------------------------------- split


def transformer(x, g, b, w1, b1, w2, b2):
    h = F.layer_norm(x, (16,), g, b)
    return x + F.linear(F.dropout(F.gelu(F.linear(h, w1, b1)), 0.2), w2, b2)


def block() -> Compiled:
    inputs = [grad(2, 5, 16), grad(16), grad(16), grad(64, 16), grad(64), grad(16, 64), grad(16)]
    return Compiled(transformer, inputs)


def test_nothing_expensive_or_random_runs_twice():
    compiled = block()
    assert compiled.split.backward is not None
    forward, backward = compiled.split.forward, compiled.split.backward
    assert any(is_random(node) for node in forward.nodes)
    assert not any(is_random(node) for node in backward.nodes)
    assert compiled.ops(forward).count("aten.addmm.default") == 2
    assert "aten.addmm.default" not in compiled.ops(backward)


def test_views_are_not_saved():
    compiled = block()
    results = list(compiled.split.forward.nodes)[-1].args[0]
    assert not any(is_view(node) for node in results[1:])


def test_saved_memory_is_no_more_than_eagers():
    saved: list[torch.Tensor] = []
    compiled = block()
    inputs = [
        torch.randn(one.type.sizes, requires_grad=True) for one in compiled.split.signature.inputs
    ]

    def pack(tensor):
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = transformer(*inputs)
    known = {one.data_ptr() for one in (*inputs, output)}
    eager = {one.data_ptr(): one.untyped_storage().nbytes() for one in saved}
    eager_bytes = sum(size for address, size in eager.items() if address not in known)
    ours = sum(one.elements * one.dtype.itemsize for one in compiled.split.saved)
    assert 0 < ours <= eager_bytes


def test_pointwise_chain_saves_its_input_alone():
    compiled = Compiled(lambda x: F.gelu(F.silu(x) * 2).tanh().exp() + x, [grad(100)])
    assert compiled.split.saved == ()
    assert compiled.split.saved_inputs == (0,)


def test_components():
    def run(x, y, w):
        h = x.exp()
        return h * w, h.sin(), y * w

    found = components(Compiled(run, [grad(3), grad(3), grad(3)]).split)
    assert [one.tangents for one in found] == [(0, 1), (2,)]
    assert [one.inputs for one in found] == [(0, 2), (1, 2)]


def test_variant_drops_what_absent_tangents_would_need():
    def run(x, w):
        h = x @ w
        return h.exp(), h @ w

    compiled = Compiled(run, [grad(3, 3), grad(3, 3)])
    whole = variant(compiled.split, [(3, 1), (3, 1)])
    part = variant(compiled.split, [(3, 1), None])
    assert compiled.ops(part.graph).count("aten.mm.default") == 2
    assert compiled.ops(whole.graph).count("aten.mm.default") == 4
    assert len([n for n in part.graph.nodes if n.op == "placeholder" and "tangent" in n.name]) == 1


def test_gradient_that_is_the_tangent_is_not_computed():
    compiled = Compiled(lambda x, y: x + y, [grad(3), grad(3)])
    made = variant(compiled.split, [(1,)])
    assert made.gradients == (~0, ~0, None)  # of the inputs; the result gets none
    assert compiled.ops(made.graph) == []


def test_interpreter_runs_a_graph_without_history():
    compiled = Compiled(lambda x: (x * 2).t(), [grad(2, 3)])
    (result,) = interpreter(split(compiled.joint).forward)(grad(2, 3))
    assert not result.requires_grad and not result._is_view()


# --------------------------------------------------------------------------------- independence

TRAINING_STEP = """
import sys, torch, torch.fx, torch.nn.functional as F
from windfall.autograd import differentiate, split
from windfall.ir.dtype import TensorType

graph = torch.fx.Graph()
x, w1, b1, w2, b2, target = (graph.placeholder(n) for n in "x w1 b1 w2 b2 target".split())
h = graph.call_function(F.relu, (graph.call_function(F.linear, (x, w1, b1)),))
y = graph.call_function(F.linear, (h, w2, b2))
graph.output((graph.call_function(F.cross_entropy, (y, target)),))
P = lambda *s: TensorType.of(torch.empty(*s, requires_grad=True))
types = [TensorType.of(torch.empty(4, 8)), P(16, 8), P(16), P(3, 16), P(3)]
joint = differentiate(graph, [*types, TensorType.of(torch.zeros(4, dtype=torch.int64))])
halves = split(joint)
assert halves.backward is not None
print([name for name in ("torch._dynamo", "torch._inductor") if name in sys.modules])
"""


def test_a_training_step_loads_neither_dynamo_nor_inductor():
    found = subprocess.run(
        [sys.executable, "-c", TRAINING_STEP],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.strip() == "[]"
