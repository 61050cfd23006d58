"""The forty hardest tests of the specification: 23 to 39; `test_forty.py` has the others."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

import windfall
from tests.autograd.both import Compile, both, eager, leaf, raised, seen


def test_23_checkpointed_dropout_interleaved() -> None:
    def scenario(compile: Compile) -> Any:
        w = leaf(4, 4)

        def block(x: torch.Tensor) -> torch.Tensor:
            return F.dropout((x @ w).tanh(), 0.5)

        compiled = compile(lambda x: checkpoint(block, x.sin(), use_reentrant=False).square().sum())
        given = [leaf(3, 4) for _ in range(3)]
        losses = [compiled(one) for one in given]
        told: list[Any] = [one.detach() for one in losses]
        for loss in reversed(losses):
            loss.backward()
            told.append(seen(w, *given))
        return told

    both(scenario)


def products(context: Any, op: Any, *arguments: Any, **named: Any) -> CheckpointPolicy:
    saves = op is torch.ops.aten.mm.default
    return CheckpointPolicy.MUST_SAVE if saves else CheckpointPolicy.PREFER_RECOMPUTE


def never(context: Any, op: Any, *arguments: Any, **named: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_RECOMPUTE


@pytest.mark.parametrize(("inner", "outer"), [(products, never), (never, products)])
def test_24_nested_checkpoints_with_opposite_policies(inner: Any, outer: Any) -> None:
    def selective(policy: Any, function: Any, x: torch.Tensor) -> torch.Tensor:
        contexts = lambda: create_selective_checkpoint_contexts(policy)  # noqa: E731
        found: torch.Tensor = checkpoint(function, x, use_reentrant=False, context_fn=contexts)
        return found

    def scenario(compile: Compile) -> Any:
        w = leaf(4, 4)

        def inside(x: torch.Tensor) -> torch.Tensor:
            return F.dropout(x @ w, 0.5).tanh()

        def around(x: torch.Tensor) -> torch.Tensor:
            return selective(inner, inside, (x @ w).cos()).exp()

        compiled, told = compile(lambda x: selective(outer, around, x).sum()), []
        for _ in range(2):
            x = leaf(3, 4)
            compiled(x).backward()
            told.append(seen(x, w))
        return told

    both(scenario)


def _saved_bytes(told: list[int], *known: torch.Tensor) -> Any:
    """Counts the bytes that autograd keeps, besides tensors that are known."""
    storages = {one.untyped_storage().data_ptr() for one in known}
    kept: dict[int, int] = {}

    def pack(one: torch.Tensor) -> torch.Tensor:
        storage = one.untyped_storage()
        if storage.data_ptr() not in storages | kept.keys():
            kept[storage.data_ptr()] = storage.nbytes()
            told[0] += storage.nbytes()
        return one

    return torch.autograd.graph.saved_tensors_hooks(pack, lambda one: one)


def test_25_budgets() -> None:
    saved = []
    for budget in (0, 0.25, 0.5, 0.75, 1):

        def scenario(compile: Compile) -> Any:
            w = leaf(16, 16)

            def layers(x: torch.Tensor) -> torch.Tensor:
                for _ in range(4):
                    x = F.gelu(F.dropout((x @ w).sin(), 0.3)) + x
                return x.sum()

            compiled, told = compile(layers), []
            for _ in range(2):
                x, kept = leaf(32, 16), [0]
                with _saved_bytes(kept, x, w):
                    loss = compiled(x)
                loss.backward()
                told.append(seen(x, w))
            if compile is not eager:
                saved.append(kept[0])
            return told

        both(scenario, options={"memory_budget": budget})
    assert saved == sorted(saved)
    assert saved[0] < saved[2] < saved[-1]


@pytest.mark.parametrize("budget", [0, 1])
def test_26_a_random_value_that_backward_never_needs(budget: float) -> None:
    def scenario(compile: Compile) -> Any:
        def noisy(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            noise = torch.rand_like(x)
            return (x + noise).sum(), noise.mean() * 0

        def inside(x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = checkpoint(
                lambda x: (x.sin() + torch.randn_like(x)).sum(), x, use_reentrant=False
            )
            return found

        told = []
        for function in (noisy, inside):
            compiled = compile(function)
            for _ in range(2):
                x = leaf(3)
                found = compiled(x)
                loss = found[0] if isinstance(found, tuple) else found
                loss.backward()
                told.append([seen(loss, x), torch.rand(2)])
        return told

    both(scenario, options={"memory_budget": budget})


def test_27_autocast_outside_disabled_inside_backward_outside() -> None:
    def scenario(compile: Compile) -> Any:
        w, v, u = (leaf(8, 8, dtype=torch.float32) for _ in range(3))

        def mixed(x: torch.Tensor) -> torch.Tensor:
            y = x @ w
            with torch.autocast("cpu", enabled=False):
                y = y.float() @ v
            return (y @ u).float().sum()

        compiled, told = compile(mixed), []
        for outside in (True, False):
            x = leaf(4, 8, dtype=torch.float32)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = compiled(x)
                if not outside:
                    loss.backward()
            if outside:
                loss.backward()
            told.append(seen(loss, x, w, v, u))
        return told

    both(scenario)


def test_28_two_autocasts_of_one_function() -> None:
    def scenario(compile: Compile) -> Any:
        w = leaf(8, 8, dtype=torch.float32)
        compiled, told = compile(lambda x: x @ w), []
        for dtype in (torch.bfloat16, torch.float16, None, torch.bfloat16):
            x = leaf(4, 8, dtype=torch.float32)
            with torch.autocast("cpu", dtype=dtype, enabled=dtype is not None):
                y = compiled(x)
            y.float().square().sum().backward()
            told.append([str(y.dtype), seen(y, x, w)])
        return told

    both(scenario)


class Slots(torch.autograd.Function):
    """Another gradient for each slot."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        context.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(context: Any, tangent: torch.Tensor) -> Any:
        x, _ = context.saved_tensors
        return tangent * x, tangent * 10


