"""Guards on instances of subclasses of containers, on keys that are no text, and on objects that
are only equal to themselves: machine code decides alone, as the Python tier would."""

from __future__ import annotations

import collections
import enum
import inspect
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import torch

from tests.runtime.programs import tensor_guard
from windfall import runtime
from windfall.ir.guard import (
    Check,
    Compares,
    Equals,
    Guard,
    HasKey,
    IdentityIs,
    KeysAre,
    LengthIs,
    TypeIs,
)
from windfall.ir.source import ByMethod, Item, KeysOf, Slot, Source
from windfall.runtime import guards as guard_module

X = Slot(0, "x")


class Pair(NamedTuple):
    left: Any
    right: Any


class Row(list):  # type: ignore[type-arg]
    """Whatever is asked of it the plain way is a lie."""

    def __len__(self) -> int:
        raise AssertionError("__len__ ran")

    def __getitem__(self, key: object) -> Any:
        raise AssertionError("__getitem__ ran")


class Table(dict):  # type: ignore[type-arg]
    def __getitem__(self, key: object) -> Any:
        raise AssertionError("__getitem__ ran")

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("__iter__ ran")

    def __missing__(self, key: object) -> Any:
        raise AssertionError("__missing__ ran")


class Output(collections.OrderedDict):  # type: ignore[type-arg]
    """As model outputs are."""


class Mode(enum.Enum):
    READ = 1
    WRITE = 2


class Number(enum.IntEnum):
    ONE = 1


def guard(source: Source, check: Check) -> Guard:
    return Guard(source, check, "a test")


class Judge:
    """A check that needs no Python, beside the one that is all Python."""

    def __init__(self, *guards: Guard, alone: bool = True) -> None:
        self.native = runtime.compile_check(guards, 1)
        self.python = runtime.compile_check(guards, 1, native=False)
        assert self.native.native
        assert alone is not needs_python(guards)

    def __call__(self, value: Any) -> bool:
        answers = {self.native.call(value), self.native.call(value), self.python.call(value)}
        assert len(answers) == 1
        return answers.pop()


def needs_python(guards: tuple[Guard, ...]) -> bool:
    """Whether some of these guards are left to a Python function."""
    asked: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(guard_module, "python_check", lambda left, names: asked.append(left) or id)
        guard_module.encode(guard_module.in_order(guards), (), ("x",))
    return bool(asked)


def test_objects_that_are_only_equal_to_themselves() -> None:
    def function() -> None: ...

    other = function.__code__.replace(co_name="other")
    for value, wrong in (
        (function.__code__, other),
        (Mode.READ, Mode.WRITE),
        (Number.ONE, 1),
        (function, len),
        (inspect, collections),
        (torch.nn.attention.SDPBackend.MATH, torch.nn.attention.SDPBackend.FLASH_ATTENTION),
    ):
        judge = Judge(guard(X, Equals(value)))
        assert judge(value) and not judge(wrong) and not judge(None)
    same = function.__code__.replace()
    assert same == function.__code__ and not Judge(guard(X, Equals(function.__code__)))(same)


def test_what_is_compared_by_value_is_left_to_python() -> None:
    for value in (b"ab", range(3), slice(1, 2), frozenset({1}), 1j, torch.device("cpu")):
        judge = Judge(guard(X, Equals(value)), alone=False)
        assert judge(value) and not judge(None) and not judge("ab")


def test_items_of_a_named_tuple() -> None:
    left, right = (ByMethod(X, tuple, "__getitem__", (index,)) for index in (0, -1))
    judge = Judge(
        guard(X, TypeIs(Pair)),
        guard(X, LengthIs(2)),
        tensor_guard(left, torch.zeros(3)),
        guard(right, Equals(5)),
    )
    assert judge(Pair(torch.zeros(3), 5))
    for wrong in (
        Pair(torch.zeros(4), 5),
        Pair(torch.zeros(3), 6),
        (torch.zeros(3), 5),
        [torch.zeros(3), 5],
        None,
    ):
        assert not judge(wrong)


