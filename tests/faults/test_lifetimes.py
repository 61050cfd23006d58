"""Whatever a call works with dies when it dies in eager: no collector is needed.

Each ending of a call × each thing that may be held: arguments (a tensor, an object), intermediate
tensors, locals of an inlined frame, what a closure captured, what a generator holds. The collector
is off, weak references tell. An exception that lives keeps frames, and these keep what they hold,
which need not be what eager's frames hold; behind it, nothing is left.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

import windfall
from tests.faults.injector import Fault

SEEN: dict[str, weakref.ref[Any]] = {}


@windfall.disable
def watch(name: str, value: Any) -> None:
    SEEN[name] = weakref.ref(value)


@windfall.disable
def raise_outside() -> None:
    raise ValueError("outside")


def alive() -> set[str]:
    return {name for name, one in SEEN.items() if one() is not None}


class Thing:
    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


class Manager:
    def __enter__(self) -> Manager:
        return self

    def __exit__(self, *error: object) -> bool:
        return False


ALIVE_INSIDE: list[set[str]] = []


@windfall.disable
def look() -> None:
    ALIVE_INSIDE.append(alive())


def _raise(x: torch.Tensor) -> None:
    raise ValueError("inlined")


# What the innermost function does, with `w` (its local), `c` (of the function around it), `x` and
# `thing` (the arguments).
ENDINGS = {
    "returns": "pass",
    "raises": "raise ValueError(1)",
    "raises in an inlined call": "_raise(w)",
    "raises in an operation": "w = w @ torch.ones(7, 7)",
    "raises at a break": "raise_outside()",
    "raises behind a break": "look(); w = w + c; raise ValueError(2)",
    "refuses its data": "w = w + c[torch.tensor([9])]",
    "raises in a generator": "w = sum(produce(w, c, True))",
    "leaves a generator": "w = next(iter(produce(w, c, False)))",
    "ends a generator": "w = sum(produce(w, c, False))",
    "catches": """
try:
    _raise(w)
except ValueError as error:
    look()
    c = c + len(error.args)
""",
    "catches at a break": """
try:
    raise_outside()
except ValueError:
    w = w.sin()
""",
    "raises again": """
try:
    raise_outside()
except ValueError:
    look()
    raise
""",
    "raises another": """
try:
    raise_outside()
except ValueError as error:
    raise KeyError(3) from error
""",
    "raises again, caught outside": """
try:
    try:
        raise_outside()
    except ValueError:
        w = w + 1
        raise
except ValueError:
    w = w.cos()
""",
    "cleans up": """
try:
    w = w + 1
    raise_outside()
finally:
    w = w * 2
""",
    "raises in a with": """
with Manager(), torch.no_grad():
    w = w + 1
    raise_outside()
""",
    "drops": "v = w + 1; watch('dropped', v); del v; look()",
}

SOURCE = """
def produce(w, c, fails):
    held = w * 5
    watch("held by a generator", held)
    yield held + c
    if fails:
        raise ValueError("generator")
    yield held - c

def program(x, thing):
    z = x * 2
    watch("intermediate", z)
    c = thing.tensor + 1
    watch("captured", c)
    def inner(y):
        nonlocal c
        w = y * 3
        watch("local", w)
{ending}
        return w + c
    return inner(z) + x
"""


def _program(ending: str) -> Callable[..., Any]:
    body = "\n".join(f"        {line}" for line in ENDINGS[ending].strip().splitlines())
    namespace = dict(globals())
    exec(SOURCE.format(ending=body), namespace)
    function: Callable[..., Any] = namespace["program"]
    return function


@contextmanager
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _lives(function: Callable[..., Any]) -> dict[str, Any]:
    """What lives inside of a call, beside its result, and behind it."""
    SEEN.clear()
    ALIVE_INSIDE.clear()
    x = torch.arange(3.0)
    thing = Thing(torch.ones(3))
    SEEN.update(x=weakref.ref(x), thing=weakref.ref(thing), tensor=weakref.ref(thing.tensor))
    found: dict[str, Any] = {}
    result = None
    with no_collector():
        try:
            result = function(x, thing)
        except (Exception, KeyboardInterrupt) as error:
            del x, thing
            found["ended with"] = type(error)
        else:
            del x, thing
            found["ended with"] = type(result)
            found["with its result"] = alive()
        del result
        found["behind"] = alive()
    found["inside"] = list(ALIVE_INSIDE)
    return found


def _check(found: dict[str, Any], eager: dict[str, Any]) -> None:
    assert found["ended with"] == eager["ended with"]
    for moment in ("with its result", "behind"):
        kept = found.get(moment, set()) - eager.get(moment, set())
        assert not kept, f"{moment}: {kept} should be dead"
    assert len(found["inside"]) == len(eager["inside"])
    for mine, others in zip(found["inside"], eager["inside"], strict=True):
        assert not (mine - others), f"inside: {mine - others} should be dead"


@pytest.mark.parametrize("native", [True, False], ids=["native", "public"])
@pytest.mark.parametrize("ending", ENDINGS)
def test_nothing_outlives_a_call(ending: str, native: bool) -> None:
    eager = _lives(_program(ending))
    assert not eager["behind"], "this ending says nothing: eager itself needs the collector"
    compiled = windfall.compile(_program(ending), options={"native": native})
    for _ in range(3):  # compiled now, then used
        _check(_lives(compiled), eager)


@pytest.mark.parametrize(
    "step",
    # Primes; at every so many lines of ours.
    [19_997, pytest.param(3_989, marks=pytest.mark.conformance)],
)
@pytest.mark.parametrize("ending", ["returns", "raises again", "raises in a with"])
def test_nothing_outlives_an_interrupt(ending: str, step: int) -> None:
    _lives(windfall.compile(_program(ending)))
    at = 1
    while True:
        compiled = windfall.compile(_program(ending))
        fault = Fault(KeyboardInterrupt, at)

        def interrupted(*arguments: Any, call: Any = compiled, fault: Fault = fault) -> Any:
            with fault:
                return call(*arguments)

        found = _lives(interrupted)
        assert torch.is_grad_enabled(), fault.where
        if not fault.happened:
            break
        assert found["ended with"] is KeyboardInterrupt
        assert not found["behind"], fault.where
        at += step
    assert at > 3 * step


def test_an_exception_keeps_no_frame_of_ours() -> None:
    """Frames that are added for inlined calls lead back to nobody."""
    compiled = windfall.compile(_program("raises in an inlined call"))
    with pytest.raises(ValueError, match="inlined") as caught:
        compiled(torch.ones(3), Thing(torch.ones(3)))
    traceback = caught.tb
    names = []
    while traceback is not None:
        names.append(traceback.tb_frame.f_code.co_name)
        traceback = traceback.tb_next
    assert names[-3:] == ["program", "inner", "_raise"]
