"""What a call costs: `python -m tests.runtime.measure`. Each ratio is the median of interleaved
pairs in one process; times are the minima."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from tests.runtime.programs import (
    add_one,
    add_one_segment,
    ambient_guard,
    segment,
    tensor_guard,
    varying_add_one,
    varying_add_one_segment,
)
from windfall import runtime
from windfall.ir.guard import Equals, Guard, LengthIs, TypeIs
from windfall.ir.source import DictOf, Item, Slot, Source
from windfall.ir.symint import size_symbol

CALLS, PAIRS = 100, 301  # short windows: a busy machine leaves some of them alone


def seconds(function: Callable[..., Any], arguments: tuple[Any, ...]) -> float:
    start = time.perf_counter()
    for _ in range(CALLS):
        function(*arguments)
    return (time.perf_counter() - start) / CALLS


def compare(name: str, ours: Callable[..., Any], eager: Callable[..., Any], *given: Any) -> None:
    pairs = [(seconds(ours, given), seconds(eager, given)) for _ in range(PAIRS)]
    ratio = statistics.median(one / other for one, other in pairs)
    fastest = [1e6 * min(column) for column in zip(*pairs, strict=True)]
    print(f"{name:42s} {fastest[0]:8.3f} us   eager {fastest[1]:8.3f} us   ratio {ratio:.3f}")


def add_one_in_eager(x: torch.Tensor) -> torch.Tensor:
    return x + 1


class Compiled:
    """Stands for the compiled object of the public API."""


def calls() -> None:
    x = torch.randn(8)
    entry = runtime.enter(add_one_segment(x), add_one(8), None)
    call = runtime.dispatcher([entry], add_one_in_eager)
    other = runtime.enter(add_one_segment(torch.zeros(9)), add_one(9), None)
    compare("x + 1, bound program, no guards", runtime.bind(add_one(8)), add_one_in_eager, x)
    compare("x + 1, entry", entry.call, add_one_in_eager, x)
    compare("x + 1, dispatcher", call, add_one_in_eager, x)
    compare("x + 1, compiled object", runtime.callable_type(Compiled, call)(), add_one_in_eager, x)
    compare(
        "x + 1, dispatcher, two entries miss first",
        runtime.dispatcher([other, other, entry], add_one_in_eager),
        add_one_in_eager,
        x,
    )
    body = runtime.enter(add_one_segment(x, is_direct=False), add_one(8), None)
    compare("x + 1, native check, Python body", body.call, add_one_in_eager, x)
    python = runtime.enter(add_one_segment(x), add_one(8), None, native=False)
    compare("x + 1, public path", python.call, add_one_in_eager, x)


def varying() -> None:
    """A size that varies, beside the same that does not."""
    x, rows = torch.randn(8, 4), size_symbol("s0", 8)
    made = varying_add_one(rows, 4)
    fixed = runtime.enter(add_one_segment(x), add_one(8, 4), None)
    moving = runtime.enter(varying_add_one_segment(rows, x), made, None)
    body = runtime.enter(varying_add_one_segment(rows, x, is_direct=False), made, None)
    assert fixed.native and moving.native
    compare("x[8, 4] + 1, entry", fixed.call, add_one_in_eager, x)
    compare("x[s0, 4] + 1, entry", moving.call, add_one_in_eager, x)
    compare("x[s0, 4] + 1, Python body", body.call, add_one_in_eager, x)
    bound, public = runtime.bind(made), runtime.bind(made, native=False)
    compare("x[s0, 4] + 1, bound program", lambda y: bound(8, y), add_one_in_eager, x)
    compare("x[s0, 4] + 1, public path", lambda y: public(8, y), add_one_in_eager, x)


def module_guards(module: torch.nn.Sequential, slot: Source) -> list[Guard]:
    """What a front end guards of a module of linear layers: classes, flags, hooks, parameters."""
    guards = [ambient_guard(), Guard(slot, TypeIs(type(module)), "")]
    for name, layer in module._modules.items():
        assert layer is not None
        source = Item(Item(DictOf(slot), "_modules"), name)
        guards.append(Guard(source, TypeIs(type(layer)), ""))
        guards.append(Guard(Item(DictOf(source), "training"), Equals(layer.training), ""))
        for hooks in ("_forward_hooks", "_forward_pre_hooks"):
            place = Item(DictOf(source), hooks)
            guards.append(Guard(place, TypeIs(type(getattr(layer, hooks))), ""))
            guards.append(Guard(place, LengthIs(0), ""))
        for key, parameter in layer._parameters.items():
            assert parameter is not None
            guards.append(tensor_guard(Item(Item(DictOf(source), "_parameters"), key), parameter))
    return guards


def modules() -> None:
    module = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(50)))
    slot = Slot(0, "self")
    guards = module_guards(module, slot)
    start = time.perf_counter()
    check = runtime.compile_check(guards, 1)
    built = time.perf_counter() - start
    assert check.native and check.call(module)
    print(f"100 parameters, {len(guards)} guards: built in {1e3 * built:.1f} ms")
    compare("100 parameters, check", check.call, id, module)

    def moved(one: torch.nn.Sequential) -> bool:
        one.calls = 1.5  # type: ignore[assignment]
        one.calls = 2.5  # type: ignore[assignment]
        return check.call(one)

    compare("100 parameters, one dictionary moved", moved, id, module)
    sources = [g.source for g in guards if "_parameters" in str(g.source)]
    print(f"   ({len(sources)} tensors checked)")
    made = segment(guards, [], slots=("self",), source="def f(self):\n    return None\n")
    entry = runtime.enter(made, None, None)
    compare("100 parameters, entry with empty body", entry.call, id, module)


if __name__ == "__main__":
    calls()
    varying()
    modules()
