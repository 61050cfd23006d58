"""Runs a function through this room alone: eager is both the oracle and the machine."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.fx

from tests.seeds import set_seed
from windfall.autograd import Variant, differentiable, differentiate, interpreter, split
from windfall.autograd.assemble import regions
from windfall.autograd.conventions import conventions
from windfall.autograd.handlers import Functionalized
from windfall.ir.dtype import TensorType
from windfall.ir.spec import verify_graph
from windfall.ir.stages import Joint, Split


def capture(function: Callable[..., Any], count: int) -> torch.fx.Graph:
    """A graph of one node, the function itself: recording sees what it does, whatever it is."""
    graph = torch.fx.Graph()
    inputs = [graph.placeholder(f"x{index}") for index in range(count)]
    graph.output(graph.call_function(lambda *args: tuple(flat(function(*args))), tuple(inputs)))
    return graph


class OpByOp:
    """Compiles backward graphs: eager runs them. `graphs` are those that were asked for."""

    def __init__(self) -> None:
        self.graphs: list[torch.fx.Graph] = []

    def compile(self, variant: Variant) -> Any:
        verify(variant.graph)
        inputs = [node for node in variant.graph.nodes if node.op == "placeholder"]
        assert len(variant.roles.inputs) == len(variant.symbols) + len(inputs)
        self.graphs.append(variant.graph)
        return interpreter(variant.graph, variant.symbols)

    def failed(self, error: Exception) -> None:
        raise AssertionError("eager has raised") from error

    def interpreted(self, reason: str) -> None:
        """It may be."""

    def stage(self, kind: Any, stage: Any, *args: Any, **named: Any) -> Any:
        made = stage(*args, **named)
        if hasattr(made, "joint"):
            verify(made.joint.graph)
        return made


def linked(joint: Joint, halves: Split, backward: OpByOp) -> Callable[..., tuple[Any, ...]]:
    """What `link.py` makes of this room's records, with eager in place of native code."""
    call = interpreter(halves.forward, halves.symbols)
    nodes = regions(joint, halves)
    call = differentiable(nodes, call, backward) if nodes else call
    for convention in reversed(conventions(joint, halves)):
        call = convention.around(call)
    return call


