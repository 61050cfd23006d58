"""What users say about single functions, in our words and in torch's."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import windfall

X = torch.linspace(-1, 1, 6)


def explained(function: Callable[..., Any], *args: Any, **settings: Any) -> Any:
    """What happened; the result is eager's."""
    made = windfall.explain(function, **settings)(*args)
    torch.testing.assert_close(made.result, function(*args))
    return made


def callee(x: torch.Tensor) -> torch.Tensor:
    return (x.sin() + 1).cos()


CAPTURED: list[bool] = []


def noting(x: torch.Tensor) -> torch.Tensor:
    CAPTURED.append(torch.compiler.is_compiling())
    return callee(x)


# ------------------------------------------------------------------------------------------ disable


@pytest.mark.parametrize(
    "decorate",
    [
        windfall.disable,
        windfall.disable(),
        windfall.disable(recursive=True),
        lambda f: windfall.disable(f, True, reason="why not"),
        lambda f: windfall.disable(windfall.compile(f)),
    ],
)
def test_a_disabled_function_runs_natively_with_all_that_it_calls(decorate: Any) -> None:
    CAPTURED.clear()
    native = decorate(noting)
    made = windfall.explain(lambda x: native(x + 1) * 2)(X)
    torch.testing.assert_close(made.result, callee(X + 1) * 2)
    assert CAPTURED == [False]
    assert [one.number for one in made.breaks] == [14] and len(made.graphs) == 2
    assert native.__name__ == "noting" and native.__wrapped__ is noting


def test_the_reason_is_told() -> None:
    native = windfall.disable(callee, reason="it talks to a device")
    made = explained(lambda x: native(x), X)
    assert made.breaks[0].detail == "callee is disabled: it talks to a device"


def test_not_recursive_only_its_own_operations_are_native() -> None:
    @windfall.disable(recursive=False)
    def shallow(x: torch.Tensor) -> torch.Tensor:
        y = callee(x)
        return y * 3

    made = explained(lambda x: shallow(x + 1) - 1, X)
    graphs = [str(one.graph) for one in made.graphs]
    assert any("cos" in one for one in graphs), "what it calls is captured"
    assert not any("mul" in one for one in graphs), "its own product is not"
    assert {one.number for one in made.breaks} == {14}


