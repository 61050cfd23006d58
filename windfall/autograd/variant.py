"""Backward graphs for the ways in which a backward pass can be asked for.

Enters: a `Split` and which tangents there are, with which strides. Leaves: a `Variant`: a graph to
compile and how its results become gradients. All variants come from the one backward graph:

* A tangent that does not exist is zero, and backward is linear in the tangents: what depends on
  absent ones alone is zero too, a sum loses a term, and a gradient that is zero is None, as the
  engine has it. Only where a zero meets other values is it made.
* A tangent with other strides than recorded is laid out anew, by ops that fuse.

Invariant: the graph's results share no memory with its inputs or with each other. Gradients that
are the same value are one result, and a gradient that is a tangent is that tangent.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import torch
import torch.fx

from windfall.autograd.partition import copy_node
from windfall.autograd.passes import distinct, is_effect, memory_root
from windfall.autograd.restride import restride_surely, surely_same_layout
from windfall.dataclass import dataclass
from windfall.ir.dtype import TensorType
from windfall.ir.node import NodeInfo, info, set_info, tensor_type
from windfall.ir.role import Role, RoleKind, Roles, numbered
from windfall.ir.stages import Split
from windfall.ir.symint import Expression, Size, evaluate
from windfall.ops import fake as fakes
from windfall.ops.layout import strides_in_order

Node = torch.fx.Node
Strides = tuple[Size, ...] | None  # None: this tangent does not exist
aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to run backward: `graph` takes what was saved, then the tangents that exist.

    `gradients` has an entry for each input of the forward graph, for each result of it, then for
    each view between these: None,
    the number of a result of this graph, or `~k`: the tangent `k` itself."""

    strides: tuple[Strides, ...]
    graph: torch.fx.Graph = field(compare=False)
    gradients: tuple[int | None, ...] = field(compare=False)
    roles: Roles = field(compare=False, default_factory=Roles)
    symbols: tuple[Expression, ...] = ()  # passed before all tensors


def variant(
    split: Split,
    strides: Sequence[Strides],
    saved: Sequence[int] | None = None,
    wanted: Collection[int] | None = None,
) -> Variant:
    """The backward of `split` for tangents with these strides; of what was saved it takes only
    `saved`, where that is known to be enough. `wanted`: gradients of these inputs (then results)
    are asked for, and no others."""
    assert split.backward is not None
    whole = None
    if wanted is None:
        whole = _as_recorded(split, split.backward, tuple(strides), saved)
    made = whole if whole is not None else _Maker(split, tuple(strides), wanted).make(saved)
    return replace(made, roles=_roles(split, made, saved), symbols=split.symbols)


def _no_gradients(split: Split) -> list[int | None]:
    signature = split.signature
    return [None] * (len(signature.inputs) + split.visible + len(signature.between))


def _roles(split: Split, made: Variant, saved: Sequence[int] | None) -> Roles:
    everything = (
        *(Role(RoleKind.SAVED_INPUT, index) for index in split.saved_inputs),
        *(Role(RoleKind.SAVED_RESULT, index) for index in split.saved_results),
        *numbered(RoleKind.SAVED, len(split.saved)),
    )
    tangents = zip(split.tangent_results, made.strides, strict=True)
    owners = (
        *numbered(RoleKind.GRADIENT, len(split.signature.inputs)),
        *numbered(RoleKind.RESULT_GRADIENT, split.visible + len(split.signature.between)),
    )
    gradients: dict[int, Role] = {}  # of several that have the same one, the first
    for owner, slot in zip(owners, made.gradients, strict=True):
        if slot is not None and slot >= 0:
            gradients.setdefault(slot, owner)
    return Roles(
        (
            *numbered(RoleKind.SIZE, len(split.symbols)),
            *(everything if saved is None else (everything[index] for index in saved)),
            *(Role(RoleKind.TANGENT, index) for index, one in tangents if one is not None),
        ),
        tuple(gradients[slot] for slot in sorted(gradients)),
    )


def _as_recorded(
    split: Split,
    backward: torch.fx.Graph,
    strides: tuple[Strides, ...],
    saved: Sequence[int] | None,
) -> Variant | None:
    """The usual case: everything is asked for as it was recorded, and the graph is taken as it is,
    not copied. None: it is not the case."""
    placeholders = [node for node in backward.nodes if node.op == "placeholder"]
    count = len(placeholders) - len(strides)
    expected = tuple(tensor_type(node).strides for node in placeholders[count:])
    if strides != expected or (saved is not None and tuple(saved) != tuple(range(count))):
        return None
    results: Any = next(iter(reversed(backward.nodes))).args[0]
    roots = [memory_root(one) for one in results if isinstance(one, Node)]
    shared = any(one.op in ("placeholder", "get_attr") for one in roots)
    if shared or len({*roots}) < len(results):
        return None
    slots = _no_gradients(split)
    for place, index in enumerate(split.gradients_for):
        slots[index] = place
    return Variant(strides, backward, tuple(slots))


def tangent_types(split: Split) -> list[TensorType]:
    """The types that were expected of the tangents."""
    assert split.backward is not None
    placeholders = [node for node in split.backward.nodes if node.op == "placeholder"]
    first = len(placeholders) - len(split.write_tangents_for) - len(split.tangents_for)
    return [tensor_type(node) for node in placeholders[first:]]


