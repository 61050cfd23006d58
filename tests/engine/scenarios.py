"""Programs with backward passes: what each shows must be the same under any engine.

A scenario is a function that makes fresh state and answers a step; a step runs some backward pass
and answers all that can be seen of it (gradients, logs of hooks, errors). It is stepped several
times: the first one is recorded, the others are replayed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

Step = Callable[[int], Any]
SCENARIOS: dict[str, Callable[[], Step]] = {}


def scenario(make: Callable[[], Step]) -> Callable[[], Step]:
    SCENARIOS[make.__name__] = make
    return make


def leaf(*sizes: int, **facts: Any) -> torch.Tensor:
    return torch.randn(*sizes, **facts).requires_grad_()


def raised(call: Callable[[], Any]) -> str:
    """What was raised, without addresses and versions' numbers."""
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0][:60]}"
    return "nothing raised"


def grads(*tensors: torch.Tensor) -> list[Any]:
    found = [None if one.grad is None else one.grad.clone() for one in tensors]
    for one in tensors:
        one.grad = None
    return found


# ------------------------------------------------------------------------------------ the checklist


@scenario
def mlp() -> Step:
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
    x = torch.randn(5, 8)

    def step(time: int) -> Any:
        model(x).pow(2).mean().backward()
        return grads(*model.parameters())

    return step


@scenario
def accumulated_over_steps() -> Step:
    w = leaf(4, 4)

    def step(time: int) -> Any:
        (w @ w).sum().backward()
        return w.grad.clone(), w.grad.stride()

    return step


@scenario
def constant_of_a_node() -> Step:
    x = leaf(3, 4)

    def step(time: int) -> Any:
        (x.cumsum(time % 2) * torch.arange(4.0)).sum().backward()
        return grads(x)

    return step


@scenario
def branches() -> Step:
    x = leaf(3)

    def step(time: int) -> Any:
        ((x * 2).sin() if time % 2 else (x * 2).cos()).sum().backward()
        return grads(x)

    return step


@scenario
def one_tensor_saved_twice() -> Step:
    x = leaf(3)

    def step(time: int) -> Any:
        a = x + 1
        (a * a).sum().backward()
        return grads(x)

    return step


@scenario
def constants_that_are_one_tensor_at_first() -> Step:
    x, c, d = leaf(3), torch.randn(3), torch.randn(3)

    def step(time: int) -> Any:
        other = c if time == 0 else d
        ((x * c) * other).sum().backward()
        return grads(x)

    return step


@scenario
def saved_twice_in_one_node_at_first() -> Step:
    x, c, d = leaf(3), torch.randn(3), torch.randn(3)

    def step(time: int) -> Any:
        other = c if time == 0 else d
        torch.addcdiv(torch.zeros(3), x + c, other).sum().backward()
        torch.atan2(x + 0, (x + 0) if time else c).sum().backward()
        return grads(x)

    return step


@scenario
def number_that_changes() -> Step:
    x = leaf(3)

    def step(time: int) -> Any:
        ((x / (2.0 + time)) * (3 + time) + x * (2 if time % 2 else 2.0)).sum().backward()
        return grads(x)

    return step


@scenario
def tensor_without_dimensions_that_changes() -> Step:
    x = leaf(3)

    def step(time: int) -> Any:
        (x * torch.tensor(1.0 + time)).sum().backward()
        return grads(x)

    return step


@scenario
def sizes() -> Step:
    w = leaf(4, 2)

    def step(time: int) -> Any:
        x = torch.arange(4.0 * (time + 3)).reshape(time + 3, 4)
        (x @ w).relu().mean().backward()
        return grads(w)

    return step


@scenario
def sizes_through_mean_and_expand() -> Step:
    w = leaf(1, 3)

    def step(time: int) -> Any:
        rows = (4, 5, 1, 0)[time % 4]
        (w.expand(rows, 3) * torch.ones(rows, 3)).sum(0).mean().backward()
        return grads(w)

    return step


@scenario
def reduced_and_cast_to_the_edge() -> Step:
    a, b, c = leaf(3, 1), leaf(4), leaf(4, dtype=torch.float64)

    def step(time: int) -> Any:
        (a * b + c).sum().backward()
        return grads(a, b, c)

    return step


@scenario
def real_part_of_complex() -> Step:
    a, b = leaf(3), leaf(3, dtype=torch.complex64)

    def step(time: int) -> Any:
        (a * b).abs().sum().backward()
        return grads(a, b)

    return step


