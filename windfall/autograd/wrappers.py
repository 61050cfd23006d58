"""Graphs over tensors that are made of tensors: flattened at the entry, wrapped again at the exit.

Enters: a captured graph some of whose inputs are `WrappedType`s. Leaves: the same graph over plain
tensors (`Flat`): its inputs are the leaves, `Wrap` nodes make of them what the captured nodes work
on, `Unwrap` nodes take results apart; and the convention that stands around it. All other stages
see plain tensors: recording runs the class's own `__torch_dispatch__` on fakes, forward and
backward, so what is recorded is what it comes to.

    f(T)   →   Flattened:  T.a, T.b, carriers → [ wrap … unwrap ] → leaves → class of the result

A gradient may be made otherwise than its tensor (`ops/wrapped.py`): for each leaf of it the flat
graph has one more input, a carrier, whose gradient that leaf is.

Invariant: seen from outside, eager ran: classes and contexts of results and of gradients are those
that it would have made. What depends on more than the structures of the inputs is refused (217):
results that share memory with an input or another result, or feed another one; gradients made one
way by one result and another way by another. A tangent that is made otherwise than its result is
converted by its class, or it is an error.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.fx

from windfall import torch_abi
from windfall.autograd.tracing import call
from windfall.dataclass import dataclass
from windfall.errors import Unsupported
from windfall.ir.codec import record
from windfall.ir.dtype import TensorType, WrappedType
from windfall.ir.graph_text import print_graph
from windfall.ir.node import NodeInfo, constant, copy_into, info, set_info
from windfall.ir.stages import Executable, GraphCallable
from windfall.ops import fake as fakes
from windfall.ops.overrides import standing_for
from windfall.ops.wrapped import (
    Unwrap,
    Wrap,
    fake_of,
    is_wrapper,
    leaf_types,
    leaves_of,
    put_together,
    same_structure,
    structure_of,
    with_gradients,
)

WRAPPED = 217


def holds_wrapped(types: Sequence[object]) -> bool:
    """Whether some of the inputs are made of other tensors."""
    return any(isinstance(one, WrappedType) for one in types)


@record
@dataclass(frozen=True, slots=True)
class Entered:
    """One input of the captured graph: what it is made of, and of what its gradient is, if one
    ever comes that carriers must bring there."""

    value: TensorType
    gradient: TensorType | None = None


@record
@dataclass(frozen=True, slots=True)
class Left:
    """One result: the input that it is, the earlier result that it is, or what it is made of, from
    so many results of the flat graph; None: no tensor."""

    input: int = -1
    again: int = -1
    value: TensorType | None = None


@record
@dataclass(frozen=True, slots=True)
class Flattened:
    """The convention: leaves and carriers in, leaves out. `kept` are inputs of which backward keeps
    leaves: writes to these are counted by the tensor around them alone, so it is asked."""

    inputs: tuple[Entered, ...]
    outputs: tuple[Left, ...]
    kept: tuple[int, ...] = ()

    def around(self, call: GraphCallable) -> GraphCallable:
        """`call`, with what the captured graph takes and answers."""
        inputs, outputs, kept = self.inputs, self.outputs, self.kept

        def flattened(*args: Any) -> tuple[Any, ...]:
            flat: list[Any] = []
            for entered, one in zip(inputs, args, strict=True):
                flat.extend(leaves_of(one, entered.value))
                if entered.gradient is not None:
                    with torch.enable_grad():
                        flat.extend(_Enter.apply(entered.gradient, one))  # type: ignore[no-untyped-call]
            results = iter(call(*flat))
            whole = [args[index] for index in kept]
            versions = list(zip(whole, torch_abi.versions_of(whole), strict=True))
            made: list[Any] = []
            for left in outputs:
                if left.input >= 0:
                    made.append(args[left.input])
                elif left.again >= 0:
                    made.append(made[left.again])
                elif left.value is None:
                    made.append(next(results))
                else:
                    leaves = [next(results) for _ in leaf_types(left.value)]
                    made.append(_left(left.value, leaves, versions))
            return tuple(made)

        return flattened


Versions = list[tuple[torch.Tensor, int]]


def _left(structure: TensorType, leaves: Sequence[torch.Tensor], versions: Versions) -> Any:
    if not isinstance(structure, WrappedType):
        (result,) = leaves
        if result.requires_grad and not torch_abi.is_view(result):
            result.register_hook(lambda tangent: _plain(tangent, versions))  # type: ignore[no-untyped-call]
        return result
    if any(one.requires_grad for one in leaves):
        return _Leave.apply(structure, versions, *leaves)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        return put_together(structure, leaves)


def _plain(tangent: Any, versions: Versions) -> None:
    _check(versions)
    if is_wrapper(tangent):
        raise RuntimeError(
            f"windfall: the gradient of a plain result is a {type(tangent).__name__}, and the "
            "graph that made it took tensors of such classes apart; call that part under "
            "windfall.disable"
        )


def _check(versions: Versions) -> None:
    """What backward needs is as it was: as autograd says of what it saves itself."""
    found = torch_abi.versions_of([tensor for tensor, _ in versions])
    for (tensor, version), now in zip(versions, found, strict=True):
        if now != version:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an "
                f"inplace operation: [{type(tensor).__name__} {list(tensor.shape)}] is at version "
                f"{now}; expected version {version} instead."
            )


class _Enter(torch.autograd.Function):
    """Carriers for an input: tensors of the types of the leaves of its gradient, without data."""

    @staticmethod
    def forward(context: Any, gradient: TensorType, tensor: Any) -> Any:
        context.gradient = gradient
        context.set_materialize_grads(False)
        return tuple([_carrier(one) for one in leaf_types(gradient)])

    @staticmethod
    def backward(context: Any, *leaves: Any) -> Any:
        if all(one is None for one in leaves):
            return None, None
        types = leaf_types(context.gradient)
        whole = [
            torch.zeros(type.sizes, dtype=type.dtype) if one is None else one  # type: ignore[arg-type]
            for one, type in zip(leaves, types, strict=True)
        ]
        return None, with_gradients(context.gradient, whole)


class _Leave(torch.autograd.Function):
    """A result made of leaves; its tangent is taken apart again."""

    @staticmethod
    def forward(context: Any, structure: TensorType, versions: Versions, *leaves: Any) -> Any:
        context.structure, context.versions = structure, versions
        return put_together(structure, [one.detach() for one in leaves])

    @staticmethod
    def backward(context: Any, tangent: Any) -> Any:
        _check(context.versions)
        return (None, None, *Unwrap(context.structure)(_coerced(tangent, context.structure)))


def _coerced(tangent: Any, structure: WrappedType) -> Any:
    """A tangent made as its result is: its own class may know how to be so."""
    if same_structure(structure_of(tangent), structure):
        return tangent
    convert = getattr(tangent, "__coerce_same_metadata_as_tangent__", None)
    if convert is not None:
        converted = convert(structure.context, structure.wrapper)
        if converted is not None and same_structure(structure_of(converted), structure):
            return converted
    raise RuntimeError(
        f"windfall: the gradient of a {structure.wrapper.__name__} is {structure_of(tangent)}, and "
        f"not made as the tensor is: {structure}; call that part under windfall.disable"
    )


def _carrier_type(leaf: TensorType) -> TensorType:
    return TensorType(leaf.dtype, leaf.sizes, (0,) * leaf.rank, leaf.device, True)


def _carrier(leaf: TensorType) -> torch.Tensor:
    found = torch.empty(1, dtype=leaf.dtype)
    return found.as_strided(leaf.sizes, (0,) * leaf.rank)  # type: ignore[arg-type]


# ----------------------------------------------------------------------------------- flattening


@record
@dataclass(frozen=True, slots=True)
class Flat:
    """A graph over plain tensors, the types of its inputs, and what stands around it."""

    graph: torch.fx.Graph
    inputs: tuple[TensorType, ...]
    around: Flattened

    def __str__(self) -> str:
        return print_graph(self.graph)

    def wrapped(self, executable: Executable) -> Executable:
        """The executable of the flat graph, seen as that of the captured one."""
        saved = {one for region in executable.node for one in region.split.saved_inputs}
        kept, place = [], 0
        for index, entered in enumerate(self.around.inputs):
            count = len(list(leaf_types(entered.value)))
            if isinstance(entered.value, WrappedType) and saved & {*range(place, place + count)}:
                kept.append(index)
            place += count
            if entered.gradient is not None:
                place += len(list(leaf_types(entered.gradient)))
        around = replace(self.around, kept=tuple(kept))
        return replace(executable, conventions=(around, *executable.conventions))


def flatten(graph: torch.fx.Graph, inputs: Sequence[TensorType]) -> Flat:
    """The captured graph over the leaves of its inputs. It is run once on fakes, to see what its
    results and gradients are made of."""
    try:
        entered, left, results = _look(graph, inputs)
    except Unsupported:
        raise
    except Exception as error:  # what the user's class raises: eager may never come to it
        raise Unsupported(WRAPPED, f"{type(error).__name__}: {error}".splitlines()[0]) from error
    made = torch.fx.Graph()
    made.owning_module = graph.owning_module
    place: dict[torch.fx.Node, torch.fx.Node] = {}
    types: list[TensorType] = []
    held = graph.find_nodes(op="placeholder")
    flat = [_placeholders(made, node, one, types) for node, one in zip(held, entered, strict=True)]
    for node, one, given in zip(held, entered, flat, strict=True):
        place[node] = given[0]
        if isinstance(one.value, WrappedType) or one.gradient is not None:
            wrap = made.call_function(Wrap(one.value, one.gradient), tuple(given))
            place[node] = set_info(wrap, NodeInfo(one.value))
    for node in graph.nodes:
        if node.op not in ("placeholder", "output"):
            place[node] = copy_into(made, node, place.__getitem__)
    pairs = zip(left, results, strict=True)
    outputs = [leaf for one, result in pairs for leaf in _taken_apart(made, one, result, place)]
    set_info(made.output(tuple(outputs)), NodeInfo(None))
    return Flat(made, tuple(types), Flattened(tuple(entered), tuple(left)))


def _taken_apart(
    graph: torch.fx.Graph, left: Left, result: Any, place: Mapping[torch.fx.Node, torch.fx.Node]
) -> list[Any]:
    """The results of the flat graph that one of the captured one becomes."""
    if left.input >= 0 or left.again >= 0:
        return []
    if not isinstance(left.value, WrappedType):
        return [place[result] if isinstance(result, torch.fx.Node) else result]
    leaves = list(leaf_types(left.value))
    taken = graph.call_function(Unwrap(left.value), (place[result],))
    set_info(taken, NodeInfo(tuple(leaves)))
    return [
        set_info(graph.call_function(operator.getitem, (taken, index)), NodeInfo(leaf))
        for index, leaf in enumerate(leaves)
    ]


def _placeholders(
    graph: torch.fx.Graph, node: torch.fx.Node, entered: Entered, types: list[TensorType]
) -> list[torch.fx.Node]:
    """The inputs of the flat graph that one of the captured one becomes."""
    needs = entered.value
    found = [(f"{node.name}_{index}", one) for index, one in enumerate(leaf_types(needs))]
    if not isinstance(needs, WrappedType):
        found = [(node.name, needs)]
    if entered.gradient is not None:
        found = [(name, one.without_grad()) for name, one in found]
        carried = enumerate(leaf_types(entered.gradient))
        found += [(f"{node.name}_carrier{index}", _carrier_type(one)) for index, one in carried]
    made = []
    for name, type in found:
        made.append(set_info(graph.placeholder(name), NodeInfo(type)))
        types.append(type)
    return made


def _look(
    graph: torch.fx.Graph, inputs: Sequence[TensorType]
) -> tuple[list[Entered], list[Left], list[Any]]:
    """What each input, its gradient and each result are made of; and the results' nodes."""
    modes = torch_abi.modes()
    given = [fake_of(one, fakes.fake) for one in inputs]
    (output,) = graph.find_nodes(op="output")
    results: list[Any] = list(output.args[0])
    with fakes.FakeMode():
        try:
            found = _run(graph, given, results)
        finally:
            torch_abi.set_modes(modes)
        gradients = _gradients(given, found)
    entered = [
        Entered(replace(type, requires_grad=False), gradient)
        if isinstance(type, WrappedType)
        else Entered(type, gradient if isinstance(gradient, WrappedType) else None)
        for type, gradient in zip(inputs, gradients, strict=True)
    ]
    return entered, _results(given, found), results


