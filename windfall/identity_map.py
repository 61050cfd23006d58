"""`IdentityMap`: what is known of an object, by its identity.

Enters: objects, hashable or not. Leaves: the value noted for exactly that object. Invariant: an
object that was noted lives as long as the table. A dict by `id(one)` does not hold `one`: once that
is gone, the next object may be given its address, and is taken for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class IdentityMap(Generic[_Key, _Value]):
    """A table whose keys are compared by `is`, in the order of their arrival."""

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows: dict[int, tuple[_Key, _Value]] = {}

    def get(self, key: _Key) -> _Value | None:
        """What was noted of an object, if anything was."""
        found = self._rows.get(id(key))
        return None if found is None else found[1]

    def __getitem__(self, key: _Key) -> _Value:
        return self._rows[id(key)][1]

    def __setitem__(self, key: _Key, value: _Value) -> None:
        self._rows[id(key)] = (key, value)

    def __contains__(self, key: object) -> bool:
        return id(key) in self._rows

    def __iter__(self) -> Iterator[_Key]:
        return iter([key for key, _ in self._rows.values()])

    def __len__(self) -> int:
        return len(self._rows)

    def values(self) -> list[_Value]:
        """What was noted, in order; the table may grow while it is read."""
        return [value for _, value in self._rows.values()]
