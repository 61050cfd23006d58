"""Convolutions in the layout that is fastest: the same results, to the stride."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from windfall import torch_abi
from windfall.codegen import lower
from windfall.codegen.lower import reads_of
from windfall.events import EventLog
from windfall.ir.dtype import TensorType, contiguous_strides
from windfall.ir.loop import Call, Definition, Invocation, walk
from windfall.ir.node import info
from windfall.ops.layout import channels_last_strides
from windfall.options import Options
from windfall.pipeline import Compiler

rules = importlib.import_module("windfall.codegen.layout_assignment")

pytestmark = pytest.mark.skipif(
    torch_abi.described_convolution() is None, reason="torch has no such convolution here"
)


@pytest.fixture
def eager_to_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever can lie channels-last does, so that small images test it too."""
    for name in ("WEIGHT", "CALL", "COPIED", "RESTORED", "NARROW"):
        monkeypatch.setattr(rules, name, 0.0)


def compiled(target: Any, **options: Any) -> tuple[Any, EventLog]:
    log = EventLog()
    return Compiler(Options.checked(strict=True, **options), log).compiled(target), log


def changes(log: EventLog) -> list[int]:
    """How many convolutions of each arranged graph lie otherwise."""
    overload = torch_abi.described_convolution()
    return [
        sum(node.target is overload for node in event.record.nodes)
        for event in log.snapshot("arrange")
    ]


def assert_same(found: Any, wanted: Any, tolerance: float = 1e-4) -> None:
    if isinstance(wanted, (list, tuple)):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            assert_same(one, other, tolerance)
        return
    assert found.stride() == wanted.stride(), (found.stride(), wanted.stride())
    assert found.storage_offset() == wanted.storage_offset()
    assert found.dtype is wanted.dtype
    torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)


def images(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(sizes, dtype=dtype)


class Wrapped(nn.Module):
    """A module and what is done with its result."""

    def __init__(self, module: nn.Module, then: Callable[..., Any] = lambda x: x) -> None:
        super().__init__()
        self.module = module
        self.then = then

    def forward(self, x: torch.Tensor) -> Any:
        return self.then(self.module(x))


def pair(*settings: Any, **named: Any) -> nn.Module:
    first = nn.Conv2d(*settings, **named)
    return nn.Sequential(
        first,
        nn.BatchNorm2d(first.out_channels),
        nn.ReLU(),
        nn.Conv2d(first.out_channels, 6, 3, padding=1),
    )


# name -> module, input, how many convolutions can change.
NETS: dict[str, Callable[[], tuple[nn.Module, torch.Tensor, int]]] = {
    "plain": lambda: (pair(3, 8, 3), images(2, 3, 9, 7), 2),
    "stride": lambda: (pair(3, 8, 3, stride=2, padding=1), images(2, 3, 9, 7), 2),
    "strides": lambda: (pair(3, 8, (3, 2), stride=(2, 1), padding=(0, 1)), images(2, 3, 9, 7), 2),
    "dilation": lambda: (pair(3, 8, 3, dilation=2, padding=2), images(2, 3, 9, 7), 2),
    "no bias": lambda: (pair(3, 8, 1, bias=False), images(2, 3, 5, 5), 2),
    "same": lambda: (pair(3, 8, 3, padding="same"), images(1, 3, 5, 5), 2),
    "reflect": lambda: (pair(3, 8, 3, padding=1, padding_mode="reflect"), images(1, 3, 5, 5), 2),
    "depthwise": lambda: (pair(8, 8, 3, groups=8, padding=1), images(2, 8, 6, 5), 2),
    "depthwise, wider": lambda: (pair(4, 8, 3, groups=4), images(2, 4, 6, 5), 2),
    "groups": lambda: (pair(8, 8, 3, groups=2), images(2, 8, 6, 5), 1),
    "one channel": lambda: (pair(1, 1, 3), images(2, 1, 6, 5), 2),
    "one pixel": lambda: (pair(5, 7, 1), images(2, 5, 1, 1), 2),
    "one row": lambda: (pair(5, 7, 1), images(1, 5, 1, 9), 2),
    "one image": lambda: (pair(3, 8, 3), images(1, 3, 9, 7), 2),
    "no image": lambda: (pair(3, 8, 3), images(0, 3, 9, 7), 0),
    "no batch": lambda: (nn.Conv2d(3, 8, 3), images(3, 9, 7), 1),
    "float64": lambda: (pair(3, 8, 3).double(), images(2, 3, 9, 7).double(), 0),
    "bfloat16": lambda: (pair(3, 8, 3).bfloat16(), images(2, 3, 9, 7).bfloat16(), 0),
    "transposed": lambda: (
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.ConvTranspose2d(8, 4, 2, 2), nn.Conv2d(4, 5, 1)),
        images(2, 3, 9, 7),
        2,
    ),
    "one dimension": lambda: (nn.Conv1d(3, 8, 3), images(2, 3, 9), 0),
    "three dimensions": lambda: (
        nn.Sequential(nn.Conv3d(3, 8, 3), nn.BatchNorm3d(8), nn.ReLU(), nn.Conv3d(8, 4, 2)),
        images(2, 3, 6, 5, 7),
        2,
    ),
    "pools": lambda: (
        nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.MaxPool2d(3, 2, 1),
            nn.Conv2d(8, 8, 1),
            nn.AvgPool2d(2, ceil_mode=True),
            nn.Conv2d(8, 8, 1),
            nn.AdaptiveAvgPool2d((2, 3)),
            nn.Conv2d(8, 8, 1),
            nn.AdaptiveMaxPool2d(2),
        ),
        images(2, 3, 13, 15),
        4,
    ),
    "norms": lambda: (
        nn.Sequential(
            nn.Conv2d(3, 8, 3),
            nn.GroupNorm(2, 8),
            nn.GELU(),
            nn.Conv2d(8, 8, 1),
            nn.InstanceNorm2d(8, affine=True),
            nn.PReLU(8),
        ),
        images(2, 3, 9, 8),
        2,
    ),
    "pixel shuffle": lambda: (
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.PixelShuffle(2), nn.Conv2d(2, 3, 1)),
        images(2, 3, 9, 8),
        2,
    ),
    "flat": lambda: (
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 42, 5)),
        images(2, 3, 9, 8),
        1,
    ),
}


