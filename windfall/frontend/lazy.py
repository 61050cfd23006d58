"""Modules that make their parameters when they are first called (`nn.LazyLinear` and its like).

Enters: the first call of a compiled module. Leaves: the module with its parameters, as its own hook
makes them of the arguments. Invariant: it happens once, before anything is captured, at the moment
at which `nn.Module.__call__` would do it first of all; so the forward pass can be one graph.
"""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin

from windfall.frontend.state import Position, Start

_CALLS = ("__call__", "_wrapped_call_impl", "_call_impl")


def initialise(point: Start | Position, slots: tuple[Any, ...]) -> None:
    """Let a lazy module that is about to be called make its parameters."""
    if not isinstance(point, Start):
        return
    module = point.target
    if getattr(module, "__name__", None) in _CALLS:
        module = getattr(module, "__self__", None)
    if not isinstance(module, LazyModuleMixin) or not isinstance(module, nn.Module):
        return
    hook = getattr(module, "_infer_parameters", None)
    # The hook has its place in the module's own list until it has done its work.
    if hook is None or not module.has_uninitialized_params():
        return
    named = dict(zip(point.keywords, slots[point.count :], strict=True))
    hook(module, slots[: point.count], named)
