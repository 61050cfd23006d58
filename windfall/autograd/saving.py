"""What is kept between forward and backward: a minimum cut, and what a budget makes of it.

Enters: the `Parts` of a joint graph, how it is to be cut, and a budget. Leaves: the nodes to save.
Each value costs its bytes; inputs and results cost next to nothing since they live anyway, but are
saved only where eager saves them: others may write them before backward runs.

    budget 1    what is dear runs once: only what is cheap and pure is computed again
    between     so much of the rest that the bytes fit, the least work for the most bytes
    budget 0    all that is pure is computed again: inputs are kept, and numbers that were drawn

Between them work has a price in bytes. A cut then weighs both: a node that is computed again pays
for its work, one that is saved for its bytes; the higher the price, the more is saved, so bisection
finds the highest that fits. Equal layers would all change sides at one price, so work costs less
the earlier it stands: what is made first is kept longest. And values at narrow places of the
forward pass are kept: else the first thing that backward computes again would be all of forward,
alive at once.

Invariants: random ops, effects and ops of others run once, whatever is asked; a larger budget never
saves fewer bytes; inside of a checkpoint the user's word holds (ADR 44), whatever the budget.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.fx

from windfall.autograd.bits import packed_type
from windfall.autograd.mincut import INFINITE, FlowGraph
from windfall.autograd.parts import Parts, undo
from windfall.autograd.passes import is_effect, is_random, is_read_by, is_view, memory_root
from windfall.dataclass import dataclass
from windfall.ir.control_flow import Scan
from windfall.ir.dtype import TensorType
from windfall.ir.node import Checkpoint, Policy, info
from windfall.ir.stages import Joint
from windfall.ir.symint import hint_of
from windfall.ops import registry

Node = torch.fx.Node

_STEPS = 14  # of the bisection: a price is found to within a thousandth of its magnitude
_PRICES = (2.0**-24, 2.0**4)  # of work, in bytes: all that is pure is computed again, nothing is
_WINDOWS = 32  # narrow places, at most
_DEAR_OPS = 3  # between two of these, about


def choose(parts: Parts, joint: Joint, memory_budget: float, partition: str) -> list[Node]:
    """The nodes to save, in graph order."""
    problem = _Problem.of(parts, joint)
    if partition == "eager":
        found = problem.cut_as_eager()
    elif memory_budget == 1:
        found = problem.cut()
    else:
        found = _within(problem, memory_budget)
    more = _read_by_second_derivatives(parts).difference(found)
    mutated = {parts.primals[index] for index in joint.signature.writes}
    more |= _before_scans(parts).difference(found, mutated)
    return [node for node in parts.graph.nodes if node in {*found, *more}] if more else found


def _read_by_second_derivatives(parts: Parts) -> set[Node]:
    """Operands and results of ops whose second derivatives are made of others than the first."""
    kept: set[Node] = set()
    for node in parts.graph.nodes:
        if node in parts.after_tangents or not registry.lookup(node.target).keeps:
            continue
        results = [one for one in node.users if one.target is operator.getitem] or [node]
        kept.update(memory_root(one) for one in (*node.all_input_nodes, *results))
    return {
        node
        for node in kept
        if node not in parts.after_tangents
        and node.op != "get_attr"
        and isinstance(info(node).type, TensorType)
    }


def _before_scans(parts: Parts) -> set[Node]:
    """Inputs that scans are made of: second derivatives do a scan again (`control_flow.py`)."""
    behind = [
        node
        for node in parts.graph.nodes
        if isinstance(node.target, Scan) and node not in parts.after_tangents
    ]
    reached = set(behind)
    while behind:
        found = set(behind.pop().all_input_nodes) - reached
        reached |= found
        behind += found
    return {one for one in parts.primals if one in reached}


def _within(problem: _Problem, budget: float) -> list[Node]:
    """The cut with the least work done again whose bytes are at most `budget` of what would be
    saved without one; the smallest, if none is as small."""
    limit = budget * problem.bytes_of(problem.cut())
    kept = _at_narrow_places(problem)
    found = problem.cut(0, kept)
    if kept and problem.bytes_of(found) > limit:
        kept = set()
        found = problem.cut(0)
    low, high = _PRICES
    for _ in range(_STEPS if problem.bytes_of(found) <= limit else 0):
        middle = math.sqrt(low * high)
        tried = problem.cut(middle, kept)
        if problem.bytes_of(tried) <= limit:
            found, low = tried, middle
        else:
            high = middle
    return found


# ------------------------------------------------------------------------------------ the problem


@dataclass(frozen=True, slots=True)
class _Problem:
    """What there is to cut: nodes of forward that backward needs, with what saving one costs."""

    parts: Parts
    needed: list[Node]
    costs: dict[Node, int]
    kept: set[Node]  # by checkpoints
    path: dict[Node, int]  # what forward runs whatever is saved, and when
    exposed: set[Node]  # what others may write, and eager would not save

    @classmethod
    def of(cls, parts: Parts, joint: Joint) -> _Problem:
        needed = needed_by_backward(parts)
        mutated = {parts.primals[index] for index in joint.signature.writes}
        visible = {
            node
            for result in parts.visible
            for node in (result, memory_root(result))
            if node is result or undo(result, node) is not None
        }
        ordered = [node for node in parts.graph.nodes if node in needed]
        path = {node: index for index, node in enumerate(parts.forward_path([]))}
        costs = {node: _cost(node, mutated, visible) for node in ordered}
        others = {*parts.primals, *visible} - mutated
        exposed = {node for node in ordered if node in others and not _is_read_by(node, parts)}
        return cls(parts, ordered, costs, _kept_by_checkpoints(parts, needed), path, exposed)

    def bytes_of(self, saved: Iterable[Node]) -> int:
        """What saving these costs."""
        return sum(self.costs[node] for node in saved)

    def cut(self, price: float | None = None, kept: Iterable[Node] = ()) -> list[Node]:
        """The cheapest nodes to save; `price` is that of work done again, in bytes (None: of dear
        work none is), `kept` is not computed again."""
        kept = {*kept, *self.kept}
        costs, barriers = dict(self.costs), {}
        for node in self.exposed if price is None else ():
            costs[node] = INFINITE
        for node in self.needed:
            if _is_coefficient(node):
                barriers[node] = 0
                continue
            barriers[node] = INFINITE if node in kept else self._barrier(node, price)
            if barriers[node] == 0 and _is_never_saved(node):
                costs[node] = INFINITE
        return self._cut(costs, barriers)

    def _barrier(self, node: Node, price: float | None) -> int:
        """What computing a node again costs."""
        if _is_coefficient(node):
            return 0
        stored = _is_stored_for_backward(node, self.parts)
        if may_recompute(node) and not stored:
            return 0
        if price is None or not (stored or _is_pure(node)):
            return INFINITE
        late = 0.5 + self.path.get(node, 0) / (len(self.path) or 1)
        return int(price * late * _work(node))

    def cut_as_eager(self) -> list[Node]:
        """What eager's nodes would keep: ops stay where eager runs them. (Of views, their base.)"""
        gradients, after = set(self.parts.gradients), self.parts.after_tangents
        waiting = [
            node
            for node in self.needed
            if node in gradients or any(user in after for user in node.users)
        ]
        saved: set[Node] = set()
        seen: set[Node] = set()
        while waiting:
            node = waiting.pop()
            if node in seen:
                continue
            seen.add(node)
            if self._stays_in_forward(node):
                saved.add(node)
            else:
                waiting += node.all_input_nodes
        return [node for node in self.needed if node in saved]

    def _stays_in_forward(self, node: Node) -> bool:
        if _is_coefficient(node):
            return False
        made_by: Any = node.args[0] if node.target is operator.getitem else node
        in_backward = node.op == "call_function" and made_by not in self.path
        again = is_view(node) or node.op == "get_attr" or checkpoint_of(node) is not None
        return node in self.kept or not (in_backward or (again and may_recompute(node)))

    def _cut(self, costs: dict[Node, int], barriers: dict[Node, int]) -> list[Node]:
        flow = FlowGraph()
        source, sink = flow.vertex(), flow.vertex()
        gradients, after = set(self.parts.gradients), self.parts.after_tangents
        into: dict[Node, int] = {}
        for node in self.needed:
            entry, leave = flow.vertex(), flow.vertex()
            into[node] = entry
            flow.edge(entry, leave, costs[node])
            if barriers[node]:
                flow.edge(source, entry, barriers[node])
            if node in gradients or not after.isdisjoint(node.users):
                flow.edge(leave, sink, INFINITE)
        for node in self.needed:
            for user in node.users:
                if user in into:
                    flow.edge(into[node] + 1, into[user], INFINITE)
        behind = flow.sink_side(source, sink)
        return [node for node, entry in into.items() if entry not in behind and entry + 1 in behind]


