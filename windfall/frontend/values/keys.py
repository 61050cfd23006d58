"""Keys of dictionaries and sets: which are told by value, which by identity.

Enters: keys. Leaves: what they are told by. Invariant: no `__hash__` or `__eq__` of the user runs.
"""

from __future__ import annotations

import enum
import types
import typing
from typing import TYPE_CHECKING, Any

import torch

from windfall.frontend.breaks import UNKNOWN_OPERATION, stop
from windfall.frontend.values.base import Raised, Value
from windfall.frontend.values.constant import Constant
from windfall.ir.reading import is_among, resolve

if TYPE_CHECKING:
    from windfall.frontend.services import Machine


_PLAIN = (str, int, bool, float, bytes, type(None), complex, torch.dtype, torch.device)
# How classes, functions, special forms (`typing.Union`) are hashed and compared: by identity.
# Members of enumerations are hashed by their name, which `Member.key` relies on.
_BY_IDENTITY: tuple[Any, ...] = (object.__hash__, type.__hash__, enum.Enum.__hash__)
_SAME: tuple[Any, ...] = (object.__eq__, type.__eq__)
_IDENTITY_KINDS = (type, types.FunctionType, type(typing.Union), enum.Enum)


# Tensors are hashed by their address, so they are found without being compared.
_TENSORS = (torch.Tensor, torch.nn.Parameter)
_TENSOR_HASH: Any = torch.Tensor.__hash__


def is_tensor_key(key: Any) -> bool:
    """Whether a key is a tensor that stands for itself."""
    return is_among(type(key), _TENSORS) and type(key).__hash__ is _TENSOR_HASH


def is_identity_key(key: Any) -> bool:
    """Whether a key from outside stands for itself."""
    kind = type(key)
    return isinstance(key, _IDENTITY_KINDS) and (
        kind.__hash__ in _BY_IDENTITY and kind.__eq__ in _SAME
    )


def is_class_key(key: Any) -> bool:
    """Whether a key, as `Value.key` gives it, stands for such an object, or is a plain tuple of
    such and of constants."""
    if type(key) is tuple:
        return all(is_plain_key(one) or is_class_key(one) for one in key)
    return isinstance(key, Value) and is_identity_key(getattr(key, "real", None))


def real_key(key: Any) -> Any:
    """The object that a plain key, or one of a class, stands for."""
    if type(key) is tuple:
        return tuple(map(real_key, key))
    return getattr(key, "real", None) if isinstance(key, Value) else key


def told_key(machine: Machine, key: Any) -> Any:
    """A key from outside as `Value.key` gives it."""
    if is_plain_key(key):
        return key
    if type(key) is tuple:
        return tuple(told_key(machine, one) for one in key)
    return machine.values.known(key, "key").key(machine)


def is_outside_key(key: Any) -> bool:
    """Whether a key from outside is one that can be told: by value, by identity, part by part."""
    if type(key) is tuple:
        return all(map(is_outside_key, key))
    return is_plain_key(key) or is_identity_key(key)


def is_plain_key(key: Any) -> bool:
    """Whether a key may stand in a source: constant, hashed without user code."""
    kind: Any = type(key)
    if isinstance(key, tuple) and kind.__hash__ is tuple.__hash__ and kind.__eq__ is tuple.__eq__:
        return all(is_plain_key(one) for one in tuple.__iter__(key))
    return is_among(kind, _PLAIN)


def is_own_object(value: Value) -> bool:
    """Whether a key is a constant from outside: what shows the key shows that very object, and a
    later call may bring another that is equal."""
    return isinstance(value, Constant) and value.source is not None


def is_its_key(machine: Machine, value: Value) -> bool:
    """Whether a key is told by what `Value.key` answers, its class too: an equal plain tuple stands
    for a `torch.Size` or a record, and is not it."""
    if isinstance(value, Constant):
        return True
    if value.python_type() is not tuple:
        return False
    return all(is_its_key(machine, one) for one in value.unpack(machine))


def compares_by_user_code(table: dict[Any, Any]) -> bool:
    """Whether a dict has keys whose class says in Python what they are equal to: a key with the
    same hash would be compared with them."""
    kinds = {id(kind): kind for kind in map(type, table)}
    return any(
        not is_among(kind, (*_PLAIN, *_TENSORS))
        and isinstance(resolve(kind, "__eq__"), types.FunctionType)
        for kind in kinds.values()
    )


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
