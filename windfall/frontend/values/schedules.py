"""Schedules of rates (`torch.optim.lr_scheduler`): which steps are read, and which are effects.

Enters: calls of `step`. Leaves: the step, interpreted, where it decides nothing by its count; else
an effect, which calls it behind the graph; or the break W0061. Invariant: what is compiled for one
step is right for all. Most schedules look at the number of the epoch (`== 0`, `% step_size`, a
milestone): interpreted, each answer would be one more program of all that stands before it. As
an effect (ADR 0103) such a step is CPython's own, on the objects as they are then; what it writes
(the rates of the groups, the schedule itself) is not known in the rest of the segment, and whoever
looks at it is a break.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.optim import lr_scheduler, swa_utils

from windfall.frontend.breaks import SCHEDULE, stop
from windfall.frontend.values.base import Arguments, Keywords, Value
from windfall.frontend.values.calls import calls_of
from windfall.frontend.values.function import Function
from windfall.frontend.values.mapping import Dict
from windfall.frontend.values.objects import Object
from windfall.frontend.values.tensor import Tensor
from windfall.frontend.values.unseen import look

if TYPE_CHECKING:
    from windfall.frontend.services import Machine

# Whose steps look at a count, and run no code of the user's; with what they compute rates by.
_COUNTS: dict[type, Any] = {
    cls: getattr(cls, "get_lr", None)
    for cls in (
        lr_scheduler.ChainedScheduler,
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
        swa_utils.SWALR,
    )
}
# This one too may be a part of another.
_PARTS = {**_COUNTS, lr_scheduler.ExponentialLR: lr_scheduler.ExponentialLR.get_lr}
_STEPS = (
    lr_scheduler.LRScheduler.step,
    lr_scheduler.ChainedScheduler.step,
    lr_scheduler.CosineAnnealingWarmRestarts.step,
    lr_scheduler.ReduceLROnPlateau.step,
    lr_scheduler.SequentialLR.step,
)
_RATE = "lr"
_UNWRITTEN = frozenset({"params"})  # of a group, by a step of these
_OWN = frozenset({"optimizer"})  # of a schedule


def _step(machine: Machine, step: Function, arguments: Arguments, keywords: Keywords) -> Value:
    if not arguments or arguments[0].python_type() not in _COUNTS:
        return step.inline(machine, arguments, keywords)
    schedule = look(arguments[0])
    said = f"{schedule.describe()}.step()"
    if not isinstance(schedule, Object) or schedule.source is None or step.real is None:
        stop(SCHEDULE, said)
    parts = _all_parts(machine, schedule)
    if parts is None:
        if schedule.python_type() is lr_scheduler.ChainedScheduler:
            return step.inline(machine, arguments, keywords)  # one part after the other
        stop(SCHEDULE, f"{said}, of which a part is the user's")
    given = [*arguments[1:], *keywords.values()]
    if any(isinstance(look(one), Tensor) for one in given):
        stop(SCHEDULE, f"{said} of a tensor")  # which the graph may have written since
    for one in parts:
        _refuse_what_is_not_torchs(machine, one, said)
        _refuse_what_raises(machine, one, said)
        _hide_groups(machine, one)
        _hide(machine, one.attributes(machine), _OWN)
    places = ["{}"] * len(arguments) + [f"{name}={{}}" for name in keywords]
    known = machine.values.known(step.real, "step_of_schedule")
    machine.effects.add(f"{{}}({', '.join(places)})", known, *arguments, *keywords.values())
    return machine.values.literal(None)


def _all_parts(machine: Machine, schedule: Object) -> list[Object] | None:
    """A schedule behind those that it consists of; None: of some nothing is known."""
    found = []
    if "_schedulers" in (getattr(schedule.real, "__dict__", None) or {}):
        for one in schedule.get_attribute(machine, "_schedulers").unpack(machine):
            part = look(one)
            if not isinstance(part, Object) or part.python_type() not in _PARTS:
                return None
            parts = _all_parts(machine, part)
            if parts is None:
                return None
            found += parts
    return [*found, schedule]


def _refuse_what_is_not_torchs(machine: Machine, schedule: Object, said: str) -> None:
    """Functions of the user's may look at anything."""
    attributes = schedule.attributes(machine)
    if attributes is None or attributes.unseen:
        stop(SCHEDULE, f"{said}, the second one")
    rates = schedule.cls.find(machine, "get_lr")
    expected = _PARTS[schedule.python_type()]
    replaced = expected is not None and rates is not expected
    if replaced or attributes.lookup(machine, "get_lr") is not None:
        stop(SCHEDULE, f"{said} with a get_lr of its own")
    if schedule.python_type() is lr_scheduler.CyclicLR:
        custom = schedule.get_attribute(machine, "_scale_fn_custom")
        if not custom.is_constant() or custom.as_constant(machine) is not None:
            stop(SCHEDULE, f"{said} with a scale_fn")


def _refuse_what_raises(machine: Machine, schedule: Object, said: str) -> None:
    """What follows in the program has happened when the effect does: it may not raise."""
    if schedule.python_type() is lr_scheduler.OneCycleLR:
        last = schedule.get_attribute(machine, "last_epoch")
        over = last.compare(machine, ">=", schedule.get_attribute(machine, "total_steps"))
        if over is None or over.as_constant(machine):
            stop(SCHEDULE, f"{said}, beyond its end")
    groups = schedule.get_attribute(machine, "optimizer").get_attribute(machine, "param_groups")
    bases = _bases(machine, schedule)
    if bases is not None and len(groups.unpack(machine)) != len(bases):
        stop(SCHEDULE, f"{said}, older than a group")


def _bases(machine: Machine, schedule: Object) -> list[Value] | None:
    """The rates that it began with, one for each group that there was; None: it has none."""
    attributes = schedule.attributes(machine)
    found = None if attributes is None else attributes.lookup(machine, "base_lrs")
    return None if found is None else found.unpack(machine)


def _hide_groups(machine: Machine, schedule: Object) -> None:
    optimizer = schedule.get_attribute(machine, "optimizer")
    for one in optimizer.get_attribute(machine, "param_groups").unpack(machine):
        group = look(one)
        if not isinstance(group, Dict):
            stop(SCHEDULE, f"{schedule.describe()}.step() over {one.describe()}")
        if not group.unseen:
            rate = look(group.lookup(machine, _RATE) or machine.values.literal(None))
            if isinstance(rate, Tensor):
                machine.graph.write_late([rate.fake(machine)])
            _hide(machine, group, _UNWRITTEN)


def _hide(machine: Machine, table: Dict | None, but: frozenset[str]) -> None:
    """From here on nothing is known of the items of a dictionary, but of some."""
    assert table is not None
    before = table.unseen, table.seen

    def restore() -> None:
        table.unseen, table.seen = before

    machine.effects.undo(restore)
    table.unseen, table.seen = True, but


for _function in _STEPS:
    calls_of(_function)(_step)
