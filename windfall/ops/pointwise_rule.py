"""How a row of a pointwise table becomes an `Op`: its shape rule, its lowering, its samples.

Enters: `row(name, rule, template, body)`, where the template shows how the op is called: `T` marks
an operand that is a tensor, `N` one that is a tensor or a number, anything else is a parameter of
the op, with a value worth testing. Leaves: an `Op` in the registry. Invariant: result type and
layout are eager's; the body is computed in the dtype in which eager computes, then rounded once.

    row("leaky_relu.default", SAME, (T, 0.1), lambda x, slope=0.01: (x > 0).where(x, x * slope))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from windfall.dataclass import dataclass
from windfall.ir.dtype import TensorType
from windfall.ir.loop import Builder, Index, Lazy
from windfall.ops.folding import op
from windfall.ops.layout import Layout, Sizes, pointwise_layout
from windfall.ops.promotion import (
    FLOATS,
    INTEGERS,
    LOWERABLE,
    REDUCED,
    common_dtype,
    compute_dtype,
    to_float,
)
from windfall.ops.registry import Op
from windfall.ops.samples import N, T, pointwise_samples
from windfall.ops.term import Term

Body = Callable[..., Any]
Only = Callable[[torch.dtype, tuple[Any, ...]], bool]


@dataclass(frozen=True, slots=True)
class DtypeRule:
    """From the operands' common dtype: the dtype that the body sees, and that of the result."""

    common: Callable[[torch.dtype], torch.dtype]
    computed: Callable[[torch.dtype], torch.dtype]
    result: Callable[[torch.dtype], torch.dtype]
    # Whether a number beside half precision, as the second operand, is used as it is, not rounded
    # to half precision first.
    wide_numbers: bool = False
    # Whether other numbers (`alpha`, bounds) are rounded to half precision where operands are.
    narrow_parameters: bool = False
    # Common dtypes that eager's kernels take; for others the op is called, and words the error.
    accepts: frozenset[torch.dtype] = LOWERABLE


def _same(dtype: torch.dtype) -> torch.dtype:
    return dtype


def _bool(dtype: torch.dtype) -> torch.dtype:
    return torch.bool


SAME = DtypeRule(_same, compute_dtype, _same)
FLOAT = DtypeRule(to_float, compute_dtype, to_float)  # integers become the default float
COMPARE = DtypeRule(_same, compute_dtype, _bool)
LOGICAL = DtypeRule(_same, _bool, _bool)
ARITHMETIC = DtypeRule(_same, compute_dtype, _same, True)
DIVISION = DtypeRule(to_float, compute_dtype, to_float, True)

_NUMBERS = LOWERABLE - {torch.bool}
NUMBERS = replace(SAME, accepts=_NUMBERS)
WIDE_NUMBERS = replace(ARITHMETIC, accepts=_NUMBERS)
SUM = replace(SAME, narrow_parameters=True)
DIFFERENCE = replace(SUM, accepts=_NUMBERS)
FLOATING = replace(SAME, accepts=frozenset(FLOATS))
SHRINKING = replace(FLOATING, narrow_parameters=True)
INTEGRAL = replace(SAME, accepts=frozenset(INTEGERS))
SHIFTS = replace(SAME, accepts=frozenset(INTEGERS) & _NUMBERS)

_NUMBER: Layout = ((), ())


def row(
    name: str,
    rule: DtypeRule,
    template: tuple[Any, ...],
    body: Body | None,
    first: int = 0,
    result_like: int | None = None,
    only: Only | None = None,
    fields: Mapping[str, Any] | None = None,
    **keywords: Any,
) -> Op:
    """Declare one pointwise op; without a body it has a shape rule only. `first` is the operand
    whose strides are asked first, `result_like` one whose dtype the result has, `only` tells of a
    common dtype and arguments whether the body is good for them; `fields` go to the record."""
    places = [place for place, part in enumerate(template) if part is T or part is N]
    positions = tuple(sorted(places, key=lambda place: (place != first, place)))
    shape = shape_rule(positions, rule)
    if result_like is not None:
        shape = _with_dtype_of(shape, result_like)
    lower = None if body is None else lowering(positions, rule, shape, body, only)
    samples = pointwise_samples(name, template, keywords)
    return op(name, shape, lower, samples, recompute=lower is not None, **(fields or {}))


def rows(
    names: str, rule: DtypeRule, template: tuple[Any, ...], body: Callable[[str], Body | None]
) -> None:
    """Several ops of one pattern: `body` makes the body from the op's name without overload."""
    for name in names.split():
        full = name if "." in name else f"{name}.default"
        row(full, rule, template, body(full.split(".")[0]))


def operands_of(positions: tuple[int, ...], arguments: tuple[Any, ...]) -> list[Any]:
    """The operands among the arguments; trailing ones may be left out."""
    return [arguments[place] for place in positions if place < len(arguments)]


def layout_of(operands: list[Any]) -> Layout:
    """The layout of a fresh result over these operands (`TensorType`s, numbers, None)."""
    return pointwise_layout(
        tuple(
            [
                (each.sizes, each.strides) if isinstance(each, TensorType) else _NUMBER
                for each in operands
                if each is not None
            ]
        )
    )