class Compiled:
    """A function after this room, run op by op."""

    def __init__(self, function: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> None:
        self.graph = capture(function, len(inputs))
        self.joint: Joint = differentiate(self.graph, [TensorType.of(one) for one in inputs])
        self.split: Split = split(self.joint)
        verify(self.joint.graph)
        verify(self.split.forward)
        backward = OpByOp()
        self.backwards = backward.graphs
        self.call = linked(self.joint, self.split, backward)

    def __call__(self, *args: torch.Tensor) -> Any:
        return self.call(*args)

    def ops(self, graph: torch.fx.Graph | None = None) -> list[str]:
        """The names of the ops of a graph (the joint one by default)."""
        nodes = (graph or self.joint.graph).nodes
        return [str(node.target) for node in nodes if node.op == "call_function"]


def verify(graph: torch.fx.Graph) -> None:
    graph.lint()
    if not any(isinstance(node.target, Functionalized) for node in graph.nodes):
        verify_graph(graph)


def copies(inputs: Sequence[torch.Tensor], *, leaf: bool = True) -> list[torch.Tensor]:
    """Equal tensors with equal strides; with `leaf` False those that need a gradient are
    intermediate results, which may be written."""
    made: dict[int, torch.Tensor] = {}
    for one in inputs:
        if id(one) in made:
            continue
        copy = torch.empty_strided(one.shape, one.stride(), dtype=one.dtype)
        copy.copy_(one.detach())
        copy.requires_grad_(one.requires_grad)
        made[id(one)] = copy if leaf or not one.requires_grad else _intermediate(copy)
    return [made[id(one)] for one in inputs]


def _intermediate(leaf: torch.Tensor) -> torch.Tensor:
    result = leaf * 1
    result.leaf = leaf  # type: ignore[attr-defined]
    return result


def leaves(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The leaves behind inputs that need a gradient, each once."""
    found = {id(one): getattr(one, "leaf", one) for one in inputs}
    return [one for one in found.values() if one.requires_grad]


def flat(outputs: Any) -> list[Any]:
    """The outputs of a call as a list."""
    return list(outputs) if isinstance(outputs, tuple | list) else [outputs]


def sharing(tensors: Sequence[Any]) -> list[tuple[int, int]]:
    """Which tensors live in the same storage, by position; an object is not compared with
    itself."""
    storages = [
        one.untyped_storage().data_ptr() if isinstance(one, torch.Tensor) and one.numel() else -1
        for one in tensors
    ]
    count = len(tensors)
    return [
        (a, b)
        for a in range(count)
        for b in range(a + 1, count)
        if storages[a] == storages[b] != -1
    ]


def same_object(tensors: Sequence[Any]) -> list[tuple[int, int]]:
    """Which positions hold the same object."""
    count = len(tensors)
    return [(a, b) for a in range(count) for b in range(a + 1, count) if tensors[a] is tensors[b]]


def same_tensor(ours: Any, eagers: Any) -> None:
    """Equal values, dtype, sizes, strides and need of a gradient."""
    assert isinstance(ours, torch.Tensor) == isinstance(eagers, torch.Tensor)
    if not isinstance(eagers, torch.Tensor):
        assert ours == eagers
        return
    torch.testing.assert_close(ours, eagers, equal_nan=True)
    assert _layout(ours) == _layout(eagers)
    assert ours.requires_grad == eagers.requires_grad


def _layout(tensor: torch.Tensor) -> list[int]:
    """Strides; a dimension of size 1 has none that matters, nor has an empty tensor."""
    if not tensor.numel():
        return []
    return [step for step, size in zip(tensor.stride(), tensor.shape, strict=True) if size != 1]


def check(
    function: Callable[..., Any],
    *inputs: torch.Tensor,
    leaf: bool = True,
    seed: int = 0,
    backward: bool = True,
) -> Compiled:
    """Compare eager with this room in all that a user can see of one call and its backward."""
    compiled = Compiled(function, inputs)
    for _ in range(2):  # a second call must not depend on the first
        eager_inputs, our_inputs = copies(inputs, leaf=leaf), copies(inputs, leaf=leaf)
        eager_leaves, our_leaves = leaves(eager_inputs), leaves(our_inputs)
        set_seed(seed)
        eager_outputs = flat(function(*eager_inputs))
        eager_state = torch.get_rng_state()
        set_seed(seed)
        our_outputs = flat(compiled(*our_inputs))
        assert torch.equal(torch.get_rng_state(), eager_state), "the random stream differs"
        assert len(our_outputs) == len(eager_outputs)
        for ours, eagers in zip(
            our_outputs + our_inputs, eager_outputs + eager_inputs, strict=True
        ):
            same_tensor(ours, eagers)
        assert [one._version for one in our_inputs] == [one._version for one in eager_inputs]
        everything = [*our_outputs, *our_inputs], [*eager_outputs, *eager_inputs]
        assert sharing(everything[0]) == sharing(everything[1])
        assert same_object(everything[0]) == same_object(everything[1])
        if backward:
            check_gradients(
                our_outputs + our_inputs, our_leaves, eager_outputs + eager_inputs, eager_leaves
            )
    return compiled


def check_gradients(
    our_results: Sequence[Any],
    our_leaves: Sequence[torch.Tensor],
    eager_results: Sequence[Any],
    eager_leaves: Sequence[torch.Tensor],
) -> None:
    """Gradients of all results that have a history, with random tangents."""
    ours = [one for one in our_results if isinstance(one, torch.Tensor) and one.grad_fn]
    eagers = [one for one in eager_results if isinstance(one, torch.Tensor) and one.grad_fn]
    assert len(ours) == len(eagers)
    if not eagers or not eager_leaves:
        return
    tangents = [torch.randn_like(one) for one in eagers]
    try:
        wanted = torch.autograd.grad(eagers, eager_leaves, tangents, allow_unused=True)
    except RuntimeError as error:  # for the data of the tangents, say
        with pytest.raises(RuntimeError, match=re.escape(str(error)[:60])):
            torch.autograd.grad(ours, our_leaves, tangents, allow_unused=True)
        return
    found = torch.autograd.grad(ours, our_leaves, tangents, allow_unused=True)
    for gradient, expected in zip(found, wanted, strict=True):
        assert (gradient is None) == (expected is None)
        if expected is not None:
            torch.testing.assert_close(gradient, expected, equal_nan=True, rtol=1e-4, atol=1e-5)


def survey(agrees: Callable[[int], str], first: int, last: int) -> None:
    """Seeds by what `agrees` says of them; those that differ from eager are printed."""
    counts: Counter[str] = Counter()
    for seed in range(first, last):
        try:
            counts[agrees(seed)] += 1
        except BaseException as error:
            counts["wrong"] += 1
            print(seed, type(error).__name__, str(error)[:300].replace("\n", " "), flush=True)
    print(counts)
