"""Operands that an instruction does not take: the exception is CPython's own, class and words.

Each form is tried on every kind of operand, where the program catches what it raises (so that the
capture may tell it) and where it leaves the program (so that a native step raises it)."""

from __future__ import annotations

import collections
import enum
import functools
import re
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import windfall


class Plain:
    def __repr__(self) -> str:
        return "plain"


class Meta(type):
    def __repr__(cls) -> str:
        return "meta"


class WithMeta(metaclass=Meta):
    pass


class Counted:
    """The old protocol of iteration."""

    def __getitem__(self, index: int) -> int:
        return (7, 8)[index]


class Refuses:
    __iter__ = None
    __contains__ = None
    __reversed__ = None
    __hash__ = None
    __call__ = None
    __getitem__ = None
    __enter__ = None
    __exit__ = None
    __bool__ = None
    __len__ = None


class Wrong:
    """Special methods that answer what they must not."""

    def __iter__(self) -> Any:
        return 1

    def __reversed__(self) -> Any:
        return 2

    def __len__(self) -> Any:
        return -1

    def keys(self) -> Any:
        return 3

    def __enter__(self) -> int:
        return 4


class Raises:
    def __iter__(self) -> Any:
        raise TypeError("own words")

    def keys(self) -> Any:
        raise TypeError("own words")

    def __contains__(self, one: object) -> bool:
        raise TypeError("own words")


class Mapped:
    def keys(self) -> Any:
        return ["a", "b"]

    def __getitem__(self, key: str) -> int:
        return {"a": 1, "b": 2}[key]


class Numbers(list[int]):
    pass


class Table(dict[str, int]):
    pass


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class AClassWhoseNameIsSoLongThatCPythonCutsItInSomeOfItsMessages:
    pass


class Slotted:
    __slots__ = ("value",)
    cached = functools.cached_property(lambda self: 1)


class Unnamed:
    pass


setattr(Unnamed, "cached", functools.cached_property(lambda self: 1))  # noqa: B010


def function(*args: Any, **kwargs: Any) -> Any:
    return args, sorted(kwargs.items(), key=repr)


OPERANDS: dict[str, Callable[[], Any]] = {
    "int": lambda: 3,
    "None": lambda: None,
    "float": lambda: 1.5,
    "text": lambda: "ab",
    "empty": lambda: "",
    "tuple": lambda: (1, 2),
    "long": lambda: (1, 2, 3, 4),
    "list": lambda: [1],
    "pairs": lambda: [("a", 1)],
    "dict": lambda: {"a": 1},
    "numbered": lambda: {1: 2},
    "set": lambda: {1},
    "range": lambda: range(3),
    "slice": lambda: slice(1),
    "function": lambda: function,
    "builtin": lambda: len,
    "class": lambda: Plain,
    "builtin class": lambda: int,
    "class with metaclass": lambda: WithMeta,
    "plain": lambda: Plain(),
    "old protocol": lambda: Counted(),
    "refuses": lambda: Refuses(),
    "wrong": lambda: Wrong(),
    "raises": lambda: Raises(),
    "mapped": lambda: Mapped(),
    "slotted": lambda: Slotted(),
    "unnamed": lambda: Unnamed(),
    "generator": lambda: (one for one in (1, 2, 3)),
    "iterator": lambda: iter((1, 2, 3)),
    "tensor": lambda: torch.arange(3.0),
    "number tensor": lambda: torch.tensor(2.0),
    "size": lambda: torch.Size([3]),
    "dtype": lambda: torch.float32,
    "module": lambda: torch,
    "NotImplemented": lambda: NotImplemented,
    "True": lambda: True,
    "numbers": lambda: Numbers([1, 2]),
    "table": lambda: Table(a=1),
    "long name": lambda: AClassWhoseNameIsSoLongThatCPythonCutsItInSomeOfItsMessages(),
    "class of a long name": lambda: AClassWhoseNameIsSoLongThatCPythonCutsItInSomeOfItsMessages,
    "deque": lambda: collections.deque([1, 2]),
    "class of C": lambda: collections.deque,
    "ordered": lambda: collections.OrderedDict(a=1),
    "partial": lambda: functools.partial(function, 1),
    "enumeration": lambda: Colour,
    "member": lambda: Colour.RED,
    "bytes": lambda: b"ab",
    "complex": lambda: 1j,
    "parameter": lambda: torch.nn.Parameter(torch.ones(2)),
    "frozen set": lambda: frozenset([1]),
    "exception": lambda: ValueError("text"),
    "bound": lambda: "ab".upper,
    "large": lambda: 1 << 70,
}