def _run(graph: torch.fx.Graph, given: Sequence[Any], results: Sequence[Any]) -> list[Any]:
    values: dict[torch.fx.Node, Any] = {}
    places = iter(given)
    for node in graph.nodes:
        if node.op == "placeholder":
            values[node] = next(places)
        elif node.op == "get_attr":
            values[node] = constant(node)
        elif node.op != "output":
            if info(node).checkpoint is not None:
                raise Unsupported(WRAPPED, "a checkpoint over tensor subclasses")
            values[node] = call(node, values, standing_for)
    return [values[one] if isinstance(one, torch.fx.Node) else one for one in results]


def _gradients(given: Sequence[Any], found: Sequence[Any]) -> list[TensorType | None]:
    """What the gradient of each input is made of, whichever results it comes from."""
    wanted = [one for one in given if one.requires_grad]
    made: list[TensorType | None] = [None] * len(wanted)
    roots = {id(one): one for one in found if isinstance(one, torch.Tensor) and one.requires_grad}
    roots = {key: one for key, one in roots.items() if all(one is not other for other in given)}
    for result in roots.values():
        if any(not one.dtype.is_floating_point for one in leaf_types(structure_of(result))):
            raise Unsupported(WRAPPED, "a result with a gradient, made of numbers without one")
        others = [one for one in roots.values() if one is not result and is_wrapper(one)]
        tangent = fake_of(_detached(structure_of(result)), fakes.fake)
        answers = torch.autograd.grad(
            [result], [*wanted, *others], [tangent], retain_graph=True, allow_unused=True
        )
        if all(one is None for one in answers):
            raise Unsupported(WRAPPED, "a result that needs a gradient and gives none")
        if any(one is not None for one in answers[len(wanted) :]):
            raise Unsupported(WRAPPED, "a result of which another result is made")
        for index, one in enumerate(answers[: len(wanted)]):
            if one is None:
                continue
            structure, known = _detached(structure_of(one)), made[index]
            if known is not None and not same_structure(known, structure):
                raise Unsupported(WRAPPED, f"a gradient that is {known} or {structure}")
            made[index] = structure
    position = iter(made)
    return [next(position) if one.requires_grad else None for one in given]


