"""What each input and each result of something that can be called is.

Enters: positions among a graph's inputs and results. Leaves: `Role`s, in the order of a call.
Invariant: two values that their types cannot tell apart (a parameter and a user's input, a saved
value and a tangent) have different roles; names do not count, so that equal graphs have equal ones.

    >>> str(Role(RoleKind.GRADIENT, 1)), str(Role(RoleKind.PARAMETER, 0, written=True))
    ('gradient of input 1', 'parameter 0, written')
"""

from __future__ import annotations

import enum

from windfall.dataclass import dataclass


class RoleKind(enum.Enum):
    """What a value can be; the text stands before its number."""

    # Inputs of a captured graph and of its forward pass; the number is that of the input.
    SIZE = "size"  # the value of a symbol
    PARAMETER = "parameter"
    BUFFER = "buffer"  # of a module
    INPUT = "input"  # of the user's
    # Results of forward passes: the number is that of an input, of a result, or their own.
    RESULT = "result"
    WRITTEN = "new contents of input"
    SAVED = "saved value"  # that nobody sees but backward
    # What else a captured graph can answer.
    SAME = "the very input"
    VIEW_OF_INPUT = "view of input"
    VIEW_OF_RESULT = "view of result"
    CONSTANT = "constant"
    # What backward takes besides: inputs and results of forward, tangents of its results.
    SAVED_INPUT = "saved input"
    SAVED_RESULT = "saved result"
    TANGENT = "tangent of result"
    GRADIENT = "gradient of input"
    RESULT_GRADIENT = "gradient of result"


@dataclass(frozen=True, slots=True)
class Role:
    """What a value is. `number` counts tensors of the call; of sizes, symbols; of results, those of
    the forward program."""

    kind: RoleKind
    number: int
    written: bool = False  # an input whose contents change

    def __str__(self) -> str:
        return f"{self.kind.value} {self.number}{', written' if self.written else ''}"


@dataclass(frozen=True, slots=True)
class Roles:
    """Those of all inputs and of all results, in order."""

    inputs: tuple[Role, ...] = ()
    results: tuple[Role, ...] = ()

    def __str__(self) -> str:
        return f"({'; '.join(map(str, self.inputs))}) -> ({'; '.join(map(str, self.results))})"


def numbered(kind: RoleKind, count: int) -> tuple[Role, ...]:
    """The first so many of a kind."""
    return tuple(Role(kind, number) for number in range(count))
