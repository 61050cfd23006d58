"""Sets and frozensets: keys as `Value.key` gives them, mirrored by a set of Python's own.

Enters: displays, comprehensions, `set(...)`, sets from outside. Leaves: guards on all items of one
that is looked into, entries of the effect log for writes. Invariant: the mirror has gone through
the same operations as the program's set, so it is iterated in the same order; where that order
cannot be known (items hashed by identity, a changed set from outside) iterating is refused.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from windfall.frontend.bounds import admit, admit_growth, admit_writes
from windfall.frontend.breaks import ARGUMENTS, UNKNOWN_OPERATION, stop
from windfall.frontend.name_tables import words
from windfall.frontend.values.base import Arguments, Keywords, Value, no_method
from windfall.frontend.values.calls import calls
from windfall.frontend.values.constant import Constant, OutsideKey
from windfall.frontend.values.demands import has
from windfall.frontend.values.dict_views import KEYS_AS_SETS, DictView
from windfall.frontend.values.iterator import OverIterator
from windfall.frontend.values.keys import is_its_key, is_own_object, is_plain_key, no_key
from windfall.frontend.values.mapping import Dict
from windfall.frontend.values.objects import Object
from windfall.frontend.values.sequence import Tuple
from windfall.frontend.values.unseen import look
from windfall.frontend.values.watched import Watchers, refuse_change, watch
from windfall.frontend.values.wrap import wraps
from windfall.ir.guard import Equals
from windfall.ir.source import Item, KeysOf, Source

if TYPE_CHECKING:
    from windfall.frontend.recipe import Recipe
    from windfall.frontend.services import Machine

_PURE = words("""
    union intersection difference symmetric_difference issubset issuperset isdisjoint copy
