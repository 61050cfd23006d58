"""Classes and their instances: attribute lookup as Python does it, without running user code.

Enters: classes and objects of the user. Leaves: guards `Resolves` on what classes answer, reads and
writes of instance dictionaries, pushed frames for properties, descriptors and dunders written in
Python. Invariant: the order of lookup is `object.__getattribute__`'s.
"""

from __future__ import annotations

import collections
import enum
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
from windfall.frontend.policy import Treatment, treatment
from windfall.frontend.values.base import PENDING, Arguments, Given, Keywords, Value
from windfall.frontend.values.calls import CALLS
from windfall.frontend.values.function import BuiltinMethod, Function, Method
from windfall.frontend.values.mapping import Dict, InstanceDict
from windfall.frontend.values.unseen import look
from windfall.frontend.values.wrap import wraps, wraps_if
from windfall.frontend.words import words
from windfall.ir.guard import ABSENT, IdentityIs, Resolves, TypeIs
from windfall.ir.reading import (
    class_dict,
    class_name,
    dict_of,
    dictionary_at,
    flags_of,
    is_a,
    is_among,
    mro_of,
    resolve,
)
from windfall.ir.source import Attribute, DictOf, Item, Known, Source

if TYPE_CHECKING:
    from windfall.frontend.recipe import Recipe
    from windfall.frontend.services import Machine

IMMUTABLE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE
_ABSTRACT = 1 << 20  # Py_TPFLAGS_IS_ABSTRACT
_SLOT_TYPES = (types.MemberDescriptorType, types.GetSetDescriptorType)


def find(cls: type, name: str) -> Any:
    """What a class answers for a name along its MRO, descriptors not called; or ABSENT."""
    return resolve(cls, name)


def written_table(recipe: Recipe, cls: type, name: str) -> str:
    """The text of the dictionary of a new object, past any hook of its class."""
    if find(cls, "__getattribute__") in _PLAIN_GETTERS:
        return f"{name}.__dict__"
    return f"{recipe.known(dict_of, 'dict_of')}({name})"


def is_data_descriptor(raw: Any) -> bool:
    """Whether it goes before the instance's dictionary."""
    kind = type(raw)
    return any(find(kind, name) is not ABSENT for name in ("__set__", "__delete__"))


def relied(machine: Machine, cls: type, name: str) -> Any:
    """As `find`, of a class that is not a value of the program (a metaclass, a descriptor's)."""
    known = machine.values.known(cls, class_name(cls))
    return known.find(machine, name) if isinstance(known, Class) else find(cls, name)


def is_mutable(cls: type) -> bool:
    """Whether it, or a class that it derives from, may change."""
    return any(not flags_of(base) & IMMUTABLE for base in mro_of(cls))


def mro(machine: Machine, cls: type) -> tuple[type, ...]:
    """The classes that a class derives from, relied upon: its bases may be replaced."""
    order = mro_of(cls)
    if is_mutable(cls):
        name = class_name(cls)
        if not is_plain_metaclass(machine, type(cls)):
            stop(UNKNOWN_OPERATION, f"the bases of class {name}")
        known = machine.values.known(cls, name)
        is_made_here = known.source is None  # what stands for it is not there in the next call
        if not is_made_here and (known.guarded is None or "mro" not in known.guarded):
            known.guarded = {*(known.guarded or ()), "mro"}
            where = Attribute(Known(cls, name), "__mro__")
            machine.guards.add(where, IdentityIs(order), "the classes that it derives from")
    return order


def goes_first(machine: Machine, raw: Any) -> bool:
    """As `is_data_descriptor`, relied upon: its class may get a `__set__` later."""
    kind = type(raw)
    if flags_of(kind) & IMMUTABLE:
        return is_data_descriptor(raw)
    return any(relied(machine, kind, name) is not ABSENT for name in ("__set__", "__delete__"))


def is_read(machine: Machine, raw: Any) -> bool:
    """Whether it is asked when it is read: one that only writes is found behind the instance's
    dictionary, as any attribute of the class."""
    kind = type(raw)
    if flags_of(kind) & IMMUTABLE:
        return hasattr(kind, "__get__")
    return relied(machine, kind, "__get__") is not ABSENT


