"""Inputs that a graph writes are written where they stand: what goes where, and when.

Enters: a pure graph, and which of its results are the new contents of which inputs. Leaves: a
`Write` for each that can be placed: the versions of the input's contents, one after the other, and
for each version the pieces of memory that differ from the one before, with the nodes whose values
go there. So of `slice_scatter(cache, row, 2, 5, 6)` one row is stored, and of an average all.

Invariant: writing the pieces of all versions, in order, into the input's memory leaves there what
the graph answers. When that may be done, and what must be read before, is for `lower.py` to say.

    select_scatter(x, slice_scatter(select(x, 0, 1), k, 1, 3, 4), 0, 1)   =>   x[1, :, 3:4] = k
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import torch
import torch.fx

from windfall.codegen import extern
from windfall.codegen.builder import LoopBuilder
from windfall.dataclass import dataclass
from windfall.errors import InternalError
from windfall.ir.dtype import TensorType
from windfall.ir.loop import BufferView, Index, Lazy, Scalar
from windfall.ir.node import info, tensor_type
from windfall.ops.registry import Op, all_ops, lookup
from windfall.ops.schema import overload

Node = torch.fx.Node


@dataclass(frozen=True, slots=True)
class WrittenPiece:
    """A part of an input's memory and the node whose value goes there; `writer`: the op that writes
    it there by itself, given the part in place of the node's first argument."""

    view: BufferView
    node: Node
    writer: Any = None


@dataclass(slots=True)
class Write:
    """An input that is written in place."""

    result: int  # the position of its new contents among the graph's results
    input: Node
    type: TensorType
    buffer: str  # what holds its contents now
    versions: list[Node]  # its contents one after the other, the result last
    pieces: dict[Node, list[WrittenPiece]]  # of each version
    absorbed: set[Node]  # nodes that only say which part of it changes
    written: int = 0  # how many versions are

    def upto(self, version: Node) -> list[Node]:
        """The versions that are to be written so that memory holds this one."""
        return self.versions[self.written : self.versions.index(version) + 1]


@dataclass(slots=True)
class Writes:
    """All inputs that are written in place. `skipped`: nodes whose values nobody needs, for they
    are written piece by piece; `read`: versions that somebody reads, with their writes."""

    all: list[Write] = field(default_factory=list)
    skipped: set[Node] = field(default_factory=set)
    read: dict[Node, Write] = field(default_factory=dict)

    @property
    def results(self) -> dict[int, Write]:
        """By the positions of results."""
        return {one.result: one for one in self.all}

    def sources(self) -> set[Node]:
        """Nodes whose values are still to be written, and what else that takes."""
        return {
            node
            for write in self.all
            for version in write.versions[write.written :]
            for piece in write.pieces[version]
            for node in (piece.node.all_input_nodes[1:] if piece.writer else (piece.node,))
        }


def find_writes(
    builder: LoopBuilder,
    inputs: Mapping[Node, str],
    results: Sequence[Node | None],
    written: Sequence[int | None],
    needed: set[Node],
    bases: Mapping[Node, int],
) -> Writes:
    """The writes that can be placed. `inputs` are the graph's, with their buffers; the first of its
    results are new contents of those at the positions `written` (None: of one that is not to be
    written here); `bases` counts, of nodes that results lie in, how many do."""
    found, given = Writes(), list(inputs)
    for position, number in enumerate(written):
        result = results[position]
        if number is None or result is None or result.op != "call_function":
            continue
        input = given[number]
        type = tensor_type(input).without_grad()
        alike = _layout(tensor_type(result)) == _layout(type)
        if type.elements == 0 or not alike or bases.get(_root(result), 0) != 1:
            continue
        search = _Search(builder, input, inputs[input], type, bases)
        found.all.append(search.write(position, result))
    for write in found.all:
        _note_readers(write, found, needed)
    return found


def _layout(type: TensorType) -> tuple[Any, ...]:
    return type.dtype, type.sizes, type.strides


def _root(node: Node) -> Node:
    """The node whose memory a node's value lies in."""
    while _is_view(node):
        node = node.args[0]  # type: ignore[assignment]
    return node


def _is_view(node: Node) -> bool:
    of_node = node.op == "call_function" and node.args and isinstance(node.args[0], Node)
    return bool(of_node) and lookup(node.target).view and isinstance(info(node).type, TensorType)


