"""The reference evaluation of guards, in plain Python: slow, and the oracle of the native one.

Enters: guards and slots. Leaves: the first guard that does not hold, or None. Invariant: runs no
user code; whatever goes wrong while a source is walked means that the guard does not hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from windfall import torch_abi
from windfall.ir import guard as checks
from windfall.ir.dtype import TensorType
from windfall.ir.guard import ABSENT, AMBIENT, Guard
from windfall.ir.relation import Relation
from windfall.ir.symint import Size

Slots = Sequence[Any]


def first_failure(guards: Iterable[Guard], slots: Slots) -> Guard | None:
    """The first guard that does not hold of these slots."""
    return next(failures(guards, slots), None)


def failures(
    guards: Iterable[Guard], slots: Slots, values: dict[str, int] | None = None
) -> Iterator[Guard]:
    """The guards that do not hold of these slots. `values` are those of the symbols: what is said
    of sizes in relation to others is looked at when all symbols have one."""
    values = {} if values is None else values
    later: list[tuple[Guard, Relation]] = []
    for guard in guards:
        if isinstance(guard.check, checks.Holds):
            later.append((guard, guard.check.relation))
        elif isinstance(guard.check, checks.Binds | checks.TensorIs):
            relations = _bound(guard, slots, values)
            if relations is None:
                yield guard
            else:
                later.extend((guard, one) for one in relations)
        elif not holds(guard, slots):
            yield guard
    blamed: set[int] = set()
    for guard, relation in later:
        if id(guard) not in blamed and not _relation_holds(relation, values):
            blamed.add(id(guard))
            yield guard


def _relation_holds(relation: Relation, values: dict[str, int]) -> bool:
    try:
        return relation.holds(values)
    except (KeyError, ZeroDivisionError):  # a symbol that no guard could bind
        return False


def _bound(guard: Guard, slots: Slots, values: dict[str, int]) -> list[Relation] | None:
    """What must hold of the symbols so that the guard does; symbols get their values on the way.
    None: it does not hold, whatever they are."""
    check: Any = guard.check
    try:
        value = guard.source.read(slots)
    except Exception:  # a path that is no longer there
        return None
    if isinstance(check, checks.Binds):
        return _bind([(check.symbol, value)], values) if type(value) is int else None
    if not _tensor_is(check, value, slots):
        return None
    wanted, found = check.type, TensorType.of(value)
    here = (*found.sizes, *found.strides)
    pairs = list(zip((*wanted.sizes, *wanted.strides), here, strict=True))
    return _bind(pairs, values)


def _bind(pairs: Sequence[tuple[Size, Any]], values: dict[str, int]) -> list[Relation] | None:
    relations = []
    for wanted, found in pairs:
        if isinstance(wanted, int):
            if wanted != found:
                return None
            continue
        atom = wanted.atom
        if atom is not None and not atom.operation and atom.key not in values:
            low, high = wanted.bounds
            if (low is not None and found < low) or (high is not None and found > high):
                return None
            values[atom.key] = found
        else:
            relations.append(Relation("==", wanted, found))
    return relations


def holds(guard: Guard, slots: Slots) -> bool:
    """Whether a guard that has nothing to do with symbols holds."""
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
    """All but sizes and strides."""
    return (
        type(value) is check.exact_class
        and isinstance(value, torch.Tensor)
        and torch_abi.dispatch_keys(value) == check.dispatch_keys
        and value.dtype is check.type.dtype
        and value.device == check.type.device
        and value.requires_grad == check.type.requires_grad
        and value.dim() == check.type.rank
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
    return answer(value, check.name) is check.value


def answer(cls: type, name: str) -> Any:
    """What a class finds under a name, descriptors not called; or ABSENT."""
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return ABSENT


def _answers(check: Any, value: Any, slots: Slots) -> bool:
    return all(
        answer(value, name) is found for name, found in zip(check.names, check.values, strict=True)
    )


def _same_objects(check: Any, value: Any, slots: Slots) -> bool:
    return all((one.read(slots) is value) is check.same for one in check.others)


def _keys_are(check: Any, value: Any, slots: Slots) -> bool:
    keys = list(value)
    return len(keys) == len(check.keys) and all(map(_same_key, keys, check.keys))


def _same_key(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


_RULES: dict[type, Callable[[Any, Any, Slots], bool]] = {
    checks.TypeIs: lambda check, value, slots: type(value) is check.exact_class,
    checks.IdentityIs: _by_identity,
    checks.Equals: _equals,
    checks.Compares: lambda check, value, slots: type(value) is float and check.holds(value),
    checks.LengthIs: lambda check, value, slots: (
        check.exact_class in (None, type(value)) and len(value) == check.length
    ),
    checks.KeysAre: _keys_are,
    checks.HasKey: lambda check, value, slots: (check.key in value) == check.present,
    checks.SameObjects: _same_objects,
    checks.Resolves: _resolves,
    checks.Answers: _answers,
}
