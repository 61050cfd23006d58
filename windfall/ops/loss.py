"""Losses: negative log likelihood and the losses that are a pointwise function, then a reduction.

Enters: nothing. Leaves: records in the registry. Invariant: `reduction` is torch's number: 0 none,
1 mean, 2 sum. A class index that equals `ignore_index` is never used as an index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from windfall.ir.dtype import TensorType, contiguous_strides
from windfall.ir.loop import Builder, Index, Lazy
from windfall.ir.symint import Size
from windfall.ops import failing
from windfall.ops.arguments import Arguments, type_of
from windfall.ops.copying import broadcast_reading
from windfall.ops.folding import (
    At,
    can_lower,
    count,
    fold,
    fresh,
    number,
    op,
    reading,
    stored,
)
from windfall.ops.layout import differ, preserved_strides
from windfall.ops.pointwise_rule import layout_of
from windfall.ops.promotion import REDUCED, common_dtype, compute_dtype
from windfall.ops.samples import Sample, make
from windfall.ops.term import Term

NONE, MEAN, SUM = 0, 1, 2

# -------------------------------------------------------------------------- negative log likelihood


def _check_classes(x: TensorType, target: TensorType) -> None:
    if target.rank > 1:
        raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
    if x.rank not in (1, 2):
        raise RuntimeError("input tensor should be 1D or 2D")
    if x.rank == 1 and target.rank == 1 and differ(target.sizes[0], 1):
        raise ValueError(
            f"For 1D input, 1D target must have size 1, but got target size: {target.sizes[0]}"
        )
    if x.rank == 2 and differ(target.sizes, x.sizes[:1]):
        raise RuntimeError(
            f"size mismatch (got input: {list(x.sizes)}, target: {list(target.sizes)})"
        )


def _nll_shape(given: Arguments) -> tuple[TensorType, TensorType]:
    x, weight = given.self, given.weight
    _check_classes(x, given.target)
    if weight is not None and (weight.rank != 1 or differ(weight.sizes[0], x.sizes[-1])):
        raise RuntimeError(
            f"weight tensor should be defined either for all {x.sizes[-1]} classes or no classes "
            f"but got weight tensor of shape: {list(weight.sizes)}"
        )
    rows = x.sizes[:1] if given.reduction == NONE and x.rank == 2 else ()
    return fresh(x.dtype, rows), fresh(x.dtype, ())


class _Classes:
    """The class of each row, and what follows from it."""

    def __init__(self, builder: Builder, given: Arguments) -> None:
        self.builder, self.ignore = builder, given.ignore_index
        self.count = given.self.type.sizes[-1]
        self.dtype = compute_dtype(given.self.type.dtype)
        self.target = reading(builder, given.target, torch.int64)
        self.scalar = not given.target.type.sizes
        weight = given.weight
        self._weights = None if weight is None else reading(builder, weight, self.dtype)

    def label(self, row: Index) -> Term:
        """The class as a number."""
        if self.scalar:
            return self.target(())
        return self.target((0,) if len(row) == 0 else row)

    def place(self, row: Index) -> Size:
        """The class as an index: 0 for a row that is ignored."""
        label = self.label(row)
        safe = label.eq(self.ignore).where(0, label)
        return self.builder.as_index(safe.scalar, self.count, wrap=False)

    def weight(self, row: Index) -> Term:
        """How much a row counts: nothing if it is ignored."""
        kept = self.label(row).ne(self.ignore)
        if self._weights is None:
            return kept.to(self.dtype)
        return kept.where(self._weights((self.place(row),)), 0)


def _nll(builder: Builder, given: Arguments) -> Any:
    x, reduction = given.self, given.reduction
    if not can_lower(x, given.weight):
        return NotImplemented
    result, total_type = _nll_shape(given.types())
    classes = _Classes(builder, given)
    read = reading(builder, x, classes.dtype)

    def loss(row: Index) -> Term:
        chosen = -read((*row, classes.place(row))) * classes.weight(row)
        return classes.label(row).eq(given.ignore_index).where(0, chosen)

    rows = x.type.sizes[:-1]
    dims = tuple(range(len(rows)))
    weights = fold(builder, "sum", rows, dims, classes.weight)
    total = stored(builder, total_type, lambda index: weights((0,) * len(rows)))
    if reduction == NONE and rows:
        nothing = stored(builder, total_type, lambda index: total_zero(builder, classes.dtype))
        return stored(builder, result, loss), nothing
    if reduction == NONE:
        return stored(builder, result, loss), total
    losses = fold(builder, "sum", rows, dims, loss)

    def at(index: Index) -> Term:
        start = (0,) * len(rows)
        return losses(start) / weights(start) if reduction == MEAN else losses(start)

    return stored(builder, result, at), total


def total_zero(builder: Builder, dtype: torch.dtype) -> Term:
    """The number 0."""
    return Term(builder, builder.constant(0, dtype))


def _nll_backward_shape(given: Arguments) -> TensorType:
    return fresh(given.self.dtype, given.self.sizes)


def _nll_backward(builder: Builder, given: Arguments) -> Any:
    grad, x, total = given.grad_output, given.self, given.total_weight
    if not can_lower(grad, x, given.weight, total):
        return NotImplemented
    classes = _Classes(builder, given)
    slope = reading(builder, grad, classes.dtype)

    def at(index: Index) -> Term:
        row = index[:-1]
        label = classes.label(row)
        here = label.eq(Term(builder, builder.index(index[-1]))) & label.ne(given.ignore_index)
        pulled = slope(row if grad.type.sizes else ())
        if given.reduction == MEAN:
            pulled = pulled / Term(builder, total.at(())).to(classes.dtype)
        return here.where(-pulled * classes.weight(row), 0)

    return stored(builder, fresh(x.type.dtype, x.type.sizes), at)


def _nll_samples() -> Iterator[Sample]:
    target = torch.tensor([1, 0, 3])
    weight = make((4,)).abs()
    for reduction in (NONE, MEAN, SUM):
        for x in (make((3, 4)), make((4, 3)).t(), make((3, 4), torch.float64)):
            yield (x, target, None, reduction, -100), {}
            yield (x, target, weight.to(x.dtype), reduction, 3), {}
        yield (make((4,)), torch.tensor(2), None, reduction, -100), {}
        yield (make((3, 4)), torch.tensor([1, -100, 3]), weight, reduction, -100), {}
        yield (make((3, 4), torch.bfloat16), target, None, reduction, -100), {}


def _nll_backward_samples() -> Iterator[Sample]:
    for (x, target, weight, reduction, ignore), _ in _nll_samples():
        loss, total = torch.ops.aten.nll_loss_forward(x, target, weight, reduction, ignore)
        yield (make(loss.shape, x.dtype), x, target, weight, reduction, ignore, total), {}


op(
    "nll_loss_forward.default",
    _nll_shape,
    _nll,
    _nll_samples,
    named=True,
    reads=(),
    checks=failing.classes,
)
op(
    "nll_loss_backward.default",
    _nll_backward_shape,
    _nll_backward,
    _nll_backward_samples,
    named=True,
    reads=(),
)


def _nll2d_shape(given: Arguments) -> tuple[TensorType, TensorType]:
    rows = given.target.sizes if given.reduction == NONE else ()
    return fresh(given.self.dtype, rows), fresh(given.self.dtype, ())


op("nll_loss2d_forward.default", _nll2d_shape, named=True, refuses=True)
op("nll_loss2d_backward.default", _nll_backward_shape, named=True)
for _name in ("_ctc_loss.default", "_ctc_loss.Tensor", "multi_margin_loss.default"):
    op(_name, None, refuses=True)
op("multilabel_margin_loss_forward.default", None, refuses=True)

# ---------------------------------------------------------------------- pointwise, then a reduction

Body = Callable[..., Term]


def _fit(result: TensorType, operands: Sequence[TensorType | None]) -> bool:
    """Whether a result of this type can take losses of these operands."""
    return not any(
        differ(layout_of([result, each])[0], result.sizes) for each in operands if each is not None
    )


def _loss_shape(
    tensors: int,
    *,
    target_first: bool = False,
    written: int | None = None,
    fine: Callable[[float], bool] = lambda parameter: True,
) -> Callable[..., Any]:
    """(x, target, ..., reduction, parameter), the first `tensors` being tensors or None. `written`:
    the one that eager's kernel makes the losses in place of: in its dtype, and no other may be
    larger; `fine`: whether eager takes this parameter."""

    def shape(*arguments: Any) -> Any:
        operands = list(arguments[:2])
        if not all(map(fine, arguments[tensors + 1 :])):
            return NotImplemented  # eager words the error
        sizes, strides = layout_of(operands[::-1] if target_first else operands)
        if written is not None and not _fit(arguments[written], arguments[:tensors]):
            return NotImplemented
        dtype = common_dtype(operands if written is None else [arguments[written]])
        if (*arguments[tensors:], MEAN)[0] == NONE:
            return TensorType(dtype, sizes, strides)
        return fresh(dtype, ())

    return shape


def _loss(
    body: Body,
    tensors: int,
    shape: Callable[..., Any],
    stepwise: bool = False,
    one_dtype: bool = False,
) -> Callable[..., Any]:
    """Lower a loss whose first `tensors` arguments are tensors (or None). `stepwise`: eager makes
    it of several ops, so that half precision is rounded, and overflows, at each. `one_dtype`: of
    operands of several dtypes it takes some steps in one, some in another."""

    def lower(builder: Builder, *arguments: Any) -> Any:
        operands, reduction = arguments[:tensors], (*arguments[tensors:], MEAN)[0]
        if not can_lower(*operands):
            return NotImplemented
        types = [type_of(each) for each in operands]
        result = shape(*types, *arguments[tensors:])
        if result is NotImplemented:
            return NotImplemented
        if stepwise and result.dtype in REDUCED:
            return NotImplemented
        if one_dtype and any(each and each.dtype is not result.dtype for each in types):
            return NotImplemented
        sizes, _ = layout_of(types[:2])
        dtype = compute_dtype(result.dtype)
        reads = [
            None if each is None else broadcast_reading(builder, each, sizes) for each in operands
        ]
        extra = arguments[tensors + 1 :]

        def at(index: Index) -> Term:
            terms = [None if read is None else read(index).to(dtype) for read in reads]
            return body(*terms, *extra)

        return _summarised(builder, result, sizes, reduction, dtype, at)

    return lower


def _summarised(
    builder: Builder, result: TensorType, sizes: Any, reduction: int, dtype: torch.dtype, at: At
) -> Lazy:
    if reduction == NONE:
        return stored(builder, result, at)
    dims = tuple(range(len(sizes)))
    total = fold(builder, "sum", sizes, dims, at)
    size = number(builder, count(sizes, dims), dtype)
    start = (0,) * len(sizes)
    return stored(
        builder,
        result,
        lambda index: total(start) / size if reduction == MEAN else total(start),
    )


def _loss_backward(
    body: Body, tensors: int, shape: Callable[..., TensorType], stepwise: bool = False
) -> Callable[..., Any]:
    """Lower the gradient of such a loss: `body(x, target, ...)` times the gradient of the result,
    which for the mean is divided by the number of elements."""

    def lower(builder: Builder, grad: Lazy, *arguments: Any) -> Any:
        operands, reduction = arguments[:tensors], (*arguments[tensors:], MEAN)[0]
        if not can_lower(grad, *operands):
            return NotImplemented
        result = shape(*type_of((grad, *arguments)))
        if stepwise and result.dtype in REDUCED:
            return NotImplemented
        dtype = compute_dtype(result.dtype)
        slope = broadcast_reading(builder, grad, result.sizes)
        reads = [
            None if each is None else broadcast_reading(builder, each, result.sizes)
            for each in operands
        ]
        size = number(builder, count(result.sizes, range(result.rank)), dtype)

        def at(index: Index) -> Term:
            terms = [None if read is None else read(index).to(dtype) for read in reads]
            value = body(*terms, *arguments[tensors + 1 :]) * slope(index).to(dtype)
            return value / size if reduction == MEAN else value

        return stored(builder, result, at)

    return lower


def _backward_row_major(grad: TensorType, x: TensorType, *rest: Any) -> TensorType:
    return TensorType(x.dtype, x.sizes, contiguous_strides(x.sizes))


def _backward_like(grad: TensorType, x: TensorType, *rest: Any) -> TensorType:
    return TensorType(x.dtype, x.sizes, preserved_strides(x.sizes, x.strides))


def _smooth(x: Term, target: Term, beta: float = 1.0) -> Term:
    distance = abs(x - target)
    if beta == 0:
        return distance
    return (distance < beta).where(distance * distance * 0.5 / beta, distance - 0.5 * beta)


def _smooth_slope(x: Term, target: Term, beta: float = 1.0) -> Term:
    difference = x - target
    ends = (difference <= -beta).where(-1.0, (difference >= beta).where(1.0, difference / beta))
    return difference.sign() if beta == 0 else ends


def _huber(x: Term, target: Term, delta: float = 1.0) -> Term:
    distance = abs(x - target)
    return (distance < delta).where(distance * distance * 0.5, (distance - 0.5 * delta) * delta)


def _huber_slope(x: Term, target: Term, delta: float = 1.0) -> Term:
    difference = x - target
    inside = (difference > delta).where(delta, difference)
    return (difference < -delta).where(-delta, inside)


def _entropy(x: Term, target: Term, weight: Term | None = None) -> Term:
    yes, no = x.log().maximum(-100), (-x).log1p().maximum(-100)
    value = (target - 1) * no - target * yes
    return value if weight is None else value * weight


def _entropy_slope(x: Term, target: Term, weight: Term | None = None) -> Term:
    value = (x - target) / ((1 - x) * x).maximum(1e-12)
    return value if weight is None else value * weight


def _logit_entropy(
    x: Term, target: Term, weight: Term | None = None, positive: Term | None = None
) -> Term:
    soft = (-abs(x)).exp().log1p() + (-x).maximum(0)
    if positive is not None:
        soft = soft * ((positive - 1) * target + 1)
    value = (1 - target) * x + soft
    return value if weight is None else value * weight


def _soft_margin(x: Term, target: Term) -> Term:
    return (-target * x).exp().log1p()


def _soft_margin_slope(x: Term, target: Term) -> Term:
    power = (-target * x).exp()
    return -target * power / (power + 1)


def _pairs(*extra: Any, dtypes: bool = True, unit: bool = False) -> Callable[[], Iterator[Sample]]:
    """(x, target, *extra, reduction), optionally with values inside (0, 1)."""

    def made() -> Iterator[Sample]:
        tensors = [
            (make((3, 4)), make((3, 4), seed=1)),
            (make((4, 3)).t(), make((3, 4), seed=1)),
            (make((3, 4)), make((4, 3), seed=1).t()),
            (make((4, 3)).t(), make((4, 3), seed=1).t()),
        ]
        if dtypes:
            tensors += [
                (make((3, 4), dtype), make((3, 4), dtype, seed=1))
                for dtype in (torch.float64, torch.bfloat16)
            ]
        for pair in tensors:
            both = [each.sigmoid() for each in pair] if unit else pair
            for reduction in (NONE, MEAN, SUM):
                yield (*both, *extra, reduction), {}

    return made


def _with_grad(samples: Any, *extra: Any) -> Callable[[], Iterator[Sample]]:
    def made() -> Iterator[Sample]:
        for arguments, _ in samples():
            x, reduction = arguments[0], arguments[-1]
            grad = make(x.shape if reduction == NONE else (), x.dtype, seed=9)
            yield (grad, *arguments, *extra), {}

    return made


def _with(samples: Any, *extra: Any) -> Callable[[], Iterator[Sample]]:
    return lambda: (((*arguments, *extra), {}) for arguments, _ in samples())


def _square(x: Term, target: Term) -> Term:
    difference = x - target
    return difference * difference


def _backward_target_first(
    grad: TensorType, x: TensorType, target: TensorType, *rest: Any
) -> TensorType:
    sizes, strides = layout_of([target, x])
    return TensorType(x.dtype, sizes, strides)


def _declare(
    name: str,
    tensors: int,
    body: Body,
    samples: Any,
    *extra: Any,
    target_first: bool = False,
    written: int | None = None,
    fine: Callable[[float], bool] = lambda parameter: True,
    stepwise: bool = False,
    **fields: Any,
) -> None:
    shape = _loss_shape(tensors, target_first=target_first, written=written, fine=fine)
    lower = _loss(body, tensors, shape, stepwise, written is not None)
    op(f"{name}.default", shape, lower, _with(samples, *extra), **fields)


def _declare_backward(
    name: str,
    tensors: int,
    body: Body,
    samples: Any,
    *extra: Any,
    shape: Callable[..., TensorType] = _backward_row_major,
    stepwise: bool = False,
) -> None:
    lower = _loss_backward(body, tensors, shape, stepwise)
    op(f"{name}_backward.default", shape, lower, _with_grad(samples, *extra))


_unit = _pairs(None, unit=True)
_declare("mse_loss", 2, _square, _pairs())
_declare_backward("mse_loss", 2, lambda x, target: (x - target) * 2, _pairs())
_declare("smooth_l1_loss", 2, _smooth, _pairs(), 0.7, fine=lambda beta: beta >= 0)
_declare_backward("smooth_l1_loss", 2, _smooth_slope, _pairs(), 0.7)
_declare("huber_loss", 2, _huber, _pairs(), 0.7, written=0, fine=lambda delta: delta > 0)
_declare_backward("huber_loss", 2, _huber_slope, _pairs(), 0.7)
_declare("binary_cross_entropy", 3, _entropy, _unit, written=0, checks=failing.probabilities)
_declare_backward("binary_cross_entropy", 3, _entropy_slope, _unit, shape=_backward_like)
_declare(
    "binary_cross_entropy_with_logits",
    4,
    _logit_entropy,
    _pairs(None, None),
    target_first=True,
    written=1,
)
_declare("soft_margin_loss", 2, _soft_margin, _pairs(), written=0, stepwise=True)
_declare_backward(
    "soft_margin_loss",
    2,
    _soft_margin_slope,
    _pairs(),
    shape=_backward_target_first,
    stepwise=True,
)
