"""Rows of the checklist: autograd and random numbers."""

import random

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from tests.programs.case import Call, Program, plain, ramp, row


@row("autograd")
def gradients_of_inputs():
    def f(x, w):
        return (x * w).relu().sum() + (w**2).sum()

    def call():
        return Call(ramp(3, grad=True), ramp(3, grad=True), after=lambda loss: loss.backward())

    return Program(f, [call(), call()])


@row("autograd")
def gradients_of_several_results():
    def f(x, w):
        y = x * w
        return y, y.detach(), (y * 2).sum(), w

    def look(answer):
        (answer[0].sum() + answer[2]).backward()

    def call():
        return Call(ramp(3), ramp(3, grad=True), after=look)

    return Program(f, [call(), call()])


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        return grad * 3 * ctx.saved_tensors[0]


@row("autograd", graphs=(1, 2))
def autograd_function():
    def f(x):
        return Square.apply(x + 1).sum()

    def call():
        return Call(ramp(3, grad=True), after=lambda loss: loss.backward())

    return Program(f, [call(), call()])


@row("autograd", graphs=(1, 3))
def backward_inside():
    def f(x, w):
        loss = (x * w).sum()
        loss.backward()
        return w.grad * 2, loss.detach()

    return Program(f, [Call(ramp(3), ramp(3, grad=True)) for _ in range(2)])


@row("autograd", graphs=(1, 3))
def autograd_grad_inside():
    def f(x, w):
        (g,) = torch.autograd.grad((x * w**2).sum(), w)
        return g + 1

    return Program(f, [Call(ramp(3), ramp(3, grad=True)) for _ in range(2)])


@row("autograd", graphs=(1, 3))
def hook_and_backward_inside():
    seen = []

    def f(x, w):
        w.register_hook(lambda grad: seen.append(grad.clone()) or grad * 2)
        (x * w).sum().backward()
        return w.grad + 1

    return Program(f, [Call(ramp(3), ramp(3, grad=True)) for _ in range(2)], state=seen)


@row("autograd", graphs=(1, 3))
def hook_on_result_and_backward_inside():
    seen = []

    def f(x, w):
        y = x * w
        y.register_hook(lambda grad: seen.append(grad.clone()) or grad * 2)
        y.sum().backward()
        return w.grad + 1

    return Program(f, [Call(ramp(3), ramp(3, grad=True)) for _ in range(2)], state=seen)


@row("autograd", graphs=(2, 2))
def whole_step():
    torch.manual_seed(0)
    weight, bias = nn.Parameter(ramp(3)), nn.Parameter(ramp(3))
    optimizer = torch.optim.AdamW([weight, bias], lr=0.5)

    def f(x):
        optimizer.zero_grad()
        loss = (x * weight + bias).square().sum()
        loss.backward()
        nn.utils.clip_grad_norm_([weight, bias], 1.0)
        optimizer.step()
        return loss.detach()

    state = (weight, bias, optimizer.state_dict)
    return Program(f, [Call(ramp(3)) for _ in range(3)], state=state)


@row("autograd", graphs=(1, 2))
def checkpointed():
    def f(x, w):
        return checkpoint(lambda t: (t * w).relu(), x, use_reentrant=False).sum()

    def call():
        return Call(ramp(3), ramp(3, grad=True), after=lambda loss: loss.backward())

    return Program(f, [call(), call()])


@row("autograd", graphs=(1, 2))
def hook_on_input():
    seen = []

    def f(w):
        w.register_hook(lambda grad: seen.append(grad.clone()))
        return (w * 2).sum()

    def call():
        return Call(ramp(3, grad=True), after=lambda loss: loss.backward())

    return Program(f, [call(), call()], state=seen)


@row("autograd", graphs=(1, 2))
def inplace_on_intermediate_with_grad():
    def f(x, w):
        y = x * w
        y.mul_(2)
        y[0] = 5
        return y.sum()

    def call():
        return Call(ramp(3), ramp(3, grad=True), after=lambda loss: loss.backward())

    return Program(f, [call(), call()])


@row("autograd", graphs=(1, 3))
def optimizer_step():
    torch.manual_seed(0)
    weight = nn.Parameter(ramp(3))
    optimizer = torch.optim.SGD([weight], lr=0.5, momentum=0.5)

    def f(x):
        weight.grad = x * 2
        optimizer.step()
        return weight.detach() + 1

    return Program(f, [Call(ramp(3)) for _ in range(3)], state=(weight, optimizer.state_dict))


@plain("random", calls=3)
def torch_random(x):
    return (
        torch.rand(3),
        torch.randn_like(x),
        F.dropout(x, 0.5),
        torch.randint(0, 9, (2,)),
        torch.randperm(4),
    )


@plain("random", graphs=(1, 3), calls=3)
def seeded_inside(x):
    torch.manual_seed(7)
    return x + torch.rand(2, 3)


@plain("random", graphs=(1, 3), calls=3)
def python_random(x):
    return x * random.random() + random.randint(1, 5), random.choice("abc"), random.uniform(0, 1)


@row("random", graphs=(1, 3))
def own_generators():
    generator = torch.Generator().manual_seed(3)
    source = random.Random(5)

    def f(x):
        return x + torch.rand(3, generator=generator) + source.random()

    return Program(f, [Call(ramp(3)) for _ in range(3)], state=(generator, source.getstate))


@plain("random", calls=3)
def inplace_random(x):
    return (
        x.uniform_() + torch.empty(3).normal_(),
        torch.bernoulli(torch.full((3,), 0.5)),
        torch.multinomial(torch.ones(4), 2),
    )
