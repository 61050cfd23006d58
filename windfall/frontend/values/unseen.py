"""`Unseen`: an object from outside that nobody has asked about. Looking is what guards it.

Enters: an object and the source at which it was read. Leaves, once something asks: the `Value` of
its kind, and the guard that makes the kind certain (its exact class; its identity where the kind
was chosen by identity). Invariant: there is no way to an object from outside but through `look`, so
an answer that depends on what the object is cannot be given without a guard on it.

Values flow through the interpreter as they are: storing one, passing it on, returning it or putting
it into a container asks nothing and guards nothing. Everything else asks. An `Unseen` is therefore
a stand-in that is told apart by `type()` alone: reading an attribute of it, calling a method, or
`isinstance` against a kind of value (Python reads `__class__`) looks, and is answered by what it
stands for. Rules need not know of it:

    value.truth(machine)            looks, then asks the kind
    isinstance(value, Constant)     looks
    frame.stack.append(value)       does not
    recipe.name(value)              does not: `source` is known without looking

Two things do not look by themselves: `type(value) is Kind`, which a test forbids, and `is` between
two values, for which both sides are looked at first (`same`).
"""

from __future__ import annotations

import collections
import enum
import gc
import io
import sys
import types
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar, cast

import torch

from windfall.frontend.values.base import Value
from windfall.ir.reading import (
    ABSENT,
    bases_of,
    class_name,
    flags_of,
    is_among,
    length,
    mro_of,
    resolve,
)
from windfall.ir.source import Slot, Source

if TYPE_CHECKING:
    from windfall.frontend.values.outside import Outside

Kind = TypeVar("Kind", bound=Value)

_HEAP = 1 << 9  # Py_TPFLAGS_HEAPTYPE
_IMMUTABLE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE: no class statement makes such a class
_UNMISSED = frozenset({type(None), bool, int, float, str, bytes, types.CodeType, types.ModuleType})


class Unseen:
    """It has the source of the object, and nothing else that could be asked for."""

    __slots__ = ("_real", "_seen", "_values", "source")

    def __init__(self, values: Outside, real: Any, source: Source) -> None:
        _set_values(self, values)
        _set_real(self, real)
        _set_seen(self, None)
        _set_source(self, source)

    def __getattr__(self, name: str) -> Any:
        return getattr(look(self), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(look(self), name, value)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(look(self))

    def __repr__(self) -> str:
        return f"<Unseen {self.source}>" if _get_seen(self) is None else repr(_get_seen(self))


_set_values, _set_real, _set_seen, _set_source = (
    vars(Unseen)[name].__set__ for name in ("_values", "_real", "_seen", "source")
)
_get_values, _get_real, _get_seen = (
    vars(Unseen)[name].__get__ for name in ("_values", "_real", "_seen")
)


def unseen(values: Outside, real: Any, source: Source) -> Value:
    """An object from outside, not looked at."""
    return cast(Value, Unseen(values, real, source))


def look(value: Any) -> Any:
    """The value of a kind: of an object from outside, its class is relied upon from here on."""
    if type(value) is not Unseen:
        return value
    seen = _get_seen(value)
    if seen is None:
        seen = _get_values(value).see(_get_real(value), value.source)
        _set_seen(value, seen)
    return seen


def settled(value: Any) -> Any:
    """What it stands for, if that was looked at: asking it again need not go through `look`."""
    if type(value) is not Unseen:
        return value
    return _get_seen(value) or value


def is_unseen(value: Any) -> bool:
    """Whether nobody has asked about it. (One that was looked at is no longer hidden.)"""
    return type(value) is Unseen and _get_seen(value) is None


def made_here(value: Any, kind: type[Kind]) -> TypeGuard[Kind]:
    """Whether the program made it and it is of this kind: what is from outside is not looked at."""
    return type(value) is not Unseen and isinstance(value, kind)


def is_generator_from_outside(value: Any) -> bool:
    """Whether a variable holds a generator whose end may be seen: such a one is looked at. (Asked
    of all variables of a frame that waits; no answer of the program depends on a no.)"""
    return type(value) is Unseen and type(_get_real(value)) is types.GeneratorType


def real_of(value: Any) -> Any:
    """The object that a variable holds, from outside; it is not looked at: for whether its death is
    seen, on which no answer depends."""
    return _get_real(value) if type(value) is Unseen else getattr(value, "real", None)


# Containers that are asked past the methods of a subclass, and what iterates their items.
_HOLDERS: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (list, list.__iter__),
    (tuple, tuple.__iter__),
    (set, set.__iter__),
    (frozenset, frozenset.__iter__),
    (dict, lambda real: (*dict.keys(real), *dict.values(real))),
    (collections.deque, collections.deque.__iter__),
)
_WEAK: tuple[Any, ...] = (weakref.ref, *weakref.ProxyTypes)
_OPAQUE = (types.GeneratorType, types.FunctionType, types.MethodType, BaseException)
_FEW = 64  # items that are asked


