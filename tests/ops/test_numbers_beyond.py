"""Numbers that a tensor's dtype does not hold are refused or converted as eager does it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import windfall
from windfall.ir.dtype import TensorType
from windfall.ops import refused_dtypes
from windfall.ops.refused_dtypes import refuse_numbers
from windfall.ops.registry import lookup
from windfall.ops.schema import plan_of


def _written(x: torch.Tensor, place: Any, number: Any) -> torch.Tensor:
    copy = x.clone()
    copy[place] = number
    return copy


OPS: dict[str, Callable[[torch.Tensor, Any], torch.Tensor]] = {
    "pad": lambda x, number: F.pad(x, (1, 1), value=number),
    "fill": lambda x, number: torch.fill(x, number),
    "fill in place": lambda x, number: x.clone().fill_(number),
    "masked_fill": lambda x, number: x.masked_fill(x == x[0], number),
    "index_fill": lambda x, number: x.index_fill(0, torch.tensor([0]), number),
    "full": lambda x, number: torch.full((3,), number, dtype=x.dtype),
    "one": lambda x, number: torch.full((), number, dtype=x.dtype),
    "one after another": lambda x, number: x[:1].fill_(number) + x.fill_(number),
    "full_like": lambda x, number: torch.full_like(x, number),
    "new_full": lambda x, number: x.new_full((2,), number),
    "one element": lambda x, number: _written(x, 0, number),
    "a slice": lambda x, number: _written(x, slice(1, None), number),
    "a mask": lambda x, number: _written(x, x == x[0], number),
    "an index": lambda x, number: _written(x, torch.tensor([1]), number),
    "scatter": lambda x, number: x.scatter(0, torch.tensor([0]), number),
    "clamp": lambda x, number: x.clamp(number),
    "clamp from above": lambda x, number: x.clamp(max=number),
    "add": lambda x, number: x + number,
    "add in place": lambda x, number: x.clone().add_(number),
    "multiply in place": lambda x, number: x.clone().mul_(number),
    "add a multiple": lambda x, number: torch.add(x, x, alpha=number),
    "remainder": lambda x, number: x % number,
    "less": lambda x, number: x < number,
    "equal": lambda x, number: x == number,
    "threshold": lambda x, number: F.threshold(x, number, number),
    "addcmul": lambda x, number: torch.addcmul(x, x, x, value=number),
}
DTYPES = (torch.bool, torch.uint8, torch.int32, torch.float16, torch.float32)
NUMBERS: tuple[Any, ...] = (-0.5, 300, float("nan"), 2**40, 1e39)


def _outcome(function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> Any:
    try:
        found = function(x.clone())
    except Exception as error:
        return type(error), str(error)
    return found.dtype, found.shape, found


def _alike(one: Any, other: Any) -> bool:
    if one[:2] != other[:2] or len(one) == 2:
        return bool(one == other)
    return torch.allclose(one[2], other[2], equal_nan=True)


@pytest.mark.parametrize("name", OPS)
@pytest.mark.filterwarnings("ignore")
def test_a_number_beyond_a_dtype_is_as_in_eager(name: str) -> None:
    operation, refused, graphs = OPS[name], 0, 0
    for dtype in DTYPES:
        x = torch.tensor([0, 1, 3]).to(dtype)
        for number in NUMBERS:

            def program(x: torch.Tensor, number: Any = number) -> torch.Tensor:
                return operation(x, number)

            compiled = windfall.compile(program)
            expected = _outcome(program, x)
            assert _alike(expected, _outcome(compiled, x)), (dtype, number, expected)
            refused += len(expected) == 2
            graphs += len(windfall.explanation(compiled).graphs)
    assert graphs > 0
    if name in ("pad", "fill", "masked_fill", "full", "one element", "a mask", "index_fill"):
        assert refused > 3


WRAPPED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "new_full": lambda x: x.new_full((2,), -1) > 0,
    "full_like": lambda x: torch.full_like(x, -1) > 0,
    "fill": lambda x: torch.fill(x, -1) // 2,
    "masked_fill": lambda x: x.masked_fill(x > 1, -1) > 2,
}


@pytest.mark.parametrize("name", WRAPPED)
def test_a_number_that_wraps_is_compared_as_it_is_held(name: str) -> None:
    program, x = WRAPPED[name], torch.tensor([0, 1, 3], dtype=torch.uint8)
    compiled = windfall.compile(program, options={"strict": True})
    assert torch.equal(compiled(x), program(x))
    assert windfall.explanation(compiled).graphs


def test_large_tensors_are_not_made_to_ask() -> None:
    half = torch.zeros(100, 100, dtype=torch.float16)
    compiled = windfall.compile(lambda x: x.masked_fill(x == 0, -1e9))
    with pytest.raises(RuntimeError, match="without overflow"):
        compiled(half)


def test_numbers_that_fit_are_no_question(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(refused_dtypes, "_takes", lambda *given: not asked.append(given))
    func, x = torch.ops.aten.fill.Scalar, TensorType(torch.int8, (3,), (1,))
    for number in (1, 2, 100, -100):
        refuse_numbers(func, plan_of(func), [x, number], {})
    assert not asked
    refuse_numbers(func, plan_of(func), [x, 300], {})
    assert asked
    assert lookup(func).lower is not None
