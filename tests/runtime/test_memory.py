"""One owner of memory, whose addresses are known; arenas and memory for results from the caller."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch

import windfall
from tests.runtime.programs import f32, program
from tests.runtime.test_bind import ADD_ONE, BOTH, buffer, through_arena, with_python_step
from tests.runtime.test_symbols import through_arena as varying_through_arena
from windfall import runtime
from windfall.errors import InternalError
from windfall.ir.stages import ResultNote
from windfall.runtime import MEMORY
from windfall.runtime.memory import ALIGNMENT, MemoryBlock


def inside(address: int, arena: torch.Tensor) -> bool:
    return arena.data_ptr() <= address < arena.data_ptr() + arena.nbytes


@BOTH
def test_a_run_in_an_arena_of_the_callers(native: bool) -> None:
    made = through_arena(100)
    call = runtime.bind_placed(made, native=native)
    assert isinstance(made.arena_bytes, int)
    arena = MEMORY.take(made.arena_bytes)
    arena.fill_(0)
    before = MEMORY.arenas()
    x = torch.randn(100)
    assert torch.equal(call(arena, [None], x)[0], x * 8)
    assert MEMORY.arenas() == before, "nothing else was taken"
    first = arena[:400].view(torch.float32)
    assert torch.equal(first, x * 2), "an intermediate value stands where it was planned"
    assert torch.equal(call(None, [None], x)[0], x * 8)


@BOTH
def test_results_in_memory_of_the_callers(native: bool) -> None:
    call = runtime.bind_placed(through_arena(64), native=native)
    pool = torch.zeros(3, 64)
    x = torch.randn(64)
    for place in (pool[1], pool[2]):
        (result,) = call(None, [place], x)
        assert result is place
    assert torch.equal(pool, torch.stack([torch.zeros(64), x * 8, x * 8]))
    (fresh,) = call(None, [None], x)
    assert not inside(fresh.data_ptr(), pool)
    count = gc.get_referrers(place)
    for _ in range(3):
        call(None, [place], x)
    assert len(gc.get_referrers(place)) == len(count), "a run keeps no reference"


@BOTH
def test_views_of_a_result_in_memory_of_the_callers(native: bool) -> None:
    """The result itself, and its last four elements."""
    made = program(
        ADD_ONE.replace("COUNT", "8"),
        [buffer("x", "input", 8), buffer("y", "result", 8)],
        [ResultNote(1, f32(8)), ResultNote(1, f32(4), offset=4)],
        step="add_one",
    )
    pool = torch.zeros(16)
    whole, part = runtime.bind_placed(made, native=native)(None, [pool[8:]], torch.arange(8.0))
    assert torch.equal(whole, torch.arange(1.0, 9.0)) and torch.equal(part, whole[4:])
    assert part.data_ptr() == pool[12:].data_ptr()


@BOTH
def test_sizes_that_vary(native: bool) -> None:
    call = runtime.bind_placed(varying_through_arena(), native=native)
    arena = MEMORY.take(1 << 12)[: 1 << 12]  # an idle block may be larger
    for rows in (3, 100, 17):
        x, place = torch.randn(rows), torch.empty(rows)
        assert call(arena, [place], rows, x)[0] is place
        assert torch.equal(place, x * 8)
    with pytest.raises(InternalError, match="an arena of 4096 bytes for a program of"):
        call(arena, [None], 4000, torch.zeros(4000))


def test_python_steps_in_an_arena_of_the_callers() -> None:
    made = with_python_step("arena")
    assert isinstance(made.arena_bytes, int)
    call = runtime.bind_placed(made)
    x = torch.randn(made.inputs[0].sizes)  # type: ignore[arg-type]
    arena = MEMORY.take(made.arena_bytes)
    for one, other in zip(call(arena, [None], x), runtime.bind(made)(x), strict=True):
        assert torch.equal(one, other)


@BOTH
def test_memory_that_does_not_fit_is_refused(native: bool) -> None:
    call = runtime.bind_placed(through_arena(100), native=native)
    x = torch.zeros(100)
    with pytest.raises(InternalError, match="an arena of 64 bytes"):
        call(torch.empty(64, dtype=torch.uint8), [None], x)
    with pytest.raises(InternalError, match="an arena"):
        call(MEMORY.take(1 << 12)[1:], [None], x)
    for wrong in (torch.zeros(99), torch.zeros(100, dtype=torch.float64), torch.zeros(200)[::2]):
        with pytest.raises(InternalError, match="for a result of"):
            call(None, [wrong], x)


def test_arenas_have_addresses() -> None:
    MEMORY.trim()
    assert MEMORY.arenas() == ()
    calls = [runtime.bind(through_arena(1000), native=native) for native in (True, False)]
    for call in calls:
        call(torch.zeros(1000))
    arenas = MEMORY.arenas()
    assert len(arenas) == 2
    assert all(one.bytes >= 8000 and one.address % ALIGNMENT == 0 for one in arenas)
    for call in calls:
        call(torch.zeros(1000))
    assert MEMORY.arenas() == arenas, "and are used again"


def test_memory_of_gradients_has_addresses() -> None:
    MEMORY.trim()
    model = torch.nn.Linear(512, 1024, bias=False)
    compiled: Any = windfall.compile(lambda x: model(x).square().mean())
    compiled(torch.randn(8, 512)).backward()
    assert model.weight.grad is not None
    assert MEMORY.gradients() == (MemoryBlock(model.weight.grad.data_ptr(), 4 * 512 * 1024),)
    MEMORY.trim()
    assert MEMORY.gradients() == ()
