"""Whole entries on disk: guards, source and executable, so that nothing is captured again.

Enters: a state that no entry fits; what was compiled of it. Leaves: the segment and executable that
a process like this one has kept, if they fit. Invariant: nothing that was relied upon is trusted to
the file. Every name in it must mean the same by content here (code of functions, bases and methods
of classes: `cache/fingerprint.py`), objects without a name are found by the ways that the capture
found them by (`cache/ways.py`), and all guards are checked, before the entry is used. What depends
on the process in another way (an address, the order of a set of texts, a question about what is
installed) makes a capture its own: `Capture.own` says why, and it is not kept.

    key: the call's form, code of the target, types of tensors, facts, options, surroundings
    → up to `VARIANTS` entries, tried in order → names → ways → guards → linked as if just compiled
"""

from __future__ import annotations

import functools
import sys
import types
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

import torch

from windfall import cache, directives, frontend
from windfall.cache import Cache, Changed, Fingerprints, Found, Unkeyed, cache_for, walk, ways_of
from windfall.caching import REFUSED
from windfall.collector import at_rest
from windfall.dataclass import dataclass
from windfall.events import LOGS, EventKind
from windfall.frontend import segment_records  # noqa: F401  (kinds of record in entries)
from windfall.ir.codec import Document, Unstorable, decode, dumps, encode, loads, record
from windfall.ir.guard import Guard, RegistrationsAre, first_failure
from windfall.ir.names import Unnameable, resolve, resolve_code
from windfall.ir.reading import UNREADABLE
from windfall.ir.reading import facts as facts_of
from windfall.ir.source import Distance, Known, Overlap, Source
from windfall.ir.stages import Executable, PartitionedProgram, Program, Segment
from windfall.options import OWN_BACKENDS
from windfall.programs import Programs

VARIANTS = 8  # entries of one key: as many guards may tell apart

# Nodes of a document that name something by its place in a module.
_NAMES = {"name": resolve, "code": resolve_code}
_BY_CONTENT = frozenset({"tensor", "parameter"})
# Who asks for these is shown what a hit leaves out; what is built, bound and entered is told of.
_TOLD = (EventKind.BUILD, EventKind.BIND, EventKind.ENTER, None)


@record
@dataclass(frozen=True, slots=True)
class StoredSegment:
    """What is kept: `names` with what they meant, `ways` (name, document, what was there), and the
    segment with its executable as a document of these."""

    names: tuple[tuple[str, str, str], ...]  # tag, name, fingerprint
    ways: tuple[tuple[str, bytes, str], ...]
    body: bytes

    def source(self) -> str:
        """The generated source, read without making anything of the body."""
        found = (node[2] for node in loads(self.body).nodes if node[0] == "Segment")
        return str(next(found, ""))


@dataclass(frozen=True, slots=True)
class WholeEntries(Programs):
    """Whoever makes entries."""

    def stored_segment(
        self, state: frontend.State, facts: frontend.Facts
    ) -> tuple[Segment, Executable | None] | None:
        """What was kept for such a state and holds of this one."""
        found = self._entry_key(state, facts)
        if found is None:
            return None
        store, key = found
        name = state.point.name
        for number in range(VARIANTS):
            data = store.get(_numbered(key, number))
            if data is None or data.startswith(ASKED):
                return None
            try:
                made: tuple[Segment, Executable | None] = _loaded(data, state)
            except Changed as reason:
                self.note(EventKind.CACHE, name, how="entry passed over", reason=str(reason))
                continue
            except Exception as error:  # whatever it is: it is made anew
                text = f"{type(error).__name__}: {error}"
                store.quarantine(_numbered(key, number), text)
                self.note(EventKind.CACHE, name, how="unreadable", reason=text)
                return None
            if self._is_refused(made[0]):
                return None
            self._tell(state, *made, len(data))
            return made
        return None

    def store_segment(
        self,
        state: frontend.State,
        facts: frontend.Facts,
        segment: Segment,
        executable: Executable | None,
    ) -> None:
        """Keep what was made for a state."""
        found = self._entry_key(state, facts)
        if found is None:
            return
        store, key = found
        about = f"entry {segment.name}"
        if self.options.cache == "read":
            self.note(EventKind.CACHE, about, how="entry not stored", reason=REFUSED)
            return
        if self.options.cache_entries == "second" and _is_first(store, key, about):
            self.note(EventKind.CACHE, about, how="entry not stored", reason=_FIRST)
            return
        try:
            data = _document(segment, executable, state)
        except (Unstorable, Unnameable, Unkeyed) as reason:
            self.note(EventKind.CACHE, about, how="entry not stored", reason=str(reason))
            return
        free = (n for n in range(VARIANTS) if _is_free(store.get(_numbered(key, n))))
        # Where all are taken the one that this data would collide with goes: any may.
        number = next(free, len(data) % VARIANTS)
        if store.put(_numbered(key, number), data, about):
            self.note(EventKind.CACHE, about, how="entry stored", bytes=len(data))
        else:
            self.note(EventKind.CACHE, about, how="entry not stored", reason=REFUSED)

    def _entry_key(self, state: frontend.State, facts: frontend.Facts) -> tuple[Cache, str] | None:
        chosen = self.options
        kept = chosen.cache_entries != "off" and not chosen.verify
        store = cache_for(chosen) if kept else None
        if store is None or chosen.backend not in OWN_BACKENDS or self._shows_entries():
            return None
        try:
            return store, cache.entry_key(_told_of(state, facts), chosen)
        except (Unkeyed, Unnameable) as reason:
            self.note(EventKind.CACHE, state.point.name, how="entry not stored", reason=str(reason))
            return None

    def _shows_entries(self) -> bool:
        shown = (LOGS.get(one) for one in self.options.logs)
        return self.log.keeps_records or any(
            one is not None and one.is_stage and one not in _TOLD for one in shown
        )

    def _is_refused(self, segment: Segment) -> bool:
        """Whether it ends in a break that may not be: capturing it says so with all it knows."""
        stopped = segment.capture.stopped
        return stopped is not None and (self.options.fullgraph or stopped.refused)

    def _tell(
        self, state: frontend.State, segment: Segment, executable: Executable | None, size: int
    ) -> None:
        """What reports are made of, as if it had been compiled in no time."""
        add = self.log.add
        add(EventKind.CAPTURE, str(state.point), segment.capture)
        self.note(EventKind.CACHE, segment.name, how="entry found", bytes=size)
        if executable is not None and isinstance(executable.program, Program):
            add(EventKind.BUILD, f"{segment.name} forward", executable.program)
            add(EventKind.ASSEMBLE, segment.name, executable)
        add(EventKind.REWRITE, segment.name, segment)


