"""The compiled object: its entries for each point of the program, and the loop that runs them.

Enters: calls. Leaves: what the function returns. A call tries the entries of its form; where all
miss, one more is compiled by `compile_missing`, which `pipeline` hands over. A segment that ended
in a break answers `Continue`, and the loop goes on at that position. Invariants: entries belong to
this object and die with it; any number of threads may call, and one point is compiled by one thread
at a time; whatever cannot be compiled runs natively and is noted in the log.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from typing import Any

from windfall import torch_abi
from windfall.errors import InternalError, Unsupported
from windfall.events import EventLog
from windfall.frontend.breaks import REASONS
from windfall.frontend.evaluate import first_failure
from windfall.frontend.native import NativeWay
from windfall.frontend.state import Continue, Facts, Point, Position, Start, State
from windfall.ir.stages import MISS, Entry
from windfall.options import Options

CompileMissing = Callable[[State, Facts], Entry]
# How many entries one point may have before calls that fit none of them run natively.
LIMIT = 64


class Entries:
    """The entries of one point, most recently used first."""

    __slots__ = ("calls", "entries", "lock", "native", "point")

    def __init__(self, point: Point) -> None:
        self.point = point
        self.entries: tuple[Entry, ...] = ()
        self.calls: tuple[Callable[..., Any], ...] = ()
        self.lock = threading.Lock()
        self.native = False  # compiling was given up

    def set(self, entries: tuple[Entry, ...]) -> None:
        """Replace all."""
        self.entries = entries
        self.calls = tuple(entry.call for entry in entries)


class Compiled:
    """A compiled callable."""

    def __init__(
        self,
        target: Callable[..., Any],
        compile_missing: CompileMissing,
        log: EventLog | None = None,
        options: Options | None = None,
        on_change: Callable[[int, tuple[Entry, ...]], None] | None = None,
    ) -> None:
        functools.update_wrapper(self, target, updated=())
        self.target = target
        self.log = log if log is not None else EventLog()
        self.options = options if options is not None else Options()
        self.facts = Facts()
        self._compile_missing = compile_missing
        self._on_change = on_change  # told when the entries for so many positional arguments change
        self._points: dict[Any, Entries] = {}
        self._by_count: dict[int, Entries] = {}
        self._forms: dict[Any, Any] = {}
        self._guard = threading.Lock()
        self._leave = NativeWay()
        self._names = _parameter_names(target)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call it."""
        if kwargs:
            args, names = self._ordered(args, kwargs)
            found = self._start(len(args) - len(names), names)
        else:
            known = self._by_count.get(len(args))
            found = known if known is not None else self._start(len(args), ())
        tried = found.calls
        for call in tried:
            result = call(*args)
            if result is not MISS:
                break
        else:
            result = self._missed(found, tried, args)
        if type(result) is Continue:
            return self._go_on(result)
        return result

    # ------------------------------------------------------------------------------- going on

    def _go_on(self, result: Any) -> Any:
        """Run segment after segment until one returns."""
        while type(result) is Continue:
            position, slots = result.position, result.slots
            found = self._points.get(position.key)
            if found is None:
                found = self._point(position)
            del result  # so that values which the program dropped are not kept alive
            tried = found.calls
            for call in tried:
                result = call(*slots)
                if result is not MISS:
                    break
            else:
                result = self._missed(found, tried, slots)
            del slots
        return result

    def _missed(
        self, found: Entries, tried: tuple[Callable[..., Any], ...], slots: tuple[Any, ...]
    ) -> Any:
        """No entry fits: compile one, unless another thread just did."""
        if found.native or len(found.entries) >= LIMIT:
            return self._natively(found.point, slots)
        obstacle = torch_abi.ambient_obstacle()
        if obstacle is not None:  # this call only
            self.log.count("fallback", str(found.point), reason=obstacle)
            return self._natively(found.point, slots)
        with found.lock:
            fresh = [call for call in found.calls if call not in tried]
            if not fresh:
                self._explain(found, slots)
                entry = self._compiled(found, slots)
                if entry is None:
                    return self._natively(found.point, slots)
                found.set((entry, *found.entries))
                self._tell(found)
                fresh = [entry.call]
        for call in fresh:
            result = call(*slots)
            if result is not MISS:
                return result
        broken = first_failure(found.entries[0].segment.capture.guards, slots)
        text = f"the guards of a fresh entry do not hold: {broken}"
        self._give_up(found, InternalError(text))
        return self._natively(found.point, slots)

    def _compiled(self, found: Entries, slots: tuple[Any, ...]) -> Entry | None:
        """A new entry; None: it cannot be compiled."""
        try:
            return self._compile_missing(State(found.point, slots), self.facts)
        except Unsupported as reason:
            row = REASONS.get(reason.number)
            self._give_up(found, reason, for_good=row is None or not row.passing)
        except InternalError as reason:
            if self.options.strict:
                raise
            self._give_up(found, reason)
        return None

    def _explain(self, found: Entries, slots: tuple[Any, ...]) -> None:
        """Note why no entry fits: the first guard of the latest one that does not hold."""
        if found.entries:
            latest = found.entries[0].segment.capture
            broken = first_failure(latest.guards, slots)
            text = f"{broken} ({broken.reason})" if broken is not None else "unknown"
            self.log.add("recompile", str(found.point), reason=text)

    def _give_up(self, found: Entries, reason: Exception, for_good: bool = True) -> None:
        found.native = found.native or for_good
        self.log.add("fallback", str(found.point), reason=f"{type(reason).__name__}: {reason}")

    def _natively(self, point: Point, slots: tuple[Any, ...]) -> Any:
        if isinstance(point, Position):
            return self._leave(point, slots)
        named = dict(zip(point.keywords, slots[point.count :], strict=True))
        return self.target(*slots[: point.count], **named)

    def _tell(self, found: Entries) -> None:
        point = found.point
        if self._on_change is not None and isinstance(point, Start) and not point.keywords:
            self._on_change(point.count, found.entries)

    # --------------------------------------------------------------------------------- points

    def _point(self, point: Point) -> Entries:
        with self._guard:
            return self._points.setdefault(point.key, Entries(point))

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

    def entries(self) -> dict[str, tuple[Entry, ...]]:
        """All entries by the text of their point, for people and reports."""
        with self._guard:
            return {str(found.point): found.entries for found in self._points.values()}

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """A compiled function that stands in a class binds like a function."""
        return self if instance is None else functools.partial(self, instance)


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
