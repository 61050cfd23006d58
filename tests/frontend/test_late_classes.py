"""Classes, metaclasses, descriptors and modules that change after they were looked at."""

from __future__ import annotations

import abc
import collections.abc
import contextlib
import enum
import numbers
import sys
import types
import typing
from collections.abc import Callable
from typing import Any

import pytest
import torch

import windfall
from windfall.frontend.values.constant import COMPARE


class World:
    """Fresh classes for each case."""

    def __init__(self) -> None:
        class Meta(type):
            pass

        class Other(type):
            limit = property(lambda cls: "other")

            def __bool__(cls) -> bool:
                return False

        class Described:
            def __get__(self, owner: Any, kind: Any = None) -> Any:
                return "described"

        class Base(metaclass=Meta):
            limit = 1

            def __enter__(self) -> int:
                return 1

            described = Described()

        class Part(Base):
            def above(self) -> Any:
                return super().limit  # type: ignore[misc]

        class Mixin:
            limit = "mixed in"

        class Taken(abc.ABC):  # noqa: B024 (whoever is registered is one)
            pass

        class Colour(enum.Enum):
            RED = 1

        self.Colour = Colour
        self.Meta, self.OtherMeta, self.Described = Meta, Other, Described
        self.Base, self.Part, self.Mixin, self.Taken = Base, Part, Mixin, Taken
        self.part: Any = Part()
        self.part.described = "own"
        self.module: Any = types.ModuleType("side")
        self.module.thing = 1


class Computed(types.ModuleType):
    thing = property(lambda self: "computed")
    extra = 3


class Named(type):
    """Such properties cannot be assigned: that would name the metaclass itself."""

    __name__ = property(lambda cls: "named")  # type: ignore[assignment]


class Posing:
    """Nor this one: it would be the class of the class."""

    __class__ = property(lambda self: int)  # type: ignore[assignment]


def put(path: str, name: str, value: Any) -> Callable[[World], None]:
    return lambda world: setattr(getattr(world, path), name, value)


