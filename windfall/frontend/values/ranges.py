"""Ranges and slices: what stands between brackets, and what loops count by.

Enters: literals, arguments, results. Leaves: values of their parts. Invariant: a range is never
taken apart into more items than `bounds` admits.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from windfall.frontend.bounds import range_length
from windfall.frontend.values.base import Arguments, Keywords, Value, no_method
from windfall.frontend.values.constant import Constant, fold
from windfall.frontend.values.wrap import wraps
from windfall.ir.source import Source

if TYPE_CHECKING:
    from windfall.frontend.recipe import Recipe
    from windfall.frontend.services import Machine


class Slice(Value):
    """A slice whose parts are values."""

    __slots__ = ("parts",)
    made_of = slice

    def __init__(self, parts: tuple[Value, Value, Value], source: Source | None = None) -> None:
        super().__init__(source)
        self.parts = parts

    def plain(self, machine: Machine) -> slice:
        """As Python's own, of constants."""
        return slice(*(one.as_constant(machine) for one in self.parts))

    def is_constant(self) -> bool:
        """Whether its parts are."""
        return all(one.is_constant() for one in self.parts)

    def as_constant(self, machine: Machine) -> Any:
        """The slice."""
        return self.plain(machine)

    def key(self, machine: Machine) -> Any:
        """Hashed as CPython does, if it does (from 3.12 on)."""
        plain = self.plain(machine)
        try:
            hash(plain)
        except TypeError as error:
            raise machine.values.raised(error) from None
        return plain

    def graph_argument(self, machine: Machine) -> tuple[Any, Any]:
        """A slice of arguments."""
        read = [machine.values.index(one) for one in self.parts]
        parts = machine.values.place_arguments(read)
        return slice(*(node for node, _ in parts)), slice(*(one for _, one in parts))

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """Its parts."""
        if name in ("start", "stop", "step"):
            return self.parts[("start", "stop", "step").index(name)]
        if name == "indices":
            return machine.values.method(self, name)
        no_method(machine, self, "slice", slice, name)

    def call_method(
        self, machine: Machine, name: str, arguments: Arguments, keywords: Keywords
    ) -> Value:
        """`indices`."""
        return fold(machine, getattr(slice, name), [self, *arguments], keywords)

    def rebuild(self, recipe: Recipe) -> str:
        """Made anew."""
        return f"slice({', '.join(map(recipe.name, self.parts))})"


class Range(Constant):
    """A range, whole."""

    __slots__ = ()

    def rebuild(self, recipe: Recipe) -> str:
        """As printed."""
        return repr(self.value)

    def iterator_text(self, recipe: Recipe, name: str) -> str:
        """What makes an iterator over it."""
        return f"iter({name})"

    def iterate(self, machine: Machine) -> Value:
        """Lazily, so that a long range costs nothing."""
        return machine.values.iterate_sequence(self)

    def known_length(self) -> int | None:
        """As `len` says, of any size."""
        return range_length(self.value)

    def get_item(self, machine: Machine, key: Value) -> Value:
        """An integer or a shorter range."""
        return fold(machine, operator.getitem, [self, key], {})


@wraps(range)
def _wrap_range(machine: Machine, value: range, source: Source | None) -> Value:
    if source is not None and str(source) in machine.facts.dynamic - machine.facts.static:
        return machine.values.opaque(
            value, source
        )  # another one in each call: a loop over it is native
    return Range(value, source)


@wraps(slice)
def _wrap_slice(machine: Machine, value: slice, source: Source | None) -> Value:
    from windfall.ir.source import Attribute

    parts = tuple(
        machine.values.wrap(getattr(value, name), Attribute(source, name) if source else None)
        for name in ("start", "stop", "step")
    )
    result = Slice((parts[0], parts[1], parts[2]), source)
    result.guard_type(machine)
    return result
