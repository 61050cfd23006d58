"""Convolutions of oneDNN that read weights where they are, whatever layout they compute in.

Enters: nothing. Leaves: the overload that takes such weights and the description of their memory;
None where torch has none.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from windfall.torch_abi.symbols import dispatcher_version, has_symbol, loaded

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
    for library in loaded():
        if hasattr(library, "aoti_torch_layout__mkldnn"):
            return int(library.aoti_torch_layout__mkldnn()), bytes(text.tolist())
    raise LookupError("aoti_torch_layout__mkldnn")
