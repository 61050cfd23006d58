"""Facts about torch and CPython: found by probes, believed only when they hold everywhere."""

from __future__ import annotations

import ctypes
import gc
import random
import subprocess
import sys
import types
from typing import Any

import pytest
import torch
import torch.fx
from torch.utils._python_dispatch import TorchDispatchMode

from windfall import jit, torch_abi
from windfall.ir.guard import AmbientIs
from windfall.torch_abi import graphs, probes
from windfall.torch_abi.tensors import _verify_layout


def test_everything_is_found_here() -> None:
    report = torch_abi.report()
    assert {"tensor_layout", "thread_layout", "object_layout", "dict_version_offset"} <= set(report)
    assert torch_abi.missing() == [] and not [text for text in report.values() if "missing" in text]
    none = {name for name, text in report.items() if text.startswith("none")}
    assert none == ({"dict_version_offset"} if sys.version_info >= (3, 13) else set())


def test_a_fact_that_is_not_found_is_none_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "_PROBES", list(probes._PROBES))

    @probes.fact
    def impossible() -> int:
        raise torch_abi.NotFound("nothing fits")

    assert impossible() is None
    assert torch_abi.report()["impossible"] == "missing: nothing fits"


@pytest.mark.parametrize(
    "name", ["sgemm_", "Sleef_expf8_u10", "vsExp", "GOMP_parallel", torch_abi.THREAD_COUNT]
)
def test_symbols_that_kernels_may_call(name: str) -> None:
    assert torch_abi.symbol(name)


def test_a_symbol_that_is_not_there() -> None:
    assert torch_abi.symbol("no_such_symbol_anywhere") is None


