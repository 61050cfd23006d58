"""Fake tensors: types, aliasing, what they refuse, and what they leave alone."""

from __future__ import annotations

import time

import pytest
import torch
import torch.nn.functional as F

from windfall.errors import Unsupported
from windfall.ir.dtype import TensorType
from windfall.ops import fake as fakes
from windfall.ops.fake import DataDependent, FakeMode, fake, infer, offset_of, storage_of, type_of


def f32(*sizes: int, requires_grad: bool = False) -> torch.Tensor:
    return fake(TensorType.contiguous(torch.float32, sizes), requires_grad=requires_grad)


def real_type(function, *sizes):
    return TensorType.of(function(*[torch.randn(one) for one in sizes]))


def test_a_fake_has_the_type_it_was_made_from():
    type = TensorType(torch.float16, (2, 3), (1, 2), requires_grad=True)
    tensor = fake(type)
    assert type_of(tensor) == type
    assert (tensor.shape, tensor.stride(), tensor.requires_grad) == ((2, 3), (1, 2), True)
    assert type_of(fake(type, requires_grad=False)) == type.without_grad()
    assert type_of(torch.ones(2)) == TensorType.contiguous(torch.float32, (2,))


@pytest.mark.parametrize(
    "function, sizes",
    [
        (lambda x, y: x + y, [(2, 1), (3,)]),
        (lambda x, y: F.linear(x, y), [(4, 5, 6), (7, 6)]),
        (lambda x, y: (x @ y).t(), [(3, 4), (4, 5)]),
        (lambda x: F.layer_norm(x, (4,)), [(3, 4)]),
        (lambda x: F.softmax(x, 0).double(), [(3, 4)]),
        (lambda x: x.permute(2, 0, 1)[1:, 0].contiguous(), [(3, 4, 5)]),
        (lambda x, w: F.conv2d(x, w, stride=2), [(2, 3, 8, 8), (4, 3, 3, 3)]),
        (lambda x: F.max_pool2d(x, 2), [(2, 3, 8, 8)]),
        (lambda x: torch.cat([x, x.flip(0)], 1), [(3, 4)]),
        (lambda x: x.argmax(-1), [(3, 4)]),
        (lambda x: torch.where(x > 0, x, 0), [(3, 4)]),
    ],
)
def test_results_have_eager_types(function, sizes):
    with FakeMode():
        found = function(*[f32(*one) for one in sizes])
    assert type_of(found) == real_type(function, *sizes)


def test_ops_work_without_the_mode():
    assert type_of(f32(2, 3) @ f32(3, 4)).sizes == (2, 4)


def test_factories_answer_fakes_under_the_mode():
    with FakeMode():
        made = [torch.zeros(2), torch.arange(5), torch.rand(3), torch.eye(2), torch.tensor([1, 2])]
    assert all(fakes.is_fake(one) for one in made)
    assert type_of(made[1]) == TensorType.contiguous(torch.int64, (5,))


def test_inference_mode_decomposes_composite_ops():
    seen = []
    with torch.inference_mode(), FakeMode(lambda func, *rest: seen.append(str(func))):
        F.linear(f32(2, 3), f32(4, 3))
    assert "aten.linear.default" not in seen
    assert "aten.mm.default" in seen


def test_observer_sees_every_op_in_order():
    seen = []
    with FakeMode(lambda func, args, kwargs, result: seen.append((str(func), result))):
        y = (f32(2, 2) * 2).relu_()
    assert [name for name, _ in seen] == ["aten.mul.Tensor", "aten.relu_.default"]
    assert seen[1][1] is y


def test_views_share_storage_at_their_offset():
    x = f32(4, 6)
    with FakeMode():
        view = x[1:, 2:].t()
        pieces = x.split(2, dim=1)
        fresh = x + 1
    assert storage_of(view) is storage_of(x)
    assert offset_of(view) == 8 == view.storage_offset()
    assert [offset_of(one) for one in pieces] == [0, 2, 4]
    assert all(storage_of(one) is storage_of(x) for one in pieces)
    assert storage_of(fresh) is not storage_of(x)


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.t_(),
        lambda x: x.unsqueeze_(0),
        lambda x: x.squeeze_(),
        lambda x: x.transpose_(0, 1),
        lambda x: x.as_strided_((2,), (2,), 1),
        lambda x: x.resize_(5, 5),
    ],
)
def test_metadata_changes_in_place(change):
    tensor, real = f32(2, 3), torch.zeros(2, 3)
    storage = storage_of(tensor)
    with FakeMode():
        assert change(tensor) is tensor
    change(real)
    assert type_of(tensor) == TensorType.of(real)
    assert (tensor.shape, tensor.stride()) == (real.shape, real.stride())
    assert tensor.storage_offset() == offset_of(tensor) == real.storage_offset()
    assert tensor._version == real._version
    assert storage_of(tensor) is storage


