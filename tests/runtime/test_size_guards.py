"""Guards over sizes that vary: what binds a symbol, what is compared with it, in any order; native,
in Python and by the oracle alike."""

from __future__ import annotations

import collections
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from tests.runtime.programs import f32, relation_guard, tensor_guard
from windfall import runtime
from windfall.errors import InternalError
from windfall.ir.dtype import TensorType
from windfall.ir.guard import BindsSymbol, Check, Equals, Guard, TypeIs
from windfall.ir.source import ByMethod, Item, Overlap, SizeOf, Slot, Source, StrideOf
from windfall.ir.symint import Size, maximum, size_symbol

MODES = pytest.mark.parametrize("native", [True, False], ids=["native", "python"])
X, Y, Z = Slot(0, "x"), Slot(1, "y"), Slot(2, "z")
S, T = size_symbol("s0", 8), size_symbol("s1", 5)
N = size_symbol("n0", 3, low=0, high=9)
SOME = torch.zeros(8)


def guard(source: Source, check: Check) -> Guard:
    return Guard(source, check, "a test")


def seen(source: Source, *sizes: Size, example: torch.Tensor = SOME) -> Guard:
    """A contiguous tensor of floats."""
    return tensor_guard(source, example, f32(*sizes))


def strided(source: Source, sizes: Sequence[Size], strides: Sequence[Size]) -> Guard:
    return tensor_guard(source, SOME, TensorType(torch.float32, tuple(sizes), tuple(strides)))


class Judge:
    """A check both ways, asked twice each, beside the oracle."""

    def __init__(self, *guards: Guard, slots: int = 1) -> None:
        self.made = runtime.compile_check(guards, slots)
        self.python = runtime.compile_check(guards, slots, native=False)
        assert self.made.native and not self.python.native

    def __call__(self, *values: Any) -> bool:
        answers = {call(*values) for call in (self.made.call, self.python.call) for _ in range(2)}
        answers.add(self.made.first_failure(*values) is None)
        assert len(answers) == 1, f"they differ about {values}"
        return answers.pop()


def empty(*sizes: int) -> torch.Tensor:
    return torch.zeros(sizes)


def test_a_size_is_bound_within_its_range() -> None:
    judge = Judge(seen(X, S, 4))
    assert all(judge(empty(rows, 4)) for rows in (2, 3, 5, 8, 17, 64, 1000))
    for wrong in (
        empty(0, 4),
        empty(1, 4),
        empty(8, 5),
        empty(8),
        empty(8, 4, 1),
        empty(8, 8)[:, :4],
        empty(4, 8).t(),
        torch.zeros(8, 4, dtype=torch.float64),
        torch.zeros(8, 4, requires_grad=True),
        torch.nn.Parameter(empty(8, 4)),
        torch.zeros(8, 4, device="meta"),
        [8, 4],
        None,
    ):
        assert not judge(wrong)


def test_a_size_with_a_greatest_value() -> None:
    limited = size_symbol("s2", 4, low=1, high=6)
    judge = Judge(seen(X, limited))
    assert [judge(empty(rows)) for rows in (0, 1, 6, 7)] == [False, True, True, False]


def test_strides_follow_from_sizes() -> None:
    judge = Judge(seen(X, S, T, 3))
    assert judge(empty(2, 7, 3)) and judge(empty(64, 5, 3))
    assert not judge(empty(7, 2, 3).transpose(0, 1))
    assert not judge(empty(4, 7, 3)[::2])
    assert not judge(empty(2, 7, 6)[:, :, :3])
    assert not judge(empty(2, 1, 3))


def test_one_symbol_for_equal_sizes() -> None:
    judge = Judge(seen(X, S, S))
    assert judge(empty(3, 3)) and judge(empty(2, 2))
    assert not judge(empty(3, 4)) and not judge(empty(1, 1))
    both = Judge(seen(X, S, 4), seen(Y, S), slots=2)
    assert both(empty(3, 4), empty(3)) and both(empty(64, 4), empty(64))
    assert not both(empty(3, 4), empty(4))
    assert not both(empty(1, 4), empty(1))
    assert not both(empty(3, 4), empty(3, 1))


