"""What stands between the user's tensors and a pure graph.

Enters: a `Joint` and its `Split`. Leaves: `conventions`, outermost first: records, each of which
puts its one difference around a callable. The innermost is given the graph's inputs and answers its
writes and fresh results; the outermost takes and answers what the captured graph did.

Invariant: seen from outside, eager ran: the same objects come back, views look at the same memory,
inputs hold what was written and their versions say how often.

Where sizes vary, arguments begin with the values of the symbols (`names`), on both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.fx

from windfall import torch_abi
from windfall.autograd.overlap import EagerIfOverlapping
from windfall.ir.codec import record
from windfall.ir.rollback import DrawsNothing
from windfall.ir.stages import Convention, GraphCallable, Joint, OutputFact, Signature, Split
from windfall.ops.symbolic import at

Values = tuple[Any, ...]


@record
@dataclass(frozen=True, slots=True)
class EnablesGrad:
    """A graph that is entered without grad mode and switches it on inside."""

    def around(self, call: GraphCallable) -> GraphCallable:
        """`call`, in grad mode."""

        def enabled(*args: Any) -> Values:
            with torch.enable_grad():
                return call(*args)

        return enabled


@record
@dataclass(frozen=True, slots=True)
class WriteBack:
    """Inputs get the contents that the graph answered for them, its first results."""

    signature: Signature
    names: tuple[str, ...] = ()

    def around(self, call: GraphCallable) -> GraphCallable:
        """`call`, and then the writes."""
        return lambda *args: self._leave(args, call(*args))

    def _leave(self, args: Values, results: Values) -> Values:
        """Write, where autograd may see it if it saw it in eager."""
        args = args[len(self.names) :]
        writes = self.signature.writes
        for index, value in zip(writes, results, strict=False):
            fact = self.signature.inputs[index]
            _write(args[index], value, fact.versions, fact.visible)
        for index, fact in enumerate(self.signature.inputs):
            if fact.versions and not fact.mutated:  # sizes were changed and changed back
                torch_abi.raise_version(args[index], fact.versions)
        return results[len(writes) :]


def _write(target: torch.Tensor, value: torch.Tensor, versions: int, visible: bool) -> None:
    with torch.set_grad_enabled(visible):
        target.copy_(value)
    if versions != 1:
        torch_abi.raise_version(target, versions - 1)  # the copy was one


@record
@dataclass(frozen=True, slots=True)
class Outputs:
    """The captured graph's outputs, from the fresh results and the inputs."""

    signature: Signature
    names: tuple[str, ...] = ()

    def around(self, call: GraphCallable) -> GraphCallable:
        """`call`, whose results become outputs."""
        return lambda *args: self._leave(args, call(*args))

    def _leave(self, args: Values, results: Values) -> Values:
        """Each output as its fact says."""
        facts = self.signature.outputs
        if self.names:
            values = dict(zip(self.names, args, strict=False))
            args = args[len(self.names) :]
            facts = tuple([at_sizes(one, values) for one in facts])
        made: list[Any] = []
        for one in facts:
            again = one.same_as >= 0
            made.append(made[one.same_as] if again else _MAKERS[one.kind](one, args, results))
        return tuple(made)


def at_sizes(fact: OutputFact, values: Mapping[str, int]) -> OutputFact:
    """A fact whose views (or value) vary, in a call in which the symbols have these values."""
    if not fact.views and fact.kind != "constant":
        return fact
    views = tuple(
        (func, at(args, values), {name: at(one, values) for name, one in kwargs.items()})
        for func, args, kwargs in fact.views
    )
    return replace(fact, views=views, value=at(fact.value, values))


def _view(fact: OutputFact, base: torch.Tensor) -> torch.Tensor:
    """The view that eager made, made again on the real base, in the grad mode of then."""
    result = base
    with torch.set_grad_enabled(fact.needs_grad if base.requires_grad else torch.is_grad_enabled()):
        for func, args, kwargs in fact.views:
            result = func(result, *args, **kwargs)
        if fact.refused:
            result = result if fact.views else torch.ops.aten.alias.default(result)
            torch_abi.refuse_writes(result, fact.refused)
    return result


_MAKERS: dict[str, Callable[[OutputFact, Values, Values], Any]] = {
    "fresh": lambda fact, args, results: (
        _view(fact, results[fact.base]) if fact.refused else results[fact.base]
    ),
    "input": lambda fact, args, results: args[fact.base],
    "view_of_input": lambda fact, args, results: _view(fact, args[fact.base]),
    "view_of_output": lambda fact, args, results: _view(fact, results[fact.base]),
    "constant": lambda fact, args, results: fact.value,
}


def conventions(joint: Joint, split: Split, retried: bool = False) -> tuple[Convention, ...]:
    """What a split graph needs, outermost first; nothing if it returns its results. `retried`: it
    draws random numbers and may refuse data, and eager is then to draw the same numbers again."""
    signature, symbols = split.signature, split.symbols
    names = tuple(str(one) for one in symbols)
    needed: list[Convention] = []
    if retried:
        needed.append(DrawsNothing())
    if signature.writes:
        needed.append(EagerIfOverlapping(signature, symbols, captured(joint)))
    if signature.hidden or any(one.kind != "fresh" or one.refused for one in signature.outputs):
        needed.append(Outputs(signature, names))
    if any(one.mutated or one.versions for one in signature.inputs):
        needed.append(WriteBack(signature, names))
    if split.backward is not None and not joint.grad_enabled:
        needed.append(EnablesGrad())
    return tuple(needed)


def captured(joint: Joint) -> torch.fx.Graph:
    """What eager runs, where it must."""
    assert joint.captured is not None, "this joint graph does not know what it was made from"
    return joint.captured
