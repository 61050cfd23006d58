"""Objects without a name of their own, found again by a way that leads to them.

Enters: the guards of a capture. Leaves: for each object that they tell by its identity and that no
module names (a table in a class, a function made in another one, the bases of a class) the first
guard's way to it: where that was read. In another process the same way is walked; what is there is
taken for the object if it is the same by its content (`fingerprint.py`). Invariant: walking runs no
user code, objects that were different ones stay different ones, and every guard is checked
afterwards: a second way to an object must lead to it again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from windfall.cache.fingerprint import Fingerprints, is_constant
from windfall.dataclass import dataclass
from windfall.identity_map import IdentityMap
from windfall.ir.codec import Document, Unstorable, decode, encode, record
from windfall.ir.guard import ClassAttributesAre, Guard, IdentityIs, ItemsAre, MroLookupIs, TypeIs
from windfall.ir.names import Unnameable
from windfall.ir.reading import UNREADABLE, resolve
from windfall.ir.source import Attribute, Item, Known, Source


@record
@dataclass(frozen=True, slots=True)
class ReadAt:
    """What stands at a source."""

    source: Source

    def walk(self, slots: Sequence[Any]) -> Any:
        """What stands there now."""
        return self.source.read(slots)


@record
@dataclass(frozen=True, slots=True)
class FoundIn:
    """What a class at a source finds for a name."""

    source: Source
    name: str

    def walk(self, slots: Sequence[Any]) -> Any:
        """What it finds now."""
        return resolve(self.source.read(slots), self.name)


@record
@dataclass(frozen=True, slots=True)
class ClassAt:
    """The class of what stands at a source."""

    source: Source

    def walk(self, slots: Sequence[Any]) -> Any:
        """The class of what stands there now."""
        return type(self.source.read(slots))


Way = ReadAt | FoundIn | ClassAt


@dataclass(frozen=True, slots=True)
class Found:
    """An object by its way: the document of that, and what the object is."""

    name: str
    way: Document
    fingerprint: str


class Changed(Exception):
    """What an entry relies on is something else here; the text says what."""


def ways_of(
    guards: Sequence[Guard], live: dict[str, Any], fingerprints: Fingerprints
) -> tuple[Found, ...]:
    """The ways to what has no other name; `live` has names of the caller's, and gets these too.
    `Unnameable` where an object is nothing that another process could have."""
    known: IdentityMap[Any, bool] = IdentityMap()
    for one in live.values():
        known[one] = True
    found: list[Found] = []
    missing = [(value, way) for guard in guards for value, way in _told_by_identity(guard)]
    while missing:
        rest, before = [], len(found)
        for value, way in missing:
            if value in known:
                continue
            if _has_name(value):
                known[value] = True
                continue
            try:
                document = encode(way, live)
            except Unstorable:  # it begins at an object whose own way is not known yet
                rest.append((value, way))
                continue
            name = f"way {len(found)}"
            found.append(Found(name, document, fingerprints.of(value)))
            live[name] = value
            known[value] = True
            rest += _parts(value)
        if len(found) == before:
            break
        missing = rest
    return tuple(found)


def _told_by_identity(guard: Guard) -> Iterator[tuple[Any, Way]]:
    check = guard.check
    if isinstance(check, IdentityIs):
        # A constant that is told by its identity is compared with one of the program: an equal one
        # would not do. What a function or class has for an attribute (defaults, bases) is not.
        if isinstance(guard.source, Attribute) or not is_constant(check.value):
            yield check.value, ReadAt(guard.source)
    elif isinstance(check, MroLookupIs):
        yield check.value, FoundIn(guard.source, check.name)
    elif isinstance(check, ClassAttributesAre):
        for name, value in zip(check.names, check.values, strict=True):
            yield value, FoundIn(guard.source, name)
    elif isinstance(check, ItemsAre):
        for name, value in zip(check.names, check.values, strict=True):
            yield value, ReadAt(Item(guard.source, name))
    elif isinstance(check, TypeIs):
        yield check.exact_class, ClassAt(guard.source)


def _parts(value: Any) -> Iterator[tuple[Any, Way]]:
    """Functions inside of a descriptor that was found."""
    for name in _INSIDE.get(type(value), ()):
        part = getattr(value, name)
        if part is not None:
            yield part, ReadAt(Attribute(Known(value, type(value).__name__), name))


_INSIDE = {
    property: ("fget", "fset", "fdel"),
    **dict.fromkeys((staticmethod, classmethod), ("__func__",)),
}


def _has_name(value: Any) -> bool:
    try:
        encode(IdentityIs(value))
    except Unstorable:
        return False
    return not is_constant(value)  # its name is its content, and the guard asks for the object


def walk(
    ways: Sequence[Found],
    live: Mapping[str, Any],
    slots: Sequence[Any],
    fingerprints: Fingerprints,
) -> dict[str, Any]:
    """The objects that the ways lead to now, beside those of `live`; `Changed` where one leads to
    nothing, to something else, or two lead to one object."""
    found = dict(live)
    for one in ways:
        way: Way = decode(one.way, found)
        try:
            value = way.walk(slots)
            same = fingerprints.of(value) == one.fingerprint
        except UNREADABLE as error:
            raise Changed(f"{way} leads to nothing ({type(error).__name__})") from None
        except Unnameable as reason:
            raise Changed(f"{way}: {reason}") from None
        if not same:
            raise Changed(f"what is at {way} is something else")
        found[one.name] = value
    if len({id(value) for value in found.values()}) < len(found):
        raise Changed("objects that were different ones are one")
    return found
