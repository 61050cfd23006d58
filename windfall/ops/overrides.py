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
from functools import partial
from typing import Any

import torch

from windfall.ir.control_flow import Subgraphs
from windfall.ir.symint import Size, payloads
from windfall.ops.control_flow import answer
from windfall.ops.decompositions import ALWAYS, BY_PARTS
from windfall.ops.fake import is_fake
from windfall.ops.recurrent import whole
from windfall.ops.symbolic import as_torch, from_torch, is_symbolic, plain, value_of

aten = torch.ops.aten


def standing_for(function: Any) -> Any:
    """What to call on fake tensors in place of a torch function."""
    found = _ALWAYS.get(id(function))
    if found is not None:
        return found
    if isinstance(function, Subgraphs):
        if function.is_followed:
            return partial(function.follow, standing_for)
        return answer(function)
    return _STAND_INS.get(id(function), function) if payloads.varying else function


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


def _scaled(size: Size, factor: float) -> Size:
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
    found = _viewed(held, key)
    if found is None:
        return held[key]
    part, left = found
    return part[left] if left else part


def _setitem(held: Any, key: Any, value: Any) -> None:
    """Likewise, written."""
    found = _viewed(held, key)
    if found is None:
        held[key] = value
    else:
        part, left = found
        part[left or ...] = value


def _viewed(held: Any, key: Any) -> tuple[Any, tuple[Any, ...]] | None:
    """The view of `held` that all keys but tensors tell, as torch makes it, and the key of it with
    the tensors. None: no index varies, or some key is not known here."""
    keys = key if isinstance(key, tuple) else (key,)
    if not is_fake(held) or not any(isinstance(one, torch.SymInt) for one in keys):
        return None
    wide = [0 if one is ... else _width(one) for one in keys]
    taken = [one for one in wide if one is not None]
    if len(taken) < len(wide) or sum(taken) > held.dim() or sum(one is ... for one in keys) > 1:
        return None
    left: list[Any] = []
    place = covered = 0  # dimensions of the view; those that `left` speaks of
    for number, one in enumerate(keys):
        if isinstance(one, torch.Tensor):
            left += [slice(None)] * (place - covered) + [one]
            covered = place + taken[number]
        elif one is None:
            held = held.unsqueeze(place)
        elif isinstance(one, slice):
            held = held[(slice(None),) * place + (one,)]
        elif one is not ...:
            held = held.select(place, one)
            continue
        behind = sum(taken[number + 1 :])
        place += held.dim() - place - behind if one is ... else max(taken[number], 1)
    return held, tuple(left)


def _width(key: Any) -> int | None:
    """How many dimensions a key takes; None: that is not known."""
    if key is None:
        return 0
    if isinstance(key, torch.Tensor):
        return (key.dim() or None) if key.dtype in (torch.bool, torch.uint8) else 1
    return 1 if key.__class__ in (int, slice, torch.SymInt) else None


# By identity, since not every callable can be hashed.
_STAND_INS: dict[int, Callable[..., Any]] = {
    id(torch.nn.functional.interpolate): _interpolate,
    id(torch.tensor): _tensor,
    id(operator.getitem): _getitem,
    id(operator.setitem): _setitem,
    **BY_PARTS,
}


def _by_class(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of torch's that is a method or an attribute too: of fakes, that of their class."""

    def stand_in(*args: Any, **kwargs: Any) -> Any:
        if len(args) != 1 or kwargs or not is_fake(args[0]):
            return function(*args, **kwargs)
        found = getattr(args[0], name)
        return found() if callable(found) and not isinstance(found, torch.Tensor) else found

    return stand_in


# What asks for lazy conjugates and signs, which torch does not know of fakes.
_OF_MARKS = {
    id(function): _by_class(name, function)
    for name in ("is_conj", "is_neg", "resolve_conj", "resolve_neg")
    for function in (getattr(torch, name), getattr(torch.Tensor, name))
} | {id(function): _by_class(function.__name__, function) for function in (torch.real, torch.imag)}
_ALWAYS: dict[int, Callable[..., Any]] = {**whole, **ALWAYS, **_OF_MARKS}
