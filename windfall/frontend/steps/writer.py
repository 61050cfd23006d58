"""The text of a native step under construction, and the table of steps.

Enters: names of values on the stack. Leaves: lines of Python, the stack after them, outcomes; rows
`@native("NAME")`. Invariant: a name has one native form.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any

from windfall.dataclass import dataclass
from windfall.frontend.bytecode import Instruction

NULL_NAME = "NULL"


@dataclass(slots=True)
class StepWriter:
    """The names on the stack of the innermost frame, and the lines so far."""

    stack: list[str]
    kw_names: tuple[str, ...]
    fresh: Callable[[str], str]
    known: Callable[[Any, str], str]
    variables: dict[int, str]  # names of variables that are bound
    globals: str
    handled: str | None
    free: tuple[int, ...] = ()  # variables that belong to an enclosing function
    lowest: int = 0  # how far down the stack was taken from
    lines: list[str] = field(default_factory=list)
    raises: bool = False  # nothing comes after it
    # Where to go on: (condition, instruction, stack). The last has no condition.
    outcomes: list[tuple[str | None, int, list[str]]] = field(default_factory=list)

    def pop(self) -> str:
        """The top of the stack."""
        name = self.stack.pop()
        self.lowest = min(self.lowest, len(self.stack))
        return name

    def take(self, count: int) -> list[str]:
        """Several, in the order in which they were pushed."""
        start = len(self.stack) - count
        items = self.stack[start:]
        del self.stack[start:]
        self.lowest = min(self.lowest, start)
        return items

    def push(self, name: str) -> None:
        """Push a name."""
        self.stack.append(name)

    def result(self, text: str) -> str:
        """Evaluate, and push."""
        name = self.fresh("r")
        self.lines.append(f"{name} = {text}")
        self.stack.append(name)
        return name

    def line(self, text: str) -> None:
        """A statement."""
        self.lines.append(text)

    def goto(self, condition: str | None, target: int) -> None:
        """Go on at `target`, where the condition holds."""
        self.outcomes.append((condition, target, list(self.stack)))


Step = Callable[[StepWriter, Instruction], None]
NATIVE: dict[str, Step] = {}


def native(*names: str) -> Callable[[Step], Step]:
    """A row: how these instructions are done on real values, in any version that has them."""

    def register(step: Step) -> Step:
        for name in names:
            assert name not in NATIVE, f"{name} has two native forms"
            NATIVE[name] = step
        return step

    return register
