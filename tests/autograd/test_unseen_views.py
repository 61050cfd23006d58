"""Views that the program takes of its inputs under `no_grad`: what is made of them needs a gradient
where what the input is a view of does."""

from __future__ import annotations

import pytest
import torch

from tests.autograd.both import both, leaf, raised, seen

BY_EAGER = {"a graph, op by op": 1}

LEAVES = {
    "leaf": lambda: leaf(4, 6),
    "result": lambda: leaf(4, 6) * 2,
    "view of a leaf": lambda: leaf(4, 12)[:, ::2],
    "view of a result": lambda: (leaf(4, 12) * 2)[:, ::2],
    "leaf that is a view": lambda: torch.randn(4, 12, dtype=torch.float64)[:, ::2].requires_grad_(),
    "view of a leaf that is a view": lambda: torch.randn(8, 6, dtype=torch.float64)[
        ::2
    ].requires_grad_()[:],
    "written view of what was plain": lambda: torch.randn(8, 6, dtype=torch.float64)[::2].mul_(
        leaf(4, 6)
    ),
}


def used(x):
    with torch.no_grad():
        v = x[1:]
    return v.exp(), x.sin()


def used_as_it_is(x):
    with torch.no_grad():
        v = x.expand_as(x)
    return (v * 2,)


def view_of_it(x):
    with torch.no_grad():
        v = x.t()
    return v[0].exp(), x.sum()


def beside_the_input(x):
    with torch.no_grad():
        v = x.reshape(x.shape)
    return ((v * x).sum(),)


def not_used(x):
    with torch.no_grad():
        v = x[1:] * 2
    return (v * x[1:],)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("made", LEAVES)
@pytest.mark.parametrize("function", [used, used_as_it_is, view_of_it, beside_the_input, not_used])
def test_what_is_made_of_it_needs_what_it_needs_in_eager(function, made, dynamic):
    def scenario(compile):
        x = LEAVES[made]()
        results = compile(function)(x)
        needing = [one.sum() for one in results if one.requires_grad]
        error = raised(lambda: torch.autograd.backward(needing)) if needing else None
        return [*seen(*results), error, x.grad if x.is_leaf else None]

    plain = made.startswith(("leaf that", "view of a leaf that")) and function is not not_used
    both(scenario, BY_EAGER if plain else None, dynamic=dynamic)


@pytest.mark.parametrize("made", LEAVES)
def test_what_is_told_to_need_one_does(made):
    """A view of what is a view of plain data needs none until it is told; it was recorded as one
    that does already, and the program's word was dropped."""

    def function(x):
        with torch.no_grad():
            v = x[1:]
        v.requires_grad_()
        return v.exp(), x.sin()

    def scenario(compile):
        x = LEAVES[made]()
        results = compile(function)(x)
        torch.autograd.backward([one.sum() for one in results if one.requires_grad])
        return [*seen(*results), x.grad if x.is_leaf else None]

    both(scenario, BY_EAGER)