@pytest.mark.parametrize("name", NETS)
def test_a_net_answers_what_eager_answers(name: str, eager_to_change: None) -> None:
    torch.manual_seed(0)
    net, x, count = NETS[name]()
    net.eval()
    wanted_net = copy.deepcopy(net)
    call, log = compiled(net)
    tolerance = 5e-2 if x.dtype is torch.bfloat16 else 1e-4
    with torch.no_grad():
        for _ in range(2):
            assert_same(call(x), wanted_net(x), tolerance)
    assert changes(log) == [count]


def _returned_and_used(y: torch.Tensor) -> Any:
    return y, y.relu(), y[:, 1:3], y + 1


THEN: dict[str, Callable[[torch.Tensor], Any]] = {
    "returned and used": _returned_and_used,
    "view": lambda y: y.view(y.size(0), -1),
    "view of a view": lambda y: y.flatten(2)[:, 1].sum(1),
    "flatten and softmax": lambda y: y.flatten(1).softmax(1),
    "permute": lambda y: y.permute(0, 2, 3, 1),
    "permute, computed": lambda y: y.permute(0, 2, 3, 1) * 2,
    "permute, contiguous": lambda y: y.permute(0, 2, 3, 1).contiguous().view(-1, y.size(1)),
    "chunk": lambda y: y.chunk(3, 1),
    "chunk, computed": lambda y: torch.mul(*y.chunk(2, 1)),
    "split": lambda y: y.split([1, 2, 3], 1)[1].exp(),
    "unbind": lambda y: [one + 1 for one in y.unbind(2)],
    "select": lambda y: (y[0], y[:, 0], y[..., -1]),
    "cat": lambda y: torch.cat([y, y * 2], 1),
    "cat of two layouts": lambda y: torch.cat([y, torch.ones(y.shape)], 1),
    "cat of rows": lambda y: torch.cat([y, y[:, :, :1]], 2),
    "stack": lambda y: torch.stack([y, y.relu()], 0),
    "sum over channels": lambda y: y.sum(1),
    "sum, kept": lambda y: y.sum(1, keepdim=True),
    "mean of the image": lambda y: y.mean((2, 3)),
    "mean, kept": lambda y: y.mean((2, 3), keepdim=True),
    "softmax over channels": lambda y: y.softmax(1),
    "argmax over channels": lambda y: y.argmax(1),
    "largest of the image": lambda y: y.amax((2, 3)),
    "max with indices": lambda y: F.max_pool2d(y, 2, return_indices=True),
    "as strided": lambda y: y.as_strided((2, 3), (5, 1), 4),
    "broadcast": lambda y: y * torch.arange(y.size(1)).view(-1, 1, 1) + torch.ones(y.size(3)),
    "scale by channel": lambda y: y * y.mean((2, 3), keepdim=True).sigmoid(),
    "comparison": lambda y: torch.where(y > 0, y, torch.zeros_like(y)),
    "new tensors": lambda y: (torch.zeros_like(y), y.new_ones(y.shape), torch.full_like(y, 2)),
    "cast": lambda y: (y.double(), y.to(torch.bfloat16)),
    "clone": lambda y: (y.clone(), y.contiguous()),
    "channels last": lambda y: y.contiguous(memory_format=torch.channels_last),
    "pad": lambda y: F.pad(y, (1, 2, 0, 1)),
    "flip": lambda y: y.flip(3),
    "roll": lambda y: y.roll(1, 2),
    "interpolate": lambda y: F.interpolate(y, scale_factor=2, mode="bilinear"),
    "nearest": lambda y: F.interpolate(y, scale_factor=2),
    "matrix product": lambda y: y @ y.transpose(2, 3),
    "einsum": lambda y: torch.einsum("bchw,bdhw->bcd", y, y),
    "norm": lambda y: F.normalize(y, dim=1),
    "cumsum": lambda y: y.cumsum(1),
    "expand": lambda y: y[:, :1].expand(-1, 4, -1, -1) + y[:, 1:5],
    "squeeze": lambda y: y[:, :1].squeeze(1) + y[:, 1:2].squeeze(),
    "unfold": lambda y: F.unfold(y, 2),
    "in place": lambda y: y.relu_().add_(1),
    "in place, view": lambda y: (y[:, 1].zero_(), y)[1],
    "item of a row": lambda y: y[1, 2, 3],
    "index": lambda y: y[:, torch.tensor([2, 0])],
    "local response": lambda y: F.local_response_norm(y, 3),
    "dropout": lambda y: F.dropout(y, 0.5, training=False),
    "strides as numbers": lambda y: y * y.stride(1),
}


