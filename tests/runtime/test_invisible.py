"""The fast path must be invisible: whatever eager would treat differently is a miss."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tests.runtime.programs import add_one, add_one_segment
from windfall import runtime
from windfall.ir.stages import MISS

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(params=["native", "python"])
def call(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """x + 1, compiled for a plain f32[8] under grad mode."""
    native = request.param == "native"
    entry = runtime.enter(add_one_segment(torch.zeros(8)), add_one(8), None, native=native)
    assert entry.native is native
    return entry.call


class Subclass(torch.Tensor):
    """A tensor subclass, as users write them."""


class Wrapper(torch.Tensor):
    """A subclass with a dispatch of its own."""

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        raise AssertionError("user code ran")


class SeeingDispatch(TorchDispatchMode):
    """Notes the ops that pass."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.seen.append(str(function))
        return function(*args, **(kwargs or {}))


class SeeingFunctions(TorchFunctionMode):
    """Lets every torch function pass."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


def test_a_plain_tensor_hits(call: Callable[..., Any]) -> None:
    x = torch.randn(8)
    for _ in range(3):
        result = call(x)
        assert torch.equal(result, x + 1)
        assert type(result) is torch.Tensor
        assert result.device == torch.device("cpu") and result.device.index is None
        assert not result.requires_grad and result.is_leaf and result._version == 0
        assert result.untyped_storage().nbytes() == 32
        assert result.data_ptr() != x.data_ptr()


def test_a_view_with_an_offset_hits_and_is_read_where_it_is(call: Callable[..., Any]) -> None:
    base = torch.randn(40)
    for start in (1, 7, 32):
        assert torch.equal(call(base[start : start + 8]), base[start : start + 8] + 1)


def in_inference() -> torch.Tensor:
    with torch.inference_mode():
        return torch.zeros(8)


UNLIKE: dict[str, Callable[[], Any]] = {
    "subclass": lambda: torch.zeros(8).as_subclass(Subclass),
    "wrapper": lambda: torch.Tensor._make_wrapper_subclass(Wrapper, (8,)),
    "parameter": lambda: torch.nn.Parameter(torch.zeros(8)),
    "parameter without grad": lambda: torch.nn.Parameter(torch.zeros(8), requires_grad=False),
    "needs grad": lambda: torch.zeros(8, requires_grad=True),
    "has history": lambda: torch.zeros(8, requires_grad=True) * 2,
    "inference tensor": in_inference,
    "dtype of the same size": lambda: torch.zeros(8, dtype=torch.int32),
    "double": lambda: torch.zeros(8, dtype=torch.float64),
    "longer": lambda: torch.zeros(9),
    "shorter": lambda: torch.zeros(7),
    "empty": lambda: torch.zeros(0),
    "scalar": lambda: torch.zeros(()),
    "another rank": lambda: torch.zeros(8, 1),
    "seven dimensions": lambda: torch.zeros(1, 1, 1, 1, 1, 1, 8),
    "strided": lambda: torch.zeros(16)[::2],
    "expanded": lambda: torch.zeros(1).expand(8),
    "conjugate": lambda: torch.zeros(8, dtype=torch.complex64).conj(),
    "negative bit": lambda: torch.zeros(8, dtype=torch.complex64).conj().imag,
    "sparse": lambda: torch.zeros(8).to_sparse(),
    "csr": lambda: torch.zeros(8, 8).to_sparse_csr(),
    "mkldnn": lambda: torch.zeros(8).to_mkldnn(),
    "meta": lambda: torch.zeros(8, device="meta"),
    "quantized": lambda: torch.quantize_per_tensor(torch.zeros(8), 1.0, 0, torch.qint8),
    "nested": lambda: torch.nested.nested_tensor([torch.zeros(8)]),
    "zero tensor": lambda: torch._efficientzerotensor(8),
    "not a tensor": lambda: 3.0,
    "none": lambda: None,
    "list": lambda: [1.0] * 8,
    "storage": lambda: torch.zeros(8).untyped_storage(),
}


@pytest.mark.parametrize("what", UNLIKE)
def test_another_kind_of_value_misses(call: Callable[..., Any], what: str) -> None:
    assert call(UNLIKE[what]()) is MISS


def test_strides_of_a_dimension_of_one_count() -> None:
    wide = torch.zeros(8, 1)
    entry = runtime.enter(add_one_segment(wide), add_one(8, 1), None)
    assert entry.call(wide) is not MISS
    assert entry.call(wide.as_strided((8, 1), (1, 5))) is MISS


@contextmanager
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@contextmanager
def default_dtype() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def profiler() -> AbstractContextManager[Any]:
    return torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])


STATES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast bfloat16": lambda: torch.autocast("cpu", torch.bfloat16),
    "dispatch mode": SeeingDispatch,
    "function mode": SeeingFunctions,
    "default device": lambda: torch.device("cpu"),
    "functions disabled": torch._C.DisableTorchFunction,
    "functions of subclasses disabled": torch._C.DisableTorchFunctionSubclass,
    "profiler": profiler,
    "old profiler": lambda: torch.autograd.profiler.profile(use_cpu=True),
    "default dtype": default_dtype,
    "deterministic": deterministic,
    "below autograd": torch._C._AutoDispatchBelowAutograd,
}


@pytest.mark.parametrize("state", STATES)
def test_another_state_of_the_thread_misses(call: Callable[..., Any], state: str) -> None:
    x = torch.randn(8)
    with STATES[state]():
        assert call(x) is MISS
    assert torch.equal(call(x), x + 1)


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("state", STATES)
def test_an_entry_made_in_a_state_hits_in_it_and_only_there(state: str, native: bool) -> None:
    x = torch.randn(8)
    with STATES[state]():
        entry = runtime.enter(add_one_segment(x), add_one(8), None, native=native)
        inside = entry.call(x)
    assert inside is not MISS
    assert inside.is_inference() is (state == "inference")
    assert entry.call(x) is MISS


def test_the_dtype_of_autocast_counts() -> None:
    x = torch.zeros(8)
    with torch.autocast("cpu", torch.bfloat16):
        entry = runtime.enter(add_one_segment(x), add_one(8), None)
        assert entry.call(x) is not MISS
    with torch.autocast("cpu", torch.float16):
        assert entry.call(x) is MISS


def test_a_mode_and_the_profiler_see_the_op_through_the_dispatcher() -> None:
    x = torch.randn(8)
    entry = runtime.enter(add_one_segment(x), add_one(8), None)
    compiled = runtime.dispatcher([entry], lambda t: t + 1)
    with SeeingDispatch() as mode:
        assert torch.equal(compiled(x), x + 1)
    assert mode.seen.count("aten.add.Tensor") == 2
    with profiler() as profile:
        compiled(x)
    assert any(event.name == "aten::add" for event in profile.events())


def test_vmap_and_grad_transforms_miss(call: Callable[..., Any]) -> None:
    answers: list[Any] = []

    def seen(t: torch.Tensor) -> torch.Tensor:
        answers.append(call(t))
        return t.sum()

    torch.func.vmap(seen)(torch.zeros(3, 8))
    torch.func.grad(seen)(torch.zeros(8))
    torch.func.jvp(seen, (torch.zeros(8),), (torch.ones(8),))
    plain = torch.zeros(8)
    torch.func.vmap(lambda t: answers.append(call(plain)) or t.sum())(torch.zeros(3, 8))
    assert answers == [MISS] * 4


def test_a_forward_mode_tangent_misses(call: Callable[..., Any]) -> None:
    x = torch.randn(8)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones(8))
        assert call(dual) is MISS
        assert torch.equal(call(x), x + 1)
    assert torch.equal(call(dual), x + 1), "behind the level the tangent is gone"


def test_tracing_misses(call: Callable[..., Any]) -> None:
    answers: list[Any] = []

    def traced(t: torch.Tensor) -> torch.Tensor:
        answers.append(call(t))
        return t + 1

    torch.jit.trace(traced, (torch.zeros(8),), check_trace=False)
    assert answers and answers[0] is MISS


def in_thread(function: Callable[[], Any]) -> Any:
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(function()))
    thread.start()
    thread.join()
    return answers[0]


def test_another_thread_has_its_own_state(call: Callable[..., Any]) -> None:
    x = torch.randn(8)
    with torch.no_grad():
        assert call(x) is MISS
        assert torch.equal(in_thread(lambda: call(x)), x + 1), "a new thread is in grad mode"

    def without_grad() -> Any:
        with torch.no_grad():
            return call(x)

    assert in_thread(without_grad) is MISS
    assert torch.equal(call(x), x + 1)


def test_a_lazy_copy_is_read_rightly(call: Callable[..., Any]) -> None:
    x = torch.randn(8)
    lazy = torch._lazy_clone(x)
    assert torch.equal(call(lazy), lazy + 1)
    assert torch.equal(call(x), x + 1)


@pytest.mark.parametrize("count", [0, 2])
def test_another_number_of_arguments_misses(call: Callable[..., Any], count: int) -> None:
    assert call(*[torch.zeros(8)] * count) is MISS


def test_data_that_is_replaced_is_noticed(call: Callable[..., Any]) -> None:
    x = torch.randn(8)
    assert torch.equal(call(x), x + 1)
    x.data = torch.randn(8)
    assert torch.equal(call(x), x + 1)
    x.data = torch.zeros(3)
    assert call(x) is MISS
    x.data = torch.zeros(8, dtype=torch.float64)
    assert call(x) is MISS
    x.data = torch.zeros(16)[::2]
    assert call(x) is MISS


def test_requires_grad_that_is_switched_is_noticed(call: Callable[..., Any]) -> None:
    x = torch.randn(8)
    assert call(x) is not MISS
    x.requires_grad_()
    assert call(x) is MISS
    x.requires_grad_(False)
    assert torch.equal(call(x), x + 1)
