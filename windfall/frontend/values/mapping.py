"""Dictionaries: literals, arguments, globals of modules, instance dictionaries.

Enters: dicts. Leaves: guards on the keys that were asked for, entries of the effect log. Invariant:
a dict from outside is looked into key by key; only iterating or counting relies on all its keys.
"""

from __future__ import annotations

import collections
import enum
import types
import typing
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from windfall.frontend.bounds import admit, admit_growth, admit_writes
from windfall.frontend.breaks import NOT_A_GRAPH_ARGUMENT, UNKNOWN_OPERATION, stop
from windfall.frontend.classnames import short_name
from windfall.frontend.effects import restore
from windfall.frontend.values.base import NULL, Arguments, Keywords, Raised, Value, no_method
from windfall.frontend.values.constant import Constant
from windfall.frontend.values.demands import has
from windfall.frontend.values.unseen import same, settled
from windfall.frontend.values.watched import Watchers
from windfall.frontend.values.wrap import wraps
from windfall.ir.guard import Equals, HasKey, KeysAre
from windfall.ir.reading import dict_of, is_among, resolve
from windfall.ir.source import Item, KeysOf, Source

if TYPE_CHECKING:
    from windfall.frontend.recipe import Recipe
    from windfall.frontend.services import Machine

_PLAIN = (str, int, bool, float, bytes, type(None), complex, torch.dtype)
# How classes, functions, special forms (`typing.Union`) are hashed and compared: by identity.
# Members of enumerations are hashed by their name, which `Member.key` relies on.
_BY_IDENTITY: tuple[Any, ...] = (object.__hash__, type.__hash__, enum.Enum.__hash__)
_SAME: tuple[Any, ...] = (object.__eq__, type.__eq__)
_IDENTITY_KINDS = (type, types.FunctionType, type(typing.Union), enum.Enum)


def is_identity_key(key: Any) -> bool:
    """Whether a key from outside stands for itself."""
    kind = type(key)
    return isinstance(key, _IDENTITY_KINDS) and (
        kind.__hash__ in _BY_IDENTITY and kind.__eq__ in _SAME
    )


def is_class_key(key: Any) -> bool:
    """Whether a key, as `Value.key` gives it, stands for such an object."""
    return isinstance(key, Value) and is_identity_key(getattr(key, "real", None))


def is_plain_key(key: Any) -> bool:
    """Whether a key may stand in a source: constant, hashed without user code."""
    kind: Any = type(key)
    if isinstance(key, tuple) and kind.__hash__ is tuple.__hash__ and kind.__eq__ is tuple.__eq__:
        return all(is_plain_key(one) for one in tuple.__iter__(key))
    return is_among(kind, _PLAIN)


def is_its_key(machine: Machine, value: Value) -> bool:
    """Whether a key is told by what `Value.key` answers, its class too: an equal plain tuple stands
    for a `torch.Size` or a record, and is not it."""
    if isinstance(value, Constant):
        return True
    if value.python_type() is not tuple:
        return False
    return all(is_its_key(machine, one) for one in value.unpack(machine))


def _compares_by_user_code(table: dict[Any, Any]) -> bool:
    """Whether a dict has keys whose class says in Python what they are equal to: a key with the
    same hash would be compared with them."""
    kinds = {id(kind): kind for kind in map(type, table)}
    return any(
        not is_among(kind, _PLAIN) and isinstance(resolve(kind, "__eq__"), types.FunctionType)
        for kind in kinds.values()
    )


