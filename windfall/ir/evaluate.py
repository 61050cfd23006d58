"""The slow oracle: a `Builder` that computes instead of writing down.

Enters: a `lower` rule and real tensors. Leaves: the tensors that the rule means. Invariant: shares
no code with code generation; every scalar expression is evaluated with torch over the whole
iteration space at once, and what a rule must keep to (equal dtypes of arguments, indices in
bounds, known rows) is checked on the way.

    >>> evaluate(lookup("aten.add.Tensor").lower, torch.ones(2), 1)
    tensor([2., 2.])

An axis of the iteration space is one dimension of the tensors held by its `Grid`; a reduction puts
its axes in front of those in use, so that broadcasting does the rest.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch

from windfall.errors import InternalError
from windfall.ir.dtype import TensorType, short_name
from windfall.ir.loop import REDUCTIONS, SCALAR_OPS, Builder, Index, Lazy, Scalar
from windfall.ir.symint import Expression, Size

Tensor = torch.Tensor

# Rows of SCALAR_OPS whose torch function has another name.
_FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "truncdiv": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "floordiv": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "shift_left": torch.bitwise_left_shift,
    "shift_right": torch.bitwise_right_shift,
    "fma": lambda a, b, c: (a.double() * b.double() + c.double()).to(a.dtype),
}


class Grid:
    """An integer expression over axes: its value at every point of the iteration space."""

    __slots__ = ("values",)

    def __init__(self, values: Tensor) -> None:
        self.values = values

    def _with(self, function: Callable[[Any, Any], Any], other: Any) -> Grid:
        return Grid(function(self.values, other.values if isinstance(other, Grid) else other))

    def __add__(self, other: Any) -> Grid:
        return self._with(operator.add, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Grid:
        return self._with(operator.sub, other)

    def __rsub__(self, other: Any) -> Grid:
        return self._with(lambda a, b: b - a, other)

    def __neg__(self) -> Grid:
        return Grid(-self.values)

    def __mul__(self, other: Any) -> Grid:
        return self._with(operator.mul, other)

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Grid:
        return self._with(operator.floordiv, other)

    def __mod__(self, other: Any) -> Grid:
        return self._with(operator.mod, other)


class Oracle(Builder):
    """A builder whose scalars hold their values: `Scalar("value", dtype, (), tensor)`."""

    def __init__(self) -> None:
        self._rank = 0  # how many axes are in use
        self._masks: list[Tensor] = []

    # ------------------------------------------------------------------------------- scalars

    def constant(self, value: float | Size | bool, dtype: torch.dtype) -> Scalar:
        return _value(torch.tensor(cast(float, value), dtype=dtype))

    def apply(self, op: str, *arguments: Scalar) -> Scalar:
        count, rule = SCALAR_OPS[op]
        if len(arguments) != count:
            raise InternalError(f"{op} takes {count} arguments, not {len(arguments)}")
        operands = arguments[1:] if op == "where" else arguments
        if len({operand.dtype for operand in operands}) != 1:
            names = ", ".join(short_name(operand.dtype) for operand in operands)
            raise InternalError(f"{op} needs one dtype, not {names}")
        if op == "where" and arguments[0].dtype is not torch.bool:
            raise InternalError("the condition of where is a bool")
        function = _FUNCTIONS.get(op) or getattr(torch, op)
        result = function(*(argument.attribute for argument in arguments))
        wanted = torch.bool if rule == "bool" else operands[0].dtype
        if result.dtype is not wanted:
            raise InternalError(f"{op} of {short_name(operands[0].dtype)} is not defined")
        return _value(result)

    def cast(self, value: Scalar, dtype: torch.dtype) -> Scalar:
        return _value(value.attribute.to(dtype))

    def index(self, expression: Size, dtype: torch.dtype = torch.int64) -> Scalar:
        grid: Any = expression
        values = grid.values if isinstance(grid, Grid) else torch.tensor(grid)
        return _value(values.to(dtype))

    def clamped(self, index: Size, low: Size, high: Size) -> Size:
        grid: Any = index
        values = grid.values if isinstance(grid, Grid) else torch.tensor(grid)
        return cast(Expression, Grid(values.clamp(cast(int, low), cast(int, high))))

    def as_index(self, value: Scalar, size: Size, *, wrap: bool = True) -> Expression:
        values = value.attribute.to(torch.int64)
        if wrap:
            values = torch.where(values < 0, values + size, values)
        self._check_bounds(values, int(cast(int, size)))
        return cast(Expression, Grid(values))

    def masked(self, condition: Scalar, body: Callable[[], Scalar], otherwise: Scalar) -> Scalar:
        self._masks.append(condition.attribute)
        value = body()
        self._masks.pop()
        return self.apply("where", condition, value, otherwise)

    # ---------------------------------------------------------------------------- reductions

    def reduce(self, kind: str, extents: Sequence[Size], body: Callable[[Index], Scalar]) -> Scalar:
        if kind not in REDUCTIONS:
            raise InternalError(f"{kind} is no reduction")
        sizes = [int(cast(int, extent)) for extent in extents]
        with self._axes(sizes) as (index, outer):
            values = body(index).attribute
        count = len(sizes)
        padded = values.reshape([1] * (outer + count - values.dim()) + list(values.shape))
        full = padded.expand(*sizes, *padded.shape[count:])
        return _value(_reduced(kind, full.flatten(0, count - 1) if sizes else full[None]))

    @contextmanager
    def _axes(self, sizes: Sequence[int]) -> Any:
        """Fresh axes in front of those in use: their grids, and how many were in use."""
        outer = self._rank
        self._rank += len(sizes)
        yield (
            tuple(
                Grid(torch.arange(size).reshape(size, *[1] * (self._rank - position - 1)))
                for position, size in enumerate(sizes)
            ),
            outer,
        )
        self._rank = outer

    # ------------------------------------------------------------------------------- tensors

    def tensor(self, type: TensorType, at: Callable[[Index], Scalar]) -> Lazy:
        return Lazy(type, at)

    def materialise(self, value: Lazy) -> Lazy:
        return self.wrap(self.value(value))

    def native_call(
        self,
        entry: str,
        arguments: Sequence[Any],
        results: Sequence[TensorType],
        *,
        attributes: Any = None,
    ) -> tuple[Lazy, ...]:
        given = [self.value(each) if isinstance(each, Lazy) else each for each in arguments]
        answers = NATIVE_ENTRIES[entry](*given, **(attributes or {}))
        return tuple(
            self.wrap(_laid_out(answer, type))
            for answer, type in zip(answers, results, strict=True)
        )

    def wrap(self, tensor: Tensor) -> Lazy:
        """A real tensor as an input of a rule."""

        def at(index: Index) -> Scalar:
            if len(index) != tensor.dim():
                raise InternalError(f"{len(index)} indices for {tensor.dim()} dimensions")
            if not index:
                return _value(tensor)
            places = []
            for place, size in zip(index, tensor.shape, strict=True):
                grid: Any = place
                values = grid.values if isinstance(grid, Grid) else torch.tensor(grid)
                self._check_bounds(values, size)
                places.append(values.clamp(0, max(size - 1, 0)))
            if tensor.numel() == 0:
                whole = functools.reduce(torch.add, places)
                return _value(torch.zeros_like(whole, dtype=tensor.dtype))
            return _value(tensor[tuple(places)])

        return Lazy(TensorType.of(tensor).without_grad(), at)

    def value(self, lazy: Lazy) -> Tensor:
        """The tensor that `lazy` means, stored with its type's strides."""
        sizes = [int(cast(int, size)) for size in lazy.type.sizes]
        rank, masks = self._rank, self._masks
        self._rank, self._masks = 0, []  # a tensor of its own: no axis or mask of the reader
        with self._axes(sizes) as (index, _):
            scalar = lazy.at(index)
        self._rank, self._masks = rank, masks
        if scalar.dtype is not lazy.type.dtype:
            raise InternalError(f"{short_name(scalar.dtype)} elements in a tensor {lazy.type}")
        return _laid_out(scalar.attribute.expand(sizes), lazy.type)

    def _check_bounds(self, values: Tensor, size: int) -> None:
        bad = (values < 0) | (values >= size)
        for mask in self._masks:
            bad = bad & mask
        if bad.any():
            first = torch.broadcast_to(values, bad.shape)[bad][0]
            raise IndexError(f"index {first} is out of bounds for dimension of size {size}")


