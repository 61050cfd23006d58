"""Whether ops that are said to refuse no data do: each is called with data that kernels refuse.

Enters: names of torch's `op_db`. Leaves: the ATen calls that their samples make and that windfall
may leave out when nobody reads them (`Op.refuses` is not set), with what eager raised when one of
their operands held NaN, infinities, zeros, negative or large numbers. Invariant: nothing is
compiled.

    python -m tests.conformance.refused_data [--only linalg]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from tests.conformance.op_db_samples import copied
from windfall.ops.registry import lookup

Call = tuple[Any, tuple[Any, ...], dict[str, Any]]

# Eager itself ends the process when an index of these is out of bounds, or writes elsewhere. (Who
# calls them has the indices from the op whose gradient they are, or from a factorisation.)
UNCHECKED = ("linalg_ldl_solve", "max_pool2d_with_indices_backward", "_scaled_mm")
_FLOATS = (float("nan"), float("inf"), 0.0, -1.0, 1e30)
_INTEGERS = (0, 1, -1, 99)


def may_be_dead(func: Any) -> bool:
    """Whether a call of an ATen op is left out where nobody reads what it answers, and is not made
    of loops (whose checks have tests of their own)."""
    record, schema = lookup(func), func._schema
    if func.namespace != "aten" or any(name in schema.name for name in UNCHECKED):
        return False
    says = record.refuses or record.random or record.view or record.lower is not None
    return not says and bool(schema.returns) and not schema.is_mutable


class _Noting(TorchDispatchMode):
    """Keeps some calls of each op that may be dead."""

    def __init__(self, calls: dict[str, Call]) -> None:
        super().__init__()
        self.calls = calls

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if may_be_dead(func):
            key = f"{func} {tree_map(_described, (args, kwargs))}"
            self.calls.setdefault(key, (func, *tree_map(_kept, (args, kwargs))))
        return func(*args, **kwargs)


def _described(leaf: Any) -> Any:
    return (tuple(leaf.shape), leaf.dtype) if isinstance(leaf, torch.Tensor) else leaf


def _kept(leaf: Any) -> Any:
    return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf


def calls_of(infos: Iterable[Any], samples: int = 8) -> list[Call]:
    """The calls that the first samples of some ops make, of each sort one."""
    found: dict[str, Call] = {}
    for info in infos:
        if not info.dtypes or info.name.startswith("jiterator"):  # those are CUDA's
            continue
        dtype = torch.float32 if torch.float32 in info.dtypes else next(iter(info.dtypes))
        torch.manual_seed(0)
        made = info.sample_inputs("cpu", dtype, requires_grad=False)
        for sample, _ in zip(made, range(samples), strict=False):
            first, rest, named = copied((sample.input, sample.args, sample.kwargs))
            with _Noting(found):
                info.op(first, *rest, **named)
    return list(found.values())


def filled(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Tensors of this type that hold what kernels refuse."""
    if not tensor.numel() or tensor.layout is not torch.strided:
        return
    floats = tensor.is_floating_point() or tensor.is_complex()
    for value in _FLOATS if floats else _INTEGERS:
        if tensor.dtype is not torch.bool or value in (0, 1):
            yield torch.full_like(tensor, value)


def refused(call: Call) -> str:
    """What eager raises of this call with other data; an empty text if it never does."""
    func, args, kwargs = call
    leaves, structure = tree_flatten((args, kwargs))
    for place, leaf in enumerate(leaves):
        for other in filled(leaf) if isinstance(leaf, torch.Tensor) else ():
            given = [*leaves[:place], other, *leaves[place + 1 :]]
            positional, named = copied(tree_unflatten(given, structure))
            try:
                func(*positional, **named)
            except Exception as error:
                return f"{func}, operand {place} of {other.reshape(-1)[0].item()}: {error}"
    return ""


def main() -> None:
    """Print what is refused; the exit status says whether anything was."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--only", default="")
    chosen = options.parse_args()
    calls = calls_of(info for info in op_db if chosen.only in info.name)
    found = list(filter(None, map(refused, calls)))
    print("\n".join(found))
    print(f"{len(calls)} calls of {len({call[0] for call in calls})} ops, {len(found)} refused")
    raise SystemExit(bool(found))


if __name__ == "__main__":
    main()
