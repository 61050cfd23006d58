"""A training step as one function: forward, `backward()`, clipping, the optimizer, in one graph.

Each program runs five steps beside eager: results, what they answer to a second `backward()`,
parameters, gradients, layouts, versions and random numbers are compared after each of them. `HOW`
says of each how it ran: in how many breaks, and whether anything ran op by op.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import windfall

Step = Callable[[nn.Sequential, torch.optim.Optimizer, torch.Tensor, torch.Tensor], Any]


class Program:
    """A step, and how it is to run: the numbers of its breaks."""

    def __init__(self, step: Step, breaks: frozenset[int]) -> None:
        self.step = step
        self.breaks = breaks


PROGRAMS: dict[str, Program] = {}


def program(*breaks: int) -> Callable[[Step], Step]:
    def register(step: Step) -> Step:
        PROGRAMS[step.__name__.strip("_")] = Program(step, frozenset(breaks))
        return step

    return register


# Parameters are few, so that what is short to say is short to run.


@program()
def _zero_first(m: Any, o: Any, x: Any, y: Any) -> Any:
    o.zero_grad()
    loss = F.mse_loss(m(x), y)
    loss.backward()
    o.step()
    return loss.detach()


@program()
def _zero_last(m: Any, o: Any, x: Any, y: Any) -> Any:
    loss = F.mse_loss(m(x), y)
    loss.backward()
    o.step()
    o.zero_grad()
    return loss.detach()


@program()
def _zero_in_place(m: Any, o: Any, x: Any, y: Any) -> Any:
    o.zero_grad(set_to_none=False)
    loss = F.mse_loss(m(x), y)
    loss.backward()
    o.step()
    return loss.detach()


@program()
def _returns_the_loss(m: Any, o: Any, x: Any, y: Any) -> Any:
    o.zero_grad()
    loss = F.mse_loss(m(x), y)
    loss.backward()
    o.step()
    return loss


@program()
def _returns_what_can_be_gone_through_again(m: Any, o: Any, x: Any, y: Any) -> Any:
    o.zero_grad()
    loss = m[0].weight.sum()  # nothing is saved, so nothing is freed
    loss.backward()
    return loss


@program()
def _returns_loss_and_hidden(m: Any, o: Any, x: Any, y: Any) -> Any:
    o.zero_grad()
    hidden = m(x)
    loss = F.mse_loss(hidden, y)
    loss.backward()
    o.step()
    return loss, hidden


@program()
def _returns_a_number(m: Any, o: Any, x: Any, y: Any) -> Any:
    o.zero_grad()
    loss = F.mse_loss(m(x), y)
    found = loss.item()
    loss.backward()
    o.step()
    return found


@program()
def _returns_gradients(m: Any, o: Any, x: Any, y: Any) -> Any:
    o.zero_grad()
    F.mse_loss(m(x), y).backward()
    return [one.grad for one in m.parameters()]


@program()
def _keeps_the_history(m: Any, o: Any, x: Any, y: Any) -> Any:
    o.zero_grad()
    loss = F.mse_loss(m(x), y)
    loss.backward(retain_graph=True)
    return loss


@program()
def _clips_the_norm(m: Any, o: Any, x: Any, y: Any) -> Any:
    o.zero_grad()
    loss = F.mse_loss(m(x), y)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(m.parameters(), 0.1)
    o.step()
    return loss.detach(), norm


@program()
def _clips_values(m: Any, o: Any, x: Any, y: Any) -> Any:
    o.zero_grad()
    loss = F.mse_loss(m(x), y)
    loss.backward()
    nn.utils.clip_grad_value_(m.parameters(), 0.01)
    o.step()
    return loss.detach()


@program()
def _micro_batches(m: Any, o: Any, x: Any, y: Any) -> Any:
    o.zero_grad()
    total = torch.zeros(())
    for one, other in zip(x.chunk(4), y.chunk(4), strict=True):
        loss = F.mse_loss(m(one), other) / 4
        loss.backward()
        total += loss.detach()
    o.step()
    return total


@program()
def _two_steps(m: Any, o: Any, x: Any, y: Any) -> Any:
    for _ in range(2):
        o.zero_grad()
        loss = F.mse_loss(m(x), y)
        loss.backward()
        o.step()
    return loss.detach()


@program()
def _accumulates_over_calls(m: Any, o: Any, x: Any, y: Any) -> Any:
    loss = F.mse_loss(m(x), y)
    loss.backward()
    return loss.detach()


@program()
def _two_losses(m: Any, o: Any, x: Any, y: Any) -> Any:
    o.zero_grad()
    hidden = m(x)
    one, other = F.mse_loss(hidden, y), hidden.abs().mean()
    one.backward(retain_graph=True)
    other.backward()
    o.step()
    return one.detach(), other.detach()


@program()
def _two_losses_at_once(m: Any, o: Any, x: Any, y: Any) -> Any:
    o.zero_grad()
    hidden = m(x)
    one, other = F.mse_loss(hidden, y), hidden.abs().mean()
    torch.autograd.backward([one, other])
    o.step()
    return one.detach(), other.detach()


@program()
def _a_gradient_of_ones_own(m: Any, o: Any, x: Any, y: Any) -> Any:
    o.zero_grad()
    hidden = m(x)
    hidden.backward(y)
    o.step()
    return hidden.detach()


@program()
def _gradients_alone(m: Any, o: Any, x: Any, y: Any) -> Any:
    return torch.autograd.grad(F.mse_loss(m(x), y), list(m.parameters()))


@program()
def _gradients_of_what_is_not_used(m: Any, o: Any, x: Any, y: Any) -> Any:
    loss = m[0](x).sum()
    given = list(m.parameters())
    some = torch.autograd.grad(loss, given, allow_unused=True, retain_graph=True)
    return some, torch.autograd.grad(loss, given, materialize_grads=True)


@program()
def _parameters_that_are_not_used(m: Any, o: Any, x: Any, y: Any) -> Any:
    o.zero_grad()
    loss = m[0](x).sum()
    loss.backward()
    o.step()
    return loss.detach()


@program()
def _a_gradient_penalty(m: Any, o: Any, x: Any, y: Any) -> Any:
    o.zero_grad()
    loss = F.mse_loss(m(x), y)
    found = torch.autograd.grad(loss, list(m.parameters()), create_graph=True)
    whole = loss + sum(one.pow(2).sum() for one in found)
    whole.backward()
    o.step()
    return whole.detach()


@program()
def _some_inputs(m: Any, o: Any, x: Any, y: Any) -> Any:
    o.zero_grad()
    loss = F.mse_loss(m(x), y)
    loss.backward(inputs=[m[0].weight])
    o.step()
    return loss.detach()


@program()
def _gradients_that_are_one(m: Any, o: Any, x: Any, y: Any) -> Any:
    """One tensor goes to two leaves, an expanded one and a view to others."""
    o.zero_grad()
    loss = (m[0].bias + m[0].weight.sum(1)).sum()
    loss = loss + (m[2].bias + m[4].weight.view(-1)).mul(3).sum()
    loss.backward()
    o.step()
    return loss.detach()


@program()
def _draws(m: Any, o: Any, x: Any, y: Any) -> Any:
    o.zero_grad()
    loss = F.mse_loss(m(F.dropout(x, 0.3)), y)
    loss.backward()
    o.step()
    return loss.detach()


@program()
def _casts(m: Any, o: Any, x: Any, y: Any) -> Any:
    o.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = F.mse_loss(m(x), y)
    loss.backward()
    o.step()
    return loss.detach()


@program()
def _casts_in_backward(m: Any, o: Any, x: Any, y: Any) -> Any:
    o.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = F.mse_loss(m(x), y)
        loss.backward()
    o.step()
    return loss.detach()


@program()
def _looks_at_gradients(m: Any, o: Any, x: Any, y: Any) -> Any:
    o.zero_grad()
    F.mse_loss(m(x), y).backward()
    before = sum(one.grad is not None for one in m.parameters())
    o.step()
    o.zero_grad()
    return before, sum(one.grad is not None for one in m.parameters())


@program(60)
def _a_hook_on_what_is_computed(m: Any, o: Any, x: Any, y: Any) -> Any:
    o.zero_grad()
    hidden = m[0](x)
    hidden.register_hook(lambda gradient: gradient * 2)
    loss = F.mse_loss(m[1:](hidden), y)
    loss.backward()
    o.step()
    return loss.detach()


@program(31, 60)
def _keeps_a_gradient(m: Any, o: Any, x: Any, y: Any) -> Any:
    o.zero_grad()
    hidden = m[0](x)
    hidden.retain_grad()
    loss = F.mse_loss(m[1:](hidden), y)
    loss.backward()
    o.step()
    return loss.detach(), hidden.grad


@program(8)
def _goes_through_twice(m: Any, o: Any, x: Any, y: Any) -> Any:
    o.zero_grad()
    loss = F.mse_loss(m(x), y)
    loss.backward()
    try:
        loss.backward()
    except RuntimeError as error:
        return str(error)
    return None


@program(8)
def _writes_what_was_saved(m: Any, o: Any, x: Any, y: Any) -> Any:
    o.zero_grad()
    loss = F.mse_loss(m(x), y)
    with torch.no_grad():
        m[2].weight.add_(1)
    try:
        loss.backward()
    except RuntimeError as error:
        return str(error)[:60]
    return None


# ------------------------------------------------------------------------------------- comparing


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4), nn.Tanh(), nn.Linear(4, 1))


def momentum(made: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(made.parameters(), lr=0.1, momentum=0.9)


def refused(result: torch.Tensor) -> str:
    """What a second pass says."""
    try:
        result.backward()
    except RuntimeError as error:
        return str(error)
    return ""


def same(one: Any, other: Any, where: str) -> None:
    """Equal to the last bits, and alike to autograd."""
    assert type(one) is type(other), where
    if isinstance(one, torch.Tensor):
        torch.testing.assert_close(other, one, equal_nan=True, msg=lambda text: f"{where}: {text}")
        assert one.requires_grad == other.requires_grad and one.is_leaf == other.is_leaf, where
        assert one.stride() == other.stride() and one._version == other._version, where
    elif isinstance(one, list | tuple):
        for index, pair in enumerate(zip(one, other, strict=True)):
            same(*pair, f"{where}[{index}]")
    elif isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for key in one:
            same(one[key], other[key], f"{where}[{key!r}]")
    else:
        assert one == pytest.approx(other, rel=1e-5) if isinstance(one, float) else one == other


def held(made: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """What a user can look at after a step."""
    parameters = dict(made.named_parameters())
    return {
        "parameters": parameters,
        "gradients": {name: one.grad for name, one in parameters.items()},
        "state": optimizer.state_dict(),
    }


def beside_eager(
    step: Step, optimizer: Callable[[nn.Module], torch.optim.Optimizer] = momentum, count: int = 5
) -> Any:
    """Five steps of a program, twice; the compiled function."""
    worlds = [(made, optimizer(made)) for made in (model(), model())]

    def bound(made: nn.Sequential, its: torch.optim.Optimizer) -> Callable[..., Any]:
        return lambda x, y: step(made, its, x, y)

    eager, compiled = bound(*worlds[0]), windfall.compile(bound(*worlds[1]))
    for number in range(count):
        torch.manual_seed(number)
        x, y = torch.randn(16, 8), torch.randn(16, 1)
        before = torch.get_rng_state()
        wanted = eager(x, y)
        drawn = torch.get_rng_state()
        torch.set_rng_state(before)
        found = compiled(x, y)
        assert torch.equal(torch.get_rng_state(), drawn), "random numbers"
        same(wanted, found, f"results of step {number}")
        if isinstance(wanted, torch.Tensor) and wanted.requires_grad:
            assert refused(wanted) == refused(found)
        same(held(*worlds[0]), held(*worlds[1]), f"step {number}")
    return compiled


@pytest.mark.parametrize("name", PROGRAMS)
def test_steps_are_as_in_eager(name: str) -> None:
    one = PROGRAMS[name]
    compiled = beside_eager(one.step)
    told = windfall.explanation(compiled)
    assert {each.number for each in told.breaks} == one.breaks
    if not one.breaks:
        assert len(told.graphs) <= 2, "the first step finds other gradients than the next ones"
        assert not told.eager and not told.fallbacks
