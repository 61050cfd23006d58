"""What users of compilers for PyTorch complain of, one test each, with the issues. Recompiling,
threads, errors and copies have files of their own."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch

import windfall

X = torch.linspace(-1, 1, 6)


def graphs(compiled: Any) -> int:
    return len(windfall.explanation(compiled).graphs)


def test_a_counter_of_a_module_does_not_recompile_each_time() -> None:
    """pytorch#128319, #115711: eight compilations in ten calls there."""

    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0
            self.weight = torch.nn.Parameter(torch.ones(6))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return x * self.weight

    module = Counting()
    compiled = windfall.compile(module)
    for _ in range(10):
        torch.testing.assert_close(compiled(X), X)
    assert module.calls == 10
    assert len(windfall.explanation(compiled).captures) <= 3


def test_a_break_in_a_loop_keeps_graphs() -> None:
    """pytorch#112824: the whole frame ran eagerly there."""

    def program(x: torch.Tensor) -> torch.Tensor:
        for step in range(3):
            x = (x + step).sin()
            windfall.graph_break()
            x = x * 2
        return x

    compiled = windfall.compile(program)
    torch.testing.assert_close(compiled(X), program(X))
    assert graphs(compiled) >= 2


def test_a_break_three_calls_deep_makes_two_graphs() -> None:
    """pytorch#167393: six graphs there."""

    def third(x: torch.Tensor) -> torch.Tensor:
        x = x + 1
        windfall.graph_break()
        return x * 2

    def second(x: torch.Tensor) -> torch.Tensor:
        return third(x.sin()).cos()

    def first(x: torch.Tensor) -> torch.Tensor:
        return second(x - 1) + 3

    compiled = windfall.compile(first)
    for _ in range(2):
        torch.testing.assert_close(compiled(X), first(X))
    assert graphs(compiled) == 2