def is_plain_metaclass(machine: Machine, kind: type) -> bool:
    """Whether its classes are read as C reads them: no `__getattribute__` of the user's."""
    getter = relied(machine, kind, "__getattribute__")
    return isinstance(getter, types.WrapperDescriptorType)


class Placeholder:
    """Stands in a class's dictionary for a value that exists only symbolically."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value


class Class(Given):
    """A class, mostly one from outside."""

    __slots__ = ("_found", "_pinned")
    real: type

    def __init__(self, real: type, source: Source | None) -> None:
        super().__init__(real, source)
        self._found: dict[str, Any] = {}
        self._pinned = False  # whether its metaclass is relied upon

    def describe(self) -> str:
        """Its name."""
        return f"class {class_name(self.real)}"

    def key(self, machine: Machine) -> Any:
        """Hashed by identity, unless its metaclass says otherwise."""
        self.rely(machine)
        for name in ("__hash__", "__eq__"):
            if self.meta(machine, name) not in (find(object, name), find(type, name)):
                stop(UNKNOWN_OPERATION, f"{self.describe()} as a key")
        return self

    def find(self, machine: Machine, name: str) -> Any:
        """As `find`, relied upon."""
        if machine.effects.classes and machine.effects.written(self.real, name) is not None:
            stop(UNKNOWN_ATTRIBUTE, f"{self.describe()}.{name}, which was written")
        if name not in self._found:
            found = self._found[name] = find(self.real, name)
            if not flags_of(self.real) & IMMUTABLE and self.source is not None:
                known = Known(self.real, class_name(self.real))
                machine.guards.add(known, Resolves(name, found), "class attribute")
        return self._found[name]

    def meta(self, machine: Machine, name: str) -> Any:
        """What the metaclass answers for a name, relied upon, as is its being the metaclass."""
        kind = type(self.real)
        if not flags_of(self.real) & IMMUTABLE and self.source is not None:
            known = Known(self.real, class_name(self.real))
            if not self._pinned:
                self._pinned = True
                machine.guards.add(known, TypeIs(kind), "metaclass")
        return relied(machine, kind, name)

    def value_of(self, machine: Machine, name: str, raw: Any) -> Value:
        """What was found, as a value: `find` has relied on its identity."""
        if type(raw) is Placeholder:
            return raw.value
        return machine.values.wrap(raw, _pinned(raw, f"{class_name(self.real)}.{name}"))

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """`cls.name`: the class's own attributes, then those of the metaclass."""
        self.rely(machine)
        if name in _CLASS_FIELDS:
            return self._field(machine, name)
        if name == "__dict__":
            stop(UNKNOWN_ATTRIBUTE, f"{self.describe()}.__dict__")
        written = machine.effects.written(self.real, name)
        if written is not None:
            return written
        meta = self.meta(machine, name)
        if not is_plain_metaclass(machine, type(self.real)):
            stop(UNKNOWN_ATTRIBUTE, f"{self.describe()} whose metaclass has __getattribute__")
        raw = self.find(machine, name)
        if raw is ABSENT or (meta is not ABSENT and goes_first(machine, meta)):
            return self._from_metaclass(machine, name, meta)
        return self._class_attribute(machine, name, raw)

    def _field(self, machine: Machine, name: str) -> Value:
        """What every class has; of a class of the user, texts may be others in the next call."""
        meta = self.meta(machine, name)
        own = name in ("__doc__", "__module__") and (meta is None or type(meta) is str)
        plain = is_plain_metaclass(machine, type(self.real))
        if not plain or not (own or meta is find(type, name)):
            stop(UNKNOWN_ATTRIBUTE, f"{self.describe()}.{name}, which its metaclass answers")
        found = getattr(self.real, name, ABSENT)
        if found is ABSENT:
            stop(UNKNOWN_ATTRIBUTE, f"{self.describe()}.{name}")
        if type(found) is Placeholder:
            return found.value
        if is_a(found, tuple):  # of classes; some may be stand-ins for what is to be made
            if self.source is not None and not flags_of(self.real) & IMMUTABLE:
                where = Attribute(Known(self.real, class_name(self.real)), name)
                machine.guards.add(where, IdentityIs(found), "the classes that it derives from")
            return machine.values.tuple(
                [machine.values.known(one, class_name(one)) for one in found]
            )
        if self.source is None or flags_of(self.real) & IMMUTABLE:
            return machine.values.literal_or_known(found, f"{self.describe()}.{name}")
        if (found is not None and type(found) is not str) or (
            own and name not in class_dict(self.real)
        ):
            stop(UNKNOWN_ATTRIBUTE, f"{self.describe()}.{name}")
        # Where the metaclass has a text of that name, the class's own goes before it.
        table = DictOf(self.source)
        return machine.values.wrap(
            found, Item(table, name) if own else Attribute(self.source, name)
        )

    def _class_attribute(self, machine: Machine, name: str, raw: Any) -> Value:
        if is_a(raw, staticmethod):
            return self.value_of(machine, name, raw.__func__)
        if is_a(raw, classmethod):
            self.refuse_chain(name, raw)
            return Method(self.value_of(machine, name, raw.__func__), self)
        if is_a(raw, types.FunctionType) or find(type(raw), "__get__") is ABSENT:
            return self.value_of(machine, name, raw)
        if is_a(raw, (types.WrapperDescriptorType, types.MethodDescriptorType, *_SLOT_TYPES)):
            return self.value_of(machine, name, raw)
        if is_a(raw, property | functools.cached_property):
            return self.value_of(machine, name, raw)
        bound = is_a(raw, types.ClassMethodDescriptorType) and self.source is not None
        found = getattr(self.real, name) if bound else None
        if is_a(found, types.BuiltinMethodType):
            return machine.values.known(found, f"{class_name(self.real)}.{name}")
        stop(UNKNOWN_ATTRIBUTE, f"{self.describe()}.{name}")

    def refuse_chain(self, name: str, raw: classmethod[Any, Any, Any]) -> None:
        """A class method around another descriptor: CPython asks that one, version by version."""
        inner: Any = raw.__func__
        if not isinstance(inner, types.FunctionType) and find(type(inner), "__get__") is not ABSENT:
            stop(UNKNOWN_ATTRIBUTE, f"{self.describe()}.{name}, a class method of a descriptor")

    def _from_metaclass(self, machine: Machine, name: str, meta: Any) -> Value:
        if meta is ABSENT and self.meta(machine, "__getattr__") is not ABSENT:
            stop(UNKNOWN_ATTRIBUTE, f"{self.describe()} whose metaclass has __getattr__")
        if meta is ABSENT:
            text = f"type object '{short_name(self.real)}' has no attribute '{name}'"
            raise machine.values.no_attribute(self, name, text)
        if isinstance(meta, types.FunctionType):
            return Method(machine.values.known(meta, name), self)
        stop(UNKNOWN_ATTRIBUTE, f"{self.describe()}.{name}")

    def get_item(self, machine: Machine, key: Value) -> Value:
        """`list[int]`: of builtin classes, an object without further meaning; a member, by name."""
        self.rely(machine)
        if self._is_enumeration():
            try:
                return machine.values.literal(self._members()[key.key(machine)])
            except (KeyError, TypeError) as error:
                raise machine.values.raised(error) from None
        raw = find(self.real, "__class_getitem__")
        keys = key.unpack(machine) if key.python_type() is tuple else [key]
        if is_a(raw, types.ClassMethodDescriptorType) and all(
            isinstance(one, Class) for one in keys
        ):
            reals = [one.real for one in keys if isinstance(one, Class)]
            for one in keys:
                one.key(machine)
            made: Any = raw.__get__(None, self.real)
            return machine.values.known(
                made(tuple(reals) if len(reals) != 1 else reals[0]), "alias"
            )
        return super().get_item(machine, key)

    def _is_enumeration(self) -> bool:
        return type(self.real) is enum.EnumType

    def _members(self) -> dict[str, Any]:
        return dict(getattr(self.real, "__members__"))  # noqa: B009 (of enumerations only)

    def unpack(self, machine: Machine) -> list[Value]:
        """The members of an enumeration."""
        if not self._is_enumeration():
            return super().unpack(machine)
        self.rely(machine)
        kind: Any = self.real
        return [machine.values.literal(one) for one in kind]

    def iterate(self, machine: Machine) -> Value:
        """Likewise, by what is a generator in CPython."""
        if not self._is_enumeration():
            return super().iterate(machine)
        members = self.unpack(machine)
        return machine.values.iterate_over(
            self,
            types.GeneratorType,
            lambda _, place: members[place] if place < len(members) else None,
        )

    def length(self, machine: Machine) -> Value:
        """How many members."""
        if not self._is_enumeration():
            return super().length(machine)
        return machine.values.literal(len(self.unpack(machine)))

    def _member(self, machine: Machine, value: Value) -> Value | None:
        """The member of an enumeration with this value, where there is one."""
        if value.python_type() is self.real:
            return value
        table = class_dict(self.real).get("_value2member_map_", {})
        if not value.is_constant() or not is_among(value.python_type(), _VALUES):
            return None
        if not all(is_among(type(one), _VALUES) for one in table):  # which might be asked
            return None
        found = table.get(value.as_constant(machine))
        return machine.values.literal(found) if found is not None else None

    def set_attribute(self, machine: Machine, name: str, value: Value) -> None:
        """A plain attribute of a plain class."""
        self.rely(machine)
        real = self.real
        plain = (
            self.meta(machine, "__setattr__") is type.__setattr__ and not flags_of(real) & IMMUTABLE
        )
        special = name.startswith("__") or self.meta(machine, name) is not ABSENT
        if not plain or special or find(value.python_type(), "__get__") is not ABSENT:
            stop(ATTRIBUTE_WRITE, f"{self.describe()}.{name}")
        machine.effects.write_class(self, name, value)

    def call(self, machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
        """A special rule, or an instance made by following `__new__` and `__init__`."""
        self.rely(machine)
        rule = CALLS.get(self.real) if type(self.real).__hash__ is type.__hash__ else None
        if rule is not None:
            return rule(machine, arguments, keywords)
        if self._is_enumeration() and len(arguments) == 1 and not keywords:
            found = self._member(machine, arguments[0])
            if found is not None:
                return found
        how = treatment(self.real)
        if how is Treatment.FOLD:
            return machine.values.treated(how, self.real, arguments, keywords)
        return machine.values.instantiate(self, arguments, keywords)

    def truth(self, machine: Machine) -> bool | Value:
        """A class is true, unless its metaclass says otherwise."""
        if all(self.meta(machine, name) is ABSENT for name in ("__bool__", "__len__")):
            return True
        return super().truth(machine)

    def compare(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """By identity, unless a metaclass has a say."""
        if operation in ("==", "!=") and isinstance(other, Class):
            self.rely(machine)
            other.rely(machine)
            for one in (self, other):
                one.refuse_own(machine, "__eq__", "__ne__")
            return machine.values.literal((self.real is other.real) == (operation == "=="))
        return None

    def binary(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """A union."""
        return union(machine, self, other) if operation == "|" else None

    def refuse_own(self, machine: Machine, *names: str) -> None:
        """Special methods of a metaclass of the user are called natively."""
        for name in names:
            if self.meta(machine, name) is not find(type, name):
                stop(UNKNOWN_OPERATION, f"{self.describe()}, whose metaclass has {name}")


_VALUES = (int, str, bytes, bool, float, type(None))  # of members, looked up as C does
_CLASS_FIELDS = words("__name__ __qualname__ __module__ __doc__ __mro__ __bases__")


def is_abstract(machine: Machine, cls: Class) -> bool:
    """Whether it refuses to be instantiated; that may change."""
    cls.find(machine, "__abstractmethods__")
    return bool(flags_of(cls.real) & _ABSTRACT)


def _pinned(raw: Any, name: str) -> Source | None:
    """The source of an object whose identity is relied upon already."""
    return None if is_a(raw, int | float | str | bytes | bool | None) else Known(raw, name)


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
        if raw.fget is None:
            stop(UNKNOWN_ATTRIBUTE, f"{self.describe()}.{name} cannot be read")
        getter = machine.values.known(raw.fget, f"{class_name(self.cls.real)}.{name}")
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
        kind = BuiltinMethod if is_among(type(raw), _BUILTIN_DESCRIPTORS) else Method
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
        for key, written in self.slots.items():
            if written is not None:
                write = recipe.known(object.__setattr__, "write_slot")
                recipe.later(f"{write}({name}, {key!r}, {{}})", written)
        return name


# Exceptions and containers have their own, which do the same.
_PLAIN_BASES = (object, BaseException, dict, list, tuple, collections.OrderedDict)
_PLAIN_GETTERS = tuple(base.__getattribute__ for base in _PLAIN_BASES)
_PLAIN_SETTERS = tuple(base.__setattr__ for base in _PLAIN_BASES)
_PLAIN_DELETERS = tuple(base.__delattr__ for base in _PLAIN_BASES)

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


_BUILTIN_DESCRIPTORS = (types.WrapperDescriptorType, types.MethodDescriptorType)
_BOUND_AS_METHODS = (
    types.FunctionType,
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
)


_MODULE_GETTER = find(types.ModuleType, "__getattribute__")
_MODULE_SETTER = find(types.ModuleType, "__setattr__")


class PythonModule(Given):
    """A module of Python: its globals are its attributes."""

    __slots__ = ("_globals",)

    def __init__(self, real: types.ModuleType, source: Source) -> None:
        super().__init__(real, source)
        self._globals: Dict | None = None

    def describe(self) -> str:
        """Its name, past any hook of its class."""
        return f"module {_module_name(self.real)}"

    def key(self, machine: Machine) -> Any:
        """By identity."""
        return machine.guards.told_apart(self)

    def globals(self, machine: Machine) -> Dict:
        """Its dictionary; relies on its being this very module."""
        if self._globals is None:
            self.guard(machine, "identity", IdentityIs(self.real))
            space = dict_of(self.real)
            self._globals = machine.values.globals_dict(space, str(space.get("__name__")))
        return self._globals

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """A global; a module's `__getattr__` and what its class computes run natively."""
        space = self.globals(machine)
        kind = type(self.real)
        if self.source is not None:
            self.guard_type(machine)
        if kind is not types.ModuleType:
            if relied(machine, kind, "__getattribute__") is not _MODULE_GETTER:
                stop(UNKNOWN_ATTRIBUTE, f"{self.describe()}.{name}, by a hook of its class")
            raw = relied(machine, kind, name)
            if raw is not ABSENT and goes_first(machine, raw):
                stop(UNKNOWN_ATTRIBUTE, f"{self.describe()}.{name}")
        found = space.lookup(machine, name)
        if found is not None:
            return found
        if relied(machine, kind, name) is not ABSENT or (
            space.lookup(machine, "__getattr__") is not None
        ):
            stop(UNKNOWN_ATTRIBUTE, f"{self.describe()}.{name}")
        text = f"module '{_module_name(self.real)}' has no attribute '{name}'"
        raise machine.values.no_attribute(self, name, text)

    def set_attribute(self, machine: Machine, name: str, value: Value) -> None:
        """A global; what its class has a say in (`__class__`, `__dict__`) is written natively."""
        kind = type(self.real)
        if self.source is not None:
            self.guard_type(machine)
        raw = relied(machine, kind, name)
        described = raw is not ABSENT and goes_first(machine, raw)
        if described or relied(machine, kind, "__setattr__") is not _MODULE_SETTER:
            stop(ATTRIBUTE_WRITE, f"{self.describe()}.{name}")
        self.globals(machine).store(machine, name, value)

    def truth(self, machine: Machine) -> bool | Value:
        """A module is true."""
        return True


_HINTS = (types.UnionType, types.GenericAlias)


def union(machine: Machine, left: Value, right: Value) -> Value | None:
    """`left | right` of classes and annotations, as in `isinstance(x, int | float)`; None where
    CPython is to answer: a metaclass has a say, or it is something else."""
    parts: list[Any] = []
    for one, name in ((left, "__or__"), (right, "__ror__")):
        if one.python_type() is types.NoneType:
            parts.append(None)
            continue
        if isinstance(one, Class) and one.source is not None:
            if one.meta(machine, name) is not find(type, name):
                return None
        elif not isinstance(one, Given) or not is_among(one.python_type(), _HINTS):
            return None
        one.rely(machine)
        parts.append(one.real)
    return machine.values.known(parts[0] | parts[1], "union")


class Opaque(Given):
    """An object of a kind that windfall does not model: it can be passed on and compared by
    identity; everything else happens natively."""

    __slots__ = ()

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """Natively."""
        stop(UNKNOWN_ATTRIBUTE, f"{self.describe()}.{name}")


def super_lookup(machine: Machine, start: type, owner: Value, cls: type, name: str) -> Value | None:
    """`super(start, owner).name`: what comes after `start` in the MRO of `cls`."""
    order = mro(machine, cls)
    place = next((place for place, one in enumerate(order) if one is start), None)
    if place is None:  # a metaclass's method, or an error
        stop(UNKNOWN_CALL, f"super({class_name(start)}, {owner.describe()})")
    for base in order[place + 1 :]:
        if name not in class_dict(base):
            continue
        raw = class_dict(base)[name]
        holder = machine.values.known(base, class_name(base))
        assert isinstance(holder, Class)
        holder.find(machine, name)
        if isinstance(owner, Object):
            return owner.described(machine, name, raw)
        if isinstance(owner, Class) and is_a(raw, classmethod):
            return Method(holder.value_of(machine, name, raw.__func__), owner)
        if is_a(raw, staticmethod):
            return holder.value_of(machine, name, raw.__func__)
        if type(raw) is types.ClassMethodDescriptorType:
            stop(UNKNOWN_ATTRIBUTE, f"super().{name} of {owner.describe()}")
        found = holder.value_of(machine, name, raw)
        if isinstance(owner, Class) or find(type(raw), "__get__") is ABSENT:
            return found
        if not is_among(type(raw), _BOUND_AS_METHODS):
            stop(UNKNOWN_ATTRIBUTE, f"super().{name} of {owner.describe()}")
        kind = BuiltinMethod if is_among(type(raw), _BUILTIN_DESCRIPTORS) else Method
        return kind(found, owner)
    return None


# What a `super` object answers of itself.
_OF_SUPER = words("__class__ __thisclass__ __self__ __self_class__")


class Super(Value):
    """`super(cls, object)`."""

    __slots__ = ("owner", "start")

    def __init__(self, start: Class, owner: Value) -> None:
        super().__init__()
        self.start = start
        self.owner = owner

    def python_type(self) -> type:
        """`super`."""
        return super

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """The next one in the MRO."""
        owner = self.owner
        if name in _OF_SUPER:
            stop(UNKNOWN_ATTRIBUTE, f"super().{name}")
        cls = owner.real if isinstance(owner, Class) else owner.python_type()
        owner.guard_type(machine)
        found = super_lookup(machine, self.start.real, owner, cls, name)
        if found is None:
            raise machine.values.no_attribute(
                self, name, f"'super' object has no attribute '{name}'"
            )
        return found

    def rebuild(self, recipe: Recipe) -> str:
        """Made anew."""
        return f"super({recipe.name(self.start)}, {recipe.name(self.owner)})"


@wraps(type)
def wrap_class(machine: Machine, value: type, source: Source | None) -> Value:
    """A class."""
    return machine.values.remember(value, Class(value, source or Known(value, value.__qualname__)))


@wraps_if(5, lambda value: is_a(value, type))
def _wrap_class(machine: Machine, value: type, source: Source | None) -> Value:
    return wrap_class(machine, value, source)


def _module_name(module: types.ModuleType) -> str:
    return str(dict_of(module).get("__name__"))


@wraps_if(30, lambda value: is_a(value, types.ModuleType))
def _wrap_module(machine: Machine, value: types.ModuleType, source: Source | None) -> Value:
    return machine.values.remember(
        value, PythonModule(value, source or Known(value, _module_name(value)))
    )


@wraps_if(900, lambda value: bool(flags_of(type(value)) & (1 << 9)))  # Py_TPFLAGS_HEAPTYPE
def _wrap_object(machine: Machine, value: Any, source: Source | None) -> Value:
    cls = machine.values.known(type(value), class_name(type(value)))
    source = source or Known(value, type(value).__name__)
    if not isinstance(cls, Class) or not is_plain_class(type(value)):
        return machine.values.remember(value, Opaque(value, source))
    return machine.values.remember(value, Object(cls, source, value))


def _has_dict(cls: type) -> bool:
    """Whether instances have a dictionary that can be asked for (some classes of C hide theirs)."""
    return bool(dictionary_at(cls)) and find(cls, "__dict__") is not ABSENT


def is_plain_class(cls: type) -> bool:
    """Whether instances have no other state than attributes (no builtin container inside)."""
    return all(base is object or flags_of(base) & (1 << 9) for base in mro_of(cls))


@wraps_if(1000, lambda value: True)
def _wrap_opaque(machine: Machine, value: Any, source: Source | None) -> Value:
    return machine.values.remember(
        value, Opaque(value, source or Known(value, type(value).__name__))
    )
