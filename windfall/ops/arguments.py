"""The arguments of an op by the names that its schema gives them.

Enters: the full name of an op, and a call of it. Leaves: `Arguments`: one attribute for each
parameter, its default where it was not passed. Rules that are declared with `op(..., named=True)`
take one of these in place of a long signature, which torch has written down already; what shape
rule and lowering have in common takes it too.

    def shape(given: Arguments) -> TensorType:
        return fresh(given.input.dtype, (given.input.sizes[0], given.groups))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from windfall.ir.loop import Lazy
from windfall.ops.schema import overload


class Arguments:
    """What an op is called with, by name."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.__dict__ = values

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def types(self) -> Arguments:
        """The same with types in place of `Lazy`s, as shape rules take them."""
        return Arguments({name: type_of(value) for name, value in self.__dict__.items()})

    def but(self, **values: Any) -> Arguments:
        """The same, but for these."""
        return Arguments({**self.__dict__, **values})


def type_of(value: Any) -> Any:
    """The type of a `Lazy`, also inside lists; anything else as it is."""
    if isinstance(value, Lazy):
        return value.type
    if isinstance(value, (list, tuple)):
        return type(value)(type_of(each) for each in value)
    return value


def shape_by_name(name: str, rule: Callable[[Arguments], Any]) -> Callable[..., Any]:
    """A shape rule that takes `Arguments`, as one that is called like the op."""
    names, defaults = _parameters(name)

    def shape(*arguments: Any, **keywords: Any) -> Any:
        given = zip(names, arguments, strict=False)
        return rule(Arguments({**defaults, **dict(given), **keywords}))

    return shape


def lowering_by_name(name: str, rule: Callable[[Any, Arguments], Any]) -> Callable[..., Any]:
    """The same for a lowering, whose first argument is the builder."""
    names, defaults = _parameters(name)

    def lower(builder: Any, *arguments: Any, **keywords: Any) -> Any:
        given = zip(names, arguments, strict=False)
        return rule(builder, Arguments({**defaults, **dict(given), **keywords}))

    return lower


def _parameters(name: str) -> tuple[tuple[str, ...], dict[str, Any]]:
    parameters = overload(name)._schema.arguments
    defaults = {one.name: one.default_value for one in parameters if one.has_default_value()}
    return tuple(one.name for one in parameters), defaults
