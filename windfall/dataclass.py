"""`dataclass`, as the standard library's, at a tenth of its cost at import.

Enters: a class with annotated fields, and the library's own words (`frozen`, `slots`, `eq`,
`weakref_slot`). Leaves: a data class to everything that asks (`fields`, `replace`, `match`), of
which no method was compiled yet.

The library compiles up to six methods of each class by `exec` when its module is imported; some
270 classes made half of `import windfall`. Here comparison, hash, text and freezing are functions
that all classes share or closures over one getter, and `__init__` is compiled when the first object
is made: most processes never make an object of most classes. It writes a frozen object through the
descriptors of its slots, which takes less than half of the time of `object.__setattr__`.

Invariant: an object behaves as the library's would. What the library has and this has not
(`order`, `InitVar`, `unsafe_hash`) is refused by name.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

Field = dataclasses.Field[Any]
Method = Callable[..., Any]
Values = Callable[[Any], tuple[Any, ...]]

# Annotations are text here (`from __future__ import annotations`), or say it in theirs.
_CLASS_VARIABLE = re.compile(r"(typing\.)?ClassVar\b")
_UNKNOWN = re.compile(r"(dataclasses\.)?(InitVar|KW_ONLY)\b")

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, **words):
        """`@dataclass` or `@dataclass(frozen=True, slots=True, …)`."""
        return _processed(cls, **words) if cls is not None else lambda one: _processed(one, **words)


def _processed(
    cls: type,
    *,
    frozen: bool = False,
    slots: bool = False,
    eq: bool = True,
    weakref_slot: bool = False,
) -> type:
    own = {name: cls.__dict__.get(name) for name in ("__init__", "__repr__", "__eq__", "__hash__")}
    known = _fields(cls)
    made: Any = _with_slots(cls, known, weakref_slot) if slots else cls
    made.__dataclass_fields__ = known
    made.__dataclass_params__ = _model(frozen, eq).__dataclass_params__  # type: ignore[attr-defined]
    if "__match_args__" not in cls.__dict__:
        matched = (one.name for one in known.values() if one.init and not one.kw_only)
        type.__setattr__(made, "__match_args__", tuple(matched))
    if own["__init__"] is None:
        made.__init__ = _InitWhenRead(made, frozen and slots, frozen)
    if own["__repr__"] is None:
        made.__repr__ = _repr
    if eq:
        made.__compared__ = _values([one.name for one in known.values() if one.compare])
        if own["__eq__"] is None:
            made.__eq__ = _equal
        if own["__hash__"] is None:
            made.__hash__ = _hash if frozen else None
    if frozen:
        made.__setattr__, made.__delattr__ = _refuse_to_set, _refuse_to_delete
        if slots and "__getstate__" not in cls.__dict__:
            made.__getstate__, made.__setstate__ = _state, _set_state
    return made  # type: ignore[no-any-return]


@functools.cache
def _model(frozen: bool, eq: bool) -> type:
    """A class that the library made: what its own functions look for in a data class is taken of
    it, whatever the version."""

    class Model:
        """One field."""

        one: int

    return dataclasses.dataclass(frozen=frozen, eq=eq)(Model)


def _fields(cls: type) -> dict[str, Field]:
    """Those of the bases, then the class's own; defaults stay behind as attributes of the class."""
    found: dict[str, Field] = {}
    for base in reversed(cls.__mro__[1:]):
        found.update(getattr(base, "__dataclass_fields__", {}))
    plain = dataclasses.fields(_model(False, True))[0]._field_type  # type: ignore[attr-defined]
    for name, kind in inspect.get_annotations(cls).items():
        if _CLASS_VARIABLE.match(str(kind)):
            continue
        if _UNKNOWN.match(str(kind)):
            raise TypeError(f"{cls.__qualname__}.{name}: {kind} is not known here")
        default = cls.__dict__.get(name, dataclasses.MISSING)
        if isinstance(default, dataclasses.Field):
            one = default
            if one.default is dataclasses.MISSING:
                delattr(cls, name)
            else:
                setattr(cls, name, one.default)
        else:
            one = dataclasses.field(default=default)
        if one.default.__class__.__hash__ is None:
            raise ValueError(f"mutable default of {cls.__qualname__}.{name}: use default_factory")
        one.name, one.type, one._field_type = name, kind, plain  # type: ignore[attr-defined]
        one.kw_only = one.kw_only is True
        found[name] = one
    return found


