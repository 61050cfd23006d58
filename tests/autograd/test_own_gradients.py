"""Backwards that users write are any functions: of some gradients and zeros for others, of none,
with grad modes of their own. Gradients, and gradients of gradients, are eager's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from tests.autograd.both import Compile, both, leaf, raised, seen

OP_BY_OP = {"a graph, op by op": 1}


def two(backward: Callable[..., Any]) -> Any:
    """A function of two tensors with two results."""

    class Two(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            ctx.save_for_backward(x, y)
            return x * 2, y * 3

        @staticmethod
        def backward(ctx: Any, g: Any, h: Any) -> Any:
            return backward(ctx, g, h)

    return Two


# Linear in the gradients, and made of all of them; others.
SUMS: dict[str, Any] = {
    "sum": lambda ctx, g, h: (g * 5 + h, g - h * 2),
    "sum of views": lambda ctx, g, h: ((g.view(-1) + h.view(-1)).view_as(g), None),
    "times what was saved": lambda ctx, g, h: (g * ctx.saved_tensors[0] - h, -(g + h)),
}
OTHERS: dict[str, Any] = {
    "each its own": lambda ctx, g, h: (g * 5, h * 7),
    "not homogeneous": lambda ctx, g, h: (g + 1, h + 1),
    "product": lambda ctx, g, h: ((g + 1) * (h + 1), None),
    "square": lambda ctx, g, h: (g * g + h, g + h),
    "function": lambda ctx, g, h: ((g + h).exp(), g.cos() + h),
    "constant": lambda ctx, g, h: (torch.ones_like(g), h.new_ones(3)),
    "saved": lambda ctx, g, h: (ctx.saved_tensors[1] * 2, g + h),
}


@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2)])
@pytest.mark.parametrize("name", [*SUMS, *OTHERS])
def test_some_results_of_a_function(name: str, wanted: tuple[int, ...]) -> None:
    function = two({**SUMS, **OTHERS}[name])

    def scenario(compile: Compile) -> Any:
        x, y = leaf(3), leaf(3)

        def run(x: Any, y: Any) -> Any:
            a, b = function.apply(x * 1, y)
            return a.sin(), b, x.exp()

        results = compile(run)(x, y)
        torch.autograd.backward([results[one].sum() for one in wanted])
        return seen(x, y, *results)

    both(scenario, None if name in SUMS else OP_BY_OP)


@pytest.mark.parametrize("name", [*SUMS, "each its own", "not homogeneous", "product", "function"])
def test_one_result_of_a_graph(name: str) -> None:
    """There all its gradients are there, or none."""
    function = two({**SUMS, **OTHERS}[name])

    def scenario(compile: Compile) -> Any:
        x, y = leaf(3), leaf(3)
        result = compile(lambda x, y: sum(function.apply(x, y)).sum())(x, y)
        result.backward()
        return seen(x, y)

    both(scenario)


def one(backward: Callable[..., Any]) -> Any:
    """A function of one tensor."""

    class One(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x**2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return backward(ctx, g)

    return One


ALONE: dict[str, Any] = {
    "ones": lambda ctx, g: torch.ones(3, dtype=torch.float64),
    "ones like": lambda ctx, g: torch.ones_like(g),
    "full like": lambda ctx, g: torch.full_like(g, 3),
    "new": lambda ctx, g: g.new_full((3,), 2),
    "of its sizes": lambda ctx, g: torch.full(g.shape, 2, dtype=g.dtype),
    "saved": lambda ctx, g: ctx.saved_tensors[0] * 2,
}


@pytest.mark.parametrize("name", ALONE)
@pytest.mark.parametrize("results", [1, 2])
def test_gradients_that_are_made_of_none(name: str, results: int) -> None:
    """There is one where the result has one, and none where it has none."""
    function = one(ALONE[name])

    def scenario(compile: Compile) -> Any:
        x, y = leaf(3), leaf(3)

        def run(x: Any, y: Any) -> Any:
            first = function.apply(x * y).exp()
            return (first, y.sin())[:results]

        call, told = compile(run), []
        for which in range(results):
            call(x, y)[which].sum().backward()
            told.append(seen(x, y))
            x.grad = y.grad = None
        return told

    both(scenario, OP_BY_OP)


AFFINE: dict[str, Any] = {
    "a number": lambda ctx, g: g + 1,
    "what was saved": lambda ctx, g: g * 2 + ctx.saved_tensors[0],
    "a constant": lambda ctx, g: (g + torch.ones(3, dtype=torch.float64)).neg(),
    "cat": lambda ctx, g: torch.cat([g[:1], torch.ones(1, dtype=torch.float64), g[2:]]),
    "difference": lambda ctx, g: g - 1,
    "where": lambda ctx, g: torch.where(ctx.saved_tensors[0] > 0, g, 1.0),
}


@pytest.mark.parametrize("name", AFFINE)
@pytest.mark.parametrize("together", [False, True])
def test_what_is_added_to_gradients_is_added_once(name: str, together: bool) -> None:
    """In a pass of two results that share a function it runs once, of the sum."""
    function = one(AFFINE[name])

    def scenario(compile: Compile) -> Any:
        x = leaf(3)

        def run(x: Any) -> Any:
            h = function.apply(x)
            return h * 2, h.sum(), h.view(3, 1)

        roots = [one.sum() for one in compile(run)(x)]
        if together:
            torch.autograd.backward(roots)
        else:
            for root in roots:
                root.backward(retain_graph=True)
        return seen(x)

    both(scenario)


def _no_grad(ctx: Any, g: Any) -> Any:
    (x,) = ctx.saved_tensors
    with torch.no_grad():
        k = 2 * x
    return k * g * x


def _nested(ctx: Any, g: Any) -> Any:
    (x,) = ctx.saved_tensors
    with torch.no_grad():
        k = 2 * x
        k.mul_(3)
        part = k[1:]
        with torch.enable_grad():
            z = x * x
    return k * g * x + part.sum() + z * g


@torch.no_grad()
def _tripled(x: torch.Tensor) -> torch.Tensor:
    return x * 3


def _for_good(ctx: Any, g: Any) -> Any:
    torch.set_grad_enabled(False)
    return ctx.saved_tensors[0] * 2 * g


MODES: dict[str, Any] = {
    "no_grad": _no_grad,
    "nested": _nested,
    "decorated": lambda ctx, g: _tripled(ctx.saved_tensors[0]) * g * ctx.saved_tensors[0],
    "switched for good": _for_good,
    "detached": lambda ctx, g: ctx.saved_tensors[0].detach() * 2 * g,
    "in place": lambda ctx, g: g.clone().mul_(2) * ctx.saved_tensors[0],
}


@pytest.mark.parametrize("name", MODES)
@pytest.mark.parametrize("needs", [False, True])
def test_grad_modes_of_a_backward(name: str, needs: bool) -> None:
    function = one(MODES[name])

    def scenario(compile: Compile) -> Any:
        x = leaf(3)
        tangent = torch.randn(3, dtype=torch.float64, requires_grad=needs)
        result = compile(lambda x: function.apply(x.sin()))(x)
        (first,) = torch.autograd.grad(result, x, tangent, create_graph=True)
        told = [first.requires_grad, torch.is_grad_enabled()]
        (first.sum() + x.pow(3).sum()).backward()
        return told + seen(first.detach(), x, tangent)

    both(scenario)


@pytest.mark.parametrize("name", MODES)
def test_grad_modes_of_a_backward_in_the_graph(name: str) -> None:
    function = one(MODES[name])

    def scenario(compile: Compile) -> Any:
        x = leaf(3)

        def run(x: Any) -> Any:
            result = function.apply(x.sin()).sum()
            (first,) = torch.autograd.grad(result, x, create_graph=True)
            return first

        first = compile(run)(x)
        (first.sum() + x.pow(3).sum()).backward()
        return seen(first.detach(), x)

    both(scenario)


def test_grad_modes_are_not_read() -> None:
    """Whether a backward is differentiated, it does not know when it is read."""
    function = one(lambda ctx, g: g * 2 if torch.is_grad_enabled() else g * 3)

    def scenario(compile: Compile) -> Any:
        x = leaf(3)
        result = compile(lambda x: function.apply(x))(x)
        again = torch.autograd.grad(result.sum(), x, create_graph=True)
        return seen(*again, *torch.autograd.grad(result.sum(), x))

    both(scenario, {"a step at a break": 1})


class Once(torch.autograd.Function):
    """Its backward has no derivative."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x**2

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g: Any) -> Any:
        return 2 * ctx.saved_tensors[0] * g


