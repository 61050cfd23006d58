"""Checks of Python objects: classes, identities, constants, containers.

Enters: what the front end saw. Leaves: checks (`base.py` says what they promise). Invariant: what
is asked of an object is asked by `reading.py` and `constants.py`, past every method of a user's.
"""

from __future__ import annotations

import abc
import weakref
from dataclasses import replace
from typing import Any, ClassVar

import torch

from windfall.dataclass import dataclass
from windfall.ir.check_writer import Cell, NativeCheckWriter
from windfall.ir.checks.base import Check, Class
from windfall.ir.constants import by_identity, cut, same_constant, same_items, shown, written
from windfall.ir.reading import (
    ABSENT,
    UNREADABLE,
    class_name,
    is_among,
    lasting_class,
    length,
    resolve,
    short_class_name,
)
from windfall.ir.relation import COMPARISONS
from windfall.ir.source import Distance, KeysOf, Overlap, Source


@dataclass(frozen=True, slots=True)
class TypeIs(Check):
    """The value's exact class."""

    exact_class: Class

    def holds(self, value: Any, *others: Any) -> bool:
        """Whatever `__class__` answers."""
        return type(value) is self.exact_class

    def encode(self, writer: NativeCheckWriter, source: Source) -> bool:
        """One comparison."""
        if writer.is_number(source):
            return self.exact_class is int
        cell = writer.cell(source)
        if cell is not None:
            writer.class_is(cell, self.exact_class)
        return cell is not None

    def implied_class(self) -> Class | None:
        """What it says."""
        return self.exact_class

    def explain(self, value: Any) -> str:
        """The class that is there."""
        return f"type {class_name(type(value))}"

    def __str__(self) -> str:
        return f"has type {class_name(self.exact_class)}"


@dataclass(frozen=True, slots=True, eq=False)
class IdentityIs(Check):
    """This very object. The entry holds it weakly where that is possible, unless something else of
    the entry has it anyway (`kept`): a weak reference can be seen."""

    identities: ClassVar[tuple[str, ...]] = ("value",)

    value: Any
    kept: bool = False

    def holds(self, value: Any, *others: Any) -> bool:
        """Nothing equal will do."""
        return value is self.value

    def encode(self, writer: NativeCheckWriter, source: Source) -> bool:
        """One comparison."""
        cell = writer.cell(source)
        if cell is not None:
            writer.object_is(cell, self.value, weakly=not self.kept)
        return cell is not None

    def implied_class(self) -> Class | None:
        """That of the object, unless it can be given another."""
        return lasting_class(self.value)

    def weakly(self) -> Check:
        """Without the object, if it can be referred to so."""
        if self.kept:
            return self
        try:
            return WeakIdentity(weakref.ref(self.value), str(self))
        except TypeError:
            return self

    def __str__(self) -> str:
        return f"is <{short_class_name(type(self.value))} at {id(self.value):#x}>"


@dataclass(frozen=True, slots=True, eq=False)
class WeakIdentity(Check):
    """`IdentityIs` as a finished entry keeps it: without the object."""

    reference: weakref.ref[Any]
    text: str

    def holds(self, value: Any, *others: Any) -> bool:
        """Nothing is an object that is gone."""
        found = self.reference()
        return found is not None and value is found

    def __str__(self) -> str:
        return self.text if self.reference() is not None else f"{self.text} (gone)"


@dataclass(frozen=True, slots=True)
class Equals(Check):
    """A constant of the same exact type and value (0.0 is not -0.0, a NaN is only itself)."""

    value: Any

    def holds(self, value: Any, *others: Any) -> bool:
        """The same constant (`constants.py`)."""
        return same_constant(value, self.value)

    def encode(self, writer: NativeCheckWriter, source: Source) -> bool:
        """By what the constant is, and by what is known of the source without an object."""
        wanted = self.value
        if isinstance(source, Overlap):
            return wanted is False and writer.are_apart(source)
        if isinstance(source, Distance):
            return type(wanted) is int and writer.distance_is(source, wanted)
        if isinstance(source, KeysOf):
            return type(wanted) is tuple and writer.all_keys_are(source, wanted)
        if writer.is_number(source):
            return type(wanted) is int and writer.number_is(source, wanted)
        cell = writer.cell(source) if _has_native_form(wanted) else None
        if cell is not None:
            _write_constant(writer, cell, wanted)
        return cell is not None

    def implied_class(self) -> Class | None:
        """That of the constant, unless it can be given another."""
        return lasting_class(self.value)

    def __str__(self) -> str:
        return f"== {shown(self.value)}"


