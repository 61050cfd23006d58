"""The blocks of a joint graph, compared: whether copies of one may stand between two others.

Enters: a `Short` of a captured graph, the `Joint` that it was differentiated to, and which captured
node each node of the joint one was made for. Leaves: `Blocks`: the stretches of nodes that the
second and the third block of each run are, node by node the same, and what they read of others; or
`NotRepeating`.

Invariant: what is taken for repeating was found to be, never assumed. What is recorded of a block
depends on what it is and on what it begins with (types, needs of gradients, shared memory, modes).
`BlockEntries` compares what the second, third and fourth begin with; since equal blocks that begin
with the same leave the same, all others follow. What a node of a block reads is of its own block,
of the one before or behind it, or the same for all; any other reference to a block, an input that
more than one block writes, a name that does not count on, is a reason to record the whole graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import field, fields
from itertools import pairwise
from typing import Any

import torch
import torch.fx

from windfall import torch_abi
from windfall.autograd.functional import MadeFor, Phase
from windfall.autograd.repeats import KEPT, Label, Short, same_value
from windfall.dataclass import dataclass
from windfall.ir.node import NodeInfo, info
from windfall.ir.stages import InputFact, Joint
from windfall.ops import fake as fakes
from windfall.ops.symbolic import from_torch

Node = torch.fx.Node
Key = tuple[int, Phase, int]  # which run, which phase, which block

FIRST, SECOND, THIRD, LAST = range(1, KEPT + 1)


# What may be known of a node besides its type and where it comes from, which a copy would not have.
_COPIED = ("type", "origin", "region", "derived")
_BESIDES = [one.name for one in fields(NodeInfo) if one.name not in _COPIED]


class NotRepeating(Exception):
    """The blocks of a graph that looks repetitive are not equal in all that counts."""


class BlockEntries:
    """What each block of a short graph begins with, compared while it is recorded."""

    def __init__(self, short: Short) -> None:
        self._short = short
        self._found: dict[int, Any] = {}

    def watch(self, node: Node, values: Mapping[Node, Any]) -> None:
        """Called before each captured node runs."""
        found = self._short.entries.get(node)
        if found is not None:
            label, reads = found
            storages: dict[fakes.Storage, int] = {}
            state = torch_abi.modes(), [_state(values[one], storages) for one in reads]
            if self._found.setdefault(label.run, state) != state:
                raise NotRepeating(f"block {label.block} begins with {state}")


def _state(value: Any, storages: dict[fakes.Storage, int]) -> Any:
    """All of a value that a recording may depend on."""
    if isinstance(value, list | tuple):
        return type(value), [_state(one, storages) for one in value]
    if not isinstance(value, torch.Tensor):
        plain = from_torch(value)
        return type(plain), str(plain)
    if not fakes.is_fake(value):
        return id(value)
    constant = fakes.constant_of(value)
    return (
        *(fakes.type_of(value), value.is_leaf, torch_abi.view_base(value) is None),
        *(storages.setdefault(fakes.storage_of(value), len(storages)), fakes.offset_of(value)),
        *(torch_abi.refused_view(value), None if constant is None else id(constant)),
    )


@dataclass(slots=True)
class Stretch:
    """The second and the third block of one run in one phase, and what the third reads of all
    blocks, and of the one before it."""

    run: int
    phase: Phase
    second: list[Node] = field(default_factory=list)
    third: list[Node] = field(default_factory=list)
    names: Counter[str] = field(default_factory=Counter)  # how many of each base a block takes
    shared: set[Node] = field(default_factory=set)
    before: set[Node] = field(default_factory=set)

    @property
    def descends(self) -> bool:
        """Whether the blocks stand in the opposite order."""
        return self.phase is Phase.BACKWARD

    def count(self, base: str) -> int:
        """By how much the number of a name is larger in the next block."""
        return -self.names[base] if self.descends else self.names[base]


@dataclass(slots=True)
class Answers:
    """What a joint graph answers: new contents of inputs and gradients of inputs, by the numbers of
    these, then results and gradients of results."""

    written: dict[int, Any]
    gradients: dict[int, Any]
    fresh: tuple[Any, ...]
    of_results: tuple[Any, ...]

    @property
    def of_inputs(self) -> tuple[dict[int, Any], ...]:
        """Those that belong to blocks, if their inputs do."""
        return self.written, self.gradients


def split_name(name: str) -> tuple[str, int]:
    """A node's name as the base and the number that `torch.fx` makes it of."""
    base, _, number = name.rpartition("_")
    return (base, int(number)) if base and number.isdecimal() else (name, 0)


def join_name(base: str, number: int) -> str:
    """The name with this base and number."""
    return f"{base}_{number}" if number else base


