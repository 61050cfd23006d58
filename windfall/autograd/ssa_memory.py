"""Memory as SSA sees it: what a storage holds now, and the ways in which tensors look at it.

A `Memory` is one storage; its contents are one SSA node at a time. A `Place` is one way to look at
it: the root, which sees all of it as it was allocated, or a view of another place. Reading a place
whose memory changed since replays its views on the new contents; writing a place rebuilds the
contents of its parent, up to the root. So a write costs nothing for aliases that nobody reads
again, however many there are.

Invariant: the node that a place answers always has the place's sizes, dtype and strides.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.fx

from windfall.ir.dtype import TensorType
from windfall.ops.registry import lookup


class Memory:
    """One storage. `input` is the position of the graph's input that lives in it, if any.
    `looked_beyond`: a view with a history shows by address what the tensor that it was taken from
    does not show."""

    __slots__ = ("generation", "input", "looked_beyond", "node", "root", "source", "type")

    def __init__(self, type: TensorType, input: int | None = None) -> None:
        self.type = type
        self.input = input
        self.node: torch.fx.Node | None = None
        self.source: tuple[torch.fx.Node, int] | None = None  # result of a tuple, taken when read
        self.generation = 0
        self.looked_beyond = False
        self.root: Place = Place(self, None, None, (), {}, type)


class Place:
    """One way to look at a memory. `func(parent, *args, **kwargs)` makes it from its parent; where
    `func` is an alias, it shows the same as its parent."""

    __slots__ = (
        "args",
        "func",
        "generation",
        "kwargs",
        "memory",
        "node",
        "parent",
        "tensor",
        "type",
    )

    def __init__(
        self,
        memory: Memory,
        parent: Place | None,
        func: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        type: TensorType,
    ) -> None:
        self.memory = memory
        self.parent = parent
        self.func = func
        self.args = args
        self.kwargs = kwargs
        self.type = type
        self.node: torch.fx.Node | None = None
        self.generation = -1
        self.tensor: torch.Tensor | None = None  # the fake that it was made for

    def view(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], type: TensorType
    ) -> Place:
        """A place that looks at this one through `func`."""
        return Place(self.memory, self, func, args, kwargs, type)

    @property
    def is_identity(self) -> bool:
        """Whether it differs from its parent for autograd alone."""
        return lookup(self.func).alias

    def whole(self) -> Place:
        """The first place upwards that is not merely the same as its parent."""
        place = self
        while place.parent is not None and place.is_identity:
            place = place.parent
        return place

    def chain(self) -> tuple[Place, ...]:
        """The places from just below the root down to this one."""
        found: list[Place] = []
        place: Place | None = self
        while place is not None and place.parent is not None:
            found.append(place)
            place = place.parent
        return tuple(reversed(found))
