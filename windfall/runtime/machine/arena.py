"""Memory for intermediate values."""

from __future__ import annotations


def text() -> str:
    """Blocks for intermediate values, kept for reuse by any program; taken and given back under
    the GIL, so that nested and concurrent calls each have their own. The size stands before."""
    return """
@arenas = internal global [8 x ptr] zeroinitializer
define internal i64 @arena.size(ptr %block) alwaysinline {
  %start = getelementptr i8, ptr %block, i64 -64
  %size = load i64, ptr %start
  ret i64 %size
}
define internal void @arena.free(ptr %block) {
  %start = getelementptr i8, ptr %block, i64 -64
  call void @free(ptr %start)
  ret void
}
define internal ptr @arena.take(i64 %bytes) {
entry:
  %slot = alloca ptr
  br label %loop
loop:
  %index = phi i64 [ 0, %entry ], [ %next, %skip ]
  %small = phi i64 [ 8, %entry ], [ %small.next, %skip ]
  %more = icmp ult i64 %index, 8
  br i1 %more, label %look, label %make
look:
  %at = getelementptr ptr, ptr @arenas, i64 %index
  %block = load ptr, ptr %at
  %empty = icmp eq ptr %block, null
  br i1 %empty, label %skip, label %measure
measure:
  %size = call i64 @arena.size(ptr %block)
  %fits = icmp uge i64 %size, %bytes
  br i1 %fits, label %take, label %too_small
take:
  store ptr null, ptr %at
  ret ptr %block
too_small:
  br label %skip
skip:
  %small.next = phi i64 [ %small, %look ], [ %index, %too_small ]
  %next = add i64 %index, 1
  br label %loop
make:
  ; A larger block serves where the smaller did: only one of them is kept.
  %replace = icmp ult i64 %small, 8
  br i1 %replace, label %drop, label %allocate
drop:
  %old.at = getelementptr ptr, ptr @arenas, i64 %small
  %old = load ptr, ptr %old.at
  store ptr null, ptr %old.at
  call void @arena.free(ptr %old)
  br label %allocate
allocate:
  %whole = add i64 %bytes, 64
  %failed = call i32 @posix_memalign(ptr %slot, i64 64, i64 %whole)
  %ok = icmp eq i32 %failed, 0
  br i1 %ok, label %made, label %none
made:
  %start = load ptr, ptr %slot
  store i64 %bytes, ptr %start
  %usable = getelementptr i8, ptr %start, i64 64
  ret ptr %usable
none:
  ret ptr null
}
define internal void @arena.give(ptr %block) {
entry:
  br label %loop
loop:
  %index = phi i64 [ 0, %entry ], [ %next, %skip ]
  %more = icmp ult i64 %index, 8
  br i1 %more, label %look, label %full
look:
  %at = getelementptr ptr, ptr @arenas, i64 %index
  %held = load ptr, ptr %at
  %empty = icmp eq ptr %held, null
  br i1 %empty, label %keep, label %skip
skip:
  %next = add i64 %index, 1
  br label %loop
keep:
  store ptr %block, ptr %at
  ret void
full:
  call void @arena.free(ptr %block)
  ret void
}
define i64 @arena.trim() {
entry:
  br label %loop
loop:
  %index = phi i64 [ 0, %entry ], [ %next, %skip ]
  %freed = phi i64 [ 0, %entry ], [ %freed.next, %skip ]
  %more = icmp ult i64 %index, 8
  br i1 %more, label %look, label %done
look:
  %at = getelementptr ptr, ptr @arenas, i64 %index
  %held = load ptr, ptr %at
  %empty = icmp eq ptr %held, null
  br i1 %empty, label %skip, label %drop
drop:
  store ptr null, ptr %at
  call void @arena.free(ptr %held)
  %freed.one = add i64 %freed, 1
  br label %skip
skip:
  %freed.next = phi i64 [ %freed, %look ], [ %freed.one, %drop ]
  %next = add i64 %index, 1
  br label %loop
done:
  ret i64 %freed
}
"""
