"""Whether a Python function computes its result from its arguments and does nothing else.

Enters: a function. Leaves: yes, or not known. Used for functions behind `functools.lru_cache`:
what a pure one will answer may be foretold by interpreting it (`cached_answers.py`). Invariant:
"yes" is only said of code made of instructions in `_HARMLESS` whose names are constants, pure
builtins or functions of the same kind.
"""

from __future__ import annotations

import builtins
import functools
import math
import types
from typing import Any

from windfall.frontend.bytecode import decode
from windfall.frontend.name_tables import words

_CACHED: type = type(functools.lru_cache(int))

_HARMLESS = words("""
    RESUME NOP CACHE LOAD_CONST LOAD_FAST STORE_FAST DELETE_FAST LOAD_GLOBAL PUSH_NULL PRECALL CALL
    KW_NAMES POP_TOP COPY SWAP BINARY_OP UNARY_POSITIVE UNARY_NEGATIVE UNARY_INVERT UNARY_NOT
    COMPARE_OP IS_OP CONTAINS_OP BINARY_SUBSCR BUILD_TUPLE BUILD_LIST BUILD_MAP BUILD_SET
    BUILD_STRING FORMAT_VALUE BUILD_SLICE BUILD_CONST_KEY_MAP LIST_APPEND LIST_EXTEND LIST_TO_TUPLE
    UNPACK_SEQUENCE GET_ITER FOR_ITER JUMP_FORWARD JUMP_BACKWARD RETURN_VALUE
    POP_JUMP_FORWARD_IF_TRUE POP_JUMP_FORWARD_IF_FALSE POP_JUMP_BACKWARD_IF_TRUE
    POP_JUMP_BACKWARD_IF_FALSE POP_JUMP_FORWARD_IF_NONE POP_JUMP_FORWARD_IF_NOT_NONE
    POP_JUMP_BACKWARD_IF_NONE POP_JUMP_BACKWARD_IF_NOT_NONE JUMP_IF_TRUE_OR_POP
    JUMP_IF_FALSE_OR_POP LOAD_ASSERTION_ERROR RAISE_VARARGS POP_JUMP_IF_TRUE POP_JUMP_IF_FALSE
    POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE END_FOR LOAD_FAST_CHECK LOAD_FAST_AND_CLEAR BINARY_SLICE
    RERAISE TO_BOOL CALL_KW CONVERT_VALUE FORMAT_SIMPLE FORMAT_WITH_SPEC
""")
_PURE = (
    abs, all, any, bool, divmod, float, int, isinstance, len, max, min, pow, range, round, sorted,
    str, sum, tuple, list, enumerate, zip, reversed, ValueError, TypeError,
)  # fmt: skip
_CONSTANTS = (int, float, str, bytes, bool, type(None), complex)


def is_pure(function: Any, _asked: frozenset[int] = frozenset()) -> bool:
    """Whether calling it any number of times with constants is the same as once."""
    if type(function) is _CACHED:
        function = getattr(function, "__wrapped__")  # noqa: B009 (unknown to mypy)
    if id(function) in _asked:
        return True  # as pure as the rest of the circle
    if not isinstance(function, types.FunctionType) or function.__closure__:
        return False
    asked = _asked | {id(function)}
    for one in decode(function.__code__).instructions:
        if one.name not in _HARMLESS:
            return False
        if one.name == "LOAD_GLOBAL" and not _pure_name(function, one.value, asked):
            return False
    return True


def _pure_name(function: types.FunctionType, name: str, asked: frozenset[int]) -> bool:
    space = function.__globals__
    found = space[name] if name in space else getattr(builtins, name, None)
    if isinstance(found, _CONSTANTS) or any(found is one for one in _PURE):
        return True
    if isinstance(found, types.BuiltinFunctionType):
        return getattr(math, found.__name__, None) is found
    return is_pure(found, asked)
