"""Where `as_strided` begins: at the place in the storage that is given, or where its base does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import windfall

Tensor = torch.Tensor

BASES: dict[str, Callable[[Tensor], Tensor]] = {
    "an input": lambda x: x,
    "rows of an input": lambda x: x[1:],
    "a column of an input": lambda x: x[:, 2],
    "turned rows of an input": lambda x: x[1:].t(),
    "a piece of an input": lambda x: x.split(2)[1],
    "what is computed": lambda x: x * 2,
    "rows of what is computed": lambda x: (x * 2)[1:],
    "an element of what is computed": lambda x: (x * 2)[2, 3],
    "a view of a view": lambda x: (x * 2)[1:].as_strided((3, 2), (2, 1))[1:],
}
VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "no place": lambda x: x.as_strided((2,), (1,)),
    "None": lambda x: x.as_strided((2, 2), (1, 2), None),
    "by its name": lambda x: x.as_strided((2,), (2,), storage_offset=None),
    "a place": lambda x: x.as_strided((2,), (1,), 5),
    "the first place": lambda x: x.as_strided((2,), (1,), 0),
}


def _inputs() -> list[Tensor]:
    memory = torch.arange(64.0)
    return [memory[:32].view(4, 8), memory[3:35].view(4, 8), memory[7:].as_strided((4, 8), (9, 1))]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("base", BASES)
def test_a_view_begins_where_eager_begins(base: str, view: str, dynamic: bool | None) -> None:
    def program(x: Tensor) -> Any:
        part = VIEWS[view](BASES[base](x))
        return part, part * 3

    compiled = windfall.compile(program, dynamic=dynamic)
    for x in _inputs():
        for mine, eagers in zip(compiled(x.clone()), program(x.clone()), strict=True):
            assert torch.equal(mine, eagers)
        if "input" in base:
            held, expected = compiled(x)[0], program(x)[0]
            assert held.storage_offset() == expected.storage_offset()


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("base", BASES)
def test_gradients_go_there(base: str, view: str) -> None:
    def program(x: Tensor) -> Tensor:
        return VIEWS[view](BASES[base](x * 1)).sin()

    compiled = windfall.compile(program)
    for given in _inputs():
        x = given.detach().clone().requires_grad_()
        pairs = [(function(x), x) for function in (program, compiled)]
        torch.testing.assert_close(pairs[1][0], pairs[0][0])
        gradients = [torch.autograd.grad(one.sum(), x)[0] for one, _ in pairs]
        torch.testing.assert_close(gradients[1], gradients[0])


@pytest.mark.parametrize("view", ["no place", "None", "by its name"])
@pytest.mark.parametrize("base", [name for name in BASES if "rows" in name])
def test_gradients_of_what_is_written_inside_of_its_base(base: str, view: str) -> None:
    def program(x: Tensor) -> Tensor:
        whole = x * 1
        part = VIEWS[view](BASES[base](whole))
        part.mul_(2)
        return part.sin().sum() + whole.cos().sum()

    compiled = windfall.compile(program)
    for given in _inputs():
        x = given.detach().clone().requires_grad_()
        gradients = [torch.autograd.grad(function(x), x)[0] for function in (compiled, program)]
        torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("base", [name for name in BASES if "input" in name])
def test_writes_to_inputs_go_there(base: str) -> None:
    def program(x: Tensor) -> Tensor:
        VIEWS["no place"](BASES[base](x)).add_(100)
        return x + 1

    compiled = windfall.compile(program)
    for given in _inputs():
        memories = []
        for function in (program, compiled):
            x = given.clone()
            memories.append((function(x), x))
        for mine, eagers in zip(memories[1], memories[0], strict=True):
            assert torch.equal(mine, eagers)


def test_what_is_computed_is_native() -> None:
    compiled = windfall.compile(lambda x: VIEWS["no place"]((x * 2)[1:]) + 1, fullgraph=True)
    assert compiled(torch.arange(8.0).view(4, 2)).tolist() == [5.0, 7.0]
    assert not windfall.explanation(compiled).eager
