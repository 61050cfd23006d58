"""What a recorded pass consists of: operations between live calls.

Enters: nothing. Leaves: the records that `pass_recording.py` makes and `program.py` runs.
Invariant: values are registers, numbers that are assigned once; a record holds no tensor and no
node (nodes are their numbers in the `BackwardGraph`).
"""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

import torch

from windfall.dataclass import dataclass
from windfall.ir.symint import Size

Registers = tuple[int | None, ...]  # None: no gradient


class Traced(NamedTuple):
    """A gradient on its way, and the register that it is (None: nobody records)."""

    tensor: torch.Tensor
    register: int | None


Gradients = list[Traced | None]


@dataclass(frozen=True, slots=True)
class Register:
    """Stands for a value among the arguments of an operation."""

    number: int

    def __str__(self) -> str:
        return f"%{self.number}"

    __repr__ = __str__


@dataclass(frozen=True, slots=True)
class VaryingSize:
    """Stands for an integer that varies (`vary.py`) among the arguments of an operation."""

    size: Size

    def __str__(self) -> str:
        return str(self.size)

    __repr__ = __str__


@dataclass(frozen=True, slots=True)
class Lifted:
    """Likewise for another number: an input of the graph, a tensor without dimensions of this
    dtype."""

    name: str
    dtype: torch.dtype | None = None

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__


@dataclass(frozen=True, slots=True)
class SavedValue:
    """A tensor that a node has saved: an attribute, and which of a list."""

    node: int
    name: str
    position: int | None = None


@dataclass(frozen=True, slots=True)
class RecordedOp:
    """One call of an ATen overload. `results` are as the overload answers: one register, or a tuple
    of them. `node` is whose formula it is of."""

    function: Any
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]
    results: int | Registers
    node: int

    def __str__(self) -> str:
        given = [str(one) for one in self.args] + [f"{name}={one}" for name, one in self.kwargs]
        made = (self.results,) if isinstance(self.results, int) else self.results
        names = ", ".join("_" if one is None else f"%{one}" for one in made)
        return f"{names} = {self.function}({', '.join(given)})"


class CallKind(enum.StrEnum):
    """What is called live; in the order in which a node has them."""

    TENSOR_HOOKS = "tensor hooks"
    PRE_HOOKS = "hooks before"
    NODE = "node"
    FIT = "fit"  # to the edges, of gradients that are no plain tensors
    POST_HOOKS = "hooks behind"
    SUM = "sum"  # of two gradients, one of which is no plain tensor


@dataclass(frozen=True, slots=True)
class LiveCall:
    """Something that is called each time. `given` arrived at the node (of a sum: both terms),
    `made` is what it answered so far; `results` replace the one or the other. `position` is the
    number of nodes that had run."""

    kind: CallKind
    node: int
    given: Registers
    made: Registers
    results: Registers
    position: int

    def __str__(self) -> str:
        given = ", ".join(map(_name, (*self.given, *self.made)))
        return f"{', '.join(map(_name, self.results))} = {self.kind} of node {self.node}({given})"


def _name(register: int | None) -> str:
    return "none" if register is None else f"%{register}"


@dataclass(frozen=True, slots=True)
class LeafUpdate:
    """A gradient is accumulated in a leaf; with all hooks where `hooked`."""

    node: int
    value: int
    hooked: bool

    def __str__(self) -> str:
        return f"leaf {self.node} += %{self.value}" + (" with hooks" if self.hooked else "")
