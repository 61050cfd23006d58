"""What stands between the user's tensors and a pure graph: pairs of `enter` and `leave`.

Enters: a `Signature`, and a callable that takes the graph's inputs and answers its writes and fresh
results. Leaves: a callable that takes what the captured graph took and answers what it answered.
Each convention is one object; `compose` puts them around a callable, outermost first.

Invariant: seen from outside, eager ran: the same objects come back, views look at the same memory,
inputs hold what was written and their versions say how often.

Where sizes vary, arguments begin with the values of the symbols (`names`), on both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch

from windfall import torch_abi
from windfall.ir.stages import OutputFact, Signature
from windfall.ir.symint import Expression
from windfall.ops.symbolic import at

Values = tuple[Any, ...]
Callee = Callable[..., tuple[Any, ...]]


class Convention(Protocol):
    """One difference between the two sides of a call."""

    def enter(self, args: Values) -> Values:
        """Arguments of the inner side, from those of the outer one."""

    def leave(self, args: Values, results: Values) -> Values:
        """Results of the outer side, from its arguments and the results of the inner one."""


@dataclass(frozen=True, slots=True)
class Duplicates:
    """The same tensor is given more than once: the graph takes it once. `firsts[i]` is the
    position in the graph's inputs of outer argument `i`."""

    firsts: tuple[int, ...]

    def enter(self, args: Values) -> Values:
        """Each tensor once."""
        taken: dict[int, Any] = {}
        for position, value in zip(self.firsts, args, strict=True):
            taken.setdefault(position, value)
        return tuple(taken[position] for position in range(len(taken)))

    def leave(self, args: Values, results: Values) -> Values:
        """Nothing to undo."""
        return results


@dataclass(frozen=True, slots=True)
class WriteBack:
    """Inputs get the contents that the graph answered for them, its first results."""

    signature: Signature
    names: tuple[str, ...] = ()

    def enter(self, args: Values) -> Values:
        """Nothing to do: the graph reads inputs as they are."""
        return args

    def leave(self, args: Values, results: Values) -> Values:
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


@dataclass(frozen=True, slots=True)
class Outputs:
    """The captured graph's outputs, from the fresh results and the inputs."""

    signature: Signature
    names: tuple[str, ...] = ()

    def enter(self, args: Values) -> Values:
        """Nothing to do."""
        return args

    def leave(self, args: Values, results: Values) -> Values:
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
    return result


_MAKERS: dict[str, Callable[[OutputFact, Values, Values], Any]] = {
    "fresh": lambda fact, args, results: results[fact.base],
    "input": lambda fact, args, results: args[fact.base],
    "view_of_input": lambda fact, args, results: _view(fact, args[fact.base]),
    "view_of_output": lambda fact, args, results: _view(fact, results[fact.base]),
    "constant": lambda fact, args, results: fact.value,
}


def conventions(signature: Signature, symbols: Sequence[Expression] = ()) -> tuple[Convention, ...]:
    """What a graph of this signature needs, outermost first; none if it returns its results."""
    names = tuple(str(one) for one in symbols)
    needed: list[Convention] = []
    if signature.hidden or any(one.kind != "fresh" for one in signature.outputs):
        needed.append(Outputs(signature, names))
    if any(one.mutated or one.versions for one in signature.inputs):
        needed.append(WriteBack(signature, names))
    return tuple(needed)


def is_plain(signature: Signature) -> bool:
    """Whether the graph's results are the captured graph's outputs as they stand."""
    return not conventions(signature)


def compose(callee: Callee, pairs: Sequence[Convention]) -> Callee:
    """`callee` behind these conventions, the first one outermost."""
    for pair in reversed(pairs):
        callee = _behind(pair, callee)
    return callee


def _behind(pair: Convention, callee: Callee) -> Callee:
    def call(*args: Any) -> Values:
        return pair.leave(args, callee(*pair.enter(args)))

    return call
