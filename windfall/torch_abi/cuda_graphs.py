"""What torch keeps private of CUDA's caching allocator: pools, checkpoints, storages.

Enters: a device's number, the handle of a pool. Leaves: thin calls. Nothing here has run on real
hardware: there is none where windfall is built (`docs/graph-trees.md`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

Handle = tuple[int, int]


@contextmanager
def allocating_in_pool(device: int, handle: Handle) -> Iterator[None]:
    """While it lasts, this thread's allocations come from the pool."""
    torch._C._cuda_beginAllocateCurrentThreadToPool(device, handle)
    try:
        yield
    finally:
        torch._C._cuda_endAllocateToPool(device, handle)
        torch._C._cuda_releasePool(device, handle)


def pool_checkpoint(device: int, handle: Handle) -> Any:
    """What is allocated in the pool now."""
    return torch._C._cuda_getCheckpointState(device, handle)


def set_pool_checkpoint(
    device: int, state: Any, live: Sequence[torch.UntypedStorage], dead: Sequence[int]
) -> None:
    """Let the pool be as then; the live storages free their memory when they die, and what is dead
    is free now."""
    addresses = [one._cdata for one in live]
    torch._C._cuda_setCheckpointPoolState(device, state, [], addresses)
    for address in dead:
        torch._C._cuda_cudaCachingAllocator_raw_delete(address)


def unowned_storage(address: int, device: torch.device, size: int) -> torch.UntypedStorage:
    """A storage over memory that it does not free."""
    made: Any = torch._C._construct_storage_from_data_pointer(address, device, size)
    return made  # type: ignore[no-any-return]


def pool_blocks(device: int, handle: Handle) -> dict[int, int]:
    """What the allocator takes for allocated in the pool, address to bytes."""
    found: dict[int, int] = {}
    for segment in _segments(device, handle):
        for block in segment["blocks"]:
            if block["state"] == "active_allocated":
                found[block["address"]] = block["size"]
    return found


def pool_segments(device: int, handle: Handle) -> list[tuple[int, int]]:
    """The pool's memory: address and bytes of each segment."""
    return [(one["address"], one["total_size"]) for one in _segments(device, handle)]


def _segments(device: int, handle: Handle) -> list[dict[str, Any]]:
    every = torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
    return [
        one for one in every if one["device"] == device and tuple(one["segment_pool_id"]) == handle
    ]


def clear_workspaces() -> None:
    """Let go of scratch memory that libraries keep: none may stay in a pool."""
    torch._C._cuda_clearCublasWorkspaces()
