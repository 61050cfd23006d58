"""NumPy's scalars: every class, every operation, both sides, made inside and from outside."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import windfall
from windfall.ir.constants import NUMPY_SCALARS, same_constant

DTYPES = (torch.float32, torch.float64, torch.int64, torch.uint8, torch.bool)
OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    name: getattr(operator, name)
    for name in (
        *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"),
        *("lt", "le", "eq", "ne", "gt", "ge"),
    )
}


def _outcome(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except Exception as error:
        return type(error)


def _agree(mine: Any, wanted: Any) -> None:
    assert type(mine) is type(wanted)
    if isinstance(wanted, torch.Tensor):
        torch.testing.assert_close(mine, wanted, equal_nan=True)
    elif isinstance(wanted, np.generic):
        assert same_constant(mine, wanted) or (mine != mine and wanted != wanted)
    else:
        assert mine == wanted


@pytest.mark.parametrize("kind", NUMPY_SCALARS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
@pytest.mark.filterwarnings("ignore")
def test_beside_tensors_and_numbers(kind: type, left: bool) -> None:
    """What eager says: values, dtypes, classes, refusals."""
    others = [(torch.arange(1, 5) % 3).to(dtype) for dtype in DTYPES]
    for operation in OPERATIONS.values():

        def f(other: Any, operation: Any = operation) -> Any:
            scalar = kind(3)
            return operation(scalar, other) if left else operation(other, scalar)

        compiled = windfall.compile(f, backend="eager")
        for other in (*others, 2, 2.5, True):
            _agree(_outcome(compiled, other), _outcome(f, other))


def test_one_graph() -> None:
    """Made inside, of sizes, and held by a module: no break."""

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale: Any = np.sqrt(8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            half = x[:, : int(np.ceil(x.shape[1] / 3))] * np.float32(0.5)
            flat = x.reshape(int(np.prod(x.shape)))
            return flat.sum() / self.scale + half / np.log(2.0) + np.float64(1).item()

    net, x = Net(), torch.randn(4, 8)
    compiled = windfall.compile(net)
    torch.testing.assert_close(compiled(x), net(x))
    told = windfall.explanation(compiled)
    assert (len(told.graphs), told.breaks, told.fallbacks) == (1, [], [])
    for changed in (np.float64(3.0), np.float32(3.0), 3.0, np.int64(3)):  # each is its own constant
        net.scale = changed
        torch.testing.assert_close(compiled(x), net(x))


def test_what_a_scalar_is() -> None:
    """Classes, truth, text; returned as it is."""

    def f(x: torch.Tensor) -> Any:
        one = np.float64(2) * 3
        told = isinstance(one, float), isinstance(one, np.floating), bool(np.int64(0)), f"{one:.2f}"
        return x + one, one, told, -np.int32(4), int(np.float32(2.9)), float(np.float16(0.5))

    x = torch.ones(3)
    compiled = windfall.compile(f)
    mine, wanted = compiled(x), f(x)
    torch.testing.assert_close(mine[0], wanted[0])
    assert mine[1:] == wanted[1:]
    assert [type(one) for one in mine] == [type(one) for one in wanted]
    told = windfall.explanation(compiled)
    assert len(told.graphs) == 1 and not told.breaks


def test_dtype_is_asked_for() -> None:
    """`torch.tensor` takes the dtype of a scalar: it does not stand in the graph as a number."""

    def f(x: torch.Tensor) -> Any:
        one = np.float64(0.5)
        return (
            torch.tensor(one),
            torch.full((2,), np.int32(3)),
            torch.as_tensor(np.float16(1)),
            x * one,
        )

    x = torch.ones(3)
    for mine, wanted in zip(windfall.compile(f)(x), f(x), strict=True):
        assert mine.dtype is wanted.dtype
        torch.testing.assert_close(mine, wanted)


def test_warnings_are_the_programs() -> None:
    """What NumPy would warn of is a break."""

    def f(x: torch.Tensor) -> Any:
        return x * np.sqrt(-1.0)

    compiled = windfall.compile(f)
    with pytest.warns(RuntimeWarning):
        compiled(torch.ones(2))
    with pytest.warns(RuntimeWarning):
        assert compiled(torch.ones(2)).isnan().all()


def test_a_scalar_that_varies() -> None:
    """As an argument it is handed on: no compilation for each."""

    def f(x: torch.Tensor, scale: Any) -> Any:
        return (x + 1) * scale

    compiled = windfall.compile(f)
    x = torch.ones(3)
    for value in range(12):
        torch.testing.assert_close(compiled(x, np.float32(value)), f(x, np.float32(value)))
    assert len(windfall.explanation(compiled).graphs) <= 2
