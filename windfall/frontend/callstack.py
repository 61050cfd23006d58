"""The call stack of the interpreted program: frames that call, yield, raise, return.

Enters: calls, resumptions of generators, exceptions. Leaves: which frame runs next, and the result
of the outermost. Invariant: user calls push a `Frame` and never recurse in the host; what a running
generator or a step that is held together has done can be taken back as a whole (`Resumption`).
"""

from __future__ import annotations

import builtins
from types import CodeType
from typing import Any

from windfall.dataclass import dataclass
from windfall.errors import SourceLine
from windfall.frontend.breaks import HOT_RECURSION, RECURSION, stop
from windfall.frontend.frame import Frame, FrameSnapshot
from windfall.frontend.polyfills.iterators import MAKES
from windfall.frontend.services import Machine
from windfall.frontend.state import FrameShape, Start
from windfall.frontend.tracebacks import TracebackPlace
from windfall.frontend.values.base import NULL, PENDING, Raised, Value
from windfall.frontend.values.constant import Constant
from windfall.frontend.values.exception import Exception_
from windfall.frontend.values.generator import Generator
from windfall.frontend.values.iterator import END
from windfall.frontend.values.unseen import made_here
from windfall.ir.node import Region


@dataclass(slots=True)  # one for each instruction: freezing would double its cost
class Mark:
    """The condition before an instruction."""

    frame: Frame
    frames: int
    stack: tuple[Value, ...]
    phase: int
    kw_names: tuple[str, ...]
    handled: Value | None
    graph: int
    effects: int
    journal: int


@dataclass(frozen=True, slots=True)
class Resumption:
    """The condition of the whole machine before the outermost running generator was resumed: while
    it runs, a break takes everything back to here."""

    generator: Generator | None
    mark: Mark
    frames: tuple[FrameSnapshot, ...]


