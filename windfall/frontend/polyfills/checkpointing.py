"""`torch.utils.checkpoint`, as Python: the function is called, and what it computes is one region.

Enters: a call of `checkpoint`. Leaves: the function's result; the nodes of the graph that stand for
its operations say in which call they were computed, and what a policy says of each. Invariant: what
eager does twice (in forward, and again for the gradients) has no effect but its result; else, and
where eager would refuse or warn, the whole call is torch's own (`refuse`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import checkpoint as torch_checkpoint
from torch.utils.checkpoint import SelectiveCheckpointContext, noop_context_fn

from windfall.torch_abi import CHECKPOINTS_DEBUG as _DEBUGS


def checkpoint(
    function: Any,
    *arguments: Any,
    use_reentrant: Any = None,
    context_fn: Any = noop_context_fn,
    determinism_check: Any = "default",
    debug: Any = False,
    early_stop: Any = True,
    preserve_rng_state: Any = True,
    **keywords: Any,
) -> Any:
    """`checkpoint(function, *arguments, ...)`. What would be computed again is compared with
    nothing (it cannot differ), and no more of it is computed than is needed: `determinism_check`
    and `early_stop` change nothing else."""
    if determinism_check not in ("default", "none"):
        refuse("checkpoint with an unknown determinism_check")
    check_options(use_reentrant, debug, keywords or context_fn is not noop_context_fn)
    region = begin_region(function, arguments, keywords, use_reentrant, preserve_rng_state)
    policy = None
    try:
        if context_fn is not noop_context_fn:
            policy = policy_of(context_fn())
        if not torch.is_grad_enabled():
            policy = None
            leave_region(region)
        result = function(*arguments, **keywords)
    except BaseException:
        refuse("a checkpointed function raises")
    if policy is not None:
        ask_policy(policy, region)
    return end_region(region, result)


def check_options(use_reentrant: Any, debug: Any, has_more: Any) -> None:
    """What eager refuses, warns of, or shows."""
    if use_reentrant is None:
        refuse("checkpoint warns that use_reentrant is not given")
    if use_reentrant and has_more:
        refuse("keywords or context_fn for checkpoint with use_reentrant")
    if getattr(torch_checkpoint, _DEBUGS) or debug:
        refuse("checkpoint with debug")


def ask_policy(policy: Any, region: Any) -> None:
    """A function, or a list of ops to keep, about each op. (Eager asks while the function runs: as
    that has no effects, neither can tell.)"""
    for operation, given, named, output in operations_of(region):
        context = SelectiveCheckpointContext(is_recompute=False, op_output=output)
        if isinstance(policy, list):
            decide(region, operation in policy)
        else:
            decide(region, policy(context, operation, *given, **named))


def refuse(why: Any) -> Any:
    """Has a rule: the call is torch's own."""


def begin_region(
    function: Any, arguments: Any, keywords: Any, reentrant: Any, preserve: Any
) -> Any:
    """Has a rule: what follows is computed again for the gradients."""


def leave_region(region: Any) -> Any:
    """Has a rule: nothing is, for there are none."""


def policy_of(contexts: Any) -> Any:
    """Has a rule: what `create_selective_checkpoint_contexts` was given."""


def operations_of(region: Any) -> Any:
    """Has a rule: the ATen ops that were dispatched since the region began."""


def decide(region: Any, answer: Any) -> Any:
    """Has a rule: what the policy said of the next of these."""


def end_region(region: Any, result: Any) -> Any:
    """Has a rule: the result."""
