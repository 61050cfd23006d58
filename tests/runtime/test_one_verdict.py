"""Every check of every object in every tier: one verdict, no user code, no reference kept."""

from __future__ import annotations

import abc
import collections
import gc
import itertools
import re
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from tests.runtime.objects import NOTING, RAN, Plain, everything, noting
from tests.runtime.programs import ambient_guard
from windfall import runtime, torch_abi
from windfall.ir import guard as guard_module
from windfall.ir.constants import written
from windfall.ir.dtype import TensorType
from windfall.ir.guard import (
    ABSENT,
    BindsSymbol,
    Check,
    ClassAttributesAre,
    Compares,
    ComparesWith,
    ContentsAre,
    Equals,
    Guard,
    HasKey,
    IdentityIs,
    ItemsAre,
    KeysAre,
    LengthIs,
    MroLookupIs,
    PlainLeaf,
    RegistrationsAre,
    SameObjects,
    ScalarWithin,
    TensorIs,
    TypeIs,
    WeakIdentity,
    first_failure,
)
from windfall.ir.reading import class_name, facts, is_among
from windfall.ir.source import (
    Attribute,
    BoundTo,
    ByMethod,
    CellContents,
    DictOf,
    Item,
    ItemOfObject,
    KeysOf,
    Slot,
    Source,
    TypeOf,
)
from windfall.ir.symint import size_symbol, symbol

X, Y = Slot(0, "x"), Slot(1, "y")
OBJECTS = everything()
KINDS = list({id(type(value)): type(value) for value in OBJECTS}.values())
# Classes of which an object can be the same constant as another object.
_BY_VALUE = (
    int,
    bool,
    float,
    complex,
    str,
    bytes,
    tuple,
    list,
    range,
    slice,
    frozenset,
    torch.Size,
)
_VALUES = (*_BY_VALUE, torch.dtype, torch.device, torch.layout, type)
_LENGTHS = (0, 1, 2, 3)


def _of_objects() -> Iterator[Check]:
    for one in OBJECTS:
        kind = type(one)
        yield TypeIs(kind)
        yield IdentityIs(one)
        if isinstance(IdentityIs(one).weakly(), WeakIdentity):
            yield IdentityIs(one).weakly()
        if is_among(kind, _VALUES):
            yield Equals(one)
        if issubclass(kind, torch.Tensor) and len(facts(one).strides) == len(facts(one).sizes):
            yield TensorIs(TensorType(*facts(one)), kind, torch_abi.dispatch_keys(one))
        if issubclass(kind, type) and kind is type:
            yield MroLookupIs("method", Plain.__dict__["method"])
            yield MroLookupIs("method", ABSENT)


def _of_values() -> Iterator[Check]:
    for count in _LENGTHS:
        yield LengthIs(count)
        yield from (LengthIs(count, kind) for kind in (list, tuple, dict, set, range, str))
    for keys in ((), ("a",), ("b",), ("a", "b"), ("b", "a"), (1,), (True,), (None,), (1 << 70,)):
        yield KeysAre(keys)
    for one in ([], {}, {"a": 1}, [1, 2], {1}, [Plain]):
        yield ContentsAre.of(one)
    for key in ("a", "training", 1, 1.0, True, None, b"a", (1,), Plain, 1 << 70):
        yield HasKey(key, True)
        yield HasKey(key, False)
    for operation in ("==", "!=", "<", ">="):
        for other in (0.0, -0.0, 2.5, 3, float("nan"), (1 << 53) + 1, None):
            yield Compares(operation, other, True)
            yield Compares(operation, other, False)
    for bounds in ((0.0, 8.0), (1.0, 1.0), (-1.5, 2.5)):
        yield ScalarWithin(*bounds, True)
        yield ScalarWithin(*bounds, False)
    yield PlainLeaf()
    yield BindsSymbol(size_symbol("s0", 4))
    yield BindsSymbol(symbol("n0", -1, 1 << 40))
    yield BindsSymbol(symbol("n1", None, None))
    yield RegistrationsAre(abc.get_cache_token())
    yield RegistrationsAre(-1)
    yield ClassAttributesAre(("method", "other"), (Plain.__dict__["method"], ABSENT))
    yield ItemsAre(("a",), (1,))
    yield ItemsAre(("absent",), (Plain,))


CHECKS: list[Check] = [*_of_objects(), *_of_values()]


def named(value: Any) -> str:
    """For messages: not even those run user code."""
    return f"{written(value)} of {class_name(type(value))}"


