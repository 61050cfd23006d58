"""What is called each time: hooks, nodes that cannot be traced, leaves.

Enters: a node and the gradients that arrived at it. Leaves: what it answered, as torch's engine
would have taken it. Invariant: what these calls accept, refuse and do is eager's; leaves with
hooks, and all leaves where processes exchange gradients, are updated by torch's engine itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from windfall import torch_abi
from windfall.engine.backward_graph import NodeKey
from windfall.engine.steps import CallKind

Tensors = Sequence[torch.Tensor | None]


def call_node(node: Any, key: NodeKey, given: Tensors) -> list[Any]:
    """What a node itself answers."""
    if isinstance(node, torch_abi.PythonNode):  # one of ours too, that could not be traced
        return _call_function(node, key, given)
    found = node(*given)
    return list(found) if isinstance(found, tuple) else [found]


def _call_function(node: Any, key: NodeKey, given: Tensors) -> list[Any]:
    """The backward of an `autograd.Function`: one answer for each argument of its forward."""
    if torch_abi.materialises(node):
        given = [
            torch.zeros(sizes, dtype=dtype, device=device) if one is None else one
            for one, (dtype, sizes, device) in zip(given, key.arriving, strict=True)
        ]
    found = node.apply(*given)
    answers = list(found) if isinstance(found, tuple) else [found]
    needed = node.needs_input_grad
    while len(answers) > len(needed) and answers[-1] is None:
        answers.pop()
    name = type(node).__name__
    if len(answers) != len(needed):
        raise RuntimeError(
            f"function {name} returned an incorrect number of gradients (expected {len(needed)}, "
            f"got {len(answers)})"
        )
    numbers = len(needed) - len(key.edges)  # arguments that are no tensors
    for place, (one, need) in enumerate(zip(answers, needed, strict=True)):
        if one is None or (need and isinstance(one, torch.Tensor)):
            continue
        if need:
            raise TypeError(f"expected Variable or None (got {type(one).__name__})")
        if not isinstance(one, torch.Tensor) or numbers == needed.count(False):
            raise RuntimeError(
                f"function {name} returned a gradient different than None at position "
                f"{place + 1}, but the corresponding forward input was not a Variable"
            )
    wanted = iter([one for one, need in zip(answers, needed, strict=True) if need])
    return [None if edge is None else next(wanted) for edge in key.edges]


def pre_hooks(node: Any, given: Tensors) -> list[Any]:
    """Gradients after the hooks before a node."""
    hooks, _ = torch_abi.node_hooks(node)
    now = tuple(given)
    for hook in list(hooks.values()):
        found = hook(now)
        if found is not None:
            now = _replaced(found, now, "hook")
    return list(now)


def post_hooks(node: Any, made: Tensors, given: Tensors) -> list[Any]:
    """What a node answered after the hooks behind it."""
    _, hooks = torch_abi.node_hooks(node)
    now, arrived = tuple(made), tuple(given)
    for hook in list(hooks.values()):
        found = hook(now, arrived)
        if found is not None:
            now = _replaced(found, now, "backward hook")
    return list(now)


def _replaced(found: Any, before: tuple[Any, ...], what: str) -> tuple[Any, ...]:
    """The answer of a hook, if it is what torch accepts in place of these gradients."""
    answers: tuple[Any, ...] = found if isinstance(found, tuple) else (found,)
    if len(answers) != len(before):
        raise RuntimeError(
            f"{what} has returned an incorrect number of values (got {len(answers)}, "
            f"but expected {len(before)})"
        )
    for one, old in zip(answers, before, strict=True):
        if old is None and one is not None:
            raise RuntimeError("can't replace a None gradient with a non-None value")
        if old is not None and one is not None and not isinstance(one, torch.Tensor):
            raise TypeError(f"expected Variable, but hook returned '{type(one).__name__}'")
        if old is not None and one is not None and one.shape != old.shape:
            raise RuntimeError(f"{what} has changed the size of value")
    return answers


def fitted(name: str, edges: Sequence[Any]) -> Callable[..., list[Any]]:
    """What makes the answers of a node (of this class) fit its edges: `edges` has what the gradient
    at the end of each is like, or None where there is none."""

    def fit(*made: Any) -> list[Any]:
        if len(made) != len(edges):
            raise RuntimeError(
                f"{name} returned an invalid number of gradients - got {len(made)}, but expected "
                f"{len(edges)}"
            )
        return [
            one if one is None or edge is None else _fit(one, edge, name, number)
            for number, (one, edge) in enumerate(zip(made, edges, strict=True))
        ]

    return fit


def fits(made: Tensors, edges: Sequence[Any]) -> bool:
    """Whether answers fit their edges as they are."""
    return len(made) == len(edges) and all(
        one is None
        or edge is None
        or (one.dtype is edge[0] and tuple(one.shape) == edge[1] and one.device == edge[2])
        for one, edge in zip(made, edges, strict=True)
    )


def _fit(one: torch.Tensor, edge: Any, name: str, number: int) -> torch.Tensor:
    dtype, sizes, device = edge
    if tuple(one.shape) != sizes:
        if not _expands(sizes, tuple(one.shape)):
            raise RuntimeError(
                f"Function {name} returned an invalid gradient at index {number} - got "
                f"{list(one.shape)} but expected shape compatible with {list(sizes)}"
            )
        one = one.sum_to_size(sizes)
    if one.device != device:
        if one.dim():
            raise RuntimeError(
                f"Function {name} returned an invalid gradient at index {number} - expected device "
                f"{device} but got {one.device}"
            )
        one = one.to(device)
    if one.dtype is not dtype:
        one = (torch.real(one) if one.is_complex() and not dtype.is_complex else one).to(dtype)
    return one


def _expands(sizes: tuple[int, ...], to: tuple[int, ...]) -> bool:
    if len(sizes) > len(to):
        return False
    behind = to[len(to) - len(sizes) :]
    return all(one in (1, other) for one, other in zip(sizes, behind, strict=True))


def summed(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Two gradients that arrive at the same place."""
    if one.layout is not torch.strided and other.layout is torch.strided:
        return other + one  # a sparse tensor takes no dense one
    return one + other


