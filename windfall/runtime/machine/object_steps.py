"""Steps of a check that walk and compare Python objects.

Record: address of the step, its size in bytes, operands from word 2 on. A value operand is the
address of a cell. Answers: 0 miss, 1 holds, 2 start the check again.
"""

from __future__ import annotations

from windfall.runtime.machine.layout import DICT_FLAG, LIST_FLAG, TUPLE_FLAG, TYPE_FLAG
from windfall.torch_abi import ObjectLayout


def text(layout: ObjectLayout, version: int | None) -> str:
    """Steps of a check that walk and compare Python objects."""
    # Without version tags every read looks its keys up again: slower, equally right.
    unchanged = (
        f"""%version = call i64 @field(ptr %object, i64 {version})
  %known = call i64 @word(ptr %record, i64 3)
  %unchanged = icmp eq i64 %version, %known"""
        if version is not None
        else """%version = add i64 0, 0
  %unchanged = icmp eq i64 0, 1"""
    )
    return f"""
define internal i1 @has_flag(ptr %object, i64 %flag) alwaysinline {{
  %type = call ptr @behind(ptr %object, i64 {layout.type})
  %flags = call i64 @field(ptr %type, i64 {layout.type_flags})
  %masked = and i64 %flags, %flag
  %has = icmp ne i64 %masked, 0
  ret i1 %has
}}
define i32 @op.type(ptr %record, ptr %args) {{
  %object = call ptr @value(ptr %record, i64 2)
  %type = call i64 @field(ptr %object, i64 {layout.type})
  %wanted = call i64 @word(ptr %record, i64 3)
  %same = icmp eq i64 %type, %wanted
  %answer = zext i1 %same to i32
  ret i32 %answer
}}
define i32 @op.is(ptr %record, ptr %args) {{
  %object = call ptr @value(ptr %record, i64 2)
  %wanted = call ptr @pointer(ptr %record, i64 3)
  %same = icmp eq ptr %object, %wanted
  %answer = zext i1 %same to i32
  ret i32 %answer
}}
define i32 @op.same(ptr %record, ptr %args) {{
  %object = call ptr @value(ptr %record, i64 2)
  %other = call ptr @value(ptr %record, i64 3)
  %wanted = call i64 @word(ptr %record, i64 4)
  %same = icmp eq ptr %object, %other
  %seen = zext i1 %same to i64
  %right = icmp eq i64 %seen, %wanted
  %answer = zext i1 %right to i32
  ret i32 %answer
}}
define i32 @op.word(ptr %record, ptr %args) {{
  %object = call ptr @value(ptr %record, i64 2)
  %type = call i64 @field(ptr %object, i64 {layout.type})
  %class = call i64 @word(ptr %record, i64 3)
  %typed = icmp eq i64 %type, %class
  br i1 %typed, label %read, label %miss
read:
  %offset = call i64 @word(ptr %record, i64 4)
  %have = call i64 @field(ptr %object, i64 %offset)
  %wanted = call i64 @word(ptr %record, i64 5)
  %same = icmp eq i64 %have, %wanted
  %answer = zext i1 %same to i32
  ret i32 %answer
miss:
  ret i32 0
}}
define i32 @op.int(ptr %record, ptr %args) {{
  %object = call ptr @value(ptr %record, i64 2)
  %constant = call ptr @pointer(ptr %record, i64 3)
  %type = call ptr @behind(ptr %object, i64 {layout.type})
  %typed = icmp eq ptr %type, @PyLong_Type
  br i1 %typed, label %tag, label %miss
tag:
  %have = call i64 @field(ptr %object, i64 {layout.int_tag})
  %wanted = call i64 @field(ptr %constant, i64 {layout.int_tag})
  %alike = icmp eq i64 %have, %wanted
  br i1 %alike, label %digits, label %miss
digits:
  %bytes = call i64 @word(ptr %record, i64 4)
  %ours = getelementptr i8, ptr %constant, i64 {layout.int_tag + 8}
  %theirs = getelementptr i8, ptr %object, i64 {layout.int_tag + 8}
  %difference = call i32 @memcmp(ptr %ours, ptr %theirs, i64 %bytes)
  %same = icmp eq i32 %difference, 0
  %answer = zext i1 %same to i32
  ret i32 %answer
miss:
  ret i32 0
}}
define internal i1 @same_text(ptr %object, ptr %constant) {{
  %identical = icmp eq ptr %object, %constant
  br i1 %identical, label %yes, label %typed
typed:
  %type = call ptr @behind(ptr %object, i64 {layout.type})
  %text = icmp eq ptr %type, @PyUnicode_Type
  br i1 %text, label %compare, label %no
compare:
  %order = call i32 @PyUnicode_Compare(ptr %object, ptr %constant)
  %same = icmp eq i32 %order, 0
  ret i1 %same
yes:
  ret i1 1
no:
  ret i1 0
}}
define i32 @op.string(ptr %record, ptr %args) {{
  %object = call ptr @value(ptr %record, i64 2)
  %constant = call ptr @pointer(ptr %record, i64 3)
  %same = call i1 @same_text(ptr %object, ptr %constant)
  %answer = zext i1 %same to i32
  ret i32 %answer
}}
define i32 @op.resolves(ptr %record, ptr %args) {{
  %object = call ptr @value(ptr %record, i64 2)
  %class = call i1 @has_flag(ptr %object, i64 {TYPE_FLAG})
  br i1 %class, label %find, label %miss
find:
  %name = call ptr @pointer(ptr %record, i64 3)
  %wanted = call ptr @pointer(ptr %record, i64 4)
  %found = call ptr @_PyType_Lookup(ptr %object, ptr %name)
  %same = icmp eq ptr %found, %wanted
  %answer = zext i1 %same to i32
  ret i32 %answer
miss:
  ret i32 0
}}
define i32 @op.type_of(ptr %record, ptr %args) {{
  %object = call ptr @value(ptr %record, i64 2)
  %cell = call ptr @pointer(ptr %record, i64 3)
  %type = call ptr @behind(ptr %object, i64 {layout.type})
  store ptr %type, ptr %cell
  ret i32 1
}}
define i32 @op.load(ptr %record, ptr %args) {{
  %object = call ptr @value(ptr %record, i64 2)
  %cell = call ptr @pointer(ptr %record, i64 3)
  %class = call i64 @word(ptr %record, i64 4)
  %type = call i64 @field(ptr %object, i64 {layout.type})
  %typed = icmp eq i64 %type, %class
  br i1 %typed, label %read, label %miss
read:
  %offset = call i64 @word(ptr %record, i64 5)
  %found = call ptr @behind(ptr %object, i64 %offset)
  %empty = icmp eq ptr %found, null
  %default = call ptr @pointer(ptr %record, i64 6)
  %value = select i1 %empty, ptr %default, ptr %found
  store ptr %value, ptr %cell
  %absent = icmp eq ptr %value, null
  br i1 %absent, label %miss, label %done
done:
  ret i32 1
miss:
  ret i32 0
}}
define i32 @op.dict_of(ptr %record, ptr %args) {{
  %object = call ptr @value(ptr %record, i64 2)
  %cell = call ptr @pointer(ptr %record, i64 3)
  %type = call ptr @behind(ptr %object, i64 {layout.type})
  %flags = call i64 @field(ptr %type, i64 {layout.type_flags})
  %managed.bit = and i64 %flags, {layout.managed_dict_flag}
  %managed = icmp ne i64 %managed.bit, 0
  br i1 %managed, label %before, label %otherwise
before:
  br label %read
otherwise:
  %class.bit = and i64 %flags, {TYPE_FLAG}
  %class = icmp ne i64 %class.bit, 0
  br i1 %class, label %of_class, label %inside
of_class:
  br label %read
inside:
  %offset = call i64 @field(ptr %type, i64 {layout.type_dict_offset})
  %has = icmp sgt i64 %offset, 0
  br i1 %has, label %read, label %miss
read:
  %at = phi i64 [ {layout.managed_dict}, %before ], [ {layout.type_dict}, %of_class ],
    [ %offset, %inside ]
  %found = call ptr @behind(ptr %object, i64 %at)
  %empty = icmp eq ptr %found, null
  br i1 %empty, label %make, label %done
make:
  ; Not made yet: making it allocates, which may collect garbage, so all is read again after that.
  %made = call ptr @PyObject_GenericGetDict(ptr %object, ptr null)
  %failed = icmp eq ptr %made, null
  br i1 %failed, label %clear, label %again
clear:
  call void @PyErr_Clear()
  br label %miss
again:
  call void @Py_DecRef(ptr %made)
  ret i32 2
done:
  store ptr %found, ptr %cell
  ret i32 1
miss:
  ret i32 0
}}
define i32 @op.dict_read(ptr %record, ptr %args) {{
entry:
  %object = call ptr @value(ptr %record, i64 2)
  %dict = call i1 @has_flag(ptr %object, i64 {DICT_FLAG})
  br i1 %dict, label %version.of, label %miss
version.of:
  {unchanged}
  br i1 %unchanged, label %done, label %look
look:
  %count = call i64 @word(ptr %record, i64 4)
  %rows = getelementptr i64, ptr %record, i64 5
  br label %loop
loop:
  %index = phi i64 [ 0, %look ], [ %next, %store ]
  %more = icmp ult i64 %index, %count
  br i1 %more, label %row, label %refresh
row:
  %start = mul i64 %index, 3
  %at = getelementptr i64, ptr %rows, i64 %start
  %key = call ptr @pointer(ptr %at, i64 0)
  %cell = call ptr @pointer(ptr %at, i64 1)
  %wanted = call i64 @word(ptr %at, i64 2)
  %found = call ptr @PyDict_GetItemWithError(ptr %object, ptr %key)
  %present = icmp ne ptr %found, null
  %seen = zext i1 %present to i64
  %right = icmp eq i64 %seen, %wanted
  br i1 %right, label %store, label %wrong
store:
  store ptr %found, ptr %cell
  %next = add i64 %index, 1
  br label %loop
refresh:
  %tag = getelementptr i64, ptr %record, i64 3
  store i64 %version, ptr %tag
  br label %done
done:
  ret i32 1
wrong:
  call void @PyErr_Clear()
  br label %miss
miss:
  ret i32 0
}}
define i32 @op.keys(ptr %record, ptr %args) {{
entry:
  %position = alloca i64
  %key = alloca ptr
  %item = alloca ptr
  %object = call ptr @value(ptr %record, i64 2)
  %type = call ptr @behind(ptr %object, i64 {layout.type})
  %dict = icmp eq ptr %type, @PyDict_Type
  br i1 %dict, label %version.of, label %miss
version.of:
  {unchanged}
  br i1 %unchanged, label %done, label %look
look:
  %count = call i64 @word(ptr %record, i64 4)
  %size = call i64 @field(ptr %object, i64 {layout.size})
  %sized = icmp eq i64 %size, %count
  store i64 0, ptr %position
  br i1 %sized, label %loop, label %miss
loop:
  %index = phi i64 [ 0, %look ], [ %next, %compare ]
  %more = icmp ult i64 %index, %count
  br i1 %more, label %row, label %refresh
row:
  %got = call i32 @PyDict_Next(ptr %object, ptr %position, ptr %key, ptr %item)
  %any = icmp ne i32 %got, 0
  br i1 %any, label %compare.first, label %miss
compare.first:
  %place = add i64 %index, 5
  %wanted = call ptr @pointer(ptr %record, i64 %place)
  %have = load ptr, ptr %key
  %same = call i1 @same_text(ptr %have, ptr %wanted)
  br i1 %same, label %compare, label %miss
compare:
  %next = add i64 %index, 1
  br label %loop
refresh:
  %tag = getelementptr i64, ptr %record, i64 3
  store i64 %version, ptr %tag
  br label %done
done:
  ret i32 1
miss:
  ret i32 0
}}
define i32 @op.item(ptr %record, ptr %args) {{
  %object = call ptr @value(ptr %record, i64 2)
  %cell = call ptr @pointer(ptr %record, i64 3)
  %wanted = call i64 @word(ptr %record, i64 4)
  %type = call ptr @behind(ptr %object, i64 {layout.type})
  %flags = call i64 @field(ptr %type, i64 {layout.type_flags})
  %tuple.bit = and i64 %flags, {TUPLE_FLAG}
  %tuple = icmp ne i64 %tuple.bit, 0
  br i1 %tuple, label %of_tuple, label %not_tuple
of_tuple:
  %inline = getelementptr i8, ptr %object, i64 {layout.tuple_items}
  br label %sequence
not_tuple:
  %list.bit = and i64 %flags, {LIST_FLAG}
  %list = icmp ne i64 %list.bit, 0
  br i1 %list, label %of_list, label %not_list
of_list:
  %outside = call ptr @behind(ptr %object, i64 {layout.list_items})
  br label %sequence
not_list:
  %dict.bit = and i64 %flags, {DICT_FLAG}
  %dict = icmp ne i64 %dict.bit, 0
  br i1 %dict, label %of_dict, label %miss
of_dict:
  %key = call ptr @pointer(ptr %record, i64 5)
  %found = call ptr @PyDict_GetItemWithError(ptr %object, ptr %key)
  %absent = icmp eq ptr %found, null
  br i1 %absent, label %clear, label %done
sequence:
  %items = phi ptr [ %inline, %of_tuple ], [ %outside, %of_list ]
  %size = call i64 @field(ptr %object, i64 {layout.size})
  %from_end = icmp slt i64 %wanted, 0
  %wrapped = add i64 %wanted, %size
  %index = select i1 %from_end, i64 %wrapped, i64 %wanted
  %inside = icmp ult i64 %index, %size
  br i1 %inside, label %take, label %miss
take:
  %item = call ptr @pointer(ptr %items, i64 %index)
  br label %done
done:
  %value = phi ptr [ %found, %of_dict ], [ %item, %take ]
  store ptr %value, ptr %cell
  ret i32 1
clear:
  call void @PyErr_Clear()
  br label %miss
miss:
  ret i32 0
}}
"""
