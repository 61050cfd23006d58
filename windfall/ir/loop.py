"""The loop IR: pure tensor definitions, then kernels made of explicit loops.

Enters: ATen ops, through the `lower` field of their records in `ops/`. Leaves, in two levels:

1. `Loops`: one definition for each buffer: `buffer[offset] = scalar expression`, where scalar
   expressions may hold `reduce` nodes over bound axes. Fusion at this level is substitution.
2. `Schedule`: `Kernel`s: parallel outer axes, then stages (reductions, stores) over inner axes.

Scalar expressions are interned and immutable: equal ones are one object, so common subexpressions
are found for free, and a `reduce` node that does not depend on an axis is computed outside it.

    out[i0, i1] = exp(x[i0, i1] - max{k in 1024} x[i0, k])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

import torch

from windfall.dataclass import dataclass
from windfall.errors import SourceLine
from windfall.ir.dtype import TensorType
from windfall.ir.scalar import (
    REDUCTIONS,
    SCALAR_OPS,
    Axis,
    Scalar,
    Scalars,
    axis,
    children,
    extent_of,
    indirect_in,
    is_size,
    walk,
)
from windfall.ir.symint import Expression, Size

__all__ = [
    "REDUCTIONS",
    "SCALAR_OPS",
    "Axis",
    "BodyParts",
    "Buffer",
    "BufferView",
    "Builder",
    "Call",
    "Definition",
    "Expression",
    "Fold",
    "Index",
    "Invocation",
    "Kernel",
    "Lazy",
    "Loop",
    "Loops",
    "MemoryPlan",
    "Part",
    "PartCall",
    "Scalar",
    "Scalars",
    "Schedule",
    "Statement",
    "Store",
    "axis",
    "children",
    "extent_of",
    "indirect_in",
    "is_size",
    "storage_of",
    "walk",
]

Index = tuple[Size, ...]


@dataclass(frozen=True, slots=True)
class Lazy:
    """A tensor under lowering: its type and its element at a logical index. Nothing is stored
    until somebody materialises it. (`type.strides` are those that eager would have.)"""

    type: TensorType
    at: Callable[[Index], Scalar]


class Builder(Protocol):
    """What a `lower` rule may ask for. `codegen/lower.py` has the real one, `ir/evaluate.py` the
    slow one that serves as oracle."""

    def constant(self, value: float | Size | bool, dtype: torch.dtype) -> Scalar:
        """A number; one that varies is read when the program runs."""

    def apply(self, op: str, *arguments: Scalar) -> Scalar:
        """A row of SCALAR_OPS; the arguments have one dtype (but for the condition of `where`)."""

    def cast(self, value: Scalar, dtype: torch.dtype) -> Scalar:
        """Conversion as `tensor.to(dtype)` does it."""

    def index(self, expression: Size, dtype: torch.dtype = torch.int64) -> Scalar:
        """An integer expression over axes as a number (arange, masks)."""

    def clamped(self, index: Size, low: Size, high: Size) -> Size:
        """An integer expression over axes, moved to the edge where it is beyond (pooling)."""

    def as_index(self, value: Scalar, size: Size, *, wrap: bool = True) -> Expression:
        """A number as an index into a dimension of `size` (gather, embedding): negative values wrap
        if `wrap`; out of bounds is an error with eager's text at run time."""

    def reduce(
        self,
        kind: str,
        extents: Sequence[Size],
        body: Callable[[Index], Scalar],
    ) -> Scalar:
        """Fold `body` over fresh axes of these extents. The result has the body's dtype (i64 for
        the arg kinds)."""

    def masked(self, condition: Scalar, body: Callable[[], Scalar], otherwise: Scalar) -> Scalar:
        """`where(condition, body(), otherwise)`, but what `body` loads is only read where the
        condition holds: its indices may be out of bounds elsewhere (cat, pad, writes to a view)."""

    def tensor(self, type: TensorType, at: Callable[[Index], Scalar]) -> Lazy:
        """A tensor by its element; may be fused into whoever reads it."""

    def materialise(self, value: Lazy) -> Lazy:
        """The same tensor, stored in memory with its type's strides."""

    def native_call(
        self,
        entry: str,
        arguments: Sequence[Any],
        results: Sequence[TensorType],
        *,
        attributes: Any = None,
    ) -> tuple[Lazy, ...]:
        """A row of codegen/extern.py (`gemm`, `convolution`, …): tensors among the arguments are
        materialised, results are fresh buffers."""


# ------------------------------------------------------------------------- level 1: definitions

Place = Literal["input", "constant", "temporary", "result", "scratch"]


