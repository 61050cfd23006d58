"""Every kind of check, native and in Python: what it accepts, what it refuses, and that no user
code runs and nothing is kept alive while it decides."""

from __future__ import annotations

import collections
import enum
import gc
import sys
import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
import torch

from tests.runtime.programs import ambient_guard, tensor_guard
from windfall import runtime
from windfall.ir.guard import (
    ABSENT,
    Check,
    ClassAttributesAre,
    Equals,
    Guard,
    HasKey,
    IdentityIs,
    KeysAre,
    LengthIs,
    MroLookupIs,
    SameObjects,
    TypeIs,
    first_failure,
)
from windfall.ir.source import (
    Attribute,
    CellContents,
    DictOf,
    Item,
    Known,
    Overlap,
    Slot,
    Source,
    TypeOf,
)

X = Slot(0, "x")
Y = Slot(1, "y")
MODES = pytest.mark.parametrize("native", [True, False], ids=["native", "python"])


def check_of(*guards: Guard, slots: int = 1, native: bool = True) -> Callable[..., bool]:
    made = runtime.compile_check(guards, slots, native=native)
    assert made.native is native
    return made.call


def guard(source: Source, check: Check) -> Guard:
    return Guard(source, check, "a test")


def judge(guards: Sequence[Guard], value: Any, native: bool) -> bool:
    """One slot; asked twice (caches), and once more of the oracle."""
    call = check_of(*guards, native=native)
    first, second = call(value), call(value)
    assert first is second
    assert first is all(first_failure([one], (value,)) is None for one in guards)
    return first


class Hostile:
    """Runs user code on whatever a careless check would touch."""

    def __eq__(self, other: object) -> bool:
        raise AssertionError("__eq__ ran")

    def __hash__(self) -> int:
        raise AssertionError("__hash__ ran")

    def __len__(self) -> int:
        raise AssertionError("__len__ ran")

    def __getitem__(self, key: object) -> object:
        raise AssertionError("__getitem__ ran")

    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"__getattr__({name}) ran")

    @property
    def __class__(self) -> type:  # type: ignore[override]
        raise AssertionError("__class__ ran")


class HostileList(list):  # type: ignore[type-arg]
    def __len__(self) -> int:
        raise AssertionError("__len__ ran")

    def __getitem__(self, key: object) -> object:
        raise AssertionError("__getitem__ ran")


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Pair(NamedTuple):
    left: int
    right: int


NAN = float("nan")
LONG = 2**100
BIG = 123456789012


def text(value: str) -> str:
    """The same text as another object."""
    return "".join(list(value))


