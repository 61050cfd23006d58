"""The ordered log of what the program did to objects that existed before the segment.

Enters: a write, noted by the value it was done to (whose own state already shows it), and how to
take that state back. Leaves: lines of generated source, run after the graph in program order.
Invariant: replaying runs no user code; writes to objects created in the segment are not logged:
such objects are built once, with their final contents.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from windfall.dataclass import dataclass
from windfall.ir.reading import class_dict, mro_of

if TYPE_CHECKING:
    from windfall.frontend.cached_answers import CachedAnswer
    from windfall.frontend.recipe import Recipe
    from windfall.frontend.values.base import Given, Value
    from windfall.ir.source import Source


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
        self.journal: list[Callable[[], None]] = []  # how to take back what was done to values
        self.classes: dict[type, dict[str, Value]] = {}  # what was written to classes

        # Answers that caches are expected to give, in program order, and what stands for them.
        self.cached: list[tuple[CachedAnswer, Value]] = []
        self.counted: set[Source] = set()  # where integers were written over integers
        self.lengths: set[str] = set()  # of lists that grow and whose length was relied upon
        self.replaced: list[Value] = []  # tensors whose memory was replaced
        self.switched: set[str] = set()  # modes that the program has switched
        self.entered: list[Any] = []  # guards of inference mode, the innermost last
        self.relied: set[Any] = set()  # modes that it relied on as it found them
        self.autocast_depth = 0  # how much deeper than at the start autocast is nested

    def count(self, before: Value, after: Value) -> None:
        """Note that a number from outside is written over, maybe with another one."""
        is_number = before.python_type() is int and after.python_type() is int
        if is_number and before.source is not None and before.is_constant():
            self.counted.add(before.source)

    def undo(self, action: Callable[[], None]) -> None:
        """How to take back a change of a value's own state, should this instruction fail."""
        self.journal.append(action)

    def take_back(self, mark: int) -> None:
        """Undo, the last change first, what was noted after a length of the journal."""
        for action in reversed(self.journal[mark:]):
            action()
        del self.journal[mark:]

    def nest_autocast(self, step: int) -> int:
        """One level deeper, or back."""

        def restore() -> None:
            self.autocast_depth -= step

        self.undo(restore)
        self.autocast_depth += step
        return self.autocast_depth

    def write_class(self, owner: Given, name: str, value: Value) -> None:
        """`owner.name = value`."""
        here = self.classes.setdefault(owner.real, {})
        before = here.get(name)
        self.undo(lambda: restore(here, name, before))
        here[name] = value
        self.add(f"{{}}.{name} = {{}}", owner, value)

    def written(self, cls: type, name: str) -> Value | None:
        """What the program wrote to a class or one that it derives from, if that is found."""
        if self.classes:
            for base in mro_of(cls):
                here = self.classes.get(base)
                if here is not None and name in here:
                    return here[name]
                if name in class_dict(base):
                    break
        return None

    def add(self, template: str, *operands: Value) -> None:
        """Note a write, e.g. `add("{}.append({})", list, item)`."""
        self.entries.append(Effect(template, operands))


def restore(entries: dict[Any, Value], key: Any, before: Value | None) -> None:
    """Take back a write to a table."""
    if before is None:
        entries.pop(key, None)
    else:
        entries[key] = before
