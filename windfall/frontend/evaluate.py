"""The reference evaluation of guards, in plain Python: slow, and the oracle of the native one.

Enters: guards and slots. Leaves: the first guard that does not hold, or None. Invariant: runs no
user code; whatever goes wrong while a source is walked means that the guard does not hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from windfall import torch_abi
from windfall.ir import guard as checks
from windfall.ir.dtype import TensorType
from windfall.ir.guard import ABSENT, AMBIENT, Guard

Slots = Sequence[Any]


def first_failure(guards: Iterable[Guard], slots: Slots) -> Guard | None:
    """The first guard that does not hold of these slots."""
    for guard in guards:
        if not holds(guard, slots):
            return guard
    return None


def holds(guard: Guard, slots: Slots) -> bool:
    """Whether a guard holds."""
    if guard.source is AMBIENT:
        return guard.check == checks.AmbientIs(**torch_abi.ambient()._asdict())
    try:
        value = guard.source.read(slots)
        return _RULES.get(type(guard.check), _by_identity)(guard.check, value, slots)
    except Exception:  # a path that is no longer there
        return False


def _by_identity(check: Any, value: Any, slots: Slots) -> bool:
    """The runtime keeps `IdentityIs` of a finished entry in a form without the object."""
    return value is check.value


def _tensor_is(check: Any, value: Any, slots: Slots) -> bool:
    return (
        type(value) is check.exact_class
        and isinstance(value, torch.Tensor)
        and torch_abi.dispatch_keys(value) == check.dispatch_keys
        and TensorType.of(value) == check.type
    )


def _equals(check: Any, value: Any, slots: Slots) -> bool:
    return _same_constant(check.value, value)


def _same_constant(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        return one == other and math.copysign(1, one) == math.copysign(1, other)
    if isinstance(one, complex):
        return _same_constant(one.real, other.real) and _same_constant(one.imag, other.imag)
    return bool(one == other)


def _resolves(check: Any, value: Any, slots: Slots) -> bool:
    for base in value.__mro__:
        if check.name in base.__dict__:
            return base.__dict__[check.name] is check.value
    return check.value is ABSENT


def _same_objects(check: Any, value: Any, slots: Slots) -> bool:
    others = [one.read(slots) for one in check.others]
    if check.same:
        return all(one is value for one in others)
    everything = [value, *others]
    return len({id(one) for one in everything}) == len(everything)


def _keys_are(check: Any, value: Any, slots: Slots) -> bool:
    keys = list(value)
    return len(keys) == len(check.keys) and all(map(_same_key, keys, check.keys))


def _same_key(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


_RULES: dict[type, Callable[[Any, Any, Slots], bool]] = {
    checks.TensorIs: _tensor_is,
    checks.TypeIs: lambda check, value, slots: type(value) is check.exact_class,
    checks.IdentityIs: _by_identity,
    checks.Equals: _equals,
    checks.LengthIs: lambda check, value, slots: len(value) == check.length,
    checks.KeysAre: _keys_are,
    checks.HasKey: lambda check, value, slots: (check.key in value) == check.present,
    checks.SameObjects: _same_objects,
    checks.Resolves: _resolves,
}
