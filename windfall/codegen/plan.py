"""Where intermediates live: offsets in one arena, by liveness.

Enters: a `Schedule`. Leaves: a `MemoryPlan`. Invariant: two buffers that are alive during the same
item do not overlap; every offset is a multiple of 64.

The largest buffers are placed first, each at the lowest offset that is free for all of its life.
"""

from __future__ import annotations

from windfall.codegen.lower import reads_of
from windfall.codegen.tile import buffers_in
from windfall.ir.dtype import TensorType
from windfall.ir.loop import Call, Kernel, MemoryPlan, Schedule

ALIGNMENT = 64


def plan(schedule: Schedule) -> MemoryPlan:
    """Offsets of the temporaries of `schedule`."""
    life = _lifetimes(schedule)
    names = [name for name in life if schedule.buffers[name].place == "temporary"]
    sizes = {name: _aligned(bytes_of(schedule.buffers[name].type)) for name in names}
    offsets: dict[str, int] = {}
    for name in sorted(names, key=lambda name: -sizes[name]):
        busy = sorted(
            (offsets[other], offsets[other] + sizes[other])
            for other in offsets
            if life[other][0] <= life[name][1] and life[name][0] <= life[other][1]
        )
        offsets[name] = _gap(busy, sizes[name])
    end = max((offsets[name] + sizes[name] for name in names), default=0)
    return MemoryPlan(offsets, end)


def bytes_of(type: TensorType) -> int:
    """The bytes between the first and the last element of a tensor."""
    last = 0
    for size, stride in zip(type.sizes, type.strides, strict=True):
        assert isinstance(size, int) and isinstance(stride, int), "sizes are not known"
        if size == 0:
            return 0
        last += (size - 1) * stride
    return (last + 1) * type.dtype.itemsize


def _aligned(count: int) -> int:
    return -(-max(count, 1) // ALIGNMENT) * ALIGNMENT


def _gap(busy: list[tuple[int, int]], size: int) -> int:
    start = 0
    for low, high in busy:
        if low - start >= size:
            break
        start = max(start, high)
    return start


def _lifetimes(schedule: Schedule) -> dict[str, tuple[int, int]]:
    """For each buffer: the first and the last item that touches it."""
    life: dict[str, tuple[int, int]] = {}
    for place, item in enumerate(schedule.items):
        for name in touched(item):
            first, _ = life.get(name, (place, place))
            life[name] = (first, place)
    return life


def touched(item: Kernel | Call) -> set[str]:
    """The buffers that an item reads or writes."""
    if isinstance(item, Call):
        return reads_of(item) | set(item.results)
    return buffers_in(item.body)
