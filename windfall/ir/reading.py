"""What can be read of an object without running user code.

Enters: any object. Leaves: one fact of it: an item, a field, a length, its keys. `Source` walks by
these functions, checks judge by them, the generated text of a guard check calls them by these
names. Invariant: no method, property, descriptor or metaclass of the user's runs (no `__getattr__`,
`__len__`, `__missing__`, `__torch_function__`): what could only be read through one is unreadable,
and raises one of `UNREADABLE`. (A dictionary that has a key of a user's class with the very hash of
the key that is looked up asks that key's `__eq__`, as every lookup in it does.)
"""

from __future__ import annotations

import collections
import gc
import types
from collections.abc import Callable, Collection
from typing import Any

import torch

from windfall import torch_abi

# What a read raises where there is nothing to read, and arithmetic over sizes without a value.
UNREADABLE = (AttributeError, LookupError, TypeError, ValueError, ArithmeticError, RuntimeError)

# What a class finds for a name that neither it nor a base of it defines.
ABSENT: Any = type("Absent", (), {"__repr__": lambda self: "ABSENT", "__slots__": ()})()

_C_DESCRIPTORS = (types.GetSetDescriptorType, types.MemberDescriptorType)
# Past any metaclass.
mro_of: Callable[[type], tuple[type, ...]] = type.__dict__["__mro__"].__get__
bases_of: Callable[[type], tuple[type, ...]] = type.__dict__["__bases__"].__get__
class_dict: Callable[[type], Any] = type.__dict__["__dict__"].__get__
dictionary_at: Callable[[type], int] = type.__dict__["__dictoffset__"].__get__
flags_of: Callable[[type], int] = type.__dict__["__flags__"].__get__
short_class_name: Callable[[type], str] = type.__dict__["__name__"].__get__
class_name: Callable[[type], str] = type.__dict__["__qualname__"].__get__
_IMMUTABLE = 1 << 8  # the flag of a class that nobody can change


def is_among(kind: type, kinds: Collection[type]) -> bool:
    """Whether a class is one of these, by identity: a metaclass may have a `__hash__` or `__eq__`.
    (A frozenset holds plain classes only.)"""
    if type(kinds) is frozenset:
        return type(kind) is type and kind in kinds
    return any(kind is one for one in kinds)


def is_a(value: Any, kinds: Any) -> bool:
    """As `isinstance` of plain classes, but only the class is asked: an object of the user's may
    answer anything for `__class__`, and learns of the question."""
    return issubclass(type(value), kinds)


def lasting_class(value: Any) -> type | None:
    """The class of an object that has it for life; None: `value.__class__ = Other` is allowed."""
    kind = type(value)
    lasting = flags_of(kind) & _IMMUTABLE and not issubclass(kind, types.ModuleType)
    return kind if lasting else None


def resolve(owner: Any, name: str) -> Any:
    """What a class finds for `name` along its MRO, as it stands in the dictionaries; or ABSENT."""
    if not issubclass(type(owner), type):
        raise TypeError(f"{class_name(type(owner))} is not a class")
    for one in mro_of(owner):
        table = class_dict(one)
        if name in table:
            return table[name]
    return ABSENT


def attribute(value: Any, name: str) -> Any:
    """An attribute that a C descriptor of the class reads: a slot, a field."""
    kind = type(value)
    found = resolve(kind, name)
    if not is_among(type(found), _C_DESCRIPTORS):
        raise AttributeError(f"{name} of {class_name(kind)} is not plain")
    if issubclass(kind, torch.Tensor):
        return torch_abi.without_torch_function(found.__get__, value, kind)
    return found.__get__(value, kind)


def dict_of(value: Any) -> Any:
    """The dictionary of an object, a class among them."""
    if issubclass(type(value), type):
        # What `__dict__` answers is a view, and of that nothing but the dictionary is seen.
        (found,) = gc.get_referents(class_dict(value))
        return found
    return attribute(value, "__dict__")


def reads_are_hooked(cls: type) -> bool:
    """Whether reading an attribute of an instance runs a method of the program."""
    return type(resolve(cls, "__getattribute__")) is not types.WrapperDescriptorType


def item(value: Any, key: Any) -> Any:
    """An item of a list, tuple, dict, or of a subclass past its own methods."""
    kind = type(value)
    if issubclass(kind, dict):
        return _dict_item(value, key)
    for base in (tuple, list):
        if issubclass(kind, base):
            return base.__getitem__(value, key)
    raise TypeError(f"{class_name(kind)} has no plain items")


def _dict_item(value: Any, key: Any) -> Any:
    if not dict.__contains__(value, key):
        raise KeyError(key)  # not even `__missing__` is asked
    return dict.__getitem__(value, key)


def cell_contents(cell: Any) -> Any:
    """What a closure cell holds."""
    if type(cell) is not types.CellType:
        raise TypeError("not a cell")
    return cell.cell_contents


def bound_to(method: Any) -> Any:
    """What a builtin method is bound to."""
    return attribute(method, "__self__")


def by_method(value: Any, kind: type, name: str, *arguments: Any) -> Any:
    """What a builtin class's own method answers, where that is no user code."""
    if name == "__getitem__" and issubclass(kind, dict):
        return _dict_item(value, *arguments)
    return getattr(kind, name)(value, *arguments)


