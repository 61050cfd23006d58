"""The compiled object: its entries for each point of the program, and the loop that runs them.

Enters: calls. Leaves: what the function returns. A call tries the entries of its form; where all
miss, one more is compiled by `compile_missing`, which `pipeline` hands over. A segment that ended
in a break answers `Continue`, and the loop goes on at that position; one whose graph fails is run
natively from its start. Invariants: entries belong to this object and die with it; any number of
threads may call, and one point is compiled by one thread at a time; what cannot be compiled runs
natively and is noted in the log.
"""

from __future__ import annotations

import copy
import functools
import inspect
import sys
import types
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from windfall import locks, stance, torch_abi
from windfall.directives import StandIn, capturing, is_compiling
from windfall.errors import (
    BackendError,
    Counts,
    GraphFailed,
    InternalError,
    LeaveReal,
    Narrow,
    RecompileError,
    Specialise,
    Unsupported,
    UserError,
    hide_our_frames,
)
from windfall.events import Eager, EventKind, EventLog
from windfall.frontend.breaks import REASONS, TOO_MANY_VALUES
from windfall.frontend.dynamism import generalised
from windfall.frontend.entries import Entries
from windfall.frontend.guard_failures import why_missed
from windfall.frontend.interrupted import TAKEN, interrupted_at, is_before_its_step, left_at
from windfall.frontend.lazy import initialise
from windfall.frontend.marks import refuse_required
from windfall.frontend.native_way import NativeWay
from windfall.frontend.recompile_policy import RecompilePolicy
from windfall.frontend.rounds import left_idle
from windfall.frontend.state import Continue, Facts, Point, Position, Start, State
from windfall.frontend.tracebacks import through
from windfall.ir.guard import first_failure
from windfall.ir.stages import MISS, Entry
from windfall.options import OWN_BACKENDS, Options

CompileMissing = Callable[[State, Facts], Entry]
Chain = Callable[[Any, list[Any]], Any]  # `_go_on`, the usual case natively
MakeChain = Callable[[type, object, dict[Any, Any], type], Chain | None]


def _is_passing(reason: BaseException) -> bool:
    """Whether what was short is there again in the next call: frames, memory."""
    return isinstance(reason.__cause__, RecursionError | MemoryError)


