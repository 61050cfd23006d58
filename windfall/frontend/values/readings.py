"""Numbers that tensors hold, read without their values: `item()`, `tolist()`, tensors in slices.

Enters: tensors of the graph. Leaves: `SymFloat` and `SymInt`, whose value the graph reads; None
where it is needed. Invariant: what is read is what the tensor holds now, whoever writes it later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch

from windfall.frontend.bounds import admit, range_length
from windfall.frontend.contents import COUNT, Bounded, Content, Formula
from windfall.frontend.values.base import Value
from windfall.frontend.values.counters import content_of
from windfall.frontend.values.sequence import List
from windfall.frontend.values.symbolic import SymFloat, SymInt
from windfall.frontend.values.tensor import Tensor
from windfall.ops.fake import constant_of
from windfall.ops.symbolic import from_torch

if TYPE_CHECKING:
    from windfall.frontend.services import Machine


def item(machine: Machine, tensor: Tensor) -> Value | None:
    """`tensor.item()` of a float: it stays in the graph until somebody needs the value. None: that
    is now, or it is no float."""
    known = tensor.fake(machine)
    if any(size != 1 for size in known.shape):
        return None
    if known.dtype in INTEGRAL:
        return _integer_item(machine, tensor)
    if not known.dtype.is_floating_point:
        return None
    content = content_of(machine, tensor)
    if isinstance(content, Bounded) and content.is_constant:
        return machine.values.literal(content.span.low)
    name = machine.symbols.item(machine.frames.where())
    if name is None:
        return None
    held, copy = detached(machine, tensor), {"copy": machine.values.literal(True)}
    kind = machine.values.literal(torch.float64)
    held = machine.values.torch_call("call_method", "to", [held, kind], copy)
    names = frozenset((name,))
    if isinstance(content, Content):
        return SymFloat(held, names, formula=Formula(content, COUNT))
    known_span = None if content is None else content.rely
    return SymFloat(held, names, known=known_span, read_as=known.dtype)


def detached(machine: Machine, tensor: Tensor) -> Value:
    """The one element of a tensor, without dimensions or gradient. What is made of it is to be a
    copy: the tensor may be written before the value leaves the graph."""
    held = machine.values.torch_call("call_method", "detach", [tensor], {})
    if not tensor.fake(machine).dim():
        return held
    empty = machine.values.tuple([])
    return machine.values.torch_call("call_method", "reshape", [held, empty], {})


INTEGRAL = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def _integer_item(machine: Machine, tensor: Tensor) -> Value | None:
    """`tensor.item()` of an integer."""
    constant = constant_of(tensor.fake(machine))
    if constant is not None:
        return machine.values.literal(constant.item())
    reads = machine.graph.reads
    number, known = reads.item(tensor.fake(machine), tensor.node(machine))
    if number is None:
        return None
    if not known:
        reads.answer(number, machine.graph.read("item", (tensor.node(machine),), number))
    return SymInt(number)


def items(machine: Machine, tensor: Tensor) -> Value | None:
    """`tensor.tolist()` of a few integers, or of those that `torch.arange` has counted."""
    counted = _counted(machine, tensor)
    if counted is not None:
        return machine.values.literal(list(counted))
    known = tensor.fake(machine)
    if known.dtype not in INTEGRAL or known.dim() > 1:
        return None
    if not known.dim():
        return _integer_item(machine, tensor)
    count = from_torch(known.shape[0])
    if not isinstance(count, int) or count > _FEW:
        return None
    found = []
    for index in range(count):
        part = tensor.get_item(machine, machine.values.literal(index))
        assert isinstance(part, Tensor)
        one = _integer_item(machine, part)
        if one is None:
            return None
        found.append(one)
    return List(found)


def _counted(machine: Machine, tensor: Tensor) -> range | None:
    """The integers of an `arange` of constants, which is how some libraries number dimensions."""
    if tensor.source is not None or tensor.is_written(machine):
        return None
    node = tensor.node(machine)
    if node.op != "call_function" or node.target is not torch.arange or node.kwargs:
        return None
    if not all(type(one) is int for one in node.args):
        return None
    counted = range(*cast(tuple[int, ...], node.args))
    admit(machine, range_length(counted), tensor)
    return counted


def index(machine: Machine, value: Value) -> Value:
    """What stands in a slice: a tensor without dimensions is the integer that it holds."""
    if isinstance(value, Tensor) and value.fake(machine).dtype in INTEGRAL:
        found = item(machine, value)
        return value if found is None else found
    return value


_FEW = 16  # integers that are read one by one