# Iterators that tell where they stand without being advanced.
_LIST_ITERATOR: type = type(iter([]))
_BACKWARDS: type = type(reversed([]))
LIST_ITERATORS: tuple[type, ...] = (_LIST_ITERATOR, _BACKWARDS)
# What these go over cannot change.
_OF_CONSTANTS: tuple[type, ...] = (
    type(iter(())),
    type(iter(range(0))),
    type(iter("")),
    type(iter("é")),
    type(iter(b"")),
)
DICT_ITERATORS: tuple[type, ...] = (
    type(iter({})),
    type(iter({}.values())),
    type(iter({}.items())),
    type(reversed({})),
    type(reversed({}.values())),
    type(reversed({}.items())),
)
SET_ITERATORS: tuple[type, ...] = (type(iter(set())),)
TELLING_ITERATORS: tuple[type, ...] = (
    *LIST_ITERATORS,
    *dict.fromkeys(_OF_CONSTANTS),
    *DICT_ITERATORS,
    *SET_ITERATORS,
)


# Those that tell it by a list of what is left; and of how many that is made, over and over.
_LISTING_ITERATORS = (*DICT_ITERATORS, *SET_ITERATORS)
_MOST_LISTED = 1000


def _state(iterator: Any) -> Any:
    kind: Any = type(iterator)
    if not is_among(kind, TELLING_ITERATORS):
        raise TypeError(f"{class_name(kind)} does not tell where it stands")
    if is_among(kind, _LISTING_ITERATORS) and kind.__length_hint__(iterator) > _MOST_LISTED:
        raise TypeError(f"{class_name(kind)} has too many items left to list them")
    return kind.__reduce__(iterator)


def _left(iterator: Any) -> tuple[Any, int, int]:
    """What an iterator goes over, where it stands in that, and how far it can go. (Of a dict or a
    set: a list of what is left. One over what has changed in size meanwhile is unreadable.)"""
    state = _state(iterator)
    items, index = state[1][0], (state[2] or 0) if len(state) > 2 else 0
    if type(iterator) is not _BACKWARDS:
        return items, index, len(items) - index
    ended = len(state) < 3 or not 0 <= index < len(items)  # it ends where its list was cut
    return items, index, 0 if ended else index + 1


def ahead(iterator: Any, count: int) -> Any:
    """What an iterator gives after so many more items; it stays where it is."""
    items, index, most = _left(iterator)
    if count >= most:
        raise IndexError(f"{class_name(type(iterator))} has {most} items left")
    return items[index - count if type(iterator) is _BACKWARDS else index + count]


def has_ahead(iterator: Any, count: int) -> bool:
    """Whether an iterator gives an item after so many more."""
    return count < _left(iterator)[2]


def has_ended(iterator: Any) -> bool:
    """Whether an iterator over a list has come to its end, and so lets go of the list: one that has
    given all items, and was not asked for another, still sees what is appended."""
    kind: Any = type(iterator)
    return len(kind.__reduce__(iterator)) < 3


def iterated(iterator: Any) -> Any:
    """The list or dict that an iterator goes over: whoever writes it is seen by the iterator."""
    if is_among(type(iterator), DICT_ITERATORS):
        (found,) = (one for one in gc.get_referents(iterator) if issubclass(type(one), dict))
        return found
    return _state(iterator)[1][0]


# Containers that can be iterated past the methods of a subclass, those with an order of their own
# before what they derive from; and what `keys` of these answers.
_ITERATED: tuple[Any, ...] = (collections.OrderedDict, dict, set, frozenset)
_VIEWS: tuple[type, ...] = (type({}.keys()), type(collections.OrderedDict().keys()))


def keys_of(value: Any) -> tuple[Any, ...]:
    """The keys of a mapping, or the items of a set, in its own order."""
    kind = type(value)
    if is_among(kind, _VIEWS):
        return tuple(value)
    for base in _ITERATED:
        if issubclass(kind, base):
            return tuple(base.__iter__(value))
    raise TypeError(f"{class_name(kind)} has no plain keys")


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


def length(value: Any) -> int:
    """How many items, past any `__len__` of a subclass."""
    kind = type(value)
    for base in _SIZED:
        if issubclass(kind, base):
            return int(base.__len__(value))
    raise TypeError(f"{class_name(kind)} has no plain length")


def size(value: Any, dimension: int) -> int:
    """The size of one dimension of a tensor."""
    return int(facts(value).sizes[dimension])


def stride(value: Any, dimension: int) -> int:
    """The stride of one dimension of a tensor."""
    return int(facts(value).strides[dimension])


def facts(value: Any) -> torch_abi.TensorFacts:
    """What a tensor says of itself."""
    if not issubclass(type(value), torch.Tensor):
        raise TypeError(f"{class_name(type(value))} is not a tensor")
    return torch_abi.tensor_facts(value)


def scalar_of(value: Any) -> torch.Tensor:
    """A float as a float64 tensor without dimensions."""
    if type(value) is not float:
        raise TypeError(f"{class_name(type(value))} is not a float")
    return torch.scalar_tensor(value, dtype=torch.float64)


def byte_range(value: Any) -> tuple[int, int]:
    """The addresses of a tensor from its first to behind its last element; of nothing, nowhere."""
    found = facts(value)
    if 0 in found.sizes:
        return (0, 0)
    start = torch_abi.without_torch_function(torch.Tensor.data_ptr, value)
    last = sum((one - 1) * step for one, step in zip(found.sizes, found.strides, strict=True))
    return (start, start + (last + 1) * found.dtype.itemsize)
