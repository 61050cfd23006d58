"""Members of enumerations: each is one object for good, of a class that may be the user's.

Enters: members of `enum.Enum` classes. Leaves: `Member` for one that holds nothing but attributes,
which is an object like any other; `MixedMember` for one that is also a number or text, a constant.
Invariant: no method of the user's is run while capturing, and what a member answers is relied upon:
its special methods, and, where those of `enum` look at them, `_name_` and `_value_`, which may be
written.

    class Mode(enum.Enum): ...        Member: `Mode.A == mode` by identity, `repr` interpreted
    class Level(enum.IntEnum): ...    MixedMember: `Level.LOW + 1` folded, no own `__str__`
"""

from __future__ import annotations

import enum
import operator
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from windfall.frontend.breaks import UNKNOWN_ATTRIBUTE, UNKNOWN_CALL, UNKNOWN_OPERATION, stop
from windfall.frontend.name_tables import words
from windfall.frontend.values.base import Value
from windfall.frontend.values.class_value import Class, find, relied
from windfall.frontend.values.constant import BINARY, COMPARE, Constant
from windfall.frontend.values.function import Method
from windfall.frontend.values.objects import Object, is_plain_class
from windfall.frontend.values.wrap import wraps_if
from windfall.ir.guard import ABSENT, Equals
from windfall.ir.reading import class_name, dict_of, is_a, is_among
from windfall.ir.source import Known, Source

if TYPE_CHECKING:
    from windfall.frontend.recipe import Recipe
    from windfall.frontend.services import Machine

_FIELDS = ("name", "value")
_OF_C = (types.WrapperDescriptorType, types.MethodDescriptorType, types.BuiltinFunctionType)
_NAMES = {symbol: f"__{function.__name__.strip('_')}__" for symbol, function in BINARY.items()}


def _is_of_enum(raw: Any) -> bool:
    """Whether it was written by the library."""
    inner = raw.__func__ if is_among(type(raw), (classmethod, staticmethod)) else raw
    return type(inner) is types.FunctionType and inner.__globals__ is vars(enum)


def _field(machine: Machine, cls: type, name: str) -> str:
    """Under which name the dictionary has what is asked for."""
    untouched = name in _FIELDS and relied(machine, cls, name) is vars(enum.Enum)[name]
    return f"_{name}_" if untouched else name


def _rely_on_field(machine: Machine, found: Value, member: Any, name: str) -> None:
    """Rely on what a member has for code of the library's to see: not what was written to it since
    the segment began, which is not there yet."""
    known = found.as_constant(machine) if found.is_constant() else ABSENT
    if known is not dict_of(member).get(name):
        stop(UNKNOWN_ATTRIBUTE, f"{name} of a member of {class_name(type(member))}")


def _combined(
    machine: Machine, name: str, function: Callable[..., Any], *members: Member
) -> Value | None:
    """What an operator of the library's flags makes of flags of one class; None: it is another's,
    or would ask the user what a missing member is."""
    kind = members[0].python_type()
    if not issubclass(kind, enum.Flag) or any(one.python_type() is not kind for one in members):
        return None
    asked = (name, "_missing_", "_iter_member_", "__new__")
    if not all(_is_of_enum(relied(machine, kind, one)) for one in asked):
        return None
    for one in members:
        one.rely_on_field(machine, "_value_")
    try:
        made = function(*(one.real for one in members))
    except (TypeError, ValueError):  # of a value that was written
        return None
    return machine.values.known(made, class_name(kind))


