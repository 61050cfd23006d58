"""Scales of losses (`torch.amp.GradScaler`): gradients are divided again, and looked at.

Enters: calls of torch's one kernel for that, with a list of gradients. Leaves: ordinary ops in its
place (`polyfills/optimizers.py`), so that what a step does before and behind it is one graph; what
the scaler then decides is a branch on data. Invariant: lists and tensors that the rule does not
know go to torch as they are, which refuses them or not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from windfall import torch_abi
from windfall.frontend.policy import Treatment
from windfall.frontend.values.base import Arguments, Keywords, Value
from windfall.frontend.values.calls import calls
from windfall.frontend.values.sequence import List, Tuple
from windfall.frontend.values.tensor import Tensor
from windfall.frontend.values.torchapi import treated
from windfall.frontend.values.unseen import look

if TYPE_CHECKING:
    from windfall.frontend.services import Machine

_FOUND_AND_SCALE = 2  # arguments behind the list


def _is_gradient(machine: Machine, value: Value) -> bool:
    value = look(value)
    if not isinstance(value, Tensor):
        return False
    one = value.fake(machine)
    plain = one.layout is torch.strided and one.device.type == "cpu"
    return plain and one.dtype.is_floating_point and not one.requires_grad


def _is_one_number(machine: Machine, value: Value) -> bool:
    """In the type that the kernel takes; of one dimension it would have to be made a number."""
    value = look(value)
    if not _is_gradient(machine, value):
        return False
    one = value.fake(machine)  # type: ignore[attr-defined]
    return one.dtype is torch.float32 and not one.dim()


@calls(torch_abi.UNSCALE_GRADIENTS)
def _unscale(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    known = not keywords and len(arguments) == 1 + _FOUND_AND_SCALE
    if known and type(look(arguments[0])) in (List, Tuple):
        gradients = arguments[0].unpack(machine)
        known = bool(gradients) and all(_is_gradient(machine, one) for one in gradients)
        if known and all(_is_one_number(machine, one) for one in arguments[1:]):
            return machine.values.polyfill("unscale_gradients", arguments)
    return treated(machine, Treatment.GRAPH, torch_abi.UNSCALE_GRADIENTS, arguments, keywords)