def test_items_of_a_list_of_another_class() -> None:
    item = ByMethod(X, list, "__getitem__", (1,))
    judge = Judge(
        guard(X, TypeIs(Row)),
        guard(ByMethod(X, list, "__len__"), Equals(2)),
        guard(item, Equals("b")),
    )
    assert judge(Row("ab"))
    assert not judge(Row("ac")) and not judge(Row("a")) and not judge(Row("abc"))
    assert not judge(["a", "b"]) and not judge("ab")


def keys_of(kind: type) -> KeysOf:
    return KeysOf(ByMethod(X, kind, "keys"))


def test_items_of_a_dict_of_another_class() -> None:
    judge = Judge(
        guard(X, TypeIs(Table)),
        guard(keys_of(dict), Equals(("a", "b"))),
        guard(ByMethod(X, dict, "__getitem__", ("a",)), Equals(1)),
        guard(ByMethod(X, dict, "__getitem__", ("b",)), Equals(2)),
    )
    assert judge(Table(a=1, b=2))
    for wrong in (
        Table(b=2, a=1),
        Table(a=1),
        Table(a=1, b=3),
        Table(a=1, b=2, c=3),
        Table({"a": 1, 2: 2}),
        {"a": 1, "b": 2},
    ):
        assert not judge(wrong)
    changed = Table(a=1, b=2)
    assert judge(changed)
    dict.__setitem__(changed, "b", 3)
    assert not judge(changed)
    dict.__setitem__(changed, "b", 2)
    assert judge(changed)
    del changed["a"]
    assert not judge(changed)


def test_a_default_dict() -> None:
    judge = Judge(
        guard(X, TypeIs(collections.defaultdict)),
        guard(keys_of(dict), Equals(("a",))),
        guard(ByMethod(X, dict, "get", ("a",)), Equals(1)),
    )
    assert judge(collections.defaultdict(int, a=1))
    missing = collections.defaultdict(int)
    assert not judge(missing) and not missing, "nothing was made"
    assert not judge(collections.defaultdict(int, a=2)) and not judge({"a": 1})


def test_an_ordered_dict_has_an_order_that_only_it_knows() -> None:
    judge = Judge(
        guard(X, TypeIs(Output)),
        guard(keys_of(collections.OrderedDict), Equals(("a", "b"))),
        guard(ByMethod(X, collections.OrderedDict, "__getitem__", ("a",)), Equals(1)),
        alone=False,
    )
    value = Output(a=1, b=2)
    assert judge(value)
    value.move_to_end("a")
    assert not judge(value)
    none = Judge(guard(X, TypeIs(Output)), guard(keys_of(collections.OrderedDict), Equals(())))
    assert none(Output()) and not none(Output(a=1)) and not none({})
    plain = Judge(guard(X, TypeIs(collections.OrderedDict)), guard(KeysOf(X), Equals(())))
    assert plain(collections.OrderedDict()) and not plain(collections.OrderedDict(a=1))


@pytest.mark.parametrize("kind", [set, frozenset])
def test_an_empty_set(kind: type) -> None:
    judge = Judge(guard(X, TypeIs(kind)), guard(KeysOf(X), Equals(())))
    assert judge(kind()) and not judge(kind([1])) and not judge(())


@pytest.mark.parametrize(
    "kind", [list, tuple, Row, collections.deque, set, frozenset, collections.OrderedDict.fromkeys]
)
def test_lengths(kind: Any) -> None:
    made = kind([1, 2, 3])
    judge = Judge(guard(X, TypeIs(type(made))), guard(X, LengthIs(3)))
    assert judge(made)
    for wrong in (kind([1, 2]), kind([1, 2, 3, 4]), kind([]), 3, None):
        assert not judge(wrong)


