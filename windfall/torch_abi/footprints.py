"""All that changes in memory when something is done to a tensor that nobody else holds.

Enters: nothing. Leaves: `TensorFootprint`: which words around a tensor's Python object, in its
TensorImpl, its storage and its version counter say that it is as it was when it was made. A tensor
whose words are what they were then, and whose object has one owner, may be handed out again as a
fresh one. Invariant: the probe does to tensors whatever a program can (views, attributes, weak
references, gradients, hooks, writes, sizes, storages, arrays, capsules, classes) and takes the
words only if each of these is seen in them.
"""

from __future__ import annotations

import ctypes
import sys
import weakref
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch

from windfall.dataclass import dataclass
from windfall.torch_abi.builtins import CMemory, libc, untracked
from windfall.torch_abi.probes import NotFound, late_fact, only, peek, words_at
from windfall.torch_abi.tensors import storage_count, tensor_layout

_MANAGED = (1 << 3) | (1 << 4)  # flags of CPython's classes: words before the object
_BEFORE = 2  # such words, in front of those of the collector
_COLLECTOR = 2
_STORAGE, _VERSION = 12, 3


@dataclass(frozen=True, slots=True)
class TensorFootprint:
    """How many words are looked at: of those before a tensor's object (at `start`, in bytes), of
    the object behind its count of owners, of the TensorImpl, of the storage, and of the version
    counter, to which the TensorImpl points at `counter`."""

    start: int
    before: int
    object: int
    impl: int
    storage: int
    version: int
    counter: int

    @property
    def words(self) -> int:
        """In all."""
        return self.before + self.object + self.impl + self.storage + self.version


def footprint_words(tensor: torch.Tensor, footprint: TensorFootprint) -> list[int]:
    """What these words are: as machine code sees them."""
    layout = tensor_layout()
    assert layout is not None
    (impl,) = words_at(id(tensor) + layout.handle, 1)
    (storage,) = words_at(impl + layout.storage, 1)
    (counter,) = words_at(impl + footprint.counter, 1)
    found = words_at(id(tensor) + footprint.start, footprint.before)
    found += words_at(id(tensor) + 8, footprint.object)
    found += words_at(impl, footprint.impl) + words_at(storage, footprint.storage)
    return found + (words_at(counter, footprint.version) if counter else [])


def _counter_offset() -> int:
    """Where a TensorImpl points to its version counter."""
    samples = [torch.zeros(3) for _ in range(4)]

    def versions(tensor: torch.Tensor, place: int) -> list[int] | None:
        (address,) = words_at(tensor._cdata + 8 * place, 1)
        if address % 8 or address < 1 << 16 or peek(address) is None:
            return None
        try:
            return words_at(address, _VERSION)
        except NotFound:
            return None

    places = []
    for place in range(3, 12):
        moved = []
        for one in samples:
            before = versions(one, place)
            one.add_(1)
            after = versions(one, place)
            if before is None or after is None:
                break
            differences = [new - old for old, new in zip(before, after, strict=True)]
            moved.append(sorted(differences) == [0] * (_VERSION - 1) + [1])
        if len(moved) == len(samples) and all(moved):
            places.append(8 * place)
    return only(places, "the version counter of a tensor")


class _Other(torch.Tensor):
    pass


def _hooked(tensor: torch.Tensor) -> None:
    tensor.requires_grad_().register_hook(lambda gradient: gradient)  # type: ignore[no-untyped-call]


def _stored(tensor: torch.Tensor) -> None:
    tensor.untyped_storage().resize_(4096)


def _set(tensor: torch.Tensor) -> None:
    tensor.set_(torch.zeros(6).untyped_storage(), 0, (2, 3), (3, 1))


def _data(tensor: torch.Tensor) -> None:
    tensor.data = torch.zeros(2, 3)


def _kind(tensor: torch.Tensor) -> None:
    tensor.__class__ = _Other


def _saved(tensor: torch.Tensor) -> Any:
    return torch.ones(2, 3, requires_grad=True) * tensor


