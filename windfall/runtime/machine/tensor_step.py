"""The steps of a check that look at tensors: one for sizes kept inside of it, one for more, one
that leaves sizes to `dimensions`, which reads them as numbers, and one that compares where tensors
lie."""

from __future__ import annotations

from windfall import torch_abi
from windfall.runtime.machine.basics import NEXT
from windfall.torch_abi import ObjectLayout, TensorLayout

# Words of a record: a cell, and what is wanted, which tensors that are alike share.
CELL, WANTED = 2, 3
# Words of what is wanted: class, dispatch keys, element type, rank, requires_grad, then
# `tensor`: all the inline sizes and strides, and masks of those that count;
# `large_tensor`: as many sizes, then strides, as the rank says.
CLASS, KEYS, DTYPE, RANK, GRAD, SHAPE = range(6)


def text(objects: ObjectLayout, layout: TensorLayout) -> str:
    """All of them."""
    return (
        f"""
declare zeroext i1 @{torch_abi.REQUIRES_GRAD}(ptr)
declare ptr @{torch_abi.FORWARD_GRAD}(ptr, i64, ptr)
@{torch_abi.UNDEFINED_TENSOR} = external global i8
"""
        + _step(objects, layout, "tensor", _inside(layout))
        + _step(objects, layout, "large_tensor", _outside(layout))
        + _step(objects, layout, "shapeless_tensor", "\n  %fits = icmp eq i64 0, 0")
        + _dimensions(layout)
        + _overlap(layout)
    )


def _inside(layout: TensorLayout) -> str:
    """Compare the sizes and strides that lie in the tensor, pairs of words at a time."""
    count = 2 * layout.inline_dims
    lines = [
        "",
        f"  %have.at = getelementptr i8, ptr %impl, i64 {layout.rank + 8}",
        f"  %want.at = getelementptr i64, ptr %wanted, i64 {SHAPE}",
        f"  %mask.at = getelementptr i64, ptr %wanted, i64 {SHAPE + count}",
    ]
    total = "zeroinitializer"
    for place in range(0, count, 2):
        for name in ("have", "want", "mask"):
            lines.append(f"  %{name}.{place}.at = getelementptr i64, ptr %{name}.at, i64 {place}")
            lines.append(f"  %{name}.{place} = load <2 x i64>, ptr %{name}.{place}.at, align 8")
        lines.append(f"  %differ.{place} = xor <2 x i64> %have.{place}, %want.{place}")
        lines.append(f"  %counted.{place} = and <2 x i64> %differ.{place}, %mask.{place}")
        lines.append(f"  %total.{place} = or <2 x i64> {total}, %counted.{place}")
        total = f"%total.{place}"
    lines += [
        f"  %low = extractelement <2 x i64> {total}, i64 0",
        f"  %high = extractelement <2 x i64> {total}, i64 1",
        "  %shape.off = or i64 %low, %high",
        "  %fits = icmp eq i64 %shape.off, 0",
    ]
    return "\n".join(lines)


def _outside(layout: TensorLayout) -> str:
    """Compare sizes and strides that the tensor points to."""
    return f"""
  %sizes = call ptr @behind(ptr %impl, i64 {layout.rank + 8})
  %want.at = getelementptr i64, ptr %wanted, i64 {SHAPE}
  %rank = call i64 @word(ptr %wanted, i64 {RANK})
  %bytes = shl i64 %rank, 4
  %shape.off = call i32 @memcmp(ptr %sizes, ptr %want.at, i64 %bytes)
  %fits = icmp eq i32 %shape.off, 0"""


def _step(objects: ObjectLayout, layout: TensorLayout, name: str, compare_shape: str) -> str:
    return f"""
define i32 @op.{name}(ptr %record, ptr %args) {{
entry:
  %object = call ptr @value(ptr %record, i64 {CELL})
  %wanted = call ptr @pointer(ptr %record, i64 {WANTED})
  %type = call i64 @field(ptr %object, i64 {objects.type})
  %class = call i64 @word(ptr %wanted, i64 {CLASS})
  %typed = icmp eq i64 %type, %class
  br i1 %typed, label %metadata, label %miss
metadata:
  %impl = call ptr @behind(ptr %object, i64 {layout.handle})
  %keys.have = call i64 @field(ptr %impl, i64 {layout.key_set})
  %keys.want = call i64 @word(ptr %wanted, i64 {KEYS})
  %dtype.at = getelementptr i8, ptr %impl, i64 {layout.dtype}
  %dtype.short = load i16, ptr %dtype.at
  %dtype.have = zext i16 %dtype.short to i64
  %dtype.want = call i64 @word(ptr %wanted, i64 {DTYPE})
  %rank.have = call i64 @field(ptr %impl, i64 {layout.rank})
  %rank.want = call i64 @word(ptr %wanted, i64 {RANK})
  %off.keys = xor i64 %keys.have, %keys.want
  %off.dtype = xor i64 %dtype.have, %dtype.want
  %off.rank = xor i64 %rank.have, %rank.want
  %off.some = or i64 %off.keys, %off.dtype
  %off = or i64 %off.some, %off.rank
  %alike = icmp eq i64 %off, 0
  br i1 %alike, label %shape, label %miss
shape:{compare_shape}
  br i1 %fits, label %grad, label %miss
grad:
  %meta = call ptr @behind(ptr %impl, i64 {layout.autograd})
  %plain = icmp eq ptr %meta, null
  br i1 %plain, label %answer, label %tangent
tangent:
  %forward = call ptr @behind(ptr %meta, i64 {layout.forward_grad})
  %single = icmp eq ptr %forward, null
  br i1 %single, label %requires, label %dual
dual:
  %self = getelementptr i8, ptr %object, i64 {layout.handle}
  %slope = call ptr @{torch_abi.FORWARD_GRAD}(ptr %impl, i64 0, ptr %self)
  %slope.impl = load ptr, ptr %slope
  %undefined = icmp eq ptr %slope.impl, @{torch_abi.UNDEFINED_TENSOR}
  br i1 %undefined, label %requires, label %miss
requires:
  ; A leaf that is marked needs one; anything else (results, views of results) must be asked.
  %flag = call i8 @byte(ptr %meta, i64 {layout.requires_grad})
  %marked = icmp eq i8 %flag, 1
  br i1 %marked, label %answer, label %ask
ask:
  %required = call zeroext i1 @{torch_abi.REQUIRES_GRAD}(ptr %impl)
  %required.word = zext i1 %required to i64
  br label %answer
answer:
  %grad.have = phi i64 [ 0, %grad ], [ 1, %requires ], [ %required.word, %ask ]
  %grad.want = call i64 @word(ptr %wanted, i64 {GRAD})
  %right = icmp eq i64 %grad.have, %grad.want
  br i1 %right, label %go, label %miss
{NEXT}
}}
"""