EQUALITY: list[tuple[str, Any, list[Any], list[Any]]] = [
    ("none", None, [None], [0, False, "None", Hostile()]),
    ("true", True, [True], [False, 1, 1.0, None]),
    ("false", False, [False], [True, 0, 0.0, "", None]),
    ("ellipsis", ..., [...], [None]),
    ("small int", 3, [3, int("3")], [4, -3, 3.0, True, "3", LONG]),
    ("zero", 0, [0], [False, 0.0, -0.0, 1]),
    ("negative", -7, [-7], [7, -8, -7.0]),
    ("big int", BIG, [BIG, int(str(BIG))], [BIG + 1, -BIG, BIG + 2**60, float(BIG)]),
    ("long int", LONG, [int(str(LONG))], [LONG + 1, -LONG, LONG * 2**64, LONG >> 64]),
    ("float", 1.5, [1.5, float("1.5")], [1.25, 1, -1.5, NAN]),
    ("minus zero", -0.0, [-0.0], [0.0, 0]),
    ("nan", NAN, [NAN], [float("nan"), -float("nan"), 0.0, float("inf")]),
    ("nan in a tuple", (NAN, 1), [(NAN, 1)], [(float("nan"), 1), (0.0, 1)]),
    ("infinity", float("inf"), [float("inf")], [-float("inf"), NAN]),
    ("complex", 1 + 2j, [1 + 2j], [1 - 2j, 1.0]),
    ("string", "training", ["training", text("training")], ["Training", b"training", "", None]),
    ("wide string", "späße 🙂", [text("späße 🙂")], ["späße"]),
    ("bytes", b"ab", [b"ab", bytes(bytearray(b"ab"))], [b"ac", "ab"]),
    ("dtype", torch.float32, [torch.float], [torch.float64, "float32"]),
    ("device", torch.device("cpu"), [torch.device("cpu")], [torch.device("meta"), "cpu"]),
    ("tuple", (1, 2.0, "a"), [(1, 2.0, text("a"))], [(1, 2, "a"), (1, 2.0), [1, 2.0, "a"], ()]),
    ("empty tuple", (), [()], [[], (None,)]),
    ("nested", ((1,), (True, None)), [((1,), (True, None))], [((1,), (1, None)), ((1,),)]),
    ("named tuple", Pair(1, 2), [], [(1, 2), Pair(1, 2), Pair(1, 3)]),
    ("size", torch.Size([2, 3]), [torch.Size([2, 3])], [(2, 3), torch.Size([3, 2])]),
    ("slice", slice(1, None), [slice(1, None)], [slice(1, 2), None]),
    ("range", range(3), [range(3)], [range(4), [0, 1, 2]]),
    ("range with steps", range(0, 3, 2), [range(0, 3, 2)], [range(0, 4, 2)]),
    ("empty range", range(0), [range(0)], [range(5, 5), range(0, 0, 2), ()]),
    ("frozenset", frozenset({1, 2}), [frozenset({2, 1})], [frozenset({1}), {1, 2}]),
    ("frozenset of a bool", frozenset({True}), [frozenset({True})], [frozenset({1})]),
    ("enum", Colour.RED, [Colour.RED], [Colour.BLUE, 1]),
    ("class", int, [int], [bool, float]),
    ("in a tuple: bytes", (b"a", 1), [(b"a", 1)], [(b"b", 1)]),
]


@MODES
@pytest.mark.parametrize("case", EQUALITY, ids=[case[0] for case in EQUALITY])
def test_equals(case: tuple[str, Any, list[Any], list[Any]], native: bool) -> None:
    _, constant, same, different = case
    guards = [guard(X, Equals(constant))]
    assert judge(guards, constant, native)
    for value in same:
        assert judge(guards, value, native), value
    for value in different:
        assert not judge(guards, value, native), type(value)


CHECKS: list[tuple[str, list[Check], list[Any], list[Any]]] = [
    ("type", [TypeIs(list)], [[], [1]], [(), HostileList(), None, Hostile()]),
    ("length of list", [TypeIs(list), LengthIs(2)], [[1, 2]], [[1], [1, 2, 3], (1, 2)]),
    ("length of tuple", [TypeIs(tuple), LengthIs(0)], [()], [(1,), []]),
    ("length of dict", [TypeIs(dict), LengthIs(1)], [{1: 2}], [{}, {1: 1, 2: 2}, [1]]),
    ("length of set", [TypeIs(set), LengthIs(2)], [{1, 2}], [{1}, set()]),
    (
        "length of ordered dict",
        [TypeIs(collections.OrderedDict), LengthIs(1)],
        [collections.OrderedDict(a=1)],
        [collections.OrderedDict(), {"a": 1}],
    ),
    (
        "length of deque",
        [TypeIs(collections.deque), LengthIs(2)],
        [collections.deque([1, 2])],
        [collections.deque([1]), [1, 2]],
    ),
    ("length of anything", [LengthIs(2)], [[1, 2], (1, 2), {1, 2}, range(2)], [[1], 3, Hostile()]),
    ("length past user code", [LengthIs(1)], [HostileList([1])], [HostileList()]),
    (
        "keys",
        [KeysAre(("a", "b"))],
        [{"a": 1, "b": 2}, {text("a"): 1, "b": 0}],
        [
            {"b": 1, "a": 2},
            {"a": 1},
            {"a": 1, "b": 2, "c": 3},
            {"a": 1, "c": 2},
            {},
            [],
            None,
        ],
    ),
    ("no keys", [KeysAre(())], [{}], [{"a": 1}]),
    ("other keys", [KeysAre((1, "b"))], [{1: 0, "b": 0}], [{"b": 0, 1: 0}, {True: 0, "b": 0}]),
    ("has key", [HasKey("a", True)], [{"a": None}], [{}, {"b": 1}, ["a"], "a", Hostile()]),
    ("has no key", [HasKey("a", False)], [{}, {"b": 1}], [{"a": None}, ["b"], Hostile()]),
    ("has other key", [HasKey(1, True)], [{1: 0}], [{2: 0}, {}, [0, 1]]),
]


