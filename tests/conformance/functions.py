"""Every float32 op of torch's own `op_db` under transforms of `torch.func`, against eager.

    python -m tests.conformance.functions [names ...] [--ways vmap,jvp] [--show]

Of each op the first sample is called: for each of three examples at once (`vmap`), with tangents
(`jvp`), pulled back (`vjp`), differentiated (`grad`), and differentiated for each example
(`samples`). Where eager refuses, the compiled function has to refuse with the same words. Asked is
also *how* it ran: in one graph, or with which breaks, or op by op.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.func import grad, jvp, vjp, vmap
from torch.utils._pytree import tree_flatten

import windfall
from tests.conformance.op_db_samples import UNINITIALISED, maker, samples, table

EXAMPLES = 3
# Where eager refuses and the compiled function answers: what refuses looks at data, or at a lazy
# conjugate, which tensors without data do not have.
ANSWERED = (
    "fft.ifft samples",
    "fft.ihfft samples",
    "linalg.eig vjp",
)
TOLERANCE = {"rtol": 1e-3, "atol": 1e-4}
Tensors = tuple[torch.Tensor, ...]
Function = Callable[..., Any]


# ----------------------------------------------------------------------------------------- ways


def _examples(tensors: Tensors) -> Tensors:
    return tuple(torch.stack([one] * EXAMPLES) for one in tensors)


def _tangents(tensors: Tensors) -> Tensors:
    return tuple([torch.ones_like(one) * 0.5 for one in tensors])


def _real(function: Function) -> Function:
    """The sum of what can be differentiated."""

    def total(*tensors: torch.Tensor) -> torch.Tensor:
        found = function(*tensors)
        parts = [torch.view_as_real(one) if one.is_complex() else one for one in found]
        return torch.stack([one.sum() for one in parts]).sum()

    return total


def _by_vmap(function: Function, tensors: Tensors) -> Any:
    return vmap(function, randomness="different")(*tensors)


def _by_jvp(function: Function, tensors: Tensors) -> Any:
    return jvp(function, tensors, _tangents(tensors))


def _by_vjp(function: Function, tensors: Tensors) -> Any:
    found, pull = vjp(function, *tensors)
    return found, pull(tuple([torch.ones_like(one) for one in found]))


def _by_grad(function: Function, tensors: Tensors) -> Any:
    return grad(_real(function), argnums=tuple(range(len(tensors))))(*tensors)


def _by_samples(function: Function, tensors: Tensors) -> Any:
    numbers = tuple(range(len(tensors)))
    return vmap(grad(_real(function), argnums=numbers), randomness="different")(*tensors)


WAYS: dict[str, Function] = {
    "vmap": _by_vmap,
    "jvp": _by_jvp,
    "vjp": _by_vjp,
    "grad": _by_grad,
    "samples": _by_samples,
}
BATCHED = ("vmap", "samples")


# ---------------------------------------------------------------------------------------- cases


@dataclass(frozen=True)
class Case:
    """An op in one of the ways."""

    op: str
    way: str

    def __str__(self) -> str:
        return f"{self.op} {self.way}"


@dataclass
class Outcome:
    """What became of it."""

    verdict: str = "equal"  # or "refused", as eager does, or "answered", or what differs
    breaks: tuple[int, ...] = ()
    details: tuple[str, ...] = ()
    in_eager: dict[str, int] = field(default_factory=dict)

    @property
    def is_right(self) -> bool:
        return self.verdict in ("equal", "refused", "answered")

    @property
    def is_one_graph(self) -> bool:
        return self.verdict == "equal" and not self.breaks and not self.in_eager


def cases(names: Sequence[str] = (), ways: Sequence[str] = ()) -> Iterator[Case]:
    """All that has tensors to transform."""
    for name, info in sorted(table().items()):
        if (names and name not in names) or info.name in UNINITIALISED:
            continue
        for way in ways or WAYS:
            if way == "vmap" or info.supports_autograd:
                yield Case(name, way)


def program(case: Case) -> tuple[Function, Tensors] | None:
    """A function of tensors, with the transform in it; None: the op takes no tensor."""
    info = table()[case.op]
    if next(samples(info, False), None) is None:
        return None
    function, args, kwargs = maker(info, False, 0)()
    tensors = tuple(one for one in tree_flatten((args, kwargs))[0] if _is_transformed(one))
    if not tensors:
        return None

    def flat(*tensors: torch.Tensor) -> Any:
        given = list(tensors)
        found_args = [_with(one, given) for one in args]
        found_kwargs = {name: _with(one, given) for name, one in kwargs.items()}
        return tuple(_tensors(function(*found_args, **found_kwargs), case.way == "vmap"))

    way = WAYS[case.way]
    if case.way in BATCHED:
        tensors = _examples(tensors)

    def run(*tensors: torch.Tensor) -> Any:
        return way(flat, tensors)

    return run, tensors


def _with(value: Any, tensors: list[torch.Tensor]) -> Any:
    """An argument with these in place of the tensors that are transformed."""
    if isinstance(value, torch.Tensor):
        return tensors.pop(0) if _is_transformed(value) else value
    if type(value) in (list, tuple):
        made = [_with(one, tensors) for one in value]
        return made if type(value) is list else tuple(made)
    return value


def _tensors(found: Any, all: bool) -> list[torch.Tensor]:
    """The tensors of a result, or those that can be differentiated."""
    if isinstance(found, torch.Tensor):
        return [found] if all or found.is_floating_point() or found.is_complex() else []
    if isinstance(found, list | tuple):
        return [one for part in found for one in _tensors(part, all)]
    return []


def _is_transformed(value: Any) -> bool:
    plain = isinstance(value, torch.Tensor) and value.layout is torch.strided
    return plain and value.is_floating_point()


def _called(function: Function, tensors: Tensors) -> Any:
    """What it answers or raises, and the random numbers behind it."""
    torch.manual_seed(0)
    try:
        return function(*(one.clone() for one in tensors)), torch.get_rng_state()
    except Exception as error:  # whatever the op raises
        return f"{type(error).__name__}: {error}", None


def check(case: Case) -> Outcome | None:
    """One case; None: there is nothing to check."""
    made = program(case)
    if made is None:
        return None
    function, tensors = made
    compiled = windfall.compile(function)
    wanted, drawn = _called(function, tensors)
    outcome = Outcome()
    for _ in range(2):
        found, its_drawn = _called(compiled, tensors)
        outcome.verdict = _compared(wanted, found)
        if isinstance(wanted, str) and not isinstance(found, str) and str(case) in ANSWERED:
            outcome.verdict = "answered"
        if outcome.verdict == "equal" and not torch.equal(drawn, its_drawn):
            outcome.verdict = "other random numbers"
    told = windfall.explanation(compiled)
    outcome.breaks = tuple(one.number for one in told.breaks)
    outcome.details = tuple(f"W{one.number:04d} {one.detail}" for one in told.breaks)
    outcome.in_eager = {what: times for what, times in told.eager.items()}
    return outcome


def _compared(wanted: Any, found: Any) -> str:
    if isinstance(wanted, str) or isinstance(found, str):
        return "refused" if wanted == found else f"eager: {wanted!s:.200} here: {found!s:.200}"
    leaves, tree = tree_flatten(wanted)
    others, its_tree = tree_flatten(found)
    if tree != its_tree:
        return "another structure"
    for one, other in zip(leaves, others, strict=True):
        try:
            torch.testing.assert_close(other, one, equal_nan=True, **TOLERANCE)
        except AssertionError as error:
            return str(error).replace("\n", " ")
        if one.stride() != other.stride():
            return f"strides {one.stride()} {other.stride()}"
    return "equal"


# --------------------------------------------------------------------------------------- the sweep


def main(arguments: Sequence[str]) -> int:
    """Check all, and count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--show", action="store_true", help="each case that is not in one graph")
    given = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    counts: dict[str, Counter[str]] = {way: Counter() for way in given.ways.split(",")}
    reasons: Counter[str] = Counter()
    wrong = 0
    for case in cases(given.names, tuple(counts)):
        outcome = check(case)
        if outcome is None:
            continue
        count = counts[case.way]
        count["cases"] += 1
        if not outcome.is_right:
            wrong += 1
            count["different"] += 1
            print(f"DIFFERENT {case}: {outcome.verdict}", flush=True)
        elif outcome.verdict in ("refused", "answered"):
            count[f"{outcome.verdict}, which eager refuses"] += 1
        elif outcome.is_one_graph:
            count["one graph"] += 1
        else:
            count["equal, not in one graph"] += 1
            reasons.update(f"W{one:04d}" for one in set(outcome.breaks))
            reasons.update(outcome.in_eager)
            if given.show:
                print(f"{case}: {outcome.details} {outcome.in_eager}", flush=True)
    for way, count in counts.items():
        print(f"{way:8}", ", ".join(f"{what} {times}" for what, times in sorted(count.items())))
    print("reasons:", ", ".join(f"{what} {times}" for what, times in reasons.most_common()))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
