"""Programs whose sizes vary: the table of sizes, results, views, the arena, Python steps, entries;
native and public alike."""

from __future__ import annotations

import operator
import random
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.runtime.programs import (
    ambient_guard,
    elementwise,
    f32,
    program,
    relation_guard,
    segment,
    tensor_guard,
    varying_add_one,
    varying_add_one_segment,
)
from windfall import runtime
from windfall.errors import InternalError, UnfitInput
from windfall.ir.dtype import TensorType
from windfall.ir.guard import BindsSymbol, Guard, TypeIs
from windfall.ir.reading import scalar_of
from windfall.ir.source import ByMethod, ScalarOf, SizeOf, Slot
from windfall.ir.stages import (
    MISS,
    BufferNote,
    Direct,
    NativeStep,
    Program,
    PythonStep,
    Ref,
    ResultNote,
)
from windfall.ir.symint import Expression, Size, maximum, minimum, size_symbol
from windfall.runtime import public
from windfall.runtime.machine import offsets
from windfall.runtime.memory import MEMORY

BOTH = pytest.mark.parametrize("native", [True, False], ids=["native", "public"])
ROWS = (2, 3, 5, 8, 17, 64)
S = size_symbol("s0", 8)
T = size_symbol("s1", 5)
ANY = size_symbol("n0", 3, low=None)
X, Y, N, A = Slot(0, "x"), Slot(1, "y"), Slot(1, "n"), Slot(1, "a")


def bound(made: Program, native: bool) -> Callable[..., tuple[Any, ...]]:
    call = runtime.bind(made, native=native)
    assert isinstance(call, public.PublicProgram) is not native
    return call


# ----------------------------------------------------------------------------------- the table


def table_program(symbols: tuple[Expression, ...], sizes: tuple[Size, ...]) -> Program:
    """Answers the table of sizes that a kernel is given."""
    held = TensorType.contiguous(torch.int64, (len(sizes),))
    text = f"""
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
define i32 @step(ptr %buffers, ptr %sizes) {{
  %target = load ptr, ptr %buffers
  call void @llvm.memcpy.p0.p0.i64(ptr %target, ptr %sizes, i64 {8 * len(sizes)}, i1 false)
  ret i32 0
}}
"""
    buffers = [BufferNote("y", held, "result")]
    return program(text, buffers, [ResultNote(0, held)], symbols=symbols, sizes=sizes)


OPERATIONS: list[Callable[[Size, Size], Size]] = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.floordiv,
    operator.mod,
    minimum,
    maximum,
]


def random_size(dice: random.Random, leaves: list[Size], depth: int) -> Size:
    if depth == 0:
        return dice.choice([*leaves, *leaves, dice.randrange(-9, 10), 7])
    operation = dice.choice(OPERATIONS)
    left = random_size(dice, leaves, dice.randrange(depth))
    right = random_size(dice, leaves, dice.randrange(depth))
    if operation in (operator.floordiv, operator.mod) and isinstance(right, int) and right == 0:
        right = -3
    return operation(left, right)


@pytest.mark.parametrize("seed", range(12))
def test_the_table_is_python_arithmetic(seed: int) -> None:
    dice = random.Random(seed)
    symbols = tuple(size_symbol(f"n{i}", 3, low=None) for i in range(3))
    others = [random_size(dice, list(symbols), 4) for _ in range(25)]
    sizes = (*symbols, *others)
    both = [bound(table_program(symbols, sizes), native) for native in (True, False)]
    for _ in range(20):
        values = [dice.randrange(-12, 13) for _ in symbols]
        named = dict(zip(("n0", "n1", "n2"), values, strict=True))
        try:
            wanted = [size if isinstance(size, int) else size.evaluate(named) for size in sizes]
        except ZeroDivisionError:
            for call in both:
                with pytest.raises(ArithmeticError):
                    call(*values)
            continue
        for call in both:
            assert call(*values)[0].tolist() == wanted


