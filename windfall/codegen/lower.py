"""Graph → `Loops`: each ATen op is written as scalar expressions over loads, or as a call.

Enters: a `torch.fx.Graph` of ATen overloads in SSA form, each node with its `NodeInfo`. Leaves:
`Loops`: definitions of buffers and calls, in an order in which they can be computed.

Invariant: a definition's value holds a `reduce` node at its root or nowhere; every load is of an
input, a constant, or a buffer of an earlier item. Fusion is substitution: a `Lazy` is inlined into
whoever reads it, unless it is a result, argument of a call, read several times and dear, or large.

    x * 2 + 1, summed over rows:   out[i0] = sum{r0<1024} (x[1024*i0 + r0] * 2 + 1)
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.fx

from windfall.codegen import extern
from windfall.codegen.cost import cost_of
from windfall.errors import InternalError, SourceLine
from windfall.ir.dtype import TensorType, contiguous_strides
from windfall.ir.loop import (
    Axis,
    Buffer,
    Call,
    Definition,
    Index,
    Invocation,
    Lazy,
    Loops,
    Scalar,
    Scalars,
    View,
    axis,
    walk,
)
from windfall.ir.node import ValueType, info, tensor_type
from windfall.ir.symint import (
    Expression,
    Size,
    coefficient_of,
    expression_of,
    substitute,
    symbols_of,
)
from windfall.ops.registry import Op, lookup

LARGE = 120  # scalar nodes in one expression, above which it is stored
MANY_BUFFERS = 12  # different buffers read by one expression, likewise
CHEAP = 8  # cost up to which a value that is read several times is computed again
DEAR = 6  # cost from which a value is not computed again for each element of a broadcast
BROADCAST = 4  # how many times more elements than it has make a reader of it a broadcast


class LoopBuilder:
    """The `Builder` that writes down. One for each graph."""

    def __init__(self) -> None:
        self.scalars = Scalars()
        self.buffers: dict[str, Buffer] = {}
        self.items: list[Definition | Call] = []
        self.origin: SourceLine | None = None
        self.native = True
        self._depth = 0
        self._reductions: dict[Scalar, str] = {}
        self._stored: dict[tuple[Scalar, TensorType], Lazy] = {}

    # ------------------------------------------------------------------------------- scalars

    def constant(self, value: float | int | bool, dtype: torch.dtype) -> Scalar:
        return self.scalars.constant(value, dtype)

    def apply(self, op: str, *arguments: Scalar) -> Scalar:
        return self.scalars.apply(op, *arguments)

    def cast(self, value: Scalar, dtype: torch.dtype) -> Scalar:
        return self.scalars.cast(value, dtype)

    def index(self, expression: Size, dtype: torch.dtype = torch.int64) -> Scalar:
        return self.scalars.index(expression, dtype)

    def as_index(self, value: Scalar, size: Size, *, wrap: bool = True) -> Expression:
        checked = self.scalars.make(
            "checked", torch.int64, (self.cast(value, torch.int64),), (size, wrap)
        )
        return self.scalars.indirect(checked, size - 1 if isinstance(size, int) else None)

    def masked(self, condition: Scalar, body: Callable[[], Scalar], otherwise: Scalar) -> Scalar:
        if condition.op == "constant" and not condition.attribute:
            return otherwise  # what the body would load may not even exist
        return self.scalars.masked(condition, body(), otherwise)

    def reduce(self, kind: str, extents: Sequence[Size], body: Callable[[Index], Scalar]) -> Scalar:
        axes = [
            axis(f"t{self._depth}_{place}", extent) if extent != 1 else None
            for place, extent in enumerate(extents)
        ]
        self._depth += 1
        value = body(tuple(0 if each is None else each.symbol for each in axes))
        self._depth -= 1
        return _reduction(self.scalars, kind, tuple(each for each in axes if each), value)

    # ------------------------------------------------------------------------------- tensors

    def tensor(self, type: TensorType, at: Callable[[Index], Scalar]) -> Lazy:
        if type.elements == 0:
            zero = self.constant(0, type.dtype)
            return Lazy(type, lambda index: zero)
        index = _index(axes_of(type))
        root = at(index)
        if root.dtype is not type.dtype:
            raise InternalError(f"elements of {root.dtype} in a tensor {type}")
        return self._lazy(type, self.settle(root))

    def _lazy(self, type: TensorType, root: Scalar) -> Lazy:
        """The tensor whose element at its own axes is `root`."""
        index = _index(axes_of(type))
        known: dict[Index, Scalar] = {index: root}
        atoms = [each.atom if isinstance(each, Expression) else None for each in index]

        def read(wanted: Index) -> Scalar:
            found = known.get(wanted)
            if found is None:
                places = {a: w for a, w in zip(atoms, wanted, strict=True) if a is not None}
                found = known[wanted] = self.scalars.substitute(root, places)
            return found

        return Lazy(type, read)

    def root(self, value: Lazy) -> Scalar:
        """The element of a tensor at its own axes."""
        return value.at(_index(axes_of(value.type)))

    def settle(self, root: Scalar) -> Scalar:
        """`root` with each reduction in it moved to a buffer of its own."""
        if not root.reduces:
            return root
        moved: dict[Scalar, Scalar] = {}
        for node in walk(root):
            if node.op == "reduce":
                bare = self.scalars.substitute(node, {}, dict(moved)) if moved else node
                moved[node] = self._store_reduction(bare)
        return self.scalars.substitute(root, {}, moved)

    def _store_reduction(self, node: Scalar) -> Scalar:
        atoms = sorted(
            node.free, key=lambda atom: (atom.key[0], int(atom.key[1:].split("_")[0]), atom.key)
        )
        axes = tuple(axis(f"i{place}", (atom.high or 0) + 1) for place, atom in enumerate(atoms))
        renamed = {atom: each.symbol for atom, each in zip(atoms, axes, strict=True)}
        own = self.scalars.substitute(node, renamed)
        name = self._reductions.get(own)
        strides = contiguous_strides(tuple(each.extent for each in axes))
        if name is None:
            type = TensorType(node.dtype, tuple(each.extent for each in axes), strides)
            name = self._reductions[own] = self.allocate(type, "s")
            offset = _offset(strides, tuple(each.symbol for each in axes))
            self.items.append(Definition(name, axes, offset, own, self._origins()))
        back = {each.atom: expression_of(atom) for atom, each in zip(atoms, axes, strict=True)}
        offset = substitute(_offset(strides, tuple(each.symbol for each in axes)), back)
        return self.scalars.load(name, offset, node.dtype)

    def allocate(self, type: TensorType, letter: str = "t") -> str:
        """A fresh buffer that holds a tensor of `type`."""
        name = f"{letter}{len(self.buffers)}"
        self.buffers[name] = Buffer(name, type.without_grad(), "temporary")
        return name

    def loads(self, name: str, type: TensorType, offset: int = 0) -> Lazy:
        """A tensor that stands in buffer `name`."""
        return Lazy(
            type,
            lambda index: self.scalars.load(
                name, offset + _offset(type.strides, index), type.dtype
            ),
        )

    def materialise(self, value: Lazy) -> Lazy:
        if self.view_of(value) is not None:
            return value
        return self.store(value)

    def store(self, value: Lazy, *, exact: bool = False) -> Lazy:
        """The same tensor in a buffer that holds nothing else; `exact`: with its type's strides,
        even where these leave gaps."""
        if value.type.elements == 0:
            return self.loads(self.allocate(value.type), value.type)
        root = self.root(value)
        found = self._stored.get((root, value.type))
        if found is None:
            type = value.type if exact or _is_dense(value.type) else _packed(value.type)
            name = self.allocate(type)
            axes = _in_memory_order(type)
            offset = _offset(type.strides, _index(axes_of(type)))
            self.items.append(Definition(name, axes, offset, root, self._origins()))
            found = self._stored[root, value.type] = self.loads(name, type)
        return found

    def view_of(self, value: Lazy) -> View | None:
        """Where a tensor stands, if it stands in memory with its type's strides."""
        root = self.root(value)
        if root.op != "load" or root.dtype is not value.type.dtype:
            return None
        name, offset = root.attribute
        start = offset
        for each, stride in zip(axes_of(value.type), value.type.strides, strict=True):
            if each is not None:
                if coefficient_of(offset, each.atom) != stride:
                    return None
                start = start - stride * each.symbol
        return View(name, value.type, start) if isinstance(start, int) else None

    def operand(self, value: Lazy, entry: str) -> View:
        """A tensor as argument of a call: where it stands, or a copy that the entry accepts."""
        found = self.view_of(value)
        if found is not None and extern.accepts(entry, found, self.buffers[found.buffer]):
            return found
        type = value.type if extern.keeps_strides(entry) else self._natural(value, entry)
        found = self.view_of(self.store(Lazy(type, value.at)))
        assert found is not None
        return found

    def _natural(self, value: Lazy, entry: str) -> TensorType:
        """The layout of a matrix (or a batch of them) in which a copy is cheapest to make: that of
        what it is made from, transposed or not."""
        type = _packed(value.type)
        if type.rank < 2:
            return type
        across, down = axes_of(type)[-1], axes_of(type)[-2]
        if across is None or down is None:
            return type
        order = list(range(type.rank))
        loads = [node.attribute[1] for node in walk(self.root(value)) if node.op == "load"]
        widest = max(loads, key=lambda offset: len(symbols_of(offset)), default=0)
        if coefficient_of(widest, down.atom) == 1 != coefficient_of(widest, across.atom):
            order[-2:] = order[-1], order[-2]
        packed = _laid_out(type, order)
        return packed if extern.takes(entry, packed) else type

    def native_call(
        self,
        entry: str,
        arguments: Sequence[Any],
        results: Sequence[TensorType],
        *,
        attributes: Any = None,
    ) -> tuple[Lazy, ...]:
        operands = tuple(self.argument(argument, entry) for argument in arguments)
        types = [type if _is_dense(type) else _packed(type) for type in results]
        names = tuple(self.allocate(type) for type in types)
        self.items.append(Call(entry, operands, names, attributes, self.origin))
        return tuple(self.loads(name, type) for name, type in zip(names, types, strict=True))

    def argument(self, value: Any, entry: str) -> Any:
        """An argument of a call, with views in place of tensors."""
        if isinstance(value, Lazy):
            return self.operand(value, entry)
        if isinstance(value, (list, tuple)):
            return tuple(self.argument(each, entry) for each in value)
        return value

    def _origins(self) -> tuple[SourceLine, ...]:
        return () if self.origin is None else (self.origin,)


