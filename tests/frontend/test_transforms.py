"""Transforms of `torch.func` inside of compiled functions: in one graph, and as eager.

Each program is called with batches of three sizes, plain, without gradients, and with a backward
pass through what it answers: results, layouts, what needs a gradient, gradients and random numbers
are compared. The numbers of its breaks are said beside it; nothing may run op by op.
"""

from __future__ import annotations

import collections
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import forward_ad, functional
from torch.func import (
    functional_call,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    stack_module_state,
    vjp,
    vmap,
)
from torch.utils._pytree import tree_flatten

import windfall

Program = Callable[[torch.Tensor, torch.Tensor], Any]
PROGRAMS: dict[str, tuple[Program, tuple[int, ...]]] = {}


def program(*breaks: int) -> Callable[[Program], Program]:
    def register(function: Program) -> Program:
        PROGRAMS[function.__name__.strip("_")] = function, breaks
        return function

    return register


def loss(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x @ w).pow(2).mean()


def mlp() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))


with warnings.catch_warnings():  # torch scripts some rules when jvp is first called
    warnings.simplefilter("ignore")
    jvp(torch.sin, (torch.ones(()),), (torch.ones(()),))

MODEL = mlp()
STATE = {name: one.detach() for name, one in MODEL.named_parameters()}
MADE_OUTSIDE = vmap(grad(loss), (None, 0))
BATCHED_SIN = torch.vmap(torch.sin)

# ------------------------------------------------------------------------------------------ grad


@program()
def _grad(x: Any, w: Any) -> Any:
    return grad(loss)(w, x)


@program()
def _grad_of_both(x: Any, w: Any) -> Any:
    return grad(loss, argnums=(1, 0))(w, x)


@program()
def _grad_of_the_last(x: Any, w: Any) -> Any:
    return grad(loss, argnums=-1)(w, x)


@program()
def _grad_by_name(x: Any, w: Any) -> Any:
    return grad(loss)(w, x=x)


@program()
def _grad_and_value(x: Any, w: Any) -> Any:
    return grad_and_value(loss)(w, x)


@program()
def _grad_with_more(x: Any, w: Any) -> Any:
    def both(w: Any) -> Any:
        y = x @ w
        return y.sin().sum(), {"y": y, "first": (y[0], [x])}

    return grad(both, has_aux=True)(w), grad_and_value(both, has_aux=True)(w)


@program()
def _grad_of_a_tree(x: Any, w: Any) -> Any:
    def of(parts: Any) -> Any:
        return sum((x @ w * scale).cos().sum() for scale in parts["scales"]) + parts["bias"].sum()

    return grad(of)({"scales": [w[0], w[1] * 2], "bias": w})


@program()
def _grad_of_an_ordered_dict(x: Any, w: Any) -> Any:
    parts = collections.OrderedDict([("b", w), ("a", w + 1)])
    return dict(grad(lambda given: loss(given["a"] * given["b"], x))(parts))


@program()
def _grad_three_times(x: Any, w: Any) -> Any:
    return grad(grad(grad(lambda one: one.sin() * one)))(x[0, 0])


@program()
def _grad_of_what_is_not_used(x: Any, w: Any) -> Any:
    return grad(lambda one, other: other.sin().sum())(w, x)


@program()
def _grad_under_no_grad(x: Any, w: Any) -> Any:
    with torch.no_grad():
        return grad(lambda one: loss(one, x) * (2 if torch.is_grad_enabled() else 1))(w)


@program()
def _no_grad_inside(x: Any, w: Any) -> Any:
    def of(one: Any) -> Any:
        with torch.no_grad():
            scale = (x @ one).abs().max()
        return loss(one / scale, x)

    return grad(of)(w)


@program()
def _in_place_inside(x: Any, w: Any) -> Any:
    def of(one: Any) -> Any:
        y = x @ one
        y.mul_(2)
        y[0] = 0
        return y.sin().sum()

    return grad(of)(w), vmap(lambda row: (row * 2).add_(row.sum()))(x)


