# ruff: noqa: B018
"""Rows of the checklist: context managers."""

import contextlib

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from tests.programs.case import Call, Program, plain, ramp, row


@plain("contexts")
def no_grad(x, w):
    with torch.no_grad():
        a = w * 2
    b = w * 3 + x
    return a, b, a.requires_grad, b.requires_grad


@plain("contexts")
def nested_grad_modes(x, w):
    with torch.no_grad():
        with torch.enable_grad():
            a = w * 2
        b = w * 3
        with torch.set_grad_enabled(True):
            c = w + x
        d = w - x
    return a, b, c, d, torch.is_grad_enabled()


@plain("contexts")
def inference_mode(x):
    with torch.inference_mode():
        a = x * 2
    return a, x + 1, torch.is_inference_mode_enabled()


@plain("contexts")
def decorated_no_grad(w):
    @torch.no_grad()
    def inner(t):
        return t * 2

    return inner(w), w * 3


@plain("contexts")
def autocast(x):
    y = x.T.contiguous()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = x @ y
    return a, x @ y


@plain("contexts")
def sdpa(x):
    q = x.reshape(1, 1, 2, 3)
    with sdpa_kernel(SDPBackend.MATH):
        return scaled_dot_product_attention(q, q, q)


@plain("contexts")
def profiler_range(x):
    with torch.autograd.profiler.record_function("part"):
        return x * 2 + 1


class Scope:
    def __init__(self, log, name, swallow=False):
        self.log = log
        self.name = name
        self.swallow = swallow

    def __enter__(self):
        self.log.append(f"enter {self.name}")
        return self

    def __exit__(self, kind, value, trace):
        self.log.append((self.name, kind.__name__ if kind else None, str(value)))
        return self.swallow


@plain("contexts")
def user_context(x):
    log = []
    with Scope(log, "a") as one, Scope(log, "b"):
        y = x * len(log)
    return y, log, one.name


@plain("contexts")
def user_context_swallows(x):
    log = []
    with Scope(log, "a", swallow=True):
        raise KeyError("inside")
    return x + len(log), log


@plain("contexts")
def user_context_lets_through(x):
    log = []
    try:
        with Scope(log, "outer"), Scope(log, "inner"):
            raise KeyError("inside")
    except KeyError:
        log.append("caught")
    return x + len(log), log


@contextlib.contextmanager
def temporarily(owner, value):
    before, owner["value"] = owner["value"], value
    try:
        yield before
    finally:
        owner["value"] = before


@plain("contexts")
def generator_context(x):
    owner = {"value": 1}
    with temporarily(owner, 5) as before:
        y = x * owner["value"] + before
    return y + owner["value"], owner


@plain("contexts")
def exit_stack(x):
    log = []
    with contextlib.ExitStack() as stack:
        for name in "ab":
            stack.enter_context(Scope(log, name))
        stack.callback(log.append, "callback")
        y = x + len(log)
    return y, log


@plain("contexts")
def suppress_and_null(x):
    with contextlib.suppress(ZeroDivisionError):
        x = x + 1
        1 // 0
        x = x + 100
    with contextlib.nullcontext(3) as three:
        return x * three


@plain("contexts")
def return_inside_with(x):
    log = []
    for i in range(3):
        with Scope(log, i):
            if i == 1:
                return x * i, log
            continue


@row("contexts", graphs=(1, 3))
def context_argument():
    def f(x, w, scope):
        with scope:
            y = x * w
        return y + 1

    return Program(
        f,
        [
            Call(ramp(3), ramp(3, grad=True), torch.no_grad()),
            Call(ramp(3), ramp(3, grad=True), torch.no_grad()),
            Call(ramp(3), ramp(3, grad=True), contextlib.nullcontext()),
            Call(ramp(3), ramp(3, grad=True), torch.enable_grad()),
        ],
    )


@plain("contexts", graphs=(1, 2))
def set_grad_bare(w):
    previous = torch.is_grad_enabled()
    torch.set_grad_enabled(False)
    a = w * 2
    torch.set_grad_enabled(previous)
    return a, w * 3
