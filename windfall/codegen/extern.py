"""The native entries: functions of other libraries that a program may call.

Enters: a `Call` of the loop IR. Leaves: LLVM text in the driver that makes the call. One row of
`ENTRIES` for each entry; `lower` rules name them in `Builder.native_call`.

Invariant: an entry fills its result buffers and touches nothing else; an operand that it does not
accept as it lies in memory is packed first (`accepts`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from windfall import torch_abi
from windfall.codegen import control_flow, copy_rows, dispatcher, embedding_backward
from windfall.dataclass import dataclass
from windfall.ir.control_flow import KINDS
from windfall.ir.dtype import TensorType
from windfall.ir.loop import BodyParts, Buffer, BufferView, Call, Invocation
from windfall.ir.symint import Size, known_at_least, maximum
from windfall.llvm import Value
from windfall.ops.registry import lookup

if TYPE_CHECKING:
    from windfall.codegen.emit import Driver


@dataclass(frozen=True, slots=True)
class ExternRow:
    """One row: how the call is written, and which operands it takes as they are."""

    write: Callable[[Driver, Call], None]
    accepts: Callable[[TensorType], bool] = lambda type: True


def route(target: Any, arguments: Any, keywords: Any, types: tuple[Any, ...]) -> str:
    """How an op without a lowering is called."""
    if only_checks(target) or lookup(target).own_error:
        return "python"
    return "dispatcher" if dispatcher.supports(target, arguments, keywords, types) else "python"


def is_called(target: Any, arguments: Any, keywords: Any) -> bool:
    """Whether an op that writes its first argument, and answers that, can be called from machine
    code."""
    return dispatcher.supports(target, arguments, keywords, (None,))


def has_effect(call: Call) -> bool:
    """Whether a call must be made though nobody reads its results: random numbers are drawn, or it
    raises where data are not as they should be."""
    if not isinstance(call.attributes, Invocation | BodyParts):
        return False
    record = lookup(call.attributes.target)
    return record.refuses or record.random or only_checks(call.attributes.target)


def only_checks(target: Any) -> bool:
    """Whether an op has no result (`_linalg_check_errors`)."""
    return torch_abi.is_overload(target) and not target._schema.returns


# ----------------------------------------------------------------------------------------- gemm


def _matrix(type: TensorType) -> tuple[str, Size] | None:
    """How BLAS reads the last two dims of a row-major operand: plain or transposed, with which
    leading dimension."""
    rows, columns = type.sizes[-2:]
    down, across = type.strides[-2:]
    if across == 1 or columns == 1:
        lead = down if rows != 1 else columns
        if known_at_least(lead - columns, 0):
            return "N", maximum(lead, 1)
    if down == 1 or rows == 1:
        lead = across if columns != 1 else rows
        if known_at_least(lead - rows, 0):
            return "T", maximum(lead, 1)
    return None


def _gemm_accepts(type: TensorType) -> bool:
    return _matrix(type) is not None


_BLAS = {torch.float32: ("sgemm_", "float"), torch.float64: ("dgemm_", "double")}


def _gemm(driver: Driver, call: Call) -> None:
    """`result = alpha * a @ b`, batched where the operands are."""
    a, b = call.arguments
    result = driver.result(call, 0)
    alpha = (call.attributes or {}).get("alpha", 1.0)
    symbol, type = _BLAS[a.type.dtype]
    # Row-major a @ b is column-major transpose(b) @ transpose(a).
    left, right = _matrix(b.type), _matrix(a.type)
    assert left is not None and right is not None
    m, k = a.type.sizes[-2:]
    n = b.type.sizes[-1]
    numbers = [driver.word(number) for number in (n, m, k, left[1], right[1], maximum(n, 1))]
    scale, zero = driver.number(alpha, type), driver.number(0.0, type)
    flags = [driver.letter(left[0]), driver.letter(right[0])]

    def write(pa: Value, pb: Value, pc: Value) -> None:
        arguments = [
            *flags,
            *(numbers[0], numbers[1], numbers[2], scale),
            *(pb, numbers[3], pa, numbers[4]),
            *(zero, pc, numbers[5]),
        ]
        driver.code.call(symbol, "void", *arguments)

    views = (a, b, result)
    if a.type.rank == 2:
        write(*(driver.pointer(view) for view in views))
    else:
        driver.batches(a.type.sizes[0], [(view, view.type.strides[0]) for view in views], write)


IN_PLACE = ("in_place", "copy_rows")  # entries that write their first argument
ENTRIES: dict[str, ExternRow] = {
    "gemm": ExternRow(_gemm, _gemm_accepts),
    "add_rows": ExternRow(embedding_backward.write, embedding_backward.accepts),
    "dispatcher": ExternRow(dispatcher.write),
    "branch": ExternRow(control_flow.branch),
    "scan": ExternRow(control_flow.scan),
    "while_loop": ExternRow(control_flow.while_loop),
    "in_place": ExternRow(dispatcher.write),
    "copy_rows": ExternRow(copy_rows.write, copy_rows.accepts),
}


def accepts(entry: str, view: BufferView, buffer: Buffer) -> bool:
    """Whether an entry takes an operand as it lies in memory."""
    if entry == "python":  # a step names whole buffers
        return view.offset == 0 and view.type == buffer.type
    return ENTRIES[entry].accepts(view.type)


def takes(entry: str, type: TensorType) -> bool:
    """Whether an entry takes operands of this layout."""
    return entry in ENTRIES and ENTRIES[entry].accepts(type)


def keeps_strides(entry: str) -> bool:
    """Whether the copy of an operand has eager's strides, on which an op's result may depend."""
    return entry in ("python", "dispatcher") or takes_exactly(entry)


def takes_exactly(entry: str) -> bool:
    """Whether operands must lie as their types say, gaps included: bodies were made for that."""
    return entry in KINDS
