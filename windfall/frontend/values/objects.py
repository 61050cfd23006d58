"""Instances of classes: attribute lookup as Python does it, without running user code.

Enters: objects of the user. Leaves: guards `MroLookupIs` on what classes answer, reads and
writes of instance dictionaries, pushed frames for properties, descriptors and dunders written in
Python. Invariant: the order of lookup is `object.__getattribute__`'s.
"""

from __future__ import annotations

import collections
import functools
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from windfall.directives import StandIn
from windfall.frontend.breaks import (
    ATTRIBUTE_WRITE,
    UNKNOWN_ATTRIBUTE,
    UNKNOWN_CALL,
    UNKNOWN_OPERATION,
    UNKNOWN_VALUE,
    stop,
)
from windfall.frontend.classnames import short_name
from windfall.frontend.values.base import OVERRIDE, PENDING, Arguments, Given, Keywords, Value
from windfall.frontend.values.class_value import Class, find, goes_first, is_read, relied
from windfall.frontend.values.function import BuiltinMethod, Function, Method
from windfall.frontend.values.mapping import Dict, InstanceDict
from windfall.frontend.values.unseen import look
from windfall.frontend.values.wrap import wraps_if
from windfall.ir.guard import ABSENT
from windfall.ir.reading import class_name, dict_of, dictionary_at, flags_of, is_a, is_among, mro_of
from windfall.ir.source import Attribute, Known, Source

if TYPE_CHECKING:
    from windfall.frontend.recipe import Recipe
    from windfall.frontend.services import Machine


def written_table(recipe: Recipe, cls: type, name: str) -> str:
    """The text of the dictionary of a new object, past any hook of its class."""
    if find(cls, "__getattribute__") in _PLAIN_GETTERS:
        return f"{name}.__dict__"
    return f"{recipe.known(dict_of, 'dict_of')}({name})"