class Member(Object):
    """A member with attributes alone."""

    __slots__ = ()

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """As of any object: `name` and `value` stand under other names in its dictionary."""
        return super().get_attribute(machine, _field(machine, self.cls.real, name))

    def rely_on_field(self, machine: Machine, name: str) -> None:
        """Rely on what its dictionary has."""
        _rely_on_field(machine, super().get_attribute(machine, name), self.real, name)

    def key(self, machine: Machine) -> Any:
        """By identity: the library hashes it by its name, and leaves equality at that."""
        is_plain = self.cls.find(machine, "__eq__") is find(object, "__eq__")
        if not is_plain or not _is_of_enum(self.cls.find(machine, "__hash__")):
            stop(UNKNOWN_OPERATION, f"{self.describe()} as a key")
        self.rely_on_field(machine, "_name_")
        self.guard(machine, "value", Equals(self.real))  # strongly: a weak reference is seen
        return self

    def graph_argument(self, machine: Machine) -> tuple[Any, Any]:
        """The very member."""
        self.refuse_override(machine)
        self.guard(machine, "value", Equals(self.real))
        return self.real, self.real

    def binary(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """Flags are combined."""
        if not isinstance(other, Member):
            return None
        return _combined(machine, _NAMES[operation], BINARY[operation], self, other)

    def unary(self, machine: Machine, operation: str) -> Value:
        """A flag is inverted."""
        found = _combined(machine, "__invert__", operator.inv, self) if operation == "~" else None
        return found if found is not None else super().unary(machine, operation)


# ------------------------------------------------------------------- members that are also numbers

# What C code may ask an immutable object for, whatever it makes of it.
_ASKED = words(f"""
    __repr__ __str__ __format__ __hash__ __bool__ __len__ __int__ __index__ __float__ __complex__
    __bytes__ __iter__ __contains__ __getitem__ __neg__ __pos__ __invert__ __abs__ __round__
    __trunc__ __floor__ __ceil__ __divmod__ __rdivmod__ __reversed__ __fspath__ __getattribute__
    __getattr__ __class__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__
    {" ".join(_NAMES.values())} {" ".join(one.replace("__", "__r", 1) for one in _NAMES.values())}
""")


class MixedMember(Constant):
    """A member of a class that also derives from `int`, `str` or the like."""

    __slots__ = ()
    has_own_class = True

    def describe(self) -> str:
        """Without asking it."""
        return f"{class_name(type(self.value))} member"

    def as_constant(self, machine: Machine) -> Any:
        """The object, for whatever C code may ask of it."""
        return self._asked(machine, *_ASKED)

    def itself(self, machine: Machine) -> Any:
        """The object, for who asks it nothing."""
        return self._asked(machine)

    def _asked(self, machine: Machine, *names: str) -> Any:
        """The object, to be asked for some special methods: one of the user's is called natively,
        one of the library's looks at the member's attributes."""
        if self.source is not None and not isinstance(self.source, Known):
            self.guard(machine, "value", Equals(self.value))
        kind = type(self.value)
        for name in names:
            raw = machine.guards.rely_on_answer(kind, name)
            if raw is ABSENT or is_among(type(raw), _OF_C) or name == "__class__":
                continue
            if not _is_of_enum(raw):
                stop(UNKNOWN_OPERATION, f"{self.describe()}, which has {name}")
            self._rely_on_fields(machine)
        return self.value

    def _rely_on_fields(self, machine: Machine) -> None:
        kind = type(self.value)
        if issubclass(kind, enum.Flag) and not _is_of_enum(relied(machine, kind, "_missing_")):
            stop(UNKNOWN_OPERATION, f"{self.describe()}, which has _missing_")
        for name in ("_name_", "_value_"):
            found = self._object(machine).get_attribute(machine, name)
            _rely_on_field(machine, found, self.value, name)

    def _object(self, machine: Machine) -> _Attributes:
        kind = type(self.value)
        cls = machine.values.known(kind, class_name(kind))
        assert isinstance(cls, Class)
        return _Attributes(cls, self)

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """As of any object."""
        self._asked(machine)
        name = _field(machine, type(self.value), name)
        return self._object(machine).get_attribute(machine, name)

    def refuse_override(self, machine: Machine) -> None:
        """As of any object."""
        self._asked(machine)
        self._object(machine).refuse_override(machine)

    def graph_argument(self, machine: Machine) -> tuple[Any, Any]:
        """The very member."""
        self.refuse_override(machine)
        return super().graph_argument(machine)

    def refuse_own(self, machine: Machine, *names: str) -> None:
        """Special methods that its class has from the user, now or later, are called natively."""
        self._asked(machine, *names)

    def key(self, machine: Machine) -> Any:
        """Hashed as the number or text that it is."""
        return self._asked(machine, "__hash__", "__eq__")

    def truth(self, machine: Machine) -> bool | Value:
        """Known."""
        return bool(self._asked(machine, "__bool__", "__len__"))

    def compare(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """With another constant."""
        if not isinstance(other, Constant):
            return None
        mirrored = _MIRRORED.get(operation, operation)
        one = self._asked(machine, f"__{COMPARE[operation].__name__}__")
        if isinstance(other, MixedMember):
            two = other._asked(machine, f"__{COMPARE[mirrored].__name__}__")
        else:
            two = other.as_constant(machine)
        try:
            return machine.values.literal(COMPARE[operation](one, two))
        except TypeError as error:
            raise machine.values.raised(error) from None

    def rebuild(self, recipe: Recipe) -> str:
        """The member under a name."""
        return recipe.known(self.value, type(self.value).__name__)


def own_equality(machine: Machine, left: Value, right: Value) -> Value | None:
    """`left == right`, where one is a member whose class has an `__eq__` in Python; None: neither.
    (Of `!=` C's own goes first, if the class has no `__ne__` in Python.)"""
    methods = [_own_method(machine, one) for one in (left, right)]
    if methods == [None, None]:
        return None
    sides = [
        machine.values.tuple([_bound(machine, one, method), other])
        for one, other, method in zip((left, right), (right, left), methods, strict=True)
    ]
    kinds = left.python_type(), right.python_type()
    if kinds[0] is not kinds[1] and issubclass(kinds[1], kinds[0]):
        sides.reverse()
    arguments = [machine.values.tuple(sides), machine.values.literal("=="), left, right]
    return machine.values.polyfill("first_implemented", arguments)


def _own_method(machine: Machine, value: Value) -> Any:
    if not isinstance(value, MixedMember):
        return None
    raw = machine.guards.rely_on_answer(type(value.value), "__eq__")
    is_own = isinstance(raw, types.FunctionType) and not _is_of_enum(raw)
    return raw if is_own else None


def _bound(machine: Machine, value: Value, method: Any) -> Value:
    if not isinstance(value, Constant) or (method is None and isinstance(value, MixedMember)):
        stop(UNKNOWN_OPERATION, f"{value.describe()} == a member that has __eq__")
    if method is None:
        return machine.values.method(value, "__eq__")
    return value.get_attribute(machine, "__eq__")


_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


class _Attributes(Object):
    """A member that is also a number, as an object: what it binds is bound to the member."""

    __slots__ = ("member",)

    def __init__(self, cls: Class, member: MixedMember) -> None:
        super().__init__(cls, Known(member.value, cls.real.__name__), member.value)
        self.member = member

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """By the class's own C code: one of the user's would see this object."""
        hook = self.cls.find(machine, "__getattribute__")
        if not isinstance(hook, types.WrapperDescriptorType):
            stop(UNKNOWN_ATTRIBUTE, f"{self.describe()} has its own __getattribute__")
        return self.plain_attribute(machine, name, self.fallback)

    def described(self, machine: Machine, name: str, raw: Any) -> Value:
        """Methods and properties; another descriptor would see this object."""
        if type(raw) is property and raw.fget is not None:
            getter = machine.values.known(raw.fget, f"{class_name(self.cls.real)}.{name}")
            return getter.call(machine, [self.member], {})
        found = super().described(machine, name, raw) if _binds_plainly(raw) else None
        if found is None:
            stop(UNKNOWN_ATTRIBUTE, f"{self.describe()}.{name}")
        if isinstance(found, Method) and found.owner is self:
            return type(found)(found.function, self.member)
        return found

    def fallback(self, machine: Machine, name: str) -> Value:
        """Through `__getattr__`."""
        raw = self.cls.find(machine, "__getattr__")
        if raw is ABSENT:
            return self.missing(machine, name)
        hook = self.cls.value_of(machine, "__getattr__", raw)
        return hook.call(machine, [self.member, machine.values.literal(name)], {})


def itself_copied(machine: Machine, member: Member | MixedMember) -> Value:
    """`copy.deepcopy` of a member: the library says that it is itself."""
    if not _is_of_enum(relied(machine, member.python_type(), "__deepcopy__")):
        stop(UNKNOWN_CALL, f"deepcopy of {member.describe()}")
    return member


def _binds_plainly(raw: Any) -> bool:
    kinds = (types.FunctionType, classmethod, staticmethod, *_OF_C)
    return is_among(type(raw), kinds) or find(type(raw), "__get__") is ABSENT


_HOLDING = (tuple, list, dict, set, frozenset)


@wraps_if(10, lambda value: is_a(value, enum.Enum))
def _wrap_enum(machine: Machine, value: Any, source: Source | None) -> Value:
    kind = type(value)
    known = source or Known(value, class_name(kind))
    if issubclass(kind, _HOLDING):  # whose items may be anything
        return machine.values.opaque(value, known)
    if not is_plain_class(kind):
        return MixedMember(value, source)
    cls = machine.values.known(kind, class_name(kind))
    assert isinstance(cls, Class)
    return machine.values.remember(value, Member(cls, known, value))
