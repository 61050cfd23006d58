"""Ways of asking for gradients: partial, repeated, double, under autocast, after writes."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
import torch.nn.functional as F

from tests.autograd.harness import Compiled, copies


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(3)


def grad(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, requires_grad=True)


def both(function, *inputs):
    """Eager and ours on equal inputs: (function, inputs) twice."""
    ours = copies(inputs)
    return (function, list(inputs)), (Compiled(function, inputs), ours)


def same(found, wanted):
    for one, other in zip(found, wanted, strict=True):
        assert (one is None) == (other is None)
        if other is not None:
            torch.testing.assert_close(one, other)


def test_only_the_second_output():
    def run(x, y):
        h = x.exp()
        return (h * 2).sum(), (h * y).sum(), y.sin().sum()

    answers = []
    for function, inputs in both(run, grad(3), grad(3)):
        outputs = function(*inputs)
        answers.append(torch.autograd.grad(outputs[1], inputs, allow_unused=True))
    same(answers[1], answers[0])


def test_gradients_that_do_not_reach_an_input_are_none():
    def run(x, y):
        return x * 2, y.exp()

    compiled = Compiled(run, [grad(3), grad(3)])
    x, y = grad(3), grad(3)
    first, _ = compiled(x, y)
    assert torch.autograd.grad(first.sum(), [x, y], allow_unused=True)[1] is None


def test_outputs_that_never_meet_are_back_propagated_apart():
    def run(x, y, w):
        return (x * w).exp(), (y * w).exp()

    answers = []
    for function, inputs in both(run, grad(3), grad(3), grad(3)):
        first, second = function(*inputs)
        first.sum().backward()
        second.sum().backward()  # nothing of the first backward is needed here
        answers.append([one.grad for one in inputs])
    same(answers[1], answers[0])


def test_outputs_that_meet_cannot_be():
    def run(x):
        h = x.exp()
        return (h * h).sum(), h.sin().sum()

    for function, inputs in both(run, grad(3)):
        first, second = function(*inputs)
        first.backward()
        with pytest.raises(RuntimeError, match="second time"):
            second.backward()


def test_retained_graph_is_run_again():
    answers = []
    for function, inputs in both(lambda x, w: (x @ w).tanh().sum(), grad(3, 4), grad(4, 2)):
        loss = function(*inputs)
        loss = loss[0] if isinstance(loss, tuple) else loss
        loss.backward(retain_graph=True)
        loss.backward()
        answers.append([one.grad for one in inputs])
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()
    same(answers[1], answers[0])


def first_of(outputs):
    return outputs[0] if isinstance(outputs, tuple) else outputs


def test_gradient_penalty():
    def run(x, w, b):
        return F.gelu(F.linear(x, w, b)).sum(-1)

    answers = []
    for function, inputs in both(run, grad(5, 4), grad(3, 4), grad(3)):
        output = first_of(function(*inputs))
        (slope,) = torch.autograd.grad(output.sum(), inputs[0], create_graph=True)
        ((slope.norm(dim=1) - 1) ** 2).mean().backward()
        answers.append([one.grad for one in inputs])
    same(answers[1], answers[0])


def test_gradient_penalty_with_dropout_uses_the_same_mask():
    def run(x, w):
        return (F.dropout(x, 0.5) @ w).pow(2).sum()

    answers = []
    for function, inputs in both(run, grad(6, 6), grad(6, 2)):
        torch.manual_seed(11)
        output = first_of(function(*inputs))
        state = torch.get_rng_state()
        (slope,) = torch.autograd.grad(output, inputs[0], create_graph=True)
        assert torch.equal(torch.get_rng_state(), state)
        slope.pow(2).sum().backward()
        answers.append([one.grad for one in inputs])
    same(answers[1], answers[0])


def test_third_derivative():
    answers = []
    for function, (x,) in both(lambda x: x**4 + x.sin(), grad(3)):
        value = first_of(function(x))
        for _ in range(3):
            (value,) = torch.autograd.grad(value.sum(), x, create_graph=True)
        answers.append([value])
    same(answers[1], answers[0])


def test_double_backward_does_not_write_buffers_again():
    def run(x, mean, variance):
        return F.batch_norm(x, mean, variance, training=True).pow(3).sum()

    answers = []
    for function, inputs in both(run, grad(4, 3), torch.zeros(3), torch.ones(3)):
        output = first_of(function(*inputs))
        (slope,) = torch.autograd.grad(output, inputs[0], create_graph=True)
        slope.pow(2).sum().backward()
        answers.append([inputs[0].grad, inputs[1], inputs[2]])
    same(answers[1], answers[0])


def test_input_written_after_forward_raises():
    for function, inputs in both(lambda x, y: x * y, grad(3), grad(3)):
        output = first_of(function(*inputs))
        with torch.no_grad():
            inputs[1].add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            output.sum().backward()


def test_input_whose_value_is_not_needed_may_be_written():
    answers = []
    for function, inputs in both(lambda x, y: x * 2 + y, grad(3), grad(3)):
        output = first_of(function(*inputs))
        with torch.no_grad():
            inputs[1].add_(1)
        output.sum().backward()
        answers.append([one.grad for one in inputs])
    same(answers[1], answers[0])


def test_saved_output_written_after_forward_raises():
    for function, inputs in both(lambda x: x.exp(), grad(3)):
        output = first_of(function(*inputs))
        with torch.no_grad():
            output.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            output.sum().backward()


@pytest.mark.parametrize("view", [lambda x: x.t(), lambda x: x.view(-1), lambda x: x[None]])
def test_view_of_a_saved_output_written_after_forward_raises(view):
    for function, inputs in both(lambda x: view(x.exp()), grad(3, 2)):
        output = first_of(function(*inputs))
        with torch.no_grad():
            output[0].add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            output.sum().backward()


def test_part_of_a_saved_value_is_returned_as_a_copy():
    """Eager raises if it is written; here the saved value is safe from that."""
    compiled = Compiled(lambda x: x.exp()[1:], [grad(3)])
    x = grad(3)
    output = first_of(compiled(x))
    with torch.no_grad():
        output.add_(1)
    (found,) = torch.autograd.grad(output.sum(), x)
    torch.testing.assert_close(found, torch.cat([torch.zeros(1), x.exp()[1:]]))


def test_outputs_may_be_written_by_the_user():
    answers = []
    for function, (x,) in both(lambda x: (x * 2).t(), grad(3, 2)):
        output = first_of(function(x))
        output.mul_(3)
        output[0].add_(x[:, 0])
        output.sum().backward()
        answers.append([x.grad])
    same(answers[1], answers[0])


def test_tangents_of_any_strides():
    answers = []
    shape = (2, 3, 4, 5)
    plain = torch.randn(shape)
    tangents = [
        plain,
        plain.to(memory_format=torch.channels_last),
        torch.ones(()).expand(shape),
        torch.randn(5, 4, 3, 2).permute(3, 2, 1, 0),
    ]
    for function, (x, w) in both(
        lambda x, w: F.conv2d(x, w, padding=1).view(-1), grad(shape), grad(3, 3, 3, 3)
    ):
        found = []
        for tangent in tangents:
            output = first_of(function(x, w))
            found += torch.autograd.grad(output, [x, w], tangent.reshape(-1))
        answers.append(found)
    same(answers[1], answers[0])


def test_expanded_output_with_any_tangent():
    answers = []
    tangent = torch.randn(3, 4)
    for function, (x,) in both(lambda x: (x * 2).expand(3, 4), grad(4)):
        answers.append(torch.autograd.grad(first_of(function(x)), x, tangent))
    same(answers[1], answers[0])


def test_backward_is_compiled_once_for_each_way_of_asking():
    def run(x):
        h = x.exp()
        return h + 1, h * 2

    compiled = Compiled(run, [grad(3)])
    assert compiled.backwards == []
    for _ in range(3):
        x = grad(3)
        first, second = compiled(x)
        (first.sum() + second.sum()).backward()
    assert len(compiled.backwards) == 1
    first, second = compiled(grad(3))
    second.backward(torch.randn(3))
    assert len(compiled.backwards) == 2


def test_backward_under_autocast_is_as_eager():
    answers = []
    for function, inputs in both(lambda x, w: (x @ w).sum(), grad(4, 4), grad(4, 4)):
        output = first_of(function(*inputs))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            answers.append(torch.autograd.grad(output, inputs))
    same(answers[1], answers[0])


def test_autocast_round_the_forward_is_recorded():
    def run(x, w):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return (x @ w).float()

    answers = []
    for function, inputs in both(run, grad(4, 4), grad(4, 4)):
        output = first_of(function(*inputs))
        answers.append([output, *torch.autograd.grad(output.sum(), inputs)])
    for one, other in zip(*answers, strict=True):
        assert torch.equal(one, other)


def test_two_forwards_then_backwards_reversed():
    def run(x):
        return F.dropout(x, 0.5).exp().sum()

    answers = []
    for function, (x,) in both(run, grad(20)):
        torch.manual_seed(5)
        losses = [first_of(function(x)) for _ in range(2)]
        answers.append([torch.autograd.grad(one, x)[0] for one in reversed(losses)])
    same(answers[1], answers[0])


def test_hooks_and_accumulation():
    seen = []
    answers = []
    for function, (x, w) in both(lambda x, w: (x * w).relu(), grad(3), grad(3)):
        x.register_hook(lambda g: (seen.append(g.clone()), g * 2)[1])
        for _ in range(2):
            first_of(function(x, w)).sum().backward()
        answers.append([x.grad, w.grad])
    same(answers[1], answers[0])
    assert len(seen) == 4


def test_equal_gradients_do_not_share_memory():
    x, y = grad(3), grad(3)
    compiled = Compiled(lambda x, y: (x + y) * 2, [x, y])
    first_of(compiled(x, y)).sum().backward()
    x.grad.add_(1)
    assert not torch.equal(x.grad, y.grad)


def test_custom_function_keeps_its_own_backward():
    class Halved(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            return x.view_as(x)

        @staticmethod
        def backward(context, g):
            return g * 0.5

    def run(x, y):
        return Halved.apply(x * y).sum()

    answers = []
    for function, inputs in both(run, grad(3), grad(3)):
        answers.append(torch.autograd.grad(first_of(function(*inputs)), inputs))
    same(answers[1], answers[0])


def test_custom_function_with_none_gradients_and_two_slots():
    class Odd(torch.autograd.Function):
        @staticmethod
        def forward(context, x, y, scale):
            context.scale = scale
            context.save_for_backward(x)
            return x * scale + y, (x > 0).float()

        @staticmethod
        def backward(context, g, unused):
            (x,) = context.saved_tensors
            return g * context.scale * x, None, None

    def run(x):
        value, mask = Odd.apply(x, x, 3.0)
        return value * 2 + mask

    answers = []
    for function, inputs in both(run, grad(3)):
        answers.append(torch.autograd.grad(first_of(function(*inputs)).sum(), inputs))
    same(answers[1], answers[0])


def test_nothing_is_kept_alive():
    compiled = Compiled(lambda x, w: (x @ w).exp(), [grad(3, 3), grad(3, 3)])
    x, w = grad(3, 3), grad(3, 3)
    output = first_of(compiled(x * 1, w))
    dead = [weakref.ref(output), weakref.ref(output.grad_fn)]
    output.sum().backward()
    del output
    assert [one() for one in dead] == [None, None]


def test_writing_an_input_makes_no_cycle():
    def run(x, y):
        x.mul_(y)
        return x.sin()

    compiled = Compiled(run, [grad(3), grad(3)])
    x, y = grad(3) * 1, grad(3)
    outputs = compiled(x, y)
    dead = weakref.ref(x)
    gc.disable()
    try:
        del x, outputs
        assert dead() is None
    finally:
        gc.enable()


def test_double_backward_through_a_visible_write():
    def run(x, y):
        x.mul_(y)
        return x.sin()

    answers = []
    for function, (leaf, y) in both(run, grad(3), grad(3)):
        x = leaf * 1
        output = first_of(function(x, y))
        slopes = torch.autograd.grad(output.sum(), [leaf, y], create_graph=True)
        found = torch.autograd.grad(sum(one.pow(2).sum() for one in slopes), [leaf, y])
        answers.append([x, *slopes, *found])
    same(answers[1], answers[0])


def test_leaf_that_needs_a_gradient_may_not_be_written():
    for function, inputs in both_leaf(lambda x: x.mul_(2), grad(3)):
        with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
            function(*inputs)


def both_leaf(function, *inputs):
    return (function, copies(inputs)), (Compiled(function, inputs), copies(inputs))


def test_saved_tensor_hooks_run():
    packed = []
    compiled = Compiled(lambda x, w: (x @ w).exp(), [grad(2, 2), grad(2, 2)])
    x, w = grad(2, 2), grad(2, 2)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
        output = first_of(compiled(x, w))
    output.sum().backward()
    assert packed


def test_compiled_under_autocast_and_differentiated_outside():
    def run(x, w):
        return (x @ w).float().pow(2).sum()

    answers = []
    with torch.autocast("cpu", dtype=torch.bfloat16):
        pairs = both(run, grad(4, 4), grad(4, 4))
    for function, inputs in pairs:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            first, second = first_of(function(*inputs)), first_of(function(*inputs))
        found = list(torch.autograd.grad(first, inputs))
        (slope,) = torch.autograd.grad(second, inputs[0], create_graph=True)
        found += torch.autograd.grad(slope.sum(), inputs)
        answers.append(found)
    for one, other in zip(*answers, strict=True):
        assert torch.equal(one, other)


def test_inference_mode():
    def run(x, y):
        x.mul_(2)
        return x @ y

    with torch.inference_mode():
        compiled = Compiled(run, [torch.randn(3, 3), torch.randn(3, 3)])
        x, y = torch.randn(3, 3), torch.randn(3, 3)
        expected = (x * 2) @ y
        (found,) = compiled(x, y)
        torch.testing.assert_close(found, expected)


def test_no_grad_needs_no_backward():
    with torch.no_grad():
        compiled = Compiled(lambda x, w: (x @ w).exp(), [grad(3, 3), grad(3, 3)])
        assert compiled.split.backward is None
        assert not first_of(compiled(grad(3, 3), grad(3, 3))).requires_grad
