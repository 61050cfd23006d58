"""What all of the text refers to: CPython's functions, and the loads of words and fields."""

from __future__ import annotations

TEXT = """
@PyFloat_Type = external global i8
@PyLong_Type = external global i8
@PyUnicode_Type = external global i8
@_Py_NoneStruct = external global i8
@_Py_TrueStruct = external global i8
@_Py_FalseStruct = external global i8
@PyExc_TypeError = external global ptr
@PyExc_RuntimeError = external global ptr
@PyExc_OverflowError = external global ptr
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare ptr @PyDict_GetItemWithError(ptr, ptr)
declare i32 @PyDict_Next(ptr, ptr, ptr, ptr)
declare i32 @PyUnicode_Compare(ptr, ptr)
declare ptr @PyObject_GenericGetDict(ptr, ptr)
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare ptr @_PyType_Lookup(ptr, ptr)
declare ptr @PyErr_Occurred()
declare void @PyErr_Clear()
declare i32 @PyErr_ExceptionMatches(ptr)
declare void @PyErr_SetString(ptr, ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @PyTuple_New(i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
declare ptr @PyList_New(i64)
declare i32 @PyList_SetItem(ptr, i64, ptr)
declare ptr @PyLong_FromLongLong(i64)
declare i64 @PyLong_AsLongLongAndOverflow(ptr, ptr)
declare i32 @memcmp(ptr, ptr, i64)
declare i32 @posix_memalign(ptr, i64, i64)
declare void @free(ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

define internal i64 @word(ptr %table, i64 %place) alwaysinline {
  %at = getelementptr i64, ptr %table, i64 %place
  %word = load i64, ptr %at
  ret i64 %word
}
define internal ptr @pointer(ptr %table, i64 %place) alwaysinline {
  %at = getelementptr ptr, ptr %table, i64 %place
  %pointer = load ptr, ptr %at
  ret ptr %pointer
}
define internal ptr @value(ptr %record, i64 %place) alwaysinline {
  %cell = call ptr @pointer(ptr %record, i64 %place)
  %value = load ptr, ptr %cell
  ret ptr %value
}
define internal i64 @field(ptr %object, i64 %offset) alwaysinline {
  %at = getelementptr i8, ptr %object, i64 %offset
  %field = load i64, ptr %at
  ret i64 %field
}
define internal ptr @behind(ptr %object, i64 %offset) alwaysinline {
  %at = getelementptr i8, ptr %object, i64 %offset
  %pointer = load ptr, ptr %at
  ret ptr %pointer
}
define internal i8 @byte(ptr %object, i64 %offset) alwaysinline {
  %at = getelementptr i8, ptr %object, i64 %offset
  %byte = load i8, ptr %at
  ret i8 %byte
}
"""

# How a step ends: at `go` with the next record, at `miss` with the answer that a guard fails.
NEXT = """go:
  %next.size = call i64 @word(ptr %record, i64 1)
  %following = getelementptr i8, ptr %record, i64 %next.size
  %next.step = load ptr, ptr %following
  %next.answer = musttail call i32 %next.step(ptr %following, ptr %args)
  ret i32 %next.answer
miss:
  ret i32 0"""