@dataclass(frozen=True, slots=True)
class Buffer:
    """Storage by name. `temporary` ones live in the arena, `scratch` ones inside one kernel, once
    for each thread; a `result` may be read by later items like any other. `over`: what an input
    (or what is over one) holds once it is written in place; who writes it may write a part, and
    nobody reads the buffer that it is over any more."""

    name: str
    type: TensorType
    place: Place
    constant: torch.Tensor | None = None
    over: str | None = None


@dataclass(frozen=True, slots=True)
class Definition:
    """`buffer[offset] = value` for all `axes`. The value is a `reduce` node whose body holds no
    other, or holds none at all."""

    buffer: str
    axes: tuple[Axis, ...]
    offset: Size
    value: Scalar
    origins: tuple[SourceLine, ...] = ()


@dataclass(frozen=True, slots=True)
class BufferView:
    """A buffer seen with `type`'s sizes and strides, from `offset` elements on."""

    buffer: str
    type: TensorType
    offset: Size = 0


@dataclass(frozen=True, slots=True)
class Invocation:
    """An ATen op and its keyword arguments: the attributes of a call of the op itself."""

    target: Any
    keywords: tuple[tuple[str, Any], ...] = ()
    results: tuple[bool, ...] = ()  # which of the op's results are tensors

    def __str__(self) -> str:
        return str(self.target)


@dataclass(frozen=True, slots=True)
class Call:
    """A row of `codegen/extern.py`. `BufferView`s stand among the arguments for tensors;
    `results` are buffers that it fills."""

    entry: str
    arguments: tuple[Any, ...]
    results: tuple[str, ...]
    attributes: Any = None
    origin: SourceLine | None = None


def storage_of(name: str, buffers: Mapping[str, Buffer]) -> str:
    """The buffer in whose memory a buffer stands: itself, or the input that it is over."""
    over = buffers[name].over
    while over is not None:
        name, over = over, buffers[over].over
    return name


@dataclass(frozen=True, slots=True)
class Loops:
    """A graph as definitions and calls, in an order in which they can be computed."""

    buffers: Mapping[str, Buffer]
    inputs: tuple[str, ...]
    items: tuple[Definition | Call, ...]
    results: tuple[BufferView | None, ...]
    scalars: Scalars
    symbols: tuple[Expression, ...] = ()  # the sizes that vary, in the order of the caller
    effect_buffers: frozenset[str] = (
        frozenset()
    )  # buffers that are filled although nobody reads them


# ------------------------------------------------------------------------------ level 2: kernels


@dataclass(frozen=True, slots=True)
class Store:
    """`buffer[offset] = value`."""

    buffer: str
    offset: Size
    value: Scalar


@dataclass(frozen=True, slots=True)
class Fold:
    """Accumulate the body of a `reduce` node over the enclosing loops of its axes. Its value can
    be used once the outermost of these loops has ended."""

    value: Scalar


@dataclass(frozen=True, slots=True)
class Loop:
    """`body` for each value of `axis`. `lanes` above 1: so many values at once, as a vector; what
    is left over is done with masks. `parallel`: iterations may run on several threads. `unrolled`:
    written out one after the other, so that they can share loads."""

    axis: Axis
    body: tuple[Statement, ...]
    lanes: int = 1
    parallel: bool = False
    unrolled: bool = False


Statement = Store | Fold | Loop


@dataclass(frozen=True, slots=True)
class Kernel:
    """Loops that run one after the other. `work` is an estimate of its cost in elements, for the
    choice of threads."""

    name: str
    body: tuple[Statement, ...]
    work: Size = 0
    origins: tuple[SourceLine, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A piece of work that occurs several times: a schedule of its own, and where its temporaries
    stand in a block that each caller provides."""

    name: str
    schedule: Schedule
    plan: MemoryPlan


@dataclass(frozen=True, slots=True)
class BodyParts:
    """An operation of `ir/control_flow.py` and its bodies: the attributes of a call of it. The last
    result of the call is a block that temporaries of the bodies stand in."""

    target: Any
    parts: tuple[Part, ...]

    def __str__(self) -> str:
        return f"{self.target}({', '.join(one.name for one in self.parts)})"


@dataclass(frozen=True, slots=True)
class PartCall:
    """A part at work: for each of its inputs and results what that is here, and the block."""

    part: Part
    operands: tuple[tuple[str, BufferView], ...]
    block: str | None


@dataclass(frozen=True, slots=True)
class Schedule:
    """What runs, in order."""

    buffers: Mapping[str, Buffer]
    inputs: tuple[str, ...]
    items: tuple[Kernel | Call | PartCall, ...]
    results: tuple[BufferView | None, ...]
    scalars: Scalars
    symbols: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Where temporaries stand in the one arena, in bytes, and from which item of the schedule to
    which last one each is in use: whoever shares an arena plans around these."""

    offsets: Mapping[str, Size]
    arena_bytes: Size
    lives: Mapping[str, tuple[int, int]]