@pytest.mark.parametrize("needs", [False, True])
@pytest.mark.parametrize("after", [False, True])
def test_once_differentiable(needs: bool, after: bool) -> None:
    """It is a constant to second derivatives, and says so where these would go through it."""

    def scenario(compile: Compile) -> Any:
        x = leaf(3)
        tangent = torch.randn(3, dtype=torch.float64, requires_grad=needs)
        call = compile(lambda x: Once.apply(x.sin()).cos() if after else Once.apply(x.sin()))
        (first,) = torch.autograd.grad(call(x), x, tangent, create_graph=True)
        error = raised(lambda: (first * first).sum().backward())
        assert (error is None) is not (needs or after)
        if error is not None:
            return first.detach(), error  # how far such a pass came, nobody promises
        return seen(first.detach(), x, tangent)

    both(scenario)


@pytest.mark.parametrize("after", [False, True])
def test_once_differentiable_in_the_graph(after: bool) -> None:
    def scenario(compile: Compile) -> Any:
        x = leaf(3)

        def run(x: Any) -> Any:
            result = Once.apply(x * 2)
            result = (result.sin() if after else result).sum()
            return torch.autograd.grad(result, x, create_graph=True)[0] * x

        result = compile(run)(x)
        error = raised(lambda: result.sum().backward())
        assert (error is not None) is after
        return result.detach(), error, None if after else seen(x)

    both(scenario, OP_BY_OP if after else None)


