"""Floating-point numbers made of sizes that vary, as tensors without dimensions.

Enters: a recorded step, in whose arguments a `Number` may stand (`2 / (s0 - 1)`, in the gradient
of a variance). Leaves: the step with a node in its place, of the overload that takes a tensor
there. Invariant: the number is computed in double precision and rounded to the result's dtype, as
eager rounds a Python number; where that is not so (half precision, other ops) it is a `Specialise`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.fx

from windfall.autograd.functional import Functional
from windfall.autograd.tracing import Step
from windfall.errors import Specialise
from windfall.ir.dtype import TensorType
from windfall.ops import fake as fakes
from windfall.ops.registry import lookup
from windfall.ops.schema import overload
from windfall.ops.symbolic import Number

aten = torch.ops.aten

_OPERATIONS: dict[str, Any] = {
    "add": aten.add.Tensor,
    "sub": aten.sub.Tensor,
    "mul": aten.mul.Tensor,
    "div": aten.div.Tensor,
}
_EXACT = (torch.float32, torch.float64)


def with_numbers_as_tensors(build: Functional, step: Step) -> Step:
    """The step, with nodes in place of numbers that vary."""
    args = [_number(one) for one in step.args]
    found = [one for one in (*args, *map(_number, step.kwargs.values())) if _has_number(one)]
    if not found:
        return step
    name = lookup(step.func).tensor_form
    form = overload(name) if name else step.func if step.func in _OPERATIONS.values() else None
    fits = len(args) == 2 and len(found) == 1 and isinstance(args[1], Number) and not step.kwargs
    type = step.types
    if form is None or not fits or not isinstance(type, TensorType) or type.dtype not in _EXACT:
        names = frozenset[str]().union(*map(_names, found))
        raise Specialise(names, f"a number in {step.func}")
    node = _node(build, args[1])
    if type.dtype != torch.float64:
        node = build.emit(aten._to_copy.default, node, dtype=type.dtype)
    return replace(step, func=form, args=(step.args[0], node))


def _number(value: Any) -> Any:
    """The number behind an argument, where torch wrapped it in a tensor."""
    if isinstance(value, torch.Tensor) and not fakes.is_fake(value):
        return fakes.varying_number(value)
    return value


def _has_number(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_has_number, value))
    return isinstance(value, Number)


def _names(value: Any) -> frozenset[str]:
    if isinstance(value, list | tuple):
        return frozenset[str]().union(*map(_names, value))
    return value.names if isinstance(value, Number) else frozenset()


def _node(build: Functional, number: Number | float) -> torch.fx.Node:
    if not isinstance(number, Number) or number.operation == "size":
        value = number.arguments[0] if isinstance(number, Number) else number
        return build.emit(aten.full.default, [], value, dtype=torch.float64)
    left, right = (_node(build, one) for one in number.arguments)
    return build.emit(_OPERATIONS[number.operation], left, right)
