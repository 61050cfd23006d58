"""The native entry `add_rows`: zeros, with rows of one matrix added at computed places.

Enters: a `Call` of the entry: rows, an index for each, and which index is left out. Leaves: LLVM
text in the driver. It is the backward of an embedding, where nearly all of the work is to clear
the result: torch answers a tensor of its own, which would have to be copied to where results are.

Invariant: each thread owns a range of the result's rows: it clears them, then goes through all of
the indices and adds what falls into its range, in their order. So sums are the same, bit by bit,
for any number of threads, and the same as eager's. An index out of range is nobody's (the forward
pass has refused it).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from windfall.codegen import threads
from windfall.ir.dtype import TensorType
from windfall.ir.loop import Call
from windfall.llvm import ZERO, Assembly, Fields, Struct, align_of, integer

if TYPE_CHECKING:
    from windfall.codegen.emit import Driver

FLOATS = {torch.float32: "float", torch.float64: "double"}
INTEGERS = {torch.int64: "i64", torch.int32: "i32"}
LANES = 8
KNOWN = Struct("result* rows* indices* count columns height padding")  # to each thread


def accepts(type: TensorType) -> bool:
    """Rows and indices that lie one after the other."""
    return type.is_contiguous


def write(driver: Driver, call: Call) -> None:
    """The call: what the threads need to know, in a block on the stack."""
    rows, indices = call.arguments
    result = driver.result(call, 0)
    types = FLOATS[rows.type.dtype], INTEGERS[indices.type.dtype]
    name = f"add_rows.{'.'.join(types)}.thread"
    if name not in driver.emission.assembly.functions:
        _write_thread(driver.emission.assembly, name, *types)
    known = [
        driver.pointer(result),
        driver.pointer(rows),
        driver.pointer(indices),
        driver.size(indices.type.elements),
        driver.size(result.type.sizes[1]),
        driver.size(result.type.sizes[0]),
        driver.size(call.attributes["padding"]),
    ]
    driver.in_threads(name, known, result.type.elements)


def _write_thread(assembly: Assembly, name: str, kind: str, index: str) -> None:
    with assembly.function(name, "void", "ptr", attributes=" #1") as code:
        known = Fields(code, KNOWN, code.parameters[0])
        result, rows, indices, count, columns, height, padding = map(known.get, KNOWN.places)
        first, last = threads.share(code, height)
        own = code.binary("sub", last, first)
        row_bytes = code.binary("mul", columns, align_of(kind))
        start = code.element(result, code.binary("mul", first, row_bytes))
        own_bytes = code.binary("mul", own, row_bytes)
        code.call("memset", "ptr", start, integer(0, "i32"), own_bytes)
        whole = code.binary("and", columns, -LANES)
        with code.repeat(ZERO, count) as each:
            place = code.load(index, code.element(indices, each.index, index))
            if index != "i64":
                place = code.convert("sext", place, "i64")
            inside = code.compare("icmp ult", code.binary("sub", place, first), own)
            with code.when(code.both(inside, code.different(place, padding))):
                source = code.element(rows, code.binary("mul", each.index, row_bytes))
                target = code.element(result, code.binary("mul", place, row_bytes))
                for lanes, begin, end in ((LANES, ZERO, whole), (1, whole, columns)):
                    with code.repeat(begin, end, lanes) as column:
                        to = code.element(target, column.index, kind)
                        old = code.load(kind, to, lanes)
                        at = code.element(source, column.index, kind)
                        code.store(code.binary("fadd", old, code.load(kind, at, lanes)), to)
        code.ret()
