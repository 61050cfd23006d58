"""Checks of tensors, sizes and the thread.

Enters: types and symbols. Leaves: checks (`base.py` says what they promise). Invariant: whatever is
symbolic is no business of `holds`: `numbers` tells what must be bound or compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, fields
from typing import Any

import torch

from windfall import torch_abi
from windfall.dataclass import dataclass
from windfall.ir.check_writer import NativeCheckWriter
from windfall.ir.checks.base import Check, Class
from windfall.ir.constants import written
from windfall.ir.dtype import TensorType
from windfall.ir.reading import UNREADABLE, is_among, short_class_name
from windfall.ir.relation import Relation
from windfall.ir.source import SizeOf, Source, StrideOf
from windfall.ir.symint import Atom, Expression, Size, bounds, symbols_of


@dataclass(frozen=True, slots=True)
class TensorIs(Check):
    """A tensor of exactly this class, dispatch keys and type, and without a forward-mode tangent,
    of which no type speaks. Sizes and strides may be symbolic: a symbol that stands alone as a size
    or stride and is bound by no earlier guard is bound here (its range is checked); whatever else
    is symbolic is compared once all symbols are bound."""

    type: TensorType
    exact_class: Class
    dispatch_keys: int  # raw bits of the tensor's own key set

    def holds(self, value: Any, *others: Any) -> bool:
        """All but what varies."""
        tensor: Any = value
        if type(value) is not self.exact_class:
            return False
        try:
            if torch_abi.dispatch_keys(tensor) != self.dispatch_keys or torch_abi.has_tangent(
                tensor
            ):
                return False
            found = torch_abi.tensor_facts(tensor)
        except UNREADABLE:  # no tensor, or one without such facts
            return False
        wanted = self.type
        return (
            found.dtype is wanted.dtype
            and found.device == wanted.device
            and found.requires_grad is wanted.requires_grad
            and _same_where_fixed(found.sizes, wanted.sizes)
            and _same_where_fixed(found.strides, wanted.strides)
        )

    def numbers(self, source: Source) -> Iterator[tuple[Source, Expression]]:
        """Sizes, then strides."""
        for kind, sizes in ((SizeOf, self.type.sizes), (StrideOf, self.type.strides)):
            for dimension, size in enumerate(sizes):
                if isinstance(size, Expression):
                    yield kind(source, dimension), size

    def sizes(self) -> tuple[Size, ...]:
        """Sizes and strides."""
        return (*self.type.sizes, *self.type.strides)

    def encode(self, writer: NativeCheckWriter, source: Source) -> bool:
        """One record for what is fixed."""
        cell = writer.cell(source)
        return cell is not None and writer.tensor_is(
            cell, self.type, self.exact_class, self.dispatch_keys
        )

    def implied_class(self) -> Class | None:
        """It is looked at."""
        return self.exact_class

    def expected(self) -> str:
        """The type, and the ranges of what varies in it."""
        symbols = {atom.key: atom for size in self.sizes() for atom in symbols_of(size)}
        ranges = [_range(symbols[key]) for key in sorted(symbols)]
        return str(self.type) + (f" where {', '.join(ranges)}" if ranges else "")

    def explain(self, value: Any) -> str:
        """The type that is there; where that is the same, what no type says."""
        tensor, found = value, written(value)
        if type(value) is not self.exact_class or found != str(self.type):
            return found
        return f"{found} with dispatch keys {torch_abi.dispatch_keys(tensor):#x}"

    def __str__(self) -> str:
        return f"is {short_class_name(self.exact_class)} {self.type} keys={self.dispatch_keys:#x}"


def _same_where_fixed(found: tuple[int, ...], wanted: tuple[Size, ...]) -> bool:
    return len(found) == len(wanted) and all(
        isinstance(size, Expression) or one == size for one, size in zip(found, wanted, strict=True)
    )


def _range(symbol: Atom) -> str:
    """Between which values a size that varies lies: 0 and 1 are never among them."""
    top = "" if symbol.high is None else f" and <= {symbol.high}"
    return f"{symbol.key} >= {symbol.low}{top}"


@dataclass(frozen=True, slots=True)
class ScalarWithin(Check):
    """A tensor without dimensions, of single or double precision or of 64-bit integers, that holds
    a number from `low` to `high`; a whole one, where `whole`. That it is such a tensor, another
    check says: `TensorIs`."""

    low: float
    high: float
    whole: bool

    def holds(self, value: Any, *others: Any) -> bool:
        """No NaN lies between numbers."""
        found = _held(value)
        if found is None:
            return False
        return self.low <= found <= self.high and (not self.whole or found.is_integer())

    def encode(self, writer: NativeCheckWriter, source: Source) -> bool:
        """Where a record has seen the tensor."""
        cell = writer.cell(source)
        return cell is not None and writer.scalar_within(
            cell, source, self.low, self.high, self.whole
        )

    def explain(self, value: Any) -> str:
        """The number."""
        found = _held(value)
        return written(value) if found is None else f"a tensor that holds {found!r}"

    def __str__(self) -> str:
        return f"holds {'a whole number' if self.whole else 'one'} in [{self.low}, {self.high}]"


def _held(value: Any) -> float | None:
    """Of tensors whose data can be read without running anybody's code."""
    if not is_among(type(value), (torch.Tensor, torch.nn.Parameter)):
        return None
    if not torch_abi.is_plain_tensor(value):
        return None
    found = torch_abi.tensor_facts(value)
    if found.sizes or found.dtype not in (torch.float32, torch.float64, torch.int64):
        return None
    if found.device.type != "cpu":
        return None
    return float(torch_abi.without_torch_function(torch.Tensor.item, value))


