"""Who is connected to whom: our autograd nodes lead where eager's history leads."""

from __future__ import annotations

import pytest
import torch

import windfall


def grad(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, requires_grad=True)


def native(compiled) -> None:
    """Everything ran in native code: nothing op by op, no backward by replay."""
    assert windfall.explanation(compiled).eager == {}


def one(x, w):
    return (x.detach() * w).sum()


def several(x, w):
    return (x.detach() * w).sum(), w.exp()


def zero(x, w):
    return (x.detach() + w).ceil(), w.exp()


def under_no_grad(x, w):
    with torch.no_grad():
        scale = x.abs().sum()
    return (w * scale).sum()


def written(x, w):
    w = w * 1
    w.mul_(x.detach())
    return w.sum()


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", [one, several, zero, under_no_grad, written])
def test_inputs_without_a_path_to_the_results_are_not_connected(function, dynamic):
    compiled = windfall.compile(function, dynamic=dynamic)
    w, calls = grad(3), []
    origin = grad(3)
    x = origin.exp()
    x.register_hook(calls.append)
    x.sum().backward()  # from here on the history of x is freed: who walks into it raises
    assert len(calls) == 1
    gradients = []
    for call in (compiled, function):
        w.grad, results = None, call(x, w)
        for result in results if isinstance(results, tuple) else [results]:
            result.sum().backward(retain_graph=True)
        gradients.append(w.grad)
    torch.testing.assert_close(*gradients)
    assert len(calls) == 1
    native(compiled)


def test_steps_of_adversaries():
    """The discriminator's step looks at a detached picture whose history the generator's needs."""
    maker, judge = torch.nn.Linear(2, 3), torch.nn.Linear(3, 1)
    of_judge = windfall.compile(lambda picture: judge(picture.detach()).mean())
    of_maker = windfall.compile(lambda picture: -judge(picture).mean())
    for step in range(2):
        picture = maker(torch.randn(4, 2))
        of_judge(picture).backward()
        assert maker.weight.grad is None or step == 1
        of_maker(picture).backward()
        of_judge(picture).backward()
    assert maker.weight.grad is not None
    native(of_judge)
    native(of_maker)


def test_what_is_not_connected_is_still_watched_for_writes():
    compiled = windfall.compile(one)
    x, w = grad(3) * 1, grad(3)
    result = compiled(x, w)
    with torch.no_grad():
        x.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.backward()


def test_second_derivatives_go_past_what_is_not_connected():
    compiled = windfall.compile(lambda x, w: (x.detach() * w**3).sum())
    x, w = grad(3) * 1, grad(3)
    (first,) = torch.autograd.grad(compiled(x, w), w, create_graph=True)
    first.sum().backward()
    torch.testing.assert_close(w.grad, 6 * w.detach() * x.detach())
    assert windfall.explanation(compiled).eager == {"backward, by replay": 1}
