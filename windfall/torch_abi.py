"""The only door to torch's private and C symbols: offsets, mangled names, C shims.

Enters: nothing. Leaves: facts about this build of torch and of CPython, each found by a probe at
first use, never assumed: the probe compares memory with what public calls answer, on many objects.

Invariant: a fact that cannot be found is None and `report()` says why; each native shortcut that
needs it has a slower path that uses only public API.

    >>> torch_abi.tensor_layout().dtype      # where a TensorImpl keeps its element type
    160
    >>> torch_abi.ambient().grad_enabled     # the thread's state that ops depend on
    True

Room owners add what they need at the END of this file, under a heading with the room's name.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import operator
import os
import struct
import sys
import threading
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import torch
from torch.utils._python_dispatch import TorchDispatchMode

Found = TypeVar("Found")


class NotFound(Exception):
    """A probe did not find what it looked for; the text says what."""


def _in_fresh_thread(ask: Callable[[], Found]) -> Found:
    answers: list[Found] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            with _own_memory.opened():
                answers.append(ask())
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join()
    for failure in failures:
        raise failure
    return answers[0]


_REASONS: dict[str, str] = {}
_PROBES: list[Callable[[], Any]] = []


def _fact(probe: Callable[[], Found]) -> Callable[[], Found | None]:
    """A probe that runs once: its answer, or None with the reason kept for `report`. It runs in a
    thread of its own, where no mode of the caller (inference, dispatch, device) changes it."""

    @functools.cache
    def ask() -> Found | None:
        try:
            return _in_fresh_thread(probe)
        except NotFound as missing:
            _REASONS[probe.__name__] = str(missing)
            return None

    functools.update_wrapper(ask, probe)
    _PROBES.append(ask)
    return ask


def report() -> dict[str, str]:
    """Every fact by name: what was found, or `missing: ` and the reason."""
    lines: dict[str, str] = {}
    for ask in _PROBES:
        found = ask()
        name = ask.__name__
        lines[name] = f"missing: {_REASONS.get(name)}" if found is None else str(found)
    lines["symbols"] = ", ".join(
        f"{name} {'found' if symbol(name) else 'missing'}" for name in NATIVE_SYMBOLS
    )
    return lines


# ------------------------------------------------------------------------- libraries, symbols


@functools.cache
def libraries() -> tuple[str, ...]:
    """Paths of torch's shared libraries whose C symbols generated code may call."""
    folder = os.path.join(os.path.dirname(torch.__file__), "lib")
    names = ("libc10.so", "libtorch_cpu.so", "libtorch_python.so", "libgomp.so.1")
    found = (os.path.join(folder, name) for name in names)
    return tuple(path for path in found if os.path.exists(path))


@functools.cache
def _opened() -> tuple[ctypes.CDLL, ...]:
    return (*(ctypes.CDLL(path) for path in libraries()), ctypes.pythonapi)


@functools.cache
def symbol(name: str) -> int | None:
    """The address of an exported C symbol of torch (ATen, MKL, SLEEF, libgomp) or of CPython;
    None where this build has none."""
    for library in _opened():
        try:
            return ctypes.cast(library[name], ctypes.c_void_p).value
        except AttributeError:
            continue
    return None


