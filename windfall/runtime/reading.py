"""Re-reading a value at its source in Python, and asking whether a check holds of it.

Enters: sources and checks of `ir`. Leaves: functions of values; the generated Python text of a
guard check calls them by these names.

Invariant: no user code runs (no property, `__getattr__`, `__eq__`, `__torch_function__`): what
could only be read or compared through user code counts as not readable, as not equal.
"""

from __future__ import annotations

import collections
import math
import struct
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from windfall import torch_abi
from windfall.ir.dtype import TensorType
from windfall.ir.guard import (
    ABSENT,
    AmbientIs,
    Answers,
    Binds,
    Check,
    Compares,
    Equals,
    Guard,
    HasKey,
    Holds,
    IdentityIs,
    KeysAre,
    LengthIs,
    Resolves,
    SameObjects,
    TensorIs,
    TypeIs,
)
from windfall.ir.relation import Relation
from windfall.ir.source import (
    Attribute,
    ByMethod,
    CellContents,
    DictOf,
    Item,
    Known,
    SizeOf,
    Slot,
    Source,
    StrideOf,
    TypeOf,
)
from windfall.ir.symint import Atom, Expression, Size, bounds

UNREADABLE = (AttributeError, KeyError, IndexError, TypeError, ValueError, ZeroDivisionError)
_C_DESCRIPTORS = (types.GetSetDescriptorType, types.MemberDescriptorType)
_mro: Callable[[type], tuple[type, ...]] = type.__dict__["__mro__"].__get__
_class_dict: Callable[[type], Any] = type.__dict__["__dict__"].__get__


def resolve(owner: type, name: str) -> Any:
    """What a class finds for `name` along its MRO, as it stands in the dictionaries; or ABSENT."""
    if not issubclass(type(owner), type):
        raise TypeError(f"{owner!r} is not a class")
    for one in _mro(owner):
        table = _class_dict(one)
        if name in table:
            return table[name]
    return ABSENT


def attribute(value: Any, name: str) -> Any:
    """An attribute that a C descriptor of the class reads: a slot, a field."""
    found = resolve(type(value), name)
    if type(found) not in _C_DESCRIPTORS:
        raise AttributeError(f"{name} of {type(value).__name__} is not plain")
    return found.__get__(value, type(value))


def dict_of(value: Any) -> Any:
    """The instance dictionary of an object; of a class, a view of its dictionary."""
    if issubclass(type(value), type):
        return _class_dict(value)
    return attribute(value, "__dict__")


def item(value: Any, key: Any) -> Any:
    """An item of a list, tuple, dict (or of a subclass, past its own `__getitem__`)."""
    kind = type(value)
    if kind is types.MappingProxyType:
        return value[key]
    for base in (dict, tuple, list):
        if issubclass(kind, base):
            return base.__getitem__(value, key)
    raise TypeError(f"{kind.__name__} has no plain items")


def cell_contents(cell: Any) -> Any:
    """What a closure cell holds."""
    if type(cell) is not types.CellType:
        raise TypeError("not a cell")
    return cell.cell_contents


def by_method(value: Any, kind: type, name: str, *arguments: Any) -> Any:
    """What a builtin class's own method answers, where that is no user code."""
    lookup = name == "__getitem__" and issubclass(kind, dict)
    if lookup and not dict.__contains__(value, *arguments):
        raise KeyError(*arguments)  # not even `__missing__` is asked
    return getattr(kind, name)(value, *arguments)


def size(value: Any, dimension: int) -> int:
    """The size of one dimension of a tensor."""
    return int(_facts(value).sizes[dimension])


def stride(value: Any, dimension: int) -> int:
    """The stride of one dimension of a tensor."""
    return int(_facts(value).strides[dimension])


def _facts(value: Any) -> torch_abi.TensorFacts:
    if not issubclass(type(value), torch.Tensor):
        raise TypeError(f"{type(value).__name__} is not a tensor")
    return torch_abi.tensor_facts(value)


# How each kind of source reads from the value of its base; the name is what generated text says.
READERS: dict[type[Source], Callable[..., Any]] = {
    DictOf: dict_of,
    Item: item,
    Attribute: attribute,
    CellContents: cell_contents,
    TypeOf: type,
    ByMethod: by_method,
    SizeOf: size,
    StrideOf: stride,
}


def read(source: Source, slots: Sequence[Any]) -> Any:
    """The value at `source` now; raises one of `UNREADABLE` where the path is broken."""
    if isinstance(source, Slot):
        return slots[source.index]
    if isinstance(source, Known):
        return source.value
    reader = READERS.get(type(source))
    if reader is None or source.base is None:
        return source.read(slots)
    return reader(read(source.base, slots), *source.operands)


# ------------------------------------------------------------------------------------ predicates