def needed_by_backward(parts: Parts) -> set[Node]:
    """Nodes of the forward pass on which backward depends."""
    needed: set[Node] = set()
    wanted = {node for node in parts.gradients if node is not None}
    for node in reversed(list(parts.graph.nodes)):
        if node.op == "output" or node in parts.after_tangents:
            continue
        users = node.users.keys()
        unread = needed.isdisjoint(users) and parts.after_tangents.isdisjoint(users)
        if not unread or node in wanted:
            needed.add(node)
    return needed


def _cost(node: Node, mutated: set[Node], visible: set[Node]) -> int:
    """What saving a node costs: bytes, with a little for being one more tensor."""
    type = info(node).type
    if not isinstance(type, TensorType) or is_view(node) or node.op == "get_attr":
        return INFINITE
    if _is_coefficient(node):
        return INFINITE
    if (node.op == "placeholder" and node not in mutated) or node in visible:
        return 1
    return bytes_of(packed_type(node) or type) + 16


def _is_coefficient(node: Node) -> bool:
    """Whether a node belongs to a formula of the derivative (as `3 * x ** 2` does) and has one
    itself: backward computes it, as in eager. Saved in place of what it is made of, it would leave
    second derivatives without that."""
    known = info(node)
    if not known.derived or is_random(node):
        return False
    return any(one.dtype.is_floating_point or one.dtype.is_complex for one in _types(known.type))


