"""Graph → graph: convolutions choose how their operands lie in memory.

Enters: an SSA graph of ATen overloads whose types are eager's. Leaves: the same computation, in
which some convolutions read and write channels-last tensors, as do the ops between them; the graph
itself where nothing is gained. Invariants: inputs and results of the graph keep eager's types, to
the stride; every value keeps its elements; weights are read where they are, never copied.

oneDNN computes a convolution of row-major images in a layout of its own: it reorders the input
before and the result after. Channels-last images it takes as they are. So the rule: each element of
input and result that need not be reordered is a gain; each element of the weights is a loss, for
they are reordered on every call and that layout is the dearer one; each element that must be copied
from one layout to the other is a loss. `choose` weighs them, `_Arrangement` writes the new graph: a
changed type runs on through the shape rules of the ops, and where an op (or the caller) needs
eager's layout a `clone` stands, which lowering merges with the loops around it.

    conv -> batch norm -> relu -> conv -> flatten      clone | conv norm relu conv | clone flatten
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.fx

from windfall import torch_abi
from windfall.codegen import dispatcher
from windfall.errors import Specialise
from windfall.ir.dtype import TensorType, contiguous_strides
from windfall.ir.node import NodeInfo, ValueType, copy_into, info, set_info, tensor_type
from windfall.ir.symint import Size, hint_of
from windfall.ops.layout import channels_last_strides
from windfall.ops.registry import Op, lookup
from windfall.ops.windows import spread

Node = torch.fx.Node

CONVOLUTION = torch.ops.aten.convolution.default
CLONE = torch.ops.aten.clone.default

# Nanoseconds of one thread, as measured by `python -m benchmarks.layouts`.
REORDERED = 0.45  # gained for each element of input and result that oneDNN need not reorder
MULTIPLIED = 0.001  # gained for each multiplication: the channels-last kernels are faster
NARROW = 0.0065  # lost for each multiplication instead, where channels are few
FEW = 8  # so many: less than a vector
WEIGHT = 0.4  # lost for each element of the weights: they are reordered into a dearer layout
CALL = 10_000  # lost by a call that is made otherwise
POOLED = 0.5  # gained for each element that is pooled
COPIED = 0.4  # lost for each element that is copied from row-major to channels-last
RESTORED = 1.0  # lost for each element that is copied back


def assign_layouts(graph: torch.fx.Graph) -> torch.fx.Graph:
    """The graph with convolutions in the layouts in which they are fastest; itself if they are."""
    overload = torch_abi.described_convolution()
    if overload is None:
        return graph
    try:
        gains = {node: _gain(node) for node in graph.nodes if _is_candidate(node)}
        if not any(gain > 0 for gain in gains.values()):
            return graph
        return _Arrangement(graph, overload, gains).run()
    except Specialise:  # a size that nobody can guess, or a rule that asks about its strides
        return graph


# -------------------------------------------------------------------------------------- choosing


def _is_candidate(node: Node) -> bool:
    """Whether a node is a convolution of row-major images that oneDNN can do channels-last."""
    if node.op != "call_function" or node.target is not CONVOLUTION:
        return False
    x, weight, out = _type(node.args[0]), _type(node.args[1]), _type(node)
    _, _, _, stride, padding, dilation, transposed, _, groups = node.args
    settings: Any = (stride, padding, dilation)
    return (
        x.rank in (4, 5)
        and weight.rank == x.rank
        and x.dtype is torch.float32
        and not transposed
        and groups in (1, x.sizes[1])  # groups of several channels each are slow there
        and dispatcher.can_describe(weight)
        and 0 not in (*x.sizes, *out.sizes)
        and out.strides == contiguous_strides(out.sizes)
        and all(isinstance(number, int) for each in settings for number in each)
    )


def _type(node: Any) -> TensorType:
    return tensor_type(node)


def _elements(node: Any) -> int:
    type = info(node).type
    return hint_of(type.elements) if isinstance(type, TensorType) else 0


def _gain(node: Node) -> float:
    """What a convolution gains, in ns, by images that lie channels-last."""
    x, weight, *_, groups = node.args
    number = groups if isinstance(groups, int) else 1
    return gain_of(_elements(x), _elements(node), _type(weight).sizes, number)


def gain_of(given: int, made: int, weight: Sequence[Size], groups: int = 1) -> float:
    """The same by numbers of elements and the sizes of the weights."""
    window = math.prod(map(hint_of, weight[1:]))
    rate = -NARROW if min(map(hint_of, weight[:2])) < FEW else MULTIPLIED
    multiplied = 0.0 if groups > 1 else rate * made * window
    weights = WEIGHT * window * hint_of(weight[0])
    return REORDERED * (given + made) + multiplied - weights - CALL


class _Preferences:
    """For each value, what is gained in ns by those who read it if it lies channels-last."""

    def __init__(self, graph: torch.fx.Graph, gains: Mapping[Node, float]) -> None:
        self.gains = gains
        self.found: dict[Node, float] = {}
        for node in reversed(graph.nodes):
            if node.op == "call_function":
                self.found[node] = sum(self._asked(user, node) for user in node.users)

    def _asked(self, user: Node, node: Node) -> float:
        elements = _elements(node)
        if user in self.gains and user.args[0] is node:
            gain = self.gains[user] + self.found[user]
            return max(gain, -RESTORED * elements) - max(gain - COPIED * elements, 0.0)
        if user.target is operator.getitem:
            return self.found[user]
        if not _flows(user):
            return -RESTORED * elements
        if _rank_of(info(user).type) != _rank_of(info(node).type):
            return 0.0
        return self.found[user] + _pooling_gain(user, node)


def _pooling_gain(user: Node, node: Node) -> float:
    """What pooling gains by vectors of channels; it loses by such that are not full."""
    if not lookup(user.target).pools:
        return 0.0
    sizes = _type(node).sizes
    full = len(sizes) > 3 and hint_of(sizes[1]) >= FEW
    return (POOLED if full else -POOLED) * _elements(node)


def _rank_of(type: ValueType) -> int:
    while isinstance(type, tuple):
        type = type[0] if type else None
    return type.rank if isinstance(type, TensorType) else -1


def _flows(node: Node) -> bool:
    """Whether a node takes operands that lie otherwise than in eager, and its shape rule says how
    its results lie then. (Random numbers are drawn in the order of memory.)"""
    if node.op != "call_function":
        return False
    record = lookup(node.target)
    if not record.any_layout or record.shape is None or record.random:
        return False
    return not any(user.args[1] in record.by_layout for user in node.users if record.by_layout)


# --------------------------------------------------------------------------------------- writing


class _Arrangement:
    """One pass over the nodes: the new graph, with the new types."""

    def __init__(self, graph: torch.fx.Graph, overload: Any, gains: Mapping[Node, float]) -> None:
        self.graph = graph
        self.overload = overload
        self.gains = gains
        self.preferences = _Preferences(graph, gains).found
        self.new = torch.fx.Graph(graph.owning_module)
        self.made: dict[Node, Node] = {}
        self.changed: dict[Node, ValueType] = {}  # by node of the old graph: its type in the new
        self.restored: dict[Node, Node] = {}
        self.copies: dict[Node, Node] = {}

    def run(self) -> torch.fx.Graph:
        """The new graph; the old one if no convolution changed."""
        for node in self.graph.nodes:
            self.made[node] = self._node(node)
        return self.new if self.changed else self.graph

    def _node(self, node: Node) -> Node:
        if node.op == "output":
            return self._copied(node, self._restored)
        if node in self.gains and self._is_chosen(node):
            return self._convolution(node)
        if not any(each in self.changed for each in node.all_input_nodes):
            return self._copied(node, self.made.__getitem__)
        type = self._new_type(node)
        old = info(node)
        if not _same_but_strides(type, old.type):
            return self._copied(node, self._restored)
        made = self._copied(node, self.made.__getitem__)
        if _strides(type) != _strides(old.type):
            self.changed[node] = type
            set_info(made, replace(old, type=type))
        return made

    def _copied(self, node: Node, argument: Any) -> Node:
        return copy_into(self.new, node, argument)

    # ------------------------------------------------------------------------------ convolutions

    def _is_chosen(self, node: Node) -> bool:
        x: Any = node.args[0]
        copying = -RESTORED if x in self.changed else COPIED
        return self.gains[node] + self.preferences[node] > copying * _elements(x)

    def _convolution(self, node: Node) -> Node:
        given: Any = node.args
        x, weight, bias, stride, padding, dilation, _, _, groups = given
        count = _type(x).rank - 2
        steps, pads, gaps = (list(spread(each, count)) for each in (stride, padding, dilation))
        operands = (self._channels_last(x), self._restored(weight))
        shift = None if bias is None else self._restored(bias)
        arguments: Any = (*operands, shift, pads, steps, gaps, groups, "none", [], None)
        made = self.new.call_function(self.overload, arguments)
        old = info(node)
        type = _channels_last(old.type)
        self.changed[node] = type
        return set_info(made, replace(old, type=type))

    def _channels_last(self, node: Any) -> Node:
        """A value in channels-last layout: as it is, or a copy."""
        found = self.changed.get(node, info(node).type)
        wanted = _channels_last(found)
        if found == wanted:
            return self.made[node]
        if node not in self.copies:
            made = self.new.call_function(CLONE, (self.made[node],))
            self.copies[node] = set_info(made, NodeInfo(wanted, info(node).origin))
        return self.copies[node]

    # ----------------------------------------------------------------------------- other types

    def _restored(self, node: Node) -> Node:
        """A value as eager lays it out: as it is, a view of a copy, or a copy."""
        if node not in self.changed:
            return self.made[node]
        found = self.restored.get(node)
        if found is None:
            if _is_view(node):
                found = self._copied(node, self._restored)
            else:
                made = self.new.call_function(CLONE, (self.made[node],))
                found = set_info(made, info(node))
            self.restored[node] = found
        return found

    def _new_type(self, node: Node) -> ValueType:
        """The type that a node has now that operands lie otherwise; None: they must not."""
        if node.target is operator.getitem:
            given: Any = node.args
            several: Any = self.changed[given[0]]
            item: ValueType = several[given[1]]
            return item
        record = lookup(node.target)
        if not _flows(node):
            return None
        return self._by_rule(record, node)

    def _by_rule(self, record: Op, node: Node) -> ValueType:
        def known(each: Node) -> Any:
            type = self.changed.get(each, info(each).type)
            return type.without_grad() if isinstance(type, TensorType) else type

        arguments: Any = torch.fx.map_arg(node.args, known)
        keywords: Any = torch.fx.map_arg(node.kwargs, known)
        assert record.shape is not None
        found: ValueType = record.shape(*arguments, **keywords)
        return found


def _is_view(node: Node) -> bool:
    """Whether a value shares the storage of its node's first argument."""
    made_by: Any = node.args[0] if node.target is operator.getitem else node
    record = lookup(made_by.target)
    return record.view


def _channels_last(type: Any) -> TensorType:
    assert isinstance(type, TensorType)
    return replace(type, strides=channels_last_strides(type.sizes), requires_grad=False)


def _same_but_strides(found: Any, old: Any) -> bool:
    if isinstance(found, TensorType) and isinstance(old, TensorType):
        return found.sizes == old.sizes and found.dtype is old.dtype
    if isinstance(found, (list, tuple)) and isinstance(old, (list, tuple)):
        pairs = list(zip(found, old, strict=False))
        return len(found) == len(old) and all(_same_but_strides(*pair) for pair in pairs)
    return found is None and old is None


def _strides(type: ValueType) -> Any:
    if isinstance(type, (list, tuple)):
        return tuple(map(_strides, type))
    return type.strides if isinstance(type, TensorType) else None
