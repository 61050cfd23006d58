"""Any callable in a tree: `windfall.graph_trees(fn)`.

Enters: a function or a module that works on tensors of a device that records. Leaves: a callable
that warms up, records and replays it, by types of its tensors and values of all else. Invariant:
what cannot be recorded (another device, gradients, inputs without a hash) runs as it is, and is
counted.

Unlike `compile`, nothing is read of the function: Python in it runs while it is recorded and not
when it is replayed. Tensors that it reads besides its arguments are baked in: those of a module are
checked on each call, others are to be named (`reads`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from windfall.options import TreeOptions
from windfall.runtime.trees.capturing import CallablePayload, built, flattened
from windfall.runtime.trees.cuda import CudaDevice
from windfall.runtime.trees.device import Counters, GraphRegion, Skip
from windfall.runtime.trees.managers import Managers

CUDA_TREES: dict[int, Managers] = {}


def cuda_managers(index: int) -> Managers:
    """The trees of one CUDA device."""
    found = CUDA_TREES.get(index)
    if found is None:
        found = CUDA_TREES.setdefault(index, Managers(functools.partial(CudaDevice, index)))
    return found


def _managers_of(tensors: Sequence[torch.Tensor]) -> Managers | None:
    found = {one.device.index or 0 for one in tensors if one.device.type == "cuda"}
    alone = len(found) == 1 and all(one.device.type == "cuda" for one in tensors)
    return cuda_managers(found.pop()) if alone else None


class GraphTrees:
    """A callable in trees. `counters` says how its calls ran."""

    def __init__(
        self,
        function: Callable[..., Any],
        reads: Sequence[torch.Tensor] = (),
        options: TreeOptions | None = None,
        managers_of: Callable[[Sequence[torch.Tensor]], Managers | None] = _managers_of,
    ) -> None:
        functools.update_wrapper(self, function, updated=())
        self._function = function
        owner = getattr(function, "__self__", function)
        self._module = owner if isinstance(owner, torch.nn.Module) else None
        self._reads = tuple(reads)
        self._options = options if options is not None else TreeOptions()
        self._managers_of = managers_of
        self._regions: dict[Any, GraphRegion] = {}
        self.counters = Counters()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Warm up, record, replay, or run as it is."""
        leaves: list[Any] = []
        structure = flattened((args, kwargs), leaves)
        inputs = [*leaves, *self._outside()]
        managers = self._managers_of([one for one in inputs if isinstance(one, torch.Tensor)])
        if managers is None:
            skipped = self.counters.skipped
            skipped[Skip.FOREIGN] = skipped.get(Skip.FOREIGN, 0) + 1
            return self._function(*args, **kwargs)
        region = self._region(structure, len(leaves), len(inputs), managers)
        return managers.here(self._options).call(region, inputs, self._options)

    def _outside(self) -> tuple[torch.Tensor, ...]:
        """What it reads besides its arguments."""
        if self._module is None:
            return self._reads
        return (*self._module.parameters(), *self._module.buffers(), *self._reads)

    def _region(self, structure: Any, given: int, count: int, managers: Managers) -> GraphRegion:
        """The one for arguments of this structure."""
        key = (repr(structure), count)
        found = self._regions.get(key)
        if found is not None:
            return found
        function = self._function

        def body(*inputs: Any) -> Any:
            args, kwargs = built(structure, iter(inputs[:given]))
            return function(*args, **kwargs)

        payload = CallablePayload(body, frozenset(range(given, count)))
        name = getattr(function, "__qualname__", type(function).__name__)
        region = GraphRegion(name, payload, starts=True)
        region.counters = self.counters
        managers.register(self, region)
        return self._regions.setdefault(key, region)
