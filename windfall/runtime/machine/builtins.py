"""The bodies of builtins: a check, an entry, a bound program, a dispatcher."""

from __future__ import annotations

from windfall.runtime.machine.layout import (
    ASKED,
    BODY,
    CLOCK,
    ENTRIES,
    FAILED,
    INPUT_CELLS,
    INPUT_COUNT,
    LAST,
    MISS,
    NO_ENTRY,
    PLAN,
    REST,
    SLOT_CELLS,
    SLOTS,
    SLOW,
    START,
    SYMBOL_CELLS,
    SYMBOLS,
    TABLE_WORDS,
)
from windfall.torch_abi import ObjectLayout


def text(objects: ObjectLayout) -> str:
    """The loop over the records of a check, and the builtin that is only a check."""
    return f"""
define internal ptr @block_of(ptr %self) alwaysinline {{
  %holder = call ptr @behind(ptr %self, i64 {objects.tuple_items})
  %inside = call ptr @behind(ptr %holder, i64 {objects.structure_data})
  %block = load ptr, ptr %inside
  ret ptr %block
}}
define internal i1 @holds(ptr %block, ptr %args) {{
entry:
  %slots = call i64 @word(ptr %block, i64 {SLOTS})
  %bytes = mul i64 %slots, 8
  %cells = call ptr @pointer(ptr %block, i64 {SLOT_CELLS})
  %start = call ptr @pointer(ptr %block, i64 {START})
  %step = load ptr, ptr %start
  br label %begin
begin:
  %tries = phi i64 [ 0, %entry ], [ %tried, %again ]
  call void @llvm.memcpy.p0.p0.i64(ptr %cells, ptr %args, i64 %bytes, i1 false)
  %answer = call i32 %step(ptr %start, ptr %args)
  switch i32 %answer, label %no [ i32 1, label %yes
                                  i32 2, label %again ]
again:
  %tried = add i64 %tries, 1
  %enough = icmp ugt i64 %tried, 10000
  br i1 %enough, label %no, label %begin
yes:
  ret i1 1
no:
  ret i1 0
}}
; 0 miss, 1 holds, 2 an exception that is none of ours (an interrupt) is to be raised.
define internal i32 @passes(ptr %block, ptr %args, i64 %count) {{
  %slots = call i64 @word(ptr %block, i64 {SLOTS})
  %sized = icmp eq i64 %slots, %count
  br i1 %sized, label %native, label %no
native:
  %first = call i1 @holds(ptr %block, ptr %args)
  br i1 %first, label %more, label %no
more:
  %rest = call ptr @pointer(ptr %block, i64 {REST})
  %none = icmp eq ptr %rest, null
  br i1 %none, label %yes, label %python
python:
  %answer = call ptr @PyObject_Vectorcall(ptr %rest, ptr %args, i64 %count, ptr null)
  %failed = icmp eq ptr %answer, null
  br i1 %failed, label %error, label %read
error:
  ret i32 2
read:
  call void @Py_DecRef(ptr %answer)
  %true = icmp eq ptr %answer, @_Py_TrueStruct
  br i1 %true, label %native_again, label %no
native_again:
  ; Python ran in between: what the cells point to may be gone, so all is read again.
  %second = call i1 @holds(ptr %block, ptr %args)
  %still = zext i1 %second to i32
  ret i32 %still
yes:
  ret i32 1
no:
  ret i32 0
}}
define ptr @check(ptr %self, ptr %args, i64 %count) {{
  %block = call ptr @block_of(ptr %self)
  %state = call i32 @passes(ptr %block, ptr %args, i64 %count)
  %passed = icmp eq i32 %state, 1
  %failed = icmp eq i32 %state, 2
  br i1 %failed, label %error, label %say
say:
  %answer = select i1 %passed, ptr @_Py_TrueStruct, ptr @_Py_FalseStruct
  call void @Py_IncRef(ptr %answer)
  ret ptr %answer
error:
  ret ptr null
}}
define ptr @entry(ptr %self, ptr %args, i64 %count) {{
  %block = call ptr @block_of(ptr %self)
  %state = call i32 @passes(ptr %block, ptr %args, i64 %count)
  switch i32 %state, label %miss [ i32 1, label %hit
                                   i32 2, label %error ]
error:
  ret ptr null
hit:
  %clock = call ptr @pointer(ptr %block, i64 {CLOCK})
  %last = call ptr @pointer(ptr %block, i64 {LAST})
  %before = load i64, ptr %clock
  %now = add i64 %before, 1
  store i64 %now, ptr %clock
  store i64 %now, ptr %last
  %plan = call ptr @pointer(ptr %block, i64 {PLAN})
  %python = icmp eq ptr %plan, null
  br i1 %python, label %body, label %native
body:
  %function = call ptr @pointer(ptr %block, i64 {BODY})
  %answer = call ptr @PyObject_Vectorcall(ptr %function, ptr %args, i64 %count, ptr null)
  ret ptr %answer
native:
  %inputs = call i64 @word(ptr %block, i64 {INPUT_COUNT})
  %cells = call ptr @pointer(ptr %block, i64 {INPUT_CELLS})
  %tensors = alloca ptr, i64 %inputs
  br label %loop
loop:
  %index = phi i64 [ 0, %native ], [ %next, %copy ]
  %more = icmp ult i64 %index, %inputs
  br i1 %more, label %copy, label %sizes
copy:
  %tensor = call ptr @value(ptr %cells, i64 %index)
  %at = getelementptr ptr, ptr %tensors, i64 %index
  store ptr %tensor, ptr %at
  %next = add i64 %index, 1
  br label %loop
sizes:
  %words = call i64 @word(ptr %plan, i64 {TABLE_WORDS})
  %fixed = icmp eq i64 %words, 0
  br i1 %fixed, label %execute, label %fill
fill:
  %table = alloca i64, i64 %words
  %symbols = call ptr @pointer(ptr %block, i64 {SYMBOL_CELLS})
  ; What has no value in 64 bits is left to another entry.
  %filled = call i1 @table_of_cells(ptr %plan, ptr %table, ptr %symbols)
  br i1 %filled, label %execute, label %miss
execute:
  %given = phi ptr [ null, %sizes ], [ %table, %fill ]
  %result = call ptr @execute(ptr %plan, ptr %tensors, ptr %given)
  ret ptr %result
miss:
  %missed = call ptr @pointer(ptr %block, i64 {MISS})
  call void @Py_IncRef(ptr %missed)
  ret ptr %missed
}}
@wrong_count = internal constant [46 x i8]
  c"a compiled graph got another number of inputs\\00"
define ptr @run(ptr %self, ptr %args, i64 %count) {{
  %block = call ptr @block_of(ptr %self)
  %slots = call i64 @word(ptr %block, i64 {SLOTS})
  %sized = icmp eq i64 %slots, %count
  br i1 %sized, label %go, label %wrong
go:
  %plan = call ptr @pointer(ptr %block, i64 {PLAN})
  %words = call i64 @word(ptr %plan, i64 {TABLE_WORDS})
  %fixed = icmp eq i64 %words, 0
  br i1 %fixed, label %execute, label %fill
fill:
  %table = alloca i64, i64 %words
  %filled = call i1 @table_of_objects(ptr %plan, ptr %table, ptr %args)
  br i1 %filled, label %execute, label %fail
execute:
  %given = phi ptr [ null, %go ], [ %table, %fill ]
  %symbols = call i64 @word(ptr %plan, i64 {SYMBOLS})
  %tensors = getelementptr ptr, ptr %args, i64 %symbols
  %result = call ptr @execute(ptr %plan, ptr %tensors, ptr %given)
  ret ptr %result
fail:
  ret ptr null
wrong:
  %class = load ptr, ptr @PyExc_TypeError
  call void @PyErr_SetString(ptr %class, ptr @wrong_count)
  ret ptr null
}}
define ptr @dispatch(ptr %self, ptr %args, i64 %count, ptr %names) {{
entry:
  %block = call ptr @block_of(ptr %self)
  %slow = call ptr @pointer(ptr %block, i64 {SLOW})
  %positional = icmp eq ptr %names, null
  %asked = call ptr @pointer(ptr %block, i64 {ASKED})
  %stance = load i64, ptr %asked
  %usual = icmp eq i64 %stance, 0
  %free = and i1 %positional, %usual
  br i1 %free, label %direct, label %otherwise
direct:
  %entries = call ptr @pointer(ptr %block, i64 {ENTRIES})
  %miss = call ptr @pointer(ptr %block, i64 {NO_ENTRY})
  %size = call i64 @field(ptr %entries, i64 {objects.size})
  call void @Py_IncRef(ptr %entries)
  br label %loop
loop:
  %index = phi i64 [ 0, %direct ], [ %next, %missed ]
  %more = icmp ult i64 %index, %size
  br i1 %more, label %try, label %none
try:
  %items = getelementptr i8, ptr %entries, i64 {objects.tuple_items}
  %entry.call = call ptr @pointer(ptr %items, i64 %index)
  %answer = call ptr @PyObject_Vectorcall(ptr %entry.call, ptr %args, i64 %count, ptr null)
  %is.miss = icmp eq ptr %answer, %miss
  br i1 %is.miss, label %missed, label %answered
answered:
  %raised = icmp eq ptr %answer, null
  br i1 %raised, label %look, label %hit
look:
  ; A graph that came to no end is the slow path's to begin again.
  %failed = call ptr @pointer(ptr %block, i64 {FAILED})
  %is.ours = call i32 @PyErr_ExceptionMatches(ptr %failed)
  %ours = icmp ne i32 %is.ours, 0
  br i1 %ours, label %forget, label %hit
forget:
  call void @PyErr_Clear()
  br label %none
missed:
  call void @Py_DecRef(ptr %answer)
  %next = add i64 %index, 1
  br label %loop
hit:
  call void @Py_DecRef(ptr %entries)
  ret ptr %answer
none:
  call void @Py_DecRef(ptr %entries)
  br label %otherwise
otherwise:
  call void @Py_IncRef(ptr %slow)
  %result = call ptr @PyObject_Vectorcall(ptr %slow, ptr %args, i64 %count, ptr %names)
  call void @Py_DecRef(ptr %slow)
  ret ptr %result
}}
"""
