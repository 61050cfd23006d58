"""Stages whose results are kept on disk: what another process has made is not made again.

Enters: what a stage is given, and how it is made. Leaves: what was made, here or before. Invariant:
a record from the disk is taken only under a key of all that shapes it (`cache/key.py`), and what
cannot be read back is made anew; what happened is an event. Whoever asked to be shown the stages
in between (`records`, `logs`) is shown them: then nothing is taken from the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from windfall import autograd, codegen
from windfall.cache import Cache, Unkeyed, cache_for, check_names, key_of
from windfall.collector import at_rest
from windfall.dataclass import dataclass
from windfall.events import LOGS, STAGES, EventKind
from windfall.ir.codec import Unstorable, decode, dumps, encode, loads
from windfall.ir.relation import current_relations
from windfall.ops import registry
from windfall.staging import Staging

Made = TypeVar("Made")

REFUSED = "the store does not take it (read-only, full, too large an entry, or not there)"

# Stages that are told of although something was found.
_TOLD = (EventKind.CAPTURE, EventKind.REWRITE, EventKind.BUILD, EventKind.BIND, EventKind.ENTER)
_LEFT_OUT = frozenset(STAGES) - frozenset(_TOLD)


@dataclass(frozen=True, slots=True)
class Caching(Staging):
    """Whoever runs stages, with what is on disk."""

    def cached(
        self, kind: str, name: str, given: tuple[Any, ...], make: Callable[[], Made]
    ) -> Made:
        """What `make` makes of `given`, or made once in a process like this: a program, or an
        executable with one."""
        cache = cache_for(self.options)
        if cache is None or self._shows_stages():
            return make()
        try:
            key = self._key(kind, name, given)
        except Unkeyed as reason:
            self.note(EventKind.CACHE, name, how="not stored", reason=str(reason))
            return make()
        found: Made | None = self._found(cache, key, name)
        if found is not None:
            return found
        with cache.claim(key) as others:
            if others:
                found = self._found(cache, key, name)
            if found is None:
                found = make()
                self._keep(cache, key, f"{kind} {name}", found)
        return found

    def _shows_stages(self) -> bool:
        """Whether somebody wants to see what the stages make that a hit leaves out."""
        shown = (LOGS.get(one) for one in self.options.logs)
        return self.log.keeps_records or any(one in _LEFT_OUT for one in shown)

    def _key(self, kind: str, name: str, given: tuple[Any, ...]) -> str:
        added = sorted(_added_rules())
        if added:
            raise Unkeyed(f"{', '.join(added)} was added from outside")
        with at_rest():  # all that is made is let go of
            return key_of(kind, (name, given, tuple(current_relations())), self.options)

    def _found(self, cache: Cache, key: str, name: str) -> Any:
        data = cache.get(key)
        if data is None:
            return None
        try:
            document = loads(data)
            check_names(document)
            made = decode(document)
        except Exception as error:  # whatever it is: it is made anew
            reason = f"{type(error).__name__}: {error}"
            cache.quarantine(key, reason)
            self.note(EventKind.CACHE, name, how="unreadable", reason=reason)
            return None
        self.note(EventKind.CACHE, name, how="found", bytes=len(data))
        self.log.add(EventKind.BUILD, name, getattr(made, "program", made))  # whose kernels to tell
        return made

    def _keep(self, cache: Cache, key: str, about: str, made: Any) -> None:
        try:
            with at_rest():  # all that is made is let go of
                document = encode(made)
                check_names(document)
                data = dumps(document)
                del document
        except (Unstorable, Unkeyed) as reason:
            self.note(EventKind.CACHE, about, how="not stored", reason=str(reason))
            return
        if cache.put(key, data, about):
            self.note(EventKind.CACHE, about, how="stored", bytes=len(data))
        else:
            self.note(EventKind.CACHE, about, how="not stored", reason=REFUSED)


def _added_rules() -> Iterator[str]:
    """Rules and ops that somebody has added: what they do no key can tell."""
    for table in (autograd.PASSES, *codegen.TABLES):
        yield from table.foreign()
    yield from registry.foreign()
