"""The forty hardest tests of the specification: aliases, writes, views and histories (1 to 22).

Each scenario is told by eager and by windfall (`both.py`): values, gradients, None against zeros,
memory that is shared, versions, identities, errors. Unless `how` says something else, all of it ran
natively. 23 to 39: `test_forty_later.py`. (31, 34, 35: effects and subclasses, have files of their
own; 40 is the cache's.)
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.autograd.both import Compile, both, leaf, raised, seen
from windfall.reporting.explain import BEHIND_BREAKS


def test_01_two_inputs_overlap_by_one_element() -> None:
    def scenario(compile: Compile) -> Any:
        def write(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            x.mul_(2)
            y.add_(x.sum())
            x[-1:].mul_(3)
            return x, y

        compiled, told = compile(write), []
        for _ in range(2):
            base = torch.randn(11)
            x, y = base[0:6], base[5:11]
            told.append(seen(*compiled(x, y), x, y, base))
        return told

    both(scenario)


def test_02_a_view_of_an_aliased_argument() -> None:
    def scenario(compile: Compile) -> Any:
        def write(base: torch.Tensor, part: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            base.mul_(2)
            return part[1:], part.view(2, 2).t()

        compiled, told = compile(write), []
        for _ in range(2):
            base = torch.randn(8)
            part = base[3:7]
            found = compiled(base, part)
            told.append(seen(*found, base, part))
            found[0].add_(1)
            told.append(seen(*found, base, part))
        return told

    both(scenario)


def test_03_the_same_parameter_twice_one_use_detached() -> None:
    def scenario(compile: Compile) -> Any:
        compiled = compile(lambda p, q: (p * q.detach()).sum() + (q**2).sum())
        told = []
        for twice in (True, True, False):
            p = leaf(4)
            q = p if twice else leaf(4)
            compiled(p, q).backward()
            told.append(seen(p, q))
        return told

    both(scenario)


def test_04_transposed_in_place_then_written() -> None:
    def scenario(compile: Compile) -> Any:
        def turn(x: torch.Tensor) -> torch.Tensor:
            x.t_()
            x.mul_(2)
            return x.t()

        compiled, told = compile(turn), []
        for _ in range(2):
            x = torch.randn(3, 4)
            found = compiled(x)
            told.append(seen(found, x))
        return told

    both(scenario)


def test_05_an_input_set_to_another() -> None:
    def scenario(compile: Compile) -> Any:
        def swap(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            x.set_(y)
            x.mul_(2)
            return x + y

        compiled, told = compile(swap), []
        for _ in range(2):
            x, y = torch.randn(3), torch.randn(4)
            told.append(seen(compiled(x, y), x, y))
        return told

    both(scenario, how={BEHIND_BREAKS: 1})


@pytest.mark.parametrize("whole", [True, False])
def test_06_a_written_view_of_a_result(whole: bool) -> None:
    def scenario(compile: Compile) -> Any:
        def write(view: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            view.mul_(w)
            return view.sin()

        compiled, told = compile(write), []
        for _ in range(2):
            x, w = leaf(4), leaf(2)
            base = x * 2
            view = base[1:3]
            before = base.grad_fn
            found = compiled(view, w)
            told.append(seen(found, view, base))
            told.append([base.grad_fn is before, base.grad_fn.name(), view.grad_fn is None])
            (base.sum() if whole else found.sum() + base.sum()).backward()
            told.append(seen(x, w))
        return told

    both(scenario)


def test_07_a_leaf_written_through_detach() -> None:
    def scenario(compile: Compile) -> Any:
        def write(p: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            before = (p * x).sum()
            p.detach().mul_(2)
            return before + (p**2).sum()

        def late(p: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            p.detach().mul_(2)
            return (p**2 * x).sum()

        told = []
        for function in (write, late):
            compiled = compile(function)
            for _ in range(2):
                p, x = leaf(4), torch.randn(4, dtype=torch.float64)
                loss = compiled(p, x)
                told.append(seen(loss, p))
                told.append(raised(loss.backward))
                told.append(seen(p))
        return told

    both(scenario)


def test_08_a_hidden_and_a_visible_write() -> None:
    def scenario(compile: Compile) -> Any:
        def write(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            x.data.mul_(2)
            x.mul_(w)
            x.data.add_(1)
            return (x * w).sum()

        compiled, told = compile(write), []
        for _ in range(2):
            origin, w = leaf(3), leaf(3)
            x = origin * 1
            loss = compiled(x, w)
            told.append(seen(loss, x))
            told.append(raised(loss.backward))
            told.append(seen(origin, w))
        return told

    both(scenario)


class Counting(torch.autograd.Function):
    """Writes a buffer in forward, and again in backward."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, buffer: torch.Tensor) -> torch.Tensor:
        context.buffer = buffer
        buffer.add_(x.detach().sum())
        return x * 2

    @staticmethod
    def backward(context: Any, tangent: torch.Tensor) -> Any:
        context.buffer.add_(100)
        return tangent * 2, None