def test_the_length_of_a_deque_that_moves() -> None:
    judge = Judge(
        guard(X, TypeIs(collections.deque)),
        guard(ByMethod(X, collections.deque, "__len__"), Equals(2)),
    )
    queue = collections.deque([1, 2], maxlen=3)
    assert judge(queue)
    for change in (
        lambda: queue.append(3),
        lambda: queue.append(4),
        queue.popleft,
        lambda: queue.rotate(1),
        queue.clear,
    ):
        change()
        assert judge(queue) is (len(queue) == 2)


def test_keys_that_are_no_text() -> None:
    table = {1: "a", None: 2, int: "b", len: "c"}
    judge = Judge(
        guard(X, TypeIs(dict)),
        guard(X, HasKey(1, True)),
        guard(X, HasKey(2, False)),
        guard(X, HasKey(float, False)),
        guard(Item(X, int), Equals("b")),
        guard(Item(X, len), Equals("c")),
        guard(Item(X, None), Equals(2)),
    )
    assert judge(table)
    for wrong in ({**table, 2: 0}, {**table, float: 0}, {**table, int: "c"}, {}, None):
        assert not judge(wrong)
    assert judge({**table, "more": 0})


def test_all_keys_may_be_numbers() -> None:
    judge = Judge(guard(X, KeysAre((0, "a", -(1 << 40)))))
    assert judge({0: 1, "a": 2, -(1 << 40): 3})
    for wrong in (
        {"a": 2, 0: 1, -(1 << 40): 3},
        {False: 1, "a": 2, -(1 << 40): 3},
        {0: 1, "a": 2, 1 << 40: 3},
        {0: 1, "a": 2, -(1 << 104): 3},
        {0.0: 1, "a": 2, -(1 << 40): 3},
        {0: 1, "a": 2},
        {"0": 1, "a": 2, -(1 << 40): 3},
    ):
        assert not judge(wrong)
    assert Judge(guard(X, KeysAre((1 << 70,))), alone=False)({1 << 70: 0})


NAN = float("nan")


@pytest.mark.parametrize("operation", ["==", "!=", "<", "<=", ">", ">="])
@pytest.mark.parametrize("other", [0.0, -0.0, 2.5, 3, float("inf"), NAN, None])
def test_floats_that_are_compared(operation: str, other: float | None) -> None:
    checks = [Compares(operation, other, outcome) for outcome in (True, False)]
    for check in checks:
        judge = Judge(guard(X, check))
        for value in (0.0, -0.0, 2.5, 3.0, -1e300, float("inf"), NAN):
            assert judge(value) is check.holds(value)
        assert not judge(3) and not judge(True) and not judge(None) and not judge("2.5")


def test_an_integer_that_no_float_is() -> None:
    check = Compares("<", (1 << 53) + 1, True)
    judge = Judge(guard(X, check), alone=False)
    assert judge(float(1 << 53)) and not judge(float((1 << 53) + 2))


def test_a_key_with_an_equality_of_its_own_is_left_to_python() -> None:
    judge = Judge(guard(X, TypeIs(dict)), guard(X, HasKey((1, "a"), True)), alone=False)
    assert judge({(1, "a"): 0}) and not judge({})


def test_the_keys_of_a_dict_beside_the_dict_itself() -> None:
    """One record for each class: a dict and a subclass of it are told apart."""
    plain = Judge(guard(X, KeysAre(("a",))))
    assert plain({"a": 1}) and not plain({"b": 1})
    own = Judge(guard(X, TypeIs(Table)), guard(keys_of(dict), Equals(("a",))))
    assert own(Table(a=1)) and not own({"a": 1})


def test_identities_among_items() -> None:
    held = object()
    judge = Judge(
        guard(X, TypeIs(Pair)), guard(ByMethod(X, tuple, "__getitem__", (1,)), IdentityIs(held))
    )
    assert judge(Pair(1, held)) and not judge(Pair(held, 1))