# ------------------------------------------------------------------------------------- layouts


def axes_of(type: TensorType) -> tuple[Axis | None, ...]:
    """The axes that name the elements of a tensor; none where there is one element only."""
    return tuple(
        None if size == 1 else axis(f"i{place}", size) for place, size in enumerate(type.sizes)
    )


def _in_memory_order(type: TensorType) -> tuple[Axis, ...]:
    """The axes of a tensor, those with the longest steps first: loops then follow memory."""
    pairs = [
        (each, stride if isinstance(stride, int) else 0)
        for each, stride in zip(axes_of(type), type.strides, strict=True)
        if each is not None
    ]
    if all(isinstance(stride, int) for stride in type.strides):
        pairs.sort(key=lambda pair: -pair[1])
    return tuple(each for each, _ in pairs)


def _index(axes: Sequence[Axis | None]) -> Index:
    return tuple(0 if each is None else each.symbol for each in axes)


def _offset(strides: Sequence[Size], index: Sequence[Size]) -> Size:
    total: Size = 0
    for stride, place in zip(strides, index, strict=True):
        total = total + stride * place
    return total


def _is_dense(type: TensorType) -> bool:
    """Whether the elements fill their storage, each its own place."""
    expected: Size = 1
    pairs = [
        (stride, size) for stride, size in zip(type.strides, type.sizes, strict=True) if size != 1
    ]
    if not all(isinstance(part, int) for pair in pairs for part in pair):
        return type.is_contiguous
    for stride, size in sorted(pairs, key=lambda pair: (int(str(pair[0])), int(str(pair[1])))):
        if stride != expected:
            return False
        expected = expected * size
    return True


