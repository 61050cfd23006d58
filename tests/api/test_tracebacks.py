"""What an exception shows: the program's own frames, as eager has them, and none of windfall's."""

from __future__ import annotations

import importlib
import os
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch

import windfall
from windfall import codegen

X = torch.linspace(-1, 1, 6)
OURS = os.path.dirname(windfall.__file__)


def caught(function: Callable[..., Any], *args: Any) -> BaseException:
    try:
        function(*args)
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def shown(error: BaseException | None) -> list[tuple[str, str, int | None]]:
    """Function, file and line of each frame."""
    assert error is not None
    frames = traceback.extract_tb(error.__traceback__)
    return [(one.name, os.path.basename(one.filename), one.lineno) for one in frames]


def names(error: BaseException | None) -> list[str]:
    return [name for name, *_ in shown(error)]


def assert_only_the_users(error: BaseException | None) -> None:
    assert error is not None
    found = traceback.extract_tb(error.__traceback__)
    assert not [one for one in found if one.filename.startswith(OURS)]
    assert OURS not in "".join(traceback.format_exception(error))


# ----------------------------------------------------------------------- what the program raises


def views(x: torch.Tensor) -> torch.Tensor:
    return x.view(7)


def shape_error(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    return views(y) * 2


def raises(x: torch.Tensor) -> torch.Tensor:
    raise ValueError("mine")


def own_exception(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    return raises(y)


@windfall.disable
def native(x: torch.Tensor) -> torch.Tensor:
    return raises(x)


def in_a_native_function(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    return native(y) + 1


def behind_a_break(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    windfall.graph_break()
    return raises(y + 1)


def in_a_handler(x: torch.Tensor) -> torch.Tensor:
    try:
        return raises(x)
    except ValueError as error:
        raise KeyError("another") from error


def in_a_loop(x: torch.Tensor) -> torch.Tensor:
    for step in range(3):
        x = x + step
        if step == 2:
            raises(x)
    return x


def in_a_generator(x: torch.Tensor) -> torch.Tensor:
    return sum((raises(x + step) for step in range(2)), x)


PROGRAMS = (
    shape_error, own_exception, in_a_native_function, behind_a_break, in_a_handler, in_a_loop,
    in_a_generator,
)  # fmt: skip


def _without_disable(frames: list[Any]) -> list[Any]:
    """`disable` has a frame of its own in eager."""
    return [one for one in frames if one[1] != "directives.py"]


@pytest.mark.parametrize("native", [True, False], ids=["native", "python"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.__name__)
def test_frames_are_eagers(program: Callable[..., Any], native: bool) -> None:
    compiled = windfall.compile(program, options={"native": native})
    expected = caught(program, X)
    for _ in range(2):  # compiling, then calling what is compiled
        found = caught(compiled, X)
        assert type(found) is type(expected) and str(found) == str(expected)
        assert shown(found)[1:] == _without_disable(shown(expected))[1:]
        assert_only_the_users(found)
        if expected.__cause__ is not None:
            assert shown(found.__cause__) == shown(expected.__cause__)


def test_the_columns_are_the_programs() -> None:
    """What is marked, and what the frames say of where they stand, is eager's."""
    for program in (shape_error, *PROGRAMS):
        found = [
            [
                (one.filename, one.name, one.lineno, one.end_lineno, one.colno, one.end_colno)
                for one in traceback.extract_tb(caught(function, X).__traceback__)[1:]
                if not one.filename.endswith("directives.py")
            ]
            for function in (program, windfall.compile(program))
        ]
        assert found[0] == found[1]


def test_a_module(capsys: pytest.CaptureFixture[str]) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 3))
    error = caught(windfall.compile(module), X)
    assert_only_the_users(error)
    assert shown(error)[-1][:2] == ("forward", "linear.py")


def test_compiled_functions_that_call_each_other() -> None:
    inner = windfall.compile(own_exception)
    outer = windfall.disable(lambda x: inner(x))
    error = caught(windfall.compile(lambda x: outer(x + 1)), X)
    assert_only_the_users(error)
    assert names(error)[-2:] == ["own_exception", "raises"]


def test_in_eager_by_stance() -> None:
    compiled = windfall.compile(own_exception)
    with windfall.set_stance("force_eager"):
        error = caught(compiled, X)
    assert_only_the_users(error)
    assert names(error)[1:] == ["own_exception", "raises"]


# -------------------------------------------------------------------------- what windfall raises


def prints(x: torch.Tensor) -> torch.Tensor:
    print("seen")
    return x + 1


def calls_prints(x: torch.Tensor) -> torch.Tensor:
    return prints(x) * 2


def test_a_break_under_fullgraph() -> None:
    error = caught(windfall.compile(calls_prints, fullgraph=True), X)
    assert isinstance(error, windfall.BreakError)
    assert error.__cause__ is None and error.__context__ is None
    assert names(error) == ["caught", "calls_prints", "prints"]
    assert_only_the_users(error)


def test_a_backend() -> None:
    def failing(module: Any, inputs: Any) -> Any:
        raise LookupError("no kernel")

    error = caught(windfall.compile(own_exception, backend=failing), X)
    assert isinstance(error, windfall.BackendError)
    assert names(error) == ["caught"]
    assert names(error.__cause__) == ["failing"]
    assert_only_the_users(error)
    assert_only_the_users(error.__cause__)


def test_what_a_backend_made() -> None:
    def failing(module: Any, inputs: Any) -> Any:
        def run(*inputs: Any) -> Any:
            raise LookupError("no memory")

        return run

    error = caught(windfall.compile(lambda x: x + 1, backend=failing), X)
    assert isinstance(error, LookupError)
    assert names(error) == ["caught", "<lambda>", "run"]


def test_a_recompile_that_is_forbidden_and_a_forbidden_function() -> None:
    compiled = windfall.compile(calls_prints)
    with windfall.set_stance("fail_on_recompile"):
        assert names(caught(compiled, X)) == ["caught"]
    forbidden = windfall.forbid_in_graph(lambda x: x)
    assert_only_the_users(caught(windfall.compile(lambda x: forbidden(x)), X))


# ---------------------------------------------------------------------------- our own mistakes


STAGES = (
    ("frontend", "rewrite"), ("autograd", "differentiate"), ("codegen", "schedule"),
    ("codegen", "join"), ("runtime", "enter"),
)  # fmt: skip


@pytest.mark.hides_errors
@pytest.mark.parametrize(("room", "name"), STAGES)
def test_a_mistake_of_ours_is_counted_and_eager_answers(
    room: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any, **keywords: Any) -> Any:
        raise KeyError("a bug")

    monkeypatch.setattr(importlib.import_module(f"windfall.{room}"), name, broken)
    if name == "join":
        monkeypatch.setattr(codegen, "divide", lambda graph, written: _Nothing())
    compiled = windfall.compile(lambda x: x + 1)
    torch.testing.assert_close(compiled(X), X + 1)
    (reason,) = windfall.explanation(compiled).fallbacks
    assert "InternalError" in reason and "KeyError: 'a bug'" in reason
    strict = windfall.compile(lambda x: x + 1, options={"strict": True})
    error = caught(strict, X)
    assert isinstance(error, windfall.InternalError) and isinstance(error.__cause__, KeyError)
    assert any(one.filename.startswith(OURS) for one in traceback.extract_tb(error.__traceback__))


class _Nothing:
    graphs = ()
    written = ()


def test_a_mistake_of_ours_in_a_backward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    build = codegen.build

    def broken(module: Any) -> Any:
        calls.append(module)
        if len(calls) > 1:
            raise KeyError("a bug")
        return build(module)

    calls: list[Any] = []
    monkeypatch.setattr(codegen, "build", broken)
    compiled = windfall.compile(lambda x: x.sin().sum())
    x = X.clone().requires_grad_()
    compiled(x).backward()
    torch.testing.assert_close(x.grad, X.cos())
    (reason,) = windfall.explanation(compiled).fallbacks
    assert "KeyError: 'a bug'" in reason
