"""The `Builder` that writes down: what lowering rules ask for becomes scalars, buffers and items.

Enters: calls of `ops/` rules. Leaves: definitions and calls, gathered in `items`. Invariant: a
reduction stands at the root of a definition of its own; a `Lazy` is known by its element at its own
axes, and read elsewhere by substitution.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from windfall.codegen import extern
from windfall.errors import InternalError, SourceLine
from windfall.ir.dtype import TensorType, contiguous_strides
from windfall.ir.loop import (
    Axis,
    Buffer,
    BufferView,
    Call,
    Definition,
    Index,
    Lazy,
    Scalar,
    Scalars,
    axis,
    extent_of,
    is_size,
    walk,
)
from windfall.ir.symint import (
    Expression,
    Size,
    coefficient_of,
    expression_of,
    growth_of,
    hint_of,
    maximum,
    minimum,
    substitute,
    symbols_of,
)
from windfall.ops.layout import sorted_strides


class LoopBuilder:
    """The `Builder` that writes down. One for each graph."""

    def __init__(self) -> None:
        self.scalars = Scalars()
        self.buffers: dict[str, Buffer] = {}
        self.items: list[Definition | Call] = []
        self.origin: SourceLine | None = None
        self.native = True
        self._depth = 0
        self._reductions: dict[Scalar, str] = {}
        self._stored: dict[tuple[Scalar, TensorType], Lazy] = {}

    # ------------------------------------------------------------------------------- scalars

    def constant(self, value: float | Size | bool, dtype: torch.dtype) -> Scalar:
        if isinstance(value, Expression):
            number = self.scalars.index(value, torch.int64 if dtype is torch.bool else dtype)
            return self.scalars.cast(number, dtype)
        return self.scalars.constant(value, dtype)

    def apply(self, op: str, *arguments: Scalar) -> Scalar:
        return self.scalars.apply(op, *arguments)

    def cast(self, value: Scalar, dtype: torch.dtype) -> Scalar:
        return self.scalars.cast(value, dtype)

    def index(self, expression: Size, dtype: torch.dtype = torch.int64) -> Scalar:
        return self.scalars.index(expression, dtype)

    def clamped(self, index: Size, low: Size, high: Size) -> Size:
        return maximum(minimum(index, high), low)

    def as_index(self, value: Scalar, size: Size, *, wrap: bool = True) -> Expression:
        checked = self.scalars.make(
            "checked", torch.int64, (self.cast(value, torch.int64),), (size, wrap)
        )
        return self.scalars.indirect(checked, size - 1 if isinstance(size, int) else None)

    def masked(self, condition: Scalar, body: Callable[[], Scalar], otherwise: Scalar) -> Scalar:
        if condition.op == "constant" and not condition.attribute:
            return otherwise  # what the body would load may not even exist
        return self.scalars.masked(condition, body(), otherwise)

    def reduce(self, kind: str, extents: Sequence[Size], body: Callable[[Index], Scalar]) -> Scalar:
        axes = [
            axis(f"t{self._depth}_{place}", extent) if extent != 1 else None
            for place, extent in enumerate(extents)
        ]
        self._depth += 1
        value = body(tuple(0 if each is None else each.symbol for each in axes))
        self._depth -= 1
        return _reduction(self.scalars, kind, tuple(each for each in axes if each), value)

    # ------------------------------------------------------------------------------- tensors

    def tensor(self, type: TensorType, at: Callable[[Index], Scalar]) -> Lazy:
        if type.elements == 0:
            zero = self.constant(0, type.dtype)
            return Lazy(type, lambda index: zero)
        index = _index(axes_of(type))
        root = at(index)
        if root.dtype is not type.dtype:
            raise InternalError(f"elements of {root.dtype} in a tensor {type}")
        return self._lazy(type, self.settle(root))

    def _lazy(self, type: TensorType, root: Scalar) -> Lazy:
        """The tensor whose element at its own axes is `root`."""
        index = _index(axes_of(type))
        known: dict[Index, Scalar] = {index: root}
        atoms = [each.atom if isinstance(each, Expression) else None for each in index]

        def read(wanted: Index) -> Scalar:
            found = known.get(wanted)
            if found is None:
                places = {a: w for a, w in zip(atoms, wanted, strict=True) if a is not None}
                found = known[wanted] = self.scalars.substitute(root, places)
            return found

        return Lazy(type, read)

    def root(self, value: Lazy) -> Scalar:
        """The element of a tensor at its own axes."""
        return value.at(_index(axes_of(value.type)))

    def settle(self, root: Scalar) -> Scalar:
        """`root` with each reduction in it moved to a buffer of its own."""
        if not root.reduces:
            return root
        moved: dict[Scalar, Scalar] = {}
        for node in walk(root):
            if node.op == "reduce":
                bare = self.scalars.substitute(node, {}, dict(moved)) if moved else node
                moved[node] = self._store_reduction(bare)
        return self.scalars.substitute(root, {}, moved)

    def _store_reduction(self, node: Scalar) -> Scalar:
        atoms = sorted(
            node.free, key=lambda atom: (atom.key[0], int(atom.key[1:].split("_")[0]), atom.key)
        )
        axes = tuple(axis(f"i{place}", extent_of(atom)) for place, atom in enumerate(atoms))
        renamed = {atom: each.symbol for atom, each in zip(atoms, axes, strict=True)}
        own = self.scalars.substitute(node, renamed)
        name = self._reductions.get(own)
        strides = contiguous_strides(tuple(each.extent for each in axes))
        if name is None:
            type = TensorType(node.dtype, tuple(each.extent for each in axes), strides)
            name = self._reductions[own] = self.allocate(type, "s")
            offset = _offset(strides, tuple(each.symbol for each in axes))
            self.items.append(Definition(name, axes, offset, own, self._origins()))
        back = {each.atom: expression_of(atom) for atom, each in zip(atoms, axes, strict=True)}
        offset = substitute(_offset(strides, tuple(each.symbol for each in axes)), back)
        return self.scalars.load(name, offset, node.dtype)

    def allocate(self, type: TensorType, letter: str = "t") -> str:
        """A fresh buffer that holds a tensor of `type`."""
        name = f"{letter}{len(self.buffers)}"
        self.buffers[name] = Buffer(name, type.without_grad(), "temporary")
        return name

    def allocate_over(self, name: str) -> str:
        """A buffer that holds what buffer `name`, an input, holds once it is written in place."""
        made = f"w{len(self.buffers)}"
        self.buffers[made] = replace(self.buffers[name], name=made, over=name)
        return made

    def store_into(self, name: str, view: BufferView, value: Lazy) -> None:
        """Let a part of buffer `name` hold a tensor."""
        root = self.root(Lazy(view.type, value.at))
        axes, offset = _in_memory_order(view.type), offset_in(view)
        self.items.append(Definition(name, axes, offset, root, self._origins()))

    def loads(self, name: str, type: TensorType, offset: Size = 0) -> Lazy:
        """A tensor that stands in buffer `name`."""
        return Lazy(
            type,
            lambda index: self.scalars.load(
                name, offset + _offset(type.strides, index), type.dtype
            ),
        )

    def materialise(self, value: Lazy) -> Lazy:
        if self.view_of(value) is not None:
            return value
        return self.store(value)

    def store(self, value: Lazy, *, exact: bool = False) -> Lazy:
        """The same tensor in a buffer that holds nothing else; `exact`: in one of its own, with its
        type's strides even where these leave gaps."""
        if value.type.elements == 0:
            return self.loads(self.allocate(value.type), value.type)
        root = self.root(value)
        found = None if exact else self._stored.get((root, value.type))
        if found is None:
            type = value.type if exact or _is_dense(value.type) else _packed(value.type)
            name = self.allocate(type)
            axes = _in_memory_order(type)
            offset = _offset(type.strides, _index(axes_of(type)))
            self.items.append(Definition(name, axes, offset, root, self._origins()))
            found = self._stored[root, value.type] = self.loads(name, type)
        return found

    def view_of(self, value: Lazy) -> BufferView | None:
        """Where a tensor stands, if it stands in memory with its type's strides."""
        root = self.root(value)
        if root.op != "load" or root.dtype is not value.type.dtype:
            return None
        name, offset = root.attribute
        start = offset
        for each, stride in zip(axes_of(value.type), value.type.strides, strict=True):
            if each is not None:
                if growth_of(offset, each.atom) != stride:
                    return None
                start = start - stride * each.symbol
        fixed = all(is_size(atom) for atom in symbols_of(start))
        return BufferView(name, value.type, start) if fixed else None

    def operand(self, value: Lazy, entry: str) -> BufferView:
        """A tensor as argument of a call: where it stands, or a copy that the entry accepts."""
        found = self.view_of(value)
        if found is not None and extern.accepts(entry, found, self.buffers[found.buffer]):
            return found
        type = value.type if extern.keeps_strides(entry) else self._natural(value, entry)
        exact = extern.takes_exactly(entry)
        found = self.view_of(self.store(Lazy(type, value.at), exact=exact))
        assert found is not None
        return found

    def _natural(self, value: Lazy, entry: str) -> TensorType:
        """The layout of a matrix (or a batch of them) in which a copy is cheapest to make: that of
        what it is made from, transposed or not."""
        type = _packed(value.type)
        if type.rank < 2:
            return type
        across, down = axes_of(type)[-1], axes_of(type)[-2]
        if across is None or down is None:
            return type
        order = list(range(type.rank))
        loads = [node.attribute[1] for node in walk(self.root(value)) if node.op == "load"]
        widest = max(loads, key=lambda offset: len(symbols_of(offset)), default=0)
        if coefficient_of(widest, down.atom) == 1 != coefficient_of(widest, across.atom):
            order[-2:] = order[-1], order[-2]
        packed = _laid_out(type, order)
        return packed if extern.takes(entry, packed) else type

    def native_call(
        self,
        entry: str,
        arguments: Sequence[Any],
        results: Sequence[TensorType],
        *,
        attributes: Any = None,
    ) -> tuple[Lazy, ...]:
        operands = tuple(self.argument(argument, entry) for argument in arguments)
        types = [type if _is_dense(type) else _packed(type) for type in results]
        names = tuple(self.allocate(type) for type in types)
        self.items.append(Call(entry, operands, names, attributes, self.origin))
        return tuple(self.loads(name, type) for name, type in zip(names, types, strict=True))

    def argument(self, value: Any, entry: str) -> Any:
        """An argument of a call, with views in place of tensors."""
        if isinstance(value, Lazy):
            return self.operand(value, entry)
        if isinstance(value, (list, tuple)):
            return tuple(self.argument(each, entry) for each in value)
        return value

    def _origins(self) -> tuple[SourceLine, ...]:
        return () if self.origin is None else (self.origin,)