@pytest.mark.parametrize("kind", ["try", "with"])
def test_a_break_in_a_block_keeps_graphs(kind: str) -> None:
    """pytorch#141964, #150477: nothing was compiled there."""

    def in_try(x: torch.Tensor) -> torch.Tensor:
        try:
            x = x + 1
            windfall.graph_break()
            x = x.sin()
        finally:
            x = x * 2
        return x

    def in_with(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            x = x + 1
            windfall.graph_break()
            x = x.sin()
        return x * 2

    program = in_try if kind == "try" else in_with
    compiled = windfall.compile(program)
    torch.testing.assert_close(compiled(X), program(X))
    assert graphs(compiled) == 2


def test_mutations_are_not_lost() -> None:
    """pytorch#197896, #169253, #196173."""

    class Recorder:
        def __init__(self) -> None:
            self.seen: list[Any] = []
            self.table: dict[str, Any] = {"old": 1}

    def program(recorder: Recorder, x: torch.Tensor) -> torch.Tensor:
        recorder.seen.append(x + 1)
        recorder.seen[0] = recorder.seen[-1] * 2
        recorder.table.pop("old")
        recorder.table["new"] = recorder.seen
        x.mul_(2)
        return x

    def run(function: Any) -> tuple[Any, ...]:
        recorder, x = Recorder(), X.clone()
        result = function(recorder, x)
        assert result is x and recorder.table["new"] is recorder.seen
        return recorder.seen, list(recorder.table), x

    ours, theirs = run(windfall.compile(program)), run(program)
    torch.testing.assert_close(ours[0], theirs[0])
    assert ours[1] == theirs[1] == ["new"]
    torch.testing.assert_close(ours[2], theirs[2])


def test_arguments_that_become_the_same_or_overlap() -> None:
    """pytorch#93722 and #139789: wrong answers in 2.13."""

    def lists(first: list[Any], second: list[Any], x: torch.Tensor) -> torch.Tensor:
        first.append(x)
        return x * len(second)

    def tensors(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a.add_(1)
        return a + b

    compiled = windfall.compile(lists)
    torch.testing.assert_close(compiled([], [], X), X * 0)
    same: list[Any] = []
    torch.testing.assert_close(compiled(same, same, X), X * 1)
    both = windfall.compile(tensors)
    torch.testing.assert_close(both(X.clone(), X.clone()), 2 * X + 1)
    x = X.clone()
    torch.testing.assert_close(both(x, x), 2 * (X + 1))
    for function in (both, tensors):
        base = torch.arange(8.0)
        result = function(base[:6], base[2:])
        torch.testing.assert_close(result, torch.tensor([4.0, 6, 8, 10, 11, 13]))


def test_patches_of_classes_functions_and_globals_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """pytorch#176851, #98928: stale answers there."""

    class Model:
        scale = 2.0

        def part(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.scale

    model = Model()
    compiled = windfall.compile(lambda x: model.part(x) + helper(x))
    torch.testing.assert_close(compiled(X), X * 2 + X)
    Model.scale = 3.0
    torch.testing.assert_close(compiled(X), X * 3 + X)
    Model.part = lambda self, x: x - 1  # type: ignore[method-assign]
    torch.testing.assert_close(compiled(X), X - 1 + X)
    monkeypatch.setitem(globals(), "helper", lambda x: x * 10)
    torch.testing.assert_close(compiled(X), X - 1 + X * 10)


def helper(x: torch.Tensor) -> torch.Tensor:
    return x


def test_patches_of_tensors_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Methods that are patched before and after a capture, and methods that users add."""
    compiled = windfall.compile(lambda x: x.relu() + 1)
    torch.testing.assert_close(compiled(X), X.relu() + 1)
    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, "relu", lambda self: self * scale, raising=False)
        scale = 3.0
        torch.testing.assert_close(compiled(X), X * 3 + 1)
        scale = 4.0
        torch.testing.assert_close(compiled(X), X * 4 + 1)
        torch.testing.assert_close(windfall.compile(lambda x: x.relu())(X), X * 4)
    torch.testing.assert_close(compiled(X), X.relu() + 1)
    with pytest.raises(AttributeError, match="has no attribute 'of_the_user'"):
        windfall.compile(lambda x: x.of_the_user(2))(X)
    monkeypatch.setattr(torch.Tensor, "of_the_user", lambda self, by: self * by, raising=False)
    added = windfall.compile(lambda x: x.of_the_user(2), fullgraph=True)
    for x in (X, torch.nn.Parameter(X.clone())):
        torch.testing.assert_close(added(x), x * 2)
    operators = (
        ("__add__", lambda x: x + 1), ("__rsub__", lambda x: 1 - x), ("__neg__", lambda x: -x),
        ("__lt__", lambda x: x < 1), ("__getitem__", lambda x: x[1:]),
    )  # fmt: skip
    for name, program in operators:
        with monkeypatch.context() as patch:
            patch.setattr(torch.Tensor, name, lambda self, *other: self.mul(100), raising=False)
            patched = windfall.compile(program)
            torch.testing.assert_close(patched(X), X.mul(100))
        assert not windfall.explain(program)(X).breaks


def test_items_branches_and_prints_run_once_and_in_order(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """pytorch#130917, #114483, #135688."""

    def program(x: torch.Tensor) -> torch.Tensor:
        print("begin", x.shape[0])
        y = x * x.sum().item()
        print(f"middle {y.sum().item():.3f}")
        return y + 1 if y.sum() > -1e9 else y - 1

    compiled = windfall.compile(program)
    torch.testing.assert_close(compiled(X), program(X))
    ours, theirs = capsys.readouterr().out.splitlines()[:2], []
    program(X)
    theirs = capsys.readouterr().out.splitlines()
    assert ours == theirs
    assert graphs(compiled) >= 2


def test_nothing_is_kept_alive() -> None:
    """pytorch#105181, #104095: inputs, results and modules of dropped objects stayed."""

    class Big(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(6))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.weight

    module = Big()
    compiled = windfall.compile(module)
    x = X.clone().requires_grad_()
    result = compiled(x)
    result.sum().backward()
    seen = [weakref.ref(one) for one in (x, result)]
    del x, result
    gc.collect()
    assert [one() for one in seen] == [None, None], "a cache holds no inputs"
    gone = [weakref.ref(one) for one in (module, compiled, module.weight)]
    del module, compiled
    gc.collect()
    assert [one() for one in gone] == [None, None, None]


def test_what_the_program_deletes_is_gone_in_the_middle() -> None:
    alive: list[bool] = []

    @windfall.disable
    def look() -> None:
        alive.append(watched() is not None)

    def program(given: list[torch.Tensor]) -> torch.Tensor:
        x = given.pop()
        y = x + 1
        del x
        look()
        return y * 2

    compiled = windfall.compile(program)
    for _ in range(3):
        x = X.clone()
        watched = weakref.ref(x)
        given = [x]
        del x
        torch.testing.assert_close(compiled(given), (X + 1) * 2)
    assert alive == [False] * 3


def test_a_dropped_compiled_function_lets_its_closure_go() -> None:
    held = torch.nn.Linear(6, 6)
    seen = weakref.ref(held)
    compiled = windfall.compile(lambda x, held=held: held(x))
    compiled(X)
    windfall.explanation(compiled)
    del compiled, held
    gc.collect()
    assert seen() is None


def test_the_same_function_compiled_twice_is_independent() -> None:
    """Caches on code objects are shared between instances there."""

    def make(scale: float) -> Any:
        def program(x: torch.Tensor) -> torch.Tensor:
            return x * scale

        return windfall.compile(program)

    functions = [make(float(scale)) for scale in range(12)]
    for scale, function in enumerate(functions):
        torch.testing.assert_close(function(X), X * scale)
        assert not windfall.explanation(function).recompiles