def starred(a: Any) -> Any:
    return function(*a)


def starred_after(a: Any) -> Any:
    return function(1, *a)


def keywords(a: Any) -> Any:
    return function(**a)


def keywords_after(a: Any) -> Any:
    return function(a=1, **a)


def keywords_of_class(a: Any) -> Any:
    return Plain(**a)


def keywords_of_builtin(a: Any) -> Any:
    return sorted((1, 2), **a)


def starred_of_method(a: Any) -> Any:
    return [].append(*a)


def list_display(a: Any) -> Any:
    return [*a]


def tuple_display(a: Any) -> Any:
    return (0, *a)


def set_display(a: Any) -> Any:
    return {*a}


def dict_display(a: Any) -> Any:
    return {**a}


def key_of_display(a: Any) -> Any:
    return {a: 1} and 1


def member_of_display(a: Any) -> Any:
    return {a, 1} and 1


def unpack_two(a: Any) -> Any:
    first, second = a
    return first, second


def unpack_starred(a: Any) -> Any:
    first, *rest, last, least = a
    return first, rest, last, least


def contained(a: Any) -> Any:
    return 1 in a


def not_contained(a: Any) -> Any:
    return 1 not in a


def contained_in_dict(a: Any) -> Any:
    return a in {1: 2}


def loop(a: Any) -> Any:
    return [one for one in a]


def called(a: Any) -> Any:
    return a(1, 2, 3, 4)


def subscript(a: Any) -> Any:
    return a[0]


def subscript_by(a: Any) -> Any:
    return (1, 2)[a]


def subscript_of_dict(a: Any) -> Any:
    return {"x": 1}[a]


def subscript_store(a: Any) -> Any:
    a[0] = 1
    return a


def subscript_delete(a: Any) -> Any:
    del a[0]
    return a


def sliced(a: Any) -> Any:
    return a[0:1]


def reversed_(a: Any) -> Any:
    return [*reversed(a)]


def key_seen_again(a: Any) -> Any:
    return [*{a: 1}]


def truth(a: Any) -> Any:
    return (1 if a else 2), not a, a and 1, a or 2


def copied(a: Any) -> Any:
    return type(a.copy()).__name__, a.copy()


def ordered_after_object(a: Any) -> Any:
    return Plain() >= a


def length(a: Any) -> Any:
    return len(a)


def sorted_(a: Any) -> Any:
    return sorted(a)


def joined(a: Any) -> Any:
    return ",".join(a)


def zipped(a: Any) -> Any:
    return [*zip(a, (1, 2))]  # noqa: B905


def as_dict(a: Any) -> Any:
    return dict(a)


def largest(a: Any) -> Any:
    return max(a)


def larger(a: Any) -> Any:
    return max(a, 1)


def formatted(a: Any) -> Any:
    return f"{a:>9}"


def shown(a: Any) -> Any:
    return f"{a}", str(a), "%s" % (a,), format(a)  # noqa: UP031


def shown_inside(a: Any) -> Any:
    return ascii(a), format([a]), "%s" % a if not isinstance(a, dict | tuple) else 0  # noqa: UP031


def cached(a: Any) -> Any:
    return a.cached


def bound(a: Any) -> Any:
    return type(a.items).__name__, a.items, a.items.__self__ is a


def bound_slot(a: Any) -> Any:
    return type(a.__len__).__name__, a.__len__, a.__len__.__self__ is a


def bound_function(a: Any) -> Any:
    return a.__iter__.__func__.__name__


def entered(a: Any) -> Any:
    with a as inner:
        return inner


def ordered(a: Any) -> Any:
    return a < 1


def ordered_with_itself(a: Any) -> Any:
    return a >= a


def added(a: Any) -> Any:
    return a + 1


def added_to(a: Any) -> Any:
    return "x" + a


def in_place(a: Any) -> Any:
    a += None
    return a


def multiplied(a: Any) -> Any:
    return a @ 2


def negated(a: Any) -> Any:
    return -a


def inverted(a: Any) -> Any:
    return ~a


