"""Rates that change: a step whose optimizer has a schedule is one graph, and settles.

A schedule wraps `optimizer.step` in a function that asks a weak reference, behind the gradients
that were written: what is held all the while is no break. Rates, and the coefficients that
OneCycleLR turns, are floats that vary: nothing is compiled after the third step.
"""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler as schedules
from torch.optim.swa_utils import SWALR

import windfall
from tests.training.differences import difference

Made = tuple[nn.Module, torch.optim.Optimizer, Any]


def _settings(name: str) -> tuple[Callable[..., Any], dict[str, Any]]:
    return {
        "SGD": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
        "Adam": (torch.optim.Adam, {"lr": 1e-3}),
        "AdamW": (torch.optim.AdamW, {"lr": 1e-3}),
        "AdamW, foreach": (torch.optim.AdamW, {"lr": 1e-3, "foreach": True}),
    }[name]


SCHEDULES: dict[str, Callable[[Any], Any]] = {
    "steps": lambda one: schedules.StepLR(one, 3, gamma=0.5),
    "cosine": lambda one: schedules.CosineAnnealingLR(one, 40),
    "exponential": lambda one: schedules.ExponentialLR(one, 0.9),
    "one cycle": lambda one: schedules.OneCycleLR(one, 0.1, total_steps=40),
    "warm, then cosine": lambda one: schedules.SequentialLR(
        one,
        [schedules.LinearLR(one, 0.1, total_iters=4), schedules.CosineAnnealingLR(one, 30)],
        milestones=[4],
    ),
}


def _made(optimizer: str, schedule: str) -> Made:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    cls, settings = _settings(optimizer)
    made = cls(model.parameters(), **settings)
    return model, made, SCHEDULES[schedule](made)


def _losses(made: Made, compiles: bool) -> tuple[list[float], list[int], Any]:
    model, optimizer, schedule = made

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    run: Any = windfall.compile(step) if compiles else step
    losses, graphs = [], []
    for turn in range(10):
        torch.manual_seed(turn)
        x, y = torch.randn(5, 8), torch.randint(0, 4, (5,))
        losses.append(run(x, y).item())
        schedule.step()
        if compiles:
            graphs.append(windfall.explanation(run).to_dict()["graph_count"])
    return losses, graphs, run


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "AdamW", "AdamW, foreach"])
def test_a_scheduled_step_is_one_graph_and_settles(optimizer: str, schedule: str) -> None:
    wanted, _, _ = _losses(_made(optimizer, schedule), False)
    found, graphs, run = _losses(_made(optimizer, schedule), True)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)
    told = windfall.explanation(run).to_dict()
    assert told["break_count"] == 0, windfall.explanation(run)
    # StepLR changes the rate for the first time after the third step.
    settled = 5 if schedule == "steps" else 3
    assert graphs[settled] == graphs[-1], graphs


# ------------------------------------------------------------------------------------ inside steps

INSIDE: dict[str, Callable[[Any], Any]] = {
    **SCHEDULES,
    "constant": lambda one: schedules.ConstantLR(one, 0.5, 3),
    "linear": lambda one: schedules.LinearLR(one, 0.5, 1.0, 4),
    "milestones": lambda one: schedules.MultiStepLR(one, [2, 4], 0.3),
    "polynomial": lambda one: schedules.PolynomialLR(one, 6, 2.0),
    "restarts": lambda one: schedules.CosineAnnealingWarmRestarts(one, 3),
    "cycle": lambda one: schedules.CyclicLR(one, 0.01, 0.05, 2, cycle_momentum=False),
    "averaging": lambda one: SWALR(one, 0.02, 3),
    "function": lambda one: schedules.LambdaLR(one, lambda epoch: 1 / (1 + epoch)),
    "chain": lambda one: schedules.ChainedScheduler(
        [schedules.ConstantLR(one, 0.5, 2), schedules.ExponentialLR(one, 0.9)]
    ),
}


def _state(schedule: Any) -> dict[str, Any]:
    plain = (int, float, bool)
    return {
        key: value
        for key, value in vars(schedule).items()
        if all(isinstance(one, plain) for one in (value if isinstance(value, list) else [value]))
    }


