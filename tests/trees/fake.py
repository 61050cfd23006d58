"""A device like CUDA, without one: asynchronous, with addresses baked in, and cruel.

Work is queued, and done when somebody waits for it (`fence`): who reads too early reads what was
there before. A captured graph is a list of operations on raw addresses. Memory that nobody holds is
filled with 0xFF (NaN) as soon as the pool is used again: who reads too late reads NaN. The pool
keeps its own books, and two allocations that overlap are an error.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from windfall import torch_abi
from windfall.runtime.trees.capturing import CapturingDevice, OutputRow
from windfall.runtime.trees.device import PoolBlock
from windfall.runtime.trees.live_intervals import place

Raw = tuple[int, tuple[int, ...], tuple[int, ...], torch.dtype]


def raw(one: torch.Tensor) -> Raw:
    return one.data_ptr(), tuple(one.shape), one.stride(), one.dtype


def at(one: Raw) -> torch.Tensor:
    """The tensor that stands there now, whatever that is."""
    address, sizes, strides, dtype = one
    if 0 in sizes:
        return torch.empty_strided(sizes, strides, dtype=dtype)
    last = sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    memory = (ctypes.c_char * ((last + 1) * dtype.itemsize)).from_address(address)
    return torch.frombuffer(memory, dtype=dtype).as_strided(sizes, strides)


class FakePool:
    """Memory, the queue of its stream, and its books."""

    def __init__(self, size: int = 1 << 24) -> None:
        self.view = memoryview(mmap.mmap(-1, size))
        self.base = torch.frombuffer(self.view[:1], dtype=torch.uint8).data_ptr()
        self.size = size
        self.device = torch.device("cpu")
        self.queue: list[Callable[[], None]] = []
        self.capturing: list[Callable[[], None]] | None = None
        self.held: dict[int, tuple[int, Any]] = {}  # address: bytes, what dies with it
        self.high = 0
        self.order: list[str] = []  # what was asked of the device

    def sweep(self) -> None:
        """What nobody holds is gone: in the order of the stream."""
        for address, (size, token) in list(self.held.items()):
            if token() is None:
                del self.held[address]
                self.queue.append(lambda address=address, size=size: self.poison(address, size))

    def poison(self, address: int, size: int) -> None:
        if not any(a < address + size and address < a + s for a, (s, _) in self.held.items()):
            ctypes.memset(address, 0xFF, size)

    def flush(self) -> None:
        while self.queue:
            self.queue.pop(0)()

    def memory(self, address: int, size: int) -> memoryview:
        return self.view[address - self.base : address - self.base + size]


class FakeAsyncDevice(CapturingDevice):
    """Operations go through `op` and `write`."""

    name = "fake"

    def __init__(self) -> None:
        self._allocates: tuple[FakePool, Sequence[PoolBlock]] | None = None
        self._pool: FakePool | None = None
        self.graphs = 0

    def create_pool(self) -> FakePool:
        self._pool = FakePool()
        return self._pool

    def destroy_pool(self, pool: FakePool) -> None:
        pool.order.append("destroy")

    def pool_bytes(self, pool: FakePool) -> int:
        return pool.high

    # -------------------------------------------------------------------------------- operations

    def op(self, function: Callable[..., torch.Tensor], *inputs: Any) -> torch.Tensor:
        """A kernel: its result is there when the queue comes to it."""
        metas = [one.to("meta") if isinstance(one, torch.Tensor) else one for one in inputs]
        shape = function(*metas)
        out = self._empty(tuple(shape.shape), shape.dtype)
        self._enqueue(function, out, inputs)
        return out

    def write(
        self, function: Callable[..., torch.Tensor], target: torch.Tensor, *inputs: Any
    ) -> None:
        """A kernel that writes its first operand."""
        self._enqueue(function, target, (target, *inputs))
        torch_abi.raise_version(target, 1)

    def _enqueue(self, function: Any, out: torch.Tensor, inputs: Sequence[Any]) -> None:
        baked = [raw(one) if isinstance(one, torch.Tensor) else one for one in inputs]
        tensors = [isinstance(one, torch.Tensor) for one in inputs]
        where = raw(out)
        pool = self._pool
        assert pool is not None
        held = None if pool.capturing is not None else (out, *inputs)

        def work(held: Any = held) -> None:
            given = [at(one) if is_one else one for one, is_one in zip(baked, tensors, strict=True)]
            at(where).copy_(function(*given))

        (pool.queue if pool.capturing is None else pool.capturing).append(work)

    def _empty(self, sizes: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        if self._allocates is None:
            return torch.empty(sizes, dtype=dtype)
        pool, live = self._allocates
        elements = 1
        for size in sizes:
            elements *= size
        made = self._allocated(pool, elements * dtype.itemsize, live)
        strides, step = [], 1
        for size in reversed(sizes):
            strides.append(step)
            step *= max(size, 1)
        return torch_abi.tensor_over(made, sizes, tuple(reversed(strides)), dtype)

    def _allocated(self, pool: FakePool, size: int, live: Sequence[PoolBlock]) -> Any:
        taken = [(a - pool.base, a - pool.base + s) for a, (s, _) in pool.held.items()]
        taken += [(one.start - pool.base, one.end - pool.base) for one in live]
        (offset,), _ = place(taken, [max(size, 1)])
        assert offset + size <= pool.size, "the fake pool is full"
        pool.high = max(pool.high, offset + size)
        view = pool.view[offset : offset + max(size, 1)]
        storage = torch_abi.borrowed_storage(view)
        pool.held[pool.base + offset] = (max(size, 1), weakref.ref(view))
        return storage

    # -------------------------------------------------------------------------------- primitives

    @contextlib.contextmanager
    def allocating(self, pool: FakePool, live: Sequence[PoolBlock]) -> Iterator[None]:
        pool.sweep()
        before, self._allocates = self._allocates, (pool, live)
        try:
            yield
        finally:
            self._allocates = before

    def _buffer_like(self, one: torch.Tensor) -> torch.Tensor:
        assert self._allocates is not None
        pool, live = self._allocates
        kept = zip(one.shape, one.stride(), strict=True)
        last = sum((size - 1) * stride for size, stride in kept) if one.numel() else -1
        made = self._allocated(pool, (last + 1) * one.dtype.itemsize, live)
        return torch_abi.tensor_over(made, tuple(one.shape), one.stride(), one.dtype)

    def capture(
        self, pool: FakePool, body: Callable[[], Any], live: Sequence[PoolBlock]
    ) -> tuple[Any, Any]:
        assert pool.capturing is None, "recordings overlap in time"
        pool.order.append("capture")
        pool.capturing = []
        try:
            with self.allocating(pool, live):
                results = body()
            self.graphs += 1
            return pool.capturing, results
        finally:
            pool.capturing = None

    def launch(self, pool: FakePool, graph: Any) -> None:
        assert pool.capturing is None
        pool.order.append("launch")
        pool.queue.extend(graph)

    def storage(self, pool: FakePool, address: int, bytes: int) -> tuple[Any, Any]:
        view = pool.memory(address, bytes)
        return torch_abi.borrowed_storage(view), view

    def watch(self, pool: FakePool, block: PoolBlock, token: Any, storage: Any) -> None:
        block.watch = weakref.ref(token, block.died)
        block.storage = weakref.ref(storage)
        known = pool.held.get(block.start)
        assert known is None or known[1]() is None or known[0] == block.size, "memory held twice"
        pool.held[block.start] = (block.size, weakref.ref(token))

    def tensor(self, storage: Any, row: OutputRow) -> torch.Tensor:
        assert row.dtype is not None
        return torch_abi.tensor_over(storage, row.sizes, row.strides, row.dtype, row.offset)

    def copy(self, pool: FakePool, target: torch.Tensor, source: torch.Tensor) -> None:
        pool.order.append("copy")
        where, what = raw(target), raw(source)
        pool.queue.append(lambda held=(target, source): at(where).copy_(at(what)))

    def inside(self, pool: FakePool, address: int) -> bool:
        return pool.base <= address < pool.base + pool.size

    def is_ours(self, tensor: torch.Tensor) -> bool:
        return tensor.device.type == "cpu"

    def state(self, pool: FakePool) -> Any:
        return dict(pool.held)

    def restore(self, pool: FakePool, state: Any, live: Sequence[PoolBlock]) -> None:
        pool.order.append("restore")
        pool.sweep()

    def evict(self, pool: FakePool, block: PoolBlock) -> bool:
        pool.order.append("evict")
        pool.flush()  # its contents are there only then
        storage = block.storage()
        if storage is None:
            return False
        torch_abi.move_storage(storage)
        return True

    def release(self, pool: FakePool, recording: Any) -> None:
        pool.order.append("release")

    def live_blocks(self, pool: FakePool) -> dict[int, int]:
        pool.sweep()
        return {address: size for address, (size, token) in pool.held.items()}

    def fence(self, pool: FakePool) -> None:
        pool.order.append("fence")
        pool.flush()