class Tiers:
    """A guard, judged by the predicate, by generated Python, by machine code."""

    def __init__(self, *guards: Guard) -> None:
        self.guards = guards
        python = runtime.compile_check(guards, 1, native=False)
        native = runtime.compile_check(guards, 1)
        assert native.native
        self.calls: list[Callable[[Any], bool]] = [
            self._oracle,
            python.call,
            native.call,
            native.call,  # which may remember something of the call before
        ]

    def _oracle(self, value: Any) -> bool:
        return first_failure(self.guards, (value,)) is None

    def __call__(self, value: Any, about: Any) -> bool:
        verdicts = [call(value) for call in self.calls]
        said = [str(one) for one in self.guards]
        assert len(set(verdicts)) == 1, f"{said} of {named(about)}: {verdicts}"
        assert not RAN, f"{said} of {named(about)} ran {RAN}"
        return verdicts[0]


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    RAN.clear()


def test_every_kind_of_check_is_tried() -> None:
    known = [one for one in vars(guard_module).values() if isinstance(one, type)]
    kinds = {one.__name__ for one in known if issubclass(one, Check) and one is not Check}
    apart = {
        "ComparesWith",
        "SameObjects",
        "Holds",
        "AmbientIs",
    }  # their sources are of other sorts
    assert {type(one).__name__ for one in CHECKS} | apart == kinds


def test_every_tier_gives_one_verdict() -> None:
    held = 0
    for check in CHECKS:
        RAN.clear()
        judge = Tiers(Guard(X, check, ""))
        for value in OBJECTS:
            verdict = judge(value, value)
            held += verdict
            assert check.holds(value) is verdict, f"{check} of {named(value)}"
            assert (
                not verdict or check.implied_class() is None or check.implied_class() is type(value)
            )
    assert held > len(CHECKS), "most checks hold of something"


KEY = torch.nn.Parameter(torch.ones(2))
NUMBERS = (0.0, -0.0, 1.0, 2.0, 2.5, 8.0, 9.0, -1.0, 2.0**40, 1e300, -1e300)


def test_what_a_tensor_holds() -> None:
    """Machine code reads it where a record before has seen the tensor."""
    numbers = (*NUMBERS, float("nan"), float("inf"), -float("inf"))
    for dtype in (torch.float32, torch.float64):
        one = torch.zeros((), dtype=dtype)
        seen = TensorIs(TensorType.of(one), torch.Tensor, torch_abi.dispatch_keys(one))
        for low, high, whole in itertools.product((0.0, 1.0, -1e30), (1.0, 8.0, 1e30), (0, 1)):
            check = ScalarWithin(low, high, bool(whole))
            judge = Tiers(Guard(X, seen, ""), Guard(X, check, ""))
            for number in numbers:
                held = torch.tensor(number, dtype=dtype)
                value = held.item()
                wanted = low <= value <= high and not (whole and value != int(value))
                assert judge(held, held) is wanted
                row = torch.tensor([0.0, number], dtype=dtype)[1]
                assert judge(row, row) is wanted


def _heard(way: str) -> tuple[torch.Tensor, object]:
    """A leaf that somebody listens to, and what has to stay alive for it."""
    leaf = torch.ones(3, requires_grad=True)
    node = torch.autograd.graph.get_gradient_edge(leaf).node
    if way in ("register_hook", "register_prehook"):
        return leaf, (node, getattr(node, way)(print))
    return leaf, (node, getattr(leaf, way.removeprefix("tensor."))(print))


def test_leaves_that_nobody_listens_to() -> None:
    """Machine code reads it where a record before has seen the tensor."""
    plain = torch.ones(3, requires_grad=True)
    kind = TensorIs(TensorType.of(plain), torch.Tensor, torch_abi.dispatch_keys(plain))
    judge = Tiers(Guard(X, kind, ""), Guard(X, PlainLeaf(), ""))
    assert judge(plain, plain)
    (plain * 2).sum().backward()  # which has made an accumulator, and let it go
    assert judge(plain, plain)
    result = plain * 2  # which holds one
    assert judge(plain, plain)
    assert not judge(result, result)
    assert not judge(torch.ones(2, 3, requires_grad=True)[0], "a view with a history")
    for way in ("register_hook", "register_prehook", "tensor.register_hook"):
        leaf, alive = _heard(way)
        assert not judge(leaf, way), alive
    leaf, alive = _heard("tensor.register_post_accumulate_grad_hook")
    assert not judge(leaf, alive)
    alive[1].remove()  # type: ignore[index]
    assert torch_abi.is_plain_leaf(leaf) is judge(leaf, "nobody any more")