def _beside_eager(
    make: Callable[[Any], Any],
    behind: Callable[[nn.Module, Any, Any], Any] = lambda *_: None,
    optimizer: str = "AdamW",
    steps: int = 8,
    settings: dict[str, Any] | None = None,
) -> Any:
    """Steps with a schedule inside, and what stands behind it there; compiled and not."""
    runs = []
    for compiles in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
        cls, given = _settings(optimizer)
        made = cls(model.parameters(), **copy.deepcopy(given | (settings or {})))
        schedule = make(made)

        def step(
            x: torch.Tensor, model: Any = model, made: Any = made, schedule: Any = schedule
        ) -> Any:
            model(x).pow(2).mean().backward()
            made.step()
            schedule.step()
            made.zero_grad()
            return behind(model, made, schedule)

        run: Any = windfall.compile(step) if compiles else step
        runs.append((model, made, schedule, run))
    (_, _, _, reference), (_, _, _, compiled) = runs
    for turn in range(steps):
        torch.manual_seed(turn)
        x = torch.randn(5, 8)
        answers = []
        for one in (reference, compiled):
            try:
                answers.append(one(x))
            except (ValueError, KeyError) as error:
                answers.append(str(error))
        assert difference(*answers, f"step {turn}", 1e-5) == ""
        seen = [
            (dict(model.named_parameters()), made.state_dict(), _state(schedule))
            for model, made, schedule, _ in runs
        ]
        assert difference(*seen, f"after step {turn}", 1e-5) == ""
    return windfall.explanation(compiled)


@pytest.mark.parametrize("schedule", INSIDE)
def test_a_schedule_in_the_step_is_no_break_and_settles(schedule: str) -> None:
    told = _beside_eager(INSIDE[schedule])
    assert not told.breaks and not told.eager and not told.fallbacks
    assert len(told.captures) == 3  # state is made, the rate varies


def test_a_rate_in_a_tensor_is_written_behind_the_graph() -> None:
    told = _beside_eager(INSIDE["cosine"], optimizer="SGD", settings={"lr": torch.tensor(0.1)})
    assert not told.breaks and not told.eager and not told.fallbacks


def test_what_stands_behind_a_schedule_is_in_the_graph() -> None:
    def decay(model: nn.Module, made: Any, schedule: Any) -> Any:
        with torch.no_grad():
            for one in model.parameters():
                one.mul_(0.99)
        return len(made.param_groups[0]["params"])

    told = _beside_eager(INSIDE["one cycle"], decay)
    assert not told.breaks and not told.eager


READS: dict[str, Callable[[nn.Module, Any, Any], Any]] = {
    "the rate": lambda model, made, schedule: made.param_groups[0]["lr"],
    "all options": lambda model, made, schedule: dict(made.param_groups[0], params=None),
    "how many options": lambda model, made, schedule: len(made.param_groups[0]),
    "get": lambda model, made, schedule: made.param_groups[0].get("lr", 0),
    "values": lambda model, made, schedule: [
        one for one in made.param_groups[0].values() if isinstance(one, float)
    ],
    "the count": lambda model, made, schedule: schedule.last_epoch,
    "the last rate": lambda model, made, schedule: schedule.get_last_lr(),
    "its dictionary": lambda model, made, schedule: sorted(vars(schedule)),
    "its state": lambda model, made, schedule: schedule.state_dict()["last_epoch"],
    "a second step": lambda model, made, schedule: schedule.step(),
    "one step of the optimizer more": lambda model, made, schedule: made.step(),
    "a write": lambda model, made, schedule: made.param_groups[0].update(lr=0.01),
    "a product": lambda model, made, schedule: made.param_groups[0]["lr"] * torch.ones(2),
}


@pytest.mark.parametrize("name", READS)
def test_who_looks_at_what_a_schedule_wrote_sees_it(name: str) -> None:
    assert _beside_eager(INSIDE["cosine"], READS[name]).breaks or name == "how many options"


def test_beyond_its_end_a_schedule_raises_before_what_follows() -> None:
    def decay(model: nn.Module, made: Any, schedule: Any) -> None:
        with torch.no_grad():
            for one in model.parameters():
                one.mul_(0.99)

    told = _beside_eager(lambda one: schedules.OneCycleLR(one, 0.1, total_steps=5), decay)
    assert 61 in {one.number for one in told.breaks}


@pytest.mark.parametrize("schedule", ["steps", "one cycle", "warm, then cosine"])
def test_older_than_a_group_a_schedule_raises_before_what_follows(schedule: str) -> None:
    def grow(model: nn.Module, made: Any, schedule: Any) -> int:
        if len(made.param_groups) == 1:
            made.add_param_group({"params": [nn.Parameter(torch.ones(2))]})
        with torch.no_grad():
            for one in model.parameters():
                one.mul_(0.99)
        return len(made.param_groups)

    told = _beside_eager(INSIDE[schedule], grow)
    assert 61 in {one.number for one in told.breaks}


class _Own(schedules.StepLR):
    """Looks at a parameter."""

    def get_lr(self) -> list[float]:  # type: ignore[override]
        parameter = self.optimizer.param_groups[0]["params"][0]
        return [0.01 + abs(float(parameter.detach().sum())) * 1e-3]


