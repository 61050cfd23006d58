"""Any number of threads, a fork, torch's own pool of threads."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest
import torch

from tests.runtime.programs import add_one, add_one_segment, f32, program
from windfall import runtime, torch_abi
from windfall.ir.dtype import TensorType
from windfall.ir.stages import BufferNote, Program, ResultNote


def test_many_threads_one_dispatcher() -> None:
    examples = [torch.zeros(size) for size in (8, 9, 10)]
    entries = [runtime.enter(add_one_segment(x), add_one(len(x)), None) for x in examples]
    missed: list[Any] = []
    call = runtime.dispatcher(entries, missed.append)
    failures: list[Any] = []

    def work(number: int) -> None:
        for step in range(300):
            x = torch.full((8 + (number + step) % 3,), float(step))
            result = call(x)
            if result is None or not torch.equal(result, x + 1):
                failures.append((number, step))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and not missed


def test_entries_are_replaced_while_others_call() -> None:
    x = torch.zeros(8)
    code = add_one(8)
    made = add_one_segment(x)
    call = runtime.dispatcher([], lambda t: t + 1)
    stop = threading.Event()
    failures: list[Any] = []

    def work() -> None:
        while not stop.is_set():
            if not torch.equal(call(x), x + 1):
                failures.append(1)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(200):
        runtime.replace_entries(call, [runtime.enter(made, code, None)])
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore")
def test_a_forked_child_calls_and_builds_entries() -> None:
    x = torch.randn(8)
    entry = runtime.enter(add_one_segment(x), add_one(8), None)
    assert torch.equal(entry.call(x), x + 1)
    child = os.fork()
    if child == 0:
        good = torch.equal(entry.call(x), x + 1)
        fresh = runtime.enter(add_one_segment(x), add_one(8), None)
        good = good and fresh.native and torch.equal(fresh.call(x), x + 1)
        os._exit(0 if good else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert torch.equal(entry.call(x), x + 1)


TEAM = f"""
declare void @GOMP_parallel(ptr, ptr, i32, i32)
declare i32 @omp_get_num_threads()
declare i32 @{torch_abi.THREAD_COUNT}()
define internal void @body(ptr %target) {{
  %count = call i32 @omp_get_num_threads()
  %wide = sext i32 %count to i64
  store atomic i64 %wide, ptr %target monotonic, align 8
  ret void
}}
define i32 @step(ptr %buffers, ptr %sizes) {{
  %target = load ptr, ptr %buffers
  %threads = call i32 @{torch_abi.THREAD_COUNT}()
  call void @GOMP_parallel(ptr @body, ptr %target, i32 %threads, i32 0)
  ret i32 0
}}
"""


def team_size() -> Program:
    """How many threads of torch's pool a parallel kernel gets."""
    type = TensorType.contiguous(torch.int64, (1,))
    return program(TEAM, [BufferNote("y", type, "result")], [ResultNote(0, type)])


def test_kernels_run_on_as_many_threads_as_torch_is_told() -> None:
    call = runtime.bind(team_size())
    before = torch.get_num_threads()
    try:
        for count in (1, 2, 1, 3):
            torch.set_num_threads(count)
            assert call()[0].item() == count
            # A thread that never ran an op knows torch's setting only through torch.
            answers: list[int] = []
            thread = threading.Thread(target=lambda kept=answers: kept.append(call()[0].item()))
            thread.start()
            thread.join()
            assert answers == [count]
    finally:
        torch.set_num_threads(before)


def test_results_of_zero_size_need_no_memory() -> None:
    made = program("", [BufferNote("y", f32(0), "result")], [ResultNote(0, f32(0))], step=None)
    assert runtime.bind(made)()[0].numel() == 0
