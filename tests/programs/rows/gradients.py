"""Rows of the checklist: functions with gradients of their own, hooks, modes switched inside."""

import torch

from tests.programs.case import Call, Program, plain, ramp, row


class Weighted(torch.autograd.Function):
    """Several results, one without a gradient; a gradient that is None."""

    @staticmethod
    def forward(ctx, x, y, factor):
        ctx.save_for_backward(x, y, x * y)
        ctx.factor = factor
        positive = (x > 0).sum()
        ctx.mark_non_differentiable(positive)
        return x * y * factor, x + y, positive

    @staticmethod
    def backward(ctx, first, second, _):
        x, y, product = ctx.saved_tensors
        of_x = first * y * ctx.factor + second + product
        of_y = first * x + second * 2 if ctx.needs_input_grad[1] else None
        return of_x, of_y, None


class Clipped(torch.autograd.Function):
    """Forward and `setup_context` apart."""

    @staticmethod
    def forward(x, most):
        return x.clamp(max=most)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.most = inputs
        ctx.save_for_backward(x, output)

    @staticmethod
    def backward(ctx, grad):
        x, clipped = ctx.saved_tensors
        return grad * (x <= ctx.most) + clipped * 0, None


class Noisy(torch.autograd.Function):
    """With an effect: left to Python."""

    seen = []  # noqa: RUF012

    @staticmethod
    def forward(ctx, x):
        Noisy.seen.append("forward")
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        Noisy.seen.append("backward")
        return grad * 3


def backwards(*names):
    def after(result):
        loss = result[0] if isinstance(result, tuple) else result
        loss.sum().backward()

    return after


@row("gradients")
def function_with_several_results():
    def f(x, y):
        first, second, positive = Weighted.apply(x * 1, y, 3)
        again, _, _ = Weighted.apply(first, first, 2)
        return Clipped.apply(again, 4.0) + second + positive

    def call(of_y):
        return Call(ramp(3, grad=True), ramp(3, start=1, grad=of_y), after=backwards())

    return Program(f, [call(True), call(True)])


@row("gradients")
def function_without_gradients():
    def f(x, y):
        with torch.no_grad():
            a, b, c = Weighted.apply(x, y, 3)
        return a + b, c, Clipped.apply(y.detach(), 1.0)

    return Program(f, [Call(ramp(3, grad=True), ramp(3)) for _ in range(2)])


@row("gradients", graphs=(0, 4))
def function_with_effects():
    def f(x):
        return Noisy.apply(x + 1) * 2

    return Program(f, [Call(ramp(3, grad=True), after=backwards()) for _ in range(2)], state=Noisy)


@row("gradients")
def double_backward():
    def f(x):
        return Clipped.apply(x * x * 2, 40.0).pow(2).sum()

    x = ramp(3, grad=True)

    def twice(loss):
        (first,) = torch.autograd.grad(loss, x, create_graph=True)
        return torch.autograd.grad(first.sum(), x)

    return Program(f, [Call(x, after=twice), Call(x, after=twice)])


@row("gradients")
def hook_removed_again():
    seen = []

    def f(x):
        y = x * 2
        kept = y.register_hook(lambda grad: grad * 3)
        gone = y.register_hook(lambda grad: seen.append("gone"))
        gone.remove()
        return (y * y).sum(), type(kept)

    return Program(f, [Call(ramp(3, grad=True), after=backwards()) for _ in range(2)], state=seen)


@row("gradients")
def gradient_accumulated_by_hand():
    def f(w, x):
        if w.grad is None:
            w.grad = torch.zeros_like(w)
        w.grad += x
        w.grad.mul_(2)
        return w.grad * 3

    weight = ramp(3, grad=True)
    return Program(f, [Call(weight, ramp(3))], state=weight)


@row("gradients", graphs=(1, 2))
def data_replaced():
    def f(x, y):
        view = x.view(-1)
        z = y * 2
        x.data = z
        return x * 3, view, x is x.data, z.data_ptr() == x.data_ptr()

    return Program(f, [Call(ramp(3), ramp(3)) for _ in range(2)])


@row("gradients", graphs=(0, 4))
def data_replaced_and_written():
    """Which version the tensor has depends on that order: left to Python."""

    def f(x, y):
        x.data = y * 2
        x.add_(1)
        return x * 3

    return Program(f, [Call(ramp(3), ramp(3)) for _ in range(2)])


@row("gradients", graphs=(2, 3))
def break_inside_autocast():
    def f(x, w):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            a = x @ w
            print("inside")
            b = a @ w
        return a, b, x @ w, torch.is_autocast_enabled("cpu")

    return Program(f, [Call(ramp(3, 3), ramp(3, 3)) for _ in range(2)])


@row("gradients", graphs=(0, 4))
def break_inside_inference_mode():
    def f(x):
        with torch.inference_mode():
            a = x * 2
            print("inside")
            b = a + 1
        is_inference = a.is_inference(), torch.is_inference(b), x.is_inference()
        return a, b, x - 1, torch.is_inference_mode_enabled(), is_inference

    return Program(f, [Call(ramp(3)) for _ in range(2)])


@row("gradients")
def trained_under_autocast():
    def f(x, w):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = torch.relu(x @ w) @ w
        return y.float().sum()

    return Program(
        f,
        [Call(ramp(3, 3), ramp(3, 3, grad=True), after=backwards()) for _ in range(2)],
    )


@plain("gradients")
def autocast_as_decorator(x):
    @torch.autocast("cpu", dtype=torch.bfloat16)
    def inner(t):
        return t.T @ t

    return inner(x), x.T @ x


@row("gradients", graphs=(1, 2))
def raised_inside_autocast():
    def f(x):
        try:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                y = x.T @ x
                raise ValueError("inside")
        except ValueError:
            return y, x.T @ x, torch.is_autocast_enabled("cpu")

    return Program(f, [Call(ramp(3, 3)) for _ in range(2)])


@row("gradients", graphs=(1, 3))
def under_an_outer_autocast():
    def f(x):
        with torch.autocast("cpu", enabled=False):
            y = x.T @ x
        return y, x.T @ x, torch.get_autocast_dtype("cpu")

    def outer(x):
        with torch.autocast("cpu", dtype=torch.float16):
            return f(x)

    return Program(outer, [Call(ramp(3, 3)) for _ in range(2)])
