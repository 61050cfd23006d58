"""Members of enumerations: their methods may be the user's, their names and values may be written.

Each operation is asked of each sort of member, before and after a change of what it depends on: the
answer, what it raises and the user's methods that ran are eager's. How each ran is a golden.
"""

from __future__ import annotations

import copy
import enum
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch

import windfall
from tests.frontend.ways import one_version, table
from tests.golden import Golden


class World:
    """What the members' own methods look at, and which of them were called."""

    def __init__(self) -> None:
        self.number = 1
        self.calls: list[str] = []

    def asked(self, name: str) -> int:
        self.calls.append(name)
        return self.number


def plain(world: World) -> Any:
    class Plain(enum.Enum):
        A = 1
        B = 2

        def is_first(self) -> Any:
            return self is Plain.A, self == Plain.A, {Plain.A: 5}.get(self)

    return Plain


def flags(world: World) -> Any:
    class Flags(enum.Flag):
        A = 1
        B = 2
        BOTH = 3

    return Flags


def numbers(world: World) -> Any:
    class Numbers(enum.IntEnum):
        A = 1
        B = 2

        def is_first(self) -> Any:
            return self is Numbers.A, self == Numbers.A, {Numbers.A: 5}.get(self)

    return Numbers


def number_flags(world: World) -> Any:
    class NumberFlags(enum.IntFlag):
        A = 1
        B = 2

    return NumberFlags


def texts(world: World) -> Any:
    class Texts(enum.StrEnum):
        A = "a"
        B = "b"

    return Texts


SPECIAL = [
    "repr",
    "str",
    "format",
    "hash",
    "bool",
    "len",
    "getitem",
    "contains",
    "call",
    "neg",
    "int",
    "float",
    "index",
    "lt",
    "gt",
    "add",
    "radd",
    "abs",
    "round",
    "divmod",
    "enter",
    "exit",
]


def _own_methods(world: World) -> dict[str, Any]:
    """Special methods that answer what the world says, of the class that each must answer."""
    makes: dict[str, Callable[[int], Any]] = {
        "repr": str, "str": str, "format": str, "bool": lambda number: number == 1, "float": float,
        "contains": lambda number: number == 1, "lt": lambda number: number == 1,
        "gt": lambda number: number == 1, "exit": lambda number: False,
    }  # fmt: skip

    def method(name: str) -> Any:
        return lambda self, *rest: makes.get(name, int)(world.asked(name))

    methods = {f"__{name}__": method(name) for name in SPECIAL}
    methods["__iter__"] = lambda self: iter((world.asked("iter"),))
    return methods


def own(world: World) -> Any:
    class Own(enum.Enum):
        locals().update(_own_methods(world))
        A = 1
        B = 2

    return Own


def own_numbers(world: World) -> Any:
    class OwnNumbers(int, enum.Enum):
        locals().update(_own_methods(world))
        A = 1
        B = 2

    return OwnNumbers


def shown(world: World) -> Any:
    """The most usual sort of method."""

    class Shown(str, enum.Enum):  # noqa: UP042 (as it is written)
        A = "a"
        B = "b"

        def __str__(self) -> str:
            return f"{self.value}{world.asked('str')}"

        @property
        def doubled(self) -> Any:
            return self.value * 2, self is Shown.A

    return Shown


SORTS = (plain, flags, numbers, number_flags, texts, own, own_numbers, shown)
CHANGES: dict[str, Callable[[Any, World], None]] = {
    "value": lambda cls, world: setattr(cls.A, "_value_", cls.B._value_),
    "name": lambda cls, world: setattr(cls.A, "_name_", "Z"),
    "world": lambda cls, world: setattr(world, "number", 2),
    **{
        f"late {name}": lambda cls, world, name=name: setattr(
            cls, f"__{name}__", _own_methods(world)[f"__{name}__"]
        )
        for name in ("repr", "str", "hash", "bool", "int", "index", "lt", "add", "radd")
    },
    "late copy": lambda cls, world: setattr(
        cls, "__deepcopy__", lambda self, memo: world.asked("copy")
    ),
    "late eq": lambda cls, world: setattr(
        cls, "__eq__", lambda self, other: world.asked("eq") == 1
    ),
}


