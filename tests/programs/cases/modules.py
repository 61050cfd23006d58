"""Hard cases: modules, patches between calls, autograd, optimizers."""

import torch
from torch import nn

from tests.programs.case import Call, Program, hard, ramp

SCALE = 2


def helper(x):
    return x + 1


class Worker:
    shift = 1

    def __init__(self):
        self.factor = 3

    def work(self, x):
        return helper(x * SCALE) * self.factor + self.shift


@hard(
    32, "method, global, helper, instance attribute patched between calls", torch="✗", graphs=(1, 8)
)
def patched():
    worker = Worker()

    def f(x):
        return worker.work(x)

    def patch_global():
        global SCALE
        SCALE = 5

    def patch_helper():
        global helper
        helper = torch.neg

    def patch_code():
        Worker.work.__code__ = (lambda self, x: x * self.factor - 1).__code__

    def patch_method():
        Worker.work = lambda self, x: x - self.shift

    def patch_attribute():
        worker.factor = 7

    def patch_class_attribute():
        Worker.shift = 11

    def shadow():
        worker.work = lambda x: x * 100

    changes = [
        None, None, patch_attribute, patch_class_attribute, patch_global, patch_helper, patch_code,
        patch_method, shadow,
    ]  # fmt: skip
    return Program(f, [Call(ramp(3), before=change) for change in changes], state=worker)


@hard(33, "weight swap, hook add and remove, child replaced, .data =", torch="✗", graphs=(1, 9))
def swapped():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2))
    handles = []

    def swap():
        model[0].weight = nn.Parameter(ramp(3, 3))

    def hook():
        handles.append(model[0].register_forward_hook(lambda one, args, out: out * 2))

    def unhook():
        handles.pop().remove()

    def pre_hook():
        handles.append(model.register_forward_pre_hook(lambda one, args: (args[0] + 1,)))

    def child():
        model[1] = nn.Tanh()

    def data():
        model[0].weight.data = ramp(3, 3, start=1)

    def narrower():
        model[2].weight.data = ramp(4, 3)
        model[2].bias.data = ramp(4)

    def double():
        model.double()

    changes = [None, swap, hook, unhook, pre_hook, unhook, child, data, narrower]
    calls = [Call(ramp(2, 3), before=change) for change in changes]
    calls.append(Call(ramp(2, 3).double(), before=double))
    return Program(model, calls, state=model)


class Recording(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.calls = 0
        self.history = {}
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x):
        self.calls += 1
        y = self.norm(x)
        self.seen.add_(y.sum(0))
        self.history[self.calls] = y.mean()
        self.last = y
        return y * self.calls


@hard(34, "BatchNorm buffers, a counter, a dict of history", torch="4", graphs=(1, 3))
def buffers():
    model = Recording()
    calls = [Call(ramp(4, 3, start=start)) for start in (-2, 0, 1, 2, 3)]
    calls.append(Call(ramp(4, 3), before=model.eval))
    return Program(model, calls, state=model)


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * ctx.factor * 10 + x, None


@hard(35, "autograd.Function and a hook on an intermediate", torch="1")
def custom_gradient():
    seen = []

    def f(x, w):
        y = Scaled.apply(x * w, 3)
        y.register_hook(lambda grad: seen.append(grad.sum()) or grad * 2)
        return (y + 1).sum()

    def backward(loss):
        loss.backward()

    def call():
        return Call(ramp(3), ramp(3, grad=True), after=backward)

    return Program(f, [call(), call()], state=seen)


@hard(36, "backward and Adam inside", torch="3", graphs=(1, 4))
def training_step():
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)

    def f(x, target):
        optimizer.zero_grad()
        loss = ((model(x) - target) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    calls = [Call(ramp(4, 3), ramp(4, 1)) for _ in range(3)]
    return Program(f, calls, state=(model, dict(optimizer.state)))
