"""A segment as one call: which form it takes, what it answers, what it keeps alive."""

from __future__ import annotations

import gc
import inspect
import os
import sys
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.runtime.programs import (
    ADD_ONE,
    add_one,
    add_one_segment,
    ambient_guard,
    elementwise,
    f32,
    program,
    segment,
    tensor_guard,
)
from windfall import jit, runtime
from windfall.errors import InternalError
from windfall.ir.guard import Equals, Guard, IdentityIs, TypeIs
from windfall.ir.source import Attribute, DictOf, Item, Known, Slot
from windfall.ir.stages import MISS, BufferNote, Direct, Entry, ResultNote, Segment

X = Slot(0, "x")
BOTH = pytest.mark.parametrize("native", [True, False], ids=["native", "python"])


def two_results() -> Any:
    """x * 2 and x - 2."""
    return program(
        elementwise(8, [(0, 1, "fmul"), (0, 2, "fsub")]),
        [
            BufferNote("x", f32(8), "input"),
            BufferNote("a", f32(8), "result"),
            BufferNote("b", f32(8), "result"),
        ],
        [ResultNote(1, f32(8)), ResultNote(2, f32(8))],
    )


@pytest.mark.parametrize(
    ("direct", "expected"),
    [
        (Direct((1,), "leaf"), lambda x: x - 2),
        (Direct((0, 1), "tuple"), lambda x: (x * 2, x - 2)),
        (Direct((1, 0, 1), "list"), lambda x: [x - 2, x * 2, x - 2]),
        (Direct((), "tuple"), lambda x: ()),
        (Direct((), "list"), lambda x: []),
    ],
)
def test_structures(direct: Direct, expected: Callable[[torch.Tensor], Any]) -> None:
    x = torch.randn(8)
    made = segment([tensor_guard(X, x)], [(X, x)], direct=direct)
    entry = runtime.enter(made, two_results(), None)
    assert entry.native
    found, wanted = entry.call(x), expected(x)
    assert type(found) is type(wanted)
    if isinstance(wanted, torch.Tensor):
        found, wanted = [found], [wanted]
    assert len(found) == len(wanted)
    assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))
    if len(found) == 3:
        assert found[0] is found[2], "one result of the graph is one object"


@BOTH
def test_a_segment_with_a_body_of_its_own(native: bool) -> None:
    x = torch.randn(8)
    log: list[str] = []
    made = segment(
        [ambient_guard(), tensor_guard(X, x)],
        [(X, x)],
        slots=("x", "name"),
        source="def f(x, name):\n    (y,) = graph(x)\n    log.append(name)\n    return {name: y}\n",
        namespace={"log": log},
    )
    entry = runtime.enter(made, add_one(8), None, native=native)
    assert not entry.native
    assert torch.equal(entry.call(x, "a")["a"], x + 1)
    assert entry.call(torch.zeros(9), "b") is MISS
    assert entry.call(x) is MISS
    assert log == ["a"]


@BOTH
def test_any_callable_as_the_graph(native: bool) -> None:
    x = torch.randn(8)
    entry = runtime.enter(add_one_segment(x), None, lambda t: (t + 1,), native=native)
    assert not entry.native
    assert torch.equal(entry.call(x), x + 1)
    assert entry.call(None) is MISS


@BOTH
def test_no_graph_at_all(native: bool) -> None:
    made = segment([Guard(X, TypeIs(int), "")], [], source="def f(x):\n    return x * 2\n")
    entry = runtime.enter(made, None, None, native=native)
    assert entry.call(21) == 42 and entry.call(2.0) is MISS


@BOTH
def test_exceptions_of_the_body_reach_the_caller(native: bool) -> None:
    made = segment([], [], source="def f(x):\n    raise KeyError(x)\n")
    entry = runtime.enter(made, None, None, native=native)
    with pytest.raises(KeyError, match="7"):
        entry.call(7)


def test_a_source_that_does_not_define_the_segment() -> None:
    with pytest.raises(InternalError, match="does not define"):
        runtime.enter(segment([], [], source="g = 1\n"), None, None)


def test_an_input_without_a_native_walk_takes_the_segments_body() -> None:
    class Holder:
        pass

    holder = torch.zeros(8)
    holder.grad = torch.randn(8)
    source = Attribute(X, "grad")
    made = segment(
        [tensor_guard(source, holder.grad)],
        [(source, holder.grad)],
        direct=Direct((0,), "leaf"),
        source="def f(x):\n    return graph(x.grad)[0]\n",
    )
    entry = runtime.enter(made, add_one(8), None)
    assert not entry.native
    assert torch.equal(entry.call(holder), holder.grad + 1)
    holder.grad = None
    assert entry.call(holder) is MISS
    assert entry.call(Holder()) is MISS


def test_parameters_are_read_where_they_are_now() -> None:
    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(8), requires_grad=False)

    module = Module()
    weight = Item(Item(DictOf(X), "_parameters"), "weight")
    made = segment(
        [ambient_guard(), Guard(X, TypeIs(Module), ""), tensor_guard(weight, module.weight)],
        [(weight, module.weight)],
        direct=Direct((0,), "leaf"),
    )
    entry = runtime.enter(made, add_one(8), None)
    assert entry.native
    for _ in range(2):
        assert torch.equal(entry.call(module), module.weight + 1)
    module.weight = torch.nn.Parameter(torch.randn(8), requires_grad=False)
    assert torch.equal(entry.call(module), module.weight + 1)
    module.weight.data = torch.randn(8)
    assert torch.equal(entry.call(module), module.weight + 1)
    with torch.no_grad():
        module.weight.add_(1)
    assert torch.equal(entry.call(module), module.weight + 1)
    other = Module()
    assert torch.equal(entry.call(other), other.weight + 1)
    module.weight.requires_grad_()
    assert entry.call(module) is MISS
    del module.weight
    assert entry.call(module) is MISS


