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