def _dimensions(layout: TensorLayout) -> str:
    """Read sizes and strides of what was seen to be a tensor of this rank.

    Record: 2 a cell, 3 whether the tensor keeps its sizes outside, 4 how many are read, then for
    each its place in bytes, where the number goes, the least and the greatest that it may be."""
    return f"""
define i32 @op.dimensions(ptr %record, ptr %args) {{
entry:
  %object = call ptr @value(ptr %record, i64 2)
  %impl = call ptr @behind(ptr %object, i64 {layout.handle})
  %inside = getelementptr i8, ptr %impl, i64 {layout.rank + 8}
  %outside = load ptr, ptr %inside
  %far = call i64 @word(ptr %record, i64 3)
  %near = icmp eq i64 %far, 0
  %shape = select i1 %near, ptr %inside, ptr %outside
  %count = call i64 @word(ptr %record, i64 4)
  %rows = getelementptr i64, ptr %record, i64 5
  br label %loop
loop:
  %index = phi i64 [ 0, %entry ], [ %next, %row ]
  %more = icmp ult i64 %index, %count
  br i1 %more, label %row, label %go
row:
  %first = mul i64 %index, 4
  %at = getelementptr i64, ptr %rows, i64 %first
  %place = call i64 @word(ptr %at, i64 0)
  %target = call ptr @pointer(ptr %at, i64 1)
  %least = call i64 @word(ptr %at, i64 2)
  %greatest = call i64 @word(ptr %at, i64 3)
  %number = call i64 @field(ptr %shape, i64 %place)
  store i64 %number, ptr %target
  %enough = icmp sge i64 %number, %least
  %small = icmp sle i64 %number, %greatest
  %good = and i1 %enough, %small
  %next = add i64 %index, 1
  br i1 %good, label %loop, label %miss
{NEXT}
}}
"""


def _overlap(layout: TensorLayout) -> str:
    """No written tensor shares bytes with another; what the cells hold was seen to be tensors.

    Record: 2 how many are written, 3 how many there are, then for each a cell, the bytes of an
    element, and where the number of its bytes stands."""
    return f"""
define internal i64 @start_of(ptr %row) {{
  %object = call ptr @value(ptr %row, i64 0)
  %item = call i64 @word(ptr %row, i64 1)
  %handle = getelementptr i8, ptr %object, i64 {layout.handle}
  %data = call ptr @data_of(ptr %handle, i64 %item)
  %start = ptrtoint ptr %data to i64
  ret i64 %start
}}
define i32 @op.overlap(ptr %record, ptr %args) {{
entry:
  %written = call i64 @word(ptr %record, i64 2)
  %count = call i64 @word(ptr %record, i64 3)
  %rows = getelementptr i64, ptr %record, i64 4
  br label %outer
outer:
  %i = phi i64 [ 0, %entry ], [ %i.next, %inner.done ]
  %i.more = icmp ult i64 %i, %written
  br i1 %i.more, label %one, label %go
one:
  %i.first = mul i64 %i, 3
  %i.row = getelementptr i64, ptr %rows, i64 %i.first
  %i.start = call i64 @start_of(ptr %i.row)
  %i.span.at = call ptr @pointer(ptr %i.row, i64 2)
  %i.span = load i64, ptr %i.span.at
  %i.end = add i64 %i.start, %i.span
  %i.next = add i64 %i, 1
  br label %inner
inner:
  %j = phi i64 [ %i.next, %one ], [ %j.next, %apart ]
  %j.more = icmp ult i64 %j, %count
  br i1 %j.more, label %other, label %inner.done
other:
  %j.first = mul i64 %j, 3
  %j.row = getelementptr i64, ptr %rows, i64 %j.first
  %j.start = call i64 @start_of(ptr %j.row)
  %j.span.at = call ptr @pointer(ptr %j.row, i64 2)
  %j.span = load i64, ptr %j.span.at
  %j.end = add i64 %j.start, %j.span
  %j.next = add i64 %j, 1
  %before = icmp ult i64 %i.start, %j.end
  %after = icmp ult i64 %j.start, %i.end
  %meet = and i1 %before, %after
  ; A tensor without elements meets nothing.
  %i.some = icmp ne i64 %i.span, 0
  %j.some = icmp ne i64 %j.span, 0
  %some = and i1 %i.some, %j.some
  %bad = and i1 %meet, %some
  br i1 %bad, label %miss, label %apart
apart:
  br label %inner
inner.done:
  br label %outer
{NEXT}
}}
"""
