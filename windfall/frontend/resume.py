"""How the program goes on behind a break: one native step, then the position and slots of the next
segment.

Enters: the interpreter, stopped before an instruction. Leaves: `Resume`. Invariant: a variable that
is read again, or whose object's end is seen, has a slot, and none else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from windfall.errors import SourceLine
from windfall.frontend.breaks import HOT_RECURSION, LARGE_GRAPH, REASONS
from windfall.frontend.callstack import has_slot, shape_of
from windfall.frontend.flow import live_variables
from windfall.frontend.frame import Frame
from windfall.frontend.idle import idle_loop
from windfall.frontend.interpreter import Interpreter
from windfall.frontend.polyfills.iterators import variables_of_half_run
from windfall.frontend.recipe import Recipe
from windfall.frontend.segment_records import Outcome, Resume
from windfall.frontend.state import FrameShape, Position
from windfall.frontend.steps import write_step
from windfall.frontend.steps.writer import NULL_NAME, StepWriter
from windfall.frontend.tracebacks import place_of
from windfall.frontend.values.base import NULL, Value
from windfall.frontend.values.class_value import Class
from windfall.frontend.values.function import Cell
from windfall.frontend.values.iterator import Iterator
from windfall.frontend.values.mapping import Dict
from windfall.frontend.values.objects import Object
from windfall.frontend.values.sequence import SequenceValue
from windfall.frontend.values.unseen import (
    is_generator_from_outside,
    is_kept_alive,
    is_plain,
    is_unseen,
    made_here,
    settled,
)
from windfall.ir.guard import TypeIs


def resumed(machine: Interpreter, recipe: Recipe) -> Resume:
    """The native step, the live values around it, and the ways on."""
    if not machine.frames.stack:
        assert machine.stopped is not None
        raise machine.stopped
    frame = machine.frames.stack[-1]
    instruction = frame.instructions[frame.ip]
    live = live_variables(frame.listing)[instruction.index] | _kept(machine, frame)
    names = {
        index: recipe.name(value)
        for index, value in enumerate(frame.variables)
        if value is not None and (index in live or instruction.name == "DELETE_FAST")
    }
    stack = [NULL_NAME if value is NULL else recipe.name(value) for value in frame.stack]
    callers = [_caller(machine, recipe, one) for one in machine.frames.stack[:-1]]
    handled = recipe.name(machine.frames.handled) if machine.frames.handled is not None else None
    writer = StepWriter(
        list(stack),
        frame.kw_names,
        recipe.fresh,
        recipe.known,
        names,
        recipe.known(frame.globals, f"globals_of_{frame.code.co_name}"),
        handled,
        frame.listing.free,
    )
    tail = (handled,) if handled is not None else ()
    row = REASONS.get(machine.stopped.number) if machine.stopped is not None else None
    if row is not None and row.leaves_frame:
        at = _restart(frame)
        top = _top(machine, frame, names, at, stack)
        slots = _slots(callers, names, top, stack)
        position = Position((*(shape for shape, _ in callers), top), handled is not None)
        loop = idle_loop(machine, frame, frame.ip) if row.leaves_loop else None
        head = loop.head if loop is not None else None
        keep = machine.frames.kept_frames if row is HOT_RECURSION else None
        outcome = Outcome(None, position, (*slots, *tail), leaves=True, loop=head, keep=keep)
        return Resume((), (outcome,), None, None)
    if row is LARGE_GRAPH:  # no step: the next capture begins with this very jump
        top = _top(machine, frame, names, frame.ip, stack)
        slots = _slots(callers, names, top, stack)
        position = Position((*(shape for shape, _ in callers), top), handled is not None)
        return Resume((), (Outcome(None, position, (*slots, *tail)),), None, None)
    write_step(writer, instruction, frame.instructions[frame.ip + 1 :], begun=bool(frame.phase))
    for value in frame.stack[writer.lowest :]:
        # Not for correctness: another kind of operand may not need this break.
        if value.source is not None and not value.guarded:
            machine.guards.add(
                value.source, TypeIs(value.python_type()), "operand of a native step"
            )
    outcomes = []
    for condition, target, after in writer.outcomes:
        top = _top(machine, frame, names, _gone_back(frame, target), after)
        slots = _slots(callers, names, top, after)
        position = Position((*(shape for shape, _ in callers), top), handled is not None)
        outcomes.append(Outcome(condition, position, (*slots, *tail)))
    handler = _handler(machine, frame, names, stack, callers, tail)
    depth = len(handler.position.frames) - 1 if handler is not None else 0
    waiting = tuple(one.place for one in machine.frames.stack[depth:-1] if not one.is_ours)
    first = depth + 1 if handler is not None else 0
    if any(one.generator is not None for one in machine.frames.stack[first:]):
        _convert_stop(writer)
    code = frame.code
    where = SourceLine(code.co_filename, instruction.line, code.co_name)
    place = place_of(code, frame.globals, instruction)
    return Resume(tuple(writer.lines), tuple(outcomes), handler, handled, where, place, waiting)


def _convert_stop(writer: StepWriter) -> None:
    """What leaves a generator is not taken for its end."""
    writer.lines[:] = [
        "try:",
        *(f"    {line}" for line in writer.lines or ["pass"]),
        "except StopIteration as stopped:",
        "    raise RuntimeError('generator raised StopIteration') from stopped",
    ]


def _slots(
    callers: Sequence[tuple[FrameShape, list[str]]],
    names: Mapping[int, str],
    top: FrameShape,
    stack: Sequence[str],
) -> list[str]:
    """The names of a position's slots, in order."""
    slots = [one for _, slots in callers for one in slots]
    slots += [names[index] for index in top.variables]
    return slots + [name for name in stack if name != NULL_NAME]


