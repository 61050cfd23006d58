"""LLVM text in, machine code out."""

from __future__ import annotations

import ctypes
import gc
import threading
from typing import Any

import pytest
import torch

import windfall
from windfall import jit, targets
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


def test_equal_text_is_compiled_once() -> None:
    """And is loaded as often as it is asked for: each function has code of its own."""
    jit.forget()
    text = ADD.replace("NUMBER", "71")
    first = jit.compile_object(text)
    assert jit.compile_object(text) is first
    codes = [jit.load(text, optimise=2) for _ in range(2)]
    assert all(code.object is first for code in codes)
    assert codes[0].address("add") != codes[1].address("add")
    jit.forget()
    again = jit.compile_object(text)
    assert again is not first and again == first


def test_what_shapes_the_code_is_part_of_the_question() -> None:
    text = ADD.replace("NUMBER", "72")
    ways: list[dict[str, Any]] = [{"optimise": level} for level in range(4)]
    ways += [{"quick": True}, {"want_assembly": True}]
    ways += [{"made_for": one} for one in targets.TARGETS.values() if one != jit.target()]
    assert len({id(jit.compile_object(text, **way)) for way in ways}) == len(ways)
    other = jit.compile_object(text + "; other text\n")
    assert other is not jit.compile_object(text)


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The latest stay; one that is larger than the bound is not kept."""
    jit.forget()
    texts = [ADD.replace("NUMBER", str(number)) for number in range(80, 83)]
    size = len(jit.compile_object(texts[0]).data)
    jit.forget()
    monkeypatch.setattr(jit, "_REMEMBERED_BYTES", 2 * size + 8)
    first, second = map(jit.compile_object, texts[:2])
    assert jit.compile_object(texts[0]) is first  # used: the other one goes
    jit.compile_object(texts[2])
    assert jit.compile_object(texts[0]) is first
    assert jit.compile_object(texts[1]) is not second
    monkeypatch.setattr(jit, "_REMEMBERED_BYTES", size - 1)
    kept = jit.compile_object(texts[2] + "; other text\n")
    assert jit.compile_object(texts[2] + "; other text\n") is not kept
    assert jit._remembered._bytes == 0


def test_equal_graphs_become_equal_text_and_reset_forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two functions of one body: the second asks LLVM for nothing."""
    compiled: list[str] = []
    parsed = jit._parsed

    def counted(text: str) -> Any:
        compiled.append(text)
        return parsed(text)

    monkeypatch.setattr(jit, "_parsed", counted)

    def made() -> Any:
        return windfall.compile(lambda x: (x * 3 + 7.25).sin())

    x = torch.linspace(-1, 1, 7)
    windfall.reset()
    first, second = made(), made()
    wanted = first(x)
    asked = len(compiled)
    assert asked
    assert torch.equal(second(x), wanted) and len(compiled) == asked
    windfall.reset()
    third = made()
    assert torch.equal(third(x), wanted) and len(compiled) > asked
    for one in (first, second, third):
        assert windfall.explanation(one).eager == {}