class _Search:
    """Which parts of one input change from version to version."""

    def __init__(
        self,
        builder: LoopBuilder,
        input: Node,
        buffer: str,
        type: TensorType,
        bases: Mapping[Node, int],
    ) -> None:
        self.builder = builder
        self.input = input
        self.buffer = buffer
        self.type = type
        self.bases = bases
        self.whole = BufferView(buffer, type)
        self.absorbed: set[Node] = set()

    def write(self, position: int, result: Node) -> Write:
        """The write whose last version is `result`."""
        versions, pieces = [result], {}
        while True:
            version = versions[-1]
            before = _version_before(version)
            parts = None
            if before is not None and self._is_version(before):
                self.absorbed.add(version)
                parts = self._parts(self.whole, version, before)
            if parts is None or before is None or parts == [WrittenPiece(self.whole, version)]:
                self.absorbed.discard(version)
                pieces[version] = [WrittenPiece(self.whole, version)]
                break
            pieces[version] = parts
            if before is self.input:
                break
            versions.append(before)
        versions.reverse()
        return Write(position, self.input, self.type, self.buffer, versions, pieces, self.absorbed)

    def _is_version(self, node: Node) -> bool:
        """Whether a node may have been the contents before: no other result lies in it."""
        if node is self.input:
            return True
        if node.op != "call_function" or not isinstance(info(node).type, TensorType):
            return False
        return self.bases.get(node, 0) == 0 and _layout(tensor_type(node)) == _layout(self.type)

    def _parts(self, view: BufferView, node: Node, before: Node) -> list[WrittenPiece]:
        """What of a part of the memory changes where `node` is to be there, and the version
        `before` is."""
        changed = _same_elements(node)
        if changed is not node:
            found = self._parts(view, changed, before)
            if found != [WrittenPiece(view, changed)]:
                self.absorbed.add(node)
                return found
            return [WrittenPiece(view, node)]
        if _is_view(node):
            return self._behind_view(view, node, before)
        record = lookup(node.target) if node.op == "call_function" else None
        if record is None or not _has_base(node) or self._lies(node.args[0], before) != view:
            return [WrittenPiece(view, node)]
        writer = _writer(node)
        if writer is not None:
            return [WrittenPiece(view, node, writer)]
        shows = _views_by_scatter().get(record.name)
        part = shows and self._seen(shows, view, node.args[2:], node.kwargs)
        if not part:
            return [WrittenPiece(view, node)]
        self.absorbed.add(node)
        source = node.args[1]
        assert isinstance(source, Node)
        return self._parts(part, source, before)

    def _behind_view(self, view: BufferView, node: Node, before: Node) -> list[WrittenPiece]:
        """A view undoes another one: what was changed lies in the same memory."""
        inner = _same_elements(node.args[0])  # type: ignore[arg-type]
        if inner.op == "call_function" and (_is_view(inner) or _has_base(inner)):
            start = _view_before(inner)
            found = self._lies(start, before) if start is not None else None
            if found is not None and found.type.sizes != tensor_type(inner).sizes:
                found = None  # it was reduced, say: nothing is put into it
            if found is not None and self._of_node(node, found) == view:
                parts = self._parts(found, inner, before)
                if parts != [WrittenPiece(found, inner)]:
                    self.absorbed.add(node)
                    return parts
        return [WrittenPiece(view, node)]

    def _lies(self, node: Any, before: Node) -> BufferView | None:
        """Where a view of the version `before` lies."""
        if node is before:
            return self.whole
        if not isinstance(node, Node) or not _is_view(node):
            return None
        found = self._lies(node.args[0], before)
        return None if found is None else self._of_node(node, found)

    def _of_node(self, node: Node, base: BufferView) -> BufferView | None:
        """Where a view lies whose first argument lies at `base`."""
        return self._seen(lookup(node.target), base, node.args[1:], node.kwargs)

    def _seen(
        self, record: Op, view: BufferView, args: Sequence[Any], keywords: Any
    ) -> BufferView | None:
        """A view of a view."""
        if record.lower is None or record.absolute_offset:
            return None
        lazy = self.builder.loads(view.buffer, view.type, view.offset)
        made = record.lower(self.builder, lazy, *args, **keywords)
        if made is NotImplemented or isinstance(made, (list, tuple)):
            return None
        if made.type.elements == 0:
            return None
        return self.builder.view_of(made)


def _has_base(node: Node) -> bool:
    return bool(node.args) and isinstance(node.args[0], Node)


