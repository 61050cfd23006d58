"""Where a segment starts: a call, or a stack of frames that a break left behind.

Enters: what the driver knows before it compiles. Leaves: `State`, the argument of `capture`.
Invariant: a `Start` or `Position` holds no user value: values are the slots, in the order that
`slot_names` gives; two points with equal `key` have the same slots.

    Position(f @ 12 [x, y | print])     two variables and one stack position are slots
"""

from __future__ import annotations

import builtins
import keyword
from collections.abc import Mapping
from dataclasses import field
from types import CodeType
from typing import Any, ClassVar

from windfall.dataclass import dataclass
from windfall.frontend.name_tables import words
from windfall.ir.codec import record
from windfall.ir.node import Region


@record
@dataclass(frozen=True, slots=True, eq=False)
class Start:
    """A call of `target` with `count` positional arguments and these keywords: the slots."""

    identities: ClassVar[tuple[str, ...]] = ("target",)

    target: Any
    count: int
    keywords: tuple[str, ...] = ()
    names: tuple[str, ...] = ()  # of the positional arguments, for people

    @property
    def key(self) -> Any:
        """Equal for calls of one form."""
        return (self.count, self.keywords)

    @property
    def slot_names(self) -> tuple[str, ...]:
        """Names of the slots, each an identifier that stands once."""
        names = [
            self.names[index] if index < len(self.names) else f"argument{index}"
            for index in range(self.count)
        ]
        return distinct((*names, *self.keywords))

    @property
    def name(self) -> str:
        """What is called."""
        return getattr(self.target, "__qualname__", None) or type(self.target).__qualname__

    def __str__(self) -> str:
        return f"call {self.name}({', '.join(self.slot_names)})"


@record
@dataclass(frozen=True, slots=True, eq=False)
class FrameShape:
    """A frame without its values. `variables` are those that have a slot; `stack` says for each
    position whether it has a slot (else it is NULL). `last` is the instruction being executed in a
    frame that waits for its callee, `ip` the one to go on with."""

    identities: ClassVar[tuple[str, ...]] = ("code", "globals", "builtins")

    code: CodeType
    globals: dict[str, Any]
    builtins: Mapping[str, Any]
    ip: int
    last: int
    phase: int
    variables: tuple[int, ...]
    stack: tuple[bool, ...]
    discard: bool
    region: Region | None
    variable_names: tuple[str, ...]
    # A generator's, running: what it yields is awaited by the FOR_ITER of the frame below, on whose
    # stack the generator itself is the topmost thing, without a slot.
    generator: bool = False

    @property
    def key(self) -> Any:
        """Equal for frames of one shape; the position keeps alive what is compared by address."""
        return (
            id(self.code),
            id(self.globals),
            self.ip,
            self.last,
            self.phase,
            self.variables,
            self.stack,
            self.discard,
            self.region,
            self.generator,
        )

    def slot_names(self) -> list[str]:
        """Names of this frame's slots."""
        names = [self.variable_names[index] for index in self.variables]
        return names + [f"stack{i}" for i, present in enumerate(self.stack) if present]

    def __str__(self) -> str:
        variables = ", ".join(self.variable_names[index] for index in self.variables)
        stack = " ".join("slot" if present else "NULL" for present in self.stack)
        return f"{self.code.co_name} @ {self.ip} [{variables} | {stack}]"


@record
@dataclass(frozen=True, slots=True, eq=False)
class Position:
    """A stack of frames, outermost first. Where `handled`, the last slot is the exception that is
    being handled."""

    frames: tuple[FrameShape, ...]
    handled: bool = False
    key: Any = field(init=False)
    slot_names: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", (*(frame.key for frame in self.frames), self.handled))
        names = [name for frame in self.frames for name in frame.slot_names()]
        if self.handled:
            names.append("handled")
        object.__setattr__(self, "slot_names", distinct(tuple(names)))

    @property
    def name(self) -> str:
        """The innermost function."""
        return self.frames[-1].code.co_qualname

    def __str__(self) -> str:
        return " > ".join(map(str, self.frames)) + (" handling" if self.handled else "")


Point = Start | Position


@dataclass(frozen=True, slots=True)
class State:
    """A point and example values of its slots. The values are looked at during the capture, and
    not kept by what it returns."""

    point: Point
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Facts:
    """What was learnt from earlier captures; only grows."""

    dynamic: frozenset[str] = frozenset()  # sources of numbers and sizes that are known to vary
    static: frozenset[str] = frozenset()  # of those, whose value the program needs
    needed: frozenset[tuple[str, str]] = frozenset()  # of reads among these, what needs the value
    fixed: frozenset[str] = frozenset()  # whose value matters in the call being compiled alone
    broken: frozenset[str] = frozenset()  # needed of too many values: whoever needs one breaks
    apart: frozenset[str] = frozenset()  # sizes that were equal to others once, and then not
    sizes: frozenset[str] = frozenset()  # numbers that are used as sizes: 2 or more
    real: frozenset[str] = frozenset()  # places at which iterators are made natively
    everything: bool = False  # every size and number that the caller gives varies
    retried: bool = True  # whether eager begins again where a graph fails
    verify: bool = False  # check that whatever was looked at is covered by a guard
    budget: int = 400_000  # bytecodes of one capture
    idle: int = 500  # jumps backward with no operation on tensors in between
    depth: int = 200  # inlined calls on top of each other
    calls: int = 1_000  # of one function with no operation on tensors in between
    elements: int = 4_096  # of one container, range, string or iterator that are modelled
    constant_size: int = 1 << 16  # characters or bits of a constant that is computed in a capture
    parts: int = 1_024  # tensors that one operation gives
    nodes: int = 2_000  # operations of a graph after which no loop is unrolled further


class Continue:
    """What a segment returns that ended in a break: where to go on, with which slots."""

    __slots__ = ("position", "slots")

    def __init__(self, position: Position, slots: tuple[Any, ...]) -> None:
        self.position = position
        self.slots = slots


def distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    """Identifiers made from `names`, no two alike."""
    seen: set[str] = set()
    numbers: dict[str, int] = {}  # of the next one of a name: those before it are taken
    result = []
    for name in names:
        name = name if name.isidentifier() else "".join(c if c.isalnum() else "_" for c in name)
        name = name if name[:1].isalpha() or name[:1] == "_" else f"_{name}"
        unique, number = name, numbers.get(name, 1)
        while unique in seen or unique in _RESERVED:
            unique, number = f"{name}_{number}", number + 1
        numbers[name] = number
        seen.add(unique)
        result.append(unique)
    return tuple(result)


HELD = "guards_held"  # in generated source: guards of inference mode that a segment leaves entered
# Names that generated source uses for itself.
_RESERVED = words(f"graph Continue leave error traceback through callers {HELD}") | frozenset(
    (*keyword.kwlist, *dir(builtins))
)
