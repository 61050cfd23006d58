"""One subgraph at work: its variants, and who compiles the next.

Enters: numbers and tensors. Leaves: the results of the subgraph. Invariant: any number of threads
may call; one compiles at a time; what cannot be compiled runs op by op, and is counted.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch
import torch.fx

from windfall import locks
from windfall.dataclass import dataclass
from windfall.errors import GraphFailed, Specialise, Unsupported
from windfall.events import Eager, EventKind, EventLog
from windfall.ir.node import info, set_info
from windfall.ir.relation import Relation
from windfall.subgraphs.cuts import Subgraph
from windfall.subgraphs.specialise import Specialisation, filled
from windfall.subgraphs.variant import MISS, Call, Compile, SubgraphVariant

_SINGLE = 1  # operations of a subgraph that is not worth compiling


@dataclass(frozen=True, slots=True)
class Shared:
    """What all subgraphs of one graph have in common."""

    compile: Compile
    given: Sequence[Relation]  # what is known of sizes
    log: EventLog
    limit: int  # variants of one subgraph
    strict: bool
    native: bool = True


class Runner:
    """One subgraph with its variants. Any number of threads may call it; one compiles at a time."""

    def __init__(self, subgraph: Subgraph, name: str, shared: Shared) -> None:
        self.subgraph = subgraph
        self.name = name
        self._shared = shared
        self._variants: tuple[Call, ...] = ()  # the one that was used last first
        self._lock = locks.recursive_lock()
        self._compiled = 0  # so often
        self._natively: Call | None = None
        self._refused = subgraph.operations <= _SINGLE
        self.writes: tuple[int, ...] = ()  # the tensors that a variant is known to write

    def __call__(
        self, numbers: tuple[int, ...], tensors: tuple[torch.Tensor, ...]
    ) -> tuple[Any, ...]:
        """The results of the subgraph."""
        tried = self._variants
        try:
            for one in tried:
                results = one(numbers, tensors)
                if results is not MISS:
                    if one is not tried[0]:
                        self._move_to_front(one)
                    return results
            return self._missed(tried, numbers, tensors)
        except GraphFailed:
            pass
        return self._op_by_op(*numbers, *tensors)  # which says what is wrong

    def _move_to_front(self, variant: Call) -> None:
        if self._lock.acquire(blocking=False):
            try:
                others = [one for one in self._variants if one is not variant]
                self._variants = (variant, *others)
            finally:
                self._lock.release()

    def _missed(
        self, tried: tuple[Call, ...], numbers: tuple[int, ...], tensors: tuple[torch.Tensor, ...]
    ) -> tuple[Any, ...]:
        """No variant fits: compile one, unless another thread just did."""
        failure: Exception | None = None
        mine = False
        while not self._refused and not mine:
            try:
                fresh, mine = self._added(tried, numbers, tensors)
            except Exception as error:  # any torch function may raise any exception
                failure = error
                break
            for one in fresh:
                results = one(numbers, tensors)
                if results is not MISS:
                    return results
            tried += fresh
        try:
            results = self._op_by_op(*numbers, *tensors)  # what the program raises, this raises
            if failure is not None:
                self._give_up(failure)
            return results
        finally:
            del failure  # which holds this very frame, and that the tensors

    def _added(
        self, tried: tuple[Call, ...], numbers: tuple[int, ...], tensors: tuple[torch.Tensor, ...]
    ) -> tuple[tuple[Call, ...], bool]:
        """New variants, and whether they are made for this call; none: this call runs op by op.
        What it raises may be the program's to see."""
        shared = self._shared
        with self._lock:
            fresh = tuple(one for one in self._variants if one not in tried)
            if fresh:
                return fresh, False
            reason = None
            if self._compiled >= _ROUNDS * shared.limit:
                reason = _TOO_MANY
            elif any(one.is_conj() or one.is_neg() for one in tensors):  # types do not say
                reason = _LAZY
            elif _share_memory(tensors, self.writes):
                reason = _SHARED
            if reason is not None:
                shared.log.count(EventKind.FALLBACK, self.name, reason=reason, what=Eager.GRAPH)
                return (), True
            self._compiled += 1
            variant = self._made(numbers, tensors)
            self.writes = tuple({*self.writes, *variant.compiled.writes})
            made = variant.function(self.subgraph, _share_memory, shared.native)
            self._variants = (made, *self._variants[: shared.limit - 1])
            return (made,), True

    def _give_up(self, reason: Exception) -> None:
        """It cannot be compiled, and the program is not to blame."""
        if self._shared.strict and not isinstance(reason, Unsupported):
            raise reason
        # As of entries: these say nothing of the next call.
        passing = (RecursionError, MemoryError)
        self._refused = not isinstance(reason.__cause__ or reason, passing)
        text = f"{type(reason).__name__}: {reason}"
        self._shared.log.count(EventKind.FALLBACK, self.name, reason=text, what=Eager.GRAPH)

    def _made(self, numbers: Sequence[int], tensors: Sequence[torch.Tensor]) -> SubgraphVariant:
        """Compiled for these values; what turns out to be needed as a value is fixed."""
        fixed: set[str] = set()
        while True:
            plan = Specialisation(self.subgraph, numbers, tensors, fixed)
            try:
                compiled = self._shared.compile(
                    plan.graph(),
                    [*plan.numbers, *plan.types],
                    self.name,
                    plan.given(self._shared.given),
                )
            except Specialise as reason:
                new = reason.names & {str(one) for one in plan.numbers} - fixed
                if not new:
                    raise Unsupported(103, str(reason)) from reason
                fixed |= new
                continue
            guards = plan.guards(tensors, compiled.relations)
            return SubgraphVariant(tuple(plan.numbers), tuple(plan.places), guards, compiled)

    @property
    def _op_by_op(self) -> Call:
        if self._natively is None:
            subgraph = self.subgraph
            graph = torch.fx.Graph(owning_module=subgraph.nodes[0].graph.owning_module)
            taken = (*subgraph.numbers, *subgraph.tensors)
            known = {node: set_info(graph.placeholder(node.name), info(node)) for node in taken}
            filled(graph, subgraph, known)
            module = torch.fx.GraphModule(graph.owning_module or torch.nn.Module(), graph)
            self._natively = module.forward
        return self._natively


_SHARED = "what is written shares memory with another tensor of the subgraph"
_TOO_MANY = "compiled for too many different values"
_LAZY = "a conjugate or negative view that is not computed"
_ROUNDS = 4  # times the limit of variants that one subgraph is compiled


def _share_memory(tensors: Sequence[torch.Tensor], written: Collection[int]) -> bool:
    """Whether one that is written shares memory with another. (Pieces of one tensor that are only
    read may share what they like.)"""
    if not written:
        return False
    places = [one.untyped_storage().data_ptr() if one.numel() else None for one in tensors]
    return any(places[one] is not None and places.count(places[one]) > 1 for one in written)
