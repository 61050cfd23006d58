"""Random ops: shape rules only. They are called, so that eager's own stream of numbers is used.

Enters: nothing. Leaves: records in the registry, marked `random=True`: never merged, dropped,
reordered among each other, or done again in backward.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from windfall.ir.dtype import TensorType, contiguous_strides
from windfall.ir.symint import Size
from windfall.ops.creation import _like_shape, _sized_shape
from windfall.ops.folding import fresh, listed, op
from windfall.ops.layout import broadcast_sizes, preserved_strides
from windfall.ops.registry import Samples
from windfall.ops.samples import make


def _integers_shape(
    *arguments: Any, dtype: torch.dtype | None = torch.int64, **options: Any
) -> Any:
    sizes = next(each for each in arguments if isinstance(each, (list, tuple)))
    return _sized_shape(sizes, dtype=dtype or torch.int64, **options)


def _sizes_with_generator(
    sizes: Sequence[Size], *, generator: Any = None, names: Any = None, **options: Any
) -> Any:
    return NotImplemented if names is not None else _sized_shape(sizes, **options)


def _like_with_generator(x: TensorType, *bounds: Any, generator: Any = None, **options: Any) -> Any:
    return _like_shape(x, **options)


def _same(x: TensorType, *parameters: Any, generator: Any = None) -> TensorType:
    return TensorType(x.dtype, x.sizes, preserved_strides(x.sizes, x.strides))


def _row_major(x: TensorType, *parameters: Any, generator: Any = None) -> TensorType:
    return TensorType(x.dtype, x.sizes, contiguous_strides(x.sizes))


def _around_shape(mean: TensorType, spread: TensorType, *, generator: Any = None) -> TensorType:
    """Of the mean's dtype, whatever that of the spread is."""
    return fresh(mean.dtype, broadcast_sizes(mean.sizes, spread.sizes))


def _dropout_shape(x: TensorType, p: float, train: bool | None) -> tuple[TensorType, TensorType]:
    strides = preserved_strides(x.sizes, x.strides)
    return TensorType(x.dtype, x.sizes, strides), TensorType(torch.bool, x.sizes, strides)


def _permutation_shape(size: Size, *, dtype: torch.dtype | None = None, **options: Any) -> Any:
    options.pop("generator", None)
    return _sized_shape((size,), dtype=dtype or torch.int64, **options)


def _multinomial_shape(
    x: TensorType, count: Size, replacement: bool = False, *, generator: Any = None
) -> TensorType:
    return fresh(torch.int64, (*x.sizes[:-1], count))


def _random(
    name: str,
    shape: Any = None,
    samples: Samples | None = None,
    *,
    refuses: bool = False,
    zero_or_one: bool = False,
) -> None:
    op(name, shape, None, samples, random=True, refuses=refuses, zero_or_one=zero_or_one)


_over = listed(
    lambda: ((make((2, 3)).t().sigmoid(),), {}), lambda: ((make((2, 6))[:, ::2].sigmoid(),), {})
)
_sized_samples = listed(lambda: (([2, 3],), {}), lambda: (([2, 3],), {"dtype": torch.float64}))

_means_and_spreads = listed(
    lambda: ((make((2, 3)).t(), make((3, 2)).sigmoid().double()), {}),
    lambda: ((make((2, 3)).double(), make((3,)).sigmoid()), {}),
    lambda: ((make((2, 3)).half(), make((2, 1)).sigmoid()), {}),
)
_gradients = listed(lambda: ((make((2, 3)).t().sigmoid(), make((3, 2)).sigmoid()), {}))
_gradients_of_dirichlet = listed(
    lambda: ((make((2, 3)).softmax(-1), make((2, 3)).exp(), make((2, 3)).exp() + 9), {})
)

for _name in ("rand", "randn"):
    _random(f"{_name}.default", _sized_shape, _sized_samples)
    _random(f"{_name}.generator", _sizes_with_generator)
    _random(f"{_name}_like.default", _like_shape, _over)
    _random(f"{_name}_like.generator", _like_with_generator)
_random("randint.default", _integers_shape, listed(lambda: ((5, [2, 3]), {})))
_random("randint.low", _integers_shape, listed(lambda: ((1, 5, [2, 3]), {})))
_random("randint_like.default", _like_with_generator)
_random("randint_like.low_dtype", _like_with_generator)
_random("randperm.default", _permutation_shape, listed(lambda: ((5,), {})))
_random("randperm.generator", _permutation_shape)
_random("bernoulli.default", _row_major, _over, refuses=True, zero_or_one=True)
_random(
    "bernoulli.p",
    _row_major,
    listed(lambda: ((make((2, 3)).t(), 0.5), {})),
    refuses=True,
    zero_or_one=True,
)
_random("bernoulli.Tensor", refuses=True)
_random("poisson.default", _row_major, _over, refuses=True)
_random(
    "binomial.default",
    _row_major,
    listed(lambda: ((torch.full((2, 3), 5.0), make((2, 3)).t().sigmoid().t()), {})),
    refuses=True,
)
_random("normal.Tensor_Tensor", _around_shape, _means_and_spreads, refuses=True)
for _name in ("Tensor_float", "float_Tensor", "float_float"):
    _random(f"normal.{_name}", refuses=True)
_random("_standard_gamma.default", _row_major, _over)
_random("_sample_dirichlet.default", _row_major, _over)
op("_standard_gamma_grad.default", _row_major, None, _gradients)
op("_dirichlet_grad.default", _row_major, None, _gradients_of_dirichlet)
_random("uniform.default", _same)
_random("normal_functional.default", _same)
_random("exponential.default", _same)
op("normal_.default", None, random=True, functional="aten.normal_functional.default")
_random(
    "multinomial.default",
    _multinomial_shape,
    listed(lambda: ((make((2, 5)).sigmoid(), 3), {})),
    refuses=True,
)
_random(
    "native_dropout.default",
    _dropout_shape,
    listed(
        lambda: ((make((2, 3)), 0.5, True), {}),
        lambda: ((make((2, 3)).t(), 0.5, True), {}),
        lambda: ((make((2, 3)), 0.5, False), {}),
    ),
)
