"""Rules for builtins that read and write attributes and names: `getattr`, `vars`, `globals`…

Enters: their calls. Leaves: values; what looks at the calling frame is refused. Invariant: lookup
is done by the value that is asked.
"""

from __future__ import annotations

import collections
import inspect
import sys
import types
import typing
from typing import TYPE_CHECKING

from windfall.frontend.breaks import FRAME_BOUND, UNKNOWN_CALL, stop
from windfall.frontend.values.base import Arguments, Keywords, Value
from windfall.frontend.values.builtin import exactly
from windfall.frontend.values.calls import calls
from windfall.frontend.values.class_value import Class, find
from windfall.frontend.values.constant import Constant
from windfall.frontend.values.function import Function, Method
from windfall.frontend.values.objects import Object, is_plain_class
from windfall.ir.guard import IdentityIs

if TYPE_CHECKING:
    from windfall.frontend.services import Machine


@calls(getattr)
def _getattr(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    exactly(arguments, keywords, 2, 3, "getattr")
    if len(arguments) == 3:
        return machine.values.polyfill("getattr_or", arguments)
    return arguments[0].get_attribute(machine, arguments[1].as_constant(machine))


@calls(hasattr)
def _hasattr(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    exactly(arguments, keywords, 2, 2, "hasattr")
    return machine.values.polyfill("hasattr", arguments)


@calls(object.__getattribute__)
def _object_getattribute(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    exactly(arguments, keywords, 2, 2, "object.__getattribute__")
    owner, name = arguments
    if not isinstance(owner, Object):
        stop(UNKNOWN_CALL, f"object.__getattribute__ of {owner.describe()}")
    owner.guard_type(machine)
    return owner.plain_attribute(machine, name.as_constant(machine), owner.missing)


@calls(object.__setattr__)
def _object_setattr(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    exactly(arguments, keywords, 3, 3, "object.__setattr__")
    owner, name, value = arguments
    if not isinstance(owner, Object):
        stop(UNKNOWN_CALL, f"object.__setattr__ of {owner.describe()}")
    owner.guard_type(machine)
    owner.store_attribute(machine, name.as_constant(machine), value)
    return machine.values.literal(None)


@calls(setattr)
def _setattr(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    exactly(arguments, keywords, 3, 3, "setattr")
    owner, name, value = arguments
    owner.set_attribute(machine, name.as_constant(machine), value)
    return machine.values.literal(None)


@calls(delattr)
def _delattr(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    exactly(arguments, keywords, 2, 2, "delattr")
    arguments[0].delete_attribute(machine, arguments[1].as_constant(machine))
    return machine.values.literal(None)


@calls(vars)
def _vars(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    if not arguments and not keywords:
        stop(FRAME_BOUND, "vars()")
    exactly(arguments, keywords, 1, 1, "vars")
    return machine.values.polyfill("vars", arguments)


@calls(object.__new__)
def _object_new(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    exactly(arguments, keywords, 1, 1, "object.__new__")
    (cls,) = arguments
    if not isinstance(cls, Class) or not is_plain_class(cls.real):
        stop(UNKNOWN_CALL, f"object.__new__ of {cls.describe()}")
    cls.rely(machine)
    return Object(cls)


@calls(object.__init__)
def _object_init(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    """Surplus arguments are for `__new__`, where the class has one of its own."""
    owner = arguments[0] if arguments else None
    if not isinstance(owner, Object):
        stop(UNKNOWN_CALL, "object.__init__")
    if owner.cls.find(machine, "__new__") is find(object, "__new__"):
        exactly(arguments, keywords, 1, 1, "object.__init__")
    return machine.values.literal(None)


@calls(inspect.signature)
def _signature(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    """Of a function that exists: a constant that depends on it alone."""
    exactly(arguments, keywords, 1, 1, "inspect.signature")
    function = arguments[0].function if isinstance(arguments[0], Method) else arguments[0]
    if not isinstance(function, Function) or function.real is None or function.source is None:
        stop(UNKNOWN_CALL, "inspect.signature")
    real = function.real
    if hasattr(real, "__wrapped__") or hasattr(real, "__signature__"):
        stop(UNKNOWN_CALL, "inspect.signature of a wrapper")
    function.guard(machine, "identity", IdentityIs(real))
    function.rely(machine)
    bound = types.MethodType(real, real) if isinstance(arguments[0], Method) else real
    return Constant(inspect.signature(bound))


@calls(globals)
def _globals(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    space = machine.frames.stack[-1].globals
    return machine.values.globals_dict(space, space.get("__name__", "globals"))


@calls(locals, eval, exec, dir, breakpoint, sys.getrefcount)
def _frame_bound(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    stop(FRAME_BOUND, "a function that looks at its caller's frame")


@calls(
    collections.namedtuple,
    typing.NamedTuple,
    typing.NewType,
    typing.ParamSpec,
    typing.TypedDict,
    typing.TypeVar,
    typing.TypeVarTuple,
)
def _named_by_caller(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
    """They read their caller's module from its frame: a segment's frame tells it."""
    stop(UNKNOWN_CALL, "a function that reads its caller's module")
