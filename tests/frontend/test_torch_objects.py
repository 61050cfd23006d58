"""Callables of torch that are objects, annotations, weak references, lazy modules."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Optional, Union, get_args, get_origin

import pytest
import torch
from torch import nn

from tests.programs.subjects import Windfall


def whole(program: Callable[..., Any], *args: Any) -> Any:
    """The result of a program that must be one graph, equal to the uncompiled one."""
    subject = Windfall("eager")
    compiled = subject.compile(program)
    result = compiled(*args)
    assert not subject.explanation.breaks, subject.notes()
    assert len(subject.graphs()) == 1
    return result


def agrees(program: Callable[..., Any], *args: Any) -> None:
    torch.testing.assert_close(whole(program, *args), program(*args))


X = torch.linspace(-1, 1, 12).reshape(3, 4)


def scaled_sine(x: torch.Tensor, factor: int) -> torch.Tensor:
    return x.sin() * factor


def test_ops_by_packet_and_by_overload() -> None:
    agrees(lambda x: torch.ops.aten.add(torch.ops.aten.relu.default(x), x), X)


@torch.library.custom_op("windfall_tests::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(x.numpy() * 2)


@twice.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def test_a_custom_op_is_a_node() -> None:
    agrees(lambda x: twice(x) + torch.ops.windfall_tests.twice(x), X)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
def test_a_scripted_function_is_inlined() -> None:
    scripted = torch.jit.script(scaled_sine)
    agrees(lambda x: scripted(x, 3) + 1, X)


@pytest.mark.filterwarnings("ignore")
def test_a_traced_function_stays_what_was_traced() -> None:
    traced = torch.jit.trace(lambda x: x * 2 if x.sum() > 0 else x - 1, (torch.ones(3),))
    compiled = Windfall("eager").compile(lambda x: traced(x) + 1)
    torch.testing.assert_close(compiled(-torch.ones(3)), -torch.ones(3))


def test_methods_of_tensors_that_are_python_functions() -> None:
    agrees(lambda x: torch.Tensor.__rsub__(x, 2) + torch.Tensor.__rpow__(x, 2), X)


def test_functions_with_an_underscore() -> None:
    agrees(lambda x: torch._softmax(x, 1, False), X)


def test_a_function_that_gets_a_module_is_followed() -> None:
    distance = nn.PairwiseDistance()

    def program(x: torch.Tensor) -> torch.Tensor:
        loss = nn.functional.triplet_margin_with_distance_loss
        return loss(x, x + 1, x * 2, distance_function=distance)

    agrees(program, X)


@pytest.mark.parametrize("layer", [nn.GRUCell(4, 4), nn.GRU(4, 4), nn.RNN(4, 4)])
def test_recurrent_layers_are_whole(layer: nn.Module) -> None:
    agrees(layer, X)


def test_a_recurrent_layer_notices_another_weight() -> None:
    """It compares weak references with its weights."""
    torch.manual_seed(0)
    layer = nn.GRU(4, 4)
    subject = Windfall("eager")
    compiled = subject.compile(layer)
    compiled(X)
    layer.weight_ih_l0 = nn.Parameter(torch.ones_like(layer.weight_ih_l0))
    torch.testing.assert_close(compiled(X), layer(X))


class Thing:
    value = 2.0


def test_a_weak_reference_is_followed_and_its_death_is_noticed() -> None:
    thing = Thing()
    reference = weakref.ref(thing)

    def program(x: torch.Tensor) -> torch.Tensor:
        found = reference()
        return x if found is None else x * found.value

    compiled = Windfall("eager").compile(program)
    torch.testing.assert_close(compiled(X), X * 2)
    del thing
    assert reference() is None, "nothing kept it alive"
    torch.testing.assert_close(compiled(X), X)


ANNOTATIONS = (int | None, list[int], Optional[str], int)  # noqa: UP045
KINDS: dict[Any, float] = {int: 1.0, str: 2.0, Union: 3.0}


def test_annotations_are_asked() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        total = x
        for annotation in ANNOTATIONS:
            total = total + len(get_args(annotation))
            if get_origin(annotation) is Union:
                total = total * KINDS[Union]
            elif annotation in (int, str):
                total = total * KINDS[annotation]
        return total

    agrees(program, X)


def test_star_arguments_of_a_generator() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.stack([*map_to(*(x * n for n in range(3)), scale=2)])

    def map_to(*parts: torch.Tensor, scale: int) -> list[torch.Tensor]:
        return [part * scale for part in parts]

    agrees(program, X)


def test_parametrized_weights() -> None:
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
    agrees(layer, X)


def test_a_lazy_module_is_initialised_before_it_is_captured() -> None:
    expected, lazy = nn.LazyLinear(3), nn.LazyLinear(3)
    torch.manual_seed(1)
    wanted = expected(X)
    torch.manual_seed(1)
    torch.testing.assert_close(whole(lazy, X), wanted)
    assert type(lazy) is nn.Linear


def test_a_tensor_tells_its_type() -> None:
    agrees(lambda x: x.double() if x.type() == "torch.FloatTensor" else x, X)