def _function(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    address = symbol(name)
    if address is None:
        raise NotFound(f"no exported symbol {name}")
    return ctypes.CFUNCTYPE(result, *arguments)(address)


WRAP = "_Z16THPVariable_WrapRKN2at10TensorBaseE"
AUTOGRAD_STATE = "_ZN3c1013AutogradState13get_tls_stateEv"
LOCAL_KEYS = "_ZN3c104impl26raw_local_dispatch_key_setE"
REQUIRES_GRAD = "_ZNK3c1010TensorImpl13requires_gradEv"
FORWARD_GRAD = "_ZNK3c1010TensorImpl8_fw_gradEmRKN2at10TensorBaseE"
UNDEFINED_TENSOR = "_ZN3c1019UndefinedTensorImpl10_singletonE"
DISPATCH_MODES = "_ZN3c104impl20TorchDispatchModeTLS9stack_lenEv"
FUNCTION_MODES = "_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv"
FUNCTION_STATE = "_ZN2at4impl22PythonTorchFunctionTLS18get_disabled_stateEv"
HAS_CALLBACKS = "_ZN2at12hasCallbacksEv"
DEFAULT_DTYPE = "_ZN3c1031get_default_dtype_as_scalartypeEv"
GLOBAL_CONTEXT = "_ZN2at13globalContextEv"
DETERMINISTIC = "_ZNK2at7Context23deterministicAlgorithmsEv"
AUTOCAST_DTYPE = "_ZN2at8autocast18get_autocast_dtypeEN3c1010DeviceTypeE"
THREAD_COUNT = "_ZN2at15get_num_threadsEv"  # what a parallel kernel asks for, in any thread

# What the runtime's own machine code calls; without one of them it takes the public path.
NATIVE_SYMBOLS = (
    WRAP,
    AUTOGRAD_STATE,
    REQUIRES_GRAD,
    FORWARD_GRAD,
    UNDEFINED_TENSOR,
    DISPATCH_MODES,
    FUNCTION_MODES,
    FUNCTION_STATE,
    HAS_CALLBACKS,
    DEFAULT_DTYPE,
    DETERMINISTIC,
    AUTOCAST_DTYPE,
    "aoti_torch_get_data_ptr",
    "aoti_torch_empty_strided",
    "aoti_torch_as_strided",
    "aoti_torch_clone_preserve_strides",
    "aoti_torch_delete_tensor_object",
)


# ------------------------------------------------------------------------------------ memory


class _OwnMemory(threading.local):
    """The process's memory as a file, open while a probe runs in this thread: reading what is not
    there fails instead of crashing. None where the system has no such file."""

    file: int | None = None

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        if self.file is not None:
            yield
            return
        with contextlib.suppress(OSError):
            self.file = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield
        finally:
            if self.file is not None:
                os.close(self.file)
                self.file = None


_own_memory = _OwnMemory()


def _bytes(address: int, count: int) -> bytes:
    with _own_memory.opened():
        if _own_memory.file is None:
            return ctypes.string_at(address, count)
        try:
            found = os.pread(_own_memory.file, count, address)
        except (OSError, OverflowError) as error:
            raise NotFound(f"nothing is at {address:#x}") from error
    if len(found) != count:
        raise NotFound(f"nothing is at {address + len(found):#x}")
    return found


def _words(address: int, count: int) -> list[int]:
    return list(struct.unpack(f"={count}Q", _bytes(address, count * 8)))


def _peek(address: int) -> int | None:
    """A word, where the address itself is only a guess."""
    try:
        return _words(address, 1)[0]
    except NotFound:
        return None


def _only(candidates: Iterable[int], what: str) -> int:
    found = list(candidates)
    if len(found) != 1:
        raise NotFound(f"{what}: {len(found)} places fit, at {found}")
    return found[0]


def _word_offset(addresses: Sequence[int], values: Sequence[int], count: int, what: str) -> int:
    """The only offset at which every address holds its value."""
    tables = [_words(address, count) for address in addresses]
    fits = (
        8 * place
        for place in range(count)
        if all(table[place] == value for table, value in zip(tables, values, strict=True))
    )
    return _only(fits, what)


# ----------------------------------------------------------------------------------- tensors


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
    table = _words(sample._cdata, _IMPL_WORDS)
    return _only(
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
    held = [_libc.malloc(size) for size in range(64, 512, 16) for _ in range(16)]
    for address, size in zip(held, (s for s in range(64, 512, 16) for _ in range(16)), strict=True):
        ctypes.memset(address, 0xFF, size)
    for address in held:
        _libc.free(address)


def _forward_grad_offset(autograd: int) -> int:
    """A shared pointer: null without a tangent, else an object and, before it, its counts."""
    words = 16
    _stir()
    plain = [torch.zeros(3).view(3) for _ in range(8)]
    plain += [torch.zeros(3, requires_grad=True) for _ in range(8)]
    with _forward_level() as level:
        duals = [torch._VF._make_dual(torch.zeros(3), torch.ones(3), level=level) for _ in range(8)]
        without, having = (
            [_words(_words(one._cdata + autograd, 1)[0], words) for one in tensors]
            for tensors in (plain, duals)
        )
    return _only(
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
    metas = [_words(leaf._cdata, _IMPL_WORDS)[autograd // 8] for leaf in leaves]
    on = [_bytes(meta, 136) for meta in metas]
    for leaf in leaves:
        leaf.requires_grad_(False)
    off = [_bytes(meta, 136) for meta in metas]
    fits = (
        place
        for place in range(136)
        if all(one[place] == 1 for one in on) and all(one[place] == 0 for one in off)
    )
    return _only(fits, "the flag of a leaf that needs a gradient")


def _storage_offsets() -> tuple[int, int]:
    _stir()
    samples = [torch.empty(11, 13) for _ in range(8)]
    storages = [one.untyped_storage() for one in samples]
    addresses = [one._cdata for one in storages]
    pointers = [one.data_ptr() for one in storages]
    data = _word_offset(addresses, pointers, 4, "a storage's data pointer")
    size = _word_offset(addresses, [one.nbytes() for one in storages], 8, "a storage's size")
    plain = [_bytes(address + size + 8, 8) for address in addresses]
    lazy = [torch._lazy_clone(one) for one in samples]  # both are copied on write from now on
    checked = [_bytes(one.untyped_storage()._cdata + size + 8, 8) for one in lazy]
    flags = (
        size + 8 + place
        for place in range(8)
        if all(one[place] == 0 for one in plain) and all(one[place] == 1 for one in checked)
    )
    return data, _only(flags, "the flag of a storage that must be asked")


@_fact
def tensor_layout() -> TensorLayout:
    """Where a tensor keeps what guards and kernels read."""
    samples = _sample_tensors()
    handle = _word_offset([id(t) for t in samples], [t._cdata for t in samples], 8, "the handle")
    impls = [t._cdata for t in samples]
    rank = 8 * _shape_place(samples[3 * len(_DTYPES)])
    storage = _word_offset(
        impls, [t.untyped_storage()._cdata for t in samples], _IMPL_WORDS, "the storage"
    )
    offset = _word_offset(impls, [int(t.storage_offset()) for t in samples], _IMPL_WORDS, "offset")
    elements = _word_offset(impls, [t.numel() for t in samples], _IMPL_WORDS, "the element count")
    others = [torch.zeros(3, dtype=torch.cfloat).conj(), torch.zeros(3, device="meta")]
    keyed = samples + others
    key_set = _word_offset(
        [t._cdata for t in keyed], [dispatch_keys(t) for t in keyed], _IMPL_WORDS, "the key set"
    )
    plain = torch.zeros(3)
    before = _words(plain._cdata, _IMPL_WORDS)
    plain.requires_grad_()
    autograd = _changed_word(before, _words(plain._cdata, _IMPL_WORDS), "autograd fields")
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


def _dtype_offset(samples: list[torch.Tensor]) -> int:
    codes = [(_bytes(t._cdata, 8 * _IMPL_WORDS), _ask_dtype(t)) for t in samples]
    fits = (
        place
        for place in range(0, 8 * _IMPL_WORDS, 2)
        if all(int.from_bytes(raw[place : place + 2], "little") == code for raw, code in codes)
    )
    return _only(fits, "the element type")


def _device_offset() -> int:
    plain = [torch.zeros(3) for _ in range(8)]
    meta = [torch.zeros(3, device="meta") for _ in range(8)]
    here, there = ([_bytes(t._cdata, 8 * _IMPL_WORDS) for t in some] for some in (plain, meta))
    far = bytes([_ask_device(meta[0]), 255])
    fits = (
        place
        for place in range(8 * _IMPL_WORDS - 2)
        if all(raw[place : place + 2] == b"\x00\xff" for raw in here)
        and all(raw[place : place + 2] == far for raw in there)
    )
    return _only(fits, "the device")


def _ask(name: str, tensor: torch.Tensor) -> int:
    answer = ctypes.c_int32()
    handle = ctypes.c_void_p(tensor._cdata)
    call = _function(name, ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
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
    (held,) = _words(start, 1)
    if rank <= layout.inline_dims:
        sizes, strides = _words(start + 8, rank), _words(start + 8 + 8 * layout.inline_dims, rank)
    else:
        (outside,) = _words(start + 8, 1)
        sizes, strides = _words(outside, rank), _words(outside + 8 * rank, rank)
    (storage,) = _words(impl + layout.storage, 1)
    data = _words(storage + layout.storage_data, 1)[0] if storage else 0
    (autograd,) = _words(impl + layout.autograd, 1)
    (tangent,) = _words(autograd + layout.forward_grad, 1) if autograd else (0,)
    flag = _bytes(autograd + layout.requires_grad, 1)[0] if autograd else 0
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


def has_tangent(tensor: torch.Tensor) -> bool:
    """Whether the tensor is a dual number of forward-mode differentiation."""
    level = forward_level()
    return level >= 0 and torch._VF._unpack_dual(tensor, level=level)[1] is not None


def forward_level() -> int:
    """The level of forward-mode differentiation that is entered; -1 for none."""
    return torch.autograd.forward_ad._current_level


# ------------------------------------------------------------------------------ thread state


class Ambient(NamedTuple):
    """The thread's state that ops depend on, field by field as `ir.guard.AmbientIs` has it:
    `AmbientIs(**ambient()._asdict())`. Key sets are the bits that differ from a fresh thread's."""

    grad_enabled: bool
    inference_mode: bool
    included_keys: int
    excluded_keys: int
    dispatch_modes: int
    function_modes: int
    function_state: int
    profiled: bool
    default_dtype: str
    deterministic: bool
    autocast: tuple[tuple[str, str], ...]


@functools.cache
def _fresh_keys() -> tuple[int, int]:
    """The included and excluded key sets of a thread that nothing was done to."""
    return _in_fresh_thread(_local_keys)


def _local_keys() -> tuple[int, int]:
    included = torch._C._dispatch_tls_local_include_set().raw_repr()
    excluded = torch._C._dispatch_tls_local_exclude_set().raw_repr()
    return int(included), int(excluded)


@functools.cache
def _callbacks_active() -> Callable[[], bool]:
    try:
        return _function(HAS_CALLBACKS, ctypes.c_bool)
    except NotFound:
        return torch._C._autograd._profiler_enabled


def profiled() -> bool:
    """Whether someone listens to each op of this thread (the profiler, an observer)."""
    return bool(_callbacks_active()())


def _function_state() -> int:
    if torch._C._is_torch_function_all_disabled():
        return 2
    return 0 if torch._C._is_torch_function_enabled() else 1


def global_context() -> int:
    """The address of torch's process-wide settings, which `DETERMINISTIC` is asked about."""
    return int(_function(GLOBAL_CONTEXT, ctypes.c_void_p)())


AUTOCAST_DEVICES = ("cpu", "cuda")  # in order of their device types' numbers


def ambient() -> Ambient:
    """The state of the calling thread."""
    included, excluded = _local_keys()
    fresh = _fresh_keys()
    return Ambient(
        grad_enabled=torch.is_grad_enabled(),
        inference_mode=torch.is_inference_mode_enabled(),
        included_keys=included ^ fresh[0],
        excluded_keys=excluded ^ fresh[1],
        dispatch_modes=torch._C._len_torch_dispatch_stack(),
        function_modes=torch._C._len_torch_function_stack(),
        function_state=_function_state(),
        profiled=profiled(),
        default_dtype=str(torch.get_default_dtype()),
        deterministic=torch.are_deterministic_algorithms_enabled(),
        autocast=tuple(
            (device, str(torch.get_autocast_dtype(device)))
            for device in AUTOCAST_DEVICES
            if torch.is_autocast_enabled(device)
        ),
    )


@dataclass(frozen=True, slots=True)
class ThreadLayout:
    """Byte offsets from the thread's autograd state: of the byte with its flags, and of the two
    words (included, excluded) of dispatch keys, which lie in the same library's thread block."""

    flags: int
    grad_flag: int
    inference_flag: int
    keys: int


def _state_bytes() -> bytes:
    return _bytes(_function(AUTOGRAD_STATE, ctypes.c_void_p)(), 40)


def _flag_between(off: bytes, on: bytes, what: str) -> tuple[int, int]:
    place = _only((i for i in range(len(off)) if off[i] != on[i]), what)
    return place, off[place] ^ on[place]


def _keys_displacement() -> int:
    loader = ctypes.CDLL(None)
    loader.dlsym.restype = ctypes.c_void_p
    loader.dlsym.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    home = next((lib for lib in _opened() if lib._name.endswith("libc10.so")), None)
    found = home and loader.dlsym(home._handle, LOCAL_KEYS.encode())
    if not found:
        raise NotFound(f"no thread-local symbol {LOCAL_KEYS}")
    return int(found) - int(_function(AUTOGRAD_STATE, ctypes.c_void_p)())


@_fact
def thread_layout() -> ThreadLayout:
    """Where grad mode, inference mode and the dispatch keys of a thread are kept."""
    with torch.enable_grad():
        on = _state_bytes()
        with torch.no_grad():
            off = _state_bytes()
    flags, grad = _flag_between(off, on, "grad mode")
    with torch.inference_mode():
        mask = _state_bytes()[flags] ^ on[flags]
        inference = mask & _state_bytes()[flags]
    keys = _keys_displacement()
    layout = ThreadLayout(flags, grad, inference & -inference, keys)
    _verify_thread(layout)
    if _in_fresh_thread(_keys_displacement) != keys:
        raise NotFound("dispatch keys lie elsewhere in another thread")
    _in_fresh_thread(lambda: _verify_thread(layout))
    return layout


def thread_layout_holds_here() -> bool:
    """Whether the calling thread's state lies where the layout, found in other threads, says."""
    layout = thread_layout()
    try:
        return layout is not None and _read_thread(layout) == ambient()[:4]
    except NotFound:
        return False


def _read_thread(layout: ThreadLayout) -> tuple[bool, bool, int, int]:
    state = _function(AUTOGRAD_STATE, ctypes.c_void_p)()
    flags = _bytes(state + layout.flags, 1)[0]
    included, excluded = _words(state + layout.keys, 2)
    grad, inference = flags & layout.grad_flag, flags & layout.inference_flag
    return bool(grad), bool(inference), included, excluded


def _verify_thread(layout: ThreadLayout) -> None:
    settings: tuple[Callable[[], Any], ...] = (
        torch.enable_grad,
        torch.no_grad,
        torch.inference_mode,
        lambda: torch.autocast("cpu", torch.bfloat16),
    )
    for enter in settings:
        with enter():
            truth, read = ambient()[:4], _read_thread(layout)
            if read != truth:
                raise NotFound(f"thread state reads {read}, not {truth}")


# ----------------------------------------------------------------------------------- CPython


@dataclass(frozen=True, slots=True)
class ObjectLayout:
    """Byte offsets in CPython's objects, and the flag of a type whose instances have their
    dictionary before the object."""

    type: int
    size: int  # of a tuple, list and dict: how many items
    tuple_items: int
    list_items: int  # a pointer to them
    set_size: int
    cell_contents: int
    float_value: int
    int_tag: int  # sign and number of digits; the digits follow
    proxy_target: int  # of a mappingproxy
    type_flags: int
    type_dict_offset: int
    type_dict: int
    managed_dict_flag: int
    managed_dict: int
    structure_data: int  # of a ctypes object: the pointer to its memory


_FUNCTION_FIELDS = ("__code__", "__defaults__", "__kwdefaults__", "__closure__", "__globals__")


@_fact
def object_layout() -> ObjectLayout:
    """Where CPython's own objects keep what guards read."""
    if sys.implementation.name != "cpython" or not hasattr(sys, "getrefcount"):
        raise NotFound("not CPython")
    pair = (object(), object(), object())
    several, table = list(pair), {1: 1, 2: 2}
    cell = types.CellType(pair)
    number, structure = 1.2345678901234567e-89, ctypes.c_uint64(0x0123456789ABCDEF)
    bits = int.from_bytes(struct.pack("=d", number), sys.byteorder)
    kind = _word_offset([id(pair), id(several)], [id(tuple), id(list)], 3, "an object's type")
    size = _word_offset([id(pair), id(several), id(table)], [3, 3, 2], 4, "the size of a sequence")
    items = _word_offset([id(pair)], [id(pair[0])], 5, "a tuple's items")
    digits = size  # int is laid out as other sized objects: one word of size, then digits
    return _verified_objects(
        ObjectLayout(
            type=kind,
            size=size,
            tuple_items=items,
            list_items=_only(
                (
                    8 * place
                    for place, word in enumerate(_words(id(several), 4))
                    if place > 2 and _peek(word) == id(pair[0])
                ),
                "a list's items",
            ),
            set_size=_set_size_offset(),
            cell_contents=_word_offset([id(cell)], [id(pair)], 3, "a cell's contents"),
            float_value=_word_offset([id(number)], [bits], 3, "a float's value"),
            int_tag=digits,
            structure_data=_word_offset(
                [id(structure)], [ctypes.addressof(structure)], 4, "a structure's memory"
            ),
            **_type_offsets(),
        )
    )


def _set_size_offset() -> int:
    # A set that shrank has more used slots than members: that tells the two counts apart.
    shrunk = set(range(7))
    shrunk -= {1, 2, 3}
    return _word_offset([id(shrunk)], [4], 6, "the size of a set")


class _Probe:
    """A class with a managed instance dictionary, as users' classes have."""


def _type_offsets() -> dict[str, int]:
    known = (int, dict, types.FunctionType, types.ModuleType, torch.nn.Module, _Probe)
    addresses = [id(one) for one in known]
    words = 60
    flags = _word_offset(addresses, [one.__flags__ for one in known], words, "type flags")
    dict_offset = _word_offset(
        addresses,
        [one.__dictoffset__ % (1 << 64) for one in known],
        words,
        "the offset of instance dictionaries",
    )
    proxies = [one.__dict__ for one in known]
    target = _only(
        (
            place
            for place in (16, 24)
            if all(_peek((_peek(id(one) + place) or 0) + 8) == id(dict) for one in proxies)
        ),
        "the dictionary behind a mappingproxy",
    )
    dicts = [_words(id(proxy) + target, 1)[0] for proxy in proxies]  # of the living classes
    table = _word_offset(addresses, dicts, words, "a type's dictionary")
    return {
        "proxy_target": target,
        "type_flags": flags,
        "type_dict_offset": dict_offset,
        "type_dict": table,
        **_managed_dict(),
    }


def _managed_dict() -> dict[str, int]:
    flag = 1 << 4  # Py_TPFLAGS_MANAGED_DICT, from 3.11 on
    if not _Probe.__flags__ & flag or types.FunctionType.__flags__ & flag:
        raise NotFound("the flag of managed instance dictionaries")
    places = []
    for place in (8, 16, 24, 32):
        instance = _Probe()
        table = instance.__dict__
        if _words(id(instance) - place, 1) == [id(table)]:
            places.append(-place)
    return {"managed_dict_flag": flag, "managed_dict": _only(places, "a managed dictionary")}


def _verified_objects(layout: ObjectLayout) -> ObjectLayout:
    for number in (0, 1, -1, 2**31, -(2**40), 2**70):
        same = int(str(number))
        tag, again = _words(id(number) + layout.int_tag, 1), _words(id(same) + layout.int_tag, 1)
        rest = number.__sizeof__() - layout.int_tag - 8
        digits = _bytes(id(number) + layout.int_tag + 8, rest)
        if tag != again or digits != _bytes(id(same) + layout.int_tag + 8, rest):
            raise NotFound("equal integers do not look alike")
    return layout


@_fact
def function_layout() -> dict[str, int]:
    """Offsets of the fields of a Python function, by attribute; null stands for None."""

    def make(captured: object) -> Callable[..., object]:
        def sample(a: object = 1.5, *, b: object = 2.5) -> object:
            return (a, b, captured)

        return sample

    one: Any = make(object())
    two = types.FunctionType(
        compile("2", "two", "eval"), {}, "two", (object(),), (types.CellType(),)[:0]
    )
    two.__kwdefaults__ = {"b": object()}
    return {
        name: _word_offset(
            [id(one), id(two)],
            [id(getattr(one, name)), id(getattr(two, name))],
            16,
            f"a function's {name}",
        )
        for name in _FUNCTION_FIELDS
    }


@_fact
def method_layout() -> dict[str, int]:
    """Offsets of the fields of a bound method, by attribute."""
    method = types.MethodType(len, [])
    return {
        "__func__": _word_offset([id(method)], [id(len)], 5, "a method's function"),
        "__self__": _word_offset([id(method)], [id(method.__self__)], 5, "a method's self"),
    }


@_fact
def dict_version_offset() -> int:
    """Where a dict keeps its version: a number, unique in the process, that moves with each
    change. Tested on every way to change a dict before it is believed."""
    places = [place for place in (16, 24, 32) if _version_moves(place)]
    return _only(places, "the version of a dict")


def _changes() -> Iterator[tuple[dict[Any, Any], Callable[[], Any]]]:
    """Dictionaries and what changes them, one way each."""
    module = types.ModuleType("sample")
    holder = _Probe()
    holder.value = 1  # type: ignore[attr-defined]
    table: dict[Any, Any] = {"a": 1, "b": 2}
    yield table, lambda: table.__setitem__("c", 1)
    yield table, lambda: table.__setitem__("a", 3)
    yield table, lambda: table.update(b=5)
    yield table, lambda: table.pop("c")
    yield table, lambda: table.__delitem__("b")
    yield table, lambda: table.setdefault("z", 1)
    yield table, lambda: table.popitem()
    yield table, lambda: table.__ior__({"y": 1})
    yield table, lambda: table.clear()
    yield module.__dict__, lambda: setattr(module, "a", 1)
    yield module.__dict__, lambda: setattr(module, "a", 2)
    yield holder.__dict__, lambda: setattr(holder, "value", 3)
    yield holder.__dict__, lambda: setattr(holder, "fresh", 3)
    yield holder.__dict__, lambda: delattr(holder, "value")


def _version_moves(place: int) -> bool:
    seen: set[int] = set()
    for table, change in _changes():
        (before,) = _words(id(table) + place, 1)
        for _ in range(3):
            len(table), table.get("a"), list(table)
        if _words(id(table) + place, 1) != [before]:
            return False
        change()
        (after,) = _words(id(table) + place, 1)
        if after == before or after in seen:
            return False
        seen.add(after)
    fresh = [_words(id(one) + place, 1)[0] for one in ({"a": 1}, {"a": 1}, dict(a=1))]
    return not seen.intersection(fresh)


def member_offset(owner: type, name: str) -> int | None:
    """Where instances of `owner` keep the slot `name` (`__slots__`); None if it is not one."""
    found = next((kind.__dict__[name] for kind in owner.__mro__ if name in kind.__dict__), None)
    if not isinstance(found, types.MemberDescriptorType):
        return None
    described = _words(id(found), 8)
    # PyMemberDescrObject: the pointer to its PyMemberDef is the last word: name, type, offset.
    for definition in described[5:7]:
        try:
            text, kind, offset = _words(definition, 3)
            named = _bytes(text, len(name) + 1) == name.encode() + b"\0"
        except NotFound:
            continue
        if named and kind & 0xFF in (6, 16):  # T_OBJECT and T_OBJECT_EX
            return offset
    return None


# ---------------------------------------------------------------------------------- builtins

METH_FASTCALL = 0x0080
METH_KEYWORDS = 0x0002


_libc = ctypes.CDLL(None)
_libc.malloc.restype, _libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
_libc.free.restype, _libc.free.argtypes = None, [ctypes.c_void_p]


_untrack = ctypes.pythonapi.PyObject_GC_UnTrack
_untrack.restype, _untrack.argtypes = None, [ctypes.py_object]


def untracked(value: Any) -> Any:
    """The same object, which the cycle collector no longer sees: its `__del__` runs when nothing
    refers to it, and not before. (Instances of any class that is written in Python are tracked,
    also those of a class that derives from int.) Only for what refers to no other object."""
    _untrack(value)
    return value


class Memory(int):
    """C memory that lives as long as this number, which is its address. The cycle collector does
    not see it: it is freed by its count, and a builtin may be read up to that moment."""

    __slots__ = ()

    def __del__(self, free: Callable[[int], None] = _libc.free) -> None:
        free(int(self))


def memory(contents: bytes) -> Memory:
    """C memory with these contents."""
    address = _libc.malloc(max(len(contents), 1))
    if not address:
        raise MemoryError(f"{len(contents)} bytes")
    ctypes.memmove(address, contents, len(contents))
    made: Memory = untracked(Memory(address))
    return made


def write_word(address: int, value: int) -> None:
    """Change a word of C memory."""
    ctypes.c_uint64.from_address(address).value = value


def read_word(address: int) -> int:
    """A word of C memory."""
    return ctypes.c_uint64.from_address(address).value


class _Pointer(ctypes.c_void_p):
    __slots__ = ()


_make_builtin = ctypes.pythonapi.PyCMethod_New
_make_builtin.restype = ctypes.py_object
_make_builtin.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p]


def make_builtin(
    name: str, address: int, block: Memory, keep: tuple[Any, ...], *, keywords: bool = False
) -> Callable[..., Any]:
    """A builtin function whose body is the machine code at `address`.

    Its `__self__` is a tuple: a pointer to `block`, for the code to read, then what must live as
    long as the builtin (a tuple, since the cycle collector does not clear one under our feet)."""
    text = name.encode() + b"\0"
    title = memory(text)
    flags = METH_FASTCALL | (METH_KEYWORDS if keywords else 0)
    definition = memory(b"".join(w.to_bytes(8, "little") for w in (title, address, flags, 0)))
    owner = (_Pointer(block), block, definition, title, *keep)
    made: Callable[..., Any] = _make_builtin(int(definition), owner, None, None)
    return made


# ----------------------------------------------------------------- ops: fake tensors; autograd

# What `__torch_function__` is set to on a class whose torch functions go straight to dispatch.
disabled_torch_function: Any = torch._C._disabled_torch_function_impl

_make_wrapper: Any = torch.Tensor._make_wrapper_subclass


class DispatchMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The base of our dispatch modes: one that does not load torch._dynamo when it is entered."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


def wrapper_tensor(
    cls: type,
    sizes: Sequence[Any],
    strides: Sequence[Any],
    offset: Any,
    dtype: torch.dtype,
    device: torch.device,
    requires_grad: bool,
) -> Any:
    """A tensor of class `cls` without memory, whose metadata are as given."""
    return _make_wrapper(
        cls,
        sizes,
        strides=strides,
        storage_offset=offset,
        dtype=dtype,
        device=device,
        requires_grad=requires_grad,
    )


def varying_tensor(
    cls: type,
    sizes: Sequence[Any],
    strides: Sequence[Any],
    offset: Any,
    dtype: torch.dtype,
    device: torch.device,
    requires_grad: bool,
) -> Any:
    """`wrapper_tensor` with `torch.SymInt`s among its metadata. Its storage is said to be empty:
    else torch works out how large it would be, for ten times as long as the rest takes."""
    return _make_wrapper(
        cls,
        sizes,
        strides=strides,
        storage_offset=offset,
        dtype=dtype,
        device=device,
        requires_grad=requires_grad,
        storage_size=0,
    )


def is_overload(target: Any) -> bool:
    """Whether a callable is an ATen (or custom) overload."""
    return isinstance(target, torch._ops.OpOverload)


def is_composite(overload: Any) -> bool:
    """Whether an op is made of other ops in C++, at every dispatch key (linear, matmul, ...)."""
    key = "CompositeImplicitAutograd"
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(overload.name(), key))


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


def next_autograd_sequence() -> int:
    """The number that the next autograd node made by this thread will have."""
    return int(torch._C._autograd._get_sequence_nr())


def running_autograd_sequence() -> int:
    """The number of the autograd node that the engine runs now in this thread; -1 for none."""
    node = torch._C._current_autograd_node()
    return -1 if node is None else int(node._sequence_nr())


def versions_of(tensors: Sequence[torch.Tensor]) -> list[int]:
    """Version counters; a tensor of inference mode has none and counts as 0."""
    try:
        return [one._version for one in tensors]
    except RuntimeError:
        return [0 if one.is_inference() else one._version for one in tensors]


def raise_version(tensor: torch.Tensor, by: int) -> None:
    """Count writes that a tensor would have seen in eager."""
    if not tensor.is_inference():
        torch._C._autograd._unsafe_set_version_counter((tensor,), (tensor._version + by,))


def view_base(tensor: torch.Tensor) -> torch.Tensor | None:
    """The tensor that autograd takes `tensor` to be a view of."""
    return tensor._base


def backward_keeps_graph() -> bool:
    """Whether the backward pass that runs now was asked to retain the graph."""
    return bool(torch._C._autograd._get_current_graph_task_keep_graph())


# A context manager under which ops go to their kernels: no history, no view tracking.
below_autograd: Any = torch._C._AutoDispatchBelowADInplaceOrView


# --------------------------------------------------------------------------------- codegen


@functools.cache
def _loaded() -> tuple[ctypes.CDLL, ...]:
    return tuple(ctypes.CDLL(path) for path in libraries())


@functools.cache
def has_symbol(name: str) -> bool:
    """Whether one of torch's libraries exports the C symbol `name`."""
    return any(hasattr(library, name) for library in _loaded())


# --------------------------------------------------------------------- asked by the compiled object


@functools.cache
def _plain_keys() -> int:
    """Asked of a tensor that is made outside of inference mode, wherever this is asked first."""
    with torch.inference_mode(False):
        return dispatch_keys(torch.empty(0))


def is_plain_tensor(tensor: torch.Tensor) -> bool:
    """Whether generated code may read it: strided memory of the CPU, no lazy conjugate or sign, no
    wrapper of a transform. (Inference tensors have fewer keys than others, never more.)"""
    return not dispatch_keys(tensor) & ~_plain_keys()


@functools.cache
def _harmless_keys(inference: bool) -> int:
    """Local keys that autocast and inference mode switch; both are guarded and compiled for."""
    switched: tuple[str, ...] = ("ADInplaceOrView", "AutocastCPU", "AutocastCUDA")
    if inference:
        switched += ("AutogradFunctionality", "AutogradOther", "AutogradNestedTensor")
    keys = (torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, name)) for name in switched)
    return functools.reduce(operator.or_, (int(one.raw_repr()) for one in keys))


def ambient_obstacle() -> str | None:
    """Why nothing should be compiled or captured in this thread just now; None if it may."""
    now = ambient()
    harmless = ~_harmless_keys(now.inference_mode)
    obstacles = {
        "a TorchDispatchMode is active": now.dispatch_modes,
        "a TorchFunctionMode is active": now.function_modes,
        "__torch_function__ is disabled": now.function_state,
        "a profiler listens to every op": now.profiled,
        "a functorch transform (or another dispatcher layer) is active": (
            (now.included_keys | now.excluded_keys) & harmless
        ),
    }
    return next((text for text, present in obstacles.items() if present), None)


class Parameter(NamedTuple):
    """One parameter of an op's schema: its type as the dispatcher has it, and its default."""

    name: str
    type: str
    has_default: bool
    default: Any


def op_schema(overload: Any) -> tuple[str, str, tuple[Parameter, ...], tuple[str, ...]] | None:
    """Name, overload name, parameters and result types of an op; None for what is no op."""
    schema = getattr(overload, "_schema", None)
    if schema is None:
        return None
    parameters = tuple(
        Parameter(each.name, str(each.real_type), each.has_default_value(), each.default_value)
        for each in schema.arguments
    )
    results = tuple(str(each.real_type) for each in schema.returns)
    return schema.name, schema.overload_name, parameters, results


def op_writes(overload: Any) -> bool | None:
    """Whether an op writes to one of its arguments; None for what is no op."""
    schema = getattr(overload, "_schema", None)
    return None if schema is None else bool(schema.is_mutable)


@functools.cache
def dtype_code(dtype: torch.dtype) -> int | None:
    """The number of a dtype in torch's C interface."""
    name = f"aoti_torch_dtype_{str(dtype).removeprefix('torch.')}"
    for library in _loaded():
        if hasattr(library, name):
            return int(getattr(library, name)())
    return None


# The C functions with which generated code calls an op through torch's dispatcher.
DISPATCHER_SYMBOLS = (
    "torch_call_dispatcher",
    "torch_new_stable_ivalue",
    "torch_new_list_reserve_size",
    "torch_list_push_back",
    "torch_new_string_handle",
    "aoti_torch_create_tensor_from_blob",
    "aoti_torch_get_data_ptr",
    "aoti_torch_get_sizes",
    "aoti_torch_get_strides",
    "aoti_torch_copy_",
    "aoti_torch_delete_tensor_object",
    "aoti_torch_is_defined",
)


@functools.cache
def dispatcher_version() -> int | None:
    """The version that `torch_call_dispatcher` is told; None where generated code cannot use it."""
    if not all(has_symbol(name) for name in DISPATCHER_SYMBOLS):
        return None
    for library in _loaded():
        if hasattr(library, "aoti_torch_abi_version"):
            function = library.aoti_torch_abi_version
            function.restype = ctypes.c_uint64
            return int(function())
    return None


# ------------------------------------------------------------------------------------ frontend

# What `torch.no_grad` and its like call in the end; and what module calls ask while jit traces.
set_grad_mode: Any = torch._C._set_grad_enabled
tracing_state: Any = torch._C._get_tracing_state


# ------------------------------------------------------------------------------------ front end

# What `nn.Module.__init__` calls first; it counts uses of a feature and answers None.
log_api_usage_once: Any = torch._C._log_api_usage_once


def is_operation(value: Any) -> bool:
    """Whether a callable is an op of the dispatcher: a packet of overloads, or one overload."""
    return isinstance(value, torch._ops.OpOverload | torch._ops.OpOverloadPacket)


def custom_operation(value: Any) -> Any:
    """The overload that a function made by `torch.library.custom_op` calls; None for others."""
    made_by = torch._library.custom_ops.CustomOpDef
    return value._opoverload if isinstance(value, made_by) else None


def scripted_from(function: Any) -> Any:
    """The Python function that torch.jit made a scripted one of; None where it is not known, and of
    a traced one, which does not do what its function does (it has no name, by which it is told)."""
    traced = not hasattr(function, "__name__")
    return None if traced else getattr(function, "_torchdynamo_inline", None)


def is_operator_function(function: Any) -> bool:
    """Whether a builtin such as `torch._chunk_cat` is the Python name of an ATen op."""
    name: str = getattr(function, "__name__", "")
    owner, _, last = getattr(function, "__qualname__", "").partition(".")
    return owner == "_VariableFunctionsClass" and last == name and hasattr(torch.ops.aten, name)


# -------------------------------------------------------------------------------- public surface


def allowed_in_graph(function: Any) -> bool:
    """Whether the user told torch itself to put `function` into graphs. Nobody did where the module
    that keeps the list is not loaded; it is never loaded from here."""
    rules = sys.modules.get("torch._dynamo.trace_rules")
    listed = getattr(rules, "_allowed_callable_ids", None)
    ids = getattr(listed, "function_ids", None)
    return ids is not None and id(function) in ids


# The module through which `torch.nn` calls functions that `torch` itself does not offer.
function_space: Any = torch._VF


# ------------------------------------------------------------------------- frontend: thread modes


class Switch(NamedTuple):
    """One mode of the thread (or process) that programs switch inside of themselves."""

    read: Callable[[], Any]
    write: Callable[[Any], Any]


_inference = threading.local()


def _write_inference(mode: bool) -> None:
    """torch has guards only, which must be left in the order in which they were entered."""
    if mode == torch.is_inference_mode_enabled():
        return
    guards: list[tuple[Any, bool]] = _inference.__dict__.setdefault("guards", [])
    if guards and guards[-1][1] == mode:
        guard, _ = guards.pop()
        guard.__exit__(None, None, None)
        return
    made: Any = torch._C._InferenceMode(mode)
    made.__enter__()
    guards.append((made, not mode))


def _autocast_switches(device: str) -> dict[str, Switch]:
    return {
        f"autocast_enabled_{device}": Switch(
            lambda: torch.is_autocast_enabled(device),
            lambda mode: torch.set_autocast_enabled(device, mode),
        ),
        f"autocast_dtype_{device}": Switch(
            lambda: torch.get_autocast_dtype(device),
            lambda dtype: torch.set_autocast_dtype(device, dtype),
        ),
    }


# Which kernels `scaled_dot_product_attention` may choose: (switch, what reads it, what writes it).
_ATTENTION: tuple[tuple[str, Any, Any], ...] = tuple(
    (f"attention_{name}", getattr(torch._C, reader), getattr(torch._C, writer))
    for name, reader, writer in (
        *(
            (name, f"_get_{name}_sdp_enabled", f"_set_sdp_use_{name}")
            for name in ("math", "flash", "mem_efficient", "cudnn", "overrideable", "fa3")
        ),
        ("priority", "_get_sdp_priority_order", "_set_sdp_priority_order"),
    )
    if hasattr(torch._C, reader) and hasattr(torch._C, writer)
)
attention_readers: dict[Any, str] = {reader: name for name, reader, _ in _ATTENTION}
attention_writers: dict[Any, str] = {writer: name for name, _, writer in _ATTENTION}

# Inference mode first: entering it switches grad mode too.
SWITCHES: dict[str, Switch] = {
    "inference": Switch(torch.is_inference_mode_enabled, _write_inference),
    "grad": Switch(torch.is_grad_enabled, torch._C._set_grad_enabled),
    **_autocast_switches("cpu"),
    **_autocast_switches("cuda"),
    "autocast_cache": Switch(torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
    **{name: Switch(reader, writer) for name, reader, writer in _ATTENTION},
}


def modes() -> dict[str, Any]:
    """How all modes stand."""
    return {name: switch.read() for name, switch in SWITCHES.items()}


def set_mode(name: str, value: Any) -> None:
    """Switch one mode. Stands in captured graphs."""
    SWITCHES[name].write(value)


def set_modes(wanted: Mapping[str, Any]) -> None:
    """Make all modes what they were."""
    for name, switch in SWITCHES.items():
        if switch.read() != wanted[name]:
            switch.write(wanted[name])


def is_mode_switch(target: Any) -> bool:
    """Whether a node of a captured graph switches a mode."""
    return target is set_mode or target is set_grad_mode


class Asked:
    """For sources: what a function of no arguments answers."""

    @staticmethod
    def answer(function: Callable[[], Any]) -> Any:
        """Ask it."""
        return function()


class InferenceContext:
    """What `torch.inference_mode` holds where a segment ends inside of it."""

    def __init__(self, mode: bool, before: bool) -> None:
        self.mode = mode
        self.before = before

    def __enter__(self) -> None:
        self.before = torch.is_inference_mode_enabled()
        _write_inference(self.mode)

    def __exit__(self, *_: object) -> None:
        _write_inference(self.before)


inference_guard: Any = torch._C._InferenceMode
function_mode_enabled: Any = torch._C._is_torch_function_mode_enabled
private_backend_name: Any = torch._C._get_privateuse1_backend_name
attention_backend: Any = torch._C._SDPBackend


def hooked(tensor: Any) -> None:
    """Stands in captured graphs behind a tensor that the program registers a hook on."""


def aliased_results(overload: Any) -> tuple[bool, ...]:
    """For each result of an op whether it may share memory with an argument (views)."""
    return tuple(each.alias_info is not None for each in overload._schema.returns)


# ------------------------------------------------------------------------- codegen: convolutions

# Weights that a convolution of oneDNN reads where they are, whatever layout it computes in: a
# tensor with a description of its memory instead of strides.
OPAQUE_SYMBOLS = ("aoti_torch_create_tensor_from_blob_v2", "aoti_torch_layout__mkldnn")


@functools.cache
def _described_convolution() -> Any:
    found: Any = getattr(torch.ops.mkldnn, "_convolution_pointwise", None)
    if found is None or not hasattr(torch.ops.mkldnn, "_get_mkldnn_serialized_md"):
        return None
    usable = dispatcher_version() is not None and all(map(has_symbol, OPAQUE_SYMBOLS))
    return found.default if usable and torch._C._has_mkldnn else None


def described_convolution() -> Any:
    """The overload of a convolution with channels-last operands and described weights; None where
    torch has none, or is told not to use it."""
    return _described_convolution() if torch.backends.mkldnn.enabled else None


def described_parameters(overload: Any) -> frozenset[str]:
    """The parameters of an op that may be tensors with a description of their memory."""
    return frozenset({"W"} if overload is _described_convolution() else ())


@functools.cache
def memory_description(sizes: tuple[Any, ...]) -> tuple[int, bytes]:
    """The layout code and the description of row-major float32 memory, for
    `aoti_torch_create_tensor_from_blob_v2`."""
    made = torch.empty(sizes, layout=torch._mkldnn, dtype=torch.float32)  # type: ignore[attr-defined]
    text = torch.ops.mkldnn._get_mkldnn_serialized_md(made)
    for library in _loaded():
        if hasattr(library, "aoti_torch_layout__mkldnn"):
            return int(library.aoti_torch_layout__mkldnn()), bytes(text.tolist())
    raise LookupError("aoti_torch_layout__mkldnn")


# ------------------------------------------------------------------------------ api: saved tensors


@contextlib.contextmanager
def without_saved_tensor_hooks() -> Iterator[None]:
    """The thread's hooks for tensors that autograd saves (`saved_tensors_hooks`, checkpoints) are
    not told of what is saved here: a compiler works with tensors of its own."""
    state = torch._C._autograd
    hooks = []
    while (top := state._top_saved_tensors_default_hooks(False)) is not None:
        hooks.append(top)
        state._pop_saved_tensors_default_hooks()
    try:
        yield
    finally:
        for pack, unpack in reversed(hooks):
            state._push_saved_tensors_default_hooks(pack, unpack)


# -------------------------------------------------------------------------- front end: conditions

# `torch._check` and its like: the exception of each.
CHECKS: dict[Any, type[Exception]] = {
    torch._check: RuntimeError,
    torch._check_index: IndexError,
    torch._check_value: ValueError,
    torch._check_type: TypeError,
    torch._check_not_implemented: NotImplementedError,
}
check_is_size: Any = torch._check_is_size


# torch's own call of a module, where it has hooks.
CALL_OF_MODULES = torch.nn.Module._call_impl.__code__


# Functions of torch's modules that ask whether torch's own tracer is at work: it never is.
TRACER_QUESTIONS: tuple[Any, ...] = (torch.nn.modules.activation._is_make_fx_tracing,)


# ------------------------------------------------------------------- ops: what schemas call an int


def dispatched(func: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    """An op as the dispatch mode on top is told of it, with arguments as they are: a
    `torch.SymInt` stays one where the op's schema says `int`."""
    with torch.utils._python_dispatch._pop_mode_temporarily() as mode:
        return mode.__torch_dispatch__(func, (), args, kwargs)
