"""The samples of torch's own `op_db` as programs of a user.

Enters: the name of an op. Leaves: `make`, which answers a function and its arguments afresh, always
equal. Invariant: nothing here knows a compiler; `tests/replay` runs it on any commit's.
"""

from __future__ import annotations

import copy
import functools
import itertools
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db

Made = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]

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


def samples(info: Any, wants_grad: bool) -> Iterator[Any]:
    """The samples of an op, the same ones each time."""
    torch.manual_seed(0)
    return iter(info.sample_inputs("cpu", torch.float32, requires_grad=wants_grad))


def maker(info: Any, wants_grad: bool, index: int) -> Callable[[], Made]:
    """What makes sample `index` of an op."""
    function = _as_users(info.op)

    def run(first: Any, *rest: Any, **named: Any) -> Any:
        return function(first, *rest, **named)

    sample = next(itertools.islice(samples(info, wants_grad), index, None))

    def make() -> Made:
        first, rest, named = copied((sample.input, sample.args, sample.kwargs))
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


def copied(value: Any) -> Any:
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
