"""Results that other results are made of: there one autograd node ends and the next begins.

Enters: the recorded results, as autograd's history knows them. Leaves: the `boundaries` among them:
where the gradient of a later result stops, becomes the gradient of the earlier one, and goes on
from there, as in eager: it can be asked for, retained, and seen by hooks.

    f(x) = h, h.sum()  with h = x.exp()      h is one: sum leads to h, h leads to x

Invariant: nodes can be put in an order. A result that others go around as well as through (both
begin at a value that is no result) is no boundary, for neither gradient could be computed first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

_Edge = tuple[Any, int]  # an autograd node, and which of its results


def boundaries(
    results: Sequence[torch.Tensor], candidates: Iterable[int], door: Any
) -> tuple[int, ...]:
    """The candidates, by their positions among the results, at which gradients can stop. Histories
    end at `door`, where the inputs came in."""
    edges: dict[_Edge, int] = {(results[i].grad_fn, results[i].output_nr): i for i in candidates}
    while True:
        groups, feeds = _walk(results, edges, door)
        between = _circular({(groups[later], groups[earlier]) for later, earlier in feeds})
        refused = {one for later, one in feeds if (groups[later], groups[one]) in between}
        if not refused:
            return tuple(sorted({one for _, one in feeds}))
        edges = {edge: one for edge, one in edges.items() if one not in refused}


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


def _walk(
    results: Sequence[torch.Tensor], edges: Mapping[_Edge, int], door: Any
) -> tuple[list[int], set[tuple[int, int]]]:
    """For each result a number that those share whose histories meet; and which result (the first
    of a pair) leads to which boundary."""
    groups = list(range(len(results)))
    owner: dict[Any, int] = {}
    feeds: set[tuple[int, int]] = set()
    for index, result in enumerate(results):
        waiting = [result.grad_fn]
        while waiting:
            node: Any = waiting.pop()
            if node in owner:
                old, new = groups[owner[node]], groups[index]
                groups = [new if one == old else one for one in groups]
                continue
            owner[node] = index
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
