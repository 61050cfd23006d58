"""Classes: what they answer along their MRO, as attributes, when they are called.

Enters: classes, the user's and others. Leaves: guards `MroLookupIs` on what they answer, values of
attributes, instances. Invariant: the order of lookup is `type.__getattribute__`'s, and no user code
runs. (Class statements: `classes.py`; instances: `objects.py`.)
"""

from __future__ import annotations

import enum
import functools
import types
from typing import TYPE_CHECKING, Any

from torch.distributions.utils import lazy_property

from windfall import torch_abi
from windfall.frontend.breaks import ATTRIBUTE_WRITE, UNKNOWN_ATTRIBUTE, UNKNOWN_OPERATION, stop
from windfall.frontend.classnames import short_name
from windfall.frontend.name_tables import words
from windfall.frontend.policy import Treatment, treatment
from windfall.frontend.values.base import Arguments, Given, Keywords, Value
from windfall.frontend.values.calls import CALLS
from windfall.frontend.values.function import Method
from windfall.frontend.values.wrap import wraps, wraps_if
from windfall.ir.guard import ABSENT, IdentityIs, MroLookupIs, TypeIs
from windfall.ir.reading import (
    class_dict,
    class_name,
    flags_of,
    is_a,
    is_among,
    mro_of,
    reads_are_hooked,
    resolve,
)
from windfall.ir.source import Attribute, DictOf, Item, Known, Source

if TYPE_CHECKING:
    from windfall.frontend.services import Machine


IMMUTABLE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE
_ABSTRACT = 1 << 20  # Py_TPFLAGS_IS_ABSTRACT
_SLOT_TYPES = (types.MemberDescriptorType, types.GetSetDescriptorType)


def find(cls: type, name: str) -> Any:
    """What a class answers for a name along its MRO, descriptors not called; or ABSENT."""
    return resolve(cls, name)


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


# Descriptors of torch's whose answer to a class is made of nothing else, each time anew.
READ_OF_CLASSES: frozenset[type] = frozenset({lazy_property})


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
                machine.guards.add(known, MroLookupIs(name, found), "class attribute")
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
        values = machine.values
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
            return values.tuple([values.known(one, class_name(one)) for one in found])
        if self.source is None or flags_of(self.real) & IMMUTABLE:
            return values.literal_or_known(found, f"{self.describe()}.{name}")
        if (found is not None and type(found) is not str) or (
            own and name not in class_dict(self.real)
        ):
            stop(UNKNOWN_ATTRIBUTE, f"{self.describe()}.{name}")
        # Where the metaclass has a text of that name, the class's own goes before it.
        table = DictOf(self.source, reads_are_hooked(type(self.real)))
        if not own:
            return values.wrap(found, Attribute(self.source, name))
        machine.guards.found.append((table, name))  # passed on, it is not looked at
        return values.wrap(found, Item(table, name))

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
        if type(raw) in READ_OF_CLASSES:
            return machine.values.known(raw.__get__(None, self.real), name)
        if raw is torch_abi.FUNCTION_APPLY:  # of C, since torch 2.15
            return Method(machine.values.known(raw, "Function.apply"), self)
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
        if type(meta) is property and isinstance(meta.fget, types.FunctionType):
            return machine.values.known(meta.fget, name).call(machine, [self], {})
        if find(type(meta), "__get__") is ABSENT and not is_mutable(type(meta)):
            return machine.values.wrap(meta, _pinned(meta, f"{class_name(type(self.real))}.{name}"))
        stop(UNKNOWN_ATTRIBUTE, f"{self.describe()}.{name}")

    def get_item(self, machine: Machine, key: Value) -> Value:
        """`list[int]`: of builtin classes, an object without further meaning; a member, by name."""
        values = machine.values
        self.rely(machine)
        if self._is_enumeration():
            try:
                return values.literal(self._members()[key.key(machine)])
            except (KeyError, TypeError) as error:
                raise values.raised(error) from None
        raw = find(self.real, "__class_getitem__")
        keys = key.unpack(machine) if key.python_type() is tuple else [key]
        if is_a(raw, types.ClassMethodDescriptorType) and all(
            isinstance(one, Class) for one in keys
        ):
            reals = [one.real for one in keys if isinstance(one, Class)]
            for one in keys:
                one.key(machine)
            made: Any = raw.__get__(None, self.real)
            return values.known(made(tuple(reals) if len(reals) != 1 else reals[0]), "alias")
        return super().get_item(machine, key)

    def contains(self, machine: Machine, item: Value) -> Value:
        """As its metaclass says, in Python."""
        self.rely(machine)
        meta = self.meta(machine, "__contains__")
        if not isinstance(meta, types.FunctionType):
            return super().contains(machine, item)
        method = Method(machine.values.known(meta, "__contains__"), self)
        return machine.values.polyfill("contains_by_method", [method, item])

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


@wraps(type)
def wrap_class(machine: Machine, value: type, source: Source | None) -> Value:
    """A class."""
    return machine.values.remember(value, Class(value, source or Known(value, value.__qualname__)))


@wraps_if(5, lambda value: is_a(value, type))
def _wrap_class(machine: Machine, value: type, source: Source | None) -> Value:
    return wrap_class(machine, value, source)
