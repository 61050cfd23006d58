"""The sizes and numbers that vary from call to call, in one capture: which they are, their names.

Enters: tensors and numbers from outside, and `Facts` (what is known to vary). Leaves: `TensorType`s
with symbols, symbols for integers, and where each is read. Invariant: a symbol has one source that
its value is read from; a size of 0 or 1 is never a symbol, because broadcasting looks at it.

    x: f32[s0, 64]    s0 is read from `L['x'].size(0)`, and is at least 2
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from windfall.dataclass import dataclass
from windfall.errors import SourceLine, Specialise
from windfall.frontend.marks import DynamicMark, marks_of
from windfall.frontend.reads import expected
from windfall.frontend.state import Point, Start
from windfall.ir.dtype import TensorType
from windfall.ir.guard import SYMBOLS, Holds
from windfall.ir.relation import Assumptions, Relation, recurs
from windfall.ir.source import DictOf, SizeOf, Slot, Source, StrideOf
from windfall.ir.symint import (
    Expression,
    Size,
    hint_of,
    read_symbol,
    reads_of,
    size_symbol,
    symbols_of,
)

if TYPE_CHECKING:
    from windfall.frontend.services import Machine

# An integer that is no size: products of two of them still fit 64 bits.
INTEGERS = (-(1 << 31), (1 << 31) - 1)


@dataclass(frozen=True, slots=True)
class Symbol:
    """Where a symbol (or a float that varies) is read; `marked`: the user said that it varies."""

    name: str
    source: Source
    expression: Expression | None
    marked: bool = False

    @property
    def is_read(self) -> bool:
        """Whether it is read from data while the program runs."""
        return isinstance(self.source, _Read)


def _fresh_slot(point: Point) -> int:
    """The slot of what the native step before this point has given, on top of the stack: a float
    from there (`item()`, `random()`, `time()`) is another one each time. -1: there is none."""
    if isinstance(point, Start) or not point.frames[-1].stack or not point.frames[-1].stack[-1]:
        return -1
    return len(point.slot_names) - 1 - point.handled


@dataclass(frozen=True, slots=True)
class _Read(Source):
    """A read of data, by its place in the capture: facts name it so."""

    place: str

    def __str__(self) -> str:
        return self.place


class Symbols:
    """The table of one capture."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._facts = machine.facts
        self._settled = machine.facts.static | machine.facts.fixed
        self._fresh = _fresh_slot(machine.state.point)
        self.by_name: dict[str, Symbol] = {}
        self._by_source: dict[str, Symbol] = {}
        self._shared: dict[int, Expression] = {}
        self._items = 0
        self.needed = ""  # of the read that is a break, what needs its value
        self.assumed = _Noted(machine)

    # ------------------------------------------------------------------------------ what varies

    @property
    def any_may_vary(self) -> bool:
        """Whether any number may be one that varies: also one that nobody has looked at yet."""
        facts = self._facts
        return bool(self.by_name or facts.dynamic or facts.everything or self._fresh >= 0)

    def varies(self, source: Source, value: Any) -> bool:
        """Whether a number read from `source` is one that changes."""
        facts = self._facts
        if type(value) is float and isinstance(source, Slot) and source.index == self._fresh:
            return str(source) not in facts.static | facts.fixed
        if not facts.dynamic and not facts.everything:
            return False
        text = str(source)
        if text in facts.static or text in facts.fixed:
            return False
        if type(value) is int and value < 2 and text in facts.sizes:
            return False
        if type(value) is int and not INTEGERS[0] <= value <= INTEGERS[1]:  # an address, a hash
            return False
        return text in facts.dynamic or (facts.everything and isinstance(source, Slot))

    def is_other_address(self, source: Source, value: Any) -> bool:
        """Whether an integer is too large for a symbol, as an address or a hash, and was another
        one in another call: to rely on it would be to compile for each."""
        if type(value) is not int or INTEGERS[0] <= value <= INTEGERS[1]:
            return False
        return str(source) in self._facts.dynamic

    def _size_varies(self, source: Source, everything: bool, mark: DynamicMark | None) -> bool:
        text = str(source)
        if text in self._facts.fixed:
            return False
        if mark is not None:
            if mark.static:
                return False
            if mark.required:
                return True
        if text in self._facts.static:
            return False
        return everything or mark is not None or text in self._facts.dynamic

    # ---------------------------------------------------------------------------------- tensors

    def tensor_type(self, real: torch.Tensor, source: Source) -> TensorType:
        """The type of a tensor from outside, with symbols where it varies."""
        type = TensorType.of(real)
        facts = self._facts
        marks = marks_of(real)
        everything = facts.everything and _is_argument(real, source)
        if not (facts.dynamic or everything or marks):
            return type
        sizes = tuple(
            self._size(SizeOf(source, dimension), size, everything, marks.get(dimension))
            for dimension, size in enumerate(type.sizes)
            if isinstance(size, int)
        )
        return TensorType(
            type.dtype,
            sizes,
            self._strides(source, sizes, type),
            type.device,
            type.requires_grad,
        )

    def _size(self, source: SizeOf, size: int, everything: bool, mark: DynamicMark | None) -> Size:
        if size < 2 or not self._size_varies(source, everything, mark):
            return size
        text = str(source)
        low, high = (2, None) if mark is None else (max(mark.low or 2, 2), mark.high)
        if mark is None and text not in self._facts.apart:
            shared = self._shared.get(size)
            if shared is not None:
                return shared
        made = self._new(source, size, low, high, mark is not None and mark.required)
        if mark is None and text not in self._facts.apart:
            self._shared[size] = made
        return made

    def _strides(
        self, source: Source, sizes: tuple[Size, ...], type: TensorType
    ) -> tuple[Size, ...]:
        """A stride that is the product of what lies inside it follows the sizes."""
        strides = [stride for stride in type.strides if isinstance(stride, int)]
        order = sorted(range(len(strides)), key=lambda one: (strides[one], -one))
        found: list[Size] = list(strides)
        running: Size = 1
        for dimension in order:
            stride = strides[dimension]
            place = StrideOf(source, dimension)
            if stride == hint_of(running) and stride:
                found[dimension] = running
            elif stride > 1 and str(place) in self._facts.dynamic - self._settled:
                found[dimension] = self._new(place, stride, 2, None)
            if stride:
                running = found[dimension] * sizes[dimension]
        return tuple(found)

    # ---------------------------------------------------------------------------------- numbers

    def integer(self, source: Source, value: int) -> Expression:
        """The symbol of an integer from outside that varies."""
        known = self._by_source.get(str(source))
        if known is not None and known.expression is not None:
            return known.expression
        low, high = INTEGERS
        return self._new(source, value, 2 if self.is_size(source, value) else low, high)

    def is_size(self, source: Source, value: int) -> bool:
        """Whether an integer is known to be used as a size, and is one as sizes vary."""
        return value > 1 and str(source) in self._facts.sizes

    def number(self, source: Source) -> str:
        """The name of a float from outside that varies."""
        known = self._by_source.get(str(source))
        if known is None:
            known = Symbol(f"f{len(self.by_name)}", source, None)
            self._by_source[str(source)] = self.by_name[known.name] = known
        return known.name

    def _new(
        self, source: Source, value: int, low: int, high: int | None, marked: bool = False
    ) -> Expression:
        name = f"s{len(self.by_name)}"
        made = size_symbol(name, value, low, high)
        self._by_source[str(source)] = self.by_name[name] = Symbol(name, source, made, marked)
        return made

    def item(self, where: SourceLine | None) -> str | None:
        """The name of a float that is read from a tensor of the graph; None: the program turned out
        to need its value."""
        source = self._place(where)
        if source is None:
            return None
        name = f"f{len(self.by_name)}"
        self.by_name[name] = Symbol(name, source, None)
        return name

    def read(self, where: SourceLine | None, low: int, high: int | None) -> Expression | None:
        """An integer that is read from data; None: the program turned out to need its value."""
        source = self._place(where)
        if source is None:
            return None
        name = f"u{len(self.by_name)}"
        made = read_symbol(name, low, high)
        self.by_name[name] = Symbol(name, source, made)
        return made

    def _place(self, where: SourceLine | None) -> _Read | None:
        self._items += 1
        # The step too: what follows a break may begin in the same line.
        step = self._machine.frames.stack[-1].last if self._machine.frames.stack else 0
        source = _Read(f"item {self._items} at {where}, step {step}")
        if str(source) not in self._facts.static:
            return source
        needed = dict(self._facts.needed).get(str(source))
        self.needed = f"; {needed}" if needed else ""
        return None

    # ------------------------------------------------------------------------------------- text

    def sources(self, names: frozenset[str]) -> frozenset[str]:
        """The sources of symbols, as facts name them. Where reads are among them, these are what is
        fixed: by a break. Numbers that no read has named stand for all of them."""
        known = [self.by_name[name] for name in names if name in self.by_name]
        if len(known) < len(names):
            known = list(self.by_name.values())
        reads = [one for one in known if one.is_read and one.expression is not None]
        return frozenset(str(one.source) for one in reads or known)


