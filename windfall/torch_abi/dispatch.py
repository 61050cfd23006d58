"""Tensors without memory and modes that are told of ops: what fake tensors are made of.

Enters: metadata, some of which may be `torch.SymInt`s. Leaves: a tensor of a class of ours.
Invariant: entering one of our modes does not load the systems that windfall replaces.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

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
    storage_size: int | None = None,
) -> Any:
    """A tensor of class `cls` without memory, whose metadata are as given. Where `torch.SymInt`s
    are among them, its storage is best said to be empty: else torch works out how large it would
    be, for ten times as long as the rest takes."""
    return _make_wrapper(
        cls,
        sizes,
        strides=strides,
        storage_offset=offset,
        dtype=dtype,
        device=device,
        requires_grad=requires_grad,
        storage_size=storage_size,
    )


def dispatched(func: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    """An op as the dispatch mode on top is told of it, with arguments as they are: a
    `torch.SymInt` stays one where the op's schema says `int`."""
    with torch.utils._python_dispatch._pop_mode_temporarily() as mode:
        return mode.__torch_dispatch__(func, (), args, kwargs)
