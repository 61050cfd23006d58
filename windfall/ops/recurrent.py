"""Recurrent layers as one op each: called, as eager calls them, whatever the length of a sequence.

Enters: nothing. Leaves: records in the registry, and `whole`: torch's functions as they are called
on fake tensors. Taken apart (torch's own composites do that) a layer is as many ops as the sequence
is long. Invariant: only where no gradient is needed and no number is drawn; strides are those of
torch's CPU kernels, oneDNN's among them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from windfall import torch_abi
from windfall.ir.dtype import TensorType
from windfall.ir.symint import Size
from windfall.ops.folding import fresh, op
from windfall.ops.registry import Samples
from windfall.ops.samples import Sample, make

aten = torch.ops.aten


def _states(state: TensorType | Sequence[TensorType]) -> list[TensorType]:
    return [state] if isinstance(state, TensorType) else list(state)


def _width(states: Sequence[TensorType], bidirectional: bool) -> Size:
    """Of a result: that of a state, for each direction."""
    return states[0].sizes[-1] * (2 if bidirectional else 1)


def _layer(
    x: TensorType,
    state: TensorType | Sequence[TensorType],
    weights: Sequence[TensorType],
    biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> Any:
    states = _states(state)
    if x.rank != 3 or 0 in x.sizes or (train and dropout and layers > 1):
        return NotImplemented
    first, second, _ = x.sizes
    width = _width(states, bidirectional)
    if batch_first:  # the steps lie outermost all the same
        strides = (width, first * width, 1)
        result = TensorType(x.dtype, (first, second, width), strides)
    else:
        result = fresh(x.dtype, (first, second, width))
    return (result, *(fresh(x.dtype, one.sizes) for one in states))


def _packed(
    x: TensorType,
    counts: TensorType,
    state: TensorType | Sequence[TensorType],
    weights: Sequence[TensorType],
    biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> Any:
    states = _states(state)
    if x.rank != 2 or 0 in x.sizes or (train and dropout and layers > 1):
        return NotImplemented
    width = _width(states, bidirectional)
    result = fresh(x.dtype, (x.sizes[0], width))
    return (result, *(fresh(x.dtype, one.sizes) for one in states))


_GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
_INPUT, _HIDDEN = 3, 4


def _weights(name: str, layers: int, directions: int, biases: bool) -> list[torch.Tensor]:
    rows = _GATES[name] * _HIDDEN
    found = []
    for layer in range(layers):
        width = _INPUT if layer == 0 else _HIDDEN * directions
        for _ in range(directions):
            found += [make((rows, width)), make((rows, _HIDDEN))]
            found += [make((rows,)), make((rows,))] if biases else []
    return found


def _state(name: str, layers: int, directions: int) -> Any:
    one = make((layers * directions, 2, _HIDDEN))
    return [one, one.clone()] if name == "lstm" else one


def _samples(name: str, packed: bool) -> Samples:
    def samples() -> Iterator[Sample]:
        for layers, directions, first, biases in ((1, 1, False, True), (2, 2, True, False)):
            weights = _weights(name, layers, directions, biases)
            state = _state(name, layers, directions)
            rest = (state, weights, biases, layers, 0.0, False, directions == 2)
            if packed:
                yield (make((5, _INPUT)), torch.tensor([2, 2, 1]), *rest), {}
            else:
                x = make((2, 5, _INPUT) if first else (5, 2, _INPUT))
                yield (x, *rest, first), {}

    return samples


for _name in _GATES:
    op(f"{_name}.input", _layer, None, _samples(_name, False), whole=True)
    op(f"{_name}.data", _packed, None, _samples(_name, True), whole=True)


# --------------------------------------------------------------------------------- on fake tensors

FUNCTIONS: dict[Callable[..., Any], Any] = {
    torch.lstm: aten.lstm,
    torch.gru: aten.gru,
    torch.rnn_tanh: aten.rnn_tanh,
    torch.rnn_relu: aten.rnn_relu,
}


def is_packed(args: Sequence[Any]) -> bool:
    """Whether a call is of a packed sequence: the sizes of batches come second, so that weights
    come fourth."""
    return isinstance(args[3], list | tuple)


def is_whole(args: Sequence[Any]) -> bool:
    """Whether a call may be one op: nothing is differentiated, cast or drawn."""
    layers, dropout, train = args[5:8] if is_packed(args) else args[4:7]
    drawn = train and dropout and layers > 1
    empty = any(type(one) is int and one == 0 for one in args[0].shape)
    if drawn or empty or torch.is_autocast_enabled("cpu"):
        return False
    return not (torch.is_grad_enabled() and _needs_gradient(args))


def _needs_gradient(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.requires_grad
    return isinstance(value, list | tuple) and any(map(_needs_gradient, value))


def _called(function: Callable[..., Any], packet: Any, *args: Any) -> Any:
    if len(args) != _ARGUMENTS or not is_whole(args):
        return function(*args)
    with torch_abi.below_autograd():
        return (packet.data if is_packed(args) else packet.input)(*args)


_ARGUMENTS = 9  # of both forms
whole: dict[int, Callable[..., Any]] = {
    id(function): functools.partial(_called, function, packet)
    for function, packet in FUNCTIONS.items()
}
