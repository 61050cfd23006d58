"""CUDA as a device of graph trees, on `torch.cuda.CUDAGraph`.

Enters: callables on CUDA tensors. Leaves: CUDA graphs that share one private pool of torch's
caching allocator. **It has never run**: there is no GPU where windfall is built. What it is given
and asked for, and in which order, is proven by a fake device with the same base (`capturing.py`,
`tests/trees/fake.py`); what the calls below do on hardware is not.

Invariant: as in `capturing.py`. Captures happen on a stream of the pool's, replays and copies on
the caller's; a live result that must make way is copied, in the order of that stream, to ordinary
memory.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from windfall import locks, torch_abi
from windfall.dataclass import dataclass
from windfall.runtime.trees.capturing import CapturedRecording, CapturingDevice, OutputRow
from windfall.runtime.trees.device import NotRecordable, PoolBlock, Skip

_CAPTURES = locks.lock()  # of the process: captures of two threads must not overlap


@dataclass(frozen=True, slots=True)
class CudaState:
    """The allocator's own state, and the results that were alive in it."""

    checkpoint: Any
    results: frozenset[int]


class CudaPool:
    """A private pool of one device."""

    def __init__(self, device: int) -> None:
        self.device = torch.device("cuda", device)
        self.index = device
        self.handle = torch.cuda.graph_pool_handle()
        self.stream: torch.cuda.Stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self.blocks: list[PoolBlock] = []
        # An empty graph keeps the pool from being freed while it has no other.
        self.keeper = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.keeper, pool=self.handle, stream=self.stream):
            pass

    def alive(self) -> list[PoolBlock]:
        """Results that are alive."""
        self.blocks = [one for one in self.blocks if one.alive]
        return self.blocks


class CudaDevice(CapturingDevice):
    """One CUDA device."""

    name = "cuda"

    def __init__(self, index: int = 0) -> None:
        self.index = index

    def create_pool(self) -> CudaPool:
        """A private pool."""
        return CudaPool(self.index)

    def destroy_pool(self, pool: CudaPool) -> None:
        """Results move out; then the pool goes with its last graph."""
        for block in pool.alive():
            self.evict(pool, block)
        pool.keeper.reset()

    def pool_bytes(self, pool: CudaPool) -> int:
        """The pool's segments."""
        return sum(size for _, size in torch_abi.pool_segments(pool.index, pool.handle))

    @contextmanager
    def allocating(self, pool: CudaPool, live: Sequence[PoolBlock]) -> Iterator[None]:
        """Through the allocator's own pools."""
        with torch_abi.allocating_in_pool(pool.index, pool.handle):
            yield

    def capture(
        self, pool: CudaPool, body: Callable[[], Any], live: Sequence[PoolBlock]
    ) -> tuple[Any, Any]:
        """A CUDA graph; what cannot be captured is refused."""
        torch_abi.clear_workspaces()
        graph = torch.cuda.CUDAGraph()
        pool.stream.wait_stream(torch.cuda.current_stream(pool.device))
        try:
            with (
                _CAPTURES,
                torch.cuda.graph(
                    graph,
                    pool=pool.handle,
                    stream=pool.stream,
                    capture_error_mode="thread_local",
                ),
            ):
                results = body()
        except torch.AcceleratorError as error:
            raise NotRecordable(Skip.REFUSED, str(error)) from error
        finally:
            torch_abi.clear_workspaces()
            torch.cuda.current_stream(pool.device).wait_stream(pool.stream)
        return graph, results

    def launch(self, pool: CudaPool, graph: Any) -> None:
        """On the caller's stream."""
        graph.replay()

    def storage(self, pool: CudaPool, address: int, bytes: int) -> tuple[Any, Any]:
        """The storage is its own token: it frees nothing when it dies."""
        made = torch_abi.unowned_storage(address, pool.device, bytes)
        return made, made

    def watch(self, pool: CudaPool, block: PoolBlock, token: Any, storage: Any) -> None:
        """By the storage."""
        block.watch = weakref.ref(token, block.died)
        block.storage = weakref.ref(storage)
        pool.blocks.append(block)

    def tensor(self, storage: Any, row: OutputRow) -> torch.Tensor:
        """Over the storage."""
        assert row.dtype is not None
        return torch_abi.tensor_over(storage, row.sizes, row.strides, row.dtype, row.offset)

    def copy(self, pool: CudaPool, target: torch.Tensor, source: torch.Tensor) -> None:
        """On the caller's stream."""
        target.copy_(source)

    def inside(self, pool: CudaPool, address: int) -> bool:
        """Whether one of the pool's segments holds it."""
        segments = torch_abi.pool_segments(pool.index, pool.handle)
        return any(start <= address < start + size for start, size in segments)

    def is_ours(self, tensor: torch.Tensor) -> bool:
        """Whether it stands on this device."""
        return tensor.device == torch.device("cuda", self.index)

    def state(self, pool: CudaPool) -> CudaState:
        """The allocator's checkpoint."""
        checkpoint = torch_abi.pool_checkpoint(pool.index, pool.handle)
        return CudaState(checkpoint, frozenset(one.start for one in pool.alive()))

    def restore(self, pool: CudaPool, state: CudaState | None, live: Sequence[PoolBlock]) -> None:
        """The allocator has seen nothing of replays: tell it what is alive."""
        if state is None:
            return
        storages = {one.start: one.storage() for one in live if one.start in state.results}
        kept = [one for one in storages.values() if one is not None]
        dead = sorted(state.results - storages.keys())
        torch_abi.set_pool_checkpoint(pool.index, state.checkpoint, kept, dead)

    def evict(self, pool: CudaPool, block: PoolBlock) -> bool:
        """To ordinary memory, in the order of the stream."""
        storage = block.storage()
        if storage is None:
            return False
        torch_abi.move_storage(storage)
        block.alive = False
        return True

    def release(self, pool: CudaPool, recording: CapturedRecording) -> None:
        """The graph and its memory."""
        recording.graph.reset()

    def live_blocks(self, pool: CudaPool) -> dict[int, int]:
        """The allocator's, and the results that it does not know."""
        known = {one.start: one.size for one in pool.alive()}
        return torch_abi.pool_blocks(pool.index, pool.handle) | known

    def fence(self, pool: CudaPool) -> None:
        """All streams."""
        torch.cuda.synchronize(pool.device)
