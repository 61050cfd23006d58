"""Passes that differ in sizes and numbers alone: recorded twice, then one program for all.

Enters: a pass whose key is not known. Leaves: a `PassReplay` for it, made of two recordings of its
kind; or what a recording of it teaches. Invariant: the first pass that a program for sizes that
vary would run is run node by node, and what that does is compared with what the program says of it:
a program that was wrong there is never used. Where sizes need code of their own, each has.

    batch 3: recorded    batch 4: recorded, a program for any    batch 5: confirmed    6, 7, …: run
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from windfall import locks
from windfall.engine.backward_graph import NodeKey
from windfall.engine.execution import PassRequest
from windfall.engine.program import PassProgram, PassSegment, lifted_in
from windfall.engine.replay import (
    CompiledSegment,
    CompilesSegments,
    PassReplay,
    VaryingSegment,
)
from windfall.engine.steps import Lifted
from windfall.engine.vary import Fixed, Number, Spread, VaryingProgram
from windfall.errors import GraphFailed
from windfall.ir.dtype import TensorType

TRIES = 4  # to make one program of two, for passes of one kind


class Instance(NamedTuple):
    """A program for sizes that vary, at those of one pass."""

    replay: PassReplay
    varying: VaryingProgram
    confirmed: bool


class Family:
    """Passes of one kind: what was recorded first, and the program for all of them. `kept` is what
    keys refer to by its address: it lives as long as these do."""

    def __init__(self, name: str, compiler: CompilesSegments, kept: Sequence[Any]) -> None:
        self.name, self.kept, self._compiler = name, tuple(kept), compiler
        self.reason = ""  # why there is no program for all
        self._tries = 0
        self._first: tuple[Sequence[NodeKey], Spread, PassProgram] | None = None
        self._program: VaryingProgram | None = None
        self._confirmed = False
        self._segments: dict[tuple[VaryingProgram, int], VaryingSegment | None] = {}
        self._lock = locks.recursive_lock()

    def instance(
        self, keys: Sequence[NodeKey], seen: Spread, request: PassRequest
    ) -> Instance | None:
        """The replay of a pass, if there is a program for it."""
        with self._lock:
            program, confirmed = self._program, self._confirmed
        values = None if program is None else program.values(seen)
        if program is None or values is None:
            return None
        made = program.at(values)
        shown = ", ".join(f"{name} = {value}" for name, value in sorted(values.items()))
        compile_step = functools.partial(self._compiled, program, made, values)
        replay = PassReplay(
            made, keys, request, f"{self.name} at {shown}", compile_step, is_instance=True
        )
        return Instance(replay, program, confirmed)

    def confirm(self, made: Instance, recorded: PassProgram) -> bool:
        """Whether a pass did what the program for all says of it."""
        program = made.replay.program
        same = program == replace(recorded, opaque=program.opaque)  # which is text
        with self._lock:
            if self._program is made.varying and same:
                self._confirmed = True
            elif self._program is made.varying:
                self._program, self._tries = None, TRIES
                self.reason = "the program for sizes that vary was wrong for a third size"
        return same

    def learn(self, keys: Sequence[NodeKey], seen: Spread, recorded: PassProgram) -> None:
        """A recording of this kind: the first, or one that makes a program for all with it."""
        with self._lock:
            if self._first is None:
                self._first = (tuple(keys), seen, recorded)
                return
            if self._tries >= TRIES:
                return
            self._tries += 1
            try:
                self._program = VaryingProgram(
                    self._first[0], self._first[1], seen, self._first[2], recorded
                )
                self._confirmed, self._segments, self.reason = False, {}, ""
            except Fixed as reason:
                self.reason = str(reason)

    # ------------------------------------------------------------------------------- compiled

    def _compiled(
        self,
        program: VaryingProgram,
        made: PassProgram,
        values: Mapping[str, Number],
        place: int,
        step: PassSegment,
    ) -> CompiledSegment:
        """The graph of a step, for these values: code for all of them, or its own."""

        @functools.cache
        def own() -> CompiledSegment:
            types = [made.types[one] for one in step.inputs]
            known = [one for one in types if one is not None]
            return self._compiler(made.graph(step), known, f"{self.name} graph {place}")

        whole = self._varying(program, place)
        sizes = {name: value for name, value in values.items() if isinstance(value, int)}
        if whole is None or not all(one.holds(sizes) for one in whole.relations):
            return own()
        general = program.program.steps[place]
        assert isinstance(general, PassSegment)
        before: list[Any] = [values[str(one)] for one in program.symbols]
        before += [torch.tensor(values[one.name], dtype=one.dtype) for one in lifted_in(general)]
        call = whole.compiled.call

        def run(*tensors: Any) -> Sequence[Any]:
            try:
                return call(*before, *tensors)
            except GraphFailed:
                return own().call(*tensors)  # which says what is wrong

        return CompiledSegment(run, whole.compiled.owned)

    def _varying(self, program: VaryingProgram, place: int) -> VaryingSegment | None:
        """The code for all sizes."""
        with self._lock:
            if (program, place) not in self._segments:
                step = program.program.steps[place]
                assert isinstance(step, PassSegment)
                types = [program.program.types[one] for one in step.inputs]
                graph = program.program.graph(step, program.symbols)
                lifted = [_number(one) for one in lifted_in(step)]
                known = [one for one in types if one is not None]
                self._segments[program, place] = self._compiler.varying(
                    graph, [*program.symbols, *lifted, *known], f"{self.name} graph {place}"
                )
            return self._segments[program, place]


def _number(one: Lifted) -> TensorType:
    assert one.dtype is not None
    return TensorType.contiguous(one.dtype, ())
