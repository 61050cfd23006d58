"""Rules for builtins that ask what a value is: `isinstance`, `type`, `callable`, `super`…

Enters: their calls. Leaves: values, and guards on the classes that answered. Invariant: a class
that answers by code of its own (`__instancecheck__`, `__class__`) is not asked, but refused.
"""

from __future__ import annotations

import abc
import types
from _abc import (  # type: ignore[import-not-found]
    _abc_instancecheck,
    _get_dump,  # what is registered with an abstract class
)
from typing import TYPE_CHECKING

import torch
from torch import nn

from windfall.frontend.breaks import UNKNOWN_CALL, UNKNOWN_OPERATION, stop
from windfall.frontend.name_tables import words
from windfall.frontend.values.base import Arguments, Given, Keywords, Value
from windfall.frontend.values.builtin import exactly
from windfall.frontend.values.calls import calls
from windfall.frontend.values.class_value import Class, find, is_mutable, mro, relied
from windfall.frontend.values.function import Cell
from windfall.frontend.values.objects import Object
from windfall.frontend.values.sequence import Tuple
from windfall.frontend.values.supers import Super
from windfall.frontend.values.tensor import ForeignTensor, Tensor
from windfall.ir.guard import ABSENT, RegistrationsAre
from windfall.ir.reading import class_dict, class_name, is_a, is_among, mro_of
from windfall.ir.source import Known

if TYPE_CHECKING:
    from windfall.frontend.services import Machine


