"""What stands between the user's tensors and a pure graph.

Enters: a `Joint` and its `Split`. Leaves: `conventions`, outermost first: records, each of which
puts its one difference around a callable. The innermost is given the graph's inputs and answers its
writes and fresh results; the outermost takes and answers what the captured graph did.

Invariant: seen from outside, eager ran: the same objects come back, views look at the same memory,
inputs hold what was written and their versions say how often.

Where sizes vary, arguments begin with the values of the symbols (`names`), on both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.fx

from windfall import torch_abi
from windfall.autograd.overlap import (
    EagerIfHooked,
    EagerIfOverlapping,
    EagerIfView,
    is_watched,
)
from windfall.autograd.passes import memory_root
from windfall.autograd.spent import spent_result
from windfall.dataclass import dataclass
from windfall.ir.codec import record
from windfall.ir.rollback import DrawsNothing
from windfall.ir.stages import Convention, GraphCallable, Joint, OutputFact, Signature, Split
from windfall.ops.symbolic import at, is_symbolic

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
    """Inputs get the contents that the graph answered for them, its first results. Those at the
    positions `placed` were written by the program itself: their versions are counted, unless that
    was done inside of autograd's nodes (`counted`). Those that are written `early` have been."""

    signature: Signature
    names: tuple[str, ...] = ()
    placed: tuple[int, ...] = ()
    counted: bool = False
    early: tuple[int, ...] = ()

    def around(self, call: GraphCallable) -> GraphCallable:
        """`call`, and then the writes, where autograd may see them if it saw them in eager."""
        facts, symbols, writes = self.signature.inputs, len(self.names), self.signature.writes
        copied = [
            (position, symbols + index, facts[index].versions, facts[index].visible)
            for position, index in enumerate(writes)
            if position not in self.placed and position not in self.early
        ]
        count = None if self.counted else count_writes(self.signature, symbols, self.placed)
        fresh = len(writes)

        def writing(*args: Any) -> Values:
            results = call(*args)
            for position, index, versions, visible in copied:
                write(args[index], results[position], versions, visible)
            if count is not None:
                count(args)
            return results[fresh:]

        return writing


def count_writes(
    signature: Signature, symbols: int, placed: Sequence[int]
) -> Callable[[Values], None] | None:
    """A function that raises the versions of inputs that were written in place (those of the writes
    at the positions `placed`, and those that share their memory), or whose sizes were changed and
    changed back; None: of none."""
    facts = signature.inputs
    inputs = [signature.writes[position] for position in placed]
    inputs += [index for index, one in enumerate(facts) if one.versions and not one.mutated]
    once = [symbols + index for index in inputs if facts[index].versions == 1]
    often = [(symbols + i, facts[i].versions) for i in inputs if facts[i].versions > 1]
    if not once and not often:
        return None

    def count(args: Values) -> None:
        if once:
            torch_abi.raise_versions([args[index] for index in once])
        for index, versions in often:
            torch_abi.raise_version(args[index], versions)

    return count


def written_early(split: Split) -> tuple[int, ...]:
    """The positions of writes that autograd sees and that other results are made of, or views
    between them: an input is written before the nodes of these are attached to it, as in eager."""
    signature = split.signature
    count, writes = len(signature.inputs), signature.writes
    positions = {one - count for one in split.gradients_for if count <= one < count + len(writes)}
    facts = (signature.outputs[place] for place in signature.between)
    seen = {one.base for one in facts if one.kind == "view_of_input"}
    positions |= {
        position
        for position, index in enumerate(writes)
        if index in seen and signature.inputs[index].visible
    }
    return tuple(sorted(positions))


def write(target: torch.Tensor, value: torch.Tensor, versions: int, visible: bool) -> None:
    """Give an input its new contents; `visible`: autograd sees it."""
    with torch.set_grad_enabled(visible):
        target.copy_(value)
    if versions != 1:
        torch_abi.raise_version(target, versions - 1)  # the copy was one


def without_writes(split: Split, forward: GraphCallable, placed: Sequence[int]) -> GraphCallable:
    """`forward`, which writes inputs in place: these are no results to autograd. Their versions are
    raised before anything is saved."""
    count = count_writes(split.signature, len(split.symbols), placed)
    if not placed and count is None:
        return forward

    def call(*args: Any) -> tuple[Any, ...]:
        results = list(forward(*args))
        if count is not None:
            count(args)
        for position in placed:
            results[position] = None
        return tuple(results)

    return call