def _is_read_by(node: Node, parts: Parts) -> bool:
    """Whether a formula of backward, or a checkpoint, reads a value itself (views of it followed):
    then eager saves it too, and who writes it in between changes both, or is told by both."""

    def reads(user: Node) -> bool:
        known = info(user)
        return user in parts.after_tangents or known.derived or known.checkpoint is not None

    return is_read_by(node, reads)


def bytes_of(type: TensorType) -> int:
    """How much memory a value takes."""
    return hint_of(type.elements) * type.dtype.itemsize


# ------------------------------------------------------------------------------- what runs twice


def may_recompute(node: Node) -> bool:
    """Whether a node may run a second time, in backward: what is cheap, and inside of a checkpoint
    all that is pure."""
    if node.op == "get_attr" or is_view(node):
        return True
    if node.op != "call_function" or is_random(node):
        return False
    if checkpoint_of(node) is not None and not is_effect(node):
        return True
    if node.target is operator.getitem:
        return may_recompute(node.args[0])  # type: ignore[arg-type]
    return registry.lookup(node.target).recompute


def _is_pure(node: Node) -> bool:
    """Whether nobody could tell that a node runs a second time, but by the clock."""
    if node.op != "call_function" or is_effect(node):
        return False
    if node.target is operator.getitem:
        return _is_pure(node.args[0])  # type: ignore[arg-type]
    target: Any = node.target
    return getattr(target, "namespace", None) == "aten"


def checkpoint_of(node: Node) -> Checkpoint | None:
    """The checkpoint inside of which a node is to be computed again. (A policy that keeps it makes
    it a node like any other.)"""
    found = info(node).checkpoint
    kept = found is not None and any(policy in _KEPT for _, policy in found.policies)
    return None if kept else found


_KEPT = (Policy.MUST_SAVE, Policy.PREFER_SAVE)