@scenario
def autocast() -> Step:
    model, x = nn.Linear(4, 4), torch.randn(2, 4)

    def step(time: int) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=time % 2 == 0):
            loss = model(x).float().sum()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss.backward()
        return grads(*model.parameters())

    return step


@scenario
def convolution_and_batch_norm() -> Step:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2))
    x = torch.randn(2, 3, 8, 8)

    def step(time: int) -> Any:
        model(x).mean().backward()
        return grads(*model.parameters())

    return step


@scenario
def dropout_and_embedding() -> Step:
    table, x = nn.Embedding(5, 4), torch.tensor([0, 3, 3])

    def step(time: int) -> Any:
        torch.manual_seed(time)
        F.dropout(table(x), 0.5).sum().backward()
        return grads(*table.parameters())

    return step


@scenario
def native_dropout_switched() -> Step:
    x = leaf(20)

    def step(time: int) -> Any:
        torch.manual_seed(time)
        out, _ = torch.native_dropout(x, 0.5, time % 2 == 0)
        out.sum().backward()
        return grads(x)

    return step


@scenario
def attention_and_losses() -> Step:
    q, k, v = leaf(2, 2, 5, 4), leaf(2, 2, 5, 4), leaf(2, 2, 5, 4)
    target = torch.tensor([0, 1])

    def step(time: int) -> Any:
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        F.cross_entropy(out.flatten(1), target).backward()
        return grads(q, k, v)

    return step


@scenario
def recurrent() -> Step:
    model, x = nn.LSTM(3, 4, 2), torch.randn(5, 2, 3)

    def step(time: int) -> Any:
        out, (h, c) = model(x)
        (out.sum() + (h * c).sum()).backward()
        return grads(*model.parameters())

    return step


# ------------------------------------------------------------------------------------------ hooks


@scenario
def hooks_of_all_kinds() -> Step:
    model, x = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2)), torch.randn(3, 4)
    log: list[Any] = []
    for name, one in model.named_parameters():
        one.register_hook(lambda g, name=name: log.append(("leaf", name, g.clone())))
        one.register_post_accumulate_grad_hook(
            lambda p, name=name: log.append(("accumulated", name, p.grad.clone()))
        )

    def step(time: int) -> Any:
        log.clear()
        h = model[1](model[0](x))
        h.register_hook(lambda g: log.append(("tensor", g.clone())) or g * 2)
        h.grad_fn.register_prehook(lambda g: log.append(("before", g[0].clone())))
        h.grad_fn.register_hook(lambda i, o: log.append(("behind", i[0].clone(), o[0].clone())))
        h.retain_grad()
        model[2](h).pow(2).sum().backward()
        return list(log), h.grad.clone(), grads(*model.parameters())

    return step


@scenario
def order_of_leaves() -> Step:
    leaves = [leaf(2) for _ in range(9)]
    log: list[int] = []
    for number, one in enumerate(leaves):
        one.register_hook(lambda g, number=number: log.append(number))

    def step(time: int) -> Any:
        log.clear()
        (torch.cat(leaves).sum() + (leaves[3] * leaves[5]).sum() + leaves[0].sum()).backward()
        return list(log), grads(*leaves)

    return step


@scenario
def order_of_nodes() -> Step:
    x, log = leaf(3), []

    def step(time: int) -> Any:
        log.clear()
        a, b, c = x.sin(), x.cos(), x.exp()
        for name, one in (("a", a), ("b", b), ("c", c)):
            one.register_hook(lambda g, name=name: log.append(name))
        ((c * a) + b * (a + c)).sum().backward()
        return list(log), grads(x)

    return step


@scenario
def hook_that_answers_later() -> Step:
    x = leaf(3)

    def step(time: int) -> Any:
        y = x * 2
        y.register_hook(lambda g: None if time == 0 else g * (time + 1))
        (y * y).sum().backward()
        return grads(x)

    return step


@scenario
def hook_that_answers_another_layout() -> Step:
    x = leaf(3, 4)

    def step(time: int) -> Any:
        y = x * 2
        if time >= 2:
            y.register_hook(lambda g: g.t().contiguous().t() * 2)
        else:
            y.register_hook(lambda g: g)
        (y.sin() * 3).sum().backward()
        return grads(x)

    return step


