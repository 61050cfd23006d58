"""Where intermediates live: offsets in one arena, by liveness.

Enters: a `Schedule`. Leaves: a `MemoryPlan`. Invariant: two buffers that are alive during the same
item do not overlap; every offset is a multiple of 64.

The largest buffers are placed first, each at the lowest offset that is free for all of its life.
Buffers whose sizes vary follow, in slots that stand one after the other: a buffer takes a slot that
is free for all of its life and known to be large enough, else a slot of its own.
"""

from __future__ import annotations

from dataclasses import replace

from windfall.codegen.lower import reads_of
from windfall.codegen.tile import buffers_in
from windfall.ir.dtype import TensorType
from windfall.ir.loop import Call, Kernel, MemoryPlan, PartCall, Schedule
from windfall.ir.symint import Size, hint_of, known_at_least, maximum

ALIGNMENT = 64

Life = tuple[int, int]  # the first and the last item that touches a buffer
Slot = tuple[Size, Size, list[Life]]  # its size, its offset, who has been there


def plan(schedule: Schedule) -> MemoryPlan:
    """Offsets of the temporaries of `schedule`."""
    life = lifetimes(schedule)
    # In the order of the schedule, which is the same in every process (that of `life` is not).
    names = [
        name
        for name, buffer in schedule.buffers.items()
        if buffer.place == "temporary" and name in life
    ]
    needs = {name: _aligned(bytes_of(schedule.buffers[name].type)) for name in names}
    sizes = {name: need for name, need in needs.items() if isinstance(need, int)}
    offsets: dict[str, int] = {}
    for name in sorted(sizes, key=lambda name: -sizes[name]):
        busy = sorted(
            (offsets[other], offsets[other] + sizes[other])
            for other in offsets
            if _together(life[other], life[name])
        )
        offsets[name] = _gap(busy, sizes[name])
    end = max((offsets[name] + sizes[name] for name in sizes), default=0)
    varying = {name: need for name, need in needs.items() if name not in sizes}
    static = MemoryPlan(offsets, end, {name: life[name] for name in names})
    return _with_slots(static, varying, life) if varying else static


def _with_slots(static: MemoryPlan, needs: dict[str, Size], life: dict[str, Life]) -> MemoryPlan:
    """The plan with buffers whose sizes vary behind all others."""
    offsets: dict[str, Size] = dict(static.offsets)
    end = static.arena_bytes
    slots: list[Slot] = []
    for name in sorted(needs, key=lambda name: -hint_of(needs[name])):
        need = needs[name]
        slot = next((each for each in slots if _takes(each, need, life[name])), None)
        if slot is None:
            slot = need, end, []
            slots.append(slot)
            end = end + need
        slot[2].append(life[name])
        offsets[name] = slot[1]
    return replace(static, offsets=offsets, arena_bytes=end)


def _takes(slot: Slot, need: Size, life: Life) -> bool:
    size, _, lives = slot
    return not any(_together(each, life) for each in lives) and known_at_least(size - need, 0)


def _together(one: Life, other: Life) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


def bytes_of(type: TensorType) -> Size:
    """The bytes between the first and the last element of a tensor; of one that may turn out empty,
    at least as many."""
    if any(size == 0 for size in type.sizes):
        return 0
    last: Size = 0
    for size, stride in zip(type.sizes, type.strides, strict=True):
        last = last + maximum(size - 1, 0) * stride
    return (last + 1) * type.dtype.itemsize


def _aligned(count: Size) -> Size:
    """The next multiple of the alignment, above 0."""
    if isinstance(count, int):
        return -(-max(count, 1) // ALIGNMENT) * ALIGNMENT
    return (count + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


def _gap(busy: list[tuple[int, int]], size: int) -> int:
    start = 0
    for low, high in busy:
        if low - start >= size:
            break
        start = max(start, high)
    return start


def lifetimes(schedule: Schedule) -> dict[str, Life]:
    """For each buffer: the first and the last item that touches it."""
    life: dict[str, Life] = {}
    for place, item in enumerate(schedule.items):
        for name in touched(item):
            first, _ = life.get(name, (place, place))
            life[name] = (first, place)
    return life


def touched(item: Kernel | Call | PartCall) -> set[str]:
    """The buffers that an item reads or writes."""
    if isinstance(item, PartCall):
        block = () if item.block is None else (item.block,)
        return {*(view.buffer for _, view in item.operands), *block}
    if isinstance(item, Call):
        return reads_of(item) | set(item.results)
    return buffers_in(item.body)
