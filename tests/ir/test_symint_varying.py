"""Expressions of sizes that vary and of indices below them: what is simplified or claimed is
true of every value that they may have."""

from __future__ import annotations

import random

import pytest

from windfall.ir.scalar import axis
from windfall.ir.symint import (
    REBUILD,
    Size,
    evaluate,
    growth_of,
    known_at_least,
    known_at_most,
    size_symbol,
    symbol_atom,
)

s0, s1 = size_symbol("s0", 8), size_symbol("s1", 5)
i, j, k = axis("i", s0).symbol, axis("j", s1).symbol, axis("k", 4).symbol
o = axis("o", s0 * s1).symbol
w = axis("w", s0 + 1).symbol
LIMITS: dict[str, Size] = {"i": s0, "j": s1, "k": 4, "o": s0 * s1, "w": s0 + 1}


def _values(draw: random.Random) -> dict[str, int]:
    values = {"s0": draw.choice((2, 3, 5, 8, 17)), "s1": draw.choice((2, 3, 4, 64))}
    for name, limit in LIMITS.items():
        values[name] = draw.randrange(evaluate(limit, values))
    return values


class _Naive:
    """The same arithmetic on numbers: what an expression means."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw

    def make(self, depth: int) -> tuple[Size, str]:
        """An expression, and its text as Python understands it."""
        leaves: list[Size] = [s0, s1, i, j, k, o, w, s0 * s1, s0 + 1, self.draw.randint(0, 6)]
        if depth == 0 or self.draw.random() < 0.1:
            leaf = self.draw.choice(leaves)
            return leaf, f"({leaf})"
        left, left_text = self.make(depth - 1)
        right, right_text = self.make(depth - 1)
        kind = self.draw.choice(("+", "+", "-", "*", "//", "%", "min", "max"))
        if kind in ("//", "%"):
            divisor = self.draw.choice((s0, s1, s0 * s1, s0 + 1, 4 * s0, 3, 4, 2 * s0 * s1))
            return REBUILD[kind](left, divisor), f"({left_text} {kind} ({divisor}))"
        if kind in ("min", "max"):
            return REBUILD[kind](left, right), f"{kind}({left_text}, {right_text})"
        value = {"+": left + right, "-": left - right, "*": left * right}[kind]
        return value, f"({left_text} {kind} {right_text})"


@pytest.mark.parametrize("seed", range(8))
def test_simplified_expressions_have_the_same_value(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(150):
        made, text = _Naive(draw).make(3)
        code = compile(text, "expression", "eval")
        samples = [_values(draw) for _ in range(12)]
        numbers = [eval(code, {"min": min, "max": max}, dict(each)) for each in samples]
        assert [evaluate(made, each) for each in samples] == numbers, text
        for limit in (-1, 0, 1, 2):
            if known_at_least(made, limit):
                assert min(numbers) >= limit, text
            if known_at_most(made, limit):
                assert max(numbers) <= limit, text


def test_digits_of_an_index_are_found_again() -> None:
    flat = (i * s1 + j) * 4 + k
    assert flat // 4 // s1 is i
    assert flat // 4 % s1 is j
    assert flat % 4 is k
    assert flat // (4 * s1) is i
    wide = j * (s0 + 1) + w
    assert wide // (s0 + 1) is j
    assert wide % (s0 + 1) is w


def test_an_index_is_put_together_again() -> None:
    assert (o // s1) * s1 + o % s1 is o
    whole = axis("v", 4 * s0 * s1).symbol
    digits = (whole // (4 * s1)) * 4 * s1 + (whole // 4 % s1) * 4 + whole % 4
    assert digits is whole
    assert (o // s1) % s0 == o // s1


def test_relations_between_sizes_are_known() -> None:
    assert known_at_least(s0 - i, 1)
    assert known_at_least(s0 * s1 - i * s1 - j, 1)
    assert known_at_least(s0 * s1 - s0, 2)
    assert known_at_least((s0 + 63) // 64 * 64 - s0, 0)
    assert not known_at_least(s0 - s1, 0)
    assert not known_at_least(s0 - w, 1)


def test_growth_may_be_a_size() -> None:
    atom = symbol_atom(i)
    assert growth_of(3 * s0 * i + i + s1, atom) == 3 * s0 + 1
    assert growth_of(s0, atom) == 0
    assert growth_of(i * i, atom) is None
    assert growth_of((i + j) // 4 + i, atom) is None