@program()
def _asks_what_needs_a_gradient(x: Any, w: Any) -> Any:
    def of(one: Any, other: Any) -> Any:
        assert one.requires_grad and not other.requires_grad
        return loss(one, other)

    return grad(of)(w, x), vmap(lambda row: row * (2 if row.requires_grad else 3))(x)


@program()
def _step_by_step(x: Any, w: Any) -> Any:
    """MAML: a step inside, the loss behind it differentiated too."""

    def after(w: Any) -> Any:
        for _ in range(2):
            w = w - 0.1 * grad(loss)(w, x)
        return loss(w, x)

    return grad_and_value(after)(w)


@program()
def _many_tasks(x: Any, w: Any) -> Any:
    """MAML over tasks."""

    def after(w: Any, task: Any) -> Any:
        return loss(w - 0.1 * grad(loss)(w, task), task)

    return grad(lambda w: vmap(after, (None, 0))(w, torch.stack([x, x + 1, x * 2])).sum())(w)


# ------------------------------------------------------------------------------------------ vmap


@program()
def _per_sample(x: Any, w: Any) -> Any:
    return vmap(grad(loss), in_dims=(None, 0))(w, x)


@program()
def _per_sample_made_outside(x: Any, w: Any) -> Any:
    return MADE_OUTSIDE(w, x), BATCHED_SIN(x)


@program()
def _vmap_of_builtins(x: Any, w: Any) -> Any:
    return vmap(torch.dot, (0, None))(x, w[:, 0]), vmap(torch.sum)(x)


@program()
def _vmap_dims(x: Any, w: Any) -> Any:
    def of(row: Any, w: Any) -> Any:
        return row[:3] * w, (row.sum(), row.unsqueeze(0))

    return vmap(of, in_dims=(0, None), out_dims=(2, (0, -1)))(x, w)


@program()
def _vmap_over_columns(x: Any, w: Any) -> Any:
    return vmap(lambda one, other: one.sum() + other, in_dims=(1, -2), out_dims=-1)(x, w)


@program()
def _vmap_of_trees(x: Any, w: Any) -> Any:
    def of(parts: Any, scale: float) -> Any:
        return [parts["a"] * scale, {"b": parts["b"][0].sum() + parts["a"]}]

    parts = {"a": x, "b": (w, None)}
    return vmap(of, in_dims=({"a": 0, "b": None}, None))(parts, 2.5)


@program()
def _vmap_in_vmap(x: Any, w: Any) -> Any:
    pairs = vmap(vmap(torch.dot, (None, 0)), (0, None))(x, x + 1)
    return pairs, vmap(vmap(lambda one: one * w.sum(), in_dims=0, out_dims=0), out_dims=1)(x)


@program()
def _vmap_in_chunks(x: Any, w: Any) -> Any:
    return vmap(lambda row: (row @ w).exp(), chunk_size=2)(x)


@program()
def _vmap_of_what_is_named(x: Any, w: Any) -> Any:
    return vmap(lambda row, *, other: row @ other)(x, other=w)


@program()
def _vmap_answers_what_it_was_given(x: Any, w: Any) -> Any:
    return vmap(lambda row: (row, w, row[1:], row.sum() * 0 + w), out_dims=0)(x)


@program()
def _vmap_of_records(x: Any, w: Any) -> Any:
    found = vmap(lambda row: row.max(0))(x)
    return found.values, found.indices


@program()
def _vmap_asks_for_sizes(x: Any, w: Any) -> Any:
    def of(row: Any) -> Any:
        assert row.shape == (5,) and row.dim() == 1 and len(row) == 5
        return row.view(1, -1).expand(row.shape[0], -1).sum(0) / row.numel()

    return vmap(of)(x)


@program()
def _vmap_of_indexing(x: Any, w: Any) -> Any:
    index = torch.tensor([0, 2, 2])
    return vmap(lambda row: (row[index], row.flip(0).sort()[0], row.cumsum(0)[::2]))(x)


@program()
def _grad_of_vmap(x: Any, w: Any) -> Any:
    return grad(lambda one: vmap(loss, (None, 0))(one, x).sum())(w)


@program()
def _draws_the_same(x: Any, w: Any) -> Any:
    return vmap(lambda row: F.dropout(row, 0.5) + torch.rand(5), randomness="same")(x)


