"""Functions that are called with numbers that vary: Python's own, and torch's.

Enters: arguments, some of which are `SymInt` or `SymFloat`. Leaves: the result, or arguments that
can stand in the graph. Invariant: where there is no rule the values are needed (`Specialise`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from windfall.frontend.name_tables import words
from windfall.frontend.values.base import Arguments, Value
from windfall.frontend.values.constant import Constant
from windfall.frontend.values.readings import index, item
from windfall.frontend.values.sequence import List, Tuple
from windfall.frontend.values.symbolic import SymFloat, SymInt, as_size, made
from windfall.frontend.values.tensor import Tensor
from windfall.frontend.values.unseen import look, same
from windfall.ir.reading import is_among
from windfall.ir.relation import decide
from windfall.ir.symint import Size, maximum, minimum

if TYPE_CHECKING:
    from windfall.frontend.services import Machine


def _extreme(machine: Machine, arguments: Arguments, choose: Callable[..., Size]) -> Value | None:
    sizes = [as_size(machine, one) for one in arguments]
    known = [one for one in sizes if one is not None]
    if len(known) < 2 or len(known) < len(sizes):
        return None
    return made(machine, choose(*known))


def _absolute(machine: Machine, arguments: Arguments) -> Value | None:
    (value,) = arguments
    if not isinstance(value, SymInt):
        return None
    return value if decide(">=", value.bound(machine), 0) else value.unary(machine, "-")


def _both(machine: Machine, arguments: Arguments) -> Value | None:
    left, right = arguments
    parts = [_ARITHMETIC_OF.get(one) for one in (type(left), type(right))]
    if None in parts:
        return None
    found = [operands(machine, sign, left, right) for sign in ("//", "%")]
    return machine.values.tuple([one for one in found if one is not None])


def operands(machine: Machine, operation: str, left: Value, right: Value) -> Value | None:
    """`left operation right` of two numbers, one of which varies."""
    found = left.binary(machine, operation, right)
    return found if found is not None else right.reflected(machine, operation, left)


_ARITHMETIC_OF = {SymInt: True, Constant: True}
# Python's own functions of numbers that vary; None: the values are needed.
BUILTINS: dict[Any, Callable[[Machine, Arguments], Value | None]] = {
    min: lambda machine, arguments: _extreme(machine, arguments, minimum),
    max: lambda machine, arguments: _extreme(machine, arguments, maximum),
    abs: _absolute,
    float: lambda machine, arguments: SymFloat.of(machine, arguments[0]),
    divmod: _both,
}


def builtin(machine: Machine, function: Any, arguments: Arguments) -> Value | None:
    """A call of a builtin with numbers that vary; None: it has no rule, or none varies."""
    if not any(isinstance(one, SymInt | SymFloat) for one in arguments):
        return None
    rule = BUILTINS.get(function)
    return rule(machine, arguments) if rule is not None else None


# Functions whose operands may be tensors where they are numbers: name -> keyword that scales the
# second operand, if there is one.
_OPERANDS: dict[str, str | None] = {
    **dict.fromkeys(("mul", "div", "true_divide", "multiply", "divide", "pow", "maximum"), None),
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge", "fmod", "remainder"), None),
    "masked_fill": None,
    **dict.fromkeys(("add", "sub", "subtract"), "alpha"),
    **dict.fromkeys(("addcmul", "addcdiv"), "value"),
}


# Among them, those whose result has the dtype of the tensor whatever the numbers are.
_IN_ITS_KIND = frozenset(words("masked_fill"))


def _any_float(values: Sequence[Value]) -> bool:
    return any(isinstance(one, SymFloat) for one in values)


# Functions and methods that take sizes or places, among them tensors without dimensions, which they
# read.
_CREATORS = frozenset(words("zeros ones empty rand randn arange eye"))
_SIZED = frozenset(words("new_zeros new_ones new_empty view reshape expand repeat unflatten"))


def with_sizes(machine: Machine, target: Any, arguments: Sequence[Value]) -> Sequence[Value]:
    """The arguments of a torch function with numbers in place of tensors that are read as sizes."""
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    if name not in _SIZED and (name not in _CREATORS or isinstance(target, str)):
        return arguments
    first = 1 if name in _SIZED else 0
    return [*arguments[:first], *(_as_number(machine, one) for one in arguments[first:])]


def _as_number(machine: Machine, value: Value) -> Value:
    kind = type(look(value))
    if kind in (Tuple, List):
        parts = value.unpack(machine)
        read = [_as_number(machine, one) for one in parts]
        if all(same(one, other) for one, other in zip(read, parts, strict=True)):
            return value
        return Tuple(read) if kind is Tuple else List(read)
    if isinstance(value, Tensor) and not value.fake(machine).dim():
        return index(machine, value)
    return value


# Functions whose numbers are rounded to the dtype of the tensor, as a tensor beside it has to be.
_OF_ONE_DTYPE = frozenset(words("lerp clamp_min clamp_max clamp clip fill"))
# Among them, those whose numbers are tensors all together or not at all.
_ALL_TENSORS = frozenset(words("clamp clip"))


def _is_exact(machine: Machine, value: Value) -> bool:
    """Whether it is a number that a double holds as it is."""
    if is_among(value.python_type(), (float,)):
        return True
    is_whole = is_among(value.python_type(), (int,)) and value.is_constant()
    return is_whole and abs(value.as_constant(machine)) <= 2**53


def _in_its_dtype(
    machine: Machine, name: str, arguments: Sequence[Value], keywords: Mapping[str, Value]
) -> tuple[Sequence[Value], Mapping[str, Value]]:
    first = arguments[0] if arguments else None
    kind = first.fake(machine).dtype if isinstance(first, Tensor) else None
    if kind not in (torch.float32, torch.float64):  # eager rounds others later
        return arguments, keywords
    varies = any(isinstance(one, SymFloat) for one in (*arguments, *keywords.values()))
    together = varies and name in _ALL_TENSORS

    def given(one: Value) -> Value:
        if isinstance(one, SymFloat) or (together and _is_exact(machine, one)):
            number = SymFloat.of(machine, one)
            number.rely_on_range(machine, kind)
            return number.as_tensor(machine, kind)
        return one

    return list(map(given, arguments)), {name: given(one) for name, one in keywords.items()}


def prepared(
    machine: Machine, target: Any, arguments: Sequence[Value], keywords: Mapping[str, Value]
) -> tuple[Sequence[Value], Mapping[str, Value]]:
    """The arguments of a torch function with tensors in place of numbers that vary, where the
    function takes tensors too."""
    name = (target if isinstance(target, str) else getattr(target, "__name__", "")).rstrip("_")
    if name in _OF_ONE_DTYPE:
        return _in_its_dtype(machine, name, arguments, keywords)
    if name not in _OPERANDS or not arguments or not isinstance(arguments[0], Tensor):
        return arguments, keywords
    tensor, rest = arguments[0], arguments[1:]
    named = dict(keywords)
    kind = tensor.fake(machine).dtype
    takes_floats = kind.is_floating_point or kind.is_complex
    scale = _OPERANDS[name]
    if kind is torch.bool and scale in named:
        return arguments, keywords  # eager takes truths alone, or answers truths
    if name in _IN_ITS_KIND and not takes_floats and _any_float((*rest, *named.values())):
        return arguments, keywords  # eager looks at the values
    changed: list[Value] = [
        one.operand(machine, tensor, name) if isinstance(one, SymInt | SymFloat) else one
        for one in rest
    ]
    factor = named.get(scale) if scale is not None else None
    if isinstance(factor, Tensor):
        factor = item(machine, factor)  # torch reads it
    refused = isinstance(factor, SymFloat) and not takes_floats
    if scale is not None and isinstance(factor, SymInt | SymFloat) and changed and not refused:
        del named[scale]
        scaled = factor.operand(machine, tensor, scale)
        changed[0] = machine.values.torch_call("call_method", "mul", [changed[0], scaled], {})
    return [tensor, *changed], named
