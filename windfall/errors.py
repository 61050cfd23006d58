"""The three ways in which something goes wrong, and whose turn it is then.

Enters: a fact found by any room. Leaves: an exception whose class says who acts:

* `UserError`: the call is wrong; the message names what is accepted, or the user's line.
* `Unsupported`: windfall cannot compile this step; the caller runs it eagerly and counts it.
* `InternalError`: always our bug; the caller falls back to eager (unless `strict`) and reports it.

Invariant: no room catches `Exception` to hide it; whoever catches one of these also counts it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class SourceLine:
    """One line of the user's program, as a traceback would name it."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


class WindfallError(Exception):
    """The base of every exception that windfall raises by itself."""


class UserError(WindfallError):
    """The user's call is wrong; the message says what is accepted."""


class BreakError(UserError):
    """`fullgraph=True`, and the program cannot be one graph: `number` is the reason's row, `stack`
    the user's frames at the place, outermost first."""

    def __init__(self, text: str, number: int, stack: tuple[SourceLine, ...]) -> None:
        super().__init__(text)
        self.number = number
        self.stack = stack

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.args[0], self.number, self.stack)


class BackendError(WindfallError, RuntimeError):
    """The backend that the user named raised; its own exception is the cause."""


class RecompileError(UserError, RuntimeError):
    """A call would be compiled although the stance or a limit forbids it."""


class Unsupported(WindfallError):
    """One step that windfall cannot compile: a numbered reason and where it stands.

    `number` is a row of `frontend/breaks.py` (or of another room's table of the same shape);
    `detail` is the particular of this occurrence.
    """

    def __init__(self, number: int, detail: str, where: SourceLine | None = None) -> None:
        super().__init__(f"W{number:04d}: {detail}" + (f" ({where})" if where else ""))
        self.number = number
        self.detail = detail
        self.where = where


class Specialise(Unsupported):
    """A step that needs the value of sizes (`names` of symbols) that were taken as varying: the
    caller compiles again with these fixed."""

    def __init__(self, names: frozenset[str], detail: str, where: SourceLine | None = None) -> None:
        super().__init__(103, f"{detail} needs the value of {', '.join(sorted(names))}", where)
        self.names = names
        self.sources: frozenset[str] = frozenset()  # where these are read, once that is known


class Narrow(Specialise):
    """A number that varies is used as a size: the caller compiles again, knowing that it is one."""


class Counts(WindfallError):
    """The program writes numbers that it has read, as counters are: the caller compiles again,
    knowing that what stands at these sources varies."""

    def __init__(self, sources: frozenset[str]) -> None:
        super().__init__(f"counted: {', '.join(sorted(sources))}")
        self.sources = sources


class InternalError(WindfallError):
    """A broken invariant of windfall's own."""