@program()
def _draws_others(x: Any, w: Any) -> Any:
    return vmap(lambda row: F.dropout(row, 0.5) + torch.randn(5), randomness="different")(x)


@program()
def _grad_of_dropout(x: Any, w: Any) -> Any:
    return grad(lambda one: F.dropout(x @ one, 0.3).sum())(w)


# ----------------------------------------------------------------------------- jacobians, products


@program()
def _jvp(x: Any, w: Any) -> Any:
    return jvp(loss, (w, x), (torch.ones_like(w), x * 0.5))


@program()
def _jvp_with_more(x: Any, w: Any) -> Any:
    return jvp(lambda one: ((one.sin(), [one * 2]), one.sum()), (w,), (w + 1,), has_aux=True)


@program()
def _vjp(x: Any, w: Any) -> Any:
    found, pull = vjp(lambda one, other: (other @ one, one.sin()), w, x)
    return found, pull((torch.ones_like(found[0]), w)), pull((found[0] * 2, w))


@program()
def _vjp_with_more(x: Any, w: Any) -> Any:
    found, pull, more = vjp(lambda one: (x @ one, {"more": one * 2}), w, has_aux=True)
    return found, pull(found), more


@program()
def _vjp_batched(x: Any, w: Any) -> Any:
    found, pull = vjp(lambda one: (one.sin() @ w).sum(0), x)
    return vmap(pull)(torch.eye(3)), found


@program()
def _jacrev(x: Any, w: Any) -> Any:
    return jacrev(lambda one: ((one.sin() * x[0, 0]).sum(0), {"k": one[0] * 2}))(w)


@program()
def _jacrev_of_several(x: Any, w: Any) -> Any:
    of = jacrev(lambda one, other: (other @ one).sum(0), argnums=(0, 1), chunk_size=2)
    return of(w, x), jacrev(lambda one: (one.sum(0), one * 2), has_aux=True)(w)


@program()
def _jacfwd(x: Any, w: Any) -> Any:
    return jacfwd(lambda one, other: (other @ one).tanh().sum(0), argnums=(1, 0))(w, x)


@program()
def _hessian(x: Any, w: Any) -> Any:
    return hessian(loss)(w, x)


@program()
def _hessian_by_reverse(x: Any, w: Any) -> Any:
    return jacrev(jacrev(lambda one: one.sin().prod()))(w[:, 0])


@program()
def _jacobian_of_samples(x: Any, w: Any) -> Any:
    return vmap(jacrev(lambda row: torch.tanh(row @ w)))(x), vmap(
        hessian(lambda row: row.sin().sum())
    )(x)


@program()
def _hessian_vector(x: Any, w: Any) -> Any:
    forward = jvp(grad(lambda one: loss(one, x)), (w,), (w + 1,))[1]
    reverse = vjp(grad(lambda one: loss(one, x)), w)[1](w + 1)[0]
    return forward, reverse


# ---------------------------------------------------------------------------------------- modules


@program()
def _functional_call(x: Any, w: Any) -> Any:
    state = {**STATE, "2.weight": STATE["2.weight"] * w.sum()}
    return functional_call(MODEL, state, (x,)), functional_call(MODEL, {}, x), MODEL(x)


@program()
def _functional_call_of_two(x: Any, w: Any) -> Any:
    first = {"0.weight": w[:, :1].expand(5, 7).T}
    return functional_call(MODEL, (first, {"0.bias": STATE["0.bias"] + 1}), (x,), tie_weights=False)


@program()
def _per_sample_of_a_module(x: Any, w: Any) -> Any:
    def of(state: Any, row: Any) -> Any:
        return functional_call(MODEL, state, (row,), strict=True).pow(2).sum()

    return vmap(grad(of), (None, 0))(STATE, x)


MODELS = [mlp(), mlp(), mlp()]
PARAMETERS, BUFFERS = stack_module_state(MODELS)
ENSEMBLE = {name: one.detach() for name, one in PARAMETERS.items()}