def test_09_a_buffer_written_in_forward_and_in_backward() -> None:
    def scenario(compile: Compile) -> Any:
        compiled = compile(lambda x, buffer: Counting.apply(x.sin(), buffer).sum())
        told = []
        buffer = torch.zeros(2, dtype=torch.float64)
        for _ in range(2):
            x = leaf(3)
            loss = compiled(x, buffer)
            told.append(seen(loss, buffer))
            loss.backward()
            told.append(seen(x, buffer))
        return told

    both(scenario, how={BEHIND_BREAKS: 1})


def test_10_the_same_tensor_three_times() -> None:
    def scenario(compile: Compile) -> Any:
        def thrice(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            y = x.exp()
            return y, x, y, {"again": [y]}["again"][0]

        compiled, told = compile(thrice), []
        for _ in range(2):
            x = leaf(3)
            found = compiled(x)
            told.append(seen(*found, x))
            (found[0] + found[2] * found[3]).sum().backward()
            told.append(seen(x))
        return told

    both(scenario)


def test_11_equal_results_have_memory_of_their_own() -> None:
    def scenario(compile: Compile) -> Any:
        compiled, told = compile(lambda x: (x + 1, x + 1, (x + 1).sum(), (x + 1).sum())), []
        for _ in range(2):
            x = leaf(3)
            found = compiled(x)
            with torch.no_grad():
                found[0].add_(1)
            told.append(seen(*found, x))
            (found[0] * 2 + found[1] * 3).sum().backward()
            found[3].backward()
            told.append(seen(x))
        return told

    both(scenario)


def test_12_a_result_and_the_same_detached() -> None:
    def scenario(compile: Compile) -> Any:
        def detached(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            y = x.exp()
            return y, y.detach()

        compiled, told = compile(detached), []
        for write in (False, True):
            x = leaf(3)
            y, z = compiled(x)
            told.append(seen(y, z, x))
            if write:
                z.mul_(2)
            told.append(raised((y.sum() + z.sum()).backward))
            told.append(seen(x, y, z))
        return told

    both(scenario)


def test_13_pieces_and_their_base() -> None:
    def scenario(compile: Compile) -> Any:
        def pieces(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            base = x.exp()
            return *base.unbind(0), base

        compiled, told = compile(pieces), []
        for write in (False, True):
            x = leaf(2, 3)
            one, other, base = compiled(x)
            told.append(seen(one, other, base))
            if write:
                told.append(raised(lambda one=one: one.mul_(2)))
                base.mul_(3)
            told.append(seen(one, other, base))
            told.append(raised((base.sum() * 2).backward))
            told.append(raised(lambda one=one: one.sum().backward()))
            told.append(seen(x))
        return told

    both(scenario)


def test_14_the_real_view_of_a_complex_input() -> None:
    def scenario(compile: Compile) -> Any:
        compiled = compile(lambda z: (torch.view_as_real(z), z.real, z.imag, z.conj(), z * 2))
        told = []
        for gradient in (False, True):
            z = leaf(3, dtype=torch.complex128) if gradient else torch.randn(3, dtype=torch.cfloat)
            found = compiled(z)
            told.append(seen(*found, z))
            if gradient:
                (found[0].sum() + found[1].sum() * 2 + found[2].sum() * 3).backward()
                told.append(seen(z))
            else:
                found[0].mul_(2)
                found[2].add_(1)
                told.append(seen(*found, z))
        return told

    both(scenario)


@pytest.mark.parametrize("part", ["real", "imag"])
def test_14_the_real_view_of_a_lazy_conjugate(part: str) -> None:
    def scenario(compile: Compile) -> Any:
        compiled = compile(lambda z: (getattr(z.conj(), part), z * 2))
        return [seen(*compiled(z), z) for z in (torch.randn(3, dtype=torch.cfloat),) * 2]

    both(scenario)


def test_15_an_expanded_result() -> None:
    def scenario(compile: Compile) -> Any:
        compiled, told = compile(lambda x: (x * 2).sum(0, keepdim=True).expand(4, 3)), []
        for kind in ("dense", "turned", "expanded", "sparse"):
            x = leaf(5, 3)
            y = compiled(x)
            tangent = torch.randn(4, 3, dtype=torch.float64)
            if kind == "turned":
                tangent = torch.randn(3, 4, dtype=torch.float64).t()
            if kind == "expanded":
                tangent = torch.randn(3, dtype=torch.float64).expand(4, 3)
            if kind == "sparse":
                tangent = torch.randn(8, 6, dtype=torch.float64)[::2, ::2]
            y.backward(tangent)
            told.append(seen(y, x))
        return told

    both(scenario)


def test_16_channels_last_and_a_contiguous_tangent() -> None:
    def scenario(compile: Compile) -> Any:
        weight = leaf(4, 3, 3, 3, dtype=torch.float32)
        compiled = compile(lambda x: torch.nn.functional.conv2d(x, weight).relu())
        told = []
        for last in (True, False):
            x = leaf(2, 3, 6, 6, dtype=torch.float32).detach()
            x = x.to(memory_format=torch.channels_last).requires_grad_()
            y = compiled(x)
            tangent = torch.randn(2, 4, 4, 4)
            if last:
                tangent = tangent.to(memory_format=torch.channels_last)
            y.backward(tangent)
            told.append(seen(y, x, weight))
        return told

    both(scenario)


def test_17_only_the_second_of_three() -> None:
    def scenario(compile: Compile) -> Any:
        compiled = compile(lambda x, y, z: (x.exp() * y, y.sin(), z.cos()))
        told = []
        for _ in range(2):
            given = leaf(3), leaf(3), leaf(3)
            found = compiled(*given)
            found[1].sum().backward()
            told.append(seen(*given))
        return told

    both(scenario)


def test_18_disjoint_results_apart() -> None:
    def scenario(compile: Compile) -> Any:
        compiled = compile(lambda x, y: (x.exp().sum(), (x * 2).sin().sum(), y.cos().sum()))
        told = []
        for order in ((0, 1, 2), (2, 1, 0)):
            given = leaf(3), leaf(3)
            found = compiled(*given)
            for index in order:
                found[index].backward()
                told.append(seen(*given))
            told.append(raised(found[0].backward))
        return told

    both(scenario)


def test_19_once_and_then_twice() -> None:
    def scenario(compile: Compile) -> Any:
        compiled, told = compile(lambda x, w: (x @ w).tanh().sum()), []
        for retain in (False, True, True):
            x, w = leaf(3, 4), leaf(4, 2)
            loss = compiled(x, w)
            loss.backward(retain_graph=retain)
            told.append(seen(x, w))
            told.append(raised(loss.backward))
            told.append(seen(x, w))
            told.append(raised(loss.backward))
        return told

    both(scenario)


def test_20_a_gradient_penalty() -> None:
    def scenario(compile: Compile) -> Any:
        first, second = leaf(4, 8), leaf(8, 1)
        compiled = compile(lambda x: ((x @ first).tanh() @ second).sum())
        told = []
        for _ in range(2):
            x = leaf(5, 4)
            (gradient,) = torch.autograd.grad(compiled(x), x, create_graph=True)
            told.append(gradient.detach())
            ((gradient.norm(dim=1) - 1) ** 2).mean().backward()
            told.append(seen(x, first, second))
        return told

    both(scenario)


def test_21_a_third_derivative() -> None:
    def scenario(compile: Compile) -> Any:
        compiled, told = compile(lambda x: (x**4 + 2 * x**3).sum()), []
        for _ in range(2):
            x = leaf(3)
            value = compiled(x)
            for order in range(3):
                (value,) = torch.autograd.grad(value.sum(), x, create_graph=order < 2)
                told.append(value.detach())
        return told

    both(scenario)


def around(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    inner = (x @ w).exp()
    hidden = inner * 2
    return hidden, (hidden.sin() + inner).sum()


def through(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    hidden = (x @ w).exp()
    return hidden, (hidden.sin() + hidden).sum()


def attention(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    stream = x @ w
    scores = torch.softmax(stream @ stream.transpose(-1, -2), -1)
    return scores, (scores @ stream + stream).sum()


@pytest.mark.parametrize("function", [through, around, attention])
def test_22_the_gradient_of_a_result_with_respect_to_another(function: Any) -> None:
    def scenario(compile: Compile) -> Any:
        compiled, told = compile(function), []
        for way in ("grad", "retain", "hook", "all"):
            x, w = leaf(4, 4), leaf(4, 4)
            hidden, total = compiled(x, w)
            if way == "grad":
                told += torch.autograd.grad(total, hidden, allow_unused=True, retain_graph=True)
                told += torch.autograd.grad(total, [x, hidden], allow_unused=True)
            elif way == "retain":
                hidden.retain_grad()
                total.backward()
                told.append(seen(hidden, x, w))
            elif way == "hook":
                found: list[Any] = []
                hidden.register_hook(lambda g, found=found: (found.append(g.clone()), g * 2)[1])
                total.backward()
                told.append(seen(*found, x, w))
            else:
                (hidden.sum() + total * 2).backward()
                told.append(seen(x, w))
        return told

    both(scenario)
