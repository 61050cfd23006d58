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
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import torch
import torch.fx

from windfall.codegen import control_flow, extern
from windfall.codegen.builder import LoopBuilder
from windfall.codegen.cost import cost_of
from windfall.codegen.full_evaluation import whole
from windfall.codegen.in_place import Writes, find_writes
from windfall.codegen.write_order import WriteOrder
from windfall.errors import InternalError, Specialise
from windfall.ir.control_flow import Subgraphs
from windfall.ir.dtype import TensorType
from windfall.ir.loop import (
    BodyParts,
    Buffer,
    BufferView,
    Call,
    Definition,
    Index,
    Invocation,
    Lazy,
    Loops,
    Part,
    walk,
)
from windfall.ir.node import ValueType, constant, info, tensor_type
from windfall.ir.symint import Expression, hint_of
from windfall.ops.failing import ElementCheck
from windfall.ops.registry import Op, lookup
from windfall.ops.term import Term

NO_PARTS: Mapping[int, Part] = MappingProxyType({})
LARGE = 120  # scalar nodes in one expression, above which it is stored
MANY_BUFFERS = 12  # different buffers read by one expression, likewise
CHEAP = 8  # cost up to which a value that is read several times is computed again
DEAR = 6  # cost from which a value is not computed again for each element of a broadcast
BROADCAST = 4  # how many times more elements than it has make a reader of it a broadcast


# --------------------------------------------------------------------------------------- graph


def lower(
    graph: torch.fx.Graph,
    symbols: tuple[Expression, ...] = (),
    *,
    native: bool = True,
    refusing: bool = True,
    written: Sequence[int | None] = (),
    parts: Mapping[int, Part] = NO_PARTS,
) -> Loops:
    """The graph as definitions and calls. `symbols` are the sizes that vary, in the order in which
    callers pass them. `native` False: ops without a lowering are always called from Python.
    `refusing` False: it is known already that no op refuses its data (backward). `written`: the
    first results are new contents of the inputs at these positions, which are to be written where
    they stand (None: that one is not). `parts` are the bodies of operations that have such, by
    identity; without them these are called from Python."""
    try:
        loops = _Walk(graph, native, refusing, written, parts).run()
    except _CalledTooLate:
        loops = _Walk(graph, native, refusing, written, parts, early=False).run()
    return replace(loops, symbols=tuple(symbols))


class _CalledTooLate(Exception):
    """Python would be called, and may raise, after an input was written."""