@program()
def _ensemble(x: Any, w: Any) -> Any:
    def of(parameters: Any, buffers: Any, x: Any) -> Any:
        return functional_call(MODEL, (parameters, buffers), (x,))

    each = vmap(of, (0, 0, None))(ENSEMBLE, BUFFERS, x)
    return each, vmap(of, in_dims=0)(ENSEMBLE, BUFFERS, torch.stack([x, x, x]))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(5, 5, bias=False)
        self.other = nn.Linear(5, 5, bias=False)
        self.other.weight = self.one.weight
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.other(self.one(x)) * self.scale


TIED = Tied()


@program()
def _tied_weights(x: Any, w: Any) -> Any:
    state = {"one.weight": torch.eye(5) * w.sum(), "scale": w.mean()}
    found = functional_call(TIED, state, (x,)), functional_call(TIED, state, x, tie_weights=False)
    return found, grad(lambda given: functional_call(TIED, given, x).sum())(state)


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(5, 5, bias=False)
        self.again = self.inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.again(self.inner(x))


TWICE = Twice()


def test_one_module_under_two_names() -> None:
    """Torch leaves the tensor that it was given behind; so it does where it is called by us."""

    def called(x: torch.Tensor) -> Any:
        return functional_call(TWICE, {"inner.weight": torch.eye(5) * 2}, (x,))

    x, own = torch.randn(4, 5), TWICE.inner.weight
    compiled = windfall.compile(called)
    same(compiled(x), x * 4)
    assert TWICE.inner.weight is not own
    assert [one.number for one in windfall.explanation(compiled).breaks] == [49]


# ------------------------------------------------------------------------- what is left to eager


@program(49)
def _changes_an_object(x: Any, w: Any) -> Any:
    seen: list[int] = []

    def of(one: Any) -> Any:
        seen.append(1)
        return loss(one, x)

    return grad(of)(w) * len(seen)


@program(49)
def _writes_a_tensor_from_outside(x: Any, w: Any) -> Any:
    total = torch.zeros(())

    def of(row: Any) -> Any:
        total.add_(1)
        return row.sin()

    return vmap(of)(x), total


@program(49)
def _returns_no_tensor(x: Any, w: Any) -> Any:
    return grad(lambda one: (one.sum(), "text" if one is None else one * 2), has_aux=True)(w)[
        1
    ], vjp(lambda one: F.dropout(one, 0.5), w)[0]


@program(2)
def _branches_on_data(x: Any, w: Any) -> Any:
    return grad(lambda one: one.sum() if one.sum() > 0 else one.sin().sum())(w)


# ------------------------------------------------------------------------------------- comparing


def inputs(count: int, needs: bool) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(count)
    x = torch.randn(count, 5, generator=generator, requires_grad=needs)
    return x, torch.randn(5, 3, generator=generator, requires_grad=needs)


def called(function: Any, count: int, needs: bool) -> tuple[Any, list[Any], torch.Tensor]:
    """What it answers, the gradients through that, and the state of the generator."""
    torch.manual_seed(count)
    given = inputs(count, needs)
    found = function(*given)
    leaves = [one for one in tree_flatten(found)[0] if isinstance(one, torch.Tensor)]
    ends = [one.double().pow(2).sum() for one in leaves if one.requires_grad]
    gradients: Any = ()
    if ends and needs and torch.is_grad_enabled():
        gradients = torch.autograd.grad(sum(ends), given, allow_unused=True)  # type: ignore[arg-type]
    return found, list(gradients), torch.get_rng_state()


def same(one: Any, other: Any) -> None:
    leaves, tree = tree_flatten(one)
    others, its_tree = tree_flatten(other)
    assert tree == its_tree
    for left, right in zip(leaves, others, strict=True):
        if not isinstance(left, torch.Tensor):
            assert left == right
            continue
        torch.testing.assert_close(right, left, rtol=1e-4, atol=1e-5)
        assert left.stride() == right.stride() and left.requires_grad == right.requires_grad


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_is_as_in_eager(name: str) -> None:
    function, breaks = PROGRAMS[name]
    compiled = windfall.compile(function)
    for needs in (False, True):
        for count in (4, 6, 3):
            wanted = called(function, count, needs)
            same(wanted, called(compiled, count, needs))
    with torch.no_grad():
        same(called(function, 4, True), called(compiled, 4, True))
    told = windfall.explanation(compiled)
    assert {one.number for one in told.breaks} == set(breaks)
    if not breaks:
        assert not told.eager, told.eager
        assert all(one.stopped is None for one in told.captures)


