"""A frame of the interpreted program: plain data.

Enters: a code object and its variables. Leaves: nothing by itself; `interpreter.py` steps it.
Invariant: all that an activation is stands here, so that it can be copied, taken back, and
described at a break.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import CodeType
from typing import TYPE_CHECKING, Any

from windfall.dataclass import dataclass
from windfall.errors import SourceLine
from windfall.frontend.bytecode import Listing, decode
from windfall.frontend.tracebacks import TracebackPlace, place_of
from windfall.frontend.values.base import Value
from windfall.ir.node import Region

if TYPE_CHECKING:
    from windfall.frontend.values.mapping import Dict


class Frame:
    """One activation: plain data."""

    __slots__ = (
        "builtins",
        "code",
        "discard",
        "generator",
        "globals",
        "instructions",
        "ip",
        "kw_names",
        "last",
        "listing",
        "names",
        "phase",
        "region",
        "role",
        "rounds",
        "stack",
        "variables",
    )

    def __init__(
        self,
        code: CodeType,
        globals: dict[str, Any],
        builtins: Mapping[str, Any],
        variables: list[Value | None],
        region: Region | None,
        discard: bool = False,
    ) -> None:
        self.code = code
        self.listing: Listing = decode(code)
        self.instructions = self.listing.instructions
        self.globals = globals
        self.builtins = builtins
        self.variables = variables
        self.stack: list[Value] = []
        self.ip = 0  # the next instruction
        self.last = 0  # the present one; in a waiting frame, the call
        self.phase = 0  # how often the present instruction was begun already
        self.kw_names: tuple[str, ...] = ()
        self.region = region
        self.discard = discard  # the caller does not want the result
        self.names: Dict | None = None  # where the body of a class keeps its variables
        self.generator: Any = None  # the `Generator` whose frame this is
        self.rounds = (0, 0)  # jumps backward of this frame, and the size of the graph since then
        self.role = "next"  # what whoever resumed the generator expects at its end

    @property
    def line(self) -> SourceLine:
        """The line being executed."""
        return self.listing.lines[self.instructions[self.last].line]

    @property
    def place(self) -> TracebackPlace:
        """The instruction being executed."""
        return place_of(self.code, self.globals, self.instructions[self.last])

    @property
    def is_ours(self) -> bool:
        """Whether this is a polyfill, and no code of the user."""
        name = self.globals.get("__name__")
        return isinstance(name, str) and name.startswith("windfall.frontend.polyfills")

    def retry(self) -> None:
        """Execute the present instruction again, when a pending call has returned."""
        self.ip = self.last
        self.phase += 1


@dataclass(frozen=True, slots=True)
class FrameSnapshot:
    """A frame and what it held."""

    frame: Frame
    stack: tuple[Value, ...]
    variables: tuple[Value | None, ...]
    ip: int
    last: int
    phase: int
    kw_names: tuple[str, ...]

    @classmethod
    def of(cls, frame: Frame) -> FrameSnapshot:
        """A copy of the present condition."""
        return cls(
            frame,
            tuple(frame.stack),
            tuple(frame.variables),
            frame.ip,
            frame.last,
            frame.phase,
            frame.kw_names,
        )

    def restore(self) -> None:
        """Make the frame what it was."""
        frame = self.frame
        frame.stack[:] = self.stack
        frame.variables[:] = self.variables
        frame.ip, frame.last, frame.phase = self.ip, self.last, self.phase
        frame.kw_names = self.kw_names
