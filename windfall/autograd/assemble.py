"""The executable of a graph: program, conventions, roles and nodes as one record.

Enters: a `Joint`, its `Split` and the program of the forward graph. Leaves: an `Executable`, which
`link.py` makes something to call. Invariant: roles stand in the order of a call; what is written is
said of the input, and the program's results begin with its new contents.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace

from windfall.autograd.components import components
from windfall.autograd.conventions import captured, conventions
from windfall.ir.backward_pass import backward_pass
from windfall.ir.relation import Relation
from windfall.ir.role import Role, RoleKind, Roles, numbered
from windfall.ir.stages import (
    BackwardRegion,
    Component,
    Executable,
    GraphProgram,
    Joint,
    OutputFact,
    Program,
    Saves,
    Split,
)


def assemble(
    name: str,
    joint: Joint,
    split: Split,
    program: Program | GraphProgram,
    given: Sequence[Role] = (),
    relations: Sequence[Relation] = (),
    retried: bool = False,
    apart: Container[int] = (),
) -> Executable:
    """The executable of a split graph. `given` are the roles of the captured graph's inputs, if
    they are known; `relations`, what is new among those of the joint graph; `retried` and
    `apart` as of `conventions`."""
    inputs = _inputs(split, given)
    if isinstance(program, Program):
        program = replace(program, roles=Roles(inputs, _program_results(split)))
    return Executable(
        name,
        program,
        Roles(inputs, tuple(_output(one, split) for one in split.signature.outputs)),
        conventions(joint, split, retried, placed_writes(program, split), apart),
        regions(joint, split),
        tuple(relations),
        keeps=any(one.target is backward_pass for one in captured(joint).nodes),
    )


def placed_writes(program: object, split: Split) -> tuple[int, ...]:
    """The positions of those writes that a program does by itself: it answers the very input."""
    if not isinstance(program, Program):
        return ()
    buffers = [one.buffer for one in program.results[: len(split.signature.writes)]]
    return tuple(
        position
        for position, buffer in enumerate(buffers)
        if buffer is not None and program.buffers[buffer].place == "input"
    )


def regions(joint: Joint, split: Split) -> tuple[BackwardRegion, ...]:
    """One for each autograd node; none where no gradient is needed."""
    if split.backward is None:
        return ()
    graph, cast, known = captured(joint), joint.autocast, joint.relations
    return tuple(
        BackwardRegion(split, one, _saves(split, one), graph, cast, known, joint.grad_enabled)
        for one in components(split)
    )


def _saves(split: Split, component: Component) -> Saves:
    inputs = len(split.saved_inputs)
    behind = (*split.saved_results, *range(split.visible, split.visible + len(split.saved)))
    return Saves(
        tuple(split.saved_inputs[index] for index in component.saved if index < inputs),
        tuple(behind[index - inputs] for index in component.saved if index >= inputs),
    )


def _inputs(split: Split, given: Sequence[Role]) -> tuple[Role, ...]:
    facts = split.signature.inputs
    tensors = given[len(split.symbols) :] or numbered(RoleKind.INPUT, len(facts))
    return (
        *numbered(RoleKind.SIZE, len(split.symbols)),
        *(replace(role, written=fact.mutated) for role, fact in zip(tensors, facts, strict=True)),
    )


def _program_results(split: Split) -> tuple[Role, ...]:
    return (
        *(Role(RoleKind.WRITTEN, index) for index in split.signature.writes),
        *numbered(RoleKind.RESULT, split.signature.fresh),
        *numbered(RoleKind.SAVED, len(split.saved)),
    )


_OUTPUTS = {
    "fresh": RoleKind.RESULT,
    "input": RoleKind.SAME,
    "view_of_input": RoleKind.VIEW_OF_INPUT,
    "view_of_output": RoleKind.VIEW_OF_RESULT,
    "constant": RoleKind.CONSTANT,
}


def _output(fact: OutputFact, split: Split) -> Role:
    while fact.kind == "view_of_view":
        fact = split.signature.outputs[fact.base]
    return Role(_OUTPUTS[fact.kind], fact.base)