# ---------------------------------------------------------------------------------------- errors


def _random_error(x: Any) -> Any:
    return vmap(lambda row: F.dropout(row))(x)


def _sizes_differ(x: Any) -> Any:
    return vmap(torch.add)(x, torch.ones(7, 5))


def _no_number(x: Any) -> Any:
    return grad(lambda one: one * 2)(x)


def _wrong_dimension(x: Any) -> Any:
    return vmap(lambda row: row, in_dims=3)(x)


def _wrong_tree(x: Any) -> Any:
    return vmap(lambda row: (row, row), out_dims=(0, 0, 0))(x)


def _bad_randomness(x: Any) -> Any:
    return vmap(lambda row: row, randomness="some")(x)


def _bad_argnums(x: Any) -> Any:
    return grad(lambda one: one.sum(), argnums=2)(x)


def _reads_data(x: Any) -> Any:
    return vmap(lambda row: row.sum().item())(x)


def _raises(x: Any) -> Any:
    def of(row: Any) -> Any:
        raise KeyError("mine")

    return vmap(of)(x)


def _tangents_differ(x: Any) -> Any:
    return jvp(torch.sin, (x,), (x[0],))


def _cotangents_differ(x: Any) -> Any:
    return vjp(torch.sin, x)[1]((x, x))


def _unknown_name(x: Any) -> Any:
    return functional_call(MODEL, {"0.weigth": x}, (x,), strict=True)


ERRORS = (
    _random_error,
    _sizes_differ,
    _no_number,
    _wrong_dimension,
    _wrong_tree,
    _bad_randomness,
    _bad_argnums,
    _reads_data,
    _raises,
    _tangents_differ,
    _cotangents_differ,
    _unknown_name,
)


@pytest.mark.parametrize("function", ERRORS, ids=lambda one: one.__name__.strip("_"))
def test_errors_are_eagers_own(function: Any) -> None:
    x = torch.randn(4, 5)
    with pytest.raises(Exception) as wanted:
        function(x)
    with pytest.raises(Exception) as found:
        windfall.compile(function)(x)
    assert type(found.value) is type(wanted.value) and str(found.value) == str(wanted.value)
    torch.testing.assert_close(vmap(torch.sin)(x), x.sin())  # no level is left behind


# ------------------------------------------------------------------------------- what lives on


def test_functions_that_are_returned_are_torchs_own() -> None:
    def made(x: torch.Tensor) -> Any:
        found, pull = vjp(torch.sin, x)
        return found, pull, grad(lambda one: one.sin().sum()), vmap(torch.cos)

    x = torch.randn(4)
    compiled = windfall.compile(made)
    found, pull, gradient, batched = compiled(x)
    same([found, pull(x), gradient(x), batched(x)], [x.sin(), (x * x.cos(),), x.cos(), x.cos()])
    assert [one.number for one in windfall.explanation(compiled).breaks] == [1]


def test_a_pullback_behind_a_break() -> None:
    def program(x: torch.Tensor) -> Any:
        found, pull = vjp(torch.sin, x)
        windfall.graph_break()
        return pull(found)[0]

    x = torch.randn(4)
    same(windfall.compile(program)(x), x.sin() * x.cos())


def test_a_pullback_of_what_was_written() -> None:
    def program(x: torch.Tensor) -> Any:
        y = x * 2
        pull = vjp(lambda one: one.sin() * y, x)[1]
        y.zero_()
        try:
            return pull(torch.ones_like(x))[0]
        except RuntimeError as error:
            return str(error)[:40]

    x = torch.randn(4)
    same(windfall.compile(program)(x), program(x))