# ------------------------------------------------------------------------------------- layouts


def axes_of(type: TensorType) -> tuple[Axis | None, ...]:
    """The axes that name the elements of a tensor; none where there is one element only."""
    return tuple(
        None if size == 1 else axis(f"i{place}", size) for place, size in enumerate(type.sizes)
    )


def offset_in(view: BufferView) -> Size:
    """Where, in its buffer, the element of a view stands that its own axes name."""
    return view.offset + _offset(view.type.strides, _index(axes_of(view.type)))


def _in_memory_order(type: TensorType) -> tuple[Axis, ...]:
    """The axes of a tensor, those with the longest steps first: loops then follow memory."""
    pairs = [
        (each, hint_of(stride))
        for each, stride in zip(axes_of(type), type.strides, strict=True)
        if each is not None
    ]
    pairs.sort(key=lambda pair: -pair[1])
    return tuple(each for each, _ in pairs)


def _index(axes: Sequence[Axis | None]) -> Index:
    return tuple(0 if each is None else each.symbol for each in axes)


def _offset(strides: Sequence[Size], index: Sequence[Size]) -> Size:
    total: Size = 0
    for stride, place in zip(strides, index, strict=True):
        total = total + stride * place
    return total


def _is_dense(type: TensorType) -> bool:
    """Whether the elements fill their storage, each its own place."""
    expected: Size = 1
    pairs = [
        (stride, size) for stride, size in zip(type.strides, type.sizes, strict=True) if size != 1
    ]
    for stride, size in sorted(pairs, key=lambda pair: (hint_of(pair[0]), hint_of(pair[1]))):
        if stride != expected:
            return False
        expected = expected * size
    return True


