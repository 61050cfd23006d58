"""How often small programs are compiled when one of their sizes changes from call to call.

    python -m tests.conformance.varying_survey [name …] [--training|--inference] [--torch] [--all]
        [--sizes 1,2,3,4]

prints, for each program of `varying_programs.py` and for inference and training: whether it answers
what eager answers, how often it was compiled, its breaks and fall-backs, and what fixed a size. By
default only rows that are over their limit, wrong or fixed are shown. `--torch` adds how often
torch.compile compiles the same.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from tests.conformance.varying_programs import ROWS, Row
from windfall.errors import WindfallError
from windfall.events import EventLog
from windfall.options import Options
from windfall.pipeline import Compiler


@dataclass
class Outcome:
    """What happened to one program."""

    row: Row
    training: bool
    wrong: str = ""
    compiled: int = 0
    torch: int | None = None
    breaks: int = 0
    fallbacks: list[str] = field(default_factory=list)
    fixed: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def good(self) -> bool:
        """Right, and compiled no more often than it may be."""
        limit, breaks = self.limits
        within = self.compiled <= limit and self.breaks <= breaks
        return within and not self.wrong and not self.fallbacks

    @property
    def limits(self) -> tuple[int, int]:
        """How often it may be compiled, and its breaks."""
        given = self.row.in_training if self.training else None
        return given or (self.row.limit, self.row.breaks)

    def __str__(self) -> str:
        verdict = "wrong" if self.wrong else "ok" if self.good else "over"
        kind = "train" if self.training else "infer"
        other = "" if self.torch is None else f" torch {self.torch}"
        head = (
            f"{verdict:5} {self.row.name:28} {kind} compiled {self.compiled} of {self.limits[0]}"
            f"{other} breaks {self.breaks} fallbacks {len(self.fallbacks)} {self.seconds:.1f}s"
        )
        notes = [self.wrong, *self.fallbacks, *self.fixed]
        return "\n      ".join([head, *(one[:230] for one in notes if one)])


def run(row: Row, training: bool, sizes: tuple[int, ...] | None = None) -> Outcome:
    """One program, compiled, beside itself."""
    outcome = Outcome(row, training)
    log = EventLog()
    started = time.perf_counter()
    torch.manual_seed(0)
    plain = row.make()
    torch.manual_seed(0)
    target = row.make()
    compiled = Compiler(Options.checked(strict=True), log).compiled(target)
    fallen: Counter[str] = Counter()
    try:
        for refused in _compare(row, plain, target, compiled, training, sizes or row.sizes):
            now = _fallbacks(log)
            if not refused:  # where eager raises, eager's run is what says so
                outcome.fallbacks += now - fallen
            fallen = now
    except (AssertionError, WindfallError) as error:
        outcome.wrong = " ".join(str(error).split())
    except Exception as error:
        outcome.wrong = f"{type(error).__name__}: {' '.join(str(error).split())}"
    outcome.seconds = time.perf_counter() - started
    outcome.compiled = len(log.snapshot("enter"))
    captures = [event.record for event in log.snapshot("capture") if event.record is not None]
    outcome.breaks = max(_per_call(captures), 0)
    outcome.fixed = [f"specialise: {one.facts.get('reason')}" for one in log.snapshot("specialise")]
    return outcome


def _per_call(captures: list[Any]) -> int:
    """How many different places end a segment."""
    return len({str(one.stopped.where) for one in captures if one.stopped is not None})


def _fallbacks(log: EventLog) -> Counter[str]:
    """How often eager ran something, by the reason."""
    found: Counter[str] = Counter()
    for event in log.snapshot("fallback"):
        found[f"fallback: {event.facts.get('reason')}"] += event.facts.get("times", 1)
    return found


def _compare(
    row: Row,
    plain: Any,
    target: Any,
    compiled: Callable[..., Any],
    training: bool,
    sizes: tuple[int, ...],
) -> Iterator[bool]:
    """Call by call; yields whether eager refused the size."""
    for module in (plain, target):
        if isinstance(module, torch.nn.Module):
            module.train(training)
    for size in sizes:
        torch.manual_seed(size)
        given = row.arguments(size)
        with torch.set_grad_enabled(training):
            try:
                wanted = _answer(plain, plain, given, training)
            except Exception as error:  # this size does not fit: told as eager tells it
                _expect(compiled, target, given, training, error)
                yield True
                continue
            found = _answer(compiled, target, given, training)
        for part, strict in ((0, True), (1, False)):  # strides of results, not of gradients
            torch.testing.assert_close(
                found[part],
                wanted[part],
                rtol=2e-4,
                atol=2e-4,
                equal_nan=True,
                check_stride=strict,
                msg=lambda text, n=size: f"{n}: {text}",
            )
        yield False


def _expect(
    compiled: Callable[..., Any], target: Any, given: Any, training: bool, error: Exception
) -> None:
    """The compiled program raises what eager raises."""
    try:
        _answer(compiled, target, given, training)
    except Exception as found:
        assert type(found) is type(error), f"{found!r} instead of {error!r}"
        return
    raise AssertionError(f"no {error!r}")


def _answer(function: Callable[..., Any], owner: Any, given: Any, training: bool) -> Any:
    """What a call returns, and the gradients of everything that has one."""
    leaves: list[torch.Tensor] = []
    arguments = _copied(given, training, leaves)
    if isinstance(owner, torch.nn.Module):
        leaves += owner.parameters()
    torch.manual_seed(1)
    result = function(*arguments)
    flat = list(_tensors(result))
    if not training:
        return [_plain(result), arguments]
    needing = [one for one in flat if one.requires_grad]
    total = sum((one.to(torch.float64).abs() * (i + 1)).sum() for i, one in enumerate(needing))
    gradients = torch.autograd.grad(total, leaves, allow_unused=True) if needing else ()
    return [_plain(result), [torch.zeros(()) if one is None else one for one in gradients]]


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach()
    if isinstance(value, dict):
        return [_plain(one) for one in value.values()]
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _tensors(one)


def _copied(value: Any, training: bool, leaves: list[torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        copy = value.clone()
        if training and copy.is_floating_point():
            leaves.append(copy.requires_grad_())
        return copy
    if isinstance(value, list | tuple):
        return type(value)([_copied(one, training, leaves) for one in value])
    return value


def torch_count(row: Row, training: bool) -> int:
    """How often torch.compile captures the same, with a backend that only counts graphs."""
    graphs = 0

    def counting(module: Any, inputs: Any) -> Any:
        nonlocal graphs
        graphs += 1
        return module.forward

    torch.compiler.reset()
    torch.manual_seed(0)
    plain = row.make()
    torch.manual_seed(0)
    target = row.make()
    with contextlib.suppress(Exception):  # only the count is asked for
        compiled = torch.compile(target, backend=counting)
        list(_compare(row, plain, target, compiled, training, row.sizes))
    return graphs


def kinds(row: Row) -> tuple[bool, ...]:
    """Inference, and training where it makes sense."""
    return (False, True) if row.trains else (False,)


def main() -> None:
    """Run, print, count."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("names", nargs="*")
    options.add_argument("--training", action="store_true")
    options.add_argument("--inference", action="store_true")
    options.add_argument("--torch", action="store_true")
    options.add_argument("--all", action="store_true")
    options.add_argument("--sizes", help="others than the rows', e.g. 1,2,3,4,5,6,7")
    chosen = options.parse_args()
    sizes = tuple(map(int, chosen.sizes.split(","))) if chosen.sizes else None
    warnings.simplefilter("ignore")
    good = total = 0
    for name, row in ROWS.items():
        if chosen.names and name not in chosen.names:
            continue
        for training in kinds(row):
            if chosen.training > training or chosen.inference > (not training):
                continue
            outcome = run(row, training, sizes)
            if chosen.torch:
                outcome.torch = torch_count(row, training)
            total += 1
            good += outcome.good
            if chosen.all or chosen.names or not outcome.good or outcome.fixed:
                print(outcome, flush=True)
    print(f"{good} of {total} within their limits")
    sys.exit(good < total)


if __name__ == "__main__":
    main()
