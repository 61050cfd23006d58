"""Any number of threads: one compilation for one need, no lock while the user's code runs."""

from __future__ import annotations

import ast
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

import windfall

THREADS = 32


def in_threads(work: Callable[[int], Any], count: int = THREADS, seconds: float = 120) -> list[Any]:
    """What `work(number)` answers in each thread; all begin together. A deadlock is a failure."""
    answers: list[Any] = [None] * count
    failures: list[BaseException] = []
    start = threading.Barrier(count)

    def body(number: int) -> None:
        try:
            start.wait(30)
            answers[number] = work(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=body, args=(n,), daemon=True) for n in range(count)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    assert not any(thread.is_alive() for thread in threads), "a thread waits for ever"
    if failures:
        raise failures[0]
    return answers


def program(x: torch.Tensor) -> torch.Tensor:
    return (x * 2 + 1).tanh().sum(-1)


@pytest.mark.parametrize("native", [True, False], ids=["native", "python"])
def test_concurrent_first_calls_compile_once(native: bool) -> None:
    compiled = windfall.compile(program, options={"native": native})
    x = torch.randn(4, 6)
    results = in_threads(lambda number: compiled(x))
    made = windfall.explanation(compiled)
    assert len(made.captures) == 1 and not made.fallbacks and not made.recompiles
    for result in results:
        torch.testing.assert_close(result, program(x))


def test_different_shapes_at_once() -> None:
    """Each shape is compiled once, though all are missed at the same time."""
    compiled = windfall.compile(program, dynamic=False)
    inputs = [torch.randn(2 + number % 8, 5) for number in range(THREADS)]

    def work(number: int) -> None:
        for step in range(20):
            x = inputs[(number + step) % THREADS]
            torch.testing.assert_close(compiled(x), program(x))

    in_threads(work)
    made = windfall.explanation(compiled)
    assert len(made.captures) == 8 and not made.fallbacks


def test_mixed_shapes_dtypes_modes_and_gradients() -> None:
    compiled = windfall.compile(program)

    def work(number: int) -> None:
        for step in range(6):
            dtype = (torch.float32, torch.float64)[(number + step) % 2]
            x = torch.randn(1 + (number + step) % 4, 3, dtype=dtype)
            if number % 3 == 0:
                with torch.no_grad():
                    torch.testing.assert_close(compiled(x), program(x))
                continue
            x.requires_grad_()
            (ours,) = torch.autograd.grad(compiled(x).sum(), x)
            (theirs,) = torch.autograd.grad(program(x).sum(), x)
            torch.testing.assert_close(ours, theirs)

    in_threads(work)
    assert not windfall.explanation(compiled).fallbacks


def test_one_module_trained_and_evaluated_from_many_threads() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.ReLU(), torch.nn.Linear(6, 1))
    compiled = windfall.compile(model)
    x = torch.randn(8, 6)
    expected = model(x)
    for result in in_threads(lambda number: [compiled(x) for _ in range(5)]):
        for one in result:
            torch.testing.assert_close(one, expected)


def test_no_lock_is_held_while_user_code_runs() -> None:
    """The first call waits, in the middle, for another thread's call of the same function."""
    arrived, released = threading.Event(), threading.Event()

    @windfall.disable
    def meet(first: bool) -> None:
        if first:
            arrived.set()
            assert released.wait(30), "the other thread cannot call"

    @windfall.compile
    def function(x: torch.Tensor, first: bool) -> torch.Tensor:
        y = x + 1
        meet(first)
        return y * 2

    x = torch.randn(5)

    def work(number: int) -> torch.Tensor:
        if number == 0:
            return function(x, True)
        assert arrived.wait(30)
        result = function(x, False)
        released.set()
        return result

    for result in in_threads(work, 2, seconds=60):
        torch.testing.assert_close(result, (x + 1) * 2)


