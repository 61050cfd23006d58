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


F = torch.nn.functional
TWO, PART, FINE = np.int64(2), np.float32(0.3), np.float64(0.3)
# Functions of a tensor of 3 by 4, each with scalars of NumPy where numbers are wanted: sizes,
# places, factors, data.
ARGUMENTS: dict[str, Callable[[torch.Tensor], Any]] = {
    "all sizes": lambda x: x.reshape(np.prod(x.shape)),
    "a size": lambda x: x.reshape(-1, TWO),
    "sizes": lambda x: x.view((TWO, -1)),
    "a list of sizes": lambda x: x.reshape([np.int32(6), TWO]),
    "zeros": lambda x: torch.zeros(TWO, np.int32(3)) + x.sum(),
    "full of single": lambda x: torch.full((2,), PART) + x.sum(),
    "full of double": lambda x: torch.full((TWO,), FINE) + x.sum(),
    "full of integers": lambda x: torch.full((TWO,), TWO) + x.long().sum(),
    "arange": lambda x: torch.arange(np.int32(4)) * x.sum(),
    "arange of floats": lambda x: torch.arange(np.float64(4)) * x.sum(),
    "linspace": lambda x: torch.linspace(PART, FINE, TWO) * x.sum(),
    "a dimension": lambda x: x.sum(np.int64(0)),
    "a dimension by name": lambda x: x.sum(dim=np.uint8(1)),
    "dimensions": lambda x: x.sum((np.int64(0), 1)),
    "expand": lambda x: x[:, :1].expand(3, np.int64(4)),
    "repeat": lambda x: x.repeat(TWO, TWO),
    "clamp": lambda x: x.clamp(PART, FINE + 1),
    "alpha": lambda x: torch.add(x, x, alpha=FINE),
    "a factor": lambda x: torch.mul(x, PART),
    "a factor of integers": lambda x: torch.mul(torch.arange(3), FINE) + x.sum(),
    "permute": lambda x: x.permute(np.int64(1), 0),
    "layer norm": lambda x: F.layer_norm(x, (np.int64(4),), eps=FINE),
    "pad": lambda x: F.pad(x, (TWO, TWO)),
    "interpolate": lambda x: F.interpolate(x[None, None], scale_factor=np.float64(2.0)),
    "interpolate to": lambda x: F.interpolate(x[None, None], size=(np.int64(5), np.int64(6))),
    "pool": lambda x: F.avg_pool2d(x[None], TWO),
    "item": lambda x: x[TWO],
    "slice": lambda x: x[:TWO, np.int64(1)],
    "from the end": lambda x: x[np.int64(-1)],
    "narrow": lambda x: x.narrow(np.int64(0), np.int64(1), TWO),
    "split": lambda x: x.split([np.int64(1), TWO]),
    "chunk": lambda x: torch.chunk(x, TWO),
    "where": lambda x: torch.where(x > 0, x, FINE),
    "where of integers": lambda x: torch.where(x > 0, x.long(), TWO),
    "fill": lambda x: x.clone().fill_(PART),
    "masked fill": lambda x: x.masked_fill(x > 0, FINE),
    "top": lambda x: x.topk(TWO),
    "one hot": lambda x: F.one_hot(torch.arange(2), np.int64(3)) + x.sum(),
    "roll": lambda x: x.roll(TWO, np.int64(0)),
    "unflatten": lambda x: x.unflatten(np.int64(1), (TWO, TWO)),
    "quantile": lambda x: torch.quantile(x, FINE),
    "norm": lambda x: x.norm(np.float64(2)),
    "drawn": lambda x: torch.randn(TWO, 3) + x.sum(),
    "a tensor of single": lambda x: torch.tensor(PART) * x,
    "a tensor of double": lambda x: torch.tensor(FINE) * x.double(),
    "a tensor of integers": lambda x: torch.as_tensor(np.int32(3)) * x.long(),
    "a new tensor": lambda x: x.new_full((TWO,), PART),
}
# Their dtype is the data's: a break. (`split` of a scalar, a scalar as a truth: eager refuses.)
LEFT: dict[str, Callable[[torch.Tensor], Any]] = {
    "a tensor of a list": lambda x: torch.tensor([FINE, FINE]) * x.sum().double(),
    "with a dtype": lambda x: torch.tensor(PART, dtype=torch.float64) * x.sum(),
    "new_tensor": lambda x: x.new_tensor([FINE]) * x.sum(),
    "scalar_tensor": lambda x: torch.scalar_tensor(FINE) * x.sum(),
    "asarray": lambda x: torch.asarray(FINE) * x.sum(),
    "refused size": lambda x: x.split(TWO),
    "refused float": lambda x: x.sum(FINE),
    "refused truth": lambda x: x.sum(0, keepdim=np.bool_(True)),
    "refused pool": lambda x: F.adaptive_avg_pool2d(x[None], TWO),
}


@pytest.mark.parametrize("name", [*ARGUMENTS, *LEFT])
def test_as_arguments_of_torch(name: str) -> None:
    """Sizes and numbers are those of eager, in one graph; what eager refuses is refused."""
    function = {**ARGUMENTS, **LEFT}[name]
    x = torch.linspace(-1, 2, 12).reshape(3, 4)
    compiled = windfall.compile(function)
    for _ in range(2):
        torch.manual_seed(0)
        wanted = _outcome(function, x)
        torch.manual_seed(0)
        found = _outcome(compiled, x)
        parts, others = (one if isinstance(one, tuple) else (one,) for one in (found, wanted))
        assert len(parts) == len(others)
        for one, other in zip(parts, others, strict=True):
            _agree(one, other)
            assert getattr(one, "dtype", None) == getattr(other, "dtype", None)
    told = windfall.explanation(compiled)
    assert not told.fallbacks
    assert (len(told.graphs), bool(told.breaks)) == (1, False) or name in LEFT
