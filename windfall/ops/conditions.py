"""Conditions on data that a program makes sure of: ops that do nothing but refuse.

Enters: nothing. Leaves: records in the registry. A condition is a tensor of one element; it is
looked at by a kernel, like indices are (`failing`), and what follows is not cut apart by it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from windfall.ir.dtype import TensorType
from windfall.ir.loop import Lazy
from windfall.ops import failing
from windfall.ops.folding import fresh, op
from windfall.ops.samples import Sample


def _shape(condition: TensorType, message: str, token: TensorType) -> TensorType:
    return fresh(token.dtype, token.sizes)


def _lower(builder: Any, condition: Lazy, message: str, token: Lazy) -> Lazy:
    return token


def _samples() -> Iterator[Sample]:
    yield (torch.tensor(True), "not so", torch.tensor(True)), {}
    yield (torch.tensor(2.5), "not so", torch.tensor(3)), {}


# What it answers is its last operand: something to depend on, for whoever wants to.
op("_functional_assert_async.msg", _shape, _lower, _samples, reads=(2,), checks=failing.truth)
