"""`loss.backward()` and `torch.autograd.grad(...)`: a backward pass as one node of the graph.

Enters: calls of these. Leaves: a node `backward_pass` (`ir/backward_pass.py`) that answers the
gradients; for `backward`, what each leaf does with its own: a tensor that has none takes it (an
effect), one that has some adds to it in place (a node). Invariant: the pass on tensors without data
is run by torch's engine, so what it reaches, refuses and answers is eager's; a leaf is relied upon
to be one that nobody listens to (`PlainLeaf`), and what is not known to be done here is done
natively (W0060).

Whether a gradient is taken or copied: torch takes it where nobody else has it and it lies as a
gradient of that leaf should. Here gradients of one pass never share memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from windfall import torch_abi
from windfall.dataclass import dataclass
from windfall.frontend.breaks import BACKWARD, stop
from windfall.frontend.values.base import Arguments, Keywords, Value
from windfall.frontend.values.calls import calls
from windfall.frontend.values.gradients import Handle
from windfall.frontend.values.sequence import SequenceValue, Tuple
from windfall.frontend.values.tensor import METHOD_RULES, Tensor
from windfall.frontend.values.torchapi import result_value
from windfall.frontend.values.unseen import look, made_here
from windfall.ir.backward_pass import backward_pass
from windfall.ir.control_flow import Subgraphs
from windfall.ir.dtype import WrappedType
from windfall.ir.guard import PlainLeaf
from windfall.ir.node import info
from windfall.ops.fake import storage_of, type_of
from windfall.ops.layout import is_non_overlapping_and_dense

if TYPE_CHECKING:
    from windfall.frontend.services import Machine


@dataclass(frozen=True, slots=True)
class _Pass:
    """Where a pass begins, with what, and what becomes of its history."""

    roots: tuple[Tensor, ...]
    tangents: tuple[Tensor, ...]
    keep_graph: bool
    create_graph: bool


# ------------------------------------------------------------------------------------- arguments


def _bound(names: Sequence[str], arguments: Arguments, keywords: Keywords) -> dict[str, Value]:
    """Arguments by the names of their parameters, those that are None left out."""
    given = {**dict(zip(names, arguments, strict=False)), **keywords}
    if len(arguments) > len(names) or not given.keys() <= set(names):
        stop(BACKWARD, f"arguments {', '.join(given)}")
    return {name: value for name, value in given.items() if not _is_none(value)}


def _is_none(value: Value) -> bool:
    return value.python_type() is type(None)


def _tensors(machine: Machine, value: Value) -> tuple[Tensor, ...]:
    """One tensor, or a list or tuple of some."""
    found = value.unpack(machine) if isinstance(value, SequenceValue) else [value]
    tensors = tuple(one for one in map(look, found) if isinstance(one, Tensor))
    if len(tensors) != len(found) or not tensors:
        stop(BACKWARD, f"a pass of {value.describe()}")
    return tensors


def _flag(machine: Machine, given: dict[str, Value], name: str, default: bool) -> bool:
    return bool(given[name].as_constant(machine)) if name in given else default


def _begun(
    machine: Machine, roots: tuple[Tensor, ...], tangents: Value | None, given: dict[str, Value]
) -> _Pass:
    for one in roots:
        if not one.fake(machine).requires_grad:
            stop(BACKWARD, f"{one.describe()} has no history")
    if tangents is None:
        found: list[Value] = [machine.values.literal(None)] * len(roots)
    else:
        found = tangents.unpack(machine) if isinstance(tangents, SequenceValue) else [tangents]
    if len(found) != len(roots):
        stop(BACKWARD, "gradients for some of the tensors")
    made = tuple(_tangent(machine, *pair) for pair in zip(roots, found, strict=True))
    creates = _flag(machine, given, "create_graph", False)
    return _Pass(roots, made, _flag(machine, given, "retain_graph", creates), creates)


def _tangent(machine: Machine, root: Tensor, given: Value) -> Tensor:
    """What a pass begins with: one, for a number."""
    mine, given = root.fake(machine), look(given)
    if isinstance(given, Tensor):
        theirs = given.fake(machine)
        fits = theirs.shape == mine.shape and theirs.dtype == mine.dtype
        if not fits or theirs.device != mine.device or theirs.layout != mine.layout:
            stop(BACKWARD, f"a gradient of another type than {root.describe()}")
        return given
    if not _is_none(given) or mine.numel() != 1 or not mine.is_floating_point():
        stop(BACKWARD, f"no gradient for {root.describe()}")
    kept = {"memory_format": machine.values.literal(torch.preserve_format)}
    made = machine.values.torch_call("call_function", torch.ones_like, [root], kept)
    assert isinstance(made, Tensor)
    return made


# ------------------------------------------------------------------------------------- the pass


def _history(machine: Machine, roots: Sequence[Tensor]) -> list[Any]:
    """The nodes that a pass from these may come to."""
    waiting = [torch.autograd.graph.get_gradient_edge(one.fake(machine)).node for one in roots]
    found: dict[Any, None] = {}
    while waiting:
        node = waiting.pop()
        if node not in found:
            found[node] = None
            waiting.extend(one for one, _ in node.next_functions if one is not None)
            if any(getattr(node, name, False) for name in _SPARSE):
                stop(BACKWARD, f"a sparse gradient, by {node.name()}")
    return list(found)


_SPARSE = ("_saved_sparse", "_saved_sparse_grad")  # of nodes whose gradient may be no dense tensor


def _reached(machine: Machine, roots: Sequence[Tensor]) -> list[Tensor]:
    """The leaves that the history of these leads to; all of it was made in this graph. (A tensor
    from outside with a history of its own may lead to any leaf, to one that is asked for too.)"""
    nodes = _history(machine, roots)
    leaves = [_known(machine, one.variable) for one in nodes if _is_accumulator(one)]
    for one in leaves:
        _rely_on_end(machine, one)
    return leaves


def _is_accumulator(node: Any) -> bool:
    return type(node) is torch_abi.AccumulateGrad


def _known(machine: Machine, fake: torch.Tensor) -> Tensor:
    """The leaf that a tensor without data stands for."""
    known = machine.graph.fakes.get(fake)
    if not isinstance(known, Tensor):
        stop(BACKWARD, "a tensor with a history from outside")
    return known


def _rely_on_leaf(machine: Machine, leaf: Tensor) -> None:
    """Its gradient ends there, and nobody listens."""
    if leaf.source is None:
        return
    assert leaf.real is not None
    if not torch_abi.is_plain_leaf(leaf.real):
        what = "with hooks" if leaf.real.is_leaf else "which has a history"
        stop(BACKWARD, f"{leaf.describe()}, {what}")
    leaf.guard(machine, "leaf", PlainLeaf(), "a gradient ends there")


def _rely_on_end(machine: Machine, leaf: Tensor) -> None:
    """What a pass comes to is a leaf: a history from outside may lead on, to what is asked for."""
    if leaf.source is None:
        return
    if leaf.real is not None and torch_abi.is_plain_leaf(leaf.real):
        leaf.guard(machine, "leaf", PlainLeaf(), "a history ends there")
    elif not leaf.get_attribute(machine, "is_leaf").as_constant(machine):
        stop(BACKWARD, f"{leaf.describe()}, which has a history")


def _refuse(machine: Machine) -> None:
    """What a graph may hold whose gradients are not known here."""
    graph = machine.graph
    if graph.levels:
        stop(BACKWARD, "inside of a function that torch.func transforms")
    if graph.hides_grad or graph.checkpoint is not None or graph.lanes is not None:
        stop(BACKWARD, "inside of a function that is run again")
    if torch_abi.hooks_saved_tensors():
        stop(BACKWARD, "hooks for saved tensors")
    operands = (one for effect in machine.effects.entries for one in effect.operands)
    if any(made_here(one, Handle) for one in operands):
        stop(BACKWARD, "a hook that is registered before")
    if any(isinstance(one.type, WrappedType) for _, one in graph.inputs):
        stop(BACKWARD, "tensors that are made of tensors")
    for node in graph.calls:
        if node.target is torch_abi.hooked:
            stop(BACKWARD, "a hook on a tensor of the graph")
        if isinstance(node.target, Subgraphs) and not node.target.is_followed:
            stop(BACKWARD, "an operation with bodies")
        if info(node).reads:
            stop(BACKWARD, "a number is read from data before")


def _gradients(machine: Machine, begun: _Pass, inputs: Sequence[Tensor]) -> list[Value]:
    """Gradients of these, by a node; None where there is none."""
    from windfall.frontend.graph import value_type

    groups = [
        [one.graph_argument(machine) for one in group]
        for group in (begun.roots, begun.tangents, inputs)
    ]
    flags = (begun.keep_graph, begun.create_graph)
    fakes = tuple([fake for _, fake in group] for group in groups)
    result = machine.graph.on_fakes(backward_pass, (*fakes, *flags), {})
    nodes = tuple([node for node, _ in group] for group in groups)
    node = machine.graph.call(
        "call_function", backward_pass, (*nodes, *flags), {}, value_type(result)
    )
    return result_value(machine, node, result).unpack(machine)


# ---------------------------------------------------------------------------------------- leaves


def _accumulate(machine: Machine, leaf: Tensor, gradient: Tensor, taken: set[Any]) -> None:
    """What a leaf does with its gradient; `taken`: memory of gradients of this pass."""
    if leaf.source is None:
        stop(BACKWARD, f"{leaf.describe()} is a leaf of the graph's own")
    present = look(leaf.get_attribute(machine, "grad"))
    found = gradient.fake(machine)
    if isinstance(present, Tensor):
        mine = present.fake(machine)
        if mine.requires_grad or mine.layout != torch.strided or found.layout != torch.strided:
            stop(BACKWARD, f"{leaf.describe()}.grad with a history, or sparse")
        if not _lies_as(mine, leaf.fake(machine)):  # of which torch warns
            stop(BACKWARD, f"{leaf.describe()}.grad lies otherwise than it")
        machine.values.torch_call("call_method", "add_", [present, gradient], {})
        return
    if not _is_none(present):
        stop(BACKWARD, f"{leaf.describe()}.grad")
    if storage_of(found) in taken or not _lies_as(found, leaf.fake(machine)):
        gradient = _copied(machine, gradient, leaf)
    taken.add(storage_of(gradient.fake(machine)))
    if torch_abi.view_base(gradient.fake(machine)) is not None:  # as a gradient it is no view
        made = machine.values.torch_call("call_method", "detach", [gradient], {})
        assert isinstance(made, Tensor)
        gradient = made
    leaf.set_attribute(machine, "grad", gradient)


def _lies_as(gradient: torch.Tensor, leaf: torch.Tensor) -> bool:
    """Whether a gradient lies in memory as one of that leaf should."""
    one, other = type_of(gradient), type_of(leaf)
    if not is_non_overlapping_and_dense(other.sizes, other.strides):
        return one.is_contiguous
    strides = zip(one.sizes, one.strides, other.strides, strict=True)
    return all(size == 1 or mine == its for size, mine, its in strides)


def _copied(machine: Machine, gradient: Tensor, leaf: Tensor) -> Tensor:
    """The same in memory of its own, as the leaf lies."""
    values, like = machine.values, leaf.fake(machine)
    if is_non_overlapping_and_dense(type_of(like).sizes, type_of(like).strides):
        sizes, strides = values.literal(tuple(like.shape)), values.literal(tuple(like.stride()))
        made = values.torch_call("call_method", "new_empty_strided", [gradient, sizes, strides], {})
        made = values.torch_call("call_method", "copy_", [made, gradient], {})
    else:
        kept = {"memory_format": values.literal(torch.contiguous_format)}
        made = values.torch_call("call_method", "clone", [gradient], kept)
    assert isinstance(made, Tensor)
    return made


def _run(machine: Machine, begun: _Pass, given: dict[str, Value]) -> Value:
    """`backward`: gradients of leaves, and what these do with them."""
    if begun.create_graph:
        stop(BACKWARD, "backward(create_graph=True)")
    reached = _reached(machine, begun.roots)
    if "inputs" in given:
        asked = _tensors(machine, given["inputs"])
        reached = [one for one in reached if one in asked]
        if len(reached) != len(set(asked)):
            stop(BACKWARD, "inputs= that are no leaves of the graph")
    for one in reached:
        _rely_on_leaf(machine, one)
    before = {id(one) for one in machine.graph.fakes}  # which the table keeps alive
    found = _gradients(machine, begun, reached)
    taken: set[Any] = set()
    for leaf, gradient in zip(reached, found, strict=True):
        if isinstance(gradient, Tensor):
            if id(gradient.fake(machine)) in before:  # somebody has it
                taken.add(storage_of(gradient.fake(machine)))
            _accumulate(machine, leaf, gradient, taken)
    return machine.values.literal(None)


# ----------------------------------------------------------------------------------------- calls

_OF_TENSOR = ("gradient", "retain_graph", "create_graph", "inputs")
_OF_BACKWARD = (
    "tensors", "grad_tensors", "retain_graph", "create_graph", "grad_variables", "inputs"
)  # fmt: skip
_OF_GRAD = (
    "outputs", "inputs", "grad_outputs", "retain_graph", "create_graph", "only_inputs",
    "allow_unused", "is_grads_batched", "materialize_grads",
)  # fmt: skip


def _backward(tensor: Tensor, machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    given = _bound(_OF_TENSOR, arguments, keywords)
    _refuse(machine)
    return _run(machine, _begun(machine, (tensor,), given.get("gradient"), given), given)


METHOD_RULES["backward"] = _backward


@calls(torch.autograd.backward)
def _backward_of(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    given = _bound(_OF_BACKWARD, arguments, keywords)
    if "grad_variables" in given:
        stop(BACKWARD, "grad_variables=")
    _refuse(machine)
    roots = _tensors(machine, given["tensors"])
    return _run(machine, _begun(machine, roots, given.get("grad_tensors"), given), given)


@calls(torch.autograd.grad)
def _grad(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    given = _bound(_OF_GRAD, arguments, keywords)
    if _flag(machine, given, "is_grads_batched", False):
        stop(BACKWARD, "is_grads_batched=True")
    if not _flag(machine, given, "only_inputs", True):
        stop(BACKWARD, "only_inputs=False")
    _refuse(machine)
    inputs = _tensors(machine, given["inputs"])
    for one in inputs:
        if not one.fake(machine).requires_grad:
            stop(BACKWARD, f"{one.describe()} needs no gradient")
        _rely_on_leaf(machine, one)
    roots = _tensors(machine, given["outputs"])
    begun = _begun(machine, roots, given.get("grad_outputs"), given)
    _reached(machine, roots)
    found = _gradients(machine, begun, inputs)
    zeros = _flag(machine, given, "materialize_grads", False)
    if any(map(_is_none, found)) and not zeros:
        if not _flag(machine, given, "allow_unused", False):
            stop(BACKWARD, "a tensor that was not used")
    elif zeros and "allow_unused" in given and not _flag(machine, given, "allow_unused", True):
        stop(BACKWARD, "materialize_grads=True with allow_unused=False")
    answers = [
        machine.values.torch_call("call_function", torch.zeros_like, [one], {})
        if zeros and _is_none(gradient)
        else gradient
        for one, gradient in zip(inputs, found, strict=True)
    ]
    return Tuple(answers)
