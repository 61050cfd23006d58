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
    "float32_matmul_precision": torch.get_float32_matmul_precision,
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