def test_29_a_function_given_one_tensor_twice() -> None:
    def scenario(compile: Compile) -> Any:
        compiled = compile(lambda x, y: (Slots.apply(x, y) + Slots.apply(y.sin(), x)).sum())
        told = []
        for twice in (True, True, False):
            x = leaf(3)
            y = x if twice else leaf(3)
            compiled(x, y).backward()
            told.append(seen(x, y))
        return told

    both(scenario)


class Dirty(torch.autograd.Function):
    """Writes its first input, answers an integer besides, and gives no gradient to its second."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, y: torch.Tensor) -> Any:
        x.mul_(2)
        context.mark_dirty(x)
        order = x.argsort()
        part = y * 3
        context.mark_non_differentiable(order, part)
        context.save_for_backward(y)
        return x, order, part

    @staticmethod
    def backward(context: Any, tangent: torch.Tensor, *rest: Any) -> Any:
        (y,) = context.saved_tensors
        return tangent * 2 * y, None


def test_30_a_function_that_writes_and_answers_what_has_no_gradient() -> None:
    def scenario(compile: Compile) -> Any:
        def run(x: torch.Tensor, y: torch.Tensor) -> Any:
            inner = x * 3
            found, order, part = Dirty.apply(inner, y)
            return found * 2, inner.sum(), order, part

        compiled, told = compile(run), []
        for _ in range(2):
            x, y = leaf(4), leaf(4)
            found = compiled(x, y)
            told.append(seen(*found))
            (found[0].sum() + found[1]).backward()
            told.append(seen(x, y))
        return told

    both(scenario)


def test_32_branches_that_close_over_different_parameters() -> None:
    def scenario(compile: Compile) -> Any:
        w, v = leaf(4, 4), leaf(4, 4)

        def cond(flag: Any, yes: Any, no: Any, operands: Any) -> Any:
            if compile is not eager:
                return torch.cond(flag, yes, no, operands)
            # As eager's own operation: each operand has a gradient, whichever branch ran.
            return (yes if flag else no)(*operands) + 0 * (w.sum() + v.sum())

        compiled = compile(
            lambda x: cond(x.sum() > 0, lambda x: x @ w, lambda x: (x * v).exp(), (x,)).sum()
        )
        told = []
        for sign in (1, -1, 1):
            x = (torch.rand(4, 4, dtype=torch.float64) * sign).requires_grad_()
            w.grad = v.grad = None
            loss = compiled(x)
            loss.backward()
            told.append([loss.detach(), x.grad, w.grad, v.grad])
        return told

    (compiled,) = both(scenario)
    assert len(windfall.explanation(compiled).captures) == 1


def test_33_a_scan_of_a_hundred_steps() -> None:
    from torch._higher_order_ops.scan import scan

    def scenario(compile: Compile) -> Any:
        w = leaf(4, 4)

        def step(carry: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            carry = torch.tanh((0.3 * carry) @ w + x)
            return carry, carry * x

        def looped(carry: torch.Tensor, xs: torch.Tensor) -> Any:
            made = []
            for index in range(xs.shape[0]):
                carry, one = step(carry, xs[index])
                made.append(one)
            return carry, torch.stack(made)

        compiled = compile(looped if compile is eager else lambda c, x: scan(step, c, x))
        told = []
        for _ in range(2):
            carry, xs = leaf(2, 4), leaf(100, 2, 4)
            last, all = compiled(carry, xs)
            (last.sum() + all.square().sum()).backward()
            told.append([last.detach(), all.detach(), carry.grad, xs.grad, w.grad])
        return told

    (compiled,) = both(scenario)
    (graph,) = windfall.explanation(compiled).graphs
    assert len(graph.graph.nodes) < 20, "it was unrolled"


def test_36_a_saved_input_written_before_backward() -> None:
    def scenario(compile: Compile) -> Any:
        told = []
        for function in (lambda x, w: (x * w).sum(), lambda x, w: (x + w).sum()):
            compiled = compile(function)
            for write in (None, "plain", "view", "data"):
                x, w = torch.randn(3, dtype=torch.float64), leaf(3)
                loss = compiled(x, w)
                if write == "plain":
                    x.mul_(2)
                if write == "view":
                    x[1:].mul_(2)
                if write == "data":
                    x.data.mul_(2)
                told.append([raised(loss.backward), seen(w, x)])
        return told

    both(scenario)


@pytest.mark.parametrize("dynamic", [None, True])
def test_37_the_batch_changes_while_backwards_are_pending(dynamic: bool | None) -> None:
    def scenario(compile: Compile) -> Any:
        w = leaf(4, 4)
        compiled = compile(lambda x: F.layer_norm((x @ w).exp(), (4,)).square().sum())
        told: list[Any] = []
        pending = []
        for size in (4, 7, 9, 4, 5):
            x = leaf(size, 4)
            pending.append((compiled(x), x))
            if size == 9:
                pending.pop(0)[0].backward()
                told.append(seen(w))
        for loss, x in reversed(pending):
            loss.backward()
            told.append(seen(loss, x, w))
        return told

    (compiled,) = both(scenario, dynamic=dynamic)
    assert len(windfall.explanation(compiled).captures) <= 2


def test_38_grad_mode_toggled_inside() -> None:
    def scenario(compile: Compile) -> Any:
        def leaks(x: torch.Tensor) -> Any:
            y = x * 2
            torch.set_grad_enabled(False)
            z = y * 3
            return y, z

        def nested(x: torch.Tensor) -> Any:
            with torch.no_grad():
                y = x * 2
                with torch.enable_grad():
                    z = x * 3
            return y, z, (x + y) * z

        told: list[Any] = []
        for function in (leaks, nested):
            compiled = compile(function)
            for before in (True, True, False):
                x = leaf(3)
                with torch.set_grad_enabled(before):
                    found = compiled(x)
                    told.append(torch.is_grad_enabled())
                told.append(seen(*found))
                for one in found:
                    if one.requires_grad:
                        one.sum().backward(retain_graph=True)
                told.append(seen(x))
        return told

    both(scenario)


def test_39_four_hundred_slices_of_one_buffer() -> None:
    for count in (100, 400):

        def scenario(compile: Compile) -> Any:
            def write(*parts: torch.Tensor) -> torch.Tensor:
                for index, one in enumerate(parts):
                    one.mul_(2).add_(index)
                return parts[0].sum()

            compiled, told = compile(write), []
            for _ in range(2):
                base = torch.randn(count * 4)  # noqa: B023
                result = compiled(*base.split(4))
                told.append(seen(result, base))
            return told

        (compiled,) = both(scenario)
        (capture,) = windfall.explanation(compiled).graphs
        assert len(capture.graph.find_nodes(op="placeholder")) == count  # no base
