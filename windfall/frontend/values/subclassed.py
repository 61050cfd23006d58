"""Instances of classes that derive from a builtin container: attributes and contents.

Enters: calls of such classes (`class Output(OrderedDict)`, named tuples) and instances from
outside. Leaves: `Subclassed` values: attribute lookup as of any object, and a value of the builtin
kind for what the container part holds. Invariant: methods of the builtin class see the contents
only, those of the user's class are interpreted; a rebuilt instance is made by the builtin's own
`__new__` and filled by its own methods, so no user code runs twice.

    class Output(OrderedDict): ...     Subclassed(cls=Output, kind=OrderedDict, contents=Ordered)
"""

from __future__ import annotations

import collections
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from windfall.frontend.breaks import ARGUMENTS, UNKNOWN_CALL, UNKNOWN_OPERATION, stop
from windfall.frontend.values.arity import fits
from windfall.frontend.values.base import Arguments, Keywords, Value
from windfall.frontend.values.calls import calls
from windfall.frontend.values.class_value import Class, find, is_abstract
from windfall.frontend.values.demands import misfit
from windfall.frontend.values.function import Function
from windfall.frontend.values.held import HeldDict, HeldList, OwnDict, OwnOrdered, held_items
from windfall.frontend.values.mapping import DICT_METHODS, Dict, filled
from windfall.frontend.values.objects import Object
from windfall.frontend.values.ordered import Ordered
from windfall.frontend.values.sequence import LIST_METHODS, List, Tuple
from windfall.frontend.values.wrap import wraps_if
from windfall.ir.guard import ABSENT
from windfall.ir.reading import class_name, flags_of, mro_of
from windfall.ir.source import Known, Source

if TYPE_CHECKING:
    from windfall.frontend.recipe import Recipe
    from windfall.frontend.services import Machine

_HEAP = 1 << 9  # Py_TPFLAGS_HEAPTYPE
KINDS: tuple[type, ...] = (collections.OrderedDict, dict, list, tuple)


def container_kind(cls: type) -> type | None:
    """The builtin container that a class of the user derives from, if that is all it has beside
    attributes."""
    if not flags_of(cls) & _HEAP:
        return None
    builtin = [base for base in mro_of(cls) if base is not object and not flags_of(base) & _HEAP]
    if builtin == [collections.OrderedDict, dict]:
        return collections.OrderedDict
    return builtin[0] if len(builtin) == 1 and builtin[0] in KINDS else None


_CREATED: dict[type, Callable[[Any], Value]] = {
    dict: OwnDict,
    collections.OrderedDict: OwnOrdered,
    list: lambda holder: HeldList(holder, []),
    tuple: lambda holder: Tuple([]),
}


