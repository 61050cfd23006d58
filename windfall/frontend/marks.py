"""What the user says of a tensor's sizes: they vary, they may vary, they never do.

Enters: a tensor and dimensions. Leaves: marks on the tensor itself, read when a call with it is
compiled. Invariant: a mark changes what is compiled, never a result; one that cannot be kept (the
program needs the size's value) is a `UserError` that names the line.
"""

from __future__ import annotations

import linecache
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from windfall.dataclass import dataclass
from windfall.errors import Specialise, UserError
from windfall.ir.reading import is_a

_NAME = "_windfall_sizes"


@dataclass(frozen=True, slots=True)
class DynamicMark:
    """How one dimension is to be taken. `required`: failing to is an error."""

    static: bool = False
    required: bool = False
    low: int | None = None
    high: int | None = None


def mark_dynamic(
    tensor: torch.Tensor,
    dimension: int | Sequence[int],
    *,
    min: int | None = None,
    max: int | None = None,
) -> None:
    """This size varies (between `min` and `max`): one compilation must serve every value of it."""
    if min is not None and max is not None and min > max:
        raise UserError(f"mark_dynamic: min={min} is greater than max={max}")
    _mark(tensor, dimension, DynamicMark(required=True, low=min, high=max))


def maybe_mark_dynamic(tensor: torch.Tensor, dimension: int | Sequence[int]) -> None:
    """This size varies, unless the program needs its value."""
    _mark(tensor, dimension, DynamicMark())


def mark_static(tensor: torch.Tensor, dimension: int | Sequence[int] | None = None) -> None:
    """This size (by default each) never varies: each value is compiled for itself."""
    _mark(
        tensor,
        tuple(range(tensor.dim())) if dimension is None else dimension,
        DynamicMark(static=True),
    )


def _mark(tensor: torch.Tensor, dimension: int | Sequence[int], mark: DynamicMark) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise UserError(f"only the sizes of a tensor can be marked, not those of {tensor!r}")
    marks = dict(marks_of(tensor))
    for one in (dimension,) if isinstance(dimension, int) else dimension:
        if not -tensor.dim() <= one < tensor.dim():
            raise UserError(
                f"dimension {one} cannot be marked: the tensor has {tensor.dim()} dimensions"
            )
        size = tensor.size(one)
        if not (mark.low or 0) <= size <= (size if mark.high is None else mark.high):
            raise UserError(f"dimension {one} is {size}, not between {mark.low} and {mark.high}")
        marks[one % tensor.dim()] = mark
    setattr(tensor, _NAME, marks)


def marks_of(tensor: torch.Tensor) -> Mapping[int, DynamicMark]:
    """The marks of a tensor by dimension: ours, and those that torch was given."""
    attributes: dict[str, Any] = getattr(tensor, "__dict__", {})
    return {**_said_to_torch(attributes), **attributes.get(_NAME, {})} if attributes else {}


def _said_to_torch(attributes: Mapping[str, Any]) -> dict[int, DynamicMark]:
    """What torch's own `mark_dynamic`, `maybe_mark_dynamic`, `mark_unbacked` and `mark_static` left
    behind."""
    names = ("_dynamo_weak_dynamic_indices", "_dynamo_unbacked_indices")
    found = {one: DynamicMark() for name in names for one in attributes.get(name, ())}
    found |= {one: DynamicMark(static=True) for one in attributes.get("_dynamo_static_indices", ())}
    for one in attributes.get("_dynamo_dynamic_indices", ()):
        found[one] = DynamicMark(required=True)
    # Bounds: up to 2.14 of every dimension that is marked, from 2.15 on of those that have some.
    for one in attributes.get("_dynamo_dynamic_range", ()):
        mark = found.get(one.dim, DynamicMark(required=True))
        found[one.dim] = replace(mark, low=one.min, high=one.max)
    return found


def refusal(source: str, reason: Specialise, value: int | None = None) -> UserError:
    """The error where a mark cannot be kept: the line that needs the value, what was expected of
    the size, what it is, what to do."""
    lines = [f"{source} is marked dynamic, but the program needs its value."]
    where = reason.where
    if where is not None:
        lines.append(f'  File "{where.file}", line {where.line}, in {where.function}')
        lines.append(f"    {linecache.getline(where.file, where.line).strip()}")
    lines.append(f"  W{reason.number:04d} {reason.detail}")
    found = "" if value is None else f" (it is {value} in this call)"
    lines.append(f"  expected: one compilation for every value of it; got: one for each{found}")
    lines.append(
        "  what to do: change that line so that it works for any size; or use maybe_mark_dynamic, "
        "which allows one compilation for each value; or mark_static, which asks for it"
    )
    return UserError("\n".join(line for line in lines if line.strip()))


def refuse_required(names: Sequence[str], slots: Sequence[Any], reason: Specialise) -> None:
    """Raise where a backend needs the value of a size that an argument is marked with."""
    for name, value in zip(names, slots, strict=True):
        for dimension, mark in marks_of(value).items() if is_a(value, torch.Tensor) else ():
            source = f"L['{name}'].size({dimension})"
            if mark.required and source in reason.sources and not reason.edge:
                raise refusal(source, reason, value.size(dimension))
