"""Text with numbers in it that nobody knows yet.

Enters: f-strings, `str`, `format`, `%` with a number that varies or is read from data. Leaves: a
`SymStr`, which is written when the program has run up to there. Invariant: a function that makes
one raises for no value that the numbers may have (it is tried); whoever needs the text itself
needs the numbers, and raises `Specialise`.

    self.message = f"kept {n}"    join("kept ", format(g0, "")) after the graph
"""

from __future__ import annotations

import math
import operator
import types
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from windfall.frontend.bounds import foreseen
from windfall.frontend.values.base import Arguments, Keywords, Value
from windfall.frontend.values.constant import BINARY, LATE, Constant, fold
from windfall.frontend.values.sequence import List, Size, Tuple
from windfall.frontend.values.sym_bool import SymBool
from windfall.frontend.values.symbolic import SymFloat, SymInt, Varying
from windfall.frontend.values.unseen import look

if TYPE_CHECKING:
    from windfall.frontend.recipe import Recipe
    from windfall.frontend.services import Machine


def join(*parts: str) -> str:
    """Parts of an f-string in a row."""
    return "".join(parts)


class SymStr(Varying):
    """`function(*arguments)`, a string."""

    __slots__ = ("arguments", "function", "names")
    made_of = str
    needed_by = "a string with it"

    def __init__(
        self, function: Callable[..., str], arguments: Sequence[Value], names: frozenset[str]
    ) -> None:
        super().__init__()
        self.function = function
        self.arguments = tuple(arguments)
        self.names = names

    def describe(self) -> str:
        """How it is made."""
        return f"a string by {self.function.__name__}"

    def binary(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """A longer text."""
        if operation == "+" and other.python_type() is str:
            return late(machine, join, [self, other])
        return fold(machine, BINARY[operation], [self, other], {})

    def reflected(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """A longer text."""
        if operation == "+" and other.python_type() is str:
            return late(machine, join, [other, self])
        return fold(machine, BINARY[operation], [other, self], {})

    def compare(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """The numbers are needed, beside a string."""
        if other.python_type() is not str:
            return None
        return machine.values.literal(self.as_constant(machine))

    def truth(self, machine: Machine) -> bool | Value:
        """The numbers are needed."""
        return bool(self.as_constant(machine))

    def length(self, machine: Machine) -> Value:
        """The numbers are needed."""
        return machine.values.literal(len(self.as_constant(machine)))

    def get_item(self, machine: Machine, key: Value) -> Value:
        """The numbers are needed."""
        return machine.values.literal(self.as_constant(machine))

    def contains(self, machine: Machine, item: Value) -> Value:
        """The numbers are needed."""
        return machine.values.literal(self.as_constant(machine))

    def iterate(self, machine: Machine) -> Value:
        """The numbers are needed."""
        return machine.values.literal(self.as_constant(machine))

    def unpack(self, machine: Machine) -> list[Value]:
        """The numbers are needed."""
        return [machine.values.literal(self.as_constant(machine))]

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """Methods of strings."""
        if not any(name in vars(base) for base in str.__mro__):
            raise machine.values.no_attribute(self, name, f"'str' object has no attribute '{name}'")
        return machine.values.method(self, name)

    def call_method(
        self, machine: Machine, name: str, arguments: Arguments, keywords: Keywords
    ) -> Value:
        """The numbers are needed."""
        return fold(machine, getattr(str, name), [self, *arguments], keywords)

    def rebuild(self, recipe: Recipe) -> str:
        """Made by the same function."""
        function = recipe.known(self.function, self.function.__name__)
        return f"{function}({', '.join(recipe.name(one) for one in self.arguments)})"


_VARYING = (SymInt, SymFloat, SymBool, SymStr)


_SEQUENCES = (Tuple, List, Size)


def _flat(machine: Machine, values: Sequence[Value]) -> Iterator[Value]:
    """The values, and the items of tuples and lists that were made here."""
    for one in map(look, values):
        if type(one) in _SEQUENCES and one.source is None:
            yield from _flat(machine, one.unpack(machine))
        else:
            yield one


def late(
    machine: Machine, function: Callable[..., Any], arguments: Sequence[Value]
) -> Value | None:
    """The text that a function makes of numbers, some of which vary; None: it makes no text, none
    varies, or it might raise for some of them."""
    if not _makes_text(function, arguments):
        return None
    flat = list(_flat(machine, arguments))
    if not any(isinstance(one, _VARYING) for one in flat):
        return None
    if not all(isinstance(one, (*_VARYING, Constant)) for one in flat):
        return None
    try:
        for turn in range(len(_INTEGERS)):
            examples = [_example(machine, one, turn) for one in arguments]
            if foreseen(function, examples, {}) > machine.facts.constant_size:
                return None  # a number is a width
            if type(function(*examples)) is not str:
                return None
    except (ValueError, TypeError, OverflowError, LookupError, AttributeError):
        return None
    names = frozenset[str]()
    for one in flat:
        one.guard_type(machine)
        names |= _names(one)
    return SymStr(function, arguments, names)


LATE.append(late)


def _makes_text(function: Any, arguments: Sequence[Value]) -> bool:
    """Whether it is a function of numbers and strings that makes strings, and does nothing else."""
    if isinstance(function, types.BuiltinMethodType) and type(function.__self__) is str:
        return True
    if function is operator.mod:
        return arguments[0].python_type() is str
    module = getattr(function, "__module__", None)
    return function in (str, repr, ascii, format, join) or module == _OF_STRINGS


_OF_STRINGS = "windfall.frontend.opcodes.displays"
# Numbers at which functions are tried.
_INTEGERS = (0, 7, -3, 1 << 62, -(1 << 62))
_FLOATS = (0.5, -3.0, math.nan, math.inf, 1e300)


def _example(machine: Machine, value: Value, turn: int) -> Any:
    if isinstance(value, SymInt):
        return _INTEGERS[turn]
    if isinstance(value, SymFloat):
        return _FLOATS[turn]
    if isinstance(value, SymBool):
        return bool(turn % 2)
    if isinstance(value, SymStr):
        return value.function(*(_example(machine, one, turn) for one in value.arguments))
    if isinstance(value, Tuple | List):
        parts = [_example(machine, one, turn) for one in value.unpack(machine)]
        return value.made_of(parts)
    return value.as_constant(machine)


def _names(value: Value) -> frozenset[str]:
    if isinstance(value, SymInt):
        return frozenset(atom.key for atom in value.size.symbols)
    return value.names if isinstance(value, SymFloat | SymBool | SymStr) else frozenset()