def _value(tensor: Tensor) -> Scalar:
    return Scalar("value", tensor.dtype, (), tensor)


def _reduced(kind: str, values: Tensor) -> Tensor:
    """Fold the first dimension; floating sums and products in float64, to be a fair reference."""
    if kind in ("sum", "prod"):
        wide = torch.float64 if values.dtype.is_floating_point else values.dtype
        function = torch.sum if kind == "sum" else torch.prod
        return function(values, dim=0, dtype=wide).to(values.dtype)
    if kind in ("max", "min") and values.shape[0] == 0:
        limits = torch.finfo if values.dtype.is_floating_point else torch.iinfo
        limit = limits(values.dtype)
        empty = limit.min if kind == "max" else limit.max
        return torch.full(values.shape[1:], empty, dtype=values.dtype)
    if kind in ("max", "min"):
        return torch.amax(values, 0) if kind == "max" else torch.amin(values, 0)
    return cast(Tensor, getattr(torch, kind)(values, 0))


def _laid_out(tensor: Tensor, type: TensorType) -> Tensor:
    result = torch.empty_strided(
        cast(Any, type.sizes), cast(Any, type.strides), dtype=type.dtype, device=type.device
    )
    # By place in memory, because a view may show one place several times.
    places = torch.zeros((), dtype=torch.int64)
    for size, stride in zip(result.shape, result.stride(), strict=True):
        places = places[..., None] + torch.arange(size) * stride
    memory = result.as_strided((result.untyped_storage().nbytes() // result.itemsize,), (1,), 0)
    memory[places.flatten()] = tensor.flatten()
    return result


def _gemm(a: Tensor, b: Tensor, alpha: float = 1.0) -> tuple[Tensor]:
    return ((alpha * (a.double() @ b.double())).to(a.dtype),)


def _add_rows(rows: Tensor, indices: Tensor, *, height: int, padding: int) -> tuple[Tensor]:
    rows, indices = rows.reshape(-1, rows.shape[-1]), indices.reshape(-1)
    kept = (indices != padding) & (indices >= 0) & (indices < height)
    result = torch.zeros(height, rows.shape[1], dtype=torch.float64)
    result.index_add_(0, indices[kept].long(), rows[kept].double())
    return (result.to(rows.dtype),)


# What `native_call` may ask for, by name: the meaning of the rows of codegen/extern.py.
NATIVE_ENTRIES: dict[str, Callable[..., tuple[Tensor, ...]]] = {
    "gemm": _gemm,
    "add_rows": _add_rows,
}


def evaluate(lower: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    """What a `lower` rule means for these arguments; `NotImplemented` if it says so itself."""
    oracle = Oracle()

    def wrapped(value: Any) -> Any:
        if isinstance(value, Tensor):
            return oracle.wrap(value)
        if isinstance(value, (list, tuple)):
            return type(value)(wrapped(each) for each in value)
        return value

    def computed(value: Any) -> Any:
        if isinstance(value, Lazy):
            return oracle.value(value)
        if isinstance(value, (list, tuple)):
            return type(value)(computed(each) for each in value)
        return value

    keywords = {name: wrapped(value) for name, value in keywords.items()}
    return computed(lower(oracle, *map(wrapped, arguments), **keywords))