@MODES
@pytest.mark.parametrize("case", CHECKS, ids=[case[0] for case in CHECKS])
def test_containers(case: tuple[str, list[Check], list[Any], list[Any]], native: bool) -> None:
    _, checks, good, bad = case
    guards = [guard(X, check) for check in checks]
    for value in good:
        assert judge(guards, value, native), value
    for value in bad:
        assert not judge(guards, value, native), type(value)


class Slotted:
    __slots__ = ("first", "second")


class Plain:
    shared = 1

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


def make_function(value: Any) -> Callable[[], Any]:
    return lambda: value


def slotted(**fields: Any) -> Slotted:
    made = Slotted()
    for name, value in fields.items():
        setattr(made, name, value)
    return made


FUNCTION = make_function(5)
METHOD = Plain(a=1).__init__
WALKS: list[tuple[str, Source, list[Guard], Any, list[Any]]] = [
    ("dict", DictOf(X), [], {"a": 7}, []),
    ("attribute", Item(DictOf(X), "a"), [], Plain(a=7), [Plain(b=7), Plain(a=8), 3, Hostile()]),
    ("list item", Item(X, 1), [], [0, 7], [[7], [0, 8], [], 3, Hostile()]),
    ("last item", Item(X, -1), [], [0, 7], [[7, 8], []]),
    ("tuple item", Item(X, 0), [], (7,), [(8,), ()]),
    ("named tuple item", Item(X, 1), [], Pair(0, 7), [Pair(7, 0)]),
    ("past user code", Item(X, 0), [], HostileList([7]), [HostileList()]),
    ("dict item", Item(X, "k"), [], {"k": 7}, [{"k": 8}, {}, {"j": 7}, ["k"]]),
    ("int key", Item(X, 3), [], {3: 7}, [{4: 7}, {}]),
    ("none key", Item(X, None), [], {None: 7}, [{}, [7], (7,)]),
    ("tuple key", Item(X, (1, 2)), [], {(1, 2): 7}, [{}, {(1, 2): 8}]),
    ("deep", Item(Item(Item(X, 0), "k"), 0), [], [{"k": (7,)}], [[{"k": (8,)}], [{}], []]),
    ("cell", CellContents(X), [], types.CellType(7), [types.CellType(8), types.CellType(), 7]),
    (
        "closure",
        CellContents(Item(Attribute(X, "__closure__"), 0)),
        [],
        make_function(7),
        [make_function(8), lambda: 7, len, Hostile()],
    ),
    (
        "slot",
        Attribute(X, "second"),
        [guard(X, TypeIs(Slotted))],
        slotted(first=1, second=7),
        [slotted(first=7, second=1), slotted(first=1), Plain(second=7), Hostile()],
    ),
    ("slot of any", Attribute(X, "second"), [], slotted(second=7), [slotted(first=7), 3]),
    ("getter", Item(Attribute(X, "args"), 0), [], ValueError(7), [ValueError(8), ValueError()]),
]


@MODES
@pytest.mark.parametrize("case", WALKS[1:], ids=[case[0] for case in WALKS[1:]])
def test_walks(case: tuple[str, Source, list[Guard], Any, list[Any]], native: bool) -> None:
    _, source, before, good, bad = case
    guards = [*before, guard(source, Equals(7))]
    assert judge(guards, good, native)
    for value in bad:
        assert not judge(guards, value, native), type(value)


