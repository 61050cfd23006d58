"""Where a value came from, as a path that can be walked again on the next call.

Enters: what the front end read while capturing. Leaves: `Source` records: a root (a slot of the
entry's argument array, or an object known at compile time) and reads upon it. The front end makes
them, the runtime turns them into native loads or Python text, reports print them.

Invariant: walking a source runs no user code (no property, no `__getattr__`): an attribute found
through user code has the sources of what that code read instead. How a kind of source is read is
said once, by its `reader` (a function of `reading.py`): `read` and the generated text of guard
checks call it. `text` is for the segment, which runs once the guards hold. Machine code walks some
kinds by steps of its own (`runtime/encoder.py`); what it does not, it leaves to these.

    >>> str(Item(DictOf(Slot(0, "self")), "training"))
    "L['self'].__dict__['training']"
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any, ClassVar

from windfall import torch_abi
from windfall.dataclass import dataclass
from windfall.ir import reading

# Gives the name under which generated text finds an object: `name_of(object, hint)`.
NameOf = Callable[[Any, str], str]


@dataclass(frozen=True, slots=True)
class Source:
    """One way to re-read a value."""

    @property
    def base(self) -> Source | None:
        """The source that this one reads from; None for a root."""
        return None

    @property
    def operands(self) -> tuple[Any, ...]:
        """What its step takes beside the value of the base."""
        return ()

    def read(self, slots: Sequence[Any]) -> Any:
        """Walk the path now, from these slots; raises one of `UNREADABLE` where it is broken."""
        raise NotImplementedError(type(self).__name__)

    def step(self, value: Any) -> Any:
        """What this one step reads from the value of the base."""
        raise NotImplementedError(type(self).__name__)

    def text(self, base: str, name_of: NameOf) -> str:
        """Python text of this one step upon the text of the base."""
        raise NotImplementedError(type(self).__name__)


@dataclass(frozen=True, slots=True)
class Slot(Source):
    """Position `index` of the entry's positional arguments: an argument, or a value that was live
    at a break (a local, a stack position of some frame)."""

    index: int
    name: str

    def read(self, slots: Sequence[Any]) -> Any:
        """The slot's value."""
        return slots[self.index]

    def text(self, base: str, name_of: NameOf) -> str:
        """The name of the segment's parameter."""
        return self.name

    def __str__(self) -> str:
        return f"L['{self.name}']"


@dataclass(frozen=True, slots=True, eq=False)
class Known(Source):
    """An object that exists at compile time and is reachable for as long as the entry lives
    (a globals dict, a class, a closure cell). Compared by identity."""

    identities: ClassVar[tuple[str, ...]] = ("value",)

    value: Any
    name: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Known) and other.value is self.value

    def __hash__(self) -> int:
        return hash(id(self.value))

    def read(self, slots: Sequence[Any]) -> Any:
        """The object itself."""
        return self.value

    def text(self, base: str, name_of: NameOf) -> str:
        """The name that the object has in generated text."""
        return name_of(self.value, self.name)

    def __str__(self) -> str:
        return self.name


_PLAIN_KEYS = (int, str, bool, bytes, type(None))


def _key_text(key: Any, name_of: NameOf) -> str:
    return repr(key) if type(key) in _PLAIN_KEYS else name_of(key, "key")


@dataclass(frozen=True, slots=True, eq=False)
class Derived(Source):
    """One read upon the value at another source. Tables are kept by sources: each knows its hash,
    so that asking for it does not walk the whole path again."""

    reader: ClassVar[Callable[..., Any]]  # of the value of the base and the operands

    of: Source
    _hash: int = field(init=False, repr=False)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(self) is not type(other):
            return NotImplemented
        assert isinstance(other, Derived)
        return self.operands == other.operands and self.of == other.of

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            found = hash((type(self), self.of, self.operands))
            object.__setattr__(self, "_hash", found)
            return found

    @property
    def base(self) -> Source:
        """The source that this one reads from."""
        return self.of

    def read(self, slots: Sequence[Any]) -> Any:
        """The value at the base, and this one step."""
        return self.step(self.of.read(slots))

    def step(self, value: Any) -> Any:
        """What is read from the value of the base."""
        return type(self).reader(value, *self.operands)


@dataclass(frozen=True, slots=True, eq=False)
class DictOf(Derived):
    """The instance dictionary of an object. `hooked`: its class has its own `__getattribute__`,
    which generated text goes past."""

    reader = reading.dict_of

    hooked: bool = False

    def text(self, base: str, name_of: NameOf) -> str:
        """The dictionary."""
        if self.hooked:
            return f"{name_of(reading.dict_of, 'dict_of')}({base})"
        return f"{base}.__dict__"

    def __str__(self) -> str:
        return f"{self.of}.__dict__"


@dataclass(frozen=True, slots=True, eq=False)
class Item(Derived):
    """`base[key]` of an exact list, tuple or dict, with a key that is constant and hashable."""

    reader = reading.item

    key: Any

    @property
    def operands(self) -> tuple[Any, ...]:
        """The key."""
        return (self.key,)

    def text(self, base: str, name_of: NameOf) -> str:
        """The item."""
        return f"{base}[{_key_text(self.key, name_of)}]"

    def __str__(self) -> str:
        return f"{self.of}[{self.key!r}]"


