"""Memory of large gradients, kept from one backward pass to the next.

A step of training throws the gradients away and makes new ones of the same sizes. Memory that goes
back to the system in between (the C library gives back what is large, or what lies at the top of
its heap) is faulted in again page by page: for BERT with four layers 50,000 faults, a fifth of the
step. So a second handle on the storage of each large result of a backward pass stays in a table;
when nobody else holds that storage any more, the next result of this size takes it.

Invariant: a storage is taken only while this table holds the only reference to it, and only where
it is what it was (it was not resized, nor moved to shared memory). Everything happens under the
GIL. What has not been used for a while is given back at the next call of any compiled function, and
all of it with the last function that could use it (`kept.trim`).
"""

from __future__ import annotations

from windfall.torch_abi import StorageCount, TensorLayout

PLACES = 512
SMALLEST = 1 << 20  # bytes
PATIENCE = 1 << 36  # cycles of the processor's clock, some twenty seconds
PAUSE = 1 << 33  # between two looks at what is idle

# A place of the table: handle, data pointer, bytes, dtype, when it was last seen in use.
_PLACE = "{ ptr, ptr, i64, i64, i64 }"


def text(tensors: TensorLayout, count: StorageCount | None) -> str:
    """`kept.take`, `kept.add`, `kept.sweep`, `kept.trim`. `count`: how a storage counts its owners;
    None: it is not known, and nothing is kept."""
    if count is None:
        return _NOTHING
    return f"""
declare i32 @aoti_torch__reinterpret_tensor(ptr, i64, ptr, ptr, i64, ptr)
declare i64 @llvm.readcyclecounter()
@kept = internal global [{PLACES} x {_PLACE}] zeroinitializer
@kept.some = internal global i64 0
@kept.looked = internal global i64 0
define internal ptr @kept.place(i64 %index) alwaysinline {{
  %at = getelementptr {_PLACE}, ptr @kept, i64 %index
  ret ptr %at
}}
define internal ptr @kept.storage(ptr %at) alwaysinline {{
  %handle = load ptr, ptr %at
  %impl = load ptr, ptr %handle
  %storage = call ptr @behind(ptr %impl, i64 {tensors.storage})
  ret ptr %storage
}}
; How often somebody else has the storage. Below 0: it is counted in a way of which we know nothing
; (Python has an object for it).
define internal i64 @kept.others(ptr %at) alwaysinline {{
  %storage = call ptr @kept.storage(ptr %at)
  %count.at = getelementptr i8, ptr %storage, i64 {count.offset}
  %count = load atomic i64, ptr %count.at acquire, align 8
  %more = sub i64 %count, {count.sole}
  %known = icmp ult i64 %more, {1 << 20}
  %others = select i1 %known, i64 %more, i64 -1
  ret i64 %others
}}
define internal void @kept.drop(ptr %at) {{
  %handle = load ptr, ptr %at
  store ptr null, ptr %at
  %some = load i64, ptr @kept.some
  %fewer = sub i64 %some, 1
  store i64 %fewer, ptr @kept.some
  %ignored = call i32 @aoti_torch_delete_tensor_object(ptr %handle)
  ret void
}}
; A tensor over memory that was kept; 0: there is none.
define internal i1 @kept.take(i64 %bytes, i64 %dtype, i64 %rank, ptr %sizes, ptr %strides,
    ptr %slot) {{
entry:
  br label %loop
loop:
  %index = phi i64 [ 0, %entry ], [ %next, %skip ]
  %more = icmp ult i64 %index, {PLACES}
  br i1 %more, label %look, label %none
look:
  %at = call ptr @kept.place(i64 %index)
  %handle = load ptr, ptr %at
  %empty = icmp eq ptr %handle, null
  br i1 %empty, label %skip, label %compare
compare:
  %its.bytes = call i64 @field(ptr %at, i64 16)
  %its.dtype = call i64 @field(ptr %at, i64 24)
  %same.bytes = icmp eq i64 %its.bytes, %bytes
  %same.dtype = icmp eq i64 %its.dtype, %dtype
  %same = and i1 %same.bytes, %same.dtype
  br i1 %same, label %ask, label %skip
ask:
  %others = call i64 @kept.others(ptr %at)
  switch i64 %others, label %skip [ i64 0, label %check
                                    i64 -1, label %forget ]
check:
  %storage = call ptr @kept.storage(ptr %at)
  %flag = call i8 @byte(ptr %storage, i64 {tensors.storage_check})
  %plain = icmp eq i8 %flag, 0
  %data = call ptr @behind(ptr %storage, i64 {tensors.storage_data})
  %old = call ptr @behind(ptr %at, i64 8)
  %unmoved = icmp eq ptr %data, %old
  %good = and i1 %plain, %unmoved
  br i1 %good, label %take, label %forget
forget:
  call void @kept.drop(ptr %at)
  br label %skip
take:
  %failed = call i32 @aoti_torch__reinterpret_tensor(ptr %handle, i64 %rank, ptr %sizes,
    ptr %strides, i64 0, ptr %slot)
  %ok = icmp eq i32 %failed, 0
  br i1 %ok, label %taken, label %none
taken:
  %now = call i64 @llvm.readcyclecounter()
  %stamp = getelementptr i8, ptr %at, i64 32
  store i64 %now, ptr %stamp
  ret i1 1
skip:
  %next = add i64 %index, 1
  br label %loop
none:
  ret i1 0
}}
; Remember the memory of a fresh result.
define internal void @kept.add(ptr %handle, i64 %bytes, i64 %dtype, i64 %rank, ptr %sizes,
    ptr %strides) {{
entry:
  br label %loop
loop:
  %index = phi i64 [ 0, %entry ], [ %next, %skip ]
  %more = icmp ult i64 %index, {PLACES}
  br i1 %more, label %look, label %leave
look:
  %at = call ptr @kept.place(i64 %index)
  %held = load ptr, ptr %at
  %empty = icmp eq ptr %held, null
  br i1 %empty, label %keep, label %skip
skip:
  %next = add i64 %index, 1
  br label %loop
keep:
  %failed = call i32 @aoti_torch__reinterpret_tensor(ptr %handle, i64 %rank, ptr %sizes,
    ptr %strides, i64 0, ptr %at)
  %ok = icmp eq i32 %failed, 0
  br i1 %ok, label %fill, label %undo
undo:
  store ptr null, ptr %at
  br label %leave
fill:
  %some = load i64, ptr @kept.some
  %one.more = add i64 %some, 1
  store i64 %one.more, ptr @kept.some
  %storage = call ptr @kept.storage(ptr %at)
  %data = call ptr @behind(ptr %storage, i64 {tensors.storage_data})
  %data.at = getelementptr i8, ptr %at, i64 8
  store ptr %data, ptr %data.at
  %bytes.at = getelementptr i8, ptr %at, i64 16
  store i64 %bytes, ptr %bytes.at
  %dtype.at = getelementptr i8, ptr %at, i64 24
  store i64 %dtype, ptr %dtype.at
  %now = call i64 @llvm.readcyclecounter()
  %stamp = getelementptr i8, ptr %at, i64 32
  store i64 %now, ptr %stamp
  br label %leave
leave:
  ret void
}}
; Give back what has been idle for long.
define internal void @kept.sweep() {{
entry:
  %some = load i64, ptr @kept.some
  %any = icmp ne i64 %some, 0
  br i1 %any, label %ask, label %leave
ask:
  %now = call i64 @llvm.readcyclecounter()
  %looked = load i64, ptr @kept.looked
  %since = sub i64 %now, %looked
  %due = icmp ugt i64 %since, {PAUSE}
  br i1 %due, label %begin, label %leave
begin:
  store i64 %now, ptr @kept.looked
  br label %loop
loop:
  %index = phi i64 [ 0, %begin ], [ %next, %skip ]
  %more = icmp ult i64 %index, {PLACES}
  br i1 %more, label %look, label %leave
look:
  %at = call ptr @kept.place(i64 %index)
  %held = load ptr, ptr %at
  %empty = icmp eq ptr %held, null
  br i1 %empty, label %skip, label %judge
judge:
  %stamp = getelementptr i8, ptr %at, i64 32
  %others = call i64 @kept.others(ptr %at)
  switch i64 %others, label %used [ i64 0, label %age
                                    i64 -1, label %drop ]
used:
  store i64 %now, ptr %stamp
  br label %skip
age:
  %then = load i64, ptr %stamp
  %age.cycles = sub i64 %now, %then
  %old = icmp ugt i64 %age.cycles, {PATIENCE}
  br i1 %old, label %drop, label %skip
drop:
  call void @kept.drop(ptr %at)
  br label %skip
skip:
  %next = add i64 %index, 1
  br label %loop
leave:
  ret void
}}
define i64 @kept.trim() {{
entry:
  br label %loop
loop:
  %index = phi i64 [ 0, %entry ], [ %next, %skip ]
  %freed = phi i64 [ 0, %entry ], [ %freed.next, %skip ]
  %more = icmp ult i64 %index, {PLACES}
  br i1 %more, label %look, label %leave
look:
  %at = call ptr @kept.place(i64 %index)
  %held = load ptr, ptr %at
  %empty = icmp eq ptr %held, null
  br i1 %empty, label %skip, label %drop
drop:
  %bytes = call i64 @field(ptr %at, i64 16)
  %freed.more = add i64 %freed, %bytes
  call void @kept.drop(ptr %at)
  br label %skip
skip:
  %freed.next = phi i64 [ %freed, %look ], [ %freed.more, %drop ]
  %next = add i64 %index, 1
  br label %loop
leave:
  ret i64 %freed
}}
"""


_NOTHING = """
define internal i1 @kept.take(i64 %bytes, i64 %dtype, i64 %rank, ptr %sizes, ptr %strides,
    ptr %slot) {
  ret i1 0
}
define internal void @kept.add(ptr %handle, i64 %bytes, i64 %dtype, i64 %rank, ptr %sizes,
    ptr %strides) {
  ret void
}
define internal void @kept.sweep() {
  ret void
}
define i64 @kept.trim() {
  ret i64 0
}
"""