def _packed(type: TensorType) -> TensorType:
    """The same without gaps or overlaps, its dims in the same order in memory. Of one that repeats
    (its stride is 0) strides do not tell: it stands where torch puts it in its own copies. (The
    innermost would leave gaps between elements that ops of torch take to be neighbours.)"""
    strides: tuple[Size, ...] = tuple(map(hint_of, type.strides))
    if 0 in strides:
        strides = sorted_strides(tuple(map(hint_of, type.sizes)), [strides])
    steps = list(map(hint_of, strides))
    return _laid_out(type, sorted(range(type.rank), key=lambda place: (-steps[place], place)))


def _laid_out(type: TensorType, order: Sequence[int]) -> TensorType:
    """The same with its dims in this order in memory, the outermost first."""
    strides: list[Size] = [1] * type.rank
    step: Size = 1
    for place in reversed(order):
        strides[place] = step
        step = step * (1 if type.sizes[place] == 0 else type.sizes[place])
    return replace(type, strides=tuple(strides), requires_grad=False)


def _reduction(scalars: Scalars, kind: str, axes: tuple[Axis, ...], body: Scalar) -> Scalar:
    position = kind.startswith("arg")
    if any(each.extent == 0 for each in axes):
        # Eager refuses extremes of nothing; who lowers one has no element that reads it.
        dtype = torch.int64 if position else body.dtype
        return scalars.constant(_EMPTY.get(kind, 0), dtype)
    if not axes:
        return scalars.constant(0, torch.int64) if position else body
    return scalars.reduce(kind, axes, body)


_EMPTY: dict[str, int | bool] = {"sum": 0, "prod": 1, "any": False, "all": True}
