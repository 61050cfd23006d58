"""Steps of a check that walk and compare Python objects.

Record: address of the step, its size in bytes, operands from word 2 on. A value operand is the
address of a cell. A step that holds goes on to the next record itself, the last one is `op.end`:
nothing stands between two steps. Answers: 0 miss, 1 all hold, 2 start the check again.
"""

from __future__ import annotations

from windfall.runtime.machine.basics import NEXT
from windfall.runtime.machine.layout import DICT_FLAG, LIST_FLAG, TUPLE_FLAG, TYPE_FLAG
from windfall.torch_abi import ObjectLayout

# A class that is written in C has its dictionary elsewhere: it is asked for, and lives as it does.
_DECLARE_ASK = "declare ptr @PyType_GetDict(ptr)"
_ASK_CLASS = """%none = icmp eq ptr %answer, null
  %hidden = and i1 %none, %class
  br i1 %hidden, label %ask, label %done
ask:
  %owned = call ptr @PyType_GetDict(ptr %object)
  call void @Py_DecRef(ptr %owned)
  ret ptr %owned
done:
  ret ptr %answer"""


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
    # Where no dictionary was made yet, a tagged pointer to the attributes may stand in its place.
    made = (
        f"""%bits = ptrtoint ptr %found to i64
  %tag = and i64 %bits, {layout.managed_dict_tag}
  %untagged = icmp eq i64 %tag, 0
  %made = select i1 %untagged, ptr %found, ptr null"""
        if layout.managed_dict_tag
        else "%made = select i1 true, ptr %found, ptr null"
    )
    classes = "ret ptr %answer" if layout.static_type_dict else _ASK_CLASS
    return f"""{"" if layout.static_type_dict else _DECLARE_ASK}
declare ptr @_PyObject_GetDictPtr(ptr)
define internal i1 @has_flag(ptr %object, i64 %flag) alwaysinline {{
  %type = call ptr @behind(ptr %object, i64 {layout.type})
  %flags = call i64 @field(ptr %type, i64 {layout.type_flags})
  %masked = and i64 %flags, %flag
  %has = icmp ne i64 %masked, 0
  ret i1 %has
}}
define i32 @op.end(ptr %record, ptr %args) {{
  ret i32 1
}}
define i32 @op.type(ptr %record, ptr %args) {{
  %object = call ptr @value(ptr %record, i64 2)
  %type = call i64 @field(ptr %object, i64 {layout.type})
  %wanted = call i64 @word(ptr %record, i64 3)
  %same = icmp eq i64 %type, %wanted
  br i1 %same, label %go, label %miss
{NEXT}
}}
define i32 @op.is(ptr %record, ptr %args) {{
  %object = call ptr @value(ptr %record, i64 2)
  %wanted = call ptr @pointer(ptr %record, i64 3)
  %same = icmp eq ptr %object, %wanted
  br i1 %same, label %go, label %miss
{NEXT}
}}
define i32 @op.same(ptr %record, ptr %args) {{
  %object = call ptr @value(ptr %record, i64 2)
  %other = call ptr @value(ptr %record, i64 3)
  %wanted = call i64 @word(ptr %record, i64 4)
  %same = icmp eq ptr %object, %other
  %seen = zext i1 %same to i64
  %right = icmp eq i64 %seen, %wanted
  br i1 %right, label %go, label %miss
{NEXT}
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
  br i1 %same, label %go, label %miss
{NEXT}
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
  br i1 %same, label %go, label %miss
{NEXT}
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
; Keys are text, or integers of 64 bits.
define internal i1 @same_key(ptr %object, ptr %constant) {{
  %overflow = alloca i32
  %identical = icmp eq ptr %object, %constant
  br i1 %identical, label %yes, label %kind
kind:
  %type = call ptr @behind(ptr %object, i64 {layout.type})
  %wanted = call ptr @behind(ptr %constant, i64 {layout.type})
  %alike = icmp eq ptr %type, %wanted
  br i1 %alike, label %compare, label %no
compare:
  %number = icmp eq ptr %type, @PyLong_Type
  br i1 %number, label %numbers, label %text
text:
  %same.text = call i1 @same_text(ptr %object, ptr %constant)
  ret i1 %same.text
numbers:
  %have = call i64 @PyLong_AsLongLongAndOverflow(ptr %object, ptr %overflow)
  %outside = load i32, ptr %overflow
  %fits = icmp eq i32 %outside, 0
  %want = call i64 @PyLong_AsLongLongAndOverflow(ptr %constant, ptr %overflow)
  %equal = icmp eq i64 %have, %want
  %same = and i1 %fits, %equal
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
  br i1 %same, label %go, label %miss
{NEXT}
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
  br i1 %same, label %go, label %miss
{NEXT}
}}
define i32 @op.answers(ptr %record, ptr %args) {{
entry:
  %object = call ptr @value(ptr %record, i64 2)
  %class = call i1 @has_flag(ptr %object, i64 {TYPE_FLAG})
  %count = call i64 @word(ptr %record, i64 3)
  %rows = getelementptr i64, ptr %record, i64 4
  br i1 %class, label %loop, label %miss
loop:
  %index = phi i64 [ 0, %entry ], [ %next, %row ]
  %more = icmp ult i64 %index, %count
  br i1 %more, label %row, label %go
row:
  %start = shl i64 %index, 1
  %at = getelementptr i64, ptr %rows, i64 %start
  %name = call ptr @pointer(ptr %at, i64 0)
  %wanted = call ptr @pointer(ptr %at, i64 1)
  %found = call ptr @_PyType_Lookup(ptr %object, ptr %name)
  %same = icmp eq ptr %found, %wanted
  %next = add i64 %index, 1
  br i1 %same, label %loop, label %miss
{NEXT}
}}
define i32 @op.type_of(ptr %record, ptr %args) {{
  %object = call ptr @value(ptr %record, i64 2)
  %cell = call ptr @pointer(ptr %record, i64 3)
  %type = call ptr @behind(ptr %object, i64 {layout.type})
  store ptr %type, ptr %cell
  br label %go
{NEXT}
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
  br i1 %absent, label %miss, label %go
{NEXT}
}}
; The dictionary of an object; null where it has none, or has not made it yet.
define internal ptr @dictionary(ptr %object) alwaysinline {{
  %type = call ptr @behind(ptr %object, i64 {layout.type})
  %flags = call i64 @field(ptr %type, i64 {layout.type_flags})
  %managed.bit = and i64 %flags, {layout.managed_dict_flag}
  %managed = icmp ne i64 %managed.bit, 0
  %class.bit = and i64 %flags, {TYPE_FLAG}
  %class = icmp ne i64 %class.bit, 0
  %inside = call i64 @field(ptr %type, i64 {layout.type_dict_offset})
  ; Behind a part whose length varies, as in subclasses of int and tuple.
  %backward = icmp slt i64 %inside, 0
  %unmanaged = xor i1 %managed, true
  %behind = and i1 %backward, %unmanaged
  br i1 %behind, label %far, label %near
far:
  %pointer = call ptr @_PyObject_GetDictPtr(ptr %object)
  %far.dictionary = load ptr, ptr %pointer
  ret ptr %far.dictionary
near:
  %or.class = select i1 %class, i64 {layout.type_dict}, i64 %inside
  %offset = select i1 %managed, i64 {layout.managed_dict}, i64 %or.class
  %forward = icmp sgt i64 %offset, 0
  %known = or i1 %managed, %forward
  ; Where there is none, its own type pointer is read instead: no branch, and not a dictionary.
  %place = select i1 %known, i64 %offset, i64 {layout.type}
  %found = call ptr @behind(ptr %object, i64 %place)
  {made}
  %answer = select i1 %known, ptr %made, ptr null
  {classes}
}}
; Make the dictionary of an object that has none yet. That allocates, which may collect garbage, so
; all is read again after it: 2. Or it cannot have one: 0.
define internal i32 @make_dictionary(ptr %object) {{
  %class = call i1 @has_flag(ptr %object, i64 {TYPE_FLAG})
  br i1 %class, label %miss, label %make
make:
  %made = call ptr @PyObject_GenericGetDict(ptr %object, ptr null)
  %failed = icmp eq ptr %made, null
  br i1 %failed, label %clear, label %again
clear:
  call void @PyErr_Clear()
  br label %miss
again:
  %found = call ptr @dictionary(ptr %object)
  %same = icmp eq ptr %found, %made
  call void @Py_DecRef(ptr %made)
  %answer = select i1 %same, i32 2, i32 0
  ret i32 %answer
miss:
  ret i32 0
}}
define i32 @op.dict_of(ptr %record, ptr %args) {{
  %object = call ptr @value(ptr %record, i64 2)
  %cell = call ptr @pointer(ptr %record, i64 3)
  %found = call ptr @dictionary(ptr %object)
  store ptr %found, ptr %cell
  %empty = icmp eq ptr %found, null
  br i1 %empty, label %make, label %go
make:
  %state = call i32 @make_dictionary(ptr %object)
  ret i32 %state
{NEXT}
}}
; The names that are read from a dictionary whose version moved. 0 or 1.
define internal i32 @look_up(ptr %record, ptr %object, i64 %version) {{
entry:
  ; Until all are found, the cells are those of no dictionary.
  %tag = getelementptr i64, ptr %record, i64 3
  store i64 0, ptr %tag
  %count = call i64 @word(ptr %record, i64 4)
  %rows = getelementptr i64, ptr %record, i64 5
  br label %loop
loop:
  %index = phi i64 [ 0, %entry ], [ %next, %store ]
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
  store i64 %version, ptr %tag
  ret i32 1
wrong:
  call void @PyErr_Clear()
  ret i32 0
}}
define i32 @op.dict_read(ptr %record, ptr %args) {{
  %object = call ptr @value(ptr %record, i64 2)
  br label %kind
kind:
  %dict = call i1 @has_flag(ptr %object, i64 {DICT_FLAG})
  br i1 %dict, label %version.of, label %miss
version.of:
  {unchanged}
  br i1 %unchanged, label %go, label %look
look:
  %known.now = call i32 @look_up(ptr %record, ptr %object, i64 %version)
  %all = icmp ne i32 %known.now, 0
  br i1 %all, label %go, label %miss
{NEXT}
}}
define i32 @op.attributes(ptr %record, ptr %args) {{
  %owner = call ptr @value(ptr %record, i64 2)
  %object = call ptr @dictionary(ptr %owner)
  %empty = icmp eq ptr %object, null
  br i1 %empty, label %make, label %kind
make:
  %state = call i32 @make_dictionary(ptr %owner)
  ret i32 %state
kind:
  %dict = call i1 @has_flag(ptr %object, i64 {DICT_FLAG})
  br i1 %dict, label %version.of, label %miss
version.of:
  {unchanged}
  br i1 %unchanged, label %go, label %look
look:
  %known.now = call i32 @look_up(ptr %record, ptr %object, i64 %version)
  %all = icmp ne i32 %known.now, 0
  br i1 %all, label %go, label %miss
{NEXT}
}}
define i32 @op.keys(ptr %record, ptr %args) {{
entry:
  %position = alloca i64
  %key = alloca ptr
  %item = alloca ptr
  %object = call ptr @value(ptr %record, i64 2)
  %type = call ptr @behind(ptr %object, i64 {layout.type})
  %class = call ptr @pointer(ptr %record, i64 5)
  %dict = icmp eq ptr %type, %class
  br i1 %dict, label %version.of, label %miss
version.of:
  {unchanged}
  br i1 %unchanged, label %go, label %look
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
  %place = add i64 %index, 6
  %wanted = call ptr @pointer(ptr %record, i64 %place)
  %have = load ptr, ptr %key
  %same = call i1 @same_key(ptr %have, ptr %wanted)
  br i1 %same, label %compare, label %miss
compare:
  %next = add i64 %index, 1
  br label %loop
refresh:
  %tag = getelementptr i64, ptr %record, i64 3
  store i64 %version, ptr %tag
  br label %go
{NEXT}
}}
define i32 @op.has_key(ptr %record, ptr %args) {{
  %object = call ptr @value(ptr %record, i64 2)
  %dict = call i1 @has_flag(ptr %object, i64 {DICT_FLAG})
  br i1 %dict, label %look, label %miss
look:
  %key = call ptr @pointer(ptr %record, i64 3)
  %wanted = call i64 @word(ptr %record, i64 4)
  %found = call ptr @PyDict_GetItemWithError(ptr %object, ptr %key)
  %present = icmp ne ptr %found, null
  %seen = zext i1 %present to i64
  %same = icmp eq i64 %seen, %wanted
  br i1 %present, label %judge, label %clear
clear:
  call void @PyErr_Clear()
  br label %judge
judge:
  br i1 %same, label %go, label %miss
{NEXT}
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
  br label %go
clear:
  call void @PyErr_Clear()
  br label %miss
{NEXT}
}}
"""
