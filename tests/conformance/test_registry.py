"""Every op that the dictionary gives samples for, through the whole compiler, against eager."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import windfall
from windfall.ops import registry

pytestmark = pytest.mark.conformance


def overload(name: str) -> Callable[..., Any]:
    """`aten.add.Tensor` as torch's dispatcher knows it."""
    return functools.reduce(getattr, name.split("."), torch.ops)


def program(
    op: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Callable[..., Any], list[torch.Tensor]]:
    """Straight-line code that calls `op`: tensors are its parameters, the rest constants."""
    tensors: list[torch.Tensor] = []
    namespace: dict[str, Any] = {"op": op}

    def text(value: Any) -> str:
        if isinstance(value, torch.Tensor):
            tensors.append(value)
            return f"t{len(tensors) - 1}"
        if isinstance(value, list | tuple):
            return f"[{', '.join(map(text, value))}]"
        name = f"c{len(namespace)}"
        namespace[name] = value
        return name

    written = [text(value) for value in args] + [f"{k}={text(v)}" for k, v in kwargs.items()]
    names = ", ".join(f"t{index}" for index in range(len(tensors)))
    exec(f"def run({names}):\n    return op({', '.join(written)})", namespace)
    return namespace["run"], tensors


COARSE = (torch.bfloat16, torch.float16)


def same(actual: Any, expected: Any, exactly: Callable[[], Any] = lambda: None) -> None:
    """Equal; or made of coarse inputs and no further than eager from float64 (`exactly`):
    eager rounds each step of what is one expression for us."""
    if isinstance(expected, torch.Tensor):
        exact = not (expected.is_floating_point() or expected.is_complex())
        tolerance = {"rtol": 0, "atol": 0} if exact else {}
        if exact or not at_least_as_good(actual, expected, exactly):
            torch.testing.assert_close(actual, expected, equal_nan=True, **tolerance)
        assert actual.dtype == expected.dtype
        assert actual.stride() == expected.stride()
    elif isinstance(expected, list | tuple):
        assert len(actual) == len(expected)
        for place, (one, other) in enumerate(zip(actual, expected, strict=True)):
            same(one, other, lambda place=place: (exactly() or {place: None})[place])
    else:
        assert actual == expected


def at_least_as_good(
    actual: torch.Tensor, expected: torch.Tensor, exactly: Callable[[], Any]
) -> bool:
    reference = exactly()
    if reference is None or actual.shape != reference.shape or not reference.numel():
        return False
    ours, eagers = ((one.double() - reference).abs() for one in (actual, expected))
    rounding = torch.finfo(expected.dtype).eps * reference.abs()
    return bool((ours <= eagers.max() + rounding).all())


def in_double(run: Callable[..., Any], tensors: list[torch.Tensor]) -> Any:
    """What float64 gives for coarse inputs; None where the op does not take it."""
    if not any(one.dtype in COARSE for one in tensors):
        return None
    torch.manual_seed(0)
    try:
        return run(*(one.double() if one.is_floating_point() else one for one in tensors))
    except (RuntimeError, NotImplementedError):
        return None


def sampled() -> list[registry.Op]:
    return [op for op in registry.all_ops() if op.samples is not None]


# torch itself takes these apart, but for tensors with data of the CPU, before anybody is asked: of
# operands with different dtypes the parts make another dtype than the whole.
TAKEN_APART = ("aten.mish_backward.default", "aten.silu_backward.default")


def cases() -> list[Any]:
    apart = pytest.mark.xfail(reason="torch takes it apart where a tensor has no data")
    return [
        pytest.param(op, id=op.name, marks=[apart] if op.name in TAKEN_APART else [])
        for op in sampled()
    ]


@pytest.mark.parametrize("op", cases())
def test_an_op_equals_eager(op: registry.Op) -> None:
    target = overload(op.name)
    # Samples are made afresh, with equal values, each time: an op may write into its own.
    for for_eager, for_first, for_second in zip(*(op.samples() for _ in range(3)), strict=True):
        run, expected_inputs = program(target, *for_eager)
        torch.manual_seed(0)
        expected = run(*expected_inputs)
        compiled = windfall.compile(run, options={"strict": True})
        for sample in (for_first, for_second):
            inputs = program(target, *sample)[1]
            torch.manual_seed(0)
            same(compiled(*inputs), expected, lambda: in_double(*program(target, *sample)))  # noqa: B023
            same(inputs, expected_inputs)


def test_there_is_something_to_sweep() -> None:
    assert len(sampled()) >= 50
