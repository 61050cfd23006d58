"""Where a value came from, as a path that can be walked again on the next call.

Enters: what the front end read while capturing. Leaves: `Source` records: a root (a slot of the
entry's argument array, or an object known at compile time) and reads upon it. The front end makes
them, the runtime turns them into native loads or Python text, reports print them.

Invariant: walking a source runs no user code (no property, no `__getattr__`): an attribute found
through user code has the sources of what that code read instead.

    >>> str(Item(DictOf(Slot(0, "self")), "training"))
    "L['self'].__dict__['training']"
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Source:
    """One way to re-read a value."""

    @property
    def base(self) -> Source | None:
        """The source that this one reads from; None for a root."""
        return None


@dataclass(frozen=True, slots=True)
class Slot(Source):
    """Position `index` of the entry's positional arguments: an argument, or a value that was live
    at a break (a local, a stack position of some frame)."""

    index: int
    name: str

    def __str__(self) -> str:
        return f"L['{self.name}']"


@dataclass(frozen=True, slots=True, eq=False)
class Known(Source):
    """An object that exists at compile time and is reachable for as long as the entry lives
    (a globals dict, a class, a closure cell). Compared by identity."""

    value: Any
    name: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Known) and other.value is self.value

    def __hash__(self) -> int:
        return hash(id(self.value))

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class _Derived(Source):
    of: Source

    @property
    def base(self) -> Source:
        """The source that this one reads from."""
        return self.of


@dataclass(frozen=True, slots=True)
class DictOf(_Derived):
    """The instance dictionary of an object."""

    def __str__(self) -> str:
        return f"{self.of}.__dict__"


@dataclass(frozen=True, slots=True)
class Item(_Derived):
    """`base[key]` of an exact list, tuple or dict, with a key that is constant and hashable."""

    key: Any

    def __str__(self) -> str:
        return f"{self.of}[{self.key!r}]"


@dataclass(frozen=True, slots=True)
class Attribute(_Derived):
    """`base.name` where the read is plain: a slot, a C getter, a function's field, a tensor's."""

    name: str

    def __str__(self) -> str:
        return f"{self.of}.{self.name}"


@dataclass(frozen=True, slots=True)
class CellContents(_Derived):
    """What a closure cell holds."""

    def __str__(self) -> str:
        return f"{self.of}.cell_contents"


@dataclass(frozen=True, slots=True)
class TypeOf(_Derived):
    """The exact class of a value."""

    def __str__(self) -> str:
        return f"type({self.of})"