def _restart(frame: Frame) -> int:
    """Where a frame is entered natively: keyword names belong to the call that follows them."""
    index = frame.ip
    while frame.kw_names and frame.instructions[index].name != "KW_NAMES":
        index -= 1
    return index


def _gone_back(frame: Frame, index: int) -> int:
    """Where a jump backward goes that stands there: rounds of a loop share their segments, however
    the jump to the next one is written."""
    instruction = frame.instructions[index]
    return instruction.target if instruction.name == "JUMP_BACKWARD" else index


def _top(
    machine: Interpreter, frame: Frame, names: Mapping[int, str], target: int, stack: Sequence[str]
) -> FrameShape:
    """The innermost frame when it goes on at `target` with this stack."""
    live = live_variables(frame.listing)[target] | _kept(machine, frame)
    variables = tuple(index for index in sorted(names) if index in live)
    return FrameShape(
        frame.code,
        frame.globals,
        frame.builtins,
        target,
        target,
        0,
        variables,
        tuple(name != NULL_NAME for name in stack),
        frame.discard,
        frame.region,
        frame.listing.variables,
        frame.generator is not None,
    )


def _kept(machine: Interpreter, frame: Frame) -> frozenset[int]:
    """Variables that nobody reads again, but whose end is seen: a frame drops them when it ends;
    and those of which a real iterator is made, should a later break find ours half-run."""
    given = {id(settled(one)) for one in machine.frames.stack[-1].stack if not is_plain(one)}
    needed = variables_of_half_run(frame.code)
    return frozenset(
        index
        for index, value in enumerate(frame.variables)
        if value is not None
        and (
            (needed and frame.listing.variables[index] in needed)
            or _sees_its_end(value)
            or _holds(value, given)
        )
    )


def _sees_its_end(value: Value) -> bool:
    if made_here(value, Class) and value.source is None:  # its bases know it
        return True
    if is_generator_from_outside(value) or made_here(value, Iterator):
        return isinstance(value, Iterator) and value.sees_its_end
    return is_kept_alive(value)


def _holds(value: Value, given: set[int]) -> bool:
    """Whether the native step gets the object, or one in it: it may watch it from then on. (Of
    large ones that is not found out.)"""
    pending, seen = [(settled(value), _DEEP)], set[int]()
    while pending and len(seen) < _MANY:
        one, depth = pending.pop()
        if id(one) in given:
            return True
        if depth and id(one) not in seen and not is_unseen(one) and one.source is None:
            seen.add(id(one))
            pending += [(settled(held), depth - 1) for held in _held(one) if held is not None]
    return False


_DEEP, _MANY = 4, 256


def _held(value: Value) -> Iterable[Value | None]:
    """What an object that the program made holds."""
    if isinstance(value, SequenceValue):
        return value._items or ()
    if isinstance(value, Cell):
        return (value.contents,)
    if isinstance(value, Dict):
        return value.entries.values()
    if isinstance(value, Object):
        return (value._attributes, *value.slots.values(), getattr(value, "_contents", None))
    return ()


def _caller(machine: Interpreter, recipe: Recipe, frame: Frame) -> tuple[FrameShape, list[str]]:
    """A frame that waits for its callee, and the names of its slots."""
    live = live_variables(frame.listing)[frame.ip] | _kept(machine, frame)
    handler = frame.listing.handler_at(frame.last)
    if handler is not None:
        live |= live_variables(frame.listing)[handler.target]
    shape = shape_of(frame, live)
    slots = []
    for index in shape.variables:
        value = frame.variables[index]
        assert value is not None
        slots.append(recipe.name(value))
    slots += [recipe.name(value) for value in frame.stack if has_slot(value)]
    return shape, slots


def _handler(
    machine: Interpreter,
    frame: Frame,
    names: Mapping[int, str],
    stack: Sequence[str],
    callers: Sequence[tuple[FrameShape, list[str]]],
    tail: tuple[str, ...],
) -> Outcome | None:
    """Where an exception of the native step is handled; None: it leaves the function."""
    found = frame.listing.handler_at(frame.ip)
    if found is not None:
        after = [*stack[: found.depth], *([str(frame.ip)] if found.lasti else []), "error"]
        top = _top(machine, frame, names, found.target, after)
        slots = _slots(callers, names, top, after)
        position = Position((*(shape for shape, _ in callers), top), bool(tail))
        return Outcome(None, position, (*slots, *tail))
    for depth in range(len(callers) - 1, -1, -1):
        waiting = machine.frames.stack[depth]
        found = waiting.listing.handler_at(waiting.last)
        if found is None:
            continue
        shape, own = callers[depth]
        variables = dict(zip(shape.variables, own, strict=False))
        held = own[len(shape.variables) :]
        below = [held.pop(0) if present else NULL_NAME for present in shape.stack]
        after = [*below[: found.depth], *([str(waiting.last)] if found.lasti else []), "error"]
        top = _top(machine, waiting, variables, found.target, after)
        slots = _slots(callers[:depth], variables, top, after)
        position = Position((*(s for s, _ in callers[:depth]), top), bool(tail))
        return Outcome(None, position, (*slots, *tail))
    return None
