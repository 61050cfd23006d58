"""Numbers that Python draws anew in each call (places, angles, factors, areas): a program settles
after a few compilations, and then every call finds its entries. Each agrees with eager."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

import windfall

CALLS = 24
LAST = 12  # calls of which none may compile anything


@dataclass(frozen=True)
class Program:
    function: Callable[..., Any]
    entries: int
    breaks: frozenset[int]  # reasons


PROGRAMS: dict[str, Program] = {}


def program(entries: int, *breaks: int) -> Callable[..., Any]:
    def note(function: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS[function.__name__] = Program(function, entries, frozenset(breaks))
        return function

    return note


@program(4, 1)
def cropped(x):
    """Places of 0 and 1 among them: no entries of their own."""
    i = random.randint(0, 8)
    j = random.randint(0, 8)
    return x[..., i : i + 24, j : j + 24] * 2


@program(5, 1)
def erased(x):
    h = random.randint(2, 8)
    i = random.randint(0, 32 - h)
    y = x.clone()
    y[..., i : i + h, i : i + h] = 0
    return y * 2


@program(3, 1)
def turned(x):
    """An angle, in a matrix: one entry for each sign."""
    r = math.radians(random.uniform(-30, 30))
    matrix = torch.tensor([[math.cos(r), -math.sin(r)], [math.sin(r), math.cos(r)]])
    return x[..., :2] @ matrix


@program(3, 1)
def in_degrees(x):
    return x * math.degrees(random.uniform(0.1, 3.0))


@program(4, 1)
def converted(x):
    """`float` was read before the number was drawn: the class is on the stack at the break."""
    return x.mul(float(random.randint(2, 255)) / 255.0)


@program(6, 1, 34)
def counted(x):
    """A count made of a float, whose value is needed and hardly ever comes back: after three
    values a break."""
    n = round(random.uniform(2, 30))
    return x * 2, n


@program(9, 3, 34)
def of_an_area(x):
    """Two that are read are needed together, the one before a break and the other behind it."""
    area = torch.empty(1).uniform_(100.0, 900.0).item()
    ratio = torch.empty(1).uniform_(1.1, 1.9).item()
    n = round(area * ratio)
    return x + n


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    one = PROGRAMS[name]
    compiled = windfall.compile(one.function)
    x = torch.randint(-9, 9, (2, 3, 32, 32)).float()
    made = []
    for draw in range(CALLS):
        drawn = []
        answers = []
        for function in (one.function, compiled):
            random.seed(draw)
            torch.manual_seed(draw)
            answers.append(function(x))
            drawn.append((random.random(), torch.rand(1).item()))
        torch.testing.assert_close(*answers, rtol=1e-6, atol=1e-5)
        assert drawn[0] == drawn[1]
        made.append(len(compiled.log.snapshot("enter")))
    assert made[-1] <= one.entries, made
    assert made[-1] == made[-1 - LAST], made
    entries = [each for found in compiled.entries().values() for each in found]
    stopped = [each.segment.capture.stopped for each in entries]
    assert {each.number for each in stopped if each is not None} == one.breaks
    assert not compiled.log.snapshot("fallback")


def test_units_are_computed_as_pythons() -> None:
    """To the last bit: the product with the same constant."""

    def f(x: torch.Tensor, angle: float) -> tuple[torch.Tensor, float, float]:
        return x * 2, math.radians(angle), math.degrees(angle)

    compiled = windfall.compile(f)
    x = torch.ones(3)
    for draw in range(50):
        angle = random.Random(draw).uniform(-720, 720)
        assert compiled(x, angle)[1:] == f(x, angle)[1:]
    assert len(compiled.log.snapshot("enter")) == 2


def test_a_table_of_numbers() -> None:
    """In the dtype that is asked for, of lists in lists in tuples; a ragged one raises."""

    def f(x: torch.Tensor, a: float, n: int) -> tuple[torch.Tensor, ...]:
        return (
            x * torch.tensor([[a, n, 1.0], [0.5, a * 2, -a]]),
            torch.tensor(([[a], [1]], ((n,), (a,))), dtype=torch.float64),
            torch.tensor([[a, 2.5]], dtype=torch.int32),
        )

    compiled = windfall.compile(f)
    for a, n in ((0.1, 3), (0.7, 5), (1e-9, 8), (1e20 / 3e12, 2)):
        given = torch.ones(2, 3), a, n
        for found, wanted in zip(compiled(*given), f(*given), strict=True):
            assert torch.equal(found, wanted) and found.dtype is wanted.dtype
    assert len(compiled.log.snapshot("enter")) == 2

    ragged = windfall.compile(lambda x, a: x * torch.tensor([[a, 1.0], [a]]))
    for a in (0.1, 0.2, 0.3):
        with pytest.raises(ValueError, match="expected sequence of length 2"):
            ragged(torch.ones(2), a)


@pytest.mark.parametrize("first", [0, 1, 5, -3])
def test_places_agree_where_they_are_cut_off(first: int) -> None:
    """0, 1, the end, beyond it, from behind: whichever came first."""

    def f(x: torch.Tensor, i: int) -> tuple[torch.Tensor, ...]:
        y = x.clone()
        y[:, i : i + 3] = 0
        return x[i : i + 3] * 2, x[:, i : i + 3].sum(1), y

    compiled = windfall.compile(f)
    x = torch.randint(-50, 50, (8, 10)).float()
    for i in (first, 3, 2, 0, 1, 4, 5, 7, 8, 9, -1, -4, 12):
        for found, wanted in zip(compiled(x, i), f(x, i), strict=True):
            assert torch.equal(found, wanted) and found.stride() == wanted.stride()
    assert not compiled.log.snapshot("fallback")
