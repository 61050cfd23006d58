"""Where a graph is cut so that gradients can be sent while others are computed.

Enters: a graph whose call stands inside of `DistributedDataParallel`, and the sizes of its buckets.
Leaves: values of the graph that become results too, though nobody reads them: the autograd node of
a graph ends at results of which others are made (`autograd/boundaries.py`), so that there is one
node, and one backward program, for each bucket. Invariant: a cut changes who computes a gradient
and when, never which; where nothing separates (skip connections across everything), nothing is cut.

    linear → gelu → linear → sum     buckets of one layer: the first linear's result, or gelu's
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch.fx

from windfall.ir.dtype import TensorType
from windfall.ir.node import ValueType, info
from windfall.torch_abi import Buckets


def cuts(
    graph: torch.fx.Graph, outputs: Sequence[torch.fx.Node], buckets: Buckets
) -> list[torch.fx.Node]:
    """The values at which the gradients of a bucket are complete, the last one first."""
    calls = [node for node in graph.nodes if node.op.startswith("call")]
    places = {node: place for place, node in enumerate(calls)}
    ready = [0] * len(calls)  # bytes of gradients that are complete once a call's backward has run
    for node in graph.nodes:
        used = [places[user] for user in node.users if user in places]
        if node.op == "placeholder" and used and _needs_gradient(info(node).type):
            ready[min(used)] += _bytes(info(node).type)
    alone = _separators(calls, places, set(outputs))
    found: list[torch.fx.Node] = []
    complete, left, limit = 0, sum(ready), buckets.first
    for place in reversed(range(len(calls))):
        complete += ready[place]
        left -= ready[place]
        one = alone[place]
        if left and complete >= limit and one is not None:
            found.append(one)
            complete, limit = 0, buckets.others
    return found


def _separators(
    calls: Sequence[torch.fx.Node], places: Mapping[torch.fx.Node, int], outputs: set[torch.fx.Node]
) -> list[torch.fx.Node | None]:
    """Before each call: the only value with a gradient that was made earlier and is used from there
    on; None: there are none, or several, or it is no tensor."""

    def last_use(node: torch.fx.Node) -> int:
        uses = [places.get(user, len(calls)) for user in node.users]
        return len(calls) if node in outputs else max(uses, default=-1)

    last = {node: last_use(node) for node in calls if _needs_gradient(info(node).type)}
    found: list[torch.fx.Node | None] = []
    waiting: list[torch.fx.Node] = []
    for place, node in enumerate(calls):
        waiting = [one for one in waiting if last[one] >= place]
        alone = waiting[0] if len(waiting) == 1 else None
        is_tensor = alone is not None and isinstance(info(alone).type, TensorType)
        found.append(alone if is_tensor else None)
        if node in last:
            waiting.append(node)
    return found


def _needs_gradient(kind: ValueType) -> bool:
    if isinstance(kind, TensorType):
        return kind.requires_grad
    return isinstance(kind, tuple) and any(map(_needs_gradient, kind))


def _bytes(kind: ValueType) -> int:
    """Of a parameter, whose sizes do not vary."""
    count = kind.elements if isinstance(kind, TensorType) else 0
    if not isinstance(kind, TensorType) or not isinstance(count, int):
        return 0
    return count * kind.dtype.itemsize
