"""Equal blocks are recorded a few times and copied: the graph is what recording all makes."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
import torch.fx
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

import windfall
from windfall.autograd import differentiate, split
from windfall.autograd import joint as joint_module
from windfall.autograd.repeats import shorten
from windfall.autograd.unroll import unrolled
from windfall.errors import Unsupported
from windfall.ir.dtype import TensorType
from windfall.ir.graph_text import print_graph
from windfall.ir.stages import Joint

Tensor = torch.Tensor
WIDTH = 6


@dataclass
class Block:
    """What a step of a block may use: its own weights, and what all blocks share."""

    weight: Any
    bias: Any
    mean: Any
    variance: Any
    shared: Any
    mask: Any


State = dict[str, Any]
Step = Callable[[State, Block], None]


def _linear(s: State, b: Block) -> None:
    s["x"] = F.linear(s["x"], b.weight, b.bias)


def _relu_in_place(s: State, b: Block) -> None:
    s["x"] = s["x"].relu_()


def _residual(s: State, b: Block) -> None:
    s["x"] = s["x"] + torch.tanh(s["x"] @ b.weight)


def _carry_two(s: State, b: Block) -> None:
    s["x"], s["y"] = s["y"] * b.bias, s["x"] + s["y"]


def _dropout(s: State, b: Block) -> None:
    s["x"] = F.dropout(s["x"], 0.5, True)


def _layer_norm(s: State, b: Block) -> None:
    s["x"] = F.layer_norm(s["x"], (WIDTH,), b.bias)


def _batch_norm(s: State, b: Block) -> None:
    s["x"] = F.batch_norm(s["x"], b.mean, b.variance, b.bias, None, True)


def _shared_weight(s: State, b: Block) -> None:
    s["x"] = (s["x"] @ b.shared).sin()


def _masked(s: State, b: Block) -> None:
    s["x"] = torch.where(b.mask.expand(WIDTH, WIDTH) > 0, s["x"], 0.5)


def _transposed(s: State, b: Block) -> None:
    s["x"] = s["x"].t()


def _write_to_row(s: State, b: Block) -> None:
    s["x"] = s["x"] * 1.5
    s["x"].select(0, 1).mul_(b.bias)


def _accumulate(s: State, b: Block) -> None:
    s["total"].add_(s["x"].sum())


def _detached_weight(s: State, b: Block) -> None:
    s["x"] = s["x"] * b.weight.detach().exp()


def _split_and_join(s: State, b: Block) -> None:
    parts = s["x"].chunk(2, 1)
    s["x"] = torch.cat([parts[1], parts[0]], 1)


def _attend(s: State, b: Block) -> None:
    x = s["x"].view(1, WIDTH, 2, 3).transpose(1, 2)
    s["x"] = F.scaled_dot_product_attention(x, x, x).transpose(1, 2).reshape(WIDTH, WIDTH)


def _statistics_again(s: State, b: Block) -> None:
    b.mean.add_(1)
    s["x"] = s["x"] + b.mean


def _noise(s: State, b: Block) -> None:
    s["x"] = s["x"] + torch.rand_like(s["x"])


STEPS: tuple[Step, ...] = (
    *(_linear, _relu_in_place, _residual, _carry_two, _dropout, _layer_norm, _batch_norm),
    *(_shared_weight, _masked, _transposed, _write_to_row, _accumulate, _detached_weight),
    *(_split_and_join, _attend, _statistics_again, _noise),
)


def program(
    steps: tuple[Step, ...],
    count: int,
    tail: Callable[[State], Any] = lambda s: (s["x"], s["y"].sum(), s["total"]),
    frozen: bool = False,
    own: Callable[[int, int], int] = lambda block, count: block,
    then: tuple[Step, ...] = (),
) -> tuple[torch.fx.Graph, list[TensorType]]:
    """A captured graph of `count` blocks of these steps, and the types of its inputs. `frozen`:
    what comes before the blocks needs no gradient. `own` numbers the weights that a block uses.
    `then`: as many blocks of other steps follow."""
    graph = torch.fx.Graph()
    tracer = torch.fx.proxy.GraphAppendingTracer(graph)
    types: list[TensorType] = []

    def given(name: str, *sizes: int, grad: bool = True) -> torch.fx.Proxy:
        type = TensorType.contiguous(torch.float32, sizes)
        types.append(replace(type, requires_grad=grad))
        return torch.fx.Proxy(graph.placeholder(name), tracer)

    x = given("x", WIDTH, WIDTH, grad=not frozen)
    shared, mask = given("shared", WIDTH, WIDTH), given("mask", 1, WIDTH)
    weights = [
        [
            given(f"weight_{number}", WIDTH, WIDTH),
            given(f"bias_{number}", WIDTH),
            given(f"mean_{number}", WIDTH, grad=False),
            given(f"variance_{number}", WIDTH, grad=False),
        ]
        for number in range(2 * count if then else count)
    ]
    state: State = {"x": x * 2, "y": x + 1, "total": torch.zeros_like(x.sum())}
    for block in range(count):
        for step in steps:
            step(state, Block(*weights[own(block, count)], shared, mask))
        state.setdefault("all", []).append(state["x"])
    for block in range(count) if then else ():
        for step in then:
            step(state, Block(*weights[count + block], shared, mask))
    graph.output(tuple(one.node for one in tail(state)))
    return graph, types


def both_ways(
    graph: torch.fx.Graph, types: list[TensorType], grad_enabled: bool = True
) -> tuple[Joint, bool]:
    """The joint, and whether blocks were copied; it must be what recording all of them makes, or
    what that raises."""
    one = differentiate(graph, types, grad_enabled=grad_enabled)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joint_module, "shorten", lambda *given: None)
        other = differentiate(graph, types, grad_enabled=grad_enabled)
    assert unrolled(other) is None
    assert print_graph(one.graph) == print_graph(other.graph)
    assert replace(one, graph=other.graph) == other
    halves, others = split(one), split(other)
    assert print_graph(halves.forward) == print_graph(others.forward)
    if others.backward is not None:
        assert halves.backward is not None
        assert print_graph(halves.backward) == print_graph(others.backward)
    assert replace(halves, forward=others.forward, backward=others.backward) == others
    return one, unrolled(one) is not None


def repeated(*steps: Step) -> tuple[Step, ...]:
    """Steps that are many enough to be looked at."""
    return (_residual, *steps, _linear)


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
@pytest.mark.parametrize("frozen", [False, True])
def test_each_kind_of_block_is_copied(step: Step, frozen: bool) -> None:
    # What the transposed state is read as has other strides in each second block.
    steps = (_transposed, _transposed) if step is _transposed else (step,)
    graph, types = program(repeated(*steps), 9, frozen=frozen)
    assert both_ways(graph, types)[1]
    assert both_ways(graph, types, grad_enabled=False)[1]


def test_few_blocks_are_recorded() -> None:
    graph, types = program(repeated(_dropout), 40)
    short = shorten(graph, types)
    assert short is not None and short.runs[0].count >= 39
    calls = [sum(node.op == "call_function" for node in one.nodes) for one in (graph, short.graph)]
    assert calls[1] < calls[0] / 5


@pytest.mark.parametrize("count", range(3, 12))
def test_any_number_of_blocks(count: int) -> None:
    assert both_ways(*program(repeated(_dropout, _layer_norm), count))[1] is (count > 6)


def test_two_runs() -> None:
    graph, types = program(repeated(_dropout), 8, then=(_layer_norm, _residual, _noise))
    short = shorten(graph, types)
    assert short is not None and len(short.runs) == 2
    assert both_ways(graph, types)[1]


REFUSED: dict[str, tuple[torch.fx.Graph, list[TensorType]]] = {
    "all states are answered": program(repeated(), 9, lambda s: s["all"]),
    "weights alternate": program(repeated(), 9, own=lambda block, count: block % 2),
    "the first weight is used again": program(
        repeated(), 9, own=lambda block, count: 0 if block == 8 else block
    ),
    "the state grows": program(
        repeated(lambda s, b: s.update(x=s["x"].unsqueeze(0))), 9
    ),
    "an input counts": program(repeated(lambda s, b: b.mask.detach().add_(1)), 9),
    "the state of a block far behind is read": program(
        repeated(lambda s, b: s.update(x=s["x"] + s.get("all", [s["y"]])[-3:][0])), 9
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_repetition_is_recorded(name: str) -> None:
    assert not both_ways(*REFUSED[name])[1]


def test_the_state_before_the_last_block_may_be_answered() -> None:
    assert both_ways(*program(repeated(), 9, lambda s: (s["all"][-2], s["x"])))[1]


def test_constants_tell_blocks_apart() -> None:
    graph, types = program(repeated(lambda s, b: s.update(x=s["x"] * 0.0)), 9)
    products = [node for node in graph.nodes if node.target is operator.mul and 0.0 in node.args]
    products[4].args = (products[4].args[0], -0.0)
    joint, copied = both_ways(graph, types)
    assert not copied
    constants = [node.args[1] for node in joint.graph.nodes if len(node.args) == 2]
    assert sum(str(one) == "-0.0" for one in constants) == 2  # forward and backward


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.sampled_from(STEPS), min_size=1, max_size=4),
    st.integers(5, 8),
    st.booleans(),
    st.booleans(),
)
def test_random_blocks(steps: list[Step], count: int, frozen: bool, training: bool) -> None:
    try:
        both_ways(*program(tuple(steps), count, frozen=frozen), grad_enabled=training)
    except Unsupported as reason:  # autograd refuses to differentiate what was overwritten
        assert reason.number == 202


# ------------------------------------------------------------------------- through all the house


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.inner = torch.nn.Linear(WIDTH, 2 * WIDTH)
        self.outer = torch.nn.Linear(2 * WIDTH, WIDTH)
        self.drop = torch.nn.Dropout(0.25)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.drop(self.outer(F.gelu(self.inner(self.norm(x)))))
        return x + y


def test_a_model_of_equal_layers_is_what_eager_makes_of_it() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(Layer() for _ in range(9)), torch.nn.Linear(WIDTH, 3))
    x = torch.randn(4, WIDTH, requires_grad=True)

    def step(call: Any) -> list[Tensor]:
        torch.manual_seed(1)
        result = call(x)
        return [result, *torch.autograd.grad(result.square().sum(), [x, *model.parameters()])]

    compiled = windfall.compile(model, options={"verify": True})
    told = windfall.explain(compiled)(x)
    assert not told.fallbacks and not told.breaks
    joints = [event.record for event in told.events if event.kind == "differentiate"]
    assert [unrolled(joint) is not None for joint in joints] == [True]
    regions = {str(windfall.ir.node.info(node).region) for node in joints[0].graph.nodes}
    assert {f"{index}.norm:LayerNorm" for index in range(9)} <= regions
    for ours, theirs in zip(step(compiled), step(model), strict=True):
        torch.testing.assert_close(ours, theirs)
