"""`torch.autograd.Function` and hooks inside of compiled functions: how they ran, and right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import windfall
from tests.autograd.both import Compile, both, leaf, seen


class Identity(torch.autograd.Function):
    """What is given back as it is has the function's gradient."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * 0.5


class Doubled(torch.autograd.Function):
    """Writes its argument."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * 7


class Relu(torch.autograd.Function):
    """Writes its argument, and saves it: before, as eager saves what there is in the end."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        x.clamp_(min=0)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * (ctx.saved_tensors[0] > 0)


class Several(torch.autograd.Function):
    """Written, computed and non-differentiable results; no gradient for the second argument."""

    @staticmethod
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        x.mul_(2)
        above = y > 0
        ctx.mark_dirty(x)
        ctx.mark_non_differentiable(above)
        return x, y * 3, above

    @staticmethod
    def backward(ctx: Any, g: Any, h: Any, _: Any) -> Any:
        return g * 7 + h, None


class Unmaterialised(torch.autograd.Function):
    """Asks for None in place of zeros, of one result."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.set_materialize_grads(False)
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return None if g is None else g * 5


class Pair(torch.autograd.Function):
    """The same of two results, of which one may have no gradient."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx: Any, g: Any, h: Any) -> Any:
        return (g * 2 if g is not None else 100) + (h * 3 if h is not None else 1000)


class Slots(torch.autograd.Function):
    """One tensor given twice has a gradient for each slot."""

    @staticmethod
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        return x + y

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * 2, g * 3


def _view(x: torch.Tensor) -> Any:
    h = x * 1
    part = Doubled.apply(h[1:])
    return h * 2, part


NATIVE: dict[str, Callable[[torch.Tensor], Any]] = {
    "identity": lambda x: Identity.apply(x * 2) * 3,
    "identity of an input": lambda x: Identity.apply(x) * 3,
    "identity twice": lambda x: Identity.apply(Identity.apply(x)).sin(),
    "written": lambda x: Doubled.apply(x * 1) * 3,
    "written view": _view,
    "written and saved": lambda x: Relu.apply(x * 1) * 3,
    "several": lambda x: Several.apply(x * 1, x)[:2],
    "not materialised": lambda x: Unmaterialised.apply(x * 1) * 2,
    "slots": lambda x: Slots.apply(x, x),
}


def agree(function: Any, x: torch.Tensor, wanted: Any = None, **options: Any) -> Any:
    """The results and gradients of eager; what `explain` tells."""
    mine, theirs = (x.detach().clone().requires_grad_() for _ in range(2))
    explained = windfall.explain(function, **options)(mine)
    results, expected = explained.result, function(theirs)
    for found, given in ((results, mine), (expected, theirs)):
        parts = found if isinstance(found, tuple) else (found,)
        for index, one in enumerate(parts):
            if wanted is None or index in wanted:
                one.sum().backward(retain_graph=True)
        assert given.grad is not None
    torch.testing.assert_close(results, expected)
    torch.testing.assert_close(mine.grad, theirs.grad)
    return explained


@pytest.mark.parametrize("name", NATIVE)
def test_functions_are_one_graph(name: str) -> None:
    explained = agree(NATIVE[name], torch.randn(4, 5))
    assert len(explained.graphs) == 1 and not explained.breaks and not explained.eager


@pytest.mark.parametrize("wanted", [(0,), (1,), (0, 1)])
def test_gradients_that_may_be_missing_are_eagers_to_give(wanted: tuple[int, ...]) -> None:
    explained = agree(lambda x: Pair.apply(x * 1), torch.randn(4), wanted)
    assert [one.number for one in explained.breaks] == [1]


def test_a_written_input_has_eagers_history() -> None:
    x = torch.randn(3, requires_grad=True)
    found = []
    for call in (windfall.compile(lambda h: Doubled.apply(h)), lambda h: Doubled.apply(h)):
        h = x * 1
        result = call(h)
        assert result is h and h._version == 2
        (gradient,) = torch.autograd.grad(h.sum(), x)
        found.append((result.detach(), gradient))
    torch.testing.assert_close(*found)


def test_a_leaf_is_not_written() -> None:
    for call in (windfall.compile(lambda x: Doubled.apply(x)), lambda x: Doubled.apply(x)):
        with pytest.raises(RuntimeError, match="a leaf Variable"):
            call(torch.randn(3, requires_grad=True))


