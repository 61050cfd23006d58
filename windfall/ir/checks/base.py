"""What a check is: one kind of fact about a value, on which a compiled entry relies.

Enters: nothing. Leaves: `Check`, from which every kind derives. A kind is one class, and everything
about it stands in that class: its predicate (`holds`), its text, what it says of a value that fails
it (`explain`), its native form (`encode`), the class that it implies. Invariant: no user code runs
and no input is kept alive while a check decides; of an object that it does not expect it answers
False, it does not raise; and every tier gives one verdict (`tests/runtime/test_one_verdict.py` asks
every check of every sort of object in all of them).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from windfall.dataclass import dataclass
from windfall.ir.check_writer import NativeCheckWriter
from windfall.ir.constants import written
from windfall.ir.source import Source
from windfall.ir.symint import Expression, Size

Class = type  # `TensorIs` has a field of that name


@dataclass(frozen=True, slots=True)
class Check:
    """One kind of fact about the value at a source. (Not an `ABC`: guards are told apart by
    `isinstance`, thousands of times in a capture, and a metaclass makes that ten times slower.)"""

    def __init_subclass__(cls) -> None:
        if cls.holds is Check.holds or cls.__str__ is object.__str__:
            raise TypeError(f"{cls.__name__} needs `holds` and `__str__`")

    def holds(self, value: Any, *others: Any) -> bool:
        """Whether it is true of a value; `others` are the values at `reads`. Of sizes that vary
        only what needs no symbol is looked at: `numbers` are what is left."""
        raise NotImplementedError

    def expected(self) -> str:
        """What would have to be there, for people whose call missed."""
        return str(self)

    def explain(self, value: Any) -> str:
        """What is there instead."""
        return written(value)

    def encode(self, writer: NativeCheckWriter, source: Source) -> bool:
        """Write its native form; False: it has none for this source, `holds` is called."""
        return False

    def implied_class(self) -> Class | None:
        """The exact class of every value of which this holds; None: it may be several."""
        return None

    def of_class(self, exact_class: Class) -> Check:
        """A check that holds where this one does and the value is of this exact class: one that
        implies the class where that costs nothing, else this one."""
        return self

    def reads(self) -> tuple[Source, ...]:
        """Sources that it looks at beside that of its guard."""
        return ()

    def sizes(self) -> tuple[Size, ...]:
        """The sizes that it speaks of."""
        return ()

    def numbers(self, source: Source) -> Iterator[tuple[Source, Expression]]:
        """Numbers read at, or by one step upon, the source of its guard that are compared by what
        symbols stand for. A symbol alone that has no value yet has that of the number from there
        on, if its range allows it."""
        return iter(())

    def weakly(self) -> Check:
        """The same without keeping alive what it names, where that is possible."""
        return self