@MODES
def test_function_fields(native: bool) -> None:
    def function(a: int = 1, *, b: int = 2) -> int:
        return a + b

    fields = ("__code__", "__defaults__", "__kwdefaults__", "__globals__")
    guards = [guard(Attribute(X, name), IdentityIs(getattr(function, name))) for name in fields]
    assert judge(guards, function, native)
    function.__defaults__ = (5,)
    assert not judge(guards, function, native)
    guards = [guard(Attribute(X, "__closure__"), Equals(None))]
    assert judge(guards, function, native)
    assert not judge(guards, make_function(1), native)
    assert not judge(guards, len, native)


@MODES
@pytest.mark.parametrize("name", ["__name__", "__qualname__"])
def test_names_of_functions(native: bool, name: str) -> None:
    def function() -> None: ...

    of_class = guard(Attribute(X, name), Equals(getattr(Plain, name)))  # kept elsewhere
    assert judge([guard(X, TypeIs(type)), of_class], Plain, native)
    assert not judge([of_class], type("Other", (), {}), native)
    assert not judge([of_class], function, native)
    guards = [
        guard(X, TypeIs(types.FunctionType)),
        guard(Attribute(X, name), Equals(getattr(function, name))),
    ]
    assert judge(guards, function, native)
    setattr(function, name, "another")
    assert not judge(guards, function, native)
    assert not judge(guards, Plain, native)


@MODES
def test_bound_methods(native: bool) -> None:
    owner = Plain(a=1)
    guards = [
        guard(Attribute(X, "__func__"), IdentityIs(Plain.__init__)),
        guard(Attribute(X, "__self__"), IdentityIs(owner)),
    ]
    assert judge(guards, owner.__init__, native)
    assert not judge(guards, Plain(a=1).__init__, native)
    assert not judge(guards, len, native)


@MODES
def test_type_of_and_resolves(native: bool) -> None:
    class Base:
        def method(self) -> int:
            return 1

    class Derived(Base):
        pass

    guards = [
        guard(TypeOf(X), IdentityIs(Derived)),
        guard(TypeOf(X), MroLookupIs("method", Base.__dict__["method"])),
        guard(TypeOf(X), MroLookupIs("other", ABSENT)),
    ]
    value = Derived()
    call = check_of(*guards, native=native)
    assert call(value) and call(value)
    assert not call(Base())
    Base.other = 1  # type: ignore[attr-defined]
    assert not call(value)
    del Base.other  # type: ignore[attr-defined]
    assert call(value)
    Derived.method = lambda self: 2  # type: ignore[method-assign]
    assert not call(value)
    del Derived.method
    assert call(value)
    Base.method = lambda self: 3  # type: ignore[method-assign]
    assert not call(value)
    assert not judge([guard(X, MroLookupIs("a", ABSENT))], 3, native), "not a class"


@MODES
def test_answers_of_a_class(native: bool) -> None:
    class Base:
        def method(self) -> int:
            return 1

        def second(self) -> int:
            return 1

    class Derived(Base):
        pass

    found = (Base.__dict__["method"], ABSENT, Base.__dict__["second"])
    call = check_of(
        guard(X, ClassAttributesAre(("method", "other", "second"), found)), native=native
    )
    assert call(Derived) and call(Derived) and call(Base)
    for owner, name in ((Base, "other"), (Derived, "second"), (Derived, "method")):
        setattr(owner, name, lambda self: 2)
        assert not call(Derived)
        delattr(owner, name)
        assert call(Derived)
    before = Base.second
    Base.second = before  # type: ignore[method-assign]
    assert call(Derived), "the same object"
    del Base.method
    assert not call(Derived)
    assert not call(3) and not call(int)


@MODES
def test_class_dictionaries(native: bool) -> None:
    class Sample:
        value = 7

    call = check_of(guard(Item(DictOf(Known(Sample, "Sample")), "value"), Equals(7)), native=native)
    assert call(0)
    Sample.value = 8
    assert not call(0)
    Sample.value = 7
    assert call(0)
    del Sample.value
    assert not call(0)


