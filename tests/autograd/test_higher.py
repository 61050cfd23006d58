"""Kinds of forward passes × ways of asking for gradients: eager's answers, and how they were found.

Values, which gradients are None, how often a user's own op runs, and errors are eager's; nothing of
it runs in eager but where `how` says so.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import windfall
from tests.autograd.harness import Compiled
from windfall.events import Eager

Tensors = list[torch.Tensor]
NATIVE: dict[str, int] = {}
calls: list[str] = []


def grad(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, dtype=torch.float64, requires_grad=True)


# ------------------------------------------------------------------------------ forward passes


@torch.library.custom_op("windfall_tests_higher::cube", mutates_args=())
def cube(x: torch.Tensor) -> torch.Tensor:
    calls.append("cube")
    return x**3


@cube.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(inputs[0])


cube.register_autograd(lambda ctx, g: g * 3 * ctx.saved_tensors[0] ** 2, setup_context=_keep)


class Scaled(torch.autograd.Function):
    """Its backward uses both inputs, and is differentiable."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        context.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(context: Any, g: torch.Tensor) -> Any:
        x, w = context.saved_tensors
        return g * w * 2, g * x * w


class OneSided(torch.autograd.Function):
    """Its backward uses an input that it gives no gradient to."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        context.save_for_backward(w)
        return x * w

    @staticmethod
    def backward(context: Any, g: torch.Tensor) -> Any:
        return g * context.saved_tensors[0] ** 2, None


def enabled_inside(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        a = x * w
        with torch.enable_grad():
            b = (x * w).sin()
        c = b * a
    return b * c + a


def clamped_inside(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        w = w.clamp(-0.5, 0.5)
    return (x * w) ** 3


def switched(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    torch.set_grad_enabled(False)
    a = x.exp() * w
    torch.set_grad_enabled(True)
    return a * x.sin() * w


def written(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    h = x * 2
    h.mul_(w)
    h[1:].add_(x[:-1])
    return h**3


def several(x: torch.Tensor, w: torch.Tensor) -> Any:
    h = (x * w).tanh()
    return h, (h * x).sum(), x.detach() * w


FORWARDS: dict[str, Callable[..., Any]] = {
    "product": lambda x, w: x * w,
    "nothing saved": lambda x, w: x * 2 + w,
    "sum inside": lambda x, w: (x + w) ** 3,
    "unsaved input": lambda x, w: (x + w).sin().exp(),
    "detach": lambda x, w: x * x.detach() * w,
    "detach of a value": lambda x, w: x.exp() * (x * w).exp().detach() * w,
    "same value, detached and not": lambda x, w: x.exp() * x.exp().detach() * w,
    "no_grad": clamped_inside,
    "enable_grad": enabled_inside,
    "set_grad_enabled": switched,
    "layer": lambda x, w: F.gelu(F.linear(x, w, w[0])),
    "norms": lambda x, w: F.layer_norm(x @ w, (4,), w[0], w[1]).softmax(-1),
    "groups": lambda x, w: F.group_norm((x @ w).view(2, 4, 2), 2, w[0], w[1]),
    "reductions": lambda x, w: (x * w).logsumexp(0) + x.norm() + x.std(0),
    "views": lambda x, w: (x.t()[1:] * w.t()[1:]).reshape(-1)[2:].unfold(0, 3, 2) ** 2,
    "written": written,
    "dropout": lambda x, w: F.dropout(x * w, 0.5) ** 3,
    "custom function": lambda x, w: Scaled.apply(x, w) * x,
    "one-sided function": lambda x, w: OneSided.apply(x, w) * x,
    "custom op": lambda x, w: cube(x * w) * w,
    "results": several,
    "indices": lambda x, w: x[torch.tensor([0, 2, 2])] * w.gather(0, torch.tensor([[1, 0, 2, 3]])),
    "where": lambda x, w: torch.where(x > 0, x * w, w**3).clamp(-1.0, 1.0) ** 2,
    "linear algebra": lambda x, w: torch.linalg.solve(x @ x.t() + torch.eye(4), w) ** 2,
}


def tensors(result: Any) -> Tensors:
    found = list(result) if isinstance(result, tuple) else [result]
    return [one for one in found if one.requires_grad]


def total(values: Any) -> torch.Tensor:
    return sum(  # type: ignore[return-value]
        (one * torch.arange(1.0, one.numel() + 1).view(one.shape)).sum()
        for one in values
        if one is not None and one.requires_grad
    )


# -------------------------------------------------------------------------------- ways to ask


def plain(results: Tensors, inputs: Tensors) -> Any:
    return torch.autograd.grad(total(results), inputs, allow_unused=True)


def retained(results: Tensors, inputs: Tensors) -> Any:
    first = torch.autograd.grad(total(results), inputs, retain_graph=True, allow_unused=True)
    return [*first, *plain(results, inputs)]


def second(results: Tensors, inputs: Tensors) -> Any:
    first = torch.autograd.grad(total(results), inputs, create_graph=True, allow_unused=True)
    loss = total(first)
    if not isinstance(loss, torch.Tensor):
        return first
    return [*first, *torch.autograd.grad(loss, inputs, allow_unused=True)]


def third(results: Tensors, inputs: Tensors) -> Any:
    found: list[Any] = []
    for _ in range(2):
        first = torch.autograd.grad(total(results), inputs, create_graph=True, allow_unused=True)
        found += first
        results = [one for one in first if one is not None and one.requires_grad]
        if not results:
            return found
    return [*found, *plain(results, inputs)]


def accumulated(results: Tensors, inputs: Tensors) -> Any:
    for one in inputs:
        one.grad = None
    first = torch.autograd.grad(total(results), inputs[:1], create_graph=True)
    (total(first) + total(results)).backward()
    return [*first, *(one.grad for one in inputs)]


def one_input(results: Tensors, inputs: Tensors) -> Any:
    (first,) = torch.autograd.grad(total(results), inputs[1:], create_graph=True)
    if not first.requires_grad:
        return [first]
    return [first, *torch.autograd.grad(first.sum(), inputs, allow_unused=True)]


def of_tangents(results: Tensors, inputs: Tensors) -> Any:
    """Gradients with respect to the tangents: forward mode by double backward."""
    dummies = [torch.zeros_like(one, requires_grad=True) for one in results]
    first = torch.autograd.grad(results, inputs, dummies, create_graph=True, allow_unused=True)
    pairs = [(one, torch.ones_like(one)) for one in first if one is not None]
    return torch.autograd.grad(
        [one for one, _ in pairs], dummies, [other for _, other in pairs], allow_unused=True
    )


def last_alone(results: Tensors, inputs: Tensors) -> Any:
    return second(results[-1:], inputs)


def under_autocast(results: Tensors, inputs: Tensors) -> Any:
    with torch.autocast("cpu"):
        return plain(results, inputs)


def through_hooks(results: Tensors, inputs: Tensors) -> Any:
    """(Eager calls them with None too, where a node of its own has several results.)"""
    seen = []
    for one in results:
        one.register_hook(lambda g: None if g is None else seen.append(g.detach().clone()))
    return [*second(results, inputs), *seen]


WAYS = (
    plain, retained, second, third, accumulated, one_input, of_tangents, last_alone,
    under_autocast, through_hooks,
)  # fmt: skip


def answers(function: Any, way: Any, leaf: bool) -> tuple[Any, list[str]]:
    torch.manual_seed(7)
    leaves = [grad(4, 4), grad(4, 4)]
    inputs = leaves if leaf else [one * 1 for one in leaves]
    calls.clear()
    try:
        return way(tensors(function(*inputs)), leaves), list(calls)
    except (RuntimeError, NotImplementedError) as error:
        return type(error), list(calls)


def same(found: Any, wanted: Any) -> None:
    if isinstance(wanted, type):
        assert found is wanted
        return
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert (one is None) == (other is None)
        if other is not None:
            torch.testing.assert_close(one, other)
            assert one.requires_grad == other.requires_grad


def cases() -> Any:
    """All of them; those that are no conformance sweep meet each forward and each way."""
    for row, forward in enumerate(FORWARDS):
        for column, way in enumerate(WAYS):
            for leaf in (True, False):
                name = f"{forward}-{way.__name__}-{'leaves' if leaf else 'values'}"
                sampled = (row + 3 * leaf) % len(WAYS) == column
                marks = () if sampled else pytest.mark.conformance
                yield pytest.param(forward, way, leaf, id=name, marks=marks)


@pytest.mark.parametrize(("forward", "way", "leaf"), [*cases()])
def test_ways(forward: str, way: Any, leaf: bool) -> None:
    function = FORWARDS[forward]
    wanted, runs = answers(function, way, leaf)
    compiled = windfall.compile(function)
    for _ in range(2):
        found, ours = answers(compiled, way, leaf)
        same(found, wanted)
        assert ours == runs
    assert windfall.explanation(compiled).eager == NATIVE


# ------------------------------------------------------------------- what a replay got wrong (#12)


def test_grad_mode_inside_of_no_grad_is_that_of_the_forward_pass() -> None:
    def run(function: Any) -> Any:
        x = torch.tensor([0.3], dtype=torch.float64, requires_grad=True)
        with torch.no_grad():
            y = function(x)
        (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        return first, *torch.autograd.grad(first.sum(), x)

    def function(x: torch.Tensor) -> torch.Tensor:
        a = x * 2
        with torch.enable_grad():
            return (x * a).sin() * x

    compiled = windfall.compile(function)
    torch.testing.assert_close(run(compiled), run(function))
    assert windfall.explanation(compiled).eager == NATIVE


def product(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (x * w + b).sin() * w


@pytest.mark.parametrize("write", ["unneeded", "needed", "data"])
@pytest.mark.parametrize("again", [False, True])
def test_inputs_that_are_written_before_backward(write: str, again: bool) -> None:
    """Eager minds what it saved, and does not see `.data`."""

    def run(function: Any) -> Any:
        torch.manual_seed(2)
        x, w, b = grad(3), grad(3), grad(3)
        y = function(x, w, b)
        with torch.no_grad():
            if write == "unneeded":
                b.mul_(7)
            elif write == "needed":
                w.mul_(7)
            else:
                b.data.mul_(7)
        try:
            found = torch.autograd.grad(y.sum(), [x, w, b], create_graph=again)
            return [*found, *torch.autograd.grad(total(found), [x, w, b])] if again else found
        except RuntimeError as error:
            return type(error), "modified by an inplace operation" in str(error)

    compiled = windfall.compile(product)
    found, wanted = run(compiled), run(product)
    if isinstance(wanted[0], type):
        assert found == wanted
    else:
        same(found, wanted)
    assert windfall.explanation(compiled).eager == NATIVE


def test_freed_graphs_say_what_eager_says() -> None:
    texts = []
    for function in (product, windfall.compile(product)):
        y = function(grad(3), grad(3), grad(3)).sum()
        y.backward()
        for again in (False, True):
            with pytest.raises(RuntimeError) as raised:
                y.backward(create_graph=again)
            texts.append(str(raised.value))
    assert len({*texts}) == 1


class Once(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
        context.save_for_backward(x)
        return x**2

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(context: Any, g: torch.Tensor) -> torch.Tensor:
        return 2 * g * context.saved_tensors[0]


def test_what_cannot_be_differentiated_twice_says_so_when_it_is_tried() -> None:
    def function(q: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, q, q)

    compiled = windfall.compile(function)
    for run in (compiled, function):
        q = torch.randn(1, 2, 8, 4, requires_grad=True)
        (first,) = torch.autograd.grad(run(q).sum(), q, create_graph=True)
        assert first.requires_grad
        with pytest.raises(RuntimeError, match=r"derivative for .* is not implemented"):
            first.sum().backward()


# -------------------------------------------------------------------------- what is kept (#12)


def test_inputs_that_are_not_saved_die() -> None:
    """With no help of the collector; those that are saved live until backward has run."""
    compiled = windfall.compile(lambda x, w, b: (x * w + b).relu())
    w = grad(3)
    gc.disable()
    try:
        for leaf in (True, False):
            x, b = (one if leaf else one * 1 for one in (grad(3), grad(3)))
            seen = weakref.ref(b)
            y = compiled(x, w, b)
            del b, x
            if not leaf:
                assert seen() is None
            y.sum().backward()
            seen = weakref.ref(y)
            del y
            assert seen() is None
    finally:
        gc.enable()


def test_hooks_see_what_is_kept_and_nothing_else_is() -> None:
    def function(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x @ w + b).sum()

    compiled, packed = windfall.compile(function), []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        packed.append(tensor.untyped_storage().data_ptr())
        return tensor.detach().clone()

    for again in (False, True):
        x, w, b = grad(4, 4) * 1, grad(4, 4), grad(4) * 1
        packed.clear()
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda one: one):
            y = compiled(x, w, b)
        assert len(packed) == 3  # x, w, and what tanh answered
        assert {x.data_ptr(), w.data_ptr()} < {*packed}
        assert b.data_ptr() not in packed
        found = torch.autograd.grad(y, [x, w, b], create_graph=again)
        same(found, torch.autograd.grad(function(x, w, b), [x, w, b], create_graph=again))


def test_a_checkpoint_around_a_compiled_function_frees_what_it_saves() -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return ((x @ w).exp() + 1).sin()

    x, w = grad(4, 4), grad(4, 4)
    answers, saved = [], []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        saved.append(tensor.data_ptr())
        return tensor

    for run in (function, windfall.compile(function)):
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda one: one):
            y = torch.utils.checkpoint.checkpoint(run, x, w, use_reentrant=False)
        answers.append(torch.autograd.grad(y.sum(), [x, w]))
    same(*answers)
    assert saved == [x.data_ptr(), w.data_ptr()] * 2  # what goes into it


# -------------------------------------------------------------------------- which gradients


def products(graph: torch.fx.Graph) -> int:
    return sum("mm" in str(node.target) for node in graph.nodes)


@pytest.mark.parametrize("again", [False, True])
def test_gradients_that_nobody_asks_for_are_not_computed(again: bool) -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x @ w)

    compiled = Compiled(function, [grad(3, 4), grad(4, 2)])
    for wanted, count in (([0], 1), ([1], 1), ([0, 1], 2), ([0], 1)):
        inputs = [grad(3, 4), grad(4, 2)]
        asked = [inputs[one] for one in wanted]
        (y,) = compiled(*inputs)
        compiled.backwards.clear()
        found = torch.autograd.grad(y.sum(), asked, create_graph=again)
        same(found, torch.autograd.grad(function(*inputs).sum(), asked, create_graph=again))
        assert all(products(one) == count for one in compiled.backwards)
    assert compiled.backwards == []  # the last one was known


# ---------------------------------------------------------------------------------- autocast

BFLOAT16 = 1e-2
CAST: dict[str, Callable[..., torch.Tensor]] = {
    "mm": lambda x, w: x @ w,
    "linear": lambda x, w: F.linear(x, w, w[0]),
    "softmax": lambda x, w: (x @ w).softmax(-1),
    "layer_norm": lambda x, w: F.layer_norm(x @ w, (8,), w[0]),
    "chain": lambda x, w: F.gelu(x @ w) @ w.t(),
}


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("name", CAST)
def test_backward_under_autocast_casts_as_eager_does(name: str, inside: bool) -> None:
    function, compiled = CAST[name], windfall.compile(CAST[name])
    x, w = torch.randn(8, 8, requires_grad=True), torch.randn(8, 8, requires_grad=True)

    def run(function: Any) -> Any:
        with torch.autocast("cpu", enabled=inside):
            y = function(x, w)
        with torch.autocast("cpu"):
            return torch.autograd.grad(y.float().sum(), [x, w])

    for one, other in zip(run(compiled), run(function), strict=True):
        torch.testing.assert_close(one, other, rtol=BFLOAT16, atol=BFLOAT16)
    assert windfall.explanation(compiled).eager == NATIVE


def test_batched_gradients_of_gradients() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return (x * x.sin()).exp()

    compiled, x = windfall.compile(function), torch.randn(3, dtype=torch.float64)
    hessian = torch.autograd.functional.hessian
    found = hessian(lambda x: compiled(x).sum(), x, vectorize=True)
    torch.testing.assert_close(found, hessian(lambda x: function(x).sum(), x, vectorize=True))
    assert set(windfall.explanation(compiled).eager) == {str(Eager.BACKWARD)}


def test_sizes_that_vary() -> None:
    compiled = windfall.compile(lambda x, w: ((x + w) ** 3).sum(), dynamic=True)
    for size in (3, 5, 3):
        x, w = grad(size), grad(size)
        (first,) = torch.autograd.grad(compiled(x, w), x, create_graph=True)
        found = torch.autograd.grad(first.sum(), [x, w])
        torch.testing.assert_close(found[0], 6 * (x + w).detach())
        torch.testing.assert_close(found[1], 6 * (x + w).detach())
    assert windfall.explanation(compiled).eager == NATIVE


@pytest.mark.parametrize("order", [2, 3, 4, 5])
def test_any_order_at_sizes_that_vary(order: int) -> None:
    """Graphs of gradients have no sizes that vary, whatever graph they are of: from the third order
    on that was an error of ours."""
    compiled = windfall.compile(lambda x: (x**6).sum(), dynamic=True)
    for size in (3, 5, 3):
        x = torch.linspace(0.5, 1.0, size, dtype=torch.float64).requires_grad_()
        found, factor = compiled(x), 1
        for one in range(order):
            (found,) = torch.autograd.grad(found.sum(), x, create_graph=True)
            factor *= 6 - one
        torch.testing.assert_close(found, factor * x ** (6 - order))
    assert windfall.explanation(compiled).eager == NATIVE


# Gradients that need a gradient in eager, though it leads to nothing that anybody can ask it of.
NOWHERE = {
    "a leaf made inside": lambda x, w: x.detach().requires_grad_() * w,
    "and the other one": lambda x, w: x.detach().requires_grad_() * w + (w * w).sum(),
    "a product without elements": lambda x, w: x[:0].prod(-1) * w.sum(),
    "all of no elements": lambda x, w: x[:0].prod() * w.sum(),
}


@pytest.mark.parametrize("name", NOWHERE)
def test_gradients_that_lead_nowhere_need_one_all_the_same(name: str) -> None:
    told = []
    for call in (windfall.compile(NOWHERE[name], options={"strict": True}), NOWHERE[name]):
        x, w = grad(3), grad(3)
        found = torch.autograd.grad(call(x, w).sum(), [x, w], create_graph=True, allow_unused=True)
        told.append([one if one is None else (one.shape, one.requires_grad) for one in found])
    assert told[0] == told[1]


def wide_dropout(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (F.dropout(x @ w, 0.5) ** 4).sum()


def checkpointed(x: torch.Tensor, w: torch.Tensor) -> Any:
    return torch.utils.checkpoint.checkpoint(wide_dropout, x, w, use_reentrant=False)


@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("kind", ["bits", "checkpoint", "budget"])
def test_masks_that_are_kept_as_bits_are_those_of_the_forward_pass(kind: str, order: int) -> None:
    function = checkpointed if kind == "checkpoint" else wide_dropout
    options: Any = {"memory_budget": 0.0} if kind == "budget" else {}
    compiled = windfall.compile(function, options=options)
    torch.manual_seed(9)
    x, w, answers = grad(64, 64), grad(64, 64), []
    for run in (wide_dropout, compiled):
        torch.manual_seed(3)
        value = run(x, w)
        for _ in range(order - 1):
            (value,) = torch.autograd.grad(value.sum(), x, create_graph=True)
        answers.append(torch.autograd.grad(value.square().sum(), [x, w]))
    torch.testing.assert_close(*answers)
    assert windfall.explanation(compiled).eager == NATIVE


def test_a_view_of_what_is_needed_was_saved():
    """The written input is kept as it is then, a view of the value that the formula reads."""

    def written(x):
        flat = x.view(-1)
        flat.mul_(2)
        return x, (flat**3).sum()

    compiled = windfall.compile(written)
    found = []
    for call in (compiled, written):
        torch.manual_seed(0)
        leaf = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
        _, loss = call(leaf * 1)
        (first,) = torch.autograd.grad(loss, leaf, create_graph=True)
        found.append((first, *torch.autograd.grad(first.square().sum(), leaf)))
    torch.testing.assert_close(*found)
    assert windfall.explanation(compiled).eager == {}