class Subclassed(Object):
    """An instance of a class that derives from a builtin container."""

    __slots__ = ("_contents", "kind")

    def __init__(
        self,
        cls: Class,
        kind: type,
        contents: Value | None = None,
        source: Source | None = None,
        real: Any = None,
    ) -> None:
        super().__init__(cls, source, real)
        self.kind = kind
        self._contents = contents

    def contents(self, machine: Machine) -> Any:
        """What the container part holds, as a value of the builtin kind."""
        if self._contents is None:
            self._contents = self._read(machine)
        return self._contents

    def _read(self, machine: Machine) -> Value:
        if self.source is None or self.real is None:
            return _CREATED[self.kind](self)
        self.guard_type(machine)
        if issubclass(self.kind, dict):
            return HeldDict(self.real, self.source, self.kind)
        items = held_items(machine, self.real, self.source, self.kind)
        return HeldList(self, items) if self.kind is list else Tuple(items)

    def overrides(self, machine: Machine, *names: str) -> bool:
        """Whether the class has a method of its own for any of these."""
        return any(self.cls.find(machine, name) is not find(self.kind, name) for name in names)

    def key(self, machine: Machine) -> Any:
        """Tuples without an equality of their own are hashed by their items."""
        if self.kind is not tuple or self.overrides(machine, "__eq__", "__hash__"):
            stop(UNKNOWN_OPERATION, f"{self.describe()} as a key")
        self.guard_type(machine)
        return self.contents(machine).key(machine)

    # --------------------------------------------------------------------- the builtin's methods

    def builtin_method(
        self, machine: Machine, name: str, arguments: Arguments, keywords: Keywords
    ) -> Value:
        """`kind.name(self, ...)`: a method of the builtin class, past the user's own."""
        rule = _METHODS.get((self.kind, name)) or _METHODS.get((object, name))
        if rule is not None:
            return rule(self, machine, arguments, keywords)
        if name not in _ALLOWED[self.kind]:
            stop(UNKNOWN_OPERATION, f"{self.kind.__name__}.{name} of {self.describe()}")
        real = getattr(self.kind, name)
        bad = misfit(real, [self, *arguments], keywords) is not None
        if bad or not fits(real, len(arguments) + 1, keywords):
            stop(ARGUMENTS, f"{self.kind.__name__}.{name}")
        if name in _WRITERS.get(self.kind, ()):
            self.writable(machine, name)
        contents = self.contents(machine)
        result: Value = contents.call_method(machine, name, arguments, keywords)
        return result

    def writable(self, machine: Machine, name: str) -> None:
        """Refuse what is no write of single items to the list part of one from outside."""
        if self.source is not None and self.kind is list and name == "__init__":
            stop(UNKNOWN_OPERATION, f"{self.kind.__name__}.{name} of {self.describe()}")
        self.guard_type(machine)

    def _through(self, machine: Machine, name: str, *arguments: Value) -> Value | None:
        """A special method: the user's own, or the builtin's; None: the class has none."""
        self.guard_type(machine)
        raw = self.cls.find(machine, name)
        if raw is ABSENT or raw is None:
            return None
        if raw is find(self.kind, name):
            return self.builtin_method(machine, name, list(arguments), {})
        hook = self.cls.value_of(machine, name, raw)
        if not isinstance(hook, Function):
            stop(UNKNOWN_CALL, f"{self.describe()}.{name}")
        return hook.call(machine, [self, *arguments], {})

    def get_item(self, machine: Machine, key: Value) -> Value:
        """`__getitem__`."""
        found = self._through(machine, "__getitem__", key)
        assert found is not None, "every container has items"
        return found

    def length(self, machine: Machine) -> Value:
        """`__len__`."""
        found = self._through(machine, "__len__")
        assert found is not None, "every container has a length"
        return found

    def iterate(self, machine: Machine) -> Value:
        """`__iter__`."""
        found = self._through(machine, "__iter__")
        assert found is not None, "every container is iterable"
        return found

    def contains(self, machine: Machine, item: Value) -> Value:
        """`__contains__`."""
        if self.overrides(machine, "__contains__"):
            return super().contains(machine, item)
        self.guard_type(machine)
        return self.builtin_method(machine, "__contains__", [item], {})

    def truth(self, machine: Machine) -> bool | Value:
        """`__bool__`, `__len__`."""
        self.guard_type(machine)
        if self.overrides(machine, "__bool__", "__len__"):
            return super().truth(machine)
        answer: bool = self.contents(machine).truth(machine)
        return answer

    def set_item(self, machine: Machine, key: Value, value: Value) -> None:
        """`__setitem__`."""
        if self.overrides(machine, "__setitem__"):
            super().set_item(machine, key, value)
        else:
            self.writable(machine, "__setitem__")
            self.contents(machine).set_item(machine, key, value)

    def delete_item(self, machine: Machine, key: Value) -> None:
        """`__delitem__`."""
        if self.overrides(machine, "__delitem__"):
            super().delete_item(machine, key)
        else:
            self.writable(machine, "__delitem__")
            self.contents(machine).delete_item(machine, key)

    def compare(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """By contents, where the class leaves that to the builtin."""
        name = {"==": "__eq__", "!=": "__ne__"}.get(operation)
        if name is None or self.overrides(machine, name):
            return None
        self.guard_type(machine)
        if isinstance(other, Subclassed):
            if other.overrides(machine, name):
                return None
            other.guard_type(machine)
            if self.kind is other.kind is collections.OrderedDict:
                stop(UNKNOWN_OPERATION, f"equality of {self.describe()} with its like")
            other = other.contents(machine)
        found: Value | None = self.contents(machine).compare(machine, operation, other)
        return found

    def binary(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """Of tuples and lists: concatenation and repetition give the builtin kind."""
        names = {"+": "__add__", "*": "__mul__"}
        if operation not in names or issubclass(self.kind, dict):
            return None
        if self.overrides(machine, names[operation]):
            return None
        self.guard_type(machine)
        plain = other.contents(machine) if isinstance(other, Subclassed) else other
        found: Value | None = self.contents(machine).binary(machine, operation, plain)
        return found

    def unpack(self, machine: Machine) -> list[Value]:
        """Its items, where the class leaves iterating to the builtin."""
        if self.overrides(machine, "__iter__"):
            return super().unpack(machine)
        self.guard_type(machine)
        found: list[Value] = self.contents(machine).unpack(machine)
        return found

    def graph_argument(self, machine: Machine) -> tuple[Any, Any]:
        """Of tuples and lists: their items."""
        if issubclass(self.kind, dict) or self.overrides(machine, "__iter__", "__getitem__"):
            return super().graph_argument(machine)
        self.refuse_override(machine)
        found: tuple[Any, Any] = self.contents(machine).graph_argument(machine)
        return found

    def described(self, machine: Machine, name: str, raw: Any) -> Value:
        """The fields of named tuples are read by a descriptor of C."""
        if type(raw) is _FIELD:
            index = int(raw.__reduce__()[1][0])
            items: list[Value] = self.contents(machine).items(machine)
            return items[index]
        return super().described(machine, name, raw)

    # ---------------------------------------------------------------------------------- leaving

    def rebuild(self, recipe: Recipe) -> str:
        """Made by the builtin's `__new__`, filled by its own methods."""
        cls, kind = recipe.name(self.cls), recipe.known(self.kind, f"{self.kind.__name__}_")
        contents = self._contents if self._contents is not None else _CREATED[self.kind](self)
        if isinstance(contents, Tuple):
            name = recipe.bind(self, f"{kind}.__new__({cls}, {recipe.expression(contents)})")
        else:
            name = recipe.bind(self, f"{kind}.__new__({cls})")
        if isinstance(contents, Dict):
            for key, value in contents.present():
                shown = recipe.key(contents, key)
                recipe.later(f"{kind}.__setitem__({name}, {shown}, {{}})", value)
        elif isinstance(contents, List):
            for value in contents._items or ():
                recipe.later(f"{kind}.append({name}, {{}})", value)
        self.fill_attributes(recipe, name)
        self.fill_slots(recipe, name)
        return name


_FIELD: type = type(vars(collections.namedtuple("_Probe", "field"))["field"])

_ALLOWED: dict[type, frozenset[str]] = {
    dict: frozenset(DICT_METHODS),
    # `copy`, `pop`, `popitem`, `setdefault` of an OrderedDict go through the user's methods.
    collections.OrderedDict: frozenset(DICT_METHODS) - {"copy", "pop", "popitem", "setdefault"},
    list: frozenset(LIST_METHODS),
    tuple: frozenset({"index", "count"}),
}
_WRITERS: dict[type, frozenset[str]] = {
    list: frozenset(LIST_METHODS) - {"copy", "index", "count"},
}

Rule = Callable[[Subclassed, "Machine", Arguments, Keywords], Value]
_METHODS: dict[tuple[type, str], Rule] = {}


def _method(name: str, *kinds: type) -> Callable[[Rule], Rule]:
    """A row: a method of these kinds with a rule of its own."""

    def register(rule: Rule) -> Rule:
        for kind in kinds or (object,):
            _METHODS[kind, name] = rule
        return rule

    return register


def _count(arguments: Arguments, keywords: Keywords, count: int, name: str) -> None:
    if keywords or len(arguments) != count:
        stop(ARGUMENTS, name)


@_method("__iter__")
def _iter(self: Subclassed, machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    _count(arguments, keywords, 0, "__iter__")
    found: Value = self.contents(machine).iterate(machine)
    return found


@_method("__len__")
def _len(self: Subclassed, machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    _count(arguments, keywords, 0, "__len__")
    found: Value = self.contents(machine).length(machine)
    return found


@_method("__contains__")
def _in(self: Subclassed, machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    _count(arguments, keywords, 1, "__contains__")
    found: Value = self.contents(machine).contains(machine, arguments[0])
    return found


@_method("__getitem__")
def _getitem(self: Subclassed, machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    """Of a dict, a missing key is asked of `__missing__`."""
    _count(arguments, keywords, 1, "__getitem__")
    contents = self.contents(machine)
    if isinstance(contents, Dict) and self.cls.find(machine, "__missing__") is not ABSENT:
        found = contents.lookup(machine, arguments[0].key(machine))
        if found is None:
            missing = self._through(machine, "__missing__", *arguments)
            assert missing is not None
            return missing
        return found
    result: Value = contents.get_item(machine, arguments[0])
    return result


@_method("__setitem__")
def _setitem(self: Subclassed, machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    _count(arguments, keywords, 2, "__setitem__")
    self.writable(machine, "__setitem__")
    self.contents(machine).set_item(machine, *arguments)
    return machine.values.literal(None)


@_method("__delitem__")
def _delitem(self: Subclassed, machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    _count(arguments, keywords, 1, "__delitem__")
    self.writable(machine, "__delitem__")
    self.contents(machine).delete_item(machine, *arguments)
    return machine.values.literal(None)


@_method("__eq__")
@_method("__ne__")
def _eq(self: Subclassed, machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    stop(UNKNOWN_OPERATION, f"equality of {self.describe()}")


@_method("update", collections.OrderedDict)
@_method("__init__", collections.OrderedDict)
def _ordered(self: Subclassed, machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    """Both set items through the user's `__setitem__`."""
    values = machine.values
    if len(arguments) > 1:
        stop(ARGUMENTS, "OrderedDict.update")
    if not arguments and not keywords:
        return values.literal(None)
    other = arguments[0] if arguments else values.tuple([])
    return values.polyfill("fill_mapping", [self, other, values.created_dict(keywords)])


@_method("__init__", dict)
def _dict_init(
    self: Subclassed, machine: Machine, arguments: Arguments, keywords: Keywords
) -> Value:
    """As `dict.update`; what is made comes behind it, so that no frame may run in between."""
    if arguments and machine.values.is_generator(arguments[0]):
        arguments[0].unpack(machine)  # which stops
    return _dict_update(self, machine, arguments, keywords)


@_method("update", dict)
def _dict_update(
    self: Subclassed, machine: Machine, arguments: Arguments, keywords: Keywords
) -> Value:
    """Past the user's methods."""
    if len(arguments) > 1:
        stop(ARGUMENTS, "dict.update")
    if arguments and isinstance(arguments[0], Object):
        stop(UNKNOWN_OPERATION, f"dict of {arguments[0].describe()}")
    contents = self.contents(machine)
    return DICT_METHODS["update"](contents, machine, *arguments, **keywords)


@_method("__init__", list)
def _list_init(
    self: Subclassed, machine: Machine, arguments: Arguments, keywords: Keywords
) -> Value:
    """What was there goes, the items come."""
    if keywords or len(arguments) > 1:
        stop(ARGUMENTS, "list.__init__")
    self.writable(machine, "__init__")
    items = arguments[0].unpack(machine) if arguments else []
    contents = self.contents(machine)
    contents.changed(machine)[:] = items
    return machine.values.literal(None)


# ----------------------------------------------------------------------------------- instances


def new_instance(machine: Machine, cls: Class, arguments: Arguments) -> Value:
    """`kind.__new__(cls, ...)`: only a tuple looks at its arguments."""
    kind = container_kind(cls.real)
    if kind is None or is_abstract(machine, cls):
        stop(UNKNOWN_CALL, f"{cls.describe()} has its own __new__")
    cls.rely(machine)
    if kind is not tuple:
        return Subclassed(cls, kind)
    if len(arguments) > 1:
        stop(ARGUMENTS, "tuple.__new__")
    items = arguments[0].unpack(machine) if arguments else []
    return Subclassed(cls, tuple, Tuple(items))


def _new(kind: type) -> None:
    def rule(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
        cls = arguments[0] if arguments else None
        if not isinstance(cls, Class) or container_kind(cls.real) is not kind:
            stop(UNKNOWN_CALL, f"{kind.__name__}.__new__")
        if kind is tuple and keywords:
            stop(ARGUMENTS, "tuple.__new__")
        if kind is tuple and len(arguments) == 2 and machine.values.runs_frames(arguments[1]):
            return machine.values.polyfill("tuple_new", arguments)
        return new_instance(machine, cls, arguments[1:])

    calls(kind.__new__)(rule)


for _kind in KINDS:
    if _kind.__new__ is not dict.__new__ or _kind is dict:
        _new(_kind)


def instantiate(
    machine: Machine, cls: Class, arguments: Arguments, keywords: Keywords
) -> Value | None:
    """`cls(...)` where `__new__` is the builtin's; None: no class of this kind."""
    kind = container_kind(cls.real)
    if kind is None or cls.find(machine, "__new__") is not find(kind, "__new__"):
        return None
    made = new_instance(machine, cls, arguments)
    assert isinstance(made, Subclassed)
    init = cls.find(machine, "__init__")
    if isinstance(init, types.FunctionType):
        hook = cls.value_of(machine, "__init__", init)
        assert isinstance(hook, Function)
        return machine.values.initialise(hook, made, arguments, keywords)
    if kind is tuple:
        return made if not keywords else stop(ARGUMENTS, cls.describe())
    if init is not find(kind, "__init__"):
        stop(UNKNOWN_CALL, f"{cls.describe()}.__init__")
    if len(arguments) > 1:
        stop(ARGUMENTS, cls.describe())
    if kind is collections.OrderedDict and (arguments or keywords):
        packed = [machine.values.tuple(arguments), machine.values.created_dict(keywords)]
        return machine.values.polyfill("filled_mapping", [made, *packed])
    made.builtin_method(machine, "__init__", arguments, keywords)
    return made


@calls(collections.OrderedDict)
def _ordered_dict(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    if len(arguments) > 1:
        stop(ARGUMENTS, "OrderedDict")
    if arguments and isinstance(arguments[0], Object):
        stop(UNKNOWN_OPERATION, f"OrderedDict of {arguments[0].describe()}")
    return filled(machine, Ordered({}), arguments, keywords)


@wraps_if(800, lambda value: container_kind(type(value)) is not None)
def _wrap_instance(machine: Machine, value: Any, source: Source | None) -> Value:
    cls = machine.values.known(type(value), class_name(type(value)))
    assert isinstance(cls, Class)
    kind = container_kind(type(value))
    assert kind is not None
    source = source or Known(value, type(value).__name__)
    if find(type(value), "__missing__") is not ABSENT:  # reading a key might run it
        return machine.values.opaque(value, source)
    return machine.values.remember(value, Subclassed(cls, kind, None, source, value))
