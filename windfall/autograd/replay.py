"""Gradients by eager: the captured graph is run again, on the inputs of the forward pass.

Enters: what `keep` took of a forward pass, and tangents. Leaves: gradients, differentiable
again if grad mode is on. It serves whatever a compiled backward cannot do.

Invariants: a replay draws the random numbers that the forward pass drew and leaves the generator as
it was; it writes no input of the user's; an input that was written since raises, as in eager.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
import torch.fx

from windfall import torch_abi
from windfall.autograd.interpret import replayer
from windfall.autograd.passes import is_random
from windfall.autograd.record import autocast
from windfall.ir.stages import BackwardRegion, Signature, Split
from windfall.ops.registry import lookup
from windfall.ops.schema import argument

_TWICE = (
    "Trying to backward through the graph a second time (or directly access saved tensors after "
    "they have already been freed). Saved intermediate values of the graph are freed when you call "
    ".backward() or autograd.grad(). Specify retain_graph=True if you need to backward through the "
    "graph a second time or if you need to access saved tensors after calling backward."
)


class Replay:
    """Gradients by eager, from the inputs of the forward pass."""

    def __init__(self, region: BackwardRegion) -> None:
        self._split = split = region.split
        self._replayed = replayer(region.captured)
        self._autocast = region.autocast
        signature = split.signature
        self._random = any(is_random(node) for node in split.forward.nodes)
        self._outputs = _fresh_outputs(signature)
        # Inputs that the graph writes are kept as they were, if that matters to the results, and
        # never as the object: its history will lead here, and nothing would ever be freed.
        self._copied = {index: _matters(split, index) for index in signature.writes}
        self.is_simple = not self._copied and not self._random  # inputs as they are will do

    def keep(self, primals: tuple[Any, ...]) -> tuple[Any, ...]:
        """What a replay would need, taken before the forward pass: primals, their versions, the
        generator's state. It stands in `context.kept`, between the node that it is for and the
        sizes: as one attribute, for each costs a tiny function dear."""
        if self._copied:
            primals = tuple(
                self._old(index, one) if index in self._copied else one
                for index, one in enumerate(primals)
            )
        state = torch.get_rng_state() if self._random else None
        return primals, torch_abi.versions_of(primals), state

    def _old(self, index: int, primal: torch.Tensor) -> torch.Tensor:
        return primal.detach().clone() if self._copied[index] else primal.detach()

    def forget(self, context: Any) -> None:
        """Free it, unless the graph is retained."""
        if not torch_abi.backward_keeps_graph():
            node, *_, sizes = context.kept
            context.kept = (node, None, None, None, sizes)

    def gradients(self, context: Any, tangents: Sequence[torch.Tensor | None]) -> Any:
        """Gradients for all primals, then for all results, differentiable again if grad mode is
        on. What arrives at a result of another node ends there."""
        _, primals, versions, state, sizes = context.kept
        if primals is None:
            raise RuntimeError(_TWICE)
        self._check(primals, versions)
        again = torch.is_grad_enabled()
        with torch.enable_grad():
            handles = [self._handle(i, one, again) for i, one in enumerate(primals)]
            inputs = [
                one.clone() if index in self._copied else one for index, one in enumerate(handles)
            ]
            with _generator_state(state), autocast(self._autocast):
                outputs = self._replayed(*sizes, *inputs)
        results = self._results(inputs, outputs)
        wanted = [index for index in self._split.gradients_for if index < len(handles)]
        slots: list[Any] = [None] * (len(handles) + self._split.visible)
        places = [len(handles) + position for position in self._split.tangent_results]
        hooks = [
            result.register_hook(partial(_stop, slots, place))
            for result, tangent, place in zip(results, tangents, places, strict=True)
            if tangent is None and place in self._split.gradients_for
        ]
        pairs = [
            (result, tangent)
            for result, tangent in zip(results, tangents, strict=True)
            if tangent is not None
        ]
        found = torch.autograd.grad(
            [result for result, _ in pairs],
            [handles[index] for index in wanted],
            [tangent for _, tangent in pairs],
            create_graph=again,
            allow_unused=True,
        )
        for hook in hooks:  # gradients of these gradients do go on
            hook.remove()
        self.forget(context)
        for index, gradient in zip(wanted, found, strict=True):
            slots[index] = gradient
        return tuple(slots)

    def _handle(self, index: int, primal: Any, again: bool) -> Any:
        """A tensor of the replay's own for each primal that needs a gradient; connected to the
        primal's history only if the gradients are to be differentiated."""
        fact = self._split.signature.inputs[index]
        if not fact.needs_grad:
            return primal
        if not again:
            return _leaf(primal)
        if fact.visible:
            raise RuntimeError(
                "windfall: create_graph=True through a compiled graph that writes an input which "
                f"needs a gradient (input {index}) is not supported; clone that input first"
            )
        if not primal.requires_grad:
            return _leaf(primal)
        return primal.view_as(primal)

    def _check(self, primals: Sequence[torch.Tensor], versions: Sequence[int]) -> None:
        written = self._split.signature.writes
        now = torch_abi.versions_of(primals)
        for index, (one, version) in enumerate(zip(primals, versions, strict=True)):
            if index not in written and now[index] != version:
                raise RuntimeError(
                    "one of the variables needed for gradient computation has been modified by an "
                    f"inplace operation: input {index} of a compiled graph, {one.dtype} "
                    f"{list(one.shape)}, is at version {now[index]}; expected version {version} "
                    "instead."
                )

    def _results(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> list[Any]:
        """The replayed tensors that the tangents belong to."""
        split = self._split
        found = [inputs[split.signature.writes[position]] for position in split.write_tangents_for]
        for position in split.tangents_for:
            index, base = self._outputs[position]
            output = outputs[index]
            found.append(torch_abi.view_base(output) if base else output)
        return found


def _leaf(primal: torch.Tensor) -> torch.Tensor:
    leaf = primal.detach()
    leaf.requires_grad = True  # `requires_grad_` refuses where tangents are batched by a transform
    return leaf


def _stop(slots: list[Any], place: int, gradient: torch.Tensor) -> torch.Tensor:
    """A hook that takes what arrives."""
    slots[place] = gradient
    return torch.zeros_like(gradient)


def _fresh_outputs(signature: Signature) -> list[tuple[int, bool]]:
    """For each fresh result: an output to find it by, and whether it is that output's base."""
    found: list[tuple[int, bool]] = [(-1, True)] * signature.fresh
    for index, fact in enumerate(signature.outputs):
        if fact.kind == "fresh":
            found[fact.base] = (index, False)
        elif fact.kind == "view_of_output" and fact.needs_grad and found[fact.base][0] < 0:
            found[fact.base] = (index, True)
    return found


def _matters(split: Split, index: int) -> bool:
    """Whether the old contents of a written input reach anything but what is written.

    Batch norm in training takes running statistics and only updates them."""
    placeholder = [node for node in split.forward.nodes if node.op == "placeholder"][index]
    return not all(_only_updates(user, placeholder) for user in placeholder.users)


def _only_updates(user: torch.fx.Node, operand: torch.fx.Node) -> bool:
    updates = lookup(user.target).updates
    if updates is None or argument(user.target, updates.when, user.args, user.kwargs) is not True:
        return False
    given = [argument(user.target, one, user.args, user.kwargs) for one in updates.arguments]
    return given.count(operand) == [*user.args, *user.kwargs.values()].count(operand) == 1


@contextmanager
def _with_state(state: torch.Tensor) -> Iterator[None]:
    now = torch.get_rng_state()
    torch.set_rng_state(state)
    try:
        yield
    finally:
        torch.set_rng_state(now)


def _generator_state(state: torch.Tensor | None) -> AbstractContextManager[None]:
    return nullcontext() if state is None else _with_state(state)