def test_no_lock_is_held_while_a_call_runs_eagerly() -> None:
    """Arguments that overlap are eager's, each time: such a call may make another one."""

    @windfall.disable
    def again(a: torch.Tensor, b: torch.Tensor, depth: int) -> torch.Tensor:
        return function(a, b, depth - 1)

    @windfall.compile
    def function(a: torch.Tensor, b: torch.Tensor, depth: int) -> torch.Tensor:
        a.add_(1)
        c = a + b
        return again(a, b, depth) + c if depth else c

    def work(number: int) -> torch.Tensor:
        base = torch.arange(8.0)
        return function(base[:6], base[2:], 2)

    for result in in_threads(work, 4, seconds=60):
        torch.testing.assert_close(result, torch.tensor([18.0, 24, 30, 36, 36, 42]))
    assert all("W0024" in one for one in windfall.explanation(function).fallbacks)


def test_a_compiled_function_that_calls_another_and_itself() -> None:
    @windfall.compile
    def inner(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @windfall.compile
    def outer(x: torch.Tensor, depth: int) -> torch.Tensor:
        x = inner(x) + 1
        return native(x, depth - 1) if depth else x

    @windfall.disable
    def native(x: torch.Tensor, depth: int) -> torch.Tensor:
        return outer(inner(x), depth)

    def expected(x: torch.Tensor, depth: int) -> torch.Tensor:
        x = x * 2 + 1
        return expected(x * 2, depth - 1) if depth else x

    x = torch.randn(3)
    for result in in_threads(lambda number: outer(x, number % 3), 8):
        assert any(torch.allclose(result, expected(x, depth)) for depth in range(3))


def test_a_backend_that_calls_what_is_being_compiled() -> None:
    results: list[torch.Tensor] = []

    def backend(module: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        results.append(compiled(*inputs))
        return module.forward

    compiled = windfall.compile(program, backend=backend)
    x = torch.randn(2, 3)
    (result,) = in_threads(lambda number: compiled(x), 1, seconds=60)
    torch.testing.assert_close(result, program(x))
    torch.testing.assert_close(results, [program(x)])
    assert windfall.explanation(compiled).fallbacks == ["called while it is being compiled"]


def test_two_backends_that_call_each_others_functions() -> None:
    """Both compile, then each calls what the other is compiling: neither waits."""
    both = threading.Barrier(2)

    def backend(other: int) -> Any:
        def compile_graph(module: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
            both.wait(30)
            torch.testing.assert_close(functions[other](*inputs), program(*inputs))
            both.wait(30)
            return module.forward

        return compile_graph

    functions = [
        windfall.compile(lambda x: program(x), backend=backend(1)),
        windfall.compile(lambda x: program(x), backend=backend(0)),
    ]
    x = torch.randn(2, 3)
    for result in in_threads(lambda number: functions[number](x), 2, seconds=60):
        torch.testing.assert_close(result, program(x))


def test_reset_and_stances_while_others_call() -> None:
    compiled = windfall.compile(program)
    inputs = [torch.randn(rows, 4) for rows in (1, 2, 3)]
    stop = time.monotonic() + 3

    def work(number: int) -> int:
        calls = 0
        while time.monotonic() < stop:
            if number == 0:
                windfall.reset()
                with windfall.set_stance("force_eager"):
                    time.sleep(0.01)
                continue
            x = inputs[(number + calls) % 3]
            torch.testing.assert_close(compiled(x), program(x))
            calls += 1
        return calls

    assert sum(in_threads(work, 4)) > 50
    assert not windfall.explanation(compiled).fallbacks


def test_evictions_while_others_call() -> None:
    compiled = windfall.compile(program, dynamic=False, recompile_limit=2)
    inputs = [torch.randn(rows, 4) for rows in range(1, 6)]

    def work(number: int) -> None:
        for step in range(8):
            x = inputs[(number * 3 + step) % 5]
            torch.testing.assert_close(compiled(x), program(x))

    in_threads(work, 8)
    assert len(windfall.cache_entries(compiled)) == 2
    assert not windfall.explanation(compiled).fallbacks


def two_segments(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    windfall.graph_break()
    return y.sin() + 1


def test_parts_behind_breaks_are_compiled_once_too() -> None:
    compiled = windfall.compile(two_segments, dynamic=False)
    inputs = [torch.randn(2 + number % 4, 3) for number in range(THREADS)]
    for number, result in enumerate(in_threads(lambda number: compiled(inputs[number]))):
        torch.testing.assert_close(result, two_segments(inputs[number]))
    assert len(windfall.explanation(compiled).captures) == 4 * 2


def three(x: torch.Tensor) -> torch.Tensor:
    y = x * 3
    if y.shape[0] == 3:
        raise ValueError("three")
    return y + 1


def branches(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if x.sum() > 0 else x - 1


def trains(x: torch.Tensor) -> torch.Tensor:
    return (x.sin() * x).sum(-1)


SOAKED = (program, two_segments, three, branches, trains)
STANCES = ("force_eager", "eager_on_recompile", "eager_then_compile")


def outcome(function: Callable[..., Any], x: torch.Tensor) -> Any:
    """What it answers, with the gradient, or what it raises."""
    try:
        result = function(x)
    except ValueError as error:
        return str(error)
    if not result.requires_grad:
        return result
    return result, torch.autograd.grad(result.sum(), x)


# With room for 8 entries they drive each other out (sizes of none, one and more, by dtype, gradient
# and mode are 24 kinds of call), and the policy may judge that compiling is in vain. With room for
# all of them it may not.
STORM = "it was compiled again and again for calls that did not come back"


@pytest.mark.parametrize(
    ("seed", "limit", "judged"), [(0, 8, ("stance ", STORM)), (1, 64, "stance ")]
)
def test_everything_at_once(seed: int, limit: int, judged: str | tuple[str, ...]) -> None:
    """Shapes, dtypes, gradients, breaks, exceptions, stances and resets, from 32 threads."""
    compiled = {one: windfall.compile(one, recompile_limit=limit) for one in SOAKED}
    stop = time.monotonic() + 3

    def work(number: int) -> int:
        draw, calls = random.Random(1000 * seed + number), 0
        while time.monotonic() < stop:
            function = draw.choice(SOAKED)
            dtype = draw.choice((torch.float32, torch.float64))
            x = torch.randn(draw.randrange(8), 4, dtype=dtype)
            x.requires_grad_(draw.random() < 0.3)
            with torch.set_grad_enabled(draw.random() < 0.7):
                ours, theirs = outcome(compiled[function], x), outcome(function, x)
            if isinstance(theirs, str):
                assert ours == theirs
            else:
                torch.testing.assert_close(ours, theirs)
            calls += 1
            if number == 0 and draw.random() < 0.2:
                windfall.reset()
            if number == 1 and draw.random() < 0.2:
                with windfall.set_stance(draw.choice(STANCES)):
                    time.sleep(0.01)
        return calls

    assert sum(in_threads(work)) >= THREADS
    for one in compiled.values():
        reasons = windfall.explanation(one).fallbacks
        assert all(reason.startswith(judged) for reason in reasons), reasons


def test_a_tree_that_another_thread_spoilt_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPython counts for all threads at once how deep it is in a tree."""
    real, said = ast.parse, []

    def spoilt(text: str) -> ast.Module:
        said.append(text)
        if len(said) == 1:
            raise SystemError("AST constructor recursion depth mismatch (before=66, after=63)")
        return real(text)

    monkeypatch.setattr(ast, "parse", spoilt)
    compiled = windfall.compile(lambda x: {"doubled": x * 2}, options={"native": False})
    assert compiled(torch.ones(2))["doubled"].tolist() == [2.0, 2.0]
    assert len(said) == 2 and not windfall.explanation(compiled).fallbacks
