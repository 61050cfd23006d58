"""Dictionaries: literals, arguments, globals of modules, instance dictionaries.

Enters: dicts. Leaves: guards on the keys that were asked for, entries of the effect log. Invariant:
a dict from outside is looked into key by key; only iterating or counting relies on all its keys.

One file: a dict, its methods and how it lives on.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NoReturn

from windfall.frontend.bounds import admit, admit_growth, admit_writes
from windfall.frontend.breaks import NOT_A_GRAPH_ARGUMENT, UNKNOWN_OPERATION, stop
from windfall.frontend.classnames import short_name
from windfall.frontend.effects import restore
from windfall.frontend.values.base import NULL, Arguments, Keywords, Value, no_method
from windfall.frontend.values.constant import Constant, OutsideKey
from windfall.frontend.values.demands import has
from windfall.frontend.values.dict_views import DictView, present
from windfall.frontend.values.keys import (
    compares_by_user_code,
    is_class_key,
    is_its_key,
    is_outside_key,
    is_own_object,
    is_plain_key,
    is_tensor_key,
    no_key,
    real_key,
    told_key,
)
from windfall.frontend.values.unseen import real_of, same, settled
from windfall.frontend.values.watched import Watchers, refuse_change
from windfall.frontend.values.wrap import wraps
from windfall.ir.guard import HasKey, IdentityIs, KeysAre
from windfall.ir.reading import dict_of, is_among
from windfall.ir.source import Item, ItemOfObject, KeysOf, Source

if TYPE_CHECKING:
    from windfall.frontend.recipe import Recipe
    from windfall.frontend.services import Machine


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
        self.writes: list[tuple[Any, Value | None]] | tuple[()] = ()  # most are never written
        self.watchers: Watchers = ()

    # ---------------------------------------------------------------------------------- reading

    def lookup(self, machine: Machine, key: Any) -> Value | None:
        """The item at a key (as `Value.key` gives it), or None."""
        if self.unseen:
            self._refuse_unseen()
        if self.whole or key in self.entries:
            found: Value | None = settled(self.entries.get(key))
            return found
        assert self.real is not None and self.source is not None
        if isinstance(key, Value) and is_tensor_key(real_of(key)):
            return self.of_tensor(machine, key)
        if not is_plain_key(key) and not is_class_key(key):
            return self.load(machine).get(key)
        if self.compares is None:
            self.compares = compares_by_user_code(self.real)
        if self.compares:
            stop(UNKNOWN_OPERATION, f"{self.describe()}, whose keys have an __eq__ of their own")
        self.guard_type(machine)
        real = real_key(key)
        if real in self.real:
            found = self.entries[key] = machine.values.wrap(
                self.real[real], Item(self.source, real)
            )
            machine.guards.found.append((self.source, real))
            return found
        self.guard(machine, ("absent", key), HasKey(real, False))
        self.entries[key] = None
        return None

    def of_tensor(self, machine: Machine, key: Value) -> Value | None:
        """The item at a tensor from outside, which is relied upon itself: other keys are not looked
        at, so there may be many."""
        assert self.real is not None and self.source is not None
        if compares_by_user_code(self.real):
            stop(UNKNOWN_OPERATION, f"{self.describe()}, whose keys have an __eq__ of their own")
        tensor = real_of(key)
        self.guard_type(machine)
        key.guard(machine, "identity", IdentityIs(tensor, kept=True), "a key")
        machine.guards.rely_on_answer(type(tensor), "__hash__")
        if tensor in self.real:
            found = machine.values.wrap(self.real[tensor], ItemOfObject(self.source, tensor))
            machine.guards.found.append((self.source, tensor))
            self.entries[key] = found
            return found
        self.guard(machine, ("absent", key), HasKey(tensor, False))
        self.entries[key] = None
        return None

    def load(self, machine: Machine) -> dict[Any, Value | None]:
        """All items, in order."""
        if self.unseen:
            self._refuse_unseen()
        if not self.whole:
            assert self.real is not None and self.source is not None
            admit(machine, len(self.real) + len(self.writes), self)
            if not all(map(is_outside_key, self.real)):
                stop(UNKNOWN_OPERATION, f"keys of {self.describe()}")
            self.guard_type(machine)
            self.rely_on_keys(machine)
            self.keep_tuples(machine, self.real)
            source, known = self.source, self.entries
            written = {key for key, _ in self.writes}
            whole: dict[Any, Value | None] = {}
            for given, value in self.real.items():
                key = told_key(machine, given)
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

    def keys_source(self) -> Source:
        """Where the keys from outside stand, in order."""
        assert self.source is not None
        return KeysOf(self.source)

    def keep_tuples(self, machine: Machine, keys: Iterable[Any]) -> None:
        """Keys from outside that are objects of their own."""
        for index, key in enumerate(keys):
            if isinstance(key, tuple):
                held = machine.values.wrap(key, Item(self.keys_source(), index))
                self.keys[told_key(machine, key)] = held

    def present(self) -> Iterable[tuple[Any, Value]]:
        """Known items."""
        return [(key, value) for key, value in self.entries.items() if value is not None]

    def key_value(self, machine: Machine, key: Any) -> Value:
        """A key as a value."""
        found = self.keys.get(key)
        if found is not None or isinstance(key, Value):
            return found or key
        if self.real is None or self.source is None:
            return machine.values.literal(key)
        return OutsideKey(key, self.real, self.keys_source)

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

    def _note_write(self, key: Any, value: Value | None) -> None:
        if not isinstance(self.writes, list):
            self.writes = []
        self.writes.append((key, value))

    def _forget_writes(self, kept: int) -> None:
        if isinstance(self.writes, list):
            del self.writes[kept:]

    def store(
        self, machine: Machine, key: Any, value: Value | None, written_at: Value | None = None
    ) -> None:
        """Write (None: delete) at a key, and log it if the dict existed before, with the key that
        the program wrote it at."""
        if self.unseen:
            self._refuse_unseen()
        entries, writes = self.entries, len(self.writes)
        admit_growth(machine, len(entries) + 1 if self.whole else 0, self)
        existed, before = key in entries, entries.get(key)
        refuse_change(self, self.whole and existed != (value is not None))
        order = list(entries) if self.whole and value is None else None
        shown = written_at or self.key_value(machine, key)
        self._forget_key(machine, key, value is None)

        def restore() -> None:
            self._forget_writes(writes)
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
            self._note_write(key, value)
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
            if self.whole or not is_tensor_key(real_of(key)):
                self.load(machine)
            else:
                self.lookup(machine, plain)
            self.keys.setdefault(plain, key)
        elif self._differs(machine, key) and self.lookup(machine, plain) is None:
            self.keys[plain] = key
            machine.effects.undo(lambda: restore(self.keys, plain, None))
        shown = is_own_object(key) or isinstance(plain, tuple)
        self.store(machine, plain, value, key if shown else None)

    def _differs(self, machine: Machine, key: Value) -> bool:
        """Whether a new key is to be kept as a value: a tuple is an object of its own, and so is a
        constant from outside. (Not in a dict that is not known as a whole: each write there would
        rely on the key's absence.)"""
        if self.whole:
            return not isinstance(key, Constant) or is_own_object(key)
        return not is_its_key(machine, key)

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
            real = real_of(plain) if isinstance(plain, Value) else real_key(plain)
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
        """What `update` does, unless it asks a generator; any name may be a key."""
        if other is not None:
            admit_writes(machine, self, other)
        if isinstance(other, Dict):
            for key, value in list(other.load(machine).items()):
                self.set_item(machine, other.key_value(machine, key), present(value))
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
        return machine.values.tuple([shown, present(value)])

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


def filled(machine: Machine, made: Dict, arguments: Arguments, keywords: Keywords) -> Value:
    """A new mapping of these."""
    if _runs(machine, *arguments):
        more = machine.values.created_dict(keywords)
        return machine.values.polyfill("filled_with_pairs", [made, *arguments, more])
    made.update(machine, *arguments)
    for name, value in keywords.items():
        made.store(machine, name, value)
    return made


def update(owner: Dict, machine: Machine, /, *arguments: Value, **keywords: Value) -> Value:
    """`update`, as the last thing that a call does: a frame may be left to run."""
    if _runs(machine, *arguments):
        more = machine.values.created_dict(keywords)
        return machine.values.polyfill("update_with_pairs", [owner, *arguments, more])
    return owner.update(machine, *arguments, **keywords)


def _runs(machine: Machine, other: Value | None = None, *_: Value) -> bool:
    """Whether pairs come from interpreted code, one after the other."""
    return other is not None and machine.values.is_generator(other)


DICT_METHODS: dict[str, Callable[..., Value]] = {
    "get": Dict.get,
    "copy": lambda owner, machine: owner.copied(machine),  # kinds of dicts have their own
    "update": update,
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


@wraps(dict)
def _wrap_dict(machine: Machine, value: dict[Any, Any], source: Source | None) -> Value:
    return wrapped_dict(machine, Dict, value, source)


def wrapped_dict(
    machine: Machine, kind: type[Dict], value: dict[Any, Any], source: Source | None
) -> Value:
    if source is None:
        admit(machine, len(value), kind.made_of.__name__)
        return kind({key: machine.values.wrap(one, None) for key, one in value.items()})
    return machine.values.remember(value, kind(None, source, value))