class Dict(Value):
    """A dict. `entries` are the known present items by key; complete where `whole`. Before that,
    `writes` is what the program did, in order, and a None in `entries` says: absent."""

    __slots__ = ("compares", "entries", "keys", "real", "unseen", "watchers", "whole", "writes")
    made_of: type = dict

    def __init__(
        self,
        entries: dict[Any, Value | None] | None = None,
        source: Source | None = None,
        real: dict[Any, Any] | None = None,
    ) -> None:
        super().__init__(source)
        self.entries: dict[Any, Value | None] = entries if entries is not None else {}
        self.keys: dict[Any, Value] = {}  # the keys as values, where they are no plain constants
        self.real = real
        self.whole = source is None
        self.compares: bool | None = None  # whether looking a key up may run code of the user
        self.unseen = False  # written at a key that varies
        self.writes: list[tuple[Any, Value | None]] = []
        self.watchers = Watchers()

    def python_type(self) -> type:
        """The exact class."""
        return self.made_of

    # ---------------------------------------------------------------------------------- reading

    def lookup(self, machine: Machine, key: Any) -> Value | None:
        """The item at a key (as `Value.key` gives it), or None."""
        if self.unseen:
            self._refuse_unseen()
        if self.whole or key in self.entries:
            found: Value | None = settled(self.entries.get(key))
            return found
        assert self.real is not None and self.source is not None
        if not is_plain_key(key) and not is_class_key(key):
            return self.load(machine).get(key)
        if self.compares is None:
            self.compares = _compares_by_user_code(self.real)
        if self.compares:
            stop(UNKNOWN_OPERATION, f"{self.describe()}, whose keys have an __eq__ of their own")
        self.guard_type(machine)
        real = getattr(key, "real", None) if isinstance(key, Value) else key
        if real in self.real:
            found = self.entries[key] = machine.values.wrap(
                self.real[real], Item(self.source, real)
            )
            machine.guards.found.append((self.source, real))
            return found
        self.guard(machine, ("absent", key), HasKey(real, False))
        self.entries[key] = None
        return None

    def load(self, machine: Machine) -> dict[Any, Value | None]:
        """All items, in order."""
        if self.unseen:
            self._refuse_unseen()
        if not self.whole:
            assert self.real is not None and self.source is not None
            admit(machine, len(self.real) + len(self.writes), self)
            if not all(is_plain_key(key) or is_identity_key(key) for key in self.real):
                stop(UNKNOWN_OPERATION, f"keys of {self.describe()}")
            self.guard_type(machine)
            self.rely_on_keys(machine)
            self.keep_tuples(machine, self.real, KeysOf(self.source))
            source, known = self.source, self.entries
            written = {key for key, _ in self.writes}
            whole: dict[Any, Value | None] = {}
            for given, value in self.real.items():
                key = (
                    given
                    if is_plain_key(given)
                    else machine.values.known(given, "key").key(machine)
                )
                if key in known and key not in written:
                    whole[key] = known[key]
                else:
                    whole[key] = machine.values.wrap(value, Item(source, given))
            for key, written_value in self.writes:
                if written_value is None:
                    whole.pop(key, None)
                else:
                    whole[key] = written_value
            self.entries, self.whole = whole, True
        return self.entries

    def _refuse_unseen(self) -> NoReturn:
        stop(UNKNOWN_OPERATION, f"{self.describe()} after a write at a number that varies")

    def rely_on_keys(self, machine: Machine) -> None:
        """Rely on there being these keys, in this order."""
        assert self.real is not None
        self.guard(machine, "keys", KeysAre(tuple(self.real)))

    def keep_tuples(self, machine: Machine, keys: Iterable[Any], where: Source) -> None:
        """Keys from outside that are objects of their own: those at `where`, in order."""
        for index, key in enumerate(keys):
            if isinstance(key, tuple):
                self.keys[key] = machine.values.wrap(key, Item(where, index))

    def present(self) -> Iterable[tuple[Any, Value]]:
        """Known items."""
        return [(key, value) for key, value in self.entries.items() if value is not None]

    def key_value(self, machine: Machine, key: Any) -> Value:
        """A key as a value."""
        return self.keys.get(key) or (
            key if isinstance(key, Value) else machine.values.literal(key)
        )

    def key_values(self, machine: Machine) -> list[Value]:
        """All keys."""
        return [self.key_value(machine, key) for key in self.load(machine)]

    def item_values(self, machine: Machine) -> list[Value]:
        """All items."""
        return [value for value in self.load(machine).values() if value is not None]

    def is_constant(self) -> bool:
        """Whether all is constant."""
        if any(isinstance(key, tuple) for key in self.keys):  # of a class of its own
            return False
        return self.whole and all(
            value is not None and value.is_constant() and not isinstance(key, Value)
            for key, value in self.entries.items()
        )

    def as_constant(self, machine: Machine) -> Any:
        """A plain copy."""
        entries = self.load(machine).items()
        made = {key: value.as_constant(machine) for key, value in entries if value is not None}
        return collections.OrderedDict(made) if self.made_of is collections.OrderedDict else made

    def graph_argument(self, machine: Machine) -> tuple[Any, Any]:
        """A dict of arguments."""
        held = {key: one for key, one in self.load(machine).items() if one is not None}
        if not all(isinstance(key, str) for key in held):
            stop(NOT_A_GRAPH_ARGUMENT, f"{self.describe()} with keys that are no strings")
        parts = {key: value.graph_argument(machine) for key, value in held.items()}
        return {k: v[0] for k, v in parts.items()}, {k: v[1] for k, v in parts.items()}

    # ---------------------------------------------------------------------------------- writing

    def store(self, machine: Machine, key: Any, value: Value | None) -> None:
        """Write (None: delete) at a key, and log it if the dict existed before."""
        if self.unseen:
            self._refuse_unseen()
        entries, writes = self.entries, len(self.writes)
        admit_growth(machine, len(entries) + 1 if self.whole else 0, self)
        existed, before = key in entries, entries.get(key)
        self.watchers.refuse_change(self.describe(), self.whole and existed != (value is not None))
        order = list(entries) if self.whole and value is None else None
        shown = self.key_value(machine, key)
        self._forget_key(machine, key, value is None)

        def restore() -> None:
            del self.writes[writes:]
            if existed:
                entries[key] = before
            else:
                entries.pop(key, None)
            if order is not None:
                copy = {name: entries[name] for name in order}
                entries.clear()
                entries.update(copy)

        machine.effects.undo(restore)
        if self.whole and value is None:
            entries.pop(key, None)
        else:
            entries[key] = value
        if not self.whole:
            self.writes.append((key, value))
        if self.source is not None:
            self.guard_type(machine)
            if before is not None and before.source is not None and value is not None:
                machine.effects.count(before, value)
            if value is None:
                machine.effects.add("del {}[{}]", self, shown)
            else:
                machine.effects.add("{}[{}] = {}", self, shown, value)

    def _forget_key(self, machine: Machine, key: Any, deleted: bool) -> None:
        """With its item goes the key as a value: a later one may be of another class."""
        named = self.keys.pop(key, None) if deleted else None
        if named is not None:
            machine.effects.undo(lambda: restore(self.keys, key, named))

    def set_item(self, machine: Machine, key: Value, value: Value) -> None:
        """`self[key] = value`."""
        if self.source is not None and key.python_type() is int and not isinstance(key, Constant):
            self._store_unseen(machine, key, value)
            return
        plain = key.key(machine)
        if not is_plain_key(plain):
            self.load(machine)
            self.keys.setdefault(plain, key)
        elif self._differs(machine, key) and self.lookup(machine, plain) is None:
            self.keys[plain] = key
            machine.effects.undo(lambda: restore(self.keys, plain, None))
        self.store(machine, plain, value)

    def _differs(self, machine: Machine, key: Value) -> bool:
        """Whether a new key is to be kept as a value: a tuple is an object of its own. (Not in a
        dict that is not known as a whole: each write there would rely on the key's absence.)"""
        return not (isinstance(key, Constant) if self.whole else is_its_key(machine, key))

    def _store_unseen(self, machine: Machine, key: Value, value: Value) -> None:
        """At a number that varies: from here on nothing is known of the items."""
        if self.python_type() is not dict:
            key.key(machine)  # needs its value
        before = self.unseen

        def restore() -> None:
            self.unseen = before

        machine.effects.undo(restore)
        self.guard_type(machine)
        self.unseen = True
        machine.effects.add("{}[{}] = {}", self, key, value)

    def delete_item(self, machine: Machine, key: Value) -> None:
        """`del self[key]`."""
        plain = key.key(machine)
        if self.lookup(machine, plain) is None:
            raise no_key(machine, key, plain)
        self.store(machine, plain, None)

    # ------------------------------------------------------------------------------- operations

    def get_item(self, machine: Machine, key: Value) -> Value:
        """`self[key]`."""
        plain = key.key(machine)
        found = self.lookup(machine, plain)
        if found is None:
            raise no_key(machine, key, plain)
        return found

    def contains(self, machine: Machine, item: Value) -> Value:
        """`key in self`."""
        plain = item.key(machine)
        found = self.lookup(machine, plain)
        if found is not None and not self.whole and found.source is not None:
            real = plain.real if is_class_key(plain) else plain
            self.guard(machine, ("present", plain), HasKey(real, True))
        return machine.values.literal(found is not None)

    def truth(self, machine: Machine) -> bool | Value:
        """Whether there are items."""
        return bool(machine.values.length_of(self))

    def length(self, machine: Machine) -> Value:
        """How many items."""
        untouched = not (self.whole or self.writes or self.unseen)
        if untouched and (self.known_length() or 0) > machine.facts.elements:
            return machine.values.literal(machine.values.length_of(self))
        return machine.values.literal(len(self.load(machine)))

    def known_length(self) -> int | None:
        """How many items, as far as is known."""
        if self.whole:
            return len(self.entries)
        return len(self.real) if self.real is not None else None

    def unpack(self, machine: Machine) -> list[Value]:
        """Its keys."""
        return self.key_values(machine)

    def iterate(self, machine: Machine) -> Value:
        """Over its keys."""
        return DictView(self, "keys").iterate(machine)

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """Methods."""
        if name in DICT_METHODS:
            return machine.values.method(self, name)
        no_method(machine, self, short_name(self.made_of), self.made_of, name)

    def call_method(
        self, machine: Machine, name: str, arguments: Arguments, keywords: Keywords
    ) -> Value:
        """A row of DICT_METHODS."""
        method = DICT_METHODS.get(name)
        if method is None:
            stop(UNKNOWN_OPERATION, f"dict.{name}")
        return method(self, machine, *arguments, **keywords)

    def compare(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """Equality where it is known."""
        if not isinstance(other, Dict) or operation not in ("==", "!="):
            return None
        mine, others = self.load(machine), other.load(machine)
        if mine.keys() != others.keys():
            return machine.values.literal(operation == "!=")
        if all(same(others[key], value) for key, value in mine.items()):
            return machine.values.literal(operation == "==")
        if self.is_constant() and other.is_constant():
            equal = self.as_constant(machine) == other.as_constant(machine)
            return machine.values.literal(equal == (operation == "=="))
        unequal = machine.values.literal(operation == "!=")
        return machine.values.polyfill("equal_mappings", [self, other, unequal])

    def binary(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """`|` of two dicts; a kind that derives from this one goes first."""
        if operation != "|" or not isinstance(other, Dict):
            return None
        if other.made_of is not self.made_of and issubclass(other.made_of, self.made_of):
            return None
        merged = self.copied(machine)
        merged.update(machine, other)
        return merged

    def reflected(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """`other | self`: of this one's kind."""
        if operation != "|" or not isinstance(other, Dict):
            return None
        merged = self.copied(machine)
        merged.clear(machine)
        merged.update(machine, other)
        merged.update(machine, self)
        return merged

    def in_place(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """`|=`."""
        if operation == "|" and isinstance(other, Dict):
            self.update(machine, other)
            return self
        return None

    # --------------------------------------------------------------------------------- methods

    def get(self, machine: Machine, key: Value, default: Value | None = None) -> Value:
        """`get`."""
        plain = key.key(machine)
        found = self.lookup(machine, plain)
        return found if found is not None else default or machine.values.literal(None)

    def copied(self, machine: Machine) -> Dict:
        """A new dict with the same items."""
        made = self.like(dict(self.load(machine)))
        made.keys = dict(self.keys)
        return made

    def like(self, entries: dict[Any, Value | None]) -> Dict:
        """Another one of its class."""
        return type(self)(entries)

    def update(self, machine: Machine, other: Value | None = None, /, **keywords: Value) -> Value:
        """`update`; any name may be a key."""
        if other is not None:
            admit_writes(machine, self, other)
        if isinstance(other, Dict):
            for key, value in list(other.load(machine).items()):
                self.set_item(machine, other.key_value(machine, key), _there(value))
        elif other is not None:
            if has(other, "keys"):
                stop(UNKNOWN_OPERATION, f"dict.update by {other.describe()}")
            for pair in other.unpack(machine):
                plain = is_among(pair.python_type(), (tuple, list, str))
                parts = pair.unpack(machine) if plain else []
                if len(parts) != 2:
                    stop(UNKNOWN_OPERATION, "dict.update of other than pairs")
                self.set_item(machine, parts[0], parts[1])
        for name, value in keywords.items():
            self.store(machine, name, value)
        return machine.values.literal(None)

    def take(self, machine: Machine, key: Value, default: Value | None = None) -> Value:
        """`pop`."""
        plain = key.key(machine)
        found = self.lookup(machine, plain)
        if found is None:
            if default is None:
                raise no_key(machine, key, plain)
            return default
        self.store(machine, plain, None)
        return found

    def take_last(self, machine: Machine) -> Value:
        """`popitem`."""
        entries = self.load(machine)
        if not entries:
            raise machine.values.raised(KeyError("popitem(): dictionary is empty"))
        key, value = next(reversed(entries.items()))
        shown = self.key_value(machine, key)
        self.store(machine, key, None)
        return machine.values.tuple([shown, _there(value)])

    def set_default(self, machine: Machine, key: Value, default: Value | None = None) -> Value:
        """`setdefault`."""
        found = self.lookup(machine, key.key(machine))
        if found is None:
            found = default or machine.values.literal(None)
            self.set_item(machine, key, found)
        return found

    def clear(self, machine: Machine) -> Value:
        """`clear`."""
        for key in list(self.load(machine)):
            self.store(machine, key, None)
        return machine.values.literal(None)

    def view_keys(self, machine: Machine) -> Value:
        """`keys`."""
        return DictView(self, "keys")

    def view_values(self, machine: Machine) -> Value:
        """`values`."""
        return DictView(self, "values")

    def view_items(self, machine: Machine) -> Value:
        """`items`."""
        return DictView(self, "items")

    def rebuild(self, recipe: Recipe) -> str:
        """A display; one that holds itself is filled after it was made."""

        def display() -> str:
            parts = (
                f"{recipe.key(self, key)}: {recipe.name(value)}" for key, value in self.present()
            )
            return "{" + ", ".join(parts) + "}"

        return recipe.container(self, "{}", display, "{}.update({})")


def no_key(machine: Machine, key: Value, plain: Any) -> Raised:
    """What a missing key raises. It holds the key itself: natively, where that is another object
    than the constant that it is looked up by."""
    if not is_plain_key(plain) or not _is_same_key(machine, key, plain):
        stop(UNKNOWN_OPERATION, "KeyError of an object")
    return machine.values.raised(KeyError(plain))


def _is_same_key(machine: Machine, key: Value, plain: Any) -> bool:
    if key.python_type() is not type(plain):
        return False
    if not isinstance(plain, tuple):
        return True
    parts = zip(key.unpack(machine), plain, strict=True)
    return all(_is_same_key(machine, one, other) for one, other in parts)


def _there(value: Value | None) -> Value:
    assert value is not None, "a whole dict has no absent items"
    return value


DICT_METHODS: dict[str, Callable[..., Value]] = {
    "get": Dict.get,
    "copy": lambda owner, machine: owner.copied(machine),  # kinds of dicts have their own
    "update": Dict.update,
    "pop": Dict.take,
    "popitem": Dict.take_last,
    "setdefault": Dict.set_default,
    "clear": Dict.clear,
    "keys": Dict.view_keys,
    "values": Dict.view_values,
    "items": Dict.view_items,
    "__contains__": lambda owner, machine, item: owner.contains(machine, item),
    "__getitem__": lambda owner, machine, key: owner.get_item(machine, key),
    "__len__": lambda owner, machine: owner.length(machine),
    "__iter__": lambda owner, machine: owner.iterate(machine),
}


def keys_in_order(kind: Any, real: Any) -> tuple[Any, ...] | None:
    """The keys, as this class tells them; None: of an `OrderedDict` that methods of `dict` wrote to
    past its own."""
    try:
        keys = tuple(kind.keys(real))
    except KeyError:
        return None
    return keys if len(keys) == dict.__len__(real) else None


class InstanceDict(Dict):
    """The dictionary of an object that the program makes: where that one lives on, its own."""

    __slots__ = ("owner",)

    def __init__(self, owner: Value) -> None:
        super().__init__({})
        self.owner = owner

    def forget(self) -> None:
        """Let go of the owner, which holds this: the capture is over."""
        self.owner = NULL

    def like(self, entries: dict[Any, Value | None]) -> Dict:
        """A plain dict."""
        return Dict(entries)

    def rebuild(self, recipe: Recipe) -> str:
        """Read from its owner, which is filled when it is made."""
        return f"{recipe.known(dict_of, 'dict_of')}({recipe.name(self.owner)})"

    def fill(self, recipe: Recipe, table: str) -> None:
        """The items, in their order, written to `table`."""
        for key, value in self.present():
            recipe.later(f"{table}[{recipe.key(self, key)}] = {{}}", value)


class Ordered(Dict):
    """An `OrderedDict`."""

    __slots__ = ()
    made_of = collections.OrderedDict

    def load(self, machine: Machine) -> dict[Any, Value | None]:
        """As of a dict, unless methods of `dict` wrote to it past its own."""
        if (
            not self.whole
            and self.real is not None
            and keys_in_order(self.made_of, self.real) is None
        ):
            stop(UNKNOWN_OPERATION, f"{self.describe()}, whose order and items differ")
        return super().load(machine)

    def rely_on_keys(self, machine: Machine) -> None:
        """Its order is its own, not that of the dict inside."""
        assert self.real is not None and self.source is not None
        if self.guarded is None or "keys" not in self.guarded:
            machine.guards.add(KeysOf(self.source), Equals(tuple(self.real)), "all keys")
            self.guarded = {*(self.guarded or ()), "keys"}

    def compare(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """Between two of this kind the order counts."""
        if isinstance(other, Ordered) and operation in ("==", "!="):
            mine, others = list(self.load(machine)), list(other.load(machine))
            if mine != others:
                return machine.values.literal(operation == "!=")
        return super().compare(machine, operation, other)

    def call_method(
        self, machine: Machine, name: str, arguments: Arguments, keywords: Keywords
    ) -> Value:
        """A dict's methods, and those that depend on the order."""
        if name == "popitem":
            return self.take_end(machine, *arguments, **keywords)
        if name == "move_to_end":
            return self.move_to_end(machine, *arguments, **keywords)
        return super().call_method(machine, name, arguments, keywords)

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """A dict's methods, and `move_to_end`."""
        if name == "move_to_end":
            return machine.values.method(self, name)
        return super().get_attribute(machine, name)

    def move_to_end(self, machine: Machine, key: Value, last: Value | None = None) -> Value:
        """`move_to_end`."""
        at_end = last is None or bool(last.as_constant(machine))
        plain, entries = key.key(machine), self.load(machine)
        if plain not in entries:
            if plain is None or isinstance(plain, tuple):  # CPython takes these for the arguments
                stop(UNKNOWN_OPERATION, "KeyError of None or a tuple")
            raise no_key(machine, key, plain)
        self.watchers.refuse_change(self.describe())
        before = dict(entries)

        def restore() -> None:
            entries.clear()
            entries.update(before)

        machine.effects.undo(restore)
        moved = entries.pop(plain)
        others = dict(entries)
        entries.clear()
        entries.update({**others, plain: moved} if at_end else {plain: moved, **others})
        if self.source is not None:
            shown = self.key_value(machine, plain)
            machine.effects.add(
                "{}.move_to_end({}, {})", self, shown, machine.values.literal(at_end)
            )
        return machine.values.literal(None)

    def take_end(self, machine: Machine, last: Value | None = None) -> Value:
        """`popitem`, from either end."""
        entries = self.load(machine)
        if not entries:
            raise machine.values.raised(KeyError("dictionary is empty"))
        keys = list(entries)
        key = keys[-1] if last is None or last.as_constant(machine) else keys[0]
        shown, value = self.key_value(machine, key), _there(entries[key])
        self.store(machine, key, None)
        return machine.values.tuple([shown, value])

    def rebuild(self, recipe: Recipe) -> str:
        """Made empty, then filled."""
        name = recipe.bind(self, f"{recipe.known(self.made_of, self.made_of.__name__)}()")
        for key, value in self.present():
            recipe.later(f"{name}[{recipe.key(self, key)}] = {{}}", value)
        return name


_VIEW_TYPES = {"keys": type({}.keys()), "values": type({}.values()), "items": type({}.items())}


# What `sets.py` does with views of keys.
KEYS_AS_SETS: dict[str, Callable[[Machine, DictView, str, Value], Value | None]] = {}


class DictView(Value):
    """`keys()`, `values()` or `items()`."""

    __slots__ = ("kind", "owner")

    def __init__(self, owner: Dict, kind: str) -> None:
        super().__init__()
        self.owner = owner
        self.kind = kind

    def python_type(self) -> type:
        """The view's class."""
        return _VIEW_TYPES[self.kind]

    def unpack(self, machine: Machine) -> list[Value]:
        """What it shows now."""
        if self.kind == "keys":
            return self.owner.key_values(machine)
        if self.kind == "values":
            return self.owner.item_values(machine)
        pairs = zip(self.owner.key_values(machine), self.owner.item_values(machine), strict=True)
        return [machine.values.tuple(list(pair)) for pair in pairs]

    def known_length(self) -> int | None:
        """As of the dict."""
        return self.owner.known_length()

    def iterate(self, machine: Machine) -> Value:
        """Over what it shows now."""
        return self._iterate(machine, list(self.owner.load(machine)), iter)

    def iterate_back(self, machine: Machine) -> Value:
        """`reversed` of what it shows now."""
        return self._iterate(machine, list(self.owner.load(machine))[::-1], reversed)

    def _iterate(self, machine: Machine, keys: list[Any], how: Any) -> Value:
        owner, kind = self.owner, self.kind
        sample: Any = owner.made_of()

        def read(machine: Machine, place: int) -> Value | None:
            if place >= len(keys):
                return None
            shown = owner.key_value(machine, keys[place])
            if kind == "keys":
                return shown
            value = _there(owner.load(machine)[keys[place]])
            return value if kind == "values" else machine.values.tuple([shown, value])

        real = type(how(getattr(sample, kind)()))
        made = machine.values.iterate_over(self, real, read, f"{how.__name__}({{}})")
        return owner.watchers.add(made)  # type: ignore[no-any-return]

    def length(self, machine: Machine) -> Value:
        """How many items."""
        return self.owner.length(machine)

    def truth(self, machine: Machine) -> bool | Value:
        """Whether there are items."""
        return self.owner.truth(machine)

    def binary(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """Keys as a set."""
        rule = KEYS_AS_SETS["operation"]
        return rule(machine, self, operation, other) if self.kind == "keys" else None

    def compare(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """Likewise."""
        rule = KEYS_AS_SETS["comparison"]
        return rule(machine, self, operation, other) if self.kind == "keys" else None

    def contains(self, machine: Machine, item: Value) -> Value:
        """Of keys only."""
        if self.kind == "keys":
            return self.owner.contains(machine, item)
        return super().contains(machine, item)

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """Methods of views."""
        if name in ("__iter__", "__len__", "__contains__"):
            return machine.values.method(self, name)
        stop(UNKNOWN_OPERATION, f"dict view .{name}")

    def rebuild(self, recipe: Recipe) -> str:
        """Asked of the dict; of an instance of a subclass past the methods of its class."""
        owner = self.owner
        kind = getattr(owner, "kind", owner.made_of)
        if owner.python_type() is kind:
            return f"{recipe.name(owner)}.{self.kind}()"
        return f"{recipe.known(getattr(kind, self.kind), self.kind)}({recipe.name(owner)})"


@wraps(dict)
def _wrap_dict(machine: Machine, value: dict[Any, Any], source: Source | None) -> Value:
    return _wrapped(machine, Dict, value, source)


@wraps(collections.OrderedDict)
def _wrap_ordered(machine: Machine, value: dict[Any, Any], source: Source | None) -> Value:
    return _wrapped(machine, Ordered, value, source)


def _wrapped(
    machine: Machine, kind: type[Dict], value: dict[Any, Any], source: Source | None
) -> Value:
    if source is None:
        admit(machine, len(value), kind.made_of.__name__)
        return kind({key: machine.values.wrap(one, None) for key, one in value.items()})
    return machine.values.remember(value, kind(None, source, value))
