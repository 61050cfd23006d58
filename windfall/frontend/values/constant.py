"""Constants: numbers, strings, None, dtypes: immutable objects whose value is known.

Enters: a literal, a folded result, or an argument. Leaves: guards `Equals` where the value of one
from outside is relied upon. Invariant: operations on constants are done by Python itself, on the
constants; what they raise is raised in the interpreted program.
"""

from __future__ import annotations

import collections
import operator
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from windfall.frontend.bounds import admit, admit_constant, admit_fold, admit_result
from windfall.frontend.breaks import TOO_MANY_VALUES, UNKNOWN_CALL, UNKNOWN_OPERATION, stop
from windfall.frontend.bytecode import VERSION
from windfall.frontend.values.base import Arguments, Keywords, Value
from windfall.frontend.values.unseen import look
from windfall.frontend.values.wrap import wraps
from windfall.ir.guard import Equals
from windfall.ir.reading import class_name, is_among
from windfall.ir.source import Item, Source

if TYPE_CHECKING:
    from windfall.frontend.recipe import Recipe
    from windfall.frontend.services import Machine

BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "@": operator.matmul,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "<<": operator.lshift,
    ">>": operator.rshift,
}
IN_PLACE: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.iadd,
    "-": operator.isub,
    "*": operator.imul,
    "/": operator.itruediv,
    "//": operator.ifloordiv,
    "%": operator.imod,
    "**": operator.ipow,
    "@": operator.imatmul,
    "&": operator.iand,
    "|": operator.ior,
    "^": operator.ixor,
    "<<": operator.ilshift,
    ">>": operator.irshift,
}
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
}
UNARY: dict[str, Callable[[Any], Any]] = {
    "-": operator.neg,
    "+": operator.pos,
    "~": operator.invert,
    "not": operator.not_,
}

_LITERALS = (int, float, str, bytes, bool, type(None), complex, type(Ellipsis))
CONSTANT_TYPES = (
    *_LITERALS,
    type(NotImplemented),
    types.CodeType,
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
)


