"""Branches on data whose other side raises: one graph that looks, and eager where it is not so."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import windfall

Tensor = torch.Tensor


def positive(n: int = 4) -> Tensor:
    return torch.rand(n, generator=torch.Generator().manual_seed(0)) + 0.1


def refuses(x: Tensor) -> Tensor:
    if not (x > 0).all():
        raise ValueError(f"bad: {x.tolist()}")
    return x.log() * 2


def refuses_any(x: Tensor) -> Tensor:
    if (x < 0).any():
        raise ValueError("below")
    return x.log() * 2


def refuses_either(x: Tensor) -> Tensor:
    if (x < 0).any() or (x > 100).any():
        message = "outside"
        raise KeyError(message)
    return x.log() * 2


def refuses_in_callee(x: Tensor) -> Tensor:
    return refuses(x * 2) + 1


def refuses_at_the_end(x: Tensor) -> Tensor:
    if (x > 0).all():
        y = x.log()
    else:
        raise IndexError(len(x))
    return y * 2


def refuses_by_a_flag(x: Tensor) -> Tensor:
    fine = bool((x > 0).all())
    if not fine:
        raise ValueError("no")
    return x.log() * 2


def asserts(x: Tensor) -> Tensor:
    assert (x > 0).all(), f"found {x.min()}"
    return x.log() * 2


def asserts_as_torch(x: Tensor) -> Tensor:
    torch._assert((x > 0).all(), "said so")
    return x.log() * 2


def under_modes(x: Tensor) -> Tensor:
    with torch.no_grad():
        if not (x > 0).all():
            raise ValueError("inside")
        y = x.log()
    return y * 2


PROGRAMS = [
    refuses,
    refuses_any,
    refuses_either,
    refuses_in_callee,
    refuses_at_the_end,
    refuses_by_a_flag,
    asserts,
    asserts_as_torch,
    under_modes,
]


def outcome(function: Any, *arguments: Any) -> tuple[Any, str]:
    torch.manual_seed(0)
    try:
        return function(*arguments), ""
    except Exception as error:
        # pytest adds lines to what is asserted.
        return None, f"{type(error).__name__}: {error}".splitlines()[0]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.__name__)
@pytest.mark.parametrize("fullgraph", [False, True])
def test_one_graph_and_eagers_exception(program: Any, fullgraph: bool) -> None:
    compiled = windfall.compile(program, fullgraph=fullgraph)
    torch.testing.assert_close(compiled(positive()), program(positive()))
    told = windfall.explanation(compiled)
    assert (len(told.graphs), told.breaks, told.fallbacks) == (1, [], [])
    for _ in range(2):
        assert outcome(compiled, -positive()) == outcome(program, -positive())
        assert outcome(compiled, -positive())[1]
    torch.testing.assert_close(compiled(positive()), program(positive()))
    told = windfall.explanation(compiled)
    assert len(told.graphs) == 1 and not told.breaks
    assert all("a graph came to no end" in one for one in told.fallbacks) and told.fallbacks


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.__name__)
def test_the_first_call_may_be_the_bad_one(program: Any) -> None:
    compiled = windfall.compile(program)
    assert outcome(compiled, -positive()) == outcome(program, -positive())
    torch.testing.assert_close(compiled(positive()), program(positive()))
    assert not windfall.explanation(compiled).breaks


def test_gradients_pass_and_the_condition_needs_none() -> None:
    mine, theirs = positive().requires_grad_(), positive().requires_grad_()
    compiled = windfall.compile(refuses_in_callee)
    compiled(mine).sum().backward()
    refuses_in_callee(theirs).sum().backward()
    torch.testing.assert_close(mine.grad, theirs.grad)
    told = windfall.explanation(compiled)
    assert len(told.graphs) == 1 and not told.breaks and not told.fallbacks
    assert outcome(compiled, -mine)[1] == outcome(refuses_in_callee, -theirs)[1]


def test_nothing_before_it_is_seen_twice() -> None:
    class Counter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))
            self.seen: list[int] = []

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            self.seen.append(len(x))
            noise = torch.rand(4)
            if not (x > 0).all():
                raise ValueError("bad")
            return x + noise

    mine, theirs = Counter(), Counter()
    compiled = windfall.compile(mine)
    for x in (positive(), -positive(), positive()):
        assert str(outcome(compiled, x)) == str(outcome(theirs, x))
    assert (mine.calls, mine.seen) == (theirs.calls, theirs.seen)
    told = windfall.explanation(compiled)
    assert len(told.graphs) == 1 and not told.breaks


def test_large_inputs_written_before_are_a_break() -> None:
    """What runs op by op could not be taken back."""

    def writes(x: Tensor, table: Tensor) -> Tensor:
        table += 1
        if not (x > 0).all():
            raise ValueError("bad")
        return x.log()

    compiled = windfall.compile(writes)
    mine, theirs = torch.zeros(1 << 19), torch.zeros(1 << 19)
    for x in (positive(), -positive()):
        one, other = outcome(compiled, x, mine), outcome(writes, x, theirs)
        assert one[1] == other[1]
        assert torch.equal(mine, theirs)
    assert [one.number for one in windfall.explanation(compiled).breaks][:1] == [2]


def test_what_the_program_handles_again_and_again_becomes_a_break() -> None:
    def handles(x: Tensor) -> Tensor:
        y = x + 1
        try:
            if (x < 0).any():
                raise ValueError("below")
            y = y.log()
        except ValueError:
            y = y * 3
        return y * 2

    compiled = windfall.compile(handles)
    for x in (positive(), *[-positive()] * 6, positive()):
        torch.testing.assert_close(compiled(x), handles(x))
    told = windfall.explanation(compiled)
    assert sum("no end" in one for one in told.fallbacks) == 1
    assert told.eager["a call, or the rest of it"] == 3
    assert {one.number for one in told.breaks} == {2}


def test_a_branch_that_may_not_raise_is_a_break() -> None:
    def maybe(x: Tensor, strict: bool) -> Tensor:
        if not (x > 0).all():
            if strict:
                raise ValueError("bad")
            x = x.abs()
        return x.log()

    compiled = windfall.compile(maybe)
    for x in (positive(), -positive()):
        torch.testing.assert_close(compiled(x, False), maybe(x, False))
    assert [one.number for one in windfall.explanation(compiled).breaks][:1] == [2]


def test_backends_of_users_are_not_begun_again() -> None:
    def backend(graph: Any, inputs: Any) -> Any:
        return graph

    compiled = windfall.compile(refuses, backend=backend)
    torch.testing.assert_close(compiled(positive()), refuses(positive()))
    assert outcome(compiled, -positive()) == outcome(refuses, -positive())
    assert [one.number for one in windfall.explanation(compiled).breaks][:1] == [2]
