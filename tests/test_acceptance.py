"""The functions of the walking skeleton, through every room; and what explain says of them."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import windfall

F = torch.nn.functional


def gelu_chain(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.gelu(x * y + 1).sum(-1)


def softmax_linear(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x @ w + b, -1)


def layer_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, (x.shape[-1],), w, b)


def branch(x: torch.Tensor, flag: bool) -> torch.Tensor:
    if flag:
        return x.sin() * 2
    return x.cos() - 1


def prints(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    print("in the middle")
    return y.relu() + 1


def tensors(*shapes: tuple[int, ...], grad: bool = False) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    return [torch.randn(s, generator=generator).requires_grad_(grad) for s in shapes]


CASES: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...], tuple[Any, ...]]] = {
    "gelu_chain": (gelu_chain, ((6, 33), (6, 33)), ()),
    "softmax_linear": (softmax_linear, ((5, 8), (8, 16), (16,)), ()),
    "layer_norm": (layer_norm, ((4, 7, 24), (24,), (24,)), ()),
    "branch_true": (branch, ((3, 5),), (True,)),
    "branch_false": (branch, ((3, 5),), (False,)),
    "prints": (prints, ((9,),), ()),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("grad", [False, True])
def test_equals_eager(name: str, grad: bool, capsys: pytest.CaptureFixture[str]) -> None:
    function, shapes, extra = CASES[name]
    compiled = windfall.compile(function, options={"strict": True})
    for _ in range(3):
        ours, theirs = tensors(*shapes, grad=grad), tensors(*shapes, grad=grad)
        actual, expected = compiled(*ours, *extra), function(*theirs, *extra)
        torch.testing.assert_close(actual, expected)
        assert actual.requires_grad == expected.requires_grad
        assert actual.stride() == expected.stride()
        if grad:
            weight = torch.linspace(-1, 1, expected.numel()).reshape(expected.shape)
            (actual * weight).sum().backward()
            (expected * weight).sum().backward()
            for one, other in zip(ours, theirs, strict=True):
                torch.testing.assert_close(one.grad, other.grad)


class Perceptron(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(12, 32), torch.nn.ReLU(), torch.nn.Linear(32, 32), torch.nn.GELU(),
            torch.nn.Linear(32, 4),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layers(x)
        return out


def test_a_perceptron_trains() -> None:
    torch.manual_seed(0)
    eager = Perceptron()
    ours = copy.deepcopy(eager)
    compiled = windfall.compile(ours, options={"strict": True})
    optimisers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (eager, compiled)]
    for step in range(5):
        x = torch.randn(16, 12, generator=torch.Generator().manual_seed(step))
        target = torch.arange(16) % 4
        losses = []
        for model, optimiser in zip((eager, compiled), optimisers, strict=True):
            optimiser.zero_grad()
            loss = F.cross_entropy(model(x), target)
            loss.backward()
            optimiser.step()
            losses.append(loss.detach())
        torch.testing.assert_close(*losses)
    for one, other in zip(eager.parameters(), compiled.parameters(), strict=True):
        torch.testing.assert_close(one, other)
    assert compiled.state_dict().keys() == eager.state_dict().keys()


# ----------------------------------------------------------------------- explain tells the truth


def test_explain_of_one_graph() -> None:
    x, y = tensors((6, 33), (6, 33))
    told = windfall.explain(gelu_chain)(x, y)
    torch.testing.assert_close(told.result, gelu_chain(x, y))
    facts = told.to_dict()
    assert (facts["graph_count"], facts["break_count"], facts["fallbacks"]) == (1, 0, [])
    assert "gelu" in facts["graphs"][0]
    assert any("L['x']" in guard for guard in facts["guards"][0])
    assert len(facts["kernels"]) == 1
    assert facts["entries"][0]["native"]
    assert {"capture", "lower", "build"} <= facts["seconds"].keys()
    assert "1 graph, 0 breaks" in str(told)


def test_explain_of_a_break(capsys: pytest.CaptureFixture[str]) -> None:
    told = windfall.explain(prints)(*tensors((9,)))
    facts = told.to_dict()
    assert (facts["graph_count"], facts["break_count"]) == (2, 1)
    assert "print" in facts["breaks"][0]["detail"]
    assert "test_acceptance.py" in facts["breaks"][0]["where"]
    assert facts["breaks"][0]["hint"]
    assert capsys.readouterr().out == "in the middle\n"


def test_explain_of_a_branch() -> None:
    facts = windfall.explain(branch)(*tensors((3, 5)), True).to_dict()
    assert (facts["graph_count"], facts["break_count"]) == (1, 0)
    assert any("L['flag']" in guard for guard in facts["guards"][0])


# --------------------------------------------------------------------- x + 1, whatever is passed


class Tagged(torch.Tensor):
    """A subclass that shows in the type of the result."""


class Counting(TorchDispatchMode):
    """Counts what is dispatched."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.fixture
