"""Integer expressions: one normal form, and simplification that never changes a value."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from windfall.ir.parse import parse_size
from windfall.ir.symint import (
    Expression,
    Size,
    bounds,
    coefficient_of,
    evaluate,
    maximum,
    minimum,
    product,
    substitute,
    symbol,
    symbol_atom,
    symbols_of,
)

ROW, COLUMN, SIZE = symbol("i", 0, 11), symbol("j", 0, 3), symbol("s", 1, 7)
SYMBOLS = {"i": ROW, "j": COLUMN, "s": SIZE}
VALUES = st.fixed_dictionaries(
    {"i": st.integers(0, 11), "j": st.integers(0, 3), "s": st.integers(1, 7)}
)


def _combine(children: st.SearchStrategy[Size]) -> st.SearchStrategy[Size]:
    pairs = st.tuples(children, children)
    positive = st.integers(1, 12)
    return st.one_of(
        pairs.map(lambda p: p[0] + p[1]),
        pairs.map(lambda p: p[0] - p[1]),
        pairs.map(lambda p: p[0] * p[1]),
        st.tuples(children, positive).map(lambda p: p[0] // p[1]),
        st.tuples(children, positive).map(lambda p: p[0] % p[1]),
        st.tuples(children, positive).map(lambda p: p[0] // (SIZE * p[1])),
        st.tuples(children, positive).map(lambda p: p[0] % (SIZE * p[1])),
        pairs.map(lambda p: minimum(*p)),
        pairs.map(lambda p: maximum(*p)),
    )


LEAVES = st.one_of(
    st.integers(-20, 20), st.sampled_from([ROW, COLUMN, SIZE, 4 * ROW + COLUMN, ROW * SIZE])
)
EXPRESSIONS = st.recursive(LEAVES, _combine, max_leaves=8)


def test_equal_expressions_are_one_object() -> None:
    assert 4 * ROW + COLUMN is COLUMN + ROW * 4
    assert (ROW + COLUMN) * (ROW - COLUMN) is ROW * ROW - COLUMN * COLUMN
    assert ROW - ROW == 0 and isinstance(ROW - ROW, int)


def test_digits_of_a_linear_index() -> None:
    linear = 4 * ROW + COLUMN
    assert linear // 4 is ROW
    assert linear % 4 is COLUMN
    assert (linear // 4) * 4 + linear % 4 is linear
    assert (8 * ROW + 4 * COLUMN) // 16 is (2 * ROW + COLUMN) // 4
    assert ROW // 3 // 2 is ROW // 6
    assert (ROW % 8) % 4 is ROW % 4
    assert (ROW * SIZE + 2 * SIZE) // SIZE is ROW + 2
    assert COLUMN // (SIZE + 3) == 0 and COLUMN % (SIZE + 3) is COLUMN


def test_extremes_under_ranges() -> None:
    assert minimum(ROW, COLUMN + 20) is ROW
    assert maximum(ROW, 100) == 100
    assert str(minimum(ROW, COLUMN)) == "min(i, j)"


def test_growth_along_a_symbol() -> None:
    atom = symbol_atom(ROW)
    assert coefficient_of(5 * ROW + COLUMN, atom) == 5
    assert coefficient_of(COLUMN, atom) == 0
    assert coefficient_of(ROW // 5, atom) is None
    assert coefficient_of(ROW * SIZE, atom) is None


def test_symbols_with_different_ranges_differ() -> None:
    assert symbol("i", 0, 5) is not ROW
    assert symbol("i", 0, 11) is ROW


@settings(max_examples=400, deadline=None)
@given(EXPRESSIONS, VALUES)
def test_text_and_back(expression: Size, values: dict[str, int]) -> None:
    again = parse_size(str(expression), SYMBOLS)
    assert evaluate(again, values) == evaluate(expression, values)
    assert str(again) == str(expression)


@settings(max_examples=400, deadline=None)
@given(EXPRESSIONS, VALUES)
def test_values_are_inside_the_bounds(expression: Size, values: dict[str, int]) -> None:
    low, high = bounds(expression)
    value = evaluate(expression, values)
    assert low is None or low <= value
    assert high is None or value <= high


OPERATIONS: dict[str, Any] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
}


@settings(max_examples=400, deadline=None)
@given(EXPRESSIONS, EXPRESSIONS, st.sampled_from(sorted(OPERATIONS)), VALUES)
def test_arithmetic_means_pythons(
    left: Size, right: Size, name: str, values: dict[str, int]
) -> None:
    a, b = evaluate(left, values), evaluate(right, values)
    if name in ("//", "%") and b == 0:
        return
    assert evaluate(OPERATIONS[name](left, right), values) == OPERATIONS[name](a, b)


@settings(max_examples=300, deadline=None)
@given(EXPRESSIONS, VALUES)
def test_substitution_keeps_the_value(expression: Size, values: dict[str, int]) -> None:
    place = {symbol_atom(ROW): 4 * symbol("a", 0, 2) + COLUMN}
    if values["i"] >= 12:
        return
    digits = {**values, "a": values["i"] // 4, "j": values["i"] % 4}
    wanted = evaluate(expression, {**values, "j": values["i"] % 4})
    assert evaluate(substitute(expression, place), digits) == wanted


def test_small_things() -> None:
    assert product([2, ROW, 3]) is 6 * ROW
    assert product([]) == 1
    assert {atom.key for atom in symbols_of(ROW // 5 + COLUMN)} == {"i", "j"}
    assert isinstance(ROW, Expression) and ROW.names == {"i"}
