"""Segments chained natively: how they ran, and that whatever is unusual is as in Python's loop.

Every kind of program (`PROGRAMS`) goes through every way to run: natively chained, the Python loop
alone, eager. `Spied` counts how often Python came between two segments.
"""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import windfall
from windfall.frontend.state import Continue
from windfall.runtime.segment_chain import pair_maker


class Spied:
    """A chain that counts: how often it was entered, how often it left a program on its way."""

    def __init__(self, chain: Callable[..., Any]) -> None:
        self.chain, self.entered, self.left = chain, 0, 0

    def __call__(self, result: Any, stands: list[Any]) -> Any:
        self.entered += 1
        try:
            answer = self.chain(result, stands)
        except BaseException:
            self.left += 1
            raise
        self.left += type(answer) is Continue
        return answer


def spied(compiled: Any) -> Spied:
    compiled._chain = Spied(compiled._chain)
    return compiled._chain


def unchained(compiled: Any) -> Any:
    compiled._make_chain = compiled._chain = None
    return compiled


def rounds(x: torch.Tensor, log: list[Any]) -> Any:
    for index in range(8):
        x = torch.relu(x * 1.5) - 0.25
        log.append(index)
        windfall.graph_break()
    return x.sum()


@windfall.disable
def refuses(at: int, log: list[Any]) -> None:
    log.append(at)
    if at == 3:
        raise KeyError(at)


def caught(x: torch.Tensor, log: list[Any]) -> Any:
    for index in range(6):
        try:
            x = x * 2
            refuses(index, log)
        except KeyError as error:
            log.append(str(error))
            x = x - 1
    return x


def uncaught(x: torch.Tensor, log: list[Any]) -> Any:
    try:
        for index in range(6):
            x = x * 2
            refuses(index, log)
    finally:
        log.append("left")
    return x


def failing_graph(x: torch.Tensor, log: list[Any]) -> Any:
    places = torch.tensor([0, 1, 9, 2])
    for index in range(4):
        try:
            x = x + x[places[index : index + 1]].sum()
        except IndexError:
            log.append("no such place")
        windfall.graph_break()
    return x


def growing(x: torch.Tensor, log: list[Any]) -> Any:
    for index in range(5):
        x = torch.cat([x, x[:1]]) * 1.5
        log.append(index)
        windfall.graph_break()
    return x


def changing_dtype(x: torch.Tensor, log: list[Any]) -> Any:
    for _ in range(4):
        x = (x * 2).to(torch.float64 if x.dtype == torch.float32 else torch.float32)
        windfall.graph_break()
    return x


def in_callee(x: torch.Tensor, log: list[Any]) -> Any:
    def inner(y: torch.Tensor) -> torch.Tensor:
        y = y + 1
        windfall.graph_break()
        return y * 2

    for _ in range(3):
        x = inner(x)
    return x


def by_data(x: torch.Tensor, log: list[Any]) -> Any:
    steps = 0
    while x.sum() < 1000:
        x, steps = x * 2 + 1, steps + 1
    log.append(steps)
    return x


PROGRAMS = (rounds, caught, uncaught, failing_graph, growing, changing_dtype, in_callee, by_data)


def outcome(call: Callable[..., Any], x: torch.Tensor) -> Any:
    log: list[Any] = []
    try:
        answer = call(x.clone(), log)
    except Exception as error:
        return type(error), str(error), log
    return answer.dtype, answer.tolist(), log


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.__name__)
@pytest.mark.parametrize("grad", [False, True])
def test_as_the_loop_of_python_and_as_eager(program: Callable[..., Any], grad: bool) -> None:
    x = torch.arange(4.0)
    chained, slow = windfall.compile(program), unchained(windfall.compile(program))
    with torch.set_grad_enabled(grad):
        for _ in range(4):
            wanted = outcome(program, x)
            assert outcome(chained, x) == wanted
            assert outcome(slow, x) == wanted
    assert chained._chain is not None and slow._chain is None


@pytest.mark.parametrize("program", [rounds, in_callee, by_data], ids=lambda one: one.__name__)
def test_python_does_not_come_between(program: Callable[..., Any]) -> None:
    compiled = windfall.compile(program)
    x = torch.arange(4.0)
    with torch.no_grad():
        for _ in range(3):
            outcome(compiled, x)
        spy = spied(compiled)
        for _ in range(5):
            assert outcome(compiled, x) == outcome(program, x)
    assert (spy.entered, spy.left) == (5, 0)


def test_what_raises_leaves_the_chain_once() -> None:
    compiled = windfall.compile(caught)
    x = torch.arange(4.0)
    for _ in range(3):
        outcome(compiled, x)
    spy = spied(compiled)
    assert outcome(compiled, x) == outcome(caught, x)
    assert spy.left == 0  # a handler of the program is a way on as any other
    compiled = windfall.compile(uncaught)
    for _ in range(3):
        outcome(compiled, x)
    spy = spied(compiled)
    assert outcome(compiled, x) == outcome(uncaught, x)
    assert spy.left <= 1