def plus_one() -> Any:
    """Compiled `x + 1`, warmed up on a plain tensor of 8 floats."""
    compiled = windfall.compile(lambda x: x + 1, options={"strict": True})
    for _ in range(2):
        torch.testing.assert_close(compiled(torch.arange(8.0)), torch.arange(8.0) + 1)
    return compiled


INPUTS: dict[str, Callable[[], torch.Tensor]] = {
    "plain": lambda: torch.arange(8.0),
    "parameter": lambda: torch.nn.Parameter(torch.arange(8.0)),
    "dtype": lambda: torch.arange(8),
    "double": lambda: torch.arange(8.0, dtype=torch.float64),
    "half": lambda: torch.arange(8.0, dtype=torch.bfloat16),
    "complex": lambda: torch.arange(8.0).to(torch.complex64),
    "shape": lambda: torch.arange(12.0).reshape(3, 4),
    "empty": lambda: torch.empty(0),
    "scalar": lambda: torch.tensor(3.0),
    "strided": lambda: torch.arange(16.0)[::2],
    "offset": lambda: torch.arange(9.0)[1:],
    "transposed": lambda: torch.arange(12.0).reshape(3, 4).t(),
    "expanded": lambda: torch.tensor([2.0]).expand(8),
    "sparse": lambda: torch.arange(8.0).to_sparse(),
    "meta": lambda: torch.arange(8.0, device="meta"),
}


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("grad_mode", [True, False])
def test_plus_one(plus_one: Any, name: str, grad_mode: bool) -> None:
    with torch.set_grad_enabled(grad_mode):
        x = INPUTS[name]()
        try:
            expected = x + 1
        except (RuntimeError, NotImplementedError) as error:
            with pytest.raises(type(error)):
                plus_one(x)
            return
        for _ in range(3):
            actual = plus_one(x)
            assert actual.dtype == expected.dtype and actual.shape == expected.shape
            assert actual.requires_grad == expected.requires_grad
            assert actual.layout == expected.layout and actual.device == expected.device
            if x.device.type == "cpu" and x.layout == torch.strided:
                assert actual.stride() == expected.stride()
                torch.testing.assert_close(actual, expected)
    if expected.requires_grad:
        actual.sum().backward()
        torch.testing.assert_close(x.grad, torch.ones_like(x))


def test_plus_one_of_a_subclass(plus_one: Any) -> None:
    x = torch.arange(8.0).as_subclass(Tagged)
    actual = plus_one(x)
    assert type(actual) is Tagged
    torch.testing.assert_close(actual.as_subclass(torch.Tensor), torch.arange(8.0) + 1)


def test_plus_one_in_inference_mode(plus_one: Any) -> None:
    with torch.inference_mode():
        actual = plus_one(torch.arange(8.0))
        assert actual.is_inference()
        torch.testing.assert_close(actual, torch.arange(8.0) + 1)
    outside = plus_one(torch.arange(8.0))
    assert not outside.is_inference()


def test_plus_one_of_an_inference_tensor_outside(plus_one: Any) -> None:
    with torch.inference_mode():
        x = torch.arange(8.0)
    assert plus_one(x).is_inference() == (x + 1).is_inference()
    torch.testing.assert_close(plus_one(x), x + 1)


def test_plus_one_under_a_dispatch_mode(plus_one: Any) -> None:
    x = torch.arange(8.0)
    with Counting() as mode:
        actual = plus_one(x)
    assert mode.seen == ["aten.add.Tensor"]
    torch.testing.assert_close(actual, x + 1)