class _Walk:
    """One pass over the nodes of a graph. `early` False: no input is written before its end."""

    def __init__(
        self,
        graph: torch.fx.Graph,
        native: bool,
        refusing: bool,
        written: Sequence[int | None],
        parts: Mapping[int, Part],
        early: bool = True,
    ) -> None:
        self.graph = graph
        self.parts = parts
        self.written = written if native else ()
        self.early = early
        self.builder = LoopBuilder()
        self.builder.native = native
        self.values: dict[torch.fx.Node, Any] = {}
        self.output = next(node for node in graph.nodes if node.op == "output")
        self.needed = needed(graph)
        self.results = _outputs(self.output)
        self.bases = Counter(_base(node) for node in self.results if node is not None)
        self.writes = Writes()
        self.order: WriteOrder | None = None
        self.refusing = refusing
        self.whole: set[torch.fx.Node] | None = None  # found when first asked for
        self.looked_at: set[str] = set()  # buffers whose definitions only look at data

    def run(self) -> Loops:
        inputs: dict[torch.fx.Node, str] = {}
        nodes: list[torch.fx.Node] = []
        for node in self.graph.nodes:
            if node.op == "placeholder":
                inputs[node] = self._input(node)
            elif node in self.needed and node.op != "output":
                nodes.append(node)
        if any(one is not None for one in self.written):
            nodes = self._find_writes(inputs, nodes)
        for node in nodes:
            if node not in self.writes.skipped or node in self.writes.read:
                self._add(node)
        placed = self.writes.results
        results = [
            None if place in placed else self._result(node)
            for place, node in enumerate(self.results)
        ]
        if self.order is not None:
            self.order.write_rest()
        for place, write in placed.items():
            results[place] = BufferView(write.buffer, write.type)
        return _finished(self.builder, tuple(inputs.values()), tuple(results), self.looked_at)

    def _find_writes(
        self, inputs: Mapping[torch.fx.Node, str], nodes: list[torch.fx.Node]
    ) -> list[torch.fx.Node]:
        """Which inputs are written in place; the nodes in the order that this takes."""
        self.writes = find_writes(
            self.builder, inputs, self.results, self.written, self.needed, self.bases
        )
        for place in self.writes.results:
            result = self.results[place]
            assert result is not None
            del self.bases[_base(result)]
        # What is computed anyway, and read by loops alone, is computed in these, as other values.
        self.writes.read = {
            node: write
            for node, write in self.writes.read.items()
            if node in self.writes.skipped or _feeds_call(node)
        }
        self.order = WriteOrder(self.builder, self.writes, self.values, nodes, self._look_at_whole)
        return self.order.nodes

    def _add(self, node: torch.fx.Node) -> None:
        """The value of a node; a version of an input's contents is written, if it can be by now."""
        self.builder.origin = info(node).origin
        if node not in self.writes.read or self.order is None:
            self.values[node] = self._value(node)
            return
        write = self.writes.read[node]
        if node not in self.writes.skipped:  # its own value is what is written
            self.values[node] = self._value(node)
        if self.early and self.order.write(node):
            self.values[node] = self.builder.loads(write.buffer, write.type)
        elif node in self.writes.skipped:
            self._add_with_operands(node)

    def _add_with_operands(self, node: torch.fx.Node) -> None:
        """A value of its own for a node that was passed over, and for what it is made of."""
        waiting = [node]
        while waiting:
            node = waiting[-1]
            missing = [one for one in node.all_input_nodes if one not in self.values]
            if missing:
                waiting += missing
                continue
            waiting.pop()
            if node not in self.values:
                self.values[node] = self._value(node)

    def _look_at_whole(self, check: ElementCheck) -> None:
        if self.refusing:
            self._look_at(self.output, check)

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
        if record.rereads and cost_of(walk(self.builder.root(arguments[0]))) > CHEAP:
            arguments = (self.builder.materialise(arguments[0]), *arguments[1:])
        made = self._lowered(record, arguments, keywords)
        if made is NotImplemented:
            made = self._called(node, arguments, keywords)
        elif self.refusing and record.checks is not None and not self._is_secured():
            for check in record.checks(*arguments, **keywords):
                self._look_at(node, check)
        return self._settled(node, record, made)

    def _constant(self, node: torch.fx.Node) -> Lazy:
        value = constant(node)
        name = _unique(node.name, self.builder.buffers)
        type = TensorType.of(value).without_grad()
        self.builder.buffers[name] = Buffer(name, type, "constant", value)
        return self.builder.loads(name, type)

    def _lowered(self, record: Op, arguments: Any, keywords: Any) -> Any:
        if record.lower is None:
            return NotImplemented
        try:
            return record.lower(self.builder, *arguments, **keywords)
        except (TypeError, NotImplementedError) as reason:
            # A rule that needs a number where a size varies: the size is fixed, then it has one.
            names = _symbols_in((arguments, keywords))
            if not names:
                raise
            raise Specialise(names, f"the lowering of {record.name}: {reason}") from reason

    def _is_secured(self) -> bool:
        """Whether all that may be refused was looked at."""
        return self.order is not None and self.order.secured

    def _look_at(self, node: torch.fx.Node, check: ElementCheck) -> None:
        """Have all of an operand looked at, unless the op's own loops do."""
        if self.whole is None:
            self.whole = whole(self.graph, self.bases)
        builder, operand = self.builder, check.operand
        if (check.implied and node in self.whole) or operand.type.elements == 0:
            return

        # As wide as the operand, so that lanes match: 2 is an index out of bounds.
        dtype = torch.int64 if operand.type.dtype.itemsize == 8 else torch.int32
        fine, refused = (Term(builder, builder.constant(one, dtype)) for one in (0, 2))

        def each(index: Index) -> Any:
            return check.fine(Term(builder, operand.at(index))).where(fine, refused).scalar

        def at(index: Index) -> Any:
            worst = Term(builder, builder.reduce("max", operand.type.sizes, each)).to(torch.int64)
            return builder.index(builder.as_index(worst.scalar, 2, wrap=False))

        found = builder.tensor(TensorType(torch.int64, (), ()), at)
        view = builder.view_of(builder.materialise(found))
        assert view is not None
        self.looked_at.add(view.buffer)

    def _called(self, node: torch.fx.Node, arguments: Any, keywords: Any) -> Any:
        """An op without a lowering, as a call of the op itself."""
        if isinstance(node.target, Subgraphs):
            parts = [self.parts.get(id(one)) for one in node.target.graphs]
            if None not in parts and node.target.kind in extern.ENTRIES:
                return self._with_bodies(node, node.target, tuple(parts), arguments)  # type: ignore[arg-type]
        builder = self.builder
        types = info(node).type
        single = isinstance(types, TensorType)
        wanted: tuple[Any, ...] = (types,) if single else tuple(types or ())  # type: ignore[arg-type]
        route = (
            extern.route(node.target, arguments, keywords, wanted) if builder.native else "python"
        )
        if (
            route == "python"
            and self.order is not None
            and any(one.written for one in self.writes.all)
        ):
            raise _CalledTooLate
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

    def _with_bodies(
        self, node: torch.fx.Node, target: Subgraphs, parts: tuple[Part, ...], arguments: Any
    ) -> Any:
        """An operation with bodies, which are parts of the same program."""
        types: Any = info(node).type
        made = self.builder.native_call(
            target.kind,
            [one for one in arguments if isinstance(one, Lazy)],
            [*types, *control_flow.scratch(target, parts)],
            attributes=BodyParts(target, parts),
        )
        return made[: len(types)]

    def _settled(self, node: torch.fx.Node, record: Op, made: Any) -> Any:
        """Decide what is stored now, before anybody reads it."""
        if record.view:
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
            names = _symbols_in((type, value.type))
            if names and type.dtype is value.type.dtype:
                raise Specialise(names, f"the sizes of {node}: {value.type} or {type}")
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
        """A result has storage of its own, unless a call or definition has just made that: not one
        that wrote an input where it stands."""
        found = self.builder.view_of(value)
        written = found is not None and self.builder.buffers[found.buffer].over is not None
        if found is not None and self.builder.items and not written:
            last = self.builder.items[-1]
            names = last.results if isinstance(last, Call) else (last.buffer,)
            taken = {view.buffer for view in self._results_so_far()}
            if found.buffer in names and found.offset == 0 and found.buffer not in taken:
                return value
        return self.builder.store(value, exact=True)

    def _results_so_far(self) -> list[BufferView]:
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
        broadcast = widest > hint_of(value.type.elements) * BROADCAST
        return (cost > CHEAP and reads > 1) or (cost >= DEAR and broadcast)

    def _result(self, node: torch.fx.Node | None) -> BufferView | None:
        if node is None:
            return None
        value = self.values[node]
        type = tensor_type(node).without_grad()
        found = self.builder.view_of(Lazy(type, value.at)) if type.elements != 0 else None
        if found is None:
            found = self.builder.view_of(self.builder.store(Lazy(type, value.at), exact=True))
            if found is None:  # no elements: any place will do
                found = BufferView(self.builder.allocate(type), type)
        return BufferView(found.buffer, type, found.offset)


