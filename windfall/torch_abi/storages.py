"""Storages over memory that somebody else owns, which behave as torch's own.

Enters: a memoryview. Leaves: a storage that keeps the view alive, no longer than it needs it: the
view dies when the last tensor, array or saved value over that memory is gone, or when the storage
was moved elsewhere (`resize_`, `share_memory_`). Invariant: where a storage cannot be made
resizable (the probe fails), `borrowed_storage` says so, and nobody is given one that refuses what
torch's own would do.
"""

from __future__ import annotations

import ctypes
import sys
import warnings
from typing import Any

import torch

from windfall.dataclass import dataclass
from windfall.torch_abi.probes import NotFound, bytes_at, fact, only, words_at

_WORDS = 12  # of a storage, up to its allocator and a few behind it


@dataclass(frozen=True, slots=True)
class StorageLayout:
    """Where a storage keeps whether it may grow, and by which allocator."""

    resizable: int  # of a byte
    allocator: int  # of a word
    usual: int  # torch's allocator for the CPU


def _borrowed(view: memoryview) -> torch.UntypedStorage:
    with warnings.catch_warnings():  # of views that may not be written: ours may
        return torch.frombuffer(view, dtype=torch.uint8).untyped_storage()


def _fresh(size: int, device: Any) -> Any:
    return torch.UntypedStorage(size, device=device)  # type: ignore[no-untyped-call]


@fact
def storage_layout() -> StorageLayout:
    """How a storage over foreign memory is made one that can grow."""
    sizes = [16 * (3 + at) for at in range(8)]  # of their own, so that the word is found
    memory = memoryview(bytearray(256))
    own: list[Any] = [_fresh(size, "cpu") for size in sizes]
    foreign = [_borrowed(memory[:size]) for size in sizes]
    usual, unknown = ([words_at(s._cdata, _WORDS) for s in some] for some in (own, foreign))
    words = (
        at
        for at in range(_WORDS)
        if len({one[at] for one in usual}) == 1
        and usual[0][at] > 1 << 16  # an address
        and all(one[at] == 0 for one in unknown)
    )
    allocator = only(words, "the allocator of a storage")
    counted = (
        at for at in range(_WORDS) if [one[at] for one in (*usual, *unknown)] == [*sizes, *sizes]
    )
    first = 8 * (only(counted, "the size of a storage") + 1)
    raw = [[bytes_at(s._cdata, 8 * allocator) for s in some] for some in (own, foreign)]
    flags = (
        at
        for at in range(first, 8 * allocator)
        if all(one[at] == 1 for one in raw[0]) and all(one[at] == 0 for one in raw[1])
    )
    found = StorageLayout(only(flags, "a storage's flag"), 8 * allocator, usual[0][allocator])
    _try(found, foreign[0])
    return found


def _try(layout: StorageLayout, storage: Any) -> None:
    """It grows, keeps what it had, and lets go of the memory that it was over."""
    _make_resizable(layout, storage)
    storage.fill_(7)
    before, last = storage.data_ptr(), storage.nbytes() - 1
    storage.resize_(8192)
    if storage.data_ptr() == before or storage.nbytes() != 8192 or storage[last] != 7:
        raise NotFound("a storage over foreign memory does not grow")


def _make_resizable(layout: StorageLayout, storage: torch.UntypedStorage) -> None:
    address = storage._cdata
    ctypes.c_uint64.from_address(address + layout.allocator).value = layout.usual
    ctypes.c_uint8.from_address(address + layout.resizable).value = 1


def borrowed_storage(view: memoryview) -> torch.UntypedStorage | None:
    """A storage over the memory of a view; None: it could not be as torch's own."""
    layout = storage_layout()
    if layout is None:
        return None
    storage = torch.frombuffer(view, dtype=torch.uint8).untyped_storage()
    _make_resizable(layout, storage)
    return storage


def tensor_over(
    storage: torch.UntypedStorage,
    sizes: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: torch.dtype,
    offset: int = 0,
) -> torch.Tensor:
    """A tensor over a storage that is no view of another one and was never written."""
    made = torch.empty(0, dtype=dtype, device=storage.device)
    made.set_(storage, offset, sizes, strides)
    if not made.is_inference():
        torch._C._autograd._unsafe_set_version_counter((made,), (0,))
    return made


def move_storage(storage: torch.UntypedStorage) -> None:
    """Let a storage have memory of its own, with the same contents; its views follow."""
    fresh = _fresh(storage.nbytes(), storage.device)
    fresh.copy_(storage)
    fresh._swap_data_ptr_(storage)


def torch_step_marks() -> int:
    """How often the program called `torch.compiler.cudagraph_mark_step_begin()`. Nothing is loaded
    for it: torch counts in a module that the first such call loads."""
    module: Any = sys.modules.get("torch._inductor.cudagraph_trees")
    box = getattr(module, "MarkStepBox", None)
    return int(getattr(box, "mark_step_counter", 0))