def _numbered(key: str, number: int) -> str:
    return f"{key[:-1]}{number}"


# To write an entry out takes as long as half of a capture, and most programs run once: the first
# process that asks only leaves its mark, and the next one stores.
ASKED = b"asked for by "
_FIRST = "no other process has asked for it yet"


@functools.cache
def _mark() -> bytes:
    """Of this process (and its forks)."""
    return ASKED + uuid.uuid4().hex.encode()


def _is_free(data: bytes | None) -> bool:
    return data is None or data.startswith(ASKED)


def _is_first(store: Cache, key: str, about: str) -> bool:
    """Whether no process but this one has asked for an entry; then it is noted that one has."""
    data = store.get(_numbered(key, 0))
    if data is None:
        store.put(_numbered(key, 0), _mark(), f"asked for: {about}")
    return data is None or data == _mark()


# ------------------------------------------------------------------------------------- the key


def _told_of(state: frontend.State, facts: frontend.Facts) -> tuple[Any, ...]:
    """What is known of a call before it is captured, and what shapes every capture."""
    foreign = sorted(frontend.foreign_rules())
    if foreign:
        raise Unkeyed(f"{', '.join(foreign)} was added from outside")
    learnt = tuple(
        (one.name, sorted(value) if isinstance(value, frozenset) else value)
        for one, value in ((one, getattr(facts, one.name)) for one in fields(facts))
    )
    point, told = state.point, Fingerprints()
    if isinstance(point, frontend.Start):
        where: tuple[Any, ...] = (point.key, point.slot_names, _target(point.target, told))
    else:
        where = tuple(_frame(one, told) for one in point.frames)
    slots = tuple(_shape(one, sizes=not facts.dynamic) for one in state.values)
    return (str(point), where, slots, learnt, directives.told())


def _target(target: Any, told: Fingerprints) -> tuple[str, ...]:
    """The code of what is called."""
    kind = type(target)
    if kind is types.MethodType:
        return ("method", told.of(target.__func__), told.of(type(target.__self__)))
    if kind is types.FunctionType:
        return (told.of(target),)
    return ("object", told.of(kind))


def _frame(frame: frontend.FrameShape, told: Fingerprints) -> tuple[Any, ...]:
    return (
        told.of(frame.code), str(frame.globals.get("__name__")), frame.ip, frame.last, frame.phase,
        frame.variables, frame.stack, frame.discard, str(frame.region), frame.variable_names,
        frame.generator,
    )  # fmt: skip


def _shape(value: Any, sizes: bool) -> str:
    """A slot in a few words: guards say the rest."""
    kind = type(value)
    if not issubclass(kind, torch.Tensor):
        return kind.__qualname__
    try:
        found = facts_of(value)
    except UNREADABLE:
        return kind.__qualname__
    shape = (found.sizes, found.strides) if sizes else len(found.sizes)
    return repr(
        (kind.__qualname__, found.dtype, found.requires_grad, shape, frontend.marks_of(value))
    )