def test_a_stride_that_varies_by_itself() -> None:
    step = size_symbol("s3", 8, low=1)
    judge = Judge(strided(X, (S, 4), (step, 1)))
    assert judge(empty(3, 9)[:, :4]) and judge(empty(3, 4)) and judge(empty(7, 4)[::2])
    assert not judge(empty(4, 3).t())
    assert not judge(empty(1, 4).expand(3, 4)), "a stride of 0 is outside of its range"


def test_sizes_that_are_expressions() -> None:
    judge = Judge(seen(X, S * 2 + 1), seen(Y, S), seen(Z, maximum(S, 7) // 2), slots=3)
    for rows in (2, 3, 7, 8, 64):
        z = empty(max(rows, 7) // 2)
        assert judge(empty(2 * rows + 1), empty(rows), z)
        assert not judge(empty(2 * rows), empty(rows), z)
        assert not judge(empty(2 * rows + 1), empty(rows), empty(len(z) + 1))
    assert not judge(empty(3), empty(1), empty(3))


def test_two_tensors_that_each_need_the_other() -> None:
    judge = Judge(seen(X, S, T * 2), seen(Y, T, S * 2), slots=2)
    assert judge(empty(3, 10), empty(5, 6))
    assert not judge(empty(3, 10), empty(5, 8)) and not judge(empty(3, 8), empty(5, 6))


def test_more_dimensions_than_a_tensor_keeps_inside() -> None:
    judge = Judge(seen(X, 2, S, 2, T, 2, 1, S))
    assert judge(empty(2, 3, 2, 5, 2, 1, 3)) and judge(empty(2, 7, 2, 2, 2, 1, 7))
    assert not judge(empty(2, 3, 2, 5, 2, 1, 4))
    assert not judge(empty(2, 1, 2, 5, 2, 1, 1))
    assert not judge(empty(2, 3, 3, 5, 2, 1, 3))
    assert not judge(empty(2, 3, 2, 5, 2, 1, 6)[..., :3])
    assert not judge(empty(2, 3, 2, 5, 2, 3)) and not judge(empty(3))


def test_an_int_is_bound_within_its_range() -> None:
    judge = Judge(guard(X, BindsSymbol(N)))
    assert all(judge(value) for value in range(10))

    class Number(int):
        pass

    for wrong in (
        -1,
        10,
        True,
        False,
        3.0,
        "3",
        None,
        Number(3),
        1 << 62,
        1 << 63,
        1 << 64,
        10**40,
    ):
        assert not judge(wrong)
    everything = Judge(guard(X, BindsSymbol(size_symbol("n1", 3, low=None))))
    for value in (0, -1, (1 << 63) - 1, -(1 << 63), 1 << 31, -(1 << 30)):
        assert everything(value)
    for wrong in (1 << 63, -(1 << 63) - 1, True):
        assert not everything(wrong)


@pytest.mark.parametrize("kind", [list, tuple, set, collections.deque, dict.fromkeys])
def test_a_length_that_varies(kind: Any) -> None:
    owner = type(kind(()))
    length = ByMethod(X, owner, "__len__")
    judge = Judge(
        guard(X, TypeIs(owner)),
        guard(length, TypeIs(int)),
        guard(length, BindsSymbol(N)),
        relation_guard("!=", N, 4),
    )
    for count in range(12):
        assert judge(kind(range(count))) is (count < 10 and count != 4)
    assert not judge(3) and not judge("abc")


def test_an_int_that_is_also_a_size() -> None:
    for guards in (
        [seen(X, S), guard(Y, BindsSymbol(S))],
        [guard(Y, BindsSymbol(S)), seen(X, S)],
    ):
        judge = Judge(*guards, slots=2)
        assert judge(empty(3), 3) and not judge(empty(3), 4) and not judge(empty(3), True)
        assert not judge(empty(1), 1)


@pytest.mark.parametrize(
    ("operation", "holds"),
    [
        ("==", lambda a, b: a == b),
        ("!=", lambda a, b: a != b),
        ("<", lambda a, b: a < b),
        ("<=", lambda a, b: a <= b),
        (">", lambda a, b: a > b),
        (">=", lambda a, b: a >= b),
    ],
)
def test_relations(operation: str, holds: Callable[[int, int], bool]) -> None:
    judge = Judge(relation_guard(operation, S * 2 - T, T % 3 + 7), seen(X, S), seen(Y, T), slots=2)
    answers = set()
    for rows in range(2, 12):
        for columns in range(2, 12):
            wanted = holds(2 * rows - columns, columns % 3 + 7)
            assert judge(empty(rows), empty(columns)) is wanted
            answers.add(wanted)
    assert answers == {True, False}


def test_a_relation_without_a_value_does_not_hold() -> None:
    free = size_symbol("n2", 3, low=None)
    judge = Judge(guard(X, BindsSymbol(free)), relation_guard("!=", 100 // free, 7))
    assert judge(3) and judge(-3) and not judge(0) and not judge(14)


def test_numbers_past_64_bits() -> None:
    """Machine code says no where Python can still count: a miss is never wrong."""
    free = size_symbol("n3", 3, low=None)
    guards = [guard(X, BindsSymbol(free)), relation_guard(">", free * free, 8)]
    made = runtime.compile_check(guards, 1)
    assert made.call(3) and not made.call(2) and not made.call(1 << 40)
    # A constant that no word holds is left to Python.
    huge = runtime.compile_check(
        [guard(X, BindsSymbol(free)), relation_guard("<", free, 10**30)], 1
    )
    assert huge.native and huge.call(1 << 62) and not huge.call(True)
    never = runtime.compile_check(
        [guard(X, BindsSymbol(free)), relation_guard(">", free, 10**30)], 1
    )
    assert never.native and not never.call(1 << 62)


def test_sizes_as_values_of_their_own() -> None:
    rows, step = SizeOf(X, 0), StrideOf(X, -2)
    judge = Judge(
        seen(X, S, T),
        guard(rows, TypeIs(int)),
        guard(rows, BindsSymbol(size_symbol("s9", 4, high=20))),
        guard(SizeOf(X, 1), Equals(6)),
        guard(step, Equals(6)),
    )
    assert judge(empty(3, 6)) and judge(empty(20, 6))
    assert not judge(empty(3, 5)) and not judge(empty(21, 6)) and not judge(empty(1, 6))
    assert not judge(empty(6)) and not judge(3)


def test_tensors_that_share_memory() -> None:
    """How far a tensor reaches depends on the sizes of the call."""
    apart = guard(Overlap((X,), (Y,)), Equals(False))
    judge = Judge(apart, seen(X, S), seen(Y, T), slots=2)
    base = empty(100)
    assert judge(base[:10], base[10:20]) and judge(base[50:], base[:50])
    assert not judge(base[:11], base[10:20]) and not judge(base[50:], base[:51])
    assert not judge(base, base[5:10])


def test_a_tensor_that_only_python_reaches() -> None:
    """It binds a symbol that machine code does not know: what speaks of sizes runs in Python."""

    class Box(dict):  # type: ignore[type-arg]
        pass

    held = ByMethod(X, dict, "__getitem__", ("a",))
    judge = Judge(seen(held, S), seen(Y, S * 2, T), relation_guard("<", S + T, 10), slots=2)
    assert judge(Box(a=empty(3)), empty(6, 5))
    assert not judge(Box(a=empty(3)), empty(7, 5))
    assert not judge(Box(a=empty(3)), empty(6, 7))
    assert not judge(Box(a=empty(1)), empty(2, 5))
    assert not judge(Box(), empty(6, 5))


def test_nested_places() -> None:
    judge = Judge(seen(Item(X, 0), S * 2), seen(Item(Item(X, 1), "a"), S))
    assert judge([empty(6), {"a": empty(3)}])
    assert not judge([empty(6), {"a": empty(4)}]) and not judge([empty(6), {}])


def test_a_symbol_that_nothing_binds() -> None:
    with pytest.raises(InternalError, match="no guard binds s0"):
        runtime.compile_check([relation_guard(">", S, 4)], 1)
    with pytest.raises(InternalError, match="no guard binds s0"):
        runtime.compile_check([seen(X, S * 2)], 1)


def test_the_text_is_for_people() -> None:
    text = runtime.compile_check(
        [
            relation_guard(">", S, 4),
            seen(X, S, 4),
            seen(Y, S * 2 + 1),
            guard(Z, BindsSymbol(N)),
        ],
        3,
    ).text
    for line in (
        "s0 = size(x, 0)  # L['x'].size(0) == s0 >= 2",
        "if not s0 >= 2: return False",
        "n0 = z  # L['z'] == n0, 0 <= n0 <= 9",
        "# L['y'].size(0) == 2*s0 + 1",
        "if not size(y, 0) == 2*s0 + 1: return False",
        "# sizes s0 > 4: the graph asked",
        "if not s0 > 4: return False",
    ):
        assert line in text, text


@MODES
def test_names_that_mean_something_else(native: bool) -> None:
    """Slots called like a symbol or like what the text calls; symbols that are no variables."""
    odd, keyed = size_symbol("batch size", 8), size_symbol("lambda", 8)
    guards = [
        seen(Slot(0, "s0"), S),
        seen(Slot(1, "size"), S),
        seen(Slot(2, "check_1"), odd),
        seen(Slot(3, "min"), keyed),
        relation_guard("==", odd, keyed * 2),
    ]
    made = runtime.compile_check(guards, 4, native=native)
    assert made.call(empty(3), empty(3), empty(8), empty(4))
    assert not made.call(empty(3), empty(4), empty(8), empty(4))
    assert not made.call(empty(3), empty(3), empty(8), empty(5))


def test_the_first_failure_is_named() -> None:
    made = runtime.compile_check([relation_guard(">", S, 4), seen(X, S), seen(Y, S * 2)], 2)
    assert made.first_failure(empty(5), empty(10)) is None
    for values, named in (
        ((empty(1), empty(2)), "L['x']"),
        ((empty(5), empty(11)), "L['y']"),
        ((empty(3), empty(6)), "sizes s0 > 4"),
    ):
        failed = made.first_failure(*values)
        assert failed is not None and named in str(failed)
        assert failed.explain(values, {"s0": 3})


@pytest.mark.parametrize("seed", range(40))
def test_random_guards_over_random_sizes(seed: int) -> None:
    dice = random.Random(seed)
    symbols = [size_symbol(f"s{i}", 4, low=dice.choice([1, 2])) for i in range(3)]

    def some_size() -> Size:
        one, other = dice.choice(symbols), dice.choice([*symbols, 3])
        return dice.choice(
            [one, one, one, 4, one + other, one * 2, one * other, maximum(one, other), one // 2 + 1]
        )

    slots = [Slot(index, f"x{index}") for index in range(4)]
    types = [f32(*(some_size() for _ in range(dice.randrange(1, 4)))) for _ in slots]
    guards = [tensor_guard(slot, SOME, held) for slot, held in zip(slots, types, strict=True)]
    guards += [seen(Slot(4 + index, "k"), one) for index, one in enumerate(symbols)]
    guards += [
        relation_guard(dice.choice(["<", "<=", "!=", ">"]), some_size(), some_size())
        for _ in range(dice.randrange(3))
    ]
    dice.shuffle(guards)
    judge = Judge(*guards, slots=7)
    answers = []
    for _ in range(60):
        values = {f"s{index}": dice.randrange(1, 7) for index in range(3)}
        shapes = [
            [size if isinstance(size, int) else size.evaluate(values) for size in held.sizes]
            for held in types
        ]
        if dice.random() < 0.5:
            shape = dice.choice(shapes)
            shape[dice.randrange(len(shape))] += 1
        tensors = [empty(*shape) for shape in shapes]
        answers.append(judge(*tensors, *(empty(one) for one in values.values())))
    assert not all(answers)
