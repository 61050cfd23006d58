"""Sizes and numbers that vary: two recordings of one kind of pass, made one program for all.

Enters: the keys and programs of two passes that differ in numbers alone. Leaves: a
`VaryingProgram`: which numbers of a key vary, what each integer of the program is made of; from the
key of a third pass, the program of that pass. Invariant: every number of a key is either equal to
what it was in both recordings, or an expression of symbols, and is compared; 0 and 1 do not vary,
nor do sizes of classes whose formulas ask which of two is greater. An integer of an operation has
exactly one explanation by numbers of its own node and of what that node leads to; where there is
none, or there are two, nothing varies.

    batch 3: view(%4, [3, 8])       batch 4: view(%4, [4, 8])       any: view(%4, [s0, 8])
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch

from windfall import torch_abi
from windfall.dataclass import dataclass
from windfall.engine.backward_graph import NodeKey
from windfall.engine.program import PassProgram, PassSegment
from windfall.engine.steps import Lifted, LiveCall, RecordedOp, Register, VaryingSize
from windfall.errors import WindfallError
from windfall.ir.dtype import TensorType
from windfall.ir.symint import Expression, Size, evaluate, size_symbol

Number = int | float
Near = Sequence[tuple[int, Any]]  # where a number stands in a key, and what it is made of
_LARGEST = (1 << 31) - 1


class Fixed(WindfallError):
    """Two passes that do not become one program; the text says why."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A key in two parts: what does not vary, and its numbers, each with the node that has it (-1:
    the pass itself). `arriving`: whether it is of a gradient that arrives there."""

    skeleton: Any
    numbers: tuple[Number, ...]
    owners: tuple[int, ...]
    arriving: tuple[bool, ...]


def spread(door: Any, request: Any, keys: Sequence[NodeKey]) -> Spread:
    """The parts of a key."""
    found = _Numbers()
    head = (found.taken(door, -1), request)
    nodes = []
    for number, key in enumerate(keys):
        arriving = tuple(
            (dtype, found.sizes(sizes, number, True), device)
            for dtype, sizes, device in key.arriving
        )
        state = tuple(found.taken(one, number) for one in key.state)
        nodes.append((key.name, key.how, key.hooks, key.edges, arriving, state))
    columns = zip(*found.rows, strict=True) if found.rows else ((), (), ())
    numbers, owners, are_arriving = (tuple(one) for one in columns)
    return Spread((head, tuple(nodes)), numbers, owners, are_arriving)


class _Numbers:
    """Takes the numbers out of parts of a key."""

    def __init__(self) -> None:
        self.rows: list[tuple[Number, int, bool]] = []

    def sizes(self, sizes: Sequence[int], node: int, arriving: bool = False) -> int:
        """A row of them; its length stays."""
        self.rows.extend((one, node, arriving) for one in sizes)
        return len(sizes)

    def taken(self, value: Any, node: int) -> Any:
        """What is left of a part."""
        if isinstance(value, TensorType):
            self.sizes(value.sizes, node)  # type: ignore[arg-type]
            self.sizes(value.strides, node)  # type: ignore[arg-type]
            return value.dtype, value.rank, value.device, value.requires_grad
        if type(value) is not tuple or not value:
            return value
        if value[0] in ("int", "float") and len(value) == 2:
            number = value[1] if value[0] == "int" else float.fromhex(value[1])
            self.rows.append((number, node, False))
            return value[0]
        if value[0] == "number" and type(value[2]) in (str, int):
            number = value[2] if type(value[2]) is int else float.fromhex(value[2])
            self.rows.append((number, node, False))
            return "number", value[1], type(value[2])
        if all(type(one) is int for one in value):  # sizes of a region of ours
            return self.sizes(value, node)
        return tuple(self.taken(one, node) for one in value)


# Formulas of matrices that are tall, wide or square: another one for each.
_RECTANGULAR = re.compile("Linalg|Lu|Svd|Qr|Lstsq|Geqrf|Householder|Pinverse|Cholesky|Eig")


class VaryingProgram:
    """A program for passes that differ in some numbers of their keys."""

    def __init__(
        self,
        keys: Sequence[NodeKey],
        first: Spread,
        second: Spread,
        one: PassProgram,
        other: PassProgram,
    ) -> None:
        if first.skeleton != second.skeleton:
            raise Fixed("another kind of pass")
        self._spread, self._second, self._keys = first, second, tuple(keys)
        pairs = list(zip(first.numbers, second.numbers, strict=True))
        self._varies = [_differ(*pair) for pair in pairs]
        self._sizes = _FittedSizes(
            one for one, varies in zip(pairs, self._varies, strict=True) if varies
        )
        self.symbols = self._sizes.symbols
        self._expected = [
            self._sizes.of(pair) if varies else pair[0]
            for pair, varies in zip(pairs, self._varies, strict=True)
        ]
        self._by_node: dict[int, list[int]] = {}
        for place, owner in enumerate(first.owners):
            self._by_node.setdefault(owner, []).append(place)
        for node, places in self._by_node.items():
            if (
                node >= 0
                and _RECTANGULAR.search(keys[node].name)
                and any(self._varies[place] for place in places)
            ):
                raise Fixed(f"sizes of {keys[node].name}")
        self.program: PassProgram = _Explained(self, one, other).program()

    def near(self, node: int) -> list[tuple[int, Any]]:
        """The numbers that vary and that a formula of a node can look at: its own, and what the
        gradients are like that it leads to. Where each stands, and what it is made of."""
        places = list(self._by_node.get(node, ()))
        for edge in self._keys[node].edges:
            if edge is not None:
                found = self._by_node.get(edge[0], ())
                places += [one for one in found if self._spread.arriving[one]]
        return [(place, self._expected[place]) for place in places if self._varies[place]]

    def values(self, other: Spread) -> dict[str, Number] | None:
        """What the symbols are in another pass of the same skeleton; None: it is none of these."""
        found: dict[str, Number] = {}
        for number, expected in zip(other.numbers, self._expected, strict=True):
            if isinstance(expected, Expression) and str(expected) in self._sizes.names:
                if type(number) is not int or not 2 <= number <= _LARGEST:
                    return None
                found[str(expected)] = number
            elif isinstance(expected, Lifted):
                found[expected.name] = number
        if len(found) != len(self._sizes.names) + len(self._sizes.lifted):
            return None
        for number, expected in zip(other.numbers, self._expected, strict=True):
            if _differ(_at(expected, found), number):
                return None
        return found

    def at(self, values: Mapping[str, Number]) -> PassProgram:
        """The program of one pass."""
        made: PassProgram = _mapped(self.program, functools.partial(_at, values=values))
        return made


def _differ(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return True
    return bool(one.hex() != other.hex()) if type(one) is float else bool(one != other)


def _at(value: Any, values: Mapping[str, Number]) -> Any:
    if isinstance(value, VaryingSize):
        return evaluate(value.size, values)  # type: ignore[arg-type]
    if isinstance(value, Expression):
        return evaluate(value, values)  # type: ignore[arg-type]
    return values[value.name] if isinstance(value, Lifted) else value


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """A record with its leaves changed."""
    if isinstance(value, VaryingSize | Lifted | Register):
        return change(value)
    if is_dataclass(value) and not isinstance(value, type):
        parts = {one.name: _mapped(getattr(value, one.name), change) for one in fields(value)}
        return replace(value, **parts)
    if type(value) in (tuple, list):
        return type(value)(_mapped(one, change) for one in value)
    return change(value)


# ------------------------------------------------------------------------------------- symbols


class _FittedSizes:
    """Pairs of numbers as expressions: as few symbols as explain all of them."""

    def __init__(self, pairs: Iterable[tuple[Number, Number]]) -> None:
        self._known: dict[tuple[Number, Number], Size | Lifted] = {}
        self.symbols: list[Expression] = []
        self.lifted: list[Lifted] = []
        bases: list[tuple[int, int, Expression]] = []
        for one, other in sorted(set(pairs), key=repr_of):
            if type(one) is float or type(other) is float:
                self.lifted.append(Lifted(f"x{len(self.lifted)}"))
                self._known[one, other] = self.lifted[-1]
                continue
            assert isinstance(one, int) and isinstance(other, int)
            if min(one, other) < 2 or max(one, other) > _LARGEST:
                raise Fixed(f"{other} in place of {one}")
            found = _product(one, other, bases)
            if found is None:
                found = size_symbol(f"s{len(self.symbols)}", other)
                self.symbols.append(found)
                bases.append((one, other, found))
            self._known[one, other] = found
        self.names = {str(one) for one in self.symbols}

    def of(self, pair: tuple[Number, Number]) -> Any:
        """What a pair of the key is."""
        return self._known[pair]

    def anywhere(self, one: int, other: int) -> Size | None:
        """What a pair is made of, wherever that stands."""
        if one == other:
            return one
        found = self._known.get((one, other))
        if isinstance(found, Expression):
            return found
        bases = [
            (a, b, known)
            for (a, b), known in self._known.items()
            if isinstance(known, Expression) and isinstance(a, int) and isinstance(b, int)
        ]
        return _product(one, other, bases)


def repr_of(pair: tuple[Number, Number]) -> tuple[bool, Number, Number]:
    """An order of pairs: integers first, small ones before what may be made of them."""
    return type(pair[0]) is float, *pair


def _product(
    one: int, other: int, bases: Sequence[tuple[int, int, Expression]]
) -> Expression | None:
    """A pair as a multiple of a known one, or of the product of two."""
    for a, b, size in bases:
        if one % a == 0 and other % b == 0 and one // a == other // b:
            return size * (one // a)  # type: ignore[return-value]
    for place, (a, b, size) in enumerate(bases):
        for c, d, factor in bases[place:]:
            if one % (a * c) == 0 and other % (b * d) == 0 and one // (a * c) == other // (b * d):
                return size * factor * (one // (a * c))  # type: ignore[return-value]
    return None


# ------------------------------------------------------------------------------ explanations


class _Explained:
    """One program of two: numbers in which they differ are explained."""

    def __init__(self, whole: VaryingProgram, one: PassProgram, other: PassProgram) -> None:
        self._whole, self._one, self._other = whole, one, other

    def program(self) -> PassProgram:
        """The one that serves both; `Fixed` where they are not the same steps."""
        one, other = self._one, self._other
        if len(one.types) != len(other.types) or len(one.steps) != len(other.steps):
            raise Fixed("another number of operations")
        types = tuple(map(self._type, one.types, other.types))
        for name in ("roots", "dead", "delivered", "captured"):
            if getattr(one, name) != getattr(other, name):
                raise Fixed(f"other {name}")
        steps = tuple(map(self._step, one.steps, other.steps))
        return replace(one, types=types, steps=steps)

    def _type(self, one: TensorType | None, other: TensorType | None) -> TensorType | None:
        if one == other or one is None or other is None:
            if one != other:
                raise Fixed("a tensor that is plain in one pass alone")
            return one
        if replace(one, sizes=(), strides=()) != replace(other, sizes=(), strides=()):
            raise Fixed(f"{other}, not {one}")
        if one.rank != other.rank:
            raise Fixed(f"{other}, not {one}")
        return replace(
            one,
            sizes=tuple(map(self._size, one.sizes, other.sizes)),
            strides=tuple(map(self._size, one.strides, other.strides)),
        )

    def _size(self, one: Size, other: Size) -> Size:
        assert isinstance(one, int) and isinstance(other, int)
        found = self._whole._sizes.anywhere(one, other)
        if found is None:
            raise Fixed(f"a size of {other} in place of {one}")
        return found

    def _step(
        self, one: PassSegment | LiveCall, other: PassSegment | LiveCall
    ) -> PassSegment | LiveCall:
        if one == other:
            return one
        if not isinstance(one, PassSegment) or not isinstance(other, PassSegment):
            raise Fixed("other live calls")
        if len(one.operations) != len(other.operations):
            raise Fixed("another number of operations")
        for name in ("inputs", "outputs", "saved", "leaves"):
            if getattr(one, name) != getattr(other, name):
                raise Fixed(f"other {name} of a graph")
        operations = tuple(map(self._operation, one.operations, other.operations))
        return replace(one, operations=operations)

    def _operation(self, one: RecordedOp, other: RecordedOp) -> RecordedOp:
        if one == other:
            return one
        if (one.function, one.results, one.node) != (other.function, other.results, other.node):
            raise Fixed(f"{other.function}, not {one.function}")
        names = [name for name, _ in one.kwargs]
        if len(one.args) != len(other.args) or names != [name for name, _ in other.kwargs]:
            raise Fixed(f"other arguments of {one.function}")
        near = self._whole.near(one.node)
        explain = functools.partial(self._argument, one, near)
        kinds = _kinds(one.function)
        args = tuple(
            explain(kinds.get(place), a, b)
            for place, (a, b) in enumerate(zip(one.args, other.args, strict=True))
        )
        kwargs = tuple(
            (name, explain(kinds.get(name), a, b))
            for (name, a), (_, b) in zip(one.kwargs, other.kwargs, strict=True)
        )
        return replace(one, args=args, kwargs=kwargs)

    def _argument(
        self,
        operation: RecordedOp,
        near: Near,
        kind: Any,
        one: Any,
        other: Any,
    ) -> Any:
        if type(one) is not type(other):
            raise Fixed(f"other arguments of {operation.function}")
        if type(one) in (tuple, list) and len(one) == len(other):
            items = (
                self._argument(operation, near, None, a, b) for a, b in zip(one, other, strict=True)
            )
            return type(one)(items)
        if type(one) not in (int, float):
            if one != other:
                raise Fixed(f"{other} in place of {one} for {operation.function}")
            return one
        if not _differ(one, other):
            return one
        found = self._explained(near, one, other)
        if found is None:
            raise Fixed(f"{other} in place of {one} for {operation.function}")
        if isinstance(found, Lifted) and not self._takes_tensor(operation, kind):
            raise Fixed(f"{operation.function} is compiled for one number")
        return replace(found, dtype=self._dtype(operation)) if isinstance(found, Lifted) else found

    def _dtype(self, operation: RecordedOp) -> torch.dtype | None:
        result = operation.results
        made = self._one.types[result] if isinstance(result, int) else None
        return None if made is None else made.dtype

    def _takes_tensor(self, operation: RecordedOp, kind: Any) -> bool:
        """Whether a tensor may stand for a number there, and is rounded as the number was."""
        return kind == "Tensor" and self._dtype(operation) in (torch.float32, torch.float64)

    def _explained(self, near: Near, one: Number, other: Number) -> VaryingSize | Lifted | None:
        first, second = self._whole._spread.numbers, self._whole._second.numbers
        exact = [
            expected
            for place, expected in near
            if not _differ(first[place], one) and not _differ(second[place], other)
        ]
        if exact:
            return exact[0] if isinstance(exact[0], Lifted) else VaryingSize(exact[0])
        if type(one) is not int or type(other) is not int:
            return None
        sizes = {
            (int(first[place]), int(second[place]), expected)
            for place, expected in near
            if isinstance(expected, Expression)
        }
        found: set[Size] = set()
        for a, b, size in sizes:
            if one % a == 0 and other % b == 0 and one // a == other // b:
                found.add(size * (one // a))
            if one - a == other - b:
                found.add(size + (one - a))
            for c, d, factor in sizes:
                if a * c == one and b * d == other:
                    found.add(size * factor)
        (only,) = found if len(found) == 1 else (None,)
        return None if only is None else VaryingSize(only)


@functools.cache
def _kinds(function: Any) -> dict[int | str, str]:
    """What an operator's arguments are, by their places and names."""
    schema = torch_abi.op_schema(function)
    if schema is None:
        return {}
    found: dict[int | str, str] = {}
    for place, one in enumerate(schema[2]):
        found[place] = found[one.name] = one.type
    return found