""")
_METHODS = words("add discard remove clear update pop __contains__ __len__ __iter__")
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "|": operator.or_,
    "&": operator.and_,
    "-": operator.sub,
    "^": operator.xor,
}
_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Set(Value):
    """A set. `mirror` None: one from outside that is not looked into yet."""

    __slots__ = ("changed", "made_of", "mirror", "real", "values", "watchers")

    def __init__(
        self,
        mirror: set[Any] | frozenset[Any] | None,
        values: dict[Any, Value] | None = None,
        source: Source | None = None,
        real: set[Any] | frozenset[Any] | None = None,
    ) -> None:
        super().__init__(source)
        self.mirror = mirror
        self.made_of: type = type(real if real is not None else mirror)
        # Of keys that are no plain constants, and of tuples, which have an identity.
        self.values: dict[Any, Value] = values or {}
        self.real = real
        self.changed = False
        self.watchers: Watchers = ()

    def load(self, machine: Machine) -> Any:
        """The items, relied upon."""
        if self.mirror is None:
            assert self.real is not None and self.source is not None
            admit(machine, len(self.real), self)
            if not all(is_plain_key(one) for one in self.real):
                stop(UNKNOWN_OPERATION, f"items of {self.describe()}")
            self.guard_type(machine)
            where, items = KeysOf(self.source), tuple(self.real)
            machine.guards.add(where, Equals(items), "all items")
            self.mirror = self.made_of(self.real)
            for index, one in enumerate(items):
                if isinstance(one, tuple):
                    self.values[one] = machine.values.wrap(one, Item(where, index))
        return self.mirror

    def is_constant(self) -> bool:
        """Whether its items are plain."""
        return self.mirror is not None and not self.values and not self.changed

    @property
    def _is_ordered(self) -> bool:
        """Whether the order of its items is that of the mirror: they are hashed by their values."""
        return all(is_plain_key(key) for key in self.values)

    def as_constant(self, machine: Machine) -> Any:
        """A copy, to be read only."""
        if self.values and not all(type(key) is tuple for key in self.values):
            stop(UNKNOWN_OPERATION, f"{self.describe()} as a constant")
        found = self.load(machine)
        if _has_order_of_process(found):
            machine.guards.take_from_process(_ORDER)
        return self.made_of(found)

    def key(self, machine: Machine) -> Any:
        """Of a frozenset."""
        if self.made_of is not frozenset:
            raise machine.values.raised(TypeError(f"unhashable type: '{self.made_of.__name__}'"))
        return self.load(machine)

    # ---------------------------------------------------------------------------------- reading

    def unpack(self, machine: Machine) -> list[Value]:
        """Its items, in its order where that is known."""
        held = self.load(machine)
        if len(held) > 1 and not (self._is_ordered and (not self.changed or self.source is None)):
            stop(UNKNOWN_OPERATION, f"the order of {self.describe()}")
        if _has_order_of_process(held):
            machine.guards.take_from_process(_ORDER)
        ordered = held if self.real is None or self.changed else self.real
        return [self.item(machine, one) for one in ordered]

    def known_length(self) -> int | None:
        """How many items."""
        held = self.real if self.mirror is None else self.mirror
        return None if held is None else len(held)

    def item(self, machine: Machine, key: Any) -> Value:
        """A key as a value."""
        found = self.values.get(key)
        if found is not None or self.real is None or self.source is None:
            return found or machine.values.literal(key)
        return OutsideKey(key, self.real, partial(KeysOf, self.source))

    def iterate(self, machine: Machine) -> Value:
        """Over what it holds now."""
        items = self.unpack(machine)
        made = OverIterator(
            self,
            type(iter(self.made_of())),
            lambda _, place: items[place] if place < len(items) else None,
            "iter({})",
        )
        made.items = Tuple(items)
        return watch(self, made)  # type: ignore[no-any-return]

    def contains(self, machine: Machine, item: Value) -> Value:
        """By key."""
        return machine.values.literal(_looked_for(machine, item) in self.load(machine))

    def truth(self, machine: Machine) -> bool | Value:
        """Whether there are items."""
        return bool(self.load(machine))

    def length(self, machine: Machine) -> Value:
        """How many items."""
        if self.mirror is None and (self.known_length() or 0) > machine.facts.elements:
            return machine.values.literal(machine.values.length_of(self))
        return machine.values.literal(len(self.load(machine)))

    def compare(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """With another set."""
        if not isinstance(other, Set):
            return None
        rule = _COMPARISONS[operation]
        return machine.values.literal(rule(self.load(machine), other.load(machine)))

    def binary(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """`|`, `&`, `-`, `^` with another set."""
        rule = _OPERATORS.get(operation)
        if rule is None or not isinstance(other, Set):
            return None
        result = rule(self.load(machine), other.load(machine))
        admit(machine, len(result), self)
        return Set(result, _kept(result, self.values, other.values))

    def in_place(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """As the operator, on this very set."""
        rule = _OPERATORS.get(operation)
        if self.made_of is frozenset or rule is None or not isinstance(other, Set):
            return None
        before = self.load(machine)
        admit_writes(machine, self, other)
        result, values = rule(before, other.load(machine)), {**self.values, **other.values}
        admit(machine, len(result), self)
        for key in before - result:
            self.write(machine, "{}.discard({})", values.get(key) or machine.values.literal(key))
        for key in result - before:
            self.write(machine, "{}.add({})", values.get(key) or machine.values.literal(key))
        self.replace(machine, result, _kept(result, self.values, other.values))
        return self

    # ---------------------------------------------------------------------------------- methods

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """Methods."""
        if (name in _PURE or name in _METHODS) and hasattr(self.made_of, name):
            return machine.values.method(self, name)
        no_method(machine, self, self.made_of.__name__, self.made_of, name)

    def call_method(
        self, machine: Machine, name: str, arguments: Arguments, keywords: Keywords
    ) -> Value:
        """A pure method of mirrors, or a write."""
        if keywords or not hasattr(self.made_of, name):
            stop(ARGUMENTS, f"{self.made_of.__name__}.{name}")
        if name in _FROM_ALL and any(map(machine.values.is_generator, arguments)):
            method = machine.values.method(self, name)
            return machine.values.polyfill("with_tuples", [method, *arguments])
        if name in _PURE:
            return self._pure(machine, name, arguments)
        rule = _WRITES.get(name)
        if rule is None:
            stop(UNKNOWN_OPERATION, f"{self.made_of.__name__}.{name}")
        rule(self, machine, *arguments)
        return machine.values.literal(None)

    def _pure(self, machine: Machine, name: str, arguments: Arguments) -> Value:
        if name == "intersection" and any(has(one, "__next__") for one in arguments):
            stop(
                UNKNOWN_OPERATION, "intersection with an iterator, which need not be asked for all"
            )
        if name == "copy" and self.made_of is frozenset and not arguments:
            return self
        others = [mirrored(machine, one) for one in arguments]
        result = getattr(self.load(machine), name)(*(mirror for mirror, _ in others))
        if not isinstance(result, set | frozenset):
            return machine.values.literal(result)
        admit(machine, len(result), self)
        return Set(result, _kept(result, self.values, *(values for _, values in others)))

    def replace(self, machine: Machine, mirror: Any, values: dict[Any, Value]) -> None:
        """New contents, which can be taken back."""
        refuse_change(self)
        before = (self.mirror, self.values, self.changed)

        def restore() -> None:
            self.mirror, self.values, self.changed = before

        machine.effects.undo(restore)
        self.mirror, self.values, self.changed = mirror, values, True

    def write(self, machine: Machine, template: str, *operands: Value) -> None:
        """Log a write, if the set existed before."""
        if self.source is not None:
            machine.effects.add(template, self, *operands)

    def add(self, machine: Machine, item: Value) -> None:
        """`add`."""
        key = item.key(machine)
        mirror = self.load(machine)
        if key in mirror:
            return
        admit_growth(machine, len(mirror) + 1, self)
        refuse_change(self)
        plain = _is_told_by_key(machine, key, item)
        values = self.values if plain else {**self.values, key: item}
        before = (self.values, self.changed)

        def restore() -> None:
            mirror.discard(key)
            self.values, self.changed = before

        machine.effects.undo(restore)
        mirror.add(key)
        self.values, self.changed = values, True
        self.write(machine, "{}.add({})", item)

    def discard(self, machine: Machine, item: Value) -> None:
        """`discard`."""
        key = _looked_for(machine, item)
        if key in self.load(machine):
            left = self.load(machine).copy()
            left.discard(key)
            values = {one: value for one, value in self.values.items() if one != key}
            self.replace(machine, left, values)
            self.write(machine, "{}.discard({})", item)

    def remove(self, machine: Machine, item: Value) -> None:
        """`remove`."""
        key = _looked_for(machine, item)
        if key not in self.load(machine):
            raise no_key(machine, item, key)
        self.discard(machine, item)

    def clear(self, machine: Machine) -> None:
        """`clear`."""
        self.load(machine)
        self.replace(machine, set(), {})
        self.write(machine, "{}.clear()")

    def update(self, machine: Machine, *others: Value) -> None:
        """`update`."""
        for other in others:
            admit_writes(machine, self, other)
            for item in other.unpack(machine):
                self.add(machine, item)

    def rebuild(self, recipe: Recipe) -> str:
        """A display."""
        assert self.mirror is not None
        if _has_order_of_process(self.mirror):  # in which the display fills it
            recipe.own = recipe.own or _ORDER
        names = []
        for key in self.mirror:
            held = self.values.get(key)
            names.append(recipe.name(held) if held is not None else Constant(key).rebuild(recipe))
        made = "{" + ", ".join(names) + "}" if names else "set()"
        if self.made_of is set:
            return made
        return f"{recipe.known(frozenset, 'frozenset_')}({made if names else ''})"


_ORDER = "the order of a set"


def _has_order_of_process(held: Any) -> bool:
    """Whether the items are hashed otherwise in another process: texts are, and addresses."""
    return len(held) > 1 and not all(type(one) is int or type(one) is bool for one in held)


# What asks its arguments for all of their items, one argument after the other.
_FROM_ALL = words("update union difference symmetric_difference issubset")
_WRITES: dict[str, Callable[..., None]] = {
    "add": Set.add,
    "discard": Set.discard,
    "remove": Set.remove,
    "clear": Set.clear,
    "update": Set.update,
}


def _kept(result: Any, *operands: dict[Any, Value]) -> dict[Any, Value]:
    """The values of those keys of a result that are no plain constants: of equal keys of two
    operands (`(1,)` and `(True,)`) the one that CPython took."""
    known = {id(key): value for values in operands for key, value in values.items()}
    return {key: known[id(key)] for key in result if id(key) in known}


def mirrored(machine: Machine, value: Value) -> tuple[Any, dict[Any, Value]]:
    """An iterable as one of Python's own of the same kind, of keys; and the values of keys that
    are no plain constants."""
    if isinstance(value, Set):
        return value.load(machine), value.values
    if isinstance(value, Dict):
        return dict.fromkeys(value.load(machine)), dict(value.keys)
    if isinstance(value, DictView) and value.kind == "keys":
        mirror, known = mirrored(machine, value.owner)
        return mirror.keys(), known
    items = value.unpack(machine)
    keys = [one.key(machine) for one in items]
    values: dict[Any, Value] = {}
    for key, one in zip(keys, items, strict=True):
        if not _is_told_by_key(machine, key, one):
            values.setdefault(key, one)
    return keys, values


def _is_told_by_key(machine: Machine, key: Any, item: Value) -> bool:
    """Whether the key is all that is to be known of an item."""
    if not is_plain_key(key) or isinstance(key, tuple) or is_own_object(item):
        return False
    return is_its_key(machine, item)


def keys_operation(machine: Machine, view: DictView, operation: str, other: Value) -> Value | None:
    """`view & other` and its like, by Python's own on the mirrors: in its order."""
    if operation not in _OPERATORS or machine.values.runs_frames(other):
        return None
    mine, values = mirrored(machine, view)
    theirs, more = mirrored(machine, other)
    result = _OPERATORS[operation](mine, theirs)
    return Set(result, _kept(result, values, more))