@pytest.mark.parametrize("name", THEN)
def test_what_follows_a_convolution(name: str, eager_to_change: None) -> None:
    torch.manual_seed(1)
    net = Wrapped(nn.Conv2d(3, 6, 3, padding=1), THEN[name]).eval()
    x = images(2, 3, 8, 6)
    call, log = compiled(net)
    with torch.no_grad():
        assert_same(call(x), net(x))
    assert changes(log) == [1]


def test_random_numbers_are_drawn_in_the_order_of_eager(eager_to_change: None) -> None:
    net = Wrapped(
        nn.Conv2d(3, 6, 3, padding=1),
        lambda y: (
            F.dropout(y, 0.5),
            torch.rand_like(y),
            F.dropout2d(y, 0.5),
            torch.bernoulli(y.sigmoid()),
        ),
    )
    x = images(2, 3, 8, 6)
    call, log = compiled(net)
    with torch.no_grad():
        torch.manual_seed(3)
        wanted = net(x)
        torch.manual_seed(3)
        assert_same(call(x), wanted)
    assert changes(log) == [1]


INPUTS: dict[str, Callable[[], torch.Tensor]] = {
    "channels last": lambda: images(2, 3, 9, 7).contiguous(memory_format=torch.channels_last),
    "permuted": lambda: images(2, 9, 7, 3).permute(0, 3, 1, 2),
    "transposed": lambda: images(2, 3, 7, 9).transpose(2, 3),
    "sliced": lambda: images(2, 6, 9, 14)[:, ::2, :, ::2],
    "expanded": lambda: images(1, 1, 9, 7).expand(2, 3, 9, 7),
    "offset": lambda: images(3, 3, 9, 7)[1:],
}


@pytest.mark.parametrize("name", INPUTS)
def test_inputs_that_are_not_row_major(name: str, eager_to_change: None) -> None:
    torch.manual_seed(2)
    net = pair(3, 8, 3).eval()
    x = INPUTS[name]()
    call, _ = compiled(net)
    with torch.no_grad():
        assert_same(call(x), net(x))


def test_weights_that_are_channels_last_already(eager_to_change: None) -> None:
    net = pair(3, 8, 3).eval().to(memory_format=torch.channels_last)
    x = images(2, 3, 9, 7)
    call, log = compiled(net)
    with torch.no_grad():
        assert_same(call(x), net(x))
    assert changes(log) == [0]  # it is already as fast as it gets


