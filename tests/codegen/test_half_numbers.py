"""Numbers beside half precision: some of eager's ops round them to it first, others do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import windfall
from tests.codegen.test_processors import FMA
from windfall import jit


def _written(function: Callable[..., Any], a: Tensor, *numbers: Any) -> Tensor:
    written = a.clone()
    function([written], *numbers)
    return written


NUMBERS = (0.1, -0.3, 0.7, 1e-3, 3.3, 123.456)
OPS: dict[str, Callable[[Tensor, float], Any]] = {
    "add": lambda a, s: a + s,
    "sub": lambda a, s: a - s,
    "rsub": lambda a, s: s - a,
    "mul": lambda a, s: a * s,
    "div": lambda a, s: a / s,
    "rdiv": lambda a, s: s / a,
    "add, alpha": lambda a, s: torch.add(a, 0.3, alpha=s),
    "sub, alpha": lambda a, s: torch.sub(a, s, alpha=0.7),
    "add_": lambda a, s: a.clone().add_(s),
    "a 0-d tensor": lambda a, s: a + torch.tensor(s),
    "times a 0-d tensor": lambda a, s: a * torch.tensor(s, dtype=torch.float64),
    "foreach add": lambda a, s: torch._foreach_add([a], s)[0],
    "foreach mul": lambda a, s: torch._foreach_mul([a], s)[0],
    "foreach mul_": lambda a, s: _written(torch._foreach_mul_, a, s),
    "foreach mul_ of numbers": lambda a, s: _written(torch._foreach_mul_, a, [s]),
    "foreach add_": lambda a, s: _written(torch._foreach_add_, a, s),
    "foreach div_": lambda a, s: _written(torch._foreach_div_, a, s),
    "a 0-d tensor times": lambda a, s: torch.tensor(s) * a,
    "a 0-d tensor over": lambda a, s: torch.tensor(s) / a,
    "a full one, wider": lambda a, s: torch.full((3,), s, dtype=a.dtype).double(),
    "of its type, wider": lambda a, s: a.new_full((3,), s).double() + 0.0,
    "filled, wider": lambda a, s: a.clone().fill_(s).double(),
    "times a full one": lambda a, s: a * torch.full_like(a, s),
    "lerp": lambda a, s: torch.lerp(a, a.flip(0), s),
    "addcmul": lambda a, s: torch.addcmul(a, a, a, value=s),
    "addcdiv": lambda a, s: torch.addcdiv(a, a, a + 3, value=s),
    "clamp": lambda a, s: a.clamp(min=-abs(s), max=abs(s)),
    "where": lambda a, s: torch.where(a > s, a, s),
    "compare": lambda a, s: (a > s, a == s, a <= s),
    "masked_fill": lambda a, s: a.masked_fill(a > 0, s),
    "pow": lambda a, s: a.abs() ** s,
    "number ** a": lambda a, s: abs(s) ** a,
    "fmod": lambda a, s: a.fmod(s),
    "remainder": lambda a, s: a % s,
    "floor_divide": lambda a, s: a // s,
    "maximum": lambda a, s: torch.maximum(a, torch.tensor(s)),
    "threshold": lambda a, s: F.threshold(a, s, s),
    "leaky_relu": lambda a, s: F.leaky_relu(a, abs(s)),
    "hardshrink": lambda a, s: F.hardshrink(a, abs(s)),
    "softshrink": lambda a, s: F.softshrink(a, abs(s)),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("op", OPS)
def test_as_eager(op: str, dtype: torch.dtype) -> None:
    """To the bit, but for what was rounded after a multiply-add (which one, eager does not say).
    Eager's lerp is one; a target without that instruction rounds twice."""

    def run(a: Tensor) -> Any:
        return [OPS[op](a, number) for number in NUMBERS]

    torch.manual_seed(0)
    a = torch.randn(512).to(dtype)
    a[: len(NUMBERS)] = torch.tensor(NUMBERS).to(dtype)  # so that something cancels
    compiled = windfall.compile(run)
    wanted, found = run(a), compiled(a)
    assert windfall.explanation(compiled).eager == {}
    flat = [
        [one for part in parts for one in (part if isinstance(part, tuple) else (part,))]
        for parts in (found, wanted)
    ]
    fuses = not jit.compile_object(FMA).needs
    inexact = "alpha" in op or op.startswith("addc") or (op == "lerp" and not fuses)
    for ours, eagers in zip(*flat, strict=True):
        assert ours.dtype == eagers.dtype
        differ = (ours != eagers) & ~(ours.isnan() & eagers.isnan())
        assert differ.sum() <= (2 if inexact else 0), (ours[differ][:3], eagers[differ][:3])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("op", ["add", "sub", "rsub", "mul", "div", "rdiv", "foreach mul_"])
def test_integers_that_vary(op: str, dtype: torch.dtype) -> None:
    """What half precision does not hold is rounded where eager's kernel rounds it."""
    compiled = windfall.compile(OPS[op])
    a = torch.tensor([1, 2, 3, 0.7]).to(dtype)
    for number in (257, 2051, 4099, 515):
        found, wanted = compiled(a, number), OPS[op](a, number)
        assert torch.equal(found, wanted), (number, found, wanted)
    told = windfall.explanation(compiled)
    assert told.eager == {} and len(told.captures) == 2  # one number, and all


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_fraction_that_varies_over_a_tensor(dtype: torch.dtype) -> None:
    """Eager takes the reciprocal and multiplies it: two roundings."""
    compiled = windfall.compile(lambda a, s: s / a)
    torch.manual_seed(0)
    a = torch.randn(512).to(dtype)
    for number in (0.1, 0.7, 3.3):
        assert torch.equal(compiled(a, number), number / a)
    assert len(windfall.explanation(compiled).captures) == 2


@pytest.mark.parametrize("exponent", [0.5, -0.5, 2, -1, 3, 0.3])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_powers_of_what_has_no_root(dtype: torch.dtype, exponent: float) -> None:
    """Eager takes roots of some types and powers of others: -0.0 and the infinities tell."""
    a = torch.tensor([0.0, -0.0, 1, -1, 2.5, float("inf"), -float("inf"), float("nan")]).to(dtype)
    a = a.repeat(8)
    compiled = windfall.compile(lambda a: a**exponent)
    wanted, found = a**exponent, compiled(a)
    assert windfall.explanation(compiled).eager == {}
    torch.testing.assert_close(found, wanted, equal_nan=True)
    assert torch.equal(found.signbit() | found.isnan(), wanted.signbit() | wanted.isnan())