@dataclass(frozen=True, slots=True)
class PlainLeaf(Check):
    """A leaf of autograd that nobody listens to: neither it nor its accumulator has a hook. That it
    is a tensor, another check says: `TensorIs`."""

    def holds(self, value: Any, *others: Any) -> bool:
        """As it lies in memory."""
        if not is_among(type(value), (torch.Tensor, torch.nn.Parameter)):
            return False
        return torch_abi.is_plain_tensor(value) and torch_abi.is_plain_leaf(value)

    def encode(self, writer: NativeCheckWriter, source: Source) -> bool:
        """Where a record has seen the tensor."""
        cell = writer.cell(source)
        return cell is not None and writer.is_plain_leaf(cell)

    def explain(self, value: Any) -> str:
        """Why not."""
        return f"{written(value)}, which has a history, or hooks"

    def __str__(self) -> str:
        return "is a leaf without hooks"


@dataclass(frozen=True, slots=True)
class BindsSymbol(Check):
    """An exact int of 64 bits within the range of `symbol`, which has this value from here on."""

    symbol: Expression

    def holds(self, value: Any, *others: Any) -> bool:
        """Not a bool, and no subclass."""
        in_word = type(value) is int and -(1 << 63) <= value < 1 << 63
        return in_word and in_range(value, self.symbol)

    def numbers(self, source: Source) -> Iterator[tuple[Source, Expression]]:
        """The number itself."""
        yield source, self.symbol

    def sizes(self) -> tuple[Size, ...]:
        """The symbol."""
        return (self.symbol,)

    def encode(self, writer: NativeCheckWriter, source: Source) -> bool:
        """It is read and bound."""
        return writer.number_is(source, self.symbol)

    def implied_class(self) -> Class | None:
        """Not a bool."""
        return int

    def __str__(self) -> str:
        low, high = self.symbol.bounds
        return f"is int {self.symbol} in [{low}, {high}]"


@dataclass(frozen=True, slots=True)
class Holds(Check):
    """A relation between sizes, over symbols that other guards bind; its source is `SYMBOLS`, where
    the values of the symbols are."""

    relation: Relation

    def holds(self, value: Any, *others: Any) -> bool:
        """False too where a symbol has no value, or something is divided by zero."""
        try:
            return self.relation.holds(value)
        except UNREADABLE:
            return False

    def sizes(self) -> tuple[Size, ...]:
        """Both sides."""
        return (self.relation.left, self.relation.right)

    def encode(self, writer: NativeCheckWriter, source: Source) -> bool:
        """Behind all that bind symbols."""
        writer.relate(self.relation)
        return True

    def explain(self, value: Any) -> str:
        """The symbols' values."""
        return ", ".join(f"{name} = {number}" for name, number in value.items())

    def __str__(self) -> str:
        return str(self.relation)


def symbol_of(size: Size) -> Atom | None:
    """The symbol that a size is, if it is nothing more."""
    atom = size.atom if isinstance(size, Expression) else None
    return atom if atom is not None and not atom.operation else None


def in_range(value: int, symbol: Size) -> bool:
    """Whether a symbol may have this value."""
    low, high = bounds(symbol)
    return (low is None or low <= value) and (high is None or value <= high)


@dataclass(frozen=True, slots=True)
class AmbientIs(Check):
    """The thread's state that ops depend on; its source is `AMBIENT`. Only what is not default
    needs a mention, but all of it is checked, always, first."""

    grad_enabled: bool
    inference_mode: bool = False
    included_keys: int = 0
    excluded_keys: int = 0
    dispatch_modes: int = 0
    function_modes: int = 0
    function_state: int = 0  # 0 enabled, 1 subclasses disabled, 2 all disabled
    profiled: bool = False
    default_dtype: str = "torch.float32"
    deterministic: bool = False
    autocast: tuple[tuple[str, str], ...] = field(default=())  # (device, dtype) that are on

    def _state(self) -> torch_abi.Ambient:
        return torch_abi.Ambient(**{one.name: getattr(self, one.name) for one in fields(self)})

    def holds(self, value: Any, *others: Any) -> bool:
        """All of the state."""
        return type(value) is torch_abi.Ambient and value == self._state()

    def encode(self, writer: NativeCheckWriter, source: Source) -> bool:
        """One record."""
        writer.thread_is(self._state())
        return True

    def explain(self, value: Any) -> str:
        """The parts that are different."""
        wanted = self._state()._asdict()
        found = {name: one for name, one in value._asdict().items() if one != wanted[name]}
        return f"{AmbientIs(**value._asdict())} ({found})"

    def __str__(self) -> str:
        return f"ambient grad={self.grad_enabled} inference={self.inference_mode}" + (
            f" autocast={dict(self.autocast)}" if self.autocast else ""
        )
