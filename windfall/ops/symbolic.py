"""Sizes that vary, as torch knows them: `torch.SymInt`s around our own expressions.

Enters: a `Size`, to be given to torch; or what torch hands to a dispatched op. Leaves: a
`torch.SymInt` whose node is a `SizeNode`; or a `Size` again. Torch's C++ does arithmetic on such
nodes and asks them questions while composite operators and autograd's formulas run.

Invariants: a question goes through `ir.relation.decide`; one that needs the value itself is a
`Specialise`, so no value is ever baked in silently. A size of a fake tensor is an `int`, or an
`Expression` that is at least 2 (`settled`): rules may ask `size == 0` and `size == 1` of it. Sizes
that are read from data may be anything: `shape_rule_check.py` finds out what rules make of 0 and 1.

    >>> s = size_symbol("s0", 8)
    >>> str(from_torch(as_torch(s) * 2 + 1))
    '2*s0 + 1'
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from windfall.errors import Specialise
from windfall.ir.dtype import TensorType
from windfall.ir.relation import decide
from windfall.ir.symint import (
    Expression,
    Size,
    coefficient_of,
    evaluate,
    hint_of,
    known_at_least,
    reads_of,
    size_symbol,
    symbols_of,
)
from windfall.ops.size_nodes import (
    Number,
    SizeNode,
    asking,
    tries_reads,
    trying_reads,
    value_of,
)

__all__ = [
    "Number",
    "SizeNode",
    "as_torch",
    "asking",
    "at",
    "from_torch",
    "is_symbolic",
    "plain",
    "settled",
    "size_symbol",
    "symbols_in",
    "tries_reads",
    "trying_reads",
    "value_of",
    "wants_integers",
]


def as_torch(size: Size) -> Any:
    """A size as torch takes it: an int, or a `torch.SymInt`."""
    return size if isinstance(size, int) else torch.SymInt(SizeNode(size))  # type: ignore[no-untyped-call]


def from_torch(value: Any) -> Any:
    """The size that a `torch.SymInt` stands for (the truth, of a `torch.SymBool`; the `Number`, of
    a `torch.SymFloat`); anything else as it is."""
    kind = value.__class__
    if kind is torch.SymInt:
        return value.node.size
    if kind is torch.SymBool:
        return value.node.ask(decide)
    return value.node.number if kind is torch.SymFloat else value


def plain(value: Any) -> Any:
    """`value` with sizes in place of `torch.SymInt`s, lists and tuples included."""
    if isinstance(value, list):
        return [plain(one) for one in value]
    return tuple(map(plain, value)) if isinstance(value, tuple) else from_torch(value)


_WANTS_INTEGERS = (
    "symbolic sizes/strides",
    "SymIntArrayRef expected to contain only concrete",
    "NYI SymInt",
)


def wants_integers(error: BaseException) -> bool:
    """Whether a kernel in C++ complains that the sizes of a tensor are no plain integers: then
    whoever called it raises `Specialise`."""
    text = str(error)
    return any(one in text for one in _WANTS_INTEGERS)


def is_symbolic(value: Any) -> bool:
    """Whether a type, a size or a list of such holds a size that varies."""
    kind = value.__class__
    if kind is TensorType:
        return any(one.__class__ is Expression for one in value.sizes) or any(
            one.__class__ is Expression for one in value.strides
        )
    if isinstance(value, list | tuple):
        return any(map(is_symbolic, value))
    return kind is Expression


def symbols_in(value: Any) -> frozenset[Any]:
    """The symbols that occur in a type, a size or a list of such."""
    if isinstance(value, TensorType):
        return symbols_in((*value.sizes, *value.strides))
    if isinstance(value, list | tuple):
        return frozenset[Any]().union(*map(symbols_in, value))
    return symbols_of(value) if isinstance(value, Expression) else frozenset()


def at(value: Any, values: Mapping[str, int]) -> Any:
    """`value` (a type, a size, a list of such, anything else) with sizes as they are under
    `values`, by name of symbol."""
    kind = value.__class__
    if kind is Expression:
        return value.evaluate(values)
    if kind is TensorType:
        sizes = tuple([evaluate(one, values) for one in value.sizes])
        strides = tuple([evaluate(one, values) for one in value.strides])
        return replace(value, sizes=sizes, strides=strides)
    if isinstance(value, list):
        return [at(one, values) for one in value]
    if isinstance(value, tuple):
        return tuple([at(one, values) for one in value])
    return value


def settled(size: Size) -> Size:
    """A size that is an `int` if it is 0 or 1, and else surely at least 2: which of these it is
    decides what ops do, so it is assumed. What is read from data stays as it is."""
    if isinstance(size, int) or known_at_least(size, 2) or reads_of(size):
        return size
    if decide(">=", size, 2):
        return size
    value = hint_of(size)
    symbols = size.symbols
    if len(symbols) == 1 and coefficient_of(size, next(iter(symbols))):
        reason = Specialise(size.names, f"{size}, which is {value} now,")
        reason.passing = reason.edge = True
        raise reason
    if not decide("==", size, value):
        raise AssertionError(f"{size} was {value}")
    return value