def shape_rule(positions: tuple[int, ...], rule: DtypeRule) -> Callable[..., TensorType]:
    """The shape rule of an op with operands at these positions."""
    if positions == (0,):
        return partial(_shape_of_one, rule)
    return partial(_shape_of_several, positions, rule)


def _shape_of_one(
    rule: DtypeRule, operand: TensorType, /, *arguments: Any, **keywords: Any
) -> TensorType:
    sizes, strides = pointwise_layout(((operand.sizes, operand.strides),))
    return TensorType(rule.result(operand.dtype), sizes, strides)


def _shape_of_several(
    positions: tuple[int, ...], rule: DtypeRule, /, *arguments: Any, **keywords: Any
) -> TensorType:
    operands = operands_of(positions, arguments)
    sizes, strides = layout_of(operands)
    return TensorType(rule.result(common_dtype(operands)), sizes, strides)


def _with_dtype_of(shape: Callable[..., TensorType], place: int) -> Callable[..., TensorType]:
    return lambda *arguments, **keywords: replace(
        shape(*arguments, **keywords), dtype=arguments[place].dtype
    )


def lowering(
    positions: tuple[int, ...],
    rule: DtypeRule,
    shape: Callable[..., TensorType],
    body: Body,
    only: Only | None = None,
) -> Callable[..., Any]:
    """The lowering of an op with operands at these positions, where `only` (if given) says so."""
    return partial(_lowered, positions, rule, shape, body, only)


def _lowered(
    positions: tuple[int, ...],
    rule: DtypeRule,
    shape: Callable[..., TensorType],
    body: Body,
    only: Only | None,
    builder: Builder,
    /,
    *arguments: Any,
    **keywords: Any,
) -> Any:
    types = [each.type if isinstance(each, Lazy) else each for each in arguments]
    operands = operands_of(positions, tuple(types))
    common = rule.common(common_dtype(operands))
    result = shape(*types, **keywords)
    if common not in rule.accepts or not lowerable(result, *operands):
        return NotImplemented
    if only is not None and not only(common, arguments):
        return NotImplemented
    readers = [
        (place, reader(builder, arguments[place], result.sizes, common, rule, place))
        for place in positions
        if place < len(arguments) and arguments[place] is not None
    ]

    parameters = list(arguments)
    if rule.narrow_parameters and common in REDUCED:
        parameters = [narrow(each, common) for each in arguments]
        keywords = {name: narrow(each, common) for name, each in keywords.items()}

    def at(index: Index) -> Any:
        given = list(parameters)
        for place, read in readers:
            given[place] = read(index)
        return body(*given, **keywords).to(result.dtype).scalar

    return builder.tensor(result, at)


def one_dtype(common: torch.dtype, arguments: tuple[Any, ...]) -> bool:
    """For ops that eager refuses (or computes oddly) where the operands' dtypes differ."""
    return all(each.type.dtype is common for each in arguments if isinstance(each, Lazy))


def holds_numbers(common: torch.dtype, arguments: tuple[Any, ...]) -> bool:
    """For ops that refuse a number that the operands' common dtype does not hold (most let it
    wrap, or be infinite)."""
    if common.is_floating_point or common is torch.bool:
        return True
    about = torch.iinfo(common)
    numbers = [each for each in arguments if isinstance(each, int | float)]
    return all(about.min <= each <= about.max for each in numbers)


def lowerable(*parts: Any) -> bool:
    """Whether generated code can hold every dtype among these dtypes and types."""
    dtypes = (part.dtype if isinstance(part, TensorType) else part for part in parts)
    return all(each in LOWERABLE for each in dtypes if isinstance(each, torch.dtype)) and not any(
        isinstance(part, complex) for part in parts
    )


def reader(
    builder: Builder,
    operand: Any,
    sizes: Sizes,
    common: torch.dtype,
    rule: DtypeRule,
    place: int = 1,
) -> Callable[[Index], Term]:
    """How to read an operand, broadcast to `sizes`, as a term of the dtype that bodies see.

    Eager converts to the common dtype first: a large integer beside bfloat16 is rounded to it.
    Kernels that take a number as it is look for it in the second place alone."""
    computed = rule.computed(common)
    wide = (rule.wide_numbers and place > 0) or computed is torch.bool
    if not isinstance(operand, Lazy):
        if common in REDUCED and not wide:
            operand = torch.tensor(operand, dtype=common).item()
        constant = Term(builder, builder.constant(operand, computed))
        return lambda index: constant
    places = broadcast_places(operand.type.sizes, len(sizes))
    first = computed if wide and not operand.type.sizes else common

    def read(index: Index) -> Term:
        own = tuple([0 if place is None else index[place] for place in places])
        return Term(builder, operand.at(own)).to(first).to(computed)

    return read


def narrow(value: Any, dtype: torch.dtype) -> Any:
    """A fraction as it is in a type of few digits; anything else as it is."""
    return torch.tensor(value, dtype=dtype).item() if isinstance(value, float) else value


def broadcast_places(sizes: Sizes, rank: int) -> tuple[int | None, ...]:
    """For each dimension of an operand: which dimension of the result it follows, None where its
    one element is repeated."""
    missing = rank - len(sizes)
    return tuple(None if size == 1 else missing + place for place, size in enumerate(sizes))
