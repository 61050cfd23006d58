"""`windfall.graph_trees(fn)`: on the fake device, and what happens where there is none."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import windfall
from tests.trees.fake import FakeAsyncDevice
from windfall.options import TreeOptions
from windfall.runtime.trees import GraphTrees, Managers, Skip
from windfall.runtime.trees.cuda import CudaDevice

Tensor = torch.Tensor


class Fake:
    """A fake device with its trees."""

    def __init__(self) -> None:
        self.device = FakeAsyncDevice()
        self.managers = Managers(lambda: self.device)

    def trees(self, function: Any, **more: Any) -> GraphTrees:
        return GraphTrees(function, managers_of=lambda tensors: self.managers, **more)

    def wait(self) -> None:
        self.device.fence(self.managers.here(TreeOptions()).pool)


def test_structures_keywords_and_constants() -> None:
    fake = Fake()

    def body(pair: list[Tensor], *, scale: float, more: dict[str, Tensor]) -> Any:
        return {"sum": fake.device.op(torch.add, *pair), "more": fake.device.op(
            torch.mul, more["x"], scale)}  # fmt: skip

    f = fake.trees(body)
    for scale in (2.0, 2.0, 2.0, 3.0, 3.0, 2.0):
        a, b = torch.randn(3), torch.randn(3)
        found = f([a, b], scale=scale, more={"x": a})
        fake.wait()
        assert torch.equal(found["sum"], a + b) and torch.equal(found["more"], a * scale)
    assert (f.counters.warmed, f.counters.recorded, f.counters.replayed) == (2, 2, 2)


def test_parameters_of_a_module_are_watched() -> None:
    fake = Fake()

    class Scale(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.full((3,), 2.0), requires_grad=False)

        def forward(self, x: Tensor) -> Tensor:
            return fake.device.op(torch.mul, x, self.weight)

    module = Scale()
    f = fake.trees(module)
    x = torch.ones(3)
    other = torch.full((3,), 5.0)
    for value in (2.0, 2.0, 2.0, 5.0, 5.0):
        if value == 5.0:
            module.weight.data = other
        y = f(x)
        fake.wait()
        assert torch.equal(y, x * value)
    assert f.counters.recorded == 2 and f.counters.rerecorded == 1


def test_written_inputs_are_found_by_their_versions() -> None:
    fake = Fake()
    f = fake.trees(lambda x: fake.device.write(lambda t: t + 1, x))
    x = torch.zeros(3)
    for _ in range(5):
        f(x)
    fake.wait()
    assert torch.equal(x, torch.full((3,), 5.0)) and f.counters.replayed == 3


def test_where_nothing_records_it_runs_as_it_is() -> None:
    f = windfall.graph_trees(lambda x: x * 2)
    assert torch.equal(f(torch.ones(2)), torch.full((2,), 2.0))
    assert f.counters.skipped == {Skip.FOREIGN: 1}

    @windfall.graph_trees
    def g(x: Tensor) -> Tensor:
        return x + 1

    assert g.__name__ == "g" and torch.equal(g(torch.ones(2)), torch.full((2,), 2.0))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_on_real_hardware() -> None:
    f = windfall.graph_trees(lambda x: torch.relu(x @ x) + 1)
    held = []
    for _ in range(6):
        x = torch.randn(32, 32, device="cuda")
        held.append((f(x), torch.relu(x @ x) + 1))
    for have, want in held:
        torch.testing.assert_close(have, want)
    assert f.counters.replayed == 4


def test_cuda_has_every_method_of_the_protocol() -> None:
    from windfall.runtime.trees.device import GraphDevice

    wanted = [name for name in vars(GraphDevice) if not name.startswith("_")]
    assert len(wanted) > 12
    assert not [name for name in wanted if not hasattr(CudaDevice, name)]