def _kept_by_checkpoints(parts: Parts, needed: set[Node]) -> set[Node]:
    """What checkpoints do not compute again: what they answer to the outside (eager keeps that
    where it is needed, so does the next checkpoint), and what a policy must keep. Of views, their
    base: a view is never saved."""
    kept: set[Node] = set()
    for node in needed:
        found = info(node).checkpoint
        if found is None:
            continue
        must = any(policy is Policy.MUST_SAVE for _, policy in found.policies)
        if must or any(_is_outside(user, found, parts) for user in node.users):
            root = memory_root(node)
            if root is node or info(root).checkpoint is not None:
                kept.add(root)
    return kept


def _is_outside(user: Node, checkpoint: Checkpoint, parts: Parts) -> bool:
    if user.op == "output" or user in parts.after_tangents:
        return False
    other = info(user).checkpoint
    return other is None or other.outermost != checkpoint.outermost


def _is_never_saved(node: Node) -> bool:
    found = info(node).checkpoint
    if found is None:
        return False
    return any(policy is Policy.MUST_RECOMPUTE for _, policy in found.policies)


def _is_stored_for_backward(node: Node, parts: Parts) -> bool:
    """Whether forward stores a value anyway, for an op of its own that reads memory, and backward
    would have to as well: computing it again would spare memory, but cost time."""
    if is_view(node) or node.op != "call_function" or checkpoint_of(node) is not None:
        return False
    readers = set(_readers(node))
    return any(one in parts.after_tangents for one in readers) and any(
        one not in parts.after_tangents for one in readers
    )


def _readers(node: Node) -> Iterable[Node]:
    """The users that read a value from memory, views of it followed."""
    for user in node.users:
        if is_view(user):
            yield from _readers(user)
        elif registry.lookup(user.target).from_memory:
            yield user


# ------------------------------------------------------------------------------------------ work


def _work(node: Node) -> float:
    """About how long a node takes, in the time that a byte takes to be moved: all that it reads and
    writes, and for a product of matrices its multiplications, two to a byte. (Of operands with m·k
    and k·n elements and a result with m·n the product is m·k·n squared; others are about so.)"""
    types = [*_types(info(node).type)]
    given = [one for operand in node.all_input_nodes for one in _types(info(operand).type)]
    moved = sum(map(bytes_of, (*types, *given)))
    if not registry.lookup(node.target).from_memory or not types:
        return moved
    elements = [hint_of(one.elements) for one in (*given[:2], types[0])]
    return moved + math.sqrt(math.prod(elements)) / 2


def _types(value: Any) -> Iterable[TensorType]:
    if isinstance(value, TensorType):
        yield value
    elif isinstance(value, tuple):
        for one in value:
            yield from _types(one)


def _at_narrow_places(problem: _Problem) -> set[Node]:
    """The values that pass the narrowest place of each stretch of the forward pass."""
    path = list(problem.path)
    dear = sum(registry.lookup(node.target).from_memory for node in path)
    stretches = min(dear // _DEAR_OPS, _WINDOWS)
    if stretches < 2:
        return set()
    last = _last_uses(problem)
    width = [0] * (len(path) + 1)  # bytes that are alive behind each node, as differences first
    for node, end in last.items():
        width[problem.path[node]] += problem.costs[node]
        width[end] -= problem.costs[node]
    for index in range(1, len(width)):
        width[index] += width[index - 1]
    places = _narrowest(width[: len(path)], stretches)
    begins = problem.path
    return {node for node, end in last.items() if any(begins[node] <= at < end for at in places)}


def _narrowest(width: Sequence[int], stretches: int) -> list[int]:
    size = len(width) / stretches
    bounds = [round(index * size) for index in range(stretches + 1)]
    ranges = [range(*pair) for pair in itertools.pairwise(bounds)]
    return [min(one, key=lambda index: width[index]) for one in ranges if len(one)]


def _last_uses(problem: _Problem) -> dict[Node, int]:
    """Where forward reads a value last, views of it followed: of values that backward needs."""
    path, last = problem.path, dict[Node, int]()
    needed = set(problem.needed)
    for node, index in path.items():
        for operand in node.all_input_nodes:
            root = memory_root(operand)
            if root in path and root in needed and problem.costs[root] < INFINITE:
                last[root] = index
    return last