def test_gradients_are_walked_to() -> None:
    """Also where no Python object stood for the gradient before, and none is kept by the walk."""
    owner = torch.nn.Parameter(torch.ones(3))
    (owner * 2).sum().backward()  # made by C++ alone
    place = Attribute(X, "grad")
    seen = Guard(X, TypeIs(torch.nn.Parameter), "")
    grad = TensorType.contiguous(torch.float32, (3,))
    keys = torch_abi.dispatch_keys(torch.ones(3))
    judge = Tiers(seen, Guard(place, TensorIs(grad, torch.Tensor, keys), ""))
    assert judge(owner, owner)
    owner.grad.note = "kept"  # type: ignore[union-attr]
    references = sys.getrefcount(owner.grad)
    for _ in range(3):
        assert judge(owner, owner)
    now = sys.getrefcount(owner.grad)
    assert now == references
    assert owner.grad.note == "kept"  # type: ignore[union-attr]
    owner.grad = torch.ones(3)
    assert judge(owner, owner)
    owner.grad = None
    assert not judge(owner, owner)
    assert Tiers(seen, Guard(place, IdentityIs(None), ""))(owner, owner)
    assert not judge(torch.ones(3), "a tensor of another class")
    assert not judge(None, None)


def test_keys_that_are_tensors() -> None:
    other = torch.nn.Parameter(torch.ones(2))
    for kind in (dict, lambda items: collections.defaultdict(list, items)):
        for present in (True, False):
            judge = Tiers(Guard(X, TypeIs(type(kind({}))), ""), Guard(X, HasKey(KEY, present), ""))
            for items, has in (({}, False), ({KEY: 1}, True), ({other: 1}, False)):
                assert judge(kind(items), items) is (has is present)


WRAPPED: list[tuple[Source, Callable[[Any], Any]]] = [
    (Item(X, 0), lambda value: [value]),
    (Item(X, "k"), lambda value: {"k": value}),
    (Item(X, 1.5), lambda value: {1.5: value}),
    (Item(DictOf(X), "field"), lambda value: _with_field(value)),
    (Item(DictOf(X), "field"), lambda value: type("Owner", (), {"field": value})),
    (ByMethod(X, dict, "__getitem__", ("k",)), lambda value: noting(dict)({"k": value})),
    (ItemOfObject(X, KEY), lambda value: {1: 2, KEY: value}),
    (ItemOfObject(X, KEY), lambda value: collections.defaultdict(list, {KEY: value})),
]


def _with_field(value: Any) -> Plain:
    made = Plain()
    made.__dict__["field"] = value
    return made


