"""`operator.itemgetter`, `attrgetter`, `methodcaller`, and the functions beside them.

Enters: getters that the program makes or finds, calls of `operator.setitem` and its like. Leaves:
frames of polyfills, so that the special methods of objects are followed. Invariant: a getter is
immutable, so one from outside is relied upon by identity.
"""

from __future__ import annotations

import collections
import operator
import sys
import types
from typing import TYPE_CHECKING, Any

import torch

from windfall.frontend.breaks import ARGUMENTS, UNKNOWN_CALL, stop
from windfall.frontend.values.base import Arguments, ByIdentity, Keywords, Value
from windfall.frontend.values.calls import calls
from windfall.frontend.values.constant import fold
from windfall.frontend.values.function import Method
from windfall.frontend.values.objects import Object
from windfall.frontend.values.tensor import Tensor
from windfall.frontend.values.wrap import wraps
from windfall.ir.guard import IdentityIs
from windfall.ir.source import Known, Source

if TYPE_CHECKING:
    from windfall.frontend.recipe import Recipe
    from windfall.frontend.services import Machine

_NAMES: dict[Any, str] = {
    operator.itemgetter: "item_getter",
    operator.attrgetter: "attribute_getter",
    operator.methodcaller: "method_caller",
}


class Getter(ByIdentity):
    """One of the three kinds, with what it was made of."""

    __slots__ = ("arguments", "keywords", "kind", "real")

    def __init__(
        self,
        kind: Any,
        arguments: Arguments,
        keywords: Keywords,
        source: Source | None = None,
        real: Any = None,
    ) -> None:
        super().__init__(source)
        self.kind = kind
        self.arguments = arguments
        self.keywords = keywords
        self.real = real

    def python_type(self) -> type:
        """Its class."""
        made: type = self.kind
        return made

    def call(self, machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
        """Of one object."""
        values = machine.values
        if keywords or len(arguments) != 1:
            stop(ARGUMENTS, self.kind.__name__)
        if not isinstance(self.source, Known):
            self.guard(machine, "identity", IdentityIs(self.real))
        if self.kind is not operator.methodcaller:
            return values.polyfill(_NAMES[self.kind], [arguments[0], values.tuple(self.arguments)])
        name, *rest = self.arguments
        packed = [values.tuple(rest), values.created_dict(self.keywords)]
        return values.polyfill("method_caller", [arguments[0], name, *packed])

    def rebuild(self, recipe: Recipe) -> str:
        """Made anew."""
        parts = [recipe.name(one) for one in self.arguments]
        parts += [f"{name}={recipe.name(one)}" for name, one in self.keywords.items()]
        return f"{recipe.known(self.kind, self.kind.__name__)}({', '.join(parts)})"


def _maker(kind: Any) -> None:
    def rule(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
        if not arguments or (keywords and kind is not operator.methodcaller):
            stop(ARGUMENTS, kind.__name__)
        if kind is not operator.itemgetter and not all(
            isinstance(one.as_constant(machine), str)
            for one in (arguments[:1] if kind is operator.methodcaller else arguments)
        ):
            stop(ARGUMENTS, kind.__name__)
        return Getter(kind, list(arguments), dict(keywords))

    calls(kind)(rule)


for _kind in _NAMES:
    _maker(_kind)


@wraps(operator.itemgetter, operator.attrgetter, operator.methodcaller)
def _wrap_getter(machine: Machine, value: Any, source: Source | None) -> Value:
    source = source or Known(value, type(value).__name__)
    made, arguments, *_ = value.__reduce__()
    if made is not type(value):  # a methodcaller with keywords is a partial of its class
        return machine.values.opaque(value, source)
    parts = [machine.values.literal_or_known(one, "part") for one in arguments]
    return machine.values.remember(value, Getter(type(value), parts, {}, source, value))


# Functions that are operators: done as the instruction is.
_BINARY = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/",
    operator.floordiv: "//", operator.mod: "%", operator.pow: "**", operator.matmul: "@",
    operator.and_: "&", operator.or_: "|", operator.xor: "^", operator.lshift: "<<",
    operator.rshift: ">>", operator.concat: "+",
}  # fmt: skip
_IN_PLACE = {
    operator.iadd: "+", operator.isub: "-", operator.imul: "*", operator.itruediv: "/",
    operator.ifloordiv: "//", operator.imod: "%", operator.ipow: "**", operator.imatmul: "@",
    operator.iand: "&", operator.ior: "|", operator.ixor: "^", operator.ilshift: "<<",
    operator.irshift: ">>", operator.iconcat: "+",
}  # fmt: skip
_COMPARED = {
    operator.lt: "<", operator.le: "<=", operator.eq: "==", operator.ne: "!=", operator.gt: ">",
    operator.ge: ">=",
}  # fmt: skip
_SUBSCRIPTS = {
    operator.getitem: ("get_item", 2),
    operator.setitem: ("set_item", 3),
    operator.delitem: ("delete_item", 2),
    operator.truth: ("truth", 1),
}


def _operator(function: Any, kind: str, symbol: str) -> None:
    def rule(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
        from windfall.frontend.opcodes import operators

        if keywords or len(arguments) != 2:
            stop(ARGUMENTS, function.__name__)
        done: Value = getattr(operators, kind)(machine, symbol, *arguments)
        return done

    calls(function)(rule)


for _table, _how in ((_BINARY, "binary"), (_IN_PLACE, "in_place"), (_COMPARED, "compare")):
    for _each, _symbol in _table.items():
        _operator(_each, _how, _symbol)


def _subscript(function: Any, name: str, count: int) -> None:
    def rule(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
        if keywords or len(arguments) != count:
            stop(ARGUMENTS, function.__name__)
        return machine.values.polyfill(name, arguments)

    calls(function)(rule)


for _function, (_name, _number) in _SUBSCRIPTS.items():
    _subscript(_function, _name, _number)


# CPython's own counter, which `collections.Counter` calls.
_count_elements = getattr(collections, "_count_elements")  # noqa: B009


@calls(_count_elements)
def _count(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    return machine.values.polyfill("count_elements", arguments, keywords)


@calls(abs, operator.abs)
def _abs(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    if keywords or len(arguments) != 1:
        stop(ARGUMENTS, "abs")
    (value,) = arguments
    if isinstance(value, Tensor):
        value.rely_on(machine, "__abs__")
        return machine.values.torch_call("call_function", torch.abs, arguments, {})
    if isinstance(value, Object):
        return machine.values.call_special(value, "__abs__", [])
    return fold(machine, abs, arguments, {})


@calls(types.MethodType)
def _method(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    if keywords or len(arguments) != 2:
        stop(ARGUMENTS, "method")
    return Method(arguments[0], arguments[1])


@calls(sys.exc_info)
def _exc_info(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    """Only where nothing is handled: a traceback is the real frames' own."""
    if machine.frames.handled is not None:
        stop(UNKNOWN_CALL, "exc_info")
    none = machine.values.literal(None)
    return machine.values.tuple([none, none, none])
