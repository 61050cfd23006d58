"""Modes that programs switch inside of themselves: one table of how each is read and written.

Enters: a mode's name. Leaves: its value; the functions that captured graphs and segments call to
switch it. Invariant: what `modes` read, `set_modes` makes so again, in the order that torch needs.

    >>> before = modes(); set_mode("grad", False); set_modes(before); torch.is_grad_enabled()
    True
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
import torch.utils.checkpoint

from windfall.torch_abi.probes import named

# What `torch.no_grad` and its like call in the end.
set_grad_mode: Any = named("_set_grad_enabled", lambda: torch._C._set_grad_enabled)


class Switch(NamedTuple):
    """One mode of the thread (or process) that programs switch inside of themselves."""

    read: Callable[[], Any]
    write: Callable[[Any], Any]


_inference = threading.local()
_unleft: list[Any] = []  # guards that must not die: what dies switches back
# Entered when it is made.
inference_guard: Any = named("_InferenceMode", lambda: torch._C._InferenceMode)


def _entered_guards() -> list[Any]:
    """Those that graphs of this thread have entered, and not left."""
    guards: list[Any] = _inference.__dict__.setdefault("guards", [])
    return guards


def enter_inference(mode: bool) -> None:
    """Stands in captured graphs. Whatever the mode was, a guard of torch's switches gradients too,
    and brings them back when it is left."""
    _entered_guards().append(inference_guard(mode))


def leave_inference() -> None:
    """Leave what was entered last. Stands in captured graphs."""
    _entered_guards().pop().__exit__(None, None, None)


def held_inference(mode: bool, grad: bool) -> Any:
    """A guard, entered where gradients are as they were when the program entered it."""
    set_grad_mode(grad)
    return inference_guard(mode)


def left_inference(mode: bool) -> Any:
    """A guard that was left already."""
    guard = inference_guard(mode)
    guard.__exit__(None, None, None)
    return guard


def _leave_down_to(depth: int) -> None:
    while len(_entered_guards()) > depth:
        leave_inference()


def _write_inference(mode: bool) -> None:
    """For what raised while a guard was held by a frame that is still there: torch has nothing but
    guards, so the one that writes is never left."""
    _unleft.append(inference_guard(mode))


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
    "inference_depth": Switch(lambda: len(_entered_guards()), _leave_down_to),
    "inference": Switch(torch.is_inference_mode_enabled, _write_inference),
    "grad": Switch(torch.is_grad_enabled, set_grad_mode),
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


def set_ambient(grad: bool, inference: bool, autocast: tuple[tuple[str, str], ...]) -> None:
    """Make those modes what guards know of them; a device that is not named does not cast."""
    wanted = modes()
    wanted |= {"inference": inference, "grad": grad}
    dtypes = dict(autocast)
    for device in ("cpu", "cuda"):
        wanted[f"autocast_enabled_{device}"] = device in dtypes
        if device in dtypes:
            name = dtypes[device].removeprefix("torch.")
            wanted[f"autocast_dtype_{device}"] = getattr(torch, name)
    set_modes(wanted)


def is_mode_switch(target: Any) -> bool:
    """Whether a node of a captured graph switches a mode."""
    return target in (set_mode, set_grad_mode, enter_inference, leave_inference)


class Asked:
    """For sources: what a function of no arguments answers."""

    @staticmethod
    def answer(function: Callable[[], Any]) -> Any:
        """Ask it."""
        return function()


function_mode_enabled: Any = named(
    "_is_torch_function_mode_enabled", lambda: torch._C._is_torch_function_mode_enabled
)
private_backend_name: Any = named(
    "_get_privateuse1_backend_name", lambda: torch._C._get_privateuse1_backend_name
)
attention_backend: Any = named("_SDPBackend", lambda: torch._C._SDPBackend)

# One of the contexts of selective checkpoints, and the variable by which all checkpoints debug.
selective_context: Any = named(
    "_CachingTorchDispatchMode", lambda: torch.utils.checkpoint._CachingTorchDispatchMode
)
CHECKPOINTS_DEBUG = "_checkpoint_debug_enabled"