def _with_slots(cls: type, known: dict[str, Field], weakref_slot: bool) -> type:
    """The class anew: slots are decided when a class is made."""
    inherited: set[str] = set()
    for base in cls.__mro__[1:]:
        there = base.__dict__.get("__slots__", ())
        inherited.update((there,) if isinstance(there, str) else there)
    names = {name: value for name, value in cls.__dict__.items() if name not in known}
    names.pop("__dict__", None)
    names.pop("__weakref__", None)
    more = ("__weakref__",) if weakref_slot else ()
    names["__slots__"] = (*(name for name in known if name not in inherited), *more)
    made: type = type(cls)(cls.__name__, cls.__bases__, names)
    made.__qualname__ = cls.__qualname__
    return made


def _values(names: list[str]) -> Values:
    """A tuple of these attributes, of any number of them. What it answers binds no object where it
    is an attribute of a class. (A `partial` will from Python 3.14 on, and 3.13 warns of it.)"""
    if len(names) > 1:
        return attrgetter(*names)
    return staticmethod(partial(_few, attrgetter(names[0]) if names else None))


def _few(only: Callable[[Any], Any] | None, one: Any) -> tuple[Any, ...]:
    return () if only is None else (only(one),)


# One for all classes. (`__compared__` is that of the class in which the method was found: where a
# subclass has other fields, it has its own of both.)
def _equal(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    values = self.__compared__
    return values(self) == values(other)


def _hash(self: Any) -> int:
    return hash(self.__compared__(self))


@recursive_repr()
def _repr(self: Any) -> str:
    shown = (
        f"{one.name}={getattr(self, one.name)!r}" for one in dataclasses.fields(self) if one.repr
    )
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _is_fixed(self: Any, name: str) -> bool:
    """A field, or anything of an object of a data class itself: a plain subclass may have more."""
    return name in self.__dataclass_fields__ or "__dataclass_fields__" in type(self).__dict__


def _refuse_to_set(self: Any, name: str, value: object) -> None:
    if _is_fixed(self, name):
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
    object.__setattr__(self, name, value)


def _refuse_to_delete(self: Any, name: str) -> None:
    if _is_fixed(self, name):
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
    object.__delattr__(self, name)


def _state(self: Any) -> list[Any]:
    return [getattr(self, one.name) for one in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for one, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, one.name, value)


class _InitWhenRead:
    """An `__init__` that is compiled when it is first read; two threads compile the same."""

    __slots__ = ("by_slots", "cls", "frozen")

    def __init__(self, cls: Any, by_slots: bool, frozen: bool) -> None:
        self.cls, self.by_slots, self.frozen = cls, by_slots, frozen

    def __get__(self, instance: Any, owner: type) -> Any:
        made = _compiled_init(self.cls, self.by_slots, self.frozen)
        if self.cls.__dict__["__init__"] is self:
            self.cls.__init__ = made
        return made.__get__(instance, owner)


def _compiled_init(cls: Any, by_slots: bool, frozen: bool) -> Method:
    # What stands around the method begins with an underscore; a field of such a name is refused.
    outer: dict[str, Any] = {"_missing": dataclasses.MISSING, "_setattr": object.__setattr__}
    positional: list[str] = []
    keyword: list[str] = []
    lines: list[str] = []
    for one in dataclasses.fields(cls):
        name, value = one.name, one.name
        if one.default is not dataclasses.MISSING:
            outer[f"_default_{name}"] = one.default
            parameter = f"{name}=_default_{name}"
            value = name if one.init else f"_default_{name}"
        elif one.default_factory is not dataclasses.MISSING:
            outer[f"_made_{name}"] = one.default_factory
            parameter = f"{name}=_missing"
            made = f"_made_{name}()"
            value = f"{made} if {name} is _missing else {name}" if one.init else made
        else:
            parameter = name
            if not one.init:
                continue  # `__post_init__` or a later step writes it
        if one.init:
            (keyword if one.kw_only else positional).append(parameter)
        if by_slots:
            outer[f"_set_{name}"] = getattr(cls, name).__set__
            lines.append(f"_set_{name}(self, {value})")
        elif frozen:
            lines.append(f"_setattr(self, {name!r}, {value})")
        else:
            lines.append(f"self.{name} = {value}")
    if hidden := outer.keys() & {one.name for one in dataclasses.fields(cls)}:
        raise TypeError(f"{cls.__qualname__}: fields may not be called {', '.join(hidden)}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    parameters = ", ".join(["self", *positional, *(["*", *keyword] if keyword else [])])
    body = "\n  ".join(lines or ["pass"])
    text = (
        f"def make({', '.join(outer)}):\n def __init__({parameters}):\n  {body}\n return __init__"
    )
    names: dict[str, Any] = {}
    exec(text, {}, names)  # the fields of a class of ours, as the standard library does it
    init: Method = names["make"](**outer)
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init
