"""The manager alone, on a fake device that is asynchronous, bakes addresses and poisons memory.

Rows of the specification that hold for any device: states, tree, generations, pool, liveness,
invariants, inputs, aliases, mutation, limits, accounting, lifetime; each says what ran how.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from tests.trees.fake import FakeAsyncDevice, FakePool
from windfall.directives import StepMarks
from windfall.errors import InternalError, UserError
from windfall.options import TreeOptions
from windfall.runtime.trees import GraphRegion, Skip, TreeManager
from windfall.runtime.trees.capturing import CallablePayload

Tensor = torch.Tensor


class Bench:
    """A manager on a fake device, with a clock of marks of its own."""

    def __init__(self, **options: Any) -> None:
        self.device = FakeAsyncDevice()
        self.marks = StepMarks()
        self.manager = TreeManager(self.device, TreeOptions(**options), self.marks)
        self.runs: dict[str, int] = {}

    def region(
        self,
        body: Callable[..., Any],
        name: str = "f",
        starts: bool = True,
        static: Sequence[int] = (),
        written: Sequence[int] = (),
    ) -> GraphRegion:
        def counted(*args: Any) -> Any:
            self.runs[name] = self.runs.get(name, 0) + 1
            return body(*args)

        payload = CallablePayload(counted, frozenset(static), frozenset(written))
        return GraphRegion(name, payload, starts=starts, where=f"{name}.py:1")

    def op(self, function: Callable[..., Tensor], *inputs: Any) -> Tensor:
        return self.device.op(function, *inputs)

    def call(self, region: GraphRegion, *args: Any) -> Any:
        result = self.manager.call(region, args)
        self.manager.check()
        return result

    def wait(self) -> None:
        self.device.fence(self.manager.pool)

    @property
    def pool(self) -> FakePool:
        pool: FakePool = self.manager.pool
        return pool

    def double(self, name: str = "f", starts: bool = True) -> GraphRegion:
        return self.region(lambda x: self.op(torch.mul, x, 2.0), name, starts)

    def holds(self, one: Tensor) -> bool:
        return self.device.inside(self.pool, one.untyped_storage().data_ptr())


def test_states_warm_up_record_replay() -> None:
    """Row 1: the body runs twice in five calls, its effect happens once in each."""
    bench = Bench()
    counter = torch.zeros(3)

    def body(x: Tensor) -> Tensor:
        bench.device.write(lambda t: t + 1, x)
        return bench.op(torch.mul, x, 1.0)

    region = bench.region(body, static=[0], written=[0])
    for _ in range(5):
        result = bench.call(region, counter)
        bench.wait()
    assert bench.runs == {"f": 2} and torch.equal(counter, torch.full((3,), 5.0))
    assert torch.equal(result, counter)
    counters = region.counters
    assert (counters.warmed, counters.recorded, counters.replayed) == (1, 1, 3)


def test_call_order() -> None:
    """Row 27: inputs are copied before the launch, results written back behind it; recordings
    never overlap in time (the fake asserts it)."""
    bench = Bench()
    region = bench.region(lambda x: bench.device.write(lambda t: t + 1, x), written=[0])
    x = torch.zeros(2)
    for _ in range(3):
        bench.call(region, x)
    bench.wait()
    assert torch.equal(x, torch.full((2,), 3.0))
    first = ["restore", "restore", "capture", "copy", "launch", "copy"]
    assert bench.pool.order == [*first, "copy", "launch", "copy", "fence"]


def test_tree_of_branches_costs_its_longest_path() -> None:
    """Rows 2 and 5: 1→2→4 and 1→3→4 in one pool."""
    bench = Bench()
    one, two, three, four = (bench.double(name, name == "1") for name in "1234")
    for region in (one, two, three, four):
        bench.call(region, torch.ones(256))  # warmed up
    for middle in (two, three) * 6:
        a = bench.call(one, torch.ones(256))
        b = bench.call(middle, a)
        c = bench.call(four, b)
        bench.wait()
        assert torch.equal(c, torch.full((256,), 8.0))
        del a, b, c
    root = bench.manager.root
    assert [len(siblings) for siblings in root.children.values()] == [1]
    assert bench.manager.nodes == 5
    (first,) = next(iter(root.children.values()))
    assert sum(1 for _ in first.below()) == 4
    assert bench.manager.bytes == 3 * 1024, "three results; the input's buffer is used again"


def test_generations() -> None:
    """Row 3: `f` twice in one generation is a path of two; over a mark the same root replays."""
    bench = Bench()
    region = bench.double(starts=False)
    x = torch.ones(4)
    bench.call(region, x)
    held = []
    for _ in range(2):
        held.append(bench.call(region, x))
    assert bench.manager.current.depth == 2
    held.clear()
    bench.marks.mark()
    for _ in range(3):
        y = bench.call(region, x)
        bench.marks.mark()
    assert bench.manager.nodes == 2 and bench.manager.current.depth == 1
    del y


def test_results_held_over_steps_are_moved_and_right() -> None:
    """Row 13 and the first hard test: replay after replay with all results held; their views,
    `detach()`s and saved copies follow."""
    bench = Bench()
    region = bench.double()
    inputs = [torch.full((4,), float(i)) for i in range(6)]
    held = [bench.call(region, x) for x in inputs]
    kept = [held[1][1:], held[2].detach(), held[3].view(2, 2)]
    del held[1:4]
    bench.wait()
    for x, y in zip([inputs[0], *inputs[4:]], held, strict=True):
        assert torch.equal(y, x * 2)
    assert [one.flatten()[-1].item() for one in kept] == [2.0, 4.0, 6.0]
    assert region.counters.evicted == 4 and region.counters.recorded == 1
    assert bench.manager.nodes == 1


def test_strict_names_the_line() -> None:
    bench = Bench(strict=True)
    region = bench.double()
    x = torch.ones(4)
    bench.call(region, x)
    held = bench.call(region, x)
    with pytest.raises(UserError, match=r"a result of f \(f.py:1\).*clone\(\)"):
        bench.call(region, x)
    bench.wait()
    assert torch.equal(held, x * 2)
    held = held.clone()  # the remedy
    assert torch.equal(bench.call(region, x), held)
    bench.wait()


def test_checkpoint_reuses_only_what_is_dead() -> None:
    """Row 6: replay A, drop one of two results, record C."""
    bench = Bench()
    pair = bench.region(lambda x: (bench.op(torch.mul, x, 2.0), bench.op(torch.mul, x, 3.0)), "a")
    last = bench.double("c", starts=False)
    x = torch.ones(64)
    bench.call(pair, x)
    bench.call(last, x)
    bench.call(pair, x)
    two, three = bench.call(pair, x)
    kept, dead = three.data_ptr(), two.data_ptr()
    del two
    result = bench.call(last, three)
    bench.wait()
    assert torch.equal(result, x * 6) and torch.equal(three, x * 3)
    assert result.data_ptr() != kept and three.data_ptr() == kept
    assert result.data_ptr() <= dead, "the dead block, or below it"


def test_liveness_belongs_to_the_storage() -> None:
    """Row 7: a view keeps a result alive."""
    bench = Bench()
    region = bench.double()
    x = torch.ones(8)
    bench.call(region, x)
    y = bench.call(region, x)
    view = y[0:]
    del y
    assert len(bench.manager._alive()) == 1
    del view
    assert bench.manager._alive() == []


def test_more_alive_than_recorded_takes_a_sibling() -> None:
    """Row 8: an extra reference makes a second child; released, the first one replays again."""
    bench = Bench()
    first, second = bench.double("a"), bench.double("b", starts=False)
    x = torch.ones(8)
    bench.call(first, x), bench.call(second, x)
    extra = bench.double("extra", starts=False)
    bench.call(extra, x)

    def step(hold: bool) -> Tensor:
        a = bench.call(first, x)
        h = bench.call(extra, x)
        if not hold:
            del h
        b = bench.call(second, a)
        bench.wait()
        assert torch.equal(b, x * 4) and torch.equal(a, x * 2)
        if hold:
            assert torch.equal(h, x * 2)
        return b

    step(False)
    step(True)
    assert second.counters.rerecorded == 1
    recorded = second.counters.recorded
    step(False)
    step(True)
    assert second.counters.recorded == recorded == 2


def test_static_inputs_swapped_have_two_recordings() -> None:
    """Row 9 and hard test 17; 18: freed and recycled by another tensor of the same address."""
    bench = Bench()
    region = bench.region(lambda x, w: bench.op(torch.add, x, w), static=[1])
    x, weights = torch.ones(4), [torch.full((4,), 10.0), torch.full((4,), 20.0)]
    for number in (0, 0, 1, 0, 1, 0):
        y = bench.call(region, x, weights[number])
        bench.wait()
        assert torch.equal(y, x + weights[number])
    assert region.counters.recorded == 2 and region.counters.replayed == 3
    weights[0].fill_(30.0)  # the same address, other contents: what a recycled one looks like
    y = bench.call(region, x, weights[0])
    bench.wait()
    assert torch.equal(y, x + 30)


def test_expanded_and_overlapping_inputs() -> None:
    bench = Bench()
    region = bench.double()
    for _ in range(4):
        row = torch.randn(3, 1).expand(3, 5)
        y = bench.call(region, row)
        bench.wait()
        assert torch.equal(y, row * 2)
    assert region.counters.replayed == 2
    windows = torch.arange(6.0).as_strided((4, 3), (1, 1))
    for _ in range(3):
        y = bench.call(region, windows)
        bench.wait()
        assert torch.equal(y, windows * 2)
    assert region.counters.skipped == {Skip.REFUSED: 2}  # behind one warm-up


def test_aliases() -> None:
    """Rows 10 and 20, hard tests 10, 11, 20: inputs, views of inputs, of results, doubles, nothing,
    no elements, constants."""
    bench = Bench()
    outside = torch.ones(3)

    def body(x: Tensor, w: Tensor) -> Any:
        made = bench.op(torch.add, x, w)
        return {
            "made": made, "view": made[1:], "twice": made, "input": x, "part": x[1:], "w": w.T,
            "none": None, "number": 3, "empty": torch.zeros(0), "outside": outside,
        }  # fmt: skip

    region = bench.region(body, static=[1])
    x, w = torch.ones(3, 3), torch.full((3, 3), 2.0)
    for _ in range(4):
        found = bench.call(region, x, w)
        bench.wait()
        assert torch.equal(found["made"], x + w) and torch.equal(found["view"], (x + w)[1:])
        made = found["made"].untyped_storage().data_ptr()
        for name in ("view", "twice"):
            assert found[name].untyped_storage().data_ptr() == made
        assert found["input"] is x and found["w"].data_ptr() == w.data_ptr()
        assert found["part"].data_ptr() == x[1:].data_ptr(), "of the caller's, not of the buffer"
        assert (found["none"], found["number"], found["empty"].shape) == (None, 3, (0,))
        assert found["outside"] is outside
    assert region.counters.replayed == 2


def test_an_alias_of_an_earlier_result_that_is_an_input() -> None:
    bench = Bench()
    first = bench.double("a")
    second = bench.region(lambda a: (a[1:], bench.op(torch.neg, a)), "b", starts=False)
    x = torch.ones(4)
    bench.call(first, x), bench.call(second, x)
    for _ in range(3):
        a = bench.call(first, x)
        part, negative = bench.call(second, a)
        assert part.untyped_storage().data_ptr() == a.untyped_storage().data_ptr()
        del a
        bench.wait()
        assert len(bench.manager._alive()) == 2, "the alias keeps it"
        assert torch.equal(part, x[1:] * 2) and torch.equal(negative, x * -2)
        del part, negative


def test_mutation_managed_and_not() -> None:
    """Row 12 and hard test 19: written in the pool, or copied back; both are recorded."""
    bench = Bench()
    first = bench.double("a")

    def body(x: Tensor) -> Tensor:
        bench.device.write(lambda t: t + 1, x)
        return bench.op(torch.mul, x, 10.0)

    second = bench.region(body, "b", starts=False, written=[0])
    for turn in range(6):
        a = bench.call(first, torch.ones(4))
        given = a if turn % 2 else torch.full((4,), 2.0)
        b = bench.call(second, given)
        bench.wait()
        assert torch.equal(given, torch.full((4,), 3.0)) and torch.equal(b, given * 10), turn
        del a, b, given
    assert second.counters.recorded == 2 and second.counters.skipped == {}


def test_a_written_input_that_overlaps_another() -> None:
    """Hard tests 12 and 13: the same tensor twice, one of them written; a view of another."""
    bench = Bench()
    region = bench.region(lambda x, y: bench.device.write(lambda t: t + 1, x), written=[0])
    x = torch.zeros(4)
    for _ in range(3):
        bench.call(region, x, x)
        bench.call(region, x[:2], x[1:])
    bench.wait()
    assert torch.equal(x, torch.tensor([6.0, 6.0, 3.0, 3.0]))
    assert region.counters.skipped == {Skip.OVERLAP: 6}


def test_results_fed_back() -> None:
    """Hard test 15: a cache that grows is fed back; and one that keeps its size."""
    bench = Bench()
    grow = bench.region(lambda c, x: bench.op(lambda a, b: torch.cat([a, b]), c, x), "grow")
    cache = torch.zeros(1)
    for step in range(1, 12):
        cache = bench.call(grow, cache, torch.full((1,), float(step)))
    bench.wait()
    assert torch.equal(cache, torch.arange(12.0))
    same = bench.double("same")
    x = torch.ones(2)
    for _ in range(8):
        x = bench.call(same, x)
    bench.wait()
    assert torch.equal(x, torch.full((2,), 256.0))
    assert same.counters.replayed >= 5


def test_rerecord_limit() -> None:
    """Row 14: ever new addresses; past the limit calls run unrecorded, and right."""
    bench = Bench(rerecord_limit=2)
    region = bench.region(lambda x, w: bench.op(torch.add, x, w), static=[1])
    keep = []
    for number in range(8):
        keep.append(torch.full((4,), float(number)))
        y = bench.call(region, torch.ones(4), keep[-1])
        bench.wait()
        assert torch.equal(y, keep[-1] + 1)
    assert region.counters.recorded == 3 and region.counters.skipped == {Skip.LIMIT: 4}


def test_sizes_have_their_own_recordings_and_a_cap() -> None:
    """Row 15 and hard test 21: fifty sizes under a cap; the pool stays bounded."""
    bench = Bench(recordings=8)
    region = bench.double()
    for turn in range(3):
        for size in range(1, 51):
            x = torch.full((size,), float(turn))
            y = bench.call(region, x)
            bench.wait()
            assert torch.equal(y, x * 2)
    assert bench.manager.nodes <= 8
    assert bench.manager.bytes <= 4 * 256 + 64 * 4


def test_an_exception_while_recording() -> None:
    """Hard test 26: the state is as before, and the next call works."""
    bench = Bench()
    wrong = [False, True, False]

    def body(x: Tensor) -> Tensor:
        y = bench.op(torch.mul, x, 2.0)
        if wrong.pop(0) if wrong else False:
            raise ValueError("no")
        return y

    region = bench.region(body)
    x = torch.ones(4)
    bench.call(region, x)
    before = bench.manager.current
    with pytest.raises(ValueError, match="no"):
        bench.call(region, x)
    assert bench.manager.current is before and bench.manager.nodes == 0
    for _ in range(3):
        y = bench.call(region, x)
    bench.wait()
    assert torch.equal(y, x * 2) and region.counters.replayed == 2


def test_reentry_runs_unrecorded() -> None:
    """Row 27 and hard test 25: a region that calls another one while it is recorded."""
    bench = Bench()
    inner = bench.double("inner")

    def body(x: Tensor) -> Tensor:
        bench.manager.call(inner, (torch.ones(2),))
        return bench.op(torch.mul, x, 2.0)

    outer = bench.region(body, "outer")
    for _ in range(4):
        y = bench.call(outer, torch.ones(3))
    bench.wait()
    assert torch.equal(y, torch.full((3,), 2.0))
    assert inner.counters.skipped == {Skip.REENTERED: 2} and outer.counters.replayed == 2


def test_another_thread_is_not_served() -> None:
    bench = Bench()
    region = bench.double()
    found: list[Tensor] = []
    x = torch.ones(2)
    thread = threading.Thread(target=lambda: found.append(bench.manager.call(region, (x,))))
    thread.start()
    thread.join()
    bench.wait()
    assert torch.equal(found[0], x * 2) and region.counters.skipped == {Skip.REENTERED: 1}


def test_accounting_finds_a_leak() -> None:
    """Rows 19, 20 and 24: memory of the pool that belongs to no result."""
    bench = Bench()
    scratch: list[Tensor] = []

    def body(x: Tensor) -> Tensor:
        scratch.append(bench.op(torch.mul, x, 3.0))  # a kernel that keeps its scratch
        return bench.op(torch.mul, x, 2.0)

    region = bench.region(body)
    bench.call(region, torch.ones(4))
    with pytest.raises(InternalError, match="belong to nobody"):
        bench.call(region, torch.ones(4))
    assert region.counters.skipped == {Skip.LEAK: 1}
    scratch.clear()
    bench.call(region, torch.ones(4))
    assert region.counters.skipped == {Skip.LEAK: 2}, "it is not trusted again"
    scratch.clear()


def test_a_tensor_that_a_region_keeps_is_not_overwritten() -> None:
    bench = Bench()
    kept: list[Tensor] = []

    def body(x: Tensor) -> Tensor:
        kept.append(bench.op(torch.mul, x, 3.0))
        return bench.op(torch.mul, x, 2.0)

    region, other = bench.region(body), bench.double("g")
    for number in range(5):
        x = torch.full((4,), float(number))
        y = bench.manager.call(region, (x,))
        bench.manager.call(other, (x,))
        bench.wait()
        assert torch.equal(y, x * 2)
    assert [one[0].item() for one in kept] == [0.0, 3.0, 6.0, 9.0, 12.0]


def test_books_that_do_not_agree() -> None:
    """Row 20: a corrupted live set is found."""
    bench = Bench()
    region = bench.double()
    bench.call(region, torch.ones(4))
    held = bench.call(region, torch.ones(4))
    (block,) = bench.manager.live
    block.start += 64
    with pytest.raises(InternalError, match="belong to nobody"):
        bench.manager.check()
    bench.manager.live = []
    with pytest.raises(InternalError, match="belong to nobody"):
        bench.manager.check()
    del held


def test_shutdown_with_live_results() -> None:
    """Row 21 and hard test 28."""
    bench = Bench()
    region = bench.double()
    x = torch.ones(4)
    bench.call(region, x)
    y = bench.call(region, x)
    bench.manager.shutdown()
    assert torch.equal(y, x * 2) and bench.manager.nodes == 0
    for _ in range(2):
        again = bench.manager.call(region, (x,))  # runs, unrecorded
        bench.wait()
        assert torch.equal(again, x * 2)
    assert region.counters.skipped == {Skip.REENTERED: 2}
    bench.manager.shutdown()  # once more does nothing


def test_a_cycle_holds_a_result() -> None:
    """Hard test 29: death arrives late, and is noticed."""
    bench = Bench()
    region = bench.double()
    x = torch.ones(4)
    bench.call(region, x)
    gc.collect()
    gc.disable()
    try:
        cycle: list[Any] = [bench.call(region, x)]
        cycle.append(cycle)
        del cycle
        y = bench.call(region, x)
        bench.wait()
        assert torch.equal(y, x * 2) and region.counters.evicted == 1
    finally:
        gc.enable()
    gc.collect()
    del y
    assert bench.manager._alive() == []


def test_history_and_forgetting() -> None:
    bench = Bench()
    first, second = bench.double("a"), bench.double("b", starts=False)
    for _ in range(3):
        b = bench.call(second, bench.call(first, torch.ones(2)))
    assert {one.what for one in bench.manager.history} >= {"warm up", "record"}
    assert bench.manager.nodes >= 2
    del b
    bench.manager.forget(first.number)
    assert all(one.region is not first for one in bench.manager.root.below())
    bench.manager.check()
    bench.call(first, torch.ones(2))
    assert first.counters.warmed == 2


def test_foreign_inputs_are_skipped() -> None:
    """Row 16."""
    bench = Bench()
    region = bench.region(lambda x: x, "meta")
    bench.call(region, torch.empty(2, device="meta"))
    bench.call(region, torch.ones(2, requires_grad=True))
    bench.call(region, [torch.ones(2)])
    assert region.counters.skipped == {Skip.FOREIGN: 1, Skip.REFUSED: 2}
    assert all(skip.reason and skip.remedy for skip in Skip)
