"""Training loops that do something unusual, each small.

Enters: who is compiled (`Ways`). Leaves: a `Loop`, as in `loops.py`. Invariant: as there. Each loop
has one thing that others have not: memory that is shared, gradients that are written by hand,
optimizers of the user's own, states that change between steps, errors and another try.
"""

from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import lr_scheduler

from tests.training.loops import Loop, Ways, numbers, rows

ODD: dict[str, Callable[[Ways], Loop]] = {}


def odd(made: Callable[[Ways], Loop]) -> Callable[[Ways], Loop]:
    """A row of the table."""
    ODD[made.__name__] = made
    return made


def _net(*widths: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for one, other in itertools.pairwise(widths):
        layers += [nn.Linear(one, other), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def _pairs(number: int) -> tuple[Any, ...]:
    return numbers(number, 5, 4), numbers(number + 500, 5, 3)


class Kept:
    """What a user holds on to, and can look at."""

    def __init__(self) -> None:
        self.gradients: list[Any] = []
        self.said: list[Any] = []


def _finished(loop: Loop, kept: Kept) -> Loop:
    loop.extra = {"gradients": kept.gradients, "said": kept.said}
    return loop


# ------------------------------------------------------------------------------- shared memory


@odd
def weights_in_one_buffer(ways: Ways) -> Loop:
    """All parameters are views of one flat tensor, and so are their gradients."""
    model = _net(4, 6, 3)
    parameters = list(model.parameters())
    flat = torch.cat([one.detach().reshape(-1) for one in parameters])
    slopes = torch.zeros_like(flat)
    at = 0
    for one in parameters:
        one.data = flat[at : at + one.numel()].view(one.shape)
        one.grad = slopes[at : at + one.numel()].view(one.shape)
        at += one.numel()
    optimizer = torch.optim.AdamW(parameters, lr=1e-2)
    run, update = ways.model(model), ways.update(optimizer.step)

    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        slopes.zero_()
        loss = F.mse_loss(run(x), y)
        loss.backward()
        norm = slopes.norm()
        slopes.mul_((0.5 / (norm + 1e-6)).clamp(max=1))
        update()
        return loss.detach(), norm, flat.sum()

    made = Loop(ways.step(step), _pairs, [model], [optimizer])
    made.extra = {"flat": flat, "gradients": slopes}
    return made


@odd
def two_parameters_of_one_memory(ways: Ways) -> Loop:
    """Tied by memory, not by object: both are updated."""
    model = _net(4, 4, 4, 3)
    model[2].weight.data = model[0].weight.data
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    run, update = ways.model(model), ways.update(optimizer.step)

    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        optimizer.zero_grad()
        loss = F.mse_loss(run(x), y)
        loss.backward()
        update()
        return loss.detach()

    return Loop(ways.step(step), _pairs, [model], [optimizer])


@odd
def one_gradient_for_two(ways: Ways) -> Loop:
    """Two parameters whose `.grad` is one tensor, between steps."""
    model = _net(4, 4, 4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run, update = ways.model(model), ways.update(optimizer.step)
    shared = torch.zeros(4, 4)

    def before(number: int) -> None:
        if number % 2:
            model[0].weight.grad = model[2].weight.grad = shared

    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        loss = F.mse_loss(run(x), y)
        loss.backward()
        update()
        return loss.detach(), model[0].weight.grad is model[2].weight.grad

    def after(number: int) -> None:
        if not number % 2:
            optimizer.zero_grad()

    made = Loop(ways.step(step), _pairs, [model], [optimizer], before=before, after=after)
    made.extra = {"gradients": shared}
    return made


@odd
def gradients_that_are_held(ways: Ways) -> Loop:
    """The user holds each gradient object, and views of them, while they are zeroed in place."""
    model, kept = _net(4, 6, 3), Kept()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    run, update = ways.model(model), ways.update(optimizer.step)

    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        optimizer.zero_grad(set_to_none=False)
        loss = F.mse_loss(run(x), y)
        loss.backward()
        update()
        return [one.grad for one in model.parameters()]

    def after(number: int) -> None:
        held = [one.grad for one in model.parameters()]
        if number == 1:
            kept.gradients += held + [one.view(-1)[1:] for one in held if one is not None]
        if number > 1:
            pairs = zip(held, kept.gradients, strict=False)
            kept.said.append([one is other for one, other in pairs])

    return _finished(Loop(ways.step(step), _pairs, [model], [optimizer], after=after), kept)


@odd
def gradients_that_were_returned(ways: Ways) -> Loop:
    """Gradients of all steps stay as they were returned."""
    model, kept = _net(4, 6, 3), Kept()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run, update = ways.model(model), ways.update(optimizer.step)

    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        loss = F.mse_loss(run(x), y)
        loss.backward()
        update()
        found = [one.grad for one in model.parameters()]
        optimizer.zero_grad()
        kept.gradients.extend(found)
        return found

    return _finished(Loop(ways.step(step), _pairs, [model], [optimizer]), kept)


@odd
def swapped_averages(ways: Ways) -> Loop:
    """`.data` of model and average are exchanged for a validation in the step."""
    model = _net(4, 6, 3)
    average = [one.detach().clone() for one in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run, update = ways.model(model), ways.update(optimizer.step)

    def swap() -> None:
        for place, one in enumerate(model.parameters()):
            average[place], one.data = one.data, average[place]

    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        optimizer.zero_grad()
        loss = F.mse_loss(run(x), y)
        loss.backward()
        update()
        with torch.no_grad():
            for mine, one in zip(average, model.parameters(), strict=True):
                mine.lerp_(one, 0.1)
        swap()
        with torch.no_grad():
            score = F.mse_loss(run(x), y)
        swap()
        return loss.detach(), score

    made = Loop(ways.step(step), _pairs, [model], [optimizer])
    made.extra = {"average": average}
    return made


# ------------------------------------------------------------------------------- by the user's hand


@odd
def updates_by_hand(ways: Ways) -> Loop:
    """`autograd.grad` and updates under `no_grad`, several ways of writing a parameter."""
    model = _net(4, 6, 3)
    run = ways.model(model)

    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        parameters = list(model.parameters())
        loss = F.mse_loss(run(x), y)
        found = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            parameters[0] -= 0.1 * found[0]
            parameters[1].sub_(found[1], alpha=0.1)
            parameters[2].copy_(parameters[2] - 0.1 * found[2])
        parameters[3].data.add_(found[3], alpha=-0.1)
        return loss.detach(), found

    return Loop(ways.step(step), _pairs, [model], [])


@odd
def gradients_by_hand(ways: Ways) -> Loop:
    """Gradients are read, replaced, noised and set, in the step."""
    model = _net(4, 6, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    run, update = ways.model(model), ways.update(optimizer.step)

    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        loss = F.mse_loss(run(x), y)
        loss.backward()
        norms = {}
        for name, one in model.named_parameters():
            assert one.grad is not None
            norms[name] = one.grad.data.norm(2)
            if one.dim() > 1:  # centred
                one.grad.data.add_(-one.grad.mean(dim=1, keepdim=True))
            else:
                one.grad = one.grad.sign() * 0.1
            one.grad += 0.01 * torch.randn_like(one.grad)
        update()
        for one in model.parameters():
            one.grad.detach_()
            one.grad.zero_()
        return loss.detach(), norms

    return Loop(ways.step(step), _pairs, [model], [optimizer])


class _Plain(torch.optim.Optimizer):
    """An optimizer as people write them."""

    def __init__(self, parameters: Any, lr: float = 0.1, decay: float = 0.0) -> None:
        super().__init__(parameters, {"lr": lr, "decay": decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for one in group["params"]:
                if one.grad is None:
                    continue
                state = self.state[one]
                if not state:
                    state["step"] = 0
                    state["mean"] = torch.zeros_like(one)
                state["step"] += 1
                if group["decay"]:
                    one.mul_(1 - group["lr"] * group["decay"])
                state["mean"].mul_(0.9).add_(one.grad, alpha=0.1)
                one.add_(state["mean"].sign(), alpha=-group["lr"] / state["step"] ** 0.5)
        return loss


@odd
def optimizer_of_ones_own(ways: Ways) -> Loop:
    model = _net(4, 6, 3)
    groups = [{"params": model[0].parameters(), "decay": 0.1}, {"params": model[2].parameters()}]
    optimizer = _Plain(groups)
    run, update = ways.model(model), ways.update(optimizer.step)

    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        def closure() -> Any:
            optimizer.zero_grad()
            loss = F.mse_loss(run(x), y)
            loss.backward()
            return loss

        return update(closure).detach()

    return Loop(ways.step(step), _pairs, [model], [optimizer])


@odd
def sharpness_aware(ways: Ways) -> Loop:
    """Two passes for each update, with weights moved and put back."""
    model = _net(4, 6, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    run, update = ways.model(model), ways.update(optimizer.step)

    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        loss = F.mse_loss(run(x), y)
        loss.backward()
        moved = []
        with torch.no_grad():
            norm = torch.stack([one.grad.norm() for one in model.parameters()]).norm()
            for one in model.parameters():
                by = one.grad * (0.05 / (norm + 1e-12))
                one.add_(by)
                moved.append(by)
        optimizer.zero_grad()
        second = F.mse_loss(run(x), y)
        second.backward()
        with torch.no_grad():
            for one, by in zip(model.parameters(), moved, strict=True):
                one.sub_(by)
        update()
        optimizer.zero_grad()
        return loss.detach(), second.detach()

    return Loop(ways.step(step), _pairs, [model], [optimizer])


@odd
def steps_in_hooks(ways: Ways) -> Loop:
    """An optimizer for each parameter, which steps as soon as the gradient is there."""
    model = _net(4, 6, 3)
    many = {one: torch.optim.Adam([one], lr=1e-2) for one in model.parameters()}

    def update(one: torch.Tensor) -> None:
        many[one].step()  # type: ignore[index]
        many[one].zero_grad()  # type: ignore[index]

    for one in model.parameters():
        one.register_post_accumulate_grad_hook(update)
    run = ways.model(model)

    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        loss = F.mse_loss(run(x), y)
        loss.backward()
        return loss.detach()

    return Loop(ways.step(step), _pairs, [model], list(many.values()))


@odd
def hooks_in_the_step(ways: Ways) -> Loop:
    """Hooks of what is in between are made and taken away in each step."""
    model, kept = _net(4, 6, 3), Kept()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run, update = ways.model(model), ways.update(optimizer.step)

    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        seen: list[torch.Tensor] = []
        hidden = run(x)
        hidden.retain_grad()
        handle = hidden.register_hook(lambda slope: seen.append(slope.sum()))
        first = model[0].weight.register_hook(lambda slope: slope * 0.5)
        optimizer.zero_grad()
        loss = F.mse_loss(hidden, y)
        loss.backward()
        handle.remove()
        first.remove()
        update()
        return loss.detach(), seen, hidden.grad

    return _finished(Loop(ways.step(step), _pairs, [model], [optimizer]), kept)


# ------------------------------------------------------------------------------- when to step


@odd
def every_third(ways: Ways) -> Loop:
    """Accumulation that is counted in the step; a loss that is not finite is left out."""
    model, kept = _net(4, 6, 3), {"done": 0, "skipped": 0}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = lr_scheduler.ExponentialLR(optimizer, 0.9)
    run, update = ways.model(model), ways.update(optimizer.step)

    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        loss = F.mse_loss(run(x), y) / 3
        if not torch.isfinite(loss):
            kept["skipped"] += 1
            return None
        loss.backward()
        kept["done"] += 1
        if kept["done"] % 3 == 0:
            update()
            schedule.step()
            optimizer.zero_grad()
        return loss.item(), schedule.get_last_lr()

    def batch(number: int) -> tuple[Any, ...]:
        x, y = _pairs(number)
        return (x * float("inf") if number == 4 else x), y

    return Loop(ways.step(step), batch, [model], [optimizer], [schedule], extra=kept)


@odd
def another_try(ways: Ways) -> Loop:
    """The closure raises behind its backward pass; the next step goes on with what is there."""
    model, kept = _net(4, 6, 3), Kept()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    run, update = ways.model(model), ways.update(optimizer.step)

    def step(x: torch.Tensor, y: torch.Tensor, wrong: bool) -> Any:
        def closure() -> Any:
            loss = F.mse_loss(run(x), y)
            loss.backward()
            if wrong:
                raise ValueError("not this batch")
            return loss

        return update(closure).detach()

    compiled = ways.step(step)

    def tried(x: torch.Tensor, y: torch.Tensor, wrong: bool) -> Any:
        try:
            return compiled(x, y, wrong)
        except ValueError as error:
            kept.said.append(str(error))
            return None

    def batch(number: int) -> tuple[Any, ...]:
        return (*_pairs(number), number in (1, 4))

    def after(number: int) -> None:
        if number == 5:
            optimizer.zero_grad()

    return _finished(Loop(tried, batch, [model], [optimizer], after=after), kept)


@odd
def errors_that_are_caught(ways: Ways) -> Loop:
    """An error in the step itself, between backward and update."""
    model, kept = _net(4, 6, 3), Kept()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    run, update = ways.model(model), ways.update(optimizer.step)

    def step(x: torch.Tensor, y: torch.Tensor, wrong: bool) -> Any:
        try:
            loss = F.mse_loss(run(x), y)
            loss.backward()
            if wrong:
                raise ValueError("no")
            update()
        except ValueError:
            kept.said.append(len(kept.said))
            return None
        finally:
            optimizer.zero_grad()
        return loss.detach()

    def batch(number: int) -> tuple[Any, ...]:
        return (*_pairs(number), number in (1, 4))

    return _finished(Loop(ways.step(step), batch, [model], [optimizer]), kept)


@odd
def refused_by_clipping(ways: Ways) -> Loop:
    """`error_if_nonfinite`: the error comes before anything is written."""
    model, kept = _net(4, 6, 3), Kept()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run, update = ways.model(model), ways.update(optimizer.step)

    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        optimizer.zero_grad()
        loss = F.mse_loss(run(x), y)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1, error_if_nonfinite=True)
        update()
        return loss.detach(), norm

    compiled = ways.step(step)

    def tried(x: torch.Tensor, y: torch.Tensor) -> Any:
        try:
            return compiled(x, y)
        except RuntimeError as error:
            kept.said.append("non-finite" in str(error))
            return None

    def batch(number: int) -> tuple[Any, ...]:
        x, y = _pairs(number)
        return (x * float("inf") if number == 3 else x), y

    return _finished(Loop(tried, batch, [model], [optimizer]), kept)


# ------------------------------------------------------------------------------- what changes


@odd
def unfrozen_by_and_by(ways: Ways) -> Loop:
    """In the step itself: layers are set free, and given to the optimizer, one after the other."""
    model = _net(4, 5, 5, 3)
    model.requires_grad_(False)
    model[4].requires_grad_(True)
    optimizer = torch.optim.AdamW(model[4].parameters(), lr=1e-2)
    run, update = ways.model(model), ways.update(optimizer.step)

    def step(number: int, x: torch.Tensor, y: torch.Tensor) -> Any:
        if number in (2, 4):
            layer = model[4 - number]
            layer.requires_grad_(True)
            optimizer.add_param_group({"params": list(layer.parameters()), "lr": 1e-3})
        optimizer.zero_grad()
        loss = F.mse_loss(run(x), y)
        loss.backward()
        update()
        return loss.detach()

    def batch(number: int) -> tuple[Any, ...]:
        return (number, *_pairs(number))

    return Loop(ways.step(step), batch, [model], [optimizer])


@odd
def replaced_layers(ways: Ways) -> Loop:
    """A layer is replaced, the optimizer made anew; both copied deeply later."""
    model = _net(4, 5, 3)
    made: dict[str, Any] = {"optimizer": torch.optim.Adam(model.parameters(), lr=1e-2)}
    run = ways.model(model)

    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        made["optimizer"].zero_grad()
        loss = F.mse_loss(run(x), y)
        loss.backward()
        made["optimizer"].step()
        return loss.detach()

    loop = Loop(ways.step(step), _pairs, [model], [])

    def after(number: int) -> None:
        if number == 2:
            model[2] = nn.Linear(5, 3)
            made["optimizer"] = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        if number == 4:
            before = list(model.parameters())
            with torch.no_grad():
                for one in before:
                    one.add_(0.01)
            made["optimizer"] = copy.deepcopy(made["optimizer"])
            fresh = [one for group in made["optimizer"].param_groups for one in group["params"]]
            for (name, _), one in zip(list(model.named_parameters()), fresh, strict=True):
                owner, _, last = name.rpartition(".")
                setattr(model.get_submodule(owner), last, one)
        loop.extra = {"state": made["optimizer"].state_dict()}

    loop.after = after
    return loop


@odd
def states_in_the_step(ways: Ways) -> Loop:
    """The best model is copied, the state of the optimizer read, in the step."""
    model, kept = _net(4, 5, 3), {"best": 1e9, "copies": 0}
    best: dict[str, Any] = {}
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    run, update = ways.model(model), ways.update(optimizer.step)

    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        optimizer.zero_grad()
        loss = F.mse_loss(run(x), y)
        loss.backward()
        update()
        now = loss.item()
        if now < kept["best"]:
            kept["best"] = now
            kept["copies"] += 1
            best.update({name: one.clone() for name, one in model.state_dict().items()})
        counts = [one["step"].item() for one in optimizer.state.values()]
        return now, counts

    made = Loop(ways.step(step), _pairs, [model], [optimizer], extra=kept)
    made.extra = {**kept, "model": best}
    made.after = lambda _: made.extra.update(kept)
    return made


@odd
def dropped_layers(ways: Ways) -> Loop:
    """Layers are left out at random: their gradients are None or zero, by turns."""
    model = _net(4, 4, 4, 4, 3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    run = [ways.model(one) for one in model]
    update = ways.update(optimizer.step)
    drawn = random.Random(3)

    def step(x: torch.Tensor, y: torch.Tensor, left_out: int) -> Any:
        optimizer.zero_grad(set_to_none=left_out % 2 == 0)
        for place, layer in enumerate(run):
            if place != left_out:
                x = layer(x)
        loss = F.mse_loss(x, y)
        loss.backward()
        update()
        return loss.detach(), [one.grad is None for one in model.parameters()]

    def batch(number: int) -> tuple[Any, ...]:
        return (*_pairs(number), drawn.choice([2, 4, 3]) if number else 2)

    return Loop(ways.step(step), batch, [model], [optimizer])


# ------------------------------------------------------------------------------- higher order


@odd
def learning_to_learn(ways: Ways) -> Loop:
    """An update inside that is differentiated through (MAML)."""
    model = _net(4, 5, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    names = [name for name, _ in model.named_parameters()]
    update = ways.update(optimizer.step)

    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        parameters = dict(model.named_parameters())
        inner = F.mse_loss(torch.func.functional_call(model, parameters, (x,)), y)
        found = torch.autograd.grad(inner, list(parameters.values()), create_graph=True)
        fast = {
            name: one - 0.1 * slope
            for name, one, slope in zip(names, parameters.values(), found, strict=True)
        }
        outer = F.mse_loss(torch.func.functional_call(model, fast, (x.flip(0),)), y.flip(0))
        optimizer.zero_grad()
        outer.backward()
        update()
        return inner.detach(), outer.detach()

    return Loop(ways.step(step), _pairs, [model], [optimizer])


@odd
def penalty_by_backward(ways: Ways) -> Loop:
    """`backward(create_graph=True)`, and a second pass over `.grad`."""
    model = _net(4, 5, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    run, update = ways.model(model), ways.update(optimizer.step)

    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        optimizer.zero_grad()
        x = x.clone().requires_grad_()
        loss = F.mse_loss(run(x), y)
        (slope,) = torch.autograd.grad(loss, [x], create_graph=True)
        (loss + slope.pow(2).sum()).backward()
        update()
        return loss.detach(), slope.detach(), x.grad

    return Loop(ways.step(step), _pairs, [model], [optimizer])


# --------------------------------------------------------------------------- sparse, odd tensors


@odd
def sparse_and_momentum(ways: Ways) -> Loop:
    """Sparse gradients that accumulate, then SGD; a dense use of the same table in odd steps."""
    table = nn.Embedding(9, 3, sparse=True)
    optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
    run, update = ways.model(table), ways.update(optimizer.step)

    def step(given: torch.Tensor, y: torch.Tensor, dense: bool) -> Any:
        optimizer.zero_grad()
        for part in given.chunk(2):
            loss = F.mse_loss(run(part), y[: part.shape[0]])
            if dense:
                loss = loss + table.weight.pow(2).sum() * 0.01
            loss.backward()
        update()
        return loss.detach(), table.weight.grad.is_sparse

    def batch(number: int) -> tuple[Any, ...]:
        return rows(number, 9, 6), numbers(number, 6, 3), number % 2 == 1

    return Loop(ways.step(step), batch, [table], [optimizer])


class _Odd(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scalar, self.empty = nn.Parameter(torch.tensor(0.5)), nn.Parameter(torch.empty(0, 3))
        self.turned = nn.Parameter(torch.randn(3, 4).t())
        self.image = nn.Parameter(torch.randn(2, 3, 2, 2).to(memory_format=torch.channels_last))
        self.exact = nn.Parameter(torch.randn(3, dtype=torch.float64))
        self.waves = nn.Parameter(torch.randn(3, dtype=torch.complex64))
        self.unused = nn.Parameter(torch.ones(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x @ self.turned * self.scalar + self.empty.sum(0) + self.exact.float()
        drawn = F.conv2d(x.reshape(1, 3, 1, 5).expand(1, 3, 2, 5), self.image).sum()
        return x * (1 + 0.01 * drawn) + (self.waves * self.waves.conj()).real


@odd
def odd_parameters(ways: Ways) -> Loop:
    """Without dimensions, without elements, transposed, channels last, double, complex, unused."""
    model = _Odd()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    run, update = ways.model(model), ways.update(optimizer.step)

    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        optimizer.zero_grad()
        loss = F.mse_loss(run(x), y)
        loss.backward()
        strides = [None if one.grad is None else one.grad.stride() for one in model.parameters()]
        update()
        return loss.detach(), strides

    return Loop(ways.step(step), _pairs, [model], [optimizer])


@odd
def parametrized(ways: Ways) -> Loop:
    """Weight and spectral norms, as parametrizations."""
    model = _net(4, 5, 3)
    nn.utils.parametrizations.weight_norm(model[0])
    nn.utils.parametrizations.spectral_norm(model[2])
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-2)
    run, update = ways.model(model), ways.update(optimizer.step)

    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        optimizer.zero_grad()
        loss = F.mse_loss(run(x), y)
        loss.backward()
        total = nn.utils.get_total_norm([one.grad for one in model.parameters()])
        nn.utils.clip_grads_with_norm_(model.parameters(), 0.5, total)
        update()
        return loss.detach(), total

    return Loop(ways.step(step), _pairs, [model], [optimizer])


@odd
def features_from_outside(ways: Ways) -> Loop:
    """The graph begins outside of the step: its gradients go there."""
    body, head = _net(4, 5, 4), nn.Linear(4, 3)
    optimizer = torch.optim.Adam([*body.parameters(), *head.parameters()], lr=1e-2)
    run, update = ways.model(head), ways.update(optimizer.step)

    def inner(features: torch.Tensor, y: torch.Tensor) -> Any:
        optimizer.zero_grad()
        loss = F.mse_loss(run(features), y)
        loss.backward()
        update()
        return loss.detach()

    compiled = ways.step(inner)

    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        features = body(x)
        features.retain_grad()
        return compiled(features, y), features.grad

    return Loop(step, _pairs, [body, head], [optimizer])


@odd
def two_scaled(ways: Ways) -> Loop:
    """One scaler for two optimizers; gradients overflow in the fourth step, of one of them."""
    one, other = _net(4, 5, 3), _net(4, 5, 3)
    both = [
        torch.optim.SGD(one.parameters(), lr=0.1, momentum=0.9),
        torch.optim.Adam(other.parameters(), lr=1e-2),
    ]
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2)
    first, second = ways.model(one), ways.model(other)

    def step(x: torch.Tensor, y: torch.Tensor, by: float) -> Any:
        for optimizer in both:
            optimizer.zero_grad()
        losses = F.mse_loss(first(x), y), F.mse_loss(second(x), y) * by
        scaler.scale(losses[0]).backward()
        scaler.scale(losses[1]).backward()
        scaler.unscale_(both[0])
        nn.utils.clip_grad_norm_(one.parameters(), 0.5)
        for optimizer in both:
            scaler.step(optimizer)
        scaler.update()
        return [loss.detach() for loss in losses], scaler.get_scale()

    def batch(number: int) -> tuple[Any, ...]:
        return (*_pairs(number), float("inf") if number == 3 else 1.0)

    return Loop(ways.step(step), batch, [one, other], both, [scaler])


@odd
def line_search(ways: Ways) -> Loop:
    """LBFGS with a line search; the batch changes its size."""
    model = _net(4, 5, 3)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3, line_search_fn="strong_wolfe")
    run, update = ways.model(model), ways.update(optimizer.step)

    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        def closure() -> Any:
            optimizer.zero_grad()
            loss = F.mse_loss(run(x), y) + 1e-3 * sum(one.pow(2).sum() for one in run.parameters())
            loss.backward()
            return loss

        return float(update(closure))

    return Loop(ways.step(step), _pairs, [model], [optimizer])


@odd
def averaged_by_states(ways: Ways) -> Loop:
    """An average kept as a dictionary of states, buffers too."""
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))
    average = {name: one.clone() for name, one in model.state_dict().items()}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, nesterov=True, momentum=0.9)
    run, update = ways.model(model), ways.update(optimizer.step)

    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        optimizer.zero_grad()
        loss = F.mse_loss(run(x), y)
        loss.backward()
        update()
        for name, one in model.state_dict().items():
            if one.is_floating_point():
                average[name].mul_(0.9).add_(one, alpha=0.1)
            else:
                average[name].copy_(one)
        return loss.detach()

    made = Loop(ways.step(step), _pairs, [model], [optimizer])
    made.extra = {"average": average}
    return made


@odd
def optimizers_that_share(ways: Ways) -> Loop:
    """Two optimizers over the same parameters, by turns and both."""
    model = _net(4, 5, 3)
    one = torch.optim.Adam(model.parameters(), lr=1e-2)
    other = torch.optim.SGD(model[0].parameters(), lr=0.1, momentum=0.5)
    run = ways.model(model)
    first, second = ways.update(one.step), ways.update(other.step)

    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        other.zero_grad()
        loss = F.mse_loss(run(x), y)
        loss.backward(retain_graph=True)
        first()
        one.zero_grad()
        loss2 = F.mse_loss(run(x), y)
        loss2.backward()
        second()
        first()
        return loss.detach(), loss2.detach()

    return Loop(ways.step(step), _pairs, [model], [one, other])


@odd
def parts_of_the_leaves(ways: Ways) -> Loop:
    """`backward(inputs=…)`, given gradients, several roots."""
    model = _net(4, 5, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run, update = ways.model(model), ways.update(optimizer.step)

    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        optimizer.zero_grad()
        found = run(x)
        loss = F.mse_loss(found, y)
        loss.backward(inputs=list(model[0].parameters()), retain_graph=True)
        torch.autograd.backward([found, loss], [torch.full_like(found, 0.1), None])
        update()
        return loss.detach(), [one.grad for one in model.parameters()]

    return Loop(ways.step(step), _pairs, [model], [optimizer])


@odd
def differentiated_functionally(ways: Ways) -> Loop:
    """`torch.func.grad_and_value` over a dictionary of parameters, updated by hand."""
    model = _net(4, 5, 3)
    parameters = {name: one.detach().clone() for name, one in model.named_parameters()}

    def loss_of(given: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.mse_loss(torch.func.functional_call(model, given, (x,)), y)

    slopes = torch.func.grad_and_value(loss_of)

    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        found, loss = slopes(parameters, x, y)
        for name, slope in found.items():
            parameters[name] = parameters[name] - 0.1 * slope
        return loss

    made = Loop(ways.step(step), _pairs, [model], [])
    made.extra = {"parameters": parameters}
    return made


@odd
def gates_of_rates(ways: Ways) -> Loop:
    """A rate that is a tensor, written between steps; a schedule of betas and decay by hand."""
    model = _net(4, 5, 3)
    rate = torch.tensor(1e-2)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, weight_decay=0.1)
    run, update = ways.model(model), ways.update(optimizer.step)

    def before(number: int) -> None:
        rate.mul_(0.9)
        for group in optimizer.param_groups:
            group["betas"] = (0.9 - 0.01 * number, 0.99)
            group["weight_decay"] = 0.1 / (1 + number)

    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        optimizer.zero_grad()
        loss = F.mse_loss(run(x), y)
        loss.backward()
        update()
        return loss.detach(), optimizer.param_groups[0]["lr"] is rate

    made = Loop(ways.step(step), _pairs, [model], [optimizer], before=before)
    made.extra = {"rate": rate}
    return made