def keys_comparison(machine: Machine, view: DictView, operation: str, other: Value) -> Value | None:
    """`view <= other` and its like."""
    if not isinstance(other, Set) and not (isinstance(other, DictView) and other.kind == "keys"):
        return None
    mine, theirs = mirrored(machine, view)[0], mirrored(machine, other)[0]
    return machine.values.literal(_COMPARISONS[operation](mine, theirs))


KEYS_AS_SETS["operation"] = keys_operation
KEYS_AS_SETS["comparison"] = keys_comparison


def _looked_for(machine: Machine, item: Value) -> Any:
    """The key of an item; a set is looked for as a frozen one, by CPython itself."""
    if issubclass(item.python_type(), set):
        stop(UNKNOWN_OPERATION, "a set is looked for in a set")
    return item.key(machine)


def _made(kind: type, name: str) -> Callable[[Machine, Arguments, Keywords], Value]:
    def rule(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
        if keywords or len(arguments) > 1:
            stop(ARGUMENTS, name)
        if not arguments:
            return Set(kind())
        (source,) = arguments
        if kind is frozenset and source.python_type() is frozenset:
            return source
        if isinstance(source, Object) or machine.values.is_generator(source):
            return machine.values.polyfill(name, arguments)
        mirror, values = mirrored(machine, source)
        return Set(kind(mirror), dict(values))

    return rule


calls(set)(_made(set, "set"))
calls(frozenset)(_made(frozenset, "frozenset"))


@wraps(set, frozenset)
def _wrap_set(machine: Machine, value: Any, source: Source | None) -> Value:
    if source is None:
        admit(machine, len(value), type(value).__name__)
        made = {one: machine.values.wrap(one, None) for one in value if not is_plain_key(one)}
        if not made:
            return Set(value if type(value) is frozenset else set(value))
        if not all(one.key(machine) is look(one) for one in made.values()):
            stop(UNKNOWN_OPERATION, "a set of objects")
        keys = [made.get(one, one) for one in value]
        return Set(type(value)(keys), {one: one for one in made.values()})
    return machine.values.remember(value, Set(None, None, source, value))
