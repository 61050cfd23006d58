"""Modes of the thread that a program switches: gradients on and off.

Enters: `torch.no_grad()`, `enable_grad`, `set_grad_enabled`: their Python code is interpreted, and
in the end calls one C function, which has a rule here. Leaves: a node in the graph, so that
operations after it are recorded in that mode; while tracing, the thread's own mode is switched too,
so that operations on fakes see it. Invariant: `capture` gives the mode back; a segment that leaves
another mode than it found switches it in its source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from windfall import torch_abi
from windfall.frontend.values.base import Arguments, Keywords, Value
from windfall.frontend.values.calls import calls

if TYPE_CHECKING:
    from windfall.frontend.machine import Machine


@calls(torch_abi.set_grad_mode)
def _set_grad_mode(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    (mode,) = arguments
    wanted = bool(mode.as_constant(machine))
    before = torch.is_grad_enabled()
    if wanted != before:
        machine.undo(lambda: torch_abi.set_grad_mode(before))
        torch_abi.set_grad_mode(wanted)
        machine.graph.call("call_function", torch_abi.set_grad_mode, (wanted,), {}, None)
    return machine.literal(None)


@calls(torch_abi.tracing_state)
def _tracing_state(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    return machine.literal(None)
