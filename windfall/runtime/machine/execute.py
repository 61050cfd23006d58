"""Running a program: pointers, allocations, the step, results as Python objects."""

from __future__ import annotations

from windfall import torch_abi
from windfall.runtime.machine.layout import (
    ARENA_BYTES,
    ARENA_COUNT,
    ARENA_ROW_WORDS,
    ARENA_ROWS,
    AS_STRIDED,
    BUFFERS,
    ERROR_ROWS,
    ERRORS,
    FRESH,
    FRESH_ROW_WORDS,
    FRESH_ROWS,
    INPUT,
    INPUT_ROW_WORDS,
    INPUT_ROWS,
    INPUT_VIEW,
    INPUTS,
    INSTRUCTION_ROWS,
    INSTRUCTIONS,
    LIST,
    NO_MEMORY,
    OBJECT_ROW_WORDS,
    OBJECT_ROWS,
    OBJECT_VIEW,
    OBJECTS,
    ORDER,
    ORDER_COUNT,
    OTHER_ERROR,
    RELEASE_BYTES,
    RESULT,
    STEP,
    STRUCTURE,
    SYMBOL_PLACES,
    SYMBOLS,
    TABLE,
    TABLE_WORDS,
    TEMPLATE,
    TOUCHED,
    TUPLE,
)
from windfall.torch_abi import ObjectLayout, TensorLayout


