"""The native entry `copy_rows`: slices of a tensor, at computed places of one dimension, replaced.

Enters: a `Call` of the entry: the target, an index for each slice, the slices. Leaves: LLVM text in
the driver. It is `index_copy_`, and `index_put_` with one list of places: a position of a cache
costs the bytes of that position, where torch's dispatcher costs more than the copy.

Invariant: slices are written in the order of their indices, so that of equal ones the last stays,
as in eager. Indices were looked at before: none is out of bounds (`write_order.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from windfall.dataclass import dataclass
from windfall.ir.dtype import TensorType, contiguous_strides
from windfall.ir.loop import BufferView, Call
from windfall.ir.node import tensor_type
from windfall.ir.symint import hint_of, product
from windfall.llvm import ZERO, Value
from windfall.ops.layout import normalise_dim
from windfall.ops.registry import lookup
from windfall.ops.schema import argument

if TYPE_CHECKING:
    from windfall.codegen.emit import Driver

MOST_BYTES = 1 << 20  # more is worth torch's threads


@dataclass(frozen=True, slots=True)
class CopiedRows:
    """What is copied where: nodes of the indices and of the slices, and the dimension."""

    dim: int
    indices: torch.fx.Node
    source: torch.fx.Node


def accepts(type: TensorType) -> bool:
    """Indices and slices that lie one after the other."""
    return type.is_contiguous


def rows_of(node: torch.fx.Node, target: BufferView) -> CopiedRows | None:
    """A node that writes by computed places, as copies of slices into `target`; None: it is more
    than that, or there is too much to copy."""
    read = _READERS.get(lookup(node.target).name)
    found = read(node) if read is not None else None
    if found is None:
        return None
    indices, source = tensor_type(found.indices), tensor_type(found.source)
    sizes = list(target.type.sizes)
    if indices.rank != 1 or indices.dtype is not torch.int64 or not sizes:
        return None
    sizes[found.dim] = indices.sizes[0]
    inner = tuple(sizes[found.dim + 1 :])
    left_out = len(sizes) - source.rank  # dimensions of size 1, which broadcasting adds
    if left_out < 0 or any(size != 1 for size in sizes[:left_out]):
        return None
    alike = source.sizes == tuple(sizes[left_out:]) and source.dtype is target.type.dtype
    dense = target.type.strides[found.dim + 1 :] == contiguous_strides(inner)
    few = hint_of(source.elements) * source.dtype.itemsize <= MOST_BYTES
    return found if alike and dense and few else None


def _copied(node: torch.fx.Node) -> CopiedRows | None:
    dim, indices, source = (
        argument(node.target, name, node.args, node.kwargs) for name in ("dim", "index", "source")
    )
    rank = tensor_type(node).rank
    return CopiedRows(normalise_dim(dim, rank), indices, source) if rank else None


def _put(node: torch.fx.Node) -> CopiedRows | None:
    places, source, adds = (
        argument(node.target, name, node.args, node.kwargs)
        for name in ("indices", "values", "accumulate")
    )
    given = [(dim, one) for dim, one in enumerate(places) if one is not None]
    return None if adds or len(given) != 1 else CopiedRows(given[0][0], given[0][1], source)


_READERS: dict[str, Any] = {"aten.index_copy.default": _copied, "aten.index_put.default": _put}


def write(driver: Driver, call: Call) -> None:
    """The copies, one after the other."""
    target, indices, source = call.arguments
    dim, code, item = call.attributes["dim"], driver.code, target.type.dtype.itemsize
    row_bytes = driver.size(product(target.type.sizes[dim + 1 :]) * item)
    left_out = target.type.rank - source.type.rank
    counts = (1,) * left_out + source.type.sizes
    steps = (0,) * left_out + source.type.strides
    places = driver.pointer(indices)
    height = driver.size(target.type.sizes[dim])

    def moved(base: Value, index: Value, stride: Any) -> Value:
        return code.element(base, code.binary("mul", index, driver.size(stride * item)))

    def outside(level: int, to: Value, at: Value) -> None:
        """The loops of the dimensions before that of the places, then over these."""
        count = counts[level]
        strides = target.type.strides[level], steps[level]
        with code.repeat(ZERO, driver.size(count), certain=isinstance(count, int)) as loop:
            taken = moved(at, loop.index, strides[1])
            if level < dim:
                outside(level + 1, moved(to, loop.index, strides[0]), taken)
                return
            place = code.load("i64", code.element(places, loop.index, "i64"))
            negative = code.compare("icmp slt", place, ZERO)
            place = code.select(negative, code.binary("add", place, height), place)
            code.call("memcpy", "ptr", moved(to, place, strides[0]), taken, row_bytes)

    if 0 not in source.type.sizes:
        outside(0, driver.pointer(target), driver.pointer(source))
