"""What a tensor is in memory, and what it says of itself when no user code is asked.

Enters: tensors. Leaves: `TensorLayout`, the offsets that guards and kernels read by; the same facts
through torch's private calls. Invariant: the layout was compared with the public answers on tensors
of every kind that a kernel may be given.

    >>> tensor_layout().dtype      # where a TensorImpl keeps its element type
    160
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from windfall.dataclass import dataclass
from windfall.torch_abi.builtins import libc
from windfall.torch_abi.probes import (
    NotFound,
    bytes_at,
    c_function,
    fact,
    only,
    word_offset,
    words_at,
)
from windfall.torch_abi.symbols import symbol


@dataclass(frozen=True, slots=True)
class TensorLayout:
    """Byte offsets: of the TensorImpl pointer in the Python object; of fields in a TensorImpl; of
    fields behind its storage and autograd pointers."""

    handle: int
    key_set: int
    dtype: int  # 16 bits, a ScalarType
    device: int  # 8 bits of type, 8 bits of index
    elements: int
    rank: int  # then `inline_dims` sizes and as many strides, or a pointer to both
    inline_dims: int
    storage: int
    storage_offset: int
    autograd: int  # null: no gradient, not a view
    storage_data: int
    storage_check: int  # 8 bits; not 0: the data pointer must be asked for, not read
    forward_grad: int  # behind `autograd`; null: no forward-mode tangent
    requires_grad: int  # behind `autograd`, 8 bits; 1: a leaf that needs a gradient


_IMPL_WORDS = 22
_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.complex64)


def _sample_tensors() -> list[torch.Tensor]:
    shapes: tuple[tuple[int, ...], ...] = ((), (11,), (11, 13), (11, 13, 17), (2, 3, 5, 7))
    shapes += ((2, 3, 4, 5, 7), (2, 3, 1, 5, 2, 7), (2, 3, 1, 5, 2, 1, 3))
    samples = [torch.empty(shape, dtype=dtype) for shape in shapes for dtype in _DTYPES]
    wide = torch.empty(40, 50)
    samples += [wide.t(), wide[3:, 7:], wide[::3, ::7], wide.as_strided((19, 1), (51, 0), 23)]
    samples += [torch.empty(3, requires_grad=True), torch.nn.Parameter(torch.empty(4, 5))]
    return samples


def _shape_place(sample: torch.Tensor) -> int:
    sizes, strides = list(sample.shape), list(sample.stride())
    rank = len(sizes)
    table = words_at(sample._cdata, _IMPL_WORDS)
    return only(
        (
            place
            for place in range(_IMPL_WORDS - 11)
            if table[place] == rank
            and table[place + 1 : place + 1 + rank] == sizes
            and table[place + 6 : place + 6 + rank] == strides
        ),
        "sizes and strides",
    )


def _changed_word(before: list[int], after: list[int], what: str) -> int:
    """The first word that was null and is not any more."""
    for place, (old, new) in enumerate(zip(before, after, strict=True)):
        if old == 0 and new != 0:
            return 8 * place
    raise NotFound(what)


@contextlib.contextmanager
def _forward_level() -> Iterator[int]:
    """A level of forward-mode differentiation. `dual_level` would do, but entering it for the
    first time compiles decompositions for a quarter of a second."""
    level = forward_level()
    if level >= 0:
        yield level
        return
    level = torch._C._enter_dual_level()
    try:
        yield level
    finally:
        torch._C._exit_dual_level(level=level)


def _stir() -> None:
    """Fill freed memory with ones: what an object leaves uninitialised then looks like no field."""
    held = [libc.malloc(size) for size in range(64, 512, 16) for _ in range(16)]
    for address, size in zip(held, (s for s in range(64, 512, 16) for _ in range(16)), strict=True):
        ctypes.memset(address, 0xFF, size)
    for address in held:
        libc.free(address)


def _forward_grad_offset(autograd: int) -> int:
    """A shared pointer: null without a tangent, else an object and, before it, its counts."""
    words = 16
    _stir()
    plain = [torch.zeros(3).view(3) for _ in range(8)]
    plain += [torch.zeros(3, requires_grad=True) for _ in range(8)]
    with _forward_level() as level:
        duals = [torch._VF._make_dual(torch.zeros(3), torch.ones(3), level=level) for _ in range(8)]
        without, having = (
            [words_at(words_at(one._cdata + autograd, 1)[0], words) for one in tensors]
            for tensors in (plain, duals)
        )
    return only(
        (
            8 * place
            for place in range(words - 1)
            if not any(meta[place] or meta[place + 1] for meta in without)
            and all(meta[place] - meta[place + 1] == 16 for meta in having)
        ),
        "the forward-mode tangent",
    )


def _requires_grad_offset(autograd: int) -> int:
    leaves = [torch.zeros(3, requires_grad=True) for _ in range(4)]
    leaves += [torch.nn.Parameter(torch.zeros(2, 2)) for _ in range(4)]
    metas = [words_at(leaf._cdata, _IMPL_WORDS)[autograd // 8] for leaf in leaves]
    on = [bytes_at(meta, 136) for meta in metas]
    for leaf in leaves:
        leaf.requires_grad_(False)
    off = [bytes_at(meta, 136) for meta in metas]
    fits = (
        place
        for place in range(136)
        if all(one[place] == 1 for one in on) and all(one[place] == 0 for one in off)
    )
    return only(fits, "the flag of a leaf that needs a gradient")


def _storage_offsets() -> tuple[int, int]:
    _stir()
    samples = [torch.empty(11, 13) for _ in range(8)]
    storages = [one.untyped_storage() for one in samples]
    addresses = [one._cdata for one in storages]
    pointers = [one.data_ptr() for one in storages]
    data = word_offset(addresses, pointers, 4, "a storage's data pointer")
    size = word_offset(addresses, [one.nbytes() for one in storages], 8, "a storage's size")
    plain = [bytes_at(address + size + 8, 8) for address in addresses]
    lazy = [torch._lazy_clone(one) for one in samples]  # both are copied on write from now on
    checked = [bytes_at(one.untyped_storage()._cdata + size + 8, 8) for one in lazy]
    flags = (
        size + 8 + place
        for place in range(8)
        if all(one[place] == 0 for one in plain) and all(one[place] == 1 for one in checked)
    )
    return data, only(flags, "the flag of a storage that must be asked")


@fact
def tensor_layout() -> TensorLayout:
    """Where a tensor keeps what guards and kernels read."""
    samples = _sample_tensors()
    handle = word_offset([id(t) for t in samples], [t._cdata for t in samples], 8, "the handle")
    impls = [t._cdata for t in samples]
    rank = 8 * _shape_place(samples[3 * len(_DTYPES)])
    storage = word_offset(
        impls, [t.untyped_storage()._cdata for t in samples], _IMPL_WORDS, "the storage"
    )
    offset = word_offset(impls, [int(t.storage_offset()) for t in samples], _IMPL_WORDS, "offset")
    elements = word_offset(impls, [t.numel() for t in samples], _IMPL_WORDS, "the element count")
    others = [torch.zeros(3, dtype=torch.cfloat).conj(), torch.zeros(3, device="meta")]
    keyed = samples + others
    key_set = word_offset(
        [t._cdata for t in keyed], [dispatch_keys(t) for t in keyed], _IMPL_WORDS, "the key set"
    )
    plain = torch.zeros(3)
    before = words_at(plain._cdata, _IMPL_WORDS)
    plain.requires_grad_()
    autograd = _changed_word(before, words_at(plain._cdata, _IMPL_WORDS), "autograd fields")
    data, check = _storage_offsets()
    layout = TensorLayout(
        handle=handle,
        key_set=key_set,
        dtype=_dtype_offset(samples),
        device=_device_offset(),
        elements=elements,
        rank=rank,
        inline_dims=5,
        storage=storage,
        storage_offset=offset,
        autograd=autograd,
        storage_data=data,
        storage_check=check,
        forward_grad=_forward_grad_offset(autograd),
        requires_grad=_requires_grad_offset(autograd),
    )
    for sample in samples:
        _verify_layout(layout, sample)
    return layout


class StorageCount(NamedTuple):
    """Where the count of owners is in a storage, and what stands there while one tensor that is no
    view has it (and Python has no object for it): 64 bits; one more for each further tensor."""

    offset: int
    sole: int


@fact
def storage_count() -> StorageCount:
    """How a storage counts its owners."""
    layout = tensor_layout()
    if layout is None or symbol("aoti_torch__reinterpret_tensor") is None:
        raise NotFound("no layout of tensors, or no way to share a storage")
    _stir()
    samples = [torch.empty(11, 13) for _ in range(8)]
    # Read, not asked for: a storage that Python has seen is counted differently.
    addresses = [words_at(one._cdata + layout.storage, 1)[0] for one in samples]

    def words() -> list[list[int]]:
        return [words_at(address, 4) for address in addresses]

    alone = words()
    sharing = [one.detach() for one in samples]
    shared = words()
    del sharing
    after = words()
    places = [
        place
        for place in range(4)
        if alone == after
        and len({one[place] for one in alone}) == 1
        and all(two[place] == one[place] + 1 for one, two in zip(alone, shared, strict=True))
    ]
    place = only(iter(places), "a storage's count of owners")
    return StorageCount(8 * place, alone[0][place])


def _dtype_offset(samples: list[torch.Tensor]) -> int:
    codes = [(bytes_at(t._cdata, 8 * _IMPL_WORDS), _ask_dtype(t)) for t in samples]
    fits = (
        place
        for place in range(0, 8 * _IMPL_WORDS, 2)
        if all(int.from_bytes(raw[place : place + 2], "little") == code for raw, code in codes)
    )
    return only(fits, "the element type")


def _device_offset() -> int:
    plain = [torch.zeros(3) for _ in range(8)]
    meta = [torch.zeros(3, device="meta") for _ in range(8)]
    here, there = ([bytes_at(t._cdata, 8 * _IMPL_WORDS) for t in some] for some in (plain, meta))
    far = bytes([_ask_device(meta[0]), 255])
    fits = (
        place
        for place in range(8 * _IMPL_WORDS - 2)
        if all(raw[place : place + 2] == b"\x00\xff" for raw in here)
        and all(raw[place : place + 2] == far for raw in there)
    )
    return only(fits, "the device")


def _ask(name: str, tensor: torch.Tensor) -> int:
    answer = ctypes.c_int32()
    handle = ctypes.c_void_p(tensor._cdata)
    call = c_function(name, ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
    if call(ctypes.addressof(handle), ctypes.addressof(answer)):
        raise NotFound(f"{name} failed")
    return answer.value


def _ask_dtype(tensor: torch.Tensor) -> int:
    return _ask("aoti_torch_get_dtype", tensor)


def _ask_device(tensor: torch.Tensor) -> int:
    return _ask("aoti_torch_get_device_type", tensor)


@functools.cache
def scalar_type(dtype: torch.dtype) -> int:
    """The number of an element type (c10::ScalarType), as C entries take it."""
    return _ask_dtype(torch.empty(0, dtype=dtype))


def _verify_layout(layout: TensorLayout, sample: torch.Tensor) -> None:
    impl = sample._cdata
    rank = sample.dim()
    start = impl + layout.rank
    (held,) = words_at(start, 1)
    if rank <= layout.inline_dims:
        sizes = words_at(start + 8, rank)
        strides = words_at(start + 8 + 8 * layout.inline_dims, rank)
    else:
        (outside,) = words_at(start + 8, 1)
        sizes, strides = words_at(outside, rank), words_at(outside + 8 * rank, rank)
    (storage,) = words_at(impl + layout.storage, 1)
    data = words_at(storage + layout.storage_data, 1)[0] if storage else 0
    (autograd,) = words_at(impl + layout.autograd, 1)
    (tangent,) = words_at(autograd + layout.forward_grad, 1) if autograd else (0,)
    flag = bytes_at(autograd + layout.requires_grad, 1)[0] if autograd else 0
    truths = (
        held == rank,
        tuple(sizes) == tuple(sample.shape),
        tuple(strides) == tuple(sample.stride()),
        data + sample.storage_offset() * sample.element_size() == sample.data_ptr(),
        bool(autograd) or not sample.requires_grad,
        not tangent,
        not (autograd and flag) or sample.requires_grad,
    )
    if not all(truths):
        raise NotFound(f"layout does not hold for {tuple(sample.shape)} {sample.dtype}: {truths}")


def dispatch_keys(tensor: torch.Tensor) -> int:
    """The raw bits of a tensor's own dispatch key set."""
    return int(torch._C._dispatch_keys(tensor).raw_repr())


