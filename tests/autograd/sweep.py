"""torch's own list of ops and samples, each taken through this room and compared with eager.

python -m tests.autograd.sweep [float32|float64|complex64] [name …]
                                       prints what is unsupported and what is wrong
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tests.autograd.harness import check
from windfall.errors import Unsupported


@dataclass(frozen=True)
class Outcome:
    """What became of one op: "equal", "unsupported", "wrong", or "skipped" (eager fails)."""

    name: str
    kind: str
    detail: str = ""


def _flatten(value: Any, tensors: list[torch.Tensor]) -> Any:
    """`value` with tensors taken out: a function of the tensors that builds it again."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        position = len(tensors) - 1
        return lambda given: given[position]
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        parts = [_flatten(one, tensors) for one in value]
        kind = type(value)
        return lambda given: kind(part(given) for part in parts)
    if isinstance(value, dict):
        entries = {name: _flatten(one, tensors) for name, one in value.items()}
        return lambda given: {name: part(given) for name, part in entries.items()}
    return lambda given: value


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [one for part in value for one in _leaves(part)]
    return []


# Results that are not determined: memory as it was found, phases of eigenvectors.
UNDETERMINED = {
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "linalg.eig",
    "new_empty",
    "new_empty_strided",
}


DTYPES = {str(one)[6:]: one for one in (torch.float32, torch.float64, torch.complex64)}


def chosen(arguments: Sequence[str], dtype: torch.dtype) -> tuple[torch.dtype, tuple[str, ...]]:
    """What a command line asks for: a dtype (this one, unless it names another) and ops."""
    names = [one for one in arguments if one not in DTYPES]
    return next((DTYPES[one] for one in arguments if one in DTYPES), dtype), tuple(names)


def run_op(info: Any, dtype: torch.dtype = torch.float32) -> Outcome:
    """The first sample of an op, forward and backward."""
    name = info.name + (f".{info.variant_test_name}" if info.variant_test_name else "")
    if info.name in UNDETERMINED:
        return Outcome(name, "skipped", "its result is not determined")
    differentiable = info.supports_autograd and dtype in info.supported_backward_dtypes("cpu")
    try:
        sample = next(iter(info.sample_inputs("cpu", dtype, requires_grad=differentiable)))
        tensors: list[torch.Tensor] = []
        rebuild = _flatten([sample.input, sample.args, sample.kwargs], tensors)

        def function(*given: torch.Tensor) -> tuple[Any, ...]:
            first, args, kwargs = rebuild(given)
            return tuple(_leaves(info.op(first, *args, **kwargs)))

        if any(one.layout != torch.strided for one in tensors):
            return Outcome(name, "skipped", "a sparse input")
        function(*[one.detach().clone().requires_grad_(one.requires_grad) for one in tensors])
    except Exception as error:
        return Outcome(name, "skipped", f"{type(error).__name__}: {error}")
    try:
        check(function, *tensors, leaf=False)
    except Unsupported as reason:
        return Outcome(name, "unsupported", str(reason))
    except (Exception, AssertionError) as error:
        first, *_ = str(error).strip().splitlines() or [""]
        return Outcome(name, "wrong", f"{type(error).__name__}: {first}")
    return Outcome(name, "equal")


def sweep(names: tuple[str, ...] = (), dtype: torch.dtype = torch.float32) -> Iterator[Outcome]:
    """Every op of torch's list that takes the dtype, or those of these names."""
    from torch.testing._internal import common_methods_invocations

    # The list's random ops seed the generator themselves, inside what we would record.
    common_methods_invocations.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)
    for info in common_methods_invocations.op_db:
        if dtype in info.dtypes and (not names or info.name in names):
            torch.manual_seed(0)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield run_op(info, dtype)


def main(arguments: Sequence[str]) -> None:
    dtype, names = chosen(arguments, torch.float32)
    counts: dict[str, int] = {}
    for outcome in sweep(names, dtype):
        counts[outcome.kind] = counts.get(outcome.kind, 0) + 1
        if outcome.kind != "equal":
            print(f"{outcome.kind:12} {outcome.name:45} {outcome.detail[:160]}", flush=True)
    print(counts)


if __name__ == "__main__":
    main(sys.argv[1:])