class Constant(Value):
    """An immutable object that is known."""

    __slots__ = ("value",)
    has_own_class = False  # whose methods may be the user's

    def __init__(self, value: Any, source: Source | None = None) -> None:
        super().__init__(source)
        self.value = value

    def python_type(self) -> type:
        """The exact class."""
        return type(self.value)

    def describe(self) -> str:
        """The constant itself, if it is short."""
        kind = type(self.value)
        if kind in (str, bytes):
            return repr(self.value[:60])[:60]
        if kind is int and self.value.bit_length() > _PRINTED_BITS:
            return f"an integer of {self.value.bit_length()} bits"
        return repr(self.value)[:60]

    def is_constant(self) -> bool:
        """Yes."""
        return True

    def as_constant(self, machine: Machine) -> Any:
        """The object, relied upon."""
        if self.source is not None:
            admit_constant(machine, self.value)
            if machine.symbols.is_other_address(self.source, self.value):
                stop(TOO_MANY_VALUES, f"{self.source}, an address or a hash")
            self.guard(machine, "value", Equals(self.value))
        return self.value

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """Fields and methods of plain immutable objects."""
        value = self.as_constant(machine)
        try:
            found = getattr(value, name)
        except AttributeError as error:
            raise machine.values.raised(error) from None
        if isinstance(found, _METHODS):
            return ConstantMethod(self, name)
        return machine.values.literal(found)

    def call_method(
        self, machine: Machine, name: str, arguments: Arguments, keywords: Keywords
    ) -> Value:
        """Methods of constants are pure."""
        value = self.as_constant(machine)
        result = fold(machine, getattr(value, name), arguments, keywords)
        same = type(value) in (str, bytes) and getattr(result, "value", None) is value
        return self if same and result.source is None else result

    def binary(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """Folded, with another constant; a number that varies has the rule itself."""
        fills = operation == "%" and type(self.value) in (str, bytes)
        if fills and not other.is_constant() and not _is_number(other):
            stop(UNKNOWN_OPERATION, f"{self.describe()} % {other.describe()}")  # it never declines
        if not other.is_constant() or (_is_number(other) and not fills):
            return None
        return fold(machine, BINARY[operation], [self, other], {})

    def in_place(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """Folded by the operator itself, whose name stands in the text of what it raises."""
        if not other.is_constant() or _is_number(other):
            return None
        return fold(machine, IN_PLACE[operation], [self, other], {})

    def unary(self, machine: Machine, operation: str) -> Value:
        """Folded, except what CPython 3.12 warns of."""
        if operation == "~" and type(self.value) is bool and VERSION >= (3, 12):
            stop(UNKNOWN_OPERATION, "~ of a bool")
        return fold(machine, UNARY[operation], [self], {})

    def compare(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """Folded, with another constant; one with a class of the user's is asked itself."""
        if not isinstance(other, Constant) or other.has_own_class:
            return None
        return fold(machine, COMPARE[operation], [self, other], {})

    def get_item(self, machine: Machine, key: Value) -> Value:
        """A part of a string."""
        if not key.is_constant():
            stop(UNKNOWN_OPERATION, f"{self.describe()}[{key.describe()}]")
        return fold(machine, operator.getitem, [self, key], {})

    def contains(self, machine: Machine, item: Value) -> Value:
        """Whether a string has a part."""
        return fold(machine, operator.contains, [self, item], {})

    def truth(self, machine: Machine) -> bool | Value:
        """Known, and without the warning that CPython gives of one of them."""
        if self.value is NotImplemented:
            stop(UNKNOWN_OPERATION, "NotImplemented in a boolean context")
        return bool(self.as_constant(machine))

    def length(self, machine: Machine) -> Value:
        """Of a string."""
        return fold(machine, len, [self], {})

    def known_length(self) -> int | None:
        """Of a string."""
        return len(self.value) if isinstance(self.value, str | bytes) else None

    def unpack(self, machine: Machine) -> list[Value]:
        """The characters of a string."""
        admit(machine, self.known_length() or 0, self)
        try:
            return [machine.values.literal(one) for one in self.as_constant(machine)]
        except TypeError as error:
            raise machine.values.raised(error) from None

    def iterate(self, machine: Machine) -> Value:
        """Of a string."""
        items = self.unpack(machine)
        kind = type(iter(self.value))
        return machine.values.iterate_over(
            self, kind, lambda _, place: items[place] if place < len(items) else None
        )

    def rebuild(self, recipe: Recipe) -> str:
        """A literal, or the object itself under a name."""
        plain = isinstance(self.value, _LITERALS) and _prints_exactly(self.value)
        if plain and _is_found_again(self.value):
            return repr(self.value)
        return recipe.known(self.value, _hint(self.value))


def _hint(value: Any) -> str:
    """How its name begins: a text is told by its first characters."""
    if isinstance(value, str) and value.isascii():
        return f"text_{value[:20]}"
    return type(value).__name__


def _is_found_again(value: Any) -> bool:
    """Whether a literal is this very object. CPython has one object of each short text, and one of
    equal literals like names, of which one that was computed is another."""
    if isinstance(value, bytes):
        return len(value) <= 1
    if not isinstance(value, str):
        return True
    if not value:
        return True
    if value.isascii() and value.replace("_", "a").isalnum():
        return sys.intern(value) is value
    return len(value) == 1 and ord(value) < 256 and chr(ord(value)) is value


def _is_number(value: Value) -> bool:
    return not isinstance(value, Constant) and is_among(value.python_type(), (int, float, bool))


_PRINTED_BITS = 1 << 13  # CPython refuses to print numbers of more than 4,300 digits


def _prints_exactly(value: Any) -> bool:
    if isinstance(value, int):
        return value.bit_length() <= _PRINTED_BITS
    if isinstance(value, float):
        return value - value == 0.0
    return not isinstance(value, complex)


_METHODS = (types.BuiltinMethodType, types.MethodWrapperType, types.MethodType)


class OutsideKey(Constant):
    """A key of a dict, or an item of a set, from outside. Its value is relied upon with all others
    of the container, and it is read from there only where it must be this very object."""

    __slots__ = ("_keys", "_where")

    def __init__(self, value: Any, keys: Iterable[Any], where: Callable[[], Source]) -> None:
        super().__init__(value)
        self._keys = keys
        self._where = where

    def place(self) -> Source | None:
        """Where the object stands; None: the program has put another one there."""
        found = (index for index, key in enumerate(self._keys) if key is self.value)
        index = next(found, None)
        return None if index is None else Item(self._where(), index)


class ConstantMethod(Value):
    """A method bound to a constant: pure, so its calls are folded."""

    __slots__ = ("name", "owner")

    def __init__(self, owner: Constant, name: str) -> None:
        super().__init__()
        self.owner = owner
        self.name = name

    def python_type(self) -> type:
        """A builtin method, or what stands for a slot."""
        is_slot = type(getattr(type(self.owner.value), self.name)) is types.WrapperDescriptorType
        return types.MethodWrapperType if is_slot else types.BuiltinMethodType

    def call(self, machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
        """Folded; a string joins items that interpreted code gives when they are there."""
        if self.name == "join" and arguments and machine.values.runs_frames(arguments[0]):
            return machine.values.polyfill("join", [self, *arguments])
        return self.owner.call_method(machine, self.name, arguments, keywords)

    def rebuild(self, recipe: Recipe) -> str:
        """The method, read again."""
        owner = recipe.name(self.owner)
        return f"{owner if owner.isidentifier() else f'({owner})'}.{self.name}"


# Rules of functions whose result can be made when the program has run, of arguments that are not
# known before: they answer None where that is not so.
LATE: list[Callable[[Machine, Callable[..., Any], Sequence[Value]], Value | None]] = []


def fold(
    machine: Machine,
    function: Callable[..., Any],
    arguments: Sequence[Value],
    keywords: Mapping[str, Value],
) -> Value:
    """The result of a pure function of constants; what it raises, the program raises."""
    if not keywords and any(type(look(one)) is not Constant for one in arguments):
        for rule in LATE:
            late = rule(machine, function, arguments)
            if late is not None:
                return late
    for one in (*arguments, *keywords.values()):
        if not one.is_constant():
            name = getattr(function, "__name__", repr(function))
            stop(UNKNOWN_CALL, f"{name} of {one.describe()}")
    plain = [one.as_constant(machine) for one in arguments]
    named = {name: one.as_constant(machine) for name, one in keywords.items()}
    admit_fold(machine, function, plain, named)
    try:
        result = function(*plain, **named)
    except Exception as error:  # whatever a pure function raises is the program's exception
        raise machine.values.raised(error) from None
    admit_result(machine, function, result)
    if hasattr(type(result), "__next__"):  # one for each call, and each is used up
        stop(UNKNOWN_CALL, f"{class_name(type(result))} of a constant")
    found = _unchanged(result, arguments, plain)
    if found is None and is_among(type(result), _CONTAINERS):
        # What it was given were copies: an object that it passes on would be another one.
        given = {id(one) for one in _containers((*plain, *named.values()))}
        if any(id(one) in given for one in _containers((result,))):
            stop(UNKNOWN_CALL, f"{getattr(function, '__name__', function)} passes on what it gets")
    return found or machine.values.literal(result)


def _unchanged(result: Any, arguments: Sequence[Value], plain: Sequence[Any]) -> Value | None:
    """The operand that a text stayed, or a tuple (`(0, 0) * 1`): it is that very object, not an
    equal one."""
    if type(result) not in (str, bytes, tuple):
        return None
    return next((one for one, it in zip(arguments, plain, strict=True) if it is result), None)


_CONTAINERS: tuple[type, ...] = (list, tuple, dict, set, frozenset)


def _containers(values: Iterable[Any]) -> Iterator[Any]:
    """The containers among these, and those in them; empty tuples are all one object."""
    for one in values:
        if is_among(type(one), _CONTAINERS) and not (type(one) is tuple and not one):
            yield one
            yield from _containers(one.values() if type(one) is dict else one)


@wraps(*CONSTANT_TYPES)
def _wrap_constant(machine: Machine, value: Any, source: Source | None) -> Value:
    if source is not None and type(value) in (int, float) and machine.symbols.varies(source, value):
        return machine.values.varying(value, source)
    return Constant(value, source)


_OF_SIGNATURES = collections.OrderedDict[str, Any]()  # whose views these are


@wraps(
    types.MappingProxyType,
    type(_OF_SIGNATURES.keys()),
    type(_OF_SIGNATURES.values()),
    type(_OF_SIGNATURES.items()),
)
def _wrap_proxy(machine: Machine, value: Any, source: Source | None) -> Value:
    """Only one that was computed here, of a signature: others show a dict that may change."""
    return Constant(value) if source is None else machine.values.opaque(value, source)