def _is_argument(real: torch.Tensor, source: Source | None) -> bool:
    """Whether a tensor is given by the caller, and no part of a module."""
    if type(real) is not torch.Tensor:
        return False
    while source is not None:
        if isinstance(source, DictOf):
            return False
        if source.base is None:
            return isinstance(source, Slot)
        source = source.base
    return False


class _Noted(Assumptions):
    """What the capture assumes of sizes is a guard at once, with the user's line."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self._machine = machine

    def expect(self, relation: Relation) -> None:
        """Only where the program would raise as the graph does."""
        expected(self._machine, relation, reads_of(relation.left, relation.right))
        super().expect(relation)

    def note(self, relation: Relation) -> None:
        """A guard; a symbol that may have one value only is no symbol."""
        pinned = pinned_by(relation)
        if pinned:
            reason = Specialise(pinned, str(relation), self._machine.frames.where())
            reason.passing = True
            reason.edge = _is_edge(relation)
            raise reason
        before = len(self.relations)
        super().note(relation)
        if len(self.relations) > before:
            self._machine.guards.add(SYMBOLS, Holds(relation), "a decision about sizes")


def _is_edge(relation: Relation) -> bool:
    return relation.left in (0, 1) or relation.right in (0, 1)


def pinned_by(relation: Relation) -> frozenset[str]:
    """The symbols of a relation that only one value (or a few) of one symbol satisfies."""
    if relation.operation != "==":
        return frozenset()
    atoms = symbols_of(relation.left) | symbols_of(relation.right)
    if len(atoms) != 1 or recurs(relation, next(iter(atoms))):
        return frozenset()
    return frozenset(atom.key for atom in atoms)


def python_text(size: Size, names: Mapping[str, str]) -> str:
    """A size as Python text, with the text of each symbol."""
    if isinstance(size, int):
        return str(size)
    parts = []
    for monomial, coefficient in size.terms:
        factors = [_atom_text(atom, names) for atom in monomial.atoms]
        if coefficient != 1:
            factors.insert(0, str(coefficient))
        parts.append(" * ".join(factors))
    if size.constant:
        parts.append(str(size.constant))
    return f"({' + '.join(parts)})" if len(parts) > 1 else parts[0]


def _atom_text(atom: Any, names: Mapping[str, str]) -> str:
    if not atom.operation:
        return names[atom.key]
    arguments = [python_text(one, names) for one in atom.arguments]
    if atom.operation in ("min", "max"):
        return f"{atom.operation}({', '.join(arguments)})"
    return f"({arguments[0]} {atom.operation} {arguments[1]})"