@pytest.mark.parametrize(
    "function", [lambda x: (x * x.detach()).trace(), lambda x: (x * x.data).trace()]
)
def test_what_cuts_histories_is_not_run_by_eagers_ops(function: Any) -> None:
    """The second derivative of a trace depends on data. By eager's ops the first would have a
    history of all that they read: an error is better."""

    def scenario(compile: Compile) -> Any:
        x = leaf(3, 3)
        tangent = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
        (first,) = torch.autograd.grad(compile(function)(x), x, tangent, create_graph=True)
        if compile.__name__ == "eager":
            return first.detach()
        with pytest.raises(RuntimeError, match="W0100"):
            first.sum().backward()
        return first.detach()

    both(scenario)


@torch.library.custom_op("windfall_own_gradients::two", mutates_args=())
def registered(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """An op of somebody else's, whose backward is no linear map."""
    return x * 2, y * 3


@registered.register_fake
def _registered(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(x), torch.empty_like(y)


registered.register_autograd(lambda ctx, g, h: (g + 1, h + 1))


@pytest.mark.parametrize("wanted", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("joined", [False, True])
def test_some_results_of_a_registered_op(wanted: tuple[int, ...], joined: bool) -> None:
    def scenario(compile: Compile) -> Any:
        x, y = leaf(3), leaf(3)

        def run(x: Any, y: Any) -> Any:
            a, b = registered(x, y)
            return (a * b, a + b) if joined else (a, b)

        results = compile(run)(x, y)
        torch.autograd.backward([results[one].sum() for one in wanted])
        return seen(x, y)

    both(scenario, None if joined else OP_BY_OP)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("joined", [False, True])
def test_some_results_of_a_checkpoint(reentrant: bool, joined: bool) -> None:
    """One with use_reentrant is an `autograd.Function` to eager."""

    def inner(x: Any, y: Any) -> Any:
        return (x * y, (x + y).exp()) if joined else (x.sin(), y.exp())

    def scenario(compile: Compile) -> Any:
        x, y = leaf(3), leaf(3)

        def run(x: Any, y: Any) -> Any:
            return checkpoint(inner, x, y, use_reentrant=reentrant)[0] * 2

        compile(run)(x, y).sum().backward()
        return seen(x, y)

    both(scenario, {"a step at a break": 1} if reentrant and not joined else None)