def test_inputs_that_share_memory(eager_to_change: None) -> None:
    torch.manual_seed(4)
    convolution = nn.Conv2d(3, 3, 3, padding=1)

    def both(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        made = convolution(x)
        y.add_(1)
        return convolution(y) + made

    base = images(2, 4, 8, 6)
    mine, theirs = base.clone(), base.clone()
    call, _ = compiled(both)
    with torch.no_grad():
        assert_same(call(mine[:, :3], mine[:, 1:]), both(theirs[:, :3], theirs[:, 1:]))
    assert torch.equal(mine, theirs)


def test_weights_written_between_calls_are_seen(eager_to_change: None) -> None:
    net = pair(3, 8, 3).eval()
    x = images(2, 3, 9, 7)
    call, _ = compiled(net)
    with torch.no_grad():
        assert_same(call(x), net(x))
        net[0].weight.data.mul_(-0.5)
        net[3].weight.data[0].zero_()
        assert_same(call(x), net(x))


def test_sizes_that_vary(eager_to_change: None) -> None:
    torch.manual_seed(5)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
        nn.Conv2d(8, 8, 3, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4),
    ).eval()  # fmt: skip
    call, _ = compiled(net, dynamic=True)
    with torch.no_grad():
        for batch, height, width in ((2, 9, 7), (3, 12, 12), (5, 8, 31), (1, 9, 7), (4, 1, 2)):
            x = images(batch, 3, height, width)
            assert_same(call(x), net(x))


