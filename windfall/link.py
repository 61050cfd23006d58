"""An executable as something to call: the one place where its record becomes closures.

Enters: an `Executable`, made by a backend or decoded from bytes, and who compiles what is missing
when it runs. Leaves: a callable that takes what the captured graph took and answers what it
answered. Invariant: all that the callable does stands in the record; linking it again gives another
one that does the same.

    program → autograd's nodes around it → conventions around these, the first one outermost
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from windfall import autograd
from windfall.backends import graph_module
from windfall.devices import DEVICES
from windfall.events import Eager
from windfall.ir.stages import (
    ChoosesEager,
    Executable,
    ForeignProgram,
    GraphCallable,
    GraphProgram,
    PartitionedProgram,
    Program,
)
from windfall.on_demand import BackwardCompiler, GraphCompiler, partitioned
from windfall.runtime import RegionPlace


def link(
    executable: Executable, compiler: GraphCompiler, place: RegionPlace | None = None
) -> GraphCallable:
    """The callable of an executable. `place`: where it stands in a call of the user's, for graph
    trees."""
    if place is not None and isinstance(executable.program, Program):
        keep, name = executable.keeps, executable.name
        call = compiler.bind(executable.program, name, keep=keep, place=place)
    else:
        call = _PROGRAMS[type(executable.program)](executable.program, executable, compiler)
    if executable.node:
        device = executable.program.device if isinstance(executable.program, GraphProgram) else ""
        backward = BackwardCompiler(compiler, executable.name, executable.node[0], device)
        placed = autograd.placed_writes(executable.program, executable.node[0].split)
        call = autograd.differentiable(executable.node, call, backward, placed)
    count = partial(compiler.count_eager, executable.name, Eager.GRAPH)
    for convention in reversed(executable.conventions):
        if isinstance(convention, ChoosesEager):
            call = convention.counting(call, count)
        else:
            call = convention.around(call)
    return call


def _native(program: Program, executable: Executable, compiler: GraphCompiler) -> GraphCallable:
    return compiler.bind(program, executable.name, keep=executable.keeps)


def _graph(program: GraphProgram, executable: Executable, compiler: GraphCompiler) -> GraphCallable:
    if program.device:
        return DEVICES[program.device].compile(program.graph, program.symbols)
    call: GraphCallable = graph_module(program.graph).forward
    return call


def _partitioned(
    program: PartitionedProgram, executable: Executable, compiler: GraphCompiler
) -> GraphCallable:
    return partitioned(compiler, program, executable.name)


def _foreign(
    program: ForeignProgram, executable: Executable, compiler: GraphCompiler
) -> GraphCallable:
    call = program.call
    return lambda *inputs: tuple(call(*inputs))


_PROGRAMS: dict[type, Callable[[Any, Executable, GraphCompiler], GraphCallable]] = {
    Program: _native,
    GraphProgram: _graph,
    PartitionedProgram: _partitioned,
    ForeignProgram: _foreign,
}
