"""A truth that is read from data and at which nobody has looked yet.

Enters: `item()` of a tensor of bools, `bool(tensor)`, `not tensor`. Leaves: a `SymBool`, a tensor
without dimensions in the graph, which becomes a bool where it leaves the graph. Invariant: whoever
needs to know it raises `Specialise`, and in the next capture that read is a break.

    found = mask.any().item()    any(mask) in the graph
    return x * found, found      multiplied in the graph; a bool for the caller
    if found: ...                needs it: the read is a break
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from windfall.errors import Specialise
from windfall.frontend.values.base import Value
from windfall.frontend.values.constant import Constant
from windfall.frontend.values.readings import detached
from windfall.frontend.values.symbolic import SymInt, Varying
from windfall.frontend.values.tensor import Tensor

if TYPE_CHECKING:
    from windfall.frontend.recipe import Recipe
    from windfall.frontend.services import Machine

_CONNECTIVES = {"&": torch.logical_and, "|": torch.logical_or, "^": torch.logical_xor}
_BOOL: dict[str, Value] = {"dtype": Constant(torch.bool)}


class SymBool(Varying):
    """A bool of the graph: `held` is a bool tensor without dimensions."""

    __slots__ = ("held", "names")
    made_of = bool

    def __init__(self, held: Value, names: frozenset[str]) -> None:
        super().__init__()
        self.held = held
        self.names = names

    def truth(self, machine: Machine) -> bool:
        """A branch needs the value: one entry for True, one for False."""
        raise Specialise(self.names, "a branch", machine.frames.where())

    def operand(self, machine: Machine, beside: Tensor, operation: str = "") -> Value:
        """A bool promotes as a tensor of bools without dimensions does: to whatever it meets."""
        return self.held

    def unary(self, machine: Machine, operation: str) -> Value:
        """The opposite; signs are those of an integer."""
        if operation == "not":
            held = machine.values.torch_call("call_function", torch.logical_not, [self.held], {})
            return SymBool(held, self.names)
        return self.number(machine).unary(machine, operation)

    def binary(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """`&` and its like of two truths; else as an integer."""
        values = machine.values
        connective = _CONNECTIVES.get(operation)
        if connective is not None and other.python_type() is bool:
            if not isinstance(other, SymBool):
                known = values.literal(bool(other.as_constant(machine)))
                held = values.torch_call("call_function", torch.scalar_tensor, [known], _BOOL)
                other = SymBool(held, frozenset())
            pair = [self.held, other.held]
            held = values.torch_call("call_function", connective, pair, {})
            return SymBool(held, self.names | other.names)
        if isinstance(other, Tensor):
            return None
        return self.number(machine).binary(machine, operation, other)

    def reflected(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """Behind a bool of the program; else as the number that it is."""
        if operation in _CONNECTIVES and other.python_type() is bool:
            return self.binary(machine, operation, other)
        return self.number(machine).reflected(machine, operation, other)

    def compare(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """As an integer."""
        if isinstance(other, Tensor):
            return None
        return self.number(machine).compare(machine, operation, other)

    def number(self, machine: Machine) -> Value:
        """0 or 1, read from the graph."""
        reads = machine.graph.reads
        found = reads.number(0, 1)
        if found is None or not isinstance(self.held, Tensor):
            return machine.values.literal(int(self.as_constant(machine)))
        kind = machine.values.literal(torch.int64)
        held = machine.values.torch_call("call_method", "to", [self.held, kind], {})
        assert isinstance(held, Tensor)
        reads.answer(found, machine.graph.read("item", (held.node(machine),), found))
        return SymInt(found)

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """As of a bool."""
        return machine.values.literal(self.truth(machine)).get_attribute(machine, name)

    def rebuild(self, recipe: Recipe) -> str:
        """Read from the graph's result."""
        return f"{recipe.name(self.held)}.item()"


def read(machine: Machine, tensor: Tensor) -> SymBool | None:
    """Whether the one element of a tensor is not 0; None: the program needs to know, or it has not
    one element."""
    known = tensor.fake(machine)
    if any(size != 1 for size in known.shape) or machine.frames.is_one_operation:
        return None
    name = machine.symbols.item(machine.frames.where())
    if name is None:
        return None
    held = detached(machine, tensor)
    if known.dtype is torch.bool:
        held = machine.values.torch_call("call_method", "clone", [held], {})
    else:
        held = machine.values.torch_call("call_method", "ne", [held, machine.values.literal(0)], {})
    return SymBool(held, frozenset((name,)))
