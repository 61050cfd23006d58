"""What a user changes of an optimizer between two steps, for every optimizer of torch's: the
compiled step goes on as eager's does.

    python -m tests.conformance.optimizer_changes [Adam SGD …] [--change popped …] [--chunk 1/4]

Each optimizer runs in each of its ways (for-loop, foreach, fused), plain and with its options. A
change is made behind the second step and again behind the fourth, so what is a switch is thrown
back. Compared after each step: the exception (class and text), parameters, state and groups, keys
in order, types, strides and versions of tensors. Told too is how each ran.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.optim import Optimizer

import windfall
from tests.conformance.optimizers import WAYS
from tests.training.differences import difference

STEPS = 6
CHANGED_BEHIND = (1, 3)

# Options beside the defaults, of one instance more of each optimizer.
OPTIONS: dict[str, dict[str, Any]] = {
    "SGD": {"momentum": 0.9, "weight_decay": 0.1, "nesterov": True},
    "Adam": {"weight_decay": 0.1, "amsgrad": True},
    "AdamW": {"amsgrad": True, "maximize": True},
    "Adamax": {"weight_decay": 0.1, "maximize": True},
    "NAdam": {"weight_decay": 0.1, "decoupled_weight_decay": True},
    "RAdam": {"weight_decay": 0.1, "maximize": True},
    "RMSprop": {"momentum": 0.9, "centered": True, "weight_decay": 0.1},
    "Rprop": {"maximize": True},
    "Adagrad": {"lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.1},
    "Adadelta": {"weight_decay": 0.1, "maximize": True},
    "ASGD": {"weight_decay": 0.1, "t0": 2},
    "Adafactor": {"weight_decay": 0.1, "maximize": True},
    "Muon": {"nesterov": False},
    "SparseAdam": {"maximize": True},
}
WITH_FUSED = ("Adam", "AdamW", "SGD", "Adagrad")
NO_FOREACH = ("Muon", "SparseAdam")

# Muon makes its direction in bfloat16; a centred mean of squares is a small difference.
CLOSE = {"Muon": 1e-3, "RMSprop": 3e-5}

CHANGES: dict[str, Callable[[Optimizer], None]] = {}


def change(made: Callable[[Optimizer], None]) -> Callable[[Optimizer], None]:
    """A row of the table."""
    CHANGES[made.__name__] = made
    return made


@dataclass(frozen=True)
class Case:
    """An optimizer, one of its ways, its options."""

    name: str
    way: str
    options: dict[str, Any] = field(default_factory=dict, compare=False)

    def __str__(self) -> str:
        said = " ".join(f"{name}={value}" for name, value in self.options.items())
        return f"{self.name} {self.way} {said}".rstrip()

    def make(self) -> Optimizer:
        """With parameters and no gradients yet."""
        generator = torch.Generator().manual_seed(0)
        shapes = [(4, 5), (3, 2), (2, 6)] if self.name == "Muon" else [(4, 5), (3,), (1, 2)]
        made = [torch.nn.Parameter(torch.randn(one, generator=generator)) for one in shapes]
        ways = {} if self.name in NO_FOREACH else {"foreach": self.way == "foreach"}
        if self.way == "fused":
            ways = {"fused": True}
        cls: Any = getattr(torch.optim, self.name)
        optimizer: Optimizer = cls(made, lr=0.01, **ways, **self.options)
        return optimizer


# Open: a number that varies, beside a half without dimensions, is rounded to it first.
OPEN = {("NAdam", "halves")}
# Eager's fused kernels ask no size: they write beyond what is too small.
CORRUPTS = {("fused", "other_shape")}


def cases(names: tuple[str, ...] = ()) -> Iterator[Case]:
    """Each optimizer, way and set of options."""
    for name, options in OPTIONS.items():
        if names and name not in names:
            continue
        for way in WAYS:
            if (way == "fused" and name not in WITH_FUSED) or (
                way == "foreach" and name in NO_FOREACH
            ):
                continue
            yield Case(name, way)
            yield Case(name, way, options)


def _first(optimizer: Optimizer) -> Any:
    return optimizer.param_groups[0]["params"][0]


def _set_all(optimizer: Optimizer, name: str, new: Callable[[Any], Any]) -> None:
    for group in optimizer.param_groups:
        if name in group:
            group[name] = new(group[name])


def _each_state(optimizer: Optimizer) -> list[dict[str, Any]]:
    return list(optimizer.state.values())


def _map_state(optimizer: Optimizer, new: Callable[[torch.Tensor], Any], steps: bool) -> None:
    """New values of state: of the counters, or of all else."""
    for state in _each_state(optimizer):
        for name, value in list(state.items()):
            if isinstance(value, torch.Tensor) and (name in ("step", "eta", "mu")) is steps:
                state[name] = new(value)


# ------------------------------------------------------------------------------------------- state


@change
def nothing(optimizer: Optimizer) -> None:
    """As a control."""


@change
def popped(optimizer: Optimizer) -> None:
    optimizer.state.pop(_first(optimizer), None)


@change
def popped_last(optimizer: Optimizer) -> None:
    optimizer.state.pop(optimizer.param_groups[-1]["params"][-1], None)


@change
def cleared(optimizer: Optimizer) -> None:
    optimizer.state.clear()


@change
def emptied(optimizer: Optimizer) -> None:
    """The dictionary stays, its entries go."""
    optimizer.state[_first(optimizer)].clear()


@change
def nones(optimizer: Optimizer) -> None:
    """Entries are there and nothing is in them."""
    state = optimizer.state[_first(optimizer)]
    for name in state:
        if name != "step":
            state[name] = None


@change
def entry_deleted(optimizer: Optimizer) -> None:
    state = optimizer.state[_first(optimizer)]
    for name in [one for one in state if one != "step"][:1]:
        del state[name]


@change
def entry_added(optimizer: Optimizer) -> None:
    optimizer.state[_first(optimizer)]["mine"] = torch.ones(2)


@change
def dict_replaced(optimizer: Optimizer) -> None:
    optimizer.state[_first(optimizer)] = dict(optimizer.state[_first(optimizer)])


@change
def all_dicts_replaced(optimizer: Optimizer) -> None:
    made: Any = defaultdict(dict)
    made.update({key: dict(value) for key, value in optimizer.state.items()})
    optimizer.state = made


@change
def plain_dict(optimizer: Optimizer) -> None:
    """No default any more."""
    optimizer.state = dict(optimizer.state)  # type: ignore[assignment]


@change
def state_shared(optimizer: Optimizer) -> None:
    """One dictionary in two places, of parameters of one shape."""
    first = _first(optimizer)
    other = torch.nn.Parameter(first.detach().clone())
    optimizer.param_groups[0]["params"].append(other)
    optimizer.state[other] = optimizer.state[first]


@change
def clones(optimizer: Optimizer) -> None:
    _map_state(optimizer, torch.clone, steps=False)


@change
def doubles(optimizer: Optimizer) -> None:
    _map_state(optimizer, lambda one: one.double(), steps=False)


@change
def halves(optimizer: Optimizer) -> None:
    _map_state(optimizer, lambda one: one.bfloat16(), steps=False)


@change
def strided(optimizer: Optimizer) -> None:
    _map_state(optimizer, lambda one: torch.stack([one, one], -1)[..., 0], steps=False)


@change
def transposed(optimizer: Optimizer) -> None:
    def turned(one: torch.Tensor) -> torch.Tensor:
        return one.t().contiguous().t() if one.dim() == 2 else one.clone()

    _map_state(optimizer, turned, steps=False)


@change
def scaled_in_place(optimizer: Optimizer) -> None:
    _map_state(optimizer, lambda one: one.mul_(0.5), steps=False)


@change
def other_shape(optimizer: Optimizer) -> None:
    """Of one parameter alone; broadcast, or refused."""
    state = optimizer.state[_first(optimizer)]
    for name, value in list(state.items()):
        if isinstance(value, torch.Tensor) and value.dim():
            state[name] = value[..., :1].clone()


@change
def needs_gradient(optimizer: Optimizer) -> None:
    _map_state(
        optimizer,
        lambda one: one.clone().requires_grad_() if one.is_floating_point() else one,
        steps=False,
    )


@change
def steps_ahead(optimizer: Optimizer) -> None:
    _map_state(optimizer, lambda one: one.add_(3), steps=True)


@change
def steps_of_one_ahead(optimizer: Optimizer) -> None:
    step = optimizer.state[_first(optimizer)].get("step")
    if isinstance(step, torch.Tensor):
        step.add_(5)


@change
def steps_cloned(optimizer: Optimizer) -> None:
    _map_state(optimizer, torch.clone, steps=True)


@change
def steps_shared(optimizer: Optimizer) -> None:
    """All parameters count in one tensor."""
    found = [one["step"] for one in _each_state(optimizer) if "step" in one]
    for state in _each_state(optimizer):
        if "step" in state:
            state["step"] = found[0]


@change
def steps_doubles(optimizer: Optimizer) -> None:
    _map_state(optimizer, lambda one: one.double(), steps=True)


@change
def steps_numbers(optimizer: Optimizer) -> None:
    _map_state(optimizer, lambda one: float(one), steps=True)


@change
def steps_integers(optimizer: Optimizer) -> None:
    _map_state(optimizer, lambda one: one.long(), steps=True)


@change
def steps_of_one_element(optimizer: Optimizer) -> None:
    _map_state(optimizer, lambda one: one.reshape(1), steps=True)


@change
def steps_zero(optimizer: Optimizer) -> None:
    _map_state(optimizer, lambda one: one.zero_(), steps=True)


@change
def loaded(optimizer: Optimizer) -> None:
    optimizer.load_state_dict(optimizer.state_dict())


@change
def pickled_state(optimizer: Optimizer) -> None:
    import copy

    optimizer.__setstate__(copy.deepcopy(optimizer.__getstate__()))
    raise_if_copied(optimizer)


def raise_if_copied(optimizer: Optimizer) -> None:
    """Copies of parameters are leaves of their own; gradients are given to them from here on."""
    for group in optimizer.param_groups:
        for one in group["params"]:
            assert one.is_leaf


# ------------------------------------------------------------------------------------------ groups


@change
def parameter_added(optimizer: Optimizer) -> None:
    optimizer.param_groups[0]["params"].append(torch.nn.Parameter(torch.full((3, 2), 0.5)))


@change
def group_added(optimizer: Optimizer) -> None:
    optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(2, 2))], "lr": 0.1})


@change
def parameter_removed(optimizer: Optimizer) -> None:
    if len(optimizer.param_groups[0]["params"]) > 1:
        optimizer.param_groups[0]["params"].pop()


@change
def parameters_reversed(optimizer: Optimizer) -> None:
    optimizer.param_groups[0]["params"].reverse()


@change
def parameter_twice(optimizer: Optimizer) -> None:
    optimizer.param_groups[0]["params"].append(_first(optimizer))


@change
def frozen(optimizer: Optimizer) -> None:
    one = _first(optimizer)
    one.requires_grad_(not one.requires_grad)


@change
def all_frozen(optimizer: Optimizer) -> None:
    for group in optimizer.param_groups:
        for one in group["params"]:
            one.requires_grad_(not one.requires_grad)


@change
def replaced_by_equal(optimizer: Optimizer) -> None:
    made = torch.nn.Parameter(_first(optimizer).detach().clone())
    optimizer.param_groups[0]["params"][0] = made


@change
def list_replaced(optimizer: Optimizer) -> None:
    optimizer.param_groups[0]["params"] = list(optimizer.param_groups[0]["params"])


@change
def group_replaced(optimizer: Optimizer) -> None:
    optimizer.param_groups[0] = dict(optimizer.param_groups[0])


@change
def groups_replaced(optimizer: Optimizer) -> None:
    optimizer.param_groups = [dict(one) for one in optimizer.param_groups]


@change
def group_split(optimizer: Optimizer) -> None:
    group = optimizer.param_groups[0]
    if len(group["params"]) > 1:
        other = {**group, "params": group["params"][1:], "lr": 0.05}
        group["params"] = group["params"][:1]
        optimizer.param_groups.append(other)


@change
def groups_gone(optimizer: Optimizer) -> None:
    held = optimizer.__dict__.pop("held", None)
    if held is None:
        optimizer.held = optimizer.param_groups  # type: ignore[attr-defined]
        optimizer.param_groups = []
    else:
        optimizer.param_groups = held


@change
def data_replaced(optimizer: Optimizer) -> None:
    one = _first(optimizer)
    one.data = one.data.clone() * 0.5


@change
def data_strided(optimizer: Optimizer) -> None:
    one = _first(optimizer)
    one.data = one.data.t().contiguous().t()


@change
def moved_to_double(optimizer: Optimizer) -> None:
    """The parameter, not its state."""
    one = _first(optimizer)
    one.data = one.data.double() if one.dtype is torch.float32 else one.data.float()


@change
def all_moved_to_double(optimizer: Optimizer) -> None:
    for group in optimizer.param_groups:
        for one in group["params"]:
            one.data = one.data.double() if one.dtype is torch.float32 else one.data.float()


@change
def written(optimizer: Optimizer) -> None:
    with torch.no_grad():
        _first(optimizer).mul_(0.5)


# ----------------------------------------------------------------------------------------- options


@change
def rate_halved(optimizer: Optimizer) -> None:
    _set_all(optimizer, "lr", lambda rate: rate * 0.5)


@change
def rate_tensor(optimizer: Optimizer) -> None:
    _set_all(
        optimizer,
        "lr",
        lambda rate: rate.item() if isinstance(rate, torch.Tensor) else torch.tensor(rate),
    )


@change
def rate_double_tensor(optimizer: Optimizer) -> None:
    _set_all(optimizer, "lr", lambda rate: torch.tensor(float(rate), dtype=torch.float64))


@change
def rate_of_one_element(optimizer: Optimizer) -> None:
    _set_all(optimizer, "lr", lambda rate: torch.tensor([float(rate)]))


@change
def rate_integer(optimizer: Optimizer) -> None:
    _set_all(optimizer, "lr", lambda rate: 1 if isinstance(rate, float) else 0.01)


@change
def rate_zero(optimizer: Optimizer) -> None:
    _set_all(optimizer, "lr", lambda rate: 0.0 if rate else 0.01)


@change
def rate_negative(optimizer: Optimizer) -> None:
    _set_all(optimizer, "lr", lambda rate: -rate)


@change
def rate_nan(optimizer: Optimizer) -> None:
    _set_all(optimizer, "lr", lambda rate: float("nan") if rate == rate else 0.01)


@change
def rate_numpy(optimizer: Optimizer) -> None:
    import numpy

    _set_all(optimizer, "lr", lambda rate: numpy.float64(float(rate)))


@change
def betas(optimizer: Optimizer) -> None:
    _set_all(optimizer, "betas", lambda old: (0.8, 0.95) if old[0] != 0.8 else (0.9, 0.999))
    _set_all(optimizer, "momentum", lambda old: 0.7 if old != 0.7 else 0.8)
    _set_all(optimizer, "alpha", lambda old: old * 0.9)
    _set_all(optimizer, "rho", lambda old: old * 0.9)
    _set_all(optimizer, "etas", lambda old: (0.4, 1.3))
    _set_all(optimizer, "lambd", lambda old: old * 2)


@change
def betas_list(optimizer: Optimizer) -> None:
    _set_all(optimizer, "betas", list)
    _set_all(optimizer, "etas", list)


@change
def betas_tensors(optimizer: Optimizer) -> None:
    _set_all(optimizer, "betas", lambda old: tuple(torch.tensor(float(one)) for one in old))


@change
def epsilon(optimizer: Optimizer) -> None:
    _set_all(
        optimizer,
        "eps",
        lambda old: tuple(one and one * 2 for one in old) if isinstance(old, tuple) else old * 2,
    )


def _switch(name: str) -> None:
    def switched(optimizer: Optimizer) -> None:
        _set_all(optimizer, name, lambda old: not old)

    switched.__name__ = f"{name}_switched"
    change(switched)


for _name in (
    "maximize",
    "foreach",
    "fused",
    "capturable",
    "differentiable",
    "amsgrad",
    "nesterov",
    "centered",
    "decoupled_weight_decay",
):
    _switch(_name)


@change
def fused_or_not(optimizer: Optimizer) -> None:
    """Between a fused step and one of many tensors."""
    for group in optimizer.param_groups:
        if "fused" in group:
            group["fused"], group["foreach"] = not group["fused"], bool(group["fused"])


@change
def weight_decay_switched(optimizer: Optimizer) -> None:
    _set_all(optimizer, "weight_decay", lambda old: 0 if old else 0.1)


@change
def momentum_switched(optimizer: Optimizer) -> None:
    _set_all(optimizer, "momentum", lambda old: 0 if old else 0.9)


@change
def dampening_switched(optimizer: Optimizer) -> None:
    _set_all(optimizer, "dampening", lambda old: 0 if old else 0.1)


@change
def option_deleted(optimizer: Optimizer) -> None:
    optimizer.param_groups[0].pop("maximize", None)


@change
def option_text(optimizer: Optimizer) -> None:
    """Of a type that nothing takes."""
    _set_all(optimizer, "weight_decay", lambda old: "much" if old != "much" else 0.1)


@change
def option_added(optimizer: Optimizer) -> None:
    optimizer.param_groups[0]["mine"] = [1]


@change
def defaults_switched(optimizer: Optimizer) -> None:
    optimizer.defaults["differentiable"] = not optimizer.defaults.get("differentiable")


# --------------------------------------------------------------------------------------- gradients


@change
def gradient_none(optimizer: Optimizer) -> None:
    optimizer.without = {0}  # type: ignore[attr-defined]


@change
def gradients_none(optimizer: Optimizer) -> None:
    optimizer.without = {0, 1, 2, 3, 4}  # type: ignore[attr-defined]


@change
def gradients_strided(optimizer: Optimizer) -> None:
    optimizer.form = lambda one: torch.stack([one, one], -1)[..., 0]  # type: ignore[attr-defined]


@change
def gradients_sparse(optimizer: Optimizer) -> None:
    optimizer.form = lambda one: one.to_sparse()  # type: ignore[attr-defined]


@change
def gradients_attached(optimizer: Optimizer) -> None:
    optimizer.form = lambda one: one.requires_grad_()  # type: ignore[attr-defined]


@change
def gradients_infinite(optimizer: Optimizer) -> None:
    optimizer.form = lambda one: one / 0  # type: ignore[attr-defined]


@change
def gradient_is_the_parameter(optimizer: Optimizer) -> None:
    """One memory for both."""
    optimizer.alias = True  # type: ignore[attr-defined]


# ------------------------------------------------------------------------------------------ hooks


@change
def hook_before(optimizer: Optimizer) -> None:
    def halve(_: Optimizer, arguments: Any, keywords: Any) -> None:
        _set_all(optimizer, "lr", lambda rate: rate * 0.5)

    optimizer.register_step_pre_hook(halve)


@change
def hook_behind(optimizer: Optimizer) -> None:
    def note(_: Optimizer, arguments: Any, keywords: Any) -> None:
        optimizer.state[_first(optimizer)]["seen"] = len(optimizer.param_groups)

    optimizer.register_step_post_hook(note)


@change
def scaled(optimizer: Optimizer) -> None:
    """As a `GradScaler` leaves it to a fused step."""
    optimizer.grad_scale = torch.tensor(2.0)  # type: ignore[attr-defined]
    optimizer.found_inf = torch.tensor(0.0)  # type: ignore[attr-defined]


@change
def scaled_infinite(optimizer: Optimizer) -> None:
    optimizer.grad_scale = torch.tensor(2.0)  # type: ignore[attr-defined]
    optimizer.found_inf = torch.tensor(1.0)  # type: ignore[attr-defined]


# ---------------------------------------------------------------------------------------- compared


def _give_gradients(case: Case, optimizer: Optimizer, step: int) -> None:
    generator = torch.Generator().manual_seed(step + 1)
    without = getattr(optimizer, "without", set())
    form = getattr(optimizer, "form", None)
    parameters = [one for group in optimizer.param_groups for one in group["params"]]
    for index, each in enumerate(parameters):
        found = torch.randn(each.shape, generator=generator).to(each.dtype)
        if case.name == "SparseAdam":
            found = found.to_sparse()
        if form is not None and not found.is_sparse:
            found = form(found)
        if getattr(optimizer, "alias", False) and not found.is_sparse:
            found = each.detach()
        each.grad = None if index in without or not each.requires_grad else found


def seen(optimizer: Optimizer) -> dict[str, Any]:
    """All that a user can look at, by name."""
    found: dict[str, Any] = {"groups": len(optimizer.param_groups)}
    parameters = []
    for number, group in enumerate(optimizer.param_groups):
        found[f"group {number}"] = list(group)
        for name, value in group.items():
            if name != "params":
                found[f"group {number}.{name}"] = value
        parameters += group["params"]
    places = {id(one): at for at, one in enumerate(parameters)}
    found["states"] = [places.get(id(one), "another") for one in optimizer.state]
    found["state type"] = type(optimizer.state).__name__
    for index, each in enumerate(parameters):
        found[f"{index}"] = each.detach()
        found[f"{index} gradients"] = each.grad  # how often they were written is not compared
        state = optimizer.state.get(each, {})
        found[f"{index} state"] = list(state)
        found |= {f"{index}.{name}": value for name, value in state.items()}
    return found


@dataclass
class Outcome:
    """What became of a case and a change."""

    wrong: str = ""
    raised: int = 0  # steps that raised, in eager too
    breaks: tuple[int, ...] = ()
    in_eager: tuple[str, ...] = ()
    fallbacks: tuple[str, ...] = ()
    captures: tuple[int, ...] = ()  # after each step


def _run(step: Callable[[], Any]) -> tuple[str, str]:
    try:
        step()
    except Exception as error:
        return type(error).__name__, str(error)
    return "", ""


def check(case: Case, name: str) -> Outcome:
    """All steps, compiled and in eager."""
    windfall.reset()
    optimizer, reference = case.make(), case.make()
    step, outcome = windfall.compile(optimizer.step), Outcome()
    close = CLOSE.get(case.name, 3e-6)
    for number in range(STEPS):
        for one in (optimizer, reference):
            _give_gradients(case, one, number)
        mine, theirs = _run(step), _run(reference.step)
        outcome.raised += bool(theirs[0])
        if mine != theirs:
            outcome.wrong = f"step {number}: {mine}, not {theirs}"
        else:
            outcome.wrong = difference(seen(reference), seen(optimizer), f"step {number}", close)
        told = windfall.explanation(step)
        outcome.captures += (len(told.captures),)
        if outcome.wrong:
            break
        if number in CHANGED_BEHIND:
            changed = [_run(lambda: CHANGES[name](one)) for one in (optimizer, reference)]  # noqa: B023
            assert changed[0] == changed[1], changed
    told = windfall.explanation(step)
    outcome.fallbacks = tuple(str(one) for one in told.fallbacks)
    outcome.breaks = tuple(sorted({one.number for one in told.breaks}))
    outcome.in_eager = tuple(told.eager)
    return outcome


def main(arguments: list[str] | None = None) -> int:
    """Print what differs; not 0 if anything does."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--change", nargs="+", default=list(CHANGES))
    parser.add_argument("--way", nargs="+", default=list(WAYS))
    parser.add_argument("--chunk", default="1/1")
    parser.add_argument("--show", action="store_true", help="how each ran")
    given = parser.parse_args(arguments)
    part, parts = map(int, given.chunk.split("/"))
    asked = [
        (case, name)
        for case in cases(tuple(given.names))
        if case.way in given.way
        for name in given.change
        if (case.way, name) not in CORRUPTS and (case.name, name) not in OPEN
    ][part - 1 :: parts]
    wrong = 0
    broken: dict[tuple[int, ...], int] = defaultdict(int)
    warnings.simplefilter("ignore")
    for count, (case, name) in enumerate(asked):
        outcome = check(case, name)
        wrong += bool(outcome.wrong)
        broken[outcome.breaks] += 1
        if outcome.wrong:
            print(f"WRONG {case} | {name}: {outcome.wrong}", flush=True)
        if given.show:
            print(
                f"{case} | {name}: raised {outcome.raised}, breaks {outcome.breaks}, "
                f"captures {outcome.captures}, eager {outcome.in_eager}, "
                f"fall-backs {[one[:80] for one in outcome.fallbacks]}"
            )
        if count % 200 == 199:
            print(f"{count + 1} of {len(asked)}, {wrong} wrong", flush=True)
    print(f"{len(asked)} cases, {wrong} wrong; breaks: {dict(broken)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
