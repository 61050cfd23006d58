"""Schedules of rates (`torch.optim.lr_scheduler`): which steps are read, and which are CPython's.

Enters: calls of `step`. Leaves: the step, interpreted, or the break W0061. Invariant: a step that
is interpreted decides nothing by its count: what is compiled for one is right for all. The others
look at the number of the epoch (`== 0`, `% step_size`, a milestone): interpreted, each of them
would be one more program of all that stands before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.optim import lr_scheduler

from windfall.frontend.breaks import SCHEDULE, stop
from windfall.frontend.values.base import Arguments, Keywords, Value
from windfall.frontend.values.calls import calls_of
from windfall.frontend.values.function import Function

if TYPE_CHECKING:
    from windfall.frontend.services import Machine

_COUNTS = frozenset(
    {
        lr_scheduler.ConstantLR,
        lr_scheduler.CosineAnnealingLR,
        lr_scheduler.CosineAnnealingWarmRestarts,
        lr_scheduler.CyclicLR,
        lr_scheduler.LinearLR,
        lr_scheduler.MultiStepLR,
        lr_scheduler.OneCycleLR,
        lr_scheduler.PolynomialLR,
        lr_scheduler.ReduceLROnPlateau,
        lr_scheduler.SequentialLR,
        lr_scheduler.StepLR,
    }
)
_STEPS = (
    lr_scheduler.LRScheduler.step,
    lr_scheduler.CosineAnnealingWarmRestarts.step,
    lr_scheduler.ReduceLROnPlateau.step,
    lr_scheduler.SequentialLR.step,
)


def _step(machine: Machine, step: Function, arguments: Arguments, keywords: Keywords) -> Value:
    if arguments and arguments[0].python_type() in _COUNTS:
        stop(SCHEDULE, f"{arguments[0].describe()}.step()")
    return step.inline(machine, arguments, keywords)


for _function in _STEPS:
    calls_of(_function)(_step)
