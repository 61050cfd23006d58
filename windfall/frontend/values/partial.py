"""`functools.partial`: a callable and arguments that go before the others.

Enters: partials of the user (with a source) and those that the program makes. Leaves: calls of
what they hold. Invariant: what a partial from outside holds is read from it as any field is, so
what is relied upon is guarded.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from windfall.frontend.breaks import ARGUMENTS, UNKNOWN_ATTRIBUTE, stop
from windfall.frontend.values.base import Arguments, ByIdentity, Keywords, Value
from windfall.frontend.values.calls import calls
from windfall.frontend.values.sequence import Tuple
from windfall.frontend.values.wrap import wraps
from windfall.ir.source import Attribute, Known, Source

if TYPE_CHECKING:
    from windfall.frontend.recipe import Recipe
    from windfall.frontend.services import Machine


class Partial(ByIdentity):
    """A `functools.partial`; `args` is a tuple, `keywords` a dict."""

    __slots__ = ("args", "function", "keywords", "shown")
    made_of = functools.partial

    def __init__(
        self, function: Value, args: Value, keywords: Value, source: Source | None = None
    ) -> None:
        super().__init__(source)
        self.function = function
        self.args = args
        self.keywords = keywords
        self.shown = False  # whether someone may hold its parts

    def describe(self) -> str:
        """What it calls."""
        return f"partial of {self.function.describe()}"

    def call(self, machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
        """What it holds, with all arguments."""
        self.guard_type(machine)
        given = machine.values.string_keyed(self.keywords)
        return self.function.call(
            machine, [*self.args.unpack(machine), *arguments], {**given, **keywords}
        )

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """Its parts."""
        self.guard_type(machine)
        parts = {"func": self.function, "args": self.args, "keywords": self.keywords}
        if name in parts:
            self.shown = True
            return parts[name]
        stop(UNKNOWN_ATTRIBUTE, f"{self.describe()}.{name}")

    def rebuild(self, recipe: Recipe) -> str:
        """Made anew."""
        make = recipe.known(functools.partial, "partial")
        function, args = recipe.name(self.function), recipe.name(self.args)
        if self.shown:  # with these very parts
            made = recipe.bind(self, f"{make}({function})")
            parts = f"({function}, {args}, {recipe.name(self.keywords)}, None)"
            recipe.line(f"{made}.__setstate__({parts})")
            return made
        return f"{make}({function}, *{args}, **{recipe.name(self.keywords)})"


@calls(functools.partial)
def _partial(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    """A partial of a partial holds what that one holds."""
    if not arguments:
        stop(ARGUMENTS, "partial")
    function, args = arguments[0], list(arguments[1:])
    if isinstance(function, Partial):
        function.guard_type(machine)
        keywords = {**machine.values.string_keyed(function.keywords), **keywords}
        args = [*function.args.unpack(machine), *args]
        function = function.function
    return Partial(function, Tuple(args), machine.values.created_dict(keywords))


@wraps(functools.partial)
def _wrap_partial(machine: Machine, value: functools.partial[Any], source: Source | None) -> Value:
    source = source or Known(value, "partial")
    if value.__dict__:  # attributes of the user's own
        return machine.values.opaque(value, source)
    function = machine.values.wrap(value.func, Attribute(source, "func"))
    args = machine.values.wrap(value.args, Attribute(source, "args"))
    keywords = machine.values.wrap(value.keywords, Attribute(source, "keywords"))
    return machine.values.remember(value, Partial(function, args, keywords, source))
