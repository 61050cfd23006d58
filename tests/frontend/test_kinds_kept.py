"""Classes of objects that a rule must keep, text that shows data, metaclasses that have a say.

Each row is a program and its argument; answer, class and exception are eager's, and an error of our
own is not hidden (`strict`). What the swap matrix found beside its sample.
"""

from __future__ import annotations

import collections
import copy
import enum
import re
import types
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, NamedTuple

import pytest
import torch

import windfall
from tests.frontend.ways import one_version, table
from tests.golden import Golden


class Point(NamedTuple):
    x: int
    y: int


class Plain(tuple[Any, ...]):
    pass


class Listed(list[Any]):
    pass


class Named(dict[str, Any]):
    pass


class Equal(type):
    """Its classes are equal to everything."""

    def __eq__(cls, other: object) -> bool:
        return True

    def __hash__(cls) -> int:
        return hash(1)


class WithEqual(metaclass=Equal):
    pass


class Claiming:
    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return int


class Slotted:
    __slots__ = ("x",)


class Bits(enum.IntFlag):
    LOW = 1
    HIGH = 2


class Counting:
    """An iterator of its own that tells how far it was asked."""

    def __init__(self) -> None:
        self.count = 0

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        self.count += 1
        if self.count > 5:
            raise StopIteration
        return self.count

    def bound(self) -> int:
        return self.count


def _delegated(items: Any) -> list[Any]:
    def inner() -> Iterator[Any]:
        yield from items

    return list(inner())


def _matched(one: Any) -> str:
    match one:
        case int():
            return "int"
        case _:
            return "other"


def _caught(kind: Any) -> str:
    try:
        raise ValueError
    except kind:
        return "caught"


def _unpacked(items: Any) -> tuple[str, int]:
    try:
        (_one,) = items
    except ValueError as error:
        return str(error), items.count
    return "", items.count


def _rekeyed(size: Any) -> Any:
    made = {size: 1}
    del made[size]
    made[tuple(size)] = 2
    return made


Row = tuple[Callable[[Any], Any], Callable[[], Any]]
ROWS: dict[str, Row] = {
    "text of a tensor": (lambda a: "%s" % a, lambda: torch.ones(2)),  # noqa: UP031
    "text of a tensor by format": (lambda a: format(a), lambda: torch.ones(2)),
    "text of a tensor by ascii": (lambda a: ascii(a), lambda: torch.ones(2)),
    "text of tensors in a list": (lambda a: ascii([a, a]), lambda: torch.ones(2)),
    "bytes of a fraction": (lambda a: b"%d" % a, lambda: Fraction(7, 2)),
    "text of a fraction": (lambda a: "%s" % a, lambda: Fraction(7, 2)),  # noqa: UP031
    "display of a list": (lambda a: {**a}, lambda: [(1, 2)]),
    "display of a text": (lambda a: {**a}, lambda: ""),
    "size as a key": (lambda a: {a: 1}, lambda: torch.Size([2, 3])),
    "size in a key": (lambda a: {(a, 1): 1}, lambda: torch.Size([2, 3])),
    "record as a key": (lambda a: {a: 1, (1, 2): 3}, lambda: Point(1, 2)),
    "record under a plain key": (lambda a: {(1, 2): 3, a: 1}, lambda: Point(1, 2)),
    "tuple of a class as a key": (lambda a: {a: 1}, lambda: Plain((1, 2))),
    "key that comes again": (_rekeyed, lambda: torch.Size([2, 3])),
    "record in a set": (lambda a: {a}, lambda: Point(1, 2)),
    "records in a set": (lambda a: set([a, (1, 2)]), lambda: Point(1, 2)),
    "key with braces": (lambda a: collections.Counter(a), lambda: "{} {0}"),
    "size after a tuple": (lambda a: (1,) + a, lambda: torch.Size([2, 3])),  # noqa: RUF005
    "size after text": (lambda a: ("x",) + a, lambda: torch.Size([2, 3])),  # noqa: RUF005
    "class as a key": (lambda a: {a: 1}.get(1), lambda: WithEqual),
    "class in a set": (lambda a: len({a, 1}), lambda: WithEqual),
    "class is equal": (lambda a: (a == 1, object() == a), lambda: WithEqual),
    "class is equal to a class": (lambda a: a == int, lambda: WithEqual),  # noqa: E721
    "class is equal to a number": (lambda a: 1 == a, lambda: WithEqual),  # noqa: SIM300
    "class of an instance is equal": (lambda a: type(a) == 1, WithEqual),  # noqa: E721
    "instance of such a class": (lambda a: isinstance(a, int), WithEqual),
    "such a class is no exception": (_caught, lambda: WithEqual),
    "claimed class": (lambda a: isinstance(a, int), Claiming),
    "claimed class in a pattern": (_matched, Claiming),
    "claimed class, read": (lambda a: a.__class__, Claiming),
    "copy of a default dict": (lambda a: a.copy(), lambda: collections.defaultdict(list)),
    "copy of a method": (lambda a: copy.copy(a)(), lambda: Counting().bound),
    "class of a method": (lambda a: (a.__class__, type(a)), lambda: Counting().bound),
    "method of C": (lambda a: type(a.append), Listed),
    "method of C, kept": (lambda a: (a.append, a)[0].__self__ is a, Listed),
    "method of C, special": (lambda a: type(a.__len__), Listed),
    "method of C with a class": (lambda a: a.match("ab").group(1), lambda: re.compile("(a)")),
    "repeated list of a class": (lambda a: a * 2, lambda: Listed([1])),
    "too few arguments": (lambda a: a.pop(), lambda: Named(x=1)),  # type: ignore[call-arg]
    "too many arguments": (lambda a: list.pop(a, 1, 2), lambda: [1, 2]),  # type: ignore[call-arg]
    "slice of a list of a class": (lambda a: a[:1], lambda: Listed([1, 2])),
    "step of zero": (lambda a: [1, 2][::a], lambda: 0),
    "deleted by a step of zero": (lambda a: [1, 2].__delitem__(slice(None, None, a)), lambda: 0),
    "slice of an enumeration": (lambda a: a[:1], lambda: Bits),
    "members, one by one": (lambda a: type(iter(a)), lambda: Bits),
    "members, from the last": (lambda a: list(reversed(a)), lambda: Bits),
    "no member": (lambda a: a ^ a, lambda: Bits.LOW),
    "shift of a float": (lambda a: a << 1, lambda: 1.5),
    "module of a method of C": (lambda a: a.__module__, lambda: str.upper),
    "dictionary of a number": (lambda a: vars(a), lambda: 1),
    "one item of many": (_unpacked, Counting),
    "delegation to an object": (_delegated, Counting),
    "delegation to bytes": (_delegated, lambda: bytearray(b"ab")),
    "delegation to a number": (_delegated, lambda: 0),
}


