"""From a real object to the kind of `Value` that stands for it.

Enters: an object and its source. Leaves: a `Value`. Invariant: wrapping runs no user code, and is
done when something looks at the object (`unseen.py`): the guard that covers the choice of the kind
is added by the one who looks (`Outside.see`), guards on contents when contents are asked for.

A kind is one row: `@wraps(type, ...)` for exact types, `@wraps_if(order, predicate)` where the
exact type is not enough (subclasses, classes of the user). Rows by exact type go first; predicates
are tried in their order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from windfall.frontend.values.base import Value
from windfall.ir.reading import flags_of
from windfall.ir.source import Source

if TYPE_CHECKING:
    from windfall.frontend.services import Machine

Wrapper = Callable[["Machine", Any, Source | None], Value]

BY_TYPE: dict[type, Wrapper] = {}
BY_PREDICATE: list[tuple[int, Callable[[Any], bool], Wrapper]] = []


def wraps(*types: type) -> Callable[[Wrapper], Wrapper]:
    """A row: objects of exactly these types."""

    def register(wrapper: Wrapper) -> Wrapper:
        for one in types:
            assert one not in BY_TYPE, f"{one} is wrapped twice"
            BY_TYPE[one] = wrapper
        return wrapper

    return register


def wraps_if(order: int, predicate: Callable[[Any], bool]) -> Callable[[Wrapper], Wrapper]:
    """A row: objects for which the predicate holds, asked in order of `order`."""

    def register(wrapper: Wrapper) -> Wrapper:
        BY_PREDICATE.append((order, predicate, wrapper))
        BY_PREDICATE.sort(key=lambda row: row[0])
        return wrapper

    return register


_HEAP = 1 << 9  # Py_TPFLAGS_HEAPTYPE


def has_fixed_class(value: Any) -> bool:
    """Whether `value.__class__ = ...` is refused: only instances of classes of the user move."""
    return not flags_of(type(value)) & _HEAP


def wrap(machine: Machine, value: Any, source: Source | None) -> Value:
    """The symbolic value of an object that was not met before."""
    wrapper = BY_TYPE.get(type(value))
    if wrapper is not None:
        return wrapper(machine, value, source)
    for _, predicate, wrapper in BY_PREDICATE:
        if predicate(value):
            return wrapper(machine, value, source)
    raise AssertionError("the last predicate accepts everything")
