"""What a tensor says of itself beside its type: where two tensors of one type answer differently, a
program that asks answers differently too, from one entry or another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import windfall

Tensor = torch.Tensor


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    """Tensors of one shape and dtype that differ in something else."""
    plain, wide = torch.arange(4.0), torch.arange(32.0)
    leaf = torch.arange(4.0, requires_grad=True)
    yield "begins later", wide[:4], wide[1:5]
    yield "larger memory", plain, wide[:4]
    yield "view", plain, torch.arange(8.0).view(2, 4)[1]
    yield "detached view", wide[:4], wide[3:7].detach()
    yield "buffer", plain, nn.Buffer(torch.arange(4.0))
    yield "parameter", plain, nn.Parameter(torch.arange(4.0), requires_grad=False)
    yield "attribute", plain, tagged(torch.arange(4.0))
    yield "no leaf", leaf, leaf * 1
    first, second = (torch.arange(8.0, requires_grad=True) * 1).split(4)
    yield "second result of its node", first, second
    yield "gradient", leaf, with_gradient(torch.arange(4.0, requires_grad=True))
    yield "written before", torch.arange(4.0), torch.zeros(4).add_(1)
    with torch.inference_mode():
        yield "inference", plain, torch.arange(4.0)


def tagged(x: Tensor) -> Tensor:
    x.tag = 3  # type: ignore[attr-defined]
    return x


def with_gradient(x: Tensor) -> Tensor:
    x.grad = torch.ones_like(x)
    return x


QUESTIONS: dict[str, Callable[[Tensor], Any]] = {
    "offset": lambda x: x.storage_offset(),
    "offset, by the class": lambda x: torch.Tensor.storage_offset(x),
    "offset of a part": lambda x: x[1:].storage_offset(),
    "offset of a reshape": lambda x: x.reshape(2, 2)[1].storage_offset(),
    "offset of what is no copy": lambda x: x.contiguous().to(torch.float32).storage_offset(),
    "offset of a result": lambda x: (x * 2)[1:].storage_offset(),
    "result number": lambda x: x.output_nr,
    "result number of a part": lambda x: [part.output_nr for part in x.unbind()],
    "buffer": lambda x: isinstance(x, nn.Buffer),
    "parameter": lambda x: isinstance(x, nn.Parameter),
    "either": lambda x: isinstance(x, (nn.Parameter, nn.Buffer)),
    "attribute": lambda x: getattr(x, "tag", 1),
    "whether an attribute": lambda x: hasattr(x, "tag"),
    "leaf": lambda x: x.is_leaf,
    "gradient": lambda x: x.is_leaf and x.grad is None,
    "base": lambda x: x._base is None,
    "view": lambda x: x._is_view(),
    "node": lambda x: x.grad_fn is None,
    "version": lambda x: not x.is_inference() and x._version,
    "inference": lambda x: x.is_inference(),
    "bytes of the memory": lambda x: x.untyped_storage().nbytes(),
    "strides": lambda x: x.stride(),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_each_answers_for_itself(name: str) -> None:
    ask = QUESTIONS[name]
    for about, one, other in pairs():

        def program(x: Tensor, ask: Callable[[Tensor], Any] = ask) -> Any:
            return x * 2, ask(x)

        compiled = windfall.compile(program)
        for x in (one, other, one):
            wanted, (doubled, found) = ask(x), compiled(x)
            assert found == wanted, about
            assert torch.equal(doubled, x * 2)
        told = windfall.explanation(compiled)
        assert not told.fallbacks, about  # natively at most, and never the whole call


def test_what_asks_for_no_place_is_one_graph() -> None:
    """Of memory that the graph makes itself the place is known."""
    compiled = windfall.compile(QUESTIONS["offset of a result"], fullgraph=True)
    assert compiled(torch.arange(9.0)[2:6]) == 1


@pytest.mark.parametrize("name", [one for one in QUESTIONS if one.startswith("offset")])
def test_where_an_input_begins_is_guarded_and_no_break(name: str) -> None:
    ask = QUESTIONS[name]
    compiled = windfall.compile(lambda x: (x * 2, ask(x)), fullgraph=True)
    memory = torch.arange(32.0)
    for start in (0, 3, 5, 3):
        x = memory[start : start + 4]
        assert compiled(x)[1] == ask(x)
    told = windfall.explanation(compiled)
    assert not told.breaks and not told.fallbacks


def test_an_input_is_a_leaf_no_more_once_written() -> None:
    weight = torch.ones(4, requires_grad=True)

    def program(x: Tensor) -> Any:
        x.mul_(weight)
        return x * 1, x.is_leaf, x.requires_grad

    compiled = windfall.compile(program, fullgraph=True)
    assert compiled(torch.ones(4))[1:] == program(torch.ones(4))[1:] == (False, True)


@pytest.mark.parametrize("outside", [True, False])
def test_a_buffer_is_registered(outside: bool) -> None:
    """An attribute of a module that is flagged as a buffer becomes one."""

    def program(x: Tensor) -> list[str]:
        module = nn.Module()
        module.held = x if outside else nn.Buffer(x * 2)
        return [name for name, _ in module.named_buffers()]

    compiled = windfall.compile(program)
    for x in (torch.ones(4), nn.Buffer(torch.ones(4)), torch.ones(4)):
        assert compiled(x) == program(x)
    assert program(nn.Buffer(torch.ones(4))) == ["held"]
