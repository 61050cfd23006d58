"""Settings of the process that may shape what torch does, and so what is compiled of it.

Enters: nothing. Leaves: each by its name, as it is now. Invariant: reading one changes nothing and
loads nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.library
import torch.utils.deterministic

SETTINGS: dict[str, Callable[[], Any]] = {
    "float32_matmul_precision": lambda: _matmul_precision(),
    "fp32_precision": lambda: _precisions(),
    "deterministic_debug_mode": torch.get_deterministic_debug_mode,
    "fill_uninitialized_memory": lambda: torch._C._get_deterministic_fill_uninitialized_memory(),
    "mkldnn": lambda: torch._C._get_mkldnn_enabled(),
    "mkldnn_deterministic": lambda: torch._C._get_mkldnn_deterministic(),
    "nnpack": lambda: torch._C._get_nnpack_enabled(),
    "flash_sdp": lambda: torch._C._get_flash_sdp_enabled(),
    "math_sdp": lambda: torch._C._get_math_sdp_enabled(),
    "mem_efficient_sdp": lambda: torch._C._get_mem_efficient_sdp_enabled(),
    "quantized_engine": lambda: torch._C._get_qengine(),
    "default_device": lambda: str(torch.get_default_device()),
}

# What may have a precision of its own (`torch.backends.mkldnn.matmul.fp32_precision`), after where
# it is taken from while nobody has said it.
_PRECISIONS = {
    op: (("generic", "all"), ("mkldnn", "all"), ("mkldnn", op)) for op in ("matmul", "conv", "rnn")
}


def _matmul_precision() -> str:
    """The setting of before there was one for each library; torch refuses to tell it where both
    ways of setting it were used."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return "told for each library"


def _precisions() -> tuple[tuple[str, str], ...]:
    """How precise matrix products and the like are, in the library that CPUs use."""
    found = []
    for op, places in _PRECISIONS.items():
        said = [torch._C._get_fp32_precision_getter(*place) for place in places]
        found.append((op, next((one for one in reversed(said) if one != "none"), "ieee")))
    return tuple(found)


# Kernels for these are no concern of a CPU's programs; meta kernels only say what sizes results
# have, and torch itself registers most of them from Python.
_ELSEWHERE = frozenset({"Meta", "CUDA", "MPS", "XPU", "HPU", "MTIA", "PrivateUse1"}) | {
    "PythonTLSSnapshot"  # transformations', by torch itself (2.15)
}


def process_settings() -> tuple[tuple[str, Any], ...]:
    """Each setting and its value."""
    return tuple((name, read()) for name, read in SETTINGS.items())


def python_kernels() -> list[str]:
    """Ops of ATen that somebody has registered a kernel for, from Python, which CPU tensors meet:
    they may mean something else than the library's own."""
    found = (one.split("/") for one in torch.library._impls if one.startswith("aten/"))
    return sorted(
        f"aten::{op}"
        for _, op, key in found
        if key not in _ELSEWHERE and not key.startswith("FuncTorch")  # vmap's, by torch itself
    )
