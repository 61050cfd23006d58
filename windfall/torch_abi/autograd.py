"""Autograd's engine, counts and states: sequence numbers, versions, views, hooks for saved tensors.

Enters: tensors, or the backward pass that runs in this thread. Leaves: what autograd knows of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from windfall.torch_abi.probes import NotFound, fact, named
from windfall.torch_abi.takeover import run_by_real_engine


def next_autograd_sequence() -> int:
    """The number that the next autograd node made by this thread will have."""
    return int(torch._C._autograd._get_sequence_nr())


def running_autograd_sequence() -> int:
    """The number of the autograd node that the engine runs now in this thread; -1 for none."""
    node = torch._C._current_autograd_node()
    return -1 if node is None else int(node._sequence_nr())


def gradients(
    results: Sequence[torch.Tensor],
    inputs: Sequence[torch.Tensor],
    tangents: Sequence[Any],
    again: bool = False,
) -> tuple[torch.Tensor | None, ...]:
    """As `torch.autograd.grad`, of tangents that are known to fit, and at least one input: its
    check of their sizes loads sympy, which takes half a second and adds to `warnings.filters`.
    `again`: with a history of their own."""
    return run_by_real_engine(
        results, tangents, keep_graph=again, create_graph=again, inputs=inputs
    )


@fact
def freed_history_text() -> str:
    """What torch says to a backward pass through a history that was freed."""
    with torch.enable_grad():
        leaf = torch.ones(1, requires_grad=True)
        result = leaf.exp()
    gradients([result], [leaf], [torch.ones(1)])
    try:
        gradients([result], [leaf], [torch.ones(1)])
    except RuntimeError as error:
        return str(error)
    raise NotFound("a history is not freed")


def versions_of(tensors: Sequence[torch.Tensor]) -> list[int]:
    """Version counters; a tensor of inference mode has none and counts as 0."""
    try:
        return [one._version for one in tensors]
    except RuntimeError:
        return [0 if one.is_inference() else one._version for one in tensors]


def raise_version(tensor: torch.Tensor, by: int) -> None:
    """Count writes that a tensor would have seen in eager."""
    if not tensor.is_inference():
        torch._C._autograd._unsafe_set_version_counter((tensor,), (tensor._version + by,))


def set_versions(tensors: tuple[torch.Tensor, ...], versions: tuple[int, ...]) -> None:
    """Let each tensor have counted so many writes."""
    torch._C._autograd._unsafe_set_version_counter(tensors, versions)


def raise_versions(tensors: list[torch.Tensor]) -> None:
    """Count one write of each; of inference mode, which has no versions, it counts nothing."""
    torch._C._increment_version(tensors)


def shares_version(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether writes of the one are counted by the other too."""
    before = versions_of((other,))
    raise_version(one, 1)
    shared = versions_of((other,)) != before
    raise_version(one, -1)
    return shared


def data_of(tensor: torch.Tensor) -> torch.Tensor:
    """`tensor.data`: as `detach()`, but with a version of its own."""
    return tensor.data


def was_unseen(tensor: torch.Tensor) -> bool:
    """Whether a view was made where autograd was off, of what needs a gradient: it needs one too,
    as eager has it, and leads nowhere."""
    return tensor._is_view() and tensor.requires_grad and tensor.grad_fn is None


def was_left_behind(view: torch.Tensor) -> bool:
    """Whether what a view looks at was given a history after the view was made, and nobody has
    asked for that of the view since: to autograd it is a leaf still, and writes to it are refused.
    Any question (`grad_fn`, `is_leaf`) ends that, this one too."""
    if not view._is_view() or not view.requires_grad:
        return False
    try:
        view.requires_grad_(False)  # leaves alone may be told; it needs one for its base's sake
    except RuntimeError:
        return False
    return view.grad_fn is not None


def unseen(tensor: torch.Tensor, view: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A view, made where autograd does not look."""
    with torch.no_grad():
        return view(tensor, *args, **kwargs)


def see_as(tensor: torch.Tensor, sizes: tuple[int, ...], strides: tuple[int, ...]) -> None:
    """Give a tensor other sizes and strides, where it begins; nothing is counted."""
    version = tensor._version if not tensor.is_inference() else None
    tensor.as_strided_(sizes, strides, tensor.storage_offset())
    if version is not None:
        torch._C._autograd._unsafe_set_version_counter((tensor,), (version,))


def view_base(tensor: torch.Tensor) -> torch.Tensor | None:
    """The tensor that autograd takes `tensor` to be a view of."""
    return tensor._base


_CreationMeta: Any = named("CreationMeta", lambda: torch._C._autograd.CreationMeta)
BY_FUNCTION = _CreationMeta.IN_CUSTOM_FUNCTION.name  # by an `autograd.Function`
_REFUSED = (BY_FUNCTION, _CreationMeta.MULTI_OUTPUT_NODE.name)


def is_view(tensor: torch.Tensor) -> bool:
    """Whether a tensor is a view to autograd."""
    return tensor._is_view()


def is_view_of_plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor is a view, to autograd, of what needs no gradient."""
    base = tensor._base
    return base is not None and not base.requires_grad


def refused_view(tensor: torch.Tensor) -> str:
    """How a view was made to which autograd refuses writes: by a function of the user's, or by one
    that answers several; "" for all others."""
    name = torch._C._autograd._get_creation_meta(tensor).name if tensor._is_view() else ""
    return name if name in _REFUSED else ""


def refuse_writes(view: torch.Tensor, made: str) -> None:
    """Let autograd take a view for one that was made so (an answer of `refused_view`)."""
    torch._C._autograd._set_creation_meta(view, _CreationMeta.__members__[made])


# A context manager under which ops go to their kernels: no history, no view tracking.
below_autograd: Any = named(
    "_AutoDispatchBelowADInplaceOrView", lambda: torch._C._AutoDispatchBelowADInplaceOrView
)


# A context manager under which classes of tensors hear of no call from Python, as they hear of none
# that autograd's engine makes; those that dispatch do.
as_the_engine_calls: Any = named(
    "DisableTorchFunctionSubclass", lambda: torch._C.DisableTorchFunctionSubclass
)


def hooked(tensor: Any) -> None:
    """Stands in captured graphs behind a tensor that the program registers a hook on."""


def is_hooked(tensor: torch.Tensor) -> bool:
    """Whether somebody is told of a tensor's gradient: by a hook, or because it is retained."""
    return bool(tensor._backward_hooks) or tensor.retains_grad


def is_told(tensor: torch.Tensor) -> bool:
    """Whether a hook on a tensor is called where the engine comes by without a gradient: with
    None, or, of a leaf, because one was to be added to its own."""
    return bool(tensor._backward_hooks) or bool(tensor._post_accumulate_grad_hooks)


def hooks_saved_tensors() -> bool:
    """Whether the thread has such hooks now."""
    return torch._C._autograd._top_saved_tensors_default_hooks(False) is not None
