"""Objects of annotations: `int | None`, `list[int]`, `Union[...]`, and the questions about them.

Enters: such objects, which programs ask for their parts when they check values against annotations.
Leaves: their parts as values. Invariant: an annotation never changes, so its identity says it all.
"""

from __future__ import annotations

import types
import typing
from typing import TYPE_CHECKING, Any

from windfall.frontend.breaks import UNKNOWN_CALL, stop
from windfall.frontend.values.base import Arguments, Given, Keywords, Value
from windfall.frontend.values.calls import calls
from windfall.frontend.values.class_value import Class, union
from windfall.frontend.values.wrap import wraps, wraps_if
from windfall.ir.reading import is_a
from windfall.ir.source import Known, Source

if TYPE_CHECKING:
    from windfall.frontend.services import Machine

_ALIASES = (
    types.GenericAlias,
    types.UnionType,
    type(typing.List[int]),  # noqa: UP006
    type(typing.Union[int, str]),  # noqa: UP007
    type(typing.Literal[1]),
    type(typing.Annotated[int, 0]),
    type(typing.Callable[[int], int]),
)
_FIELDS = ("__args__", "__origin__", "__metadata__", "__parameters__")


class Annotation(Given):
    """A generic alias or a union."""

    __slots__ = ()

    def truth(self, machine: Machine) -> bool | Value:
        """Annotations are true."""
        self.guard_type(machine)
        return True

    def compare(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """With another annotation, or a class."""
        if operation not in ("==", "!=") or not isinstance(other, Annotation | Class):
            return None
        self.rely(machine)
        other.rely(machine)
        return machine.values.literal((self.real == other.real) == (operation == "=="))

    def binary(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """A union."""
        return union(machine, self, other) if operation == "|" else None

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """Its parts."""
        if name not in _FIELDS or not hasattr(self.real, name):
            return super().get_attribute(machine, name)
        self.rely(machine)
        return _part(machine, getattr(self.real, name))


def _part(machine: Machine, value: Any) -> Value:
    if isinstance(value, tuple | list):
        parts = machine.values.tuple([_part(machine, one) for one in value])
        return (
            parts
            if isinstance(value, tuple)
            else machine.values.known(list, "list").call(machine, [parts], {})
        )
    plain = value is None or isinstance(value, str | int | float | bytes)
    return machine.values.literal(value) if plain else machine.values.known(value, str(value))


def _asked(question: Any) -> None:
    """A row for a question about an annotation: its answer depends on the annotation alone."""

    def rule(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
        if len(arguments) != 1 or keywords:
            stop(UNKNOWN_CALL, question.__name__)
        (value,) = arguments
        if isinstance(value, Annotation | Class):
            value.rely(machine)
            return _part(machine, question(value.real))
        value.guard_type(machine)
        if value.is_constant():
            return _part(machine, question(value.as_constant(machine)))
        stop(UNKNOWN_CALL, f"{question.__name__} of {value.describe()}")

    calls(question)(rule)


for _question in (typing.get_args, typing.get_origin):
    _asked(_question)


@wraps(types.GenericAlias, types.UnionType)
def _wrap_annotation(machine: Machine, value: Any, source: Source | None) -> Value:
    return machine.values.remember(value, Annotation(value, source or Known(value, "annotation")))


@wraps_if(60, lambda value: is_a(value, _ALIASES))
def _wrap_alias(machine: Machine, value: Any, source: Source | None) -> Value:
    return _wrap_annotation(machine, value, source)
