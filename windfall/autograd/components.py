"""Which results of a graph can be back-propagated independently of each other.

Enters: a `Split`. Leaves: its `Component`s: groups of tangents whose gradients share no computation
but the last sums into the inputs' gradients, and what only moves or scales these sums: eager has
saved nothing for such steps, and takes them as often as it is asked. Each becomes an autograd node
of its own, so that one can be run, and its saved tensors freed, without the others: as in eager,
where their histories never meet.

    f(x, y) = x.exp(), y.exp()      two components
    f(x)    = x.exp() * 2, x.exp() * 3      one: both go through exp
    f(x)    = x.t().exp(), x.t().sin()      two: what they share is a view
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.fx

from windfall.autograd.between import awaited
from windfall.dataclass import dataclass
from windfall.ir.stages import BackwardRegion, Component, Split
from windfall.ops.registry import lookup

aten = torch.ops.aten
Node = torch.fx.Node


def components(split: Split) -> tuple[Component, ...]:
    """The components of a split graph that has gradients."""
    assert split.backward is not None
    nodes = list(split.backward.nodes)
    placeholders = [node for node in nodes if node.op == "placeholder"]
    first = len(placeholders) - len(split.write_tangents_for) - len(split.tangents_for)
    tangents = placeholders[first:]
    groups = _groups(nodes, tangents)
    results: Any = nodes[-1].args[0]
    if len(groups) == 1:
        reached = _reached(split, results)
        one = Component(tuple(range(len(tangents))), tuple(range(first)), reached)
        return (_with_ungiven(one, split),)
    sums, saved = _last_sums(nodes, tangents), placeholders[:first]
    made = [_component(group, sums, saved, tangents, results, split) for group in groups]
    return tuple(_with_ungiven(one, split) for one in _in_order(made, split))


def _with_ungiven(component: Component, split: Split) -> Component:
    """Attached to what it uses in a backward of the user's that gives no gradient to it; if it has
    no gradients at all, to whatever its history leads to. (Most such lead nowhere.)"""
    if not split.ungiven:
        return component
    if not component.inputs:
        return replace(component, inputs=split.ungiven)
    saved = {
        split.saved_inputs[index] for index in component.saved if index < len(split.saved_inputs)
    }
    more = saved.intersection(split.ungiven)
    return replace(component, inputs=tuple(sorted({*component.inputs, *more})))


def _in_order(waiting: list[Component], split: Split) -> Iterator[Component]:
    """The components, each after those whose results it gives a gradient to."""
    first, positions = len(split.signature.inputs), split.tangent_results
    ready = {*range(first)}
    views = list(enumerate(awaited(split.signature), first + split.visible))
    while waiting:
        for view, base in views:  # each after what it is a view of
            if base in ready:
                ready.add(view)
        found = next(one for one in waiting if ready.issuperset(one.inputs))
        waiting.remove(found)
        ready.update(first + positions[index] for index in found.tangents)
        yield found


def _groups(nodes: list[Node], tangents: list[Node]) -> list[set[Node]]:
    """Tangents that meet in some node, together."""
    reached: dict[Node, frozenset[Node]] = {one: frozenset((one,)) for one in tangents}
    groups = [{one} for one in tangents]
    sums = _last_sums(nodes, tangents)
    for node in nodes:
        if node.op in ("placeholder", "output"):
            continue
        found = frozenset().union(*(reached.get(one, ()) for one in node.all_input_nodes))
        reached[node] = found
        if len(found) > 1 and node not in sums:
            meeting = [group for group in groups if not group.isdisjoint(found)]
            if len(meeting) > 1:
                groups = [group for group in groups if group not in meeting]
                groups.append(set().union(*meeting))
    return sorted(groups, key=lambda group: min(tangents.index(one) for one in group))


@dataclass(frozen=True, slots=True)
class Divided:
    """A component as several, each of which has gradients for its inputs from each of its tangents;
    `partial` are the inputs of the graph that not all tangents of the whole lead to, `whole` the
    inputs of the component, if there are any such."""

    parts: tuple[Component, ...]
    partial: tuple[int, ...] = ()
    whole: tuple[int, ...] = ()


def divided_by_inputs(region: BackwardRegion) -> Divided:
    """The component of a region, divided so that autograd comes by no input to which nothing leads
    from what is back-propagated. The parts compute again what their gradients have in common. What
    they are attached to among the graph's own results stays with the first."""
    split, whole = region.split, region.component
    if len(whole.tangents) < 2:
        return Divided((whole,))
    assert split.backward is not None
    nodes = list(split.backward.nodes)
    placeholders = [node for node in nodes if node.op == "placeholder"]
    first = len(placeholders) - len(split.write_tangents_for) - len(split.tangents_for)
    reached = {placeholders[first + index]: frozenset((index,)) for index in whole.tangents}
    for node in nodes:
        if node.op == "call_function":
            found = frozenset[int]().union(*(reached.get(one, ()) for one in node.all_input_nodes))
            if found:
                reached[node] = found
    results: Any = nodes[-1].args[0]
    leading: dict[frozenset[int], list[int]] = {}
    for index, node in zip(split.gradients_for, results, strict=True):
        if index in whole.inputs and index < len(split.signature.inputs) and node is not None:
            of_it = reached.get(node, frozenset())
            if of_it and len(of_it) < len(whole.tangents):
                leading.setdefault(of_it, []).append(index)
    partial = tuple(sorted(itertools.chain.from_iterable(leading.values())))
    rest = tuple(one for one in whole.inputs if one not in partial)
    parts = [
        Component(tuple(sorted(tangents)), whole.saved, tuple(inputs))
        for tangents, inputs in leading.items()
    ]
    if rest or not frozenset().union(*leading).issuperset(whole.tangents):
        parts.insert(0, replace(whole, inputs=rest))
    return Divided(tuple(parts), partial, whole.inputs if partial else ())


