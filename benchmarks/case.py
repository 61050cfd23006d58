"""What is measured: a case makes a subject, a fresh one for each contender.

Enters: a name and a function that makes tensors and the program over them. Leaves: a `Subject`;
made twice, it holds equal values, so that results can be compared. Invariant: contenders share no
tensor, so that a program may write into its inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import torch

Mode = Literal["inference", "training", "step"]
Run = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Subject:
    """A program and the arguments it is called with; with an optimizer, a training step is not
    over before the optimizer's step. `kept_gradients`: those of leaves are added to. `used`: what
    is done with the program, if that is more than calling it; it stays outside of what is
    compiled."""

    program: Callable[..., Any]
    inputs: tuple[Any, ...]
    optimizer: torch.optim.Optimizer | None = None
    kept_gradients: bool = False
    used: Callable[..., Any] | None = None  # (program, *inputs) -> result
    # Whole steps (mode "step"): the program of a contender that is not made of this one, if it can
    # run at all; and parameters, which a step changes.
    own: Mapping[str, Callable[[], Callable[..., Any]]] = field(default_factory=dict)
    parameters: tuple[torch.Tensor, ...] = ()

    def leaves(self) -> list[torch.Tensor]:
        """The tensors whose gradients a training step makes."""
        own = self.program.parameters() if isinstance(self.program, torch.nn.Module) else ()
        tensors = [*self.inputs, *own]
        return [one for one in tensors if isinstance(one, torch.Tensor) and one.requires_grad]


@dataclass(frozen=True, slots=True)
class Case:
    """One row of a table. `goals` are the ratios that windfall must not pass, by the contender they
    are relative to, where an issue sets one."""

    name: str
    make: Callable[[], Subject]
    mode: Mode = "inference"
    goals: Mapping[str, float] = field(default_factory=dict)
    tolerance: float = 1e-3
    quick: bool = True  # also measured by --quick
    random: bool = False  # draws random numbers: torch.compile draws others than eager
    call_only: bool = False  # the graph answers what it answered first: the call itself is timed

    @property
    def label(self) -> str:
        return self.name if self.mode == "inference" else f"{self.name}, {self.mode}"

    @property
    def differentiates(self) -> bool:
        """Whether gradients are on."""
        return self.mode != "inference"

    def subject(self) -> Subject:
        """Fresh tensors, with equal values each time."""
        torch.manual_seed(0)
        return self.make()


def runner(subject: Subject, compiled: Callable[..., Any], mode: Mode) -> Run:
    """A call with no argument: one inference, one forward and backward, or one whole step, which is
    the program itself.

    Inference is to be run with gradients off, by the caller: a context manager for each call would
    cost as much as a small program."""
    if mode != "training":
        return partial(compiled, *subject.inputs)
    if subject.used is not None:
        compiled = partial(subject.used, compiled)
    leaves = [] if subject.kept_gradients else subject.leaves()
    inputs, optimizer = subject.inputs, subject.optimizer
    gradient: torch.Tensor | None = None

    def step() -> torch.Tensor:
        nonlocal gradient
        for leaf in leaves:
            leaf.grad = None
        result: torch.Tensor = compiled(*inputs)
        if gradient is None:
            gradient = torch.ones_like(result)
        result.backward(gradient)  # type: ignore[no-untyped-call]
        if optimizer is not None:
            optimizer.step()
        return result.detach()

    return step


def outcome(subject: Subject, run: Run, mode: Mode) -> list[torch.Tensor]:
    """Everything that one run answers."""
    torch.manual_seed(0)
    return answers(subject, run(), mode)


def answers(subject: Subject, result: Any, mode: Mode) -> list[torch.Tensor]:
    """The results of a run (of a program that returns nothing, what it wrote into), and gradients
    where it makes some."""
    found = _tensors(subject.inputs if result is None else result)
    if mode == "training":
        found += [leaf.grad for leaf in subject.leaves() if leaf.grad is not None]
    found += subject.parameters
    return [one.detach().clone() for one in found]


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [one for part in value for one in _tensors(part)]
    return [value] if isinstance(value, torch.Tensor) else []


def agree(actual: list[torch.Tensor], case: Case, contender: str) -> None:
    """Raise unless `actual` is what eager answers."""
    if case.random and contender == "torch.compile":
        return
    subject = case.subject()
    expected = outcome(subject, runner(subject, subject.program, case.mode), case.mode)
    torch.testing.assert_close(
        actual, expected, rtol=case.tolerance, atol=case.tolerance, check_stride=False
    )