@calls(isinstance)
def _isinstance(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    exactly(arguments, keywords, 2, 2, "isinstance")
    value, classes = arguments
    value.guard_type(machine)
    check = _own_check(machine, value, classes)
    if check is not None:
        return machine.values.polyfill("instance_by_check", [check, classes, value])
    found = any(
        # Of the very class, no metaclass is asked.
        value.python_type() is one or _is_instance(machine, value, one)
        for one in _classes(machine, classes)
    )
    if not found and isinstance(value, Object):
        _refuse_other_class(machine, value)
    return machine.values.literal(found)


def _own_check(machine: Machine, value: Value, cls: Value) -> Value | None:
    """The `__instancecheck__` that a metaclass has in Python, which is asked unless the value is of
    that very class."""
    if not isinstance(cls, Class) or type(cls.real).__module__ in _LIBRARY_METACLASSES:
        return None
    found = cls.meta(machine, "__instancecheck__")
    if not isinstance(found, types.FunctionType) or value.python_type() is cls.real:
        return None
    cls.rely(machine)
    return machine.values.known(found, f"{class_name(type(cls.real))}.__instancecheck__")


# What these answer is known without asking.
_LIBRARY_METACLASSES = words("abc torch.nn.parameter typing enum torch torch._C")


def _refuse_other_class(machine: Machine, value: Object) -> None:
    """`isinstance` also asks the object for its `__class__`, which may be another than its own."""
    kind = value.python_type()
    told = relied(machine, kind, "__class__") is find(object, "__class__")
    if not told or isinstance(relied(machine, kind, "__getattribute__"), types.FunctionType):
        stop(UNKNOWN_OPERATION, f"isinstance of {value.describe()}, which has a __class__")


def _classes(machine: Machine, value: Value) -> list[type]:
    if isinstance(value, Class):
        value.rely(machine)
        return [value.real]
    if isinstance(value, Tuple):
        return [one for item in value.items(machine) for one in _classes(machine, item)]
    if isinstance(value, Given) and value.python_type() is types.UnionType:
        value.rely(machine)
        kinds = value.real.__args__
        if not all(type(one) is not types.GenericAlias and is_a(one, type) for one in kinds):
            stop(UNKNOWN_OPERATION, f"isinstance of {value.describe()}")
        return list(kinds)
    stop(UNKNOWN_OPERATION, f"isinstance of {value.describe()}")


_PLAIN_CHECKS = (type.__instancecheck__,)
# Tensors of other classes are such too where this attribute of their own says so.
_FLAGS: dict[type, str] = {nn.Parameter: "_is_param", nn.Buffer: "_is_buffer"}


def _is_instance(machine: Machine, value: Value, cls: type) -> bool:
    kind = value.python_type()
    if issubclass(kind, torch.Tensor):
        if is_among(cls, tuple(_FLAGS)) and isinstance(value, Tensor):
            return issubclass(kind, cls) or value.is_flagged(machine, _FLAGS[cls])
        if is_among(cls, (nn.Parameter, nn.Buffer)) and isinstance(value, ForeignTensor):
            # An attribute says it: one of those that are relied upon (`wrapper.py`).
            value.guard_attributes(machine)
            return isinstance(value.real, cls)
        if cls.__module__ == "torch" and isinstance(value, Tensor) and cls is not torch.Tensor:
            return isinstance(value.fake(machine), cls)
    if relied(machine, type(cls), "__instancecheck__") in _PLAIN_CHECKS:
        found = is_among(cls, mro(machine, kind))
        if not found and isinstance(value, Object) and not _tells_its_class(kind):
            stop(UNKNOWN_OPERATION, f"isinstance of {value.describe()}, which says what it is")
        return found
    asked = relied(machine, type(cls), "__instancecheck__")
    if asked is find(abc.ABCMeta, "__instancecheck__") and _asks_as_abstract(type(cls)):
        return _registered(machine, kind, cls)
    if type(cls).__module__ == "typing" and is_mutable(kind):
        stop(UNKNOWN_OPERATION, f"isinstance with the protocol {cls.__qualname__}")
    if type(cls).__module__ in ("torch.nn.parameter", "typing", "enum", "torch._C", "torch"):
        return _derives(kind, cls)
    stop(UNKNOWN_OPERATION, f"isinstance with {type(cls).__name__}")


def _derives(kind: type, cls: type) -> bool:
    """What the class answers; one that refuses to (a `TypedDict`, a protocol) is asked natively."""
    try:
        return issubclass(kind, cls)
    except TypeError as error:
        stop(UNKNOWN_OPERATION, f"a check of {class_name(cls)}: {error}")


def _tells_its_class(kind: type) -> bool:
    """Whether `__class__` of instances is their class: a property or hook may say otherwise."""
    return (
        find(kind, "__class__") is find(object, "__class__")
        and type(find(kind, "__getattribute__")) is types.WrapperDescriptorType
    )


def _registered(machine: Machine, kind: type, cls: type) -> bool:
    """Whether an abstract class takes another for its own. What the user says in a
    `__subclasshook__` is not relied upon: it is asked natively."""
    order = mro(machine, kind)
    if cls.__module__ in _LIBRARY:
        return _taken_by_library(machine, kind, cls)
    relied(machine, cls, "__subclasshook__")
    if not _hooks_nothing(cls):
        stop(UNKNOWN_OPERATION, f"isinstance with {class_name(cls)}, which has a hook")
    if is_among(cls, order):
        return True
    for one in _also_asked(cls):
        if not _has_no_say(one):
            stop(
                UNKNOWN_OPERATION,
                f"isinstance with {class_name(cls)}, which asks {class_name(one)}",
            )
    return _asked(machine, kind, cls)


def _also_asked(cls: type) -> list[type]:
    """What an abstract class hands the question on to: classes derived from it and registered
    with it, and theirs."""
    found = [cls]
    for one in found:  # grows as it is walked
        if _asks_as_abstract(type(one)):
            registered = (entry() for entry in _get_dump(one)[0])
            candidates = (*one.__subclasses__(), *registered)
            found += [new for new in candidates if new is not None and not is_among(new, found)]
    return found[1:]


def _has_no_say(cls: type) -> bool:
    """Whether a class answers without running code of the user's."""
    if not _asks_as_abstract(type(cls)):
        return find(type(cls), "__subclasscheck__") is type.__subclasscheck__
    return cls.__module__ in _LIBRARY or _hooks_nothing(cls)


def _asks_as_abstract(metaclass: type) -> bool:
    """Whether its classes answer as abstract classes do: it may be derived from `ABCMeta`."""
    asked = find(metaclass, "__subclasscheck__")
    return issubclass(metaclass, abc.ABCMeta) and asked is find(abc.ABCMeta, "__subclasscheck__")


def _hooks_nothing(cls: type) -> bool:
    """Whether its `__subclasshook__` answers for no class: `object`'s, or one that it inherits from
    an abstract class of the standard library, each of which answers for that class alone."""
    owner = next(one for one in mro_of(cls) if "__subclasshook__" in class_dict(one))
    return owner is object or (owner is not cls and owner.__module__ in _LIBRARY)


def _asked(machine: Machine, kind: type, cls: type) -> bool:
    """The class itself is asked. It keeps its answers: a yes for good, a no until some class is
    registered somewhere, whatever else changes; so that is all there is to guard."""
    found = issubclass(kind, cls)
    if not found:
        where = Known(cls, cls.__qualname__)
        machine.guards.add(where, RegistrationsAre(abc.get_cache_token()), "it may be registered")
    return found


def _taken_by_library(machine: Machine, kind: type, cls: type) -> bool:
    """By an abstract class of the standard library: its hook looks for methods of the names that
    stand in its own dictionary and those of its bases; and classes may be registered later."""
    if "__subclasshook__" in vars(cls):
        for name in {name for base in cls.__mro__[:-1] for name in vars(base)} - _NOT_ASKED:
            relied(machine, kind, name)
    return _asked(machine, kind, cls)


_NOT_ASKED = words(
    "__abstractmethods__ __class_getitem__ __dict__ __doc__ __module__ __slots__ __subclasshook__"
    " __weakref__ _abc_impl __firstlineno__ __static_attributes__"
)
_LIBRARY = words("collections.abc numbers contextlib typing io os abc")


@calls(issubclass)
def _issubclass(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    exactly(arguments, keywords, 2, 2, "issubclass")
    value, classes = arguments
    if not isinstance(value, Class):
        stop(UNKNOWN_OPERATION, f"issubclass of {value.describe()}")
    value.rely(machine)
    return machine.values.literal(
        any(_is_subclass(machine, value.real, one) for one in _classes(machine, classes))
    )


def _is_subclass(machine: Machine, kind: type, cls: type) -> bool:
    if relied(machine, type(cls), "__subclasscheck__") is type.__subclasscheck__:
        return is_among(cls, mro(machine, kind))
    if _asks_as_abstract(type(cls)):
        return _registered(machine, kind, cls)
    if type(cls).__module__ in ("enum", "torch.nn.parameter", "typing", "torch._C", "torch"):
        return _derives(kind, cls)
    stop(UNKNOWN_OPERATION, f"issubclass with {type(cls).__name__}")


@calls(_abc_instancecheck)
def _instance_of_abstract(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    """`super().__instancecheck__(value)` in a metaclass that derives from `ABCMeta`."""
    exactly(arguments, keywords, 2, 2, "_abc_instancecheck")
    cls, value = arguments
    if not isinstance(cls, Class) or not _asks_as_abstract(type(cls.real)):
        stop(UNKNOWN_OPERATION, f"isinstance with {cls.describe()}")
    cls.rely(machine)
    relied(machine, type(cls.real), "__subclasscheck__")
    value.guard_type(machine)
    found = _registered(machine, value.python_type(), cls.real)
    if not found and isinstance(value, Object):
        _refuse_other_class(machine, value)
    return machine.values.literal(found)


@calls(type)
def _type(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    exactly(arguments, keywords, 1, 1, "type")
    (value,) = arguments
    value.guard_type(machine)
    kind = value.python_type()
    return machine.values.known(kind, class_name(kind))


@calls(callable)
def _callable(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    exactly(arguments, keywords, 1, 1, "callable")
    (value,) = arguments
    value.guard_type(machine)
    has_call = relied(machine, value.python_type(), "__call__") is not ABSENT
    return machine.values.literal(isinstance(value, Class) or has_call)


@calls(super)
def _super(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    if not arguments:
        frame = machine.frames.stack[-1]
        cell = frame.variables[frame.listing.variables.index("__class__")]
        start = cell.get(machine) if isinstance(cell, Cell) else None
        first = frame.variables[0]
        owner = first.get(machine) if isinstance(first, Cell) else first
    else:
        exactly(arguments, keywords, 2, 2, "super")
        start, owner = arguments
    if not isinstance(start, Class) or owner is None:
        stop(UNKNOWN_CALL, "super")
    start.rely(machine)
    kinds = [owner.python_type(), *([owner.real] if isinstance(owner, Class) else ())]
    if not any(is_among(start.real, mro_of(one)) for one in kinds):
        stop(UNKNOWN_CALL, f"super({start.describe()}, {owner.describe()})")
    return Super(start, owner)
