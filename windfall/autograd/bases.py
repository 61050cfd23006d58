"""Inputs that share memory have one base: all of them are views of it inside the graph.

Enters: the types of a graph's inputs, and which of them lie how far behind the start of another.
Leaves: for each group that shares elements, its first input with a `Base`: what the memory is, and
where in it each of the group begins. Invariant: inputs that share no element (columns of one
matrix) are left alone; what cannot be one memory is `Unsupported`, and eager's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

from windfall.dataclass import dataclass
from windfall.errors import Unsupported
from windfall.ir.dtype import TensorType
from windfall.ir.placement import meet


@dataclass(frozen=True, slots=True)
class Base:
    """Memory that inputs share. `whole`: none of them shows all of it, and the program is given a
    tensor of one dimension in place of the first."""

    type: TensorType
    offsets: Mapping[int, int]  # of inputs, in elements
    whole: bool


def bases(types: Sequence[TensorType], lying: Mapping[int, tuple[int, int]]) -> dict[int, Base]:
    """The base of each group, by the first input of the group."""
    groups: dict[int, dict[int, int]] = {}
    for index, (first, distance) in lying.items():
        groups.setdefault(first, {first: 0})[index] = distance
    return {
        first: _base(types, first, distances)
        for first, distances in groups.items()
        if any(
            meet(types[one], types[other], distances[other] - distances[one])
            for one, other in combinations(distances, 2)
        )
    }


def _base(types: Sequence[TensorType], first: int, distances: Mapping[int, int]) -> Base:
    members = [types[index] for index in distances]
    item = members[0].dtype.itemsize
    alike = all(one.dtype is members[0].dtype for one in members)
    if not alike or any(distance % item for distance in distances.values()):
        raise Unsupported(204, f"inputs {list(distances)} of different types")
    if any(one.requires_grad for one in members):
        raise Unsupported(204, f"inputs {list(distances)}, one of which needs a gradient")
    offsets = {index: distance // item for index, distance in distances.items()}
    ends = [offset + _span(types[index]) for index, offset in offsets.items()]
    own = types[first]
    if own.is_contiguous and max(ends) == own.elements:
        return Base(own, offsets, False)
    return Base(TensorType.contiguous(own.dtype, (max(ends),)), offsets, True)


def _span(type: TensorType) -> int:
    pairs = zip(type.sizes, type.strides, strict=True)
    return 0 if 0 in type.sizes else 1 + sum((size - 1) * stride for size, stride in pairs)  # type: ignore[return-value]