def test_plus_one_under_a_function_mode(plus_one: Any) -> None:
    class Doubling(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            result = func(*args, **(kwargs or {}))
            return result * 2 if "add" in getattr(func, "__name__", "") else result

    x = torch.arange(8.0)
    with Doubling():
        expected = x + 1
        actual = plus_one(x)
    torch.testing.assert_close(actual, expected)


def test_plus_one_under_a_profiler(plus_one: Any) -> None:
    x = torch.arange(8.0)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        actual = plus_one(x)
    assert "aten::add" in {event.key for event in profiler.key_averages()}
    torch.testing.assert_close(actual, x + 1)


def test_plus_one_under_vmap_and_grad(plus_one: Any) -> None:
    x = torch.arange(12.0).reshape(3, 4)
    torch.testing.assert_close(torch.func.vmap(plus_one)(x), x + 1)
    found = torch.func.grad(lambda t: plus_one(t).square().sum())(x)
    torch.testing.assert_close(found, 2 * (x + 1))


def test_plus_one_under_autocast() -> None:
    compiled = windfall.compile(lambda x, w: x @ w + 1, options={"strict": True})
    x, w = tensors((4, 8), (8, 8))
    torch.testing.assert_close(compiled(x, w), x @ w + 1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = x @ w + 1
        actual = compiled(x, w)
    assert actual.dtype == expected.dtype
    torch.testing.assert_close(actual, expected)


def test_plus_one_from_other_threads(plus_one: Any) -> None:
    found: list[Any] = []

    def call(number: int) -> None:
        x = torch.full((8,), float(number))
        found.extend((number, plus_one(x)) for _ in range(50))

    threads = [threading.Thread(target=call, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 400
    for number, actual in found:
        torch.testing.assert_close(actual, torch.full((8,), number + 1.0))


def test_the_input_is_not_kept_alive(plus_one: Any) -> None:
    import weakref

    x = torch.arange(8.0)
    plus_one(x)
    reference = weakref.ref(x)
    del x
    assert reference() is None


# -------------------------------------------------------------------------------------- bad calls


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: windfall.compile(3), "takes a function"),
        (lambda: windfall.compile("f"), "takes a function"),
        (lambda: windfall.compile(prints, backend="nope"), "'eager', 'windfall'"),
        (lambda: windfall.compile(prints, backend=7), "callable"),
        (lambda: windfall.compile(prints, mode="fast"), "'reduce-overhead'"),
        (lambda: windfall.compile(prints, dynamic="yes"), "None, False, True"),
        (lambda: windfall.compile(prints, options={"speed": 11}), "not an option"),
        (lambda: windfall.compile(prints, options=7), "must be a dict"),
    ],
)
def test_bad_calls_say_what_is_accepted(call: Callable[[], Any], says: str) -> None:
    with pytest.raises(windfall.UserError, match=says):
        call()


def test_a_user_backend_gets_the_graph() -> None:
    seen = []

    def backend(graph: torch.fx.GraphModule, examples: list[torch.Tensor]) -> Any:
        seen.append((graph, [type(e) for e in examples]))
        return graph.forward

    x, y = tensors((6, 33), (6, 33))
    torch.testing.assert_close(
        windfall.compile(gelu_chain, backend=backend)(x, y), gelu_chain(x, y)
    )
    assert len(seen) == 1 and seen[0][1] == [torch.Tensor, torch.Tensor]
    assert "gelu" in seen[0][0].code


def test_fullgraph_names_the_line_and_runs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(windfall.UserError, match=r"(?s)test_acceptance.py.*print.*what to do"):
        windfall.compile(prints, fullgraph=True)(*tensors((9,)))
    assert capsys.readouterr().out == ""
    x, y = tensors((6, 33), (6, 33))
    torch.testing.assert_close(windfall.compile(gelu_chain, fullgraph=True)(x, y), gelu_chain(x, y))


def test_equal_results_are_distinct_tensors() -> None:
    compiled = windfall.compile(lambda x: (x + 1, x + 1, x + 1, (x + 1).t()))
    results = compiled(torch.ones(3, 3))
    assert len({one.data_ptr() for one in results}) == 4
    for one, other in zip(results, [torch.full((3, 3), 2.0)] * 4, strict=True):
        torch.testing.assert_close(one, other)


def test_the_environment_asks_for_logs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WINDFALL_LOGS", "graph,guards,source,kernels,breaks,timings")
    windfall.compile(prints)(*tensors((9,)))
    told = capsys.readouterr().err
    for part in ("operator.mul(l_x, 2)", "L['x'] is Tensor", "def prints(x):", "kernel k0",
                 "W0001", "capture of"):  # fmt: skip
        assert part in told
    monkeypatch.setenv("WINDFALL_LOGS", "grpah")
    with pytest.raises(windfall.UserError, match="'graph'"):
        windfall.compile(prints)