def _packed(type: TensorType) -> TensorType:
    """The same without gaps or overlaps, its dims in the same order in memory."""
    parts = (*type.strides, *type.sizes)
    strides = [part for part in parts[: type.rank] if isinstance(part, int)]
    if len(strides) < type.rank or not all(isinstance(part, int) for part in parts):
        return _laid_out(type, range(type.rank))
    return _laid_out(type, sorted(range(type.rank), key=lambda place: (-strides[place], place)))


def _laid_out(type: TensorType, order: Sequence[int]) -> TensorType:
    """The same with its dims in this order in memory, the outermost first."""
    strides: list[Size] = [1] * type.rank
    step: Size = 1
    for place in reversed(order):
        strides[place] = step
        step = step * (1 if type.sizes[place] == 0 else type.sizes[place])
    return replace(type, strides=tuple(strides), requires_grad=False)


def _reduction(scalars: Scalars, kind: str, axes: tuple[Axis, ...], body: Scalar) -> Scalar:
    position = kind.startswith("arg")
    if any(each.extent == 0 for each in axes):
        # Eager refuses extremes of nothing; who lowers one has no element that reads it.
        dtype = torch.int64 if position else body.dtype
        return scalars.constant(_EMPTY.get(kind, 0), dtype)
    if not axes:
        return scalars.constant(0, torch.int64) if position else body
    return scalars.reduce(kind, axes, body)


