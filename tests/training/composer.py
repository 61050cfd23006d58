"""Random training loops, compiled in four ways, beside eager.

    python -m tests.training.composer 500 --seed 1000 [--ways step engine model update]

A program is put together from a model, an optimizer with its options and groups, a schedule
(outside of the step or inside), clipping, micro-batches, a scaler, an average of the weights, a way
to zero gradients, one to differentiate, what is returned, hooks, and what a user changes between
two steps (`tests/conformance/optimizer_changes.py`, and what is done to models and gradients here).
The seed alone says which: `--show` prints it. Compared after each of seven steps is all that a user
sees.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import random
import sys
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import lr_scheduler
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn
from torch.utils.checkpoint import checkpoint

import windfall
from tests.conformance.optimizer_changes import CHANGES, seen
from tests.training.differences import difference
from tests.training.loops import Loop, Ways, numbers
from tests.training.ways import COMPILED, pair
from windfall import backward

STEPS = 7
CLOSE = 1e-4
OF_HALVES = 2e-2  # where some of the model is bfloat16
OF_DIFFERENCES = 1e-3  # where squares less a squared mean are divided by

_WAYS: dict[str, list[Any]] = {"foreach": [None, True, False]}
_PLAIN: dict[str, list[Any]] = {**_WAYS, "weight_decay": [0, 0.1], "maximize": [False, True]}
_FUSED: dict[str, list[Any]] = {"fused": [True], "weight_decay": [0, 0.1]}
# Class, rate, options with the values that they may have.
OPTIMIZERS: dict[str, tuple[str, float, dict[str, list[Any]]]] = {
    "SGD": ("SGD", 0.05, {**_PLAIN, "momentum": [0, 0.9]}),
    "SGD, Nesterov": ("SGD", 0.05, {**_WAYS, "momentum": [0.9], "nesterov": [True]}),
    "SGD, fused": ("SGD", 0.05, {**_FUSED, "momentum": [0, 0.9]}),
    "SGD, differentiable": ("SGD", 0.01, {"differentiable": [True], "momentum": [0, 0.9]}),
    "Adam": ("Adam", 1e-2, {**_PLAIN, "amsgrad": [False, True]}),
    "Adam, fused": ("Adam", 1e-2, {**_FUSED, "amsgrad": [False, True]}),
    "AdamW": ("AdamW", 1e-2, {**_PLAIN, "betas": [(0.9, 0.999), (0.5, 0.9)]}),
    "AdamW, fused": ("AdamW", 1e-2, _FUSED),
    "Adamax": ("Adamax", 1e-2, _PLAIN),
    "NAdam": ("NAdam", 1e-2, {**_PLAIN, "decoupled_weight_decay": [False, True]}),
    "RAdam": ("RAdam", 1e-2, _PLAIN),
    "RMSprop": ("RMSprop", 1e-2, {**_PLAIN, "momentum": [0, 0.9], "centered": [False, True]}),
    "Rprop": ("Rprop", 1e-2, _WAYS),
    "Adagrad": ("Adagrad", 1e-2, {**_PLAIN, "lr_decay": [0, 0.1]}),
    "Adadelta": ("Adadelta", 1.0, _PLAIN),
    "ASGD": ("ASGD", 1e-2, {**_WAYS, "t0": [3]}),
    "Adafactor": ("Adafactor", 1e-2, _WAYS),
}
SCHEDULES: dict[str, Callable[[Any], Any]] = {
    "steps": lambda one: lr_scheduler.StepLR(one, 2, 0.5),
    "milestones": lambda one: lr_scheduler.MultiStepLR(one, [2, 4], 0.3),
    "exponential": lambda one: lr_scheduler.ExponentialLR(one, 0.9),
    "cosine": lambda one: lr_scheduler.CosineAnnealingLR(one, 5),
    "restarts": lambda one: lr_scheduler.CosineAnnealingWarmRestarts(one, 3),
    "linear": lambda one: lr_scheduler.LinearLR(one, 0.5, 1.0, 4),
    "polynomial": lambda one: lr_scheduler.PolynomialLR(one, 6, 2.0),
    "function": lambda one: lr_scheduler.LambdaLR(one, lambda epoch: 1 / (1 + epoch)),
    "sequence": lambda one: lr_scheduler.SequentialLR(
        one, [lr_scheduler.LinearLR(one, 0.5, 1.0, 2), lr_scheduler.ExponentialLR(one, 0.9)], [2]
    ),
    "chain": lambda one: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(one, 0.5, 2), lr_scheduler.ExponentialLR(one, 0.9)]
    ),
    "one cycle": lambda one: lr_scheduler.OneCycleLR(
        one, 0.05, total_steps=20, cycle_momentum="betas" in one.defaults
    ),
    "cycle": lambda one: lr_scheduler.CyclicLR(one, 0.01, 0.05, 2, cycle_momentum=False),
    "averaging": lambda one: SWALR(one, 0.02, 3),
}
# What becomes of an optimizer between steps and is no business of these loops: gradients that these
# make themselves, kernels of eager that read beyond what is too small, numbers that explode.
_LEFT_OUT = {
    *("other_shape", "parameter_twice", "pickled_state", "gradients_sparse", "gradients_attached"),
    *("gradient_none", "gradients_none", "gradients_strided", "gradients_infinite"),
    *(
        "gradient_is_the_parameter",
        "scaled",
        "scaled_infinite",
        "replaced_by_equal",
        "state_shared",
    ),
    *("halves", "steps_of_one_element", "needs_gradient", "defaults_switched"),
    *("differentiable_switched", "all_moved_to_double", "moved_to_double", "doubles"),
    *("rate_nan", "rate_of_one_element", "rate_negative", "betas_tensors"),
}


class Net(nn.Module):
    """A small model of one of `MODELS`."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 3)
        if kind == "tied":
            self.back, self.again = nn.Linear(6, 4), nn.Linear(4, 6)
            self.again.weight = self.first.weight
        elif kind == "norm":
            self.norm = nn.BatchNorm1d(6)
        elif kind == "words":
            self.words = nn.Embedding(7, 4, padding_idx=0)
        elif kind == "odd":
            self.scalar = nn.Parameter(torch.tensor(0.5))
            self.empty, self.unused = nn.Parameter(torch.empty(0, 3)), nn.Parameter(torch.ones(2))
            self.turned = nn.Parameter(torch.randn(6, 6).t())
        elif kind == "mixed":
            self.wide = nn.Parameter(torch.randn(3, dtype=torch.float64))
            self.narrow = nn.Parameter(torch.randn(3).bfloat16())
        elif kind == "many":
            self.many = nn.ParameterList(nn.Parameter(torch.randn(3)) for _ in range(12))
        elif kind == "checkpoint":
            self.inner = nn.Sequential(nn.Linear(6, 6), nn.GELU(), nn.Dropout(0.2), nn.Linear(6, 6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.kind == "words":
            x = x + self.words((x[:, 0].abs() * 3).long().clamp(0, 6))
        hidden = torch.tanh(self.first(x))
        if self.kind in MODELS:
            hidden = MODELS[self.kind](self, hidden)
        found: torch.Tensor = self.last(hidden)
        if self.kind == "mixed":
            return (found * self.wide + self.narrow).float()
        for one in self.many if self.kind == "many" else ():
            found = found * one.sigmoid()
        return found


MODELS: dict[str, Callable[[Any, torch.Tensor], torch.Tensor]] = {
    "plain": lambda net, x: x,
    "tied": lambda net, x: x + torch.tanh(net.again(net.back(x))),
    "norm": lambda net, x: F.dropout(net.norm(x), 0.1, net.training),
    "words": lambda net, x: x,
    "odd": lambda net, x: x @ net.turned * net.scalar + net.empty.sum(),
    "mixed": lambda net, x: x,
    "many": lambda net, x: x,
    "checkpoint": lambda net, x: checkpoint(net.inner, x, use_reentrant=False),
}

# ------------------------------------------------------------------------------ between two steps

Event = Callable[["Program"], None]
EVENTS: dict[str, Event] = {}


def event(made: Event) -> Event:
    """A row of the table."""
    EVENTS[made.__name__] = made
    return made


def _of_optimizer(name: str) -> Event:
    return lambda program: CHANGES[name](program.optimizer)


for _name in CHANGES.keys() - _LEFT_OUT:
    EVENTS[_name] = _of_optimizer(_name)


@event
def last_frozen(program: Program) -> None:
    """Or thawed."""
    last = list(program.model.parameters())[-1]
    last.requires_grad_(not last.requires_grad)


@event
def model_loaded(program: Program) -> None:
    state = program.model.state_dict()
    program.model.load_state_dict(
        {key: one * 0.9 if one.is_floating_point() else one for key, one in state.items()}
    )


@event
def model_assigned(program: Program) -> None:
    state = {key: one.clone() for key, one in program.model.state_dict().items()}
    program.model.load_state_dict(state, assign=True)


@event
def mode_switched(program: Program) -> None:
    program.model.train(not program.model.training)


@event
def gradient_dropped(program: Program) -> None:
    list(program.model.parameters())[1].grad = None


@event
def gradient_written(program: Program) -> None:
    one = list(program.model.parameters())[1]
    one.grad = torch.full_like(one, 0.1)


@event
def gradient_in_a_buffer(program: Program) -> None:
    one = next(program.model.parameters())
    base = torch.zeros(one.numel() + 2, dtype=one.dtype)
    one.grad = base[1:-1].view(one.shape)
    program.held.append(base)


@event
def gradient_turned(program: Program) -> None:
    one = next(program.model.parameters())
    one.grad = torch.full(one.shape[::-1], 0.1).t()


@event
def gradients_zeroed(program: Program) -> None:
    program.optimizer.zero_grad(set_to_none=False)


@event
def gradient_infinite(program: Program) -> None:
    one = next(program.model.parameters())
    one.grad = torch.full_like(one, float("inf"))


@event
def hook_added(program: Program) -> None:
    program.handles.append(next(program.model.parameters()).register_hook(lambda one: one * 0.5))


@event
def hook_removed(program: Program) -> None:
    if program.handles:
        program.handles.pop().remove()


# ------------------------------------------------------------------------------------- the program

_PARTS: dict[str, list[str]] = {
    "model": [*MODELS, "plain", "plain"],
    "optimizer": list(OPTIMIZERS),
    "groups": ["one", "one", "two", "named"],
    "schedule": list(SCHEDULES),
    "place": ["none", "outside", "inside"],
    "clip": ["none", "norm", "infinity", "one by one", "value", "by hand"],
    "micro": ["1", "1", "2", "3"],
    "scaler": ["no", "no", "no", "no", "no", "yes"],
    "average": ["none", "none", "none", "exponential", "plain", "by hand"],
    "zero": ["first", "last", "zeros first", "zeros last", "model", "never", "by hand"],
    "answer": ["loss", "number", "none", "gradients", "norm", "attached"],
    "hooks": ["none", "none", "none", "tensor", "accumulated", "before", "behind"],
    "style": [*["backward"] * 5, "grad", "closure", "twice", "two roots"],
}


def _optimizer(draw: random.Random, name: str, params: Any) -> tuple[torch.optim.Optimizer, Any]:
    cls, rate, options = OPTIMIZERS[name]
    chosen = {key: draw.choice(values) for key, values in options.items()}
    made: torch.optim.Optimizer = getattr(torch.optim, cls)(params, lr=rate, **chosen)
    return made, chosen


def _groups(how: str, model: nn.Module) -> Any:
    params = list(model.parameters())
    if how == "two":
        return [{"params": params[::2], "lr": 0.02}, {"params": params[1::2]}]
    return list(model.named_parameters()) if how == "named" else params


@dataclass
class _Looked:
    """What can be seen of an optimizer, as a state."""

    optimizer: torch.optim.Optimizer

    def state_dict(self) -> dict[str, Any]:
        return seen(self.optimizer)


@dataclass
class Program:
    """One of these loops."""

    seed: int
    ways: Ways
    held: list[Any] = field(default_factory=list)
    handles: list[Any] = field(default_factory=list)
    log: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        draw = random.Random(self.seed)
        self.parts = {name: draw.choice(values) for name, values in _PARTS.items()}
        self.events = {
            number: draw.choice(sorted(EVENTS)) for number in range(1, 6) if draw.random() < 0.6
        }
        parts = self.parts
        self.model = Net(parts["model"])
        self.optimizer, self.options = _optimizer(
            draw, parts["optimizer"], _groups(parts["groups"], self.model)
        )
        scales = parts["scaler"] == "yes" and not self.options.get("differentiable")
        self.scaler = (
            torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2) if scales else None
        )
        self.schedule = (
            SCHEDULES[parts["schedule"]](self.optimizer) if parts["place"] != "none" else None
        )
        self.average = self._average()
        self._hook()
        self.run = self.ways.model(self.model)
        update = self.optimizer.step
        self.update = self.ways.update(update)
        if self.scaler is not None and self.update is not update:
            self.optimizer.step = self.update  # type: ignore[method-assign]

    def _average(self) -> nn.Module | None:
        made: dict[str, Callable[[], nn.Module | None]] = {
            "none": lambda: None,
            "exponential": lambda: AveragedModel(
                self.model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True
            ),
            "plain": lambda: AveragedModel(self.model),
            "by hand": lambda: copy.deepcopy(self.model).requires_grad_(False),
        }
        return made[self.parts["average"]]()

    def _hook(self) -> None:
        first, second = list(self.model.parameters())[:2]
        log, optimizer = self.log, self.optimizer
        hooks: dict[str, Callable[[], Any]] = {
            "none": lambda: None,
            "tensor": lambda: first.register_hook(
                lambda one: (log.append(float(one.sum())), one * 2)[1]
            ),
            "accumulated": lambda: second.register_post_accumulate_grad_hook(
                lambda one: log.append(float(one.grad.sum()))  # type: ignore[union-attr]
            ),
            "before": lambda: optimizer.register_step_pre_hook(
                lambda one, *_: log.append(len(one.param_groups))
            ),
            "behind": lambda: optimizer.register_step_post_hook(
                lambda one, *_: log.append(float(one.param_groups[0]["lr"]))
            ),
        }
        hooks[self.parts["hooks"]]()

    # ------------------------------------------------------------------------------- the step

    def step(self, xs: list[torch.Tensor], ys: list[torch.Tensor]) -> Any:
        """What is compiled as a whole."""
        self._zero("first")
        norm = None
        if self.parts["style"] == "closure":
            loss = self.update(lambda: self._of_closure(xs[0], ys[0]))
        else:
            for x, y in zip(xs, ys, strict=True):
                loss = F.mse_loss(self.run(x), y) / len(xs)
                self._differentiate(loss)
            norm = self._clip()
            self._update()
        if self.schedule is not None and self.parts["place"] == "inside":
            self.schedule.step()
        self._note_average()
        answer = self._answer(loss, norm)
        self._zero("last")
        return answer

    def _of_closure(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = F.mse_loss(self.run(x), y)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    def _differentiate(self, loss: torch.Tensor) -> None:
        style = self.parts["style"]
        if style == "grad":
            live = [one for one in self.model.parameters() if one.requires_grad]
            found = torch.autograd.grad(loss, live, allow_unused=True)
            for one, slope in zip(live, found, strict=True):
                if slope is not None:
                    one.grad = slope if one.grad is None else one.grad + slope
        elif style == "twice":
            loss.backward(retain_graph=True)  # type: ignore[no-untyped-call]
            (loss * 0.5).backward()  # type: ignore[no-untyped-call]
        elif style == "two roots":
            torch.autograd.backward([loss, loss * 2])
        else:
            whole = loss if self.scaler is None else self.scaler.scale(loss)
            whole.backward()  # type: ignore[no-untyped-call]

    def _clip(self) -> torch.Tensor | None:
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        how, params = self.parts["clip"], list(self.model.parameters())
        if how == "value":
            nn.utils.clip_grad_value_(params, 0.05)
        elif how == "by hand":
            for one in params:
                if one.grad is not None:
                    one.grad.clamp_(-0.05, 0.05)
        elif how != "none":
            kind = float("inf") if how == "infinity" else 2.0
            foreach = False if how == "one by one" else None
            return nn.utils.clip_grad_norm_(params, 0.1, norm_type=kind, foreach=foreach)
        return None

    def _update(self) -> None:
        if self.scaler is None:
            self.update()
        else:
            self.scaler.step(self.optimizer)
            self.scaler.update()

    def _note_average(self) -> None:
        if isinstance(self.average, AveragedModel):
            self.average.update_parameters(self.model)
        elif self.average is not None:
            with torch.no_grad():
                pairs = zip(self.average.parameters(), self.model.parameters(), strict=True)
                for mine, one in pairs:
                    mine.lerp_(one.to(mine.dtype), 0.1)

    def _answer(self, loss: torch.Tensor, norm: torch.Tensor | None) -> Any:
        kind = self.parts["answer"]
        if kind == "number":
            return loss.item()
        if kind == "gradients":
            return [one.grad for one in self.model.parameters()]
        return {"loss": loss.detach(), "attached": loss, "norm": norm}.get(kind)

    def _zero(self, place: str) -> None:
        how = self.parts["zero"]
        if how == place:
            self.optimizer.zero_grad()
        elif how == f"zeros {place}":
            self.optimizer.zero_grad(set_to_none=False)
        elif place == "last" and how == "model":
            self.model.zero_grad()
        elif place == "last" and how == "by hand":
            for one in self.model.parameters():
                one.grad = None

    # ----------------------------------------------------------------------------- the loop

    def loop(self) -> Loop:
        """With its batches, of which one is of another size."""
        count = int(self.parts["micro"])

        def batch(number: int) -> tuple[Any, ...]:
            size = 4 if number == 3 and self.seed % 3 == 0 else 5
            return (
                [numbers(10 * number + one, size, 4) for one in range(count)],
                [numbers(1000 + 10 * number + one, size, 3) for one in range(count)],
            )

        modules = [self.model] + ([] if self.average is None else [self.average])
        made = Loop(
            self.ways.step(self.step),
            batch,
            modules,
            [],  # whose own word for it raises where a parameter was taken away
            [_Looked(self.optimizer), *([] if self.scaler is None else [self.scaler])],
            before=self._before,
            after=self._after,
        )
        made.extra = {"log": self.log, "gradients held": self.held}
        return made

    def _before(self, number: int) -> None:
        if number in self.events:
            EVENTS[self.events[number]](self)
        self.held[:] = [one.grad for one in self.model.parameters()]

    def _after(self, number: int) -> None:
        if self.schedule is not None and self.parts["place"] == "outside":
            self.schedule.step()
        held = zip(self.model.parameters(), self.held, strict=False)
        self.log.append([one.grad is other for one, other in held])


@dataclass
class Outcome:
    """What became of a program in one of the ways."""

    wrong: str = ""
    parts: str = ""
    how: str = ""


def _taken(loop: Loop, number: int) -> tuple[Any, str, torch.Tensor]:
    """A step: what it answers or raises, and where the generator stands then."""
    torch.manual_seed(number)
    found, raised = None, ""
    try:
        loop.before(number)
        found = loop.step(*loop.batch(number))
        loop.after(number)
    except Exception as error:
        raised = type(error).__name__
    return found, raised, torch.get_rng_state()


def check(seed: int, way: str) -> Outcome:
    """A program beside eager."""
    backward.forget()
    program, copied, functions = pair(lambda ways: Program(seed, ways), way, seed)
    outcome = Outcome(parts=f"{program.parts} {program.options} {program.events}")
    eager, other = program.loop(), copied.loop()
    close = OF_DIFFERENCES if program.options.get("centered") else CLOSE
    close = OF_HALVES if program.parts["model"] == "mixed" else close
    passes: Any = windfall.compiled_autograd() if COMPILED[way].takes_over else None
    for number in range(STEPS):
        wanted = _taken(eager, number)
        with contextlib.nullcontext() if passes is None else passes:
            found = _taken(other, number)
        outcome.wrong = difference(
            wanted, found, f"step {number}, result and gradients", close
        ) or difference(eager.seen(), other.seen(), f"after step {number}", close)
        if outcome.wrong:
            break
    told = [windfall.explanation(one) for one in functions]
    outcome.how = (
        f"captures {sum(len(one.captures) for one in told)}, "
        f"breaks {sorted({each.number for one in told for each in one.breaks})}, "
        f"fall-backs {[str(each)[:60] for one in told for each in one.fallbacks][:3]}"
    )
    return outcome


def main(arguments: list[str] | None = None) -> int:
    """Print what differs; not 0 if anything does."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ways", nargs="+", default=list(COMPILED))
    parser.add_argument("--show", action="store_true", help="each program, and how it ran")
    given = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    wrong = 0
    for seed in range(given.seed, given.seed + given.count):
        way = given.ways[seed % len(given.ways)]
        try:
            outcome = check(seed, way)
        except Exception as error:  # of the program itself, before its first step
            outcome = Outcome("".join(traceback.format_exception(error)[-3:]))
        wrong += bool(outcome.wrong)
        if outcome.wrong or given.show:
            print(
                f"{seed} {way}: {outcome.wrong[:700] or 'equal'}\n    {outcome.parts}", flush=True
            )
            print(f"    {outcome.how}", flush=True)
        if seed % 20 == 19:
            windfall.reset()
    print(f"{given.count} programs, {wrong} differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