def _after_use(x: torch.Tensor) -> Any:
    h = x * 2
    first = h.sin()
    h.register_hook(lambda g: g * 3)
    return first * h.cos()


def _two_hooks(x: torch.Tensor) -> Any:
    h = x * 2
    h.register_hook(lambda g: g * 3)
    k = x * h
    k.register_hook(lambda g: g + 1)
    h.register_hook(lambda g: g - 1)
    return (k.sin() * h).sum()


def _returned(x: torch.Tensor) -> Any:
    h = x * 2
    h.register_hook(lambda g: g * 3)
    return h.sin(), h


def _nothing(x: torch.Tensor) -> Any:
    h = x * 2
    h.register_hook(lambda g: None)
    return h.sin()


def _removed(x: torch.Tensor) -> Any:
    h = x * 2
    handle = h.register_hook(lambda g: g * 3)
    result = h.sin()
    handle.remove()
    return result


def _viewed(x: torch.Tensor) -> Any:
    h = x * 2
    h.register_hook(lambda g: g * 3)
    return h.t().sin() * h.view(5, 4)


HOOKS = [_after_use, _two_hooks, _returned, _nothing, _removed, _viewed]


@pytest.mark.parametrize("function", HOOKS)
def test_hooks_on_what_is_computed_are_native(function: Any) -> None:
    explained = agree(function, torch.randn(4, 5))
    assert len(explained.graphs) == 1 and not explained.breaks and not explained.eager
    assert all(note.kind != "python call" for note in explained.kernels())


@pytest.mark.parametrize("of", [lambda h: h.t(), lambda h: h[1:], lambda h: h.view(-1)])
@pytest.mark.parametrize("made", [lambda x: x, lambda x: x * 2])
def test_hooks_on_views_run_op_by_op(of: Any, made: Any) -> None:
    def function(x: torch.Tensor) -> Any:
        h = made(x)
        part = of(h)
        part.register_hook(lambda g: g * 3)
        return part.sin(), h * 2

    explained = agree(function, torch.randn(4, 5))
    assert explained.eager == {"a graph, op by op": 1} and "W0210" in str(explained)


def test_hooks_are_called_once_in_each_pass_and_in_eagers_order() -> None:
    def function(x: torch.Tensor, told: list[str]) -> Any:
        h = x * 2
        h.register_hook(lambda g: told.append("h"))
        k = h.sin()
        k.register_hook(lambda g: told.append("k"))
        return k.exp()

    logs = []
    for call in (windfall.compile(function), function):
        told: list[str] = []
        x = torch.randn(3, requires_grad=True)
        result = call(x, told)
        result.sum().backward(retain_graph=True)
        torch.autograd.grad(result.sum(), x, create_graph=True)
        logs.append(told)
    assert logs[0] == logs[1] == ["k", "h", "k", "h"]


def test_second_derivatives_pass_hooks() -> None:
    found = []
    for call in (windfall.compile(_two_hooks), _two_hooks):
        x = torch.linspace(0.1, 1, 4, requires_grad=True)
        (first,) = torch.autograd.grad(call(x), x, create_graph=True)
        (second,) = torch.autograd.grad((first * first).sum(), x)
        found.append((first.detach(), second))
    torch.testing.assert_close(*found)


def test_retained_gradients() -> None:
    kept: list[torch.Tensor] = []

    def function(x: torch.Tensor) -> Any:
        h = x * 2
        h.retain_grad()
        kept.append(h)
        return h.sin()

    found = []
    for call in (windfall.compile(function, fullgraph=True), function):
        x = torch.linspace(0.1, 1, 4, requires_grad=True)
        call(x).sum().backward()
        found.append((kept[-1].grad, x.grad))
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("pair", ["copies", "int8"])
def test_hooks_for_saved_tensors_inside(pair: str) -> None:
    """Entered in the function: steps at breaks; what lies between is packed and unpacked."""
    packed: list[int] = []

    def pack(one: torch.Tensor) -> torch.Tensor:
        packed.append(1)
        return one.clone() if pair == "copies" else (one * 10).round().to(torch.int8)

    def unpack(one: torch.Tensor) -> torch.Tensor:
        return one if pair == "copies" else one.double() / 10

    def scenario(compile: Compile) -> Any:
        x = leaf(3)
        packed.clear()

        def run(x: torch.Tensor) -> Any:
            with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
                y = x * x
            return y.sin()

        compile(run)(x).sum().backward()
        assert packed
        return seen(x)

    both(scenario, {"a step at a break": 2})
