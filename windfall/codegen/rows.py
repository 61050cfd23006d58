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

from windfall.ir.dtype import TensorType
from windfall.ir.loop import Call

if TYPE_CHECKING:
    from windfall.codegen.emit import Driver

FLOATS = {torch.float32: ("float", 4), torch.float64: ("double", 8)}
INTEGERS = {torch.int64: "i64", torch.int32: "i32"}
LANES = 8


def accepts(type: TensorType) -> bool:
    """Rows and indices that lie one after the other."""
    return type.is_contiguous


def write(driver: Driver, call: Call) -> None:
    """The call: what the threads need to know, in a block on the stack."""
    rows, indices = call.arguments
    result = driver.result(call, 0)
    float_name, bytes = FLOATS[rows.type.dtype]
    name = f"add_rows.{float_name}.{INTEGERS[indices.type.dtype]}"
    shared = driver.emission.shared
    if name not in shared:
        shared[name] = _text(name, float_name, bytes, INTEGERS[indices.type.dtype])
    declarations = driver.code.declarations
    for symbol in ("omp_get_thread_num", "omp_get_num_threads"):
        declarations.intrinsic(symbol, "i32", [])
    declarations.intrinsic("memset", "ptr", ["ptr", "i32", "i64"])
    known = [
        driver.pointer(result),
        driver.pointer(rows),
        driver.pointer(indices),
        driver.size(indices.type.elements),
        driver.size(result.type.sizes[1]),
        driver.size(result.type.sizes[0]),
        driver.size(call.attributes["padding"]),
    ]
    driver.in_threads(f"{name}.thread", known, result.type.elements)


def _text(name: str, float_name: str, bytes: int, integer: str) -> str:
    vector = f"<{LANES} x {float_name}>"
    extend = "" if integer == "i64" else f"  %wide = sext {integer} %stored to i64\n"
    place = "%stored" if integer == "i64" else "%wide"
    words = ("result", "rows", "indices", "count", "columns", "height", "padding")
    reads = "".join(
        f"  %{word}.at = getelementptr i64, ptr %given, i64 {number}\n"
        f"  %{word} = load {'ptr' if number < 3 else 'i64'}, ptr %{word}.at, align 8\n"
        for number, word in enumerate(words)
    )
    return f"""\
define internal void @{name}.thread(ptr %given) #1 {{
entry:
{reads}  %thread = call i32 @omp_get_thread_num()
  %threads = call i32 @omp_get_num_threads()
  %me = zext i32 %thread to i64
  %all = zext i32 %threads to i64
  %following = add i64 %me, 1
  %first.share = mul i64 %me, %height
  %last.share = mul i64 %following, %height
  %first = udiv i64 %first.share, %all
  %last = udiv i64 %last.share, %all
  %own = sub i64 %last, %first
  %row.bytes = mul i64 %columns, {bytes}
  %own.bytes = mul i64 %own, %row.bytes
  %start.place = mul i64 %first, %row.bytes
  %start = getelementptr i8, ptr %result, i64 %start.place
  %cleared = call ptr @memset(ptr %start, i32 0, i64 %own.bytes)
  %whole = and i64 %columns, {-LANES}
  br label %each
each:
  %index = phi i64 [ 0, %entry ], [ %index.next, %skip ]
  %more = icmp ult i64 %index, %count
  br i1 %more, label %look, label %leave
look:
  %stored.at = getelementptr {integer}, ptr %indices, i64 %index
  %stored = load {integer}, ptr %stored.at
{extend}  %since = sub i64 {place}, %first
  %inside = icmp ult i64 %since, %own
  %counts = icmp ne i64 {place}, %padding
  %mine = and i1 %inside, %counts
  br i1 %mine, label %add, label %skip
add:
  %source.place = mul i64 %index, %row.bytes
  %target.place = mul i64 {place}, %row.bytes
  %source = getelementptr i8, ptr %rows, i64 %source.place
  %target = getelementptr i8, ptr %result, i64 %target.place
  br label %wide.head
wide.head:
  %column = phi i64 [ 0, %add ], [ %column.next, %wide.body ]
  %wide.more = icmp ult i64 %column, %whole
  br i1 %wide.more, label %wide.body, label %narrow.head
wide.body:
  %a.at = getelementptr {float_name}, ptr %source, i64 %column
  %b.at = getelementptr {float_name}, ptr %target, i64 %column
  %a = load {vector}, ptr %a.at, align {bytes}
  %b = load {vector}, ptr %b.at, align {bytes}
  %sum = fadd {vector} %b, %a
  store {vector} %sum, ptr %b.at, align {bytes}
  %column.next = add i64 %column, {LANES}
  br label %wide.head
narrow.head:
  %rest = phi i64 [ %whole, %wide.head ], [ %rest.next, %narrow.body ]
  %rest.more = icmp ult i64 %rest, %columns
  br i1 %rest.more, label %narrow.body, label %skip
narrow.body:
  %c.at = getelementptr {float_name}, ptr %source, i64 %rest
  %d.at = getelementptr {float_name}, ptr %target, i64 %rest
  %c = load {float_name}, ptr %c.at, align {bytes}
  %d = load {float_name}, ptr %d.at, align {bytes}
  %one = fadd {float_name} %d, %c
  store {float_name} %one, ptr %d.at, align {bytes}
  %rest.next = add i64 %rest, 1
  br label %narrow.head
skip:
  %index.next = add i64 %index, 1
  br label %each
leave:
  ret void
}}
"""