def _detached(structure: TensorType) -> TensorType:
    return replace(structure, requires_grad=False)


def _results(given: Sequence[Any], found: Sequence[Any]) -> list[Left]:
    numbers = {id(one): index for index, one in enumerate(given)}
    seen: dict[int, int] = {}
    memories: dict[fakes.Storage, tuple[str, bool]] = {}
    for index, one in enumerate(given):
        for leaf in leaves_of(one, structure_of(one)):
            memories[fakes.storage_of(leaf)] = f"input {index}", is_wrapper(one)
    left: list[Left] = []
    for index, one in enumerate(found):
        if not isinstance(one, torch.Tensor):
            left.append(Left())
        elif id(one) in numbers:
            left.append(Left(input=numbers[id(one)]))
        elif id(one) in seen:
            left.append(Left(again=seen[id(one)]))
        else:
            seen[id(one)] = index
            structure = _detached(structure_of(one))
            left.append(Left(value=structure))
            if not isinstance(structure, WrappedType) and not fakes.is_fake(one):
                raise Unsupported(WRAPPED, f"result {index} is a {type(one).__name__}")
            own = f"result {index}", is_wrapper(one)
            for leaf in leaves_of(one, structure):
                other = memories.setdefault(fakes.storage_of(leaf), own)
                if other != own and (other[1] or own[1]):
                    raise Unsupported(WRAPPED, f"{own[0]} shares memory with {other[0]}")
    return left
