"""While tracing, no op runs on the data of the user: asked of a probe that sees every op."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.conformance.checking import probed_captures
from tests.programs.subjects import Windfall
from windfall.frontend.interpreter import Interpreter


def branches(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    y = y.clone()
    y[0] = 2.0
    if x.shape[0] > 2:
        x = x.sin() @ y.t()
    return torch.cat([x, x.sum(0, keepdim=True)]).relu_()


def broken(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    total = (x * y).sum()
    if total.item() > 0:
        return x + total
    return y - total


def in_place(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.add_(y)
    return x.view(-1)[::2].mul_(2)


def by_module(x: torch.Tensor, y: torch.Tensor) -> Any:
    return MODULE(x), torch.nn.functional.dropout(y, 0.5)


MODULE = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.ReLU())
PROGRAMS = [branches, broken, in_place, by_module]


@pytest.mark.parametrize("backend", ["eager", "windfall"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_tracing_leaves_data_alone(program: Callable[..., Any], backend: str) -> None:
    x, y = torch.randn(4, 4), torch.randn(4, 4)
    subject = Windfall(backend)
    with probed_captures([x, y, *MODULE.parameters(), *MODULE.buffers()]) as probe:
        subject.compile(program)(x, y)
    assert not probe.ran
    assert subject.graphs(), "something was captured"


def test_the_probe_sees_an_op_on_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """A capture that looks at data is noticed: else the tests above would say nothing."""
    x, plain = torch.randn(4), Interpreter.run

    def run(machine: Interpreter) -> None:
        x.sum()
        plain(machine)

    monkeypatch.setattr(Interpreter, "run", run)
    with probed_captures([x]) as probe:
        Windfall("eager").compile(torch.sin)(x)
    assert probe.ran == ["aten.sum.default"]
