"""Graphs that come to no end: who is told, and what is put back (ADR 0027)."""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import windfall
from windfall import runtime
from windfall.errors import GraphFailed, InternalError
from windfall.ir.rollback import KEPT_BYTES, DrawsNothing, FailsUnseen
from windfall.ir.stages import MISS, Entry

BOTH = pytest.mark.parametrize("native", [True, False], ids=["native", "python"])
FAR = torch.tensor([0, 9])


def entry(call: Callable[..., Any]) -> Entry:
    return Entry(call, None, False)  # type: ignore[arg-type]


def failing(*arguments: Any) -> Any:
    raise GraphFailed("as it happens")


@BOTH
def test_a_dispatcher_takes_the_slow_path(native: bool) -> None:
    def never(*arguments: Any) -> Any:
        raise AssertionError

    call = runtime.dispatcher(
        [entry(lambda x: MISS), entry(failing), entry(never)], lambda x: ("slow", x), native=native
    )
    assert call(1) == ("slow", 1)


@BOTH
def test_other_exceptions_are_the_callers(native: bool) -> None:
    def raises(x: Any) -> Any:
        raise KeyError(x)

    call = runtime.dispatcher([entry(raises)], lambda x: "slow", native=native)
    with pytest.raises(KeyError):
        call(1)


