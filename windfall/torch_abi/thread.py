"""The thread's state that ops depend on: grad mode, dispatch keys, modes, autocast.

Enters: the calling thread. Leaves: `Ambient`, which guards compare; `ThreadLayout`, where machine
code reads the same; why nothing may be compiled here. Invariant: key sets are told as what differs
from a thread that nothing was done to.

    >>> ambient().grad_enabled
    True
"""

from __future__ import annotations

import ctypes
import functools
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from windfall.dataclass import dataclass
from windfall.torch_abi.probes import (
    NotFound,
    bytes_at,
    c_function,
    fact,
    in_fresh_thread,
    only,
    words_at,
)
from windfall.torch_abi.symbols import (
    AUTOGRAD_STATE,
    GLOBAL_CONTEXT,
    HAS_CALLBACKS,
    LOCAL_KEYS,
    loaded,
)


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
    return in_fresh_thread(_local_keys)


def _local_keys() -> tuple[int, int]:
    included = torch._C._dispatch_tls_local_include_set().raw_repr()
    excluded = torch._C._dispatch_tls_local_exclude_set().raw_repr()
    return int(included), int(excluded)


@functools.cache
def _callbacks_active() -> Callable[[], bool]:
    try:
        return c_function(HAS_CALLBACKS, ctypes.c_bool)
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
    return int(c_function(GLOBAL_CONTEXT, ctypes.c_void_p)())


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
    return bytes_at(c_function(AUTOGRAD_STATE, ctypes.c_void_p)(), 40)


def _flag_between(off: bytes, on: bytes, what: str) -> tuple[int, int]:
    place = only((i for i in range(len(off)) if off[i] != on[i]), what)
    return place, off[place] ^ on[place]


def _keys_displacement() -> int:
    loader = ctypes.CDLL(None)
    loader.dlsym.restype = ctypes.c_void_p
    loader.dlsym.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    home = next((lib for lib in loaded() if lib._name.endswith("libc10.so")), None)
    found = home and loader.dlsym(home._handle, LOCAL_KEYS.encode())
    if not found:
        raise NotFound(f"no thread-local symbol {LOCAL_KEYS}")
    return int(found) - int(c_function(AUTOGRAD_STATE, ctypes.c_void_p)())


@fact
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
    if in_fresh_thread(_keys_displacement) != keys:
        raise NotFound("dispatch keys lie elsewhere in another thread")
    in_fresh_thread(lambda: _verify_thread(layout))
    return layout


def thread_layout_holds_here() -> bool:
    """Whether the calling thread's state lies where the layout, found in other threads, says."""
    layout = thread_layout()
    try:
        return layout is not None and _read_thread(layout) == ambient()[:4]
    except NotFound:
        return False


def _read_thread(layout: ThreadLayout) -> tuple[bool, bool, int, int]:
    state = c_function(AUTOGRAD_STATE, ctypes.c_void_p)()
    flags = bytes_at(state + layout.flags, 1)[0]
    included, excluded = words_at(state + layout.keys, 2)
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
