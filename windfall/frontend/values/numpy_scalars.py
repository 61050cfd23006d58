"""NumPy's scalars and the functions that make them of plain numbers: `np.sqrt(x.shape[-1])`.

Enters: `np.float32(0.5)`, `np.prod(x.shape)`, `self.scale` that `np.sqrt` made. Leaves: constants;
beside a tensor, the plain number that torch takes them for. Invariant: a scalar keeps its class and
bits; NumPy computes with it itself, and what it would warn of is left to the program. One that is
handed over by itself (an argument, what a native step answered) may be another in each call: it is
not looked into.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy
import torch

from windfall.frontend.breaks import (
    NOT_A_GRAPH_ARGUMENT,
    UNKNOWN_ATTRIBUTE,
    UNKNOWN_CALL,
    UNKNOWN_OPERATION,
    stop,
)
from windfall.frontend.name_tables import words
from windfall.frontend.values.base import Arguments, Given, Keywords, Value
from windfall.frontend.values.calls import calls
from windfall.frontend.values.constant import BINARY, COMPARE, UNARY, Constant
from windfall.frontend.values.sequence import List, Tuple
from windfall.frontend.values.tensor import Tensor
from windfall.frontend.values.unseen import look
from windfall.frontend.values.wrap import wraps
from windfall.ir.constants import NUMPY_SCALARS
from windfall.ir.reading import is_among
from windfall.ir.source import Slot, Source

if TYPE_CHECKING:
    from windfall.frontend.recipe import Recipe
    from windfall.frontend.services import Machine

_PLAIN = (int, float, bool)
_SEQUENCES = (tuple, list, torch.Size)
_MOST = 1 << 10  # numbers that a function is given at once


class NumpyScalar(Constant):
    """A number with NumPy's class."""

    __slots__ = ()
    has_own_class = True

    def operand(self, machine: Machine, beside: Any, operation: str = "") -> Value:
        """The plain number: torch reads no dtype from a scalar beside a tensor."""
        if type(self.value) is numpy.bool_:  # torch makes a float of it
            stop(NOT_A_GRAPH_ARGUMENT, self.describe())
        return machine.values.literal(self.as_constant(machine).item())

    def graph_argument(self, machine: Machine) -> tuple[Any, Any]:
        """In the graph the plain number (`x.reshape(np.prod(x.shape))`); the run on fakes is given
        the scalar, so that torch refuses it where eager does. (What would read its dtype was
        stopped before: `refuse_as_data`.)"""
        if type(self.value) is numpy.bool_:
            stop(NOT_A_GRAPH_ARGUMENT, self.describe())
        return self.as_constant(machine).item(), self.as_constant(machine)

    def key(self, machine: Machine) -> Any:
        """It would be equal to a plain number, and is not it."""
        stop(UNKNOWN_OPERATION, f"{self.describe()} as a key")

    def get_attribute(self, machine: Machine, name: str) -> Value:
        """Of its methods, the one that gives the plain number."""
        if name != "item":
            stop(UNKNOWN_ATTRIBUTE, f"{self.describe()}.{name}")
        return super().get_attribute(machine, name)

    def call_method(
        self, machine: Machine, name: str, arguments: Arguments, keywords: Keywords
    ) -> Value:
        """`item()`."""
        if name != "item" or arguments or keywords:
            stop(UNKNOWN_CALL, f"{self.describe()}.{name}")
        return machine.values.literal(self.as_constant(machine).item())

    def binary(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """With a number; a tensor is asked itself, as NumPy asks it."""
        if isinstance(other, Tensor):
            return None
        return _computed(machine, BINARY[operation], [self, other])

    def in_place(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """Scalars do not change."""
        return self.binary(machine, operation, other)

    def reflected(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """With a number on the left."""
        return _computed(machine, BINARY[operation], [other, self])

    def unary(self, machine: Machine, operation: str) -> Value:
        """NumPy's answer."""
        return _computed(machine, UNARY[operation], [self])

    def compare(self, machine: Machine, operation: str, other: Value) -> Value | None:
        """With a number."""
        return _computed(machine, COMPARE[operation], [self, other])

    def rebuild(self, recipe: Recipe) -> str:
        """The object itself under a name."""
        return recipe.known(self.value, type(self.value).__name__)


def dtype_of(scalar: NumpyScalar) -> torch.dtype:
    """Of the tensor that torch makes of it."""
    return torch.tensor(type(scalar.value)(0)).dtype


# What makes tensors of data: these take the dtype of a scalar of NumPy.
_OF_DATA = ("new_tensor", "tensor", "as_tensor", "asarray", "scalar_tensor")


def refuse_as_data(target: Any, given: Any) -> None:
    """Leave to torch the calls of which a scalar of NumPy decides the dtype."""
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    if name in _OF_DATA and _holds_scalar(given):
        stop(NOT_A_GRAPH_ARGUMENT, f"a scalar of NumPy in {name}()")


def _holds_scalar(given: Any) -> bool:
    if type(given) in (tuple, list):
        return any(map(_holds_scalar, given))
    return isinstance(given, numpy.generic)


def _number(machine: Machine, value: Value) -> Any:
    """A plain number or a scalar of NumPy's, or a short tuple or list of such."""
    value = look(value)
    if isinstance(value, Tuple | List) and is_among(value.python_type(), _SEQUENCES):
        parts = value.unpack(machine)
        if len(parts) > _MOST:
            stop(UNKNOWN_CALL, f"a function of NumPy of {len(parts)} numbers")
        return [_number(machine, one) for one in parts]
    if is_among(value.python_type(), (*_PLAIN, *NUMPY_SCALARS)):
        return value.as_constant(machine)
    stop(UNKNOWN_OPERATION, f"a scalar of NumPy and {value.describe()}")


def _computed(machine: Machine, function: Callable[..., Any], arguments: Arguments) -> Value:
    """What NumPy answers, if it is a number and nothing is to be warned of."""
    given = [_number(machine, one) for one in arguments]
    try:
        with numpy.errstate(all="raise"):
            found = function(*given)
    except Exception as refused:
        stop(UNKNOWN_CALL, f"{getattr(function, '__name__', function)}: {refused}")
    if not is_among(type(found), (*_PLAIN, *NUMPY_SCALARS)):
        stop(UNKNOWN_CALL, f"{getattr(function, '__name__', function)} answers {type(found)}")
    return machine.values.literal(found)


@wraps(*NUMPY_SCALARS)
def _wrap_scalar(machine: Machine, value: Any, source: Source | None) -> Value:
    if source is not None and isinstance(source, Slot):
        return machine.values.opaque(value, source)
    return NumpyScalar(value, source)


class NumpyFunction(Given):
    """A function of NumPy in C: folded where it is called with plain numbers."""

    __slots__ = ()

    def describe(self) -> str:
        """Its name."""
        return f"numpy.{getattr(self.real, '__name__', self.real)}"

    def call(self, machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
        """Computed now, of numbers."""
        if keywords or not any(self.real is one for one in _FUNCTIONS):
            stop(UNKNOWN_CALL, self.describe())
        found = _computed(machine, self.real, arguments)
        self.rely(machine)
        return found


_FUNCTIONS: tuple[Any, ...] = tuple(
    getattr(numpy, name)
    for name in words("""
        sqrt exp exp2 expm1 log log2 log10 log1p floor ceil rint trunc absolute sign power sin cos
        tan arcsin arccos arctan sinh cosh tanh square reciprocal maximum minimum add subtract
        multiply divide floor_divide remainder hypot deg2rad rad2deg isfinite isnan isinf
        prod sum cumprod round clip mean
    """)
)


@wraps(numpy.ufunc, type(numpy.prod))
def _wrap_function(machine: Machine, value: Any, source: Source | None) -> Value:
    if source is None:
        return machine.values.known(value, f"numpy.{value.__name__}")
    return machine.values.remember(value, NumpyFunction(value, source))


def _constructor(kind: type) -> None:
    def rule(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
        if keywords or len(arguments) != 1 or isinstance(look(arguments[0]), Tuple | List):
            stop(UNKNOWN_CALL, kind.__name__)
        return _computed(machine, kind, arguments)

    calls(kind)(rule)


for _kind in NUMPY_SCALARS:
    _constructor(_kind)
