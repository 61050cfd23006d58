"""Faults, a sample of them here: every so many lines of a few programs, and every stage.

All programs at every hundredth line: `python -m tests.faults`, and `make conformance`.
"""

from __future__ import annotations

import contextlib
import gc
import subprocess
import sys
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import windfall
from tests.faults import surroundings
from tests.faults.injector import Fault
from tests.faults.programs import PROGRAMS, Box, Program, outside
from tests.faults.sweep import EXCEPTIONS, sweep
from windfall import autograd, codegen, frontend, runtime, subgraphs

pytestmark = pytest.mark.hides_errors

KINDS: dict[str, type[BaseException]] = {
    "KeyboardInterrupt": KeyboardInterrupt,
    "MemoryError": MemoryError,
    "RuntimeError": RuntimeError,
}
SAMPLE = ["breaks", "modes", "gradient_function", "reads", "generators"]


def _told(program: str, kind: str, step: int, first: int = 1, **given: Any) -> int:
    faults = list(sweep(PROGRAMS[program], KINDS[kind], step, first, **given))
    wrong = [str(one) for one in faults if one.wrong]
    assert not wrong, "\n".join(wrong)
    return len(faults)


@pytest.mark.parametrize("program", SAMPLE)
def test_an_interrupt_leaves_everything_as_it_was(program: str) -> None:
    assert _told(program, "KeyboardInterrupt", 17011, 2503) >= 1


@pytest.mark.parametrize("kind", ["MemoryError", "RuntimeError"])
def test_an_error_leaves_everything_as_it_was(kind: str) -> None:
    assert _told("training", kind, 23011, 1201) >= 1


def test_an_error_of_a_rule_that_is_tried_is_kept_by_nobody() -> None:
    """Sizes that are read from data are tried: what a rule raises there ends in no capture."""
    assert _told("reads", "RuntimeError", 1500, 1701) >= 10


@pytest.mark.parametrize("program", ["breaks", "training", "reads"])
def test_an_interrupt_of_a_call_that_is_compiled(program: str) -> None:
    assert _told(program, "KeyboardInterrupt", 11, warm=True) >= 1


def _raises() -> Callable[..., Any]:
    def inner(x: torch.Tensor, box: Box) -> torch.Tensor:
        box.lines.append("inner")
        w = x * 3
        raise ValueError(f"of {w.ndim} dimensions")

    def function(x: torch.Tensor, y: torch.Tensor, box: Box) -> Any:
        return inner(x * y, box)

    return function