class Blocks:
    """The blocks of one joint graph. Making it compares them."""

    def __init__(self, short: Short, joint: Joint, made: Mapping[Node, MadeFor]) -> None:
        self.short = short
        self.joint = joint
        self.made = made
        self.nodes = list(joint.graph.nodes)
        inputs = joint.signature.inputs
        self.symbols = len(short.kept) - len(inputs)  # which are no inputs of the joint graph
        placeholders = [node for node in self.nodes if node.op == "placeholder"]
        self.primals = dict(zip(short.kept[self.symbols :], placeholders, strict=False))
        self.tangents = placeholders[len(inputs) :]
        self.facts: dict[int, InputFact] = dict(zip(self.primals, inputs, strict=True))
        self.owners = {
            index: Label(number, block)
            for number, run in enumerate(short.runs)
            for block, own in enumerate((*run.own[:THIRD], run.own[-1]), FIRST)
            for index in own
        }
        self.labels = self._labels()
        self.keys = {node: self._key(node) for node in made}
        self.names = {node: split_name(node.name) for node in made}
        self.stretches = {
            (run, phase): Stretch(run, phase) for run in range(len(short.runs)) for phase in Phase
        }
        self.partner: dict[Node, Node] = {}  # of the second block → of the third
        # What the third block reads of the last → what that is of the third block itself.
        self.behind = [dict[Node, Node]() for _ in short.runs]
        self._compare()

    def _labels(self) -> dict[Node, Label]:
        """Where each node of the joint graph belongs, if to a block."""
        labels = {self.primals[index]: label for index, label in self.owners.items()}
        known = self.short.labels
        for node, (captured, _) in self.made.items():
            label = None if captured is None else known.get(captured)
            if label is not None:
                labels[node] = label
        return labels

    def _key(self, node: Node) -> Key | None:
        label = self.labels.get(node)
        return None if label is None else (label.run, self.made[node][1], label.block)

    def input_name(self, node: Node, copy: int) -> str:
        """What an input of the third block is called in one of its copies."""
        run = self.short.runs[self.labels[node].run]
        names = self.short.input_names
        third = [self.primals[index] for index in run.own[THIRD - 1]]
        return names[run.own[THIRD - 1 + copy][third.index(node)]]

    def answers(self) -> Answers:
        """What the short graph answers."""
        values: Any = self.nodes[-1].args[0]
        kept = list(self.primals)
        writes = [kept[one] for one in self.joint.signature.writes]
        wanted = [kept[one] for one in self.joint.gradients_for if one < len(kept)]
        visible = len(writes) + self.joint.signature.fresh
        return Answers(
            dict(zip(writes, values, strict=False)),
            dict(zip(wanted, values[visible:], strict=False)),
            tuple(values[len(writes) : visible]),
            tuple(values[visible + len(wanted) :]),
        )

    # ----------------------------------------------------------------------------- comparing

    def _compare(self) -> None:
        """Look for all that speaks against copies of the third block."""
        self._compare_facts()
        self._check_names()
        self._find_stretches()
        for number, run in enumerate(self.short.runs):
            for second, third in zip(run.own[SECOND - 1], run.own[THIRD - 1], strict=True):
                self.partner[self.primals[second]] = self.primals[third]
            for phase in Phase:
                self._compare_stretch(self.stretches[number, phase])
        self._compare_answers()
        for stretch in self.stretches.values():
            if not stretch.shared.isdisjoint(self.behind[stretch.run]):
                raise NotRepeating("some blocks read of the last one what others read of the next")
        for node in self.nodes:
            label = self.labels.get(node)
            if node.op != "output" and (label is None or label.block in (FIRST, LAST)):
                for read in node.all_input_nodes:
                    self._check_reader(label, read)

    def _compare_facts(self) -> None:
        """Blocks do the same with their inputs; whatever is written belongs to one of them."""
        if self.joint.ungiven:
            raise NotRepeating("a function with a backward of its own gives no gradient")
        if any(fact.visible for fact in self.facts.values()):
            raise NotRepeating("autograd sees an input being written")
        for run in self.short.runs:
            kept = run.own[SECOND - 1], run.own[THIRD - 1], run.own[-1]
            for one, other, last in zip(*kept, strict=True):
                if not self.facts[one] == self.facts[other] == self.facts[last]:
                    raise NotRepeating(f"input {other} is not treated as input {one}")
        for index, fact in self.facts.items():
            if (fact.mutated or fact.versions) and index not in self.owners:
                raise NotRepeating(f"input {index} is written and belongs to no block")

    def _check_names(self) -> None:
        """Numbers in names count on, and inputs that the short graph has not take none of them."""
        numbers: dict[str, int] = {}
        for base, number in self.names.values():
            if number != numbers.get(base, number - 1) + 1:
                raise NotRepeating(f"names do not count on: {base}_{number}")
            numbers[base] = number
        kept = set(self.short.kept)
        for index, name in enumerate(self.short.input_names):
            if index not in kept and split_name(name)[0] in numbers:
                raise NotRepeating(f"an input is called {name}")

    def _find_stretches(self) -> None:
        """The second and the third block of each run in each phase: as they were made (which is
        what names count), and what passes left of them."""
        taken: dict[Key | None, Counter[str]] = {}
        for node, key in self.keys.items():
            if key is not None and key[2] in (SECOND, THIRD):
                taken.setdefault(key, Counter())[self.names[node][0]] += 1
        inner = [node for node in self.nodes if node.op not in ("placeholder", "output")]
        made, left = _changes(self.keys.values()), _changes(map(self.keys.get, inner))
        for (run, phase), stretch in self.stretches.items():
            second, third = (run, phase, SECOND), (run, phase, THIRD)
            if second in taken or third in taken:
                order = (third, second) if stretch.descends else (second, third)
                if not _adjacent(made, *order) or not (
                    _adjacent(left, *order) or (second not in left and third not in left)
                ):
                    raise NotRepeating("the nodes of a block do not lie together")
                if taken[second] != taken[third]:
                    raise NotRepeating("blocks are made of different nodes")
                stretch.names = taken[third]
        for node in inner:
            key = self.keys.get(node)
            if key is not None and key[2] in (SECOND, THIRD):
                stretch = self.stretches[key[:2]]
                (stretch.second if key[2] == SECOND else stretch.third).append(node)

    def _compare_stretch(self, stretch: Stretch) -> None:
        if len(stretch.second) != len(stretch.third):
            raise NotRepeating("blocks of different lengths")
        pairs = list(zip(stretch.second, stretch.third, strict=True))
        self.partner.update(pairs)
        for one, other in pairs:
            if one.op != other.op or one.target != other.target:
                raise NotRepeating(f"{one.target} and {other.target}")
            self._compare_values(one.args, other.args, stretch)
            if one.kwargs or other.kwargs:
                self._compare_values(one.kwargs, other.kwargs, stretch)
            first, second = info(one), info(other)
            if first.type != second.type or first.derived != second.derived:
                raise NotRepeating(f"{one} and {other} are of different types")
            if any(getattr(second, name) for name in _BESIDES) or len(other.meta) > 1:
                raise NotRepeating(f"of {other} more is known than its type")

    def _compare_values(self, one: Any, other: Any, stretch: Stretch) -> None:
        pairs: list[tuple[Node, Node]] = []
        if not same_value(one, other, pairs):
            raise NotRepeating(f"{one} and {other}")
        for first, second in pairs:
            self._compare_reads(first, second, stretch)

    def _compare_reads(self, one: Node, other: Node, stretch: Stretch) -> None:
        """What a node of the second block reads, and what its partner in the third reads there."""
        labels = self.labels.get(one), self.labels.get(other)
        if one is other:
            if labels[0] is not None and labels[0].block in (SECOND, THIRD):
                raise NotRepeating(f"{one} is of one block, and others read it")
            stretch.shared.add(one)
            return
        blocks = [label.block if label and label.run == stretch.run else 0 for label in labels]
        if blocks == [SECOND, THIRD]:
            fits = self.partner.get(one) is other
        elif blocks == [THIRD, LAST]:
            fits = self.behind[stretch.run].setdefault(other, one) is one
        else:
            fits = blocks == [FIRST, SECOND]
            stretch.before.add(other)
        if not fits:
            raise NotRepeating(f"{one} of block {blocks[0]} and {other} of block {blocks[1]}")

    def _check_reader(self, reader: Label | None, read: Node) -> None:
        """Nothing but neighbours reads from the blocks that are compared."""
        label = self.labels.get(read)
        if label is None or label.block in (FIRST, LAST) or reader == label:
            return
        if reader != Label(label.run, FIRST if label.block == SECOND else LAST):
            raise NotRepeating(f"{read} is of a block, and something else reads it")

    def _compare_answers(self) -> None:
        """Blocks answer the same of their inputs; what is answered besides is of no block."""
        answers = self.answers()
        for number, run in enumerate(self.short.runs):
            stretch = self.stretches[number, Phase.GRADIENTS]
            for second, third in zip(run.own[SECOND - 1], run.own[THIRD - 1], strict=True):
                for given in answers.of_inputs:
                    self._compare_values(given.get(second), given.get(third), stretch)
        for given in answers.of_inputs:
            for index, value in given.items():
                if value is not None:
                    self._check_reader(self.owners.get(index), value)
        for value in (*answers.fresh, *answers.of_results):
            if value is not None:
                self._check_reader(None, value)


def _changes(keys: Any) -> list[Key | None]:
    """The keys one after the other, equal neighbours once."""
    found: list[Key | None] = []
    for key in keys:
        if not found or found[-1] != key:
            found.append(key)
    return found


def _adjacent(order: list[Key | None], one: Key, other: Key) -> bool:
    """Whether both are there once, the one directly before the other."""
    return order.count(one) == order.count(other) == 1 and (one, other) in pairwise(order)