@dataclass(frozen=True, slots=True, eq=False)
class ItemOfObject(Derived):
    """`base[key]` of a dict, or of a subclass past its methods, with a key that is hashed by its
    identity: an optimizer keeps the state of a parameter so."""

    identities: ClassVar[tuple[str, ...]] = ("key",)
    reader = reading.item

    key: Any

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ItemOfObject):
            return NotImplemented
        return self.key is other.key and self.of == other.of

    def __hash__(self) -> int:
        return hash((ItemOfObject, self.of, id(self.key)))

    @property
    def operands(self) -> tuple[Any, ...]:
        """The key."""
        return (self.key,)

    def text(self, base: str, name_of: NameOf) -> str:
        """The item."""
        return f"{base}[{name_of(self.key, 'key')}]"

    def __str__(self) -> str:
        return f"{self.of}[<{type(self.key).__name__} at {id(self.key):#x}>]"


@dataclass(frozen=True, slots=True, eq=False)
class Attribute(Derived):
    """`base.name` where the read is plain: a slot, a C getter, a function's field, a tensor's."""

    reader = reading.attribute

    name: str

    @property
    def operands(self) -> tuple[Any, ...]:
        """The name."""
        return (self.name,)

    def text(self, base: str, name_of: NameOf) -> str:
        """The attribute."""
        return f"{base}.{self.name}"

    def __str__(self) -> str:
        return f"{self.of}.{self.name}"


@dataclass(frozen=True, slots=True, eq=False)
class CellContents(Derived):
    """What a closure cell holds."""

    reader = reading.cell_contents

    def text(self, base: str, name_of: NameOf) -> str:
        """The contents."""
        return f"{base}.cell_contents"

    def __str__(self) -> str:
        return f"{self.of}.cell_contents"


@dataclass(frozen=True, slots=True, eq=False)
class TypeOf(Derived):
    """The exact class of a value."""

    reader = type

    def text(self, base: str, name_of: NameOf) -> str:
        """The class."""
        return f"type({base})"

    def __str__(self) -> str:
        return f"type({self.of})"


@dataclass(frozen=True, slots=True, eq=False)
class BoundTo(Derived):
    """The container that a builtin method is bound to: `items.append.__self__`."""

    reader = reading.bound_to

    def text(self, base: str, name_of: NameOf) -> str:
        """The container."""
        return f"{base}.__self__"

    def __str__(self) -> str:
        return f"{self.of}.__self__"


@dataclass(frozen=True, slots=True, eq=False)
class KeysOf(Derived):
    """The keys of a mapping in its own order, as a tuple: for those whose order is not a dict's."""

    reader = reading.keys_of

    def text(self, base: str, name_of: NameOf) -> str:
        """The keys."""
        return f"tuple({base})"

    def __str__(self) -> str:
        return f"tuple({self.of})"


@dataclass(frozen=True, slots=True, eq=False)
class ByMethod(Derived):
    """What a builtin container's own method answers for an instance of a subclass of it, past the
    methods of that subclass: `dict.__getitem__(value, key)`."""

    reader = reading.by_method

    kind: type
    name: str
    arguments: tuple[Any, ...] = ()

    @property
    def operands(self) -> tuple[Any, ...]:
        """The method and what it takes."""
        return (self.kind, self.name, *self.arguments)

    def text(self, base: str, name_of: NameOf) -> str:
        """The call."""
        parts = [base, *(_key_text(one, name_of) for one in self.arguments)]
        return f"{name_of(self.kind, self.kind.__name__)}.{self.name}({', '.join(parts)})"

    def __str__(self) -> str:
        parts = ", ".join([str(self.of), *map(repr, self.arguments)])
        return f"{self.kind.__name__}.{self.name}({parts})"


@dataclass(frozen=True, slots=True, eq=False)
class Ahead(Derived):
    """What an iterator gives after `count` more items. It is not advanced: that is an effect, which
    comes after the graph."""

    reader = reading.ahead

    count: int

    @property
    def operands(self) -> tuple[Any, ...]:
        """How many come before it."""
        return (self.count,)

    def text(self, base: str, name_of: NameOf) -> str:
        """The item."""
        return f"{name_of(reading.ahead, 'ahead')}({base}, {self.count})"

    def __str__(self) -> str:
        return f"ahead({self.of}, {self.count})"


@dataclass(frozen=True, slots=True, eq=False)
class HasAhead(Derived):
    """Whether an iterator gives an item after `count` more."""

    reader = reading.has_ahead

    count: int

    @property
    def operands(self) -> tuple[Any, ...]:
        """How many come before it."""
        return (self.count,)

    def text(self, base: str, name_of: NameOf) -> str:
        """Whether it does."""
        return f"{name_of(reading.has_ahead, 'has_ahead')}({base}, {self.count})"

    def __str__(self) -> str:
        return f"has_ahead({self.of}, {self.count})"


