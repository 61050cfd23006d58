"""Settings of the thread and of the process: each is flipped between calls of one compiled object,
and eager is right about what follows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import windfall

X = torch.linspace(-1, 1, 6)
SQUARE = torch.randn(5, 5, generator=torch.Generator().manual_seed(0))


@contextmanager
def setting(write: Callable[[Any], Any], value: Any, before: Any) -> Iterator[None]:
    write(value)
    try:
        yield
    finally:
        write(before)


class AddsHundred(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return result + 100 if getattr(func, "__name__", "") == "sin" else result


class Dispatching(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return result + 100 if func is torch.ops.aten.sin.default else result

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


def backend_flag(place: Any, name: str, value: Any) -> AbstractContextManager[None]:
    return setting(lambda flag: setattr(place, name, flag), value, getattr(place, name))


def sine(x: torch.Tensor) -> torch.Tensor:
    return x.sin() + 1


def gradient_flag(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if torch.is_grad_enabled() else x * 3


def product(x: torch.Tensor) -> torch.Tensor:
    return x @ x.t()


def made(x: torch.Tensor) -> torch.Tensor:
    return x.sum() * torch.ones(3) * torch.tensor(2.5)


def reads(reader: Callable[[], Any]) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: x * len(repr(reader())) + (1 if reader() else 0)


# How it is flipped, what reads it or depends on it, and with what it is called.
FLIPS: dict[str, tuple[Callable[[], Any], Callable[..., Any], torch.Tensor]] = {
    "no_grad": (torch.no_grad, gradient_flag, X.clone().requires_grad_()),
    "inference mode": (torch.inference_mode, gradient_flag, X),
    "autocast": (lambda: torch.autocast("cpu", torch.bfloat16), product, SQUARE),
    "autocast to half": (lambda: torch.autocast("cpu", torch.float16), product, SQUARE),
    "autocast of another device": (
        lambda: setting(lambda on: torch.set_autocast_enabled("cuda", on), True, False),
        lambda x: x + 1 if torch.is_autocast_enabled("cuda") else x - 1,
        X,
    ),
    "default dtype": (
        lambda: setting(torch.set_default_dtype, torch.float64, torch.float32), made, X,
    ),
    "default device": (lambda: setting(torch.set_default_device, "meta", None), made, X[:0]),
    "deterministic": (
        lambda: setting(torch.use_deterministic_algorithms, True, False),
        reads(torch.are_deterministic_algorithms_enabled),
        X,
    ),
    "deterministic, warning": (
        lambda: setting(
            lambda on: torch.use_deterministic_algorithms(on, warn_only=on), True, False
        ),
        reads(torch.is_deterministic_algorithms_warn_only_enabled),
        X,
    ),
    "debug mode": (
        lambda: setting(torch.set_deterministic_debug_mode, "warn", 0),
        reads(torch.get_deterministic_debug_mode),
        X,
    ),
    "precision": (
        lambda: setting(torch.set_float32_matmul_precision, "medium", "highest"),
        reads(torch.get_float32_matmul_precision),
        X,
    ),
    "warnings": (
        lambda: setting(torch.set_warn_always, True, False), reads(torch.is_warn_always_enabled), X,
    ),
    "threads": (
        lambda: setting(torch.set_num_threads, 3, torch.get_num_threads()),
        reads(torch.get_num_threads),
        X,
    ),
    "oneDNN": (
        lambda: torch.backends.mkldnn.flags(enabled=False),
        reads(lambda: torch.backends.mkldnn.enabled),
        X,
    ),
    "tf32": (
        lambda: backend_flag(torch.backends.cuda.matmul, "allow_tf32", True),
        reads(lambda: torch.backends.cuda.matmul.allow_tf32),
        X,
    ),
    "reduced precision reductions": (
        lambda: backend_flag(
            torch.backends.cuda.matmul, "allow_fp16_reduced_precision_reduction", False
        ),
        reads(lambda: torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction),
        X,
    ),
    "attention": (
        lambda: setting(torch.backends.cuda.enable_flash_sdp, False, True),
        reads(torch.backends.cuda.flash_sdp_enabled),
        X,
    ),
    "anomalies": (
        lambda: torch.autograd.set_detect_anomaly(True), reads(torch.is_anomaly_enabled), X,
    ),
    "function mode": (AddsHundred, sine, X),
    "dispatch mode": (Dispatching, sine, X),
    "no torch function": (torch._C.DisableTorchFunction, sine, X),
    "profiler": (torch.profiler.profile, sine, X),
    "forward gradients": (torch.autograd.forward_ad.dual_level, sine, X),
    "saved tensors": (
        lambda: torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t),
        sine,
        X.clone().requires_grad_(),
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("native", [True, False], ids=["native", "python"])
@pytest.mark.parametrize("name", FLIPS)
def test_flipping(name: str, native: bool) -> None:
    flipped, program, x = FLIPS[name]
    compiled = windfall.compile(program, options={"native": native})

    def both() -> None:
        ours, theirs = compiled(x), program(x)
        torch.testing.assert_close(ours, theirs)
        for read in (torch.is_inference, lambda one: one.requires_grad, lambda one: one.device):
            assert read(ours) == read(theirs)

    for _ in range(2):
        both()
        with flipped():
            both()
            both()
    both()
