"""Wrappers that exchange gradients between processes: what they wrap is read.

Enters: calls of torch's wrappers inside of a program. Leaves: the wrapped module's calls, by way of
`polyfills/parallel.py`. Invariant: everything that talks to other processes stays torch's own code,
run as a native step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windfall import torch_abi
from windfall.frontend.values.base import Arguments, Keywords, Value
from windfall.frontend.values.calls import calls_of_module
from windfall.frontend.values.module import Module

if TYPE_CHECKING:
    from windfall.frontend.services import Machine


@calls_of_module("torch.nn.parallel.distributed", "DistributedDataParallel._run_ddp_forward")
def _ddp_forward(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    wrapper = arguments[0]
    if isinstance(wrapper, Module):  # not guarded: where gradients are cut changes none of them
        machine.graph.buckets = torch_abi.buckets_of(wrapper.real)
    return machine.values.polyfill("ddp_forward", arguments, keywords)
