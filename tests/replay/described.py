"""A value as text that is equal where the value is.

Enters: what a program answered. Leaves: a text without addresses. Invariant: of tensors all bits
count.
"""

from __future__ import annotations

import hashlib
from typing import Any

import torch


def described(value: Any) -> str:
    """A value as text that is equal where it is: tensors by the hash of their elements."""
    match value:
        case torch.Tensor() if value.layout is torch.strided and type(value) in PLAIN:
            return f"{value.dtype}{tuple(value.shape)}{value.stride()} {_digest(value)}"
        case torch.Tensor():
            return f"{type(value).__name__} {value.layout} {tuple(value.shape)}"
        case BaseException():
            return f"{type(value).__name__}: {value}"
        case dict():
            return "{" + ", ".join(f"{key}: {described(one)}" for key, one in value.items()) + "}"
        case list() | tuple():
            return type(value).__name__ + "(" + ", ".join(map(described, value)) + ")"
        case None | bool() | int() | float() | str():
            return repr(value)
    return type(value).__name__


PLAIN = (torch.Tensor, torch.nn.Parameter)


def _digest(tensor: torch.Tensor) -> str:
    elements = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return hashlib.sha256(elements.view(torch.uint8).numpy().tobytes()).hexdigest()[:16]
