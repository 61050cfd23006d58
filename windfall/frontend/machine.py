"""The symbolic interpreter: frames as data, one loop over the opcode table.

Enters: a `State`. Leaves: the machine's final condition: a returned value, or the frames as they
were before the instruction that could not be captured, with the graph, guards and effects so far.

Invariants: user calls push a `Frame` and never recurse in the host; an instruction either happens
wholly or, on `Unsupported`, not at all (`Mark` is what it is rolled back to); no operation runs on
user data, no user code runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
from typing import Any

from windfall.errors import Narrow, SourceLine, Specialise, Unsupported
from windfall.frontend import opcodes  # noqa: F401  (fills the table)
from windfall.frontend.breaks import (
    BUDGET,
    GENERATOR,
    HOT_RECURSION,
    NOT_A_GRAPH_ARGUMENT,
    REASONS,
    RECURSION,
    TOO_MANY_VALUES,
    UNCAUGHT,
    UNKNOWN_ATTRIBUTE,
    UNKNOWN_OPCODE,
    UNKNOWN_OPERATION,
    stop,
)
from windfall.frontend.bytecode import Instruction
from windfall.frontend.effects import EffectLog
from windfall.frontend.frame import Frame, Kept
from windfall.frontend.graph import GraphBuilder
from windfall.frontend.opcodes.table import HANDLERS
from windfall.frontend.polyfills.iterators import MAKES
from windfall.frontend.state import Facts, FrameShape, Start, State
from windfall.frontend.symbols import Symbols
from windfall.frontend.tracebacks import Place
from windfall.frontend.values.base import NULL, PENDING, Raised, Value
from windfall.frontend.values.classes import leave_bases
from windfall.frontend.values.constant import Constant
from windfall.frontend.values.exception import Exception_
from windfall.frontend.values.factory import ValueFactory
from windfall.frontend.values.generator import Generator
from windfall.frontend.values.iterator import END
from windfall.frontend.values.mapping import InstanceDict
from windfall.frontend.values.symbolic import varying_names
from windfall.frontend.values.unseen import look, made_here, real_of, unseen
from windfall.frontend.values.wrap import has_fixed_class, wrap
from windfall.ir.guard import Check, Guard, HasKey, IdentityIs, LengthIs, SameObjects, TypeIs
from windfall.ir.node import Region
from windfall.ir.source import Known, Slot, Source


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
    frames: tuple[Kept, ...]


# What tells checks apart of which a model has thousands of equal ones; asks no user's `__hash__`.
_IDENTITY: dict[type[Check], Callable[[Any], Any]] = {
    TypeIs: lambda check: id(check.exact_class),
    LengthIs: lambda check: check.length,
    HasKey: lambda check: (check.key, check.present) if type(check.key) is str else id(check),
}


_FEW_KEYS = 16  # that are told apart one by one


class Machine(ValueFactory):
    """One capture in progress."""

    def __init__(self, state: State, facts: Facts) -> None:
        try:
            self._set_up(state, facts)
        except BaseException:
            self.close()
            raise

    def _set_up(self, state: State, facts: Facts) -> None:
        self.generators: list[Generator] = []
        self.own_dicts: list[InstanceDict] = []
        self.state = state
        self.facts = facts
        self.frames: list[Frame] = []
        self.handled: Value | None = None  # the exception being handled, as sys.exc_info() says
        self.symbols = Symbols(self)
        self.graph = GraphBuilder(self)
        self.effects = EffectLog()
        self.guards: list[Guard] = []
        self.seen: list[tuple[Source, type]] = []  # where one looked, and what was there (verify)
        self._checks: dict[Any, Check] = {}  # one record for equal checks
        self.found: list[tuple[Source, Any]] = []  # items of dicts that were read
        self.answers: dict[type, dict[str, Any]] = {}  # what torch's classes were asked for
        self.result: Value | None = None
        self.operations = 0
        self.modelled = 0  # elements of large containers
        self.idle = 0  # jumps backward since the last node of the graph
        self.stopped: Unsupported | None = None
        self._journal: list[Callable[[], None]] = []
        self._resumption: Resumption | None = None
        self._mark: Mark | None = None  # of the present instruction
        self._memo: dict[int, Value] = {}
        self._keys: dict[int, dict[int, Value]] = {}  # keys by identity, of each class
        self._alive: list[Any] = []  # so that no address is reused during the capture
        self._calls: dict[str, int] = {}
        # Calls of a function, and the size of the graph since then.
        self._called: dict[CodeType, tuple[int, int]] = {}
        self.kept_frames = 0  # where a recursion is left: how many frames are not
        self._globals_dicts = {}
        self.stand_ins: list[type] = []  # of classes that the program makes
        self.slots = [
            self.wrap(value, Slot(index, name))
            for index, (value, name) in enumerate(
                zip(state.values, state.point.slot_names, strict=True)
            )
        ]

    def close(self) -> None:
        """Let go of everything: machine, values and frames refer to each other, and the user's
        tensors must not wait for the garbage collector."""
        for one in self.__dict__.get("generators", ()):
            one.forget()  # it and its frame
        for table in self.__dict__.get("own_dicts", ()):
            table.forget()  # it and its object
        for stand_in in self.__dict__.get("stand_ins", ()):
            leave_bases(stand_in)
        graph = self.__dict__.get("graph")
        if graph is not None:
            vars(graph).clear()  # it and its mode
        self.__dict__.clear()

    # ---------------------------------------------------------------------------------- values

    def wrap(self, value: Any, source: Source | None) -> Value:
        """The symbolic value of a real object: of one from outside, not looked at yet."""
        if source is not None and not (source.__class__ is Known and has_fixed_class(value)):
            return unseen(self, value, source)
        known = self._memo.get(id(value))
        if known is None:
            return wrap(self, value, source)
        if known.source is not None and known.source.__class__ is not Known:
            # An argument that is a constant of the program: the next one may be another object.
            known.guard(self, "identity", IdentityIs(value), "it is an object of the program")
        return known

    def see(self, value: Any, source: Source) -> Value:
        """What an object from outside is: from here on its kind is relied upon. The same object is
        the same value, and a second way to it must lead there again."""
        known = self._met(value, source)
        if known is None:
            known = wrap(self, value, source)
            self._cover(known, value, source)
            if self.facts.verify:
                assert known.python_type() is type(value), f"the class of {known.describe()}"
                self.seen.append((source, type(value)))
        return known

    def _met(self, value: Any, source: Source) -> Value | None:
        """The value of an object that was met before; from here on, this way leads to it too."""
        known = self._memo.get(id(value))
        if known is None:
            return None
        if known.source is None:  # an object of the program
            self.add_guard(source, IdentityIs(value), "it is an object of the program")
        elif known.source != source:
            self.alias(known, source)
        return known

    def _cover(self, known: Value, value: Any, source: Source) -> None:
        """Rely on what made it a value of its kind: the exact class of what stands there."""
        if known.source is not None and known.source == source:
            known.guard(self, "type", TypeIs(type(value)), "looked at")
        else:  # a kind that is made of parts: it has another source, or none
            self.add_guard(source, TypeIs(type(value)), "looked at")

    def wrap_certain(self, value: Any, source: Source) -> Value:
        """An object from outside whose class the language guarantees, wherever it was read: the
        cells of a closure."""
        known = self._met(value, source)
        return known if known is not None else wrap(self, value, source)

    def remember(self, real: Any, value: Value) -> Value:
        """Note which value stands for an object that has an identity."""
        self._memo[id(real)] = value
        self._alive.append(real)
        return value

    def from_outside(self) -> list[Value]:
        """Every object that was met, in order."""
        return list(self._memo.values())

    def known(self, value: Any, name: str) -> Value:
        """An object that the program reaches by a way that cannot change (a class's dict...)."""
        found: Value = look(self.wrap(value, Known(value, name)))
        return found

    def alias(self, value: Value, source: Source) -> None:
        """A second way to an object that was met before: rely on its being the same."""
        assert value.source is not None
        value.guard(
            self, ("alias", source), SameObjects((source,), True), "two names for one object"
        )

    def told_apart(self, value: Value) -> Value:
        """A value that is its own key: objects hashed by identity are different keys only as long
        as they are different objects. (Where there are many, each is relied upon itself.)"""
        known = self._keys.setdefault(id(value.python_type()), {})
        if value.source is None or id(value) in known:
            return value
        others = list(known.values()) if len(known) <= _FEW_KEYS else []
        known[id(value)] = value
        if len(known) > _FEW_KEYS:  # from here on each by itself: pairs of many are too many
            for one in (*others, value):
                if (real := real_of(one)) is None:
                    stop(UNKNOWN_OPERATION, f"{one.describe()} as one of many keys")
                one.guard(self, "identity", IdentityIs(real), "a key")
            return value
        for one in others:
            first, second = (value, one) if type(one.source) is Known else (one, value)
            if type(first.source) is not Known and second.source is not None:
                apart = SameObjects((second.source,), False)
                first.guard(self, ("distinct", second.source), apart, "keys by identity")
        return value

    def add_guard(self, source: Source, check: Check, reason: str) -> None:
        """Rely on a fact."""
        identity = _IDENTITY.get(check.__class__)
        if identity is not None:
            check = self._checks.setdefault((check.__class__, identity(check)), check)
        self.guards.append(Guard(source, check, reason, self.where()))

    # --------------------------------------------------------------------------------- journal

    def undo(self, action: Callable[[], None]) -> None:
        """How to take back a change of a value's own state, should this instruction fail."""
        self._journal.append(action)

    def mark(self, frame: Frame) -> Mark:
        """What to come back to if the next instruction cannot be captured."""
        if self._resumption is None:
            self._journal.clear()
        return Mark(
            frame,
            len(self.frames),
            tuple(frame.stack),
            frame.phase,
            frame.kw_names,
            self.handled,
            self.graph.mark(),
            len(self.effects.entries),
            len(self._journal),
        )

    def roll_back(self, mark: Mark) -> None:
        """As if the present instruction had not been begun."""
        for action in reversed(self._journal[mark.journal :]):
            action()
        del self._journal[mark.journal :]
        del self.frames[mark.frames :]
        if len(self.frames) < mark.frames:
            self.frames.append(mark.frame)
        frame = mark.frame
        frame.stack[:] = mark.stack
        frame.ip = frame.last
        frame.phase = mark.phase
        frame.kw_names = mark.kw_names
        self.handled = mark.handled
        self.graph.roll_back(mark.graph)
        del self.effects.entries[mark.effects :]

    # --------------------------------------------------------------------------------- running

    def begin(self) -> None:
        """Set up the frames of the state. `Unsupported`: the call itself cannot be followed."""
        point = self.state.point
        if isinstance(point, Start):
            target = self.known(point.target, point.name)
            positional = self.slots[: point.count]
            named = dict(zip(point.keywords, self.slots[point.count :], strict=True))
            result = target.call(self, positional, named)
            if result is not PENDING:
                self.result = result
            return
        slots = iter(self.slots)
        self.frames = [self._restored(shape, slots) for shape in point.frames]
        for below, frame, shape in zip(
            self.frames, self.frames[1:], point.frames[1:], strict=False
        ):
            if shape.generator:
                frame.generator = self.generator(frame)
                frame.generator.running = frame.generator.started = True
                frame.generator.place = None  # it was made in another segment
                frame.role = "iterate"
                below.stack[-1] = frame.generator
        if point.handled:
            self.handled = next(slots)

    def generator(self, frame: Frame) -> Generator:
        """The generator whose frame this is, from now on."""
        made = Generator(frame, MAKES.get(frame.code) if frame.is_ours else None)
        place = self._place_of_iterator() if frame.is_ours else None
        made.place = place if place not in self.facts.real else None
        self.generators.append(made)
        return made

    def _place_of_iterator(self) -> str | None:
        """The call of the program that makes an iterator of ours, or has made the one that does."""
        for one in reversed(self.frames):
            if not one.is_ours:
                return f"{one.code.co_filename}:{one.code.co_qualname} {one.last}"
            if one.generator is not None:
                return one.generator.place
        return None

    def is_left_real(self) -> bool:
        """Whether the iterator that the present call makes must be CPython's own."""
        return bool(self.facts.real) and self._place_of_iterator() in self.facts.real

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
        while self.result is None and self.stopped is None:
            self.step()

    def step(self) -> None:
        """One instruction of the innermost frame."""
        frame = self.frames[-1]
        instruction = frame.instructions[frame.ip]
        frame.last = frame.ip
        mark = self._mark = self.mark(frame)
        frame.ip += 1
        self.operations += 1
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
            if not self.unwind(raised.value):
                self.roll_back(mark)
                text = raised.value.describe()
                self._stop(Unsupported(UNCAUGHT.number, text, self.where()))
        except Specialise as needed:
            if not self._breaks_at(needed):
                raise  # the capture begins again
            self.roll_back(mark)
            self._stop(Unsupported(TOO_MANY_VALUES.number, needed.detail, self.where()))
        except Unsupported as unsupported:
            self._specialise_instead(unsupported, frame)
            self.roll_back(mark)
            unsupported.where = unsupported.where or self.where()
            self._stop(unsupported)

    def _specialise_instead(self, reason: Unsupported, frame: Frame) -> None:
        """An operation that is not known of numbers that vary may be known of constants."""
        if not self.symbols.by_name or reason.number not in _OF_KINDS or self._mark is None:
            return
        names = varying_names(self._mark.stack[-3:])
        needed = Specialise(names, reason.detail, self.where())
        if names and not self._breaks_at(needed):
            raise needed

    def _breaks_at(self, needed: Specialise) -> bool:
        """Whether a value is needed that was needed of too many calls: the step runs natively."""
        if needed.passing or isinstance(needed, Narrow) or not self.facts.broken:
            return False
        sources = self.symbols.sources(needed.names)
        return bool(sources) and sources <= self.facts.broken

    def _stop(self, reason: Unsupported) -> None:
        """The capture ends here; or where a generator that is running was resumed."""
        self.stopped = reason
        if self._resumption is not None and not self._may_stay(reason):
            self.take_back()

    def _may_stay(self, reason: Unsupported) -> bool:
        """Whether generators that run may be left running: each asked by a `for` that alone holds
        it. (Whether something else holds it too shows when values are rebuilt: `StillRunning`.)"""
        assert self._resumption is not None
        row = REASONS.get(reason.number)
        leaves = row is not None and row.leaves_frame
        if self._resumption.generator is None or leaves or self.handled is not None:
            return False
        top = self.frames[-1]
        if top.instructions[top.ip].name in ("SEND", "GET_YIELD_FROM_ITER"):
            return False  # what delegates to an object that is not followed is resumed natively
        for below, frame in zip(self.frames, self.frames[1:], strict=False):
            generator = frame.generator
            if generator is None:
                continue
            asked = below.instructions[below.last].name == "FOR_ITER" and frame.role == "iterate"
            if not asked or below.stack[-1] is not generator or generator.outer is not None:
                return False
        return self.frames[0].generator is None

    def take_back(self) -> None:
        """As if the outermost running generator had not been resumed."""
        resumption = self._resumption
        if resumption is None:
            stop(GENERATOR, "a running generator is held by something else than its loop")
        for action in reversed(self._journal[resumption.mark.journal :]):
            action()
        self._journal.clear()
        self.frames = [kept.frame for kept in resumption.frames]
        for kept in resumption.frames:
            kept.restore()
        self._resumption = None
        self.roll_back(resumption.mark)

    def push(self, frame: Frame) -> Value:
        """Inline a call: the callee runs next, its result lands on the present frame's stack."""
        if len(self.frames) >= self.facts.depth or self._recurs_after_break(frame):
            if not self.graph.mark() - self.graph.scalars:
                self.leave_recursion(frame.code)
            stop(RECURSION, frame.code.co_qualname)
        self._count_call(frame)
        self.frames.append(frame)
        return PENDING

    def _count_call(self, frame: Frame) -> None:
        """A recursion that does nothing with tensors is better run by CPython, from its outermost
        call on; the frame in which the capture began goes on being captured."""
        count, size = self._called.get(frame.code, (0, -1))
        now = self.graph.mark() - self.graph.scalars
        count = count + 1 if size == now else 1
        self._called[frame.code] = count, now
        if count > self.facts.calls:
            self.leave_recursion(frame.code)

    def leave_recursion(self, code: CodeType) -> None:
        """If this function is on the stack already, run its outermost call natively."""
        depths = (depth for depth, one in enumerate(self.frames) if one.code is code)
        first = next(depths, None)
        if first is not None:
            self.kept_frames = max(first, 1)
            stop(HOT_RECURSION, f"calls of {code.co_qualname} without a tensor")

    def _recurs_after_break(self, frame: Frame) -> bool:
        """Whether a recursion in which breaks come goes so deep that each way through it would be
        a stack of frames of its own, compiled by itself."""
        if isinstance(self.state.point, Start) or len(self.frames) < _DEEP:
            return False
        return sum(one.code is frame.code for one in self.frames) >= _DEEP

    def pop(self, value: Value) -> None:
        """The innermost frame returns `value`."""
        frame = self.frames.pop()
        if frame.generator is not None:
            self._end(frame, frame.generator, value)
        elif not self.frames:
            self.result = value
        elif not frame.discard:
            self.frames[-1].stack.append(value)

    # ------------------------------------------------------------------------------ generators

    def resume(self, generator: Generator, sent: Value | None, role: str) -> Value:
        """Run a generator until it yields: the item lands on the present frame's stack. When it
        ends, what happens depends on `role`: "next" raises StopIteration, "iterate" gives END,
        "send" gives the returned value and END. `sent` None: an exception is thrown in."""
        frame = generator.frame
        if generator.running:
            generator.leave_real()  # some of those may be asked while they run
            raise self.raised(ValueError("generator already executing"))
        if frame is None:
            if generator.asks_again:
                generator.leave_real()
            if role == "next":
                raise self.raised(StopIteration())
            items = [self.literal(END)] if role == "iterate" else [_NONE, self.literal(END)]
            self.frames[-1].stack.extend(items)
            return PENDING
        if self._resumption is None:
            assert self._mark is not None
            kept = tuple(Kept.of(one) for one in self.frames)
            self._resumption = Resumption(generator, self._mark, kept)
        before, state = Kept.of(frame), (generator.started, generator.handled)

        def restore() -> None:
            before.restore()
            generator.frame, generator.running = frame, False
            generator.started, generator.handled = state

        self.undo(restore)
        generator.running = generator.started = True
        generator.outer = self.handled
        if generator.handled is not None:
            self.handled = generator.handled
        frame.role = role
        if sent is not None:
            frame.stack.append(sent)
        return self.push(frame)

    def handled_outside(self) -> Value | None:
        """The exception that whoever resumed the innermost generator is handling: it is seen inside
        of the generator, but is none of its own, and the next one to resume it has another."""
        generators = (one.generator for one in reversed(self.frames) if one.generator is not None)
        innermost = next(generators, None)
        return innermost.outer if innermost is not None else None

    def hold_together(self) -> None:
        """What follows is done wholly or, where it breaks, natively from the present instruction
        on: as of a running generator."""
        if self._resumption is None:
            assert self._mark is not None
            kept = tuple(Kept.of(one) for one in self.frames)
            self._resumption = Resumption(None, self._mark, kept)

    @property
    def holds_together(self) -> bool:
        """Whether a break now would take back more than one instruction."""
        return self._resumption is not None

    @property
    def is_one_operation(self) -> bool:
        """Whether what is done now becomes one operation of the graph."""
        return self._resumption is not None and self._resumption.generator is None

    def let_go(self) -> None:
        """The end of what is held together."""
        if self._resumption is not None and self._resumption.generator is None:
            self._resumption = None

    def suspend(self, value: Value) -> None:
        """The innermost frame, a generator's, yields `value`."""
        frame = self.frames.pop()
        generator = frame.generator
        assert generator is not None
        own = self.handled if self.handled is not generator.outer else None
        self._left(generator)
        generator.handled = own
        self.frames[-1].stack.append(value)

    def _left(self, generator: Generator) -> None:
        """A generator stops running."""
        resumption = self._resumption

        def restore() -> None:
            generator.running, self._resumption = True, resumption

        self.undo(restore)
        generator.running = False
        self.handled = generator.outer
        if self._resumption is not None and self._resumption.generator is generator:
            self._resumption = None

    def finish(self, generator: Generator) -> None:
        """A generator has come to its end."""
        frame = generator.frame

        def restore() -> None:
            generator.frame, generator.asks_again = frame, False

        self.undo(restore)
        generator.ended()

    def _end(self, frame: Frame, generator: Generator, value: Value) -> None:
        self._left(generator)
        self.finish(generator)
        stack = self.frames[-1].stack
        if frame.role == "next":
            is_none = isinstance(value, Constant) and value.value is None
            error = self.known(StopIteration, "StopIteration")
            raise Raised(error.call(self, [] if is_none else [value], {}))
        if frame.role == "send":
            stack.append(value)
        stack.append(self.literal(END))

    # ------------------------------------------------------------------------------ exceptions

    def unwind(self, exception: Value) -> bool:
        """Go to the innermost handler; False: there is none, and nothing was changed."""
        for depth in range(len(self.frames) - 1, -1, -1):
            frame = self.frames[depth]
            handler = frame.listing.handler_at(frame.last)
            if handler is None:
                if frame.generator is not None:
                    exception = self.leaving(exception)
                continue
            if isinstance(exception, Exception_):
                exception.passed(self, self._passed(depth))
            for left in reversed(self.frames[depth + 1 :]):
                if left.generator is not None:
                    self._left(left.generator)
                    self.finish(left.generator)
            del self.frames[depth + 1 :]
            del frame.stack[handler.depth :]
            if handler.lasti:
                frame.stack.append(self.wrap(frame.last, None))
            frame.stack.append(exception)
            frame.ip, frame.phase = handler.target, 0
            return True
        return False

    def _passed(self, depth: int) -> tuple[Place, ...]:
        """The frames down to `depth` that an exception is raised in or passes; one in which it is
        only raised again is in its traceback already."""
        frames = self.frames[depth:]
        instruction = frames[-1].instructions[frames[-1].last]
        bare = instruction.name == "RAISE_VARARGS" and instruction.argument == 0
        if bare or instruction.name in _RAISE_AGAIN:
            frames.pop()
        return tuple(one.place for one in frames if not one.is_ours)

    def leaving(self, exception: Value) -> Value:
        """An exception leaves a generator: StopIteration would be taken for its end."""
        exception.guard_type(self)
        if not issubclass(exception.python_type(), StopIteration):
            return exception
        made = self.raised(RuntimeError("generator raised StopIteration")).value
        assert isinstance(made, Exception_)
        for link in ("__cause__", "__context__"):
            made.link(self, link, exception)
        return made

    # ------------------------------------------------------------------------------------ facts

    def where(self) -> SourceLine | None:
        """The user's line: that of the innermost frame whose code is not ours."""
        for frame in reversed(self.frames):
            if not frame.is_ours:
                return frame.line
        return self.frames[-1].line if self.frames else None

    @property
    def region(self) -> Region | None:
        """The module call that is being executed."""
        return self.frames[-1].region if self.frames else None

    def enter_region(self, path: str, class_name: str) -> Region:
        """A new module call."""
        count = self._calls.get(path, 0)
        self._calls[path] = count + 1
        return Region(path, class_name, count, self.region)

    def shape(self, frame: Frame, live: frozenset[int]) -> FrameShape:
        """The frame without its values: `live` variables have slots."""
        bound = tuple(
            index
            for index, value in enumerate(frame.variables)
            if value is not None and index in live
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


def has_slot(value: Value) -> bool:
    """Whether a value on the stack is an object: NULL is none, nor is a generator that runs."""
    return value is not NULL and not (made_here(value, Generator) and value.running)


_OF_KINDS = frozenset(
    row.number for row in (NOT_A_GRAPH_ARGUMENT, UNKNOWN_ATTRIBUTE, UNKNOWN_OPERATION)
)
Handler = Callable[[Machine, Frame, Instruction], None]
_DEEP = 6
_RAISE_AGAIN = frozenset({"RERAISE", "END_ASYNC_FOR", "CLEANUP_THROW"})
_NONE = Constant(None)
