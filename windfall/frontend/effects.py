"""The ordered log of what the program did to objects that existed before the segment.

Enters: a write, noted by the value it was done to (whose own state already shows it). Leaves: lines
of generated source, run after the graph in program order. Invariant: replaying runs no user code;
writes to objects created in the segment are not logged: such objects are built once, with their
final contents.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windfall.frontend.recipe import Recipe
    from windfall.frontend.values.base import Value


@dataclass(frozen=True, slots=True)
class Effect:
    """One write: `template` has a `{}` for each operand's name."""

    template: str
    operands: tuple[Value, ...]

    def line(self, recipe: Recipe) -> str:
        """The statement that does it again."""
        return self.template.format(*(recipe.name(value) for value in self.operands))


class EffectLog:
    """Effects in program order."""

    def __init__(self) -> None:
        self.entries: list[Effect] = []

    def add(self, template: str, *operands: Value) -> None:
        """Note a write, e.g. `add("{}.append({})", list, item)`."""
        self.entries.append(Effect(template, operands))