def word(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


def tensors() -> list[torch.Tensor]:
    made: list[torch.Tensor] = []
    for rank in range(8):
        sizes = tuple(range(2, 2 + rank))
        for dtype in (torch.float32, torch.bool, torch.complex128, torch.float16):
            made.append(torch.empty(sizes, dtype=dtype))
    base = torch.empty(6, 7, 8)
    made += [base.transpose(0, 2), base[1:, ::2], base[2, 3], base.expand(3, 6, 7, 8)]
    made += [torch.empty(3, requires_grad=True) * 2, torch.nn.Parameter(torch.empty(2))]
    return made


@pytest.mark.parametrize("number", range(len(tensors())))
def test_the_layout_of_tensors(number: int) -> None:
    layout = torch_abi.tensor_layout()
    assert layout is not None
    tensor = tensors()[number]
    impl = word(id(tensor) + layout.handle)
    assert impl == tensor._cdata
    assert word(impl + layout.elements) == tensor.numel()
    assert word(impl + layout.key_set) == torch_abi.dispatch_keys(tensor)
    dtype = ctypes.c_uint16.from_address(impl + layout.dtype).value
    assert dtype == torch_abi.scalar_type(tensor.dtype)
    assert word(impl + layout.storage_offset) == tensor.storage_offset()
    storage = word(impl + layout.storage)
    start = word(storage + layout.storage_data)
    assert start + tensor.storage_offset() * tensor.element_size() == tensor.data_ptr()
    assert bool(word(impl + layout.autograd)) or not tensor.requires_grad
    _verify_layout(layout, tensor)


class Watching(TorchDispatchMode):
    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        raise AssertionError("a probe ran in the user's mode")


@pytest.mark.parametrize(
    "state", [torch.no_grad, torch.inference_mode, Watching, lambda: torch.device("meta")]
)
def test_probes_do_not_depend_on_the_callers_state(state: Any) -> None:
    known = torch_abi.tensor_layout(), torch_abi.thread_layout()
    with state():
        again = [
            probes.in_fresh_thread(torch_abi.tensor_layout.__wrapped__),  # type: ignore[attr-defined]
            probes.in_fresh_thread(torch_abi.thread_layout.__wrapped__),  # type: ignore[attr-defined]
        ]
    assert tuple(again) == known


def test_probes_do_not_depend_on_what_memory_held_before() -> None:
    # Fields that an object leaves uninitialised hold whatever was there: no probe may take them.
    known = torch_abi.tensor_layout(), torch_abi.object_layout()
    dice = random.Random(0)
    junk: list[Any] = []
    for _ in range(25):
        junk.append([torch.randn(dice.randrange(1, 2000)) for _ in range(20)])
        if len(junk) > 10:
            junk.pop(dice.randrange(10))
        again = [
            probes.in_fresh_thread(probe.__wrapped__)  # type: ignore[attr-defined]
            for probe in (torch_abi.tensor_layout, torch_abi.object_layout)
        ]
        assert tuple(again) == known


def test_probes_read_no_memory_that_is_not_there() -> None:
    assert probes.peek(8) is None
    assert probes.peek((1 << 63) + 8) is None
    with pytest.raises(torch_abi.NotFound):
        probes.words_at(16, 4)


def test_ambient_has_the_fields_of_its_guard() -> None:
    state = torch_abi.ambient()
    check = AmbientIs(**state._asdict())
    assert check == AmbientIs(grad_enabled=True), "a thread that nothing was done to is default"
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        inside = torch_abi.ambient()
    assert not inside.grad_enabled and inside.autocast == (("cpu", "torch.bfloat16"),)
    assert inside.excluded_keys != 0
    with torch.inference_mode():
        inside = torch_abi.ambient()
    assert inside.inference_mode and inside.included_keys != 0
    with torch.profiler.profile():
        assert torch_abi.ambient().profiled
    with torch._C.DisableTorchFunction():
        assert torch_abi.ambient().function_state == 2
    with torch._C.DisableTorchFunctionSubclass():
        assert torch_abi.ambient().function_state == 1
    assert torch_abi.ambient() == state


def test_facts_of_a_subclass_are_read_without_its_code() -> None:
    class Loud(torch.Tensor):
        @classmethod
        def __torch_function__(
            cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            raise AssertionError("user code ran")

    with torch._C.DisableTorchFunctionSubclass():
        loud = torch.zeros(2, 3).as_subclass(Loud)
    facts = torch_abi.tensor_facts(loud)
    assert facts.sizes == (2, 3) and facts.strides == (3, 1) and facts.dtype == torch.float32
    assert torch_abi.tensor_facts(torch.zeros(3).to_sparse()).strides == ()


@pytest.mark.filterwarnings("ignore")  # entering a level for the first time scripts functions
def test_tangents() -> None:
    x = torch.zeros(3)
    assert not torch_abi.has_tangent(x) and torch_abi.forward_level() == -1
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones(3))
        assert torch_abi.has_tangent(dual) and not torch_abi.has_tangent(x)


def test_slots_of_a_class() -> None:
    class Slotted:
        __slots__ = ("first", "second")

    class Derived(Slotted):
        __slots__ = ("third",)

    made = Derived()
    for name in ("first", "second", "third"):
        value = object()
        setattr(made, name, value)
        offset = torch_abi.member_offset(Derived, name)
        assert offset is not None and word(id(made) + offset) == id(value)
    assert torch_abi.member_offset(Derived, "fourth") is None
    assert torch_abi.member_offset(Derived, "__class__") is None
    assert torch_abi.member_offset(types.FunctionType, "__code__") is None
    assert torch_abi.null_member(Derived, "first") == 0  # it is not set
    assert torch_abi.null_member(SystemExit, "code") == id(None)


def test_memory_is_freed_with_its_number() -> None:
    held = torch_abi.memory(b"0123456789abcdef")
    assert ctypes.string_at(int(held), 16) == b"0123456789abcdef"
    torch_abi.write_word(int(held), 7)
    assert torch_abi.read_word(int(held)) == 7
    assert not isinstance(held, bool) and not hasattr(held, "__dict__")


SCRIPT = """
import sys, torch
from windfall import torch_abi
from windfall.runtime import support
torch.inference_mode().__enter__()
assert support.support() is not None, torch_abi.report()
assert not {"torch._dynamo", "torch._inductor"}.intersection(sys.modules)
"""


def test_a_fresh_process_finds_all_and_loads_none_of_torchs_compilers() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        # What a probe reads of a freed object looks wrong to it at once.
        env={"PYTHONMALLOC": "debug", "PATH": "", "PYTHONPATH": ":".join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr


def test_memory_and_code_are_freed_by_their_count_alone() -> None:
    """The collector runs `__del__` of everything in a dead cycle that it sees, while builtins of
    the same cycle still read what it frees: threads that allocate in between made that a crash."""
    memory = torch_abi.memory(b"12345678")
    code = jit.load("define i64 @answer() {\n  ret i64 42\n}\n")
    held = [one for one in gc.get_referents(code) if isinstance(one, int)]
    assert held and not any(map(gc.is_tracked, held)) and not gc.is_tracked(memory)

    class Last:
        def __del__(self) -> None:
            seen.append(ctypes.string_at(int(self.memory), 8))  # type: ignore[attr-defined]

    seen: list[bytes] = []
    last = Last()
    last.memory, last.itself = memory, last  # type: ignore[attr-defined]
    del last, memory
    gc.collect()
    assert seen == [b"12345678"]


@pytest.mark.parametrize("directly", [True, None])
def test_nodes_are_those_that_fx_makes(
    monkeypatch: pytest.MonkeyPatch, directly: bool | None
) -> None:
    monkeypatch.setattr(graphs, "makes_nodes_directly", lambda: directly)

    def made(create: Any) -> torch.fx.Graph:
        graph = torch.fx.Graph()
        x = create(graph, "placeholder", "x", (), {})
        for name in (None, "add", "add_7", "add", "not a name", "while"):
            x = create(graph, "call_function", torch.add, (x, [1, (x,)]), {"alpha": 2}, name)
        with graph.inserting_after(next(iter(graph.nodes))):
            create(graph, "placeholder", "y", (), {})
        create(graph, "output", "output", (x,), {})
        return graph

    ours, theirs = made(torch_abi.new_node), made(torch.fx.Graph.create_node)
    assert str(ours) == str(theirs)
    assert len(ours.nodes) == len(list(ours.nodes))
    for node, other in zip(ours.nodes, theirs.nodes, strict=True):
        assert list(map(str, node.users)) == list(map(str, other.users))
        assert type(node.args) is type(other.args) and type(node.kwargs) is type(other.kwargs)
    found = ours.find_nodes(op="call_function", target=torch.add)
    assert [str(one) for one in found] == [str(one) for one in ours.nodes][2:-1]


def test_a_graph_that_keeps_more_has_its_nodes_made_by_fx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "_KNOWN", graphs._KNOWN - {"_len"})
    with pytest.raises(torch_abi.NotFound):
        graphs.makes_nodes_directly.__wrapped__()  # type: ignore[attr-defined]
