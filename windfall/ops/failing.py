"""What ops that refuse data ask of their operands: no index out of bounds, no division by zero.

Enters: arguments of an op that becomes loops, `Lazy`s among them. Leaves: `ElementCheck`s. These
are the `checks` of records. An op that refuses (`Op.refuses`) has an effect, an exception,
also where nobody reads what it answers, or reads a part of it only: eager looks at all of it.

Invariant: whatever eager refuses, a check refuses too. The other way round is no harm: what a check
refuses is given to eager, which says what is wrong, if anything is (ADR 0027).

    op("embedding.default", ..., checks=failing.rows)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from windfall.dataclass import dataclass
from windfall.ir.loop import Lazy
from windfall.ir.symint import Size
from windfall.ops.folding import size_term
from windfall.ops.layout import normalise_dim
from windfall.ops.term import Term


@dataclass(frozen=True, slots=True)
class ElementCheck:
    """`fine` must hold of every element of `operand`. `implied`: the op's own loops see to it, as
    far as they run."""

    operand: Lazy
    fine: Callable[[Term], Term]
    implied: bool = True


def _within(operand: Lazy, size: Size, *, wrap: bool, but: int | None = None) -> ElementCheck:
    def fine(value: Term) -> Term:
        wide = value.to(torch.int64)
        limit = size_term(value.builder, size)
        inside = (wide >= (-limit if wrap else 0)) & (wide < limit)
        return inside if but is None else inside | wide.eq(but)

    return ElementCheck(operand, fine)


def rows(weight: Lazy, indices: Lazy, *rest: Any, **keywords: Any) -> Iterator[ElementCheck]:
    yield _within(indices, weight.type.sizes[0], wrap=False)


def along(
    x: Lazy, dim: int, positions: Lazy, *rest: Any, **keywords: Any
) -> Iterator[ElementCheck]:
    if x.type.rank:
        size = x.type.sizes[normalise_dim(dim, x.type.rank)]
        yield _within(positions, size, wrap=False)


def anywhere(x: Lazy, positions: Lazy) -> Iterator[ElementCheck]:
    yield _within(positions, x.type.elements, wrap=True)


def by_dimension(x: Lazy, positions: Sequence[Lazy | None]) -> Iterator[ElementCheck]:
    for dim, each in enumerate(positions):
        if each is not None and each.type.dtype is not torch.bool:
            yield _within(each, x.type.sizes[dim], wrap=True)


def put(
    x: Lazy, positions: Sequence[Lazy | None], *rest: Any, **keywords: Any
) -> Iterator[ElementCheck] | None:
    """None: how many values a mask takes is not known before it is counted."""
    masks = (torch.bool, torch.uint8)
    if any(each is not None and each.type.dtype in masks for each in positions):
        return None
    return by_dimension(x, positions)


def classes(
    x: Lazy, target: Lazy, weight: Lazy | None, reduction: int, ignore: int
) -> Iterator[ElementCheck]:
    yield _within(target, x.type.sizes[-1], wrap=False, but=ignore)


def probabilities(x: Lazy, *rest: Any, **keywords: Any) -> Iterator[ElementCheck]:
    # Between 0 and 1, and no NaN, in one comparison: neither factor rounds over zero.
    yield ElementCheck(x, lambda value: value * (1 - value) >= 0, implied=False)


def divisor(x: Any, y: Any, **keywords: Any) -> Iterator[ElementCheck]:
    if isinstance(y, Lazy) and not y.type.dtype.is_floating_point:
        yield ElementCheck(y, lambda value: value.ne(0))


def truth(condition: Lazy, *rest: Any, **keywords: Any) -> Iterator[ElementCheck]:
    yield ElementCheck(condition, lambda value: value.ne(0), implied=False)
