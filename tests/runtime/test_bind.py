"""A program as a callable: results, views, arena, errors, Python steps; both ways alike."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.runtime.programs import ADD_ONE, add_one, elementwise, f32, program
from windfall import jit, runtime, torch_abi
from windfall.errors import InternalError, UnfitInput
from windfall.ir.dtype import TensorType
from windfall.ir.stages import BufferNote, NativeStep, Program, PythonStep, Ref, ResultNote
from windfall.runtime import public, support
from windfall.runtime.machine import offsets
from windfall.runtime.memory import MEMORY

BOTH = pytest.mark.parametrize("native", [True, False], ids=["native", "public"])


def bound(made: Program, native: bool) -> Callable[..., tuple[Any, ...]]:
    call = runtime.bind(made, native=native)
    assert isinstance(call, public.PublicProgram) is not native
    return call


def buffer(name: str, place: Any, *sizes: int, **more: Any) -> BufferNote:
    return BufferNote(name, f32(*sizes), place, **more)


@BOTH
@pytest.mark.parametrize("sizes", [(8,), (), (0,), (2, 3), (2, 1, 2, 1, 2, 1, 2), (3, 0, 2)])
def test_ranks_and_sizes(sizes: tuple[int, ...], native: bool) -> None:
    call = bound(add_one(*sizes), native)
    x = torch.randn(sizes)
    (result,) = call(x)
    assert torch.equal(result, x + 1)
    assert result.stride() == (x + 1).stride()


@BOTH
def test_results_are_fresh(native: bool) -> None:
    call = bound(add_one(8), native)
    x = torch.zeros(8)
    first, second = call(x)[0], call(x)[0]
    first += 5
    assert torch.equal(second, torch.ones(8))
    assert not second.requires_grad and second.grad_fn is None


@BOTH
def test_an_input_that_needs_grad_gives_a_result_that_does_not(native: bool) -> None:
    (result,) = bound(add_one(8), native)(torch.zeros(8, requires_grad=True))
    assert not result.requires_grad


@BOTH
def test_views_of_inputs_and_of_results(native: bool) -> None:
    rows = TensorType(torch.float32, (3, 4), (4, 1))
    transposed = TensorType(torch.float32, (4, 3), (1, 4))
    row = TensorType(torch.float32, (4,), (1,))
    made = program(
        elementwise(12, [(0, 1, "fmul")]),
        [BufferNote("x", rows, "input"), BufferNote("y", rows, "result")],
        [
            ResultNote(0, rows),
            ResultNote(0, transposed),
            ResultNote(0, row, 8),
            ResultNote(1, transposed),
            ResultNote(1, rows),
            ResultNote(1, row, 4),
            ResultNote(None, None),
            ResultNote(1, rows),
            ResultNote(1, transposed),
        ],
    )
    base = torch.randn(30)
    x = base[5:17].view(3, 4)
    same, flipped, last, y_flipped, y, middle, nothing, again, flipped_again = bound(made, native)(
        x
    )
    assert same is x
    assert torch.equal(flipped, x.t()) and flipped._base is base
    assert torch.equal(last, x[2]) and last.data_ptr() == x[2].data_ptr()
    assert nothing is None
    assert again is y and flipped_again is y_flipped, "one part of one buffer is one object"
    assert torch.equal(y, x * 2) and torch.equal(y_flipped, y.t()) and torch.equal(middle, y[1])
    assert middle.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()
    version = x._version
    flipped.zero_()
    assert x._version == version + 1 and not x.any()
    middle.zero_()
    assert not y[1].any() and y[0].any() == (y[0] != 0).any()


@BOTH
def test_a_result_seen_only_through_a_view_is_allocated_so(native: bool) -> None:
    rows = TensorType(torch.float32, (3, 4), (4, 1))
    transposed = TensorType(torch.float32, (4, 3), (1, 4))
    made = program(
        elementwise(12, [(0, 1, "fmul")]),
        [BufferNote("x", rows, "input"), BufferNote("y", rows, "result")],
        [ResultNote(1, transposed)],
    )
    x = torch.randn(3, 4)
    (y,) = bound(made, native)(x)
    assert torch.equal(y, (x * 2).t()) and y.stride() == (1, 4) and y._base is None


@BOTH
def test_a_result_that_is_a_part_keeps_its_base(native: bool) -> None:
    row = TensorType(torch.float32, (4,), (1,))
    made = program(
        elementwise(12, [(0, 1, "fmul")]),
        [buffer("x", "input", 3, 4), buffer("y", "result", 3, 4)],
        [ResultNote(1, row, 4)],
    )
    x = torch.randn(3, 4)
    (part,) = bound(made, native)(x)
    assert torch.equal(part, x[1] * 2) and part.storage_offset() == 4


def through_arena(count: int) -> Program:
    """((x * 2) * 2) * 2 with two intermediate values."""
    size = 4 * count
    return program(
        elementwise(count, [(0, 2, "fmul"), (2, 3, "fmul"), (3, 1, "fmul")]),
        [
            buffer("x", "input", count),
            buffer("y", "result", count),
            buffer("a", "arena", count, offset=0),
            buffer("b", "arena", count, offset=(size + 63) // 64 * 64),
        ],
        [ResultNote(1, f32(count))],
        arena_bytes=2 * ((size + 63) // 64 * 64),
    )


@BOTH
def test_the_arena(native: bool) -> None:
    large, small = bound(through_arena(5000), native), bound(through_arena(10), native)
    for _ in range(3):
        for call, count in ((small, 10), (large, 5000), (small, 10)):
            x = torch.randn(count)
            assert torch.equal(call(x)[0], x * 8)


def test_arenas_are_given_back_with_the_last_program() -> None:
    """In a process of its own: other tests may keep programs that need an arena."""
    check = "from tests.runtime.test_bind import check_arenas; check_arenas()"
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", check], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def check_arenas() -> None:
    code = support.support()
    assert code is not None
    trim = ctypes.PYFUNCTYPE(ctypes.c_int64)(code.address("arena.trim"))
    gc.collect()
    trim()
    call = runtime.bind(through_arena(100))
    call(torch.zeros(100))
    other = runtime.bind(through_arena(10))
    other(torch.zeros(10))
    del call
    gc.collect()
    assert len(MEMORY.arenas()) == 1
    del other
    gc.collect()
    assert not MEMORY.arenas()
    assert trim() == 0, "nothing was left to give back"


@BOTH
def test_threads_have_arenas_of_their_own(native: bool) -> None:
    count = 400_000  # above RELEASE_BYTES: the GIL is released while the step runs
    call = bound(through_arena(count), native)
    failures: list[int] = []

    def work(number: int) -> None:
        x = torch.full((count,), float(number))
        for _ in range(20):
            if not torch.equal(call(x)[0], x * 8):
                failures.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


SLEEP = """
declare i32 @usleep(i32)
define i32 @step(ptr %buffers, ptr %sizes) {
  %ignored = call i32 @usleep(i32 300000)
  ret i32 0
}
"""


@BOTH
def test_long_runs_let_other_threads_in_and_hold_their_inputs(native: bool) -> None:
    count = offsets.RELEASE_BYTES // 4
    call = bound(program(SLEEP, [buffer("x", "input", count)], [ResultNote(0, f32(count))]), native)
    holder = [torch.zeros(count)]
    seen = weakref.ref(holder[0])
    started = time.perf_counter()
    thread = threading.Thread(target=lambda: call(holder[0]))
    thread.start()
    time.sleep(0.1)
    inside = time.perf_counter() - started
    holder.clear()
    assert inside < 0.25, "this thread could run meanwhile"
    assert seen() is not None, "the input is held while it is used"
    thread.join()
    gc.collect()
    assert seen() is None, "and not any longer"


def test_no_reference_is_leaked_or_lost() -> None:
    count = offsets.RELEASE_BYTES // 4
    big = TensorType.contiguous(torch.float32, (count,))
    half = TensorType(torch.float32, (count // 2,), (2,))
    released = program(
        elementwise(count, [(0, 1, "fmul")]),
        [BufferNote("x", big, "input"), BufferNote("y", big, "result")],
        [ResultNote(0, big), ResultNote(0, half), ResultNote(1, big), ResultNote(1, half, 1)],
    )
    call = runtime.bind(released)
    x = torch.zeros(count)
    before = sys.getrefcount(x), sys.getrefcount(None)
    for _ in range(5):
        call(x)
    results = call(x)
    by_hand = runtime.bind(released, native=False)(x)
    assert [sys.getrefcount(results[i]) for i in (2, 3)] == [
        sys.getrefcount(by_hand[i]) for i in (2, 3)
    ]
    assert sys.getrefcount(results) == 2
    seen = [weakref.ref(one) for one in results[1:]]
    del results, by_hand
    assert [one() for one in seen] == [None] * 3
    assert sys.getrefcount(x) == before[0]
    assert abs(sys.getrefcount(None) - before[1]) < 50


FAIL = """
define i32 @step(ptr %buffers, ptr %sizes) {
  %first = load ptr, ptr %buffers
  %value = load float, ptr %first
  %code = fptosi float %value to i32
  ret i32 %code
}
"""


@BOTH
def test_errors_of_a_step(native: bool) -> None:
    made = program(
        FAIL,
        [
            buffer("x", "input", 8),
            buffer("y", "result", 8),
            buffer("a", "arena", 8, offset=0),
        ],
        [ResultNote(1, f32(8))],
        arena_bytes=64,
        errors={3: (IndexError, "index out of range in self"), 4: (ZeroDivisionError, "by zero")},
    )
    call = bound(made, native)
    x = torch.zeros(8)
    for _ in range(3):
        assert call(x)[0].shape == (8,)
        for code, kind, text in (
            (3.0, IndexError, "index out of range in self"),
            (4.0, ZeroDivisionError, "by zero"),
            (5.0, InternalError, "unknown code"),
            (-1.0, InternalError, "unknown code"),
        ):
            with pytest.raises(kind, match=text):
                call(torch.full((8,), code))


@BOTH
def test_constants(native: bool) -> None:
    constant = torch.arange(8.0)
    made = program(
        elementwise(8, [(1, 2, "fmul")]),
        [
            buffer("x", "input", 8),
            buffer("c", "constant", 8, constant=constant),
            buffer("y", "result", 8),
        ],
        [ResultNote(2, f32(8))],
    )
    call = bound(made, native)
    del made, constant
    gc.collect()
    assert torch.equal(call(torch.zeros(8))[0], torch.arange(8.0) * 2)


def test_a_constant_as_result_is_a_copy() -> None:
    constant = torch.arange(8.0)
    made = program(
        ADD_ONE.replace("COUNT", "0"),
        [buffer("c", "constant", 8, constant=constant)],
        [ResultNote(0, f32(8))],
        step=None,
    )
    call = runtime.bind(made)
    (first,) = call()
    first.zero_()
    assert torch.equal(call()[0], torch.arange(8.0))


@BOTH
def test_no_step_and_no_input(native: bool) -> None:
    made = program("", [buffer("x", "input", 8)], [ResultNote(0, f32(8))], step=None)
    x = torch.zeros(8)
    assert bound(made, native)(x)[0] is x
    nothing = program("", [], [], step=None)
    assert bound(nothing, native)() == ()


@BOTH
def test_a_wrong_number_of_tensors(native: bool) -> None:
    call = bound(add_one(8), native)
    with pytest.raises(TypeError):
        call()
    with pytest.raises(TypeError):
        call(torch.zeros(8), torch.zeros(8))


def test_an_input_without_storage() -> None:
    x = torch.zeros(8)
    x.untyped_storage().resize_(0)
    with pytest.raises(RuntimeError, match="no storage"):
        runtime.bind(add_one(8))(x)


def test_verify() -> None:
    call = runtime.bind(add_one(8), verify=True)
    assert torch.equal(call(torch.zeros(8))[0], torch.ones(8))
    with pytest.raises(UnfitInput):
        call(torch.zeros(9))


def with_python_step(place: Any, offset: int = 0) -> Program:
    """softmax(x * 2) * 2, softmax as a Python step whose result goes to `place`."""
    text = elementwise(8, [(0, 2, "fmul")], "first") + elementwise(8, [(3, 1, "fmul")], "second")
    return program(
        text,
        [
            buffer("x", "input", 8),
            buffer("y", "result", 8),
            buffer("a", "arena", 8, offset=0),
            buffer("s", place, 8, offset=offset),
        ],
        [ResultNote(1, f32(8))],
        arena_bytes=128,
        steps=(
            NativeStep("first"),
            PythonStep(torch.ops.aten.softmax.int, (Ref(2), -1), {}, (3,)),
            NativeStep("second"),
        ),
    )


@pytest.mark.parametrize(("place", "offset"), [("tensor", 0), ("arena", 64), ("result", 0)])
def test_python_steps(place: str, offset: int) -> None:
    call = runtime.bind(with_python_step(place, offset))
    for _ in range(3):
        x = torch.randn(8, requires_grad=True)
        (y,) = call(x)
        assert torch.equal(y, torch.softmax(x.detach() * 2, -1) * 2)
        assert not y.requires_grad


def test_python_steps_with_many_results_and_nested_references() -> None:
    made = program(
        "",
        [
            buffer("x", "input", 8),
            BufferNote("values", f32(2), "tensor"),
            BufferNote("places", TensorType.contiguous(torch.int64, (2,)), "tensor"),
            buffer("joined", "tensor", 16),
        ],
        [
            ResultNote(1, f32(2)),
            ResultNote(2, TensorType.contiguous(torch.int64, (2,))),
            ResultNote(3, f32(16)),
        ],
        steps=(
            PythonStep(torch.topk, (Ref(0), 2), {"dim": -1}, (1, 2)),
            PythonStep(torch.cat, ([Ref(0), Ref(0)],), {}, (3,)),
        ),
    )
    x = torch.randn(8)
    values, places, joined = runtime.bind(made)(x)
    expected = torch.topk(x, 2)
    assert torch.equal(values, expected.values) and torch.equal(places, expected.indices)
    assert torch.equal(joined, torch.cat([x, x]))


def test_what_an_op_answers_lies_as_kernels_were_told() -> None:
    transposed = TensorType(torch.float32, (2, 3), (1, 2))
    made = program(
        "",
        [buffer("x", "input", 6), BufferNote("matrix", transposed, "tensor")],
        [ResultNote(1, transposed)],
        steps=(PythonStep(lambda x: x.view(2, 3) + 1, (Ref(0),), {}, (1,)),),
    )
    x = torch.arange(6.0)
    (result,) = runtime.bind(made)(x)
    assert result.stride() == (1, 2) and torch.equal(result, x.view(2, 3) + 1)


def test_a_python_step_may_call_the_program_again() -> None:
    calls: list[Any] = []

    def again(x: torch.Tensor) -> torch.Tensor:
        kept = x.clone()
        if len(calls) < 3:
            calls.append(None)
            inner(torch.full((8,), float(len(calls))))
        assert torch.equal(x, kept), "the inner call has an arena of its own"
        return x

    made = program(
        elementwise(8, [(0, 2, "fmul")], "first") + elementwise(8, [(3, 1, "fmul")], "second"),
        [
            buffer("x", "input", 8),
            buffer("y", "result", 8),
            buffer("a", "arena", 8, offset=0),
            buffer("s", "tensor", 8),
        ],
        [ResultNote(1, f32(8))],
        arena_bytes=64,
        steps=(NativeStep("first"), PythonStep(again, (Ref(2),), {}, (3,)), NativeStep("second")),
    )
    inner = runtime.bind(made)
    x = torch.randn(8)
    assert torch.equal(inner(x)[0], x * 4)
    assert len(calls) == 3


@pytest.mark.parametrize(
    ("buffers", "results", "arena", "text"),
    [
        ([buffer("c", "constant", 8)], [], 0, "has no tensor"),
        ([buffer("a", "arena", 8, offset=40)], [], 64, "behind its arena"),
        ([buffer("a", "arena", 8)], [ResultNote(0, f32(8))], 64, "lies in the arena"),
    ],
)
def test_programs_that_break_their_contract(
    buffers: list[BufferNote], results: list[ResultNote], arena: int, text: str
) -> None:
    made = program("", buffers, results, step=None, arena_bytes=arena)
    with pytest.raises(InternalError, match=text):
        runtime.bind(made)


@BOTH
def test_dropping_the_callable_unloads_the_code(native: bool) -> None:
    gc.collect()
    made = add_one(8)
    code = weakref.ref(made.code)
    loaded = len(jit._Loaded._held)
    call = bound(made, native)
    call(torch.zeros(8))
    del made
    gc.collect()
    assert code() is not None
    assert torch.equal(call(torch.zeros(8))[0], torch.ones(8))
    del call
    gc.collect()
    assert code() is None
    assert len(jit._Loaded._held) == loaded - 1


def test_other_dtypes() -> None:
    for dtype in (torch.float64, torch.int64, torch.bool, torch.bfloat16, torch.complex64):
        type = TensorType.contiguous(dtype, (4,))
        made = program("", [BufferNote("y", type, "result")], [ResultNote(0, type)], step=None)
        (y,) = runtime.bind(made)()
        assert y.dtype == dtype and torch_abi.dispatch_keys(y) == torch_abi.dispatch_keys(
            torch.empty(4, dtype=dtype)
        )
