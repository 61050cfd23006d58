"""The step of a check that looks at the thread."""

from __future__ import annotations

from windfall import torch_abi
from windfall.runtime.machine.basics import NEXT
from windfall.torch_abi import ThreadLayout


def text(layout: ThreadLayout) -> str:
    """The step that checks the thread's state, all of it.

    Record: 2 flags, 3 included, 4 excluded, 5 dispatch modes, 6 function modes, 7 function state,
    8 profiled, 9 default dtype, 10 deterministic, 11 torch's context, 12 count, then pairs of
    device type and autocast dtype."""
    mask = layout.grad_flag | layout.inference_flag
    return f"""
declare ptr @{torch_abi.AUTOGRAD_STATE}()
declare i64 @{torch_abi.DISPATCH_MODES}()
declare i64 @{torch_abi.FUNCTION_MODES}()
declare i8 @{torch_abi.FUNCTION_STATE}()
declare i8 @{torch_abi.HAS_CALLBACKS}()
declare i8 @{torch_abi.DEFAULT_DTYPE}()
declare i8 @{torch_abi.DETERMINISTIC}(ptr)
declare i8 @{torch_abi.AUTOCAST_DTYPE}(i8)
define i32 @op.ambient(ptr %record, ptr %args) {{
entry:
  %state = call ptr @{torch_abi.AUTOGRAD_STATE}()
  %flag.byte = call i8 @byte(ptr %state, i64 {layout.flags})
  %flag.word = zext i8 %flag.byte to i64
  %flags = and i64 %flag.word, {mask}
  %flags.want = call i64 @word(ptr %record, i64 2)
  %included = call i64 @field(ptr %state, i64 {layout.keys})
  %included.want = call i64 @word(ptr %record, i64 3)
  %excluded = call i64 @field(ptr %state, i64 {layout.keys + 8})
  %excluded.want = call i64 @word(ptr %record, i64 4)
  %off.flags = xor i64 %flags, %flags.want
  %off.included = xor i64 %included, %included.want
  %off.excluded = xor i64 %excluded, %excluded.want
  %off.keys = or i64 %off.included, %off.excluded
  %off.state = or i64 %off.flags, %off.keys
  %right.state = icmp eq i64 %off.state, 0
  br i1 %right.state, label %modes, label %miss
modes:
  %modes.have = call i64 @{torch_abi.DISPATCH_MODES}()
  %modes.want = call i64 @word(ptr %record, i64 5)
  %functions.have = call i64 @{torch_abi.FUNCTION_MODES}()
  %functions.want = call i64 @word(ptr %record, i64 6)
  %function.byte = call i8 @{torch_abi.FUNCTION_STATE}()
  %function.state = zext i8 %function.byte to i64
  %function.want = call i64 @word(ptr %record, i64 7)
  %callback.byte = call i8 @{torch_abi.HAS_CALLBACKS}()
  %callback.bit = and i8 %callback.byte, 1
  %callback = zext i8 %callback.bit to i64
  %callback.want = call i64 @word(ptr %record, i64 8)
  %dtype.byte = call i8 @{torch_abi.DEFAULT_DTYPE}()
  %dtype = zext i8 %dtype.byte to i64
  %dtype.want = call i64 @word(ptr %record, i64 9)
  %context = call ptr @pointer(ptr %record, i64 11)
  %fixed.byte = call i8 @{torch_abi.DETERMINISTIC}(ptr %context)
  %fixed.bit = and i8 %fixed.byte, 1
  %fixed = zext i8 %fixed.bit to i64
  %fixed.want = call i64 @word(ptr %record, i64 10)
  %off.modes = xor i64 %modes.have, %modes.want
  %off.functions = xor i64 %functions.have, %functions.want
  %off.function = xor i64 %function.state, %function.want
  %off.callback = xor i64 %callback, %callback.want
  %off.dtype = xor i64 %dtype, %dtype.want
  %off.fixed = xor i64 %fixed, %fixed.want
  %off.a = or i64 %off.modes, %off.functions
  %off.b = or i64 %off.function, %off.callback
  %off.c = or i64 %off.dtype, %off.fixed
  %off.d = or i64 %off.a, %off.b
  %off = or i64 %off.c, %off.d
  %right = icmp eq i64 %off, 0
  br i1 %right, label %casts, label %miss
casts:
  %count = call i64 @word(ptr %record, i64 12)
  br label %loop
loop:
  %index = phi i64 [ 0, %casts ], [ %next, %cast ]
  %more = icmp ult i64 %index, %count
  br i1 %more, label %cast, label %go
cast:
  %double = mul i64 %index, 2
  %device.at = add i64 %double, 13
  %device.word = call i64 @word(ptr %record, i64 %device.at)
  %device = trunc i64 %device.word to i8
  %cast.at = add i64 %double, 14
  %cast.want = call i64 @word(ptr %record, i64 %cast.at)
  %cast.byte = call i8 @{torch_abi.AUTOCAST_DTYPE}(i8 %device)
  %cast.have = zext i8 %cast.byte to i64
  %next = add i64 %index, 1
  %same = icmp eq i64 %cast.have, %cast.want
  br i1 %same, label %loop, label %miss
{NEXT}
}}
"""