class Other:
    pass


OTHER = Other()


def _written(cls: Any) -> Any:
    """Inside, and put back."""
    value, name = cls.A._value_, cls.A._name_
    cls.A._value_, cls.A._name_ = cls.B._value_, "Z"
    try:
        return cls.A.value, repr(cls.A), str(cls.A), cls.A == cls.B, cls.A in {cls.A}, cls.A | cls.B
    finally:
        cls.A._value_, cls.A._name_ = value, name


def _outside(cls: Any) -> Any:
    """A value that no member has."""
    value = cls.A._value_
    cls.A._value_ = 64
    try:
        return cls.A | cls.B
    finally:
        cls.A._value_ = value


OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "repr": lambda C: repr(C.A),
    "str": lambda C: str(C.A),
    "displayed": lambda C: f"{C.A}{C.A!r}{C.A!s:>8}",
    "formatted": lambda C: f"{C.A}",
    "filled in": lambda C: "%s %r" % (C.A, C.A),  # noqa: UP031
    "joined": lambda C: ",".join(map(str, [C.A, C.B])),
    "or": lambda C: C.A | C.B,
    "or a number": lambda C: C.A | 2,
    "and": lambda C: C.A & C.B,
    "xor": lambda C: C.A ^ C.B,
    "inverted": lambda C: ~C.A,
    "in": lambda C: C.A in C.B,
    "in the class": lambda C: C.A in C,
    "a number in": lambda C: 1 in C.A,
    "hash": lambda C: hash(C.A),
    "bool": lambda C: bool(C.A),
    "not": lambda C: not C.A,
    "listed": lambda C: list(C.A),
    "length": lambda C: len(C.A),
    "equal": lambda C: C.A == C.B,
    "equal to a number": lambda C: C.A == 1,
    "a number is unequal": lambda C: 1 != C.A,  # noqa: SIM300
    "equal to an object": lambda C: (C.A == OTHER, OTHER == C.A),
    "less": lambda C: C.A < C.B,
    "fields": lambda C: (C.A.value, C.A.name),
    "by value": lambda C: C(C.B.value),
    "by name": lambda C: C["A"],
    "all": lambda C: (list(C), len(C)),
    "plus": lambda C: C.A + 1,
    "after a plus": lambda C: 1 + C.A,
    "tensor plus": lambda C: torch.ones(2) + C.A,
    "called": lambda C: C.A(2),
    "item": lambda C: C.A[1],
    "minus": lambda C: -C.A,
    "int": lambda C: int(C.A),
    "float": lambda C: float(C.A),
    "index": lambda C: [1, 2, 3][C.A],
    "slice": lambda C: [1, 2, 3][C.A :],
    "range": lambda C: range(C.A),
    "key": lambda C: {C.A: 1, C.B: 2}[C.A],
    "key of a table": lambda C: (C.table.get(C.A), C.B in C.table, list(C.table)),
    "in a set": lambda C: C.A in {C.A, 7},
    "in a tuple": lambda C: C.A in (C.B, C.A),
    "absolute": lambda C: abs(C.A),
    "rounded": lambda C: round(C.A),
    "divided": lambda C: divmod(C.A, 2),
    "method": lambda C: C.A.__repr__(),
    "sorted": lambda C: sorted([C.B, C.A]),
    "own method": lambda C: C.A.is_first(),
    "property": lambda C: C.A.doubled,
    "copied": lambda C: (copy.deepcopy([C.A])[0] is C.A, copy.copy(C.A) is C.A),
    "written inside": _written,
    "a value that no member has": _outside,
    "missing": lambda C: getattr(C.A, "missing", 3),
}


def made(sort: Callable[[World], Any], world: World) -> Any:
    """Such a class, with a dict by members that the program finds."""
    cls = sort(world)
    cls.table = {cls.A: "a", cls.B: "b"}
    return cls