def tensor_is(value: Any, check: TensorIs) -> bool:
    """Class, dispatch keys, type; and no forward-mode tangent, which no type speaks of. Sizes and
    strides that vary are not looked at."""
    if type(value) is not check.exact_class:
        return False
    tensor: torch.Tensor = value  # type: ignore[assignment]  # a class of tensors
    if torch_abi.dispatch_keys(tensor) != check.dispatch_keys or torch_abi.has_tangent(tensor):
        return False
    facts, wanted = torch_abi.tensor_facts(tensor), check.type
    return (
        (facts.dtype, facts.device, facts.requires_grad)
        == (wanted.dtype, wanted.device, wanted.requires_grad)
        and _same_where_fixed(facts.sizes, wanted.sizes)
        and _same_where_fixed(facts.strides, wanted.strides)
    )


def _same_where_fixed(found: tuple[int, ...], wanted: tuple[Size, ...]) -> bool:
    return len(found) == len(wanted) and all(
        isinstance(size, Expression) or one == size for one, size in zip(found, wanted, strict=True)
    )


def varying(type: TensorType) -> Iterator[tuple[Callable[[Any, int], int], int, Expression]]:
    """The sizes and strides that vary: how each is read, of which dimension, what it is."""
    for reader, numbers in ((size, type.sizes), (stride, type.strides)):
        for dimension, number in enumerate(numbers):
            if isinstance(number, Expression):
                yield reader, dimension, number


def symbol_of(size: Size) -> Atom | None:
    """The symbol that a size is, if it is nothing more."""
    atom = size.atom if isinstance(size, Expression) else None
    return atom if atom is not None and not atom.operation else None


def binds(value: Any, check: Binds) -> bool:
    """An exact int of 64 bits within the range of the symbol."""
    return type(value) is int and -(1 << 63) <= value < 1 << 63 and in_range(value, check.symbol)


def in_range(value: int, symbol: Size) -> bool:
    """Whether a symbol may have this value."""
    low, high = bounds(symbol)
    return (low is None or low <= value) and (high is None or value <= high)


def type_is(value: Any, check: TypeIs) -> bool:
    """The exact class."""
    return type(value) is check.exact_class


def identity_is(value: Any, check: IdentityIs | WeakIdentity) -> bool:
    """This very object."""
    return value is check.value


def same_bits(one: float, other: float) -> bool:
    """NaN is NaN, and 0.0 is not -0.0."""
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) and math.isnan(other)
    return struct.pack("d", one) == struct.pack("d", other)


def _same_items(one: Any, other: Any) -> bool:
    return len(one) == len(other) and all(map(same_constant, one, other))


def _same_slice(one: slice, other: slice) -> bool:
    return _same_items((one.start, one.stop, one.step), (other.start, other.stop, other.step))


def _plain_equal(one: Any, other: Any) -> bool:
    return bool(one == other)


_EQUALITY: dict[type, Callable[[Any, Any], bool]] = {
    **dict.fromkeys((int, str, bytes, range, torch.device), _plain_equal),
    float: same_bits,
    complex: lambda one, other: same_bits(one.real, other.real) and same_bits(one.imag, other.imag),
    **dict.fromkeys((tuple, list, torch.Size), _same_items),
    slice: _same_slice,
    frozenset: lambda one, other: (
        {(type(item), item) for item in one} == {(type(item), item) for item in other}
        and all(type(item) in (int, str, bytes, bool, type(None)) for item in one | other)
    ),
}


def by_identity(value: Any) -> bool:
    """Whether nothing but the very object is the same constant."""
    return type(value) not in _EQUALITY