_EMPTY: dict[str, int | bool] = {"sum": 0, "prod": 1, "any": False, "all": True}


# --------------------------------------------------------------------------------------- graph


def lower(graph: torch.fx.Graph, *, native: bool = True) -> Loops:
    """The graph as definitions and calls. `native` False: ops without a lowering are always called
    from Python."""
    return _Walk(graph, native).run()


class _Walk:
    """One pass over the nodes of a graph."""

    def __init__(self, graph: torch.fx.Graph, native: bool) -> None:
        self.graph = graph
        self.builder = LoopBuilder()
        self.builder.native = native
        self.values: dict[torch.fx.Node, Any] = {}
        self.output = next(node for node in graph.nodes if node.op == "output")
        self.needed = _needed(graph)
        self.bases = {_base(node) for node in self.output.all_input_nodes}

    def run(self) -> Loops:
        inputs: list[str] = []
        for node in self.graph.nodes:
            if node.op == "placeholder":
                inputs.append(self._input(node))
            elif node in self.needed:
                self.builder.origin = info(node).origin
                self.values[node] = self._value(node)
        results = tuple(self._result(node) for node in _outputs(self.output))
        return _finished(self.builder, tuple(inputs), results)

    def _input(self, node: torch.fx.Node) -> str:
        type = tensor_type(node).without_grad()
        name = _unique(node.name, self.builder.buffers)
        self.builder.buffers[name] = Buffer(name, type, "input")
        self.values[node] = self.builder.loads(name, type)
        return name

    def _value(self, node: torch.fx.Node) -> Any:
        if node.op == "get_attr":
            return self._constant(node)
        arguments: Any = torch.fx.map_arg(node.args, lambda each: self.values[each])
        keywords: Any = torch.fx.map_arg(node.kwargs, lambda each: self.values[each])
        if node.target is operator.getitem:
            return arguments[0][arguments[1]]
        record = lookup(node.target)
        made = self._lowered(record, arguments, keywords)
        if made is NotImplemented:
            made = self._called(node, arguments, keywords)
        return self._settled(node, record, made)

    def _constant(self, node: torch.fx.Node) -> Lazy:
        owner: Any = self.graph.owning_module
        for part in str(node.target).split("."):
            owner = getattr(owner, part)
        name = _unique(node.name, self.builder.buffers)
        type = TensorType.of(owner).without_grad()
        self.builder.buffers[name] = Buffer(name, type, "constant", owner)
        return self.builder.loads(name, type)

    def _lowered(self, record: Op | None, arguments: Any, keywords: Any) -> Any:
        if record is None or record.lower is None:
            return NotImplemented
        return record.lower(self.builder, *arguments, **keywords)

    def _called(self, node: torch.fx.Node, arguments: Any, keywords: Any) -> Any:
        """An op without a lowering, as a call of the op itself."""
        builder = self.builder
        types = info(node).type
        single = isinstance(types, TensorType)
        wanted: tuple[Any, ...] = (types,) if single else tuple(types or ())  # type: ignore[arg-type]
        route = (
            extern.route(node.target, arguments, keywords, wanted) if builder.native else "python"
        )
        made = builder.native_call(
            route,
            [arguments],
            [type for type in wanted if isinstance(type, TensorType)],
            attributes=Invocation(
                node.target,
                tuple((name, builder.argument(value, route)) for name, value in keywords.items()),
                tuple(isinstance(type, TensorType) for type in wanted),
            ),
        )
        if single:
            return made[0]
        values = iter(made)
        return tuple(next(values) if isinstance(t, TensorType) else None for t in wanted)

    def _settled(self, node: torch.fx.Node, record: Op | None, made: Any) -> Any:
        """Decide what is stored now, before anybody reads it."""
        if record is not None and record.view:
            return made
        if isinstance(made, (list, tuple)):
            readers = {user.args[1]: user for user in node.users if user.target is operator.getitem}
            return [
                self._keep(readers[place], each)
                if place in readers and isinstance(each, Lazy)
                else each
                for place, each in enumerate(made)
            ]
        return self._keep(node, made) if isinstance(made, Lazy) else made

    def _keep(self, node: torch.fx.Node, value: Lazy) -> Lazy:
        type = tensor_type(node).without_grad()
        if type.sizes != value.type.sizes or type.dtype is not value.type.dtype:
            raise InternalError(f"{node} was lowered to {value.type}, it is {type}")
        value = Lazy(type, value.at)
        if type.elements == 0:
            return self.builder.store(value, exact=True) if node in self.bases else value
        if node in self.bases:
            return self._stored_apart(value)
        if self._worth_storing(node, value):
            return self.builder.materialise(value)
        return value

    def _stored_apart(self, value: Lazy) -> Lazy:
        """A result has storage of its own, unless a call or definition has just made that."""
        found = self.builder.view_of(value)
        if found is not None and self.builder.items:
            last = self.builder.items[-1]
            names = last.results if isinstance(last, Call) else (last.buffer,)
            taken = {view.buffer for view in self._results_so_far()}
            if found.buffer in names and found.offset == 0 and found.buffer not in taken:
                return value
        return self.builder.store(value, exact=True)

    def _results_so_far(self) -> list[View]:
        done = [self.values[node] for node in self.bases if node in self.values]
        lazies = [value for value in done if isinstance(value, Lazy)]
        return [view for view in map(self.builder.view_of, lazies) if view is not None]

    def _worth_storing(self, node: torch.fx.Node, value: Lazy) -> bool:
        root = self.builder.root(value)
        if root.op in ("load", "constant"):
            return False
        nodes = list(walk(root))
        if len(nodes) > LARGE:
            return True
        if len({n.attribute[0] for n in nodes if n.op == "load"}) > MANY_BUFFERS:
            return True
        reads, widest = _reads(node)
        if reads > 1 and _feeds_call(node):
            return True  # it is stored for the call anyway: once, as it is, not as views of it
        cost = cost_of(nodes)
        broadcast = _wider(widest, value.type.elements * BROADCAST)
        return (cost > CHEAP and reads > 1) or (cost >= DEAR and broadcast)

    def _result(self, node: torch.fx.Node | None) -> View | None:
        if node is None:
            return None
        value = self.values[node]
        type = tensor_type(node).without_grad()
        found = self.builder.view_of(Lazy(type, value.at)) if type.elements != 0 else None
        if found is None:
            found = self.builder.view_of(self.builder.store(Lazy(type, value.at), exact=True))
            if found is None:  # no elements: any place will do
                found = View(self.builder.allocate(type), type)
        return View(found.buffer, type, found.offset)