QUESTIONS: dict[str, Callable[[World], Any]] = {
    "read": lambda w: w.Base.limit,
    "has": lambda w: hasattr(w.Base, "extra"),
    "default": lambda w: getattr(w.Part, "extra", None),
    "truth": lambda w: 1 if w.Part else 2,
    "made": lambda w: type(w.Part()).__name__,
    "callable": lambda w: callable(w.part),
    "descriptor": lambda w: w.part.described,
    "instance": lambda w: isinstance(w.part, w.Mixin),
    "instance of base": lambda w: isinstance(w.part, w.Base),
    "subclass": lambda w: issubclass(w.Part, (w.Mixin, int)),
    "subclass of base": lambda w: issubclass(w.Part, w.Base),
    "taken": lambda w: isinstance(w.part, w.Taken),
    "taken class": lambda w: issubclass(w.Part, w.Taken),
    "mapping": lambda w: isinstance(w.part, collections.abc.Mapping),
    "iterable": lambda w: isinstance(w.part, collections.abc.Iterable),
    "iterable class": lambda w: issubclass(w.Part, collections.abc.Iterable),
    "number": lambda w: isinstance(w.part, (int, numbers.Number)),
    "manager": lambda w: isinstance(w.part, contextlib.AbstractContextManager),
    "protocol": lambda w: isinstance(w.part, typing.SupportsInt),
    "int": lambda w: isinstance(w.part, int),
    "shown": lambda w: str(w.Part).rpartition(".")[2],
    "equal classes": lambda w: w.Part == w.Base,
    "unequal classes": lambda w: w.Part != w.Base,
    "equal to an instance": lambda w: w.part == w.Part,
    "member": lambda w: w.Colour.RED.value,
    "super": lambda w: w.part.above(),
    "order": lambda w: [one.__name__ for one in w.Part.__mro__],
    "bases": lambda w: [one.__name__ for one in w.Part.__bases__],
    "name": lambda w: w.Part.__name__,
    "module": lambda w: w.Part.__module__,
    "documentation": lambda w: w.Part.__doc__,
    "global": lambda w: w.module.thing,
    "no global": lambda w: getattr(w.module, "extra", None),
}
CHANGES: dict[str, Callable[[World], Any]] = {
    "metaclass property": put("Meta", "limit", property(lambda cls: 14)),
    "metaclass attribute": put("Meta", "extra", 5),
    "metaclass getattr": put("Meta", "__getattr__", lambda cls, name: 6),
    "metaclass getattribute": put("Meta", "__getattribute__", lambda cls, name: 7),
    "metaclass bool": put("Meta", "__bool__", lambda cls: False),
    "metaclass len": put("Meta", "__len__", lambda cls: 0),
    "metaclass equality": put("Meta", "__eq__", lambda cls, other: True),
    "metaclass call": put("Meta", "__call__", lambda cls: 8),
    "instance check": put("Meta", "__instancecheck__", lambda cls, one: False),
    "subclass check": put("Meta", "__subclasscheck__", lambda cls, one: False),
    "another metaclass": lambda w: setattr(w.Part, "__class__", w.OtherMeta),
    "call": put("Base", "__call__", lambda self: 9),
    "data descriptor": put("Described", "__set__", lambda self, owner, value: None),
    "deleter": put("Described", "__delete__", lambda self, owner: None),
    "other getter": put("Described", "__get__", lambda self, owner, kind=None: "other"),
    "bases": lambda w: setattr(w.Part, "__bases__", (w.Base, w.Mixin)),
    "other bases": lambda w: setattr(w.Part, "__bases__", (w.Mixin, w.Base)),
    "metaclass name": lambda w: setattr(w.Meta, "__bases__", (Named,)),
    "metaclass documentation": put("Meta", "__doc__", "meta"),
    "metaclass module": put("Meta", "__module__", property(lambda cls: "meta")),
    "value of a member": lambda w: setattr(w.Colour.RED, "_value_", 5),
    "value of members": put("Colour", "value", property(lambda self: 6)),
    "other name": put("Part", "__name__", "Other"),
    "abstract": put("Part", "__abstractmethods__", frozenset(["above"])),
    "other documentation": put("Part", "__doc__", "Other"),
    "fewer bases": lambda w: setattr(w.Part, "__bases__", (w.Mixin,)),
    "registered": lambda w: w.Taken.register(w.Part),
    "iter": put("Base", "__iter__", lambda self: iter(())),
    "int": put("Base", "__int__", lambda self: 3),
    "exit": put("Base", "__exit__", lambda self, *error: None),
    "class": lambda w: setattr(w.Part, "__bases__", (Posing, w.Base)),
    "getattribute": put(
        "Base",
        "__getattribute__",
        lambda self, name: int if name == "__class__" else object.__getattribute__(self, name),
    ),
    "registered mapping": lambda w: collections.abc.Mapping.register(w.Part),
    "registered iterable": lambda w: collections.abc.Iterable.register(w.Base),
    "registered number": lambda w: numbers.Number.register(w.Part),
    "metaclass repr": put("Meta", "__repr__", lambda cls: "meta"),
    "metaclass str": put("Meta", "__str__", lambda cls: "meta str"),
    "metaclass inequality": put("Meta", "__ne__", lambda cls, other: "unequal"),
    "equality": put("Base", "__eq__", lambda self, other: "equal"),
    "hook": put("Taken", "__subclasshook__", classmethod(lambda cls, kind: True)),
    "module getattr": put("module", "__getattr__", lambda name: 10),
    "module class": put("module", "__class__", Computed),
}


def answer(function: Callable[..., Any], world: World) -> Any:
    try:
        return function(torch.ones(2), world)[1]
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("question", QUESTIONS)
def test_late_change(question: str, change: str) -> None:
    asked = QUESTIONS[question]

    def program(x: torch.Tensor, world: World) -> Any:
        return x + 1, asked(world)

    worlds = World(), World()
    functions = program, windfall.compile(program, backend="eager", options={"strict": True})
    for act in (lambda world: None, CHANGES[change]):
        answers = []
        for function, world in zip(functions, worlds, strict=True):
            act(world)
            answers.append(answer(function, world))
        assert answers[0] == answers[1]