class TensorFacts(NamedTuple):
    """What a tensor says of itself when no user code is asked."""

    dtype: torch.dtype
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    device: torch.device
    requires_grad: bool


def tensor_facts(tensor: torch.Tensor) -> TensorFacts:
    """The metadata of a tensor, without a `__torch_function__` of its class being called."""
    with torch._C.DisableTorchFunctionSubclass():
        strided = tensor.layout is torch.strided
        return TensorFacts(
            tensor.dtype,
            tuple(tensor.shape),
            tuple(tensor.stride()) if strided else (),
            tensor.device,
            tensor.requires_grad,
        )


def without_torch_function(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function of torch answers when no `__torch_function__` of a class is called."""
    with torch._C.DisableTorchFunctionSubclass():
        return function(*arguments)


def has_tangent(tensor: torch.Tensor) -> bool:
    """Whether the tensor is a dual number of forward-mode differentiation."""
    level = forward_level()
    return level >= 0 and torch._VF._unpack_dual(tensor, level=level)[1] is not None


def forward_level() -> int:
    """The level of forward-mode differentiation that is entered; -1 for none."""
    return torch.autograd.forward_ad._current_level


# The dtypes of wrapped numbers; beside a tensor of the narrower dtype a number changes nothing.
_NARROWER = {
    torch.float64: torch.zeros((), dtype=torch.float32),
    torch.int64: torch.zeros((), dtype=torch.int32),
    torch.complex128: torch.zeros((), dtype=torch.complex64),
}


def is_wrapped_number(tensor: torch.Tensor) -> bool:
    """Whether a real tensor is a number that C++ wrapped: it has a number's part in promotion."""
    narrow = _NARROWER.get(tensor.dtype)
    if narrow is None or tensor.dim() != 0:
        return False
    return torch.result_type(tensor, narrow) == narrow.dtype


def wrapped_size(tensor: torch.Tensor) -> Any:
    """The `torch.SymInt` that a wrapped number stands for (its own value means nothing then), or
    None."""
    return getattr(tensor, "_wrapped_number", None)


def replace_data(target: torch.Tensor, source: torch.Tensor) -> None:
    """Give `target` the metadata of `source`, keeping its autograd history and its version."""
    target.data = source


@functools.cache
def _plain_keys(device: str) -> int:
    """Asked of a tensor that is made outside of inference mode, wherever this is asked first."""
    with torch.inference_mode(False):
        return dispatch_keys(torch.empty(0, device=device))


def plain_keys() -> int:
    """All that may stand in the key set of a tensor of the CPU whose memory may be read as it lies:
    strided, no lazy conjugate or sign, no wrapper of a transform."""
    return _plain_keys("cpu")


def resolved(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor without a lazy conjugate or sign; itself, if it has none, or is a subclass's."""
    return tensor.resolve_conj().resolve_neg() if type(tensor) is torch.Tensor else tensor


_admitted = {"cpu"}


def admit_device(type: str) -> None:
    """Let strided tensors of this type of device count as plain."""
    _admitted.add(type)


def is_plain_tensor(tensor: torch.Tensor) -> bool:
    """Whether a graph may take it: strided memory of the CPU (or of a device that was admitted), no
    lazy conjugate or sign, no wrapper of a transform. (Inference tensors have fewer keys than
    others, never more.)"""
    device = tensor.device.type
    return not dispatch_keys(tensor) & ~_plain_keys(device if device in _admitted else "cpu")
