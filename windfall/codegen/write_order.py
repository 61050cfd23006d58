"""When inputs are written in place: after everything that reads what they held, or may fail.

Enters: the `Writes` of a graph under lowering, and the values of its nodes so far. Leaves:
definitions and calls that write inputs, among the items of the builder.

Invariant: nothing that follows a write reads what was there before it, and nothing that follows
the first write of all may refuse its data: where a graph fails, its inputs are as they were, and
eager begins again (ADR 27).

An input whose new contents nobody reads is written at the end. Where somebody reads them (attention
over a cache), they are written at once and read where they stand, if all that may be refused later
can be looked at before; else readers have values of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch.fx

from windfall.codegen.builder import LoopBuilder, offset_in
from windfall.codegen.copy_rows import rows_of
from windfall.codegen.in_place import Write, Writes, WrittenPiece
from windfall.errors import InternalError
from windfall.ir.loop import BufferView, Call, Index, Invocation, Lazy, Scalar, walk
from windfall.ir.node import info, tensor_type
from windfall.ops.failing import ElementCheck
from windfall.ops.registry import lookup

Node = torch.fx.Node
Part = tuple[Write, WrittenPiece]


class WriteOrder:
    """The writes of one graph, at work. `values` are those of the nodes so far, and change where
    what they read is about to be written; `look_at` has all of an operand looked at."""

    def __init__(
        self,
        builder: LoopBuilder,
        writes: Writes,
        values: dict[Node, Any],
        nodes: Sequence[Node],
        look_at: Callable[[ElementCheck], None],
    ) -> None:
        self.builder = builder
        self.writes = writes
        self.values = values
        self.look_at = look_at
        self.nodes = list(nodes)
        self.needed = set(nodes)
        self.secured = False  # nothing that is left can fail
        for version, write in writes.read.items():
            self._read_before(version, write)

    # ------------------------------------------------------------------------------ order of nodes

    def _read_before(self, version: Node, write: Write) -> None:
        """Let those nodes come before a version that read the contents before it, if they can."""
        place = self.nodes.index(version)
        behind = {version}
        movable: list[Node] = []
        for node in self.nodes[place + 1 :]:
            if not behind.isdisjoint(node.all_input_nodes):
                behind.add(node)
            else:
                movable.append(node)
        old = {write.input, *write.versions[: write.versions.index(version)]}
        later = set(movable)
        wanted: set[Node] = set()
        for node in reversed(movable):
            reads_old = not old.isdisjoint(node.all_input_nodes)
            if node.op == "call_function" and (reads_old or node in wanted):
                wanted.add(node)
                wanted.update(one for one in node.all_input_nodes if one in later)
        if wanted and not any(lookup(one.target).random for one in wanted):
            rest = [one for one in self.nodes[place:] if one not in wanted]
            self.nodes[place:] = [*(one for one in movable if one in wanted), *rest]

    # ------------------------------------------------------------------------------------- writing

    def write(self, version: Node) -> bool:
        """Write a version that somebody reads, if nothing that follows can fail."""
        write = self.writes.read[version]
        if not self._secure():
            return False
        write_now = [(write, piece) for one in write.upto(version) for piece in write.pieces[one]]
        write.written = write.versions.index(version) + 1
        parts = self._prepared(write_now, {write.buffer})
        self._keep_old({write.buffer})
        self._emit(parts)
        return True

    def write_rest(self) -> None:
        """Write all that was not written yet: the graph has come to its end."""
        left = [one for one in self.writes.all if one.written < len(one.versions)]
        parts = [
            (write, piece)
            for write in self._in_order(left)
            for version in write.versions[write.written :]
            for piece in write.pieces[version]
        ]
        for _, piece in parts:
            if piece.writer is not None and not self.secured:
                checks = self._checks_of(piece.node)
                if checks is None:
                    raise InternalError(f"{piece.node} may be refused after a write")
                for check in checks:
                    self.look_at(check)
        for write in left:
            write.written = len(write.versions)
        self._emit(self._prepared(parts, {one.buffer for one in left}))

    def _secure(self) -> bool:
        """Whether nothing that is left can fail, once what it may refuse was looked at: now."""
        if self.secured:
            return True
        checks: list[ElementCheck] = []
        for node in self.nodes:
            if node in self.values or not lookup(node.target).refuses:
                continue
            asked = self._checks_of(node)
            if asked is None:
                return False
            checks += asked
        for check in checks:
            self.look_at(check)
        self.secured = True
        return True

    def _checks_of(self, node: Node) -> list[ElementCheck] | None:
        """What an op asks of its operands; None: it cannot be told before the op is reached."""
        rule = lookup(node.target).checks
        if rule is None:
            return None
        unknown: list[Lazy] = []

        def operand(one: Node) -> Any:
            if one not in self.values:
                unknown.append(_of_type(one))
                return unknown[-1]
            return self.values[one]

        arguments: Any = torch.fx.map_arg((node.args, node.kwargs), operand)
        told = rule(*arguments[0], **arguments[1])
        if told is None:
            return None
        checks = [replace(one, implied=False) for one in told]
        return None if any(one.operand in unknown for one in checks) else checks

    def _in_order(self, writes: Sequence[Write]) -> list[Write]:
        """Who reads what another one writes comes before it, if that can be."""
        waiting = list(writes)
        reads = {id(one): self._reads(one) for one in waiting}
        done: list[Write] = []
        readers: dict[str, int] = {}
        for one in waiting:
            for name in reads[id(one)] - {one.buffer}:
                readers[name] = readers.get(name, 0) + 1
        while waiting:
            free = [one for one in waiting if not readers.get(one.buffer)]
            chosen = free or waiting[:1]
            for one in chosen:
                for name in reads[id(one)] - {one.buffer}:
                    readers[name] -= 1
            taken = set(map(id, chosen))
            waiting = [one for one in waiting if id(one) not in taken]
            done += chosen
        return done

    def _reads(self, write: Write) -> set[str]:
        return {
            name
            for version in write.versions[write.written :]
            for piece in write.pieces[version]
            for lazy in self._operands(piece)
            for name in self._loads(lazy)
        }

    def _operands(self, piece: WrittenPiece) -> list[Lazy]:
        """The values that a piece is made of."""
        if piece.writer is None:
            return [self.values[piece.node]]
        _, *rest = piece.node.args
        found: list[Lazy] = []
        torch.fx.map_arg((rest, piece.node.kwargs), lambda one: found.append(self.values[one]))
        return found

    def _prepared(self, parts: Sequence[Part], written: set[str]) -> list[Part]:
        """Store first what would be read after a write of it, and what may fail."""
        retired: set[str] = set()
        for write, piece in parts:
            if piece.writer is None:
                value = self.values[piece.node]
                if self._must_be_stored(value, piece.view, write.buffer, retired):
                    self.values[piece.node] = self._stored(value)
            else:
                # A call is given views of memory: what lies in a written one is copied.
                for node in piece.node.all_input_nodes[1:]:
                    if not written.isdisjoint(self._loads(self.values[node])):
                        self.values[node] = self._stored(self.values[node])
            retired.add(write.buffer)
        return list(parts)

    def _must_be_stored(self, value: Lazy, view: BufferView, own: str, retired: set[str]) -> bool:
        offset = offset_in(view)
        for node in walk(self._root(value, view)):
            if node.op == "checked":
                return True
            if node.op == "load":
                name, place = node.attribute
                if name in retired or (name == own and place != offset):
                    return True
        return False

    def _root(self, value: Lazy, view: BufferView) -> Scalar:
        return self.builder.root(Lazy(view.type, value.at))

    def _stored(self, value: Lazy) -> Lazy:
        return Lazy(value.type, self.builder.store(value).at)

    def _loads(self, value: Any) -> set[str]:
        if isinstance(value, (list, tuple)):
            return set[str]().union(*map(self._loads, value))
        if not isinstance(value, Lazy) or value.type.elements == 0:
            return set()
        nodes = walk(self.builder.root(value))
        return {node.attribute[0] for node in nodes if node.op == "load"}

    def _keep_old(self, written: set[str]) -> None:
        """What somebody will read of contents that are about to be overwritten is stored."""
        sources = self.writes.sources()
        for node, value in self.values.items():
            if self._is_pending(node, sources) and not written.isdisjoint(self._loads(value)):
                if isinstance(value, (list, tuple)):
                    self.values[node] = [
                        self._stored(one) if isinstance(one, Lazy) else one for one in value
                    ]
                else:
                    self.values[node] = self._stored(value)

    def _is_pending(self, node: Node, sources: set[Node]) -> bool:
        if node in sources:
            return True
        skipped = self.writes.skipped
        return any(
            user.op == "output"
            or (user in self.needed and user not in self.values and user not in skipped)
            for user in node.users
        )

    def _emit(self, parts: Iterable[Part]) -> None:
        builder = self.builder
        for write, piece in parts:
            builder.origin = info(piece.node).origin
            made = builder.allocate_over(write.buffer)
            if piece.writer is None:
                builder.store_into(made, piece.view, self.values[piece.node])
            else:
                builder.items.append(self._called(piece, write.buffer, made))
            write.buffer = made

    def _called(self, piece: WrittenPiece, buffer: str, made: str) -> Call:
        """An op that writes a part of an input by itself."""
        builder, node = self.builder, piece.node
        target = replace(piece.view, buffer=buffer)
        rows = rows_of(node, target)
        if rows is not None:
            read = (self.values[rows.indices], self.values[rows.source])
            operands = (target, *(builder.operand(one, "copy_rows") for one in read))
            return Call("copy_rows", operands, (made,), {"dim": rows.dim}, builder.origin)
        _, *rest = node.args
        given: Any = torch.fx.map_arg((rest, node.kwargs), self.values.__getitem__)
        arguments = (target, *(builder.argument(one, "dispatcher") for one in given[0]))
        keywords = tuple(
            (name, builder.argument(one, "dispatcher")) for name, one in given[1].items()
        )
        invocation = Invocation(piece.writer, keywords, (False,))
        return Call("in_place", (arguments,), (made,), invocation, builder.origin)


def _of_type(node: Node) -> Lazy:
    """A tensor that nobody may look at."""

    def unknown(index: Index) -> Scalar:
        raise InternalError(f"the elements of {node} are not known yet")

    return Lazy(tensor_type(node), unknown)
