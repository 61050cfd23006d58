"""What stands around a backward pass in a step: every optimizer, schedules, scalers, averages,
hooks, and what a user does to them between two steps."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import lr_scheduler
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import windfall
from tests.conformance.optimizers import Case, cases
from tests.frontend.test_training_step import beside_eager, held, model, same


def in_one_graph(compiled: Any) -> bool:
    """Whether nothing of it ran in eager."""
    told = windfall.explanation(compiled)
    return bool(told.graphs) and not (told.breaks or told.eager or told.fallbacks)


def breaks(compiled: Any) -> set[int]:
    return {one.number for one in windfall.explanation(compiled).breaks}


def plain(made: nn.Module, optimizer: Any, x: Any, y: Any) -> Any:
    optimizer.zero_grad()
    loss = F.mse_loss(made(x), y)
    loss.backward()
    optimizer.step()
    return loss.detach()


# ------------------------------------------------------------------------------------- optimizers


def _firsts() -> list[Case]:
    """One case of each optimizer, and of two each of their ways."""
    found: dict[tuple[str, str], Case] = {}
    for one in cases():
        found.setdefault((one.cls.__name__, one.way), one)
    apart = ("LBFGS", "SparseAdam")  # which have tests of their own
    every = ("AdamW", "SGD")
    return [
        one
        for (name, way), one in found.items()
        if name not in apart and (way == "for-loop" or name in every)
    ]


@pytest.mark.parametrize("case", _firsts(), ids=str)
def test_every_optimizer_in_a_whole_step(case: Case) -> None:
    def optimizer(made: nn.Module) -> torch.optim.Optimizer:
        given = list(made.parameters())
        if case.cls.__name__ == "Muon":
            given = [one for one in given if one.dim() == 2]
        return case.cls(given, **case.arguments())  # type: ignore[call-arg]

    assert in_one_graph(beside_eager(plain, optimizer))


def test_a_closure_is_part_of_the_graph() -> None:
    def step(made: Any, optimizer: Any, x: Any, y: Any) -> Any:
        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = F.mse_loss(made(x), y)
            loss.backward()
            return loss

        return optimizer.step(closure).detach()

    assert in_one_graph(beside_eager(step))


def test_a_step_that_looks_at_data_is_eagers() -> None:
    def step(made: Any, optimizer: Any, x: Any, y: Any) -> Any:
        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = F.mse_loss(made(x), y)
            loss.backward()
            return loss

        return optimizer.step(closure).detach()

    compiled = beside_eager(step, lambda made: torch.optim.LBFGS(made.parameters(), lr=0.1))
    assert breaks(compiled) == {1}


def test_sparse_gradients_are_eagers() -> None:
    def world() -> tuple[Any, Any, Any]:
        torch.manual_seed(0)
        table = nn.Embedding(10, 4, sparse=True)
        optimizer = torch.optim.SparseAdam(table.parameters(), lr=0.1)

        def step(rows: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = (table(rows) * 2).sum()
            loss.backward()
            optimizer.step()
            return loss.detach()

        return table, optimizer, step

    (table, _, eager), (other, _, step) = world(), world()
    compiled = windfall.compile(step)
    for _ in range(3):
        rows = torch.tensor([1, 2, 2, 5])
        same(eager(rows), compiled(rows), "loss")
        same(table.weight, other.weight, "weights")
        assert other.weight.grad.is_sparse
    assert 60 in breaks(compiled)


# -------------------------------------------------------------------------------------- schedules

READ: dict[str, Callable[[Any], Any]] = {
    "lambda": lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.9**epoch),
    "exponential": lambda optimizer: lr_scheduler.ExponentialLR(optimizer, 0.9),
}
EFFECTS: dict[str, Callable[[Any], Any]] = {
    "step": lambda optimizer: lr_scheduler.StepLR(optimizer, 2),
    "milestones": lambda optimizer: lr_scheduler.MultiStepLR(optimizer, [2, 4]),
    "cosine": lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, 10),
    "linear": lambda optimizer: lr_scheduler.LinearLR(optimizer),
    "one cycle": lambda optimizer: lr_scheduler.OneCycleLR(
        optimizer, 0.2, total_steps=20, cycle_momentum=False
    ),
    "in sequence": lambda optimizer: lr_scheduler.SequentialLR(
        optimizer,
        [lr_scheduler.LinearLR(optimizer), lr_scheduler.ExponentialLR(optimizer, 0.9)],
        [3],
    ),
}


@pytest.mark.filterwarnings("ignore:The epoch parameter in `scheduler.step")
@pytest.mark.parametrize("name", [*READ, *EFFECTS])
def test_schedules_step_inside_and_nothing_is_compiled_again(name: str) -> None:
    schedules: list[Any] = []

    def optimizer(made: Any) -> torch.optim.Optimizer:
        found = torch.optim.AdamW(made.parameters(), lr=0.1)
        made.schedule = (READ | EFFECTS)[name](found)
        schedules.append(made.schedule)
        return found

    def step(made: Any, its: Any, x: Any, y: Any) -> Any:
        found = plain(made, its, x, y)
        made.schedule.step()
        return found

    compiled = beside_eager(step, optimizer, 8)
    told = windfall.explanation(compiled)
    assert breaks(compiled) == set()
    assert not told.eager and not told.fallbacks
    # The first step makes the optimizer's state, the second finds another rate, which varies then.
    assert len(told.graphs) == 3
    one, other = (found.state_dict() for found in schedules)
    assert one["_last_lr"] == pytest.approx(other["_last_lr"])


# ----------------------------------------------------------------------------- scalers and averages


def test_a_scaler_that_is_off_is_no_break() -> None:
    scaler = torch.amp.GradScaler("cpu", enabled=False)

    def step(made: Any, optimizer: Any, x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.mse_loss(made(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    assert in_one_graph(beside_eager(step))


def test_a_scaler_that_is_on_leaves_out_steps_as_in_eager() -> None:
    scalers: list[Any] = []

    def optimizer(made: Any) -> torch.optim.Optimizer:
        made.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)  # which overflows
        scalers.append(made.scaler)
        return torch.optim.SGD(made.parameters(), lr=0.1)

    def step(made: Any, its: Any, x: Any, y: Any) -> Any:
        its.zero_grad()
        loss = F.mse_loss(made(x), y) * 1000
        made.scaler.scale(loss).backward()
        made.scaler.step(its)
        made.scaler.update()
        return loss.detach()

    beside_eager(step, optimizer, 4)
    one, other = (found.state_dict() for found in scalers)
    assert one == other and one["scale"] < 2.0**127


@pytest.mark.parametrize("averages", [{}, {"multi_avg_fn": get_ema_multi_avg_fn(0.9)}])
def test_averages_of_models(averages: dict[str, Any]) -> None:
    kept: list[Any] = []

    def optimizer(made: Any) -> torch.optim.Optimizer:
        average = AveragedModel(made, **averages)
        kept.append(average)
        made.average = lambda: average  # no part of the model
        return torch.optim.SGD(made.parameters(), lr=0.1)

    def step(made: Any, its: Any, x: Any, y: Any) -> Any:
        found = plain(made, its, x, y)
        made.average().update_parameters(made)
        return found

    beside_eager(step, optimizer)
    one, other = (dict(found.state_dict()) for found in kept)
    for name in one:
        torch.testing.assert_close(one[name], other[name])


# ------------------------------------------------------------------------------------------ hooks


def _on_leaf(made: Any, heard: list[Any]) -> None:
    made[0].weight.register_hook(lambda gradient: heard.append("leaf") or gradient * 2)


def _behind_leaf(made: Any, heard: list[Any]) -> None:
    made[0].weight.register_post_accumulate_grad_hook(lambda one: heard.append("behind"))


def _on_accumulator(made: Any, heard: list[Any]) -> None:
    node = torch.autograd.graph.get_gradient_edge(made[0].weight).node
    made.node = node  # which nobody else keeps
    node.register_hook(lambda *_: heard.append("node"))


def _on_module(made: Any, heard: list[Any]) -> None:
    made[2].register_full_backward_hook(lambda *_: heard.append("module"))


@pytest.mark.parametrize("register", [_on_leaf, _behind_leaf, _on_accumulator, _on_module])
@pytest.mark.parametrize("later", [False, True], ids=["before", "between two steps"])
def test_hooks_are_heard(register: Callable[..., None], later: bool) -> None:
    """Those that come after a step was compiled, too."""
    worlds = []
    for _ in range(2):
        made, heard = model(), list[Any]()
        worlds.append((made, torch.optim.SGD(made.parameters(), lr=0.1), heard))

    def bound(made: Any, optimizer: Any, _: Any) -> Callable[..., Any]:
        return lambda x, y: plain(made, optimizer, x, y)

    eager, compiled = bound(*worlds[0]), windfall.compile(bound(*worlds[1]))
    for number in range(4):
        if number == (2 if later else 0):
            for made, _, heard in worlds:
                register(made, heard)
        torch.manual_seed(number)
        x, y = torch.randn(16, 8), torch.randn(16, 1)
        same(eager(x, y), compiled(x, y), f"loss of step {number}")
        same(held(*worlds[0][:2]), held(*worlds[1][:2]), f"step {number}")
    assert worlds[0][2] == worlds[1][2] != []
    assert breaks(compiled)


# ------------------------------------------------------------------------ what a user does between


def _freezes(made: Any, optimizer: Any) -> None:
    made[2].requires_grad_(False)


def _changes_groups(made: Any, optimizer: Any) -> None:
    optimizer.param_groups[0]["lr"] = 0.5
    optimizer.param_groups[0]["momentum"] = 0.5


def _adds_a_group(made: Any, optimizer: Any) -> None:
    optimizer.add_param_group({"params": [made.late], "lr": 0.01})


def _drops_a_gradient(made: Any, optimizer: Any) -> None:
    made[0].weight.grad = None


def _replaces_a_gradient(made: Any, optimizer: Any) -> None:
    made[0].weight.grad = torch.ones(8, 16).t()  # of another layout


def _replaces_a_parameter(made: Any, optimizer: Any) -> None:
    made[4].bias = nn.Parameter(torch.ones(1))


def _loads_state(made: Any, optimizer: Any) -> None:
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))


BETWEEN = [
    _freezes,
    _changes_groups,
    _adds_a_group,
    _drops_a_gradient,
    _replaces_a_gradient,
    _replaces_a_parameter,
    _loads_state,
]


@pytest.mark.filterwarnings("ignore:grad and param do not obey the gradient layout contract")
@pytest.mark.parametrize("accumulates", [False, True])
@pytest.mark.parametrize("change", BETWEEN, ids=lambda one: one.__name__.strip("_"))
def test_what_happens_between_two_steps_is_noticed(
    change: Callable[..., None], accumulates: bool
) -> None:
    worlds = []
    for _ in range(2):
        made: Any = model()
        made.late = nn.Parameter(torch.ones(3))
        first = [one for name, one in made.named_parameters() if name != "late"]
        worlds.append((made, torch.optim.SGD(first, lr=0.1, momentum=0.9)))

    def step(made: Any, optimizer: Any, x: Any, y: Any) -> Any:
        if not accumulates:
            optimizer.zero_grad()
        loss = F.mse_loss(made[4](made[3](made[2](made[1](made[0](x))))), y) + made.late.sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    def bound(made: Any, optimizer: Any) -> Callable[..., Any]:
        return lambda x, y: step(made, optimizer, x, y)

    eager, compiled = bound(*worlds[0]), windfall.compile(bound(*worlds[1]))
    for number in range(5):
        if number == 3:
            for world in worlds:
                change(*world)
        torch.manual_seed(number)
        x, y = torch.randn(16, 8), torch.randn(16, 1)
        same(eager(x, y), compiled(x, y), f"loss of step {number}")
        same(held(*worlds[0]), held(*worlds[1]), f"step {number}")
    warns = accumulates and change is _replaces_a_gradient
    assert breaks(compiled) == {60} if warns else in_one_graph(compiled)


def test_gradients_are_the_same_objects_where_they_are_added_to() -> None:
    made = model()
    compiled = windfall.compile(lambda x: made(x).sum().backward())
    compiled(torch.ones(2, 8))
    before = [one.grad for one in made.parameters()]
    compiled(torch.ones(2, 8))
    assert all(one.grad is its for one, its in zip(made.parameters(), before, strict=True))
    assert in_one_graph(compiled)


def test_gradients_that_nobody_sees_are_no_results() -> None:
    """They are None before the step and behind it: the graph has one result."""
    made = model()
    optimizer = torch.optim.SGD(made.parameters(), lr=0.1)

    def step(x: torch.Tensor) -> torch.Tensor:
        loss = made(x).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    compiled = windfall.compile(step)
    compiled(torch.ones(2, 8))
    (capture,) = windfall.explanation(compiled).graphs
    (output,) = capture.graph.find_nodes(op="output")
    assert len(output.args[0]) == 1
    assert in_one_graph(compiled)


def test_a_history_from_outside_goes_on_there() -> None:
    """The engine does the pass; what was made before the graph gets its gradient."""
    losses = []
    for compile in (lambda one: one, windfall.compile):
        made = model()
        torch.manual_seed(1)
        before = nn.Linear(8, 8)

        def step(hidden: torch.Tensor, made: Any = made) -> torch.Tensor:
            loss = made(hidden).sum()
            loss.backward()
            return loss.detach()

        compiled = compile(step)
        found = compiled(before(torch.ones(2, 8)))
        losses.append((found, before.weight.grad, [one.grad for one in made.parameters()]))
    same(losses[0], losses[1], "gradients")
    assert breaks(compiled) == {60}


def test_a_leaf_that_gets_a_history_is_noticed() -> None:
    made: Any = nn.ParameterDict({"weight": torch.ones(3)})
    held_by: dict[str, Any] = {"weight": made["weight"]}

    def step() -> torch.Tensor:
        loss = (held_by["weight"] * 2).sum()
        loss.backward()
        return loss.detach()

    compiled = windfall.compile(step)
    compiled()
    assert made["weight"].grad.tolist() == [2.0] * 3
    held_by["weight"] = made["weight"] * 3  # a result, of the same type
    compiled()
    assert made["weight"].grad.tolist() == [8.0] * 3
