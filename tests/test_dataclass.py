"""`windfall.dataclass` against the standard library's: one class text, made by both."""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
import pickle
import textwrap
import typing
from collections.abc import Callable
from typing import Any

import pytest

from windfall import dataclass as ours

WORDS = [
    {"frozen": frozen, "slots": slots, "eq": eq}
    for frozen, slots, eq in itertools.product((False, True), repeat=3)
]
CLASSES = {
    "none": "class C:\n    '''Nothing.'''",
    "one": "class C:\n    '''One.'''\n    a: object",
    "defaults": """
        class C:
            '''Each way to have a value.'''
            a: int
            b: int = 2
            c: list = dataclasses.field(default_factory=list)
            d: int = dataclasses.field(default=4, compare=False)
            e: int = dataclasses.field(default=5, init=False)
            f: list = dataclasses.field(default_factory=list, init=False, repr=False)
            g: int = dataclasses.field(default=7, kw_only=True)
            kind: typing.ClassVar[str] = "kind"
    """,
    "after": """
        class C:
            '''A field that is written behind the others.'''
            a: int
            b: int = dataclasses.field(init=False, default=0)

            def __post_init__(self):
                object.__setattr__(self, "b", self.a + 1)
    """,
    "own": """
        class C:
            '''Its own methods.'''
            a: int

            def __repr__(self):
                return "own"

            def __eq__(self, other):
                return isinstance(other, C)

            def __hash__(self):
                return 3
    """,
    "derived": """
        class B:
            '''A base.'''
            a: int
            b: int = 1
        B = made(B)
        class C(B):
            '''With one more, and another default.'''
            b: int = 10
            c: int = 3
    """,
}
VALUES: dict[str, tuple[Any, ...]] = {"none": (), "one": (float("nan"),)}


def made_by(dataclass: Callable[..., Any], text: str, words: dict[str, Any]) -> Any:
    names: dict[str, Any] = {
        "dataclasses": dataclasses,
        "typing": typing,
        "made": dataclass(**words),
    }
    names["__name__"] = __name__  # where the library looks up what annotations mean
    exec(textwrap.dedent(text), names)
    return dataclass(**words)(names["C"])


def outcome(action: Callable[[], Any]) -> Any:
    try:
        return action()
    except Exception as error:
        # With slots the library's `super()` knows the class before it was made anew: a TypeError.
        refused = isinstance(error, (AttributeError, TypeError))
        return "refused" if refused else type(error)


def behaviour(cls: Any, args: tuple[Any, ...]) -> dict[str, Any]:
    """All that can be seen of a class and of objects of it, as plain values."""
    one, other, odd = cls(*args), cls(*args), cls(*[9 for _ in args])
    names = [field.name for field in dataclasses.fields(cls)]
    seen: dict[str, Any] = {
        "text": repr(one),
        "equal": (one == other, one != other, one == odd, one == 3, one == one),
        "hash": outcome(lambda: hash(one) == hash(other)),
        "hashed": cls.__hash__ is None,
        "fields": names,
        "match": cls.__match_args__,
        "values": [getattr(one, name) for name in names],
        "slots": getattr(cls, "__slots__", None),
        "dict": hasattr(one, "__dict__"),
        "shared": [getattr(one, name) is getattr(other, name) for name in names],
        "qualname": (cls.__qualname__, cls.__doc__, cls.__module__),
        "copy": outcome(lambda: repr(copy.copy(one))),
        "deep": outcome(lambda: repr(copy.deepcopy(one))),
        "pickle": outcome(lambda: type(pickle.loads(pickle.dumps(one)))),
        "extra": outcome(lambda: setattr(one, "not_there", 1)),
        "many": outcome(lambda: cls(*range(20))),
        "unknown": outcome(lambda: cls(*args, not_there=1)),
        "few": outcome(lambda: cls(*args[1:])) if args else None,
    }
    for name in names:
        changed = {name: 8}
        seen[f"set {name}"] = outcome(functools.partial(setattr, one, name, 1))
        seen[f"replace {name}"] = outcome(functools.partial(dataclasses.replace, other, **changed))
        seen[f"delete {name}"] = outcome(functools.partial(delattr, one, name))
    if "g" in names:
        seen["keyword"] = repr(cls(*args, g=70))
    return seen


@pytest.mark.parametrize("words", WORDS, ids=str)
@pytest.mark.parametrize("kind", CLASSES)
def test_classes_behave_as_the_librarys(kind: str, words: dict[str, Any]) -> None:
    args = VALUES.get(kind, (1,))
    one, other = (
        made_by(by, CLASSES[kind], words) for by in (ours.dataclass, dataclasses.dataclass)
    )
    assert repr(behaviour(one, args)) == repr(behaviour(other, args))


def test_init_is_compiled_by_the_first_object() -> None:
    cls = made_by(ours.dataclass, CLASSES["one"], {"frozen": True, "slots": True})
    before = vars(cls)["__init__"]
    cls(1)
    after = vars(cls)["__init__"]
    cls(2)
    assert before is not after
    assert cls.__init__ is after is vars(cls)["__init__"]
    assert after.__qualname__ == "C.__init__"


def test_unknown_words_are_refused() -> None:
    with pytest.raises(TypeError, match="order"):
        made_by(ours.dataclass, CLASSES["one"], {"order": True})


def test_plain_classes_derived_of_frozen_ones_have_attributes_of_their_own() -> None:
    base = made_by(ours.dataclass, CLASSES["one"], {"frozen": True})
    one = type("D", (base,), {})(1)
    one.more = 2
    assert one.more == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.a = 3


def test_the_library_derives_from_ours_and_ours_from_the_librarys() -> None:
    words = {"frozen": True, "slots": True}
    for first, second in itertools.permutations((ours.dataclass, dataclasses.dataclass)):
        base = made_by(first, CLASSES["one"], words)
        derived: Any = second(**words)(
            type("D", (base,), {"__annotations__": {"b": "int"}, "b": 2})
        )
        assert derived(1) == derived(1, 2) != derived(1, 3)
        assert repr(derived(1)) == "D(a=1, b=2)"
        assert derived.__slots__ == ("b",)
        with pytest.raises(dataclasses.FrozenInstanceError):
            derived(1).a = 2


def test_a_type_whose_name_begins_alike_is_a_field() -> None:
    cls = made_by(ours.dataclass, "class C:\n    a: ClassVariable\n    b: InitVariables", {})
    assert repr(cls(1, 2)) == "C(a=1, b=2)"


def test_what_is_not_known_is_refused() -> None:
    for kind in ("dataclasses.InitVar[int]", "dataclasses.KW_ONLY"):
        with pytest.raises(TypeError, match="not known"):
            made_by(ours.dataclass, f"class C:\n    a: {kind}", {})
    with pytest.raises(TypeError, match="_missing"):
        made_by(ours.dataclass, "class C:\n    _missing: int", {})(1)
    with pytest.raises(ValueError, match="mutable default"):
        made_by(ours.dataclass, "class C:\n    a: list = []", {})


def test_text_of_one_that_holds_itself() -> None:
    cls = made_by(ours.dataclass, CLASSES["one"], {})
    one = cls([])
    one.a.append(one)
    assert repr(one) == "C(a=[...])"