_TUPLES = (tuple, torch.Size)


def _has_native_form(constant: Any) -> bool:
    kind = type(constant)
    if is_among(kind, _TUPLES):
        return all(map(_has_native_form, constant))
    return kind is int or kind is float or kind is str or by_identity(constant)


def _write_constant(writer: NativeCheckWriter, cell: Cell, constant: Any) -> None:
    kind = type(constant)
    if is_among(kind, _TUPLES):
        writer.tuple_is(cell, kind, len(constant))
        for index, one in enumerate(constant):
            _write_constant(writer, writer.part(cell, index), one)
    elif kind is int:
        writer.int_is(cell, constant)
    elif kind is float and constant == constant:
        writer.float_is(cell, constant)
    elif kind is str:
        writer.text_is(cell, constant)
    else:
        writer.object_is(cell, constant, weakly=False)


@dataclass(frozen=True, slots=True)
class Compares(Check):
    """An exact float of which `value operation other` is `outcome`; `other` None: the value itself
    (a NaN is not equal to itself)."""

    operation: str
    other: float | int | None
    outcome: bool

    def holds(self, value: Any, *others: Any) -> bool:
        """Not an int."""
        if type(value) is not float:
            return False
        other = value if self.other is None else self.other
        return COMPARISONS[self.operation](value, other) is self.outcome

    def encode(self, writer: NativeCheckWriter, source: Source) -> bool:
        """Where the other number is a float, or can be one."""
        cell = writer.cell(source)
        return cell is not None and writer.float_compares(
            cell, self.operation, self.other, self.outcome
        )

    def implied_class(self) -> Class | None:
        """Not an int."""
        return float

    def __str__(self) -> str:
        other = "itself" if self.other is None else repr(self.other)
        return f"{'' if self.outcome else 'not '}{self.operation} {other}"


@dataclass(frozen=True, slots=True)
class ComparesWith(Check):
    """An exact float of which `value operation other` is `outcome`, the other another exact float
    from outside: `if loss < best`, both of which change."""

    operation: str
    other: Source
    outcome: bool

    def holds(self, value: Any, *others: Any) -> bool:
        """Neither is an int."""
        (other,) = others
        if type(value) is not float or type(other) is not float:
            return False
        return COMPARISONS[self.operation](value, other) is self.outcome

    def reads(self) -> tuple[Source, ...]:
        """The other number."""
        return (self.other,)

    def encode(self, writer: NativeCheckWriter, source: Source) -> bool:
        """Both are read, and compared."""
        first, second = writer.cell(source), writer.cell(self.other)
        if first is None or second is None:
            return False
        writer.floats_compare(first, second, self.operation, self.outcome)
        return True

    def implied_class(self) -> Class | None:
        """Not an int."""
        return float

    def __str__(self) -> str:
        return f"{'' if self.outcome else 'not '}{self.operation} {self.other}"


@dataclass(frozen=True, slots=True)
class LengthIs(Check):
    """The length of a list, tuple, dict, set, frozenset, deque, range, str or bytes, past any
    `__len__` of a subclass; of `exact_class` alone, where that is known."""

    length: int
    exact_class: Class | None = None

    def holds(self, value: Any, *others: Any) -> bool:
        """False of what has no plain length."""
        if self.exact_class is not None and type(value) is not self.exact_class:
            return False
        try:
            return length(value) == self.length
        except UNREADABLE:
            return False

    def encode(self, writer: NativeCheckWriter, source: Source) -> bool:
        """One look at the class and the length, where the class is known."""
        kind = writer.type_of(source) if self.exact_class is None else self.exact_class
        return kind is not None and writer.length_is(source, kind, self.length)

    def implied_class(self) -> Class | None:
        """If it says one."""
        return self.exact_class

    def of_class(self, exact_class: Class) -> Check:
        """One look at the class and the length."""
        return replace(self, exact_class=exact_class) if self.exact_class is None else self

    def explain(self, value: Any) -> str:
        """The class, where it is another; the length that is there."""
        if self.exact_class is not None and type(value) is not self.exact_class:
            return f"type {class_name(type(value))}"
        try:
            return f"length {length(value)}"
        except UNREADABLE:
            return written(value)

    def __str__(self) -> str:
        if self.exact_class is None:
            return f"has length {self.length}"
        return f"is {class_name(self.exact_class)} of length {self.length}"