def text(objects: ObjectLayout, tensors: TensorLayout) -> str:
    """Run a plan on the tensors of its inputs, with the table of its sizes; the answer is a new
    reference, or null and an exception. Every exit goes through `finish`, which gives back what was
    taken."""
    return f"""
declare i32 @aoti_torch_get_data_ptr(ptr, ptr)
declare i32 @aoti_torch_empty_strided(i64, ptr, ptr, i32, i32, i32, ptr)
declare i32 @aoti_torch_delete_tensor_object(ptr)
declare ptr @{torch_abi.WRAP}(ptr)
@no_memory = internal constant [38 x i8] c"an input of the graph has no storage\\00\\00"
; A number of a row: itself, or where it stands in the table of sizes.
define internal i64 @quantity(ptr %row, i64 %place, ptr %table) alwaysinline {{
  %here = getelementptr i64, ptr %row, i64 %place
  %word = load i64, ptr %here
  %moves.at = getelementptr i64, ptr %here, i64 1
  %moves = load i64, ptr %moves.at
  %there = getelementptr i8, ptr %table, i64 %word
  %fixed = icmp eq i64 %moves, 0
  %from = select i1 %fixed, ptr %here, ptr %there
  %number = load i64, ptr %from
  ret i64 %number
}}
; The table of sizes as it starts; the symbols' values are to be stored at their places.
define internal void @start_table(ptr %plan, ptr %table) {{
  %words = call i64 @word(ptr %plan, i64 {TABLE_WORDS})
  %bytes = mul i64 %words, 8
  %template = call ptr @pointer(ptr %plan, i64 {TABLE})
  call void @llvm.memcpy.p0.p0.i64(ptr %table, ptr %template, i64 %bytes, i1 false)
  ret void
}}
define internal void @set_symbol(ptr %plan, ptr %table, i64 %index, i64 %value) alwaysinline {{
  %places = call ptr @pointer(ptr %plan, i64 {SYMBOL_PLACES})
  %place = call i64 @word(ptr %places, i64 %index)
  %at = getelementptr i8, ptr %table, i64 %place
  store i64 %value, ptr %at
  ret void
}}
; All that follows from the symbols' values; 0: some of it has no value.
define internal i1 @finish_table(ptr %plan, ptr %table) {{
  %instructions = call ptr @pointer(ptr %plan, i64 {INSTRUCTION_ROWS})
  %count = call i64 @word(ptr %plan, i64 {INSTRUCTIONS})
  %base = ptrtoint ptr %table to i64
  %done = call i1 @calculate(i64 %base, ptr %instructions, i64 %count)
  ret i1 %done
}}
; The table of sizes for symbols that stand in cells.
define internal i1 @table_of_cells(ptr %plan, ptr %table, ptr %cells) {{
entry:
  call void @start_table(ptr %plan, ptr %table)
  %count = call i64 @word(ptr %plan, i64 {SYMBOLS})
  br label %loop
loop:
  %index = phi i64 [ 0, %entry ], [ %next, %set ]
  %more = icmp ult i64 %index, %count
  br i1 %more, label %set, label %done
set:
  %cell = call ptr @pointer(ptr %cells, i64 %index)
  %value = load i64, ptr %cell
  call void @set_symbol(ptr %plan, ptr %table, i64 %index, i64 %value)
  %next = add i64 %index, 1
  br label %loop
done:
  %finished = call i1 @finish_table(ptr %plan, ptr %table)
  ret i1 %finished
}}
@out_of_range = internal constant [48 x i8]
  c"a size of a compiled graph does not fit 64 bits\\00"
; The table of sizes for symbols that are Python integers; 0: an exception is set.
define internal i1 @table_of_objects(ptr %plan, ptr %table, ptr %objects) {{
entry:
  %overflow = alloca i32
  call void @start_table(ptr %plan, ptr %table)
  %count = call i64 @word(ptr %plan, i64 {SYMBOLS})
  br label %loop
loop:
  %index = phi i64 [ 0, %entry ], [ %next, %set ]
  %more = icmp ult i64 %index, %count
  br i1 %more, label %read, label %done
read:
  %object = call ptr @pointer(ptr %objects, i64 %index)
  %value = call i64 @PyLong_AsLongLongAndOverflow(ptr %object, ptr %overflow)
  %outside = load i32, ptr %overflow
  %fits = icmp eq i32 %outside, 0
  br i1 %fits, label %doubt, label %range
doubt:
  %maybe = icmp eq i64 %value, -1
  br i1 %maybe, label %ask, label %set
ask:
  %error = call ptr @PyErr_Occurred()
  %good = icmp eq ptr %error, null
  br i1 %good, label %set, label %fail
set:
  call void @set_symbol(ptr %plan, ptr %table, i64 %index, i64 %value)
  %next = add i64 %index, 1
  br label %loop
done:
  %finished = call i1 @finish_table(ptr %plan, ptr %table)
  br i1 %finished, label %yes, label %range
yes:
  ret i1 1
range:
  %class = load ptr, ptr @PyExc_OverflowError
  call void @PyErr_SetString(ptr %class, ptr @out_of_range)
  ret i1 0
fail:
  ret i1 0
}}
define internal ptr @data_of(ptr %handle, i64 %item) {{
  %slot = alloca ptr
  %impl = load ptr, ptr %handle
  %storage = call ptr @behind(ptr %impl, i64 {tensors.storage})
  %check = call i8 @byte(ptr %storage, i64 {tensors.storage_check})
  %plain = icmp eq i8 %check, 0
  br i1 %plain, label %read, label %ask
read:
  %data = call ptr @behind(ptr %storage, i64 {tensors.storage_data})
  %offset = call i64 @field(ptr %impl, i64 {tensors.storage_offset})
  %bytes = mul i64 %offset, %item
  %start = getelementptr i8, ptr %data, i64 %bytes
  %empty = icmp eq ptr %data, null
  %answer = select i1 %empty, ptr null, ptr %start
  ret ptr %answer
ask:
  store ptr null, ptr %slot
  %failed = call i32 @aoti_torch_get_data_ptr(ptr %handle, ptr %slot)
  %given = load ptr, ptr %slot
  ret ptr %given
}}
define internal void @raise(ptr %plan, i32 %code) {{
entry:
  %wide = sext i32 %code to i64
  %count = call i64 @word(ptr %plan, i64 {ERRORS})
  %rows = call ptr @pointer(ptr %plan, i64 {ERROR_ROWS})
  br label %loop
loop:
  %index = phi i64 [ 0, %entry ], [ %next, %row ]
  %more = icmp ult i64 %index, %count
  br i1 %more, label %row, label %other
row:
  %first = mul i64 %index, 3
  %at = getelementptr i64, ptr %rows, i64 %first
  %known = load i64, ptr %at
  %next = add i64 %index, 1
  %same = icmp eq i64 %known, %wide
  br i1 %same, label %found, label %loop
found:
  br label %set
other:
  %spare = getelementptr i64, ptr %plan, i64 {OTHER_ERROR - 1}
  br label %set
set:
  %chosen = phi ptr [ %at, %found ], [ %spare, %other ]
  %class = call ptr @pointer(ptr %chosen, i64 1)
  %text = call ptr @pointer(ptr %chosen, i64 2)
  call void @PyErr_SetString(ptr %class, ptr %text)
  ret void
}}
define internal ptr @int_tuple(ptr %numbers, i64 %rank) {{
entry:
  %tuple = call ptr @PyTuple_New(i64 %rank)
  %none = icmp eq ptr %tuple, null
  br i1 %none, label %fail, label %loop
loop:
  %index = phi i64 [ 0, %entry ], [ %next, %set ]
  %more = icmp ult i64 %index, %rank
  br i1 %more, label %one, label %done
one:
  %number = call i64 @word(ptr %numbers, i64 %index)
  %object = call ptr @PyLong_FromLongLong(i64 %number)
  %failed = icmp eq ptr %object, null
  br i1 %failed, label %drop, label %set
set:
  %ignored = call i32 @PyTuple_SetItem(ptr %tuple, i64 %index, ptr %object)
  %next = add i64 %index, 1
  br label %loop
done:
  ret ptr %tuple
drop:
  call void @Py_DecRef(ptr %tuple)
  br label %fail
fail:
  ret ptr null
}}
; Sizes or strides of a row as a tuple, a new reference: one that the plan has, or from the table.
define internal ptr @shape_of(ptr %row, i64 %place, ptr %table) {{
  %moves = call i64 @word(ptr %row, i64 6)
  %fixed = icmp eq i64 %moves, 0
  br i1 %fixed, label %known, label %make
known:
  %held = call ptr @pointer(ptr %row, i64 %place)
  call void @Py_IncRef(ptr %held)
  ret ptr %held
make:
  %offset = call i64 @word(ptr %row, i64 %place)
  %rank = call i64 @word(ptr %row, i64 7)
  %numbers = getelementptr i8, ptr %table, i64 %offset
  %made = call ptr @int_tuple(ptr %numbers, i64 %rank)
  ret ptr %made
}}
define internal ptr @view(ptr %plan, ptr %base, ptr %row, i64 %offset, ptr %table) {{
  %arguments = alloca [4 x ptr]
  %number = call ptr @PyLong_FromLongLong(i64 %offset)
  %none = icmp eq ptr %number, null
  br i1 %none, label %fail, label %first
first:
  %sizes = call ptr @shape_of(ptr %row, i64 2, ptr %table)
  %no.sizes = icmp eq ptr %sizes, null
  br i1 %no.sizes, label %drop.number, label %second
second:
  %strides = call ptr @shape_of(ptr %row, i64 3, ptr %table)
  %no.strides = icmp eq ptr %strides, null
  br i1 %no.strides, label %drop.sizes, label %go
go:
  store ptr %base, ptr %arguments
  %second.at = getelementptr ptr, ptr %arguments, i64 1
  store ptr %sizes, ptr %second.at
  %third.at = getelementptr ptr, ptr %arguments, i64 2
  store ptr %strides, ptr %third.at
  %fourth.at = getelementptr ptr, ptr %arguments, i64 3
  store ptr %number, ptr %fourth.at
  %method = call ptr @pointer(ptr %plan, i64 {AS_STRIDED})
  %result = call ptr @PyObject_Vectorcall(ptr %method, ptr %arguments, i64 4, ptr null)
  call void @Py_DecRef(ptr %strides)
  br label %drop.sizes
drop.sizes:
  %late = phi ptr [ null, %second ], [ %result, %go ]
  call void @Py_DecRef(ptr %sizes)
  br label %drop.number
drop.number:
  %answer = phi ptr [ null, %first ], [ %late, %drop.sizes ]
  call void @Py_DecRef(ptr %number)
  ret ptr %answer
fail:
  ret ptr null
}}
define internal void @drop_objects(ptr %objects, i64 %count) {{
entry:
  br label %loop
loop:
  %index = phi i64 [ 0, %entry ], [ %next, %skip ]
  %more = icmp ult i64 %index, %count
  br i1 %more, label %look, label %done
look:
  %object = call ptr @pointer(ptr %objects, i64 %index)
  %empty = icmp eq ptr %object, null
  br i1 %empty, label %skip, label %drop
drop:
  call void @Py_DecRef(ptr %object)
  br label %skip
skip:
  %next = add i64 %index, 1
  br label %loop
done:
  ret void
}}
define internal void @drop_handles(ptr %handles, i64 %count) {{
entry:
  br label %loop
loop:
  %index = phi i64 [ 0, %entry ], [ %next, %skip ]
  %more = icmp ult i64 %index, %count
  br i1 %more, label %look, label %done
look:
  %handle = call ptr @pointer(ptr %handles, i64 %index)
  %empty = icmp eq ptr %handle, null
  br i1 %empty, label %skip, label %drop
drop:
  %ignored = call i32 @aoti_torch_delete_tensor_object(ptr %handle)
  br label %skip
skip:
  %next = add i64 %index, 1
  br label %loop
done:
  ret void
}}
define internal i1 @fill_inputs(ptr %plan, ptr %tensors, ptr %table, ptr %buffers) {{
entry:
  %count = call i64 @word(ptr %plan, i64 {INPUTS})
  %rows = call ptr @pointer(ptr %plan, i64 {INPUT_ROWS})
  br label %loop
loop:
  %index = phi i64 [ 0, %entry ], [ %next, %store ]
  %more = icmp ult i64 %index, %count
  br i1 %more, label %row, label %done
row:
  %first = mul i64 %index, {INPUT_ROW_WORDS}
  %at = getelementptr i64, ptr %rows, i64 %first
  %position = call i64 @word(ptr %at, i64 0)
  %buffer = call i64 @word(ptr %at, i64 1)
  %item = call i64 @word(ptr %at, i64 2)
  %elements = call i64 @quantity(ptr %at, i64 3, ptr %table)
  %object = call ptr @pointer(ptr %tensors, i64 %position)
  %number = icmp eq i64 %item, 0
  br i1 %number, label %float, label %tensor
float:
  ; A Python float is read where it stands.
  %inside = getelementptr i8, ptr %object, i64 {objects.float_value}
  br label %found
tensor:
  %handle = getelementptr i8, ptr %object, i64 {tensors.handle}
  %start = call ptr @data_of(ptr %handle, i64 %item)
  br label %found
found:
  %data = phi ptr [ %inside, %float ], [ %start, %tensor ]
  %null = icmp eq ptr %data, null
  %some = icmp ne i64 %elements, 0
  %bad = and i1 %null, %some
  br i1 %bad, label %fail, label %store
store:
  %slot = getelementptr ptr, ptr %buffers, i64 %buffer
  store ptr %data, ptr %slot
  %next = add i64 %index, 1
  br label %loop
done:
  ret i1 1
fail:
  %class = load ptr, ptr @PyExc_RuntimeError
  call void @PyErr_SetString(ptr %class, ptr @no_memory)
  ret i1 0
}}
define internal i1 @fill_fresh(ptr %plan, ptr %handles, ptr %table, ptr %buffers) {{
entry:
  %count = call i64 @word(ptr %plan, i64 {FRESH})
  %rows = call ptr @pointer(ptr %plan, i64 {FRESH_ROWS})
  br label %loop
loop:
  %index = phi i64 [ 0, %entry ], [ %next, %store ]
  %more = icmp ult i64 %index, %count
  br i1 %more, label %row, label %done
row:
  %first = mul i64 %index, {FRESH_ROW_WORDS}
  %at = getelementptr i64, ptr %rows, i64 %first
  %buffer = call i64 @word(ptr %at, i64 0)
  %rank = call i64 @word(ptr %at, i64 1)
  %moves = call i64 @word(ptr %at, i64 5)
  %fixed = icmp eq i64 %moves, 0
  %base = select i1 %fixed, ptr null, ptr %table
  %sizes.place = call i64 @word(ptr %at, i64 2)
  %strides.place = call i64 @word(ptr %at, i64 3)
  %base.word = ptrtoint ptr %base to i64
  %sizes.word = add i64 %base.word, %sizes.place
  %strides.word = add i64 %base.word, %strides.place
  %sizes = inttoptr i64 %sizes.word to ptr
  %strides = inttoptr i64 %strides.word to ptr
  %dtype.word = call i64 @word(ptr %at, i64 4)
  %dtype = trunc i64 %dtype.word to i32
  %slot = getelementptr ptr, ptr %handles, i64 %index
  %bytes = call i64 @quantity(ptr %at, i64 6, ptr %table)
  %keep.word = call i64 @word(ptr %at, i64 8)
  %keep = icmp ne i64 %keep.word, 0
  br i1 %keep, label %again, label %allocate
again:
  %found = call i1 @kept.take(i64 %bytes, i64 %dtype.word, i64 %rank, ptr %sizes, ptr %strides,
    ptr %slot)
  br i1 %found, label %store, label %allocate
allocate:
  %failed = call i32 @aoti_torch_empty_strided(i64 %rank, ptr %sizes, ptr %strides, i32 %dtype,
    i32 0, i32 0, ptr %slot)
  %ok = icmp eq i32 %failed, 0
  br i1 %ok, label %allocated, label %fail
allocated:
  %new = load ptr, ptr %slot
  br i1 %keep, label %remember, label %store
remember:
  call void @kept.add(ptr %new, i64 %bytes, i64 %dtype.word, i64 %rank, ptr %sizes, ptr %strides)
  br label %store
store:
  %handle = load ptr, ptr %slot
  %data = call ptr @data_of(ptr %handle, i64 1)
  %target = getelementptr ptr, ptr %buffers, i64 %buffer
  store ptr %data, ptr %target
  %next = add i64 %index, 1
  br label %loop
done:
  ret i1 1
fail:
  store ptr null, ptr %slot
  call void @raise(ptr %plan, i32 {NO_MEMORY})
  ret i1 0
}}
define internal void @fill_arena(ptr %plan, ptr %arena, ptr %table, ptr %buffers) {{
entry:
  %count = call i64 @word(ptr %plan, i64 {ARENA_COUNT})
  %rows = call ptr @pointer(ptr %plan, i64 {ARENA_ROWS})
  br label %loop
loop:
  %index = phi i64 [ 0, %entry ], [ %next, %row ]
  %more = icmp ult i64 %index, %count
  br i1 %more, label %row, label %done
row:
  %first = mul i64 %index, {ARENA_ROW_WORDS}
  %at = getelementptr i64, ptr %rows, i64 %first
  %buffer = call i64 @word(ptr %at, i64 0)
  %offset = call i64 @quantity(ptr %at, i64 1, ptr %table)
  %data = getelementptr i8, ptr %arena, i64 %offset
  %slot = getelementptr ptr, ptr %buffers, i64 %buffer
  store ptr %data, ptr %slot
  %next = add i64 %index, 1
  br label %loop
done:
  ret void
}}
define internal void @count_inputs(ptr %plan, ptr %tensors, i1 %up) {{
entry:
  %count = call i64 @word(ptr %plan, i64 {INPUTS})
  %rows = call ptr @pointer(ptr %plan, i64 {INPUT_ROWS})
  br label %loop
loop:
  %index = phi i64 [ 0, %entry ], [ %next, %counted ]
  %more = icmp ult i64 %index, %count
  br i1 %more, label %row, label %done
row:
  %first = mul i64 %index, {INPUT_ROW_WORDS}
  %position = call i64 @word(ptr %rows, i64 %first)
  %object = call ptr @pointer(ptr %tensors, i64 %position)
  br i1 %up, label %increase, label %decrease
increase:
  call void @Py_IncRef(ptr %object)
  br label %counted
decrease:
  call void @Py_DecRef(ptr %object)
  br label %counted
counted:
  %next = add i64 %index, 1
  br label %loop
done:
  ret void
}}
define internal i32 @step(ptr %plan, ptr %tensors, ptr %table, ptr %buffers, i1 %release) {{
  %function = call ptr @pointer(ptr %plan, i64 {STEP})
  br i1 %release, label %released, label %held
held:
  %code = call i32 %function(ptr %buffers, ptr %table)
  ret i32 %code
released:
  ; Another thread may drop an input meanwhile: hold them.
  call void @count_inputs(ptr %plan, ptr %tensors, i1 1)
  %thread = call ptr @PyEval_SaveThread()
  %answer = call i32 %function(ptr %buffers, ptr %table)
  call void @PyEval_RestoreThread(ptr %thread)
  ret i32 %answer
}}
define internal i1 @make_objects(ptr %plan, ptr %tensors, ptr %handles, ptr %table,
    ptr %objects) {{
entry:
  %count = call i64 @word(ptr %plan, i64 {OBJECTS})
  %rows = call ptr @pointer(ptr %plan, i64 {OBJECT_ROWS})
  br label %pin
pin:
  ; Wrapping may run the collector, hence any code: first hold the inputs that are still needed.
  %p = phi i64 [ 0, %entry ], [ %p.next, %p.done ]
  %p.more = icmp ult i64 %p, %count
  br i1 %p.more, label %p.row, label %loop
p.row:
  %p.first = mul i64 %p, {OBJECT_ROW_WORDS}
  %p.at = getelementptr i64, ptr %rows, i64 %p.first
  %p.kind = call i64 @word(ptr %p.at, i64 0)
  %p.input = icmp eq i64 %p.kind, {INPUT}
  %p.view = icmp eq i64 %p.kind, {INPUT_VIEW}
  %p.needed = or i1 %p.input, %p.view
  br i1 %p.needed, label %p.hold, label %p.done
p.hold:
  %p.index = call i64 @word(ptr %p.at, i64 1)
  %p.object = call ptr @pointer(ptr %tensors, i64 %p.index)
  call void @Py_IncRef(ptr %p.object)
  %p.slot = getelementptr ptr, ptr %objects, i64 %p
  store ptr %p.object, ptr %p.slot
  br label %p.done
p.done:
  %p.next = add i64 %p, 1
  br label %pin
loop:
  %index = phi i64 [ 0, %pin ], [ %next, %made ]
  %more = icmp ult i64 %index, %count
  br i1 %more, label %row, label %done
row:
  %first = mul i64 %index, {OBJECT_ROW_WORDS}
  %at = getelementptr i64, ptr %rows, i64 %first
  %kind = call i64 @word(ptr %at, i64 0)
  %from = call i64 @word(ptr %at, i64 1)
  %offset = call i64 @quantity(ptr %at, i64 4, ptr %table)
  %slot = getelementptr ptr, ptr %objects, i64 %index
  switch i64 %kind, label %nothing [ i64 {INPUT}, label %made
                                     i64 {INPUT_VIEW}, label %input_view
                                     i64 {RESULT}, label %result
                                     i64 {OBJECT_VIEW}, label %object_view ]
nothing:
  call void @Py_IncRef(ptr @_Py_NoneStruct)
  store ptr @_Py_NoneStruct, ptr %slot
  br label %made
input_view:
  %input = load ptr, ptr %slot
  %impl = call ptr @behind(ptr %input, i64 {tensors.handle})
  %origin = call i64 @field(ptr %impl, i64 {tensors.storage_offset})
  %shifted = add i64 %origin, %offset
  %seen = call ptr @view(ptr %plan, ptr %input, ptr %at, i64 %shifted, ptr %table)
  store ptr %seen, ptr %slot
  call void @Py_DecRef(ptr %input)
  br label %checked
result:
  %handle = call ptr @pointer(ptr %handles, i64 %from)
  %wrapped = call ptr @{torch_abi.WRAP}(ptr %handle)
  store ptr %wrapped, ptr %slot
  br label %checked
object_view:
  %base = call ptr @pointer(ptr %objects, i64 %from)
  %part = call ptr @view(ptr %plan, ptr %base, ptr %at, i64 %offset, ptr %table)
  store ptr %part, ptr %slot
  br label %checked
checked:
  %object = load ptr, ptr %slot
  %failed = icmp eq ptr %object, null
  br i1 %failed, label %fail, label %made
made:
  %next = add i64 %index, 1
  br label %loop
done:
  ret i1 1
fail:
  ret i1 0
}}
define internal ptr @structure(ptr %plan, ptr %objects) {{
entry:
  %kind = call i64 @word(ptr %plan, i64 {STRUCTURE})
  %count = call i64 @word(ptr %plan, i64 {ORDER_COUNT})
  %order = call ptr @pointer(ptr %plan, i64 {ORDER})
  switch i64 %kind, label %leaf [ i64 {TUPLE}, label %tuple
                                  i64 {LIST}, label %list ]
leaf:
  %only.index = load i64, ptr %order
  %only = call ptr @pointer(ptr %objects, i64 %only.index)
  call void @Py_IncRef(ptr %only)
  ret ptr %only
tuple:
  %new.tuple = call ptr @PyTuple_New(i64 %count)
  br label %made
list:
  %new.list = call ptr @PyList_New(i64 %count)
  br label %made
made:
  %whole = phi ptr [ %new.tuple, %tuple ], [ %new.list, %list ]
  %none = icmp eq ptr %whole, null
  br i1 %none, label %done, label %loop
loop:
  %index = phi i64 [ 0, %made ], [ %next, %set ]
  %more = icmp ult i64 %index, %count
  br i1 %more, label %item, label %done
item:
  %from = call i64 @word(ptr %order, i64 %index)
  %object = call ptr @pointer(ptr %objects, i64 %from)
  call void @Py_IncRef(ptr %object)
  %is.tuple = icmp eq i64 %kind, {TUPLE}
  br i1 %is.tuple, label %in.tuple, label %in.list
in.tuple:
  %ignored.tuple = call i32 @PyTuple_SetItem(ptr %whole, i64 %index, ptr %object)
  br label %set
in.list:
  %ignored.list = call i32 @PyList_SetItem(ptr %whole, i64 %index, ptr %object)
  br label %set
set:
  %next = add i64 %index, 1
  br label %loop
done:
  ret ptr %whole
}}
define internal ptr @execute(ptr %plan, ptr %tensors, ptr %table) {{
entry:
  %buffer.count = call i64 @word(ptr %plan, i64 {BUFFERS})
  %buffers = alloca ptr, i64 %buffer.count
  %buffer.bytes = mul i64 %buffer.count, 8
  %template = call ptr @pointer(ptr %plan, i64 {TEMPLATE})
  call void @llvm.memcpy.p0.p0.i64(ptr %buffers, ptr %template, i64 %buffer.bytes, i1 false)
  %handle.count = call i64 @word(ptr %plan, i64 {FRESH})
  %handles = alloca ptr, i64 %handle.count
  %handle.bytes = mul i64 %handle.count, 8
  call void @llvm.memset.p0.i64(ptr %handles, i8 0, i64 %handle.bytes, i1 false)
  %object.count = call i64 @word(ptr %plan, i64 {OBJECTS})
  %objects = alloca ptr, i64 %object.count
  %object.bytes = mul i64 %object.count, 8
  call void @llvm.memset.p0.i64(ptr %objects, i8 0, i64 %object.bytes, i1 false)
  %read = call i1 @fill_inputs(ptr %plan, ptr %tensors, ptr %table, ptr %buffers)
  br i1 %read, label %allocate, label %finish.unread
finish.unread:
  br label %finish
allocate:
  %allocated = call i1 @fill_fresh(ptr %plan, ptr %handles, ptr %table, ptr %buffers)
  br i1 %allocated, label %arena, label %finish.unallocated
finish.unallocated:
  br label %finish
arena:
  %arena.bytes = call i64 @quantity(ptr %plan, i64 {ARENA_BYTES}, ptr %table)
  %wants = icmp ne i64 %arena.bytes, 0
  br i1 %wants, label %take, label %run
take:
  %taken = call ptr @arena.take(i64 %arena.bytes)
  %short = icmp eq ptr %taken, null
  br i1 %short, label %starved, label %place
starved:
  call void @raise(ptr %plan, i32 {NO_MEMORY})
  br label %finish
place:
  call void @fill_arena(ptr %plan, ptr %taken, ptr %table, ptr %buffers)
  br label %run
run:
  %block = phi ptr [ null, %arena ], [ %taken, %place ]
  %function = call ptr @pointer(ptr %plan, i64 {STEP})
  %idle = icmp eq ptr %function, null
  %touched = call i64 @quantity(ptr %plan, i64 {TOUCHED}, ptr %table)
  %release = icmp sge i64 %touched, {RELEASE_BYTES}
  br i1 %idle, label %wrap, label %work
work:
  %code = call i32 @step(ptr %plan, ptr %tensors, ptr %table, ptr %buffers, i1 %release)
  %lent = icmp ne ptr %block, null
  br i1 %lent, label %give, label %judge
give:
  call void @arena.give(ptr %block)
  br label %judge
judge:
  %failed = icmp ne i32 %code, 0
  br i1 %failed, label %raise, label %wrap.first
raise:
  call void @raise(ptr %plan, i32 %code)
  br label %finish.released
wrap.first:
  br label %wrap
wrap:
  %made = call i1 @make_objects(ptr %plan, ptr %tensors, ptr %handles, ptr %table,
    ptr %objects)
  br i1 %made, label %assemble, label %finish.released
assemble:
  %whole = call ptr @structure(ptr %plan, ptr %objects)
  br label %finish.released
finish.released:
  %late = phi ptr [ null, %raise ], [ null, %wrap ], [ %whole, %assemble ]
  %idle.again = icmp eq ptr %function, null
  %held = xor i1 %release, 1
  %uncounted = or i1 %idle.again, %held
  br i1 %uncounted, label %finish, label %uncount
uncount:
  call void @count_inputs(ptr %plan, ptr %tensors, i1 0)
  br label %finish
finish:
  %result = phi ptr [ null, %finish.unread ], [ null, %finish.unallocated ], [ null, %starved ],
    [ %late, %finish.released ], [ %late, %uncount ]
  call void @drop_objects(ptr %objects, i64 %object.count)
  call void @drop_handles(ptr %handles, i64 %handle.count)
  call void @kept.sweep()
  ret ptr %result
}}
"""