def same_constant(one: Any, other: Any) -> bool:
    """One exact type and one value; objects of other types only when they are one object."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    equal = _EQUALITY.get(type(one))
    return equal is not None and equal(one, other)


def equals(value: Any, check: Equals) -> bool:
    """A constant."""
    return same_constant(value, check.value)


def compares(value: Any, check: Compares) -> bool:
    """A float beside a number."""
    return type(value) is float and check.holds(value)


_SIZED: tuple[Any, ...] = (
    list,
    tuple,
    dict,
    set,
    frozenset,
    collections.deque,
    range,
    str,
    bytes,
)


def length_is(value: Any, check: LengthIs) -> bool:
    """How many items, past any `__len__` of a subclass."""
    kind = type(value)
    if check.exact_class is not None and kind is not check.exact_class:
        return False
    for base in _SIZED:
        if issubclass(kind, base):
            return bool(base.__len__(value) == check.length)
    return False


def keys_are(value: Any, check: KeysAre) -> bool:
    """Exactly these keys, in this order."""
    return type(value) is dict and _same_items(list(value), check.keys)


def has_key(value: Any, check: HasKey) -> bool:
    """Whether a dict has this key."""
    if type(value) is types.MappingProxyType:
        return (check.key in value) is check.present
    return issubclass(type(value), dict) and dict.__contains__(value, check.key) is check.present


def same_objects(value: Any, check: SameObjects, others: Sequence[Any]) -> bool:
    """The one object, or none of these."""
    return all((value is other) is check.same for other in others)


def ambient_is(_: Any, check: AmbientIs) -> bool:
    """The state of the thread, all of it."""
    state = torch_abi.ambient()
    return all(getattr(check, name) == found for name, found in state._asdict().items())


def resolves(value: Any, check: Resolves) -> bool:
    """The class still finds this very object under the name."""
    return resolve(value, check.name) is check.value


def answers(value: Any, check: Answers) -> bool:
    """The class still finds these very objects under the names."""
    pairs = zip(check.names, check.values, strict=True)
    return all(resolve(value, name) is found for name, found in pairs)


@dataclass(frozen=True, slots=True, eq=False)
class WeakIdentity(Check):
    """`IdentityIs` as an entry keeps it for people to read: without the object."""

    reference: weakref.ref[Any]
    text: str

    @property
    def value(self) -> Any:
        """The object, while it lives."""
        return self.reference()

    def __str__(self) -> str:
        return self.text if self.reference() is not None else f"{self.text} (gone)"


PREDICATES: dict[type[Check], Callable[..., bool]] = {
    TensorIs: tensor_is,
    Binds: binds,
    TypeIs: type_is,
    IdentityIs: identity_is,
    WeakIdentity: identity_is,
    Equals: equals,
    Compares: compares,
    LengthIs: length_is,
    KeysAre: keys_are,
    HasKey: has_key,
    SameObjects: same_objects,
    AmbientIs: ambient_is,
    Resolves: resolves,
    Answers: answers,
}


def holds(guard: Guard, slots: Sequence[Any]) -> bool:
    """Whether one guard holds of these slots now, by itself."""
    return first_failure((guard,), slots) is None


def first_failure(guards: Iterable[Guard], slots: Sequence[Any]) -> Guard | None:
    """The first guard that does not hold of these slots now. What is symbolic is compared once all
    symbols are bound; a symbol that none of the guards binds has no value."""
    symbols: dict[str, int] = {}
    waiting: list[tuple[Guard, Relation]] = []
    for guard in guards:
        try:
            if not _holds(guard, slots, symbols, waiting):
                return guard
        except UNREADABLE:
            return guard
    for guard, relation in waiting:
        try:
            if not relation.holds(symbols):
                return guard
        except UNREADABLE:
            return guard
    return None


def _holds(
    guard: Guard,
    slots: Sequence[Any],
    symbols: dict[str, int],
    waiting: list[tuple[Guard, Relation]],
) -> bool:
    """Whether a guard holds as far as can be told now: it binds symbols, and adds to `waiting`."""
    check = guard.check
    if isinstance(check, Holds):
        waiting.append((guard, check.relation))
        return True
    value: Any = None if isinstance(check, AmbientIs) else read(guard.source, slots)
    if isinstance(check, SameObjects):
        return same_objects(value, check, [read(one, slots) for one in check.others])
    if not PREDICATES[type(check)](value, check):
        return False
    found: list[tuple[int, Size]] = []
    if isinstance(check, Binds):
        found = [(value, check.symbol)]
    elif isinstance(check, TensorIs):
        found = [(reader(value, place), wanted) for reader, place, wanted in varying(check.type)]
    for number, wanted in found:
        symbol = symbol_of(wanted)
        if symbol is None or symbol.key in symbols:
            waiting.append((guard, Relation("==", number, wanted)))
        elif not in_range(number, wanted):
            return False
        else:
            symbols[symbol.key] = number
    return True


def describe(guard: Guard, slots: Sequence[Any]) -> str:
    """What stands at a guard's source now, in a few words: for reports of why a call missed."""
    if isinstance(guard.check, AmbientIs):
        state = torch_abi.ambient()._asdict()
        changed = {k: v for k, v in state.items() if v != getattr(guard.check, k)}
        return f"thread has {changed}"
    if isinstance(guard.check, Holds):
        return "sizes that do not satisfy it"
    try:
        value = read(guard.source, slots)
    except UNREADABLE as error:
        return f"cannot be read: {error}"
    if issubclass(type(value), torch.Tensor):
        facts = TensorType(*torch_abi.tensor_facts(value))
        return f"{type(value).__name__} {facts} keys={torch_abi.dispatch_keys(value):#x}"
    if type(value) in _EQUALITY or value is None or type(value) is bool:
        return repr(value)
    return f"<{type(value).__qualname__} at {id(value):#x}>"
