"""The functions on vectors: how exact they are, and what they make of the odd numbers."""

from __future__ import annotations

import pytest
import torch

from tests.codegen.harness import Trace, aten, compiled

ODD = [
    0.0,
    -0.0,
    float("inf"),
    float("-inf"),
    float("nan"),
    1e-45,
    -1e-40,
    1.2e-38,
    3e38,
    -3e38,
    1.0,
    -1.0,
]
ULPS = {
    **dict.fromkeys(("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "tanh", "erf"), 2),
    **dict.fromkeys(("sin", "cos", "tan", "atan", "asin", "acos", "sinh", "cosh", "asinh"), 2),
    **dict.fromkeys(("acosh", "atanh", "rsqrt"), 2),
    **dict.fromkeys(("sqrt", "reciprocal"), 1),
    "sigmoid": 3,
    "erfc": 3,
    "lgamma": 40,
}


def numbers() -> torch.Tensor:
    scales = torch.logspace(-20, 1.9, 4001)
    plain = torch.linspace(-20, 20, 8003)
    return torch.cat([torch.tensor(ODD), scales, -scales, plain, torch.linspace(-110, 90, 3001)])


def ulps(result: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    rounded = exact.to(result.dtype)
    unit = torch.nextafter(rounded.abs(), torch.tensor(float("inf"))) - rounded.abs()
    off = (result.double() - exact).abs() / unit.double()
    usable = rounded.isfinite() & (rounded.abs() > 1.2e-38) & (rounded.abs() < 3e38)
    return torch.where(usable, off, torch.zeros_like(off))


@pytest.mark.parametrize("name", ULPS)
def test_float_functions(name: str) -> None:
    t = Trace()
    op = getattr(aten, name).default
    x = numbers()
    _, (result,), (eager,) = compiled(t, t(op, t.input(x)))
    exact = op(x.double())
    off, eagers = ulps(result, exact), ulps(eager, exact)
    assert torch.where(off <= eagers, 0.0, off).max() <= ULPS[name]
    odd = slice(0, len(ODD))
    torch.testing.assert_close(result[odd], eager[odd], rtol=1e-5, atol=1e-37, equal_nan=True)
    zero = (eager[odd] == 0) & (x[odd] == 0)
    assert torch.equal(torch.signbit(result[odd][zero]), torch.signbit(eager[odd][zero]))


@pytest.mark.parametrize("name", ["exp", "log", "tanh", "erf", "sin", "log1p", "expm1", "sigmoid"])
def test_double_functions(name: str) -> None:
    t = Trace()
    op = getattr(aten, name).default
    _, (result,), (eager,) = compiled(t, t(op, t.input(numbers().double())))
    torch.testing.assert_close(result, eager, rtol=1e-14, atol=1e-300, equal_nan=True)


@pytest.mark.parametrize("length", [1, 2, 3, 5, 8, 9, 17])
def test_short_vectors(length: int) -> None:
    t = Trace()
    x = t.input(torch.rand(length) + 0.5)
    outs = [t(getattr(aten, name).default, x) for name in ("exp", "sin", "erf", "lgamma")]
    _, results, expected = compiled(t, *outs, t(aten.pow.Tensor_Tensor, x, x))
    for result, wanted in zip(results, expected, strict=True):
        torch.testing.assert_close(result, wanted)
