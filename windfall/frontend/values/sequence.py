"""Tuples and lists (and `torch.Size`, slices, ranges): items as values.

Enters: literals, arguments, results. Leaves: guards on type and length where the contents are
relied upon; entries of the effect log for writes to lists from outside. Invariant: `items` shows
the present contents; a list from outside to which the program only appends is never looked into.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from windfall.frontend.bounds import admit, admit_growth, admit_values, admit_writes
from windfall.frontend.breaks import UNKNOWN_OPERATION, stop
from windfall.frontend.values.base import Arguments, Keywords, Value, no_method
from windfall.frontend.values.constant import COMPARE, Constant, fold
from windfall.frontend.values.ranges import Slice
from windfall.frontend.values.unseen import look, made_here
from windfall.frontend.values.wrap import wraps
from windfall.ir.guard import LengthIs
from windfall.ir.reading import is_among, resolve
from windfall.ir.source import ByMethod, Item, Source

if TYPE_CHECKING:
    from windfall.frontend.recipe import Recipe
    from windfall.frontend.services import Machine


class SequenceValue(Value):
    """What tuples and lists have in common."""

    __slots__ = ("_items", "real")
    made_of: type = tuple

    def __init__(
        self,
        items: list[Value] | None,
        source: Source | None = None,
        real: Sequence[Any] | None = None,
    ) -> None:
        super().__init__(source)
        self._items = items
        self.real = real

    def describe(self) -> str:
        """Kind and source."""
        return f"{self.made_of.__name__} {self.source or ''}".strip()

    def items(self, machine: Machine) -> list[Value]:
        """The present contents, relied upon in number."""
        if self._items is None:
            assert self.real is not None and self.source is not None
            admit(machine, len(self.real), self)
            self.guard_type(machine)
            self.guard(machine, "length", LengthIs(len(self.real)))
            source = self.source
            self._items = [
                machine.values.wrap(value, Item(source, index))
                for index, value in enumerate(self.real)
            ]
        return self._items

    def is_constant(self) -> bool:
        """Whether all items are constants."""
        if self._items is None:
            return False
        return all(one.is_constant() for one in self._items)

    def as_constant(self, machine: Machine) -> Any:
        """A copy with plain items, to be read only."""
        return self.made_of([one.as_constant(machine) for one in self.items(machine)])

    def graph_argument(self, machine: Machine) -> tuple[Any, Any]:
        """A sequence of arguments."""
        parts = [one.graph_argument(machine) for one in self.items(machine)]
        kind = list if self.made_of is list else tuple
        return kind(node for node, _ in parts), kind(one for _, one in parts)

    def truth(self, machine: Machine) -> bool | Value:
        """Whether there are items."""
        if self.is_long(machine):
            return bool(machine.values.length_of(self))
        return bool(self.items(machine))

    def length(self, machine: Machine) -> Value:
        """How many items."""
        if self.is_long(machine):
            return machine.values.literal(machine.values.length_of(self))
        return machine.values.literal(len(self.items(machine)))

    def unpack(self, machine: Machine) -> list[Value]:
        """A copy of the items."""
        return list(self.items(machine))

    def known_length(self) -> int | None:
        """How many items, as far as is known."""
        if self._items is not None:
            return len(self._items)
        return len(self.real) if self.real is not None else None

    def is_long(self, machine: Machine) -> bool:
        """Whether it came from outside as it is now, and is too large to be looked into."""
        untouched = self._items is None and not getattr(self, "appended", ())
        return untouched and self.real is not None and len(self.real) > machine.facts.elements

    def iterate(self, machine: Machine) -> Value:
        """An iterator that sees later changes, as Python's do."""
        admit_values(machine, (self,))
        return machine.values.iterate_sequence(self)

    def iterator_text(self, recipe: Recipe, name: str) -> str:
        """What makes an iterator over it."""
        return f"iter({name})"

    def same_kind(self, items: list[Value]) -> Value:
        """A created sequence of this kind."""
        return type(self)(items)

    def get_item(self, machine: Machine, key: Value) -> Value:
        """By index or slice."""
        index = key_of(machine, key)
        kind: type = type(index)
        if kind is not key.python_type():
            stop(UNKNOWN_OPERATION, f"an index that is {key.describe()}")
        if self.is_long(machine) and type(index) is int:
            return self._one_item(machine, index)
        items = self.items(machine)
        try:
            found = items[index]
        except (IndexError, TypeError, ValueError):
            raise machine.values.raised(_item_error(self, len(items), index)) from None
        if not isinstance(index, slice):
            one: Value = found  # passed on, not looked at
            return one
        whole = self.made_of is tuple and len(found) == len(items) and index.step in (None, 1)
        return self if whole else self.same_kind(found)

    def _one_item(self, machine: Machine, index: int) -> Value:
        """Of a long one from outside: its length is relied upon, the others are not looked at."""
        count = machine.values.length_of(self)
        if not -count <= index < count:
            text = f"{self.made_of.__name__} index out of range"
            raise machine.values.raised(IndexError(text))
        assert self.real is not None and self.source is not None
        place = index % count
        return machine.values.wrap(self.real[place], Item(self.source, place))

    def contains(self, machine: Machine, item: Value) -> Value:
        """By identity or equality of constants."""
        item = look(item)
        for one in map(look, self.items(machine)):
            if one is item:
                return machine.values.literal(True)
            if not (one.is_constant() and item.is_constant()):
                if one.is_constant() != item.is_constant():
                    raise_if_unknown(machine, one, item)
                    continue
                return machine.values.polyfill("contains", [self, item])
            if any(isinstance(each, Constant) and each.has_own_class for each in (one, item)):
                return machine.values.polyfill("contains", [self, item])
            mine, other = one.as_constant(machine), item.as_constant(machine)
            if mine is other or mine == other:  # a NaN is not equal to itself
                return machine.values.literal(True)
        return machine.values.literal(False)

    def binary(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """Concatenation and repetition."""
        if operation == "+" and isinstance(other, SequenceValue) and self._joins(other):
            mine, others = self.items(machine), other.items(machine)
            if self.made_of is tuple is other.made_of:  # one with nothing added is the very same
                if not others:
                    return self
                if not mine:
                    return other
            admit(machine, len(mine) + len(others), self)
            if self.made_of is not other.made_of:  # a tuple beside a size
                if any(one.python_type() is not int for one in (*mine, *others)):
                    stop(UNKNOWN_OPERATION, "a torch.Size beside other than integers")
                return Size(mine + others)
            return self.same_kind(mine + others)
        if operation == "*" and isinstance(other, Constant):
            count = other.as_constant(machine)
            if isinstance(count, int):
                if count == 1 and self.made_of is tuple:
                    return self
                admit(machine, len(self.items(machine)) * count, self)
                return self.same_kind(self.items(machine) * count)
        return None

    def _joins(self, other: SequenceValue) -> bool:
        return other.made_of is self.made_of or {self.made_of, other.made_of} <= {tuple, torch.Size}

    def reflected(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """Repetition."""
        return self.binary(machine, "*", other) if operation == "*" else None

    def compare(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """Of constants by Python; of other items item by item, where that is known."""
        values = machine.values
        if not isinstance(other, SequenceValue):
            return None
        mine, others = self.items(machine), other.items(machine)
        if not self._joins(other) and operation in ("==", "!="):
            return values.literal(operation == "!=")
        if self.is_constant() and other.is_constant() and not _vary((*mine, *others)):
            return fold(machine, COMPARE[operation], [self, other], {})
        if operation not in ("==", "!="):
            if not self._joins(other):
                return None
            return values.polyfill("order_sequences", [self, other, values.literal(operation)])
        if len(mine) != len(others):
            return values.literal(operation == "!=")
        if all(a is b for a, b in zip(mine, others, strict=True)):
            return values.literal(operation == "==")
        unequal = values.literal(operation == "!=")
        return values.polyfill("equal_sequences", [self, other, unequal])


def _vary(items: Iterable[Value]) -> bool:
    """Whether there is a number among them whose value is not known."""
    return any(
        not isinstance(one, Constant) and is_among(one.python_type(), (int, float)) for one in items
    )


def raise_if_unknown(machine: Machine, one: Value, other: Value) -> None:
    """A constant never equals a tensor, a container of another kind, a function; of objects whose
    class may define equality, now or later, nothing is known."""
    for value in (one, other):
        plain = value.is_constant() or isinstance(value, SequenceValue)
        if not plain and not _has_plain_equality(machine, value.python_type()):
            stop(UNKNOWN_OPERATION, f"equality of {one.describe()} and {other.describe()}")


def _has_plain_equality(machine: Machine, kind: type) -> bool:
    return machine.guards.rely_on_answer(kind, "__eq__") is resolve(object, "__eq__")


def key_of(machine: Machine, key: Value) -> Any:
    """An index or slice as Python's own."""
    if isinstance(key, Slice):
        return key.plain(machine)
    return key.as_constant(machine)


def _item_error(owner: SequenceValue, length: int, index: Any) -> Exception:
    """What CPython raises of a list or tuple of this length."""
    kind = list if owner.made_of is list else tuple
    try:
        kind([None] * length)[index]
    except (IndexError, TypeError, ValueError) as error:
        return error
    raise AssertionError("the same item is missing of a sequence of the same length")


def index_in(machine: Machine, owner: SequenceValue, item: Value, limits: Sequence[Value]) -> Value:
    """`owner.index(item, *limits)`."""
    values = machine.values
    owner.items(machine)
    if owner.is_constant() and item.is_constant():
        return fold(machine, owner.made_of.index, [owner, item, *limits], {})  # type: ignore[attr-defined]
    count = len(owner.items(machine))
    bounds = slice(*(one.as_constant(machine) for one in limits)) if limits else slice(None)
    if len(limits) == 1:
        bounds = slice(bounds.stop, None)
    first, last, _ = bounds.indices(count)
    text = "tuple.index(x): x not in tuple" if isinstance(owner, Tuple) else _NOT_IN_LIST
    where = [values.literal(first), values.literal(last), values.literal(text)]
    return values.polyfill("index_of", [owner, item, *where])


def _absent_from_list() -> str | None:
    """What `list.index` says, if that is always the same; None: it names the item."""
    texts = set()
    for item in (0, 1):
        try:
            list[int]().index(item)
        except ValueError as error:
            texts.add(str(error))
    return texts.pop() if len(texts) == 1 else None


_NOT_IN_LIST = _absent_from_list()


def count_in(machine: Machine, owner: SequenceValue, item: Value) -> Value:
    """`owner.count(item)`."""
    owner.items(machine)
    if owner.is_constant() and item.is_constant():
        return fold(machine, owner.made_of.count, [owner, item], {})  # type: ignore[attr-defined]
    return machine.values.polyfill("count_of", [owner, item])


class Tuple(SequenceValue):
    """A tuple."""

    __slots__ = ()

    def key(self, machine: Machine) -> Any:
        """Hashed by its items."""
        return tuple(one.key(machine) for one in self.items(machine))

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """`index` and `count`."""
        if name in ("index", "count"):
            return machine.values.method(self, name)
        no_method(machine, self, "tuple", tuple, name)

    def call_method(
        self, machine: Machine, name: str, arguments: Arguments, keywords: Keywords
    ) -> Value:
        """`index` and `count`."""
        if name not in ("index", "count") or keywords or not arguments:
            stop(UNKNOWN_OPERATION, f"tuple.{name}")
        if name == "index":
            return index_in(machine, self, arguments[0], arguments[1:])
        return count_in(machine, self, *arguments)

    def rebuild(self, recipe: Recipe) -> str:
        """The constant of the program's code that it is, or a display."""
        if self.real is not None:
            return recipe.known(self.real, "constant")
        assert self._items is not None
        names = [recipe.name(one) for one in self._items]
        text = f"({names[0]},)" if len(names) == 1 else f"({', '.join(names)})"
        folded = len(names) > 0 and all(made_here(one, Constant) for one in self._items)
        return recipe.anew(text) if folded else text


class Size(Tuple):
    """A `torch.Size`."""

    __slots__ = ()
    made_of = torch.Size

    def key(self, machine: Machine) -> Any:
        """Hashed and equal as a tuple, but another object where it is seen again."""
        found = super().key(machine)
        return torch.Size(found) if all(type(one) is int for one in found) else found

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """Methods of a tuple, and `numel`."""
        if name == "numel":
            return machine.values.method(self, name)
        if name not in ("index", "count"):
            no_method(machine, self, "torch.Size", torch.Size, name)
        return super().get_attribute(machine, name)

    def call_method(
        self, machine: Machine, name: str, arguments: Arguments, keywords: Keywords
    ) -> Value:
        """`numel` is the product of the sizes."""
        if name != "numel" or arguments or keywords:
            return super().call_method(machine, name, arguments, keywords)
        product: Value = machine.values.literal(1)
        for size in self.unpack(machine):
            one = size.binary(machine, "*", product)
            assert one is not None, "sizes are integers"
            product = one
        return product

    def rebuild(self, recipe: Recipe) -> str:
        """Made anew."""
        return f"{recipe.known(torch.Size, 'Size')}({super().rebuild(recipe)})"


class List(SequenceValue):
    """A list. `appended` is what was added to one from outside that is not looked into yet."""

    __slots__ = ("appended",)
    made_of = list

    def __init__(
        self,
        items: list[Value] | None,
        source: Source | None = None,
        real: Sequence[Any] | None = None,
    ) -> None:
        super().__init__(items, source, real)
        self.appended: list[Value] = []

    def items(self, machine: Machine) -> list[Value]:
        """The present contents."""
        if self._items is None:
            self._items = super().items(machine)
            self._items.extend(self.appended)
        return self._items

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """Methods."""
        if name in LIST_METHODS:
            return machine.values.method(self, name)
        no_method(machine, self, "list", list, name)

    def call_method(
        self, machine: Machine, name: str, arguments: Arguments, keywords: Keywords
    ) -> Value:
        """A row of LIST_METHODS."""
        if name == "sort" and not arguments:
            return machine.values.polyfill("sort_list", [self], keywords)
        method = LIST_METHODS.get(name)
        if method is None or keywords:
            stop(UNKNOWN_OPERATION, f"list.{name}")
        return method(self, machine, *arguments)

    # ----------------------------------------------------------------------------------- writes

    def changed(self, machine: Machine) -> list[Value]:
        """The contents, about to be changed; can be taken back."""
        items = self.items(machine)
        before = list(items)

        def restore() -> None:
            items[:] = before

        machine.effects.undo(restore)
        return items

    def write(self, machine: Machine, template: str, *operands: Value) -> None:
        """Log a write, if the list existed before."""
        if self.source is not None:
            self.guard_type(machine)
            machine.effects.add(template, self, *operands)

    def _length_source(self) -> Source:
        assert self.source is not None
        return ByMethod(self.source, list, "__len__")

    def length(self, machine: Machine) -> Value:
        """How many items; of a list that is known to grow, a number that varies."""
        if self.source is None or self.real is None:
            return super().length(machine)
        count = len(self.real)
        if self._items is None and machine.symbols.varies(self._length_source(), count):
            self.guard_type(machine)
            found = machine.values.wrap(count, self._length_source())
            more = machine.values.literal(len(self.appended))
            return (found.binary(machine, "+", more) if self.appended else found) or more
        self.guarded = {*(self.guarded or ()), "counted"}
        return super().length(machine)

    def append(self, machine: Machine, item: Value) -> Value:
        """At the end: does not look into the list."""
        target = self.appended if self._items is None else self._items
        admit_growth(machine, len(target) + 1, self)
        if self.source is not None and self.guarded is not None and "counted" in self.guarded:
            machine.effects.lengths.add(str(self._length_source()))
        target.append(item)
        machine.effects.undo(lambda: target.__delitem__(-1))
        self.write(machine, "{}.append({})", item)
        return machine.values.literal(None)

    def extend(self, machine: Machine, other: Value) -> Value:
        """By items that are known, or by those that interpreted code gives."""
        if machine.values.runs_frames(other):
            return machine.values.polyfill("extend", [self, other])
        admit_writes(machine, self, other)
        for item in other.unpack(machine):
            self.append(machine, item)
        return machine.values.literal(None)

    def insert(self, machine: Machine, index: Value, item: Value) -> Value:
        """Before an index."""
        self.changed(machine).insert(index.as_constant(machine), item)
        self.write(machine, "{}.insert({}, {})", index, item)
        return machine.values.literal(None)

    def take(self, machine: Machine, index: Value | None = None) -> Value:
        """`pop`."""
        position = index.as_constant(machine) if index is not None else -1
        items = self.changed(machine)
        try:
            found = items.pop(position)
        except (IndexError, TypeError) as error:
            raise machine.values.raised(error) from None
        self.write(machine, "{}.pop({})", machine.values.literal(position))
        return found

    def clear(self, machine: Machine) -> Value:
        """All items."""
        self.changed(machine).clear()
        self.write(machine, "{}.clear()")
        return machine.values.literal(None)

    def reverse(self, machine: Machine) -> Value:
        """In place."""
        self.changed(machine).reverse()
        self.write(machine, "{}.reverse()")
        return machine.values.literal(None)

    def copy(self, machine: Machine) -> Value:
        """A new list."""
        return List(self.unpack(machine))

    def find(self, machine: Machine, item: Value, *limits: Value) -> Value:
        """`index`: of constants by Python, else one by one in interpreted code."""
        return index_in(machine, self, item, limits)

    def count(self, machine: Machine, item: Value) -> Value:
        """`count`, likewise."""
        return count_in(machine, self, item)

    def remove(self, machine: Machine, item: Value) -> Value:
        """The first one that is equal."""
        text = machine.values.literal("list.remove(x): x not in list")
        return machine.values.polyfill("remove_from", [self, item, text])

    def set_item(self, machine: Machine, key: Value, value: Value) -> None:
        """At an index, or for a slice."""
        index = key_of(machine, key)
        if isinstance(index, slice) and machine.values.is_generator(value):
            machine.values.polyfill("set_slice", [self, key, value])
            return
        new: Any = value.unpack(machine) if isinstance(index, slice) else value
        if isinstance(index, slice):
            admit(machine, len(self.items(machine)) + len(new), self)
        items = self.changed(machine)
        try:
            items[index] = new
        except (IndexError, TypeError, ValueError) as error:
            raise machine.values.raised(error) from None
        self.write(machine, "{}[{}] = {}", key, value)

    def delete_item(self, machine: Machine, key: Value) -> None:
        """At an index, or for a slice."""
        index = key_of(machine, key)
        items = self.changed(machine)
        try:
            del items[index]
        except (IndexError, TypeError, ValueError) as error:
            raise machine.values.raised(error) from None
        self.write(machine, "del {}[{}]", key)

    def in_place(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """`+=` extends this very list."""
        if operation == "+":
            if machine.values.runs_frames(other):
                return machine.values.polyfill("extended", [self, other])
            self.extend(machine, other)
            return self
        if operation == "*" and isinstance(other, Constant):
            count = other.as_constant(machine)
            if isinstance(count, int):
                admit(machine, len(self.items(machine)) * count, self)
                self.changed(machine)[:] = self.items(machine) * count
                self.write(machine, "{}.__imul__({})", machine.values.literal(count))
                return self
        return None

    def rebuild(self, recipe: Recipe) -> str:
        """A display; one that holds itself is filled after it was made."""
        assert self._items is not None
        items = self._items
        return recipe.container(
            self, "[]", lambda: f"[{', '.join(map(recipe.name, items))}]", "{}.extend({})"
        )


LIST_METHODS: dict[str, Callable[..., Value]] = {
    "append": List.append,
    "extend": List.extend,
    "insert": List.insert,
    "pop": List.take,
    "clear": List.clear,
    "reverse": List.reverse,
    "copy": List.copy,
    "index": List.find,
    "count": List.count,
    "remove": List.remove,
    "sort": List.call_method,  # with keywords: not by this table
}


@wraps(tuple)
def _wrap_tuple(machine: Machine, value: tuple[Any, ...], source: Source | None) -> Value:
    return _wrapped(machine, Tuple, value, source)


@wraps(torch.Size)
def _wrap_size(machine: Machine, value: torch.Size, source: Source | None) -> Value:
    return _wrapped(machine, Size, value, source)


@wraps(list)
def _wrap_list(machine: Machine, value: list[Any], source: Source | None) -> Value:
    return _wrapped(machine, List, value, source)


def _wrapped(
    machine: Machine, kind: type[SequenceValue], value: Sequence[Any], source: Source | None
) -> Value:
    if source is None:
        admit(machine, len(value), kind.made_of.__name__)
        return kind([machine.values.wrap(one, None) for one in value])
    return machine.values.remember(value, kind(None, source, value))