def without_views(split: Split, forward: GraphCallable) -> GraphCallable:
    """`forward`, whose results are no views to autograd: of the views that a node answers it takes
    each for one of an input, and refuses writes to it."""
    (output,) = split.forward.find_nodes(op="output")
    shown = output.args[0][: split.visible]
    views = [index for index, one in enumerate(shown) if memory_root(one) is not one]
    if not views:
        return forward

    def call(*args: Any) -> tuple[Any, ...]:
        results = list(forward(*args))
        for index in views:
            if results[index] is not None:
                results[index] = results[index].detach()
        return tuple(results)

    return call


@record
@dataclass(frozen=True, slots=True)
class Reseen:
    """Inputs that have other sizes and strides afterwards (`x.t_()`)."""

    inputs: tuple[tuple[int, tuple[int, ...], tuple[int, ...]], ...]

    def around(self, call: GraphCallable) -> GraphCallable:
        """`call`, and then the change, whose versions are counted with those of writes."""
        inputs = self.inputs

        def reseen(*args: Any) -> Values:
            results = call(*args)
            with torch.no_grad():
                for index, sizes, strides in inputs:
                    torch_abi.see_as(args[index], sizes, strides)
            return results

        return reseen


@record
@dataclass(frozen=True, slots=True)
class WholeMemory:
    """Inputs that others share memory with: the graph is given all of it, from their start on."""

    inputs: tuple[tuple[int, int], ...]  # positions among the arguments, and numbers of elements

    def around(self, call: GraphCallable) -> GraphCallable:
        """`call`, given tensors of one dimension."""
        inputs = self.inputs

        def given(*args: Any) -> Values:
            tensors = list(args)
            with torch.no_grad():
                for index, elements in inputs:
                    tensors[index] = tensors[index].as_strided((elements,), (1,))
            return call(*tensors)

        return given


@record
@dataclass(frozen=True, slots=True)
class Outputs:
    """The captured graph's outputs, from the fresh results and the inputs."""

    signature: Signature
    names: tuple[str, ...] = ()

    def around(self, call: GraphCallable) -> GraphCallable:
        """`call`, whose results become outputs."""
        signature = self.signature
        varying = tuple(
            index for index, one in enumerate(signature.outputs) if self.names and _varies(one)
        )
        if signature.between or any(
            one.kind == "view_of_view" or one.piece is not None for one in signature.outputs
        ):
            return lambda *args: self._leave_in_order(args, call(*args), varying)
        return lambda *args: self._leave(args, call(*args), varying)

    def _leave(self, args: Values, results: Values, varying: Collection[int]) -> Values:
        """Each output as its fact says; those at `varying` are others at other sizes."""
        facts: Sequence[OutputFact] = self.signature.outputs
        if varying:
            values = dict(zip(self.names, args, strict=False))
            facts = list(facts)
            for index in varying:
                facts[index] = at_sizes(facts[index], values)
        args = args[len(self.names) :]
        made: list[Any] = []
        for one in facts:
            again = one.same_as >= 0
            made.append(made[one.same_as] if again else _MAKERS[one.kind](one, args, results))
        return tuple(made)

    def _leave_in_order(self, args: Values, results: Values, varying: Collection[int]) -> Values:
        """The same, where outputs are views of others, which may come later, or have been made
        between autograd nodes."""
        facts, symbols = self.signature.outputs, len(self.names)
        values = dict(zip(self.names, args, strict=False))
        between, fresh = self.signature.between, self.signature.fresh
        made: dict[int, Any] = dict(zip(between, results[fresh:], strict=True))
        pieces: dict[int, Any] = {}

        def make(index: int) -> Any:
            if index not in made:
                fact = at_sizes(facts[index], values) if index in varying else facts[index]
                if fact.same_as >= 0:
                    made[index] = make(fact.same_as)
                elif fact.kind == "view_of_view":
                    made[index] = made_view(fact, make(fact.base), pieces)
                elif fact.piece is not None:
                    base = args[symbols:] if fact.kind == "view_of_input" else results
                    made[index] = made_view(fact, base[fact.base], pieces)
                else:
                    made[index] = _MAKERS[fact.kind](fact, args[symbols:], results)
            return made[index]

        return tuple([make(index) for index in range(len(facts))])


def _varies(fact: OutputFact) -> bool:
    """Whether its views, or its value, are others at other sizes."""
    views = [(args, tuple(kwargs.values())) for _, args, kwargs in fact.views]
    return is_symbolic([*views, fact.value])


def at_sizes(fact: OutputFact, values: Mapping[str, int]) -> OutputFact:
    """A fact whose views (or value) vary, in a call in which the symbols have these values."""
    if not fact.views and fact.kind != "constant":
        return fact
    views = tuple(
        (func, at(args, values), {name: at(one, values) for name, one in kwargs.items()})
        for func, args, kwargs in fact.views
    )
    return replace(fact, views=views, value=at(fact.value, values))


