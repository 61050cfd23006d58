"""Second derivatives of torch's own list of ops, by this room and by eager.

python -m tests.autograd.sweep_second [float32|float64|complex64] [name …]
                                       prints what is unsupported and what is wrong

Gradients of a first sample (in double precision, if nothing else is said), with a history; then
gradients of those, with respect to the inputs and to the tangents.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from tests.autograd.harness import Compiled, flat
from tests.autograd.sweep import UNDETERMINED, Outcome, _flatten, _leaves, chosen
from windfall.errors import Unsupported

DTYPE = torch.float64
TENSORS = list[torch.Tensor]


def second(function: Callable[..., Any], tensors: TENSORS) -> list[Any]:
    """First derivatives, and second ones; the error in their place, if that is what there is."""
    torch.manual_seed(1)
    inputs = [one.detach().clone().requires_grad_(one.requires_grad) for one in tensors]
    wanted = [one for one in inputs if one.requires_grad]
    values = [one * 1 if one.requires_grad else one for one in inputs]
    results = [one for one in flat(function(*values)) if isinstance(one, torch.Tensor)]
    results = [one for one in results if one.requires_grad]
    torch.manual_seed(2)
    tangents = [torch.randn(one.shape, dtype=one.dtype, requires_grad=True) for one in results]
    found: list[Any] = []
    try:
        first = torch.autograd.grad(results, wanted, tangents, create_graph=True, allow_unused=True)
        found += first
        roots = [one for one in first if one is not None and one.requires_grad]
        further = [torch.randn(one.shape, dtype=one.dtype) for one in roots]  # however it lies
        if roots:
            leaves = [*wanted, *tangents]
            found += torch.autograd.grad(roots, leaves, further, allow_unused=True)
    except (RuntimeError, NotImplementedError) as error:
        found.append(type(error))
    return found


def compare(ours: list[Any], eagers: list[Any]) -> None:
    assert len(ours) == len(eagers), f"{len(ours)} answers instead of {len(eagers)}"
    for place, (one, other) in enumerate(zip(ours, eagers, strict=True)):
        if isinstance(other, torch.Tensor):
            if one is None:
                assert not other.any(), f"answer {place} is None"
                raise AssertionError(f"answer {place} is None instead of zeros")
            double = other.dtype in (torch.float64, torch.complex128)
            near = {"rtol": 1e-6, "atol": 1e-8} if double else {"rtol": 1e-3, "atol": 1e-4}
            torch.testing.assert_close(one, other, equal_nan=True, **near)
        else:
            assert one is other, f"answer {place} is {type(one)} instead of {other}"


def run_op(info: Any, dtype: torch.dtype = DTYPE) -> Outcome:
    """The first sample of an op."""
    name = info.name + (f".{info.variant_test_name}" if info.variant_test_name else "")
    if info.name in UNDETERMINED or not info.supports_gradgrad:
        return Outcome(name, "skipped")
    try:
        sample = next(iter(info.sample_inputs("cpu", dtype, requires_grad=True)))
        tensors: TENSORS = []
        rebuild = _flatten([sample.input, sample.args, sample.kwargs], tensors)

        def function(*given: torch.Tensor) -> tuple[Any, ...]:
            first, args, kwargs = rebuild(given)
            return tuple(_leaves(info.op(first, *args, **kwargs)))

        if any(one.layout != torch.strided for one in tensors):
            return Outcome(name, "skipped", "a sparse input")
        wanted = second(function, tensors)
    except Exception as error:
        return Outcome(name, "skipped", f"{type(error).__name__}: {error}")
    try:
        compare(second(Compiled(function, tensors), tensors), wanted)
    except Unsupported as reason:
        return Outcome(name, "unsupported", str(reason))
    except (Exception, AssertionError) as error:
        first, *_ = str(error).strip().splitlines() or [""]
        return Outcome(name, "wrong", f"{type(error).__name__}: {first}")
    return Outcome(name, "equal")


def sweep(names: tuple[str, ...] = (), dtype: torch.dtype = DTYPE) -> Iterator[Outcome]:
    """Every op of torch's list that is differentiable in the dtype, or those of these names."""
    from torch.testing._internal import common_methods_invocations

    # The list's random ops seed the generator themselves, inside what we would record.
    common_methods_invocations.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)
    for info in common_methods_invocations.op_db:
        supported = info.supports_autograd and dtype in info.supported_backward_dtypes("cpu")
        if supported and (not names or info.name in names):
            torch.manual_seed(0)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield run_op(info, dtype)


def main(arguments: Sequence[str]) -> None:
    dtype, names = chosen(arguments, DTYPE)
    counts: dict[str, int] = {}
    for outcome in sweep(names, dtype):
        counts[outcome.kind] = counts.get(outcome.kind, 0) + 1
        if outcome.kind not in ("equal", "skipped"):
            print(f"{outcome.kind:12} {outcome.name:45} {outcome.detail[:160]}", flush=True)
    print(counts)


if __name__ == "__main__":
    main(sys.argv[1:])
