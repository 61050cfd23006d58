"""The native way out: run the rest of a frame by CPython itself.

Enters: a `Position` and its slots. Leaves: what the innermost frame returned, handed to its
caller's frame: a `Continue`, or the final result. Used where capturing is given up: an internal
error, too many entries, a frame over its budget, functions that look at their caller's frame.
Invariant: what the frame raises goes to the handler of a waiting frame, or leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from windfall.errors import (
    exception_field,
    hide_our_frames,
    set_exception_field,
    traceback_of,
)
from windfall.frontend.bytecode import VERSION, Handler, Instruction, decode
from windfall.frontend.bytecode_loops import loop_at
from windfall.frontend.flow import live_variables
from windfall.frontend.fragment import Arrival, Slots
from windfall.frontend.fragments import Fragments
from windfall.frontend.state import Continue, FrameShape, Position
from windfall.frontend.tracebacks import TracebackPlace, place_of, through
from windfall.frontend.values.iterator import END, end_is_seen
from windfall.frontend.values.unseen import is_missed


class NativeWay:
    """The way out, with the code that was assembled for it."""

    def __init__(self) -> None:
        self._fragments = Fragments()

    def __call__(self, position: Position, slots: tuple[Any, ...]) -> Any:
        """Run the innermost frame to its end; go on in its caller."""
        return self._run(position, slots, frozenset())

    def frames(self, position: Position, slots: tuple[Any, ...], keep: int) -> Any:
        """Run the frames above the first `keep` to their ends; go on in the one below them."""
        result = self._run(position, slots, frozenset())
        while type(result) is Continue and len(result.position.frames) > keep:
            position, slots = result.position, result.slots
            result.slots = ()
            result = self._run(position, slots, frozenset())
        return result

    def loop(self, position: Position, slots: tuple[Any, ...], head: int) -> Any:
        """Run the loop with this head, in which the innermost frame stands; go on behind it."""
        found = loop_at(position.frames[-1].code, head)
        assert found is not None, "the loop was found when this was captured"
        return self._run(position, slots, found.exits)

    def throw(self, position: Position, slots: tuple[Any, ...], error: BaseException) -> Continue:
        """Raise `error` where the innermost frame stands: on to the handler that gets it."""
        values = iter(slots)
        frames = [_filled(shape, values) for shape in position.frames]
        handled = next(values) if position.handled else None
        shape, variables, stack = frames[-1]
        if traceback_of(error) is None:  # CPython relies on one where an exception is handled
            through(error, tuple(_place(one) for one, _, _ in frames))
        instructions = decode(shape.code).instructions
        if instructions[shape.ip].name == "PUSH_EXC_INFO":
            # Another one is about to be handled, by an `__exit__` for instance: this comes instead.
            if exception_field(error, "__context__") is None:
                set_exception_field(error, "__context__", stack[-1][1])
            stack[-1] = (True, error)
            return _continue(frames[:-1], shape, shape.ip, 0, variables, stack, handled)
        last = shape.ip - 1 if _leaves_with(instructions, shape.ip) else shape.ip
        frames[-1] = (replace(shape, last=last), variables, stack)
        found = _handler(frames)
        if found is None:
            raise error
        return _unwound(frames[: found[0] + 1], found[1], error, handled)

    def _run(self, position: Position, slots: tuple[Any, ...], stops: frozenset[int]) -> Any:
        values = iter(slots)
        outer = [_filled(shape, values) for shape in position.frames]
        handled = next(values) if position.handled else None
        shape, variables, stack = outer.pop()
        shape = _settled(shape, stack)
        native = self._fragments.native(shape, stops, handled=position.handled)
        own = [*variables.values(), *(value for present, value in stack if present)]
        if handled is not None:
            own.append(handled)
        del variables, stack, slots
        if shape.generator:
            # A call makes the generator, which stands where this one does: its loop asks it again.
            waiting, names, held = outer[-1]
            held[-1] = (True, native(_emptied(own)))
            return _continue(outer[:-1], waiting, waiting.last, 0, names, held, handled)
        try:
            result = native(_emptied(own))
        except BaseException as error:
            found = _handler(outer)
            depth = found[0] if found is not None else -1
            # Eager's traceback names the frames that wait too, and none of ours.
            hide_our_frames(error)
            through(error, tuple(_place(one) for one, _, _ in outer[max(depth, 0) :]))
            crossed = any(one.generator for one, _, _ in outer[depth + 1 :])
            known = _converted(error) if crossed else error
            if found is None and known is error:
                raise
            if found is None:
                raise known from error
            following = _unwound(outer[: depth + 1], found[1], known, handled)
            del known, handled, outer  # which frames of the exception lead back to
            return following
        if stops:
            return _arrived(outer, shape, *result)
        if not outer:
            return result
        waiting, names, held = outer[-1]
        if not shape.discard:
            held.append((True, result))
        return _continue(outer[:-1], waiting, waiting.ip, waiting.phase, names, held, handled)


def _emptied(own: list[Any]) -> tuple[Any, ...]:
    """What is in the list, which lets go of it: the frame alone holds its variables."""
    given = tuple(own)
    own.clear()
    return given


def _is_kept(real: Any) -> bool:
    return end_is_seen(real) or is_missed(real)


def _place(shape: FrameShape) -> TracebackPlace:
    return place_of(shape.code, shape.globals, decode(shape.code).instructions[shape.last])


def _leaves_with(instructions: Sequence[Instruction], index: int) -> bool:
    """Whether a `with` block ends here by calling `__exit__`, which what is thrown must do too: it
    came at the end of the instruction before, as interrupts do."""
    if instructions[index].name == "SWAP":  # a value is being returned
        index += 1
    following = instructions[index : index + 4]
    nothing = [one.name == "LOAD_CONST" and one.value is None for one in following[:3]]
    return len(following) == 4 and all(nothing) and following[3].name in ("PRECALL", "CALL")


def _arrived(outer: list[_Filled], shape: FrameShape, arrival: Arrival, slots: Slots) -> Continue:
    """Go on where a fragment stopped."""
    arrival, slots = arrival.settled(slots)
    values = iter(slots)
    variables = {index: next(values) for index in arrival.variables}
    stack: _Stack = [(True, next(values)) if here else (False, None) for here in arrival.stack]
    handled = next(values) if arrival.handled else None
    return _continue(outer, shape, arrival.index, 0, variables, stack, handled)


_NULL_ABOVE = VERSION >= (3, 13)
_Stack = list[tuple[bool, Any]]
_Filled = tuple[FrameShape, dict[int, Any], _Stack]


def _filled(shape: FrameShape, values: Iterator[Any]) -> _Filled:
    variables = {index: next(values) for index in shape.variables}
    return shape, variables, [(True, next(values)) if p else (False, None) for p in shape.stack]


def _converted(error: BaseException) -> BaseException:
    """What leaves a generator is not taken for its end."""
    if not issubclass(type(error), StopIteration):  # past its `__class__`
        return error
    made = RuntimeError("generator raised StopIteration")
    made.__cause__ = made.__context__ = error
    return made


def _handler(frames: list[_Filled]) -> tuple[int, Handler] | None:
    for depth in range(len(frames) - 1, -1, -1):
        shape = frames[depth][0]
        found = decode(shape.code).handler_at(shape.last)
        if found is not None:
            return depth, found
    return None


def _unwound(
    frames: list[_Filled], handler: Handler, error: BaseException, handled: BaseException | None
) -> Continue:
    shape, variables, stack = frames[-1]
    after = stack[: handler.depth]
    if handler.lasti:
        after.append((True, shape.last))
    after.append((True, error))
    return _continue(frames[:-1], shape, handler.target, 0, variables, after, handled)


def _continue(
    outer: list[_Filled],
    shape: FrameShape,
    target: int,
    phase: int,
    variables: dict[int, Any],
    stack: _Stack,
    handled: BaseException | None,
) -> Continue:
    live = live_variables(decode(shape.code))[target]
    kept = tuple(
        index for index in sorted(variables) if index in live or _is_kept(variables[index])
    )
    top = FrameShape(
        shape.code, shape.globals, shape.builtins, target, target, phase, kept,
        tuple(present for present, _ in stack), shape.discard, shape.region, shape.variable_names,
        shape.generator,
    )  # fmt: skip
    slots: list[Any] = []
    for one, names, held in outer:
        slots += [names[index] for index in one.variables]
        slots += [value for present, value in held if present]
    slots += [variables[index] for index in kept]
    slots += [value for present, value in stack if present]
    if handled is not None:
        slots.append(handled)
    position = Position((*(one for one, _, _ in outer), top), handled is not None)
    return Continue(position, tuple(slots))


# ------------------------------------------------------- instructions that were begun already


def _settled(shape: FrameShape, stack: _Stack) -> FrameShape:
    """Finish an instruction whose first half ran in the interpreter (`Frame.phase`). Most are
    simply done again on what is on the stack."""
    if not shape.phase:
        return shape
    instruction = decode(shape.code).instructions[shape.ip]
    finish = _FINISH.get(instruction.name)
    index = finish(instruction, stack) if finish is not None else shape.ip
    return replace(shape, ip=index, phase=0, stack=tuple(present for present, _ in stack))


def _finish_contains(instruction: Instruction, stack: _Stack) -> int:
    stack[-1] = (True, not stack[-1][1])
    return instruction.index + 1


def _finish_jump(instruction: Instruction, stack: _Stack) -> int:
    _, truth = stack.pop()
    if bool(truth) == ("TRUE" in instruction.name):
        return instruction.target
    stack.pop()
    return instruction.index + 1


def _finish_for(instruction: Instruction, stack: _Stack) -> int:
    if stack[-1][1] is not END:
        return instruction.index + 1
    del stack[-2:]
    return instruction.target


def _finish_method(instruction: Instruction, stack: _Stack) -> int:
    """What was found is there; its NULL comes above it."""
    stack.append((False, None))
    return instruction.index + 1


_FINISH: dict[str, Callable[[Instruction, _Stack], int]] = {
    "CONTAINS_OP": _finish_contains,
    "JUMP_IF_TRUE_OR_POP": _finish_jump,
    "JUMP_IF_FALSE_OR_POP": _finish_jump,
    "FOR_ITER": _finish_for,
    **(dict.fromkeys(("LOAD_METHOD", "LOAD_SUPER_ATTR"), _finish_method) if _NULL_ABOVE else {}),
}