def expressed(
    strides: tuple[Any, ...], expected: TensorType, values: Mapping[str, int]
) -> tuple[Size, ...]:
    """A tangent's strides in a call: as expected, or dense in another order of dimensions, if they
    are that in this call; else integers, which hold in this call alone (0 and 1 apart)."""
    sizes = expected.sizes
    innermost_first = sorted(range(expected.rank), key=lambda dim: (strides[dim], -dim))
    for wanted in (expected.strides, strides_in_order(sizes, innermost_first)):
        if all(
            size == 1 or evaluate(stride, values) == given
            for size, stride, given in zip(sizes, wanted, strides, strict=True)
        ):
            return wanted
    known = {evaluate(one, values): one for one in expected.strides if isinstance(one, Expression)}
    return tuple(known.get(one, one) if one > 1 else one for one in strides)


class _Maker:
    def __init__(
        self, split: Split, strides: tuple[Strides, ...], wanted: Collection[int] | None
    ) -> None:
        assert split.backward is not None
        self._wanted = split.gradients_for if wanted is None else wanted
        self._split = split
        self._strides = strides
        self._source: torch.fx.Graph = split.backward
        self._graph = torch.fx.Graph()
        self._graph.owning_module = self._source.owning_module
        self._made: dict[Node, Node] = {}
        self._zero: set[Node] = set()
        self._after_tangents: set[Node] = set()
        self._here = NodeInfo(None)

    def make(self, saved: Sequence[int] | None) -> Variant:
        placeholders = [node for node in self._source.nodes if node.op == "placeholder"]
        count = len(placeholders) - len(self._strides)
        for index in range(count) if saved is None else saved:
            self._placeholder(placeholders[index], tensor_type(placeholders[index]))
        tangents = placeholders[count:]
        self._tangents(tangents)
        results: Any = ()
        for node in self._source.nodes:
            if node.op == "output":
                results = node.args[0]
            elif node.op != "placeholder":
                self._copy(node)
        return self._finish(results, tangents)

    def _placeholder(self, node: Node, type: TensorType) -> Node:
        made = self._made[node] = self._graph.placeholder(node.name)
        return set_info(made, replace(info(node), type=type))

    def _tangents(self, tangents: Sequence[Node]) -> None:
        given = []
        for node, strides in zip(tangents, self._strides, strict=True):
            self._after_tangents.add(node)
            if strides is None:
                self._zero.add(node)
            else:
                given.append(node)
                self._placeholder(node, replace(tensor_type(node), strides=strides))
        for node in given:
            self._here = info(node)
            self._made[node] = restride_surely(self._emit, self._made[node], tensor_type(node))

    def _emit(self, func: Any, *args: Any, **kwargs: Any) -> Node:
        types = [info(one).type if isinstance(one, Node) else one for one in args]
        node = self._graph.call_function(func, args, kwargs)
        type = fakes.infer(func, types, kwargs)
        return set_info(node, NodeInfo(type, self._here.origin, self._here.region))

    def _copy(self, node: Node) -> None:
        """Copy one node, unless absent tangents make it zero or a smaller thing."""
        moving = [one for one in node.all_input_nodes if one in self._after_tangents]
        if not moving:
            return  # made when something needs it
        self._after_tangents.add(node)
        absent = [one for one in moving if one in self._zero]
        if len(absent) == len(moving):
            self._zero.add(node)
            return
        self._here = info(node)
        if absent:
            rest = self._without_zero_term(node)
            if rest is not None:
                self._made[node] = rest
                return
            for one in absent:
                self._materialise(one)
        copy_node(self._graph, node, self._made)

    def _without_zero_term(self, node: Node) -> Node | None:
        if node.target is not aten.add.Tensor or node.kwargs or len(node.args) != 2:
            return None
        terms = [one for one in node.args if isinstance(one, Node) and one not in self._zero]
        if len(terms) == 1 and surely_same_layout(tensor_type(terms[0]), tensor_type(node)):
            return self._made[terms[0]]
        return None

    def _materialise(self, node: Node) -> None:
        if node in self._made:
            return
        type = tensor_type(node)
        zeros = self._emit(
            aten.full.default, list(type.sizes), 0, dtype=type.dtype, device=type.device
        )
        self._made[node] = restride_surely(self._emit, zeros, type)

    def _finish(self, results: Sequence[Node | None], tangents: Sequence[Node]) -> Variant:
        """Name each gradient once, and end the graph."""
        unique: dict[Node, int] = {}
        slots = _no_gradients(self._split)
        for index, node in zip(self._split.gradients_for, results, strict=True):
            if node is None or node in self._zero or index not in self._wanted:
                continue
            copy_node(self._graph, node, self._made)
            if node in tangents:
                slots[index] = ~tangents.index(node)
            else:
                slots[index] = unique.setdefault(self._made[node], len(unique))
        output = set_info(self._graph.output(tuple(unique)), NodeInfo(None))
        output.args = (tuple(distinct(self._graph, output, tuple(unique))),)
        for node in reversed(list(self._graph.nodes)):
            if not node.users and node.op == "call_function" and not is_effect(node):
                self._graph.erase_node(node)
        return Variant(self._strides, self._graph, tuple(slots))
