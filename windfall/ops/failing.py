"""Ops that refuse data: an index out of bounds, a probability above one, a division by zero.

Enters: nothing. Leaves: which ops may refuse (`may_refuse`), and what those that become loops ask
of their operands (`checks`). Such an op has an effect, an exception, also where nobody reads what
it answers, or reads a part of it only: eager looks at all of its operands.

Invariant: whatever eager refuses, a check refuses too. The other way round is no harm: what a check
refuses is given to eager, which says what is wrong, if anything is (ADR 0027).

    for check in checks("aten.embedding.default", (weight, indices), {}): ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from windfall.ir.loop import Lazy
from windfall.ir.symint import Size
from windfall.ops.folding import size_term
from windfall.ops.layout import normalise_dim
from windfall.ops.term import Term


@dataclass(frozen=True, slots=True)
class Check:
    """`fine` must hold of every element of `operand`. `implied`: the op's own loops see to it, as
    far as they run."""

    operand: Lazy
    fine: Callable[[Term], Term]
    implied: bool = True


def checks(name: str, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> list[Check]:
    """What the op of this name asks of these operands (`Lazy`s among them), if it becomes loops."""
    rule = _RULES.get(name)
    return [] if rule is None else list(rule(*arguments, **keywords))


def may_refuse(target: Any) -> bool:
    """Whether an ATen overload looks at its data and may raise."""
    name = str(target)
    return name in _RULES or name.rpartition(".")[0] in CALLED


# ------------------------------------------------------------------------------- those with loops


def _within(operand: Lazy, size: Size, *, wrap: bool, but: int | None = None) -> Check:
    def fine(value: Term) -> Term:
        wide = value.to(torch.int64)
        limit = size_term(value.builder, size)
        inside = (wide >= (-limit if wrap else 0)) & (wide < limit)
        return inside if but is None else inside | wide.eq(but)

    return Check(operand, fine)


def _embedding(weight: Lazy, indices: Lazy, *rest: Any, **keywords: Any) -> Iterator[Check]:
    yield _within(indices, weight.type.sizes[0], wrap=False)


def _along(x: Lazy, dim: int, positions: Lazy, *rest: Any, **keywords: Any) -> Iterator[Check]:
    if x.type.rank:
        size = x.type.sizes[normalise_dim(dim, x.type.rank)]
        yield _within(positions, size, wrap=False)


def _take(x: Lazy, positions: Lazy) -> Iterator[Check]:
    yield _within(positions, x.type.elements, wrap=True)


def _index(x: Lazy, positions: Sequence[Lazy | None]) -> Iterator[Check]:
    for dim, each in enumerate(positions):
        if each is not None and each.type.dtype is not torch.bool:
            yield _within(each, x.type.sizes[dim], wrap=True)


def _classes(
    x: Lazy, target: Lazy, weight: Lazy | None, reduction: int, ignore: int
) -> Iterator[Check]:
    yield _within(target, x.type.sizes[-1], wrap=False, but=ignore)


def _probabilities(x: Lazy, *rest: Any, **keywords: Any) -> Iterator[Check]:
    # Between 0 and 1, and no NaN, in one comparison: neither factor rounds over zero.
    yield Check(x, lambda value: value * (1 - value) >= 0, implied=False)


def _divisor(x: Any, divisor: Any, **keywords: Any) -> Iterator[Check]:
    if isinstance(divisor, Lazy) and not divisor.type.dtype.is_floating_point:
        yield Check(divisor, lambda value: value.ne(0))


_RULES: dict[str, Callable[..., Iterator[Check]]] = {
    "aten.embedding.default": _embedding,
    "aten.gather.default": _along,
    "aten.index_select.default": _along,
    "aten.take.default": _take,
    "aten.index.Tensor": _index,
    "aten.nll_loss_forward.default": _classes,
    "aten.binary_cross_entropy.default": _probabilities,
    "aten.div.Tensor_mode": _divisor,
    "aten.floor_divide.default": _divisor,
    "aten.remainder.Tensor": _divisor,
    "aten.fmod.Tensor": _divisor,
}

# ------------------------------------------------------------------------- those that are called

CALLED = frozenset(
    f"aten.{name}"
    for name in (
        "_ctc_loss",
        "_embedding_bag",
        "_embedding_bag_forward_only",
        "_index_put_impl",
        "_linalg_eigh",
        "_linalg_svd",
        "bernoulli",
        "bincount",
        "binomial",
        "cholesky_inverse",
        "histc",
        "index",
        "index_add",
        "index_copy",
        "index_fill",
        "index_put",
        "index_reduce",
        "linalg_eig",
        "linalg_lstsq",
        "masked_scatter",
        "max_unpool2d",
        "max_unpool3d",
        "multi_margin_loss",
        "multilabel_margin_loss_forward",
        "multinomial",
        "nll_loss2d_forward",
        "normal",
        "poisson",
        "put",
        "repeat_interleave",
        "scatter",
        "scatter_add",
        "scatter_reduce",
        "searchsorted",
        "segment_reduce",
    )
)
