"""The step of a check that looks at a tensor."""

from __future__ import annotations

from windfall import torch_abi
from windfall.torch_abi import ObjectLayout, TensorLayout


def text(objects: ObjectLayout, layout: TensorLayout) -> str:
    """The step that checks a tensor: class, dispatch keys, element type, sizes, strides, grad.

    Record: 2 cell, 3 class, 4 keys, 5 dtype, 6 rank, 7 requires_grad, 8 sizes, then strides."""
    inline_strides = 8 * layout.inline_dims
    return f"""
declare zeroext i1 @{torch_abi.REQUIRES_GRAD}(ptr)
declare ptr @{torch_abi.FORWARD_GRAD}(ptr, i64, ptr)
@{torch_abi.UNDEFINED_TENSOR} = external global i8
define i32 @op.tensor(ptr %record, ptr %args) {{
entry:
  %object = call ptr @value(ptr %record, i64 2)
  %type = call i64 @field(ptr %object, i64 {objects.type})
  %class = call i64 @word(ptr %record, i64 3)
  %typed = icmp eq i64 %type, %class
  br i1 %typed, label %keys, label %miss
keys:
  %impl = call ptr @behind(ptr %object, i64 {layout.handle})
  %keys.have = call i64 @field(ptr %impl, i64 {layout.key_set})
  %keys.want = call i64 @word(ptr %record, i64 4)
  %keyed = icmp eq i64 %keys.have, %keys.want
  br i1 %keyed, label %dtype, label %miss
dtype:
  %dtype.at = getelementptr i8, ptr %impl, i64 {layout.dtype}
  %dtype.short = load i16, ptr %dtype.at
  %dtype.have = zext i16 %dtype.short to i64
  %dtype.want = call i64 @word(ptr %record, i64 5)
  %same.dtype = icmp eq i64 %dtype.have, %dtype.want
  br i1 %same.dtype, label %rank, label %miss
rank:
  %rank.have = call i64 @field(ptr %impl, i64 {layout.rank})
  %rank.want = call i64 @word(ptr %record, i64 6)
  %same.rank = icmp eq i64 %rank.have, %rank.want
  br i1 %same.rank, label %shape, label %miss
shape:
  %small = icmp ule i64 %rank.want, {layout.inline_dims}
  %near = getelementptr i8, ptr %impl, i64 {layout.rank + 8}
  %far = load ptr, ptr %near
  %sizes = select i1 %small, ptr %near, ptr %far
  %far.step = mul i64 %rank.want, 8
  %step = select i1 %small, i64 {inline_strides}, i64 %far.step
  %strides = getelementptr i8, ptr %sizes, i64 %step
  %want.sizes = getelementptr i64, ptr %record, i64 8
  %want.strides = getelementptr i64, ptr %want.sizes, i64 %rank.want
  br label %dims
dims:
  %index = phi i64 [ 0, %shape ], [ %next, %dim ]
  %more = icmp ult i64 %index, %rank.want
  br i1 %more, label %dim, label %grad
dim:
  %size.have = call i64 @word(ptr %sizes, i64 %index)
  %size.want = call i64 @word(ptr %want.sizes, i64 %index)
  %stride.have = call i64 @word(ptr %strides, i64 %index)
  %stride.want = call i64 @word(ptr %want.strides, i64 %index)
  %size.off = xor i64 %size.have, %size.want
  %stride.off = xor i64 %stride.have, %stride.want
  %off = or i64 %size.off, %stride.off
  %fits = icmp eq i64 %off, 0
  %next = add i64 %index, 1
  br i1 %fits, label %dims, label %miss
grad:
  %grad.want = call i64 @word(ptr %record, i64 7)
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
  %required = call zeroext i1 @{torch_abi.REQUIRES_GRAD}(ptr %impl)
  %required.word = zext i1 %required to i64
  br label %answer
answer:
  %grad.have = phi i64 [ 0, %grad ], [ %required.word, %requires ]
  %right = icmp eq i64 %grad.have, %grad.want
  %result = zext i1 %right to i32
  ret i32 %result
miss:
  ret i32 0
}}
"""