class Compiled(StandIn):
    """A compiled callable."""

    def __init__(
        self,
        target: Callable[..., Any],
        compile_missing: CompileMissing,
        log: EventLog | None = None,
        options: Options | None = None,
        on_change: Callable[[int, tuple[Entry, ...]], None] | None = None,
        with_backend: Callable[[Any], Compiled] | None = None,
        remake: Callable[[Any, Options], Any] | None = None,
        make_chain: MakeChain | None = None,
    ) -> None:
        functools.update_wrapper(self, target, updated=())
        self.target = target
        self.log = log if log is not None else EventLog()
        self.options = options if options is not None else Options()
        self.facts = _first_facts(self.options)
        self._compile_missing = compile_missing
        self.remake = remake  # how a copy of it is compiled
        self._with_other_backend = with_backend
        self._siblings: dict[Any, Compiled] = {}
        self._on_change = on_change  # told when the entries for so many positional arguments change
        self._points: dict[Any, Entries] = {}
        self._by_count: dict[int, Entries] = {}
        self._by_position: dict[Position, Entries] = {}  # of `_points`, found by identity
        self._make_chain = make_chain
        self._chain: Chain | None = None
        self._guard = locks.lock()
        self._leave = NativeWay()
        self._names = _parameter_names(target)
        self._policy = RecompilePolicy()

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call it."""
        call = result = None
        try:
            if stance.asked:
                now = stance.current()
                if now.name == "force_eager":
                    return self.target(*args, **kwargs)
                self = self._with_backend(now.backend)
            if kwargs:
                args, names = self._ordered(args, kwargs)
                found = self._start(len(args) - len(names), names)
            else:
                known = self._by_count.get(len(args))
                found = known if known is not None else self._start(len(args), ())
            failed = None
            try:
                tried = found.calls
                for call in tried:
                    result = call(*args)
                    if result is not MISS:
                        break
                else:
                    call = None
                    result = self._missed(found, tried, args)
            except GraphFailed as error:
                call, failed = None, error
            if failed is not None:
                result = self._again(found, args, failed)
            return self._go_on(result) if type(result) is Continue else result
        except BaseException as error:
            hide_our_frames(error)
            if call is None or self._passes(found, call, result, error):
                raise
            return self._resumed(result, error)

    def _passes(
        self, found: Entries, call: Callable[..., Any], result: Any, error: BaseException
    ) -> bool:
        """Whether what came out of an entry, or from behind it, goes on to the caller. It does not
        where the program stands behind the entry, and has not met it."""
        if result is None:
            is_before_its_step(found, call, error)
        return type(result) is not Continue or result.slots is TAKEN

    def _resumed(self, result: Any, error: BaseException) -> Any:
        """Raise `error` where the program stands."""
        slots, result.slots = result.slots, TAKEN
        try:
            return self._refused(result.position, slots, error)
        except BaseException as last:
            hide_our_frames(last)
            raise
        finally:
            del error, slots

    # ------------------------------------------------------------------------------- going on

    def _go_on(self, result: Any) -> Any:
        """Run segment after segment until one returns. What comes in between and is not the
        program's (an interrupt, an error of ours) is raised where the program stands."""
        # Where it stands, which entry raised there and among which; how many segments in a row had
        # no operation on tensors, and how many may.
        stands: list[Any] = [None, None, None, 0, self.facts.idle]
        try:
            chain = self._chain or self._made_chain()
            while type(result) is Continue:
                failed = None
                if chain is not None:
                    try:
                        result = chain(result, stands)
                    except GraphFailed as error:
                        failed, result = error, stands[0]
                    if type(result) is not Continue:
                        return result
                stands[0] = stands[1] = stands[2] = None
                result = self._one_segment(result, stands, failed)
            return result
        except BaseException as error:
            waiting = left_at(result, stands, error)
            if waiting is None:
                raise
            return self._refused(*waiting, error)
        finally:
            del result, stands

    def _one_segment(self, result: Any, stands: list[Any], failed: GraphFailed | None) -> Any:
        """Run the segment at which the program stands, compile it where no entry fits, leave it to
        eager where its graph has failed."""
        found: Entries | None = None
        position: Position | None = None
        slots: tuple[Any, ...] | None = None  # None: nothing waits to be run
        call: Callable[..., Any] | None = None  # the entry that runs
        busy = False  # whether the program runs by other means
        try:
            # Whoever called this still holds the first one: it must keep nothing alive that the
            # program drops. One line, since an interrupt must find the place in either.
            position, slots, result.slots, result = result.position, result.slots, TAKEN, MISS
            found = self._by_position.get(position) or self._point(position)
            idle = stands[3] = (stands[3] + 1) * found.is_idle
            if idle > self.facts.idle:
                busy = True
                left, stands[3] = left_idle(self._leave, self.log, position, slots, idle)
                busy = False
                if left is not None:
                    result, slots, left = left[0], None, None
                    return result
            try:
                tried = found.calls
                for call in tried if failed is None else ():
                    result = call(*slots)
                    if result is not MISS:
                        break
                else:
                    busy, call, result = True, None, None
                    if failed is None:
                        # One that is compiled again and again for other values thrashes.
                        stands[3] += _THRASH * (len(tried) > _FEW_ENTRIES)
                        result = self._missed(found, tried, slots)
            except GraphFailed as error:
                failed = error
            if failed is not None:
                busy, call, result = True, None, None
                result = self._again(found, slots, failed)
            stands[0] = result  # for who interrupts before it is back
            busy, call, slots = False, None, None
            return result
        except BaseException as error:
            waiting = interrupted_at(result, found, position, None if busy else slots, call, error)
            if waiting is None:
                raise
            return self._refused(*waiting, error)
        finally:
            del slots, result

    def _made_chain(self) -> Chain | None:
        if self._make_chain is not None:
            self._chain = self._make_chain(Continue, TAKEN, self._by_position, Entries)
            self._make_chain = None
        return self._chain

    def _again(self, found: Entries, slots: tuple[Any, ...], failed: GraphFailed) -> Any:
        """The graph of a segment came to no end, and nothing of the segment was seen: eager runs
        from its start. So eager raises, what it raises and where it does; and whatever the program
        did before that, and does with it, is done."""
        if self.options.strict or self.options.fullgraph:  # a mistake of ours is seen
            failed.raise_internal()
        self._count_eager(found.point, f"{_FAILED}: {failed}")
        # Which hold frames.
        failed.__traceback__ = failed.error = failed.__context__ = failed.__cause__ = None
        result = self._natively(found.point, slots)
        self._learn_from_handled(found)
        return result

    def _learn_from_handled(self, found: Entries) -> None:
        """The program went on behind what its graph refused: it handles the exception. Where it
        does so again and again, branches that raise are breaks from now on, as any other."""
        found.handled += 1
        if found.handled == _HANDLED and self.facts.retried:
            with found.lock, self._guard:
                self.facts = replace(self.facts, retried=False)
                found.set(())
            self._tell(found)

    def _missed(
        self, found: Entries, tried: tuple[Callable[..., Any], ...], slots: tuple[Any, ...]
    ) -> Any:
        """No entry fits: compile one, unless another thread just did."""
        mine: Entry | None = None
        asked = False
        while mine is None:
            try:
                mine, fresh = self._more(found, tried, slots, asked)
            except BaseException as error:  # ours, a backend's, an interrupt; not the program's
                return self._refused(found.point, slots, error)
            if not fresh:  # it cannot be compiled
                return self._natively(found.point, slots)
            for call in fresh:
                result = self._first(found, call, slots)
                if result is not MISS:
                    slots = ()
                    found.uses.began(mine)
                    return result
            tried, asked = tried + fresh, True
        broken = first_failure(mine.segment.capture.guards, slots)
        text = f"the guards of a fresh entry do not hold: {broken}"
        self._give_up(found, InternalError(text))
        return self._natively(found.point, slots)

    def _first(self, found: Entries, call: Callable[..., Any], slots: tuple[Any, ...]) -> Any:
        """The first call of a fresh entry."""
        try:
            result = call(*slots)
            slots = ()  # an exception that the program handles may stand there
            return result
        except GraphFailed:
            raise
        except BaseException as error:
            if not is_before_its_step(found, call, error):
                raise
            return self._refused(found.point, slots, error)

    def _more(
        self,
        found: Entries,
        tried: tuple[Callable[..., Any], ...],
        slots: tuple[Any, ...],
        asked: bool,
    ) -> tuple[Entry | None, tuple[Callable[..., Any], ...]]:
        """Entries that were not tried yet, and the one among them that was made for this call; none
        where this call runs natively. `asked`: whether it may be compiled is known."""
        if found.native:
            return None, ()
        obstacle: str | RecompileError | None = None
        if not asked:
            initialise(found.point, slots)
            obstacle = torch_abi.ambient_obstacle() or self._told_not_to(found, slots)
        if isinstance(obstacle, RecompileError):
            raise obstacle
        # A thread that is compiling (its backend, a finaliser, calls back) must not wait for others
        # that may wait for it. Of any that wait for each other in a ring, one came last and saw the
        # next lock taken: so looking first is enough, and `with` takes it.
        if obstacle is None and is_compiling() and found.lock.locked():
            obstacle = _CALLED_BACK
        if obstacle is not None:  # this call only
            self._count_eager(found.point, obstacle)
            return None, ()
        return self._added(found, tried, slots)

    def _added(
        self, found: Entries, tried: tuple[Callable[..., Any], ...], slots: tuple[Any, ...]
    ) -> tuple[Entry | None, tuple[Callable[..., Any], ...]]:
        """What was not tried yet: entries of another thread, or one that is compiled now. The lock
        is given back before the program runs on."""
        with found.lock:
            fresh = tuple(call for call in found.calls if call not in tried)
            mine = self._compiled(found, slots) if not fresh else None
            if mine is None:
                return None, fresh
            self._keep(found, mine)
            return mine, (mine.call,)

    def _told_not_to(self, found: Entries, slots: tuple[Any, ...]) -> str | RecompileError | None:
        """Why the stance forbids to compile now, if it does, or experience."""
        name = stance.current().name
        if name == "fail_on_recompile":
            return RecompileError(f"{_FORBIDDEN}\n  {found.point}: {self._why(found, slots)}")
        first = name.endswith("eager_then_compile") and not found.seen
        found.seen = found.seen or first
        if first or name == "eager_on_recompile":
            return f"stance {name}"
        if self.options.fullgraph or self.options.strict or not self._is_thrashing(found, slots):
            return None
        found.uses.told = found.uses.told or f"{_STORM} ({self._why(found, slots)})"
        return found.uses.told

    def _is_thrashing(self, found: Entries, slots: tuple[Any, ...]) -> bool:
        """Whether every call is a new one."""
        if found.uses.is_thrashing or self.options.dynamic is False:
            return found.uses.is_thrashing
        return found.uses.passes_by(found.entries, slots, self.facts)

    def _refused(self, point: Point, slots: tuple[Any, ...], error: BaseException) -> Any:
        """Raise an error that is not the program's where the program stands: what it has begun
        (`with`, `finally`) it ends, natively."""
        if not isinstance(point, Position):
            raise error
        hide_our_frames(error)
        result = self._leave.throw(point, slots, error)
        while type(result) is Continue:
            result = self._leave(result.position, result.slots)
        return result

    def _keep(self, found: Entries, entry: Entry) -> None:
        gone = found.add(entry, self.options.recompile_limit)
        if gone:
            self._by_position.clear()  # which keeps positions of those that went
            self.log.count(EventKind.EVICT, str(found.point), reason=_EVICTED)
        self._tell(found)

    def _compiled(self, found: Entries, slots: tuple[Any, ...]) -> Entry | None:
        """A new entry; None: it cannot be compiled."""
        self._explain(found, slots)
        try:
            with torch_abi.fence(), capturing(), torch_abi.without_saved_tensor_hooks():
                return self._specialised(found, slots)
        except (UserError, BackendError) as error:  # our own frames are not shown
            through(error.with_traceback(None), getattr(error, "stack", ()))
            raise error from error.__cause__
        except Unsupported as reason:
            row = REASONS.get(reason.number)
            passing = (row is not None and row.passing) or _is_passing(reason)
            self._give_up(found, reason, for_good=not passing)
        except InternalError as reason:
            if self.options.strict or self.options.fullgraph:  # never eager in silence
                raise
            self._give_up(found, reason, for_good=not _is_passing(reason))
        return None

    def _specialised(self, found: Entries, slots: tuple[Any, ...]) -> Entry:
        """Compile for what is known to vary; what turns out to be needed as a value is fixed."""
        if self.options.dynamic is not False:
            self._learn(generalised(found.entries, slots, self.facts))
            self._break_at(self._policy.too_many(found.point, found.entries, slots, self.facts))
        fixed: frozenset[str] = frozenset()
        while True:
            facts = replace(self.facts, fixed=fixed) if fixed else self.facts
            try:
                return self._compile_missing(State(found.point, slots), facts)
            except Counts as reason:
                known = "static" if self.options.dynamic is False else "dynamic"
                more = getattr(self.facts, known) | reason.sources
                self._learn(replace(self.facts, **{known: more}))
            except LeaveReal as reason:
                self._learn(replace(self.facts, real=self.facts.real | {reason.place}))
            except Narrow as reason:
                if reason.sources <= self.facts.sizes:
                    raise InternalError(f"{reason} of {found.point} was known before") from reason
                self._learn(replace(self.facts, sizes=self.facts.sizes | reason.sources))
            except Specialise as reason:
                if reason.sources & self.facts.broken and not reason.passing:
                    raise Unsupported(TOO_MANY_VALUES.number, reason.detail, reason.where) from None
                refuse_required(found.point.slot_names, slots, reason)
                if not reason.sources - self.facts.static - fixed:
                    raise InternalError(f"{reason} of {found.point} was fixed before") from reason
                self.log.add(EventKind.SPECIALISE, str(found.point), reason=str(reason))
                good = self._policy.for_good(reason.sources, reason.passing)
                fixed |= reason.sources - good
                needed = {(one, f"{reason.detail} ({reason.where})") for one in good}
                self._learn(
                    replace(
                        self.facts,
                        static=self.facts.static | good,
                        needed=self.facts.needed | needed,
                    )
                )

    def _break_at(self, sources: frozenset[str]) -> None:
        """From now on these vary again: a step that needs their value is a break."""
        if sources:
            with self._guard:
                facts = self.facts
                self.facts = replace(
                    facts, static=facts.static - sources, broken=facts.broken | sources
                )

    def _learn(self, facts: Facts | None) -> None:
        if facts is None:
            return
        with self._guard:  # facts of another thread are not lost
            self.facts = replace(
                facts,
                dynamic=facts.dynamic | self.facts.dynamic,
                static=(facts.static | self.facts.static) - self.facts.broken,
                broken=facts.broken | self.facts.broken,
                apart=facts.apart | self.facts.apart,
                sizes=facts.sizes | self.facts.sizes,
                real=facts.real | self.facts.real,
                retried=facts.retried and self.facts.retried,
            )

    def _explain(self, found: Entries, slots: tuple[Any, ...]) -> None:
        """Note why no entry fits."""
        if found.entries:
            self.log.add(EventKind.RECOMPILE, str(found.point), reason=self._why(found, slots))

    def _why(self, found: Entries, slots: tuple[Any, ...]) -> str:
        """The first guard of the latest entry that does not hold, and what is there instead."""
        if not found.entries:
            return "nothing is compiled here yet"
        return why_missed(found.entries[0].segment.capture.guards, slots)

    def _give_up(self, found: Entries, reason: Exception, for_good: bool = True) -> None:
        found.native = found.native or for_good
        self._count_eager(found.point, f"{type(reason).__name__}: {reason}")

    def _count_eager(self, point: Point, reason: str) -> None:
        self.log.count(EventKind.FALLBACK, str(point), reason=reason, what=Eager.CALL)

    def _natively(self, point: Point, slots: tuple[Any, ...]) -> Any:
        if isinstance(point, Position):
            return self._leave(point, slots)
        named = dict(zip(point.keywords, slots[point.count :], strict=True))
        return self.target(*slots[: point.count], **named)

    def _with_backend(self, backend: Any) -> Compiled:
        """The object that compiles the same with another backend; None: this one."""
        if backend is None or self._with_other_backend is None:
            return self
        with self._guard:
            if backend not in self._siblings:
                self._siblings[backend] = self._with_other_backend(backend)
            return self._siblings[backend]

    def _tell(self, found: Entries) -> None:
        point = found.point
        if self._on_change is not None and isinstance(point, Start) and not point.keywords:
            self._on_change(point.count, found.entries)

    # --------------------------------------------------------------------------------- points

    def _point(self, point: Point) -> Entries:
        with self._guard:
            found = self._points.setdefault(point.key, Entries(point))
            if isinstance(point, Position):
                self._by_position[point] = found
            return found

    def _start(self, count: int, keywords: tuple[str, ...]) -> Entries:
        found = self._point(Start(self.target, count, keywords, self._names[:count]))
        if not keywords:
            self._by_count[count] = found
        return found

    def _ordered(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], tuple[str, ...]]:
        """Slots and the names of those that stay keywords: keywords that only name the next
        positional parameters become positional, so that both forms share entries."""
        rest = dict(kwargs)
        values = list(args)
        for name in self._names[len(args) :]:
            if name not in rest:
                break
            values.append(rest.pop(name))
        return (*values, *rest.values()), tuple(rest)

    def reset(self) -> None:
        """Forget everything that was compiled or learnt."""
        with self._guard:
            counts, self._points, self._by_count = tuple(self._by_count), {}, {}
            self._siblings = {}
            self._by_position.clear()
            self.facts = _first_facts(self.options)
        for count in counts:
            if self._on_change is not None:
                self._on_change(count, ())

    def entries(self) -> dict[str, tuple[Entry, ...]]:
        """All entries by the text of their point, for people and reports."""
        with self._guard:
            return {str(found.point): found.entries for found in self._points.values()}

    def __reduce_ex__(self, protocol: Any) -> Any:
        """By its name, where that leads here; else the original is pickled and compiled anew."""
        path: str = getattr(self, "__qualname__", "")
        found: Any = sys.modules.get(self.__module__)
        for name in path.split("."):
            found = getattr(found, name, None)
        return path if found is self else (self.remake, (self.target, self.options))

    def __copy__(self) -> Compiled:
        """A function is its own copy."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """As a deep copy of the original: a function is its own, a bound method is not."""
        target = copy.deepcopy(self.target, memo)
        if target is self.target or self.remake is None:
            return self
        return self.remake(target, self.options)

    def __repr__(self) -> str:
        return f"<windfall {self.options.name or ''} of {self.target!r}>".replace("  ", " ")

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """A compiled function that stands in a class binds like a function."""
        return self if instance is None else types.MethodType(self, instance)


_HANDLED = 3  # graphs that failed although the program went on
_FEW_ENTRIES, _THRASH = 2, 100  # segments for which one more compilation counts


_FAILED = "a graph came to no end, and eager runs this call"
_CALLED_BACK = "called while it is being compiled"
_STORM = "it was compiled again and again for calls that did not come back"
_EVICTED = "the entry that was used longest ago went"
_FORBIDDEN = "stance 'fail_on_recompile': this call would be compiled"


def _parameter_names(target: Any) -> tuple[str, ...]:
    """The names of the positional-or-keyword parameters, as a caller sees them."""
    try:
        signature = inspect.signature(getattr(target, "forward", target))
    except (TypeError, ValueError):
        return ()
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD,)
    names = []
    for one in signature.parameters.values():
        if one.kind not in kinds:
            break
        names.append(one.name)
    return tuple(names)


def _first_facts(options: Options) -> Facts:
    """What is known before anything was captured."""
    return Facts(
        everything=options.dynamic is True,
        verify=options.verify,
        retried=options.backend in OWN_BACKENDS,
    )
