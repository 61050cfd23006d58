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

I, J, S = symbol("i", 0, 11), symbol("j", 0, 3), symbol("s", 1, 7)
SYMBOLS = {"i": I, "j": J, "s": S}
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
        st.tuples(children, positive).map(lambda p: p[0] // (S * p[1])),
        st.tuples(children, positive).map(lambda p: p[0] % (S * p[1])),
        pairs.map(lambda p: minimum(*p)),
        pairs.map(lambda p: maximum(*p)),
    )


LEAVES = st.one_of(st.integers(-20, 20), st.sampled_from([I, J, S, 4 * I + J, I * S]))
EXPRESSIONS = st.recursive(LEAVES, _combine, max_leaves=8)


def test_equal_expressions_are_one_object() -> None:
    assert 4 * I + J is J + I * 4
    assert (I + J) * (I - J) is I * I - J * J
    assert I - I == 0 and isinstance(I - I, int)


def test_digits_of_a_linear_index() -> None:
    linear = 4 * I + J
    assert linear // 4 is I
    assert linear % 4 is J
    assert (linear // 4) * 4 + linear % 4 is linear
    assert (8 * I + 4 * J) // 16 is (2 * I + J) // 4
    assert I // 3 // 2 is I // 6
    assert (I % 8) % 4 is I % 4
    assert (I * S + 2 * S) // S is I + 2
    assert J // (S + 3) == 0 and J % (S + 3) is J


def test_extremes_under_ranges() -> None:
    assert minimum(I, J + 20) is I
    assert maximum(I, 100) == 100
    assert str(minimum(I, J)) == "min(i, j)"


def test_growth_along_a_symbol() -> None:
    atom = symbol_atom(I)
    assert coefficient_of(5 * I + J, atom) == 5
    assert coefficient_of(J, atom) == 0
    assert coefficient_of(I // 5, atom) is None
    assert coefficient_of(I * S, atom) is None


def test_symbols_with_different_ranges_differ() -> None:
    assert symbol("i", 0, 5) is not I
    assert symbol("i", 0, 11) is I


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
    if name in ("//", "%") and (b == 0 or isinstance(right, int) and right == 0):
        return
    assert evaluate(OPERATIONS[name](left, right), values) == OPERATIONS[name](a, b)


@settings(max_examples=300, deadline=None)
@given(EXPRESSIONS, VALUES)
def test_substitution_keeps_the_value(expression: Size, values: dict[str, int]) -> None:
    place = {symbol_atom(I): 4 * symbol("a", 0, 2) + J}
    if values["i"] >= 12:
        return
    digits = {**values, "a": values["i"] // 4, "j": values["i"] % 4}
    wanted = evaluate(expression, {**values, "j": values["i"] % 4})
    assert evaluate(substitute(expression, place), digits) == wanted


def test_small_things() -> None:
    assert product([2, I, 3]) is 6 * I
    assert product([]) == 1
    assert {atom.key for atom in symbols_of(I // 5 + J)} == {"i", "j"}
    assert isinstance(I, Expression) and I.names == {"i"}
