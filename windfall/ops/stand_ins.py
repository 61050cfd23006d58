"""Functions of torch that read sizes as plain integers on their way, done without that.

Enters: a torch function that is about to be called on fake tensors. Leaves: the function, or one
that answers the same and asks nothing about sizes that vary. Invariant: a stand-in dispatches ops
that answer what the function answers at known sizes; arguments that it does not know go to the
function.

    >>> standing_for(torch.relu) is torch.relu
    True
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from windfall.ir import symint
from windfall.ops.by_parts import ALWAYS, BY_PARTS
from windfall.ops.fake import is_fake
from windfall.ops.recurrent import whole
from windfall.ops.symbolic import as_torch, from_torch, is_symbolic, plain, value_of

aten = torch.ops.aten


def standing_for(function: Any) -> Any:
    """What to call on fake tensors in place of a torch function."""
    found = _ALWAYS.get(id(function))
    if found is not None:
        return found
    return _STAND_INS.get(id(function), function) if symint.varying else function


# By mode and number of spatial dimensions: the op, and whether it takes `align_corners`.
_RESAMPLERS: dict[tuple[str, int], tuple[Any, bool]] = {
    ("nearest", 1): (aten.upsample_nearest1d.default, False),
    ("nearest", 2): (aten.upsample_nearest2d.default, False),
    ("nearest", 3): (aten.upsample_nearest3d.default, False),
    ("nearest-exact", 1): (aten._upsample_nearest_exact1d.default, False),
    ("nearest-exact", 2): (aten._upsample_nearest_exact2d.default, False),
    ("nearest-exact", 3): (aten._upsample_nearest_exact3d.default, False),
    ("linear", 1): (aten.upsample_linear1d.default, True),
    ("bilinear", 2): (aten.upsample_bilinear2d.default, True),
    ("bicubic", 2): (aten.upsample_bicubic2d.default, True),
    ("trilinear", 3): (aten.upsample_trilinear3d.default, True),
}


def _interpolate(
    input: Any,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Any:
    found = None
    varies = is_fake(input) and (is_symbolic(input._fake_type) or is_symbolic(plain(size)))
    if varies and not antialias:
        found = _RESAMPLERS.get((mode, input.dim() - 2))
    fits = (size is None) != (scale_factor is None) and not (recompute_scale_factor and size)
    if found is None or not fits or (align_corners is not None and not found[1]):
        return torch.nn.functional.interpolate(
            input, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias
        )
    op, aligns = found
    spatial = [from_torch(one) for one in input.shape[2:]]
    if size is not None:
        wanted = list(size) if isinstance(size, list | tuple) else [size] * len(spatial)
        scales: list[Any] = [None] * len(spatial)
    else:
        given = scale_factor if isinstance(scale_factor, list | tuple) else [scale_factor]
        factors = list(given) if len(given) > 1 else [*given] * len(spatial)
        pairs = zip(spatial, factors, strict=True)
        wanted = [as_torch(_scaled(one, float(factor))) for one, factor in pairs]
        scales = [None if recompute_scale_factor else float(factor) for factor in factors]
    corners = (bool(align_corners),) if aligns else ()
    return op(input, wanted, *corners, *scales)


def _scaled(size: symint.Size, factor: float) -> symint.Size:
    """The whole part of `size * factor`, as double precision has it."""
    above, below = factor.as_integer_ratio()
    if above >= 1 << 20:  # the product may be rounded before it is cut
        return int(value_of(size, "a fraction") * factor)
    return size * above // below


def _tensor(data: Any, **options: Any) -> Any:
    """`torch.tensor` of a size that varies, or of a list of integers with such in it."""
    several = isinstance(data, list | tuple)
    parts = list(data) if several else [data]
    varies = any(isinstance(one, torch.SymInt) for one in parts)
    plain = all(isinstance(one, torch.SymInt) or type(one) is int for one in parts)
    if not varies or not plain or not options.keys() <= {"dtype"}:
        return torch.tensor(data, **options)
    dtype = options.get("dtype") or torch.int64
    made = [torch.full((), one, dtype=dtype) for one in parts]
    return torch.stack(made) if several else made[0]


def _getitem(held: Any, key: Any) -> Any:
    """An index that varies, which torch's own indexing takes in slices only."""
    keys = key if isinstance(key, tuple) else (key,)
    varies = any(isinstance(one, torch.SymInt) for one in keys)
    plain = all(one.__class__ in (int, slice, torch.SymInt) for one in keys)
    if not is_fake(held) or not varies or not plain or len(keys) > held.dim():
        return held[key]
    place = 0
    for one in keys:
        if isinstance(one, slice):
            held = held[(slice(None),) * place + (one,)]
            place += 1
        else:
            held = held.select(place, one)
    return held


# By identity, since not every callable can be hashed.
_STAND_INS: dict[int, Callable[..., Any]] = {
    id(torch.nn.functional.interpolate): _interpolate,
    id(torch.tensor): _tensor,
    id(operator.getitem): _getitem,
    **BY_PARTS,
}
_ALWAYS: dict[int, Callable[..., Any]] = {**whole, **ALWAYS}