@scenario
def one_gradient_for_two_edges() -> Step:
    x, y = leaf(3), leaf(3)

    def step(time: int) -> Any:
        a, b = x * 2, y * 3
        a.register_hook(lambda g: g * 10)
        (a + b).sum().backward()
        return grads(x, y)

    return step


@scenario
def hooks_that_change_between_calls() -> Step:
    x, log = leaf(3), []

    def step(time: int) -> Any:
        log.clear()
        y = x * 2
        if time % 2:
            y.register_hook(lambda g: log.append("tensor"))
        if time >= 2:
            y.grad_fn.register_hook(lambda i, o: log.append("behind"))
        y.sum().backward()
        return list(log), grads(x)

    return step


@scenario
def hook_that_removes_itself() -> Step:
    x, log = leaf(3), []

    def step(time: int) -> Any:
        log.clear()
        y = x * 2

        def hook(g: torch.Tensor) -> None:
            log.append("once")
            handle.remove()

        handle = y.register_hook(hook)
        z = y.sum()
        z.backward(retain_graph=True)
        z.backward()
        return list(log), grads(x)

    return step


@scenario
def optimizer_in_the_hook() -> Step:
    model, x = nn.Linear(3, 2), torch.randn(4, 3)

    def update(p: torch.Tensor) -> None:
        with torch.no_grad():
            p -= 0.1 * p.grad
        p.grad = None

    for one in model.parameters():
        one.register_post_accumulate_grad_hook(update)

    def step(time: int) -> Any:
        model(x).pow(2).sum().backward()
        return [one.detach().clone() for one in model.parameters()], grads(*model.parameters())

    return step


@scenario
def retained_gradient_and_hook_in_both_orders() -> Step:
    x = leaf(3)

    def step(time: int) -> Any:
        a, b = x * 2, x * 3
        a.retain_grad()
        a.register_hook(lambda g: g * 10)
        b.register_hook(lambda g: g * 10)
        b.retain_grad()
        b.retain_grad()
        (a * b).sum().backward()
        return a.grad.clone(), b.grad.clone(), grads(x)

    return step


@scenario
def hooks_of_several_gradients() -> Step:
    x, w, log = leaf(3), leaf(3), []

    def step(time: int) -> Any:
        log.clear()
        a = x * 2
        for mode in ("all", "any"):
            torch.autograd.graph.register_multi_grad_hook(
                (a, w, x),
                (lambda gs: log.append(["all", *[g is None for g in gs]]))
                if mode == "all"
                else (lambda g: log.append("any")),
                mode=mode,
            )
        (a * 3 + (w.sum() if time % 2 else 0)).sum().backward()
        return list(log), grads(x, w)

    return step


@scenario
def callbacks_of_callbacks() -> Step:
    x, log = leaf(3), []
    engine = torch.autograd.Variable

    def step(time: int) -> Any:
        log.clear()

        def second() -> None:
            log.append(("second", x.grad is not None))

        def first() -> None:
            log.append(("first", x.grad is not None))
            engine._execution_engine.queue_callback(second)

        y = x * 2
        y.register_hook(lambda g: engine._execution_engine.queue_callback(first))
        y.sum().backward()
        return list(log), grads(x)

    return step


@scenario
def backward_inside_of_a_hook() -> Step:
    x, w = leaf(3), leaf(3)

    def step(time: int) -> Any:
        y = x * 2
        z = (w * w).sum()
        y.register_hook(lambda g: z.backward(retain_graph=True))
        s = (y * w).sum()
        s.backward(retain_graph=True)
        s.backward()
        return grads(x, w)

    return step


@scenario
def hook_that_raises() -> Step:
    x, w = leaf(3), leaf(3)

    def step(time: int) -> Any:
        a = w * 2
        y = a + x

        def hook(g: torch.Tensor) -> None:
            if time in (1, 3):
                raise ValueError("no")

        a.register_hook(hook)
        s = (y * y).sum()
        first = raised(lambda: s.backward())
        return first, grads(x, w), torch.autograd.Variable._execution_engine is not None

    return step


@scenario
def hook_of_the_wrong_size() -> Step:
    x = leaf(3)

    def step(time: int) -> Any:
        y = x * 2
        if time >= 1:
            y.register_hook(lambda g: g[:2])
        else:
            y.register_hook(lambda g: None)
        return raised(lambda: y.sum().backward()), grads(x)

    return step


