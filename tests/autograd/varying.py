"""Runs a function through this room once, with sizes that vary, and then at many sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx

from tests.autograd.harness import (
    OpByOp,
    check_gradients,
    copies,
    flat,
    leaves,
    linked,
    same_object,
    same_tensor,
    sharing,
    verify,
)
from windfall.autograd import differentiate, split
from windfall.ir.dtype import TensorType
from windfall.ir.relation import Assumptions
from windfall.ir.symint import Expression, Size, evaluate, size_symbol

Sizes = tuple[Size, ...]


def strides_of(sizes: Sizes, order: Sequence[int] | None = None) -> Sizes:
    """Dense strides, the dimensions in `order`, outermost first."""
    strides: list[Size] = [0] * len(sizes)
    step: Size = 1
    for dim in reversed(order if order is not None else range(len(sizes))):
        strides[dim] = step
        step = step * sizes[dim]
    return tuple(strides)


def tensor(
    *sizes: Size,
    dtype: torch.dtype = torch.float32,
    grad: bool = False,
    order: Sequence[int] | None = None,
) -> TensorType:
    """The type of an input."""
    return TensorType(dtype, sizes, strides_of(sizes, order), requires_grad=grad)


def made(type: TensorType, values: dict[str, int], high: int = 7) -> torch.Tensor:
    """An input of this type, at these sizes; integers are below `high`."""
    sizes = [evaluate(one, values) for one in type.sizes]
    strides = [evaluate(one, values) for one in type.strides]
    result = torch.empty_strided(sizes, strides, dtype=type.dtype)
    if type.dtype.is_floating_point:
        result.copy_(torch.randn(sizes))
    else:
        result.copy_(torch.randint(0, high, sizes))
    return result.requires_grad_(type.requires_grad)


class Varying:
    """A function of integers and tensors after this room, run op by op."""

    def __init__(
        self,
        function: Callable[..., Any],
        symbols: Sequence[Expression],
        types: Sequence[TensorType],
    ) -> None:
        self.symbols = tuple(symbols)
        graph = torch.fx.Graph()
        names = [*map(str, symbols), *(f"x{index}" for index in range(len(types)))]
        inputs = [graph.placeholder(name) for name in names]
        graph.output(graph.call_function(lambda *args: tuple(flat(function(*args))), tuple(inputs)))
        self.joint = differentiate(graph, [*symbols, *types])
        self.split = split(self.joint)
        assert self.joint.symbols == self.split.symbols == self.symbols
        verify(self.joint.graph)
        verify(self.split.forward)
        backward = OpByOp()
        self.backwards = backward.graphs
        self.call = linked(self.joint, self.split, backward)

    @property
    def relations(self) -> list[str]:
        return [str(one) for one in self.joint.relations]


def check_varying(
    function: Callable[..., Any],
    symbols: Sequence[Expression],
    types: Sequence[TensorType],
    sizes: Sequence[Sequence[int]],
    *,
    leaf: bool = True,
    high: int = 7,
) -> Varying:
    """Compile once; compare with eager at each of `sizes` in all that a user can see. Sizes that
    the relations exclude are an error of the test."""
    compiled = Varying(function, symbols, types)
    for given in sizes:
        values = {str(one): value for one, value in zip(symbols, given, strict=True)}
        broken = [str(one) for one in compiled.joint.relations if not one.holds(values)]
        assert not broken, f"{given} excluded by {broken}"
        inputs = [made(type, values, high) for type in types]
        ours, eagers = copies(inputs, leaf=leaf), copies(inputs, leaf=leaf)
        our_leaves, eager_leaves = leaves(ours), leaves(eagers)
        torch.manual_seed(3)
        expected = flat(function(*given, *eagers))
        state = torch.get_rng_state()
        torch.manual_seed(3)
        found = flat(compiled.call(*given, *ours))
        assert torch.equal(torch.get_rng_state(), state)
        for one, other in zip([*found, *ours], [*expected, *eagers], strict=True):
            same_tensor(one, other)
        assert sharing([*found, *ours]) == sharing([*expected, *eagers])
        assert same_object([*found, *ours]) == same_object([*expected, *eagers])
        check_gradients([*found, *ours], our_leaves, [*expected, *eagers], eager_leaves)
    return compiled


__all__ = ["Assumptions", "Varying", "check_varying", "made", "size_symbol", "tensor"]