# What a program can do; what is answered is held while the words are read.
CHANGES: dict[str, Callable[[torch.Tensor], Any]] = {
    "view": lambda one: one[0],
    "detach": lambda one: one.detach(),
    "data": lambda one: one.data,
    "alias": lambda one: one.view_as(one),
    "attribute": lambda one: setattr(one, "mark", 1),
    "weakref": weakref.ref,
    "class": _kind,
    "requires_grad": lambda one: one.requires_grad_(),
    "hook": _hooked,
    "grad": lambda one: setattr(one, "grad", torch.zeros(2, 3)),
    "saved": _saved,
    "write": lambda one: one.add_(1),
    "write of an item": lambda one: one.__setitem__(0, 1.0),
    "version": lambda one: torch._C._autograd._unsafe_set_version_counter((one,), (7,)),
    "resize": lambda one: one.resize_(1, 2),
    "smaller": lambda one: one.resize_(2, 2),
    "larger": lambda one: one.resize_(64, 64),
    "transpose": lambda one: one.t_(),
    "unsqueeze": lambda one: one.unsqueeze_(0),
    "as_strided": lambda one: one.as_strided_((3,), (1,), 1),
    "set": _set,
    "new data": _data,
    "storage": lambda one: one.untyped_storage(),
    "resized storage": _stored,
    "shared memory": lambda one: one.share_memory_(),  # type: ignore[no-untyped-call]
    "array": lambda one: one.numpy(),
    "capsule": lambda one: torch.utils.dlpack.to_dlpack(one),  # type: ignore[attr-defined]
    "lazy copy": lambda one: torch._lazy_clone(one),
}


@late_fact
def tensor_footprint() -> TensorFootprint:
    """The words by which a tensor is seen to be as it was made."""
    layout, count = tensor_layout(), storage_count()
    if layout is None or count is None or not hasattr(sys, "getrefcount"):
        raise NotFound("no layout of tensors or storages")
    managed = bool(torch.Tensor.__flags__ & _MANAGED)
    found = TensorFootprint(
        start=-8 * (_BEFORE + _COLLECTOR) if managed else 0,
        before=_BEFORE if managed else 0,
        object=torch.Tensor.__basicsize__ // 8 - 1,
        impl=(max(layout.key_set, layout.dtype, layout.storage_offset, layout.elements) + 8) // 8,
        storage=_STORAGE,
        version=_VERSION,
        counter=_counter_offset(),
    )
    for name, change in CHANGES.items():
        tensor = torch.zeros(2, 3)
        if words_at(id(tensor), 1) != [1]:
            raise NotFound("the count of an object's owners")
        before = footprint_words(tensor, found)
        if footprint_words(tensor, found) != before:
            raise NotFound("the words of a tensor move by themselves")
        held = change(tensor)
        if footprint_words(tensor, found) == before:
            raise NotFound(f"a tensor that was changed ({name}) looks as before")
        del held
    _keeps_still(found)
    return found


def _keeps_still(footprint: TensorFootprint) -> None:
    """What is only read stays as it was."""
    tensor = torch.zeros(2, 3)
    before = footprint_words(tensor, footprint)
    torch.relu(tensor), tensor + 1, tensor.shape, tensor.tolist(), repr(tensor), tensor[0].sum()
    tensor.detach().sum(), torch.utils.dlpack.to_dlpack(tensor), tensor.data_ptr()  # type: ignore[attr-defined]
    if footprint_words(tensor, footprint) != before:
        raise NotFound("a tensor that was only read looks different")


_let_go = ctypes.pythonapi.Py_DecRef
_let_go.restype, _let_go.argtypes = None, [ctypes.c_void_p]

PLACES = 4  # objects that a ring holds
# The words of a ring, before its places: how many objects in a row were changed, the numbers of a
# `TensorFootprint`, the words of a place. A place: the object, the mode of the thread that made it,
# the words of its footprint.
RING = "strikes start before object impl storage version counter size"
_SIZE = RING.split().index("size")
_HEADER, _PLACE = _SIZE + 1, 2


class TensorRing(CMemory):
    """C memory in which machine code keeps tensors' objects; they go with it."""

    __slots__ = ()

    def __del__(
        self,
        free: Callable[[int], None] = libc.free,
        let_go: Callable[[int], None] = _let_go,
        word: Any = ctypes.c_uint64,
    ) -> None:
        address = int(self)
        size = word.from_address(address + 8 * _SIZE).value
        for place in range(PLACES):
            held = word.from_address(address + 8 * (_HEADER + place * size)).value
            if held:
                let_go(held)
        free(address)


def tensor_ring() -> TensorRing | None:
    """An empty ring; None where tensors cannot be told to be as they were made."""
    footprint = tensor_footprint()
    if footprint is None:
        return None
    size = _PLACE + footprint.words
    header = {**asdict(footprint), "strikes": 0, "size": size}
    words = [*(header[name] for name in RING.split()), *[0] * (PLACES * size)]
    contents = b"".join((word & (1 << 64) - 1).to_bytes(8, "little") for word in words)
    address = libc.malloc(len(contents))
    if not address:
        raise MemoryError(f"{len(contents)} bytes")
    ctypes.memmove(address, contents, len(contents))
    made: TensorRing = untracked(TensorRing(address))
    return made
