"""Rules for Python's own builtins: one row each.

Enters: calls of `len`, `isinstance`, `getattr`, `zip`… Leaves: values. What needs Python code of
the user (keys of `sorted`, `__len__` of objects) is done by a polyfill: a Python function of
`polyfills/` that is interpreted in its place.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any, TypeGuard

import torch

from windfall.frontend.breaks import ARGUMENTS, UNKNOWN_CALL, UNKNOWN_OPERATION, stop
from windfall.frontend.polyfills import core
from windfall.frontend.polyfills.iterators import by_index
from windfall.frontend.values import number_calls
from windfall.frontend.values.arity import fits
from windfall.frontend.values.base import Arguments, Keywords, Value
from windfall.frontend.values.calls import calls
from windfall.frontend.values.class_value import Class, find
from windfall.frontend.values.constant import Constant, fold
from windfall.frontend.values.demands import is_callable, misfit
from windfall.frontend.values.dict_views import DictView
from windfall.frontend.values.exception import Exception_
from windfall.frontend.values.function import bound_class
from windfall.frontend.values.generator import Generator
from windfall.frontend.values.iterator import Enumerate, Iterator, Zip
from windfall.frontend.values.mapping import Dict, filled
from windfall.frontend.values.objects import Object
from windfall.frontend.values.ranges import Slice
from windfall.frontend.values.sequence import List, Size, Tuple
from windfall.frontend.values.sym_bool import SymBool
from windfall.frontend.values.symbolic import Question, SymInt
from windfall.frontend.values.tensor import Tensor
from windfall.frontend.values.unseen import look
from windfall.ir.guard import ABSENT
from windfall.ir.reading import is_among

if TYPE_CHECKING:
    from windfall.frontend.services import Machine


def exactly(arguments: Arguments, keywords: Keywords, least: int, most: int, name: str) -> None:
    """Misfits are raised natively."""
    if keywords or not least <= len(arguments) <= most:
        stop(ARGUMENTS, name)


class KindMethod(Value):
    """A method of a builtin kind, bound: `kind.call_method` has the rule."""

    __slots__ = ("name", "owner")

    def __init__(self, owner: Value, name: str) -> None:
        super().__init__()
        self.owner = owner
        self.name = name

    def python_type(self) -> type:
        """A builtin method, or what stands for a slot."""
        return bound_class(type(find(self.owner.python_type(), self.name)))

    def describe(self) -> str:
        """Owner and name."""
        return f"{self.owner.describe()}.{self.name}"

    def call(self, machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
        """Ask the owner; misfits are raised natively."""
        real = getattr(self.owner.python_type(), self.name, None)
        bound = isinstance(getattr(real, "__self__", None), type)  # a method of the class
        if real is not None and not fits(real, len(arguments) + (not bound), keywords):
            stop(ARGUMENTS, self.describe())
        if real is not None and misfit(real, [self.owner, *arguments], keywords) is not None:
            stop(ARGUMENTS, self.describe())
        rule = _DUNDERS.get(self.name)
        if rule is not None:
            result: Value = rule(self.owner, machine, *arguments)
            return result
        return self.owner.call_method(machine, self.name, arguments, keywords)

    def rebuild(self, recipe: Any) -> str:
        """Read again."""
        owner = recipe.name(self.owner)
        if owner[0] in "-0123456789":  # a number: `3.__eq__` is none
            owner = f"({owner})"
        return f"{owner}.{self.name}"


def _next(owner: Value, machine: Machine) -> Value:
    if isinstance(owner, Generator):
        return machine.frames.resume(owner, machine.values.literal(None), "next")
    found = owner.advance(machine)
    if found is None:
        raise machine.values.raised(StopIteration())
    return found


_DUNDERS: dict[str, Any] = {
    "__iter__": lambda owner, machine: owner.iterate(machine),
    "__next__": _next,
    "__len__": lambda owner, machine: owner.length(machine),
    "__contains__": lambda owner, machine, item: owner.contains(machine, item),
    "__getitem__": lambda owner, machine, key: owner.get_item(machine, key),
}


@calls(core.checked)
def _checked(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    """What a special method answered, where that is what it must answer; CPython itself judges
    everything else."""
    name, answer = arguments
    asked = name.as_constant(machine)
    if asked == "__iter__" and _is_iterator(machine, answer):
        return answer
    if asked == "__len__" and isinstance(answer, SymInt):
        sign = answer.compare(machine, ">=", machine.values.literal(0))
        if isinstance(sign, Constant) and sign.value is True:
            return answer
    if asked == "__bool__" and isinstance(answer, Question | SymBool):
        return answer
    if asked in _TEXTS and answer.python_type() is str:
        return answer
    return fold(machine, core.checked, arguments, {})


_TEXTS = ("__str__", "__repr__", "__format__")


def _is_iterator(machine: Machine, value: Value) -> bool:
    if isinstance(value, Object):
        return value.dunder(machine, "__next__") is not None
    return isinstance(value, Iterator)


@calls(core.hinted)
def _hinted(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    values = machine.values
    (value,) = arguments
    if isinstance(value, Generator):
        owner = _indexed(value)
        asked = owner is not None and owner.cls.find(machine, "__len__") is not ABSENT
        return values.polyfill("with_owner", [value, owner]) if owner and asked else value
    if not isinstance(value, Object):
        return value
    length, hint = (value.cls.find(machine, name) for name in ("__len__", "__length_hint__"))
    if is_among(type(length), _OF_C) or (length is ABSENT and hint is ABSENT):
        return value
    if not all(one is ABSENT or isinstance(one, types.FunctionType) for one in (length, hint)):
        stop(UNKNOWN_OPERATION, f"how many items {value.describe()} may have")
    method = value.dunder(machine, "__length_hint__") or values.literal(None)
    return values.polyfill("with_hint", [value, values.literal(length is not ABSENT), method])


_OF_C = (types.WrapperDescriptorType, types.MethodDescriptorType)


def _indexed(iterator: Generator) -> Object | None:
    """The object whose items an iterator gives by their places."""
    frame = iterator.frame
    owner = look(frame.variables[0]) if frame and frame.code is by_index.__code__ else None
    return owner if isinstance(owner, Object) else None


@calls(core.rest)
def _rest(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    (iterator,) = arguments
    if not isinstance(iterator, Object):
        return iterator
    return machine.values.polyfill("items_left", [iterator])


@calls(core.refuse)
def _refuse(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    """CPython says it, of operands of the same classes that decline too."""
    operation, left, right = arguments
    left.guard_type(machine)
    right.guard_type(machine)
    try:
        core.refuse_kinds(operation.as_constant(machine), left.python_type(), right.python_type())
    except TypeError as error:
        raise machine.values.raised(error) from None
    stop(UNKNOWN_OPERATION, f"{left.describe()} and {right.describe()}")


# ---------------------------------------------------------------------------------- containers


@calls(len)
def _len(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    exactly(arguments, keywords, 1, 1, "len")
    return arguments[0].length(machine)


@calls(iter)
def _iter(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    exactly(arguments, keywords, 1, 2, "iter")
    if len(arguments) == 2:
        if not is_callable(arguments[0]):
            stop(ARGUMENTS, "iter")
        return machine.values.polyfill("iter_until", arguments)
    return arguments[0].iterate(machine)


@calls(next)
def _next_call(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    exactly(arguments, keywords, 1, 2, "next")
    iterator = arguments[0]
    if not isinstance(iterator, Iterator) or isinstance(iterator, Generator):
        if len(arguments) == 2:
            return machine.values.polyfill("next_or", arguments)
        if isinstance(iterator, Generator):
            return _next(iterator, machine)
        return machine.values.call_special(iterator, "__next__", [])
    found = iterator.advance(machine)
    if found is None:
        if len(arguments) == 1:
            raise machine.values.raised(StopIteration())
        return arguments[1]
    return found


def _collected(machine: Machine, arguments: Arguments) -> list[Value] | None:
    """The items of the one argument; None: they must be asked for by a polyfill."""
    if not arguments:
        return []
    source = arguments[0]
    if isinstance(source, Object):
        hint = source.cls.find(machine, "__length_hint__")
        if hint is not ABSENT and not isinstance(hint, types.FunctionType):
            stop(UNKNOWN_OPERATION, f"how many items {source.describe()} may have")
    return None if machine.values.runs_frames(source) else source.unpack(machine)


@calls(list)
def _list(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    exactly(arguments, keywords, 0, 1, "list")
    items = _collected(machine, arguments)
    return List(items) if items is not None else machine.values.polyfill("list", arguments)


@calls(tuple)
def _tuple(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    exactly(arguments, keywords, 0, 1, "tuple")
    if arguments and type(look(arguments[0])) is Tuple:
        return arguments[0]
    items = _collected(machine, arguments)
    return Tuple(items) if items is not None else machine.values.polyfill("tuple", arguments)


@calls(torch.Size)
def _size(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    exactly(arguments, keywords, 0, 1, "Size")
    if not arguments:
        return Size([])
    (given,) = arguments
    if isinstance(given, Tuple | List):
        sizes = given.unpack(machine)
        given.guard_type(machine)
        if all(one.python_type() is int for one in sizes):
            return Size(sizes)
    return fold(machine, torch.Size, arguments, keywords)


@calls(dict)
def _dict(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    if len(arguments) > 1:
        stop(ARGUMENTS, "dict")
    return filled(machine, Dict({}), arguments, keywords)


@calls(dict.fromkeys)
def _fromkeys(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    exactly(arguments, keywords, 1, 2, "dict.fromkeys")
    value = arguments[1] if len(arguments) > 1 else machine.values.literal(None)
    if is_among(arguments[0].python_type(), (dict, set, frozenset)):
        arguments[0].unpack(machine)  # CPython takes their hashes from them, and asks no key again
    return machine.values.polyfill("dict_fromkeys", [arguments[0], value])


@calls(range)
def _range(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    exactly(arguments, keywords, 1, 3, "range")
    return fold(machine, range, arguments, keywords)


@calls(slice)
def _slice(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    exactly(arguments, keywords, 1, 3, "slice")
    none = machine.values.literal(None)
    parts = [none, arguments[0]] if len(arguments) == 1 else list(arguments)
    parts += [none] * (3 - len(parts))
    return Slice((parts[0], parts[1], parts[2]))


@calls(enumerate)
def _enumerate(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    start = keywords.get("start") or (
        arguments[1] if len(arguments) > 1 else machine.values.literal(0)
    )
    if not arguments or set(keywords) - {"start"}:
        stop(ARGUMENTS, "enumerate")
    if _is_plain(machine, arguments[0]):
        return Enumerate(arguments[0].iterate(machine), start.as_constant(machine))
    return machine.values.polyfill("enumerate", [arguments[0], start])


def _is_plain(machine: Machine, value: Value) -> bool:
    """Whether its items can be had without running interpreted code."""
    return not isinstance(value, Object) and not machine.values.is_generator(value)


@calls(zip)
def _zip(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    if keywords:
        strict = keywords.get("strict")
        if strict is None or len(keywords) > 1:
            stop(ARGUMENTS, "zip")
        if strict.as_constant(machine):
            return machine.values.polyfill("zip_strict", arguments)
    if not all(_is_plain(machine, one) for one in arguments):
        return machine.values.polyfill("zip", arguments)
    return Zip([one.iterate(machine) for one in arguments])


@calls(reversed)
def _reversed(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    exactly(arguments, keywords, 1, 1, "reversed")
    (value,) = arguments
    if isinstance(value, Object):
        return machine.values.call_special(value, "__reversed__", [])
    if isinstance(value, Dict):
        return DictView(value, "keys").iterate_back(machine)
    if isinstance(value, DictView):
        return value.iterate_back(machine)
    if isinstance(value, Tensor):
        return value.reversed(machine)
    value.guard_type(machine)
    if isinstance(value, Class) or not _is_reversible(value.python_type()):
        stop(ARGUMENTS, "reversed")
    items = value.unpack(machine)
    count = len(items)

    def read(machine: Machine, place: int) -> Value | None:
        """A list is read as it is by then."""
        present = value.items(machine) if isinstance(value, List) else items
        return present[count - 1 - place] if count - 1 - place in range(len(present)) else None

    kind = value.python_type()
    sample = kind(1) if kind is range else kind()
    return machine.values.iterate_over(value, type(reversed(sample)), read, "reversed({})")


def _is_reversible(kind: type) -> bool:
    if find(kind, "__reversed__") is not ABSENT:
        return True
    return all(find(kind, name) is not ABSENT for name in ("__len__", "__getitem__"))


def _polyfilled(function: Any) -> None:
    """It is called as `polyfills` has it written in Python."""

    @calls(function)
    def rule(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
        return machine.values.polyfill(function.__name__, arguments, keywords)


for _written in (sum, any, all, map, filter):
    _polyfilled(_written)


# ------------------------------------------------------------------------------------- scalars


@calls(bool)
def _bool(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    exactly(arguments, keywords, 0, 1, "bool")
    if not arguments:
        return machine.values.literal(False)
    if isinstance(arguments[0], Object):
        return machine.values.polyfill("truth", arguments)
    if isinstance(arguments[0], Tensor):
        flag = machine.values.flag(arguments[0])
        if flag is not None:
            return flag
    if isinstance(arguments[0], Question | SymBool):
        return arguments[0]
    found = arguments[0].truth(machine)
    assert isinstance(found, bool), "only objects ask their classes"
    return machine.values.literal(found)


def _folded(function: Any) -> None:
    """A row for a function that is pure of constants."""

    def rule(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
        if machine.symbols.any_may_vary and not keywords:
            arguments = [_as_number(machine, one) for one in arguments]
            varies = number_calls.builtin(machine, function, arguments)
            if varies is not None:
                return varies
        if function is hash and _is_written_in_python(arguments[0], machine, "__hash__"):
            return machine.values.ask_special(arguments[0], "__hash__")
        if function is hash:  # of texts it differs from process to process
            machine.guards.take_from_process("a hash was asked for")
        if function in _NUMBERS and len(arguments) == 1 and isinstance(arguments[0], Tensor):
            return arguments[0].call_method(machine, _NUMBERS[function], [], {})
        return fold(machine, function, arguments, keywords)

    calls(function)(rule)


def _is_written_in_python(value: Value, machine: Machine, name: str) -> TypeGuard[Object]:
    """Whether a special method of an object can be followed."""
    return isinstance(value, Object) and isinstance(
        value.cls.find(machine, name), types.FunctionType
    )


def _as_number(machine: Machine, value: Value) -> Value:
    return value.number(machine) if isinstance(value, SymBool) else value


_NUMBERS = {int: "__int__", float: "__float__"}
for _function in (int, float, hash, round, divmod, pow, chr, ord):
    _folded(_function)


def _shown(function: Any, name: str) -> None:
    """`str` and `repr`: by the class's own method where it is written in Python."""

    def rule(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
        if len(arguments) == 1 and isinstance(arguments[0], Object):
            return _shown_object(machine, arguments[0], function, name)
        if len(arguments) == 1 and isinstance(arguments[0], Class):
            arguments[0].rely(machine)
            names = ("__repr__", "__str__")
            if all(arguments[0].meta(machine, one) is find(type, one) for one in names):
                return machine.values.literal(repr(arguments[0].real))
        for one in arguments:
            # As a constant it would be a plain dict.
            if issubclass(one.python_type(), dict) and one.python_type() is not dict:
                stop(UNKNOWN_CALL, f"{function.__name__} of {one.describe()}")
        return fold(machine, function, arguments, keywords)

    calls(function)(rule)


def _shown_object(machine: Machine, value: Object, function: Any, name: str) -> Value:
    raw = value.cls.find(machine, name)
    if raw is find(object, name) and name == "__str__":
        raw, name = value.cls.find(machine, "__repr__"), "__repr__"
    if isinstance(raw, types.FunctionType):
        return machine.values.ask_special(value, name)
    plain = next((one for one in (KeyError, Exception) if find(one, name) is raw), None)
    if not isinstance(value, Exception_) or plain is None:
        stop(UNKNOWN_CALL, f"{function.__name__} of {value.describe()}")
    if name == "__repr__":
        kind = value.python_type()
        return fold(
            machine,
            lambda *args: repr(Exception(*args)).replace("Exception", kind.__name__, 1),
            value.args(machine).items(machine),
            {},
        )
    made = plain
    return fold(machine, lambda *args: str(made(*args)), value.args(machine).items(machine), {})


_shown(str, "__str__")
_shown(repr, "__repr__")