def _catching(compiled: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    x, y, box = arguments
    del arguments
    try:
        return compiled(x, y, box)
    except ValueError as error:
        box.lines.append(f"caught {error}")
        return x + 1


RAISES = Program(
    "raises", _raises, lambda: (torch.ones(3, 3), torch.full((3, 3), 2.0), Box()), _catching
)


@pytest.mark.parametrize("kind", ["KeyboardInterrupt", "MemoryError"])
def test_a_fault_while_the_frames_of_another_exception_are_let_go(kind: str) -> None:
    """In a process of its own: behind thousands of other tests, CPython has crashed there once,
    where the trace function met a frame that a traceback was made of."""
    text = f"from tests.faults.test_faults import strike; strike({kind!r})"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def strike(kind: str) -> None:
    """Each line of a warm call that raises, in our frames' being let go."""
    faults = list(sweep(RAISES, KINDS[kind], 1, warm=True))
    struck = [one for one in faults if "errors.py" in one.where]
    assert not [str(one) for one in struck if one.wrong]
    assert len({one.where.split()[1] for one in struck}) >= 4


@pytest.mark.conformance
@pytest.mark.parametrize("kind", EXCEPTIONS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_every_hundredth_line(program: str, kind: str) -> None:
    assert _told(program, kind, 100) > 50


@pytest.mark.conformance
@pytest.mark.parametrize("program", PROGRAMS)
def test_every_line_of_a_call_that_is_compiled(program: str) -> None:
    _told(program, "KeyboardInterrupt", 1, warm=True)


# ---------------------------------------------------------------------------------- stages

STAGES: list[tuple[Any, str]] = [
    (frontend, "capture"),
    (frontend, "rewrite"),
    (frontend, "example_inputs"),
    (autograd, "differentiate"),
    (autograd, "split"),
    (autograd, "differentiable"),
    (codegen, "arrange"),
    (codegen, "divide"),
    (codegen, "lower"),
    (codegen, "schedule"),
    (codegen, "plan"),
    (codegen, "emit"),
    (codegen, "build"),
    (autograd, "assemble"),
    (runtime, "bind"),
    (runtime, "enter"),
    (subgraphs, "PartitionedGraph"),
]


def _function(x: torch.Tensor, y: torch.Tensor, box: Box) -> Any:
    with torch.no_grad():
        z = y.detach() * 3
        outside(box, "inside no_grad")
        z = z.cos()
    if subgraphs_too := box.count:
        z = z[z > 0].sum() * subgraphs_too
    return (x @ y).sin() + z


@pytest.mark.parametrize("count", [0, 1], ids=["whole", "reads"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("room", "name"), STAGES, ids=[name for _, name in STAGES])
def test_a_fault_in_a_stage(
    room: Any, name: str, kind: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the stage has done anything and when it has done all, once each; the call after it
    is as if nothing had been."""
    original = getattr(room, name)
    for late in (False, True):
        compiled = windfall.compile(_function)
        struck = []

        def stage(*args: Any, late: bool = late, struck: list[int] = struck, **kwargs: Any) -> Any:
            if struck:
                return original(*args, **kwargs)
            if late:
                original(*args, **kwargs)
            struck.append(1)
            raise KINDS[kind]("injected")

        monkeypatch.setattr(room, name, stage)
        lines = _hit(compiled, KINDS[kind], count)
        assert struck or (name == "PartitionedGraph" and not count), "no such stage"
        monkeypatch.setattr(room, name, original)
        assert lines == ["inside no_grad"] * len(lines)
        _is_right(compiled, count)


def _arguments(count: int) -> tuple[torch.Tensor, torch.Tensor, Box]:
    x = torch.arange(9.0).reshape(3, 3).sin().requires_grad_()
    y = torch.arange(9.0).reshape(3, 3).cos().requires_grad_()
    box = Box()
    box.count = count
    return x, y, box


def _hit(compiled: Callable[..., Any], kind: type[BaseException], count: int) -> list[str]:
    """A call and its backward, one of which is struck."""
    arguments = _arguments(count)
    lines = arguments[2].lines
    kept = [weakref.ref(one) for one in arguments]
    gc.disable()
    try:
        before = surroundings.now()
        with contextlib.suppress(kind):
            compiled(*arguments).sum().backward()
        assert not surroundings.differences(before, surroundings.now())
        assert not surroundings.held_locks()
        del arguments
        assert not [one for one in kept if one() is not None]
    finally:
        gc.enable()
    return lines


def _is_right(compiled: Callable[..., Any], count: int) -> None:
    mine, others = _arguments(count), _arguments(count)
    found, expected = compiled(*mine), _function(*others)
    assert torch.allclose(found, expected)
    found.sum().backward()
    expected.sum().backward()
    for one, other in zip(mine[:2], others[:2], strict=True):
        assert torch.allclose(one.grad, other.grad)
    assert mine[2].lines == others[2].lines


def test_a_backend_that_raises() -> None:
    """It is told as the backend's error, and the next call asks the backend again."""
    calls = []

    def backend(module: torch.fx.GraphModule, examples: list[torch.Tensor]) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        if len(calls) == 1:
            raise ZeroDivisionError
        return module.forward

    compiled = windfall.compile(lambda x: x.sin() + 1, backend=backend)
    x = torch.ones(3)
    before = surroundings.now()
    with pytest.raises(windfall.BackendError):
        compiled(x)
    with pytest.raises(KeyboardInterrupt):
        compiled(x)
    assert not surroundings.differences(before, surroundings.now())
    assert torch.equal(compiled(x), x.sin() + 1)
    assert torch.equal(compiled(x), x.sin() + 1)
    assert len(calls) == 3


def test_a_program_too_deep_for_the_compiler_runs_eagerly() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x * 2 + 1

    compiled = windfall.compile(function)
    before = surroundings.now()
    fault = Fault(RecursionError, 3001)
    with fault:
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 3.0))
    assert fault.happened
    assert not surroundings.differences(before, surroundings.now())
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 3.0))
    assert all(compiled.entries().values()), "the second call is compiled"
