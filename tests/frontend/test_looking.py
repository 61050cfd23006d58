"""Looking is what guards: passing an object on asks nothing, everything else leaves a guard on it.

The pairs of kinds are the swap matrix's (test_swap.py); here stands what it cannot see: that there
is *no* guard where nobody looked, and that there is one where somebody did.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

import windfall
from windfall.frontend.values.base import Value
from windfall.frontend.values.unseen import Unseen, is_unseen, look, made_here, same, settled
from windfall.ir.source import Slot, Source


class Plain:
    pass


KINDS: list[Any] = [
    0, 1, 1.5, "text", None, True, b"x", (), (1,), [], [1], {}, {1: 2}, {1}, range(3), slice(1),
    Plain(), Plain, len, lambda: 1, types, torch.float32, torch.ones(2), torch.nn.Linear(1, 1),
    iter([1]), ValueError(1), ...,
]  # fmt: skip


def _kept(a: Any) -> Any:
    held = a
    return held


def _starred(*a: Any) -> Any:
    return a


PASSING: dict[str, Callable[..., Any]] = {
    "return": lambda a: a,
    "local": _kept,
    "tuple": lambda a: (a, 1),
    "list": lambda a: [a],
    "dict value": lambda a: {"a": a},
    "nested": lambda a: ([(a,)], {"b": [a]}),
    "through a call": lambda a: _kept(a),
    "through a keyword": lambda a: _kept(a=a),
    "through a star": lambda a: _starred(1, a),
    "through a closure": lambda a: (lambda: a)(),
    "through a default": lambda a: (lambda b=a: b)(),
    "indexed out of a tuple": lambda a: (1, a)[1],
    "read from a dict": lambda a: {"k": a}["k"],
    "unpacked": lambda a: [b for b in (2, a)][1],
    "appended": lambda a: (one := [], one.append(a), one)[2],
    "attribute of an object made here": lambda a: _Box(a).held,
}


class _Box:
    def __init__(self, held: Any) -> None:
        self.held = held


def _entries(compiled: Any) -> list[Any]:
    return list(windfall.cache_entries(compiled))


@pytest.mark.parametrize("name", PASSING)
def test_passing_on_guards_nothing(name: str) -> None:
    function = PASSING[name]
    compiled = windfall.compile(function, backend="eager")
    for kind in KINDS:
        assert _same_parts(compiled(kind), function(kind))
    (entry,) = _entries(compiled)
    assert not [one for one in entry.guards if "L['a']" in str(one)]


def _same_parts(one: Any, other: Any) -> bool:
    if type(one) in (list, tuple):
        return type(other) is type(one) and all(map(_same_parts, one, other))
    if type(one) is dict and one.keys() == other.keys():
        return all(_same_parts(one[key], other[key]) for key in one)
    return one is other


LOOKING: dict[str, Callable[..., Any]] = {
    "truth": lambda a: 1 if a else 2,
    "not": lambda a: not a,
    "and": lambda a: a and 1,
    "bool": lambda a: bool(a),
    "type": lambda a: type(a).__name__,
    "isinstance": lambda a: isinstance(a, int),
    "callable": lambda a: callable(a),
    "hasattr": lambda a: hasattr(a, "x"),
    "getattr": lambda a: getattr(a, "x", None),
    "is None": lambda a: a is None,
    "is": lambda a: a is Plain,
    "match": lambda a: _matched(a),
}


def _matched(a: Any) -> str:
    match a:
        case int():
            return "int"
        case []:
            return "empty"
        case {}:
            return "mapping"
    return "other"


@pytest.mark.parametrize("name", LOOKING)
@pytest.mark.parametrize("kind", range(len(KINDS)), ids=lambda index: type(KINDS[index]).__name__)
def test_looking_guards(name: str, kind: int) -> None:
    value = KINDS[kind]
    compiled = windfall.compile(LOOKING[name], backend="eager")
    try:
        compiled(value)
    except RuntimeError:  # the truth of some tensors
        assert isinstance(value, torch.Tensor)
    guards = [str(one) for entry in _entries(compiled) for one in entry.guards]
    assert any("L['a']" in one for one in guards), guards


# ----------------------------------------------------------------------------------------- the door


class _Kind(Value):
    __slots__ = ("real",)

    def __init__(self, real: Any, source: Source) -> None:
        super().__init__(source)
        self.real = real

    def python_type(self) -> type:
        return type(self.real)


class _Machine:
    """Counts how often something was seen."""

    def __init__(self) -> None:
        self.seen = 0

    def see(self, value: Any, source: Source) -> Value:
        self.seen += 1
        return _Kind(value, source)


@pytest.fixture
def machine() -> Any:
    return _Machine()


def _unseen(machine: Any) -> Any:
    return Unseen(machine, 7, Slot(0, "a"))


ASKING: dict[str, Callable[[Any], Any]] = {
    "isinstance": lambda one: isinstance(one, _Kind),
    "isinstance of the base": lambda one: isinstance(one, Value),
    "method": lambda one: one.python_type(),
    "attribute": lambda one: one.real,
    "getattr with a default": lambda one: getattr(one, "real", None),
    "hasattr": lambda one: hasattr(one, "real"),
    "writing an attribute": lambda one: setattr(one, "guarded", set()),
    "describe": lambda one: one.describe(),
    "__class__": lambda one: one.__class__,
    "look": look,
    "same": lambda one: same(one, one),
}
NOT_ASKING: dict[str, Callable[[Any], Any]] = {
    "source": lambda one: one.source,
    "repr": repr,
    "hash": hash,
    "identity": lambda one: one is None,
    "in a list": lambda one: [one],
    "as a key": lambda one: {one: 1},
    "settled": settled,
    "is_unseen": is_unseen,
    "made_here": lambda one: made_here(one, _Kind),
}


@pytest.mark.parametrize("name", ASKING)
def test_asking_looks_once(machine: Any, name: str) -> None:
    one = _unseen(machine)
    ASKING[name](one)
    assert machine.seen == 1 and not is_unseen(one)
    ASKING[name](one)
    assert machine.seen == 1


@pytest.mark.parametrize("name", NOT_ASKING)
def test_handing_on_does_not_look(machine: Any, name: str) -> None:
    one = _unseen(machine)
    NOT_ASKING[name](one)
    assert machine.seen == 0 and is_unseen(one)


def test_what_was_looked_at_stands_for_itself(machine: Any) -> None:
    one = _unseen(machine)
    assert settled(one) is one
    found = look(one)
    assert settled(one) is found is look(one)


class finfo:
    def __init__(self) -> None:
        self.x = 1


def test_a_class_is_not_known_by_its_name() -> None:
    """`torch.finfo` is a constant, a class of the user that has its name is not."""
    compiled = windfall.compile(lambda a: a.x + 1)
    made = finfo()
    assert compiled(made) == 2
    made.x = 5
    assert compiled(made) == 6
    limit = windfall.compile(lambda a: a.max, fullgraph=True)
    assert limit(torch.finfo(torch.float32)) == torch.finfo(torch.float32).max
    assert limit(torch.finfo(torch.float64)) == torch.finfo(torch.float64).max
    assert limit(torch.iinfo(torch.int8)) == 127


@pytest.mark.hides_errors
def test_verify_finds_what_is_not_covered(monkeypatch: pytest.MonkeyPatch) -> None:
    from windfall.frontend.values.outside import Outside

    monkeypatch.setattr(Outside, "_cover", lambda *arguments: None)
    compiled = windfall.compile(lambda a: 1 if a else 2, backend="eager", options={"verify": True})
    assert compiled(Plain) == 1
    (event,) = compiled.log.snapshot("fallback")
    assert "no guard says" in event.facts["reason"]
