"""Numbers that change from call to call, some of which eager refuses, wraps or makes infinite: each
call answers or raises what eager does, whatever the calls before it have made of the number."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

import windfall


def _set(x: Any, n: Any) -> Any:
    x = x.clone()
    x[1] = n
    return x


PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "**": lambda x, n: x**n,
    "** in place": lambda x, n: x.clone().pow_(n),
    "size": lambda x, n: x ** (torch.ones(n + 3).shape[0] - 3) if -3 < n < 99 else x,
    "pow": torch.pow,
    "reflected": lambda x, n: n**x,
    "float_power": torch.float_power,
    "+": lambda x, n: x + n,
    "-": lambda x, n: n - x,
    "*": lambda x, n: x * n,
    "/": lambda x, n: x / n,
    "reflected /": lambda x, n: n / x,
    "//": lambda x, n: x // n,
    "reflected //": lambda x, n: n // x,
    "%": lambda x, n: x % n,
    "fmod": torch.fmod,
    "<<": lambda x, n: x << n,
    "&": lambda x, n: x & n,
    "==": lambda x, n: x == n,
    "<": lambda x, n: x < n,
    "add alpha": lambda x, n: torch.add(x, x, alpha=n),
    "sub in place alpha": lambda x, n: x.clone().sub_(x, alpha=n),
    "addcmul": lambda x, n: torch.addcmul(x, x, x, value=n),
    "fill_": lambda x, n: x.clone().fill_(n),
    "full": lambda x, n: torch.full((3,), n, dtype=x.dtype),
    "full_like": torch.full_like,
    "new_full": lambda x, n: x.new_full((2,), n),
    "scalar_tensor": lambda x, n: torch.scalar_tensor(n, dtype=x.dtype),
    "tensor": lambda x, n: torch.tensor([n, 1], dtype=x.dtype),
    "masked_fill": lambda x, n: x.masked_fill(x > 1, n),
    "where": lambda x, n: torch.where(x > 1, x, n),
    "setitem": _set,
    "scatter": lambda x, n: x.scatter(0, torch.tensor([1]), n),
    "index_fill": lambda x, n: x.index_fill(0, torch.tensor([1]), n),
    "clamp": lambda x, n: x.clamp(max=n),
    "clamp both": lambda x, n: x.clamp(0, n),
    "clamp_min_": lambda x, n: x.clone().clamp_min_(n),
    "pad": lambda x, n: F.pad(x, (1, 1), value=n),
    "threshold": lambda x, n: F.threshold(x, 1, n),
    "lerp": lambda x, n: torch.lerp(x, x + 1, n),
    "arange": lambda x, n: torch.arange(0, 10, n),
}
DTYPES = (
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.float32,
)
INTEGERS = (2, 3, 4, 0, -1, 1, 300, -300, 70000, 2**31, 2**40, 2**63 - 1, 1.5, True, 7)
FLOATS = (2.5, 3.5, 4.5, 0.0, -1.0, -0.0, 300.5, math.nan, math.inf, 1e300, 70000.0, 1e39, 2, True)
FEW = ("**", "size", "/", "add alpha", "fill_", "full", "masked_fill", "clamp", "==")


def _outcome(program: Callable[..., Any], *given: Any) -> Any:
    try:
        return program(*given)
    except Exception as error:
        return type(error)


def _agree(name: str, dtype: torch.dtype, numbers: tuple[Any, ...]) -> None:
    program = PROGRAMS[name]
    compiled = windfall.compile(program)
    x = torch.tensor([1, 2, 3]).to(dtype)
    for number in numbers:
        wanted, found = _outcome(program, x, number), _outcome(compiled, x, number)
        assert type(found) is type(wanted), (number, found, wanted)
        if isinstance(wanted, type):
            assert found is wanted, number
        else:
            assert_close(found, wanted, equal_nan=True, msg=f"{number}: {found}, not {wanted}")


@pytest.mark.parametrize("dtype", (torch.uint8, torch.int64, torch.float16), ids=str)
@pytest.mark.parametrize("name", FEW)
def test_changing_integers(name: str, dtype: torch.dtype) -> None:
    _agree(name, dtype, (2, 3, 4, -1, 300, 70000, 7))


@pytest.mark.parametrize("dtype", (torch.int64, torch.float16), ids=str)
@pytest.mark.parametrize("name", [name for name in FEW if name != "size"])
def test_changing_floats(name: str, dtype: torch.dtype) -> None:
    _agree(name, dtype, (2.5, 3.5, 4.5, math.nan, 1e300, 0.5))


@pytest.mark.conformance
@pytest.mark.parametrize("numbers", (INTEGERS, FLOATS), ids=("integers", "floats"))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_all(name: str, dtype: torch.dtype, numbers: tuple[Any, ...]) -> None:
    _agree(name, dtype, numbers)


def test_what_is_not_refused_is_one_graph() -> None:
    """A guard on the number's range, and no code for each number."""
    compiled = windfall.compile(PROGRAMS["**"])
    x = torch.arange(3)
    for number in range(2, 12):
        assert torch.equal(compiled(x, number), x**number)
    report = windfall.explanation(compiled)
    assert len(report.graphs) == 2
    assert not report.breaks


def test_refused_numbers_leave_the_graph_for_others() -> None:
    compiled = windfall.compile(PROGRAMS["fill_"])
    x = torch.zeros(3, dtype=torch.int8)
    for number in (1, 2, 3):
        compiled(x, number)
    for number in (300, -300, 1000):
        with pytest.raises(RuntimeError, match="without overflow"):
            compiled(x, number)
    graphs = len(windfall.explanation(compiled).graphs)
    for number in range(4, 20):
        assert compiled(x, number).tolist() == [number] * 3
    assert len(windfall.explanation(compiled).graphs) == graphs


def test_read_from_data() -> None:
    """The exponent is data: what eager refuses is refused, though nothing is known of it before."""
    program: Callable[..., Any] = lambda x, n: x ** n.sum().item()  # noqa: E731
    compiled = windfall.compile(program)
    x = torch.tensor([1, 2, 3])
    for number in (2, 3, -1, 4, -2, 5):
        given = torch.tensor([number])
        wanted, found = _outcome(program, x, given), _outcome(compiled, x, given)
        assert found is wanted if isinstance(wanted, type) else torch.equal(found, wanted), number


def test_a_size_that_becomes_negative_ends() -> None:
    """It was a hang: a number that is used as a size, was taken for one, and is less than two."""
    compiled = windfall.compile(lambda x, n: x[: torch.ones(n + 3).shape[0]] + 1)
    x = torch.zeros(9)
    for number in (2, 3, 4, -1, -2, -3):
        assert len(compiled(x, number)) == number + 3