def test_weights_that_are_tied_later() -> None:
    model = nn.ModuleDict({"a": nn.Linear(3, 3, bias=False), "b": nn.Linear(3, 3, bias=False)})
    model.forward = lambda x: model["b"](model["a"](x))  # type: ignore[method-assign, misc]
    state = {"a.weight": torch.eye(3) * 3}
    compiled = windfall.compile(lambda x: functional_call(model, state, (x,)))
    x = torch.randn(2, 3)
    same(compiled(x), functional_call(model, state, (x,)))
    model["b"].weight = model["a"].weight
    same(compiled(x), x * 9)


def test_a_pullback_in_other_modes_and_of_random_numbers() -> None:
    """What is done again for a pullback would not be what was done: torch does it."""

    def program(x: torch.Tensor, w: torch.Tensor) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found, pull = vjp(lambda one: x @ one, w)
        return found, pull(found), vjp(lambda one: F.dropout(one, 0.5), w)[1](w)

    given = inputs(4, False)
    torch.manual_seed(0)
    wanted = program(*given)
    torch.manual_seed(0)
    same(wanted, windfall.compile(program)(*given))


@pytest.mark.parametrize("make", [vmap, grad, grad_and_value, jacrev, jacfwd, hessian])
def test_what_torch_func_has_made_is_compiled(make: Any) -> None:
    made = make(lambda one: one.sin().sum() * one.cos().sum())
    x = torch.randn(4)
    compiled = windfall.compile(made)
    same(made(x), compiled(x))
    told = windfall.explanation(compiled)
    assert len(told.graphs) == 1 and not told.breaks and not told.eager


class _Sine(torch.autograd.Function):
    """With rules for transforms, which our own capture of such functions has not."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x.sin()

    @staticmethod
    def setup_context(context: Any, inputs: Any, output: Any) -> None:
        context.save_for_backward(*inputs)

    @staticmethod
    def backward(context: Any, gradient: Any) -> Any:
        return gradient * context.saved_tensors[0].cos()


def _own_gradient(x: Any) -> Any:
    return grad(lambda one: _Sine.apply(one).sum())(x)  # type: ignore[no-untyped-call]


def _autograd_inside(x: Any) -> Any:
    def of(one: Any) -> Any:
        return torch.autograd.grad(one.sin().sum(), one, create_graph=True)[0].sum()

    return grad(of)(x)


def _forward_mode(x: Any) -> Any:
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(forward_ad.make_dual(x, x * 2).sin()).tangent


def _by_functional(x: Any) -> Any:
    def of(one: Any) -> Any:
        return one.sin().sum()

    products = [functional.vjp(of, x), functional.jvp(of, x, x), functional.hvp(of, x, x)]
    return functional.jacobian(torch.sin, x), functional.hessian(of, x), products


def _linearize(x: Any) -> Any:
    found, moves = torch.func.linearize(torch.sin, x)
    return found, moves(x)


@pytest.mark.parametrize(
    "function",
    [_own_gradient, _autograd_inside, _forward_mode, _by_functional, _linearize],
    ids=lambda one: one.__name__.strip("_"),
)
@pytest.mark.filterwarnings("ignore")
def test_what_is_left_to_eager_is_counted(function: Any) -> None:
    x = torch.randn(4)
    compiled = windfall.compile(function)
    for _ in range(2):
        same(function(x), compiled(x))
    told = windfall.explanation(compiled)
    assert told.breaks and told.eager


def test_a_backward_pass_behind_a_transform() -> None:
    def step(x: torch.Tensor, w: torch.Tensor) -> Any:
        grad(loss)(w, x).pow(2).sum().backward()
        return w.grad

    found = [torch.randn(5, 3, generator=torch.Generator().manual_seed(0)) for _ in range(2)]
    x = torch.randn(4, 5)
    wanted, compiled = step(x, found[0].requires_grad_()), windfall.compile(step)
    same(wanted, compiled(x, found[1].requires_grad_()))
    told = windfall.explanation(compiled)
    assert not told.breaks and not told.eager


def test_a_graph_holds_the_body() -> None:
    told = windfall.explain(lambda x: vmap(lambda row: row.sin().sum())(x))(torch.randn(4, 5))
    text = str(told)
    assert "transform['vmap', 1, ((0,), (0,), 'error', None)]" in text
    assert "body: graph(" in text and "f32[5]" in text
