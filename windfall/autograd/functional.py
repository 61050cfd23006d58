"""The SSA graph under construction: nodes, and what each tensor of a recording looks at.

Enters: reads and writes of places, one recorded step after the other (`handlers.py`). Leaves: nodes
of one `torch.fx.Graph` of ATen overloads in which nothing is written.

Invariant: a node has the type that eager's tensor had at that point, strides included.

    h = x * 2; h[1:].mul_(3)    =>    mul = x * 2
                                      slice = mul[1:]
                                      mul_1 = slice * 3
                                      slice_scatter = slice_scatter(mul, mul_1, 0, 1)
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.fx

from windfall import torch_abi
from windfall.autograd.inverse import invert, overlaps_itself
from windfall.autograd.passes import is_view
from windfall.autograd.restride import restride, same_layout
from windfall.autograd.ssa_memory import Memory, Place
from windfall.autograd.tracing import Origin
from windfall.errors import InternalError, Unsupported
from windfall.identity_map import IdentityMap
from windfall.ir.dtype import TensorType
from windfall.ir.node import NodeInfo, ValueType, add_node, info, set_info, tensor_type
from windfall.ops import fake as fakes
from windfall.ops.layout import is_non_overlapping_and_dense
from windfall.ops.registry import lookup
from windfall.ops.schema import overload

aten = torch.ops.aten


class Phase(enum.IntEnum):
    """What nodes are made for: the forward pass, the backward pass, or to look at its gradients."""

    FORWARD = 0
    BACKWARD = 1
    GRADIENTS = 2


# The captured node that a node was made for, if any (of a gradient: the input), and in which phase.
MadeFor = tuple[torch.fx.Node | None, Phase]


class Functional:
    """Builds the SSA graph, step by step."""

    def __init__(self) -> None:
        self.graph = torch.fx.Graph()
        owner: Any = torch.nn.Module()  # holds the constants
        self.graph.owning_module = owner
        self.origin = Origin()
        self.in_backward = False
        self.subject: torch.fx.Node | None = None  # the captured input whose gradient is looked at
        self.derives = False  # what is added are formulas of the derivative, as it is split
        self._places: IdentityMap[torch.Tensor, Place] = IdentityMap()
        self._constants: IdentityMap[torch.Tensor, torch.fx.Node] = IdentityMap()
        self._last_placeholder: torch.fx.Node | None = None
        self.made_of_nothing: Any = None  # what a factory has just made
        self.made_for: dict[torch.fx.Node, MadeFor] = {}
        self.inputs: dict[Place, int] = {}  # how each input of the graph looks at its memory

    @property
    def phase(self) -> Phase:
        """What nodes are made for now."""
        if self.subject is not None:
            return Phase.GRADIENTS
        return Phase.BACKWARD if self.in_backward else Phase.FORWARD

    # ------------------------------------------------------------------------------ tensors

    def placeholder(
        self, name: str, tensor: torch.Tensor, type: TensorType, input: int | None = None
    ) -> Place:
        """A new input of the graph, after those that there are; `type` is what the tensor was
        when recording began."""
        type = type.without_grad()
        with self.graph.inserting_after(self._last_placeholder):
            node = self._last_placeholder = self.graph.placeholder(name)
        set_info(node, NodeInfo(type))
        memory = Memory(type, input)
        memory.node = node
        if input is not None:
            self.inputs[memory.root] = input
        return self.bind(tensor, memory.root)

    def lies_in(self, tensor: torch.Tensor, input: int, root: Place, offset: int) -> Place:
        """Let an input look at the memory of another one, so many elements behind its start."""
        place, type = root, fakes.type_of(tensor).without_grad()
        if offset or not same_layout(type, root.type):
            place = _part(root, type, offset)
        else:
            place = root.view(aten.alias.default, (), {}, type)
        self.inputs[place] = input
        return self.bind(tensor, place)

    def place(self, tensor: torch.Tensor) -> Place:
        """Where a fake looks at."""
        found = self._places.get(tensor)
        if found is None:
            raise InternalError(f"{tensor!r} was made outside of the recording")
        return found

    def is_known(self, tensor: torch.Tensor) -> bool:
        """Whether a fake looks at any place."""
        return tensor in self._places

    def bind(self, tensor: torch.Tensor, place: Place) -> Place:
        """Let a fake look at `place` from now on."""
        self._places[tensor] = place
        if place.tensor is None:
            place.tensor = tensor
        return place

    def fresh(self, tensor: torch.Tensor, type: TensorType, node: torch.fx.Node) -> Place:
        """A tensor with memory of its own, holding `node`."""
        memory = Memory(type)
        memory.node = node
        return self.bind(tensor, memory.root)

    def read(self, place: Place) -> torch.fx.Node:
        """The node of what a place shows now."""
        memory = place.memory
        if place.node is not None and place.generation == memory.generation:
            return place.node
        if place.parent is None:
            node = self._contents(memory)
        else:
            node = self.read(place.parent)
            if not place.is_identity:
                record = lookup(place.func)
                if record.absolute_offset:
                    node = self.own_memory(node, unless_at_start=place)
                if record.marks:
                    computed = overload(record.inverse or "")
                    node = self.restride(self.emit(computed, node), place.type)
                else:
                    node = self.add(place.func, (node, *place.args), place.kwargs, place.type)
        place.node, place.generation = node, memory.generation
        return node

    def _contents(self, memory: Memory) -> torch.fx.Node:
        if memory.node is None:
            assert memory.source is not None
            memory.node = self.add(operator.getitem, memory.source, {}, memory.type)
        return memory.node

    def write(self, place: Place, value: torch.fx.Node) -> None:
        """Let `value`, of the place's sizes and dtype, be what the place shows."""
        memory = place.memory
        if overlaps_itself(place.type):
            raise Unsupported(200, f"a tensor that overlaps itself is written: {place.type}")
        if memory.input is not None and self.in_backward:
            raise Unsupported(207, f"input {memory.input}")
        if memory.looked_beyond and not self.in_backward:
            # From here on eager takes such a view of the base; a recording, of what it was taken
            # from, where the gradients of what that does not show are lost.
            raise Unsupported(203, "as_strided beyond what it was taken from, which is written")
        if place.parent is None:
            memory.node = self.restride(value, place.type, self._contents(memory))
            memory.generation += 1
        elif place.is_identity:
            self.write(place.parent, value)
        else:
            base = self.read(place.parent)
            self.write(place.parent, invert(self, place, base, value))
        if same_layout(tensor_type(value), place.type):
            place.node, place.generation = value, memory.generation

    # -------------------------------------------------------------------------------- nodes

    def emit(self, func: Any, *args: Any, **kwargs: Any) -> torch.fx.Node:
        """A node of our own making, its type inferred."""
        types = [_typed(one) for one in args]
        inferred = fakes.infer(func, types, kwargs)
        return self.add(func, args, kwargs, inferred)

    def add(
        self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], type: ValueType
    ) -> torch.fx.Node:
        """A node of known type."""
        packet = getattr(func, "overloadpacket", func)
        name = getattr(packet, "__name__", None)
        node = add_node(self.graph, "call_function", func, tuple(args), kwargs, name)
        self.made_for[node] = (self.subject or self.origin.node, self.phase)
        made, derived = self.origin, self.derives
        if derived and func is operator.getitem:  # what it is taken from may be older
            derived = info(args[0]).derived
        known = NodeInfo(
            type, made.origin, made.region, checkpoint=made.checkpoint, derived=derived
        )
        return set_info(node, known)

    def reshape(self, node: torch.fx.Node, sizes: tuple[Any, ...]) -> torch.fx.Node:
        """The same elements in other sizes."""
        if tensor_type(node).sizes == sizes:
            return node
        try:
            return self.emit(aten.view.default, node, list(sizes))
        except RuntimeError:
            dense = self.emit(aten.clone.default, node, memory_format=torch.contiguous_format)
            return self.emit(aten.view.default, dense, list(sizes))

    def restride(
        self, node: torch.fx.Node, type: TensorType, old: torch.fx.Node | None = None
    ) -> torch.fx.Node:
        """`node` with the strides of `type`."""
        return restride(self.emit, node, type, old)

    def own_memory(
        self, node: torch.fx.Node, unless_at_start: Place | None = None
    ) -> torch.fx.Node:
        """The same value with the same strides at offset 0 of memory of its own. A place that
        looks from its parent's start on needs no such care."""
        if unless_at_start is not None and unless_at_start.args[2:] in ((), (None,)):
            return node
        if node.op == "call_function" and not is_view(node):
            return node
        type = tensor_type(node)
        if is_non_overlapping_and_dense(type.sizes, type.strides):
            return self.emit(aten.clone.default, node)
        return self.emit(aten.copy.default, node, node)

    def cast(self, node: torch.fx.Node, type: TensorType) -> torch.fx.Node:
        """`node` with the dtype and the sizes of `type`, as `copy_` converts."""
        have = tensor_type(node)
        if have.dtype != type.dtype or have.device != type.device:
            node = self.emit(aten._to_copy.default, node, dtype=type.dtype, device=type.device)
        if have.sizes != type.sizes:
            node = self.emit(aten.expand.default, node, list(type.sizes))
        return node

    def constant(self, tensor: torch.Tensor) -> torch.fx.Node:
        """A node for a real tensor that the recording met."""
        node = self._constants.get(tensor)
        if node is not None:
            return node
        if tensor.requires_grad and torch.is_grad_enabled():
            raise Unsupported(205, str(TensorType.of(tensor)))
        if tensor.dim() == 0:
            type = TensorType.of(tensor).without_grad()
            node = self.add(
                aten.full.default,
                ([], tensor.item()),
                {"dtype": tensor.dtype, "device": tensor.device},
                type,
            )
        else:
            name = f"constant{len(self._constants)}"
            owner = self.graph.owning_module
            assert owner is not None
            owner.register_buffer(name, tensor)
            node = set_info(self.graph.get_attr(name), NodeInfo(TensorType.of(tensor)))
        self._constants[tensor] = node
        return node

    def operand(self, value: Any) -> Any:
        """`value` with nodes in place of tensors."""
        if isinstance(value, torch.fx.Node):
            return value
        if fakes.is_fake(value):
            return self.read(self.place(value))
        if isinstance(value, torch.Tensor):
            if torch_abi.is_wrapped_number(value):
                return fakes.number_of(value)
            return self.constant(value)
        if isinstance(value, list | tuple):
            return [self.operand(one) for one in value]
        return value


def _part(root: Place, type: TensorType, offset: int) -> Place:
    """A row-major memory seen with this type from an element on."""
    whole = TensorType.contiguous(type.dtype, (root.type.elements,))
    flat = root if root.type.rank == 1 else root.view(aten.view.default, ([-1],), {}, whole)
    pairs = zip(type.sizes, type.strides, strict=True)
    span = 1 + sum((size - 1) * stride for size, stride in pairs)
    line = TensorType.contiguous(type.dtype, (span,))
    part = flat.view(aten.slice.Tensor, (0, offset, offset + span), {}, line)
    if type.is_contiguous:
        return part.view(aten.view.default, (list(type.sizes),), {}, type)
    return part.view(aten.as_strided.default, (list(type.sizes), list(type.strides)), {}, type)


def _typed(value: Any) -> Any:
    if isinstance(value, torch.fx.Node):
        return info(value).type
    if isinstance(value, list | tuple):
        return [_typed(one) for one in value]
    return value
