"""A joint graph with four blocks of each run, made one with all of them.

Enters: a `Short` of a captured graph, the `Joint` that it was differentiated to, and which captured
node each node of the joint one was made for. Leaves: the joint of the whole graph, node for node
and name for name what recording all of it would have made; or `NotRepeating` (`blocks.py`).

In the joint graph a block is a stretch of forward and one of backward. New blocks are copies of the
third, put in behind it (in backward: before it). What a copy reads is

    of its own block, of the one before or behind it     the same of the block that the copy is for
    the same node for all blocks                         that node

Invariant: the short graph is left as it is, and `unrolled` knows it, so that what is decided of its
nodes can be decided of all (`partition.py`: what to save).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.fx

from windfall import torch_abi
from windfall.autograd.blocks import LAST, THIRD, Blocks, Key, NotRepeating, Stretch, join_name
from windfall.autograd.functional import MadeFor, Phase
from windfall.autograd.repeats import Label, Short
from windfall.dataclass import dataclass
from windfall.ir.node import KEY, NodeInfo, add_node, info, set_info
from windfall.ir.stages import Joint, OutputFact

Node = torch.fx.Node
Resolve = Callable[[Node], Node]  # what stands in the long graph for what is read
NO_ORIGIN = NodeInfo(None)


@dataclass(frozen=True, slots=True)
class Unrolled:
    """Where a joint graph comes from: the short one, its blocks, and what nodes are called in the
    long one. (None of it knows the long graph, which is what remembers it.)"""

    blocks: Blocks
    numbers: Mapping[Node, tuple[str, int]]

    @property
    def short(self) -> Joint:
        """The joint that was recorded."""
        return self.blocks.joint

    def names_of(self, chosen: Iterable[Node]) -> set[str] | None:
        """What nodes of the short graph are called in the long one; None where of the second block
        others are chosen than of the third."""
        taken = set(chosen)
        partner = self.blocks.partner
        seconds = taken.intersection(partner)
        thirds = {node for node in taken if self._block(node) == THIRD}
        if thirds != {partner[node] for node in seconds}:
            return None
        found = {self._name(node, 0) for node in taken}
        for node in thirds:
            run = self.blocks.short.runs[self.blocks.labels[node].run]
            found.update(self._name(node, copy) for copy in range(1, run.left_out + 1))
        return found

    def _block(self, node: Node) -> int | None:
        label = self.blocks.labels.get(node)
        return None if label is None else label.block

    def _name(self, node: Node, copy: int) -> str:
        """What a node is called, or its copy."""
        if node not in self.numbers:
            return self.blocks.input_name(node, copy) if copy else node.name
        base, number = self.numbers[node]
        if copy:
            key = self.blocks.keys[node]
            assert key is not None, "a node of a block"
            number += copy * self.blocks.stretches[key[:2]].count(base)
        return join_name(base, number)


_UNROLLED: WeakKeyDictionary[torch.fx.Graph, Unrolled] = WeakKeyDictionary()


def unrolled(joint: Joint) -> Unrolled | None:
    """How a joint was unrolled, if it was."""
    return _UNROLLED.get(joint.graph)


def unroll(short: Short, joint: Joint, made: Mapping[Node, MadeFor]) -> Joint:
    """The joint of the whole graph."""
    blocks = Blocks(short, joint, made)
    copying = _Copying(blocks)
    whole = copying.run()
    _UNROLLED[whole.graph] = Unrolled(blocks, copying.numbers)
    return whole


class _Copying:
    """Builds the long graph."""

    def __init__(self, blocks: Blocks) -> None:
        self.blocks = blocks
        self.short = blocks.short
        self.graph = torch.fx.Graph()
        self.graph.owning_module = blocks.joint.graph.owning_module
        self.image: dict[Node, Node] = {}  # nodes of the short graph in the long one
        # For each run and each copy of the third block (from 1; what is before the first are the
        # images): its nodes, and what they read.
        self.copies = [
            [self.image, *(dict[Node, Node]() for _ in range(run.left_out))]
            for run in self.short.runs
        ]
        self.thirds = [
            {node for node, label in blocks.labels.items() if label == Label(number, THIRD)}
            for number in range(len(self.short.runs))
        ]
        self.numbers = self._numbers()

    def run(self) -> Joint:
        """The long graph, in order."""
        self._placeholders()
        labels, stretches = self.blocks.labels, self.blocks.stretches
        resolve: dict[Label | None, Resolve] = {
            Label(run, block): partial(self._neighbour, run, block)
            for run in range(len(self.short.runs))
            for block in (THIRD, LAST)
        }
        starts = {one.third[0]: one for one in stretches.values() if one.third and one.descends}
        ends = {one.third[-1]: one for one in stretches.values() if one.third and not one.descends}
        for node in self.blocks.nodes:
            if node.op in ("placeholder", "output"):
                continue
            if node in starts:
                self._copy_blocks(starts[node])
            self._keep(node, resolve.get(labels.get(node), self.image.__getitem__))
            if node in ends:
                self._copy_blocks(ends[node])
        return self._joint()

    # --------------------------------------------------------------------------------- nodes

    def _numbers(self) -> dict[Node, tuple[str, int]]:
        """For each node that was made, its base and the number in its name: these count on over
        what is put in, behind the third block, in backward before it."""
        found: dict[Node, tuple[str, int]] = {}
        more: Counter[str] = Counter()
        last: Key | None = None
        for node, key in self.blocks.keys.items():
            if key != last:
                if last is not None and last[2] == THIRD:
                    self._count_on(more, last, behind=True)
                if key is not None and key[2] == THIRD:
                    self._count_on(more, key, behind=False)
                last = key
            base, number = self.blocks.names[node]
            found[node] = (base, number + more[base])
        return found

    def _count_on(self, more: Counter[str], key: Key, *, behind: bool) -> None:
        stretch = self.blocks.stretches[key[:2]]
        if stretch.descends is not behind:
            for base, count in stretch.names.items():
                more[base] += count * self.short.runs[key[0]].left_out

    def _placeholders(self) -> None:
        """Inputs of the whole graph in order, under their captured names; then the tangents."""
        primals = self.blocks.primals
        templates = {
            index: (self.copies[number][copy], primals[third])
            for number, run in enumerate(self.short.runs)
            for copy, own in enumerate(run.own[THIRD:-1], 1)
            for index, third in zip(own, run.own[THIRD - 1], strict=True)
        }
        for index, name in enumerate(self.short.input_names):
            if index >= self.blocks.symbols:
                made, like = templates.get(index) or (self.image, primals[index])
                made[like] = self._input(name, like)
        for tangent in self.blocks.tangents:
            self.image[tangent] = self._input(tangent.name, tangent)

    def _input(self, name: str, like: Node) -> Node:
        return set_info(add_node(self.graph, "placeholder", name, (), {}, name), info(like))

    def _keep(self, node: Node, resolve: Resolve) -> None:
        """A node of the short graph in the long one."""
        name = join_name(*self.numbers[node]) if node in self.numbers else node.name
        self.image[node] = self._add(node, resolve, name, info(node))

    def _neighbour(self, run: int, block: int, read: Node) -> Node:
        """What a node of the third or of the last block reads, now that others stand in between."""
        if block == LAST:
            return self.copies[run][-1 if read in self.thirds[run] else 0][read]
        own = self.blocks.behind[run].get(read)
        return self.image[read] if own is None else self.copies[run][1][own]

    def _copy_blocks(self, stretch: Stretch) -> None:
        """Copies of the third block, in order."""
        run, copies = self.short.runs[stretch.run], self.copies[stretch.run]
        rows = []
        for node in stretch.third:
            base, number = self.numbers[node]
            rows.append((node, base, number, stretch.count(base), self._place(node), info(node)))
        order = range(1, run.left_out + 1)
        for copy in reversed(order) if stretch.descends else order:
            made = copies[copy]
            self._reach(stretch, copy)
            resolve, further = made.__getitem__, run.period * copy
            for node, base, number, count, place, like in rows:
                known = like
                if place is not None:
                    origin = self.short.body[place + further].meta.get(KEY, NO_ORIGIN)
                    known = NodeInfo(like.type, origin.origin, origin.region, derived=like.derived)
                made[node] = self._add(node, resolve, join_name(base, number + count * copy), known)

    def _reach(self, stretch: Stretch, copy: int) -> None:
        """Let a copy know what it reads of others."""
        copies = self.copies[stretch.run]
        made = copies[copy]
        made.update((node, self.image[node]) for node in stretch.shared)
        partner = self.blocks.partner
        made.update((node, copies[copy - 1][partner[node]]) for node in stretch.before)
        if stretch.phase is not Phase.FORWARD:
            last = copy + 1 == len(copies)
            for node, third in self.blocks.behind[stretch.run].items():
                made[node] = self.image[node] if last else copies[copy + 1][third]

    def _place(self, node: Node) -> int | None:
        """Where the captured node stands that tells where a node comes from. (Gradients are looked
        at in one place, whichever block they are of.)"""
        captured, phase = self.blocks.made[node]
        assert captured is not None, "a node of a block was made for a captured one"
        return None if phase is Phase.GRADIENTS else self.short.positions[captured]

    def _add(self, node: Node, resolve: Callable[[Node], Node], name: str, known: NodeInfo) -> Node:
        try:
            args: Any = torch.fx.map_arg(node.args, resolve)
            kwargs: Any = node.kwargs and torch.fx.map_arg(node.kwargs, resolve)
        except KeyError as error:
            raise NotRepeating(f"{node} reads what comes later") from error
        made = torch_abi.new_node(self.graph, node.op, node.target, args, kwargs, name)
        return set_info(made, known)

    # ------------------------------------------------------------------------------ the record

    def _joint(self) -> Joint:
        old, joint = self.blocks.joint.signature, self.blocks.joint
        answers = self.blocks.answers()
        facts = dict(self.blocks.facts)
        for run in self.short.runs:
            for own in run.own[THIRD:-1]:
                pairs = zip(own, run.own[THIRD - 1], strict=True)
                facts.update((index, facts[third]) for index, third in pairs)
        written, gradients = (self._of_inputs(given) for given in answers.of_inputs)
        inputs = sorted(facts)
        results = (
            *(written[index] for index in inputs if index in written),
            *map(self._kept, answers.fresh),
            *(gradients[index] for index in inputs if index in gradients),
            *map(self._kept, answers.of_results),
        )
        output = add_node(self.graph, "output", "output", (results,), {}, "output")
        set_info(output, info(self.blocks.nodes[-1]))
        writes = tuple(place for place, index in enumerate(inputs) if index in written)
        wanted = (place for place, index in enumerate(inputs) if index in gradients)
        ends = joint.gradients_for[len(joint.gradients_for) - len(answers.of_results) :]
        more = len(inputs) - len(old.inputs) + len(writes) - len(old.writes)
        signature = replace(
            old,
            inputs=tuple(facts[index] for index in inputs),
            outputs=tuple(map(self._output_fact, old.outputs)),
            writes=writes,
        )
        return replace(
            joint,
            graph=self.graph,
            signature=signature,
            gradients_for=(*wanted, *(end + more for end in ends)),
            captured=self.short.whole,
        )

    def _of_inputs(self, given: Mapping[int, Any]) -> dict[int, Any]:
        """Answers that belong to inputs, for those of copies too."""
        found = {
            index: self._kept(value, self.blocks.owners.get(index))
            for index, value in given.items()
        }
        for number, run in enumerate(self.short.runs):
            for copy, own in enumerate(run.own[THIRD:-1], 1):
                self._reach(self.blocks.stretches[number, Phase.GRADIENTS], copy)
                for index, third in zip(own, run.own[THIRD - 1], strict=True):
                    if third in given:
                        value = given[third]
                        found[index] = value and self.copies[number][copy][value]
        return found

    def _kept(self, value: Any, label: Label | None = None) -> Any:
        if value is None:
            return None
        if label is not None and label.block in (THIRD, LAST):
            return self._neighbour(label.run, label.block, value)
        return self.image[value]

    def _output_fact(self, fact: OutputFact) -> OutputFact:
        if fact.kind not in ("input", "view_of_input"):
            return fact
        return replace(fact, base=list(self.blocks.primals)[fact.base] - self.blocks.symbols)
