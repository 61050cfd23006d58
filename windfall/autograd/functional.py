"""A recording, made SSA: alias analysis, in-place ops as functional ones, writes as new values.

Enters: the steps of a `Recording`. Leaves: nodes of one `torch.fx.Graph` of ATen overloads in which
nothing is written, and for each tensor the `Place` it looks at. Each step is handled by the first
of these that knows it: HANDLERS by name, then what its schema says (a view, a write, neither).

Invariant: a node has the type that eager's tensor had at that point, strides included.

    h = x * 2; h[1:].mul_(3)    =>    mul = x * 2
                                      slice = mul[1:]
                                      mul_1 = slice * 3
                                      slice_scatter = slice_scatter(mul, mul_1, 0, 1)
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.fx

from windfall import torch_abi
from windfall.autograd.inverse import invert, overlaps_itself
from windfall.autograd.memory import Memory, Place
from windfall.autograd.passes import is_view
from windfall.autograd.record import Step
from windfall.autograd.restride import restride, same_layout
from windfall.errors import InternalError, Unsupported
from windfall.ir.dtype import TensorType
from windfall.ir.node import NodeInfo, ValueType, info, set_info, tensor_type
from windfall.ops import fake as fakes
from windfall.ops.layout import is_non_overlapping_and_dense

aten = torch.ops.aten

# Functional counterparts that are not found by name and arguments.
COUNTERPARTS: dict[str, Any] = {
    "aten.normal_.default": aten.normal_functional.default,
}

# Views that only mark their memory as to be read differently: as values, they are computed.
COMPUTED: dict[Any, Any] = {
    aten._conj.default: aten._conj_physical.default,
    aten._neg_view.default: aten.neg.default,
}


class Functionalized:
    """An op that writes its arguments and has no functional counterpart: called on copies of what
    it writes, it answers the written copies, then its own results."""

    def __init__(self, func: Any) -> None:
        self.func = func
        self.writes = fakes.writes_of(func)
        self.__name__ = f"functional_{func}".replace(".", "_").replace("::", "_")

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        positional = list(args)
        written = []
        for index, name in self.writes:
            holder: Any = positional if index < len(positional) else kwargs
            key: Any = index if index < len(positional) else name
            if isinstance(holder[key], torch.Tensor):
                holder[key] = holder[key].clone()
                written.append(holder[key])
        result = self.func(*positional, **kwargs)
        results = result if isinstance(result, tuple) else (result,)
        return (*written, *results)


class Functional:
    """Builds the SSA graph, step by step."""

    def __init__(self) -> None:
        self.graph = torch.fx.Graph()
        owner: Any = torch.nn.Module()  # holds the constants
        self.graph.owning_module = owner
        self.origin = NodeInfo(None)
        self.in_backward = False
        self._places: dict[int, Place] = {}
        self._kept: list[torch.Tensor] = []  # so that the identities above stay taken
        self._constants: dict[int, torch.fx.Node] = {}
        self._last_placeholder: torch.fx.Node | None = None
        self.made_of_nothing: Any = None  # what a factory has just made

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
        return self._bind(tensor, memory.root)

    def place(self, tensor: torch.Tensor) -> Place:
        """Where a fake looks at."""
        found = self._places.get(id(tensor))
        if found is None:
            raise InternalError(f"{tensor!r} was made outside of the recording")
        return found

    def _bind(self, tensor: torch.Tensor, place: Place) -> Place:
        self._places[id(tensor)] = place
        self._kept.append(tensor)
        if place.tensor is None:
            place.tensor = tensor
        return place

    def fresh(self, tensor: torch.Tensor, type: TensorType, node: torch.fx.Node) -> Place:
        """A tensor with memory of its own, holding `node`."""
        memory = Memory(type)
        memory.node = node
        return self._bind(tensor, memory.root)

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
                if place.func is aten.as_strided.default:
                    node = self.own_memory(node, unless_at_start=place)
                computed = COMPUTED.get(place.func)
                if computed is not None:
                    node = self.restride(self.emit(computed, node), place.type)
                else:
                    node = self._add(place.func, (node, *place.args), place.kwargs, place.type)
        place.node, place.generation = node, memory.generation
        return node

    def _contents(self, memory: Memory) -> torch.fx.Node:
        if memory.node is None:
            assert memory.source is not None
            memory.node = self._add(operator.getitem, memory.source, {}, memory.type)
        return memory.node

    def write(self, place: Place, value: torch.fx.Node) -> None:
        """Let `value`, of the place's sizes and dtype, be what the place shows."""
        memory = place.memory
        if overlaps_itself(place.type):
            raise Unsupported(200, f"a tensor that overlaps itself is written: {place.type}")
        if memory.input is not None and self.in_backward:
            raise Unsupported(207, f"input {memory.input}")
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
        return self._add(func, args, kwargs, inferred)

    def _add(
        self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], type: ValueType
    ) -> torch.fx.Node:
        packet = getattr(func, "overloadpacket", func)
        name = getattr(packet, "__name__", None)
        node = self.graph.create_node("call_function", func, tuple(args), dict(kwargs), name)
        return set_info(node, NodeInfo(type, self.origin.origin, self.origin.region))

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
        node = self._constants.get(id(tensor))
        if node is not None:
            return node
        if tensor.requires_grad and torch.is_grad_enabled():
            raise Unsupported(205, str(TensorType.of(tensor)))
        if tensor.dim() == 0:
            type = TensorType.of(tensor).without_grad()
            node = self._add(
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
        self._kept.append(tensor)
        self._constants[id(tensor)] = node
        return node

    def operand(self, value: Any) -> Any:
        """`value` with nodes in place of tensors."""
        if fakes.is_fake(value):
            return self.read(self.place(value))
        if isinstance(value, torch.Tensor):
            if torch_abi.is_wrapped_number(value):
                return value.item()
            return self.constant(value)
        if isinstance(value, list | tuple):
            return [self.operand(one) for one in value]
        return value

    # -------------------------------------------------------------------------------- steps

    def add_steps(self, steps: Iterable[Step]) -> None:
        """Translate recorded steps, in order."""
        for step in steps:
            self.origin = step.origin
            handler = HANDLERS.get(str(step.func))
            (handler or _handle_by_schema)(self, step)


def _typed(value: Any) -> Any:
    if isinstance(value, torch.fx.Node):
        return info(value).type
    if isinstance(value, list | tuple):
        return [_typed(one) for one in value]
    return value


# ------------------------------------------------------------------------------------ handlers

Handler = Callable[[Functional, Step], None]


def _handle_by_schema(build: Functional, step: Step) -> None:
    if torch.Tag.inplace_view in step.func.tags:
        _handle_view_in_place(build, step)
    elif fakes.writes_of(step.func):
        _handle_write(build, step)
    elif any(one.view for one in fakes.returns_of(step.func)):
        _handle_view(build, step)
    else:
        _handle_pure(build, step)


def _handle_pure(build: Functional, step: Step) -> None:
    args = [build.operand(one) for one in step.args]
    kwargs = {name: build.operand(one) for name, one in step.kwargs.items()}
    if not _tensors(step.result) and step.func._schema.returns:
        return  # a fact about sizes, already used
    node = build._add(step.func, args, kwargs, step.types)
    bind_results(build, step.result, step.types, node)
    if not node.all_input_nodes:
        build.made_of_nothing = step.result


def _tensors(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return any(_tensors(one) for one in value)
    return isinstance(value, torch.Tensor)


def bind_results(
    build: Functional, result: Any, types: Any, node: torch.fx.Node, first: int = 0
) -> None:
    """Give each new tensor of `result` a memory that holds its part of `node`."""
    if fakes.is_fake(result):
        build.fresh(result, types, node)
    elif isinstance(result, tuple | list):
        for index, (one, type) in enumerate(zip(result, types, strict=True), first):
            if fakes.is_fake(one):
                memory = Memory(type)
                memory.source = (node, index)
                build._bind(one, memory.root)
            elif isinstance(one, list | tuple):
                part = build._add(operator.getitem, (node, index), {}, type)
                bind_results(build, one, type, part)


def _handle_view(build: Functional, step: Step) -> None:
    """A view of an argument: of a constant, it is a constant node's view; a list of views becomes
    single ones where there is a rule for it."""
    base, *rest = step.args
    known = fakes.constant_of(step.result) if isinstance(step.result, torch.Tensor) else None
    if known is not None:
        build.fresh(step.result, step.types, build.constant(known))
        return
    if not fakes.is_fake(base):
        place = Memory(TensorType.of(base)).root
        place.memory.node = build.constant(base)
    else:
        place = build.place(base)
    if isinstance(step.result, list | tuple):
        pieces = PIECES[str(step.func)](place.type, rest, dict(step.kwargs), step.types)
        for tensor, type, (func, args) in zip(step.result, step.types, pieces, strict=True):
            build._bind(tensor, place.view(func, args, {}, type))
        return
    build._bind(step.result, place.view(step.func, tuple(rest), dict(step.kwargs), step.types))


def _split_pieces(
    type: TensorType, args: Sequence[Any], kwargs: Mapping[str, Any], results: Sequence[TensorType]
) -> list[tuple[Any, tuple[Any, ...]]]:
    dim = _argument(args, kwargs, 1, "dim", 0)
    pieces, start = [], 0
    for one in results:
        end = start + one.sizes[dim]
        pieces.append((aten.slice.Tensor, (dim, start, end)))
        start = end
    return pieces


def _unbind_pieces(
    type: TensorType, args: Sequence[Any], kwargs: Mapping[str, Any], results: Sequence[TensorType]
) -> list[tuple[Any, tuple[Any, ...]]]:
    dim = _argument(args, kwargs, 0, "dim", 0)
    return [(aten.select.int, (dim, index)) for index in range(len(results))]


def _argument(
    args: Sequence[Any], kwargs: Mapping[str, Any], index: int, name: str, default: Any
) -> Any:
    return args[index] if index < len(args) else kwargs.get(name, default)


PIECES: dict[str, Callable[..., list[tuple[Any, tuple[Any, ...]]]]] = {
    "aten.split.Tensor": _split_pieces,
    "aten.split_with_sizes.default": _split_pieces,
    "aten.unbind.int": _unbind_pieces,
}


def _handle_as_strided(build: Functional, step: Step) -> None:
    """A view by address: it looks at the root, wherever it was taken from."""
    base = step.args[0]
    place = build.place(base)
    given = _argument(step.args, step.kwargs, 3, "storage_offset", None)
    root = place.memory.root
    absolute = fakes.offset_of(step.result)
    if place.memory.input is not None:
        if given is not None or absolute:
            raise Unsupported(203, f"as_strided at offset {given} of input {place.memory.input}")
        if _extent(step.types) > _extent(root.type):
            raise Unsupported(203, f"as_strided beyond input {place.memory.input}")
    offset = absolute or None
    args = (list(step.types.sizes), list(step.types.strides), offset)
    build._bind(step.result, root.view(aten.as_strided.default, args, {}, step.types))


def _extent(type: TensorType) -> Any:
    pairs = zip(type.sizes, type.strides, strict=True)
    return 0 if 0 in type.sizes else 1 + sum((size - 1) * stride for size, stride in pairs)


def _handle_view_in_place(build: Functional, step: Step) -> None:
    """`t_` and the like: the tensor looks at its memory in another way from now on."""
    target = step.args[0]
    place = build.place(target)
    type = step.types
    func = _counterpart(step.func)
    if func is None or not any(one.view for one in fakes.returns_of(func)):
        raise Unsupported(200, str(step.func))
    build._bind(target, place.view(func, tuple(step.args[1:]), dict(step.kwargs), type))


def _handle_resize(build: Functional, step: Step) -> None:
    target = step.args[0]
    place = build.place(target)
    if same_layout(place.type, step.types):
        return
    if place.whole().parent is not None or place.type.elements != 0:
        raise Unsupported(200, f"resize_ from {place.type} to {step.types}")
    build.fresh(target, step.types, _full(build, step.types, 0))


def _handle_set(build: Functional, step: Step) -> None:
    if len(step.args) != 2:
        raise Unsupported(200, str(step.func))
    target, source = step.args
    place = build.place(source)
    build._bind(target, place.view(aten.alias.default, (), {}, place.type))


def _handle_alias(build: Functional, step: Step) -> None:
    """Tensors that are the same to everybody but autograd."""
    (base, *_) = step.args
    if base is step.result:
        return
    if not fakes.is_fake(base):
        node = build.constant(base)
        build.fresh(step.result, tensor_type(node), node)
        build.made_of_nothing = step.result
        return
    place = build.place(base)
    if base is build.made_of_nothing:
        # Factories detach what they made before anybody sees it: that is the tensor itself.
        place.tensor = None
        build._bind(step.result, place)
        return
    build._bind(step.result, place.view(step.func, (), {}, place.type))


def _ignore(build: Functional, step: Step) -> None:
    """Concerns autograd alone."""


def overload(name: str) -> Any:
    """The `OpOverload` of a full name, or None."""
    namespace, packet, kind = name.split(".")
    found = getattr(getattr(torch.ops, namespace), packet, None)
    return getattr(found, kind, None) if found is not None else None


def _counterpart(func: Any) -> Any:
    found = COUNTERPARTS.get(str(func))
    if found is None:
        found = overload(fakes.functional_name(func))
        if found is None or found._schema.is_mutable or found is func:
            return None
    return found


def _targets(step: Step) -> list[torch.Tensor]:
    """The tensors that a step writes."""
    found: list[torch.Tensor] = []
    for index, name in fakes.writes_of(step.func):
        one = step.args[index] if index < len(step.args) else step.kwargs.get(name)
        found.extend(one if isinstance(one, list | tuple) else [one] if one is not None else [])
    return found


def _handle_write(build: Functional, step: Step) -> None:
    """An op that writes arguments: its functional counterpart, then the writes."""
    func = _counterpart(step.func)
    if func is None:
        _handle_without_counterpart(build, step)
        return
    targets = _targets(step)
    names = {name for _, name in fakes.writes_of(step.func)}
    in_place = fakes.writes_of(step.func)[0][0] == 0
    args = [build.operand(one) for one in (*step.args, *_left_out(step, func))]
    kwargs = {
        name: build.operand(one)
        for name, one in step.kwargs.items()
        if in_place or name not in names
    }
    node = build.emit(func, *args, **kwargs)
    types = step.types if isinstance(step.types, tuple) else (step.types,) * len(targets)
    for target, result, type in zip(targets, _parts(build, node), types, strict=True):
        _store(build, target, result, type)


def _left_out(step: Step, func: Any) -> list[Any]:
    """Arguments that were left to their defaults, where the counterpart has none for them."""
    own, others = step.func._schema.arguments, func._schema.arguments
    missing: list[Any] = []
    for argument, other in list(zip(own, others, strict=False))[len(step.args) :]:
        if other.kwarg_only or other.has_default_value() or argument.name in step.kwargs:
            break
        missing.append(argument.default_value)
    return missing


def _parts(build: Functional, node: torch.fx.Node) -> list[torch.fx.Node]:
    types = info(node).type
    if not isinstance(types, tuple):
        return [node]
    return [
        build._add(operator.getitem, (node, index), {}, type) for index, type in enumerate(types)
    ]


def _store(
    build: Functional, target: torch.Tensor, value: torch.fx.Node, now: TensorType | None
) -> None:
    """Write `value` to a tensor; one that an `out=` op resized (to `now`) gets new memory."""
    place = build.place(target)
    if now is not None and now.sizes != place.type.sizes and place.whole().parent is None:
        build.fresh(target, now, build.restride(build.cast(value, now), now))
    else:
        build.write(place, build.cast(value, place.type))


def _handle_without_counterpart(build: Functional, step: Step) -> None:
    func = Functionalized(step.func)
    targets = _targets(step)
    args = [build.operand(one) for one in step.args]
    kwargs = {name: build.operand(one) for name, one in step.kwargs.items()}
    results = step.types if isinstance(step.result, tuple) else (step.types,)
    types = (*(build.place(one).type for one in targets), *results)
    node = build._add(func, args, kwargs, types)
    for index, target in enumerate(targets):
        part = build._add(operator.getitem, (node, index), {}, types[index])
        build.write(build.place(target), part)
    made = step.result if isinstance(step.result, tuple) else (step.result,)
    written = {id(one) for one in targets}
    for index, (one, type) in enumerate(zip(made, results, strict=True), len(targets)):
        if fakes.is_fake(one) and id(one) not in written:
            part = build._add(operator.getitem, (node, index), {}, type)
            build.fresh(one, type, part)


def _handle_copy(build: Functional, step: Step) -> None:
    place = build.place(step.args[0])
    source = build.operand(step.args[1])
    build.write(place, build.cast(source, place.type))


def _full(build: Functional, type: TensorType, value: Any) -> torch.fx.Node:
    node = build.emit(
        aten.full.default, list(type.sizes), value, dtype=type.dtype, device=type.device
    )
    return build.restride(node, type)


def _handle_fill(build: Functional, step: Step) -> None:
    place = build.place(step.args[0])
    value = step.args[1] if len(step.args) > 1 else 0
    if isinstance(value, torch.Tensor):
        node = build.cast(build.operand(value), place.type)
    else:
        node = _full(build, place.type, value)
    build.write(place, node)


def _handle_batch_norm(build: Functional, step: Step) -> None:
    """Its running statistics are written, though the schema is silent about it."""
    training, running = step.args[5], step.args[3:5]
    if not training or running[0] is None or running[1] is None:
        _handle_pure(build, step)
        return
    args = [build.operand(one) for one in step.args]
    statistics = tuple(build.place(one).type for one in running)
    types = (*step.types, *statistics)
    node = build._add(aten._native_batch_norm_legit_functional.default, args, {}, types)
    bind_results(build, step.result, step.types, node)
    for index, (target, type) in enumerate(zip(running, statistics, strict=True), 3):
        part = build._add(operator.getitem, (node, index), {}, type)
        build.write(build.place(target), part)


HANDLERS: dict[str, Handler] = {
    "aten.detach.default": _handle_alias,
    "aten.alias.default": _handle_alias,
    "aten.lift_fresh.default": _handle_alias,
    "aten.lift.default": _handle_alias,
    "aten.detach_.default": _ignore,
    "aten.as_strided.default": _handle_as_strided,
    "aten.as_strided_.default": _handle_as_strided,
    "aten.copy_.default": _handle_copy,
    "aten.zero_.default": _handle_fill,
    "aten.fill_.Scalar": _handle_fill,
    "aten.fill_.Tensor": _handle_fill,
    "aten.resize_.default": _handle_resize,
    "aten.set_.source_Tensor": _handle_set,
    "aten.native_batch_norm.default": _handle_batch_norm,
    "aten._native_batch_norm_legit.default": _handle_batch_norm,
    "aten._has_compatible_shallow_copy_type.default": _ignore,
}
