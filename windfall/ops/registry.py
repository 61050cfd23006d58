"""The dictionary of ATen ops: one `Op` record each, looked up by overload.

Enters: records declared in the family files of this room. Leaves: what the other rooms ask of an
op. Empty fields fall back: shape by torch's own meta kernel, lowering by a call of the op. So does
a rule that answers `NotImplemented`, which means "not for these arguments" (complex numbers, say).

* `shape(*types, **kwargs)`: like the op, but `TensorType`s stand where tensors stand; answers the
  `TensorType` of the result (or a tuple of them; None for an undefined one). Needed by fake
  tensors. It raises what eager raises where the arguments do not fit. Sizes may be expressions;
  questions about them go through `layout.differ` and `layout.smaller`.
* `lower(builder, *values, **kwargs)`: the op in the loop IR (see `ir/loop.py`): `Lazy` in place
  of tensors, a `Lazy` (or a tuple of them) as answer, with exactly the types of `shape`.
* `view`: the result shares the first argument's storage; `offset(*types, **kwargs)` then says how
  many elements after the first argument's start the result starts (a tuple if `shape` answers
  one; None: at the same place). For `absolute_offset` ops it counts from the storage's start.
* `mutates`: positions that are written although the op's schema does not say so, and
  `functional`, the overload that answers the written values as further results instead.
* `samples()`: argument tuples for the tests that enumerate this registry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

Shape = Callable[..., Any]
Lower = Callable[..., Any]
Samples = Callable[[], Iterator[tuple[tuple[Any, ...], dict[str, Any]]]]


@dataclass(frozen=True, slots=True)
class Op:
    """One ATen overload, by its name: `aten.add.Tensor`."""

    name: str
    shape: Shape | None = None
    lower: Lower | None = None
    view: bool = False
    random: bool = False
    samples: Samples | None = None
    decompose: Callable[..., Any] | None = None
    recompute: bool = False  # cheap enough to be done again in backward
    offset: Callable[..., Any] | None = None
    absolute_offset: bool = False
    mutates: tuple[int, ...] = ()
    functional: str | None = None


_OPS: dict[str, Op] = {}
_BY_TARGET: dict[Any, Op | None] = {}  # OpOverload -> record: spares the making of its name


def declare(op: Op) -> Op:
    """Add a record; an op is declared once."""
    assert op.name not in _OPS, f"{op.name} is declared twice"
    _OPS[op.name] = op
    _BY_TARGET.clear()
    return op


def extend(name: str, **fields: Any) -> Op:
    """Fill empty fields of a declared record."""
    op = _OPS[name] = replace(_OPS[name], **fields)
    _BY_TARGET.clear()
    return op


def lookup(target: Any) -> Op | None:
    """The record of an `OpOverload` (or of its name), if there is one."""
    if isinstance(target, str):
        return _OPS.get(target)
    try:
        return _BY_TARGET[target]
    except KeyError:
        op = _BY_TARGET[target] = _OPS.get(str(target))
        return op


def all_ops() -> tuple[Op, ...]:
    """Every record, by name."""
    return tuple(sorted(_OPS.values(), key=lambda op: op.name))
