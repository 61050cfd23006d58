"""Recurrent layers: one operation of the graph, or called natively.

Enters: calls of `torch.lstm`, `torch.gru` and their like, which `nn.LSTM` and others make. Leaves:
a node; or a break, where a gradient is needed and the steps are many or vary. Invariant: no graph
is made whose length is that of a sequence, unless that is short and always the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from windfall.frontend.breaks import RECURRENT, stop
from windfall.frontend.policy import Treatment
from windfall.frontend.values.base import Arguments, Keywords, Value
from windfall.frontend.values.calls import calls
from windfall.frontend.values.sequence import SequenceValue
from windfall.frontend.values.tensor import Tensor
from windfall.frontend.values.torchapi import treated
from windfall.ops.recurrent import FUNCTIONS

if TYPE_CHECKING:
    from windfall.frontend.services import Machine

_SHORT = 16  # steps that are taken apart


def _row(function: object) -> None:
    @calls(function)
    def rule(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
        first = arguments[0] if arguments else None
        if isinstance(first, Tensor) and torch.is_grad_enabled():
            sizes = first.fake(machine).shape
            long = any(not isinstance(one, int) for one in sizes) or max(sizes[:2]) > _SHORT
            long = long or _is_packed(machine, arguments)
            if long and _needs_gradient(machine, [*arguments, *keywords.values()]):
                stop(RECURRENT, f"{getattr(function, '__name__', '')} of {first.describe()}")
        return treated(machine, Treatment.GRAPH, function, arguments, keywords)


def _is_packed(machine: Machine, arguments: Arguments) -> bool:
    """Whether the sizes of batches are given, as data: how many steps there are is not known."""
    second = arguments[1] if len(arguments) > 1 else None
    return isinstance(second, Tensor) and second.fake(machine).dtype is torch.int64


def _needs_gradient(machine: Machine, values: Arguments) -> bool:
    for one in values:
        if isinstance(one, Tensor) and one.fake(machine).requires_grad:
            return True
        if isinstance(one, SequenceValue) and _needs_gradient(machine, one.items(machine)):
            return True
    return False


for _function in FUNCTIONS:
    _row(_function)