def needed(graph: torch.fx.Graph) -> set[torch.fx.Node]:
    """The nodes that results depend on, and those that have an effect of their own."""
    found: set[torch.fx.Node] = set()
    for node in reversed(graph.nodes):
        if node.op == "output" or _has_effect(node) or any(user in found for user in node.users):
            found.add(node)
    return found


def _has_effect(node: torch.fx.Node) -> bool:
    if node.op != "call_function":
        return False
    record = lookup(node.target)
    unread = record.refuses and not node.users
    return record.random or unread or extern.only_checks(node.target)


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
    return node.op == "call_function" and lookup(node.target).view


def _reads(node: torch.fx.Node) -> tuple[int, int]:
    """How many nodes read a value, looking through views, and the most elements of any of them."""
    count, widest = 0, 0
    for user in node.users:
        if _is_view(user) or user.target is operator.getitem:
            more, wide = _reads(user)
            count += more
        else:
            count += 1
            wide = _most_elements(info(user).type) if user.op == "call_function" else 0
        widest = max(widest, wide)
    return count, widest


def _most_elements(type: ValueType) -> int:
    if isinstance(type, TensorType):
        return hint_of(type.elements)
    sizes = [_most_elements(each) for each in type] if isinstance(type, tuple) else []
    return max(sizes, default=0)


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
            if record.lower is None or record.from_memory:
                return True
    return False


def _symbols_in(value: Any) -> frozenset[str]:
    """The names of the sizes that vary anywhere in the arguments of an op."""
    if isinstance(value, Lazy):
        return _symbols_in(value.type)
    if isinstance(value, TensorType):
        return _symbols_in((value.sizes, value.strides))
    if isinstance(value, Expression):
        return value.names
    if isinstance(value, dict):
        return _symbols_in(tuple(value.values()))
    if isinstance(value, (list, tuple)):
        return frozenset[str]().union(*map(_symbols_in, value))
    return frozenset()


def _unique(name: str, taken: Mapping[str, Any]) -> str:
    while name in taken:
        name += "_"
    return name


def _finished(
    builder: LoopBuilder,
    inputs: tuple[str, ...],
    results: tuple[BufferView | None, ...],
    looked_at: set[str],
) -> Loops:
    """Drop what no result needs and mark the buffers that are results."""
    wanted = {view.buffer for view in results if view is not None} | looked_at
    kept: list[Definition | Call] = []
    for item in reversed(builder.items):
        made = item.results if isinstance(item, Call) else (item.buffer,)
        if not wanted.isdisjoint(made) or (isinstance(item, Call) and extern.has_effect(item)):
            kept.append(item)
            wanted.update(made, reads_of(item))
            wanted.update(over for one in made if (over := builder.buffers[one].over))
    buffers = {}
    outside = {view.buffer for view in results if view is not None}
    for name, buffer in builder.buffers.items():
        if name in wanted or name in inputs:
            result = name in outside and buffer.place == "temporary"
            buffers[name] = replace(buffer, place="result") if result else buffer
    filled = frozenset(looked_at)
    return Loops(
        buffers, inputs, tuple(reversed(kept)), results, builder.scalars, effect_buffers=filled
    )


def reads_of(item: Definition | Call) -> set[str]:
    """The buffers that an item reads."""
    if isinstance(item, Definition):
        return {node.attribute[0] for node in walk(item.value) if node.op == "load"}
    return {view.buffer for view in views_in((item.arguments, item.attributes))}


def views_in(value: Any) -> list[BufferView]:
    """The views anywhere in the arguments of a call."""
    if isinstance(value, BufferView):
        return [value]
    if isinstance(value, Invocation):
        return views_in(value.keywords)
    if isinstance(value, (list, tuple)):
        return [view for each in value for view in views_in(each)]
    return []