def _needed(graph: torch.fx.Graph) -> set[torch.fx.Node]:
    """The nodes that results depend on, and those that have an effect of their own."""
    needed: set[torch.fx.Node] = set()
    for node in reversed(graph.nodes):
        record = lookup(node.target) if node.op == "call_function" else None
        effect = record is not None and record.random
        if node.op == "output" or effect or any(user in needed for user in node.users):
            needed.add(node)
    return needed


def _outputs(output: torch.fx.Node) -> tuple[torch.fx.Node | None, ...]:
    values: Any = output.args[0]
    return tuple(values) if isinstance(values, (list, tuple)) else (values,)


def _base(node: torch.fx.Node) -> torch.fx.Node:
    """The node whose storage `node` is a view of."""
    while node.op == "call_function" and isinstance(node.args[0], torch.fx.Node):
        picked = node.target is operator.getitem
        if not _is_view(node.args[0] if picked else node):
            break
        node = node.args[0]
    return node


def _is_view(node: torch.fx.Node) -> bool:
    """Whether a node's value (or values) share the storage of its first argument."""
    record = lookup(node.target) if node.op == "call_function" else None
    return record is not None and record.view


def _reads(node: torch.fx.Node) -> tuple[int, Size]:
    """How many nodes read a value, looking through views, and the most elements of any of them."""
    count, widest = 0, 0
    for user in node.users:
        if _is_view(user) or user.target is operator.getitem:
            more, wide = _reads(user)
            count += more
        else:
            count += 1
            wide = _most_elements(info(user).type) if user.op == "call_function" else 0
        widest = max(widest, wide) if isinstance(wide, int) else widest
    return count, widest