class CallStack:
    """The innermost frame last."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.stack: list[Frame] = []
        self.handled: Value | None = None  # the exception being handled, as sys.exc_info() says
        self.result: Value | None = None
        self.mark: Mark | None = None  # of the present instruction
        self.resumption: Resumption | None = None
        self._holds = 0  # how deep what is held together is nested
        self.kept_frames = 0  # where a recursion is left: how many frames are not
        self.generators: list[Generator] = []
        self._calls: dict[str, int] = {}
        # Calls of a function, and the size of the graph since then.
        self._called: dict[CodeType, tuple[int, int]] = {}

    def close(self) -> None:
        """Let go of everything: a generator and its frame refer to each other."""
        for one in self.__dict__.get("generators", ()):
            one.forget()
        self.__dict__.clear()

    def push(self, frame: Frame) -> Value:
        """Inline a call: the callee runs next, its result lands on the present frame's stack."""
        if len(self.stack) >= self._machine.facts.depth or self._recurs_after_break(frame):
            if not self._machine.graph.mark() - self._machine.graph.scalars:
                self.leave_recursion(frame.code)
            stop(RECURSION, frame.code.co_qualname)
        self._count_call(frame)
        self.stack.append(frame)
        return PENDING

    def call(
        self,
        code: CodeType,
        globals: dict[str, Any],
        variables: list[Value | None],
        *,
        discard: bool,
        region: Region | None,
    ) -> Value:
        """A frame for a call of a Python function."""
        space = globals.get("__builtins__", builtins)
        names = space if isinstance(space, dict) else vars(space)
        return self.push(Frame(code, globals, names, variables, region or self.region, discard))

    def _count_call(self, frame: Frame) -> None:
        """A recursion that does nothing with tensors is better run by CPython, from its outermost
        call on; the frame in which the capture began goes on being captured."""
        count, size = self._called.get(frame.code, (0, -1))
        now = self._machine.graph.mark() - self._machine.graph.scalars
        count = count + 1 if size == now else 1
        self._called[frame.code] = count, now
        if count > self._machine.facts.calls:
            self.leave_recursion(frame.code)

    def leave_recursion(self, code: CodeType) -> None:
        """If this function is on the stack already, run its outermost call natively."""
        depths = (depth for depth, one in enumerate(self.stack) if one.code is code)
        first = next(depths, None)
        if first is not None:
            self.kept_frames = max(first, 1)
            stop(HOT_RECURSION, f"calls of {code.co_qualname} without a tensor")

    def _recurs_after_break(self, frame: Frame) -> bool:
        """Whether a recursion in which breaks come goes so deep that each way through it would be
        a stack of frames of its own, compiled by itself."""
        if isinstance(self._machine.state.point, Start) or len(self.stack) < _DEEP:
            return False
        return sum(one.code is frame.code for one in self.stack) >= _DEEP

    def pop(self, value: Value) -> None:
        """The innermost frame returns `value`."""
        frame = self.stack.pop()
        if frame.generator is not None:
            self._end(frame, frame.generator, value)
        elif not self.stack:
            self.result = value
        elif not frame.discard:
            self.stack[-1].stack.append(value)

    # ----------------------------------------------------------------------------------- generators

    def generator(self, frame: Frame) -> Generator:
        """The generator whose frame this is, from now on."""
        made = Generator(frame, MAKES.get(frame.code) if frame.is_ours else None)
        place = self._place_of_iterator() if frame.is_ours else None
        made.place = place if place not in self._machine.facts.real else None
        self.generators.append(made)
        return made

    def _place_of_iterator(self) -> str | None:
        """The call of the program that makes an iterator of ours, or has made the one that does."""
        for one in reversed(self.stack):
            if not one.is_ours:
                return f"{one.code.co_filename}:{one.code.co_qualname} {one.last}"
            if one.generator is not None:
                made: Generator = one.generator
                return made.place
        return None

    def place_of_call(self) -> str:
        """The call of the program that is made now, as `Facts.real` names it."""
        return self._place_of_iterator() or ""

    def is_left_real(self) -> bool:
        """Whether the iterator that the present call makes must be CPython's own."""
        real = self._machine.facts.real
        return bool(real) and self._place_of_iterator() in real

    def resume(self, generator: Generator, sent: Value | None, role: str) -> Value:
        """Run a generator until it yields: the item lands on the present frame's stack. When it
        ends, what happens depends on `role`: "next" raises StopIteration, "iterate" gives END,
        "send" gives the returned value and END. `sent` None: an exception is thrown in."""
        frame = generator.frame
        values = self._machine.values
        if generator.running:
            generator.leave_real()  # some of those may be asked while they run
            raise values.raised(ValueError("generator already executing"))
        if frame is None:
            if generator.asks_again:
                generator.leave_real()
            if role == "next":
                raise values.raised(StopIteration())
            end = values.literal(END)
            items = [end] if role == "iterate" else [_NONE, end]
            self.stack[-1].stack.extend(items)
            return PENDING
        if self.resumption is None:
            assert self.mark is not None
            kept = tuple(FrameSnapshot.of(one) for one in self.stack)
            self.resumption = Resumption(generator, self.mark, kept)
        before, state = FrameSnapshot.of(frame), (generator.started, generator.handled)

        def restore() -> None:
            before.restore()
            generator.frame, generator.running = frame, False
            generator.started, generator.handled = state

        self._machine.effects.undo(restore)
        generator.running = generator.started = True
        generator.outer = self.handled
        if generator.handled is not None:
            self.handled = generator.handled
        frame.role = role
        if sent is not None:
            frame.stack.append(sent)
        return self.push(frame)

    def may_stay(self) -> bool:
        """Whether generators that run may be left running: each asked by a `for` that alone holds
        it. (Whether something else holds it too shows when values are rebuilt: `StillRunning`.)"""
        assert self.resumption is not None
        if self.resumption.generator is None or self.handled is not None:
            return False
        top = self.stack[-1]
        if top.instructions[top.ip].name in ("SEND", "GET_YIELD_FROM_ITER"):
            return False  # what delegates to an object that is not followed is resumed natively
        for below, frame in zip(self.stack, self.stack[1:], strict=False):
            generator = frame.generator
            if generator is None:
                continue
            asked = below.instructions[below.last].name == "FOR_ITER" and frame.role == "iterate"
            if not asked or generator.outer is not None or below.stack[-1] is not generator:
                return False
        return self.stack[0].generator is None

    def suspend(self, value: Value) -> None:
        """The innermost frame, a generator's, yields `value`."""
        frame = self.stack.pop()
        generator = frame.generator
        assert generator is not None
        own = self.handled if self.handled is not generator.outer else None
        self._left(generator)
        generator.handled = own
        self.stack[-1].stack.append(value)

    def _left(self, generator: Generator) -> None:
        """A generator stops running."""
        resumption = self.resumption

        def restore() -> None:
            generator.running, self.resumption = True, resumption

        self._machine.effects.undo(restore)
        generator.running = False
        self.handled = generator.outer
        if self.resumption is not None and self.resumption.generator is generator:
            self.resumption = None

    def finish(self, generator: Generator) -> None:
        """A generator has come to its end."""
        frame = generator.frame

        def restore() -> None:
            generator.frame, generator.asks_again = frame, False

        self._machine.effects.undo(restore)
        generator.ended()

    def _end(self, frame: Frame, generator: Generator, value: Value) -> None:
        self._left(generator)
        self.finish(generator)
        stack = self.stack[-1].stack
        if frame.role == "next":
            is_none = isinstance(value, Constant) and value.value is None
            error = self._machine.values.known(StopIteration, "StopIteration")
            raise Raised(error.call(self._machine, [] if is_none else [value], {}))
        if frame.role == "send":
            stack.append(value)
        stack.append(self._machine.values.literal(END))

    def handled_outside(self) -> Value | None:
        """The exception that whoever resumed the innermost generator is handling: it is seen inside
        of the generator, but is none of its own, and the next one to resume it has another."""
        generators = (one.generator for one in reversed(self.stack) if one.generator is not None)
        innermost = next(generators, None)
        return innermost.outer if innermost is not None else None

    def hold_together(self) -> None:
        """What follows is done wholly or, where it breaks, natively from the present instruction
        on: as of a running generator."""
        if self.resumption is None:
            assert self.mark is not None
            kept = tuple(FrameSnapshot.of(one) for one in self.stack)
            self.resumption = Resumption(None, self.mark, kept)
        if self.resumption.generator is None:
            self._hold(1)

    def _hold(self, step: int) -> None:
        """One level deeper, or back."""

        def restore() -> None:
            self._holds -= step

        self._machine.effects.undo(restore)
        self._holds += step

    @property
    def holds_together(self) -> bool:
        """Whether a break now would take back more than one instruction."""
        return self.resumption is not None

    @property
    def is_one_operation(self) -> bool:
        """Whether what is done now becomes one operation of the graph."""
        return self.resumption is not None and self.resumption.generator is None

    def let_go(self) -> None:
        """The end of what is held together."""
        if self.resumption is not None and self.resumption.generator is None:
            self._hold(-1)
            if not self._holds:
                self.resumption = None

    # ----------------------------------------------------------------------------------- exceptions

    def unwind(self, exception: Value) -> bool:
        """Go to the innermost handler; False: there is none, and nothing was changed."""
        for depth in range(len(self.stack) - 1, -1, -1):
            frame = self.stack[depth]
            handler = frame.listing.handler_at(frame.last)
            if handler is None:
                if frame.generator is not None:
                    exception = self.leaving(exception)
                continue
            if isinstance(exception, Exception_):
                exception.passed(self._machine, self._passed(depth))
            for left in reversed(self.stack[depth + 1 :]):
                if left.generator is not None:
                    self._left(left.generator)
                    self.finish(left.generator)
            del self.stack[depth + 1 :]
            del frame.stack[handler.depth :]
            if handler.lasti:
                frame.stack.append(self._machine.values.wrap(frame.last, None))
            frame.stack.append(exception)
            frame.ip, frame.phase = handler.target, 0
            return True
        return False

    def _passed(self, depth: int) -> tuple[TracebackPlace, ...]:
        """The frames down to `depth` that an exception is raised in or passes; one in which it is
        only raised again is in its traceback already."""
        frames = self.stack[depth:]
        instruction = frames[-1].instructions[frames[-1].last]
        bare = instruction.name == "RAISE_VARARGS" and instruction.argument == 0
        if bare or instruction.name in _RAISE_AGAIN:
            frames.pop()
        return tuple(one.place for one in frames if not one.is_ours)

    def leaving(self, exception: Value) -> Value:
        """An exception leaves a generator: StopIteration would be taken for its end."""
        exception.guard_type(self._machine)
        if not issubclass(exception.python_type(), StopIteration):
            return exception
        made = self._machine.values.raised(RuntimeError("generator raised StopIteration")).value
        assert isinstance(made, Exception_)
        for link in ("__cause__", "__context__"):
            made.link(self._machine, link, exception)
        return made

    # ---------------------------------------------------------------------------------------- facts

    def where(self) -> SourceLine | None:
        """The user's line: that of the innermost frame whose code is not ours."""
        for frame in reversed(self.stack):
            if not frame.is_ours:
                return frame.line
        return self.stack[-1].line if self.stack else None

    @property
    def region(self) -> Region | None:
        """The module call that is being executed."""
        return self.stack[-1].region if self.stack else None

    def enter_region(self, path: str, class_name: str) -> Region:
        """A new module call."""
        count = self._calls.get(path, 0)
        self._calls[path] = count + 1
        return Region(path, class_name, count, self.region)


def has_slot(value: Value) -> bool:
    """Whether a value on the stack is an object: NULL is none, nor is a generator that runs."""
    return value is not NULL and not (made_here(value, Generator) and value.running)


def shape_of(frame: Frame, live: frozenset[int]) -> FrameShape:
    """The frame without its values: `live` variables have slots."""
    bound = tuple(
        index for index, value in enumerate(frame.variables) if value is not None and index in live
    )
    return FrameShape(
        frame.code,
        frame.globals,
        frame.builtins,
        frame.ip,
        frame.last,
        frame.phase,
        bound,
        tuple(has_slot(value) for value in frame.stack),
        frame.discard,
        frame.region,
        frame.listing.variables,
        frame.generator is not None,
    )


_DEEP = 6
_RAISE_AGAIN = frozenset({"RERAISE", "END_ASYNC_FOR", "CLEANUP_THROW"})
_NONE = Constant(None)
