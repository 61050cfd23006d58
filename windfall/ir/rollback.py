"""Graphs that raise: what must hold so that eager can run the same from its start.

Enters: a graph as a callable. Leaves: the same, behind a convention: it raises `GraphFailed` where
it raised and nothing of it can be seen. Invariant: then inputs hold what they held, versions
included, and no random number has been drawn.

Native code needs none of this: it writes what is its own, and its inputs are written after it has
come to its end. Graphs that run op by op, or in pieces, write as they go.
"""

from __future__ import annotations

from typing import Any

import torch

from windfall import torch_abi
from windfall.dataclass import dataclass
from windfall.errors import GraphFailed
from windfall.ir.codec import record
from windfall.ir.stages import GraphCallable

KEPT_BYTES = 1 << 20  # inputs that a graph writes are kept as they were, up to so much in all


@record
@dataclass(frozen=True, slots=True)
class FailsUnseen:
    """A graph that runs op by op and writes its inputs at these positions: where it raises, they
    are as they were, and `GraphFailed` is raised. It is the exception itself where that cannot be:
    inputs too large to be kept; such whose history changes; such of inference mode, which do not
    say that they were written. Where somebody is told what is saved for backward, the exception
    may be theirs."""

    written: tuple[int, ...] = ()

    def around(self, call: GraphCallable) -> GraphCallable:
        """`call`, unseen where it fails."""
        written = self.written

        def unseen(*inputs: Any) -> tuple[Any, ...]:
            tensors = [one for one in inputs if isinstance(one, torch.Tensor)]
            before = torch_abi.versions_of(tensors)
            kept = _kept([inputs[index] for index in written])
            try:
                return call(*inputs)
            except Exception as error:
                if torch_abi.hooks_saved_tensors() or any(one.is_inference() for one in tensors):
                    raise
                if kept is None or not all(_can_be_put_back(*one) for one in kept):
                    raise
                for one in kept:
                    _put_back(*one)
                if torch_abi.versions_of(tensors) != before:
                    raise
                raise GraphFailed(f"{type(error).__name__}: {error}", error) from None

        return unseen


Kept = tuple[torch.Tensor, torch.Tensor, int]


def _kept(tensors: list[torch.Tensor]) -> list[Kept] | None:
    """Copies of tensors, with their versions; None where they cannot be kept."""
    if sum(one.numel() * one.element_size() for one in tensors) > KEPT_BYTES:
        return None
    copies = [one.detach().clone() for one in tensors]
    return list(zip(tensors, copies, torch_abi.versions_of(tensors), strict=True))


def _can_be_put_back(tensor: torch.Tensor, old: torch.Tensor, version: int) -> bool:
    """Whether a tensor can be as it was: it has its size, and got no history."""
    return tensor.shape == old.shape and (tensor.is_leaf or not tensor.requires_grad)


def _put_back(tensor: torch.Tensor, old: torch.Tensor, version: int) -> None:
    """Let a tensor be as it was. Eager refuses to write to a tensor whose elements share memory:
    one of them stands for all."""
    with torch.no_grad():
        for dim, step in enumerate(tensor.stride()):
            if step == 0 and tensor.shape[dim] > 1:
                tensor, old = tensor.narrow(dim, 0, 1), old.narrow(dim, 0, 1)
        tensor.copy_(old)
    (now,) = torch_abi.versions_of([tensor])
    torch_abi.raise_version(tensor, version - now)


@record
@dataclass(frozen=True, slots=True)
class DrawsNothing:
    """A graph that draws random numbers: where it fails, it has drawn none."""

    def around(self, call: GraphCallable) -> GraphCallable:
        """`call`, after whose failure the generator is as it was."""

        def drawing(*inputs: Any) -> tuple[Any, ...]:
            state = torch.get_rng_state()
            try:
                return call(*inputs)
            except GraphFailed:
                torch.set_rng_state(state)
                raise

        return drawing


@record
@dataclass(frozen=True, slots=True)
class RestoresModes:
    """A graph that switches modes switches them back only if it comes to its end."""

    def around(self, call: GraphCallable) -> GraphCallable:
        """`call`, after whose failure modes are as they were."""

        def restoring(*inputs: Any) -> tuple[Any, ...]:
            before = torch_abi.modes()
            try:
                return call(*inputs)
            except BaseException:
                torch_abi.set_modes(before)
                raise

        return restoring