def _outcome(function: Callable[[Any], Any], argument: Any) -> tuple[Any, ...]:
    try:
        answer = function(argument)
    except Exception as error:
        return "raises", type(error), str(error)
    if isinstance(answer, dict):
        return type(answer), [(type(key), key, answer[key]) for key in answer]
    if isinstance(answer, set):
        return type(answer), sorted((type(key).__name__, tuple(key)) for key in answer)
    return type(answer), answer


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ROWS)
def test_as_eager(name: str) -> None:
    program, make = ROWS[name]
    compiled = windfall.compile(program, backend="eager", options={"strict": True})
    assert _outcome(compiled, make()) == _outcome(program, make())


@one_version
@pytest.mark.filterwarnings("ignore")
def test_how_they_ran(golden: Golden) -> None:
    ran = {}
    for name, (program, make) in ROWS.items():
        ran[name] = windfall.compile(program, backend="eager", options={"strict": True})
        _outcome(ran[name], make())
    golden("kinds_kept_ways", table(ran.items()))


def test_a_dictionary_of_numbers_that_vary() -> None:
    compiled = windfall.compile(lambda a: vars(a), backend="eager", options={"strict": True})
    for one in (None, 1, 4, 5, 1.5, 2.5, 3.5):
        with pytest.raises(TypeError, match="vars"):
            compiled(one)


def test_a_slot_that_was_deleted() -> None:
    compiled = windfall.compile(lambda a: hasattr(a, "x"), backend="eager")
    full = Slotted()
    full.x = 1
    assert [compiled(one) for one in (full, Slotted(), full)] == [True, False, True]


def test_an_attribute_of_a_tensor_that_others_lack() -> None:
    marked: Any = torch.ones(2)
    marked.mark = 1
    compiled = windfall.compile(lambda a: a.mark, backend="eager")
    assert compiled(marked) == 1
    with pytest.raises(AttributeError):
        compiled(torch.ones(2))


def test_a_name_that_is_no_name_is_written_to_a_tensor() -> None:
    def program(a: Any) -> Any:
        setattr(a, "two words{}", 3)
        return a

    compiled = windfall.compile(program, backend="eager", options={"strict": True})
    assert vars(compiled(torch.ones(2))) == {"two words{}": 3}


def test_a_bound_method_is_of_its_class() -> None:
    compiled = windfall.compile(lambda a: (a.append, a.bound), backend="eager")

    class Both(Listed):
        def bound(self) -> None:
            pass

    made = Both()
    append, bound = compiled(made)
    assert type(append) is types.BuiltinMethodType and type(bound) is types.MethodType
    append(1)
    assert made == [1]
