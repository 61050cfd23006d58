"""The call path of a compiled object."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.runtime.programs import add_one, add_one_segment, segment
from windfall import runtime
from windfall.ir.guard import Equals, Guard
from windfall.ir.source import Slot
from windfall.ir.stages import MISS, Entry

BOTH = pytest.mark.parametrize("native", [True, False], ids=["native", "python"])


def slow(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
    return "slow", args, kwargs


def entry_for(value: int, body: str = "('entry', x)", native: bool = True) -> Entry:
    made = segment(
        [Guard(Slot(0, "x"), Equals(value), "")], [], source=f"def f(x):\n    return {body}\n"
    )
    return runtime.enter(made, None, None, native=native)


@BOTH
def test_entries_in_turn_then_the_slow_path(native: bool) -> None:
    call = runtime.dispatcher(
        [entry_for(1, "'one'"), entry_for(2, "'two'"), entry_for(1, "'never'")], slow, native=native
    )
    assert call(1) == "one" and call(2) == "two"
    assert call(3) == ("slow", (3,), {})
    assert call() == ("slow", (), {}) and call(1, 2) == ("slow", (1, 2), {})


@BOTH
def test_keywords_go_the_slow_path_as_they_came(native: bool) -> None:
    call = runtime.dispatcher([entry_for(1)], slow, native=native)
    assert call(1, y=2) == ("slow", (1,), {"y": 2})
    assert call(x=1) == ("slow", (), {"x": 1})
    assert call(*(1,), **{}) == ("entry", 1)


@BOTH
def test_exceptions_pass_through(native: bool) -> None:
    def failing(*args: Any) -> None:
        raise LookupError("slow")

    call = runtime.dispatcher([entry_for(1, "1 // 0")], failing, native=native)
    with pytest.raises(ZeroDivisionError):
        call(1)
    with pytest.raises(LookupError):
        call(2)


@BOTH
def test_entries_may_be_replaced_also_during_a_call(native: bool) -> None:
    calls: list[Any] = []

    def compile_missing(x: int) -> str:
        calls.append(x)
        runtime.replace_entries(call, [entry_for(x, f"'entry for {x}'")])
        return "compiled"

    call: Callable[..., Any] = runtime.dispatcher([], compile_missing, native=native)
    assert [call(5), call(5), call(6), call(6), call(5)] == [
        "compiled",
        "entry for 5",
        "compiled",
        "entry for 6",
        "compiled",
    ]
    assert calls == [5, 6, 5]

    def replacing(x: int) -> str:
        runtime.replace_entries(call, [])
        gc.collect()
        return "still here"

    made = segment(
        [], [], source="def f(x):\n    return replacing(x)\n", namespace={"replacing": replacing}
    )
    runtime.replace_entries(call, [runtime.enter(made, None, None)])
    assert call(1) == "still here"
    assert call(5) == "compiled"


def test_replaced_entries_are_freed() -> None:
    x = torch.zeros(8)
    code = add_one(8)
    seen = weakref.ref(code.code)
    call = runtime.dispatcher([runtime.enter(add_one_segment(x), code, None)], slow)
    del code
    assert torch.equal(call(x), x + 1)
    runtime.replace_entries(call, [])
    gc.collect()
    assert seen() is None
    assert call(x)[0] == "slow"


def test_a_dispatcher_and_its_owner_are_collected_together() -> None:
    class Owner:
        def slow(self, *args: Any) -> str:
            return "slow"

    owner = Owner()
    owner.call = runtime.dispatcher([entry_for(1)], owner.slow)  # type: ignore[attr-defined]
    assert owner.call(1) == ("entry", 1) and owner.call(2) == "slow"  # type: ignore[attr-defined]
    seen = weakref.ref(owner)
    del owner
    gc.collect()
    assert seen() is None


@BOTH
def test_an_object_whose_class_has_the_builtin_as_call(native: bool) -> None:
    class Compiled:
        def __init__(self) -> None:
            self.note = "own"

    call = runtime.dispatcher([entry_for(1)], slow, native=native)
    kind = runtime.callable_type(Compiled, call)
    made = kind()
    assert made(1) == ("entry", 1)
    assert made(2) == ("slow", (2,), {})
    assert made(1, k=3) == ("slow", (1,), {"k": 3})
    assert isinstance(made, Compiled) and kind.__name__ == "Compiled" and made.note == "own"
    seen = weakref.ref(made), weakref.ref(kind)
    del made, kind, call
    gc.collect()
    assert [one() for one in seen] == [None, None]


def test_a_miss_that_is_passed_as_an_argument_is_only_an_argument() -> None:
    call = runtime.dispatcher([entry_for(1)], slow)
    assert call(MISS) == ("slow", (MISS,), {})
