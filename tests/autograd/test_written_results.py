"""Results that are written before backward: an error where eager has saved them, and only there.

What backward computes again may equal a result (`x / s` in the formula of a quotient), and so may a
value that the program computes twice: neither makes the result one that was saved.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import windfall

Tensor = torch.Tensor
PROGRAMS: dict[str, Callable[[Tensor], Any]] = {
    "quotient": lambda x: x / x.sum(),
    "quotient of a mean": lambda x: (x - x.mean()) / x.std(),
    "norm": lambda x: x / x.norm(),
    "power": lambda x: x**3,
    "root": lambda x: x.sqrt(),
    "exp": lambda x: x.exp(),
    "tanh": lambda x: x.tanh(),
    "softmax": lambda x: x.softmax(-1),
    "log softmax": lambda x: x.log_softmax(-1),
    "sigmoid by hand": lambda x: 1 / (1 + (-x).exp()),
    "product": lambda x: x * x,
    "a value used again": lambda x: x.exp() + x.exp().sin(),
    "reciprocal": lambda x: x.reciprocal(),
    "square of a sum": lambda x: (x + 1).square(),
    "clamp": lambda x: x.clamp(0.2, 0.8),
    "mask": lambda x: torch.where(x > 0.5, x * 2, x / 2),
}
WRITES: dict[str, Callable[[Tensor], Any]] = {
    "an element": lambda y: y.data.__class__.__setitem__(y, 0, 0.0),
    "all": lambda y: y.mul_(2),
    "by data": lambda y: y.data.mul_(2),
    "detached": lambda y: y.detach().add_(1),
}


def outcome(program: Callable[[Tensor], Any], write: Callable[[Tensor], Any], grad: bool) -> Any:
    x = torch.linspace(0.1, 0.9, 6, dtype=torch.float64).requires_grad_()
    y = program(x)
    with torch.set_grad_enabled(grad):
        write(y)
    try:
        y.sum().backward()
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)
        return "modified"
    return x.grad


@pytest.mark.parametrize("name", PROGRAMS)
def test_they_are_saved_where_eager_saves_them(name: str) -> None:
    program = PROGRAMS[name]
    compiled = windfall.compile(program, options={"strict": True})
    for write in WRITES.values():
        for grad in (False, True):
            wanted, got = (outcome(one, write, grad) for one in (program, compiled))
            if isinstance(wanted, str) or isinstance(got, str):
                assert got == wanted
            else:
                torch.testing.assert_close(got, wanted)
    told = windfall.explanation(compiled)
    assert not told.breaks and not told.eager, told


def test_a_value_that_is_computed_twice() -> None:
    """One is the user's and is written; the other is what backward reads."""

    def program(u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return v.exp().detach(), u.exp() * v.exp()

    compiled = windfall.compile(program, options={"strict": True})
    for one in (program, compiled):
        u, v = (torch.linspace(0, 1, 4, dtype=torch.float64).requires_grad_() for _ in range(2))
        shown, product = one(u, v)
        shown.mul_(2)
        product.sum().backward()
        torch.testing.assert_close(v.grad, (u * 1).exp() * v.exp())


def test_an_equal_value_before_the_result_that_nobody_saves() -> None:
    """Three equal quotients: one that leads nowhere, the user's, and that of the formula."""

    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        most = (x / x.sum()).detach().max()
        return most, x / x.sum()

    compiled = windfall.compile(program, options={"strict": True})
    found = []
    for one in (program, compiled):
        x = torch.linspace(0.1, 0.9, 6, dtype=torch.float64).requires_grad_()
        _, y = one(x)
        with torch.no_grad():
            y[0] = 0
        (y * torch.arange(6)).sum().backward()
        found.append(x.grad)
    torch.testing.assert_close(found[1], found[0])
    told = windfall.explanation(compiled)
    assert not told.breaks and not told.eager, told