@scenario
def questions_about_the_pass() -> Step:
    x, log = leaf(3), []

    def step(time: int) -> Any:
        log.clear()
        y = x * 2
        y.grad_fn.register_prehook(lambda g: log.append(_asked(y.grad_fn, x)))
        y.grad_fn.register_hook(lambda i, o: log.append(_asked(y.grad_fn, x)))
        y.register_hook(lambda g: log.append(_asked(y.grad_fn, x)))
        y.sum().backward()
        return list(log), torch._C._current_graph_task_id(), grads(x)

    return step


def _asked(node: Any, x: torch.Tensor) -> Any:
    with torch.enable_grad():
        other = (x * 3).grad_fn
    return (
        torch._C._current_autograd_node() is node,
        torch._C._current_graph_task_id() == -1,
        torch._C._will_engine_execute_node(node),
        torch._C._will_engine_execute_node(other),
    )


@scenario
def hooks_before_that_change_gradients() -> Step:
    x = leaf(3)

    def step(time: int) -> Any:
        y = x.sin()
        y.grad_fn.register_prehook(lambda g: (g[0] * 2,) if time else None)
        y.grad_fn.register_hook(lambda i, o: (i[0] * 3,) if time > 1 else None)
        y.sum().backward()
        return grads(x)

    return step


@scenario
def hooks_of_modules() -> Step:
    model, x, log = nn.Sequential(nn.Linear(3, 3), nn.Tanh()), torch.randn(2, 3), []
    model[1].register_full_backward_hook(lambda m, i, o: log.append(("full", i[0].clone())))
    model[0].register_full_backward_pre_hook(lambda m, o: log.append(("pre", o[0].clone())))

    def step(time: int) -> Any:
        log.clear()
        model(x).sum().backward()
        return list(log), grads(*model.parameters())

    return step


# -------------------------------------------------------------------------------------- functions


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, by: float) -> torch.Tensor:
        ctx.by = by
        ctx.save_for_backward(x)
        return x * by

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (x,) = ctx.saved_tensors
        return grads[0] * ctx.by + 0 * x, None


@scenario
def function_with_state() -> Step:
    x = leaf(3)

    def step(time: int) -> Any:
        Scaled.apply(x * 2, float(time + 1)).sin().sum().backward()
        return grads(x)

    return step


def _pair(materialise: bool, seen: list[Any]) -> type[torch.autograd.Function]:
    class Pair(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor) -> Any:
            ctx.set_materialize_grads(materialise)
            return x * 2, y * 3

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            seen.append([None if one is None else one.clone() for one in grads])
            return tuple(None if one is None else one * 2 for one in grads)

    return Pair


@scenario
def function_with_an_unused_result() -> Step:
    x, y, seen = leaf(3), leaf(3), []

    def step(time: int) -> Any:
        seen.clear()
        for materialise in (False, True):
            one, other = _pair(materialise, seen).apply(x, y)
            (one.sum() if time % 2 else other.sum()).backward()
        return list(seen), grads(x, y)

    return step


@scenario
def function_that_changes_what_it_answers() -> Step:
    x, y = leaf(3), leaf(3)

    class Sometimes(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor, time: int) -> Any:
            ctx.time = time
            return x + y

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return grads[0], None if ctx.time == 2 else grads[0] * 2, None

    def step(time: int) -> Any:
        Sometimes.apply(x.sin(), y.cos(), time).exp().sum().backward()
        return grads(x, y)

    return step


