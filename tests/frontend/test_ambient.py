"""What surrounds a call: classes of tensors, modes, threads. The same function, always as eager."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from tests.frontend.driver import EagerCompiled, compile_eager, same


def plus_one(x: Any) -> Any:
    return x + 1


class Marked(torch.Tensor):
    """A subclass that keeps its class through operations."""


class Counting(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen += 1
        return func(*args, **(kwargs or {}))

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


INPUTS: dict[str, Callable[[], torch.Tensor]] = {
    "plain": lambda: torch.randn(8),
    "another shape": lambda: torch.randn(4, 2),
    "another dtype": lambda: torch.arange(8),
    "not contiguous": lambda: torch.randn(8, 8).t()[::2],
    "needs a gradient": lambda: torch.randn(8, requires_grad=True),
    "parameter": lambda: nn.Parameter(torch.randn(8)),
    "subclass": lambda: torch.randn(8).as_subclass(Marked),
    "zero elements": lambda: torch.randn(0),
}
MODES: dict[str, Callable[[], Any]] = {
    "default": nullcontext,
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
    "dispatch mode": Counting,
    "profiler": torch.profiler.profile,
}


@pytest.fixture(scope="module")
def compiled() -> EagerCompiled:
    return compile_eager(plus_one)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", INPUTS)
def test_x_plus_one(compiled: EagerCompiled, kind: str, mode: str) -> None:
    x = INPUTS[kind]()
    with MODES[mode]():
        for _ in range(2):
            actual, expected = compiled(x), plus_one(x)
            assert same(actual, expected)
            assert actual.is_inference() == expected.is_inference()


def test_a_subclass_first_does_not_spoil_the_rest() -> None:
    fresh = compile_eager(plus_one)
    fresh(INPUTS["subclass"]())
    fresh(INPUTS["plain"]())
    assert len(fresh.graphs) == 1


def test_a_mode_sees_operations_as_in_eager() -> None:
    fresh = compile_eager(plus_one)
    with Counting() as ours:
        fresh(torch.randn(3))
    with Counting() as theirs:
        plus_one(torch.randn(3))
    assert ours.seen == theirs.seen
    fresh(torch.randn(3))
    assert len(fresh.graphs) == 1


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def test_default_dtype_is_guarded() -> None:
    fresh = compile_eager(lambda x: x + torch.ones(3))
    x = torch.arange(3)
    assert fresh(x).dtype == torch.float32
    with default_dtype(torch.float64):
        assert fresh(x).dtype == torch.float64
    assert fresh(x).dtype == torch.float32


def test_threads_compile_once() -> None:
    fresh = compile_eager(lambda x: (x + 1).relu().sum())
    results: list[Any] = []
    barrier = threading.Barrier(4)

    def work() -> None:
        barrier.wait()
        results.append(fresh(torch.ones(3)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [float(one) for one in results] == [6.0] * 4
    assert len(fresh.captures) == 1


def test_grad_mode_of_a_second_thread_is_its_own() -> None:
    fresh = compile_eager(lambda x: x * 2)
    x = torch.ones(3, requires_grad=True)
    with torch.no_grad():
        assert not fresh(x).requires_grad
        seen: list[bool] = []
        thread = threading.Thread(target=lambda: seen.append(fresh(x).requires_grad))
        thread.start()
        thread.join()
    assert seen == [True]