def update_leaf(node: Any, gradient: torch.Tensor, hooked: bool, owned: bool = False) -> None:
    """Accumulate a gradient; by torch's engine where it is `hooked`. `owned`: nobody else has it,
    so that the leaf may keep it, if it lies in memory as a gradient of that leaf should."""
    if hooked:
        torch_abi.accumulate_by_real_engine(node, gradient)
        return
    if owned:
        leaf = node.variable
        if leaf.grad is None and leaf.stride() == gradient.stride() and leaf.requires_grad:
            leaf.grad = gradient
            return
    node(gradient)


def is_distributed() -> bool:
    """Whether C++ may listen to leaves: it exchanges their gradients."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def call(
    kind: CallKind, node: Any, key: NodeKey, edges: Sequence[Any], given: Tensors, made: Tensors
) -> list[Any]:
    """A live call of this kind."""
    return _CALLS[kind](node, key, edges, given, made)


_CALLS: dict[CallKind, Callable[[Any, NodeKey, Sequence[Any], Tensors, Tensors], list[Any]]] = {
    CallKind.TENSOR_HOOKS: lambda node, key, edges, given, made: torch_abi.tensor_hooks_of(
        node, given
    ),
    CallKind.PRE_HOOKS: lambda node, key, edges, given, made: pre_hooks(node, given),
    CallKind.NODE: lambda node, key, edges, given, made: call_node(node, key, given),
    CallKind.FIT: lambda node, key, edges, given, made: fitted(type(node).__name__, edges)(*given),
    CallKind.POST_HOOKS: lambda node, key, edges, given, made: post_hooks(node, made, given),
    CallKind.SUM: lambda node, key, edges, given, made: [summed(*given)],  # type: ignore[arg-type]
}
