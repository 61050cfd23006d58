"""Operators whose results have as many elements as the data say: `nonzero`, masks, `unique`.

Enters: an overload, its arguments (fake tensors), and whom to ask for a number that is read from
data. Leaves: the types of its results, with such a number in their sizes. Invariant: a size is one
number, named once; equal masks that were not written in between have equal counts, which whoever
is asked sees to (`Count`).

    x[mask]    f32[8, 4], b8[8]  ->  f32[u0, 4], where u0 is at most 8
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from windfall.ir.dtype import TensorType, contiguous_strides
from windfall.ir.symint import Size, bounds
from windfall.ops import registry

# (what is counted: a tensor, or None for a count of its own; the least; the greatest) -> a number.
Count = Callable[[Any, int, int | None], Size]
Rule = Callable[..., Any]

_MASKS = (torch.bool, torch.uint8)
_LARGEST = (1 << 63) - 1


def answer(
    func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], count: Count
) -> TensorType | tuple[TensorType, ...] | None:
    """The types of what an overload answers; None: there is no rule for it."""
    rule = _RULES.get(str(func))
    found: TensorType | tuple[TensorType, ...] | None = (
        None if rule is None else rule(count, *args, **kwargs)
    )
    return found


def _type(tensor: Any) -> TensorType:
    known: TensorType = tensor._fake_type
    return known


def _most(size: Size) -> int:
    high = bounds(size)[1]
    return _LARGEST if high is None else min(high, _LARGEST)


def _nonzero(count: Count, x: Any) -> TensorType:
    known = _type(x)
    found = count(x, 0, _most(known.elements))
    return TensorType(torch.int64, (found, known.rank), (1, found))


def _masked_select(count: Count, x: Any, mask: Any) -> TensorType | None:
    one, other = _type(x), _type(mask)
    if other.dtype is not torch.bool:
        return None
    # A mask of the very shape has as many elements; otherwise it is broadcast first.
    counted = mask if one.sizes == other.sizes else None
    found = count(counted, 0, _most(other.elements) if counted is not None else _LARGEST)
    return TensorType.contiguous(one.dtype, (found,))


def _index(count: Count, x: Any, positions: Sequence[Any]) -> TensorType | None:
    known = _type(x)
    op = registry.lookup("aten.index.Tensor")
    assert op.shape is not None
    expanded: list[TensorType | None] = []
    for one in positions:
        if one is None or one.dtype not in _MASKS:
            expanded.append(None if one is None else _type(one))
            continue
        mask = _type(one)
        if mask.sizes != known.sizes[len(expanded) : len(expanded) + mask.rank] or not mask.rank:
            return None  # eager may have something to say of it
        found = count(one, 0, _most(mask.elements))
        expanded += [TensorType.contiguous(torch.int64, (found,))] * mask.rank
    made: Any = op.shape(known, expanded)
    return made if isinstance(made, TensorType) else None


def _repeat_interleave(count: Count, repeats: Any, *, output_size: Any = None) -> TensorType:
    return TensorType.contiguous(_type(repeats).dtype, (count(None, 0, _LARGEST),))


def _bincount(count: Count, x: Any, weights: Any = None, minlength: int = 0) -> TensorType | None:
    if _type(x).rank != 1 or not isinstance(minlength, int) or minlength < 0:
        return None
    kind = torch.int64
    if weights is not None:
        kind = torch.float32 if _type(weights).dtype is torch.float32 else torch.float64
    return TensorType.contiguous(kind, (count(None, minlength, _LARGEST),))


def _unique(
    count: Count, x: Any, sorted: bool = True, inverse: bool = False, counts: bool = False
) -> tuple[TensorType, ...]:
    known = _type(x)
    found = count(None, 0, _most(known.elements))
    empty = TensorType.contiguous(torch.int64, (0,))
    whole = TensorType.contiguous(torch.int64, known.sizes)
    return (
        TensorType.contiguous(known.dtype, (found,)),
        whole if inverse else empty,
        TensorType.contiguous(torch.int64, (found,)) if counts else empty,
    )


def _consecutive(
    count: Count, x: Any, inverse: bool = False, counts: bool = False, dim: int | None = None
) -> tuple[TensorType, ...] | None:
    if dim is None:
        return _unique(count, x, True, inverse, counts)
    return _unique_parts(count, x, dim)


def _unique_parts(
    count: Count, x: Any, dim: int, *asked: bool, **others: bool
) -> tuple[TensorType, ...] | None:
    """Parts along a dimension: laid out as if that stood first, and all answers are given."""
    known = _type(x)
    if not known.rank:
        return None
    place = dim % known.rank
    found = count(None, 0, _most(known.sizes[place]))
    rest = [*known.sizes[:place], *known.sizes[place + 1 :]]
    strides = list(contiguous_strides((found, *rest)))
    whole = strides.pop(0)
    sizes = (*rest[:place], found, *rest[place:])
    return (
        TensorType(known.dtype, sizes, (*strides[:place], whole, *strides[place:])),
        TensorType.contiguous(torch.int64, (known.sizes[place],)),
        TensorType.contiguous(torch.int64, (found,)),
    )


_RULES: dict[str, Rule] = {
    "aten.nonzero.default": _nonzero,
    "aten.masked_select.default": _masked_select,
    "aten.index.Tensor": _index,
    "aten.repeat_interleave.Tensor": _repeat_interleave,
    "aten.bincount.default": _bincount,
    "aten._unique2.default": _unique,
    "aten.unique_consecutive.default": _consecutive,
    "aten.unique_dim.default": _unique_parts,
    "aten.unique_dim_consecutive.default": _unique_parts,
}
