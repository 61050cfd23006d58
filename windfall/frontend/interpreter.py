"""The symbolic interpreter: one loop over the opcode table, and what an instruction is undone to.

Enters: a `State`. Leaves: the machine's final condition: a returned value, or the frames as they
were before the instruction that could not be captured, with the graph, guards and effects so far.

Invariants: an instruction either happens wholly or, on `Unsupported`, not at all (`Mark` is what it
is rolled back to); no operation runs on user data, no user code runs. `services.py` is what values
and handlers see of it.
"""

from __future__ import annotations

from typing import Any

from windfall.errors import Narrow, Specialise, Unsupported
from windfall.frontend import opcodes  # noqa: F401  (fills the table)
from windfall.frontend.breaks import (
    BUDGET,
    GENERATOR,
    NOT_A_GRAPH_ARGUMENT,
    REASONS,
    TOO_MANY_VALUES,
    UNCAUGHT,
    UNKNOWN_ATTRIBUTE,
    UNKNOWN_OPCODE,
    UNKNOWN_OPERATION,
    stop,
)
from windfall.frontend.bytecode import Instruction
from windfall.frontend.callstack import CallStack, Mark
from windfall.frontend.effects import EffectLog
from windfall.frontend.frame import Frame
from windfall.frontend.graph import GraphBuilder
from windfall.frontend.guards import Guards
from windfall.frontend.opcodes.table import HANDLERS, MOVES, Handler
from windfall.frontend.services import Machine
from windfall.frontend.size_symbols import Symbols
from windfall.frontend.state import Facts, FrameShape, Start, State
from windfall.frontend.values.base import NULL, PENDING, Raised, Value
from windfall.frontend.values.calls import has_rule
from windfall.frontend.values.factory import ValueFactory
from windfall.frontend.values.symbolic import varying_names
from windfall.ir.source import Slot


