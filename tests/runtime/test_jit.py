"""LLVM text in, machine code out."""

from __future__ import annotations

import ctypes
import gc
import threading
from typing import Any

import pytest

from windfall import jit
from windfall.errors import InternalError

ADD = """
define i32 @add(i32 %x) {
  %y = add i32 %x, NUMBER
  ret i32 %y
}
"""
Number = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32)


def call(code: jit.NativeCode, name: str, value: int) -> Any:
    return Number(code.address(name))(value)


@pytest.mark.parametrize("options", [{"optimise": level} for level in range(4)] + [{"quick": True}])
def test_every_level_runs(options: dict[str, Any]) -> None:
    code = jit.load(ADD.replace("NUMBER", "5"), **options)
    assert call(code, "add", 37) == 42


def test_wrong_text_is_our_error() -> None:
    with pytest.raises(InternalError, match="wrong"):
        jit.load("define i32 @f( {")
    with pytest.raises(InternalError, match="wrong"):
        jit.load("define i32 @f() {\n  ret i64 0\n}")


def test_a_name_that_nobody_exports_does_not_end_the_process() -> None:
    text = """
declare i32 @nobody_has_this()
define i32 @f() {
  %x = call i32 @nobody_has_this()
  ret i32 %x
}
"""
    with pytest.raises(InternalError, match="nobody_has_this"):
        jit.load(text)


def test_a_function_that_is_not_there() -> None:
    with pytest.raises(InternalError, match="no function 'g'"):
        jit.load(ADD.replace("NUMBER", "1")).address("g")


def test_given_symbols() -> None:
    @Number
    def negate(value: int) -> int:
        return -value

    address = ctypes.cast(negate, ctypes.c_void_p).value
    assert address is not None
    text = """
declare i32 @negate_given_here(i32)
define i32 @f(i32 %x) {
  %y = call i32 @negate_given_here(i32 %x)
  ret i32 %y
}
"""
    assert call(jit.load(text, {"negate_given_here": address}), "f", 5) == -5


def test_torchs_and_the_interpreters_symbols() -> None:
    text = """
declare i32 @omp_get_max_threads()
declare i32 @Py_IsInitialized()
define i32 @f(i32 %x) {
  %a = call i32 @omp_get_max_threads()
  %b = call i32 @Py_IsInitialized()
  %c = icmp sgt i32 %a, 0
  %d = zext i1 %c to i32
  %e = add i32 %b, %d
  ret i32 %e
}
"""
    assert call(jit.load(text), "f", 0) == 2


def test_an_object_file_is_linked_as_often_as_one_likes() -> None:
    compiled = jit.compile_object(ADD.replace("NUMBER", "2"))
    assert isinstance(compiled.data, bytes)
    codes = [jit.link(compiled) for _ in range(3)]
    assert len({code.address("add") for code in codes}) == 3
    assert [call(code, "add", 1) for code in codes] == [3, 3, 3]


def test_assembly_on_request() -> None:
    assert jit.load(ADD.replace("NUMBER", "2")).object.assembly is None
    assembly = jit.load(ADD.replace("NUMBER", "2"), want_assembly=True).object.assembly
    assert assembly is not None and "add" in assembly


def test_threads_load_at_once() -> None:
    results: dict[int, int] = {}

    def work(number: int) -> None:
        for step in range(5):
            code = jit.load(ADD.replace("NUMBER", str(number + step)))
            results[number * 10 + step] = call(code, "add", 0) - number - step

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 20 and not any(results.values())


def test_a_cycle_that_holds_code_is_unloaded_after_its_finalisers() -> None:
    answers: list[int] = []

    class User:
        def __init__(self) -> None:
            self.code = jit.load(ADD.replace("NUMBER", "1"))
            self.function = Number(self.code.address("add"))
            self.me = self

        def __del__(self) -> None:
            answers.append(self.function(1))

    gc.collect()
    loaded = len(jit._Loaded._held)
    for _ in range(20):
        User()
    gc.collect()
    assert answers == [2] * 20
    assert len(jit._Loaded._held) == loaded
