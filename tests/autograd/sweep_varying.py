"""torch's own list of ops, with one size of the first tensor (and all that are equal to it) taken
as one that varies: recorded once, compared with eager at that size and at others.

python -m tests.autograd.sweep_varying [name …] [dim=0] [skip=0]

prints what specialises and what is wrong; `skip` leaves out samples.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import torch

from tests.autograd.harness import check_gradients, flat, same_tensor
from tests.autograd.sweep import UNDETERMINED, Outcome, _flatten, _leaves
from tests.autograd.varying import Varying
from windfall.errors import Specialise, Unsupported
from windfall.ir.dtype import TensorType
from windfall.ir.symint import size_symbol


def _type(tensor: torch.Tensor, size: int, symbol: Any) -> TensorType:
    sizes = tuple(symbol if one == size else one for one in tensor.shape)
    strides: list[Any] = [0] * tensor.dim()
    step: Any = 1
    for dim in sorted(range(tensor.dim()), key=tensor.stride, reverse=False):
        strides[dim] = step
        step = step * sizes[dim]
    return TensorType(tensor.dtype, sizes, tuple(strides), requires_grad=tensor.requires_grad)


def _at(tensor: torch.Tensor, size: int, new: int) -> torch.Tensor:
    """The tensor with sizes that were `size` made `new`, by repeating what is in it."""
    result = tensor.detach()
    for dim, one in enumerate(tensor.shape):
        if one == size:
            result = result.index_select(dim, torch.arange(new) % size)
    order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    dense = result.permute(order).contiguous()
    result = dense.permute([order.index(dim) for dim in range(tensor.dim())])
    return result.clone().requires_grad_(tensor.requires_grad)


def _is_dense(tensor: torch.Tensor) -> bool:
    order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    return tensor.permute(order).is_contiguous() and tensor.layout is torch.strided


def _sample(info: Any, grad: bool, dim: int, skip: int) -> Any:
    """A sample whose first tensor has a size at `dim` that may vary (the first such, or a later
    one), as a function of its tensors, and these."""
    for sample in islice(info.sample_inputs("cpu", torch.float32, requires_grad=grad), 20):
        tensors: list[torch.Tensor] = []
        rebuild = _flatten([sample.input, sample.args, sample.kwargs], tensors)
        if not tensors or tensors[0].dim() == 0 or tensors[0].shape[dim] < 2:
            continue
        if all(map(_is_dense, tensors)):
            if not skip:
                return rebuild, tensors
            skip -= 1
    return None


def run_op(info: Any, dim: int = 0, skip: int = 0) -> Outcome:
    """One op, with the size at `dim` of its first tensor as the one that varies."""
    name = info.name + (f".{info.variant_test_name}" if info.variant_test_name else "")
    if info.name in UNDETERMINED:
        return Outcome(name, "skipped", "its result is not determined")
    grad = info.supports_autograd and torch.float32 in info.supported_backward_dtypes("cpu")
    try:
        found = _sample(info, grad, dim, skip)
        if found is None:
            return Outcome(name, "skipped", "no sample with a size that may vary")
        rebuild, tensors = found

        def function(size: int, *given: torch.Tensor) -> tuple[Any, ...]:
            first, args, kwargs = rebuild(given)
            return tuple(_leaves(info.op(first, *args, **kwargs)))

        size = tensors[0].shape[dim]
        function(size, *(_at(one, size, size) for one in tensors))
    except Exception as error:
        return Outcome(name, "skipped", f"{type(error).__name__}: {error}")
    return _compare(name, function, tensors, size)


def _compare(
    name: str, function: Callable[..., Any], tensors: list[torch.Tensor], size: int
) -> Outcome:
    symbol = size_symbol("s0", size)
    try:
        made = Varying(function, [symbol], [_type(one, size, symbol) for one in tensors])
        tried = 0
        for new in (size, size + 1, 2 * size, size + 2, 3 * size):
            if all(one.holds({"s0": new}) for one in made.joint.relations):
                tried += _at_size(function, made, tensors, size, new)
    except Specialise as reason:
        return Outcome(name, "specialises", reason.detail)
    except Unsupported as reason:
        return Outcome(name, "unsupported", str(reason))
    except (Exception, AssertionError) as error:
        first, *_ = str(error).strip().splitlines() or [""]
        return Outcome(name, "wrong", f"{type(error).__name__}: {first}")
    if tried < 2:
        return Outcome(name, "one size", ", ".join(made.relations))
    return Outcome(name, "related" if made.relations else "equal", ", ".join(made.relations))


def _at_size(
    function: Callable[..., Any], made: Varying, tensors: list[torch.Tensor], size: int, new: int
) -> bool:
    eagers, ours = ([_at(one, size, new) for one in tensors] for _ in range(2))
    torch.manual_seed(1)
    try:
        expected = flat(function(new, *[one * 1 if one.requires_grad else one for one in eagers]))
    except Exception:
        if new == size:
            raise
        return False  # this size does not fit the sample's other arguments
    torch.manual_seed(1)
    found = flat(made.call(new, *[one * 1 if one.requires_grad else one for one in ours]))
    for one, other in zip(found, expected, strict=True):
        same_tensor(one, other)
    check_gradients(
        found,
        [one for one in ours if one.requires_grad],
        expected,
        [one for one in eagers if one.requires_grad],
    )
    return True


def sweep(names: tuple[str, ...] = (), dim: int = 0, skip: int = 0) -> Iterator[Outcome]:
    """Every float32 op of torch's list, or those of these names; `skip` leaves out samples."""
    from torch.testing._internal import common_methods_invocations

    # The list's random ops seed the generator themselves, inside what we would record.
    common_methods_invocations.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)
    for info in common_methods_invocations.op_db:
        if torch.float32 in info.dtypes and (not names or info.name in names):
            torch.manual_seed(0)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield run_op(info, dim, skip)


def main(names: tuple[str, ...]) -> None:
    counts: Counter[str] = Counter()
    dim, skip = (int(one.partition("=")[2] or 0) for one in _options(names))
    for outcome in sweep(tuple(one for one in names if "=" not in one), dim, skip):
        counts[outcome.kind] += 1
        if outcome.kind != "equal":
            print(f"{outcome.kind:12} {outcome.name:45} {outcome.detail[:200]}", flush=True)
    print(dict(counts))


def _options(names: tuple[str, ...]) -> tuple[str, str]:
    given = [next((one for one in names if one.startswith(name)), "") for name in ("dim=", "skip=")]
    return given[0], given[1]


if __name__ == "__main__":
    main(tuple(sys.argv[1:]))