def made_view(
    fact: OutputFact, base: torch.Tensor, pieces: dict[int, Any] | None = None
) -> torch.Tensor:
    """The view that eager made, made again on the real base, in the grad mode of then. `pieces` are
    the views of this call that were made several at once, by the numbers of facts."""
    group, place = fact.piece or (-1, -1)
    result: Any = None if pieces is None else pieces.get(group)
    if result is None:
        needs = fact.needs_grad if base.requires_grad else torch.is_grad_enabled()
        with torch.set_grad_enabled(needs):
            result = base
            for func, args, kwargs in fact.views:
                result = func(result, *args, **kwargs)
            if fact.refused and fact.piece is None:
                result = result if fact.views else torch.ops.aten.alias.default(result)
                torch_abi.refuse_writes(result, fact.refused)
    if pieces is not None and fact.piece is not None:
        pieces[group] = result
    found: torch.Tensor = result if fact.piece is None else result[place]
    return found


def _fresh(fact: OutputFact, args: Values, result: torch.Tensor) -> torch.Tensor:
    if fact.spent:
        return spent_result(result, [args[index] for index in fact.spent])
    return made_view(fact, result) if fact.refused else result


_MAKERS: dict[str, Callable[[OutputFact, Values, Values], Any]] = {
    "fresh": lambda fact, args, results: _fresh(fact, args, results[fact.base]),
    "input": lambda fact, args, results: args[fact.base],
    "view_of_input": lambda fact, args, results: made_view(fact, args[fact.base]),
    "view_of_output": lambda fact, args, results: made_view(fact, results[fact.base]),
    "constant": lambda fact, args, results: fact.value,
}


def written_in_place(split: Split) -> tuple[int | None, ...]:
    """For each write, the input that the program may write where it stands; None where autograd is
    to see the write, or backward keeps what is written (of which eager may keep nothing, and then
    lets it be written again)."""
    facts = split.signature.inputs
    return tuple(
        None if facts[index].visible or position in split.saved_results else index
        for position, index in enumerate(split.signature.writes)
    )


def conventions(
    joint: Joint,
    split: Split,
    retried: bool = False,
    placed: Sequence[int] = (),
    apart: Container[int] = (),
) -> tuple[Convention, ...]:
    """What a split graph needs, outermost first; nothing if it returns its results. `retried`: it
    draws random numbers and may refuse data, and eager is then to draw the same numbers again;
    `placed`: the positions of the writes that the program does by itself; `apart`: inputs that are
    known to share no memory with another one."""
    signature, symbols = split.signature, split.symbols
    names = tuple(str(one) for one in symbols)
    needed: list[Convention] = []
    if retried:
        needed.append(DrawsNothing())
    if any(index not in apart for index in signature.writes):
        needed.append(EagerIfOverlapping(signature, symbols, captured(joint)))
    if any(one.mutated and one.needs_grad for one in signature.inputs):
        needed.append(EagerIfHooked(signature, len(symbols), captured(joint)))
    if any(map(is_watched, signature.inputs)):
        needed.append(EagerIfView(signature, len(symbols), captured(joint)))
    reseen = [
        (len(names) + index, one.becomes.sizes, one.becomes.strides)
        for index, one in enumerate(signature.inputs)
        if one.becomes is not None
    ]
    if reseen:
        needed.append(Reseen(tuple(reseen)))  # type: ignore[arg-type]
    if signature.hidden or any(map(_is_made, signature.outputs)):
        needed.append(Outputs(signature, names))
    whole = [
        (len(names) + index, int(str(one.type.elements)))
        for index, one in enumerate(signature.inputs)
        if one.whole
    ]
    if whole:
        needed.append(WholeMemory(tuple(whole)))
    if any(one.mutated or one.versions for one in signature.inputs):
        counted = split.backward is not None
        early = written_early(split)
        needed.append(WriteBack(signature, names, tuple(placed), counted, early))
    if split.backward is not None and not joint.grad_enabled:
        needed.append(EnablesGrad())
    return tuple(needed)


def _is_made(fact: OutputFact) -> bool:
    """Whether an output is more than a result of the program."""
    return fact.kind != "fresh" or bool(fact.refused or fact.spent)


def captured(joint: Joint) -> torch.fx.Graph:
    """What eager runs, where it must."""
    assert joint.captured is not None, "this joint graph does not know what it was made from"
    return joint.captured