@scenario
def function_that_writes_its_gradient() -> Step:
    x, y = leaf(3), leaf(3)

    class Writes(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 1

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return grads[0].mul_(2)

    def step(time: int) -> Any:
        h = Writes.apply(x * 2)
        (h.sin() * y).sum().backward()
        return grads(x, y)

    return step


@scenario
def function_that_reads_data() -> Step:
    x = leaf(3)

    class Reads(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, sign: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(sign)
            return x * 1

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            (sign,) = ctx.saved_tensors
            return (grads[0] if sign.item() > 0 else -grads[0]), None

    def step(time: int) -> Any:
        Reads.apply(x * 2, torch.tensor(1.0 if time % 2 else -1.0)).sum().backward()
        return grads(x)

    return step


@scenario
def function_that_marks_dirty() -> Step:
    x = leaf(4)

    class Dirty(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            x.mul_(2)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return grads[0] * 2

    def step(time: int) -> Any:
        y = x * 1
        Dirty.apply(y[:2])
        y.sin().sum().backward()
        return grads(x)

    return step


@scenario
def function_defined_in_each_step() -> Step:
    x = leaf(3)

    def step(time: int) -> Any:
        class Fresh(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
                return x * (time + 1)

            @staticmethod
            def backward(ctx: Any, *grads: Any) -> Any:
                return grads[0] * (time + 1)

        Fresh.apply(x).sum().backward()
        return grads(x)

    return step


@scenario
def function_of_the_wrong_count() -> Step:
    x = leaf(3)

    class Two(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, n: int, wrong: Any) -> torch.Tensor:
            ctx.wrong = wrong
            return x * n

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return ctx.wrong(grads[0])

    answers = (
        lambda g: (g, None, None, None),
        lambda g: (g, None, None),
        lambda g: (g, None),
        lambda g: (g, 3, None),
        lambda g: (3, None, None),
    )

    def step(time: int) -> Any:
        wrong = answers[time % len(answers)]
        return raised(lambda: Two.apply(x, 2, wrong).sum().backward()), grads(x)

    return step


@scenario
def function_that_is_a_vjp_once() -> Step:
    x = leaf(3)

    class Once(torch.autograd.Function):
        @staticmethod
        def forward(x: torch.Tensor) -> torch.Tensor:
            return x.exp()

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(output)

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, *grads: Any) -> Any:
            return grads[0] * ctx.saved_tensors[0]

    def step(time: int) -> Any:
        s = Once.apply(x).sum()
        s.backward()
        return raised(lambda: s.backward()), grads(x)

    return step


# ------------------------------------------------------------------------- saved values, versions


@scenario
def checkpoints() -> Step:
    model, x = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.Tanh()), leaf(2, 3)
    runs: list[int] = []

    def body(y: torch.Tensor) -> torch.Tensor:
        runs.append(1)
        return model(y)

    def step(time: int) -> Any:
        runs.clear()
        torch.manual_seed(time)
        for reentrant in (False, True):
            h = checkpoint(body, x * 2, use_reentrant=reentrant)
            h.sin().sum().backward()
        return len(runs), grads(x, *model.parameters())

    return step


@scenario
def reentrant_checkpoints_in_each_other() -> Step:
    w, x = leaf(3, 3), leaf(3)

    def inner(y: torch.Tensor) -> torch.Tensor:
        return (w @ y).tanh()

    def outer(y: torch.Tensor) -> torch.Tensor:
        return checkpoint(inner, y.sin(), use_reentrant=True) * y

    def step(time: int) -> Any:
        checkpoint(outer, x, use_reentrant=True).sum().backward()
        return grads(w, x)

    return step


@scenario
def saved_on_the_side_for_half_of_the_model() -> Step:
    a, b, x = nn.Linear(3, 3), nn.Linear(3, 3), torch.randn(2, 3)
    log: list[str] = []

    def pack(t: torch.Tensor) -> Any:
        log.append("pack")
        return t.clone()

    def unpack(t: Any) -> torch.Tensor:
        log.append("unpack")
        return t

    def step(time: int) -> Any:
        log.clear()
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            h = a(x).tanh()
        with torch.autograd.graph.save_on_cpu():
            h = h.sin()
        h.register_hook(lambda g: log.append("hook"))
        s = b(h).sum()
        s.backward()
        return list(log), raised(lambda: s.backward()), grads(*a.parameters(), *b.parameters())

    return step


@scenario
def overwritten_before_backward() -> Step:
    x = leaf(3)

    def step(time: int) -> Any:
        y = x.exp()
        z = y.sum() + (x * 2).sin().sum()
        if time in (1, 2):
            y.mul_(2)
        return raised(lambda: z.backward())[:40], x.grad is None, grads(x)[0] is None or time

    return step


@scenario
def overwritten_in_a_hook() -> Step:
    x = leaf(3)

    def step(time: int) -> Any:
        y = x.exp()
        z = y * 2

        def hook(g: torch.Tensor) -> None:
            if time >= 2:
                with torch.no_grad():
                    y.mul_(2)

        z.register_hook(hook)
        s = z.sum()
        return raised(lambda: s.backward())[:40], grads(x)

    return step


@scenario
def slices_written_in_place() -> Step:
    x, w = leaf(6), leaf(2)

    def step(time: int) -> Any:
        y = x * 2
        y[:2].mul_(w)
        y[1:4][:2].add_(w)
        y[3] = 7
        y.sin().sum().backward()
        return grads(x, w)

    return step


@scenario
def kept_graph() -> Step:
    x = leaf(3)

    def step(time: int) -> Any:
        s = (x.exp() * x).sum()
        s.backward(retain_graph=True)
        s.backward(retain_graph=True)
        s.backward()
        return raised(lambda: s.backward()), grads(x)

    return step


@scenario
def shared_subgraph_freed_by_the_first() -> Step:
    x = leaf(3)

    def step(time: int) -> Any:
        h = x.exp() * x
        a, b = h.sin().sum(), h.cos().sum()
        a.backward()
        return raised(lambda: b.backward()), grads(x)

    return step


@scenario
def saved_values_can_be_asked_for() -> Step:
    x = leaf(3)

    def step(time: int) -> Any:
        y = x.exp()
        y.sum().backward()
        return raised(lambda: y.grad_fn._saved_result), grads(x)

    return step


# ------------------------------------------------------------------------ roots, inputs, leaves


@scenario
def asked_gradients() -> Step:
    x, w = leaf(3), leaf(3)

    def step(time: int) -> Any:
        h = x * w
        h.register_hook(lambda g: g * 5)
        s = (h.sin() + x).sum()
        found = [
            torch.autograd.grad(s, [h], retain_graph=True),
            torch.autograd.grad(s, [h, x], retain_graph=True),
            torch.autograd.grad(s, [x, w], retain_graph=True),
        ]
        return found, x.grad, w.grad

    return step


@scenario
def asked_gradients_that_are_not_there() -> Step:
    x, w = leaf(3), leaf(3)

    def step(time: int) -> Any:
        h, other = x * 2, w * 2
        s = h.sum()
        return (
            torch.autograd.grad(s, [h, other, w], allow_unused=True, retain_graph=True),
            torch.autograd.grad(s, [w, x], allow_unused=True, retain_graph=True),
            raised(lambda: torch.autograd.grad(s, [x, w], retain_graph=True)),
            raised(lambda: torch.autograd.grad(s, [x, torch.ones(2)], retain_graph=True)),
            torch.autograd.grad(
                s, [x, w], allow_unused=True, materialize_grads=True, retain_graph=True
            ),
        )

    return step


@scenario
def backward_for_some_leaves() -> Step:
    x, w = leaf(3), leaf(3)

    def step(time: int) -> Any:
        h = x * w
        s = (h.exp() + w).sum()
        s.backward(inputs=[w], retain_graph=True)
        first = grads(x, w)
        s.backward(inputs=[h, x])
        return first, grads(x, w), None if h.grad is None else h.grad.clone()

    return step


@scenario
def hooks_of_asked_leaves() -> Step:
    x, log = leaf(3), []
    x.register_hook(lambda g: log.append(g.clone()) or g * 2)
    x.register_post_accumulate_grad_hook(lambda p: log.append("accumulated"))

    def step(time: int) -> Any:
        log.clear()
        found = torch.autograd.grad((x * x).sum(), [x])
        return list(log), found, x.grad

    return step


@scenario
def several_roots() -> Step:
    x = leaf(3)

    def step(time: int) -> Any:
        a, b = x.sin(), (x * 2).sum()
        torch.autograd.backward([a, b, a], [torch.ones(3), None, torch.full((3,), 2.0)])
        return grads(x)

    return step


@scenario
def root_that_is_a_leaf() -> Step:
    x, y = leaf(3), leaf(3)

    def step(time: int) -> Any:
        given = torch.full((3,), 2.0)
        torch.autograd.backward([x, x * y], [given, given])
        alone = x.grad.data_ptr() != given.data_ptr()
        return alone, grads(x, y), torch.autograd.grad(y, y, given)

    return step


@scenario
def given_gradients() -> Step:
    x = leaf(2, 3)

    def step(time: int) -> Any:
        g = torch.randn(2, 3) if time < 2 else torch.randn(3, 2).t()
        torch.manual_seed(time)
        (x * 2).backward(torch.ones(3).expand(2, 3))
        x.exp().backward(g.clone().fill_(3.0))
        return grads(x), raised(lambda: (x * 2).backward(torch.ones(2)))

    return step


@scenario
def leaves_that_share_a_gradient() -> Step:
    x, y = leaf(3), leaf(3)

    def step(time: int) -> Any:
        given = torch.ones(3)
        (x + y).backward(given)
        apart = len({x.grad.data_ptr(), y.grad.data_ptr(), given.data_ptr()})
        x.grad.mul_(2)
        return apart, grads(x, y)

    return step


@scenario
def gradients_that_were_there() -> Step:
    w, v = leaf(3, 4), leaf(3, 4)

    def step(time: int) -> Any:
        w.grad = torch.ones(4, 3).t() if time % 2 else None
        v.grad = w.grad if time == 3 else None
        before = w.grad
        (w.exp() * v).sum().backward()
        same = w.grad is before
        return same, w.grad.stride(), v.grad.stride(), grads(w, v)

    return step


@scenario
def leaf_of_other_strides() -> Step:
    w = torch.randn(4, 3).t().requires_grad_()

    def step(time: int) -> Any:
        (w.exp() * 2).sum().backward()
        strides = w.grad.stride()
        w.expand(2, 3, 4).sum(0).sum().backward()
        return strides, w.grad.stride(), grads(w)

    return step


@scenario
def sparse_gradients() -> Step:
    table, x = nn.Embedding(5, 3, sparse=True), torch.tensor([1, 1, 4])

    def step(time: int) -> Any:
        (table(x) * 2).sum().backward()
        found = table.weight.grad
        kind = found.layout
        table.weight.grad = None
        return kind, found.to_dense()

    return step


@scenario
def sparse_and_dense_gradients_of_a_tied_weight() -> Step:
    w, x = leaf(5, 3), torch.tensor([1, 4])

    def step(time: int) -> Any:
        h = F.embedding(x, w, sparse=True)
        (h @ w.t()).sum().backward()
        kind = w.grad.layout
        second = F.embedding(x, w, sparse=True).sum()
        second.backward()
        return kind, w.grad.layout, [one.to_dense() for one in grads(w)]

    return step


@scenario
def tied_weights() -> Step:
    w, x = leaf(3, 3), torch.randn(2, 3)

    def step(time: int) -> Any:
        ((x @ w).relu() @ w.t()).sum().backward()
        return grads(w)

    return step


@scenario
def concatenations_with_parts_that_need_none() -> Step:
    x, y = leaf(3), leaf(2)

    def step(time: int) -> Any:
        split = 1 + time % 2
        a, b = torch.zeros(split), torch.zeros(3 - split)
        (torch.cat([a, x, b]) * torch.arange(6.0)).sum().backward()
        (torch.cat([x, y]) * torch.arange(5.0)).sum().backward()
        torch.stack([x, x * 2, torch.zeros(3)]).exp().sum().backward()
        return grads(x, y)

    return step


@scenario
def frozen_later() -> Step:
    x, w = leaf(3), leaf(3)

    def step(time: int) -> Any:
        w.requires_grad_(time % 2 == 0)
        (x * w).sum().backward()
        return grads(x, w)

    return step


# ------------------------------------------------------------------------------ torch's own engine


@scenario
def second_derivatives() -> Step:
    x = leaf(3)

    def step(time: int) -> Any:
        (g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        g.pow(2).sum().backward()
        return grads(x)

    return step


@scenario
def anomaly_mode() -> Step:
    x = leaf(3)

    def step(time: int) -> Any:
        with torch.autograd.set_detect_anomaly(True, check_nan=True):
            return raised(lambda: (x * 0 / 0).sqrt().sum().backward())[:40], grads(x)

    return step


@scenario
def gradients_by_vmap() -> Step:
    x = leaf(3)

    def step(time: int) -> Any:
        return torch.autograd.grad(x**2, x, torch.eye(3), is_grads_batched=True)

    return step


@scenario
def profiled() -> Step:
    x = leaf(3)

    def step(time: int) -> Any:
        with torch.profiler.profile() as profile:
            x.sin().sum().backward()
        names = {one.name for one in profile.events()}
        return "SinBackward0" in str(names), grads(x)

    return step


# ------------------------------------------------------- sizes and numbers that vary, and the rest


@scenario
def scale_that_changes() -> Step:
    """As of a schedule: the number is an input of the graph from the third pass on."""
    w = leaf(3, 4)

    def step(time: int) -> Any:
        (w.sin().sum() * (2.0 + time)).backward()
        return grads(w)

    return step


@scenario
def batch_and_length_that_vary() -> Step:
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)

    def step(time: int) -> Any:
        generator = torch.Generator().manual_seed(time)
        x = torch.randn(time + 2, 2 * time + 5, 8, generator=generator)
        model(x).pow(2).mean().backward()
        return grads(*model.parameters())

    return step


@scenario
def sizes_that_vary_with_hooks() -> Step:
    w, log = leaf(4, 2), []

    def step(time: int) -> Any:
        log.clear()
        x = torch.arange(4.0 * (time + 3)).reshape(time + 3, 4)
        h = (x @ w).tanh()
        h.register_hook(lambda g: log.append(g.clone()) or g * 2)
        h.pow(2).mean().backward()
        return list(log), grads(w)

    return step


@scenario
def sizes_that_were_equal_at_first() -> Step:
    """Two sizes grow together, then apart."""
    w = leaf(5)

    def step(time: int) -> Any:
        rows, columns = ((3, 3), (4, 4), (6, 7), (8, 9))[time % 4]
        x = torch.ones(rows, columns, 5)
        ((x * w).sum(-1).cumsum(0) * torch.arange(float(columns))).mean().backward()
        return grads(w)

    return step


@scenario
def tall_and_wide_matrices() -> Step:
    """Formulas of matrices ask which size is greater: sizes do not vary."""
    w = leaf(3, 3)

    def step(time: int) -> Any:
        rows = (5, 4, 3, 2)[time % 4]
        x = torch.arange(3.0 * rows).reshape(rows, 3).sin() @ w
        q, r = torch.linalg.qr(x)
        (q.sum() + r.pow(2).sum()).backward()
        return grads(w)

    return step


@scenario
def backward_of_the_same_graph_inside_of_a_hook() -> Step:
    x, log = leaf(3), []

    def step(time: int) -> Any:
        log.clear()
        y = x * x
        s = y.exp().sum()

        def hook(g: torch.Tensor) -> None:
            log.append(len(log))
            if len(log) == 1:
                s.backward(retain_graph=True)
                log.append(x.grad.clone())

        y.register_hook(hook)
        s.backward(retain_graph=True)
        return list(log), grads(x)

    return step


class _Logging(torch.utils._python_dispatch.TorchDispatchMode):
    def __init__(self, log: list[str]) -> None:
        super().__init__()
        self.log = log

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.log.append(str(func))
        return func(*args, **(kwargs or {}))


@scenario
def under_a_mode_of_the_users() -> Step:
    x, log = leaf(3), []

    def step(time: int) -> Any:
        log.clear()
        loss = x.sin().sum()
        with _Logging(log):
            loss.backward()
        return list(log), grads(x)

    return step


@scenario
def nested_tensors() -> Step:
    x, y = leaf(2, 3), leaf(4, 3)

    def step(time: int) -> Any:
        nested = torch.nested.as_nested_tensor([x, y], layout=torch.jagged)
        (nested * 2).values().sum().backward()
        return grads(x, y)

    return step


def seen(one: Any) -> Any:
    """An observation, tensors dense and on their own."""
    if isinstance(one, torch.Tensor):
        one = one.detach()
        return one.to_dense() if one.layout is not torch.strided else one.clone()
    if isinstance(one, tuple | list):
        return [seen(each) for each in one]
    return one


def difference(one: Any, other: Any) -> str:
    """How two observations differ; "": they do not."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        if (one.dtype, one.shape) != (other.dtype, other.shape):
            return f"{one.dtype} {tuple(one.shape)}, not {other.dtype} {tuple(other.shape)}"
        loose = {"rtol": 2e-2, "atol": 1e-2} if one.dtype is torch.bfloat16 else {"atol": 1e-5}
        near = torch.allclose(one, other, equal_nan=True, **loose)
        return "" if near else f"{one.tolist()}, not {other.tolist()}"
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        found = (difference(a, b) for a, b in zip(one, other, strict=True))
        return next((f"at {n}: {text}" for n, text in enumerate(found) if text), "")
    return "" if type(one) is type(other) and one == other else f"{one!r}, not {other!r}"


def observed(make: Callable[[], Step], times: int = 4) -> list[Any]:
    """What a scenario shows."""
    torch.manual_seed(0)
    step = make()
    return [seen(step(time)) for time in range(times)]