FEW = 8  # tangents, up to which a last step may be taken for each of them


def _last_sums(nodes: list[Node], tangents: list[Node]) -> set[Node]:
    """Sums that nobody reads but the output and other such sums: the engine makes them itself. If
    there are few tangents, also what moves or scales such a sum, all of it: it is taken for each of
    its terms then."""
    sums: set[Node] = set()
    terms = _after({*tangents})
    for node in reversed(nodes):
        if all(user.op == "output" or user in sums for user in node.users) and (
            _is_sum(node, terms) or (len(tangents) <= FEW and _is_last_step(node, terms))
        ):
            sums.add(node)
    return sums


def _is_sum(node: Node, terms: set[Node]) -> bool:
    """Whether it adds up what is made of tangents, and nothing else: a backward that somebody has
    written may add a constant, and does that once."""
    added = node.target is aten.add.Tensor and not node.kwargs
    return added and terms.issuperset(node.args)


def _is_last_step(node: Node, terms: set[Node]) -> bool:
    """Whether it is linear in all that it reads, and that is nothing that was saved."""
    if node.op != "call_function" or any(one.op == "placeholder" for one in node.all_input_nodes):
        return False
    if node.target is aten.cat.default:  # of gradients of parts
        return terms.issuperset(node.all_input_nodes)
    alone = node.all_input_nodes == list(node.args[:1])
    return alone and (lookup(node.target).moves or node.target in _LINEAR)


# Of one operand: what multiplies does it by a number.
_LINEAR = {
    *(aten.div.Scalar, aten.div.Tensor, aten.mul.Scalar, aten.mul.Tensor, aten.neg.default),
    *(aten.sum.default, aten.sum.dim_IntList),
    *(aten.slice_backward.default, aten.select_backward.default, aten.diagonal_backward.default),
}


def _component(
    group: set[Node],
    sums: set[Node],
    saved: list[Node],
    tangents: list[Node],
    results: tuple[Node | None, ...],
    split: Split,
) -> Component:
    after = _after(group)
    # One that needs nothing keeps nothing. Any other keeps what all terms of its last sums are made
    # of: gradients of its gradients may need that, as they would if it were one with the others.
    before = _before(after, sums)
    if not before.isdisjoint(saved):
        # What nobody reads was saved for gradients of gradients (`Op.keeps`).
        before = _before(after, set()).union(one for one in saved if not one.users)
    inputs = _reached(split, [one if one in after else None for one in results])
    return Component(
        tuple(index for index, one in enumerate(tangents) if one in group),
        tuple(index for index, one in enumerate(saved) if one in before),
        inputs,
    )


def _reached(split: Split, results: Sequence[Node | None]) -> tuple[int, ...]:
    """The inputs with a gradient: no other has a path to the results, and the engine must not walk
    into its history (it may be freed; its hooks are not to be called)."""
    pairs = zip(split.gradients_for, results, strict=True)
    return tuple(index for index, one in pairs if one is not None)


def _after(group: set[Node]) -> set[Node]:
    found, waiting = set(group), list(group)
    while waiting:
        new = [user for user in waiting.pop().users if user not in found and user.op != "output"]
        found.update(new)
        waiting += new
    return found


def _before(nodes: set[Node], sums: set[Node]) -> set[Node]:
    """What these are made of; not the terms of `sums`, which are of other groups, or are these
    themselves."""
    found, waiting = set(nodes), list(nodes)
    while waiting:
        node = waiting.pop()
        if node not in sums:
            new = [one for one in node.all_input_nodes if one not in found]
            found.update(new)
            waiting += new
    return found
