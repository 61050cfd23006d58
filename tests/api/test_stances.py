"""Stances: as a function, a context manager and a decorator; what each lets run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import windfall
from windfall import stance

X = torch.linspace(-1, 1, 6)
WIDE = torch.linspace(-1, 1, 8)


@pytest.fixture(autouse=True)
def usual_stance() -> Iterator[None]:
    assert stance.current().usual
    yield
    windfall.set_stance("default")


class Watched:
    """A function whose eager runs are counted: `is_compiling` is true only where it is captured."""

    def __init__(self, **options: Any) -> None:
        self.eager = 0
        self.compiled = windfall.compile(self.function, dynamic=False, **options)

    def function(self, x: torch.Tensor) -> torch.Tensor:
        if not windfall.is_compiling():
            self.eager += 1
        return x.sin() + 1

    def __call__(self, x: torch.Tensor) -> bool:
        """Whether the call ran eagerly; its result is right in any case."""
        before = self.eager
        assert torch.allclose(self.compiled(x), x.sin() + 1)
        return self.eager > before

    @property
    def compilations(self) -> int:
        return len(windfall.explanation(self.compiled).captures)


@pytest.mark.parametrize("native", [True, False])
def test_force_eager(native: bool) -> None:
    call = Watched(options={"native": native})
    assert not call(X)
    with windfall.set_stance("force_eager"):
        assert call(X) and call(WIDE)
    assert not call(X)
    assert call.compilations == 1


def test_force_eager_of_a_module_runs_the_original() -> None:
    module = torch.nn.Linear(6, 2)
    compiled = windfall.compile(module)
    with windfall.set_stance("force_eager"):
        assert torch.equal(compiled(X), module(X))
    assert not windfall.explanation(compiled).captures


def test_eager_on_recompile_uses_what_is_there() -> None:
    call = Watched()
    with windfall.set_stance("eager_on_recompile"):
        assert call(X)
    assert not call(X)
    with windfall.set_stance("eager_on_recompile"):
        assert not call(X) and call(WIDE)
    assert call.compilations == 1
    assert any("eager_on_recompile" in one for one in windfall.explanation(call.compiled).fallbacks)


def test_fail_on_recompile_says_what_changed_and_runs_nothing() -> None:
    call = Watched()
    with (
        windfall.set_stance("fail_on_recompile"),
        pytest.raises(windfall.RecompileError, match="nothing is compiled here yet"),
    ):
        call(X)
    assert not call(X)
    with windfall.set_stance("fail_on_recompile"):
        assert not call(X)
        with pytest.raises(RuntimeError, match=r"x.*expected .*6.*, got .*8"):
            call.compiled(WIDE)
    assert call.eager == 0
    assert not call(WIDE)


@pytest.mark.parametrize("name", ["eager_then_compile", "aot_eager_then_compile"])
def test_eager_then_compile(name: str) -> None:
    call = Watched()
    with windfall.set_stance(name):
        assert [call(X), call(X), call(WIDE)] == [True, False, False]


def test_force_backend_compiles_with_it_and_forgets_nothing() -> None:
    seen: list[int] = []

    def counting(module: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        seen.append(len(module.graph.nodes))
        return module.forward

    call = Watched()
    assert not call(X)
    with windfall.set_stance(force_backend=counting):
        assert not call(X) and not call(X)
    assert len(seen) == 1
    with windfall.set_stance(force_backend=counting):
        assert not call(X)
    assert len(seen) == 1 and not call(X)
    with windfall.set_stance(force_backend="nope"), pytest.raises(windfall.UserError, match="nope"):
        call(X)
    assert len(windfall.cache_entries(call.compiled)) == 1


def test_as_a_function_it_stays() -> None:
    call = Watched()
    windfall.set_stance("force_eager")
    assert call(X) and stance.current().name == "force_eager"
    windfall.set_stance("default")
    assert not call(X)


def test_as_a_decorator_it_holds_while_the_function_runs() -> None:
    call = Watched()

    @windfall.set_stance("force_eager")
    def outer(x: torch.Tensor) -> tuple[bool, str]:
        """Outer."""
        return call(x), stance.current().name

    assert stance.current().usual, "decorating changes nothing"
    assert outer(X) == (True, "force_eager") and outer.__doc__ == "Outer."
    assert stance.current().usual and not call(X)


def test_nested_stances_come_back_in_turn() -> None:
    def name() -> str:
        return stance.current().name

    with windfall.set_stance("eager_on_recompile"):
        with windfall.set_stance("force_eager"):
            with windfall.set_stance("default"):
                assert name() == "default"
            assert name() == "force_eager"
        assert name() == "eager_on_recompile"

        @windfall.set_stance("fail_on_recompile")
        def inner() -> str:
            return name()

        assert inner() == "fail_on_recompile" and name() == "eager_on_recompile"
    assert name() == "default"
    kept = windfall.set_stance("force_eager")
    windfall.set_stance("default")
    for _ in range(2):
        with windfall.set_stance("eager_on_recompile"), kept, kept:
            assert name() == "force_eager"
    assert name() == "default"


def test_an_exception_puts_the_stance_back() -> None:
    with pytest.raises(ZeroDivisionError), windfall.set_stance("force_eager"):
        raise ZeroDivisionError
    assert stance.current().usual


def test_skip_guard_eval_unsafe_is_accepted_and_stays_safe() -> None:
    call = Watched()
    assert not call(X)
    with windfall.set_stance(skip_guard_eval_unsafe=True):
        assert not call(X) and not call(WIDE)


def test_wrong_stances_are_refused() -> None:
    with pytest.raises(windfall.UserError, match="accepted: 'default'"):
        windfall.set_stance("sometimes")
    with pytest.raises(windfall.UserError, match="force_backend"):
        windfall.set_stance("force_eager", force_backend="eager")
    assert stance.current().usual


def test_a_stance_in_the_middle_of_a_program_with_breaks() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        if y.sum() > -100:
            return y + 1
        return y - 1

    compiled = windfall.compile(program, dynamic=False)
    expected = program(X)
    for name in ("default", "force_eager", "eager_on_recompile", "fail_on_recompile"):
        with windfall.set_stance(name):
            torch.testing.assert_close(compiled(X), expected)
    with windfall.set_stance("eager_on_recompile"):
        torch.testing.assert_close(compiled(WIDE), program(WIDE))


def test_reset_forgets_what_was_compiled() -> None:
    call = Watched()
    assert not call(X) and not call(WIDE)
    assert len(windfall.cache_entries(call.compiled)) == 2
    windfall.reset()
    assert not windfall.cache_entries(call.compiled)
    assert not call(X)
    assert call.compilations == 3 and len(windfall.cache_entries(call.compiled)) == 1


def test_a_stance_that_compiled_code_sets() -> None:
    call = Watched()

    @windfall.compile
    def program(x: torch.Tensor) -> tuple[torch.Tensor, bool]:
        y = x * 2
        with windfall.set_stance("force_eager"):
            eager = through(y)
        return y + 1, eager

    through = windfall.disable(call)
    result, eager = program(X)
    torch.testing.assert_close(result, X * 2 + 1)
    assert eager and stance.current().usual


def test_an_error_behind_a_break_lets_the_program_end_what_it_has_begun() -> None:
    events: list[Any] = []

    class Noted:
        def __enter__(self) -> None:
            events.append("enter")

        def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
            events.append(kind)

    def inner(x: torch.Tensor, by: Any) -> torch.Tensor:
        with Noted():
            y = x + 1
            windfall.graph_break()
            return y * by

    def program(x: torch.Tensor, by: Any, catch: bool) -> Any:
        try:
            return inner(x, by) - 1
        except windfall.RecompileError:
            if not catch:
                raise
            return "caught"
        finally:
            events.append("finally")

    compiled = windfall.compile(program, dynamic=False)
    x = torch.ones(3)
    for catch in (False, True):
        compiled(x, 2, catch)
    events.clear()
    with windfall.set_stance("fail_on_recompile"):
        with pytest.raises(windfall.RecompileError):
            compiled(x, 3, False)
        assert compiled(x, 3, True) == "caught"
    assert events == ["enter", windfall.RecompileError, "finally"] * 2
    torch.testing.assert_close(compiled(x, 3, False), (x + 1) * 3 - 1)