@MODES
def test_same_objects(native: bool) -> None:
    same = check_of(guard(X, SameObjects((Y,), True)), slots=2, native=native)
    apart = check_of(guard(X, SameObjects((Y,), False)), slots=2, native=native)
    one, other = [1], [1]
    assert same(one, one) and not same(one, other)
    assert apart(one, other) and not apart(one, one)
    third = Item(Y, 0)
    none = check_of(guard(X, SameObjects((Y, third), False)), slots=2, native=native)
    assert none(one, [other])
    assert not none(one, [one]) and not none(one, [])
    many = tuple(Item(Y, place) for place in range(40))  # as of a model with many modules
    none = check_of(guard(X, SameObjects(many, False)), slots=2, native=native)
    assert none(one, [other] * 40)
    assert not none(one, [other] * 39 + [one])
    unwalkable = Attribute(Y, "real")
    both = check_of(guard(X, SameObjects((unwalkable,), True)), slots=2, native=native)
    assert both(5, 5) and not both(5, 6)


@MODES
def test_overlap(native: bool) -> None:
    base = torch.zeros(40)
    third = Item(Slot(2, "rest"), 0)
    example = base[:8]
    guards = [
        guard(Overlap((X,), (Y, third)), Equals(False)),
        tensor_guard(X, example),
        tensor_guard(Y, example),
        tensor_guard(third, torch.zeros(0)),
    ]
    call = check_of(*guards, slots=3, native=native)
    empty = [torch.zeros(0)]
    assert call(base[:8], base[8:16], empty)
    assert call(torch.zeros(8), torch.zeros(8), empty)
    assert not call(base[:8], base[7:15], empty)
    assert not call(base[7:15], base[:8], empty)
    assert not call(base[:8], base[:8], empty)
    assert call(base[:8], base[8:16], [base[4:4]]), "nothing overlaps with nothing"
    assert not call(base[:8], 3, empty) and not call(base[:8], base[8:16], [])
    both = check_of(
        guard(Overlap((X, Y), ()), Equals(False)),
        tensor_guard(X, example),
        tensor_guard(Y, example),
        slots=2,
        native=native,
    )
    assert both(base[:8], base[8:16]) and not both(base[:8], base[1:9])


@MODES
def test_globals_and_module_dictionaries(native: bool) -> None:
    module = types.ModuleType("sample")
    module.scale = 2  # type: ignore[attr-defined]
    call = check_of(
        guard(Item(DictOf(Known(module, "sample")), "scale"), Equals(2)),
        guard(DictOf(Known(module, "sample")), HasKey("other", False)),
        native=native,
    )
    assert call(0) and call(0)
    module.counter = 0  # type: ignore[attr-defined]
    for _ in range(5):
        module.counter += 1  # the version moves, what is read does not
        assert call(0)
    module.scale = 3  # type: ignore[attr-defined]
    assert not call(0)
    module.scale = 2  # type: ignore[attr-defined]
    assert call(0)
    module.other = 1  # type: ignore[attr-defined]
    assert not call(0)
    del module.other, module.scale
    assert not call(0)


@MODES
def test_an_instance_dictionary_that_is_replaced(native: bool) -> None:
    value = Plain(mode="train")
    call = check_of(guard(Item(DictOf(Known(value, "v")), "mode"), Equals("train")), native=native)
    assert call(0)
    value.__dict__ = {"mode": "eval"}
    assert not call(0)
    value.__dict__ = {"mode": "train"}
    assert call(0)


@MODES
def test_an_instance_without_a_dictionary_yet(native: bool) -> None:
    class Lazy:
        def __init__(self, mode: str) -> None:
            self.mode = mode

    call = check_of(
        guard(Item(DictOf(X), "mode"), Equals("train")),
        guard(Item(DictOf(Y), "mode"), Equals("eval")),
        slots=2,
        native=native,
    )
    for _ in range(50):
        assert call(Lazy("train"), Lazy("eval"))
        assert not call(Lazy("eval"), Lazy("eval"))


@MODES
def test_one_entry_serves_many_instances(native: bool) -> None:
    call = check_of(
        guard(Item(DictOf(X), "training"), Equals(True)),
        guard(Item(Item(DictOf(X), "table"), "k"), Equals(1)),
        native=native,
    )
    instances = [Plain(training=True, table={"k": 1}) for _ in range(5)]
    assert all(call(one) for one in instances * 2)
    instances[3].table["k"] = 2
    assert [call(one) for one in instances] == [True, True, True, False, True]