def test_disabled_methods_and_classes() -> None:
    class Part:
        @windfall.disable
        def method(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    @windfall.disable
    class Whole:
        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return x * 3

    part, whole = Part(), Whole()
    for function in (lambda x: part.method(x) + 1, lambda x: whole(x) + 1):
        made = explained(function, X)
        assert [one.number for one in made.breaks] == [14]


def test_a_disabled_module_keeps_its_keys_and_runs_natively() -> None:
    model = torch.nn.Sequential(
        torch.nn.Linear(6, 6), windfall.disable(torch.nn.Linear(6, 6)), torch.nn.ReLU()
    )
    assert list(model.state_dict()) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    made = explained(model, X)
    assert made.breaks[0].number == 14 and "Linear" in made.breaks[0].detail


def test_a_compiled_function_inside_of_a_disabled_one_is_compiled() -> None:
    inner = windfall.compile(callee)
    outer = windfall.disable(lambda x: inner(x) + 1)
    made = explained(lambda x: outer(x) * 2, X)
    assert len(made.graphs) == 1
    assert len(windfall.explanation(inner).graphs) == 1


def test_a_disabled_function_outside_of_compiled_code_is_the_function() -> None:
    native = windfall.disable(callee)
    assert torch.equal(native(X), callee(X))
    with pytest.raises(windfall.UserError, match="takes a callable"):
        windfall.disable(3)


# -------------------------------------------------------------------------------------------- graph


def test_allow_in_graph_puts_one_node() -> None:
    @windfall.allow_in_graph
    def opaque(x: torch.Tensor, factor: int) -> torch.Tensor:
        total = x
        for _ in range(factor):
            total = total + x.sin()
        return total

    made = explained(lambda x: opaque(x, 3) * 2, X, fullgraph=True)
    (graph,) = made.graphs
    assert opaque in [node.target for node in graph.graph.nodes]
    x = X.clone().requires_grad_()
    compiled = windfall.compile(lambda x: opaque(x, 3) * 2, fullgraph=True)
    (ours,) = torch.autograd.grad(compiled(x).sum(), x)
    torch.testing.assert_close(ours, 2 * (1 + 3 * X.cos()))
    assert windfall.allow_in_graph([opaque]) == [opaque]


def test_disallow_in_graph_takes_a_torch_function_out() -> None:
    try:
        windfall.disallow_in_graph(torch.special.i1e)
        made = explained(lambda x: torch.special.i1e(x) + 1, X)
        assert [one.number for one in made.breaks] == [14]
    finally:
        windfall.allow_in_graph(torch.special.i1e)
    assert not explained(lambda x: torch.special.i1e(x) + 1, X, fullgraph=True).breaks


def test_forbid_in_graph_is_an_error_before_anything_runs() -> None:
    events: list[str] = []

    @windfall.forbid_in_graph
    def never(x: torch.Tensor) -> torch.Tensor:
        return x

    def program(x: torch.Tensor) -> torch.Tensor:
        events.append("ran")
        return never(x) + 1

    with pytest.raises(windfall.UserError, match=r"test_directives.py:\d+ in .*program.*never"):
        windfall.compile(program)(X)
    assert not events
    assert torch.equal(never(X), X)


# ----------------------------------------------------------------------------------------- constant


def test_assume_constant_result_is_called_while_capturing_only() -> None:
    calls: list[int] = []

    @windfall.assume_constant_result
    def looked_up(key: int) -> int:
        calls.append(key)
        return key * 2

    compiled = windfall.compile(lambda x: x * looked_up(4), fullgraph=True)
    for _ in range(3):
        torch.testing.assert_close(compiled(X), X * 8)
    assert calls == [4]


def test_a_constant_method_and_a_constant_tensor() -> None:
    class Model:
        def __init__(self, scale: float) -> None:
            self.scale, self.calls = scale, 0

        @windfall.assume_constant_result
        def table(self) -> torch.Tensor:
            self.calls += 1
            return torch.full((6,), self.scale)

    model, other = Model(3.0), Model(5.0)
    compiled = windfall.compile(lambda m, x: x * m.table(), fullgraph=True)
    for _ in range(2):
        torch.testing.assert_close(compiled(model, X), X * 3)
        torch.testing.assert_close(compiled(other, X), X * 5)
    assert model.calls == 1 and other.calls == 1


# --------------------------------------------------------------------------------------- substitute


def test_substitute_in_graph_is_read_in_place_of_the_original() -> None:
    @windfall.substitute_in_graph(math.perm, skip_signature_check=True)
    def perm(n: int, k: int) -> int:
        reads.append(n)
        result = 1
        for step in range(k):
            result *= n - step
        return result

    reads: list[int] = []
    made = explained(lambda x: x * math.perm(5, x.dim() + 1), X, fullgraph=True)
    assert len(made.graphs) == 1 and reads == [5], "read once, and only in compiled code"


def test_a_substitute_must_take_the_same_arguments() -> None:
    def original(x: int, y: int = 2) -> int:
        return x + y

    with pytest.raises(windfall.UserError, match="does not take what"):
        windfall.substitute_in_graph(original)(lambda x: x)
    with pytest.raises(windfall.UserError, match="not a class"):
        windfall.substitute_in_graph(dict)
    with pytest.raises(windfall.UserError, match="Python function"):
        windfall.substitute_in_graph(original)(len)


# ------------------------------------------------------------------------------------------- breaks


def test_graph_break_makes_two_graphs() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        windfall.graph_break()
        return y * 2

    made = explained(program, X)
    assert len(made.graphs) == 2 and [one.number for one in made.breaks] == [40]
    assert made.breaks[0].where is not None and made.breaks[0].where.function.endswith("program")


def test_skip_frame_runs_the_rest_natively() -> None:
    seen: list[bool] = []

    def program(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        windfall.skip_frame()
        seen.append(windfall.is_compiling())
        return y * 2

    made = windfall.explain(program)(X)
    torch.testing.assert_close(made.result, (X + 1) * 2)
    assert seen == [False] and len(made.graphs) == 1


# ---------------------------------------------------------------------------------------- questions


def test_is_compiling_is_true_where_code_is_captured_and_only_there() -> None:
    def answers(x: torch.Tensor) -> tuple[torch.Tensor, tuple[bool, ...]]:
        now = (windfall.is_compiling(), torch.compiler.is_compiling())
        return x + 1, (*now, torch.compiler.is_dynamo_compiling(), torch.compiler.is_exporting())

    assert windfall.compile(answers, fullgraph=True)(X)[1] == (True, True, True, False)
    assert answers(X)[1] == (False, False, False, False)
    with windfall.set_stance("force_eager"):
        assert windfall.compile(answers)(X)[1][0] is False


# ------------------------------------------------------------------------------------ torch's words


def test_compiled_objects_inside_of_compiled_code_are_read() -> None:
    inner = windfall.compile(callee)
    made = windfall.explain(lambda x: inner(x) * 2, fullgraph=True)(X)
    torch.testing.assert_close(made.result, callee(X) * 2)
    assert len(made.graphs) == 1
    assert not windfall.explanation(inner).captures, "it was not called"
