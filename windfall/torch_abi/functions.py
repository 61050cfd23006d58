"""Functions of torch that the front end knows by identity, or asks about in torch's own lists.

Enters: a function of a program. Leaves: which of torch's private ones it is.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

# What module calls ask while torch.jit traces.
tracing_state: Any = torch._C._get_tracing_state

# What `nn.Module.__init__` calls first; it counts uses of a feature and answers None.
log_api_usage_once: Any = torch._C._log_api_usage_once


def scripted_from(function: Any) -> Any:
    """The Python function that torch.jit made a scripted one of; None where it is not known, and of
    a traced one, which does not do what its function does (it has no name, by which it is told)."""
    traced = not hasattr(function, "__name__")
    return None if traced else getattr(function, "_torchdynamo_inline", None)


def allowed_in_graph(function: Any) -> bool:
    """Whether the user told torch itself to put `function` into graphs. Nobody did where the module
    that keeps the list is not loaded; it is never loaded from here."""
    rules = sys.modules.get("torch._dynamo.trace_rules")
    listed = getattr(rules, "_allowed_callable_ids", None)
    ids = getattr(listed, "function_ids", None)
    return ids is not None and id(function) in ids


# The module through which `torch.nn` calls functions that `torch` itself does not offer.
function_space: Any = torch._VF

# `torch._check` and its like: the exception of each.
CHECKS: dict[Any, type[Exception]] = {
    torch._check: RuntimeError,
    torch._check_index: IndexError,
    torch._check_value: ValueError,
    torch._check_type: TypeError,
    torch._check_not_implemented: NotImplementedError,
}
check_is_size: Any = torch._check_is_size

# torch's own call of a module, where it has hooks.
CALL_OF_MODULES = torch.nn.Module._call_impl.__code__

# Functions of torch's modules that ask whether torch's own tracer is at work: it never is.
TRACER_QUESTIONS: tuple[Any, ...] = (torch.nn.modules.activation._is_make_fx_tracing,)