@dataclass(frozen=True, slots=True, eq=False)
class ContentsAre(Check):
    """A dict, list or set that holds these very objects, in this order: of a dict its keys, then
    its values. (A table of functions, by operators.)"""

    identities: ClassVar[tuple[str, ...]] = ("items[]",)

    exact_class: Class
    items: tuple[Any, ...]

    @classmethod
    def of(cls, value: Any) -> ContentsAre:
        """What a container holds now."""
        return cls(type(value), _contents(value))

    def holds(self, value: Any, *others: Any) -> bool:
        """Nothing equal will do."""
        if type(value) is not self.exact_class or not is_among(type(value), _HOLDERS):
            return False
        found = _contents(value)
        same = (one is other for one, other in zip(found, self.items, strict=False))
        return len(found) == len(self.items) and all(same)

    def implied_class(self) -> Class | None:
        """The container's."""
        return self.exact_class

    def __str__(self) -> str:
        return f"is {class_name(self.exact_class)} that holds the same {len(self.items)} objects"


_HOLDERS = (dict, list, set)


def _contents(value: Any) -> tuple[Any, ...]:
    return (*value, *value.values()) if type(value) is dict else tuple(value)


@dataclass(frozen=True, slots=True)
class KeysAre(Check):
    """The keys of an exact dict, in order (constant keys only)."""

    keys: tuple[Any, ...]

    def holds(self, value: Any, *others: Any) -> bool:
        """A mapping of another class has another order: `KeysOf`."""
        return type(value) is dict and same_items(list(value), self.keys)

    def encode(self, writer: NativeCheckWriter, source: Source) -> bool:
        """Where all are text or integers of 64 bits."""
        cell = writer.cell(source)
        return cell is not None and writer.keys_are(cell, dict, self.keys)

    def implied_class(self) -> Class | None:
        """Keys of other mappings have other checks."""
        return dict

    def explain(self, value: Any) -> str:
        """The keys that are there."""
        if type(value) is not dict:
            return written(value)
        return cut(f"keys [{', '.join(map(written, value))}]")

    def __str__(self) -> str:
        return f"has keys {shown(list(self.keys))}"


@dataclass(frozen=True, slots=True)
class HasKey(Check):
    """Whether a dict (or an instance of a subclass) has a key: `present` says which."""

    key: Any
    present: bool

    def holds(self, value: Any, *others: Any) -> bool:
        """Past any `__contains__` of a subclass."""
        kind = type(value)
        return issubclass(kind, dict) and dict.__contains__(value, self.key) is self.present

    def encode(self, writer: NativeCheckWriter, source: Source) -> bool:
        """Where looking the key up is C code."""
        return writer.has_key(source, self.key, self.present)

    def explain(self, value: Any) -> str:
        """What is no dict is told by its class."""
        if issubclass(type(value), dict):
            return f"{'no' if self.present else 'a'} key {written(self.key)}"
        return written(value)

    def __str__(self) -> str:
        return f"{'has' if self.present else 'has no'} key {shown(self.key)}"


@dataclass(frozen=True, slots=True)
class SameObjects(Check):
    """The value at the guard's source is the one at each of `others` (`same`), or at none."""

    others: tuple[Source, ...]
    same: bool

    def holds(self, value: Any, *others: Any) -> bool:
        """Identity alone counts."""
        return all((value is other) is self.same for other in others)

    def reads(self) -> tuple[Source, ...]:
        """The others."""
        return self.others

    def encode(self, writer: NativeCheckWriter, source: Source) -> bool:
        """One comparison for each."""
        cells = [writer.cell(one) for one in (source, *self.others)]
        first = cells[0]
        if first is None:
            return False
        for other in cells[1:]:
            if other is not None:
                writer.same(first, other, self.same)
        return None not in cells

    def explain(self, value: Any) -> str:
        """Which objects they are says nothing to people."""
        return "another object" if self.same else "one of them"

    def __str__(self) -> str:
        names = ", ".join(map(str, self.others))
        return f"{'is' if self.same else 'is not any of'} {names}"


