"""What is known of sizes, and what follows from what was assumed: never wrong, at any sizes."""

from __future__ import annotations

import itertools
import random

import pytest

from windfall.ir.relation import COMPARISONS, Assumptions, Relation, decide, known, recurs
from windfall.ir.symint import Size, evaluate, hint_of, minimum, size_symbol

S, T = size_symbol("s", 8), size_symbol("t", 6)
VALUES = [
    {"s": s, "t": t} for s, t in itertools.product((2, 3, 4, 5, 8, 13, 31), (2, 3, 5, 6, 9, 40))
]


def _expression(r: random.Random, depth: int = 0) -> Size:
    kind = r.random()
    if depth > 2 or kind < 0.25:
        return r.choice([S, T, S, T, r.randint(-4, 9)])
    left = _expression(r, depth + 1)
    if kind < 0.5:
        return left + _expression(r, depth + 1)
    if kind < 0.65:
        return left - _expression(r, depth + 1)
    if kind < 0.8:
        return left * r.choice([2, 3, -1, S])
    return left // r.choice([2, 3, 4]) if kind < 0.92 else left % r.choice([2, 3, 5])


@pytest.mark.parametrize("seed", range(4))
def test_what_is_known_is_true_at_all_sizes(seed: int) -> None:
    r = random.Random(seed)
    told = 0
    for _ in range(600):
        left, right = _expression(r), _expression(r)
        operation = r.choice(list(COMPARISONS))
        answer = known(operation, left, right)
        if answer is not None:
            told += 1
            for values in VALUES:
                holds = COMPARISONS[operation](evaluate(left, values), evaluate(right, values))
                assert holds == answer, f"{left} {operation} {right} at {values}"
    assert told > 200


@pytest.mark.parametrize("seed", range(4))
def test_what_follows_is_true_wherever_the_assumptions_are(seed: int) -> None:
    r = random.Random(100 + seed)
    followed = 0
    for _ in range(150):
        with Assumptions() as assumed:
            for _ in range(3):
                decide(r.choice(list(COMPARISONS)), _expression(r, 1), _expression(r, 1))
        fitting = [one for one in VALUES if all(each.holds(one) for each in assumed.relations)]
        for _ in range(6):
            base = r.choice(assumed.relations) if assumed.relations else None
            left = base.left * r.choice([1, 2, -1]) if base else _expression(r, 1)
            right = (base.right if base else 0) * r.choice([1, 2, -1]) + r.randint(-2, 2)
            operation = r.choice(list(COMPARISONS))
            answer = assumed.told(operation, left, right)
            if answer is not None:
                followed += 1
                for values in fitting:
                    assert Relation(operation, left, right).holds(values) == answer
    assert followed > 30


def test_decisions_are_those_of_the_call_being_compiled() -> None:
    r = random.Random(7)
    for _ in range(300):
        left, right = _expression(r), _expression(r)
        operation = r.choice(list(COMPARISONS))
        with Assumptions() as assumed:
            answer = decide(operation, left, right)
        assert answer == COMPARISONS[operation](hint_of(left), hint_of(right))
        assert all(one.holds({"s": 8, "t": 6}) for one in assumed.relations)


def test_what_holds_for_every_fourth_size_does_not_pin_it() -> None:
    symbol = next(iter(S.symbols))
    for relation, answer in (
        (Relation("==", S % 4, 0), True),
        (Relation("==", 4 * (S // 4), S), True),
        (Relation("==", minimum(S, 6), 6), True),
        (Relation("==", S, 8), False),
        (Relation("==", S // 2, 4), False),
        (Relation("==", S * S, 64), False),
    ):
        assert recurs(relation, symbol) is answer, str(relation)


def test_what_is_filled_up_to_a_multiple() -> None:
    ceiling = (S + 3) // 4
    assert 4 * ceiling == S + (-S) % 4 and ceiling == (S + (-S) % 4) // 4
    assert 4 * ceiling == S + (4 - S % 4) % 4 and ceiling == -(-S // 4)
    assert 3 * S * T + 3 * T * (-S % 8) == 24 * T * ((S + 7) // 8)
    assert known(">=", 4 * ceiling, S) and known(">=", S - (S + 1) // 2, 1)