def _patched(optimizer: Any) -> Any:
    made = schedules.StepLR(optimizer, 2)
    parameter = optimizer.param_groups[0]["params"][0]
    made.get_lr = lambda: [0.01 + abs(float(parameter.detach().sum())) * 1e-3]  # type: ignore[method-assign, assignment, return-value]
    return made


def _scaled(optimizer: Any) -> Any:
    parameter = optimizer.param_groups[0]["params"][0]
    return schedules.CyclicLR(
        optimizer,
        0.01,
        0.05,
        2,
        cycle_momentum=False,
        scale_fn=lambda _: abs(float(parameter.detach().sum())),
    )


@pytest.mark.parametrize("make", [_Own, _patched, _scaled], ids=["class", "object", "scale"])
def test_functions_of_the_users_are_called_where_the_program_stands(
    make: Callable[[Any], Any],
) -> None:
    """What follows in the program has not happened yet."""

    def decay(model: nn.Module, made: Any, schedule: Any) -> None:
        with torch.no_grad():
            for one in model.parameters():
                one.mul_(0.5)

    def made(one: Any) -> Any:
        return make(one, 2) if make is _Own else make(one)

    assert _beside_eager(made, decay).breaks


def test_the_schedule_is_told_of_the_step() -> None:
    _, optimizer, schedule = made = _made("SGD", "steps")
    _losses(made, True)
    assert optimizer._opt_called is True  # type: ignore[attr-defined]
    assert schedule.last_epoch == 10


# ------------------------------------------------------------------ weak references behind writes


class Held:
    """What a weak reference leads to."""

    number = 2.0


class Box:
    """A plain object with an attribute."""

    def __init__(self, held: Any) -> None:
        self.held = held


KEPT = Held()


def _asked(reference: Any, x: torch.Tensor) -> Any:
    found = reference()
    return None if found is None else x * found.number


def by_global() -> tuple[Any, ...]:
    return (weakref.ref(KEPT), {})


def in_box() -> tuple[Any, ...]:
    box = Box(Held())
    return (weakref.ref(box.held), {}, box)


def in_list() -> tuple[Any, ...]:
    reference, log, box = in_box()
    return (reference, log, [box])


def of_global(reference: Any, log: Any, x: torch.Tensor) -> Any:
    log["asked"] = KEPT.number
    return _asked(reference, x)


def of_attribute(reference: Any, log: Any, box: Any, x: torch.Tensor) -> Any:
    log["asked"] = box.held.number
    return _asked(reference, x)


def ended(reference: Any, log: Any, box: Any, x: torch.Tensor) -> Any:
    log["asked"] = box.held.number
    box.held = None
    return _asked(reference, x)


def ended_and_another(reference: Any, log: Any, box: Any, x: torch.Tensor) -> Any:
    log["asked"] = box.held.number
    box.held = Held()
    return _asked(reference, x)


def ended_by_name(reference: Any, log: Any, box: Any, x: torch.Tensor) -> Any:
    log["asked"] = box.held.number
    del box.__dict__["held"]
    return _asked(reference, x)


def ended_with_its_box(reference: Any, log: Any, boxes: Any, x: torch.Tensor) -> Any:
    log["asked"] = boxes[0].held.number
    boxes.clear()
    return _asked(reference, x)


def ended_with_the_variable(reference: Any, log: Any, box: Any, x: torch.Tensor) -> Any:
    log["asked"] = box.held.number
    del box
    return _asked(reference, x)


# A program that writes, then asks; how its arguments are made, for each call anew.
WAYS: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]] = {
    "a global holds it": (of_global, by_global),
    "an attribute holds it": (of_attribute, in_box),
    "an attribute is written": (ended, in_box),
    "an attribute is written with another": (ended_and_another, in_box),
    "an attribute is deleted": (ended_by_name, in_box),
    "its holder goes": (ended_with_its_box, in_list),
    "the variable of its holder goes": (ended_with_the_variable, in_box),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_weak_reference_behind_a_write(way: str) -> None:
    program, make = WAYS[way]
    compiled = windfall.compile(program)
    x = torch.ones(2)
    gc.disable()
    try:
        for _ in range(3):
            # The call is the only one that holds what was made for it.
            wanted = program(*make(), x)
            found = compiled(*make(), x)
            assert (found is None) == (wanted is None)
            if found is not None:
                assert torch.equal(found, wanted)
    finally:
        gc.enable()
    told = windfall.explanation(compiled).to_dict()
    if way in ("a global holds it", "an attribute holds it"):
        assert told["break_count"] == 0, windfall.explanation(compiled)
