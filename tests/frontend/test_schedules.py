"""Rates that change: a step whose optimizer has a schedule is one graph, and settles.

A schedule wraps `optimizer.step` in a function that asks a weak reference, behind the gradients
that were written: what is held all the while is no break. Rates, and the coefficients that
OneCycleLR turns, are floats that vary: nothing is compiled after the third step.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler as schedules

import windfall

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
