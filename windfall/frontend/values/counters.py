"""Tensors that count: what is known of the number in one, and branches on it.

Enters: a tensor without dimensions, and what it is compared with. Leaves: its `Content`, as the
program has it now; how a comparison with a constant goes, for all counts around that of this call.
Invariant: what a tensor holds is guarded (`ScalarWithin`) before anybody relies on it. A branch on
data is a break, but for counters that modules keep among their buffers (`n_averaged` of
`AveragedModel`): they pass a bound once, and labels or losses do not stand there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windfall.frontend.contents import COUNT, Bounded, Content, Formula, number
from windfall.frontend.values.constant import COMPARE, Constant
from windfall.ir.source import DictOf, Item

if TYPE_CHECKING:
    from windfall.frontend.services import Machine
    from windfall.frontend.values.base import Value
    from windfall.frontend.values.tensor import Tensor


def content_of(machine: Machine, tensor: Tensor) -> Bounded | Content | None:
    """What is known of the number in a tensor without dimensions."""
    fake = tensor.fake(machine)
    if fake.dim() or fake.device.type != "cpu":
        return None
    outside = None
    if tensor.source is not None and tensor.real is not None:
        outside = (tensor.source, tensor.real)
    contents, rely = machine.graph.contents, machine.guards.add
    return contents.of(tensor.node(machine), fake.dtype, outside, rely)


def question(machine: Machine, tensor: Tensor, operation: str, other: Value) -> Formula | None:
    """A comparison with a constant, of which more can be known; None: it is one of data."""
    constant = isinstance(other, Constant) and type(other.value) in (int, float)
    if not constant or not _is_among_buffers(tensor) or tensor.fake(machine).is_floating_point():
        return None
    content = content_of(machine, tensor)
    if not isinstance(content, Content):
        return None
    return Formula(content, (COMPARE[operation], COUNT, number(other.as_constant(machine))))


def _is_among_buffers(tensor: Tensor) -> bool:
    place = tensor.source
    if not isinstance(place, Item) or not isinstance(place.of, Item):
        return False
    return place.of.key == "_buffers" and isinstance(place.of.of, DictOf)
