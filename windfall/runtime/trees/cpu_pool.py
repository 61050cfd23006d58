"""The pool of a CPU tree: address space that is reserved once, used from its start, never moved.

Enters: offsets that `live_intervals.py` chose. Leaves: tensors over that memory, each with a
`PoolBlock` that dies with its last reader. Invariant: a tensor over the arena keeps the arena
alive, not its manager; it behaves as one with memory of torch's own (it may grow, be shared, be
moved).

A page that was never written costs nothing, so that reserving much is free; where the system
forbids it (limits of address space), less is reserved.
"""

from __future__ import annotations

import mmap
import weakref
from collections.abc import Sequence

import torch

from windfall import torch_abi
from windfall.runtime.trees.device import GraphRegion, NotRecordable, PoolBlock, Skip
from windfall.runtime.trees.live_intervals import Interval, merged, place

RESERVED = 1 << 38  # bytes of address space
LEAST = 1 << 28  # where not even so much can be had, nothing is recorded

_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)


def _reserve() -> mmap.mmap | None:
    size = RESERVED
    while size >= LEAST:
        try:
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
            return mmap.mmap(-1, size, flags=flags)
        except (OSError, ValueError, OverflowError):
            size //= 4
    return None


class CpuPool:
    """Memory of one tree."""

    def __init__(self) -> None:
        reserved = _reserve()
        self._view = memoryview(reserved) if reserved is not None else None
        self.room = len(reserved) if reserved is not None else 0
        self.base = 0
        if self._view is not None:
            self.base = torch.frombuffer(self._view[:1], dtype=torch.uint8).data_ptr()
        self.high = 0  # how far it was ever used

    def place(self, live: Sequence[PoolBlock], wanted: Sequence[int]) -> tuple[list[int], int]:
        """Offsets for these sizes around the live blocks, and how far they reach."""
        taken = [(one.start, one.end) for one in live]
        offsets, _ = place(taken, wanted)
        reach = max((o + s for o, s in zip(offsets, wanted, strict=True)), default=0)
        if reach > self.room:
            raise NotRecordable(Skip.FULL, f"{reach} bytes of {self.room}")
        self.high = max(self.high, reach)
        return offsets, reach

    def tensor(
        self,
        offset: int,
        size: int,
        shape: tuple[tuple[int, ...], tuple[int, ...], torch.dtype],
        region: GraphRegion,
        is_saved: bool,
    ) -> tuple[torch.Tensor, PoolBlock]:
        """A tensor over a part of the arena, and the block that dies with it."""
        assert self._view is not None
        view = self._view[offset : offset + size]
        storage = torch_abi.borrowed_storage(view)
        if storage is None:
            raise NotRecordable(Skip.NO_STORAGE)
        block = PoolBlock(offset, size, region, is_saved)
        block.watch = weakref.ref(view, block.died)
        return torch_abi.tensor_over(storage, *shape), block


def footprint(offsets: Sequence[int], sizes: Sequence[int]) -> tuple[Interval, ...]:
    """The ground that these cover."""
    return merged((o, o + s) for o, s in zip(offsets, sizes, strict=True))
