"""Inputs that cannot be written as a pure graph would: seen at the call, left to eager, counted.

Enters: the types of a graph's inputs and which of them it writes. Leaves: conventions that look at
the real tensors. Invariant: overlap, which is checked by address, is never wrongly denied; ranges
that interleave without meeting (columns of one matrix) count as overlapping.

A pure graph reads all inputs before it writes any; where one lies upon another, eager's order of
reads and writes matters, and eager is asked. Where somebody watches the gradient of an input that
is written, eager's history of each write matters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch.fx

from windfall import torch_abi
from windfall.autograd.interpret import replayer
from windfall.dataclass import dataclass
from windfall.ir.codec import record
from windfall.ir.dtype import TensorType
from windfall.ir.rollback import FailsUnseen
from windfall.ir.stages import GraphCallable, InputFact, Signature
from windfall.ir.symint import Expression, Size, evaluate

Overlap = Callable[[Sequence[Any]], bool]


@record
@dataclass(frozen=True, slots=True)
class EagerIfOverlapping:
    """A graph that writes inputs: where one lies upon another, eager runs what was captured."""

    signature: Signature
    symbols: tuple[Expression, ...]
    captured: torch.fx.Graph

    def around(self, call: GraphCallable) -> GraphCallable:
        """`call`, or eager."""
        return self.counting(call, _uncounted)

    def counting(self, call: GraphCallable, count: Callable[[str], None]) -> GraphCallable:
        """The same; `count` is told why it was eager."""
        overlaps = overlap_check(self.signature, self.symbols)
        eager = _eager(self.signature, len(self.symbols), self.captured)

        def chosen(*args: Any) -> Any:
            if not overlaps(args):
                return call(*args)
            count("an input that is written overlaps another one")
            return eager(*args)

        return chosen


@record
@dataclass(frozen=True, slots=True)
class EagerIfHooked:
    """A graph that writes inputs with a history: where one has a hook, or retains its gradient,
    eager runs what was captured. Which of the values that the input has in turn a hook belongs to,
    and which way around it gradients go, only its own history says."""

    signature: Signature
    symbols: int
    captured: torch.fx.Graph

    def around(self, call: GraphCallable) -> GraphCallable:
        """`call`, or eager."""
        return self.counting(call, _uncounted)

    def counting(self, call: GraphCallable, count: Callable[[str], None]) -> GraphCallable:
        """The same; `count` is told why it was eager."""
        facts = enumerate(self.signature.inputs, self.symbols)
        written = [index for index, one in facts if one.mutated and one.needs_grad]
        eager = _eager(self.signature, self.symbols, self.captured)
        is_hooked = torch_abi.is_hooked

        def chosen(*args: Any) -> Any:
            if not any([is_hooked(args[index]) for index in written]):
                return call(*args)
            count("an input that is written has hooks")
            return eager(*args)

        return chosen


@record
@dataclass(frozen=True, slots=True)
class EagerIfView:
    """A graph that writes inputs of which autograd has a history, or gets one: where such a one is
    a view, and its new history would not be eager's, eager runs what was captured. Which it would
    not be is said of some inputs (`InputFact.alone`); of others, somebody watches a gradient
    between the view and what it looks at, where none comes along any more. So are inputs that
    autograd is made to look past (`InputFact.looked_past`), where they look at what is plain."""

    signature: Signature
    symbols: int
    captured: torch.fx.Graph

    def around(self, call: GraphCallable) -> GraphCallable:
        """`call`, or eager."""
        return self.counting(call, _uncounted)

    def counting(self, call: GraphCallable, count: Callable[[str], None]) -> GraphCallable:
        """The same; `count` is told why it was eager."""
        facts = [*enumerate(self.signature.inputs, self.symbols)]
        looked_at = [(index, one.alone) for index, one in facts if _is_history_written(one)]
        past = [index for index, one in facts if one.looked_past]
        eager = _eager(self.signature, self.symbols, self.captured)
        is_view, is_hooked = torch_abi.is_view, torch_abi.is_hooked_above

        def chosen(*args: Any) -> Any:
            for index, alone in looked_at:
                if is_view(args[index]) and (alone or is_hooked(args[index])):
                    count("an input that is written is a view")
                    return eager(*args)
            for index in past:
                if torch_abi.is_view_of_plain(args[index]):
                    count("an input of which views are made unseen is a view of what is plain")
                    return eager(*args)
            return call(*args)

        return chosen


def is_watched(fact: InputFact) -> bool:
    """Whether it matters to the history of what is made of an input that it is a view."""
    return fact.looked_past or _is_history_written(fact)


def _is_history_written(fact: InputFact) -> bool:
    return fact.alone or (fact.visible and fact.needs_grad)


def _eager(signature: Signature, symbols: int, captured: torch.fx.Graph) -> GraphCallable:
    written = tuple(symbols + index for index in signature.writes)
    return FailsUnseen(written).around(replayer(captured))


def _uncounted(reason: str) -> None:
    """Nobody is told."""


def overlap_check(signature: Signature, symbols: Sequence[Expression] = ()) -> Overlap:
    """A function that says, of the values of the symbols and the inputs of a call, whether a
    written input overlaps another one."""
    lengths = [_length(one.type) for one in signature.inputs]
    written = [one.mutated for one in signature.inputs]
    names = [str(one) for one in symbols]

    def overlaps(args: Sequence[Any]) -> bool:
        known: Any = lengths
        if names:
            values = dict(zip(names, args, strict=False))
            known, args = [evaluate(one, values) for one in lengths], args[len(names) :]
        ranges = sorted(zip([one.data_ptr() for one in args], known, written, strict=True))
        end = written_end = 0  # of the ranges so far
        for start, length, is_written in ranges:
            if length and start < (end if is_written else written_end):
                return True
            end = max(end, start + length)
            if is_written:
                written_end = max(written_end, start + length)
        return False

    return overlaps


def _length(type: TensorType) -> Size:
    """How many bytes lie from a tensor's first element to the end of its last."""
    if 0 in type.sizes:
        return 0
    elements: Size = 1
    for size, stride in zip(type.sizes, type.strides, strict=True):
        elements = elements + (size - 1) * stride
    return elements * type.dtype.itemsize