def _most_elements(type: ValueType) -> Size:
    if isinstance(type, TensorType):
        return type.elements
    sizes = [_most_elements(each) for each in type] if isinstance(type, tuple) else []
    return max((size for size in sizes if isinstance(size, int)), default=0)


def _feeds_call(node: torch.fx.Node) -> bool:
    """Whether a call reads a value, or a view of it."""
    for user in node.users:
        if user.op != "call_function":
            continue
        if _is_view(user):
            if _feeds_call(user):
                return True
        elif user.target is not operator.getitem:
            record = lookup(user.target)
            if record is None or record.lower is None or record.name in extern.CALLING:
                return True
    return False


def _wider(one: Size, other: Size) -> bool:
    return isinstance(one, int) and isinstance(other, int) and one > other


def _unique(name: str, taken: Mapping[str, Any]) -> str:
    while name in taken:
        name += "_"
    return name


def _finished(
    builder: LoopBuilder, inputs: tuple[str, ...], results: tuple[View | None, ...]
) -> Loops:
    """Drop what no result needs and mark the buffers that are results."""
    wanted = {view.buffer for view in results if view is not None}
    kept: list[Definition | Call] = []
    for item in reversed(builder.items):
        made = item.results if isinstance(item, Call) else (item.buffer,)
        if not wanted.isdisjoint(made) or (isinstance(item, Call) and extern.has_effect(item)):
            kept.append(item)
            wanted.update(made, reads_of(item))
    buffers = {}
    outside = {view.buffer for view in results if view is not None}
    for name, buffer in builder.buffers.items():
        if name in wanted or name in inputs:
            result = name in outside and buffer.place == "temporary"
            buffers[name] = replace(buffer, place="result") if result else buffer
    return Loops(buffers, inputs, tuple(reversed(kept)), results, builder.scalars)


def reads_of(item: Definition | Call) -> set[str]:
    """The buffers that an item reads."""
    if isinstance(item, Definition):
        return {node.attribute[0] for node in walk(item.value) if node.op == "load"}
    return {view.buffer for view in views_in((item.arguments, item.attributes))}


def views_in(value: Any) -> list[View]:
    """The views anywhere in the arguments of a call."""
    if isinstance(value, View):
        return [value]
    if isinstance(value, Invocation):
        return views_in(value.keywords)
    if isinstance(value, (list, tuple)):
        return [view for each in value for view in views_in(each)]
    return []
