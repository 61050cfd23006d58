"""A backward pass inside of a captured graph: the target of one node.

Enters: tensors to begin at, the gradients that they get, and the tensors whose gradients are asked
for. Leaves: these gradients, None where no history leads there. Invariant: `.grad` of no tensor is
touched: what a leaf does with its gradient stands in the graph behind the node, and in effects.

    pass_ = backward_pass([loss], [ones], [weight, bias], False, False)
    weight_gradient = pass_[0]

Run on tensors without data, under a recorder, it is the operations that the engine comes to; run
on real ones, it is what eager does.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from windfall import torch_abi


def backward_pass(
    roots: Sequence[torch.Tensor],
    tangents: Sequence[torch.Tensor],
    inputs: Sequence[torch.Tensor],
    keep_graph: bool,
    create_graph: bool,
) -> tuple[torch.Tensor | None, ...]:
    """Gradients of `inputs`; `keep_graph`: the pass may be run again, `create_graph`: they have a
    history of their own."""
    return torch_abi.run_by_real_engine(
        roots, tangents, keep_graph=keep_graph, create_graph=create_graph, inputs=inputs
    )
