# ruff: noqa: RUF012
"""Hard cases: modes, random streams, subclasses, shapes, arrays, identity."""

import asyncio
import random
import weakref

import numpy as np
import torch
from torch.nn import functional as F

from tests.programs.case import Call, Program, hard, ramp


@hard(37, "dropout, random, np.random, rand: the streams", torch="5", graphs=(1, 5))
def random_streams():
    def f(x):
        a = F.dropout(x, 0.5)
        b = torch.rand(3)
        c = random.random()
        d = random.randint(0, 10)
        e = float(np.random.rand())
        g = torch.randn_like(x)
        return a + b * c + d + e + g, random.choice([1, 2, 3])

    return Program(f, [Call(ramp(3)) for _ in range(4)])


@hard(38, "nested autocast; a bare set_grad_enabled that leaks out", torch="1", graphs=(1, 2))
def leaking_modes():
    def f(x, w):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            a = x @ w
            with torch.autocast("cpu", enabled=False):
                b = x @ w
            c = x @ w
        d = x @ w
        torch.set_grad_enabled(False)
        e = x @ w
        return a, b, c, d, e, torch.is_autocast_enabled("cpu")

    return Program(f, [Call(ramp(3, 3), ramp(3, 3, grad=True)) for _ in range(3)])


class Tagged(torch.Tensor):
    calls = []

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        cls.calls.append(getattr(function, "__name__", "?"))
        return super().__torch_function__(function, types, args, kwargs or {})


class Doubling(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        answer = function(*args, **(kwargs or {}))
        return answer * 2 if function is torch.add else answer


@hard(
    39,
    "__torch_function__ subclass keeps its type; a mode",
    torch="✗",
    waits="subclasses and modes",
)
def torch_function():
    def f(x, y):
        a = torch.add(x, 1) * 2
        with Doubling():
            b = torch.add(y, 1)
        return a, b, type(a).__name__

    def call():
        return Call(ramp(3).as_subclass(Tagged), ramp(3))

    return Program(f, [call(), call()], state=Tagged)


# One with fixed sizes, then `b` varies on either side of 4, then `n` too; `b == n` on either side;
# and two in which a size is 1.
@hard(40, "shape arithmetic, `b > 4`, equal sizes, sizes from 1", torch="6", graphs=(1, 8))
def shapes():
    def f(x, y):
        b, n = x.shape
        if b > 4:
            x = x * 2
        if b == n:
            x = x + x.T
        flat = x.reshape(b * n)
        return flat[: b // 2 + 1].sum() + y.shape[0], flat.view(n, -1).shape, x.numel() % 3

    sizes = [(3, 2), (4, 2), (5, 2), (6, 2), (7, 3), (3, 3), (1, 2), (2, 1), (8, 8)]
    return Program(f, [Call(ramp(b, n), ramp(b)) for b, n in sizes])


@hard(41, "ndarrays as arguments and results; in-place aliasing", waits="NumPy")
def arrays():
    def f(array, x):
        array += 1
        shared = torch.from_numpy(array)
        y = shared * x
        return y.numpy().sum(), np.add(array, 1), y

    def look(answer):
        return answer[0], answer[1].tolist(), answer[1].dtype.str

    def call():
        array = np.arange(3, dtype=np.float32)
        return Call(array, ramp(3), after=lambda answer: (look(answer), array.tolist()))

    return Program(lambda array, x: look(f(array, x)), [call(), call()])


@hard(43, "views and identity", graphs=(1, 1))
def identity():
    def f(x, y, items):
        view = x.view(-1)
        same = x.contiguous()
        items[0] = y
        flat = y.reshape(6)
        flat.mul_(2)
        return x, view, same is x, items, y.expand_as(y), x.T, y[0], x.detach()

    def call():
        return Call(ramp(2, 3), ramp(2, 3), [None])

    return Program(f, [call(), call()])


@hard(44, "weak references after del", graphs=(1, 3))
def weak_references():
    class Holder:
        pass

    def f(x, dead):
        holder = Holder()
        holder.tensor = x + 1
        reference = weakref.ref(holder, lambda one: dead.append("dead"))
        alive = reference() is holder
        total = holder.tensor.sum()
        del holder
        return total, alive, reference() is None

    return Program(f, [Call(ramp(3), []), Call(ramp(3), [])])


@hard(45, "a coroutine", graphs=None, waits="coroutines")
def coroutine():
    async def g(x):
        await asyncio.sleep(0)
        return x * 2

    async def h(x):
        return await g(x) + 1

    def f(x):
        y = x - 1
        return asyncio.run(h(y)) + 2

    return Program(f, [Call(ramp(3)), Call(ramp(3))])