class Interpreter(Machine):
    """One capture in progress."""

    frames: CallStack

    def __init__(self, state: State, facts: Facts) -> None:
        try:
            self._set_up(state, facts)
        except BaseException:
            self.close()
            raise

    def _set_up(self, state: State, facts: Facts) -> None:
        self.state = state
        self.facts = facts
        self.operations = 0
        self.stopped: Unsupported | None = None
        self.frames = CallStack(self)
        self.symbols = Symbols(self)
        self.graph = GraphBuilder(self)
        self.effects = EffectLog()
        self.guards = Guards(self)
        self.values = ValueFactory(self)
        self.slots = [
            self.values.wrap(value, Slot(index, name))
            for index, (value, name) in enumerate(
                zip(state.values, state.point.slot_names, strict=True)
            )
        ]

    def close(self) -> None:
        """Let go of everything: machine, values and frames refer to each other, and the user's
        tensors must not wait for the garbage collector."""
        held = self.__dict__
        for name in ("frames", "values"):
            if name in held:
                held[name].close()
        for name in ("graph", "guards"):  # the graph and its mode, guards and the frames' door
            if name in held:
                vars(held[name]).clear()
        held.clear()

    # ---------------------------------------------------------------------------- rolling back

    def mark(self, frame: Frame) -> Mark:
        """What to come back to if the next instruction cannot be captured."""
        frames, effects = self.frames, self.effects
        if frames.resumption is None:
            effects.journal.clear()
        return Mark(
            frame,
            len(frames.stack),
            tuple(frame.stack),
            frame.phase,
            frame.kw_names,
            frames.handled,
            len(self.graph.calls),
            len(effects.entries),
            len(effects.journal),
        )

    def roll_back(self, mark: Mark) -> None:
        """As if the present instruction had not been begun."""
        self.effects.take_back(mark.journal)
        stack = self.frames.stack
        del stack[mark.frames :]
        if len(stack) < mark.frames:
            stack.append(mark.frame)
        frame = mark.frame
        frame.stack[:] = mark.stack
        frame.ip = frame.last
        frame.phase = mark.phase
        frame.kw_names = mark.kw_names
        self.frames.handled = mark.handled
        self.graph.roll_back(mark.graph)
        del self.effects.entries[mark.effects :]

    # --------------------------------------------------------------------------------- running

    def begin(self) -> None:
        """Set up the frames of the state. `Unsupported`: the call itself cannot be followed."""
        point = self.state.point
        if isinstance(point, Start):
            target = self.values.known(point.target, point.name)
            positional = self.slots[: point.count]
            named = dict(zip(point.keywords, self.slots[point.count :], strict=True))
            if has_rule(point.target):  # which may want an instruction to be begun again from
                parts = [target, self.values.tuple(positional), self.values.created_dict(named)]
                result = self.values.polyfill("call_with", parts)
            else:
                result = target.call(self, positional, named)
            if result is not PENDING:
                self.frames.result = result
            return
        slots = iter(self.slots)
        self.frames.stack = [self._restored(shape, slots) for shape in point.frames]
        for below, frame, shape in zip(
            self.frames.stack, self.frames.stack[1:], point.frames[1:], strict=False
        ):
            if shape.generator:
                frame.generator = self.frames.generator(frame)
                frame.generator.running = frame.generator.started = True
                frame.generator.place = None  # it was made in another segment
                frame.role = "iterate"
                below.stack[-1] = frame.generator
        if point.handled:
            self.frames.handled = next(slots)

    def _restored(self, shape: FrameShape, slots: Any) -> Frame:
        variables: list[Value | None] = [None] * len(shape.variable_names)
        frame = Frame(
            shape.code, shape.globals, shape.builtins, variables, shape.region, shape.discard
        )
        for index in shape.variables:
            variables[index] = next(slots)
        frame.stack = [next(slots) if present else NULL for present in shape.stack]
        frame.ip, frame.last, frame.phase = shape.ip, shape.last, shape.phase
        return frame

    def run(self) -> None:
        """Step until the outermost frame returns, or until a step cannot be captured."""
        frames = self.frames
        while frames.result is None and self.stopped is None:
            self.step()

    def step(self) -> None:
        """One instruction of the innermost frame."""
        frame = self.frames.stack[-1]
        instruction = frame.instructions[frame.ip]
        frame.last = frame.ip
        frame.ip += 1
        self.operations += 1
        move = MOVES.get(instruction.name)
        if move is None or not self._moved(move, frame, instruction):
            self._run_marked(frame, instruction)

    def _moved(self, move: Handler, frame: Frame, instruction: Instruction) -> bool:
        """What only moves values about needs no mark: where it raises, nothing has happened, and it
        raises again where that is dealt with."""
        if self.operations > self.facts.budget:
            return False
        try:
            move(self, frame, instruction)
        except (Raised, Unsupported):
            return False
        frame.phase = 0
        return True

    def _run_marked(self, frame: Frame, instruction: Instruction) -> None:
        mark = self.frames.mark = self.mark(frame)
        try:
            if self.operations > self.facts.budget:
                stop(BUDGET, f"{self.operations} bytecodes")
            handler = HANDLERS.get(instruction.name)
            if handler is None:
                stop(UNKNOWN_OPCODE, instruction.name)
            handler(self, frame, instruction)
            if frame.phase == mark.phase:
                frame.phase = 0
        except Raised as raised:
            if not self.frames.unwind(raised.value):
                self.roll_back(mark)
                text = raised.value.describe()
                self._stop(Unsupported(UNCAUGHT.number, text, self.frames.where()))
        except Specialise as needed:
            if not self._breaks_at(needed):
                raise  # the capture begins again
            self.roll_back(mark)
            self._stop(Unsupported(TOO_MANY_VALUES.number, needed.detail, self.frames.where()))
        except Unsupported as unsupported:
            self._specialise_instead(unsupported, frame)
            self.roll_back(mark)
            unsupported.where = unsupported.where or self.frames.where()
            self._stop(unsupported)

    def _specialise_instead(self, reason: Unsupported, frame: Frame) -> None:
        """An operation that is not known of numbers that vary may be known of constants."""
        if not self.symbols.by_name or reason.number not in _OF_KINDS or self.frames.mark is None:
            return
        names = varying_names(self.frames.mark.stack[-3:])
        needed = Specialise(names, reason.detail, self.frames.where())
        if names and not self._breaks_at(needed):
            raise needed

    def _breaks_at(self, needed: Specialise) -> bool:
        """Whether a value is needed that was needed of too many calls: the step runs natively."""
        if needed.passing or isinstance(needed, Narrow) or not self.facts.broken:
            return False
        return bool(self.symbols.sources(needed.names) & self.facts.broken)

    def _stop(self, reason: Unsupported) -> None:
        """The capture ends here; or where a generator that is running was resumed."""
        self.stopped = reason
        row = REASONS.get(reason.number)
        leaves = row is not None and row.leaves_frame
        if self.frames.resumption is not None and (leaves or not self.frames.may_stay()):
            self.take_back()

    def take_back(self) -> None:
        """As if the outermost running generator had not been resumed."""
        resumption = self.frames.resumption
        if resumption is None:
            stop(GENERATOR, "a running generator is held by something else than its loop")
        self.effects.take_back(resumption.mark.journal)
        self.effects.journal.clear()
        self.frames.stack = [kept.frame for kept in resumption.frames]
        for kept in resumption.frames:
            kept.restore()
        self.frames.resumption = None
        self.roll_back(resumption.mark)


_OF_KINDS = frozenset(
    row.number for row in (NOT_A_GRAPH_ARGUMENT, UNKNOWN_ATTRIBUTE, UNKNOWN_OPERATION)
)