def test_a_python_guard_and_a_native_program_are_still_one_builtin() -> None:
    x = torch.randn(8)
    device = Slot(1, "device")
    made = segment(
        [tensor_guard(X, x), Guard(device, Equals(torch.device("cpu")), "")],
        [(X, x)],
        slots=("x", "device"),
        direct=Direct((0,), "leaf"),
    )
    entry = runtime.enter(made, add_one(8), None)
    assert entry.native
    assert torch.equal(entry.call(x, torch.device("cpu")), x + 1)
    assert entry.call(x, torch.device("meta")) is MISS


@BOTH
def test_an_entry_keeps_neither_inputs_nor_identities_alive(native: bool) -> None:
    class Thing:
        pass

    thing, x = Thing(), torch.zeros(8)
    made = segment(
        [Guard(Slot(1, "thing"), IdentityIs(thing), ""), tensor_guard(X, x)],
        [(X, x)],
        slots=("x", "thing"),
        direct=Direct((0,), "leaf"),
        source="def f(x, thing):\n    return graph(x)[0]\n",
    )
    entry = runtime.enter(made, add_one(8), None, native=native)
    assert torch.equal(entry.call(x, thing), x + 1)
    text = [str(one) for one in entry.segment.capture.guards]
    seen = weakref.ref(thing), weakref.ref(x)
    del made, thing, x
    gc.collect()
    assert seen[1]() is None
    if native:
        assert seen[0]() is None
        assert any("(gone)" in str(one) for one in entry.segment.capture.guards)
        assert not any("(gone)" in one for one in text)
    assert entry.call(torch.zeros(8), Thing()) is MISS


def build(x: torch.Tensor) -> tuple[Entry, Segment]:
    made = add_one_segment(x)
    return runtime.enter(made, add_one(8), None), made


def test_dropping_an_entry_frees_all_of_it() -> None:
    x = torch.zeros(8)
    made = add_one_segment(x)
    code = add_one(8)
    seen = weakref.ref(code.code)
    entry = runtime.enter(made, code, None)
    entry.call(x)
    keep = entry.call
    del code, entry
    gc.collect()
    assert seen() is not None and torch.equal(keep(x), x + 1)
    del keep
    gc.collect()
    assert seen() is None


def test_a_cycle_through_an_entry_is_collected_also_when_a_finaliser_calls_it() -> None:
    x = torch.zeros(8)
    answers: list[Any] = []

    class User:
        def __init__(self) -> None:
            self.entry = build(x)[0]
            self.me = self

        def __del__(self) -> None:
            answers.append(self.entry.call(x))

    user = User()
    seen = weakref.ref(user)
    del user
    gc.collect()
    assert seen() is None
    assert torch.equal(answers[0], x + 1)


def test_a_known_object_that_refers_to_the_entry_is_collected() -> None:
    class Owner:
        pass

    owner = Owner()
    owner.flag = True  # type: ignore[attr-defined]
    made = segment(
        [Guard(Item(DictOf(Known(owner, "owner")), "flag"), Equals(True), "")],
        [],
        source="def f(x):\n    return x\n",
    )
    owner.entry = runtime.enter(made, None, None)  # type: ignore[attr-defined]
    assert owner.entry.call(3) == 3  # type: ignore[attr-defined]
    seen = weakref.ref(owner)
    del owner, made
    gc.collect()
    assert seen() is None


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_thousand_entries_built_and_dropped_take_no_memory() -> None:
    x = torch.zeros(8)
    made = add_one_segment(x)
    code = add_one(8)

    def cycle(count: int) -> None:
        for _ in range(count):
            entry = runtime.enter(made, code, None)
            compiled = runtime.dispatcher([entry], len)
            compiled(x)
        gc.collect()

    cycle(300)
    before = resident()
    cycle(1000)
    assert resident() - before < 1 << 20


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_machine_code_built_and_dropped_takes_little_memory() -> None:
    x = torch.zeros(8)

    def cycle(count: int) -> None:
        for _ in range(count):
            code = jit.load(ADD_ONE.replace("COUNT", "8"))
            runtime.enter(made, replace(add_one(8), code=code), None).call(x)
        gc.collect()

    made = add_one_segment(x)
    cycle(20)
    before = resident()
    cycle(60)
    assert resident() - before < 1 << 20, "a leak of 20 KB in each would be seen"


def test_entries_describe_themselves() -> None:
    x = torch.zeros(8)
    entry, made = build(x)
    assert "L['x'] is Tensor f32[8]" in entry.check_text
    assert entry.check_text.startswith("def check(x):")
    assert inspect.isbuiltin(entry.call) and entry.call.__name__ == made.name


def test_the_text_is_written_when_asked_for_and_holds_nothing() -> None:
    class Held:
        pass

    held = Held()
    made = segment([Guard(X, IdentityIs(held), "")], [], source="def f(x):\n    return 1\n")
    entry = runtime.enter(made, None, None)
    assert entry.call(held) == 1
    assert "check_1.holds(x)" in entry.check_text
    gone = weakref.ref(held)
    del held, made
    gc.collect()
    assert gone() is None
    assert "(gone)" in entry.check_text
