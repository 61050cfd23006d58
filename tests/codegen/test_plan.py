"""The memory plan: what is alive together does not overlap, and memory is used again."""

from __future__ import annotations

import torch

from tests.codegen.harness import Trace, agree, aten, stages
from windfall.codegen import plan
from windfall.codegen.plan import bytes_of, touched


def _chain(length: int) -> Trace:
    t = Trace()
    x = t.input(torch.randn(64, 64))
    for _ in range(length):
        x = t(aten.mm.default, t(aten.tanh.default, x), t.input(torch.randn(64, 64) / 8))
    t.returns(x)
    return t


def test_live_buffers_do_not_overlap() -> None:
    _, schedule, _ = stages(_chain(6).graph)
    memory = plan(schedule)
    last = {name: place for place, item in enumerate(schedule.items) for name in touched(item)}
    first = {
        name: place
        for place, item in reversed(list(enumerate(schedule.items)))
        for name in touched(item)
    }
    names = list(memory.offsets)
    assert names
    assert memory.lives == {name: (first[name], last[name]) for name in names}
    for name in names:
        assert memory.offsets[name] % 64 == 0
        for other in names:
            if name != other and first[name] <= last[other] and first[other] <= last[name]:
                ends = memory.offsets[name] + bytes_of(schedule.buffers[name].type)
                begins = memory.offsets[other]
                other_ends = begins + bytes_of(schedule.buffers[other].type)
                assert ends <= begins or other_ends <= memory.offsets[name]


def test_memory_is_used_again() -> None:
    sizes = [plan(stages(_chain(length).graph)[1]).arena_bytes for length in (3, 12)]
    assert sizes[0] == sizes[1] == 2 * 64 * 64 * 4


def test_a_poisoned_arena_does_not_show() -> None:
    t = Trace()
    x = t.input(torch.randn(33, 65))
    y = t(aten.mm.default, t(aten.exp.default, x), t.input(torch.randn(65, 7)))
    agree(t, t(aten.sum.dim_IntList, y, [0]))