@MODES
def test_a_miss_half_way_leaves_nothing_behind(native: bool) -> None:
    call = check_of(
        guard(Item(X, "first"), Equals(1)), guard(Item(X, "second"), Equals(2)), native=native
    )
    good = {"first": 1, "second": 2}
    for bad in ({"first": 5}, {"second": 2}, {"first": 5, "third": 2}, {}, [1, 2]):
        assert call(good)
        assert not call(bad)
        assert call(good), bad


@MODES
def test_parameters_of_a_module(native: bool) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1))
    weights = [
        Item(Item(DictOf(Item(Item(DictOf(X), "_modules"), name)), "_parameters"), "weight")
        for name in ("0", "1")
    ]
    guards = [
        tensor_guard(weights[0], module[0].weight),
        tensor_guard(weights[1], module[1].weight),
    ]
    call = check_of(*guards, native=native)
    assert call(module) and call(module)
    module[0].weight = torch.nn.Parameter(torch.zeros(3, 2))
    assert call(module), "another parameter of the same kind"
    module[0].weight.data = torch.zeros(4, 2)
    assert not call(module), "no dictionary moved, yet the tensor is another"
    module[0].weight.data = torch.zeros(3, 2)
    assert call(module)
    module[1].weight.requires_grad_(False)
    assert not call(module)
    module[1].weight.requires_grad_()
    assert call(module)
    module[1] = torch.nn.Linear(3, 2)
    assert not call(module)
    module[1] = torch.nn.Linear(3, 1)
    assert call(module)
    del module[0]._parameters["weight"]
    assert not call(module)


@MODES
def test_an_identity_is_held_weakly_and_its_address_may_be_reused(native: bool) -> None:
    value = Plain(a=1)
    address = id(value)
    seen = weakref.ref(value)
    made = runtime.compile_check([guard(X, IdentityIs(value))], 1, native=native)
    call = made.call
    assert call(value)
    del made
    if native:
        del value
        gc.collect()
        assert seen() is None, "the check keeps nothing alive"
        for _ in range(1000):
            other = Plain(a=1)
            assert not call(other)
            if id(other) == address:
                break


def test_what_has_no_weak_references_is_held() -> None:
    value = [1]
    call = check_of(guard(X, IdentityIs(value)))
    assert call(value)
    assert sys.getrefcount(value) >= 3
    assert not call([1])


def test_checking_keeps_no_argument_alive() -> None:
    module = torch.nn.Linear(2, 2)
    weight = Item(Item(DictOf(X), "_parameters"), "weight")
    call = check_of(
        ambient_guard(),
        tensor_guard(weight, module.weight),
        tensor_guard(Y, torch.ones(2)),
        slots=2,
    )
    x = torch.ones(2)
    counts = [sys.getrefcount(one) for one in (module, module.weight, x)]
    for _ in range(100):
        assert call(module, x)
        assert not call(x, module)
    assert [sys.getrefcount(one) for one in (module, module.weight, x)] == counts
    seen = [weakref.ref(module), weakref.ref(module.weight), weakref.ref(x)]
    del module, x
    gc.collect()
    assert [one() for one in seen] == [None] * 3
    fresh = torch.nn.Linear(2, 2)
    assert call(fresh, torch.ones(2)), "nothing stale is read"


def test_a_check_in_python_runs_after_the_native_tier_and_may_change_nothing() -> None:
    # A complex number and a device have no native form; the rest of the guards has.
    guards = [
        guard(Item(X, 0), Equals(1j)),
        guard(Item(X, 1), Equals(torch.device("cpu"))),
        guard(Item(X, 2), Equals(3)),
    ]
    call = check_of(*guards)
    assert call([1j, torch.device("cpu"), 3])
    assert not call([1j, torch.device("cpu"), 4])
    assert not call([1j, torch.device("meta"), 3])
    assert not call([0.0, torch.device("cpu"), 3])
    assert not call([1j])


