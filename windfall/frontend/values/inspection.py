"""Questions of `inspect` about kinds of objects: answered from types and code alone.

Enters: `inspect.isclass(value)` and its like. Leaves: constants, with a guard on the type (and of
functions on the code). Invariant: nothing is called, no attribute of the user's is read.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from windfall.frontend.breaks import ARGUMENTS, UNKNOWN_CALL, stop
from windfall.frontend.values.base import Arguments, Keywords, Value
from windfall.frontend.values.calls import calls
from windfall.frontend.values.class_value import Class
from windfall.frontend.values.function import Function, Method

if TYPE_CHECKING:
    from windfall.frontend.services import Machine

_BY_TYPE: dict[Any, type | tuple[type, ...]] = {
    inspect.isclass: type,
    inspect.isfunction: types.FunctionType,
    inspect.ismethod: types.MethodType,
    inspect.ismodule: types.ModuleType,
    inspect.isbuiltin: types.BuiltinFunctionType,
    inspect.isgenerator: types.GeneratorType,
    inspect.iscoroutine: types.CoroutineType,
}
_BY_FLAG = {
    inspect.isgeneratorfunction: inspect.CO_GENERATOR,
    inspect.iscoroutinefunction: inspect.CO_COROUTINE | inspect.CO_ITERABLE_COROUTINE,
    inspect.isasyncgenfunction: inspect.CO_ASYNC_GENERATOR,
}


def _one(arguments: Arguments, keywords: Keywords, question: Callable[..., Any]) -> Value:
    if keywords or len(arguments) != 1:
        stop(ARGUMENTS, question.__name__)
    return arguments[0]


def _by_type(question: Any, kinds: Any) -> None:
    def rule(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
        value = _one(arguments, keywords, question)
        if isinstance(value, Class):
            value.rely(machine)
        else:
            value.guard_type(machine)
        return machine.values.literal(issubclass(value.python_type(), kinds))

    calls(question)(rule)


def _by_flag(question: Any, flag: int) -> None:
    def rule(machine: Machine, arguments: Arguments, keywords: Keywords) -> Value:
        value = _one(arguments, keywords, question)
        function = value.function if isinstance(value, Method) else value
        if isinstance(function, Function):
            function.rely(machine)
            return machine.values.literal(bool(function.code.co_flags & flag))
        stop(UNKNOWN_CALL, f"{question.__name__} of {value.describe()}")

    calls(question)(rule)


for _question, _kinds in _BY_TYPE.items():
    _by_type(_question, _kinds)
for _question, _flag in _BY_FLAG.items():
    _by_flag(_question, _flag)