def outcome(function: Callable[[Any], Any], cls: Any, world: World) -> Any:
    world.calls.clear()
    try:
        answer = function(cls)
    except Exception as error:
        return type(error), str(error), list(world.calls)
    asked = list(world.calls)
    return type(answer).__name__, repr(answer), asked


def follows_changes(name: str, sort: Callable[[World], Any], changes: Iterable[str]) -> None:
    """One pair of worlds for each change, so that changes do not hide one another."""
    operation = OPERATIONS[name]
    for change in changes:
        worlds = World(), World()
        classes = [made(sort, world) for world in worlds]
        functions = operation, windfall.compile(operation, backend="eager")
        for step in (lambda cls, world: None, CHANGES[change]):
            answers = []
            for function, cls, world in zip(functions, classes, worlds, strict=True):
                step(cls, world)
                answers.append(outcome(function, cls, world))
            assert answers[0] == answers[1], change


ALWAYS = ("value", "name", "world")
LATE = [name for name in CHANGES if name not in ALWAYS]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("sort", SORTS, ids=lambda one: one.__name__)
@pytest.mark.parametrize("name", OPERATIONS)
def test_members_are_asked(name: str, sort: Callable[[World], Any]) -> None:
    place = list(OPERATIONS).index(name) + SORTS.index(sort)
    follows_changes(name, sort, (*ALWAYS, LATE[place % len(LATE)]))


@pytest.mark.conformance
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("sort", SORTS, ids=lambda one: one.__name__)
@pytest.mark.parametrize("name", OPERATIONS)
def test_members_are_asked_after_every_change(name: str, sort: Callable[[World], Any]) -> None:
    follows_changes(name, sort, CHANGES)


@one_version
@pytest.mark.filterwarnings("ignore")
def test_how_they_ran(golden: Golden) -> None:
    ran = {}
    for sort in SORTS:
        for name, operation in OPERATIONS.items():
            world = World()
            compiled = windfall.compile(operation, backend="eager", options={"strict": True})
            outcome(compiled, made(sort, world), world)
            ran[f"{sort.__name__}, {name}"] = compiled
    golden("enumerations_ways", table(ran.items()))


def test_a_member_that_comes_from_outside() -> None:
    """Telling members apart breaks nothing, and relies on no more than was asked."""
    mode = plain(World())

    def chosen(x: torch.Tensor, asked: Any) -> Any:
        if asked == mode.A:
            return x + 1
        return x - 1 if asked in (mode.B,) else {mode.A: x}[asked]

    compiled = windfall.compile(chosen, backend="eager", options={"strict": True})
    x = torch.ones(2)
    for asked in (mode.A, mode.B, mode.A, mode.B):
        assert torch.equal(compiled(x, asked), chosen(x, asked))
    assert not windfall.explanation(compiled).breaks
    assert len(windfall.cache_entries(compiled)) == 2


def test_tables_of_members() -> None:
    """Members as keys of dicts from outside break nothing, and each is looked up by itself."""
    mode = plain(World())

    def chosen(x: torch.Tensor, table: Any, asked: Any) -> Any:
        table[mode.B] = table.get(asked, 5)
        return x * table[mode.B], asked in table, [one is asked for one in table]

    compiled = windfall.compile(chosen, backend="eager", options={"strict": True})
    x = torch.ones(())
    tables: list[dict[Any, int]] = [{}, {mode.A: 2}, {mode.A: 3, "a": 4}, {mode.B: 2, mode.A: 7}]
    for items in tables:
        for asked in (mode.A, mode.B):
            mine, others = dict(items), dict(items)
            assert compiled(x, mine, asked) == chosen(x, others, asked)
            assert list(mine.items()) == list(others.items())
    mode.B._name_ = "A"
    assert compiled(x, {mode.A: 2}, mode.B) == chosen(x, {mode.A: 2}, mode.B)
    assert not windfall.explanation(compiled).breaks
