"""Functions of `torch.func` over a body: the target of one node.

Enters: the graph of a function that was given to a transform, tensors. Leaves: `Transform`, a
callable of tensors. Invariant: it is torch's own transform of that graph, with its rules for
batches, levels, random numbers and refusals. Run on tensors without data, under a recorder, it is
the operations that the transform comes to; run on real ones, it is what eager does.

    per_sample = transform['vmap', 2, ((0, None), (0,), 'error', None)]((), x, w, bias)
      body: graph(x, w, bias) → (y,)

Of its operands the first are given to the transform, the others are what the body reads besides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from windfall.ir.control_flow import KINDS, Results, Subgraphs, run

Body = Callable[..., Results]
Tensors = Sequence[torch.Tensor]


class Transform(Subgraphs):
    """See the module. `facts`: which transform, how many operands it is given, its settings."""

    kind = "transform"
    parts = ("body",)
    is_followed = True

    def __call__(self, *arguments: Any) -> Results:
        """What torch answers."""
        return self.follow(None, *arguments)

    def follow(self, standing_for: Callable[[Any], Any] | None, *arguments: Any) -> Results:
        """The same, with other functions where `standing_for` knows some."""
        name, count, settings = self.facts
        sizes, *operands = arguments
        given, others = operands[:count], operands[count:]
        values = dict(zip(map(str, self.symbols), sizes, strict=True)) if self.symbols else {}
        numbers = () if self.symbols else sizes

        def body(*tensors: torch.Tensor) -> Results:
            return run(self.graphs[0], (*numbers, *tensors, *others), values, standing_for)

        return _TRANSFORMS[name](body, given, *settings)


KINDS[Transform.kind] = Transform


# -------------------------------------------------------------------- one row for each transform


def _grad(body: Body, given: Tensors, argnums: tuple[int, ...]) -> Results:
    """Gradients of the first result, that result, then the other ones."""

    def loss(*tensors: torch.Tensor) -> tuple[torch.Tensor, Results]:
        first, *others = body(*tensors)
        return first, tuple(others)

    gradients, (value, others) = torch.func.grad_and_value(loss, argnums, has_aux=True)(*given)
    return (*gradients, value, *others)


def _vmap(
    body: Body,
    given: Tensors,
    in_dims: tuple[int | None, ...],
    out_dims: tuple[int | None, ...],
    randomness: str,
    chunk_size: int | None,
) -> Results:
    dims: Any = out_dims  # of which some may be None
    mapped = torch.func.vmap(body, in_dims, dims, randomness, chunk_size=chunk_size)
    return tuple(mapped(*given))


def _parted(body: Body, count: int) -> Callable[..., tuple[Results, Results]]:
    """The results that are differentiated, and the others."""

    def parted(*tensors: torch.Tensor) -> tuple[Results, Results]:
        found = body(*tensors)
        return found[:count], found[count:]

    return parted


def _jvp(body: Body, given: Tensors, count: int, strict: bool) -> Results:
    """`given`: where, then in which direction."""
    half = len(given) // 2
    where, direction = tuple(given[:half]), tuple(given[half:])
    parted = _parted(body, count)
    answer: Any = torch.func.jvp(parted, where, direction, strict=strict, has_aux=True)
    found, moved, others = answer
    return (*found, *moved, *others)


def _vjp(body: Body, given: Tensors, count: int) -> Results:
    """The results alone: what pulls back is a node of its own."""
    answer: Any = torch.func.vjp(_parted(body, count), *given, has_aux=True)
    found, _, others = answer
    return (*found, *others)


def _pull_back(body: Body, given: Tensors, count: int) -> Results:
    """`given`: where, then the gradients of the results. (The forward pass is that of the node
    `vjp`: equal operations are done once.)"""
    at = len(given) - count
    answer: Any = torch.func.vjp(_parted(body, count), *given[:at], has_aux=True)
    _, pull, _ = answer
    return tuple(pull(tuple(given[at:])))


def _jacrev(
    body: Body, given: Tensors, argnums: tuple[int, ...], count: int, chunk_size: int | None
) -> Results:
    parted = _parted(body, count)
    whole = torch.func.jacrev(parted, argnums, has_aux=True, chunk_size=chunk_size)
    rows, others = whole(*given)
    return (*(one for row in rows for one in row), *others)


def _jacfwd(
    body: Body, given: Tensors, argnums: tuple[int, ...], count: int, randomness: str
) -> Results:
    parted = _parted(body, count)
    rows, others = torch.func.jacfwd(parted, argnums, has_aux=True, randomness=randomness)(*given)
    return (*(one for row in rows for one in row), *others)


_TRANSFORMS: dict[str, Callable[..., Results]] = {
    "grad": _grad,
    "vmap": _vmap,
    "jvp": _jvp,
    "vjp": _vjp,
    "pull_back": _pull_back,
    "jacrev": _jacrev,
    "jacfwd": _jacfwd,
}