def test_the_common_kinds_need_no_python(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(guards: Sequence[Guard], names: Sequence[str]) -> Callable[..., bool]:
        raise AssertionError(f"left to Python: {[str(one) for one in guards]}")

    monkeypatch.setattr("windfall.runtime.guards.python_check", refuse)
    module = torch.nn.Linear(2, 2)
    weight = Item(Item(DictOf(X), "_parameters"), "weight")
    native = [
        ambient_guard(),
        tensor_guard(weight, module.weight),
        tensor_guard(Item(X, 3), torch.zeros(1, 2, 3, 4, 5, 6, 7)),
        guard(X, TypeIs(torch.nn.Linear)),
        guard(X, IdentityIs(module)),
        guard(DictOf(X), HasKey("bias", False)),
        guard(DictOf(X), KeysAre(("training",))),
        guard(Item(X, 0), LengthIs(2)),
        guard(Item(X, 0), TypeIs(list)),
        guard(X, SameObjects((Y,), False)),
        guard(TypeOf(X), MroLookupIs("forward", torch.nn.Linear.forward)),
        guard(Attribute(Y, "__code__"), IdentityIs(make_function.__code__)),
        guard(CellContents(Item(Attribute(Y, "__closure__"), 0)), Equals(1)),
        guard(Overlap((weight,), (Item(X, 3),)), Equals(False)),
        *(
            guard(X, Equals(value))
            for value in (None, True, 7, LONG, 2.5, -0.0, "text", (1, (2.0, "a")), torch.float32)
        ),
    ]
    runtime.compile_check(native, 2)
    with pytest.raises(AssertionError, match="left to Python"):
        runtime.compile_check([guard(X, Equals(b"bytes"))], 1)


def test_a_class_that_another_check_looks_at_is_still_checked() -> None:
    # This attribute has no native walk: then neither check may be left out.
    hidden = Attribute(X, "args")
    call = check_of(guard(hidden, TypeIs(tuple)), guard(hidden, LengthIs(1)))
    assert call(ValueError(1)) and not call(ValueError()) and not call(3)
    call = check_of(guard(X, TypeIs(tuple)), guard(X, LengthIs(1)))
    assert call((1,)) and not call([1]) and not call((1, 2))


def test_an_interrupt_during_the_python_tier_is_not_swallowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(check: LengthIs, value: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(LengthIs, "holds", interrupted)
    call = check_of(guard(X, LengthIs(1)))
    with pytest.raises(KeyboardInterrupt):
        call([1])


def test_the_first_failure_is_named() -> None:
    made = runtime.compile_check(
        [guard(Item(X, 0), Equals(1)), guard(X, TypeIs(list)), ambient_guard()], 1
    )
    assert made.first_failure([1]) is None
    wrong = made.first_failure([2])
    assert str(wrong) == "L['x'][0] == 1"
    assert wrong is not None and wrong.explain(([2],), {}) == "2"
    assert str(made.first_failure((1,))) == "L['x'] has type list"
    with torch.no_grad():
        failed = made.first_failure([1])
        assert failed is not None and "grad_enabled" in failed.explain(([1],), {})


def test_the_text_says_what_is_checked() -> None:
    made = runtime.compile_check(
        [guard(Item(DictOf(X), "training"), Equals(True)), guard(Y, TypeIs(int))], 2
    )
    assert made.text == (
        "def check(x, y):\n"
        "    try:\n"
        "        # L['y'] has type int: a test\n"
        "        if not check_1.holds(y): return False\n"
        "        # L['x'].__dict__['training'] == True: a test\n"
        "        value_1 = dict_of(x)\n"
        "        value_2 = item(value_1, 'training')\n"
        "        if not check_2.holds(value_2): return False\n"
        "        return True\n"
        "    except UNREADABLE:\n"
        "        return False\n"
    )


@MODES
def test_the_number_of_slots_counts(native: bool) -> None:
    call = check_of(guard(X, TypeIs(int)), slots=2, native=native)
    assert call(1, 2)
    assert not call(1) and not call() and not call(1, 2, 3)


@MODES
def test_no_guard_at_all(native: bool) -> None:
    call = check_of(slots=0, native=native)
    assert call() is True
