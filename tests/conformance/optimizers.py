"""Every optimizer of torch's own `optim_db`, five steps with a rate that changes, against eager.

    python -m tests.conformance.optimizers [Adam SGD ...] [--show]

Each sample runs for-loop, foreach and fused where the optimizer has them. Compared are parameters,
state and versions after each step; asked is also *how* it ran: in one graph each time (no break,
nothing in eager), and whether anything was compiled after the third step. Eager's own square root
is not correctly rounded (MKL's) and fused kernels of LLVM contract other products, so results may
differ in their last bits: `bits` are the cases without any difference, `close` those within
`TOLERANCE`.
"""

from __future__ import annotations

import argparse
import copy
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.testing._internal.common_optimizers import optim_db

import windfall

STEPS = 5
SETTLED = 3  # steps after which nothing is compiled any more
TOLERANCE = {"rtol": 3e-6, "atol": 2e-7}
# Muon makes its direction in bfloat16, where a last bit is 1/256 of it: rates are of 1e-3. LBFGS
# is run by eager, but its closures are compiled, and what it keeps at its end are differences.
COARSE = {"rtol": 3e-6, "atol": 1e-4}
WAYS = ("for-loop", "foreach", "fused")


@dataclass(frozen=True)
class Case:
    """One optimizer with its arguments."""

    cls: type[torch.optim.Optimizer]
    description: str
    kwargs: dict[str, Any] = field(compare=False)
    way: str = "for-loop"

    def __str__(self) -> str:
        return f"{self.cls.__name__} ({self.description}) {self.way}"

    def arguments(self) -> dict[str, Any]:
        """Of the constructor, each time new: a rate may be a tensor, which schedulers write."""
        made = copy.deepcopy(self.kwargs)
        if self.way != "for-loop":
            made[self.way] = True
        return made


@dataclass
class Outcome:
    """What became of it."""

    equal: str = "bits"  # or "close", or what differs
    breaks: tuple[str, ...] = ()
    in_eager: dict[str, int] = field(default_factory=dict)
    late: int = 0  # compilations after the third step
    captures: int = 0  # of which one has no graph where a fused step is all there is

    @property
    def is_right(self) -> bool:
        return self.equal in ("bits", "close")

    @property
    def is_one_graph(self) -> bool:
        return not self.breaks and not self.in_eager and self.captures > 0


def cases(names: tuple[str, ...] = ()) -> Iterator[Case]:
    """All of them, or those of some optimizers."""
    for info in optim_db:
        if names and info.optim_cls.__name__ not in names:
            continue
        for way in WAYS:
            if way != "for-loop" and way not in info.supported_impls:
                continue
            for given in info.optim_inputs_func("cpu"):
                yield Case(info.optim_cls, given.desc, given.kwargs, way)


def _parameters(cls: type) -> list[torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(10, 5), (7, 3)] if cls.__name__ == "Muon" else [(10, 5), (10,), (1, 7)]
    return [torch.nn.Parameter(torch.randn(one, generator=generator)) for one in shapes]


def _gradients(cls: type, parameters: list[torch.nn.Parameter], step: int) -> None:
    generator = torch.Generator().manual_seed(step + 1)
    for each in parameters:
        found = torch.randn(each.shape, generator=generator)
        each.grad = found.to_sparse() if cls.__name__ == "SparseAdam" else found


def _closure(parameters: list[torch.nn.Parameter]) -> Callable[[], torch.Tensor]:
    def closure() -> torch.Tensor:
        for each in parameters:
            each.grad = None
        loss = torch.stack([(each - 1).pow(2).sum() for each in parameters]).sum()
        loss.backward()
        return loss

    return closure


def _slower(optimizer: torch.optim.Optimizer) -> None:
    for group in optimizer.param_groups:
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].mul_(0.9)
        else:
            group["lr"] *= 0.9