# ------------------------------------------------------------------------------------- keeping


def _document(segment: Segment, executable: Executable | None, state: frontend.State) -> bytes:
    """All of an entry as bytes; `Unstorable`, `Unnameable` or `Unkeyed` with the reason."""
    captured = segment.capture
    if captured.own:
        raise Unkeyed(captured.own)
    program = executable.program if executable is not None else None
    if not isinstance(program, Program | PartitionedProgram | None):
        raise Unkeyed("its graph runs op by op")  # and is counted when it is made
    _refuse_identities(captured.guards)
    told, live = Fingerprints(), _live(state)
    ways = ways_of(captured.guards, live, told)
    held = _constants_by_identity(captured.guards, live)
    if held is not None:
        raise Unkeyed(f"the object {held!r} counts, and not its value")
    document = encode((captured.guards, segment, executable), live)
    names = tuple(_named(document, told))
    rows = tuple((one.name, dumps(one.way), one.fingerprint) for one in ways)
    return dumps(encode(StoredSegment(names, rows, dumps(document))))


def _live(state: frontend.State) -> dict[str, Any]:
    """What the state itself has: what is called, or the code of the frames that go on."""
    point = state.point
    found: dict[str, Any] = {"sys.modules": sys.modules}
    if isinstance(point, frontend.Start):
        return {"target": point.target, **found}
    for number, frame in enumerate(point.frames):
        if not any(one is frame.code for one in found.values()):
            found[f"code {number}"] = frame.code
    return found


def _refuse_identities(guards: Sequence[Guard]) -> None:
    for guard in guards:
        if isinstance(guard.check, RegistrationsAre):
            raise Unkeyed("it counts what was registered with abstract classes")


def _sources(guards: Sequence[Guard]) -> Iterator[Source]:
    for guard in guards:
        for one in (guard.source, *guard.check.reads()):
            if isinstance(one, Overlap):
                yield from (*one.written, *one.others)
            elif isinstance(one, Distance):
                yield from (one.start, one.end)
            else:
                yield one


def _constants_by_identity(guards: Sequence[Guard], live: Mapping[str, Any]) -> Any:
    """A constant that some guard compares by identity: an equal one of another process is no other
    object, and no same one."""
    known = {id(one) for one in live.values()}
    for source in _sources(guards):
        while source.base is not None:
            source = source.base
        if not isinstance(source, Known) or id(source.value) in known:
            continue
        if cache.is_constant(source.value):
            return source.value
    return None


def _named(document: Document, told: Fingerprints) -> Iterator[tuple[str, str, str]]:
    """The names in a document and what they mean here."""
    root = document.nodes[document.root[0]]  # type: ignore[index]
    guards_end = root[1][0]
    for number, (tag, *parts) in enumerate(document.nodes):
        if tag in _NAMES:
            yield tag, parts[0], told.of(_NAMES[tag](parts[0]))
        elif tag in cache.OPERATOR_TAGS:
            library = str(parts[0]).partition(cache.OPERATOR_TAGS[tag])[0]
            if library not in cache.OWN_LIBRARIES:
                raise Unkeyed(f"the op {parts[0]} is not torch's")
        elif tag in _BY_CONTENT and number < guards_end:
            raise Unkeyed("a guard tells a tensor by its identity")


# ------------------------------------------------------------------------------------- loading


def _loaded(data: bytes, state: frontend.State) -> tuple[Segment, Executable | None]:
    """What bytes hold, if it holds of the state; `Changed` where it does not."""
    with at_rest():  # all that is made is kept
        return _checked(data, state)


def _checked(data: bytes, state: frontend.State) -> tuple[Segment, Executable | None]:
    stored: StoredSegment = decode(loads(data))
    told = Fingerprints()
    for tag, name, meaning in stored.names:
        _verify(tag, name, meaning, told)
    rows = tuple(Found(name, loads(way), there) for name, way, there in stored.ways)
    live = walk(rows, _live(state), state.values, told)
    guards, segment, executable = decode(loads(stored.body), live)
    broken = first_failure(guards, state.values)
    if broken is not None:
        raise Changed(f"{broken} does not hold")
    return segment, executable


def _verify(tag: str, name: str, meaning: str, told: Fingerprints) -> None:
    """A name must be loaded already (nothing is imported for it) and mean what it meant."""
    if name.partition(":")[0] not in sys.modules:
        raise Changed(f"{name} is not loaded")
    try:
        found = told.of(_NAMES[tag](name))
    except (*UNREADABLE, ImportError, Unnameable) as error:
        raise Changed(f"{name} is not there ({type(error).__name__})") from None
    if found != meaning:
        raise Changed(f"{name} is something else")