def _version_before(version: Node) -> Node | None:
    """What a version was made from, if a part of that was replaced."""
    node = _same_elements(version)
    while _is_view(node):
        node = _same_elements(node.args[0])  # type: ignore[arg-type]
    if node.op != "call_function" or not _has_base(node):
        return None
    if lookup(node.target).name not in _views_by_scatter() and _writer(node) is None:
        return None
    return _root(node.args[0])  # type: ignore[arg-type]


def _view_before(node: Node) -> Node | None:
    """The view, of the version before, that `node` puts something into."""
    while _is_view(node):
        node = _same_elements(node.args[0])  # type: ignore[arg-type]
    return node.args[0] if _has_base(node) else None  # type: ignore[return-value]


def _same_elements(node: Node) -> Node:
    """What a node has the elements of, however these lie: copies for the sake of a layout."""
    while True:
        before = _copied(node)
        if before is None or tensor_type(before).sizes != tensor_type(node).sizes:
            return node
        if tensor_type(before).dtype is not tensor_type(node).dtype:
            return node
        node = before


def _copied(node: Node) -> Node | None:
    if node.op != "call_function" or not isinstance(info(node).type, TensorType):
        return None
    name = lookup(node.target).name
    if name == "aten.clone.default":
        return node.args[0]  # type: ignore[return-value]
    if name == "aten.copy.default":
        return node.args[1]  # type: ignore[return-value]
    if name != "aten.permute.default":
        return None
    copy = node.args[0]
    inner = copy.args[0] if isinstance(copy, Node) and _is(copy, "aten.clone.default") else None
    if not isinstance(inner, Node) or not _is(inner, "aten.permute.default"):
        return None
    there, back = ([dim % len(one) for dim in one] for one in (inner.args[1], node.args[1]))  # type: ignore[union-attr,arg-type,operator]
    return inner.args[0] if [there[dim] for dim in back] == sorted(there) else None  # type: ignore[return-value]


def _is(node: Node, name: str) -> bool:
    return node.op == "call_function" and lookup(node.target).name == name


@functools.cache
def _views_by_scatter() -> dict[str, Op]:
    """The views that the `*_scatter` ops put something into."""
    return {record.scatter: record for record in all_ops() if record.scatter is not None}


def _writer(node: Node) -> Any:
    """The op that writes its first argument instead of answering a changed copy, where all that it
    may refuse can be looked at before, and machine code can call it."""
    record = lookup(node.target)
    if record.lower is not None or record.checks is None:
        return None
    packet, _, name = record.name.rpartition(".")
    found = overload(f"{packet}_.{name}")
    args: Any = torch.fx.map_arg((node.args, node.kwargs), _typed)  # type: ignore[arg-type]
    told = found is not None and record.checks(*args[0], **args[1]) is not None
    return found if told and extern.is_called(found, args[0], args[1]) else None


def _typed(node: Node) -> Lazy:
    """A tensor of which nobody looks at more than its type."""

    def at(index: Index) -> Scalar:
        raise InternalError(f"{node} has no elements yet")

    return Lazy(tensor_type(node).without_grad(), at)


def _note_readers(write: Write, found: Writes, needed: set[Node]) -> None:
    """Which versions are read, and which nodes need no value where versions are written."""
    pieces = [piece for parts in write.pieces.values() for piece in parts]
    sources = {piece.node for piece in pieces if piece.writer is None}
    writers = {piece.node for piece in pieces if piece.writer is not None}
    sources.update(one for node in writers for one in node.all_input_nodes[1:])
    idle = ({*write.absorbed, *writers, *_views_between(write)} - sources) & needed
    versions = idle.intersection(write.versions)

    def is_read(node: Node) -> bool:
        """By somebody who needs its value; as the result that is written it needs none."""
        last = node is write.versions[-1]
        users = (one for one in node.users if one in needed and one not in idle)
        return any(one.op != "output" or not last for one in users)

    while True:
        read = {node for node in idle if node not in versions and is_read(node)}
        if not read:
            break
        idle -= read
    found.skipped |= idle
    found.read.update((one, write) for one in write.versions if is_read(one))


def _views_between(write: Write) -> Iterator[Node]:
    """Views that what is absorbed puts something into."""
    for node in list(write.absorbed):
        for one in node.all_input_nodes:
            while _is_view(one):
                yield one
                one = one.args[0]  # type: ignore[assignment]