def _all_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Parameters and state by name; what is no tensor as it is."""
    found: dict[str, Any] = {}
    for index, each in enumerate(one for g in optimizer.param_groups for one in g["params"]):
        found[f"{index}"] = each.detach()
        found[f"{index}._version"] = each._version
        for name, value in optimizer.state.get(each, {}).items():
            found[f"{index}.{name}"] = value
    return found


def compared(
    mine: dict[str, Any], wanted: dict[str, Any], tolerance: dict[str, float] = TOLERANCE
) -> str:
    """`bits`, `close`, or the first thing that differs."""
    if list(mine) != list(wanted):
        return f"other entries: {sorted(set(mine) ^ set(wanted))}"
    answer = "bits"
    for name, one in wanted.items():
        other = mine[name]
        if not isinstance(one, torch.Tensor):
            if not _same_plain(other, one):
                return f"{name} is {other!r}, not {one!r}"
            continue
        if (other.dtype, other.shape, other.stride()) != (one.dtype, one.shape, one.stride()):
            return f"{name} is another kind of tensor"
        if torch.equal(other, one):
            continue
        if not torch.allclose(other, one, equal_nan=True, **tolerance):
            return f"{name} differs by {(other - one).abs().max().item():.2e}"
        answer = "close"
    return answer


def _same_plain(one: Any, other: Any) -> bool:
    if isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        return all(map(_same_plain, one, other))
    if isinstance(one, torch.Tensor):
        return torch.allclose(one, other, **TOLERANCE)
    return type(one) is type(other) and one == other


def check(case: Case, change: Callable[[torch.optim.Optimizer], None] = _slower) -> Outcome:
    """Five steps, compiled and in eager."""
    windfall.reset()
    pairs = []
    for _ in range(2):
        parameters = _parameters(case.cls)
        pairs.append((parameters, case.cls(parameters, **case.arguments())))
    (mine, optimizer), (theirs, reference) = pairs
    step = windfall.compile(optimizer.step)
    outcome, settled = Outcome(), 0
    for index in range(STEPS):
        for parameters in (mine, theirs):
            _gradients(case.cls, parameters, index)
        if case.cls is torch.optim.LBFGS:
            step(_closure(mine))
            reference.step(_closure(theirs))
        else:
            step()
            reference.step()
        tolerance = COARSE if case.cls.__name__ in ("Muon", "LBFGS") else TOLERANCE
        found = compared(_all_tensors(optimizer), _all_tensors(reference), tolerance)
        if outcome.is_right and found != "bits":
            outcome.equal = found if found == "close" else f"step {index + 1}: {found}"
        change(optimizer)
        change(reference)
        if index == SETTLED - 1:
            settled = len(windfall.explanation(step).captures)
    told = windfall.explanation(step)
    outcome.late = len(told.captures) - settled
    outcome.captures = len(told.captures)
    outcome.breaks = tuple(f"W{one.number:04d} {one.detail}" for one in told.breaks)
    outcome.in_eager = {**told.eager, **{one: 1 for one in told.fallbacks}}
    return outcome


def main(arguments: list[str] | None = None) -> int:
    """Print a table; not 0 where a result differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--show", action="store_true", help="breaks and what ran in eager")
    given = parser.parse_args(arguments)
    found = []
    for case in cases(tuple(given.names)):
        found.append((case, check(case)))
        if given.show:
            print(f"{case}: {found[-1][1].equal}", flush=True)
    rows: dict[tuple[str, str], list[Outcome]] = {}
    for case, outcome in found:
        rows.setdefault((case.cls.__name__, case.way), []).append(outcome)
        if not outcome.is_right:
            print(f"WRONG {case}: {outcome.equal}")
        if given.show and not (outcome.is_one_graph and not outcome.late):
            print(f"{case}: {outcome.late} late, eager {outcome.in_eager}")
            for one in dict.fromkeys(outcome.breaks):
                print(f"    {one[:150]}")
    print(f"{'':24}{'cases':>7}{'equal':>7}{'bits':>7}{'one graph':>11}{'settled':>9}")
    for (name, way), group in [*rows.items(), (("all", ""), [one for _, one in found])]:
        counts = (
            len(group),
            sum(one.is_right for one in group),
            sum(one.equal == "bits" for one in group),
            sum(one.is_one_graph for one in group),
            sum(not one.late for one in group),
        )
        columns = (f"{one:{width}}" for one, width in zip(counts, (7, 7, 7, 11, 9), strict=True))
        print(f"{name + ' ' + way:24}{''.join(columns)}")
    return 0 if all(one.is_right for _, one in found) else 1


if __name__ == "__main__":
    sys.exit(main())