def test_a_call_that_fails_is_counted_and_the_entry_stays() -> None:
    compiled = windfall.compile(lambda x, i: x[i] * 2)
    x = torch.rand(5, 4)
    compiled(x, FAR - FAR)
    for _ in range(3):
        with pytest.raises(IndexError):
            compiled(x, FAR)
    (event,) = compiled.log.snapshot("fallback")
    assert event.facts["times"] == 3 and "IndexError" in event.facts["reason"]
    assert torch.equal(compiled(x, FAR // 9), x[FAR // 9] * 2)
    assert sum(map(len, compiled.entries().values())) == 1


def test_the_traceback_is_eagers() -> None:
    def inner(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return x.gather(0, i[:, None])

    def program(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        y = x + 1
        return inner(y, i) * 2

    def frames_of(function: Callable[..., Any]) -> list[Any]:
        try:
            function(torch.rand(5, 4), FAR)
        except RuntimeError as error:
            assert error.__cause__ is None and error.__context__ is None
            frames = traceback.extract_tb(error.__traceback__)
            return [(one.filename, one.lineno, one.name) for one in frames]
        raise AssertionError

    compiled = windfall.compile(program)
    assert frames_of(compiled) == frames_of(program)
    assert frames_of(compiled) == frames_of(program)  # now by the native dispatcher


def test_a_mistake_of_ours_is_shown_where_that_is_wished() -> None:
    def broken(*inputs: Any) -> Any:
        raise GraphFailed("as it happens", InternalError("ours"))

    for strict in (False, True):
        compiled = windfall.compile(lambda x: x + 1, options={"strict": strict})
        compiled(torch.zeros(2))
        (found,) = compiled._points.values()
        found.calls = (broken,)
        runtime.replace_entries(type(compiled).__call__, [])
        if strict:
            with pytest.raises(InternalError, match="ours"):
                compiled(torch.zeros(2))
        else:
            assert torch.equal(compiled(torch.zeros(2)), torch.ones(2))


def test_a_compiled_function_in_another_and_in_eager() -> None:
    rows = windfall.compile(lambda x, i: x[i] * 2)

    def program(x: torch.Tensor, i: torch.Tensor) -> Any:
        try:
            return rows(x, i)
        except IndexError as error:
            return rows(x, i % 5), str(error)

    x = torch.rand(5, 4)
    wanted = (x[FAR % 5] * 2, "index 9 is out of bounds for dimension 0 with size 5")
    for function in (program, windfall.compile(program)):
        for _ in range(2):
            found = function(x, FAR)
            assert torch.equal(found[0], wanted[0]) and found[1] == wanted[1]


def test_a_backward_that_fails_is_eagers() -> None:
    compiled = windfall.compile(lambda x, i: F.embedding(i, x * 2).tanh().sum())
    grads = []
    for function in (compiled, compiled.target):
        x = torch.ones(5, 4, requires_grad=True)
        loss = function(x, torch.tensor([1, 2]))
        if function is compiled:
            loss.backward(retain_graph=True)
            x.grad = None
            _break_backward(loss)
        loss.backward()
        grads.append(x.grad)
    torch.testing.assert_close(*grads)
    (event,) = compiled.log.snapshot("fallback")
    assert "as it happens" in event.facts["reason"]


def _break_backward(loss: torch.Tensor) -> None:
    """Let every compiled backward of a loss fail from now on."""
    built = loss.grad_fn.kept[0]._of_strides  # type: ignore[union-attr]
    for strides, one in list(built.items()):
        built.add(strides, dataclasses.replace(one, call=failing))


# ----------------------------------------------------------------------- what graphs leave behind


def writing(x: torch.Tensor, y: torch.Tensor) -> Any:
    x.add_(1)
    torch.rand(3)
    y.mul_(2)
    raise ValueError("no")


def test_what_was_written_and_drawn_is_put_back() -> None:
    x, y = torch.zeros(3), torch.ones(3)
    x.add_(0)
    state = torch.get_rng_state()
    with pytest.raises(GraphFailed, match="ValueError: no"):
        DrawsNothing().around(FailsUnseen((0, 1)).around(writing))(x, y)
    assert torch.equal(x, torch.zeros(3)) and torch.equal(y, torch.ones(3))
    assert (x._version, y._version) == (1, 0)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("dynamic", [None, True])
def test_an_input_that_shares_memory_with_itself_is_put_back(dynamic: bool | None) -> None:
    """Eager refuses to write to y, but x is written before that: both are as eager leaves them."""

    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.zero_()
        y.add_(1)
        return x + 1

    compiled = windfall.compile(program, dynamic=dynamic)
    for size in (4, 4, 7):
        x, y = torch.ones(size, 2), torch.ones(1).expand(size)
        with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
            compiled(x, y)
        assert torch.equal(x, torch.zeros(size, 2)) and torch.equal(y, torch.ones(size))
        assert (x._version, y._version) == (1, 0)
    told = [str(one) for one in windfall.explanation(compiled).fallbacks]
    assert any("W0200" in one for one in told)
    assert any("eager runs this call" in one for one in told)


def test_what_cannot_be_put_back_is_the_programs_exception() -> None:
    with pytest.raises(ValueError, match="no"):  # nobody knew that y is written
        FailsUnseen((0,)).around(writing)(torch.zeros(3), torch.ones(3))
    large = torch.zeros(KEPT_BYTES // 4 + 1)
    with pytest.raises(ValueError, match="no"):
        FailsUnseen((0, 1)).around(writing)(large, torch.ones(3))
    with torch.inference_mode(), pytest.raises(ValueError, match="no"):
        FailsUnseen((0, 1)).around(writing)(torch.zeros(3), torch.ones(3))
    x = torch.zeros(3)
    with pytest.raises(ValueError, match="no"):

        def grows(x: torch.Tensor, w: torch.Tensor) -> Any:
            x.add_(w)
            raise ValueError("no")

        FailsUnseen((0,)).around(grows)(x, torch.ones(3, requires_grad=True))
    assert x.requires_grad


def test_hooks_of_saved_tensors_raise_their_own() -> None:
    class Stop(Exception):
        pass

    def pack(tensor: torch.Tensor) -> Any:
        raise Stop

    for backend in ("windfall", "eager"):
        compiled = windfall.compile(lambda x: (x.sin() * x).sum(), backend=backend)
        x = torch.ones(3, requires_grad=True)
        compiled(x)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda one: one), pytest.raises(Stop):
            compiled(x)
        assert not compiled.log.snapshot("fallback")


def test_a_users_backend_raises_its_own() -> None:
    def backend(module: Any, inputs: Any) -> Any:
        def run(*given: Any) -> Any:
            raise ValueError("of the backend")

        return run

    compiled = windfall.compile(lambda x: x + 1, backend=backend)
    with pytest.raises(ValueError, match="of the backend"):
        compiled(torch.ones(2))
