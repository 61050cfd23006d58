"""How often tensors that a graph makes were written in it, told to whoever holds them.

Enters: a capture whose results are known. Leaves: one line that sets the versions of results that
operations of the graph wrote in place. Invariant: versions of inputs, and of what shares memory
with them, are not touched here: whoever runs the graph counts these.

(A segment that is one native call has no line, and its results have counted nothing. Nor have they
where one of them needs a gradient, unless the pass stands in the graph itself: what an autograd
node has saved must stay as it was counted.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windfall import torch_abi
from windfall.frontend.values.tensor import Tensor
from windfall.ir.backward_pass import backward_pass
from windfall.ops.fake import storage_of

if TYPE_CHECKING:
    from windfall.frontend.recipe import Recipe
    from windfall.frontend.services import Machine


def count_writes(machine: Machine, recipe: Recipe) -> str | None:
    """The line, if there is anything to count."""
    results = set(recipe.outputs)
    tensors = [one for one in machine.graph.fakes.values() if isinstance(one, Tensor)]
    given = {storage_of(one.fake(machine)) for one in tensors if one.source is not None}
    made = {
        one._node: one.fake(machine)
        for one in tensors
        if one.source is None and one._node in results
    }
    inside = any(node.target is backward_pass for node in machine.graph.calls)
    if not inside and any(fake.requires_grad for fake in made.values()):
        return None
    own = {node: fake for node, fake in made.items() if storage_of(fake) not in given}
    versions = torch_abi.versions_of(list(own.values()))
    counted = {node: one for node, one in zip(own, versions, strict=True) if one and node}
    if not counted:
        return None
    names = "".join(f"{recipe.graph_output(node)}, " for node in counted)
    numbers = "".join(f"{one}, " for one in counted.values())
    return f"{recipe.known(torch_abi.set_versions, 'set_versions')}(({names}), ({numbers}))"