def _name(place: Source) -> str:
    """The same in every process: a key may be an object that prints its address."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(place))


@pytest.mark.parametrize("source", range(len(WRAPPED)), ids=lambda one: _name(WRAPPED[one][0]))
def test_so_it_does_behind_a_read(source: int) -> None:
    place, wrap = WRAPPED[source]
    holders = [(wrap(value), value) for value in OBJECTS]
    RAN.clear()
    for check in CHECKS[:: len(WRAPPED) + 1]:
        judge = Tiers(Guard(place, check, ""))
        for holder, value in holders:
            assert judge(holder, value) is check.holds(value)


STEPS: list[Source] = [
    DictOf(X),
    Item(X, 0),
    Item(X, -1),
    Item(X, "a"),
    Item(X, None),
    Attribute(X, "first"),
    Attribute(X, "__code__"),
    Attribute(X, "__self__"),
    Attribute(X, "shape"),
    Attribute(X, "__dict__"),
    CellContents(X),
    TypeOf(X),
    BoundTo(X),
    KeysOf(X),
    ByMethod(X, dict, "keys"),
    KeysOf(ByMethod(X, dict, "keys")),
    ByMethod(X, dict, "__getitem__", ("a",)),
    ByMethod(X, dict, "get", ("a",)),
    ByMethod(X, list, "__len__"),
    ByMethod(X, tuple, "__getitem__", (0,)),
]


@pytest.mark.parametrize("place", STEPS, ids=_name)
def test_every_read_of_everything(place: Source) -> None:
    checks = [TypeIs(int), TypeIs(dict), Equals(1), Equals(()), Equals(("a",)), LengthIs(1)]
    checks += [
        HasKey("a", True),
        HasKey("field", False),
        KeysAre(("a",)),
        BindsSymbol(symbol("n", 0, 9)),
    ]
    checks += [IdentityIs(type), Equals(Plain)]
    for check in checks:
        judge = Tiers(Guard(place, check, ""))
        for value in OBJECTS:
            judge(value, value)
    for kind in KINDS:  # machine code knows more ways where the class is known
        typed = Guard(X, TypeIs(kind), "")
        judges = [Tiers(typed, Guard(place, check, "")) for check in checks[::3]]
        for value in (one for one in OBJECTS if type(one) is kind):
            for judge in judges:
                judge(value, value)


def test_a_length_beside_a_class() -> None:
    for kind in KINDS:
        for count in _LENGTHS:
            guards = [Guard(X, TypeIs(kind), ""), Guard(X, LengthIs(count), "")]
            judge, one = Tiers(*guards), Tiers(*guard_module.simplified(guards))
            for value in OBJECTS:
                wanted = all(each.check.holds(value) for each in guards)
                assert judge(value, value) is one(value, value) is wanted


def test_two_numbers_beside_each_other() -> None:
    numbers = [0.0, -0.0, 2.5, 3.0, float("nan"), float("inf"), 3, True, None, "a", Plain()]
    held = 0
    for operation in ("==", "!=", "<", "<=", ">", ">="):
        for outcome in (True, False):
            guards = [Guard(X, ComparesWith(operation, Y, outcome), "")]
            calls = [
                runtime.compile_check(guards, 2, native=native).call for native in (True, False)
            ]
            for first in numbers:
                for second in numbers:
                    wanted = False
                    if type(first) is type(second) is float:
                        wanted = eval(f"first {operation} second") is outcome
                    assert {call(first, second) for call in calls} == {wanted}
                    assert (first_failure(guards, (first, second)) is None) is wanted
                    held += wanted
    assert held
    assert not RAN


def test_the_same_object_or_another() -> None:
    for same in (True, False):
        guards = [Guard(X, SameObjects((Y,), same), "")]
        calls = [runtime.compile_check(guards, 2, native=native).call for native in (True, False)]
        for first in OBJECTS[::3]:
            for second in OBJECTS[::7]:
                wanted = (first is second) is same
                assert {call(first, second) for call in calls} == {wanted}
                assert (first_failure(guards, (first, second)) is None) is wanted
    assert not RAN


@pytest.mark.parametrize(
    "mode",
    [torch.no_grad, torch.inference_mode, lambda: torch.autocast("cpu"), torch.enable_grad],
    ids=["no_grad", "inference_mode", "autocast", "enable_grad"],
)
def test_the_state_of_the_thread(mode: Callable[[], Any]) -> None:
    outside = Tiers(ambient_guard())
    with mode():
        inside = Tiers(ambient_guard())
        assert inside(None, None)
        verdict = outside(None, None)
    assert outside(None, None) and inside(None, None) is verdict


def test_every_check_can_be_told() -> None:
    for check in CHECKS:
        texts = [str(check), check.expected()]
        texts += [check.explain(value) for value in OBJECTS[::5]]
        assert all(type(one) is str and one for one in texts)
        assert not RAN, f"{type(check).__name__} ran {RAN}"


def test_nothing_is_kept() -> None:
    gc.collect()
    gc.disable()
    try:
        judges = [Tiers(Guard(X, check, "")) for check in CHECKS[::2]]
        for make in (Plain, noting(), noting(list), noting(dict), lambda: torch.zeros(2, 3)):
            value = make()
            gone, before = weakref.ref(value), sys.getrefcount(value)
            for judge in judges:
                judge(value, value)
            assert sys.getrefcount(value) == before
            del value
            assert gone() is None
    finally:
        gc.enable()


def test_an_object_that_is_gone_is_nothing() -> None:
    held = Plain()
    check = IdentityIs(held).weakly()
    assert isinstance(check, WeakIdentity) and check.holds(held)
    judge = Tiers(Guard(X, IdentityIs(held), ""))
    assert judge.calls[1](held) and judge.calls[2](held)
    judge.guards = (judge.guards[0].weakly(),)
    del held
    assert str(check).endswith("(gone)")
    for value in (None, Plain(), 1):
        assert not check.holds(value) and not judge(value, value)


def test_the_methods_do_note_that_they_ran() -> None:
    RAN.clear()
    for ask in (len, hash, iter, repr, lambda one: one == 1, lambda one: one.__class__):
        with pytest.raises(ZeroDivisionError):
            ask(noting()())
    assert len(RAN) == 6 and set(RAN) <= NOTING.keys()
    RAN.clear()
