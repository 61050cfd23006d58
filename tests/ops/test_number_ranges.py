"""Numbers of Python's that the dtype beside them does not hold: each op that takes one is asked."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import windfall
from windfall.errors import Specialise
from windfall.ir.dtype import TensorType
from windfall.ir.relation import Assumptions
from windfall.ir.symint import size_symbol
from windfall.ops.fake import FakeMode, fake
from windfall.ops.registry import all_ops, lookup
from windfall.ops.schema import overload, plan_of
from windfall.ops.symbolic import as_torch

DTYPES = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16)
NUMBERS = (300, -300, 70000, 2**31, 2**40, 1e300, 70000.0, float("nan"), float("inf"))


def _calls() -> Iterator[tuple[str, list[Any], dict[str, Any], int]]:
    """Each op that takes numbers, with its first sample and the position of each."""
    for op in all_ops():
        func = overload(op.name) if op.name.startswith("aten.") else None
        plan = None if func is None else plan_of(func)
        # `arange` and its like count with numbers: what comes out of range is no element.
        # Of backward ops the forward op has refused; polynomials of degree 1e300 take their time.
        skipped = any(one in op.name for one in ("arange", "backward", "polynomial"))
        if plan is None or not plan.numbers or op.samples is None or skipped:
            continue
        found = next(op.samples(), None)
        for position in plan.numbers if found is not None else ():
            args, kwargs = found  # type: ignore[misc]
            if position < len(args) and plan.written == ():
                yield op.name, list(args), dict(kwargs), position


CALLS = list(_calls())


def _as(dtype: torch.dtype, value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().to(dtype) if value.is_floating_point() else value
    return dtype if isinstance(value, torch.dtype) else value


def _fakes(values: list[Any]) -> list[Any]:
    return [fake(TensorType.of(one)) if isinstance(one, torch.Tensor) else one for one in values]


def test_there_are_many() -> None:
    assert len({name for name, *_ in CALLS}) > 40


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_constants_are_refused_where_eager_refuses_them(dtype: torch.dtype) -> None:
    refused = 0
    for name, args, kwargs, position in CALLS:
        if lookup(name).shape is None:
            continue
        func = overload(name)
        given = [_as(dtype, one) for one in args]
        named = {key: _as(dtype, one) for key, one in kwargs.items()}
        for number in NUMBERS:
            given[position] = number
            try:
                func(*given, **named)
            except RuntimeError as error:
                if "without overflow" not in str(error):
                    continue
            else:
                continue
            refused += 1
            with pytest.raises(RuntimeError), FakeMode():
                func(*_fakes(given), **named)
                pytest.fail(f"{name} takes {number} as a number of {dtype}")
    assert refused


@pytest.mark.parametrize("dtype", (torch.uint8, torch.int8, torch.int16, torch.float16), ids=str)
def test_numbers_that_vary_stay_in_range(dtype: torch.dtype) -> None:
    for name, args, kwargs, position in CALLS:
        func = overload(name)
        given = _fakes([_as(dtype, one) for one in args])
        named = {key: _as(dtype, one) for key, one in kwargs.items()}
        kinds = [one.dtype for one in given if isinstance(one, torch.Tensor)]
        if named.get("dtype", next(iter(kinds), None)) is not dtype:
            continue
        for value in (2, 70000):
            symbol = size_symbol("s0", value, -(2**31), 2**31 - 1)
            given[position] = as_torch(symbol)
            with Assumptions() as assumed, FakeMode():
                try:
                    func(*given, **named)
                except (Specialise, RuntimeError, NotImplementedError):
                    continue  # its value is needed: then it is a constant, of which eager is asked
            assert value == 2, f"{name} takes 70000 as a number of {dtype}"
            assert any(str(one).startswith("s0 <= ") for one in assumed.relations), name


def test_defaults_are_numbers_too() -> None:
    """`hardtanh` is from -1 to 1 unless it is told otherwise: the dispatcher leaves that out."""
    x = torch.tensor([1, 2, 3], dtype=torch.uint8)
    for limits in ((-1, 1), (-1, 2)):
        program = functools.partial(
            torch.nn.functional.hardtanh, min_val=limits[0], max_val=limits[1]
        )
        for function in (program, windfall.compile(lambda x, f=program: f(x))):
            with pytest.raises(RuntimeError, match="unsigned type with negative limits"):
                function(x)
