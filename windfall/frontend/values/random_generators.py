"""Random generators (`torch.Generator`): handed to what draws, they are places of the graph.

Enters: generators from outside. Leaves: a node that asks for the generator of the call, which
`Capture` names by its source. Invariant: nothing is relied upon but the class: another generator in
the next call is drawn from as this one. What else is done with one (`manual_seed`, `get_state`) is
a native step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from windfall.frontend.breaks import BODY, CHECKPOINT, NOT_A_GRAPH_ARGUMENT, stop
from windfall.frontend.values.base import Value
from windfall.frontend.values.objects import Opaque
from windfall.frontend.values.wrap import wraps
from windfall.ir.generators import generator_at
from windfall.ir.source import Attribute, Known, Source

if TYPE_CHECKING:
    from windfall.frontend.services import Machine


class RandomGenerator(Opaque):
    """A `torch.Generator`."""

    __slots__ = ()

    def graph_argument(self, machine: Machine) -> tuple[Any, Any]:
        """The node that asks for it; a generator that nothing draws from."""
        graph = machine.graph
        if self.source is None:
            stop(NOT_A_GRAPH_ARGUMENT, self.describe())
        if graph.checkpoint is not None or graph.hides_grad:
            # Eager draws again in backward, from where the generator is then.
            stop(CHECKPOINT, "a checkpointed function draws from a generator of its own")
        if graph.levels or graph.lanes is not None:
            stop(BODY, "a transform of `torch.func` draws from a generator of its own")
        self.guard_type(machine)
        place = graph.generator(self.source)
        node = graph.call("call_function", generator_at, (place,), {}, None)
        return node, graph.stand_ins[place]

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """Where it draws; all else natively."""
        if name == "device" and self.source is not None:
            self.guard_type(machine)
            return machine.values.wrap(self.real.device, Attribute(self.source, name))
        return super().get_attribute(machine, name)


@wraps(torch.Generator)
def _wrap_generator(machine: Machine, value: Any, source: Source | None) -> Value:
    return machine.values.remember(
        value, RandomGenerator(value, source or Known(value, "generator"))
    )