def test_set_takes_the_storage_of_another():
    x, y = f32(2, 3), f32(4)
    with FakeMode():
        x.set_(y)
    assert storage_of(x) is storage_of(y)
    assert type_of(x) == type_of(y)


def test_out_is_written_and_resized():
    out = f32(0)
    with FakeMode():
        assert torch.add(f32(2, 3), 1, out=out) is out
    assert type_of(out).sizes == (2, 3)


def test_in_place_checks_its_operands():
    with FakeMode():
        with pytest.raises(RuntimeError, match="broadcast shape"):
            f32(2).add_(f32(3, 2))
        with pytest.raises(RuntimeError):
            fake(TensorType.contiguous(torch.int64, (2,))).add_(1.5)


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x.sum().item(),
        lambda x: bool(x.sum()),
        lambda x: x.tolist(),
        lambda x: x.numpy(),
        lambda x: x.nonzero(),
        lambda x: x[x > 0],
        lambda x: x.unique(),
        lambda x: torch.equal(x, x),
        lambda x: x.data_ptr(),
    ],
)
def test_reading_data_is_refused(read):
    with FakeMode(), pytest.raises(DataDependent) as caught:
        read(f32(2, 3))
    assert caught.value.number == 100
    assert isinstance(caught.value, Unsupported)


def test_constants_keep_their_value_until_written():
    with FakeMode():
        table = torch.tensor([1.0, 2.0])
        assert torch.tensor(2.5).item() == 2.5
        assert table.detach()[1].dim() == 0
        assert torch.equal(fakes.constant_of(table), torch.tensor([1.0, 2.0]))
        table.add_(1)
        assert fakes.constant_of(table) is None


def test_real_tensors_may_be_read_but_not_written():
    real = torch.ones(3)
    with FakeMode():
        assert type_of(real + f32(3)).sizes == (3,)
        with pytest.raises(Unsupported) as caught:
            real.add_(1)
    assert caught.value.number == 102
    assert torch.equal(real, torch.ones(3))


def test_wrapped_numbers_promote_as_numbers():
    with FakeMode():
        assert type_of(f32() * 2.0).dtype == torch.float32
        assert (
            type_of(torch.mul(f32(), torch.tensor(2.0, dtype=torch.float64))).dtype == torch.float64
        )


def test_random_state_is_untouched():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    with FakeMode():
        F.dropout(f32(4, 4), 0.5)
        torch.rand(3)
        torch.randn_like(f32(2)).normal_()
    assert torch.equal(torch.get_rng_state(), before)


def test_autograd_runs_on_fakes():
    x = f32(3, 4, requires_grad=True)
    with FakeMode():
        h = x * 2
        h[:, 1:].mul_(3)
        (gradient,) = torch.autograd.grad(h.exp().sum(), x)
    assert type_of(gradient) == TensorType.contiguous(torch.float32, (3, 4))


def test_an_op_without_rule_asks_its_meta_kernel_and_is_counted():
    with FakeMode() as mode:
        found = torch.linalg.cholesky(f32(3, 3))
    assert type_of(found).sizes == (3, 3)
    assert any("cholesky" in name for name in mode.fallbacks)


def test_an_op_without_meta_kernel_is_unsupported():
    with FakeMode(), pytest.raises(Unsupported) as caught:
        torch.ops.aten._to_sparse.default(f32(3, 3))
    assert caught.value.number == 101


def test_types_can_be_inferred_directly():
    type = TensorType.contiguous(torch.float32, (4, 6))
    assert infer(torch.ops.aten.t.default, [type]).strides == (1, 6)
    values, indices = infer(torch.ops.aten.max.dim, [type, 0])
    assert (values.dtype, indices.dtype, indices.sizes) == (torch.float32, torch.int64, (6,))
    assert len(infer(torch.ops.aten.split.Tensor, [type, 2])) == 2


def test_functional_counterparts():
    aten = torch.ops.aten
    assert fakes.functional_name(aten.add_.Tensor) == "aten.add.Tensor"
    assert fakes.functional_name(aten.add.out) == "aten.add.Tensor"
    assert fakes.functional_name(aten.pow_.Scalar) == "aten.pow.Tensor_Scalar"
    assert fakes.functional_name(aten.bernoulli_.float) == "aten.bernoulli.p"


def test_an_op_costs_microseconds():
    """The bound is generous: machines are busy. Meta kernels in Python take ten times as long."""
    x = f32(16, 16)
    with FakeMode():
        x + x
        best = min(_timed(lambda: x + x) for _ in range(5))
    assert best < 100e-6


def _timed(function) -> float:
    started = time.thread_time()
    for _ in range(200):
        function()
    return (time.thread_time() - started) / 200