def test_sizes_that_are_read_from_data(eager_to_change: None) -> None:
    net = pair(3, 8, 3).eval()
    x = images(5, 3, 9, 7)

    def some(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return net(x[mask]) * 2

    call, _ = compiled(some)
    with torch.no_grad():
        for wanted in ((1, 0, 1, 1, 0), (1, 1, 1, 1, 1), (0, 0, 0, 1, 0)):
            mask = torch.tensor(wanted, dtype=torch.bool)
            assert_same(call(x, mask), some(x, mask))


# ------------------------------------------------------------------------------------- training


TRAINED = ("plain", "stride", "dilation", "no bias", "depthwise", "groups", "one channel", "pools",
           "norms", "transposed", "three dimensions", "flat", "one image", "float64")  # fmt: skip


@pytest.mark.parametrize("name", TRAINED)
def test_training_steps_are_those_of_eager(name: str, eager_to_change: None) -> None:
    torch.manual_seed(6)
    net, x, _ = NETS[name]()
    mine, theirs = net.train(), copy.deepcopy(net).train()
    given, other = x.clone().requires_grad_(), x.clone().requires_grad_()
    call, _ = compiled(mine)
    for _ in range(2):
        found, wanted = call(given), theirs(other)
        assert_same(found.detach(), wanted.detach(), 1e-3)
        found.square().sum().backward()
        wanted.square().sum().backward()
        with torch.no_grad():
            for one, two in zip(mine.parameters(), theirs.parameters(), strict=True):
                assert_same(one.grad, two.grad, 5e-3)
                one -= 1e-3 * one.grad
                two -= 1e-3 * two.grad
    assert_same(given.grad, other.grad, 5e-3)
    for one, two in zip(mine.buffers(), theirs.buffers(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-3)


# ------------------------------------------------------------------------------- what is written


def arranged(net: nn.Module, x: torch.Tensor) -> tuple[torch.fx.Graph, torch.fx.Graph]:
    """The graph before and after."""
    call, log = compiled(net)
    with torch.no_grad():
        call(x)
    (after,) = [event.record for event in log.snapshot("arrange")]
    (split,) = [event.record for event in log.snapshot("split")]
    return split.forward, after


def test_a_graph_without_convolutions_is_itself() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.LayerNorm(4))
    before, after = arranged(net, images(2, 3))
    assert after is before


def test_a_graph_that_gains_nothing_is_itself() -> None:
    before, after = arranged(nn.Conv2d(512, 512, 3).eval(), images(1, 512, 3, 3))
    assert after is before
    before, after = arranged(nn.Conv2d(2, 2, 1).eval(), images(1, 2, 3, 3))
    assert after is before


def test_what_is_between_two_convolutions_lies_as_they_do() -> None:
    _, after = arranged(pair(3, 16, 3).eval(), images(2, 3, 64, 64))
    kinds = [str(node.target) for node in after.nodes if node.op == "call_function"]
    assert kinds.count("aten.clone.default") == 2  # the input and the result
    for node in after.nodes:
        type = info(node).type
        if node.op == "call_function" and isinstance(type, TensorType):
            assert type.strides == channels_last_strides(type.sizes) or node.target is rules.CLONE
    (result,) = after.output_node().args[0]
    assert info(result).type.strides == contiguous_strides(info(result).type.sizes)


def test_weights_are_read_where_they_are() -> None:
    net = pair(16, 16, 3).eval()
    _, after = arranged(net, images(2, 16, 48, 48))
    loops = lower(after)
    weights = {
        name for name in loops.inputs if loops.buffers[name].type.rank == 4 and "weight" in name
    }
    assert len(weights) == 2
    for item in loops.items:
        if isinstance(item, Definition):
            assert not reads_of(item) & weights
    calls = [item for item in loops.items if isinstance(item, Call) and reads_of(item) & weights]
    assert len(calls) == 2
    overload = torch_abi.described_convolution()
    for call in calls:
        assert isinstance(call.attributes, Invocation) and call.attributes.target is overload


def test_an_input_is_copied_in_one_loop_with_what_precedes_it() -> None:
    _, after = arranged(nn.Sequential(nn.Tanh(), pair(16, 16, 3)).eval(), images(2, 16, 48, 48))
    first, second, *_ = lower(after).items
    assert isinstance(first, Definition) and isinstance(second, Call)
    assert any(node.op == "tanh" for node in walk(first.value))
    assert first.buffer in reads_of(second)


def test_repeated_blocks_are_still_found() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = (nn.Conv2d(16, 16, 3, padding=1) for _ in range(2))
            self.norm = nn.BatchNorm2d(16)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.norm(self.one(x)).relu() * 2 + x.sigmoid()
            return (self.two(y).tanh() - x).clamp(-3, 3) + y.exp().clamp(max=2) * x.cos()

    torch.manual_seed(7)
    net = nn.Sequential(nn.Conv2d(3, 16, 3), *(Block() for _ in range(9)), nn.Conv2d(16, 2, 1))
    net.eval()
    x = images(2, 3, 40, 40)
    call, log = compiled(net)
    with torch.no_grad():
        assert_same(call(x), net(x), 1e-3)
    assert changes(log) == [20]
    (division,) = [event.record for event in log.snapshot("divide")]
    assert division is not None and len(division.graphs) < len(division.pieces)


@pytest.mark.filterwarnings("ignore:TF32")
def test_the_switch_of_onednn_is_heeded(eager_to_change: None) -> None:
    net = pair(3, 8, 3).eval()
    x = images(2, 3, 9, 7)
    with torch.backends.mkldnn.flags(enabled=False), torch.no_grad():
        call, log = compiled(net)
        assert_same(call(x), net(x))
    assert changes(log) == [0]


def test_pooling_with_and_without_positions() -> None:
    x = images(2, 3, 9, 8)
    x[0, 0, 2, 2] = float("nan")
    x[1, 1] = -float("inf")
    for window, stride, pad, ceil in ((3, 2, 1, False), (2, 2, 0, True), (3, 1, 1, False)):
        settings = {"stride": stride, "padding": pad, "ceil_mode": ceil}
        for form in (torch.contiguous_format, torch.channels_last):
            given = x.contiguous(memory_format=form)

            def values(x: torch.Tensor, window: int = window, settings: Any = settings) -> Any:
                return F.max_pool2d(x, window, **settings)

            def both(x: torch.Tensor, window: int = window, settings: Any = settings) -> Any:
                return F.max_pool2d(x, window, **settings, return_indices=True)

            for function in (values, both):
                found, wanted = compiled(function)[0](given), function(given)
                pairs = zip(found, wanted, strict=True) if function is both else [(found, wanted)]
                for one, other in pairs:
                    assert one.stride() == other.stride()
                    assert torch.equal(one.nan_to_num(9), other.nan_to_num(9))


def test_arranging_is_the_same_twice() -> None:
    before, after = arranged(pair(3, 16, 3).eval(), images(2, 3, 64, 64))
    again = rules.assign_layouts(before)
    assert str(again) == str(after)
    assert [info(node).type for node in again.nodes] == [info(node).type for node in after.nodes]