@dataclass(frozen=True, slots=True, eq=False)
class ClassAttributesAre(Check):
    """The source is a class; looking `names` up along its MRO (dicts only, no metaclass, no
    descriptor called) still finds these very objects, or ABSENT: what a program asks of torch's
    classes. `names` and `values` are equally long."""

    identities: ClassVar[tuple[str, ...]] = ("values[]",)

    names: tuple[str, ...]
    values: tuple[Any, ...]

    def holds(self, value: Any, *others: Any) -> bool:
        """False of what is no class."""
        try:
            return not self._changed(value)
        except UNREADABLE:
            return False

    def _changed(self, value: Any) -> list[str]:
        pairs = zip(self.names, self.values, strict=True)
        return [name for name, found in pairs if resolve(value, name) is not found]

    def encode(self, writer: NativeCheckWriter, source: Source) -> bool:
        """One record for all names."""
        cell = writer.cell(source)
        if cell is not None:
            writer.class_finds(cell, self.names, self.values)
        return cell is not None

    def explain(self, value: Any) -> str:
        """The names that mean something else now."""
        if not issubclass(type(value), type):
            return written(value)
        return f"another {', '.join(self._changed(value))}"

    def __str__(self) -> str:
        return f"still has its own {', '.join(self.names)}"


@dataclass(frozen=True, slots=True, eq=False)
class ItemsAre(Check):
    """The source is a dict, and under `names` it holds these very objects: what torch's own Python
    functions call, in their modules. `names` and `values` are equally long."""

    identities: ClassVar[tuple[str, ...]] = ("values[]",)

    names: tuple[str, ...]
    values: tuple[Any, ...]

    def holds(self, value: Any, *others: Any) -> bool:
        """False of what is no dict."""
        return issubclass(type(value), dict) and not self._changed(value)

    def _changed(self, value: dict[str, Any]) -> list[str]:
        pairs = zip(self.names, self.values, strict=True)
        return [name for name, found in pairs if dict.get(value, name, ABSENT) is not found]

    def encode(self, writer: NativeCheckWriter, source: Source) -> bool:
        """One record for all names."""
        cell = writer.cell(source)
        if cell is not None:
            writer.items_are(cell, self.names, self.values)
        return cell is not None

    def explain(self, value: Any) -> str:
        """The names that mean something else now."""
        if not issubclass(type(value), dict):
            return written(value)
        return f"another {', '.join(self._changed(value))}"

    def __str__(self) -> str:
        return f"still has its own {', '.join(self.names)}"


@dataclass(frozen=True, slots=True)
class RegistrationsAre(Check):
    """Nothing has been registered with an abstract class since: what such a class does not take for
    its own is so until then. (CPython counts the registrations of all of them.)"""

    count: Any  # nothing is said of it but that it differs

    def holds(self, value: Any, *others: Any) -> bool:
        """Whatever the value is."""
        return bool(abc.get_cache_token() == self.count)

    def explain(self, value: Any) -> str:
        """How many there are."""
        return f"{abc.get_cache_token()} registrations"

    def __str__(self) -> str:
        return f"has the first {self.count} registrations of abstract classes"


@dataclass(frozen=True, slots=True, eq=False)
class MroLookupIs(Check):
    """`ClassAttributesAre` for one name of any class: late patches of methods, class attributes and
    bases are noticed by it."""

    identities: ClassVar[tuple[str, ...]] = ("value",)

    name: str
    value: Any

    def holds(self, value: Any, *others: Any) -> bool:
        """False of what is no class."""
        try:
            return resolve(value, self.name) is self.value
        except UNREADABLE:
            return False

    def encode(self, writer: NativeCheckWriter, source: Source) -> bool:
        """As of several names."""
        cell = writer.cell(source)
        if cell is not None:
            writer.class_finds(cell, (self.name,), (self.value,))
        return cell is not None

    def explain(self, value: Any) -> str:
        """What the class finds now."""
        if not issubclass(type(value), type):
            return written(value)
        found = resolve(value, self.name)
        return "nothing" if found is ABSENT else f"<{short_class_name(type(found))}>"

    def __str__(self) -> str:
        found = "nothing" if self.value is ABSENT else f"<{short_class_name(type(self.value))}>"
        return f"resolves {self.name!r} to {found}"
