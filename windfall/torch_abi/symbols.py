"""C symbols of torch's libraries and of CPython: mangled names, addresses, numbers of C constants.

Enters: a symbol's name. Leaves: its address, or None where this build does not export it.
Invariant: mangled names stand here only; who calls one has another way where it is missing.

    >>> symbol("GOMP_parallel") is not None, symbol("no_such_symbol")
    (True, None)
"""

from __future__ import annotations

import ctypes
import functools
import os

import torch


@functools.cache
def libraries() -> tuple[str, ...]:
    """Paths of torch's shared libraries whose C symbols generated code may call."""
    folder = os.path.join(os.path.dirname(torch.__file__), "lib")
    names = ("libc10.so", "libtorch_cpu.so", "libtorch_python.so", "libgomp.so.1")
    found = (os.path.join(folder, name) for name in names)
    return tuple(path for path in found if os.path.exists(path))


@functools.cache
def loaded() -> tuple[ctypes.CDLL, ...]:
    """The same libraries, opened."""
    return tuple(ctypes.CDLL(path) for path in libraries())


@functools.cache
def symbol(name: str) -> int | None:
    """The address of an exported C symbol of torch (ATen, MKL, SLEEF, libgomp) or of CPython;
    None where this build has none."""
    for library in (*loaded(), ctypes.pythonapi):
        try:
            return ctypes.cast(library[name], ctypes.c_void_p).value
        except AttributeError:
            continue
    return None


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
    "aoti_torch_new_tensor_handle",
    "aoti_torch_as_strided",
    "aoti_torch_clone_preserve_strides",
    "aoti_torch_delete_tensor_object",
)


@functools.cache
def has_symbol(name: str) -> bool:
    """Whether one of torch's libraries exports the C symbol `name`."""
    return any(hasattr(library, name) for library in loaded())


@functools.cache
def dtype_code(dtype: torch.dtype) -> int | None:
    """The number of a dtype in torch's C interface."""
    name = f"aoti_torch_dtype_{str(dtype).removeprefix('torch.')}"
    for library in loaded():
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
    for library in loaded():
        if hasattr(library, "aoti_torch_abi_version"):
            function = library.aoti_torch_abi_version
            function.restype = ctypes.c_uint64
            return int(function())
    return None