def raised(a: Any) -> Any:
    raise a


def raised_from(a: Any) -> Any:
    raise ValueError("text") from a


def caught_by(a: Any) -> Any:
    try:
        raise ValueError("text")
    except a:
        return 1


def identity(a: Any) -> Any:
    three = 3
    return a is three, three is a


def attribute(a: Any) -> Any:
    return a.nothing


def attribute_store(a: Any) -> Any:
    a.nothing = 1
    return a.nothing


def attribute_delete(a: Any) -> Any:
    del a.another


def rest_of_iterator(a: Any) -> Any:
    try:
        first, second = a
    except ValueError:
        return list(a)
    return first, second


class Keyed:
    """A mapping, of what it is told."""

    def __init__(self, *keys: Any, error: Exception | None = None) -> None:
        self.held, self.error = keys, error

    def keys(self) -> Any:
        return iter(self.held)

    def __getitem__(self, key: Any) -> Any:
        if self.error is not None:
            raise self.error
        return key


class Renamed(dict[Any, Any]):
    """Its methods are not asked, unless it iterates by one of its own."""

    def keys(self) -> Any:
        return ["other"]

    def __getitem__(self, key: Any) -> Any:
        return "asked"


class Iterated(Renamed):
    def __iter__(self) -> Any:
        return iter(["other"])


KEYWORDS: dict[str, Callable[[], Any]] = {
    "twice": lambda: {"a": 2},
    "once": lambda: {"b": 2},
    "no text": lambda: {1: 2},
    "mapping, twice": lambda: Keyed("b", "a"),
    "mapping, no text": lambda: Keyed(1, "b"),
    "mapping, no text, twice": lambda: Keyed(1, 1),
    "mapping without an item": lambda: Keyed("b", error=KeyError("c")),
    "mapping without two": lambda: Keyed("b", error=KeyError("c", "d")),
    "mapping without an attribute": lambda: Keyed("b", error=AttributeError("c")),
    "mapping that fails": lambda: Keyed("b", error=ValueError("c")),
    "keys that are none": lambda: Keyed([]),
    "subclass": lambda: Renamed(b=1),
    "subclass, twice": lambda: Renamed(a=1),
    "iterated subclass": lambda: Iterated(a=1),
    "number": lambda: 3,
    "pairs": lambda: [("a", 1)],
}
CALLED: dict[str, Any] = {
    "function": function, "class": Plain, "method": Wrong().__iter__, "lambda": lambda **b: b,
    "partial": functools.partial(function), "builtin": max, "method of C": "x".join, "number": 3,
    "type": dict, "with a metaclass": WithMeta,
}  # fmt: skip


@pytest.mark.parametrize("name", CALLED)
def test_keywords_are_told_with_the_name_of_what_is_called(name: str) -> None:
    called = CALLED[name]
    forms: list[Callable[[Any], Any]] = [
        lambda a: called(**a),
        lambda a: called(a=1, **a),
        lambda a: called(**a, a=1),
        lambda a: called(1, *(2,), **a, **a),
    ]
    for key, operand in KEYWORDS.items():
        for form in forms:
            compiled = windfall.compile(form, backend="eager", options={"strict": True})
            assert outcome(compiled, operand) == outcome(form, operand), key


FORMS = [
    one
    for one in list(vars().values())
    if getattr(one, "__code__", None) is not None and one.__code__.co_varnames[:1] == ("a",)
]


_ADDRESS = re.compile("0x[0-9a-f]+")


def caught(form: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def program(a: Any) -> Any:
        try:
            return form(a)
        except Exception as error:
            return type(error).__name__, str(error)

    return program


def outcome(program: Callable[[Any], Any], operand: Callable[[], Any]) -> Any:
    """What it answers or raises, with what it warns of."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            answer = program(operand())
        except Exception as error:
            answer = type(error), str(error), type(error.__context__)
    text = repr(sorted(map(repr, answer)) if isinstance(answer, set) else answer)
    return _ADDRESS.sub("", text), [(one.category, str(one.message)) for one in seen]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_misfits_are_told_in_cpythons_words(form: Callable[[Any], Any]) -> None:
    for name, operand in OPERANDS.items():
        for program in (form, caught(form)):
            compiled = windfall.compile(program, backend="eager", options={"strict": True})
            assert outcome(compiled, operand) == outcome(program, operand), name