@pytest.mark.parametrize("at", range(5))
@pytest.mark.parametrize("chained", [True, False])
@pytest.mark.parametrize("handled", [True, False])
def test_what_raises_in_any_segment_is_met_once(at: int, chained: bool, handled: bool) -> None:
    """Also in the first one behind the first break: its `finally` and handlers run once, and the
    traceback is eager's."""
    log: list[Any] = []

    @windfall.disable
    def step(index: int) -> None:
        log.append(index)
        if index == where[0]:
            raise KeyError(index)

    def with_finally(x: torch.Tensor) -> torch.Tensor:
        x = x + 1
        step(0)
        try:
            x = x * 2
            step(1)
            x = x + 1
            step(2)
        finally:
            log.append("end")
        x = x * 3
        step(3)
        return x + 1

    def straight(x: torch.Tensor) -> torch.Tensor:
        x = x + 1
        step(0)
        x = x * 2
        step(1)
        x = x * 3
        step(2)
        x = x * 3
        step(3)
        return x + 1

    where = [-1]
    program = with_finally if handled else straight
    compiled = windfall.compile(program)
    if not chained:
        unchained(compiled)
    for _ in range(3):
        compiled(torch.ones(3))
    where[0] = at
    told: list[Any] = []
    for call in (program, compiled, compiled):
        log.clear()
        try:
            call(torch.ones(3))
            told.append(([*log], None, []))
        except KeyError as error:
            frames = []
            trace = error.__traceback__
            while trace is not None:
                frames.append((trace.tb_frame.f_code.co_name, trace.tb_lineno))
                trace = trace.tb_next
            told.append(([*log], str(error), [one for one in frames[1:] if one[0] == "step"]))
            assert "_go_on" not in dict(frames) and "__call__" not in dict(frames)
    assert told[1] == told[0] and told[2] == told[0]


class Stop(BaseException):
    pass


def test_an_interrupt_finds_the_place() -> None:
    """It comes in the middle of the fourth segment, from a step that has no handler: what the
    program has begun is ended, and nothing is run twice."""
    log: list[Any] = []

    @windfall.disable
    def step(index: int) -> None:
        log.append(index)
        if index == 3 and armed:
            raise Stop

    def program(x: torch.Tensor) -> torch.Tensor:
        try:
            for index in range(6):
                x = x + 1
                step(index)
        finally:
            log.append("end")
        return x

    compiled = windfall.compile(program)
    armed = False
    for _ in range(3):
        compiled(torch.ones(3))
    armed = True
    log.clear()
    with pytest.raises(Stop):
        compiled(torch.ones(3))
    assert log == [0, 1, 2, 3, "end"]


def test_nothing_is_kept_that_the_program_drops() -> None:
    seen: list[bool] = []

    @windfall.disable
    def watch(thing: Any) -> Any:
        return weakref.ref(thing)

    @windfall.disable
    def look(reference: Any) -> None:
        seen.append(reference() is None)

    class Thing:
        pass

    @windfall.disable
    def make() -> Thing:
        return Thing()

    def program(x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            thing = make()
            reference = watch(thing)
            x = x + 1
            del thing
            look(reference)
        return x

    compiled = windfall.compile(program)
    gc.disable()
    try:
        for _ in range(3):
            compiled(torch.ones(2))
    finally:
        gc.enable()
    assert seen == [True] * 9


def test_no_reference_is_lost_or_kept() -> None:
    """The counts of objects that go through all ways of the chain, over many calls."""
    compiled = windfall.compile(caught)
    log: list[Any] = []
    x = torch.arange(4.0)
    for _ in range(5):
        compiled(x, log)
    positions = list(compiled._by_position)
    counted = (x, log, None, Continue, *positions, *(one for one in compiled._by_position.values()))
    before = [sys.getrefcount(one) for one in counted]
    for _ in range(200):
        compiled(x, log)
    after = [sys.getrefcount(one) for one in counted]
    shared = {id(None), id(Continue)}
    for one, old, new in zip(counted, before, after, strict=True):
        assert abs(new - old) <= (20 if id(one) in shared else 0), one


def test_loops_without_tensors_are_left_to_cpython() -> None:
    def program(x: torch.Tensor, count: int) -> Any:
        total = 0
        for index in range(count):
            windfall.graph_break()
            total += index
        return x + total

    compiled = windfall.compile(program)
    for count in (5, 5, 3000, 3000):
        assert torch.equal(compiled(torch.ones(2), count), program(torch.ones(2), count))
    assert "a loop" in str(windfall.explanation(compiled))


def test_reset_and_eviction_forget_positions() -> None:
    compiled = windfall.compile(in_callee, options={"recompile_limit": 2}, dynamic=False)
    for size in range(2, 9):
        assert outcome(compiled, torch.ones(size)) == outcome(in_callee, torch.ones(size))
    known = len(compiled._by_position)
    for size in range(9, 30):
        outcome(compiled, torch.ones(size))
    assert len(compiled._by_position) <= known + 8
    compiled.reset()
    assert not compiled._by_position
    assert outcome(compiled, torch.ones(3)) == outcome(in_callee, torch.ones(3))


def test_threads_share_a_chain() -> None:
    compiled = windfall.compile(rounds)
    wrong: list[Any] = []

    def work(seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        for round in range(60):
            x = torch.randint(-8, 9, (4,), generator=generator).float()  # exact in any order
            if outcome(compiled, x) != outcome(rounds, x):
                wrong.append((seed, round))
            if seed == 0 and round % 20 == 10:
                compiled.reset()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not wrong


def test_a_native_pair_is_what_its_class_makes() -> None:
    make = pair_maker(Continue)
    assert make is not Continue
    first, second = object(), (object(),)
    pair = make(first, second)
    assert type(pair) is Continue and pair.position is first and pair.slots is second
    assert gc.is_tracked(pair)
    before = [sys.getrefcount(one) for one in (first, second, Continue)]
    del pair
    after = [sys.getrefcount(one) for one in (first, second, Continue)]
    assert [old - new for old, new in zip(before, after, strict=True)] == [1, 1, 1]