@dataclass(frozen=True, slots=True, eq=False)
class AddressOf(Derived):
    """`id(base)`."""

    reader = id

    def text(self, base: str, name_of: NameOf) -> str:
        """The address."""
        return f"{name_of(id, 'address_of')}({base})"

    def __str__(self) -> str:
        return f"id({self.of})"


@dataclass(frozen=True, slots=True, eq=False)
class Iterated(Derived):
    """The list or dict that an iterator goes over."""

    reader = reading.iterated

    def text(self, base: str, name_of: NameOf) -> str:
        """The container."""
        return f"{name_of(reading.iterated, 'iterated')}({base})"

    def __str__(self) -> str:
        return f"iterated({self.of})"


@dataclass(frozen=True, slots=True, eq=False)
class SizeOf(Derived):
    """The size of one dimension of a tensor."""

    reader = reading.size

    dimension: int

    @property
    def operands(self) -> tuple[Any, ...]:
        """The dimension."""
        return (self.dimension,)

    def text(self, base: str, name_of: NameOf) -> str:
        """The size."""
        return f"{base}.size({self.dimension})"

    def __str__(self) -> str:
        return f"{self.of}.size({self.dimension})"


@dataclass(frozen=True, slots=True, eq=False)
class StrideOf(Derived):
    """The stride of one dimension of a tensor."""

    reader = reading.stride

    dimension: int

    @property
    def operands(self) -> tuple[Any, ...]:
        """The dimension."""
        return (self.dimension,)

    def text(self, base: str, name_of: NameOf) -> str:
        """The stride."""
        return f"{base}.stride({self.dimension})"

    def __str__(self) -> str:
        return f"{self.of}.stride({self.dimension})"


@dataclass(frozen=True, slots=True, eq=False)
class ScalarOf(Derived):
    """A float as a tensor without dimensions, so that a graph can take it."""

    reader = reading.scalar_of

    def text(self, base: str, name_of: NameOf) -> str:
        """The tensor."""
        return f"{name_of(reading.scalar_of, 'scalar_of')}({base})"

    def __str__(self) -> str:
        return f"scalar_of({self.of})"


@dataclass(frozen=True, slots=True)
class Overlap(Source):
    """Whether a tensor that the program writes (`written`) shares memory with another one of these
    tensors. Byte ranges are compared: a view that only interleaves with another counts too. A
    tensor may stand for several that lie at known distances behind it: `reach` then says how many
    bytes all of them span (0: its own)."""

    written: tuple[Source, ...]
    others: tuple[Source, ...]
    reach: tuple[int, ...] = ()  # of the written ones, then of the others; none: all 0

    def read(self, slots: Sequence[Any]) -> bool:
        """The answer now."""
        ranges = [reading.byte_range(one.read(slots)) for one in (*self.written, *self.others)]
        for place, bytes in enumerate(self.reach):
            if bytes:
                ranges[place] = (ranges[place][0], ranges[place][0] + bytes)
        written, others = ranges[: len(self.written)], ranges[len(self.written) :]
        pairs = [(a, b) for i, a in enumerate(written) for b in (*written[i + 1 :], *others)]
        return any(a[0] < b[1] and b[0] < a[1] for a, b in pairs)

    def __str__(self) -> str:
        everything = ", ".join(map(str, (*self.written, *self.others)))
        return f"overlap({everything})"


@dataclass(frozen=True, slots=True)
class Distance(Source):
    """How many bytes it is from the start of one tensor to that of another."""

    start: Source
    end: Source

    def read(self, slots: Sequence[Any]) -> int:
        """The answer now."""
        start, end = (reading.byte_range(one.read(slots))[0] for one in (self.start, self.end))
        return end - start

    def __str__(self) -> str:
        return f"distance({self.start}, {self.end})"


@dataclass(frozen=True, slots=True)
class _Ambient(Source):
    def read(self, slots: Sequence[Any]) -> torch_abi.Ambient:
        """The state of the calling thread."""
        return torch_abi.ambient()

    def __str__(self) -> str:
        return "thread"


# The state of the thread that ops depend on.
AMBIENT: Source = _Ambient()


@dataclass(frozen=True, slots=True)
class _Symbols(Source):
    def __str__(self) -> str:
        return "sizes"


# The values of the symbols: no source of its own, other guards bind them.
SYMBOLS: Source = _Symbols()


class SourceNumbers:
    """A number for each different source, by which tables over many sources are kept: the same
    source object is mostly asked for again, and then not even compared."""

    def __init__(self) -> None:
        self._by_identity: dict[int, int] = {}
        self._by_source: dict[Source, int] = {}
        self._held: list[Source] = []  # an identity stands for a source only while that lives

    def __getitem__(self, source: Source) -> int:
        found = self._by_identity.get(id(source))
        if found is None:
            found = self._by_source.setdefault(source, len(self._by_source))
            self._by_identity[id(source)] = found
            self._held.append(source)
        return found
