"""Whole functions through differentiate, split, bridge and conventions, against eager."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.autograd.harness import Compiled, capture, check
from windfall.autograd import differentiate
from windfall.errors import Unsupported
from windfall.ir.dtype import TensorType


def grad(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, requires_grad=True)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(7)


def test_multilayer_perceptron():
    def run(x, w1, b1, w2, b2):
        return F.linear(F.relu(F.linear(x, w1, b1)), w2, b2)

    compiled = check(run, torch.randn(5, 8), grad(16, 8), grad(16), grad(4, 16), grad(4))
    assert "aten.threshold_backward.default" in compiled.ops()
    assert compiled.split.saved_inputs


def test_layer_norm():
    check(lambda x, w, b: F.layer_norm(x, (8,), w, b), grad(4, 8), grad(8), grad(8))


def test_softmax():
    check(lambda x, w: F.softmax(x @ w, -1), grad(4, 8), grad(8, 8))


def test_gelu_chain_saves_one_value():
    compiled = check(lambda x: F.gelu(F.gelu(x) * 2) + 1, grad(32, 32))
    assert len(compiled.split.saved) + len(compiled.split.saved_inputs) <= 2


def test_attention():
    def run(q, k, v):
        scores = q @ k.transpose(-2, -1) / 4.0
        return F.softmax(scores, -1) @ v

    check(run, grad(2, 3, 5, 16), grad(2, 3, 5, 16), grad(2, 3, 5, 16))


def test_fused_attention():
    check(F.scaled_dot_product_attention, grad(2, 3, 5, 16), grad(2, 3, 5, 16), grad(2, 3, 5, 16))


def test_convolution_and_batch_norm_with_running_statistics():
    def run(x, w, mean, variance, scale, shift):
        y = F.conv2d(x, w, padding=1)
        return F.relu(F.batch_norm(y, mean, variance, scale, shift, training=True))

    compiled = check(
        run, grad(2, 3, 8, 8), grad(4, 3, 3, 3), torch.zeros(4), torch.ones(4), grad(4), grad(4)
    )
    assert compiled.split.signature.writes == (2, 3)


def test_batch_norm_in_evaluation_writes_nothing():
    def run(x, mean, variance):
        return F.batch_norm(x, mean, variance, training=False)

    compiled = check(run, grad(2, 4, 3), torch.zeros(4), torch.ones(4))
    assert compiled.split.signature.writes == ()


def test_relu_in_place():
    check(lambda x: (x * 2).relu_() + 1, grad(3, 4))


def test_write_through_a_slice():
    def run(x):
        h = x * 2
        h[1:].mul_(3)
        return h

    compiled = check(run, grad(4, 3))
    assert "aten.slice_scatter.default" in compiled.ops()


def test_write_through_views_of_views():
    def run(x, y):
        h = x * 2
        v = h.view(6, 4).t()
        v[1].add_(y)
        v[2:].diagonal().zero_()
        h[0, 0] = 5
        return h, v.sum(0)

    check(run, grad(4, 6), grad(6))


def test_every_live_alias_sees_a_write():
    def run(x):
        h = x.clone()
        a, b, c = h[:2], h.view(-1), h.t()
        a.mul_(2)
        b[-1:].add_(1)
        return a + 1, b + 1, c + 1, h

    check(run, grad(3, 3))


def test_disjoint_pieces_written_apart():
    def run(x):
        h = x * 1
        a, b = h.chunk(2, dim=1)
        a.mul_(b)
        first, second, third = h.unbind(0)
        second.copy_(first)
        third.fill_(2.0)
        return h

    check(run, torch.randn(3, 4))


def test_views_are_returned_as_views():
    def run(x):
        y = x * 2
        return y, y.t(), x.view(-1), x, x[1:], y

    check(run, grad(4, 3))


def test_views_of_something_not_returned_share_it():
    def run(x):
        y = x * 2
        return y[0], y[1:], y.t()

    compiled = check(run, grad(4, 3))
    assert compiled.split.signature.hidden == 1


def test_lone_view_needs_no_base():
    compiled = check(lambda x: (x * 2).t(), grad(4, 3))
    assert compiled.split.signature.hidden == 0


def test_detached_output():
    def run(x):
        y = x.exp()
        return y, y.detach(), x.detach()

    check(run, grad(4, 3))


def test_same_tensor_given_twice():
    x = grad(4, 3)
    check(lambda a, b: a * b + a, x, x)


def test_input_written_and_returned():
    def run(x, y):
        x.mul_(2).add_(y)
        return x, x * 2

    compiled = check(run, torch.randn(4, 3), torch.randn(4, 3))
    assert compiled.split.signature.inputs[0].versions == 2


def test_input_written_where_autograd_sees_it():
    def run(x, y):
        x.mul_(y)
        return x.sin()

    check(run, grad(4, 3), grad(4, 3), leaf=False)


def test_plain_input_gains_a_history_by_being_written():
    def run(x, y):
        x.add_(y)
        return x * 2

    check(run, torch.randn(4, 3), grad(4, 3))


def test_view_of_a_written_input():
    def run(x):
        x[1:].mul_(3)
        return x[1:], x.view(-1)

    check(run, torch.randn(4, 3))


def test_input_written_under_no_grad():
    def run(x, y):
        with torch.no_grad():
            x.mul_(0.5)
        return x * y

    check(run, grad(3), grad(3))


def test_write_hidden_from_the_version_counter():
    def run(x):
        x.data.mul_(2)
        return x + 1

    check(run, torch.randn(3))


def test_unused_inputs_have_no_gradient():
    check(lambda x, y, z: x * 2, grad(3), grad(3), torch.randn(3))


def test_integer_and_boolean_outputs():
    def run(x):
        values, indices = x.max(dim=1)
        return values, indices, x > 0, x.argmax()

    check(run, grad(4, 5))


def test_no_grad_inside():
    def run(x):
        with torch.no_grad():
            scale = x.abs().amax()
        return x / scale, scale

    check(run, grad(4, 3))


def test_detach_cuts_the_gradient():
    check(lambda x, y: x.detach() * y + x, grad(3), grad(3))


def test_dropout_is_drawn_once():
    compiled = check(lambda x: F.dropout(x, 0.5) * 2, grad(50, 20))
    drawn = [name for name in compiled.ops() if "bernoulli" in name]
    assert drawn == ["aten.bernoulli.p"]
    (backward,) = compiled.backwards
    assert not any("bernoulli" in name for name in compiled.ops(backward))


def test_random_op_whose_value_nobody_needs_still_advances_the_stream():
    def run(x):
        torch.rand(3)
        return x * torch.rand(4)

    check(run, grad(4))


def test_inference_has_no_backward():
    compiled = check(lambda x, y: (x @ y).relu(), torch.randn(3, 4), torch.randn(4, 5))
    assert compiled.split.backward is None
    assert compiled.joint.gradients_for == ()


def test_factories_and_constants():
    def run(x):
        table = torch.tensor([1.0, 2.0, 3.0])
        return x * table + torch.arange(3) + torch.tensor(0.5), torch.ones(2), torch.tensor([4, 5])

    check(run, grad(4, 3))


def test_constant_outputs():
    check(lambda x: (x + 1, 3, None, "text"), grad(2))


def test_equal_outputs_keep_storage_of_their_own():
    check(lambda x: (x + 1, x + 1), grad(3))


def test_copy_of_an_input_is_not_the_input():
    def run(x):
        y = torch.empty_like(x)
        y.copy_(x)
        return y, x.clone(), x.clone()

    check(run, grad(3, 2))


def test_strides_of_outputs():
    def run(x):
        y = x.to(memory_format=torch.channels_last)
        return y * 2, x.permute(1, 0, 2, 3).contiguous(), (x * 3).transpose(1, 2)

    check(run, grad(2, 3, 4, 5))


def test_in_place_keeps_strides():
    def run(x, y):
        h = x.t() * 1
        h.copy_(y)
        z = torch.empty(3, 4)
        z.copy_(x)
        z.add_(y.t())
        return h, z

    check(run, grad(3, 4), grad(4, 3))


def test_metadata_changes_of_intermediates():
    def run(x):
        h = x * 2
        h.t_()
        h.mul_(3)
        h.unsqueeze_(0)
        return h.squeeze(0) + 1

    check(run, grad(3, 4))


def test_out_argument():
    def run(x, y):
        result = torch.empty(0)
        torch.add(x, y, out=result)
        other = torch.empty(3, 4)
        torch.mul(x, y, out=other[:, :])
        return result, other

    check(run, torch.randn(3, 4), torch.randn(3, 4))


def test_promotion_in_place():
    def run(x, y):
        h = x.half()
        h.add_(y)
        return h

    check(run, torch.randn(3), torch.randn(3))


def test_indexing_assignment():
    def run(x, index):
        h = x * 1
        h[index] = 2.0
        h.index_add_(0, index, torch.ones(2, 3))
        return h

    check(run, grad(4, 3), torch.tensor([0, 2]))


def test_embedding_and_cross_entropy():
    def run(tokens, table, weight, target):
        return F.cross_entropy(F.embedding(tokens, table) @ weight, target)

    tokens, target = torch.tensor([1, 3, 1]), torch.tensor([0, 1, 2])
    check(run, tokens, grad(5, 8), grad(8, 4), target)


def test_tensor_as_complex_numbers():
    def run(x):
        return torch.view_as_real(torch.view_as_complex(x) * 2j).sum(-1)

    check(run, grad(4, 2))


def test_expanded_output():
    check(lambda x: (x * 2).expand(3, 4), grad(4))


def test_scan_of_an_lstm_cell():
    cell = torch.nn.LSTMCell(4, 5)
    parameters = [one.detach().requires_grad_() for one in cell.parameters()]

    def run(x, h, c, *weights):
        for step in range(3):
            h, c = torch.lstm_cell(x[step], (h, c), *weights)
        return h, c

    def fixed(x, h, c, a, b, d, e):
        return run(x, h, c, a, b, d, e)

    check(fixed, grad(3, 2, 4), grad(2, 5), grad(2, 5), *parameters)


def test_factory_result_written_and_returned_with_a_view():
    def run(x):
        h = torch.zeros(3, 4)
        h[0].copy_(x)
        return h, h[1:]

    check(run, grad(4))


def test_views_of_a_factory_result_alone():
    def run(x):
        h = torch.zeros(3, 4)
        h[0].copy_(x)
        return h[0], h[:2]

    check(run, grad(4))


def test_write_through_a_detached_alias():
    def run(x):
        d = x.detach()
        d.mul_(2)
        return x * 2, d

    check(run, torch.randn(4))
    check(run, grad(4), leaf=False)


def test_detached_alias_with_a_history_of_its_own_is_refused():
    def run(x, y):
        d = x.detach()
        d.mul_(y)
        return d

    with pytest.raises(Unsupported) as caught:
        check(run, torch.randn(4), grad(4))
    assert caught.value.number == 208


def test_same_view_returned_twice_is_one_object():
    def run(x):
        v = x[1:]
        w = (x * 2).exp()
        return v, v, w, w

    check(run, grad(4))


@pytest.mark.parametrize(
    ("change", "needs"),
    [
        (lambda x: x.resize_(2), False),
        (lambda x: x.as_strided_((2,), (1,), 1), False),
        (lambda x: x.t_(), True),
        (lambda x: x.unsqueeze_(0), True),
    ],
)
def test_metadata_change_of_an_input_is_refused(change, needs):
    def run(x):
        change(x)
        return x * 2

    with pytest.raises(Unsupported) as caught:
        check(run, torch.randn(2, 3, requires_grad=needs), leaf=False)
    assert caught.value.number in (200, 201, 203, 206)


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.t_(),
        lambda x: x.unsqueeze_(0),
        lambda x: x.transpose_(0, 1).unsqueeze_(1),
        lambda x: x.t_().mul_(2),
        lambda x: x.mul_(2).t_().add_(1),
        lambda x: x.as_strided_((2, 2), (1, 3)).mul_(2),
    ],
)
def test_metadata_change_of_an_input_is_done_when_all_is_done(change):
    def run(x, w):
        before = x.view_as(x)
        change(x)
        return x * 2, x, x.view_as(x), before, x.sum() * w

    compiled = check(run, torch.randn(2, 3), torch.randn(3, requires_grad=True))
    assert compiled.split.signature.inputs[0].becomes is not None


def test_cancelled_metadata_change_counts_as_none():
    def run(x):
        x.t_()
        x.t_()
        return x * 2

    compiled = check(run, torch.randn(2, 3))
    assert compiled.split.signature.writes == ()


def test_inputs_that_share_memory_need_no_gradient():
    def run(x, y):
        x.mul_(2)
        return x + y

    types = [TensorType(torch.float32, (3,), (1,), requires_grad=True)] * 2
    with pytest.raises(Unsupported) as caught, torch.no_grad():
        differentiate(capture(run, 2), types, lying={1: (0, 4)})
    assert caught.value.number == 204


def test_grad_enabled_inside_no_grad():
    def run(x):
        with torch.enable_grad():
            return x.exp()

    with torch.no_grad():
        compiled = Compiled(run, [grad(3)])
        x = grad(3)
        (output,) = compiled(x)
    assert output.requires_grad
    output.sum().backward()
    torch.testing.assert_close(x.grad, x.exp())


def test_real_part_of_a_complex_input():
    x = torch.randn(3, dtype=torch.complex64, requires_grad=True)
    check(lambda x: (x.real, x * 2, x.conj() * x), x)


def test_many_disjoint_slices_written():
    def run(x):
        for index in range(0, 60, 2):
            x[index : index + 1].mul_(index)
        return x.sum()

    check(run, torch.randn(60))


LIBRARY = torch.library.Library("windfall_test_autograd", "FRAGMENT")
LIBRARY.define("scale_and_sum(Tensor(a!) x, float s) -> Tensor")


def _scale_and_sum(x, s):
    x.mul_(s)
    return x.sum()


for _key in ("CPU", "Meta"):
    LIBRARY.impl("scale_and_sum", _scale_and_sum, _key)


def test_custom_op_that_writes_is_called_on_a_copy():
    def run(x, y):
        h = x * 2
        total = torch.ops.windfall_test_autograd.scale_and_sum(h[1:], 3.0)
        return h + y, total

    check(run, torch.randn(4), torch.randn(4))