def is_missed(real: object, depth: int = 2, classes: bool = True) -> bool:
    """Whether someone is told when the object dies, or one that it holds: then that must happen in
    its place. `classes`: also where only the collector ends it. A class stands in its own MRO, and
    holds the members of an enumeration: letting one go ends none at once. (One that a function made
    and somebody watches may go at the next collection.)"""
    kind = type(real)
    if is_among(kind, _UNMISSED) or (issubclass(kind, enum.Enum) and not classes):
        return False
    if issubclass(kind, type) and not classes:
        made = (one for one in mro_of(cast(type, real)) if "<locals>" in class_name(one))
        return any(map(_is_watched_class, made))
    # A weak reference that goes is never called back, nor counted; what a memoryview shows is
    # locked as long as it lives.
    if issubclass(kind, _WEAK) or kind is memoryview:
        return True
    if weakref.getweakrefcount(real):  # each class of the user has one, from its base
        return True
    if flags_of(kind) & _HEAP and resolve(kind, "__del__") is not ABSENT:
        return True
    held = next((items for base, items in _HOLDERS if depth and issubclass(kind, base)), None)
    if held is None or length(real) > _FEW:
        return False
    return any(is_missed(one, depth - 1, classes) for one in held(real))


def _is_watched_class(cls: type) -> bool:
    """Whether there is a weak reference to a class besides those of its bases, who share one."""
    references = weakref.getweakrefs(cls)
    own = 2 + len(bases_of(cls))  # the list, and what is passed
    return len(references) > 1 or any(sys.getrefcount(one) > own + 1 for one in references)


def is_kept_alive(value: Any) -> bool:
    """Whether a variable that nobody reads again holds an object whose death is seen, or one whose
    attributes hold such a one, or a file: it lives as long as its frame."""
    if not isinstance(value.source, Slot):
        return False
    real = real_of(value)
    kind = type(real)
    if is_missed(real) or issubclass(kind, io.IOBase):
        return True
    is_large = any(issubclass(kind, base) for base, _ in _HOLDERS) and length(real) > _FEW
    if not flags_of(kind) & _HEAP or issubclass(kind, type) or is_large:
        return False
    # Asking for `__dict__` would make one, which is seen of some (`functools.partial`).
    held = (one for one in gc.get_referents(real) if not issubclass(type(one), type))
    # A tuple that a class of C keeps for itself may have holes (`zip_longest`): not looked into.
    depth = 0 if flags_of(kind) & _IMMUTABLE else 2
    return any(is_missed(one, depth) for one in held)


def is_plain(value: Any) -> bool:
    """Whether it is a number, a text or the like, whose death nobody sees; it is not looked at."""
    if type(value) is Unseen:
        return is_among(type(_get_real(value)), _UNMISSED)
    return is_among(value.python_type(), _UNMISSED)


def is_missed_variable(value: Any) -> bool:
    """Whether a variable or the stack holds such an object, which the segment was given."""
    return isinstance(value.source, Slot) and is_missed(real_of(value), classes=False)


def is_held_by(frames: Iterable[Any], value: Any) -> bool:
    """Whether a variable of one of these frames holds the same object: it does not die yet."""
    real = real_of(value)
    variables = (one for frame in frames for one in frame.variables)
    return any(one is not None and real_of(one) is real for one in variables)


def is_let_go(value: Any) -> bool:
    """Whether `del` of a variable may end more than the object, which the segment was given: what a
    frame or the attributes of an object hold is not looked through."""
    if not isinstance(value.source, Slot):
        return False
    real = real_of(value)
    kind = type(real)
    if issubclass(kind, torch.Tensor | torch.nn.Module):
        return is_missed(real)
    return issubclass(kind, _OPAQUE) or bool(flags_of(kind) & _HEAP) or is_missed(real)


def same(one: Value | None, other: Value | None) -> bool:
    """Whether two values stand for one object. (Different values may do so too: `identical`.)"""
    return look(one) is look(other)