class Object(Value):
    """An instance. Its attributes are the items of `attributes`, a `Dict`."""

    __slots__ = ("_attributes", "cls", "real", "slots")

    def __init__(self, cls: Class, source: Source | None = None, real: Any = None) -> None:
        super().__init__(source)
        self.cls = cls
        self.real = real
        self._attributes: Dict | None = None
        self.slots: dict[str, Value | None] = {}  # what was written to `__slots__`

    def python_type(self) -> type:
        """Its class."""
        return self.cls.real

    def describe(self) -> str:
        """Class and source."""
        return f"{class_name(self.cls.real)} object {self.source or ''}".strip()

    def attributes(self, machine: Machine) -> Dict | None:
        """The instance's dictionary; None: it has none."""
        if self._attributes is None:
            if self.source is None or self.real is None:
                if not dictionary_at(self.cls.real):
                    return None
                self._attributes = machine.values.instance_dict(None, None, self)
            elif _has_dict(type(self.real)):
                self._attributes = machine.values.instance_dict(self.real, self.source, self)
        return self._attributes

    def fill_attributes(self, recipe: Recipe, name: str) -> None:
        """Write the attributes of one that is made here."""
        if isinstance(self._attributes, InstanceDict):
            self._attributes.fill(recipe, written_table(recipe, self.cls.real, name))

    def fill_slots(self, recipe: Recipe, name: str) -> None:
        """Write its slots, past the class's own `__setattr__`, which has run by now."""
        for key, written in self.slots.items():
            if written is not None:
                write = recipe.known(object.__setattr__, "write_slot")
                recipe.later(f"{write}({name}, {key!r}, {{}})", written)

    def key(self, machine: Machine) -> Any:
        """By identity, where the class leaves it at that."""
        for name in ("__hash__", "__eq__"):
            if self.cls.find(machine, name) is not getattr(object, name):
                stop(UNKNOWN_VALUE, f"{self.describe()} as a key")
        self.guard_type(machine)
        return machine.guards.told_apart(self)

    # ------------------------------------------------------------------------------ attributes

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """As the class says, mostly `object.__getattribute__`."""
        self.guard_type(machine)
        hook = self.cls.find(machine, "__getattribute__")
        if hook in _PLAIN_GETTERS:
            return self.plain_attribute(machine, name, self.fallback)
        if not isinstance(hook, types.FunctionType):
            stop(UNKNOWN_ATTRIBUTE, f"{self.describe()} has its own __getattribute__")
        arguments = [self, machine.values.literal(name)]
        function = self.cls.value_of(machine, "__getattribute__", hook)
        raw = self.cls.find(machine, "__getattr__")
        if raw is ABSENT:
            return function.call(machine, arguments, {})
        fallback = self.cls.value_of(machine, "__getattr__", raw)
        return machine.values.polyfill("getattribute_or", [*arguments, function, fallback])

    def plain_attribute(
        self, machine: Machine, name: str, missing: Callable[[Machine, str], Value]
    ) -> Value:
        """As `object.__getattribute__`; `missing` is asked where there is no such attribute."""
        cls = self.cls
        if name == "__class__" and cls.find(machine, name) is find(object, name):
            return cls
        if name == "__dict__":
            found = self.attributes(machine)
            return found if found is not None else self.missing(machine, name)
        if machine.effects.classes:
            written = machine.effects.written(cls.real, name)
            if written is not None:
                return self._own(machine, name) or written
        raw = cls.find(machine, name)
        if raw is not ABSENT and goes_first(machine, raw) and is_read(machine, raw):
            return self.described(machine, name, raw)
        found_here = self._own(machine, name)
        if found_here is not None:
            return found_here
        if raw is not ABSENT:
            return self.described(machine, name, raw)
        return missing(machine, name)

    def _own(self, machine: Machine, name: str) -> Value | None:
        """What the instance's own dictionary has."""
        attributes = self.attributes(machine)
        return attributes.lookup(machine, name) if attributes is not None else None

    def fallback(self, machine: Machine, name: str) -> Value:
        """Through `__getattr__`."""
        raw = self.cls.find(machine, "__getattr__")
        if raw is ABSENT:
            return self.missing(machine, name)
        hook = self.cls.value_of(machine, "__getattr__", raw)
        return hook.call(machine, [self, machine.values.literal(name)], {})

    def missing(self, machine: Machine, name: str) -> Value:
        text = f"'{short_name(self.cls.real)}' object has no attribute '{name}'"
        raise machine.values.no_attribute(self, name, text)

    def described(self, machine: Machine, name: str, raw: Any) -> Value:
        """What a class attribute is when it is read through an instance."""
        bind = _BINDERS.get(type(raw))
        if bind is not None:
            bound: Value = bind(self, machine, name, raw)
            return bound
        if is_a(raw, StandIn):  # a compiled function binds like one
            return self._bind_function(machine, name, raw)
        getter = relied(machine, type(raw), "__get__")
        if getter is ABSENT:
            return self.cls.value_of(machine, name, raw)
        if is_a(raw, property) and getter is property.__get__:  # it means more, and is read alike
            return self._call_property(machine, name, raw)
        if is_a(raw, functools.cached_property | property) or not isinstance(
            getter, types.FunctionType
        ):
            stop(UNKNOWN_ATTRIBUTE, f"{self.describe()}.{name}, a {type(raw).__name__}")
        descriptor = self.cls.value_of(machine, name, raw)
        hook = machine.values.known(getter, f"{class_name(type(raw))}.__get__")
        return hook.call(machine, [descriptor, self, self.cls], {})

    def _bind_function(self, machine: Machine, name: str, raw: Any) -> Value:
        return Method(self.cls.value_of(machine, name, raw), self)

    def _bind_static(self, machine: Machine, name: str, raw: Any) -> Value:
        return self.cls.value_of(machine, name, raw.__func__)

    def _bind_class(self, machine: Machine, name: str, raw: Any) -> Value:
        self.cls.refuse_chain(name, raw)
        return Method(self.cls.value_of(machine, name, raw.__func__), self.cls)

    def _call_property(self, machine: Machine, name: str, raw: Any) -> Value:
        function = _FGET.__get__(raw)  # not what a class derived from `property` says
        if function is None:
            stop(UNKNOWN_ATTRIBUTE, f"{self.describe()}.{name} cannot be read")
        getter = machine.values.known(function, f"{class_name(self.cls.real)}.{name}")
        return getter.call(machine, [self], {})

    def _cached(self, machine: Machine, name: str, raw: Any) -> Value:
        if raw.attrname is None or self.attributes(machine) is None:
            stop(UNKNOWN_ATTRIBUTE, f"{self.describe()}.{name} has no place to be cached in")
        getter = machine.values.known(raw.func, f"{class_name(self.cls.real)}.{name}")
        arguments = [self, getter, machine.values.literal(raw.attrname)]
        return machine.values.polyfill("cached_property", arguments)

    def _refuse_borrowed(self, name: str, raw: types.MemberDescriptorType) -> None:
        """A slot of another class, or under another name."""
        if raw.__name__ != name or not is_among(raw.__objclass__, mro_of(self.cls.real)):
            stop(UNKNOWN_ATTRIBUTE, f"{self.describe()}.{name}, a slot of another name or class")

    def _read_slot(self, machine: Machine, name: str, raw: Any) -> Value:
        self._refuse_borrowed(name, raw)
        if name in self.slots:
            written = self.slots[name]
            return written if written is not None else self.missing(machine, name)
        if self.source is None or self.real is None:
            return self.missing(machine, name)
        try:
            value = raw.__get__(self.real)
        except AttributeError:
            stop(UNKNOWN_ATTRIBUTE, f"{self.describe()}.{name} is not set")
        found = machine.values.wrap(value, Attribute(self.source, name))
        look(found)  # it is relied upon that there is one: it may be deleted
        return found

    def _bind_builtin(self, machine: Machine, name: str, raw: Any) -> Value:
        kind = BuiltinMethod if is_among(type(raw), BUILTIN_DESCRIPTORS) else Method
        return kind(self.cls.value_of(machine, name, raw), self)

    # ----------------------------------------------------------------------------------- writes

    def set_attribute(self, machine: Machine, name: str, value: Value) -> None:
        """As `object.__setattr__`, or through the class's own."""
        self.guard_type(machine)
        setter = self.cls.find(machine, "__setattr__")
        if setter not in _PLAIN_SETTERS:
            hook = self.cls.value_of(machine, "__setattr__", setter)
            if not isinstance(hook, Function):
                stop(ATTRIBUTE_WRITE, f"{self.describe()}.{name}")
            hook.inline(machine, [self, machine.values.literal(name), value], {}, discard=True)
            return
        self.store_attribute(machine, name, value)

    def store_attribute(self, machine: Machine, name: str, value: Value | None) -> None:
        """`object.__setattr__` (None: `object.__delattr__`)."""
        if machine.effects.written(self.cls.real, name) is not None:
            raw = ABSENT  # no descriptor: such are not written
        else:
            raw = self.cls.find(machine, name)
        if is_a(raw, property):
            function = raw.fset if value is not None else raw.fdel
            if function is None:
                stop(ATTRIBUTE_WRITE, f"{self.describe()}.{name}")
            hook = machine.values.known(function, f"{class_name(self.cls.real)}.{name}")
            if not isinstance(hook, Function):
                stop(ATTRIBUTE_WRITE, f"{self.describe()}.{name}")
            arguments: Arguments = [self] if value is None else [self, value]
            hook.inline(machine, arguments, {}, discard=True)
            return
        if is_a(raw, types.MemberDescriptorType):
            self._refuse_borrowed(name, raw)
            self._write_slot(machine, name, value)
            return
        if raw is not ABSENT and goes_first(machine, raw):
            self._write_descriptor(machine, name, raw, value)
            return
        attributes = self.attributes(machine)
        if attributes is None:
            stop(ATTRIBUTE_WRITE, f"{self.describe()}.{name}")
        if value is None and attributes.lookup(machine, name) is None:
            stop(ATTRIBUTE_WRITE, f"del {self.describe()}.{name}, which is not there")
        attributes.store(machine, name, value)

    def _write_slot(self, machine: Machine, name: str, value: Value | None) -> None:
        if value is None and not self._has_slot(name):
            stop(ATTRIBUTE_WRITE, f"del {self.describe()}.{name}, which is not set")
        existed, before = name in self.slots, self.slots.get(name)

        def restore() -> None:
            self.slots.pop(name, None)
            if existed:
                self.slots[name] = before

        machine.effects.undo(restore)
        self.slots[name] = value
        if self.source is not None:  # past the class's own `__setattr__`, which has run by now
            if value is None:
                delete = machine.values.known(object.__delattr__, "delete_slot")
                machine.effects.add("{}({}, {})", delete, self, machine.values.literal(name))
            else:
                write = machine.values.known(object.__setattr__, "write_slot")
                shown = machine.values.literal(name)
                machine.effects.add("{}({}, {}, {})", write, self, shown, value)

    def _has_slot(self, name: str) -> bool:
        if name in self.slots:
            return self.slots[name] is not None
        return self.source is not None and self.real is not None and hasattr(self.real, name)

    def _write_descriptor(self, machine: Machine, name: str, raw: Any, value: Value | None) -> None:
        setter = relied(machine, type(raw), "__set__")
        if value is None or not isinstance(setter, types.FunctionType):
            stop(ATTRIBUTE_WRITE, f"{self.describe()}.{name}")
        hook = machine.values.known(setter, f"{class_name(type(raw))}.__set__")
        assert isinstance(hook, Function)
        descriptor = self.cls.value_of(machine, name, raw)
        hook.inline(machine, [descriptor, self, value], {}, discard=True)

    def delete_attribute(self, machine: Machine, name: str) -> None:
        """As `object.__delattr__`."""
        self.guard_type(machine)
        if self.cls.find(machine, "__delattr__") not in _PLAIN_DELETERS:
            stop(ATTRIBUTE_WRITE, f"del {self.describe()}.{name}")
        self.store_attribute(machine, name, None)

    # ------------------------------------------------------------------------------- operations

    def dunder(self, machine: Machine, name: str) -> Value | None:
        """A special method, looked up on the class, bound; None: there is none. One that is set to
        None forbids the operation, each in its own words: CPython's."""
        self.guard_type(machine)
        raw = self.cls.find(machine, name)
        if raw is ABSENT:
            return None
        if raw is None:
            stop(UNKNOWN_CALL, f"{self.describe()}.{name} is None")
        found = self.described(machine, name, raw)
        if found is PENDING:  # whoever asks needs it at once
            stop(UNKNOWN_CALL, f"{self.describe()}.{name}, which is computed")
        return found

    def refuse_override(self, machine: Machine) -> None:
        """As `getattr` would: hooks, the instance, the class."""
        self.guard_type(machine)
        if (
            not isinstance(self.cls.find(machine, "__getattribute__"), types.WrapperDescriptorType)
            or machine.effects.written(self.cls.real, OVERRIDE) is not None
            or self.cls.find(machine, OVERRIDE) is not ABSENT
            or self._own(machine, OVERRIDE) is not None
            or self._hook_answers(machine, OVERRIDE)
        ):
            stop(UNKNOWN_OPERATION, f"{self.describe()}, which torch asks for {OVERRIDE}")

    def _hook_answers(self, machine: Machine, name: str) -> bool:
        """Whether there is a `__getattr__` to be asked for what is found nowhere else."""
        return self.cls.find(machine, "__getattr__") is not ABSENT

    def call(self, machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
        """`__call__`."""
        method = self.dunder(machine, "__call__")
        if method is None:
            stop(UNKNOWN_CALL, self.describe())
        return method.call(machine, arguments, keywords)

    def _special(self, machine: Machine, name: str, *arguments: Value) -> Value | None:
        method = self.dunder(machine, name)
        if not isinstance(method, Method) or not isinstance(method.function, Function):
            return None
        return method.call(machine, list(arguments), {})

    def _followed(self, machine: Machine, name: str) -> Value | None:
        """A special method that is written in Python, bound; None: there is none such."""
        method = self.dunder(machine, name)
        is_ours = isinstance(method, Method) and isinstance(method.function, Function)
        return method if is_ours else None

    def _asked(self, machine: Machine, name: str) -> Value | None:
        """What a builtin makes of the answer of a special method."""
        if self._followed(machine, name) is None:
            return None
        return machine.values.ask_special(self, name)

    def get_item(self, machine: Machine, key: Value) -> Value:
        """`__getitem__`."""
        found = self._special(machine, "__getitem__", key)
        return found if found is not None else super().get_item(machine, key)

    def set_item(self, machine: Machine, key: Value, value: Value) -> None:
        """`__setitem__`."""
        if not self._write(machine, "__setitem__", key, value):
            super().set_item(machine, key, value)

    def delete_item(self, machine: Machine, key: Value) -> None:
        """`__delitem__`."""
        if not self._write(machine, "__delitem__", key):
            super().delete_item(machine, key)

    def _write(self, machine: Machine, name: str, *arguments: Value) -> bool:
        method = self.dunder(machine, name)
        if not isinstance(method, Method) or not isinstance(method.function, Function):
            return False
        method.function.inline(machine, [self, *arguments], {}, discard=True)
        return True

    def length(self, machine: Machine) -> Value:
        """`__len__`."""
        found = self._asked(machine, "__len__")
        return found if found is not None else super().length(machine)

    def contains(self, machine: Machine, item: Value) -> Value:
        """`__contains__`, or by iterating."""
        method = self.dunder(machine, "__contains__")
        if method is None:
            if self.dunder(machine, "__iter__") is None and not self.dunder(machine, "__getitem__"):
                stop(UNKNOWN_OPERATION, f"{self.describe()} is not iterable")
            return machine.values.polyfill("contains", [self, item])
        if not isinstance(method, Method) or not isinstance(method.function, Function):
            return super().contains(machine, item)
        return machine.values.polyfill("contains_by_method", [method, item])

    def iterate(self, machine: Machine) -> Value:
        """`__iter__`, or the old protocol."""
        found = self._asked(machine, "__iter__")
        if found is not None:
            return found
        by_index = self.cls.find(machine, "__iter__") is ABSENT
        if by_index and self._followed(machine, "__getitem__") is not None:
            return machine.values.polyfill("by_index", [self])
        return super().iterate(machine)

    def truth(self, machine: Machine) -> bool | Value:
        """`__bool__`, `__len__`, else true."""
        found = self._asked(machine, "__bool__")
        if found is not None:
            return found
        if self.dunder(machine, "__bool__") is not None:
            return super().truth(machine)
        method = self._followed(machine, "__len__")
        if method is not None:
            return machine.values.polyfill("truth_by_length", [method])
        if self.dunder(machine, "__len__") is not None:
            return super().truth(machine)
        return True

    def unary(self, machine: Machine, operation: str) -> Value:
        """A dunder."""
        found = self._special(machine, _UNARY_NAMES[operation]) if operation != "not" else None
        return found if found is not None else super().unary(machine, operation)

    # ---------------------------------------------------------------------------------- leaving

    def rebuild(self, recipe: Recipe) -> str:
        """Made by `object.__new__`, then its attributes. One of the user has been followed."""
        followed = isinstance(find(self.cls.real, "__new__"), staticmethod)
        make = recipe.known(object.__new__ if followed else self.cls.real.__new__, "new")
        name = recipe.bind(self, f"{make}({recipe.name(self.cls)})")
        self.fill_attributes(recipe, name)
        self.fill_slots(recipe, name)
        return name


# Exceptions and containers have their own, which do the same.
_PLAIN_BASES = (object, BaseException, dict, list, tuple, collections.OrderedDict)
_PLAIN_GETTERS = tuple(base.__getattribute__ for base in _PLAIN_BASES)
_PLAIN_SETTERS = tuple(base.__setattr__ for base in _PLAIN_BASES)
_PLAIN_DELETERS = tuple(base.__delattr__ for base in _PLAIN_BASES)

_FGET: Any = vars(property)["fget"]
_UNARY_NAMES = {"-": "__neg__", "+": "__pos__", "~": "__invert__"}

_BINDERS: dict[type, Any] = {
    types.FunctionType: Object._bind_function,
    staticmethod: Object._bind_static,
    classmethod: Object._bind_class,
    property: Object._call_property,
    functools.cached_property: Object._cached,
    types.MemberDescriptorType: Object._read_slot,
    types.WrapperDescriptorType: Object._bind_builtin,
    types.MethodDescriptorType: Object._bind_builtin,
    type(functools.lru_cache(int)): Object._bind_builtin,
}


BUILTIN_DESCRIPTORS = (types.WrapperDescriptorType, types.MethodDescriptorType)
BOUND_AS_METHODS = (
    types.FunctionType,
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
)


class Opaque(Given):
    """An object of a kind that windfall does not model: it can be passed on and compared by
    identity; everything else happens natively."""

    __slots__ = ()

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """Natively."""
        stop(UNKNOWN_ATTRIBUTE, f"{self.describe()}.{name}")


@wraps_if(900, lambda value: bool(flags_of(type(value)) & (1 << 9)))  # Py_TPFLAGS_HEAPTYPE
def _wrap_object(machine: Machine, value: Any, source: Source | None) -> Value:
    cls = machine.values.known(type(value), class_name(type(value)))
    source = source or Known(value, type(value).__name__)
    hidden = dictionary_at(type(value)) and not _has_dict(type(value))  # attributes nobody can list
    if not isinstance(cls, Class) or hidden or not is_plain_class(type(value)):
        return machine.values.remember(value, Opaque(value, source))
    return machine.values.remember(value, Object(cls, source, value))


def _has_dict(cls: type) -> bool:
    """Whether instances have a dictionary that can be asked for (some classes of C hide theirs)."""
    return bool(dictionary_at(cls)) and find(cls, "__dict__") is not ABSENT


_HEAP = 1 << 9  # Py_TPFLAGS_HEAPTYPE
_HEAP_OR_FIXED = _HEAP | 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE


def is_plain_class(cls: type) -> bool:
    """Whether instances have no other state than attributes (no builtin container inside): each
    base was made by a class statement. (Some classes of C are on the heap too; most of them, and
    from 3.12 on all iterators, cannot be changed.)"""
    return all(base is object or flags_of(base) & _HEAP_OR_FIXED == _HEAP for base in mro_of(cls))


@wraps_if(1000, lambda value: True)
def _wrap_opaque(machine: Machine, value: Any, source: Source | None) -> Value:
    return machine.values.remember(
        value, Opaque(value, source or Known(value, type(value).__name__))
    )
