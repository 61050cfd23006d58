"""The pointwise ops that autograd emits: gradients of activations.

Enters: nothing. Leaves: rows in the registry, as in `pointwise.py`; `grad` is the gradient of the
result and stands first in every row.
"""

from __future__ import annotations

import math

import torch

from windfall.ir.dtype import TensorType
from windfall.ops.folding import listed, op
from windfall.ops.layout import preserved_strides
from windfall.ops.pointwise_rule import FLOATING, NUMBERS, lowering, one_dtype, row
from windfall.ops.samples import Sample, T, make
from windfall.ops.term import Term


def _gelu(grad: Term, x: Term, *, approximate: str = "none") -> Term:
    if approximate == "tanh":
        scale, cubic = math.sqrt(2 / math.pi), 0.044715
        inner = ((x + x * x * x * cubic) * scale).tanh()
        slope = (1 - inner * inner) * ((x * x * (3 * cubic) + 1) * scale)
        return grad * ((inner + 1) * 0.5 + x * 0.5 * slope)
    distribution = ((x * math.sqrt(0.5)).erf() + 1) * 0.5
    density = (x * x * -0.5).exp() * (1 / math.sqrt(2 * math.pi))
    return grad * (distribution + x * density)


def _silu(grad: Term, x: Term) -> Term:
    sigmoid = x.sigmoid()
    return grad * sigmoid * (x * (1 - sigmoid) + 1)


def _mish(grad: Term, x: Term) -> Term:
    sigmoid, tanh = x.sigmoid(), x.exp().log1p().tanh()
    return grad * (tanh + x * sigmoid * (1 - tanh * tanh))


def _elu(
    grad: Term, alpha: float, scale: float, input_scale: float, is_result: bool, x: Term
) -> Term:
    if is_result:
        negative = grad * input_scale * (x + alpha * scale)
    else:
        negative = grad * (input_scale * alpha * scale) * (x * input_scale).exp()
    return (x <= 0).where(negative, grad * scale)


def _softplus(grad: Term, x: Term, beta: float, threshold: float) -> Term:
    power = (x * beta).exp()
    return (x * beta > threshold).where(grad, grad * power / (power + 1))


def _hardswish(grad: Term, x: Term) -> Term:
    inside = (x < 3).where(grad * (x / 3 + 0.5), grad)
    return (x <= -3).where(0, inside)


def _log_sigmoid(grad: Term, x: Term, buffer: Term) -> Term:
    fraction = buffer / (buffer + 1)  # the buffer is exp(-|x|), from the forward op
    return grad * (x < 0).where(1 - fraction, fraction)


def _logit(grad: Term, x: Term, eps: float | None = None) -> Term:
    inside = grad / (x * (1 - x))
    if eps is None:
        return ((x < 0) | (x > 1)).where(math.nan, inside)
    return ((x < eps) | (x > 1 - eps)).where(0, inside)


def _like_grad(grad: TensorType, x: TensorType, buffer: TensorType) -> TensorType:
    return TensorType(grad.dtype, grad.sizes, preserved_strides(grad.sizes, grad.strides))


def _log_sigmoid_sample(layout: int) -> Sample:
    sizes, dtype = (3, 4), torch.bfloat16 if layout == 2 else torch.float32
    x = make(sizes, dtype, seed=1)
    grad = make((4, 3)).t() if layout == 1 else make(sizes, dtype)
    return (grad, x, torch.ops.aten.log_sigmoid_forward(x)[1]), {}


row("gelu_backward.default", FLOATING, (T, T), _gelu)
row("tanh_backward.default", FLOATING, (T, T), lambda grad, y: grad * (1 - y * y))
row("sigmoid_backward.default", FLOATING, (T, T), lambda grad, y: grad * (1 - y) * y)
row("silu_backward.default", FLOATING, (T, T), _silu)
row("mish_backward.default", FLOATING, (T, T), _mish, result_like=1, only=one_dtype)
row(
    "threshold_backward.default",
    NUMBERS,
    (T, T, 0.5),
    lambda grad, x, bound: (x <= bound).where(0, grad),
    1,
)
row(
    "leaky_relu_backward.default",
    FLOATING,
    (T, T, 0.1, False),
    lambda grad, x, slope, is_result: (x > 0).where(grad, grad * slope),
    1,
)
row(
    "hardtanh_backward.default",
    FLOATING,
    (T, T, -0.5, 0.7),
    lambda grad, x, low, high: ((x <= low) | (x >= high)).where(0, grad),
)
row("elu_backward.default", FLOATING, (T, 0.7, 1.5, 2.0, False, T), _elu)
row("softplus_backward.default", FLOATING, (T, T, 2.0, 1.5), _softplus)
row("hardswish_backward.default", FLOATING, (T, T), _hardswish)
row(
    "hardsigmoid_backward.default",
    FLOATING,
    (T, T),
    lambda grad, x: ((x > -3) & (x < 3)).where(grad * (1 / 6), 0),
)
row(
    "softshrink_backward.default",
    FLOATING,
    (T, T, 0.6),
    lambda grad, x, bound: ((x >= -bound) & (x <= bound)).where(0, grad),
)
row(
    "hardshrink_backward.default",
    FLOATING,
    (T, T, 0.6),
    lambda grad, x, bound: ((x >= -bound) & (x <= bound)).where(0, grad),
)
op(
    "log_sigmoid_backward.default",
    _like_grad,
    lowering((0, 1, 2), FLOATING, _like_grad, _log_sigmoid, one_dtype),
    listed(*(lambda layout=layout: _log_sigmoid_sample(layout) for layout in range(3))),
    recompute=True,
)
row("logit_backward.default", FLOATING, (T, T, 0.1), _logit)
