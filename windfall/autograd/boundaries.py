"""Results that other results are made of: there one autograd node ends and the next begins.

Enters: the recorded results, as autograd's history knows them. Leaves: the `Boundaries` among them:
where the gradient of a later result stops, becomes the gradient of the earlier one, and goes on
from there, as in eager: it can be asked for, retained, and seen by hooks.

    f(x) = h, h.sum()  with h = x.exp()      h is one: sum leads to h, h leads to x

Where others go around such a result as well as through it, neither gradient could be computed
first. There the values at which both ways meet again are boundaries too (`met`), though nobody sees
them:

    f(x) = h, h.sum() + e.sum()  with e = x.exp(), h = e * 2      h is one, and e

Results that are views of an input or of another result are boundaries too, without a node of ours:
they are made again of what they look at, by eager's view ops, and lead there.

    f(x) = h, v, v.sum()  with h = x.exp(), v = h.t()      v is one: sum leads to v, v leads to h

Invariant: nodes can be put in an order, views among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

import torch

from windfall.dataclass import dataclass
from windfall.errors import Unsupported

_Edge = tuple[Any, int]  # an autograd node, and which of its results
_MOST = 256  # meeting points of one graph


@dataclass(frozen=True, slots=True)
class Boundaries:
    """At which results gradients stop, by their positions; those of `met` come after the others.
    `views` are those (by their own positions) that something else is made of, each after what it is
    a view of; `above`: the view or, as `~position`, the result that each view leads to."""

    stops: tuple[int, ...] = ()
    met: tuple[torch.Tensor, ...] = ()
    views: tuple[int, ...] = ()
    above: Mapping[int, int] = field(default_factory=dict)


def boundaries(
    results: Sequence[torch.Tensor],
    views: Sequence[torch.Tensor],
    door: Any,
    values: Callable[[], Iterable[torch.Tensor]],
) -> Boundaries:
    """Those at which gradients stop. Histories end at `door`, where the inputs came in; `values`
    are all tensors that there are."""
    first = len(results)
    everything = [*results, *views]
    seen = frozenset(range(first, len(everything)))
    edges: dict[_Edge, int] = {_edge(one): index for index, one in enumerate(everything)}
    apart: set[int] = set()  # boundaries with ways around them
    known: dict[_Edge, torch.Tensor] = {}
    while True:
        groups, feeds = _walk(everything, edges, door, seen)
        between = _circular({(groups[later], groups[earlier]) for later, earlier in feeds})
        refused = {one for later, one in feeds if (groups[later], groups[one]) in between}
        if not refused:
            last = first + len(views)
            return _found(feeds, seen, first, tuple(everything[last:]))
        known = known or {_edge(one): one for one in values() if _has_history(one)}
        apart |= refused - seen  # who goes around a view goes around what it is a view of
        met = _meeting(everything, edges, apart, known, door)
        if not met or len(edges) > _MOST:
            raise Unsupported(218, f"result {min(refused)}")
        for edge in met:
            edges[edge] = len(everything)
            everything.append(known[edge])


def _found(
    feeds: set[tuple[int, int]],
    views: frozenset[int],
    first: int,
    met: tuple[torch.Tensor, ...],
) -> Boundaries:
    """The same as positions of results and of views, which are counted apart; `first` is that of
    the first view among both."""
    above: dict[int, int] = {}
    for later, one in sorted(feeds):
        if later in views and above.setdefault(later, one) != one:
            raise Unsupported(218, f"a view of results {above[later]} and {one}")
    needed: list[int] = []
    for view in sorted({one for later, one in feeds if one in views and later not in views}):
        chain = [view]
        while above.get(chain[-1]) in views:
            chain.append(above[chain[-1]])
        needed += [one for one in reversed(chain) if one not in needed]
    stops = {one for later, one in feeds if later not in views and one not in views}
    place = {one: one if one < first else one - len(views) for _, one in feeds}
    return Boundaries(
        tuple(sorted(place[one] for one in stops)),
        met,
        tuple(one - first for one in needed),
        {view - first: one - first if one in views else ~place[one] for view, one in above.items()},
    )


def _edge(tensor: torch.Tensor) -> _Edge:
    return tensor.grad_fn, tensor.output_nr


def _has_history(tensor: torch.Tensor) -> bool:
    try:
        return tensor.grad_fn is not None
    except RuntimeError:  # a view whose base was written as it may not be
        return False


def _meeting(
    results: Sequence[torch.Tensor],
    edges: Mapping[_Edge, int],
    apart: set[int],
    known: Mapping[_Edge, torch.Tensor],
    door: Any,
) -> list[_Edge]:
    """Where ways that went past some of the boundaries come to what lies behind these. If all ways
    from one part to another are cut that lie behind different ones, parts can be put in order: who
    leads to a boundary does not lie behind it, and all that is behind it does. A value that was
    overwritten has no tensor to cut at: there it is done where that which overwrote it is read."""
    behind: dict[Any, frozenset[int]] = {}
    for one in apart:
        for node in _history(results[one], door):
            behind[node] = behind.get(node, frozenset()) | {one}
    nowhere = frozenset[int]()
    readers: dict[_Edge, list[Any]] = {}
    seen: set[Any] = set()
    for result in results:
        for node in _history(result, door, seen):
            for edge in node.next_functions:
                if edge[0] is not None and edge[0] is not door:
                    readers.setdefault(edge, []).append(node)
    found: dict[_Edge, None] = {}
    waiting = [
        (edge, node)
        for edge, nodes in readers.items()
        for node in nodes
        if behind.get(edge[0], nowhere) != behind.get(node, nowhere)
    ]
    done = set[Any]()
    while waiting:
        edge, reader = waiting.pop()
        if edge in known:
            found[edge] = None
        elif reader not in done:
            done.add(reader)
            into = [one for one in readers if one[0] is reader]
            waiting += [(one, node) for one in into for node in readers[one]]
    return [edge for edge in found if edge not in edges]


def _history(result: torch.Tensor, door: Any, seen: set[Any] | None = None) -> Iterable[Any]:
    """The nodes of a history that were not seen yet."""
    seen = set() if seen is None else seen
    waiting = [result.grad_fn]
    while waiting:
        node: Any = waiting.pop()
        if node is None or node is door or node in seen:
            continue
        seen.add(node)
        yield node
        waiting += [one for one, _ in node.next_functions]


def reached(results: Sequence[torch.Tensor], door: Any) -> set[int]:
    """Which results of `door` the histories lead to."""
    waiting = [one.grad_fn for one in results]
    seen, found = {*waiting}, set[int]()
    while waiting:
        node: Any = waiting.pop()
        for one, number in node.next_functions:
            if one is door:
                found.add(number)
            elif one is not None and one not in seen:
                seen.add(one)
                waiting.append(one)
    return found


def ends_elsewhere(result: torch.Tensor, door: Any) -> bool:
    """Whether the history of a result leads to leaves, and to none behind `door`."""
    if result.grad_fn is None:
        return result.requires_grad
    waiting, is_led = [result.grad_fn], False
    seen = {*waiting}
    while waiting:
        node: Any = waiting.pop()
        is_led = is_led or hasattr(node, "variable")
        for one, _ in node.next_functions:
            if one is not None and one is door:
                return False
            if one is not None and one not in seen:
                seen.add(one)
                waiting.append(one)
    return is_led


def _walk(
    results: Sequence[torch.Tensor], edges: Mapping[_Edge, int], door: Any, views: frozenset[int]
) -> tuple[list[int], set[tuple[int, int]]]:
    """For each result a number that those share whose histories meet; and which result (the first
    of a pair) leads to which boundary. The nodes of views are eager's, made again for each: they
    meet nobody's."""
    groups = list(range(len(results)))
    owner: dict[Any, int] = {}
    feeds: set[tuple[int, int]] = set()
    for index, result in enumerate(results):
        waiting = [result.grad_fn]
        claimed = {} if index in views else owner
        while waiting:
            node: Any = waiting.pop()
            if node in claimed:
                old, new = groups[claimed[node]], groups[index]
                groups = [new if one == old else one for one in groups]
                continue
            claimed[node] = index
            for edge in node.next_functions:
                if edge in edges:
                    feeds.add((index, edges[edge]))
                elif edge[0] is not None and edge[0] is not door:
                    waiting.append(edge[0])
    return groups, feeds


def _circular(pairs: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """The pairs (later, earlier) that are left when whoever comes first or last is taken away."""
    while True:
        later, earlier = {one for one, _ in pairs}, {one for _, one in pairs}
        left = {(one, other) for one, other in pairs if one in earlier and other in later}
        if left == pairs:
            return left
        pairs = left