@pytest.mark.parametrize("gone", [None, types.ModuleType("other")])
def test_module_that_is_replaced(gone: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def program(x: torch.Tensor, used: bool) -> Any:
        import side_of_this_test as found  # type: ignore[import-not-found]

        return x + 1, found.__name__ if used else 0

    for used in (True, False):
        compiled = windfall.compile(program, backend="eager", options={"strict": True})
        for module in (types.ModuleType("side"), gone):
            monkeypatch.setitem(sys.modules, "side_of_this_test", module)
            answers = []
            for function in (program, compiled):
                try:
                    answers.append(function(torch.ones(1), used)[1])
                except ImportError as error:
                    answers.append(str(error))
            assert answers[0] == answers[1]


def test_slots_and_cells_that_are_emptied() -> None:
    class Slotted:
        __slots__ = ("value",)

    held, seen = Slotted(), []
    held.value = 1  # type: ignore[attr-defined]
    kept = 1

    def by_slot(x: torch.Tensor) -> Any:
        seen.append("before")
        return x + 1, held.value  # type: ignore[attr-defined]

    def by_cell(x: torch.Tensor) -> Any:
        seen.append("before")
        return x + 1, kept  # noqa: F821

    def traced(function: Callable[..., Any]) -> Any:
        seen.clear()
        try:
            return function(torch.ones(1))[1], list(seen)
        except (AttributeError, NameError) as error:
            trace = error.__traceback__
            while trace is not None and trace.tb_next is not None:
                trace = trace.tb_next
            return type(error), str(error), list(seen), trace and trace.tb_lineno

    programs = by_slot, by_cell
    compiled = [
        windfall.compile(one, backend="eager", options={"strict": True}) for one in programs
    ]
    for function, other in zip(programs, compiled, strict=True):
        assert traced(other) == traced(function)
    del held.value, kept  # type: ignore[attr-defined]
    for function, other in zip(programs, compiled, strict=True):
        assert traced(other) == traced(function)


@pytest.mark.parametrize("operation", ["==", "!=", "<", ">="])
@pytest.mark.parametrize("side", ["member first", "member last"])
def test_a_comparison_that_an_enumeration_gets_late(operation: str, side: str) -> None:
    class Colour(enum.Enum):
        RED = 1

    def f(a: Any) -> Any:
        left, right = (Colour.RED, a) if side == "member first" else (a, Colour.RED)
        return COMPARE[operation](left, right)

    compiled = windfall.compile(f, backend="eager")

    def outcome(function: Any, value: Any) -> Any:
        try:
            return function(value)
        except TypeError as error:
            return str(error)

    for value in (object(), Colour.RED, 1):
        assert outcome(compiled, value) == outcome(f, value)
    setattr(Colour, f"__{COMPARE[operation].__name__}__", lambda self, other: "mine")
    mirrored = {"<": ">", ">=": "<="}.get(operation, operation)
    setattr(Colour, f"__{COMPARE[mirrored].__name__}__", lambda self, other: "mine")
    for value in (object(), Colour.RED, 1):
        assert outcome(compiled, value) == outcome(f, value)


@pytest.mark.parametrize("name", ["__doc__", "__module__", "__name__", "__qualname__"])
@pytest.mark.parametrize("use", ["passed on", "shown", "compared", "asked of an object"])
@pytest.mark.parametrize("derived", [False, True], ids=["type", "a metaclass"])
def test_a_text_of_a_class_that_changes_and_goes(name: str, use: str, derived: bool) -> None:
    class Meta(type): ...

    kind: Any = (Meta if derived else type)("Kind", (), {"__module__": "here"})
    made = kind()
    uses: dict[str, Callable[[torch.Tensor], Any]] = {
        "passed on": lambda x: (getattr(kind, name), x + 1),
        "shown": lambda x: (f"{getattr(kind, name)}", x + 1),
        "compared": lambda x: x + 1 if getattr(kind, name) == "a" else x - 1,
        "asked of an object": lambda x: (getattr(made, name, "nothing"), x + 1),
    }
    compiled = windfall.compile(uses[use])

    def outcome(function: Callable[..., Any]) -> str:
        try:
            return str(function(torch.ones(1)))
        except (AttributeError, KeyError) as error:
            return f"{type(error)} {error}"

    def write(text: str) -> None:
        setattr(kind, name, text)

    def remove() -> None:
        with contextlib.suppress(TypeError, AttributeError):  # CPython keeps most
            delattr(kind, name)

    for change in (lambda: None, lambda: write("a"), remove, remove, lambda: write("b"), remove):
        change()
        for _ in range(2):
            assert outcome(compiled) == outcome(uses[use])
    assert not windfall.explanation(compiled).fallbacks
