"""The `_foreach_*` ops: one op over many tensors, made from the record of the op itself.

Enters: the records of the other families. Leaves: one record for each foreach overload. Invariant:
the results are those of calling the op once for each tensor, which is what eager does on the CPU.

A row says which op is called and how: lists are taken apart, anything else is given to every call.

    _foreach_add.List(xs, ys, alpha=2)  means  [add.Tensor(x, y, alpha=2) for x, y in zip(xs, ys)]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from windfall.ir.dtype import TensorType
from windfall.ir.loop import Builder
from windfall.ops.arguments import type_of
from windfall.ops.folding import op
from windfall.ops.registry import Samples, lookup
from windfall.ops.samples import Sample, make

Call = tuple[tuple[Any, ...], dict[str, Any]]  # positional and keyword arguments of one call


def _calls(
    arguments: tuple[Any, ...], keywords: dict[str, Any], last: str | None
) -> Iterator[Call]:
    """The arguments of each call; `last` names the keyword that the last argument becomes."""
    count = len(next(each for each in arguments if isinstance(each, (list, tuple))))
    for place in range(count):
        own = [each[place] if isinstance(each, (list, tuple)) else each for each in arguments]
        if last is not None and len(own) == 4:
            yield tuple(own[:-1]), {**keywords, last: own[-1]}
        else:
            yield tuple(own), dict(keywords)


def _declare(name: str, single: str, samples: Samples, last: str | None = None) -> None:
    record = lookup(f"aten.{single}")
    assert record.shape is not None, single
    shape = partial(_shapes, record.shape, last)
    lower = partial(_lowered_each, record.lower, last) if record.lower else None
    # One result reads what stands at its own place of the lists.
    op(f"_foreach_{name}", shape, lower, samples, reads=(), recompute=True)


def _fits(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> bool:
    """Whether lists are as long as each other, which eager says in its own words; what is given to
    every call is one number."""
    given = (*arguments, *keywords.values())
    for each in map(type_of, given):
        if isinstance(each, TensorType) and each.rank:
            raise RuntimeError(
                f"scalar tensor expected to be 0 dim but it has {each.rank} dimensions and "
                f"{each.elements} elements."
            )
    return len({len(each) for each in given if isinstance(each, (list, tuple))}) == 1


def _shapes(one: Callable[..., Any], last: str | None, /, *arguments: Any, **keywords: Any) -> Any:
    if not _fits(arguments, keywords):
        return NotImplemented
    answers = [one(*own, **more) for own, more in _calls(arguments, keywords, last)]
    return NotImplemented if NotImplemented in answers else tuple(answers)


def _lowered_each(
    one: Callable[..., Any],
    last: str | None,
    builder: Builder,
    /,
    *arguments: Any,
    **keywords: Any,
) -> Any:
    if not _fits(arguments, keywords):
        return NotImplemented
    answers = [one(builder, *own, **more) for own, more in _calls(arguments, keywords, last)]
    refused = any(answer is NotImplemented for answer in answers)
    return NotImplemented if refused else tuple(answers)


def _lists(*extra: Any, lists: int = 1) -> Samples:
    """Some lists of tensors, then `extra` (functions are called, to make tensors late)."""
    return partial(_of_lists, lists, extra)


def _of_lists(lists: int, extra: tuple[Any, ...]) -> Iterator[Sample]:
    for dtype in (torch.float32, torch.bfloat16):
        given = [
            [make((2, 3), dtype, seed=seed), make((4, 3), dtype, seed=seed).t(), make((), dtype)]
            for seed in range(lists)
        ]
        yield (*given, *(each() if callable(each) else each for each in extra)), {}


_UNARY = (
    "abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 "
    "neg reciprocal round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc"
)
_NUMBERS = [0.5, 2, 1.5]

for _name in _UNARY.split():
    _declare(f"{_name}.default", f"{_name}.default", _lists())
for _name in ("add", "sub", "mul", "div"):
    _declare(f"{_name}.Scalar", f"{_name}.Scalar", _lists(2))
    _declare(f"{_name}.List", f"{_name}.Tensor", _lists(lists=2))
    _declare(f"{_name}.ScalarList", f"{_name}.Scalar", _lists(_NUMBERS))
for _name in ("add", "mul", "div"):
    _declare(f"{_name}.Tensor", f"{_name}.Tensor", _lists(lambda: torch.tensor(1.5)))
_limits: tuple[tuple[str, str, str], ...] = (
    ("clamp_max", "clamp_max.default", "minimum.default"),
    ("clamp_min", "clamp_min.default", "maximum.default"),
    ("maximum", "clamp_min.default", "maximum.default"),
    ("minimum", "clamp_max.default", "minimum.default"),
)
for _name, _by_number, _by_tensor in _limits:
    _declare(f"{_name}.Scalar", _by_number, _lists(0.5))
    _declare(f"{_name}.List", _by_tensor, _lists(lists=2))
    _declare(f"{_name}.ScalarList", _by_number, _lists([0.5, 0.2, 1.5]))
_declare("pow.Scalar", "pow.Tensor_Scalar", _lists(2))
_declare("pow.List", "pow.Tensor_Tensor", _lists(lists=2))
_declare("pow.ScalarList", "pow.Tensor_Scalar", _lists(_NUMBERS))
for _name in ("addcmul", "addcdiv"):
    _declare(f"{_name}.Scalar", f"{_name}.default", _lists(2, lists=3), "value")
    _declare(f"{_name}.ScalarList", f"{_name}.default", _lists(_NUMBERS, lists=3), "value")
_declare("lerp.Scalar", "lerp.Scalar", _lists(0.3, lists=2))
_declare("lerp.List", "lerp.Tensor", _lists(lists=3))
