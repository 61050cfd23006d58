"""Devices other than the CPU: who runs a pure graph on their tensors.

Enters: a `Device`, by `add_device`. Leaves: graphs of its tensors are captured, differentiated and
split as those of the CPU are; the device makes the halves something to call. Invariant: a device
sees graphs of ATen overloads without mutation, whose results share no memory with their inputs;
writes, views and gradients are brought about around it (`autograd/conventions.py`).
"""

from __future__ import annotations

from typing import Protocol

import torch.fx

from windfall import autograd, torch_abi
from windfall.ir.stages import GraphCallable
from windfall.ir.symint import Expression


class Device(Protocol):
    """Who runs graphs on tensors of one type of device."""

    @property
    def type(self) -> str:
        """As in `torch.device(type)`."""

    def compile(self, graph: torch.fx.Graph, symbols: tuple[Expression, ...]) -> GraphCallable:
        """A callable of the values of `symbols`, then the graph's inputs; it answers the tuple of
        its results, without history."""


class OpByOp:
    """The CPU as such a device: torch's own kernels, one after the other. It is what
    `backend="aot_eager"` runs, for those who look for a mistake: code generation has no part in
    it."""

    type = "cpu"

    def compile(self, graph: torch.fx.Graph, symbols: tuple[Expression, ...]) -> GraphCallable:
        """The graph, interpreted."""
        return autograd.interpreter(graph, symbols)


DEVICES: dict[str, Device] = {"cpu": OpByOp()}


def add_device(device: Device) -> None:
    """Let graphs of this device's tensors be captured, and run by it."""
    torch_abi.admit_device(device.type)
    DEVICES[device.type] = device
