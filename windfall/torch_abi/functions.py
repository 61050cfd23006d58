"""Functions of torch that the front end knows by identity, or asks about in torch's own lists.

Enters: a function of a program. Leaves: which of torch's private ones it is.
"""

from __future__ import annotations

import functools
import sys
import types
from typing import Any

import torch
import torch.optim.lr_scheduler
import torch.utils._pytree as _pytree

from windfall.torch_abi.probes import named

# What module calls ask while torch.jit traces.
tracing_state: Any = named("_get_tracing_state", lambda: torch._C._get_tracing_state)

# What `nn.Module.__init__` calls first; it counts uses of a feature and answers None.
log_api_usage_once: Any = named("_log_api_usage_once", lambda: torch._C._log_api_usage_once)

# What stands in the class as `Function.apply`: a function before torch 2.15, a descriptor since.
_apply: Any = named("Function.apply", lambda: vars(torch.autograd.Function)["apply"])
FUNCTION_APPLY: Any = getattr(_apply, "__func__", _apply)

# The code that `once_differentiable` puts around a backward.
ONCE_DIFFERENTIABLE: Any = named(
    "once_differentiable",
    lambda: torch.autograd.function.once_differentiable(lambda context: None).__code__,
)
DELAYED_ERROR = "torch::autograd::Error"  # the node of what it answers, where that has a history


def is_tree_node(kind: type) -> bool:
    """Whether torch takes objects of a class apart where it looks for tensors in them."""
    return kind in _pytree.SUPPORTED_NODES or _pytree.is_namedtuple_class(kind)


def untagged(function: Any) -> Any:
    """What torch's own compiler has put itself before, as soon as it ran: `Module.__init__`; None
    for any other function."""
    code = getattr(function, "__code__", None)
    if code is None or function.__module__ != "torch._dynamo.mutation_guard":
        return None
    cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
    return cells["init"].cell_contents if "init" in cells else None


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
function_space: Any = named("_VF", lambda: torch._VF)

# `torch._check` and its like: the exception of each.
CHECKS: dict[Any, type[Exception]] = {
    named("_check", lambda: torch._check): RuntimeError,
    named("_check_index", lambda: torch._check_index): IndexError,
    named("_check_value", lambda: torch._check_value): ValueError,
    named("_check_type", lambda: torch._check_type): TypeError,
    named("_check_not_implemented", lambda: torch._check_not_implemented): NotImplementedError,
}
check_is_size: Any = named("_check_is_size", lambda: torch._check_is_size)
# (condition, text, anything) -> the last one again; raises where the condition is not true.
HOLD: Any = named("_functional_assert_async", lambda: torch.ops.aten._functional_assert_async.msg)

ASSERT: Any = named("_assert", lambda: torch._assert)
# Of two sizes, that of what they broadcast to.
infer_size: Any = named("_infer_size", lambda: torch._C._infer_size)

# torch's own call of a module, where it has hooks.
CALL_OF_MODULES: Any = named("Module._call_impl", lambda: torch.nn.Module._call_impl.__code__)

# Functions that ask whether one of torch's own tracers is at work: it never is.
TRACER_QUESTIONS: tuple[Any, ...] = (
    named("_is_make_fx_tracing", lambda: torch.nn.modules.activation._is_make_fx_tracing),
    named("is_fx_tracing", lambda: torch.fx._symbolic_trace.is_fx_tracing),
    named("_is_tracing", lambda: torch._C._is_tracing),
)

# What `torch.backends.mkldnn.enabled` and its like read: no arguments, a plain answer.
FLAG_READERS: tuple[Any, ...] = tuple(
    named(name, functools.partial(getattr, torch._C, name))
    for name in (
        "_get_mkldnn_enabled",
        "_get_mkldnn_deterministic",
        "_get_cudnn_enabled",
        "_get_cudnn_deterministic",
        "_get_cudnn_benchmark",
        "_get_cudnn_allow_tf32",
    )
)
# Whether a transform of `torch.func` is under way.
transforms_active: Any = named(
    "_are_functorch_transforms_active", lambda: torch._C._are_functorch_transforms_active
)

# What `Module.to` makes of its arguments: device, dtype, non-blocking, memory format.
parse_to: Any = named("_parse_to", lambda: torch._C._nn._parse_to)

# Higher-order operations; `torch` itself offers `cond` alone.
scan: Any = named("scan", lambda: torch._higher_order_ops.scan)
map_over: Any = named("map", lambda: torch._higher_order_ops.map)
while_loop: Any = named("while_loop", lambda: torch._higher_order_ops.while_loop)
associative_scan: Any = named("associative_scan", lambda: torch._higher_order_ops.associative_scan)


def _region_placeholder() -> Any:
    from torch._higher_order_ops.invoke_subgraph import invoke_subgraph_placeholder

    return invoke_subgraph_placeholder


# What a function that is marked as a region calls itself by.
call_region: Any = named("invoke_subgraph_placeholder", _region_placeholder)

# ------------------------------------------------------------------------------------- optimizers


def _code_inside(function: Any, *names: str) -> types.CodeType:
    """The code of a function that `function` makes each time it is called, or that one, ..."""
    code: types.CodeType = function.__code__
    for name in names:
        found = [one for one in code.co_consts if isinstance(one, types.CodeType)]
        code = next(one for one in found if one.co_name == name)
    return code


# Wrappers that torch puts around its own functions, by the code that all of them share; each holds
# the function under a name of its closure. The first two would load torch's compiler when called.
def _step_wrapper() -> types.CodeType:
    from torch.optim.optimizer import _use_grad_for_differentiable  # `torch.optim` hides its module

    return _code_inside(_use_grad_for_differentiable, "_use_grad")


WITH_GRAD_MODE: Any = named("_use_grad_for_differentiable", _step_wrapper)
NOT_COMPILED: Any = named(
    "_disable_dynamo", lambda: _code_inside(torch._compile._disable_dynamo, "inner")
)
OF_SCHEDULER: Any = named(
    "LRScheduler.__init__",
    lambda: _code_inside(
        torch.optim.lr_scheduler.LRScheduler.__init__,
        *("patch_track_step_called", "wrap_step", "wrapper"),
    ),
)

group_tensors: Any = named(
    "_group_tensors_by_device_and_dtype", lambda: torch._C._group_tensors_by_device_and_dtype
)

# `torch._foreach_*`: the name of the op that each calls for every tensor.
FOREACH: dict[Any, str] = {
    getattr(torch, name): name.removeprefix("_foreach_")
    for name in dir(torch)
    if name.startswith("_foreach_")
}

# A whole step of an optimizer, over lists of tensors that it writes. They answer nothing.
FUSED_STEPS: tuple[Any, ...] = (
    named("_fused_adam_", lambda: torch._fused_adam_),
    named("_fused_adamw_", lambda: torch._fused_adamw_),
    named("_fused_sgd_", lambda: torch._fused_sgd_),
    named("_fused_adagrad_", lambda: torch._fused_adagrad_),
)
# Gradients divided by the scale of a loss, and looked at: (list, found, inverse scale).
UNSCALE_GRADIENTS: Any = named(
    "_amp_foreach_non_finite_check_and_unscale_",
    lambda: torch._amp_foreach_non_finite_check_and_unscale_,
)