@BOTH
def test_numbers_that_do_not_fit(native: bool) -> None:
    sizes = (ANY, ANY * ANY, ANY * 3 - 1, (ANY - 2) // (ANY + 5))
    call = bound(table_program((ANY,), sizes), native)
    assert call(3)[0].tolist() == [3, 9, 8, 0]
    assert call(-7)[0].tolist() == [-7, 49, -22, 4]
    for value in (1 << 40, -(1 << 62), 1 << 63, 10**30, -5):
        with pytest.raises(ArithmeticError):
            call(value)
    for wrong in (1.5, "2", None):
        with pytest.raises(TypeError):
            call(wrong)
    assert call(4)[0].tolist() == [4, 16, 11, 0], "after all that"


@BOTH
def test_the_order_of_the_table_is_the_programs(native: bool) -> None:
    """Symbols may stand anywhere in it, twice, or not at all, and so may constants."""
    sizes = (T * 2, 7, S, S + T, S, T * 2)
    call = bound(table_program((S, T), sizes), native)
    assert call(8, 5)[0].tolist() == [10, 7, 8, 13, 8, 10]


# ------------------------------------------------------------------------------------ programs


@BOTH
@pytest.mark.parametrize("more", [(), (4,), (2, 1, 2, 1, 2, 1)])
def test_one_program_at_several_sizes(more: tuple[int, ...], native: bool) -> None:
    call = bound(varying_add_one(S, *more), native)
    for rows in (*ROWS, 3, 40_000):
        x = torch.randn(rows, *more)
        (result,) = call(rows, x)
        assert torch.equal(result, x + 1) and result.stride() == x.stride()


@BOTH
def test_wrong_calls(native: bool) -> None:
    call = bound(varying_add_one(S), native)
    for given in ((), (3,), (torch.zeros(3),), (3, torch.zeros(3), torch.zeros(3))):
        with pytest.raises(TypeError):
            call(*given)


@BOTH
def test_verified(native: bool) -> None:
    call = runtime.bind(varying_add_one(S, 4), native=native, verify=True)
    x = torch.randn(3, 4)
    assert torch.equal(call(3, x)[0], x + 1)
    with pytest.raises(UnfitInput):
        call(4, x)


def views() -> Program:
    """x[s0, s1] * 2, and views of it and of x."""
    whole, turned = f32(S, T), TensorType(torch.float32, (T, S), (1, T))
    row, last = TensorType(torch.float32, (T,), (1,)), (S - 1) * T
    return program(
        elementwise(None, [(0, 1, "fmul")], place=2),
        [BufferNote("x", whole, "input"), BufferNote("y", whole, "result")],
        [
            ResultNote(0, whole),
            ResultNote(0, turned),
            ResultNote(0, row, last),
            ResultNote(1, whole),
            ResultNote(1, turned),
            ResultNote(1, row, last),
            ResultNote(1, turned),
        ],
        symbols=(S, T),
        sizes=(S, T, S * T, last),
    )


@BOTH
def test_views_of_varying_size(native: bool) -> None:
    call = bound(views(), native)
    for rows in ROWS:
        for columns in (2, 7):
            base = torch.randn(rows * columns + 6)
            x = base[5:-1].view(rows, columns)
            same, turned, last, y, y_turned, y_last, again = call(rows, columns, x)
            assert same is x and again is y_turned
            assert torch.equal(turned, x.t()) and turned._base is base
            assert torch.equal(last, x[-1]) and last.data_ptr() == x[-1].data_ptr()
            assert torch.equal(y, x * 2) and torch.equal(y_turned, y.t())
            assert torch.equal(y_last, y[-1]) and y_last._base is y


@BOTH
def test_a_result_seen_only_through_a_view_is_allocated_so(native: bool) -> None:
    whole, turned = f32(S, T), TensorType(torch.float32, (T, S), (1, T))
    made = program(
        elementwise(None, [(0, 1, "fmul")], place=2),
        [BufferNote("x", whole, "input"), BufferNote("y", whole, "result")],
        [ResultNote(1, turned)],
        symbols=(S, T),
        sizes=(S, T, S * T),
    )
    x = torch.randn(3, 4)
    (y,) = bound(made, native)(3, 4, x)
    assert torch.equal(y, (x * 2).t()) and y.stride() == (1, 4) and y._base is None


def aligned(size: Size) -> Size:
    return (size + 63) // 64 * 64


def through_arena() -> Program:
    """((x * 2) * 2) * 2 with two intermediate values."""
    slot = aligned(S * 4)
    return program(
        elementwise(None, [(0, 2, "fmul"), (2, 3, "fmul"), (3, 1, "fmul")]),
        [
            BufferNote("x", f32(S), "input"),
            BufferNote("y", f32(S), "result"),
            BufferNote("a", f32(S), "arena", offset=0),
            BufferNote("b", f32(S), "arena", offset=slot),
        ],
        [ResultNote(1, f32(S))],
        arena_bytes=slot * 2,
        symbols=(S,),
        sizes=(S, slot, slot * 2),
    )


@BOTH
def test_the_arena_grows(native: bool) -> None:
    call, other = bound(through_arena(), native), bound(through_arena(), native)
    for rows in (2, 5000, 3, 17, 60_000, 5, 100_000, 64):
        x = torch.randn(rows)
        assert torch.equal(call(rows, x)[0], x * 8)
        assert torch.equal(other(rows + 1, torch.ones(rows + 1))[0], torch.full((rows + 1,), 8.0))


def test_the_public_arena_is_kept_and_replaced() -> None:
    call = bound(through_arena(), False)
    assert isinstance(call, public.PublicProgram)
    MEMORY.trim()
    kept = []
    for rows in (100, 50, 1000, 100):
        call(rows, torch.zeros(rows))
        (held,) = MEMORY.arenas()
        kept.append(held.address)
    assert kept[0] == kept[1] and kept[2] == kept[3]


@BOTH
def test_threads_have_sizes_and_arenas_of_their_own(native: bool) -> None:
    call = bound(through_arena(), native)
    failures: list[int] = []
    # Some are above the size at which the GIL is released while the step runs.
    counts = [offsets.RELEASE_BYTES // 16 + 7, offsets.RELEASE_BYTES // 4 + 3, 5, 300_001, 64, 12]

    def work(number: int) -> None:
        count = counts[number]
        x = torch.full((count,), float(number))
        for _ in range(20):
            if not torch.equal(call(count, x)[0], x * 8):
                failures.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(counts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_python_steps_are_given_numbers() -> None:
    """(x * 2).view(s1, s0) * s0 with an intermediate value in the arena."""
    whole, turned = f32(S, T), f32(T, S)
    made = program(
        elementwise(None, [(0, 1, "fmul")], place=2),
        [
            BufferNote("x", whole, "input"),
            BufferNote("a", whole, "arena", offset=64),
            BufferNote("b", turned, "tensor"),
            BufferNote("y", turned, "result"),
        ],
        [ResultNote(3, turned)],
        steps=(
            NativeStep("step"),
            PythonStep(torch.ops.aten.view.default, (Ref(1), [T, S]), {}, (2,)),
            PythonStep(torch.ops.aten.add.Tensor, (Ref(2), Ref(2)), {"alpha": S * T - 1}, (3,)),
        ),
        arena_bytes=S * T * 4 + 64,
        symbols=(S, T),
        sizes=(S, T, S * T),
    )
    call = bound(made, False)
    for rows, columns in ((2, 3), (64, 5), (3, 3)):
        x = torch.randn(rows, columns)
        y = (x * 2).view(columns, rows)
        wanted = torch.add(y, y, alpha=rows * columns - 1)
        assert torch.equal(call(rows, columns, x)[0], wanted)


@BOTH
def test_sizes_that_may_be_zero(native: bool) -> None:
    """A range that starts at 0: an input without memory is no mistake where it has no element."""
    count = size_symbol("k0", 4, low=0)
    call = bound(varying_add_one(count), native)
    for rows in (0, 1, 4):
        x = torch.randn(rows)
        assert torch.equal(call(rows, x)[0], x + 1)
    gone = torch.zeros(4)
    gone.untyped_storage().resize_(0)
    if native:
        with pytest.raises(RuntimeError, match="no storage"):
            call(4, gone)


def test_a_buffer_that_ends_behind_its_arena() -> None:
    with pytest.raises(InternalError, match="behind its arena"):
        runtime.bind(
            program(
                "",
                [BufferNote("a", f32(S), "arena", offset=S * 4)],
                [],
                step=None,
                arena_bytes=S * 7,
                symbols=(S,),
                sizes=(S,),
            )
        )


# ------------------------------------------------------------------------------------- entries


@BOTH
@pytest.mark.parametrize("is_direct", [True, False], ids=["direct", "body"])
def test_an_entry_for_every_size(native: bool, is_direct: bool) -> None:
    example = torch.randn(8, 4)
    made = varying_add_one_segment(S, example, is_direct=is_direct)
    entry = runtime.enter(made, varying_add_one(S, 4), None, native=native)
    assert entry.native is (native and is_direct)
    for rows in ROWS:
        x = torch.randn(rows, 4)
        assert torch.equal(entry.call(x), x + 1)
    wide = torch.randn(8, 8)
    for other in (
        torch.randn(1, 4),
        torch.randn(0, 4),
        torch.randn(8, 5),
        torch.randn(8),
        wide[:, :4],
        torch.randn(4, 8).t(),
        torch.randn(8, 4, dtype=torch.float64),
        torch.randn(8, 4, requires_grad=True),
        torch.nn.Parameter(torch.randn(8, 4)),
        8,
    ):
        assert entry.call(other) is MISS
    assert "L['x'].size(0) == s0 >= 2" in entry.check_text


@BOTH
def test_any_callable_is_given_the_symbols_first(native: bool) -> None:
    seen: list[tuple[Any, ...]] = []

    def graph(*given: Any) -> tuple[torch.Tensor]:
        seen.append(given)
        return (given[1] + given[0],)

    entry = runtime.enter(varying_add_one_segment(S, torch.zeros(8)), None, graph, native=native)
    x = torch.randn(5)
    assert torch.equal(entry.call(x), x + 5)
    assert seen[0][0] == 5 and seen[0][1] is x


def scaled(native: bool, is_direct: bool = True) -> Any:
    """f(x, n) = x[s0] and n of them, doubled: an int argument becomes a size of the result."""
    count, result = (
        size_symbol("n1", 3, low=1, high=9),
        f32(S * size_symbol("n1", 3, low=1, high=9)),
    )
    text = """
define i32 @step(ptr %buffers, ptr %sizes) {
  %target.at = getelementptr ptr, ptr %buffers, i64 1
  %target = load ptr, ptr %target.at
  %count.at = getelementptr i64, ptr %sizes, i64 2
  %count = load i64, ptr %count.at
  br label %loop
loop:
  %i = phi i64 [ 0, %0 ], [ %n, %body ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %body, label %done
body:
  %at = getelementptr float, ptr %target, i64 %i
  %value = sitofp i64 %i to float
  store float %value, ptr %at
  %n = add i64 %i, 1
  br label %loop
done:
  ret i32 0
}
"""
    made = program(
        text,
        [BufferNote("x", f32(S), "input"), BufferNote("y", result, "result")],
        [ResultNote(1, result)],
        symbols=(count, S),
        sizes=(count, S, S * count),
    )
    guards = [
        ambient_guard(),
        Guard(N, TypeIs(int), "an argument"),
        Guard(N, BindsSymbol(count), "an argument"),
        tensor_guard(X, torch.zeros(8), f32(S)),
        relation_guard("<", S * count, 100),
    ]
    whole = segment(
        guards,
        [(N, count), (SizeOf(X, 0), S), (X, f32(S))],
        slots=("x", "n"),
        direct=Direct((0,), "leaf") if is_direct else None,
        source="def f(x, n):\n    return graph(n, x.size(0), x)[0]\n",
    )
    return runtime.enter(whole, made, None, native=native)


@BOTH
@pytest.mark.parametrize("is_direct", [True, False], ids=["direct", "body"])
def test_an_int_argument_that_varies(native: bool, is_direct: bool) -> None:
    entry = scaled(native, is_direct)
    assert entry.native is (native and is_direct)
    for rows in (2, 7, 11):
        for count in (1, 3, 9):
            found = entry.call(torch.zeros(rows), count)
            assert torch.equal(found, torch.arange(rows * count, dtype=torch.float32))
    x = torch.zeros(8)
    for wrong in (0, 10, -1, True, 3.0, "3", None, 1 << 62, 1 << 63, -(10**30)):
        assert entry.call(x, wrong) is MISS
    assert entry.call(torch.zeros(20), 5) is MISS, "the relation does not hold"
    assert entry.call(torch.zeros(1), 3) is MISS


def test_a_symbol_that_only_python_can_find_is_not_direct() -> None:
    """Its tensor is read by a method: the whole check that speaks of sizes runs in Python."""

    class Box(dict):  # type: ignore[type-arg]
        pass

    source = ByMethod(X, dict, "__getitem__", ("a",))
    seen = f32(S)
    guards = [
        tensor_guard(source, torch.zeros(8), seen),
        tensor_guard(Y, torch.zeros(16), f32(S * 2)),
    ]
    made = segment(
        guards,
        [(SizeOf(source, 0), S), (source, seen)],
        slots=("x", "y"),
        direct=Direct((0,), "leaf"),
        source="def f(x, y):\n    return graph(x['a'].size(0), x['a'])[0]\n",
    )
    entry = runtime.enter(made, varying_add_one(S), None)
    assert not entry.native
    for rows in ROWS:
        x = Box(a=torch.randn(rows))
        assert torch.equal(entry.call(x, torch.zeros(2 * rows)), x["a"] + 1)
        assert entry.call(x, torch.zeros(2 * rows + 1)) is MISS


def test_what_has_no_value_in_64_bits_is_a_miss() -> None:
    count = size_symbol("n2", 3, low=None)
    made = table_program((count,), (count, count * count))
    guards = [Guard(X, BindsSymbol(count), "an argument")]
    whole = segment(guards, [(X, count)], direct=Direct((0,), "leaf"))
    entry = runtime.enter(whole, made, None)
    assert entry.native
    assert entry.call(-4).tolist() == [-4, 16]
    assert entry.call(1 << 40) is MISS
    assert entry.call(5).tolist() == [5, 25]


def float_segment(results: tuple[ResultNote, ...] | None = None) -> tuple[Any, Program]:
    """f(x, a) = x + a, where the float varies."""
    number, held = TensorType.contiguous(torch.float64, ()), f32(S)
    text = """
define i32 @step(ptr %buffers, ptr %sizes) {
  %x = load ptr, ptr %buffers
  %a.at = getelementptr ptr, ptr %buffers, i64 1
  %a.cell = load ptr, ptr %a.at
  %a.wide = load double, ptr %a.cell
  %a = fptrunc double %a.wide to float
  %y.at = getelementptr ptr, ptr %buffers, i64 2
  %y = load ptr, ptr %y.at
  %count = load i64, ptr %sizes
  br label %loop
loop:
  %i = phi i64 [ 0, %0 ], [ %n, %body ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %body, label %done
body:
  %from = getelementptr float, ptr %x, i64 %i
  %to = getelementptr float, ptr %y, i64 %i
  %value = load float, ptr %from
  %sum = fadd float %value, %a
  store float %sum, ptr %to
  %n = add i64 %i, 1
  br label %loop
done:
  ret i32 0
}
"""
    made = program(
        text,
        [
            BufferNote("x", held, "input"),
            BufferNote("a", number, "input"),
            BufferNote("y", held, "result"),
        ],
        results or [ResultNote(2, held)],
        symbols=(S,),
        sizes=(S,),
    )
    whole = segment(
        [tensor_guard(X, torch.zeros(8), held), Guard(A, TypeIs(float), "a number")],
        [(SizeOf(X, 0), S), (X, held), (ScalarOf(A), number)],
        slots=("x", "a"),
        direct=Direct((0,), "leaf"),
        source="def f(x, a):\n    return graph(x.size(0), x, scalar_of(a))[0]\n",
        namespace={"scalar_of": scalar_of},
    )
    return whole, made


@BOTH
def test_a_float_that_varies(native: bool) -> None:
    entry = runtime.enter(*float_segment(), None, native=native)
    assert entry.native is native
    x = torch.randn(5)
    for value in (0.0, -1.5, 1e30, float("inf")):
        assert torch.equal(entry.call(x, value), x + value)
    assert entry.call(x, float("nan")).isnan().all()
    for wrong in (1, True, "1.0", torch.tensor(1.0), None):
        assert entry.call(x, wrong) is MISS
    large = torch.randn(offsets.RELEASE_BYTES // 8 + 1)
    value = float("2.5")
    before = sys.getrefcount(value)
    assert torch.equal(entry.call(large, value), large + 2.5)
    assert sys.getrefcount(value) == before


def test_a_float_that_is_a_result_becomes_a_tensor() -> None:
    number = TensorType.contiguous(torch.float64, ())
    entry = runtime.enter(*float_segment((ResultNote(1, number),)), None)
    assert not entry.native
    assert torch.equal(entry.call(torch.zeros(3), 2.5), torch.tensor(2.5, dtype=torch.float64))


def test_many_threads_one_entry() -> None:
    entry = runtime.enter(varying_add_one_segment(S, torch.zeros(8)), varying_add_one(S), None)
    call = runtime.dispatcher([entry], lambda x: None)
    failures: list[Any] = []

    def work(number: int) -> None:
        for step in range(300):
            x = torch.full((2 + (number * 7 + step) % 50,), float(step))
            found = call(x)
            if found is None or not torch.equal(found, x + 1):
                failures.append((number, step))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
