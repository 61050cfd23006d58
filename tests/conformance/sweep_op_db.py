"""Every float32 op of torch's own `op_db`, on its first samples."""

from __future__ import annotations

import copy
import functools
import itertools
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db

from tests.conformance.checking import Made, check_one
from tests.conformance.sweep import Line

SAMPLES = 3

# Their results are memory that nobody has written.
UNINITIALISED = {
    "empty", "empty_like", "new_empty", "new_empty_strided", "empty_strided", "empty_permuted",
    "resize_", "resize_as_",
}  # fmt: skip


@functools.cache
def table() -> dict[str, Any]:
    """The ops by their names, variants apart."""
    found = {}
    for info in op_db:
        if torch.float32 in info.dtypes:
            variant = f".{info.variant_test_name}" if info.variant_test_name else ""
            found[f"{info.name}{variant}"] = info
    return found


def names() -> list[str]:
    """What can be checked."""
    return sorted(table())


def check(name: str, backend: str, line: Line) -> None:
    """The first samples of one op; with gradients where native code is checked."""
    info = table()[name]
    wants_grad = backend != "eager" and info.supports_autograd
    count = sum(1 for _ in itertools.islice(_samples(info, wants_grad), SAMPLES))
    for index in range(count):
        make = _maker(info, wants_grad, index)
        check_one(make, backend, line, info.name not in UNINITIALISED, info.name)


def _samples(info: Any, wants_grad: bool) -> Iterator[Any]:
    torch.manual_seed(0)
    return iter(info.sample_inputs("cpu", torch.float32, requires_grad=wants_grad))


def _maker(info: Any, wants_grad: bool, index: int) -> Callable[[], Made]:
    function = _as_users(info.op)

    def run(first: Any, *rest: Any, **named: Any) -> Any:
        return function(first, *rest, **named)

    sample = next(itertools.islice(_samples(info, wants_grad), index, None))

    def make() -> Made:
        first, rest, named = _copied((sample.input, sample.args, sample.kwargs))
        return run, (first, *rest), named

    return make


def _unseeded(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Instead of torch's wrapper, which seeds inside of the call: every call is seeded here."""
    return function(*args, **kwargs)


def _as_users(function: Any) -> Any:
    """Small functions that torch's tests wrap around an op, as if a user had written them here."""
    if not isinstance(function, types.FunctionType) or "testing" not in function.__module__:
        return function
    space = {**function.__globals__, "wrapper_set_seed": _unseeded}
    own = types.FunctionType(
        function.__code__, space, function.__name__, function.__defaults__,
        function.__closure__,
    )  # fmt: skip
    own.__kwdefaults__ = function.__kwdefaults__
    own.__module__ = __name__
    return own


def _copied(value: Any) -> Any:
    """The same structure with tensors of its own, strides and sharing kept."""
    memory: dict[int, Any] = {}

    def one(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf if not isinstance(leaf, torch.Generator) else copy.deepcopy(leaf)
        if id(leaf) not in memory:
            memory[id(leaf)] = _fresh(leaf)
        return memory[id(leaf)]

    return torch.utils._pytree.tree_map(one, value)


def _fresh(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.layout is not torch.strided or tensor.is_sparse:
        made = tensor.detach().clone()
    else:
        storage = torch.UntypedStorage(tensor.untyped_storage().nbytes())
        storage.copy_(tensor.untyped_storage())
        made = torch.empty(0, dtype=tensor.dtype).set_(
            storage, tensor.storage_offset(), tensor.shape, tensor.stride()
        )
        made = torch.conj(made) if tensor.is_conj() else made
    return made.requires_grad_(tensor.requires_grad)
